"""The exact protector: least NCP, or purest, region with k people; with proof or a proven gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.model import Grid
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Region
from cfk_plugin.hookspecs import Proposal, Task
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.axes import anchor_positions, hull, index_of, part_of
from cfk_plugin.protection.base import Rank, needs_model, rank
from cfk_plugin.protection.solver import Solutions, solve

# Boxes: regions as tables of codes, for searches that change a region step by step.

Box = list[NDArray[np.bool_]]
"""Per quasi-identifier which codes are inside; one more place at the end for the counterfactual's own value."""


class BoxSpace:
    """All boxes around one counterfactual: counting them, pricing them, changing them a little."""

    def __init__(self, task: Task, i: int) -> None:
        population = task.population
        self.domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.cells, self.people = population.cells, population.cell_people
        self.numbers = task.numbers[i]
        self.own = [int(c) if c >= 0 else d.size for c, d in zip(task.codes[i], self.domains, strict=True)]
        self.places = [self._places(j) for j in range(len(self.domains))]

    def point(self) -> Box:
        """Return the box that holds the counterfactual alone."""
        box = [np.zeros(domain.size + 1, dtype=bool) for domain in self.domains]
        for table, code in zip(box, self.own, strict=True):
            table[code] = True
        return box

    def of(self, region: Region) -> Box:
        """Return a region as a box."""
        box = self.point()
        for domain, table in zip(self.domains, box, strict=True):
            table[: domain.size] |= domain.inside(region[domain.attribute.name])
        return box

    def join(self, j: int, table: NDArray[np.bool_], code: int) -> NDArray[np.bool_]:
        """Return a part that holds one more value: a range is filled, a node is closed."""
        domain, joined = self.domains[j], table.copy()
        joined[code] = True
        if domain.is_interval:
            n = len(domain.values)
            on_line = np.flatnonzero(joined)
            on_line = on_line[(on_line < n) | (on_line == domain.size)]
            if len(on_line):
                low, high = self.places[j][on_line].min(), self.places[j][on_line].max()
                joined[:n] = (self.places[j][:n] >= low) & (self.places[j][:n] <= high)
        elif domain.attribute.hierarchy is not None:
            inside = np.flatnonzero(joined[: domain.size]).astype(np.int32)
            joined[: domain.size] = domain.inside(part_of(domain, inside))
        return joined

    def distances(self, box: Box) -> NDArray[np.float64]:
        """HEOM distance of every cell to the box, 0 inside."""
        total = np.zeros(len(self.cells))
        for j, domain in enumerate(self.domains):
            gap = (~box[j][: domain.size]).astype(float)
            if domain.is_interval:
                line = self.places[j][: len(domain.values)]
                held = self.places[j][np.flatnonzero(box[j])]
                held = held[~np.isnan(held)]
                if len(held):
                    gap[: len(line)] = np.maximum(0, np.maximum(held.min() - line, line - held.max()))
            total += gap[self.cells[:, j]]
        return total

    def count(self, box: Box) -> int:
        """People inside a box."""
        inside = np.ones(len(self.cells), dtype=bool)
        for j, table in enumerate(box):
            inside &= table[self.cells[:, j]]
        return int(self.people[inside].sum())

    def changes(self, box: Box) -> Iterator[Box]:
        """Yield boxes with a value added to a single value, or removed from a list."""
        for j in range(len(self.domains)):
            inside = np.flatnonzero(box[j])
            if len(inside) == 1:
                for code in self._addable(j, int(inside[0])):
                    yield [*box[:j], self.join(j, box[j], code), *box[j + 1 :]]
                continue
            for code in self._removable(j, inside):
                if code != self.own[j]:
                    table = box[j].copy()
                    table[code] = False
                    yield [*box[:j], table, *box[j + 1 :]]

    def _removable(self, j: int, inside: NDArray[np.int64]) -> list[int]:
        """Codes that may leave a list: the ends of a range, any category, none of a node's leaves."""
        domain = self.domains[j]
        if domain.attribute.hierarchy is not None:
            return []
        if not domain.is_interval:
            return [int(code) for code in inside]
        line = inside[~np.isnan(self.places[j][inside])]
        if not len(line):
            return []
        places = self.places[j][line]
        ends = {int(line[places.argmin()]), int(line[places.argmax()])}
        return sorted(ends | {int(code) for code in inside if code == domain.missing_code})

    def _addable(self, j: int, single: int) -> list[int]:
        domain = self.domains[j]
        if not domain.is_interval:
            return [code for code in range(domain.size) if code != single]
        places = self.places[j][: len(domain.values)]
        below = np.flatnonzero(places < self.places[j][single])
        above = np.flatnonzero(places > self.places[j][single])
        return [*below[-1:].tolist(), *above[:1].tolist()]

    def ncp(self, box: Box) -> float:
        """NCP of a box (paper, equations 1 to 3)."""
        total = 0.0
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            if domain.is_interval:
                held = self.places[j][table]
                share = float(np.nanmax(held) - np.nanmin(held)) if not np.isnan(held).all() else 0.0
                if np.isnan(held).any() and not np.isnan(held).all():
                    share = 1.0
            else:
                size = int(table.sum())
                share = size / domain.size if size > 1 else 0.0
            total += domain.attribute.weight * min(share, 1.0)
        return total

    def region(self, box: Box) -> Region:
        """Turn a box into a region."""
        parts = {}
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            own = float(self.numbers[j]) if table[domain.size] else None
            codes = np.flatnonzero(table[: domain.size]).astype(np.int32)
            parts[domain.attribute.name] = part_of(domain, codes, own)
        return Region(parts)

    def _places(self, j: int) -> NDArray[np.float64]:
        """Place of every code on its line, NaN for missing, the own value last."""
        domain = self.domains[j]
        places = np.full(domain.size + 1, np.nan)
        if domain.is_interval:
            places[: len(domain.values)] = domain.positions
            if self.own[j] == domain.size:
                places[-1] = domain.place(self.numbers[j : j + 1])[0]
        return places


# Regions that were tried: their NCP, their exact pureness, and the cells the model turned down.


@dataclass(frozen=True, slots=True)
class Trial:
    """A region with its exact figures."""

    region: Region
    ncp: float
    pureness: float  # Share of the grid's cells with the desired outcome; of a sample where the grid is over budget
    complete: bool  # Whether every cell of the grid was asked


@dataclass(slots=True)
class Record:
    """What is known about one counterfactual: the best trial so far and the bad cells."""

    best: Trial | None = None
    best_rank: Rank | None = None
    bad: list[NDArray[np.int32]] = field(default_factory=list)

    @property
    def bad_cells(self) -> NDArray[np.int32]:
        """All cells known to miss the desired outcome."""
        return np.unique(np.concatenate(self.bad), axis=0) if self.bad else np.empty((0, 0), np.int32)


class Trials:
    """Asks the oracle about whole regions, many counterfactuals at a time, and keeps score."""

    def __init__(self, task: Task, cell_budget: int) -> None:
        self.task = task
        self.cell_budget = cell_budget
        self.records = [Record() for _ in range(len(task))]

    def evaluate(self, which: Sequence[int], regions: Sequence[Region]) -> list[Trial]:
        """Return the figures of regions, in one model call; better ones become their counterfactual's best."""
        population = self.task.population
        grids = [Grid.of(r, population, self.task.codes[i]) for i, r in zip(which, regions, strict=True)]
        random = np.random.default_rng(self.task.seed)
        cells = [g.all() if g.size <= self.cell_budget else g.sample(self.cell_budget, random) for g in grids]
        if not cells:
            return []
        owner = np.repeat(np.asarray(which, dtype=np.int64), [len(c) for c in cells])
        answers = np.split(self.task.oracle.ask(owner, np.concatenate(cells)), np.cumsum([len(c) for c in cells])[:-1])
        trials = []
        for i, region, grid, asked, good in zip(which, regions, grids, cells, answers, strict=True):
            trial = Trial(region, ncp(region, population), float(good.mean()), grid.size <= self.cell_budget)
            self._keep(i, trial, asked[~good])
            trials.append(trial)
        return trials

    def _keep(self, i: int, trial: Trial, bad: NDArray[np.int32]) -> None:
        record = self.records[i]
        if len(bad):
            record.bad.append(self._as_forbidden(i, bad))
        its_rank = rank(self.task.policy, trial.ncp, trial.pureness)
        if record.best_rank is None or its_rank < record.best_rank:
            record.best, record.best_rank = trial, its_rank

    def _as_forbidden(self, i: int, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Write the counterfactual's own off-grid value as the solver does: -1."""
        own = self.task.codes[i] == UNKNOWN
        cells[:, own] = np.where(cells[:, own] == self._sizes()[own], UNKNOWN, cells[:, own])
        return cells

    def _sizes(self) -> NDArray[np.int32]:
        schema, domains = self.task.population.schema, self.task.population.domains
        return np.array([domains[q].size for q in schema.quasi_identifiers], dtype=np.int32)


# The compiled solver, asked for the counterfactuals of a task.


class Search:
    """Finds regions of least NCP for counterfactuals of one task, and writes them as regions."""

    def __init__(self, task: Task, node_limit: int, time_limit: float | None, threads: int) -> None:
        self.task = task
        self._node_limit, self._time_limit, self._threads = node_limit, time_limit, threads
        self._index = index_of(task.population)
        self._positions = anchor_positions(task.population, task.codes, task.numbers)

    def solve(
        self,
        which: Sequence[int],
        forbidden: Sequence[NDArray[np.int32]] | None = None,
        penalty: float = np.inf,
        node_limit: int | None = None,
    ) -> Solutions:
        """Solve for some of the counterfactuals; row i of the answer belongs to ``which[i]``."""
        at = np.asarray(which, dtype=np.int64)
        return solve(
            self._index,
            self.task.codes[at],
            self._positions[at],
            self.task.policy.k,
            forbidden=forbidden,
            penalty=penalty,
            node_limit=min(self._node_limit, node_limit or self._node_limit),
            time_limit=self._time_limit,
            threads=self._threads,
        )

    def region(self, i: int, solutions: Solutions, row: int) -> Region:
        """Write row `row` of some solutions as a region of counterfactual `i`."""
        population = self.task.population
        chosen = solutions.cells[row][solutions.cells[row] >= 0]
        return hull(population, self.task.codes[i], self.task.numbers[i], population.cells[chosen])


# Where no region is pure: look for the best trade-off between pureness and NCP, without proof.

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


# The exact protector: least NCP, or purest, region with k people; with proof or a proven gap.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactProtector:
    """Branch and bound over closed regions, and the lazy loop that keeps bad cells out.

    Of all regions that hold the counterfactual and k people it finds the one of least NCP (objective "ncp"), or
    of least NCP among those of pureness 1 (objectives "pureness" and "weighted" start there). Where no region is
    pure it returns the best trade-off it finds, without proof. What it finds is deterministic.

    It protects against linking a region to people by quasi-identifiers. It does not protect against an adversary
    who reruns it, nor against one who asks the model about each candidate.
    """

    node_limit: int = 200_000  # Search nodes per solve; beyond it the best region so far is returned with a proven gap
    time_limit: float | None = None  # Seconds per solve; None keeps results independent of the machine
    rounds: int = 60  # Model calls of the lazy loop
    cell_budget: int = 10_000  # Largest region (in value combinations) that is asked whole
    threads: int = 1  # Counterfactuals solved at the same time

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
    """Ask only for the cells of the best region left, forbid the bad ones, repeat."""
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
