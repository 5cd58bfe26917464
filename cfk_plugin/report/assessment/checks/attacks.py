"""Checks of attacks that were run: judged by the upper end of the interval, over the control."""

from __future__ import annotations

from cfk_plugin.report.assessment.checks.case import Case, Judgement, Line
from cfk_plugin.report.assessment.control import Figure
from cfk_plugin.report.data import Amount, Attack

_ATTACKS = 9
EXPECTED = ("linkage", "membership", "extraction", "attribute_inference")
"""Families of attacks that a report without is not complete; prototypes stand for nobody whom one could link to."""
_BY_CHANCE = "linkage"
"""Its attacks name one of k people: one in k is what k-anonymity admits."""


def attacks(case: Case) -> tuple[Judgement, ...]:
    """Return a line for every attack that was run, and one for every expected family of which none was."""
    ran = [a for a in case.attacks if a.family != "epsilon"]
    expected = [family for family in EXPECTED if family != _BY_CHANCE or case.of_regions]
    missing = [family for family in expected if not any(a.family == family for a in ran)]
    return (*(_judged(case, attack) for attack in ran), *(_missing(family) for family in missing))


def _missing(family: str) -> Judgement:
    text = "This attack was not run, so nobody knows whether it works. Run it with cfk audit and log the result."
    return Line(f"attack_{family}", _ATTACKS).says("not_measured", text)


def _judged(case: Case, attack: Attack) -> Judgement:
    tolerance, source = _tolerance(case, attack.family)
    reference = attack.control if attack.control.value is not None else attack.baseline
    line = Line(f"attack_{attack.id}", _ATTACKS, Figure(value=tolerance), source)
    if attack.main.value is None or reference.value is None:
        return line.says("not_measured", "The attack had nothing to attack.")
    against = "control" if reference is attack.control else "baseline"
    over = _figure(attack.main, reference.value)
    evidence = (attack.run,) if attack.run else ()
    if tolerance is None or over.value is None:
        return line.says("not_measured", "Nothing says how much is tolerated.", over, evidence)
    name = f"attack_{attack.id}"
    if over.value > tolerance:
        text = f"The attack does better than the {against} by more than is tolerated."
        if case.accepted(name):
            return line.says("review", f"{text} This is declared as an accepted risk.", over, evidence)
        return line.says("fail", text, over, evidence)
    if over.high is None or over.high > tolerance:
        text = "The attack may do better than is tolerated: the upper end of its interval is above."
        return line.says("review", text, over, evidence)
    if not attack.covers:
        text = (
            "The attack was run on another policy or population than some of the explanations, or nothing tells: "
            "fingerprints of different processes compare only with CFK_KEY. Run it on what is released."
        )
        return line.says("review", text, over, evidence)
    if attack.baseline.value is not None and attack.main.value < attack.baseline.value:
        text = "The attack did worse than a guess without it: it did not work here, which is no evidence of protection."
        return line.says("review", text, over, evidence)
    text = f"In this attack the adversary did not do better than the {against} by more than is tolerated."
    return line.says("pass", text, over, evidence)


def _tolerance(case: Case, family: str) -> tuple[float | None, str]:
    chosen = case.thresholds.get("attack_over_control")
    if family == _BY_CHANCE and (k := case.asked_k.value):
        return 1 / k, "1 / k of the policy: the chance that k-anonymity admits"
    return (None, "") if chosen is None else (chosen.value, chosen.source)


def _figure(main: Amount, reference: float) -> Figure:
    """Return how much better than a reference an attack did."""
    low, high = (None if end is None else end - reference for end in (main.low, main.high))
    value = None if main.value is None else main.value - reference
    return Figure(value=value, low=low, high=high, n=main.n, section=_ATTACKS)
