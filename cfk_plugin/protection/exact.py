"""The exact lookup: the region of least NCP, or the purest, with k people; with a proven gap.

If only NCP counts, `protection.branch_and_bound` finds and proves the region without the model.
Otherwise the steps are:

1. *Prove*. Find the cheapest region, ask the model about all of its combinations, forbid the bad
   ones, and repeat. A *bad* combination does not have the desired outcome. The cheapest region
   without *known* bad combinations costs at most as much as the cheapest without any. So if such a
   region is pure, it is the cheapest pure region.
2. *Fewest bad combinations*. If there is no proof for a counterfactual, look for regions with few
   bad combinations, ask about them, and repeat.
3. *Improve*. Change the best regions by one value at a time, as long as they get better. This is
   the local search of the paper, but with exact pureness.

All counterfactuals take each step together, so that a round is one call of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.boxes import (
    Box,
    Cells,
    Goal,
    HasOutcome,
    Progress,
    Proposal,
    Rank,
    Surroundings,
    all_combinations,
)
from cfk_plugin.protection.branch_and_bound import boxes_with_few, smallest_box

_STARTS = 4  # best regions from which step 3 starts
_AVOIDING_ROUNDS = 6
_IMPROVING_ROUNDS = 40


@dataclass(frozen=True, kw_only=True)
class ExactLimits:
    """The limits of the exact search.

    Attributes
    ----------
    nodes : int
        The number of hulls from which the search for a counterfactual branches. After that, the
        best region so far is returned, with a proven gap.
    forbidden_nodes : int
        The same for the rounds with forbidden combinations, all together; at most `nodes`.
    rounds : int
        The number of calls of the model in step 1.
    combinations : int
        If a region has more combinations than this, a sample of this size decides about it.
    """

    nodes: int = 50_000
    forbidden_nodes: int = 10_000
    rounds: int = 60
    combinations: int = 10_000


def exact_regions(
    cells: Cells,
    counterfactuals: Floats,
    goal: Goal,
    has_outcome: HasOutcome,
    *,
    limits: ExactLimits | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> list[Proposal | None]:
    """Return the best region of each counterfactual.

    Parameters
    ----------
    cells : Cells
    counterfactuals : shape (n, n_features)
    goal : Goal
    has_outcome : HasOutcome
        It is not called if only NCP counts. It may be asked about the same row again.
    limits : ExactLimits, optional
    random_state : int
        For the samples of large regions.
    progress : callable, optional

    Returns
    -------
    list of Proposal or None
        None if there is no region with k people.
    """
    views = [Surroundings.of(cells, row) for row in counterfactuals]
    limits = limits or ExactLimits()
    if not goal.needs_model:
        return [_cheapest(view, goal.k, limits.nodes) for view in views]
    search = _PureSearch(views, goal, has_outcome, limits, random_state)
    search.prove(progress)
    search.avoid_bad()
    search.improve()
    return search.proposals()


def _cheapest(view: Surroundings, k: int, node_limit: int) -> Proposal | None:
    """Return the region of least NCP; None if there is none with k people."""
    solution = smallest_box(view, k, node_limit=node_limit)
    if solution.box is None:
        return None
    return view.proposal(solution.box, gap=solution.gap)


@dataclass(frozen=True, eq=False, repr=False)
class _Trial(HostOnly):
    """A region of a counterfactual about which the model was asked.

    Attributes
    ----------
    i : int
        The position of the counterfactual.
    is_good : bool array with an axis for each quasi-identifier, in the order of the box's values
        Which combinations have the desired outcome; shape (n_sampled,) if not `is_complete`.
    is_complete : bool
        Whether the model was asked about all combinations.
    """

    i: int
    box: Box
    ncp: float
    pureness: float
    is_good: Mask
    is_complete: bool
    rank: Rank


class _PureSearch(HostOnly):
    """The search for regions of several counterfactuals, with the model.

    Attributes
    ----------
    best : list of list of _Trial
        The best trials of each counterfactual, the best first; at most `_STARTS`.
    bad : list of arrays, shape (n_bad, n_quasi) each
        The known bad combinations of each counterfactual.
    gaps : list of float or None
        The proven gap of each counterfactual's best trial.
    """

    def __init__(
        self,
        views: Sequence[Surroundings],
        goal: Goal,
        has_outcome: HasOutcome,
        limits: ExactLimits,
        random_state: int,
    ) -> None:
        self._views = views
        self._goal = goal
        self._has_outcome = has_outcome
        self._limits = limits
        self._random_state = random_state
        self.best: list[list[_Trial]] = [[] for _ in views]
        self.bad = [np.empty((0, len(view.axes)), dtype=np.int64) for view in views]
        self.gaps: list[float | None] = [None] * len(views)

    def proposals(self) -> list[Proposal | None]:
        """Return the best region of each counterfactual."""
        proposals: list[Proposal | None] = []
        for view, trials, gap in zip(self._views, self.best, self.gaps, strict=True):
            if trials:
                proposals.append(view.proposal(trials[0].box, trials[0].pureness, gap))
            else:
                proposals.append(None)
        return proposals

    # 1. Prove.

    def prove(self, progress: Progress | None) -> None:
        """Find the cheapest region without bad combinations, in rounds of one model call each."""
        n = len(self._views)
        least = np.zeros(n)
        nodes_left = np.full(n, min(self._limits.forbidden_nodes, self._limits.nodes))
        positions = list(range(n))
        for turn in range(self._limits.rounds):
            solutions = {}
            boxes = []
            for i in positions:
                node_limit = int(nodes_left[i]) if turn else self._limits.nodes
                solution = smallest_box(
                    self._views[i],
                    self._goal.k,
                    self.bad[i],
                    least=float(least[i]),
                    node_limit=node_limit,
                )
                if turn:
                    nodes_left[i] -= solution.n_nodes
                if solution.box is not None:
                    solutions[i] = solution
                    boxes.append((i, solution.box))
                    least[i] = solution.bound
            positions = []
            for trial in self._try(boxes):
                if _settles(self._goal, trial, is_first=turn == 0):
                    self.gaps[trial.i] = solutions[trial.i].gap
                elif trial.pureness < 1:
                    positions.append(trial.i)
            if progress is not None:
                progress(n - len(positions), n)
            if not positions:
                return

    def _try(self, boxes: Sequence[tuple[int, Box]]) -> list[_Trial]:
        """Ask the model about boxes in one call, and return a trial of each.

        `boxes` are pairs of a counterfactual and a box. The best trials and the bad combinations
        are remembered.
        """
        combinations = [self._combinations(i, box) for i, box in boxes]
        answers = self._ask([i for i, _ in boxes], combinations)
        trials = []
        for (i, box), positions, is_good in zip(boxes, combinations, answers, strict=True):
            is_complete = self._views[i].size(box) <= self._limits.combinations
            shape = [int(mask.sum()) for mask in box] if is_complete else [-1]
            trial = self._trial(i, box, is_good.reshape(shape), is_complete=is_complete)
            self._note(trial)
            bad = np.concatenate([self.bad[i], positions[~is_good]])
            self.bad[i] = np.unique(bad, axis=0)
            trials.append(trial)
        return trials

    def _combinations(self, i: int, box: Box) -> Ints:
        """Return all combinations of a box, or a sample if there are too many."""
        view = self._views[i]
        if view.size(box) <= self._limits.combinations:
            return view.combinations(box)
        random = np.random.default_rng(self._random_state)
        return np.unique(view.sample(box, self._limits.combinations, random), axis=0)

    def _ask(self, owners: Sequence[int], combinations: Sequence[Ints]) -> list[Mask]:
        """Return which combinations have the outcome, from at most one model call.

        `owners` contains the counterfactual of each array of combinations.
        """
        pairs = zip(owners, combinations, strict=True)
        rows = [self._views[i].rows(positions) for i, positions in pairs]
        sizes = list(map(len, rows))
        if sum(sizes) == 0:
            return [np.empty(0, dtype=bool) for _ in rows]
        is_good = self._has_outcome(np.repeat(owners, sizes), np.concatenate(rows))
        return np.split(is_good, np.cumsum(sizes)[:-1])

    def _trial(self, i: int, box: Box, is_good: Mask, *, is_complete: bool) -> _Trial:
        """Return a trial with its NCP, pureness and rank."""
        ncp = self._views[i].ncp(box)
        pureness = float(is_good.mean())
        rank = self._goal.rank(ncp, pureness)
        return _Trial(i, box, ncp, pureness, is_good, is_complete, rank)

    def _note(self, trial: _Trial) -> None:
        """Add a new trial to the best ones of its counterfactual if it is among them."""
        best = self.best[trial.i]
        if not any(_is_same(trial.box, other.box) for other in best):
            by_rank = sorted([*best, trial], key=lambda candidate: candidate.rank)
            self.best[trial.i] = by_rank[:_STARTS]

    # 2. Fewest bad combinations.

    def avoid_bad(self) -> None:
        """Look for regions with few bad combinations, in rounds of one model call each.

        A counterfactual takes part until a round finds no new bad combination.
        """
        positions = [i for i, gap in enumerate(self.gaps) if gap is None and self.best[i]]
        for _ in range(_AVOIDING_ROUNDS):
            boxes = []
            for i in positions:
                for box in boxes_with_few(self._views[i], self._goal.k, self.bad[i]):
                    boxes.append((i, box))
            n_bad = [len(bad) for bad in self.bad]
            self._try(boxes)
            positions = [i for i in positions if len(self.bad[i]) > n_bad[i]]

    # 3. Improve.

    def improve(self) -> None:
        """Change the best regions of counterfactuals without a proof, as long as they get better.

        In each round, each region makes its best small change.
        """
        trials: list[_Trial] = []
        for best, gap in zip(self.best, self.gaps, strict=True):
            if gap is None:
                trials += [trial for trial in best if trial.is_complete]
        for _ in range(_IMPROVING_ROUNDS):
            trials = self._better(trials)
            for trial in trials:
                self._note(trial)

    def _better(self, trials: Sequence[_Trial]) -> list[_Trial]:
        """Return the best small change of each trial, without trials that have no better one."""
        formers = []
        boxes = []
        for trial in trials:
            for box in self._allowed_changes(trial):
                formers.append(trial)
                boxes.append(box)
        additions = [
            _added_combinations(box, former.box) for box, former in zip(boxes, formers, strict=True)
        ]
        answers = self._ask([former.i for former in formers], additions)
        best = {id(trial): trial for trial in trials}
        for former, box, is_added_good in zip(formers, boxes, answers, strict=True):
            is_good = _changed(former, box, is_added_good)
            trial = self._trial(former.i, box, is_good, is_complete=True)
            if trial.rank < best[id(former)].rank:
                best[id(former)] = trial
        return [best[id(trial)] for trial in trials if best[id(trial)] is not trial]

    def _allowed_changes(self, trial: _Trial) -> list[Box]:
        """Return the small changes with k people that are small enough for exact pureness."""
        view = self._views[trial.i]
        allowed = []
        for box in view.small_changes(trial.box):
            if view.size(box) <= self._limits.combinations and view.count(box) >= self._goal.k:
                allowed.append(box)
        return allowed


def _settles(goal: Goal, trial: _Trial, *, is_first: bool) -> bool:
    """Return whether a trial proves that no region is better than its own.

    The trial's region has the least NCP of all regions without a forbidden combination. For the
    objective "pureness" it is the best if it is pure. For "ncp", an impure region of less NCP may
    be better, unless this is the first trial: no combination was forbidden then, so no region has
    less NCP.
    """
    if trial.ncp > goal.max_ncp or not trial.is_complete:
        return False
    if goal.objective == "pureness":
        return trial.pureness == 1
    return is_first and trial.pureness >= goal.min_pureness


def _is_same(box: Box, other: Box) -> bool:
    return all(map(np.array_equal, box, other))


def _changed_axis(box: Box, former: Box) -> int:
    """Return the only axis on which a box differs from another."""
    return list(map(np.array_equal, box, former)).index(False)


def _added_combinations(box: Box, former: Box) -> Ints:
    """Return the combinations that a small change adds to a box, shape (n, n_quasi)."""
    axis = _changed_axis(box, former)
    positions = [np.flatnonzero(mask) for mask in box]
    positions[axis] = np.flatnonzero(box[axis] & ~former[axis])
    return all_combinations(positions)


def _changed(former: _Trial, box: Box, is_added_good: Mask) -> Mask:
    """Return which combinations of a changed box are good, with an axis per quasi-identifier.

    `is_added_good`, shape (n,), tells which of its `_added_combinations` are good.
    """
    axis = _changed_axis(box, former.box)
    shape = [int(mask.sum()) for mask in box]
    is_good = np.empty(shape, dtype=bool)
    # a view with the changed axis first, so that its values can be selected
    by_value = np.moveaxis(is_good, axis, 0)
    was_inside = former.box[axis][box[axis]]
    stays_inside = box[axis][former.box[axis]]
    by_value[was_inside] = np.moveaxis(former.is_good, axis, 0)[stays_inside]
    shape[axis] = int((~was_inside).sum())
    by_value[~was_inside] = np.moveaxis(is_added_good.reshape(shape), axis, 0)
    return is_good
