"""Figures of explanations: of one set, and summed over everything that was logged to a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.release.results import Certificate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.records.record import RunRecord


# The figures of a run: sums over everything that was logged to it, call by call.

PER_EXPLANATION = ("k", "ncp", "pureness")
"""Fields of a certificate that get a metric with one value per explanation."""

_LOWEST, _HIGHEST = ("k_consistent", "k_private", "l"), ("t", "disclosure")


def _none() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts and figures over the explanations of a run. Adding gives a new tally."""

    asked: int = 0  # Counterfactuals asked for; withheld; regions released with fewer than k people (must be 0)
    suppressed: int = 0  # Counterfactuals asked for; withheld; regions released with fewer than k people (must be 0)
    # Counterfactuals asked for; withheld; regions released with fewer than k people (must be 0)
    released_native: int = 0
    # Raw counterfactuals that detection looked at; equal to a training row; near one; equal to one on the quasi-
    # identifiers alone
    examined: int = 0
    native: int = 0
    near_native: int = 0
    native_qi: int = 0
    k: NDArray[np.float64] = field(default_factory=_none)  # One value per released region
    ncp: NDArray[np.float64] = field(default_factory=_none)  # One value per released region
    pureness: NDArray[np.float64] = field(default_factory=_none)  # One value per released region
    pureness_low: float = 0.0  # Sum of the lower ends of the pureness intervals
    k_desired: float = np.inf  # Least value so far; infinite where none was computed
    k_effective: float = np.inf  # Least value so far; infinite where none was computed
    epsilon_spent: float | None = None  # Privacy budget spent so far, where the protector spends one
    untracked: int = 0  # Counterfactuals that were given out although no record of them could be kept
    prototypes: int = 0  # Released entries that are prototypes; those of them of which nothing is guaranteed
    unproven: int = 0  # Released entries that are prototypes; those of them of which nothing is guaranteed
    k_consistent: float = np.inf  # Least value so far; infinite where none was computed
    k_private: float = np.inf  # Least value so far; infinite where none was computed
    l: float = np.inf  # noqa: E741 - the field's name of the parameter
    t: float = -np.inf  # Largest value so far; minus infinity where none was computed
    disclosure: float = -np.inf  # Largest value so far; minus infinity where none was computed
    # Discernibility so far; released regions whose majority is not predicted the desired outcome; those that are proved
    # optimal. None from where on it is not known.
    cdm: float | None = 0.0
    disagreeing: float | None = 0.0
    optimal: float | None = 0.0

    def plus(self, records: Sequence[RunRecord]) -> Tally:
        """Return the tally after more records."""
        regions = [(record.k, row) for record in records for row in record.generalized]
        rows = [row for _, row in regions]
        prototypes = [row for record in records for row in record.prototypes]
        asked = sum(len(record.rows) for record in records)
        spent = [record.epsilon_spent for record in records if record.epsilon_spent is not None]

        def found(name: str) -> int:
            return sum(record.found.get(name, 0) for record in records)

        def least(name: str) -> float:
            return min((record.least.get(name, np.inf) for record in records), default=np.inf)

        series: dict[str, Any] = {n: np.append(getattr(self, n), [row[n] for row in rows]) for n in PER_EXPLANATION}
        recount = [row for record in records for row in record.recount]
        lowest = {n: min([getattr(self, n), *(row[n] for row in recount if n in row)]) for n in _LOWEST}
        highest = {n: max([getattr(self, n), *(row[n] for row in recount if n in row)]) for n in _HIGHEST}
        return replace(
            self,
            asked=self.asked + asked,
            suppressed=self.suppressed + asked - len(regions) - len(prototypes),
            released_native=self.released_native + sum(row["k"] < k for k, row in regions),
            examined=self.examined + found("examined"),
            native=self.native + found("native"),
            near_native=self.near_native + found("near-native"),
            native_qi=self.native_qi + found("native-qi"),
            **series,
            pureness_low=self.pureness_low + sum(row["pureness_low"] for row in rows),
            k_desired=min(self.k_desired, least("k_desired")),
            k_effective=min(self.k_effective, least("k_effective")),
            epsilon_spent=spent[-1] if spent else self.epsilon_spent,
            untracked=self.untracked + sum(record.untracked for record in records),
            prototypes=self.prototypes + len(prototypes),
            unproven=self.unproven + sum(row["guarantee"] == "none" for row in prototypes),
            **lowest,
            **highest,
            cdm=_sum(self.cdm, *map(_discernibility, records)),
            disagreeing=_sum(self.disagreeing, *map(_disagreeing, records)),
            optimal=_sum(self.optimal, sum(row["optimal"] for row in rows)),
        )

    @classmethod
    def resume(cls, metrics: dict[str, float], history: Callable[[str], Sequence[float]]) -> Tally:
        """Read a tally back from a run's last metrics and, with `history`, the values of one metric."""
        asked = int(metrics.get("cfk.asked", 0))
        if not asked:
            return cls()
        examined = int(metrics.get("cfk.examined", 0))
        k, ncp, pureness = (np.asarray(history(f"cfk.{name}"), dtype=float) for name in PER_EXPLANATION)
        return cls(
            asked=asked,
            suppressed=int(metrics.get("cfk.suppressed", 0)),
            released_native=int(metrics.get("cfk.released_native", 0)),
            examined=examined,
            native=round(metrics.get("cfk.native_rate", 0.0) * examined),
            near_native=round(metrics.get("cfk.near_native_rate", 0.0) * examined),
            native_qi=round(metrics.get("cfk.native_qi_rate", 0.0) * examined),
            k=k,
            ncp=ncp,
            pureness=pureness,
            pureness_low=metrics.get("cfk.pureness.low", 0.0) * len(pureness),
            k_desired=metrics.get("cfk.k_desired.min", np.inf),
            k_effective=metrics.get("cfk.k_effective.min", np.inf),
            epsilon_spent=metrics.get("cfk.epsilon_spent"),
            untracked=int(metrics.get("cfk.untracked", 0)),
            prototypes=int(metrics.get("cfk.prototypes", 0)),
            unproven=int(metrics.get("cfk.unproven", 0)),
            **{name: metrics.get(f"cfk.{name}.min", np.inf) for name in _LOWEST},
            **{name: metrics.get(f"cfk.{name}.max", -np.inf) for name in _HIGHEST},
            cdm=metrics.get("cfk.cdm"),
            disagreeing=_count(metrics.get("cfk.cm"), len(k)),
            optimal=_count(metrics.get("cfk.optimal_rate"), len(k)),
        )

    @property
    def verdict(self) -> str:
        """What the run shows.

        ``fail`` when anything was released below k; ``review`` when nothing was released, some has no record, or
        nothing is guaranteed of a prototype (a claim is no proof); else ``pass``.
        """
        if self.released_native:
            return "fail"
        return "pass" if self.asked > self.suppressed and not self.untracked + self.unproven else "review"

    def metrics(self) -> dict[str, float]:
        """Return the summary metrics; a figure over nothing is left out."""
        out: dict[str, float | None] = {f"{name}.min": getattr(self, name) for name in _LOWEST}
        out |= {f"{name}.max": getattr(self, name) for name in _HIGHEST}
        out |= {
            "asked": self.asked,
            "released": self.asked - self.suppressed,
            "suppressed": self.suppressed,
            "examined": self.examined,
            "released_native": self.released_native,
            "untracked": self.untracked,
            "suppressed_rate": self.suppressed / self.asked if self.asked else None,
            "native_rate": self.native / self.examined if self.examined else None,
            "near_native_rate": self.near_native / self.examined if self.examined else None,
            "native_qi_rate": self.native_qi / self.examined if self.examined else None,
            "k_desired.min": self.k_desired,
            "k_effective.min": self.k_effective,
            "cdm": self.cdm if self.asked and not self.prototypes else None,
            "epsilon_spent": self.epsilon_spent,
        }
        if self.prototypes:
            out |= {"prototypes": self.prototypes, "unproven": self.unproven}
        if len(self.k):
            out |= {"k.min": self.k.min(), "k.mean": self.k.mean(), "k.p05": np.percentile(self.k, 5)}
            out |= {"ncp.mean": self.ncp.mean(), "ncp.p95": np.percentile(self.ncp, 95)}
            out |= {"pureness.mean": self.pureness.mean(), "pureness.min": self.pureness.min()}
            out |= {"pureness.low": self.pureness_low / len(self.pureness)}
            out |= {"prosecutor_risk.max": 1 / self.k.min(), "marketer_risk": (1 / self.k).mean()}
            out |= {"cm": _share(self.disagreeing, len(self.k)), "optimal_rate": _share(self.optimal, len(self.k))}
        return {f"cfk.{name}": float(value) for name, value in out.items() if value is not None and np.isfinite(value)}


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


def _share(number: float | None, of: int) -> float | None:
    return None if number is None else number / of


def _count(share: float | None, of: int) -> float | None:
    """Return the number behind a logged share; of nothing it is 0, whatever was logged."""
    return None if share is None and of else float(round((share or 0.0) * of))


# Figures over the certificates of a result.


def figures_of(certificates: Sequence[Certificate]) -> dict[str, float | None]:
    """Return each figure; None where a certificate does not have it, or there is none."""

    def over(name: str, reduce: Callable[[list[Any]], Any], kind: type = float) -> float | None:
        values = [getattr(c, name) for c in certificates]
        return kind(reduce(values)) if values and None not in values else None

    return {
        "k_min": over("k", min, int),
        "k_mean": over("k", np.mean),
        "k_p05": over("k", lambda v: np.percentile(v, 5)),
        "k_desired_min": over("k_desired", min, int),
        "k_consistent_min": over("k_consistent", min, int),
        "k_effective_min": over("k_effective", min, int),
        "k_private_min": over("k_private", min, int),
        "ncp_mean": over("ncp", np.mean),
        "ncp_p95": over("ncp", lambda v: np.percentile(v, 95)),
        "pureness_mean": over("pureness", np.mean),
        "pureness_min": over("pureness", min),
        "pureness_low": over("pureness_low", np.mean),
        "optimal_rate": over("optimal", np.mean),
        "prosecutor_risk_max": over("prosecutor_risk", max),
        "marketer_risk": over("prosecutor_risk", np.mean),
        "cm": over("majority", lambda v: 1 - np.mean(v)),
    }


def rate(flags: Sequence[bool]) -> float | None:
    """Return the share that is true; None of nothing."""
    return float(np.mean(flags)) if len(flags) else None
