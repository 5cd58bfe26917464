"""Where no region is pure: look for the best trade-off between pureness and NCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cfk_plugin.protection.trials import Trials

if TYPE_CHECKING:
    from cfk_plugin.protection.exact import Search

_DOMINANT = 10.0  # a penalty per bad cell above any NCP: fewest bad cells first


def improve(search: Search, trials: Trials, which: Sequence[int]) -> None:
    """Try regions with few bad cells; the best one, by the policy's order, stays in the records."""
    active = list(which)
    for _ in range(20):
        if not active:
            break
        found = search.solve(active, [trials.records[i].bad_cells for i in active], penalty=_DOMINANT)
        rows = [r for r in range(len(active)) if found.feasible[r]]
        ids = [active[r] for r in rows]
        before = [len(trials.records[i].bad_cells) for i in ids]
        regions = [search.region(active[r], found, r) for r in rows]
        from cfk_plugin.metrics.information import ncp
        tried = trials.evaluate(ids, regions, [ncp(g, search.task.population) for g in regions])
        active = [i for i, b in zip(ids, before) if len(trials.records[i].bad_cells) > b]
