"""The figures of a run: sums over everything that was logged to it, call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.counterfactual import Certificate, GeneralizedCounterfactual

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.tracking.record import Record

PER_EXPLANATION = ("k", "ncp", "pureness")
"""Fields of a certificate that get a metric with one value per explanation."""


def _none() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts and figures over the explanations of a run. Adding gives a new tally.

    Attributes
    ----------
    asked, suppressed, released_native : int
        Counterfactuals asked for; withheld; released with fewer than k people (must be 0).
    examined, native, near_native, native_qi : int
        Raw counterfactuals that detection looked at; equal to a training row; near one; equal to one on the
        quasi-identifiers alone.
    k, ncp, pureness : float array
        One value per released explanation.
    pureness_low : float
        Sum of the lower ends of the pureness intervals.
    k_desired, k_effective : float
        Least value so far; infinite where none was computed.
    epsilon_spent : float or None
        Privacy budget spent so far, where the protector spends one.
    """

    asked: int = 0
    suppressed: int = 0
    released_native: int = 0
    examined: int = 0
    native: int = 0
    near_native: int = 0
    native_qi: int = 0
    k: NDArray[np.float64] = field(default_factory=_none)
    ncp: NDArray[np.float64] = field(default_factory=_none)
    pureness: NDArray[np.float64] = field(default_factory=_none)
    pureness_low: float = 0.0
    k_desired: float = np.inf
    k_effective: float = np.inf
    epsilon_spent: float | None = None

    def plus(self, records: Sequence[Record]) -> Tally:
        """Return the tally after more records."""
        entries = [(r.explanations.policy.k, e) for r in records for e in r.explanations]
        released = [(k, e.certificate) for k, e in entries if isinstance(e, GeneralizedCounterfactual)]
        certificates = [c for _, c in released]
        found = [f for r in records for f in r.explanations.findings if f is not None]
        effective = [c.k_effective for c in certificates if c.k_effective is not None]
        spent = [r.explanations.provenance.get("epsilon_spent") for r in records]
        return replace(
            self,
            asked=self.asked + len(entries),
            suppressed=self.suppressed + len(entries) - len(released),
            released_native=self.released_native + sum(c.k < k for k, c in released),
            examined=self.examined + len(found),
            native=self.native + found.count("native"),
            near_native=self.near_native + found.count("near-native"),
            native_qi=self.native_qi + found.count("native-qi"),
            **{name: np.append(getattr(self, name), _values(certificates, name)) for name in PER_EXPLANATION},
            pureness_low=self.pureness_low + sum(c.pureness_low for c in certificates),
            k_desired=min([self.k_desired, *(c.k_desired for c in certificates if c.k_desired is not None)]),
            k_effective=min([self.k_effective, *effective]),
            epsilon_spent=next((float(s) for s in reversed(spent) if s is not None), self.epsilon_spent),
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
        )

    @property
    def verdict(self) -> str:
        """``fail`` when anything was released below k, ``review`` when nothing was, else ``pass``."""
        if self.released_native:
            return "fail"
        return "pass" if self.asked > self.suppressed else "review"

    def metrics(self) -> dict[str, float]:
        """Return the summary metrics; a figure over nothing is left out."""
        released = self.asked - self.suppressed
        out: dict[str, float | None] = {
            "asked": self.asked,
            "released": released,
            "suppressed": self.suppressed,
            "examined": self.examined,
            "released_native": self.released_native,
            "suppressed_rate": self.suppressed / self.asked if self.asked else None,
            "native_rate": self.native / self.examined if self.examined else None,
            "near_native_rate": self.near_native / self.examined if self.examined else None,
            "native_qi_rate": self.native_qi / self.examined if self.examined else None,
            "k_desired.min": self.k_desired if self.k_desired < np.inf else None,
            "k_effective.min": self.k_effective if self.k_effective < np.inf else None,
            "epsilon_spent": self.epsilon_spent,
        }
        if released:
            out |= {"k.min": self.k.min(), "k.mean": self.k.mean(), "k.p05": np.percentile(self.k, 5)}
            out |= {"ncp.mean": self.ncp.mean(), "ncp.p95": np.percentile(self.ncp, 95)}
            out |= {"pureness.mean": self.pureness.mean(), "pureness.min": self.pureness.min()}
            out |= {"pureness.low": self.pureness_low / released}
        return {f"cfk.{name}": float(value) for name, value in out.items() if value is not None}


def _values(certificates: Sequence[Certificate], name: str) -> list[Any]:
    return [getattr(c, name) for c in certificates]
