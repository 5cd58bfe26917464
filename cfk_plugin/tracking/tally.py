"""Figures of the explanations of a result, and of all records of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.data.outcome import ALREADY_DESIRED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.tracking.record import Figures, RunRecord

PLOTTED = (
    "asked",
    "released",
    "withheld_rate",
    "k_min",
    "k_mean",
    "k_worst_min",
    "ncp_mean",
    "pureness_mean",
    "pureness_min",
    "native_rate",
    "near_native_rate",
    "prosecutor_risk_max",
    "untracked",
    "epsilon_spent",
)
"""Figures of a run that are metrics, to compare runs. The summary also has the others."""

_COPIES = ("native", "native-qi", "near-native")  # findings with a rate
_LEAST = {
    "k_min": "k",
    "k_worst_min": "k_worst",
    "k_desired_min": "k_desired",
    "k_consistent_min": "k_consistent",
    "k_effective_min": "k_effective",
    "k_private_min": "k_private",
    "pureness_min": "pureness",
}
_LARGEST = {"prosecutor_risk_max": "prosecutor_risk"}
_MEANS = {
    "k_mean": "k",
    "ncp_mean": "ncp",
    "pureness_mean": "pureness",
    "pureness_low": "pureness_low",
    "optimal_rate": "optimal",
    "marketer_risk": "prosecutor_risk",
    "cm": "minority",
}
_PERCENTILES = {"k_p05": ("k", 5), "ncp_p95": ("ncp", 95)}


def figures(
    columns: Mapping[str, Sequence[Any] | NDArray[Any]],
) -> dict[str, int | float | None]:
    """Return the figures of released regions; a figure is None if a region lacks the value.

    Parameters
    ----------
    columns : mapping
        Values of certificates and recounts by name, one for each region; see `FIELDS`.
    """
    arrays = {name: np.asarray(values) for name, values in columns.items() if _is_known(values)}
    if "k" in arrays:
        arrays["prosecutor_risk"] = 1 / arrays["k"]
    if "majority" in arrays:
        arrays["minority"] = ~arrays["majority"].astype(bool)
    result: dict[str, int | float | None] = {}
    for names, reduce in ((_LEAST, np.min), (_LARGEST, np.max), (_MEANS, np.mean)):
        for name, column in names.items():
            values = arrays.get(column)
            result[name] = None if values is None else reduce(values).item()
    for name, (column, percent) in _PERCENTILES.items():
        values = arrays.get(column)
        result[name] = None if values is None else float(np.percentile(values, percent))
    return result


FIELDS = (
    *("k", "k_worst", "k_desired", "k_consistent", "k_effective", "k_private"),
    *("ncp", "pureness", "pureness_low", "optimal", "majority"),
)
"""Columns that `figures` needs."""


def _is_known(values: Sequence[Any] | NDArray[Any]) -> bool:
    return len(values) > 0 and all(value is not None for value in values)


def rates(n_of_finding: Mapping[str, int]) -> dict[str, float | None]:
    """Return the share of raw counterfactuals with each finding, by the name of the rate.

    The shares are None if no counterfactual was compared with training rows.
    """
    n_examined = n_of_finding["examined"]
    shares: dict[str, float | None] = {}
    for finding in _COPIES:
        share = n_of_finding.get(finding, 0) / n_examined if n_examined else None
        shares[f"{finding.replace('-', '_')}_rate"] = share
    return shares


def metric_of(name: str) -> str:
    """Return the name of a figure's metric in MLflow."""
    return f"cfk.{name}"


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts and figures of all records of a run."""

    n_records: int = 0
    counts: Mapping[str, int] = field(default_factory=Counter)
    n_of_finding: Mapping[str, int] = field(default_factory=Counter)  # see `RunRecord`
    of_regions: Figures = field(default_factory=dict)  # empty before the first region
    sample: Mapping[str, int] | None = None
    epsilon_spent: float | None = None

    def plus(self, record: RunRecord) -> Tally:
        """Return the tally with one more record."""
        regions = [] if record.of_prototypes else record.released
        prototypes = record.released if record.of_prototypes else []
        reasons = [row.get("reason") for row in record.rows]
        new_counts = Counter(
            asked=len(record.rows),
            released=len(record.released),
            already_desired=reasons.count(ALREADY_DESIRED),
            regions=len(regions),
            released_native=sum(row["k"] < record.policy["k"] for row in regions),
            prototypes=len(prototypes),
            unproven=sum(row["guarantee"] == "none" for row in prototypes),
        )
        columns = {name: [row.get(name) for row in regions] for name in FIELDS}
        spent = record.epsilon_spent
        return Tally(
            n_records=self.n_records + 1,
            counts=Counter(self.counts) + new_counts,
            n_of_finding=Counter(self.n_of_finding) + Counter(record.n_of_finding),
            of_regions=self._merged(figures(columns), len(regions)),
            sample=self.sample if record.sample is None else record.sample,
            epsilon_spent=self.epsilon_spent if spent is None else spent,
        )

    def without_record(self, n_released: int) -> Tally:
        """Return the tally with further released explanations that have no record."""
        return replace(self, counts=Counter(self.counts) + Counter(untracked=n_released))

    def _merged(self, new_figures: Figures, n_new: int) -> Figures:
        """Return the figures of the earlier regions and of `n_new` new ones together.

        A figure is None if it is None for either.
        """
        n_old = self.counts.get("regions", 0)
        if n_old == 0 or n_new == 0:
            return new_figures if n_old == 0 else self.of_regions
        merged: dict[str, int | float | None] = {}
        for name in (*_LEAST, *_LARGEST, *_MEANS):
            old = self.of_regions[name]
            new = new_figures[name]
            if new is None or old is None:
                merged[name] = None
            elif name in _LEAST:
                merged[name] = min(old, new)
            elif name in _LARGEST:
                merged[name] = max(old, new)
            else:
                merged[name] = (old * n_old + new * n_new) / (n_old + n_new)
        return merged

    @property
    def figures(self) -> dict[str, int | float | None]:
        """All figures of the run; None for an unknown figure."""
        counts = {name: self.counts.get(name, 0) for name in _COUNTS}
        withheld = counts["asked"] - counts["released"]
        # A query that has the desired outcome already needs no explanation.
        n_needed = counts["asked"] - counts["already_desired"]
        n_refused = withheld - counts["already_desired"]
        n_of_finding = {"examined": 0, **self.n_of_finding}
        if not n_of_finding["examined"] and self.sample is not None:
            n_of_finding = dict(self.sample)
        regions = {name: self.of_regions.get(name) for name in (*_LEAST, *_LARGEST, *_MEANS)}
        everything = {
            **counts,
            "withheld": withheld,
            "examined": self.n_of_finding.get("examined", 0),
            "withheld_rate": n_refused / n_needed if n_needed else None,
            "sampled": None if self.sample is None else self.sample["examined"],
            **rates(n_of_finding),
            **regions,
            "epsilon_spent": self.epsilon_spent,
        }
        # JSON has no NaN.
        return {
            name: None if value is None or not math.isfinite(value) else value
            for name, value in everything.items()
        }

    @property
    def verdict(self) -> str:
        """The verdict on the run.

        ``fail`` if a region has fewer than k people; ``review`` if nothing was released, or an
        explanation has no record or no guarantee; otherwise ``pass``.
        """
        if self.counts.get("released_native"):
            return "fail"
        is_unsure = self.counts.get("untracked") or self.counts.get("unproven")
        return "pass" if self.counts.get("released") and not is_unsure else "review"


_COUNTS = (
    *("asked", "released", "already_desired", "released_native"),
    *("prototypes", "unproven", "untracked"),
)
