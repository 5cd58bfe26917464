"""Effective k of regions that were chosen one by one: rerun the protection for everybody inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.grid import rows_for_cells
from cfk_plugin.intake import take_in
from cfk_plugin.label_model import LabelModel
from cfk_plugin.oracle import Oracle, RowOracle
from cfk_plugin.verification import Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.goal import Judge
    from cfk_plugin.intake import Intake
    from cfk_plugin.recorded import RecordedRelease
    from cfk_plugin.release import ReleaseStage, Verdict


def with_effective(
    verdicts: Sequence[Verdict],
    accepted: Intake,
    judge: Judge,
    model: LabelModel,
    rows: RowOracle,
    release: ReleaseStage | RecordedRelease,
) -> list[Verdict]:
    """Complete certificates with the number of people whom the protection maps to the same region.

    Everybody in a region is taken for the counterfactual, with their own quasi-identifiers and the released private
    values, and protected in the same way; who comes out elsewhere is struck out. That is what an adversary does who
    knows the algorithm and has the model. Costs about k times the protection itself. Only for a protector that does
    not draw random numbers and a policy without l and t, whose repeated attempts are not rerun.

    Parameters
    ----------
    verdicts : sequence
        One per counterfactual of `accepted`.
    accepted : Intake
    judge : callable
        What is desired for each counterfactual.
    model : LabelModel
    rows : RowOracle
    release : ReleaseStage or RecordedRelease
    """
    population = rows.population
    certified = [i for i, verdict in enumerate(verdicts) if not isinstance(verdict, Refusal)]
    inside = {i: np.flatnonzero(population.cells_inside(verdicts[i][0])) for i in certified}  # type: ignore[index]
    if not certified:
        return list(verdicts)
    which = np.repeat(np.array(certified), [len(inside[i]) for i in certified])
    cells = np.concatenate([inside[i] for i in certified])
    others = take_in(rows_for_cells(population, accepted.frame, which, population.cells[cells]), population)

    def judge_others(labels: NDArray[np.object_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        return judge(labels, which[at])

    oracle = Oracle(model, judge_others, rows, others.frame)
    found = release.propose(others, oracle, np.zeros(len(which), dtype=np.int64))
    completed = list(verdicts)
    for i in certified:
        verdict = verdicts[i]
        if isinstance(verdict, Refusal):
            continue
        region, certificate = verdict
        same = [cells[at] for at in np.flatnonzero(which == i) if found[at] == region]
        members = population.members(region)
        left = members[np.isin(population.cell_of(members), np.array(same, dtype=np.int64))]
        completed[i] = (region, certificate.counted(k_effective=population.people(left)))
    return completed
