"""The exact protector: least NCP, or purest, region with k people; with proof or a proven gap.

`solve` finds for each anchor the cheapest region that holds it and at least k people. The cells
nearest to an anchor give a first region; only cells whose hull with the anchor costs less can be
part of a cheaper one. Where forbidden cells leave no first region, the search runs under a cost cap
that grows until a region is found or the cap exceeds every cost, which proves that there is none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.combinations import Grid
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.policy import Mask, PrivacyPolicy
from cfk_plugin.data.region import Region
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.axes import (
    INTERVAL,
    CellIndex,
    Codes,
    Floats,
    Ints,
    ball,
    index_of,
    nearest,
    part_of,
    region_of,
    within,
)
from cfk_plugin.protection.lookup import kernels

_NEIGHBORHOOD = 4  # the first region is sought among the nearest cells that hold this many times k
_OPENING = 64  # nodes spent on it beyond one per person
_SLICE = 2048  # nodes between two looks at the clock

Rank = tuple[float, float, float]


def rank(policy: PrivacyPolicy, ncp: float, pureness: float) -> Rank:
    """Return a sort key, smaller is better: how far the policy's bounds are missed, then the
    objective.
    """
    missed = max(0.0, (policy.min_pureness or 0.0) - pureness)
    if policy.max_ncp is not None:
        missed += max(0.0, ncp - policy.max_ncp)
    if policy.objective == "pureness":
        return (missed, -pureness, ncp)
    return (missed, ncp, -pureness)


def needs_model(policy: PrivacyPolicy) -> bool:
    """Say whether the choice of a region depends on pureness."""
    return policy.objective != "ncp" or bool(policy.min_pureness)


Box = list[Mask]
"""For each quasi-identifier, which codes are inside; the last place is for the counterfactual's own
value.
"""


class BoxSpace:
    """All boxes around one counterfactual: counts people in them, prices them, changes them
    slightly.
    """

    def __init__(self, request: ProtectionRequest, i: int) -> None:
        population = request.population
        self.domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.cells, self.people = population.cells, population.cell_people
        self.numbers = request.numbers[i]
        self.own = [
            int(c) if c >= 0 else d.size
            for c, d in zip(request.codes[i], self.domains, strict=True)
        ]
        self.places = [self._places(j) for j in range(len(self.domains))]

    def point(self) -> Box:
        box = [np.zeros(domain.size + 1, dtype=bool) for domain in self.domains]
        for table, code in zip(box, self.own, strict=True):
            table[code] = True
        return box

    def of(self, region: Region) -> Box:
        box = self.point()
        for domain, table in zip(self.domains, box, strict=True):
            table[: domain.size] |= domain.inside(region[domain.attribute.name])
        return box

    def join(self, j: int, table: Mask, code: int) -> Mask:
        """Return a part with one more value: a range is filled, a set grows to a hierarchy node."""
        domain, joined = self.domains[j], table.copy()
        joined[code] = True
        if domain.is_interval:
            (low, high), line = self._span(j, joined), self.places[j][: len(domain.values)]
            joined[: len(line)] = (line >= low) & (line <= high)
        elif domain.attribute.hierarchy is not None:
            inside = np.flatnonzero(joined[: domain.size]).astype(np.int32)
            joined[: domain.size] = domain.inside(part_of(domain, inside))
        return joined

    def distances(self, box: Box) -> Floats:
        """HEOM distance of every cell to the box, 0 inside."""
        total = np.zeros(len(self.cells))
        for j, domain in enumerate(self.domains):
            gap = (~box[j][: domain.size]).astype(float)
            if domain.is_interval:
                (low, high), line = self._span(j, box[j]), self.places[j][: len(domain.values)]
                if low <= high:
                    gap[: len(line)] = np.maximum(0, np.maximum(low - line, line - high))
            total += gap[self.cells[:, j]]
        return total

    def count(self, box: Box) -> int:
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

    def _removable(self, j: int, inside: Ints) -> list[int]:
        """Codes that may leave a list: the ends of a range, any category, none of a node's
        leaves.
        """
        domain = self.domains[j]
        if domain.attribute.hierarchy is not None:
            return []
        if not domain.is_interval:
            return [int(code) for code in inside]
        places = self.places[j][inside]
        ends = (
            inside[[np.nanargmin(places), np.nanargmax(places)]]
            if not np.isnan(places).all()
            else inside[:0]
        )
        return sorted({*ends.tolist(), *inside[np.isnan(places)].tolist()}) if len(ends) else []

    def _addable(self, j: int, single: int) -> list[int]:
        domain = self.domains[j]
        if not domain.is_interval:
            return [code for code in range(domain.size) if code != single]
        places = self.places[j][: len(domain.values)]
        below = np.flatnonzero(places < self.places[j][single])
        above = np.flatnonzero(places > self.places[j][single])
        return [*below[-1:].tolist(), *above[:1].tolist()]

    def ncp(self, box: Box) -> float:
        total = 0.0
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            if domain.is_interval:
                low, high = self._span(j, table)
                share = max(high - low, 0.0)
                if low <= high and domain.has_missing and table[domain.missing_code]:
                    share = 1.0
            else:
                size = int(table.sum())
                share = size / domain.size if size > 1 else 0.0
            total += domain.attribute.weight * min(share, 1.0)
        return total

    def region(self, box: Box) -> Region:
        parts = {}
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            own = float(self.numbers[j]) if table[domain.size] else None
            codes = np.flatnonzero(table[: domain.size]).astype(np.int32)
            parts[domain.attribute.name] = part_of(domain, codes, own)
        return Region(parts)

    def _span(self, j: int, table: Mask) -> tuple[float, float]:
        """Return the first and last place inside; inf and -inf if there is none."""
        held = self.places[j][table]
        held = held[~np.isnan(held)]
        return (float(held.min()), float(held.max())) if len(held) else (np.inf, -np.inf)

    def _places(self, j: int) -> Floats:
        """Place of every code, NaN for missing, with the own value last."""
        domain = self.domains[j]
        places = np.full(domain.size + 1, np.nan)
        if domain.is_interval:
            places[: len(domain.values)] = domain.positions
            if self.own[j] == domain.size:
                places[-1] = domain.place(self.numbers[j : j + 1])[0]
        return places


_DOMINANT = 10.0  # a penalty per bad cell above any NCP: fewest bad cells first
_NODES = 200  # per solve: no proof is needed here, and good regions are found early
_LAZY_ROUNDS = 6  # model calls of the first search; the second one makes up for more
_CHANGE_ROUNDS = 20  # model calls of the second search
_LARGEST_POPULATION = 200_000  # cells; above, counting every small change takes too long


class Trial(NamedTuple):
    region: Region
    ncp: float
    # share of the grid's cells, or of a sample if over budget, with the desired outcome
    pureness: float
    complete: bool  # whether every cell of the grid was asked
    rank: Rank


class _RegionSearch:
    """Finds and tries regions for the counterfactuals of a task; keeps each one's best region and
    bad cells.
    """

    def __init__(self, settings: ExactProtector, request: ProtectionRequest) -> None:
        population, n = request.population, len(request.codes)
        domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.settings, self.request = settings, request
        self._sizes = np.array([domain.size for domain in domains], dtype=np.int32)
        self._places = np.zeros(request.codes.shape)
        for j, domain in enumerate(domains):
            if domain.is_numeric:  # levels that nobody has do not count
                self._places[:, j] = domain.place(request.numbers[:, j]) * domain.attribute.weight
        self.best: list[Trial | None] = [None] * n
        self.bad = [np.empty((0, len(domains)), np.int32)] * n

    def solve(
        self, which: Sequence[int], penalty: float = np.inf, node_limit: int | None = None
    ) -> list[Solution]:
        """Solve for some of the counterfactuals, with their bad cells forbidden."""
        at, settings, population = (
            np.asarray(which, dtype=np.int64),
            self.settings,
            self.request.population,
        )
        return solve(
            index_of(population),
            self.request.codes[at],
            self._places[at],
            self.request.policy.k,
            [self.bad[i] for i in which],
            penalty=penalty,
            node_limit=min(settings.node_limit, node_limit or settings.node_limit),
            time_limit=settings.time_limit,
            threads=settings.threads,
        )

    def region(self, i: int, solution: Solution) -> Region:
        cells = np.vstack([self.request.population.cells[solution.cells], self.request.codes[i]])
        return region_of(self.request.population, cells, self.request.numbers[i])

    def solve_and_try(
        self, which: Sequence[int], penalty: float = np.inf, node_limit: int | None = None
    ) -> list[tuple[int, Solution, Trial]]:
        solved = zip(which, self.solve(which, penalty, node_limit), strict=True)
        found = [(i, solution) for i, solution in solved if solution.weight]
        trials = self.evaluate(
            [i for i, _ in found], [self.region(i, solution) for i, solution in found]
        )
        return [(i, solution, trial) for (i, solution), trial in zip(found, trials, strict=True)]

    def evaluate(self, which: Sequence[int], regions: Sequence[Region]) -> list[Trial]:
        """Return the figures of regions, in one model call; better ones become their
        counterfactual's best.
        """
        request, budget = self.request, self.settings.cell_budget
        grids = [
            Grid.of(r, request.population, request.codes[i])
            for i, r in zip(which, regions, strict=True)
        ]
        random = np.random.default_rng(request.seed)
        cells = [g.all() if g.size <= budget else g.sample(budget, random) for g in grids]
        if not cells:
            return []
        lengths = [len(c) for c in cells]
        answers = request.combination_outcomes.ask(
            np.repeat(np.asarray(which, dtype=np.int64), lengths), np.concatenate(cells)
        )
        trials = []
        for i, region, grid, asked, good in zip(
            which, regions, grids, cells, np.split(answers, np.cumsum(lengths)[:-1]), strict=True
        ):
            loss, pureness = ncp(region, request.population), float(good.mean())
            trial = Trial(
                region, loss, pureness, grid.size <= budget, rank(request.policy, loss, pureness)
            )
            best, bad = self.best[i], asked[~good]
            if best is None or trial.rank < best.rank:
                self.best[i] = trial
            if len(bad):  # the counterfactual's own value is -1 to the solver
                bad = np.where((request.codes[i] == UNKNOWN) & (bad == self._sizes), UNKNOWN, bad)
                self.bad[i] = np.unique(np.concatenate([self.bad[i], bad]), axis=0)
            trials.append(trial)
        return trials

    def prove(self) -> list[float | None]:
        """Ask about the best remaining region's cells, forbid the bad ones, repeat; return proven
        gaps.
        """
        request, gaps = self.request, cast("list[float | None]", [None] * len(self.best))
        active = list(range(len(self.best)))
        for turn in range(self.settings.rounds):
            if not active:
                break
            tried, active = self.solve_and_try(active), []
            for i, solution, trial in tried:
                if _settles(request.policy, trial, first=turn == 0):
                    gaps[i] = solution.gap
                elif trial.pureness < 1:
                    active.append(i)
            if request.progress is not None:
                request.progress(len(gaps) - len(active), len(gaps))
        return gaps

    def find_fewest_bad_cells(self, which: Sequence[int]) -> None:
        """Look for regions with few bad cells, lazily like `prove`; a bad cell costs more than any
        NCP.
        """
        active = list(which)
        for _ in range(_LAZY_ROUNDS if active else 0):
            known = [len(bad) for bad in self.bad]
            tried = self.solve_and_try(active, _DOMINANT, _NODES)
            active = [i for i, _, _ in tried if len(self.bad[i]) > known[i]]
            if not active:
                return

    def change_a_little(self, which: Sequence[int]) -> None:
        """Change the best regions by one value at a time, as in the paper's local search but with
        exact pureness.
        """
        spaces = {i: BoxSpace(self.request, i) for i in which if self.best[i] is not None}
        active = list(spaces)
        for _ in range(_CHANGE_ROUNDS):
            changes = [
                (i, box) for i in active for box in self._allowed_changes(spaces[i], self.best[i])
            ]
            if not changes:
                return
            before = list(self.best)
            self.evaluate([i for i, _ in changes], [spaces[i].region(box) for i, box in changes])
            active = [i for i in active if self.best[i] is not before[i]]

    def _allowed_changes(self, space: BoxSpace, best: Trial | None) -> list[Box]:
        if best is None or not best.complete:
            return []
        changes = [
            box
            for box in space.changes(space.of(best.region))
            if space.count(box) >= self.request.policy.k
        ]
        sizes = [np.prod([table.sum() for table in box], dtype=float) for box in changes]
        return [
            box
            for box, size in zip(changes, sizes, strict=True)
            if size <= self.settings.cell_budget
        ]


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
            return [
                Proposal(search.region(i, solution), solution.proven, solution.gap)
                if solution.weight
                else Proposal(None, solution.proven)
                for i, solution in enumerate(search.solve(range(len(request))))
            ]
        gaps = search.prove()
        unfinished = [i for i, gap in enumerate(gaps) if gap is None]
        search.find_fewest_bad_cells(unfinished)
        if len(request.population.cells) <= _LARGEST_POPULATION:
            search.change_a_little(unfinished)
        return [
            Proposal(None if trial is None else trial.region, optimal=gap == 0.0, gap=gap)
            for trial, gap in zip(search.best, gaps, strict=True)
        ]


def _settles(policy: PrivacyPolicy, trial: Trial, *, first: bool) -> bool:
    """Say whether the region of least NCP, among those without a known bad cell, is the best for
    the policy.

    For the objective "pureness" a pure one is. For others an impure one of less NCP may be better,
    unless `first`.
    """
    if policy.max_ncp is not None and trial.ncp > policy.max_ncp:
        return False
    if trial.pureness == 1:
        return trial.complete and (first or policy.objective == "pureness")
    return (
        first
        and trial.complete
        and policy.objective == "ncp"
        and trial.pureness >= (policy.min_pureness or 0.0)
    )


class Solution(NamedTuple):
    cost: float = np.inf  # with penalties; infinite when there is none
    # no region costs less; infinite when it is proven that there is none
    lower_bound: float = np.inf
    nodes: int = 0  # of the search tree, expanded
    weight: int = 0  # people inside the region
    # in the caller's numbering: their hull with the anchor is the region
    cells: Ints = np.empty(0, np.int64)

    @property
    def proven(self) -> bool:
        """Whether the region is optimal, or none is proven to exist."""
        return bool(self.lower_bound >= self.cost)

    @property
    def gap(self) -> float:
        """Proven bound on how much cheaper another region could be."""
        return 0.0 if self.proven else max(0.0, self.cost - self.lower_bound)


class _Problem(NamedTuple):
    space: CellIndex
    anchor: Codes
    place: Floats
    need: int
    banned: Codes
    penalty: float
    node_limit: int
    deadline: float | None


def solve(
    index: CellIndex,
    anchors: Codes,
    places: Floats,
    k: int,
    forbidden: Sequence[Codes] | None = None,
    *,
    penalty: float = np.inf,
    node_limit: int = 200_000,
    time_limit: float | None = None,
    threads: int = 1,
) -> list[Solution]:
    """Find, for each anchor, the region of least cost that holds it and at least ``k`` people.

    ``places`` count where the code is -1: a number of the anchor's own.
    """
    axes = index.axes
    banned = (
        [np.empty((0, anchors.shape[1]), np.int32)] * len(anchors)
        if forbidden is None
        else forbidden
    )
    # writable, as compiled for
    codes = [np.array(cells, np.int32, order="C") for cells in (anchors, *banned)]
    low, high = np.where(axes.kind == INTERVAL, -1, 0), np.diff(axes.offset)
    # kernels would read out of bounds
    if any(np.any((cells < low) | (cells >= high)) for cells in codes):
        raise ValueError("a code lies outside its quasi-identifier")
    known = axes.position[axes.offset[:-1] + np.maximum(codes[0], 0)]
    places = np.where(codes[0] >= 0, known, places)
    if not np.all(np.isfinite(places)):
        raise ValueError("an anchor without a code needs a finite position")

    def one(a: int) -> Solution:
        deadline = None if time_limit is None else time.monotonic() + time_limit
        return _solve(
            _Problem(index, codes[0][a], places[a], k, codes[a + 1], penalty, node_limit, deadline)
        )

    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, range(len(anchors))))
    return [one(a) for a in range(len(anchors))]


def _solve(request: _Problem) -> Solution:
    tree, axes = request.space.tree, request.space.axes
    around = (tree, axes, request.anchor, request.place)
    total = int(tree.weight.sum())
    if total < request.need:
        return Solution()
    extra = request.penalty * len(request.banned) if request.penalty < np.inf else 0.0
    ceiling = (float(axes.weight.sum()) + extra) * (1 + 1e-9) + 4 * kernels.TOLERANCE
    rows, radius = nearest(*around, min(_NEIGHBORHOOD * request.need, total))
    # One descent is made whatever the limits: without forbidden cells it always ends in a region.
    opening = _branch(request, rows, ceiling, 0, request.need + _OPENING, opening=True)
    cap, nodes = opening.cost if opening.weight else max(2 * radius, ceiling / 1024), opening.nodes
    while True:
        cap = min(cap, ceiling)
        rows = ball(*around, cap + kernels.TOLERANCE)
        found = _branch(request, rows, cap, nodes, request.node_limit, opening=False)
        bound, nodes = found.lower_bound, found.nodes
        if opening.weight and not found.weight:
            both = kernels.localize(
                *around, np.append(opening.cells, rows), request.banned[:0], np.empty(0)
            )
            hull, span = kernels.first_hull(both, len(opening.cells) + 1), len(opening.cells)
            found = opening._replace(weight=int(kernels.headcount(both, hull, span)), nodes=nodes)
        if found.weight:
            bound = found.cost if bound >= found.cost - 2 * kernels.TOLERANCE else bound
            return found._replace(lower_bound=bound, cells=request.space.original[found.cells])
        if bound < cap:
            return found
        if cap >= ceiling:
            return found._replace(lower_bound=np.inf)
        # Once most cells are in reach, a smaller step would only repeat the work.
        cap = 2 * cap if 2 * rows.size < tree.weight.size else ceiling


def _branch(
    request: _Problem,
    rows: NDArray[np.int64],
    cap: float,
    nodes: int,
    node_limit: int,
    *,
    opening: bool,
) -> Solution:
    tree, axes = request.space.tree, request.space.axes
    banned, near = within(axes, request.anchor, request.place, request.banned, cap)
    p = kernels.localize(tree, axes, request.anchor, request.place, rows, banned, near)
    hull, stack = kernels.begin(p, request.need, cap, request.penalty, nodes)
    best = np.empty(hull.low.shape[0], np.int64)
    while True:
        spent = int(stack.counter[kernels.NODES])
        goal = node_limit if request.deadline is None else min(node_limit, spent + _SLICE)
        status = kernels.explore(p, hull, stack, request.need, request.penalty, goal, opening, best)
        if status == kernels.DONE:
            break
        if status != kernels.PAUSED:
            hull, stack, best = kernels.roomier(hull, stack, best)
            continue
        late = request.deadline is not None and time.monotonic() >= request.deadline
        if (
            stack.counter[kernels.NODES] >= node_limit
            or late
            or (opening and stack.counter[kernels.BEST_WEIGHT])
        ):
            break
    bound = cap if status == kernels.DONE else float(kernels.open_bound(p, stack, request.need))
    spent = int(stack.counter[kernels.NODES])
    if not stack.counter[kernels.BEST_WEIGHT]:
        return Solution(lower_bound=bound, nodes=spent)
    cost, cells = float(stack.cost[0]), rows[best[: stack.counter[kernels.BEST_SIZE]]]
    return Solution(cost, min(cost, bound), spent, int(stack.counter[kernels.BEST_WEIGHT]), cells)
