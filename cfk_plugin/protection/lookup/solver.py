"""The exact solver: for each anchor, the cheapest region that holds it and at least k people.

A region costs its NCP; see `protection.axes`. A cheapest region is the hull of the anchor and some
equivalence classes of the population, because any other region can be shrunk to such a hull without
losing a person. So only hulls are searched.

1. *Open.* The classes nearest to the anchor, with a few times k people, give a first region: one
   descent of the search, which always takes the cheapest class.
2. *Reach.* The cost of that region is a cap. A region that costs less holds only classes whose hull
   with the anchor costs less, since a hull never costs less than a part of it. An index returns
   these classes, which are few even in large populations.
3. *Search.* Branch and bound over these classes finds the cheapest region below the cap, or proves
   that there is none and the first region is the cheapest. `lookup.branch_and_bound` says how, with
   its bounds.
4. *Raise the cap.* Forbidden combinations may leave no first region. Then steps 2 and 3 run under a
   cap that doubles until there is a region or the cap exceeds every cost, which proves that there
   is none.

A search may be stopped by a limit. Its region is then the best so far, and the least bound of what
is unexplored says how much cheaper another one could be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from cfk_plugin.protection.axes import INTERVAL, AxisArrays, Codes, Floats, Ints
from cfk_plugin.protection.class_index import ClassIndex, ball, nearest, within
from cfk_plugin.protection.lookup.branch_and_bound import (
    BEST_SIZE,
    BEST_WEIGHT,
    DONE,
    NODES,
    PAUSED,
    TOLERANCE,
    begin,
    explore,
    open_bound,
    roomier,
)
from cfk_plugin.protection.lookup.hulls import first_hull, headcount, localize

_NEIGHBORHOOD = 4  # the first region is sought among classes that hold this many times k people
_OPENING = 64  # nodes spent on the first region beyond one per person
_SLICE = 2048  # nodes between two looks at the clock
_FIRST_CAP = 1 / 1024  # least first cap without a first region, as a share of the largest cost


class Solution(NamedTuple):
    """The cheapest region found for an anchor, and what is proven of it."""

    cost: float = np.inf  # with penalties; infinite if there is no region
    # No region costs less; infinite if it is proven that there is none.
    lower_bound: float = np.inf
    nodes: int = 0  # hulls that the search branched on
    people: int = 0  # inside the region; 0 if there is none
    # The region is the hull of the anchor and these classes, in the caller's numbering.
    classes: Ints = np.empty(0, np.int64)

    @property
    def proven(self) -> bool:
        """Whether the region is optimal, or it is proven that there is none."""
        return bool(self.lower_bound >= self.cost)

    @property
    def gap(self) -> float:
        """Proven bound on how much cheaper another region could be."""
        return 0.0 if self.proven else max(0.0, self.cost - self.lower_bound)


class _Search(NamedTuple):
    """The search for one anchor: its question and its limits."""

    class_index: ClassIndex
    anchor: Codes  # shape (n_axes,)
    positions: Floats  # shape (n_axes,)
    need: int  # people
    forbidden: Codes  # shape (n_forbidden, n_axes)
    penalty: float
    node_limit: int
    time_limit: float | None  # seconds
    deadline: float | None = None  # of the monotonic clock

    @property
    def ceiling(self) -> float:
        """A little more than the largest cost of a region, with penalties."""
        penalties = 0.0
        if self.penalty < np.inf:
            penalties = self.penalty * len(self.forbidden)
        return (float(self.class_index.axes.weight.sum()) + penalties) * (1 + 1e-9) + 4 * TOLERANCE

    @property
    def is_late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def classes_below(self, cap: float) -> Ints:
        """Return all classes that a region below a cap can hold, in tree order of the index."""
        index = self.class_index
        return ball(index.tree, index.axes, self.anchor, self.positions, cap + TOLERANCE)


def solve(
    index: ClassIndex,
    anchors: Codes,
    positions: Floats,
    k: int,
    forbidden: Sequence[Codes] | None = None,
    *,
    penalty: float = np.inf,
    node_limit: int = 200_000,
    time_limit: float | None = None,
    threads: int = 1,
) -> list[Solution]:
    """Find, for each anchor, the region of least cost that holds it and at least ``k`` people.

    Within its limits, the search proves that no other region costs less. If it reaches a limit, the
    region is the best that it found, and `Solution.gap` bounds what is lost.

    Parameters
    ----------
    index : the equivalence classes of the population, with the axes on which costs are defined
    anchors : shape (n, n_axes); codes of the counterfactuals' quasi-identifiers, -1 for a number
        that no training row has
    positions : shape (n, n_axes); read only where the code is -1: the place of the number on its
        axis (`Domain.place`), times the weight of the axis
    k : people that a region needs
    forbidden : for each anchor, combinations of shape (n_forbidden, n_axes)
    penalty : what each forbidden combination inside a region adds to its cost; if infinite, no
        region may contain one
    node_limit, time_limit : per anchor; the time in seconds
    threads : number of anchors searched at the same time

    Returns
    -------
    list of n Solution
        In the order of the anchors. The cost is infinite where fewer than k people exist, where no
        region is permitted, and where a limit is reached before any region is found.

    Raises
    ------
    ValueError
        If a code is not on its axis, or an anchor without a code has no finite position.
    """
    if forbidden is None:
        no_combinations = np.empty((0, anchors.shape[1]), np.int32)
        forbidden = [no_combinations] * len(anchors)
    # Copies, as kernels are compiled for writable arrays.
    anchors = np.array(anchors, np.int32, order="C")
    forbidden = [np.array(codes, np.int32, order="C") for codes in forbidden]
    _check_codes(index.axes, [anchors, *forbidden])
    positions = _positions_of(index.axes, anchors, positions)
    searches = [
        _Search(
            class_index=index,
            anchor=anchors[i],
            positions=positions[i],
            need=k,
            forbidden=forbidden[i],
            penalty=penalty,
            node_limit=node_limit,
            time_limit=time_limit,
        )
        for i in range(len(anchors))
    ]
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(_solve, searches))
    return [_solve(search) for search in searches]


def _check_codes(axes: AxisArrays, tables: Sequence[Codes]) -> None:
    """Refuse codes that an axis does not have: kernels would read out of bounds."""
    least_codes = np.where(axes.kind == INTERVAL, -1, 0)
    n_codes = np.diff(axes.offset)
    for codes in tables:
        if np.any((codes < least_codes) | (codes >= n_codes)):
            raise ValueError("a code lies outside its quasi-identifier")


def _positions_of(axes: AxisArrays, anchors: Codes, own_positions: Floats) -> Floats:
    """Return where anchors are, shape (n, n_axes): at their codes, or else at their own numbers."""
    code_positions = axes.position[axes.offset[:-1] + np.maximum(anchors, 0)]
    positions = np.where(anchors >= 0, code_positions, own_positions)
    if not np.all(np.isfinite(positions)):
        raise ValueError("an anchor without a code needs a finite position")
    return positions


def _solve(search: _Search) -> Solution:
    """Run all steps for one anchor."""
    total = int(search.class_index.tree.weight.sum())
    if total < search.need:
        return Solution()
    if search.time_limit is not None:
        search = search._replace(deadline=time.monotonic() + search.time_limit)
    classes, radius = nearest(
        search.class_index.tree,
        search.class_index.axes,
        search.anchor,
        search.positions,
        min(_NEIGHBORHOOD * search.need, total),
    )
    ceiling = search.ceiling
    # One descent is made whatever the limits: without forbidden combinations it ends in a region.
    opening = _branch(search, classes, ceiling, 0, search.need + _OPENING, is_opening=True)
    if opening.people:
        return _improve(search, opening)
    first_cap = max(2 * radius, ceiling * _FIRST_CAP)
    return _raise_cap(search, first_cap, ceiling, opening.nodes)


def _improve(search: _Search, opening: Solution) -> Solution:
    """Return the cheapest region: below the cost of a first one, or else that one."""
    classes = search.classes_below(opening.cost)
    better = _branch(
        search, classes, opening.cost, opening.nodes, search.node_limit, is_opening=False
    )
    if better.people:
        return _finished(search, better, better.lower_bound)
    people = _count_people(search, opening.classes, classes)
    unimproved = opening._replace(people=people, nodes=better.nodes)
    return _finished(search, unimproved, better.lower_bound)


def _raise_cap(search: _Search, cap: float, ceiling: float, nodes: int) -> Solution:
    """Return the cheapest region, or a proof that there is none, without a first region."""
    n_classes = search.class_index.tree.weight.size
    while True:
        cap = min(cap, ceiling)
        classes = search.classes_below(cap)
        solution = _branch(search, classes, cap, nodes, search.node_limit, is_opening=False)
        nodes = solution.nodes
        if solution.people:
            return _finished(search, solution, solution.lower_bound)
        is_stopped = solution.lower_bound < cap
        if is_stopped:
            return solution
        if cap >= ceiling:
            return solution._replace(lower_bound=np.inf)
        # Once most classes are in reach, a smaller step would only repeat the work.
        cap = 2 * cap if 2 * classes.size < n_classes else ceiling


def _finished(search: _Search, solution: Solution, bound: float) -> Solution:
    """Return a solution with its bound, and with classes in the caller's numbering.

    A bound that differs from the cost by rounding only proves the optimum.
    """
    if bound >= solution.cost - 2 * TOLERANCE:
        bound = solution.cost
    return solution._replace(
        lower_bound=bound, classes=search.class_index.original[solution.classes]
    )


def _count_people(search: _Search, spanning: Ints, classes: Ints) -> int:
    """Return how many people of some classes are in the hull of the anchor and others."""
    problem = localize(
        search.class_index.tree,
        search.class_index.axes,
        search.anchor,
        search.positions,
        np.append(spanning, classes),
        search.forbidden[:0],
        np.empty(0),
    )
    hull = first_hull(problem, len(spanning) + 1)
    return int(headcount(problem, hull, len(spanning)))


def _branch(
    search: _Search,
    classes: Ints,
    cap: float,
    nodes: int,
    node_limit: int,
    *,
    is_opening: bool,
) -> Solution:
    """Return the cheapest region below a cap that some classes span.

    Parameters
    ----------
    classes : shape (n,); in tree order of the index, as are the solution's
    nodes : hulls that earlier searches for the anchor branched on; they count
    is_opening : whether to stop at the first region
    """
    index = search.class_index
    forbidden, forbidden_cost = within(
        index.axes, search.anchor, search.positions, search.forbidden, cap
    )
    problem = localize(
        index.tree,
        index.axes,
        search.anchor,
        search.positions,
        classes,
        forbidden,
        forbidden_cost,
    )
    hull, stack = begin(problem, search.need, cap, search.penalty, nodes)
    best = np.empty(hull.low.shape[0], np.int64)
    while True:
        most_nodes = node_limit
        if search.deadline is not None:
            most_nodes = min(node_limit, int(stack.counter[NODES]) + _SLICE)
        status = explore(
            problem, hull, stack, search.need, search.penalty, most_nodes, is_opening, best
        )
        if status == DONE:
            break
        if status != PAUSED:
            hull, stack, best = roomier(hull, stack, best)
            continue
        is_opened = is_opening and stack.counter[BEST_WEIGHT] > 0
        if is_opened or stack.counter[NODES] >= node_limit or search.is_late:
            break
    bound = cap
    if status != DONE:
        bound = float(open_bound(problem, stack, search.need))
    nodes = int(stack.counter[NODES])
    people = int(stack.counter[BEST_WEIGHT])
    if people == 0:
        return Solution(lower_bound=bound, nodes=nodes)
    cost = float(stack.best_cost[0])
    return Solution(
        cost=cost,
        lower_bound=min(cost, bound),
        nodes=nodes,
        people=people,
        classes=classes[best[: stack.counter[BEST_SIZE]]],
    )
