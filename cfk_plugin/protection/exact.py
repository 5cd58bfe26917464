"""The exact protector: least NCP, or purest, region with k people; with proof or a proven gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.protection.base import Proposal, Task
from cfk_plugin.protection.preference import needs_model
from cfk_plugin.protection.search import Search
from cfk_plugin.protection.solver import Solutions
from cfk_plugin.protection.tradeoff import improve
from cfk_plugin.protection.trials import Trial, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactProtector:
    """Branch and bound over closed regions, and the lazy loop that keeps bad cells out.

    Of all regions that hold the counterfactual and k people it finds the one of least NCP (objective "ncp"), or
    of least NCP among those of pureness 1 (objectives "pureness" and "weighted" start there). Where no region is
    pure it returns the best trade-off it finds, without proof. What it finds is deterministic.

    It protects against linking a region to people by quasi-identifiers. It does not protect against an adversary
    who reruns it, nor against one who asks the model about each candidate.

    Parameters
    ----------
    node_limit : int
        Search nodes per solve; beyond it the best region so far is returned with a proven gap.
    time_limit : float, optional
        Seconds per solve; None keeps results independent of the machine.
    rounds : int
        Model calls of the lazy loop.
    cell_budget : int
        Largest region (in value combinations) that is asked whole.
    threads : int
        Counterfactuals solved at the same time.
    """

    node_limit: int = 200_000
    time_limit: float | None = None
    rounds: int = 60
    cell_budget: int = 10_000
    threads: int = 1

    name = "exact"

    def protect(self, task: Task) -> Sequence[Proposal]:
        """Return the best region per counterfactual."""
        search = Search(task, self.node_limit, self.time_limit, self.threads)
        if not needs_model(task.policy):
            return _least_ncp(search)
        trials = Trials(task, self.cell_budget)
        gaps = _lazy_rounds(search, trials, self.rounds)
        if unfinished := [i for i, gap in enumerate(gaps) if gap is None]:
            improve(search, trials, unfinished)
        return [
            Proposal(None if record.best is None else record.best.region, optimal=gap == 0.0, gap=gap)
            for record, gap in zip(trials.records, gaps, strict=True)
        ]


def _least_ncp(search: Search) -> list[Proposal]:
    """Objective "ncp" alone: one solve per counterfactual, the model is not asked."""
    found = search.solve(range(len(search.task)))
    return [
        Proposal(search.region(i, found, i), optimal=bool(found.proven[i]), gap=_gap(found, i))
        if found.feasible[i]
        else Proposal(None, optimal=bool(found.proven[i]))
        for i in range(len(search.task))
    ]


def _lazy_rounds(search: Search, trials: Trials, rounds: int) -> list[float | None]:
    """Ask only for the cells of the best region left, forbid the bad ones, repeat.

    Returns
    -------
    list
        Per counterfactual the proven gap of its best region (0 when optimal), or None where no region that settles
        the objective was found.
    """
    task = search.task
    gaps: list[float | None] = [None] * len(task)
    active = list(range(len(task)))
    for turn in range(rounds):
        if not active:
            break
        found = search.solve(active, [trials.records[i].bad_cells for i in active])
        rows = [row for row in range(len(active)) if found.feasible[row]]
        which = [active[row] for row in rows]
        tried = trials.evaluate(which, [search.region(active[row], found, row) for row in rows])
        active = []
        for i, row, trial in zip(which, rows, tried, strict=True):
            if _settles(task.policy, trial, first=turn == 0):
                gaps[i] = _gap(found, row)
            elif trial.pureness < 1:
                active.append(i)
        if task.progress is not None:
            task.progress(len(task) - len(active), len(task))
    return gaps


def _settles(policy: PrivacyPolicy, trial: Trial, *, first: bool) -> bool:
    """Say whether the region of least NCP, among those without a known bad cell, is the best for the policy.

    A pure one is, for the objective "pureness". For the other objectives an impure region of less NCP may be better,
    unless this is the very first one, which has least NCP of all.
    """
    if policy.max_ncp is not None and trial.ncp > policy.max_ncp:
        return False
    if trial.pureness == 1:
        return trial.complete and (first or policy.objective == "pureness")
    return first and trial.complete and policy.objective == "ncp" and trial.pureness >= (policy.min_pureness or 0.0)


def _gap(found: Solutions, row: int) -> float:
    """Proven bound on how much less NCP another region could have."""
    return 0.0 if found.proven[row] else max(0.0, float(found.cost[row] - found.lower_bound[row]))
