"""The exact protector: least NCP, or purest, region with k people; with proof or a proven gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.base import Proposal, Task
from cfk_plugin.protection.preference import needs_model
from cfk_plugin.protection.regions import anchor_positions, hull, index_of
from cfk_plugin.protection.solver import Solutions, solve
from cfk_plugin.protection.tradeoff import improve
from cfk_plugin.protection.trials import Trials
from cfk_plugin.region import Region


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
        search = Search(self, task)
        if not needs_model(task.policy):
            return search.least_ncp()
        return search.best_valid()


class Search:
    """One run of the exact protector over a task, all counterfactuals in lockstep."""

    def __init__(self, settings: ExactProtector, task: Task) -> None:
        self.settings = settings
        self.task = task
        self.index = index_of(task.population)
        self.positions = anchor_positions(task.population, task.codes, task.numbers)

    def solve(
        self,
        which: Sequence[int],
        forbidden: Sequence[NDArray[np.int32]] | None = None,
        penalty: float = np.inf,
        node_limit: int | None = None,
    ) -> Solutions:
        """Run the compiled solver for some of the counterfactuals."""
        at = np.asarray(which, dtype=np.int64)
        return solve(
            self.index,
            self.task.codes[at],
            self.positions[at],
            self.task.policy.k,
            forbidden=forbidden,
            penalty=penalty,
            node_limit=min(self.settings.node_limit, node_limit or self.settings.node_limit),
            time_limit=self.settings.time_limit,
            threads=self.settings.threads,
        )

    def region(self, i: int, solutions: Solutions, row: int) -> Region:
        """Turn one solution into a region."""
        chosen = solutions.cells[row][solutions.cells[row] >= 0]
        return hull(
            self.task.population, self.task.codes[i], self.task.numbers[i], self.task.population.cells[chosen]
        )

    def least_ncp(self) -> list[Proposal]:
        """Objective "ncp" alone: one solve per counterfactual, the model is not asked."""
        found = self.solve(range(len(self.task)))
        proposals = []
        for i in range(len(self.task)):
            if not found.feasible[i]:
                proposals.append(Proposal(None, optimal=bool(found.proven[i])))
                continue
            gap = max(0.0, float(found.cost[i] - found.lower_bound[i]))
            proposals.append(Proposal(self.region(i, found, i), optimal=bool(found.proven[i]), gap=gap))
        return proposals

    def best_valid(self) -> list[Proposal]:
        """Look for least NCP at pureness 1 (lazily asked), then for the best trade-off where there is none."""
        trials = Trials(self.task, self.settings.cell_budget)
        proofs = self.lazy_rounds(trials)
        unfinished = [i for i, proof in enumerate(proofs) if proof is None]
        if unfinished:
            improve(self, trials, unfinished)
        proposals = []
        for record, proof in zip(trials.records, proofs, strict=True):
            if record.best is None:
                proposals.append(Proposal(None))
            elif proof is None:
                proposals.append(Proposal(record.best.region))
            else:
                proposals.append(Proposal(record.best.region, optimal=proof == 0.0, gap=proof))
        return proposals

    def lazy_rounds(self, trials: Trials) -> list[float | None]:
        """Ask only for the cells of the best region left, forbid the bad ones, repeat.

        Returns
        -------
        list
            Per counterfactual the proven gap of its best region (0 when optimal), or None where no region that
            settles the objective was found.
        """
        policy = self.task.policy
        proofs: list[float | None] = [None] * len(self.task)
        active = list(range(len(self.task)))
        for _ in range(self.settings.rounds):
            if not active:
                break
            forbidden = [trials.records[i].bad_cells for i in active]
            found = self.solve(active, forbidden)
            rows = [row for row in range(len(active)) if found.feasible[row]]
            which = [active[row] for row in rows]
            regions = [self.region(active[row], found, row) for row in rows]
            tried = trials.evaluate(which, regions)
            active = []
            for i, row, trial in zip(which, rows, tried, strict=True):
                if trial.pureness < 1.0:
                    if not self._settled(trial.pureness, len(trials.records[i].bad)):
                        active.append(i)
                    else:
                        proofs[i] = max(0.0, float(found.cost[row] - found.lower_bound[row]))
                elif trial.complete and (policy.max_ncp is None or trial.ncp <= policy.max_ncp):
                    proofs[i] = self._gap(trials, i, found, row)
            if self.task.progress is not None:
                self.task.progress(len(self.task) - len(active), len(self.task))
        return proofs

    def _settled(self, pureness: float, impure_trials: int) -> bool:
        """Objective "ncp" with a floor: the very first region, which has least NCP of all, may meet it."""
        policy = self.task.policy
        return policy.objective == "ncp" and impure_trials == 1 and pureness >= (policy.min_pureness or 0.0)

    def _gap(self, trials: Trials, i: int, found: Solutions, row: int) -> float | None:
        """Proven gap of a pure region; None where an impure one may still be better for the objective."""
        if self.task.policy.objective != "pureness" and trials.records[i].bad:
            return None
        return max(0.0, float(found.cost[row] - found.lower_bound[row]))
