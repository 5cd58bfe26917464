"""Figures of explanations: of one set, and summed over everything that was logged to a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.records.record import RunRecord

PER_EXPLANATION = ("k", "ncp", "pureness")
"""Fields of a certificate that get a metric with one value per explanation."""

_COPIES = ("native", "native-qi", "near-native")  # findings of detection that have a rate
_FIGURES: Mapping[str, tuple[str, Callable[[Any], Any], type]] = {
    "k_min": ("k", min, int),
    "k_mean": ("k", np.mean, float),
    "k_p05": ("k", lambda values: np.percentile(values, 5), float),
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
"""Fields of a certificate that `figures` are of."""


def figures(columns: Mapping[str, Sequence[Any] | NDArray[np.float64]]) -> dict[str, float | None]:
    """Return each figure of released regions, of which `columns` has fields; None where one is not known of all."""
    found: dict[str, float | None] = dict.fromkeys(_FIGURES)
    for name, (column, reduce, kind) in _FIGURES.items():
        values = columns.get(column, ())
        if len(values) and all(value is not None for value in values):
            found[name] = kind(reduce(values))
    return found


def rates(found: Mapping[str, int]) -> dict[str, float | None]:
    """Return which share of the raw counterfactuals that detection looked at copies a row; None of nothing."""
    examined = found["examined"]
    return {f"{name.replace('-', '_')}_rate": found.get(name, 0) / examined if examined else None for name in _COPIES}


# The figures of a run: sums over everything that was logged to it, call by call.

_COUNTS = ("asked", "suppressed", "released_native", "examined", "untracked", "prototypes", "unproven")
_LEAST, _LARGEST = ("k_desired", "k_effective", "k_consistent", "k_private", "l"), ("t", "disclosure")


def _no_values() -> dict[str, NDArray[np.float64]]:
    return {name: np.empty(0) for name in PER_EXPLANATION}


def _no_sums() -> dict[str, float | None]:
    return {"pureness_low": 0.0, "cdm": 0.0, "disagreeing": 0.0, "optimal": 0.0}


@dataclass(frozen=True, slots=True)
class Tally:
    counts: Counter[str] = field(default_factory=Counter)  # `_COUNTS`, and findings of detection
    extremes: Mapping[str, float] = field(default_factory=dict)  # least or largest value, where there is one
    series: Mapping[str, NDArray[np.float64]] = field(default_factory=_no_values)  # one value per released region
    sums: Mapping[str, float | None] = field(default_factory=_no_sums)  # None from where on a sum is not known
    epsilon_spent: float | None = None

    @property
    def asked(self) -> int:
        return self.counts["asked"]

    def plus(self, records: Sequence[RunRecord]) -> Tally:
        regions = [(record.k, row) for record in records for row in record.generalized]
        rows = [row for _, row in regions]
        prototypes = [row for record in records for row in record.prototypes]
        asked = sum(len(record.rows) for record in records)
        counts = self.counts + Counter(
            asked=asked,
            suppressed=asked - len(rows) - len(prototypes),
            released_native=sum(row["k"] < k for k, row in regions),
            untracked=sum(record.untracked for record in records),
            prototypes=len(prototypes),
            unproven=sum(row["guarantee"] == "none" for row in prototypes),
        )
        for record in records:
            counts.update(record.found)
        counted = [self.extremes, *(row for record in records for row in (*record.recount, record.least))]
        extremes = {
            name: reduce(values)
            for names, reduce in ((_LEAST, min), (_LARGEST, max))
            for name in names
            if (values := [row[name] for row in counted if name in row])
        }
        more = {
            "pureness_low": sum(row["pureness_low"] for row in rows),
            "cdm": _sum(*map(_discernibility, records)),
            "disagreeing": _sum(*map(_disagreeing, records)),
            "optimal": sum(row["optimal"] for row in rows),
        }
        spent = [record.epsilon_spent for record in records if record.epsilon_spent is not None]
        return Tally(
            counts,
            extremes,
            {name: np.append(self.series[name], [row[name] for row in rows]) for name in PER_EXPLANATION},
            {name: _sum(self.sums[name], more[name]) for name in more},
            spent[-1] if spent else self.epsilon_spent,
        )

    @classmethod
    def resume(cls, metrics: Mapping[str, float], history: Callable[[str], Sequence[float]]) -> Tally:
        """Read a tally back from a run's last metrics and, with `history`, the values of one metric."""
        known = {name.removeprefix("cfk."): value for name, value in metrics.items()}
        if not known.get("asked"):
            return cls()
        counts = Counter({name: int(known.get(name, 0)) for name in _COUNTS})
        for name in _COPIES:
            counts[name] = round(known.get(f"{name.replace('-', '_')}_rate", 0.0) * counts["examined"])
        ends = {**{name: f"{name}.min" for name in _LEAST}, **{name: f"{name}.max" for name in _LARGEST}}
        series = {name: np.asarray(history(f"cfk.{name}"), dtype=float) for name in PER_EXPLANATION}
        regions = len(series["k"])
        sums = {
            "pureness_low": known.get("pureness.low", 0.0) * regions,
            "cdm": known.get("cdm"),
            "disagreeing": _count(known.get("cm"), regions),
            "optimal": _count(known.get("optimal_rate"), regions),
        }
        extremes = {name: known[metric] for name, metric in ends.items() if metric in known}
        return cls(counts, extremes, series, sums, known.get("epsilon_spent"))

    @property
    def verdict(self) -> str:
        """What the run shows.

        ``fail`` when anything was released below k; ``review`` when nothing was released, some has no record, or
        nothing is guaranteed of a prototype (a claim is no proof); else ``pass``.
        """
        if self.counts["released_native"]:
            return "fail"
        unsure = self.counts["untracked"] + self.counts["unproven"]
        return "pass" if self.asked > self.counts["suppressed"] and not unsure else "review"

    def metrics(self) -> dict[str, float]:
        """Return the summary metrics; a figure over nothing is left out."""
        counts, regions = self.counts, len(self.series["k"])
        out: dict[str, float | None] = {
            **{
                name: counts[name] for name in _COUNTS if name not in ("prototypes", "unproven") or counts["prototypes"]
            },
            "released": self.asked - counts["suppressed"],
            "suppressed_rate": counts["suppressed"] / self.asked if self.asked else None,
            **rates(counts),
            **figures({**self.series, "prosecutor_risk": 1 / self.series["k"]}),
            **{f"{name}_min": self.extremes.get(name) for name in _LEAST},
            **{f"{name}_max": self.extremes.get(name) for name in _LARGEST},
            "cdm": self.sums["cdm"] if self.asked and not counts["prototypes"] else None,
            "epsilon_spent": self.epsilon_spent,
        }
        if regions:
            shares = {"pureness_low": "pureness_low", "cm": "disagreeing", "optimal_rate": "optimal"}
            found = {name: self.sums[of] for name, of in shares.items()}
            out |= {name: None if total is None else total / regions for name, total in found.items()}
        return {
            metric_of(name): float(value) for name, value in out.items() if value is not None and np.isfinite(value)
        }


def metric_of(name: str) -> str:
    """Return the name of a figure's metric in a run: ``k_min`` is ``cfk.k.min``."""
    head, _, tail = name.rpartition("_")
    return f"cfk.{head}.{tail}" if tail in ("min", "mean", "max", "low", "p05", "p95") else f"cfk.{name}"


def _discernibility(record: RunRecord) -> float | None:
    """Return what a record adds to C_DM; None where it is not known what a suppressed one costs, or nothing has k."""
    withheld = len(record.rows) - len(record.released)
    if record.of_prototypes or (withheld and not record.people):
        return None
    return float(sum(row["k"] for row in record.generalized) + withheld * record.people)


def _disagreeing(record: RunRecord) -> float | None:
    """Return how many regions of a record do not have their majority's outcome; None where that is not known."""
    known = [row["majority"] for row in record.recount if "majority" in row]
    return float(len(known) - sum(known)) if len(known) == len(record.generalized) else None


def _sum(*amounts: float | None) -> float | None:
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def _count(share: float | None, of: int) -> float | None:
    """Return the number behind a logged share; of nothing it is 0, whatever was logged."""
    return None if share is None and of else float(round((share or 0.0) * of))
