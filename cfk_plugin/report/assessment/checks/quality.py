"""Checks of what protection leaves of an explanation: whether it holds, and still says something, for everybody."""

from __future__ import annotations

from math import ceil, log

from cfk_plugin.report.assessment.checks.case import Case, Judgement, Line
from cfk_plugin.report.assessment.control import Figure

_VALIDITY, _UTILITY, _GROUPS = 7, 8, 10
_COMPARED = ("ncp", "pureness", "suppressed")
_TAIL = 0.025  # of a two-sided 95 % interval


def draws_needed(floor: float) -> int:
    """Return how many draws without a failure bring the lower end of a 95 % Clopper-Pearson interval to a floor.

    Examples
    --------
    >>> draws_needed(0.99)
    368
    """
    return ceil(log(_TAIL) / log(floor))


def pureness(case: Case) -> Judgement:
    """Whether the advice holds in every region, judged by the lower end of its interval."""
    threshold, source = case.threshold("pureness", "min_pureness")
    line, measured = Line("pureness", _VALIDITY, threshold, source), case.figure("pureness_min")
    regions, floor = case.pooled.regions, threshold.value
    if not case.pooled.complete("pureness"):
        return line.says("not_measured", "Pureness is not on record for every release.")
    if floor is None:
        text = "No floor is set, so nobody judged it. Set min_pureness in the policy, or a threshold in the inputs."
        return line.says("review", text, measured)
    failing = regions[(regions["pureness"] < floor).to_numpy()]
    if len(failing):
        text = "In some released regions, fewer value combinations than asked for lead to the desired outcome."
        return line.says("fail", text, measured, case.pooled.evidence(failing))
    short = regions[(regions["pureness_low"] < floor).to_numpy()]
    if len(short):
        needed = f"{draws_needed(floor)} draws without one failure are needed" if 0 < floor < 1 else "ask exactly"
        text = f"Too few combinations were drawn to be sure of the floor: {needed}."
        return line.says("review", text, measured, case.pooled.evidence(short))
    return line.says("pass", "In every released region, the lower end of pureness is at or above the floor.", measured)


def ncp(case: Case) -> Judgement:
    """Whether explanations still say something on average, for every group."""
    threshold, source = case.threshold("ncp", "max_ncp", "min")
    line, measured, ceiling = Line("ncp", _UTILITY, threshold, source), case.figure("ncp_mean"), threshold.value
    if measured.value is None:
        return line.says("not_measured", "Information loss is not on record.")
    if ceiling is None:
        text = "No ceiling is set, so nobody judged it. Set max_ncp in the policy, or a threshold in the inputs."
        return line.says("review", text, measured)
    if measured.value > ceiling:
        return line.says("fail", "Explanations lose more information on average than the ceiling allows.", measured)
    above = [g for g in case.groups if g.metric == "ncp" and g.mean.value is not None and g.mean.value > ceiling]
    if above:
        text = "On average explanations keep to the ceiling, those of one group do not."
        return line.says("review", text, measured)
    return line.says("pass", "Explanations keep to the ceiling of information loss on average.", measured)


def group_gap(case: Case) -> Judgement:
    """Whether one group gets worse explanations than the rest."""
    threshold, source = case.threshold("group_gap")
    line, tolerance = Line("group_gap", _GROUPS, threshold, source), threshold.value
    known = [g for g in case.groups if g.metric in _COMPARED and g.gap.low is not None and g.gap.high is not None]
    if not known or tolerance is None:
        text = "No groups were logged, so nobody knows whether some get worse explanations. Give protect() groups=."
        return line.says("not_measured", text)
    ends = {id(g): (g.gap.low or 0.0, g.gap.high or 0.0) for g in known}
    widest = max(known, key=lambda g: max(map(abs, ends[id(g)])))
    measured = Figure(value=widest.gap.value, low=widest.gap.low, high=widest.gap.high, section=_GROUPS)
    where = f"Widest: {widest.metric}, {widest.attribute}: {widest.group}."
    inside = all(-tolerance <= low and high <= tolerance for low, high in ends.values())
    if inside and not bool(case.pooled.rows["group"].notna().all()):
        text = f"No group differs by more than the tolerance, but not every explanation has a group on record. {where}"
        return line.says("review", text, measured)
    if inside:
        return line.says("pass", f"No group differs from the rest by more than the tolerance. {where}", measured)
    if any(low > tolerance or high < -tolerance for low, high in ends.values()):
        text = f"A group gets explanations that differ from those of the rest by more than the tolerance. {where}"
        return line.says("fail", text, measured)
    return line.says("review", f"A difference between groups may be larger than the tolerance. {where}", measured)
