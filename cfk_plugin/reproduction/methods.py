"""The methods that are compared: each a policy for every k and a protector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.hookspecs import Protector
from cfk_plugin.protection.baselines import GraspProtector, MondrianProtector
from cfk_plugin.protection.exact import ExactProtector

Objective = Literal["pureness", "ncp", "weighted"]

WEIGHT = 0.07
"""Of impurity in the objective "weighted": a point of NCP for fourteen of pureness. Of the weights that the study of
weights tries it is the one with which each of the paper's figures on cmc, where the purest regions cost more NCP than
the paper's, is reached; chosen by looking at that study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of protecting.

    Attributes
    ----------
    label : str
        As tables and plots call it.
    protector : callable or None
        From the options to a protector; None where the guarantee prescribes one.
    objective : str
    guarantee : {"nominal", "reciprocal"}
    options : frozenset of str
        Names of the settings that may be changed.
    randomised : bool
        Whether it draws random numbers, so that nobody can rerun it for somebody else and be certain.
    """

    label: str
    protector: Callable[..., Protector] | None
    objective: Objective = "pureness"
    guarantee: Literal["nominal", "reciprocal"] = "nominal"
    options: frozenset[str] = frozenset()
    randomised: bool = False

    def policy(self, k: int, options: Mapping[str, Any]) -> PrivacyPolicy:
        """Return the policy for a k: people are counted as in the paper, and nothing is withheld."""
        return PrivacyPolicy(
            k=k,
            guarantee=self.guarantee,
            objective=self.objective,
            anonymity_set="population",
            pureness_weight=float(options.get("weight", WEIGHT)) if self.objective == "weighted" else 1.0,
        )

    def made(self, options: Mapping[str, Any]) -> Protector | str:
        """Return the protector with some options, or the name that lets the guarantee choose."""
        if self.protector is None:
            return "auto"
        return self.protector(**{name: value for name, value in options.items() if name != "weight"})


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "grasp": Method(
            label="CF-K (GRASP)",
            protector=GraspProtector,
            options=frozenset({"alpha", "iterations"}),
            randomised=True,
        ),
        "exact-ncp": Method(label="exact, least NCP", protector=ExactProtector, objective="ncp"),
        "exact-pureness": Method(label="exact, purest", protector=ExactProtector),
        "exact-weighted": Method(
            label="exact, weighted",
            protector=ExactProtector,
            objective="weighted",
            options=frozenset({"weight"}),
        ),
        "mondrian-raw": Method(
            label="Mondrian, raw widths", protector=lambda: MondrianProtector(normalise=False), objective="ncp"
        ),
        "mondrian": Method(label="Mondrian, normalised widths", protector=MondrianProtector, objective="ncp"),
        "reciprocal": Method(label="reciprocal (default)", protector=None, guarantee="reciprocal"),
    }
)
"""By name. "grasp" is the paper's method with its settings, "reciprocal" what this product does by default."""

SLOW = "grasp"
"""The one that asks the model again and again: seconds per explanation, where others take milliseconds."""
