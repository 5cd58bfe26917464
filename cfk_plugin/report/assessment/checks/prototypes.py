"""Checks of prototypes, which stand for nobody: what is guaranteed of them, and whether an audit refutes it."""

from __future__ import annotations

from cfk_plugin.report.assessment.checks.case import Case, Judgement, Line
from cfk_plugin.report.assessment.control import Figure

_DP = 11


def dp_guarantee(case: Case) -> Judgement:
    """Whether anything is guaranteed of the prototypes, and whether the guarantee reaches the model."""
    line = Line("dp_guarantee", _DP, source="certificate of the prototypes")
    certificates = [run.prototype for run in case.pooled.runs if run.prototype is not None]
    if not certificates:
        return line.says("not_measured", "No prototype was released in the period, so no certificate is on record.")
    measured = Figure(value=max(float(c["epsilon"]) for c in certificates), section=_DP)
    if any(c["guarantee"] == "none" for c in certificates):
        text = "Nothing is guaranteed: noise was seeded, a domain was read from rows, or the method has no proof."
        return line.says("fail", text, measured)
    if any(c["model_access"] == "private" for c in certificates):
        text = (
            "The mechanism is covered, the model is not: it was trained on the same people, so no total is stated. "
            "Say what may be known of the model with model_access."
        )
        return line.says("review", text, measured)
    return line.says("pass", "The guarantee covers the whole path from data to explanation, as declared.", measured)


def dp_budget(case: Case) -> Judgement:
    """Whether the budget that was spent is on record and within what people set."""
    spent = case.figure("epsilon_spent")
    threshold, source = case.threshold("epsilon")
    line = Line("dp_budget", _DP, threshold, source)
    if spent.value is None:
        return line.says("not_measured", "No accountant was used, so nobody adds up what several fits spend.")
    if threshold.value is None:
        return line.says("review", "No ceiling is set. Set thresholds: epsilon in the inputs.", spent)
    if spent.value > threshold.value:
        return line.says("fail", "More was spent than the ceiling allows.", spent)
    return line.says("pass", "What was spent is within the ceiling.", spent)


def attack_epsilon(case: Case) -> Judgement:
    """Whether an audit refutes the epsilon that is claimed."""
    found = [a for a in case.attacks if a.family == "epsilon"]
    if not found:
        text = "The epsilon was not audited. Run cfk audit epsilon and log the result."
        return Line("attack_epsilon", _DP).says("not_measured", text)
    worst = max(found, key=lambda a: (a.figures["epsilon_low"].value or 0) - (a.figures["claimed"].value or 0))
    low, claimed, ceiling = (worst.figures[name].value for name in ("epsilon_low", "claimed", "ceiling"))
    line = Line("attack_epsilon", _DP, Figure(value=claimed), "the claim")
    evidence = (worst.run,) if worst.run else ()
    measured = Figure(value=low, section=_DP, method="lower bound")
    if low is None or claimed is None or ceiling is None:
        return line.says("not_measured", "The audit found nothing to judge by.", evidence=evidence)
    if low > claimed:
        return line.says(
            "fail", "The audit refutes the epsilon that is claimed: its lower bound is above.", measured, evidence
        )
    released = case.figure("epsilon").value
    if released is not None and claimed > released:
        text = "The audit is of a larger epsilon than was released with, so it says nothing of this one."
        return line.says("review", text, measured, evidence)
    if ceiling <= claimed:
        return line.says("review", "The audit was too small to refute the claim, whatever is true.", measured, evidence)
    return line.says("pass", "The audit does not refute the claim, which does not prove it.", measured, evidence)
