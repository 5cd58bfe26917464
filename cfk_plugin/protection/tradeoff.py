"""Where no region is pure: look for the best trade-off between pureness and NCP, without proof."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfk_plugin.protection.boxes import Box, BoxSpace
from cfk_plugin.protection.search import Search
from cfk_plugin.protection.trials import Trials

_DOMINANT = 10.0  # a penalty per bad cell above any NCP: fewest bad cells first
_NODES = 200  # per solve: nothing is proven here, and good regions are found long before a proof
_LAZY_ROUNDS = 6  # model calls of the first search; the second one makes up for more
_CHANGE_ROUNDS = 20  # model calls of the second search
_LARGEST_POPULATION = 200_000  # cells; above it counting every small change takes longer than it is worth


def improve(search: Search, trials: Trials, which: Sequence[int]) -> None:
    """Try to better the best region of some counterfactuals; what is found stays in the trials' records.

    First regions with few bad cells are looked for, lazily as for pure ones; a bad cell costs more than any NCP. Then
    the best region of each counterfactual is changed by one value at a time, as in the paper's local search but with
    exact pureness, for as long as that betters it.
    """
    _fewest_bad_cells(search, trials, which)
    if len(search.task.population.cells) <= _LARGEST_POPULATION:
        _small_changes(trials, which)


def _fewest_bad_cells(search: Search, trials: Trials, which: Sequence[int]) -> None:
    active = list(which)
    for _ in range(_LAZY_ROUNDS):
        known = [len(trials.records[i].bad_cells) for i in active]
        bad = [trials.records[i].bad_cells for i in active]
        found = search.solve(active, bad, penalty=_DOMINANT, node_limit=_NODES)
        rows = [row for row in range(len(active)) if found.feasible[row]]
        trials.evaluate([active[row] for row in rows], [search.region(active[row], found, row) for row in rows])
        active = [active[row] for row in rows if len(trials.records[active[row]].bad_cells) > known[row]]
        if not active:
            return


def _small_changes(trials: Trials, which: Sequence[int]) -> None:
    task = trials.task
    spaces = {i: BoxSpace(task, i) for i in which if trials.records[i].best is not None}
    active = list(spaces)
    for _ in range(_CHANGE_ROUNDS):
        changes = [(i, box) for i in active for box in _allowed_changes(spaces[i], trials, i)]
        if not changes:
            return
        before = {i: trials.records[i].best_rank for i in active}
        trials.evaluate([i for i, _ in changes], [spaces[i].region(box) for i, box in changes])
        active = [i for i in active if trials.records[i].best_rank != before[i]]


def _allowed_changes(space: BoxSpace, trials: Trials, i: int) -> list[Box]:
    best = trials.records[i].best
    if best is None or not best.complete:
        return []
    changes = [box for box in space.changes(space.of(best.region)) if space.count(box) >= trials.task.policy.k]
    sizes = [np.prod([table.sum() for table in box], dtype=float) for box in changes]
    return [box for box, size in zip(changes, sizes, strict=True) if size <= trials.cell_budget]
