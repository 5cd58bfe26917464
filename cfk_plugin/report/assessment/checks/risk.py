"""Checks of what a release tells of people, alone and together with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.report.assessment.checks.case import OWN_POLICY, Case, Judgement, Line
from cfk_plugin.report.assessment.control import Figure

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RISK, _COMPOSITION = 5, 6
_NOTHING_RELEASED = "No region was released in the period."
_NOT_COUNTED = "It was not counted for every release."


def k_min(case: Case) -> Judgement:
    """Whether every released region holds the k people that its own policy, or this report, asks for."""
    line, measured = _asked(case, "k_min"), case.figure("k_min")
    if not case.pooled.complete("k"):
        return line.says("not_measured", _unknown(case))
    regions = case.pooled.regions
    below = regions[(regions["k"] < regions["asked_k"]).to_numpy()]
    if len(below):
        text = "Regions were released that fewer people fit than was asked for. Stop releasing, and find out why."
        return line.says("fail", text, measured, case.pooled.evidence(below))
    return line.says("pass", "Every released region fits at least as many people as was asked for.", measured)


def k_desired_min(case: Case) -> Judgement:
    """Whether k people are left for somebody who knows who got the desired outcome."""
    return _crowd(
        case,
        "k_desired",
        "Somebody who knows who got the desired outcome",
        'Set anonymity_set="eligible", or declare the risk as accepted.',
    )


def k_effective_min(case: Case) -> Judgement:
    """Whether k people are left for somebody who reruns the protection for everybody."""
    return _crowd(
        case,
        "k_effective",
        "Somebody who reruns the protection for everybody",
        'Use guarantee="reciprocal" or "catalogue".',
    )


def _crowd(case: Case, column: str, who: str, remedy: str) -> Judgement:
    name = f"{column}_min"
    line, regions = _asked(case, name), case.pooled.regions
    if column in regions and len(below := regions[_below(case, column)]):
        least = Figure(value=int(below[column].min()), kind="class_size")
        found = f"{who} is left with fewer people than was asked for."
        evidence = case.pooled.evidence(below)
        if case.accepted(name):
            return line.says("review", f"{found} This is declared as an accepted risk.", least, evidence)
        return line.says("fail", f"{found} {remedy}", least, evidence)
    if not case.pooled.complete(column):
        return line.says("not_measured", _unknown(case))
    return line.says("pass", f"{who} is left with at least as many people as was asked for.", case.figure(name))


def k_intersection(case: Case) -> Judgement:
    """Whether k people are left for somebody who puts several releases together."""
    name = "k_intersection"
    line, regions = _asked(case, name, _COMPOSITION), case.pooled.regions
    if name in regions and len(below := regions[_below(case, name)]):
        least = Figure(value=int(below[name].min()), kind="class_size")
        text = "Releases of one record have fewer people in common than was asked for."
        return line.says("fail", text, least, case.pooled.evidence(below))
    if not has_ledger(case):
        text = "No ledger was used, so nobody knows what several releases together tell. Give protect() a ledger."
        return line.says("review", text)
    if not case.pooled.complete(name):
        return line.says("not_measured", _unknown(case))
    measured = case.figure("k_intersection_min")
    if case.inputs.answers.get("recipients_pool") not in ("yes", "no"):
        text = "Releases of one record keep enough people in common; who pools what they receive is not known."
        return line.says("review", text, measured)
    text = "All releases of one record together keep at least as many people in common as was asked for."
    return line.says("pass", text, measured)


def has_ledger(case: Case) -> bool:
    """Say whether every run with regions kept a ledger."""
    regions = case.pooled.regions
    if "ledger" not in regions or not len(regions):
        return False
    kept = regions.groupby("run", observed=True)["ledger"].count()
    return bool((kept > 0).all())


def native_leak(case: Case) -> Judgement:
    """Whether a released region is one combination of quasi-identifiers that fewer people have than was asked for."""
    line, regions = Line("native_leak", _RISK, Figure(value=0), "invariant of the product"), case.pooled.regions
    if not (case.pooled.complete("ncp") and case.pooled.complete("k")):
        return line.says("not_measured", _unknown(case))
    leaks = regions[((regions["ncp"] == 0) & (regions["k"] < regions["asked_k"])).to_numpy()]
    measured = Figure(value=len(leaks), kind="requests")
    if len(leaks):
        text = "Explanations left with exact quasi-identifiers that too few people have."
        return line.says("fail", text, measured, case.pooled.evidence(leaks))
    text = "No explanation left with exact quasi-identifiers that fewer people have than was asked for."
    return line.says("pass", text, measured)


def l_diversity(case: Case) -> Judgement | None:
    """Whether sensitive values are as diverse as the policy asks; None where it asks nothing."""
    asked, figure = case.settings("l"), case.figure("l_min")
    if not asked:
        return None
    return _kept(Line("l_diversity", _RISK, Figure(value=max(asked)), OWN_POLICY), figure, sign=1)


def t_closeness(case: Case) -> Judgement | None:
    """Whether sensitive values are as close to the population's as the policy asks; None where it asks nothing."""
    asked, figure = case.settings("t"), case.figure("t_max")
    if not asked:
        return None
    return _kept(Line("t_closeness", _RISK, Figure(value=min(asked)), OWN_POLICY), figure, sign=-1)


def _kept(line: Line, figure: Figure, sign: int) -> Judgement:
    if figure.value is None or line.threshold.value is None:
        return line.says("not_measured", _NOT_COUNTED)
    if sign * figure.value >= sign * line.threshold.value:
        return line.says("pass", "Every region keeps to the policy.", figure)
    return line.says("fail", "A region does not keep to the policy.", figure)


def attribute_disclosure(case: Case) -> Judgement:
    """Whether a region tells too much of a sensitive attribute."""
    figure = case.figure("attribute_disclosure_max")
    threshold, source = case.threshold("attribute_disclosure")
    line = Line("attribute_disclosure", _RISK, threshold, source)
    if figure.value is None and _none_declared(case):
        text = (
            "No sensitive attribute is declared, so nobody knows whether the people in a region share one. "
            "Name the sensitive columns in the schema."
        )
        return line.says("review", text)
    if figure.value is None:
        return line.says("not_measured", _unknown(case))
    if threshold.value is None:
        text = "No limit is set, so nobody judged it. Set thresholds: attribute_disclosure in the inputs."
        return line.says("review", text, figure)
    if figure.value <= threshold.value:
        return line.says("pass", "The people in a region share sensitive values no more than the limit allows.", figure)
    regions = case.pooled.regions
    above = regions[(regions["disclosure"] > threshold.value).to_numpy(dtype=bool)]
    text = "The people in a region share sensitive values more than the limit allows."
    return line.says("fail", text, figure, case.pooled.evidence(above))


def _none_declared(case: Case) -> bool:
    known = [run.population for run in case.pooled.runs if run.population is not None]
    roles = {attribute.get("role") for facts in known for attribute in facts.get("attributes", ())}
    return bool(known) and "sensitive" not in roles


def _asked(case: Case, name: str, section: int = _RISK) -> Line:
    """Return a line that compares with the k that is asked for."""
    asked, chosen = case.asked_k, case.thresholds.get("k")
    if asked.value is None:
        return Line(name, section)
    raised = chosen is not None and chosen.value is not None and chosen.value >= asked.value
    return Line(name, section, asked, chosen.source if chosen is not None and raised else OWN_POLICY)


def _below(case: Case, column: str) -> NDArray[np.bool_]:
    regions = case.pooled.regions
    return np.asarray((regions[column] < regions["asked_k"]).fillna(False), dtype=np.bool_)


def _unknown(case: Case) -> str:
    return _NOT_COUNTED if len(case.pooled.regions) else _NOTHING_RELEASED
