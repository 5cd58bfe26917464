"""The exact protector: the region of least NCP, or the purest, with k people; with a proven gap.

If the policy asks for the least NCP and no pureness, `lookup.solver` finds and proves the region,
and the model is not asked. Otherwise the steps are:

1. *Prove* (`_RegionSearch.prove`). Solve without the model, ask the model about all combinations of
   the region, forbid the bad ones, and repeat. A *bad* combination does not have the desired
   outcome. The cheapest region without *known* bad combinations costs at most as much as the
   cheapest without any, so once such a region is pure, it is the cheapest pure one.
2. *Fewest bad combinations* (`find_fewest_bad`). For counterfactuals without such a proof, a bad
   combination adds more to the cost than any NCP, but is no longer forbidden.
3. *Small changes* (`change_a_little`). The best regions so far are changed by one value at a time.

All counterfactuals of a request take each step together, so that each round is one model call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cfk_plugin.data.combinations import Grid
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Region
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.axes import Codes
from cfk_plugin.protection.class_index import index_of
from cfk_plugin.protection.lookup.boxes import Box, BoxSpace
from cfk_plugin.protection.lookup.rank import Rank, needs_model, rank
from cfk_plugin.protection.lookup.solver import Solution, solve
from cfk_plugin.protection.regions import region_of

_DOMINANT = 10.0  # penalty per bad combination, above any NCP: fewest bad combinations first
_NODES = 200  # per solve under the penalty: it proves nothing, and good regions are found early
_LAZY_ROUNDS = 6  # model calls of step 2; step 3 makes up for more
_CHANGE_ROUNDS = 20  # model calls of step 3
_LARGEST_POPULATION = 200_000  # classes; above, to count every small change takes too long


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactProtector:
    """Branch and bound over closed regions, and the lazy loop that keeps bad cells out.

    Of all regions with the counterfactual and k people it finds the one of least NCP (objective
    "ncp"), or of least NCP among those of pureness 1 (objective "pureness"). If no region is pure
    it returns the best trade-off found, without proof. Its results are deterministic, so it does
    not protect against an adversary who reruns it, or who asks the model about each candidate.
    """

    # per solve; beyond it the best region so far is returned with a proven gap
    node_limit: int = 200_000
    # seconds per solve; None keeps results independent of the machine
    time_limit: float | None = None
    rounds: int = 60  # model calls of the lazy loop
    cell_budget: int = 10_000  # largest region, in value combinations, that is asked as a whole
    threads: int = 1  # counterfactuals solved at the same time

    name = "exact"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        search = _RegionSearch(self, request)
        if not needs_model(request.policy):
            return search.cheapest_proposals()
        gaps = search.prove()
        unproven = [i for i, gap in enumerate(gaps) if gap is None]
        search.find_fewest_bad(unproven)
        if len(request.population.cells) <= _LARGEST_POPULATION:
            search.change_a_little(unproven)
        proposals = []
        for best, gap in zip(search.best, gaps, strict=True):
            region = None if best is None else best.region
            proposals.append(Proposal(region, optimal=gap == 0.0, gap=gap))
        return proposals


class Trial(NamedTuple):
    """A region, with the figures by which the policy ranks it for a counterfactual."""

    region: Region
    ncp: float
    # Share of the combinations that were asked about with the desired outcome: of all combinations,
    # or of a sample if they exceed the budget.
    pureness: float
    is_complete: bool  # whether all combinations were asked about
    rank: Rank


class _SolvedTrial(NamedTuple):
    """A region that the solver found for a counterfactual, and its trial."""

    i: int  # the counterfactual's position in the request
    solution: Solution
    trial: Trial


class _RegionSearch:
    """The search for regions for the counterfactuals of a request.

    Attributes
    ----------
    best : for each counterfactual, the trial of the best rank so far, or None
    bad : for each counterfactual, known bad combinations; shape (n_bad, n_quasi_identifiers) each
    """

    def __init__(self, settings: ExactProtector, request: ProtectionRequest) -> None:
        population = request.population
        names = population.schema.quasi_identifiers
        domains = [population.domains[name] for name in names]
        n = len(request)
        self._settings = settings
        self._request = request
        self._n_codes = np.array([domain.size for domain in domains], dtype=np.int32)
        # Where the solver finds a number that is not a code. Levels of an ordinal attribute that no
        # row has do not count: they have a code.
        self._own_positions = np.zeros(request.codes.shape)
        for j, domain in enumerate(domains):
            if domain.is_numeric:
                position = domain.place(request.numbers[:, j])
                self._own_positions[:, j] = position * domain.attribute.weight
        no_combinations: Codes = np.empty((0, len(domains)), np.int32)
        self.best: list[Trial | None] = [None] * n
        self.bad = [no_combinations] * n

    def cheapest_proposals(self) -> list[Proposal]:
        """Return the regions of least NCP, without asking the model."""
        proposals = []
        for i, solution in enumerate(self._solve(range(len(self._request)))):
            if solution.people:
                proposals.append(Proposal(self._region(i, solution), solution.proven, solution.gap))
            else:
                proposals.append(Proposal(None, solution.proven))
        return proposals

    # 1. Prove.

    def prove(self) -> list[float | None]:
        """Find the cheapest region without bad combinations, in rounds of one model call each.

        Return the proven gap of each counterfactual's region, or None without a proof. A round
        solves, asks about all combinations of the regions, and forbids the bad ones.
        """
        request = self._request
        n = len(request)
        gaps: list[float | None] = [None] * n
        active = list(range(n))
        for turn in range(self._settings.rounds):
            if not active:
                break
            impure = []
            for i, solution, trial in self._solve_and_try(active):
                if _settles(request.policy, trial, is_first=turn == 0):
                    gaps[i] = solution.gap
                elif trial.pureness < 1:
                    impure.append(i)
            active = impure
            if request.progress is not None:
                request.progress(n - len(active), n)
        return gaps

    # 2. Fewest bad combinations.

    def find_fewest_bad(self, positions: Sequence[int]) -> None:
        """Look for regions with few bad combinations, in rounds like those of `prove`.

        A counterfactual takes part until a round finds no bad combination that was not known.
        """
        active = list(positions)
        limit = min(self._settings.node_limit, _NODES)
        for _ in range(_LAZY_ROUNDS):
            if not active:
                return
            n_known = [len(bad) for bad in self.bad]
            solved = self._solve_and_try(active, penalty=_DOMINANT, node_limit=limit)
            active = [i for i, _, _ in solved if len(self.bad[i]) > n_known[i]]

    # 3. Small changes.

    def change_a_little(self, positions: Sequence[int]) -> None:
        """Change the best regions by one value at a time, until no change is better.

        This is the local search of the paper, but with exact pureness. Of all changes of a round
        the best is taken.
        """
        spaces = {i: BoxSpace(self._request, i) for i in positions if self.best[i] is not None}
        active = list(spaces)
        for _ in range(_CHANGE_ROUNDS):
            owners = []
            regions = []
            for i in active:
                for box in self._allowed_changes(spaces[i], self.best[i]):
                    owners.append(i)
                    regions.append(spaces[i].region(box))
            if not owners:
                return
            before = list(self.best)
            self._try(owners, regions)
            active = [i for i in active if self.best[i] is not before[i]]

    def _allowed_changes(self, space: BoxSpace, best: Trial | None) -> list[Box]:
        """Return small changes with k people whose combinations can all be asked about."""
        if best is None or not best.is_complete:
            return []
        allowed = []
        for box in space.small_changes(space.box_of(best.region)):
            n_combinations = np.prod([mask.sum() for mask in box], dtype=float)
            if n_combinations > self._settings.cell_budget:
                continue
            if space.count(box) >= self._request.policy.k:
                allowed.append(box)
        return allowed

    # What the steps share.

    def _solve(
        self, positions: Sequence[int], penalty: float = np.inf, node_limit: int | None = None
    ) -> list[Solution]:
        """Solve for some of the counterfactuals, with their bad combinations forbidden."""
        settings = self._settings
        if node_limit is None:
            node_limit = settings.node_limit
        request = self._request
        rows = np.asarray(positions, dtype=np.int64)
        return solve(
            index_of(request.population),
            request.codes[rows],
            self._own_positions[rows],
            request.policy.k,
            [self.bad[i] for i in positions],
            penalty=penalty,
            node_limit=node_limit,
            time_limit=settings.time_limit,
            threads=settings.threads,
        )

    def _region(self, i: int, solution: Solution) -> Region:
        """Return the hull of a counterfactual and the classes of a solution."""
        population = self._request.population
        cells = np.vstack([population.cells[solution.classes], self._request.codes[i]])
        return region_of(population, cells, self._request.numbers[i])

    def _solve_and_try(
        self, positions: Sequence[int], penalty: float = np.inf, node_limit: int | None = None
    ) -> list[_SolvedTrial]:
        """Solve for some counterfactuals, and try the regions of those that have one."""
        owners = []
        solutions = []
        for i, solution in zip(positions, self._solve(positions, penalty, node_limit), strict=True):
            if solution.people:
                owners.append(i)
                solutions.append(solution)
        regions = [self._region(i, solution) for i, solution in zip(owners, solutions, strict=True)]
        trials = self._try(owners, regions)
        return list(map(_SolvedTrial, owners, solutions, trials))

    def _try(self, owners: Sequence[int], regions: Sequence[Region]) -> list[Trial]:
        """Ask about the combinations of regions, in one model call, and return their trials.

        Better regions become their counterfactual's best, and bad combinations are noted.

        Parameters
        ----------
        owners : the counterfactual of each region
        """
        if not regions:
            return []
        request = self._request
        grids = []
        for i, region in zip(owners, regions, strict=True):
            grids.append(Grid.of(region, request.population, request.codes[i]))
        random = np.random.default_rng(request.seed)
        combinations = [self._combinations(grid, random) for grid in grids]
        n_combinations = [len(codes) for codes in combinations]
        owner_of_combination = np.repeat(np.asarray(owners, dtype=np.int64), n_combinations)
        is_desired = request.combination_outcomes.ask(
            owner_of_combination, np.concatenate(combinations)
        )
        answers = np.split(is_desired, np.cumsum(n_combinations)[:-1])
        trials = []
        for place, i in enumerate(owners):
            is_complete = grids[place].size <= self._settings.cell_budget
            trial = self._trial(regions[place], answers[place], is_complete=is_complete)
            best = self.best[i]
            if best is None or trial.rank < best.rank:
                self.best[i] = trial
            self._note_bad(i, combinations[place][~answers[place]])
            trials.append(trial)
        return trials

    def _combinations(self, grid: Grid, random: np.random.Generator) -> Codes:
        """Return all combinations of a region, or a sample if they exceed the budget."""
        budget = self._settings.cell_budget
        return grid.all() if grid.size <= budget else grid.sample(budget, random)

    def _trial(self, region: Region, is_desired: Mask, *, is_complete: bool) -> Trial:
        """Return the trial of a region; `is_desired` has shape (n_combinations,)."""
        loss = ncp(region, self._request.population)
        pureness = float(is_desired.mean())
        return Trial(
            region=region,
            ncp=loss,
            pureness=pureness,
            is_complete=is_complete,
            rank=rank(self._request.policy, loss, pureness),
        )

    def _note_bad(self, i: int, bad: Codes) -> None:
        """Add bad combinations, of shape (n, n_quasi_identifiers), to a counterfactual's."""
        if not len(bad):
            return
        # In a grid the counterfactual's own number is the last code; to the solver it is UNKNOWN.
        is_own = (self._request.codes[i] == UNKNOWN) & (bad == self._n_codes)
        bad = np.where(is_own, UNKNOWN, bad)
        self.bad[i] = np.unique(np.concatenate([self.bad[i], bad]), axis=0)


def _settles(policy: PrivacyPolicy, trial: Trial, *, is_first: bool) -> bool:
    """Return True if no region is better for the policy.

    The trial is of the region of least NCP among those without a known bad combination. For the
    objective "pureness" it is the best if it is pure. For others an impure region of less NCP may
    be better, unless `is_first`: then no bad combination was known, and no region has less NCP.
    """
    if policy.max_ncp is not None and trial.ncp > policy.max_ncp:
        return False
    if trial.pureness == 1:
        return trial.is_complete and (is_first or policy.objective == "pureness")
    return (
        is_first
        and trial.is_complete
        and policy.objective == "ncp"
        and trial.pureness >= (policy.min_pureness or 0.0)
    )
