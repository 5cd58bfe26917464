"""What a guarantee promises, checked against what attacks found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

from cfk_plugin.audit.result import AuditResult
from cfk_plugin.data.policy import PrivacyPolicy

Verdict = Literal["pass", "fail", "review"]


@dataclass(frozen=True, slots=True)
class Check:
    """One number that a guarantee promises.

    Attributes
    ----------
    name : str
        Attack and figure, as ``attack/figure``.
    value : float or None
        Fewest people that the attack left; None where the attack was not run or nothing was released.
    needed : int
        The policy's k.
    """

    name: str
    value: float | None
    needed: int

    @property
    def holds(self) -> bool | None:
        """Whether at least k people are left; None where that is not known."""
        return None if self.value is None else self.value >= self.needed - 1e-9

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {"name": self.name, "value": self.value, "needed": self.needed, "holds": self.holds}


def promised(policy: PrivacyPolicy) -> tuple[str, ...]:
    """Return the figures that must not be below k.

    Parameters
    ----------
    policy : PrivacyPolicy

    Returns
    -------
    tuple of str
        Nominal: people inside the region. Reciprocal: also the people whom the algorithm maps to the same region,
        for every person of the population, and for every release. Catalogue: also the people whom the model is
        consistent with. With ``anonymity_set="eligible"``, and with a catalogue, only people with the desired
        prediction are counted (see `inversion`).
    """
    names = ["linkage/k_min"]
    if policy.guarantee in ("reciprocal", "catalogue"):
        names += ["inversion_own/k_effective_min", "inversion_own/everyone_k_effective_min"]
    if policy.guarantee == "catalogue":
        names.append("model_filter/k_consistent_min")
    return tuple(names)


def checks(policy: PrivacyPolicy, results: Mapping[str, AuditResult]) -> tuple[Check, ...]:
    """Return every promised number with what was found."""
    found = []
    for name in promised(policy):
        attack, figure = name.split("/", 1)
        value = results[attack].figures.get(figure) if attack in results else None
        found.append(Check(name, None if value is None or isnan(value) else value, policy.k))
    return tuple(found)


def verdict(found: tuple[Check, ...]) -> Verdict:
    """Return "fail" when a promise is broken, "review" when one could not be checked, else "pass"."""
    if any(check.holds is False for check in found):
        return "fail"
    return "review" if any(check.holds is None for check in found) else "pass"
