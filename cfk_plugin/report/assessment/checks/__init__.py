"""The checks behind the verdict: each looks at a case and gives one line, with exact figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cfk_plugin.report.assessment.checks.attacks import attacks
from cfk_plugin.report.assessment.checks.case import Case, Judgement
from cfk_plugin.report.assessment.checks.process import human_inputs, records, schema_declared, untracked, verification
from cfk_plugin.report.assessment.checks.prototypes import attack_epsilon, dp_budget, dp_guarantee
from cfk_plugin.report.assessment.checks.quality import group_gap, ncp, pureness
from cfk_plugin.report.assessment.checks.risk import (
    attribute_disclosure,
    k_desired_min,
    k_effective_min,
    k_intersection,
    k_min,
    l_diversity,
    native_leak,
    t_closeness,
)
from cfk_plugin.report.data import Status, Verdict

__all__ = ["Case", "Judgement", "judged", "verdict"]

Checker = Callable[[Case], Judgement | None]

_OF_REGIONS: Sequence[Checker] = (
    k_min,
    k_desired_min,
    k_effective_min,
    k_intersection,
    native_leak,
    l_diversity,
    t_closeness,
    attribute_disclosure,
    pureness,
    ncp,
    verification,
)
_OF_PROTOTYPES: Sequence[Checker] = (dp_guarantee, dp_budget, attack_epsilon)
_OF_ALL: Sequence[Checker] = (records, untracked, schema_declared, group_gap, human_inputs)


def judged(case: Case) -> tuple[Judgement, ...]:
    """Return a line for every check that applies: those of regions, of prototypes, and of all.

    One that applies and cannot be judged is there, as not measured.
    """
    checkers = [*(_OF_REGIONS if case.of_regions else ()), *(_OF_PROTOTYPES if case.of_prototypes else ())]
    found = [checker(case) for checker in (*checkers, *_OF_ALL)]
    return (*(line for line in found if line is not None), *attacks(case))


def verdict(statuses: Iterable[Status]) -> Verdict:
    """Return fail if anything fails, else review if anything is open or was not measured, else pass."""
    found = set(statuses)
    if "fail" in found:
        return "fail"
    return "pass" if found == {"pass"} else "review"
