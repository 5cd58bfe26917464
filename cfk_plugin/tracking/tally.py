"""Figures of explanations: of one set, and summed over everything that was logged to a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.data.outcome import ALREADY_DESIRED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.tracking.record import RunRecord
    from cfk_plugin.tracking.summary import Figures

PER_EXPLANATION = ("k", "ncp", "pureness")
"""Fields of a certificate that are logged as a metric with one value per explanation."""

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
"""Figures of a run that are metrics, for people who compare runs. The summary has the others."""

_COPIES = ("native", "native-qi", "near-native")  # findings of detection that have a rate
_FIGURES: Mapping[str, tuple[str, Callable[[Any], Any], type]] = {
    "k_min": ("k", min, int),
    "k_mean": ("k", np.mean, float),
    "k_p05": ("k", lambda values: np.percentile(values, 5), float),
    "k_worst_min": ("k_worst", min, int),
    "k_desired_min": ("k_desired", min, int),
    "k_consistent_min": ("k_consistent", min, int),
    "k_effective_min": ("k_effective", min, int),
    "k_private_min": ("k_private", min, int),
    "ncp_mean": ("ncp", np.mean, float),
    "ncp_p95": ("ncp", lambda values: np.percentile(values, 95), float),
    "pureness_mean": ("pureness", np.mean, float),
    "pureness_min": ("pureness", min, float),
    "pureness_low": ("pureness_low", np.mean, float),
    "optimal_rate": ("optimal", np.mean, float),
    "prosecutor_risk_max": ("prosecutor_risk", max, float),
    "marketer_risk": ("prosecutor_risk", np.mean, float),
    "cm": ("majority", lambda values: 1 - np.mean(values), float),
}
FIELDS = tuple(dict.fromkeys(column for column, _, _ in _FIGURES.values()))
"""Fields of a certificate that `figures` needs."""


def figures(columns: Mapping[str, Sequence[Any] | NDArray[np.float64]]) -> dict[str, float | None]:
    """Return the figures of released regions from their `columns`; None where a field is not known
    for all of them.
    """
    found: dict[str, float | None] = dict.fromkeys(_FIGURES)
    for name, (column, reduce, kind) in _FIGURES.items():
        values = columns.get(column, ())
        if len(values) and all(value is not None for value in values):
            found[name] = kind(reduce(values))
    return found


def rates(found: Mapping[str, int]) -> dict[str, float | None]:
    """Return the share of examined raw counterfactuals that copy a row; None if none was
    examined.
    """
    examined = found["examined"]
    return {_rate(name): found.get(name, 0) / examined if examined else None for name in _COPIES}


# The figures of a run, over everything that was logged to it, call by call.

_EXTREMES: Mapping[str, Callable[..., float]] = {
    **dict.fromkeys(("k_worst_min", "k_desired_min", "k_effective_min"), min),
    **dict.fromkeys(("k_consistent_min", "k_private_min", "l_min"), min),
    **dict.fromkeys(("t_max", "disclosure_max"), max),
}


@dataclass(frozen=True, slots=True)
class Tally:
    """A run's figures so far, which suffice to continue it."""

    figures: Figures = field(default_factory=dict)  # of the summary; empty before the first record
    series: Mapping[str, NDArray[np.float64]] = field(  # one value per released region
        default_factory=lambda: {name: np.empty(0) for name in PER_EXPLANATION}
    )

    @property
    def asked(self) -> int:
        return int(self.known("asked"))

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that are metrics, as far as they are known."""
        plotted = {name: self.figures.get(name) for name in PLOTTED}
        return {
            metric_of(name): float(value) for name, value in plotted.items() if value is not None
        }

    def is_of(self, metrics: Mapping[str, float]) -> bool:
        """Say whether a run with these metrics counts what this tally counts."""
        return all(
            metrics.get(metric_of(name), 0) == self.known(name) for name in ("asked", "untracked")
        )

    def known(self, name: str, default: float = 0.0) -> float:
        """Return a figure; `default` if it is not known."""
        value = self.figures.get(name)
        return default if value is None else value

    def plus(self, records: Sequence[RunRecord]) -> Tally:
        regions = [(record.k, row) for record in records for row in record.generalized]
        rows = [row for _, row in regions]
        prototypes = [row for record in records for row in record.prototypes]
        looked_at = {
            name: sum(record.found.get(name, 0) for record in records)
            for name in ("examined", *_COPIES)
        }
        asked = sum(len(record.rows) for record in records)
        more = {
            "asked": asked,
            "withheld": asked - len(rows) - len(prototypes),
            ALREADY_DESIRED: sum(map(_already_desired, records)),
            "released_native": sum(row["k"] < k for k, row in regions),
            "examined": looked_at["examined"],
            "untracked": sum(record.untracked for record in records),
            "prototypes": len(prototypes),
            "unproven": sum(row["guarantee"] == "none" for row in prototypes),
        }
        counts = {name: int(self.known(name)) + number for name, number in more.items()}
        copies = {
            name: looked_at[name] + round(self.known(_rate(name)) * self.known("examined"))
            for name in _COPIES
        }
        series = {
            name: np.append(self.series[name], [row[name] for row in rows])
            for name in PER_EXPLANATION
        }
        # those who needed an answer, and those of them who got none
        needed = counts["asked"] - counts[ALREADY_DESIRED]
        refused = counts["withheld"] - counts[ALREADY_DESIRED]
        spent = [record.epsilon_spent for record in records if record.epsilon_spent is not None]
        out: dict[str, float | None] = {
            **counts,
            "released": counts["asked"] - counts["withheld"],
            "withheld_rate": refused / needed if needed else None,
            **self._rates(records, {**copies, "examined": counts["examined"]}),
            **figures({**series, "prosecutor_risk": 1 / series["k"]}),
            **{name: self._extreme(name, records) for name in _EXTREMES},
            "pureness_low": self._mean(
                "pureness_low", sum(row["pureness_low"] for row in rows), len(series["k"])
            ),
            "cm": self._mean("cm", sum(map(_disagreeing, records)), len(series["k"])),
            "optimal_rate": self._mean(
                "optimal_rate", sum(row["optimal"] for row in rows), len(series["k"])
            ),
            "cdm": self.known("cdm", math.nan if self.known("asked") else 0.0)
            + sum(map(_discernibility, records)),
            "epsilon_spent": spent[-1] if spent else self.known("epsilon_spent", math.nan),
        }
        if counts["prototypes"] or not counts["asked"]:
            out["cdm"] = None
        return Tally({name: _finite(value) for name, value in out.items()}, series)

    def _rates(
        self, records: Sequence[RunRecord], examined: Mapping[str, int]
    ) -> dict[str, float | None]:
        """Return how many raw counterfactuals copy a row: of those examined, else of a fit's
        sample.
        """
        samples = [record.sample for record in records if record.sample is not None]
        sampled = samples[-1]["examined"] if samples else self.known("sampled", math.nan)
        found: dict[str, float | None]
        if examined["examined"]:
            found = rates(examined)
        elif samples:
            found = rates(samples[-1])
        else:
            found = {_rate(name): self.known(_rate(name), math.nan) for name in _COPIES}
        return {**found, "sampled": sampled}

    @property
    def verdict(self) -> str:
        """What the run shows: ``fail`` below k; ``review`` without release, record or guarantee;
        else ``pass``.
        """
        if self.known("released_native"):
            return "fail"
        unsure = self.known("untracked") + self.known("unproven")
        return "pass" if self.known("released") and not unsure else "review"

    def _extreme(self, name: str, records: Sequence[RunRecord]) -> float:
        """Return the least or largest value so far."""
        rows = [row for record in records for row in record.recount]
        values = [row[name[:-4]] for row in rows if name[:-4] in row]
        before = [] if self.figures.get(name) is None else [self.known(name)]
        return _EXTREMES[name]([*before, *values], default=math.nan)

    def _mean(self, name: str, more: float, regions: int) -> float:
        """Return the mean over all released regions, from the earlier mean and the sum over new
        ones.
        """
        before = len(self.series["k"])
        total = self.known(name, math.nan) * before if before else 0.0
        if name != "pureness_low" and math.isfinite(total):  # a whole number of regions
            total = round(total)
        return (total + more) / regions if regions else math.nan


def _rate(finding: str) -> str:
    return f"{finding.replace('-', '_')}_rate"


def _finite(value: float | None) -> float | None:
    """Return a figure for JSON, which has no NaN: None stands for it."""
    return None if value is None or not math.isfinite(value) else value


def metric_of(name: str) -> str:
    """Return the metric of a figure."""
    return f"cfk.{name}"


def _already_desired(record: RunRecord) -> int:
    """Return for how many queries of a record nothing needed to change."""
    return sum(row.get("reason") == ALREADY_DESIRED for row in record.rows)


def _discernibility(record: RunRecord) -> float:
    """Return what a record adds to C_DM; NaN where the cost of a withheld one is unknown, or
    nothing has a k.
    """
    withheld = len(record.rows) - len(record.released) - _already_desired(record)
    if record.of_prototypes or (withheld and not record.people):
        return math.nan
    return float(sum(row["k"] for row in record.generalized) + withheld * record.people)


def _disagreeing(record: RunRecord) -> float:
    """Return how many regions of a record promise an outcome that most of them lack; NaN where that
    is unknown.
    """
    known = [row["majority"] for row in record.recount if "majority" in row]
    return float(len(known) - sum(known)) if len(known) == len(record.generalized) else math.nan
