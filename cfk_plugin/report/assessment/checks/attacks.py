"""Checks of attacks that were run: judged by the upper end of the interval, over what the attack reaches anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cfk_plugin.report.assessment.checks.case import Case, Judgement, Line
from cfk_plugin.report.assessment.control import Figure, Kind
from cfk_plugin.report.assessment.families import (
    OF_MODELS,
    WITHOUT_EXPLANATIONS,
    Compared,
    compared,
    fell_short,
    few_alarms,
    whole,
)
from cfk_plugin.report.data import Attack, Status

_ATTACKS = 9
_BY_CHANCE = "linkage"
"""Its attacks name one of k people: one in k is what k-anonymity admits."""
EXPECTED = (_BY_CHANCE, *OF_MODELS)
"""Families of attacks that a report without is not complete; prototypes stand for nobody whom one could link to."""


class _Finding(NamedTuple):
    status: Status
    text: str


def attacks(case: Case) -> tuple[Judgement, ...]:
    """Return a line for every attack that is judged, and one for every expected family of which none was run."""
    judged = [attack for attack in case.attacks if attack.judged and attack.family != "epsilon"]
    names = {attack.id for attack in judged}
    ran = [attack for attack in judged if attack.id == whole(attack.id) or whole(attack.id) not in names]
    measured = {attack.family for attack in ran if attack.id not in WITHOUT_EXPLANATIONS}
    expected = [family for family in EXPECTED if family != _BY_CHANCE or case.of_regions]
    missing = [family for family in expected if family not in measured]
    lines = [_line(case, attack, [a for a in judged if a is not attack and whole(a.id) == attack.id]) for attack in ran]
    return (*lines, *(_missing(family) for family in missing))


def _missing(family: str) -> Judgement:
    text = "This attack was not run, so nobody knows whether it works. Run it with cfk audit and log the result."
    return Line(f"attack_{family}", _ATTACKS).says("not_measured", text)


def _line(case: Case, attack: Attack, parts: Sequence[Attack]) -> Judgement:
    """Judge an attack, and what it found of single attributes."""
    tolerance, source = _tolerance(case, attack.family)
    line = Line(f"attack_{attack.id}", _ATTACKS, Figure(value=tolerance), source)
    found = compared(attack)
    evidence = (attack.run,) if attack.run else ()
    if found is None:
        return line.says("not_measured", "The attack had nothing to attack.", evidence=evidence)
    over = found.over
    kind: Kind = "rate" if attack.family in OF_MODELS else "plain"
    measured = Figure(value=over.value, low=over.low, high=over.high, n=over.n, section=_ATTACKS, kind=kind)
    if tolerance is None:
        return line.says("not_measured", "Nothing says how much is tolerated.", measured, evidence)
    finding = _finding(case, attack, found, tolerance)
    if finding.status != "fail":
        finding = _of_parts(case, parts, tolerance) or finding
    return line.says(finding.status, finding.text, measured, evidence)


def _finding(case: Case, attack: Attack, found: Compared, tolerance: float) -> _Finding:
    if not attack.concerns:
        return _Finding(
            "review",
            "What was attacked is not released: no explanation is under its policy, or it has none. Nothing is known "
            "of what is released.",
        )
    return _against(case, attack, found, tolerance) or _doubt(attack, found, tolerance)


def _against(case: Case, attack: Attack, found: Compared, tolerance: float) -> _Finding | None:
    """Return what speaks against the release, if anything does."""
    if _refutes(attack):
        return _Finding("fail", "The attack refutes the epsilon that is claimed: it did better than epsilon admits.")
    if (found.over.value or 0.0) <= tolerance:
        return None
    text = f"The attack does better than the {found.with_what} by more than is tolerated."
    if attack.id in WITHOUT_EXPLANATIONS:
        return _Finding("review", f"{text} It needs no explanation: protect the model, or who may ask it.")
    if case.accepted(f"attack_{attack.id}") or (
        attack.family in OF_MODELS and case.accepted(f"attack_{attack.family}")
    ):
        return _Finding("review", f"{text} This is declared as an accepted risk.")
    return _Finding("fail", text)


def _of_parts(case: Case, parts: Sequence[Attack], tolerance: float) -> _Finding | None:
    """Return what speaks against the release of some attributes alone.

    There may be many, and chance puts some of them above what is tolerated: only whole intervals count.
    """
    above = []
    for part in parts:
        found = compared(part) if part.concerns else None
        if found is not None and found.over.low is not None and found.over.low > tolerance:
            above.append(part)
    if not above:
        return None
    names = ", ".join(part.id.partition("/")[2] for part in above)
    text = f"For single attributes the attack does better by more than is tolerated: {names}."
    if case.accepted(f"attack_{above[0].family}"):
        return _Finding("review", f"{text} This is declared as an accepted risk.")
    return _Finding("fail", text)


def _doubt(attack: Attack, found: Compared, tolerance: float) -> _Finding:
    """Return why the attack is no evidence for the release, else that it is."""
    if found.over.high is None or found.over.high > tolerance:
        text = "The attack may do better than is tolerated: the upper end of its interval is above."
    elif not attack.covers:
        text = (
            "The attack was run on another policy or population than some of the explanations, or nothing tells: "
            "fingerprints of different processes compare only with CFK_KEY. Run it on what is released."
        )
    elif fell_short(attack):
        text = "The attack did worse than a guess without it: it did not work here, which is no evidence of protection."
    elif few_alarms(attack.figures):
        text = (
            "On the whole the attack is within what is tolerated, but with few false alarms it picks out more people "
            "of the training data than others. Look at the left of the curve."
        )
    else:
        said = f"In this attack the adversary did not do better than the {found.with_what} by more than is tolerated."
        return _Finding("pass", said)
    return _Finding("review", text)


def _refutes(attack: Attack) -> bool:
    reached, bound = (attack.figures.get(name) for name in ("balanced_accuracy_low", "bound_tight"))
    if reached is None or bound is None or reached.value is None or bound.value is None:
        return False
    return reached.value > bound.value


def _tolerance(case: Case, family: str) -> tuple[float | None, str]:
    chosen = case.thresholds.get("attack_over_control")
    if family == _BY_CHANCE and (k := case.asked_k.value):
        return 1 / k, "1 / k of the policy: the chance that k-anonymity admits"
    return (None, "") if chosen is None else (chosen.value, chosen.source)
