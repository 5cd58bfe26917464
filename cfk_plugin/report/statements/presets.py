"""What checks compare with: thresholds by preset, by people, or by the house, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from cfk_plugin.data.policy import PRESETS as POLICIES
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError
from cfk_plugin.report.statements.texts import load

if TYPE_CHECKING:
    from cfk_plugin.report.inputs import HumanInputs

HOUSE = "house choice, no external source"
BY_PEOPLE = "inputs.yaml"
_HOUSE_VALUES = {"group_gap": 0.1, "attack_over_control": 0.05}
_WITHOUT_DEFAULT = ("pureness", "ncp", "attribute_disclosure", "epsilon")


@dataclass(frozen=True, slots=True)
class Preset:
    """A named choice of k.

    Attributes
    ----------
    name : str
        As in `PrivacyPolicy.preset`.
    k : int
    risk : float
        Highest prosecutor risk: the source's own number where it has one, else 1 / k.
    source : str
        What k and risk come from.
    status, verified, checked_on : str
        State of the source, how that was verified, and when (year and month).
    """

    name: str
    k: int
    risk: float
    source: str
    status: str
    verified: str
    checked_on: str


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a check compares with.

    Attributes
    ----------
    id : str
        ``k``, ``risk``, ``pureness``, ``ncp``, ``attribute_disclosure``, ``group_gap``, ``attack_over_control``
        or ``epsilon``.
    value : float, optional
        None where nothing is asked: the figure is reported and not judged.
    source : str
        Who asks for it.
    """

    id: str
    value: float | None
    source: str


def _preset(name: str) -> Preset:
    told = dict(load("presets")[name])
    k = PrivacyPolicy.preset(name).k
    return Preset(name=name, k=k, risk=float(told.pop("risk", 1 / k)), **told)


PRESETS: Mapping[str, Preset] = MappingProxyType({name: _preset(name) for name in POLICIES})
"""Name to preset. None of them sets a floor for pureness, and none makes a release lawful."""


def thresholds(preset: str | None, inputs: HumanInputs) -> Mapping[str, Threshold]:
    """Return what the checks of a report compare with.

    Parameters
    ----------
    preset : str, optional
        Name of a preset. Without one, k is asked by the policy of each run alone.
    inputs : HumanInputs
        What people chose; it comes before the preset and the house.

    Returns
    -------
    mapping of str to Threshold
        One for every id; without a value where nobody asks for anything.

    Raises
    ------
    InputError
        If the preset is unknown, or people chose a k below its own: the report would carry a name that it does not
        live up to.
    """
    chosen = inputs.thresholds
    found = {name: Threshold(name, None, "nobody asks for one") for name in ("k", "risk", *_WITHOUT_DEFAULT)}
    found |= {name: Threshold(name, value, HOUSE) for name, value in _HOUSE_VALUES.items()}
    if preset is not None:
        asked = _named(preset)
        if "k" in chosen and chosen["k"] < asked.k:
            raise InputError(f"thresholds.k is below that of the preset {preset}; leave one of the two out")
        found["k"] = Threshold("k", asked.k, f"{preset}: {asked.source}")
        found["risk"] = Threshold(
            "risk", asked.risk, f"{preset}: {'1 / k' if asked.risk == 1 / asked.k else asked.source}"
        )
    found |= {name: Threshold(name, value, BY_PEOPLE) for name, value in chosen.items()}
    if "k" in chosen:
        risks = [1 / chosen["k"], found["risk"].value or 1.0]
        found["risk"] = Threshold("risk", min(risks), f"{BY_PEOPLE}: 1 / k")
    return MappingProxyType(found)


def _named(preset: str) -> Preset:
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}")
    return PRESETS[preset]
