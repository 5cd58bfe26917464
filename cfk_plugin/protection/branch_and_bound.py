"""Branch and bound over boxes: the box of least NCP with a counterfactual and k people.

A *hull* is the smallest box with the counterfactual and certain cells. A best box is always a hull,
because any other box can be shrunk to one without losing a person. So the search only looks at
hulls, as corners (see `protection.boxes`).

1. *Open* (`_beam`). A beam search finds a first hull with k people, which is nearly the best. Its
   NCP is the limit.
2. *Reach*. A better hull contains only cells whose hull with the counterfactual costs less than the
   limit.
3. *Search* (`_Search`). From a hull, each cell outside joins in turn, the cheapest first, and is
   excluded afterwards: hulls with an excluded cell were searched in the branch of that cell. So
   each hull is searched once.
4. *Bound* (`_core`, `_Search._is_dispersed`). All cells of a hull are near each other: the hull of
   any two of them costs less than the limit. So a cell with too few people near it is removed, and
   others may then have too few people near them. If people are spread over many categories, a hull
   needs many of these, and little NCP is left for the other quasi-identifiers.
5. *Raise the limit*. With forbidden combinations, there may be no first hull. Then steps 2 to 4 run
   with a limit that doubles, until there is a hull, or the limit exceeds every NCP.

The costs of the hulls of all pairs of cells are calculated together: the sum of the maxima of two
corners is half of the sum of all their coordinates and of their distance (city block).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.boxes import Box, Surroundings

TOLERANCE = 1e-12
"""Costs that differ by less are equal; sums of the same coordinates differ by rounding."""

_MOST_PAIRED = 1500  # up to this many cells, the costs of all pairs are calculated at once
_MANY_CATEGORIES = 8  # if a set has more, the people of each category are counted
_MOST_UNWANTED = 500  # combinations that `boxes_with_few` avoids
_PENALTY = 10.0  # for each unwanted combination: more than any NCP
_HIGHEST_LIMIT = 1 + 4 * TOLERANCE  # above every NCP


class _Beam(NamedTuple):
    """The width of a beam search."""

    neighborhood: int  # it looks at the cheapest cells with this many times k people
    n_tried: int  # the number of hulls in each step whose people it counts
    width: int  # the number of hulls that stay for the next step


_FOR_OPENING = _Beam(neighborhood=6, n_tried=96, width=8)
_FOR_FEW = _Beam(neighborhood=6, n_tried=500, width=12)
_WIDER = 4  # with blockers, the neighbourhood is first this many times larger


@dataclass(frozen=True, eq=False, repr=False)
class Solution(HostOnly):
    """The box of least NCP, with a proven bound.

    Attributes
    ----------
    box : Box or None
        None if there is no box, or if the search stopped before it found one.
    ncp : float
        The NCP of the box; infinite without a box.
    bound : float
        A proven lower bound of the NCP of any such box; infinite if there is none.
    n_nodes : int
        The number of hulls from which the search branched.
    """

    box: Box | None
    ncp: float
    bound: float
    n_nodes: int

    @property
    def gap(self) -> float:
        """The largest possible difference to the NCP of the best box; 0 for a proven optimum."""
        if self.bound >= self.ncp - 2 * TOLERANCE:
            return 0.0
        return self.ncp - max(self.bound, 0.0)


def smallest_box(
    surroundings: Surroundings,
    k: int,
    forbidden: Ints | None = None,
    *,
    least: float = 0.0,
    node_limit: int = 200_000,
) -> Solution:
    """Return the box of least NCP with the counterfactual and k people.

    Parameters
    ----------
    surroundings : Surroundings
    k : int
    forbidden : shape (n_forbidden, n_quasi), optional
        Positions of combinations that the box must not contain.
    least : float
        A proven lower bound of the NCP of such a box.
    node_limit : int
        After this number of hulls, the best box so far is returned, with a bound.
    """
    blockers = np.empty((0, len(surroundings.axis_of_dimension)))
    if forbidden is not None:
        blockers = surroundings.coordinates(forbidden)
    is_hopeless = surroundings.people.sum() < k or (blockers <= 0).all(axis=1).any()
    if is_hopeless:
        return Solution(None, np.inf, np.inf, 0)
    corners = _beam(surroundings, k, blockers, np.inf, 1, _FOR_OPENING)
    if not len(corners):
        return _raise_limit(surroundings, k, blockers, least, node_limit)
    opening = surroundings.box(corners[0])
    search = _Search(surroundings, k, blockers, surroundings.ncp(opening), node_limit)
    search.run()
    return _solution(surroundings, search, opening)


def _raise_limit(
    surroundings: Surroundings, k: int, blockers: Floats, least: float, node_limit: int
) -> Solution:
    """Search with a limit that doubles, until there is a box, or a proof that there is none."""
    costs = surroundings.costs
    dearest = _cheapest(costs, surroundings.people, k)[-1]
    limit = 2 * max(least, float(costs[dearest]))
    n_nodes = 0
    while True:
        # With most cells in reach, smaller steps would only repeat the work.
        is_last = limit >= _HIGHEST_LIMIT or 2 * np.count_nonzero(costs < limit) > len(costs)
        if is_last:
            limit = _HIGHEST_LIMIT
        search = _Search(surroundings, k, blockers, limit, node_limit, n_nodes)
        search.run()
        if is_last or search.corner is not None or search.is_stopped:
            return _solution(surroundings, search, None)
        n_nodes = search.n_nodes
        limit *= 2


def _solution(surroundings: Surroundings, search: _Search, opening: Box | None) -> Solution:
    """Return the best box of a search, or the opening box if it found none."""
    box = opening
    if search.corner is not None:
        box = surroundings.box(search.corner)
    if box is None:
        return Solution(None, np.inf, search.bound, search.n_nodes)
    ncp = surroundings.ncp(box)
    return Solution(box, ncp, min(ncp, search.bound), search.n_nodes)


def boxes_with_few(
    surroundings: Surroundings, k: int, unwanted: Ints, *, n_boxes: int = 4
) -> list[Box]:
    """Return boxes with k people, few unwanted combinations and a low NCP, the best first.

    They need not be the best of all.

    Parameters
    ----------
    surroundings : Surroundings
    k : int
    unwanted : shape (n_unwanted, n_quasi)
        Positions of combinations; only the nearest 500 count.
    n_boxes : int
        The largest number of boxes.
    """
    blockers = surroundings.coordinates(unwanted)
    costs = _Prices.of(surroundings).costs(blockers)
    nearest = np.argsort(costs, kind="stable")[:_MOST_UNWANTED]
    corners = _beam(surroundings, k, blockers[nearest], _PENALTY, n_boxes, _FOR_FEW)
    return [surroundings.box(corner) for corner in corners]


@dataclass(frozen=True, eq=False, repr=False)
class _Prices(HostOnly):
    """Calculates the NCP of corners.

    Attributes
    ----------
    capped : list of (dimensions, weight)
        One for each axis whose coordinates can add up to more than its weight.
    """

    capped: list[tuple[Ints, float]]

    @classmethod
    def of(cls, surroundings: Surroundings, dimensions: Ints | None = None) -> _Prices:
        """Return the prices of corners on these dimensions, shape (n_dimensions,), or on all."""
        axis_of_dimension = surroundings.axis_of_dimension
        if dimensions is not None:
            axis_of_dimension = axis_of_dimension[dimensions]
        capped = []
        for j, axis in enumerate(surroundings.axes):
            if axis.is_capped:
                capped.append((np.flatnonzero(axis_of_dimension == j), axis.weight))
        return cls(capped)

    def costs(self, corners: Floats) -> Floats:
        """Return the NCP of corners, shape (n,)."""
        costs: Floats = corners.sum(axis=1)
        for dimensions, weight in self.capped:
            part = corners[:, dimensions].sum(axis=1)
            costs = costs - np.maximum(part - weight, 0.0)
        return costs

    def pairs(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Return the sum of coordinates, and the NCP, of the hull of each pair of corners.

        `first` has the shape (n, n_dimensions), `second` (m, n_dimensions); both results (n, m).
        """
        totals = _totals_of_pairs(first, second)
        costs = totals
        for dimensions, weight in self.capped:
            part = _totals_of_pairs(first[:, dimensions], second[:, dimensions])
            costs = costs - np.maximum(part - weight, 0.0)
        return totals, costs

    def contains(self, corners: Floats, points: Floats) -> Mask:
        """Return which points each corner contains, shape (n_corners, n_points)."""
        excess = _totals_of_pairs(corners, points) - corners.sum(axis=1)[:, None]
        return np.asarray(excess <= TOLERANCE)

    def penalties(self, corners: Floats, blockers: Floats, penalty: float) -> Floats:
        """Return the sum of the penalties for the blockers inside each corner, (n_corners,)."""
        penalties = np.zeros(len(corners))
        if len(blockers):
            n_blockers = self.contains(corners, blockers).sum(axis=1)
            has_blocker = n_blockers > 0
            penalties[has_blocker] = n_blockers[has_blocker] * penalty
        return penalties


def _totals_of_pairs(first: Floats, second: Floats) -> Floats:
    """Return the sum of the coordinates' maxima for each pair of points, (n_first, n_second)."""
    totals: Floats = cdist(first, second, "cityblock")
    totals += first.sum(axis=1)[:, None]
    totals += second.sum(axis=1)
    totals /= 2
    return totals


@dataclass(frozen=True, eq=False, repr=False)
class _Dimensions(HostOnly):
    """The dimensions on which a cell in reach differs from the counterfactual.

    Attributes
    ----------
    is_used : shape (n_dimensions of all axes,)
    """

    is_used: Mask

    @classmethod
    def of(cls, points: Floats) -> _Dimensions:
        """Return the dimensions for cells in reach, shape (n, n_dimensions of all axes)."""
        return cls(np.asarray((points > 0).any(axis=0)))

    @property
    def numbers(self) -> Ints:
        return np.flatnonzero(self.is_used)

    def select(self, points: Floats) -> Floats:
        """Return points on these dimensions, without points that differ on another one.

        These are out of reach.
        """
        is_reachable = (points[:, ~self.is_used] <= 0).all(axis=1)
        return points[is_reachable][:, self.is_used]

    def expand(self, corners: Floats) -> Floats:
        """Return corners on these dimensions as corners on all dimensions of all axes."""
        expanded = np.zeros((len(corners), len(self.is_used)))
        expanded[:, self.is_used] = corners
        return expanded


# 1. Open.


def _beam(
    surroundings: Surroundings, k: int, blockers: Floats, penalty: float, n_best: int, beam: _Beam
) -> Floats:
    """Return corners of cheap hulls with k people from a beam search.

    In each step, each cell near the counterfactual joins each hull. The hulls with the least cost
    divided by the square of their people stay for the next step.

    Parameters
    ----------
    blockers : shape (n_blockers, n_dimensions)
        Points that should not be inside.
    penalty : float
        The cost of each blocker inside; infinite if none may be inside.
    n_best : int
        The largest number of corners to return.

    Returns
    -------
    array, shape (n, n_dimensions)
        In order of their cost.
    """
    near = _Neighborhood.of(surroundings, beam.neighborhood * k, blockers, penalty)
    prices = near.prices
    points = near.points
    corners = np.zeros((1, points.shape[1]))
    if near.people[(points <= 0).all(axis=1)].sum() >= k:
        return near.dimensions.expand(corners)
    best = corners[:0]
    best_costs = np.empty(0)
    while len(corners):
        # axes: hull, joining cell, dimension
        hulls = np.maximum(corners[:, None], points)[~prices.contains(corners, points)]
        costs = prices.costs(hulls)
        cheapest = np.argsort(costs, kind="stable")[: beam.n_tried]
        hulls = hulls[cheapest]
        costs = costs[cheapest] + prices.penalties(hulls, near.blockers, penalty)
        limit = best_costs[-1] if len(best) == n_best else np.inf
        hulls, costs = _distinct(hulls[costs < limit], costs[costs < limit])
        n_people = prices.contains(hulls, points) @ near.people
        is_complete = n_people >= k
        best = np.concatenate([best, hulls[is_complete]])
        best, best_costs = _distinct(best, np.append(best_costs, costs[is_complete]))
        best = best[:n_best]
        best_costs = best_costs[:n_best]
        cost_for_people = costs / n_people.clip(min=1) ** 2
        cost_for_people[is_complete] = np.inf
        order = np.argsort(cost_for_people, kind="stable")[: beam.width]
        corners = hulls[order[~is_complete[order]]]
    return near.dimensions.expand(best)


@dataclass(frozen=True, eq=False, repr=False)
class _Neighborhood(HostOnly):
    """The cells that a beam search looks at.

    Attributes
    ----------
    dimensions : _Dimensions
        The dimensions of points and blockers.
    prices : _Prices
    points : shape (n, n_dimensions)
        The corners of the cells.
    people : shape (n,)
    blockers : shape (n_blockers, n_dimensions)
    """

    dimensions: _Dimensions
    prices: _Prices
    points: Floats
    people: Floats
    blockers: Floats

    @classmethod
    def of(
        cls, surroundings: Surroundings, n_people: int, blockers: Floats, penalty: float
    ) -> _Neighborhood:
        """Return the cheapest cells with `n_people` people.

        The cost of a cell includes the penalties for blockers in its hull.
        """
        costs = surroundings.costs
        wider = _WIDER if len(blockers) else 1
        near = _cheapest(costs, surroundings.people, wider * n_people)
        points = surroundings.coordinates(surroundings.positions[near])
        dimensions = _Dimensions.of(points)
        prices = _Prices.of(surroundings, dimensions.numbers)
        points = dimensions.select(points)
        blockers = dimensions.select(blockers)
        people = surroundings.people[near]
        costs = costs[near] + prices.penalties(points, blockers, penalty)
        near = _cheapest(costs, people, n_people)
        near = near[costs[near] < np.inf]
        return cls(dimensions, prices, points[near], people[near].astype(np.float64), blockers)


def _cheapest(costs: Floats, people: Ints, n_people: int) -> Ints:
    """Return the cheapest cells with `n_people` people, in order of their costs.

    If there are fewer people, return all cells.
    """
    candidates = np.arange(len(costs))
    if len(costs) > n_people:  # every cell has at least one person
        candidates = np.sort(np.argpartition(costs, n_people)[:n_people])
    order = candidates[np.argsort(costs[candidates], kind="stable")]
    n_cells = int(np.searchsorted(np.cumsum(people[order]), n_people)) + 1
    return np.asarray(order[:n_cells])


def _distinct(corners: Floats, costs: Floats) -> tuple[Floats, Floats]:
    """Return distinct corners and their costs, in order of the costs; shapes (n, d) and (n,)."""
    order = np.lexsort((corners.sum(axis=1), costs))
    corners = corners[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (corners[1:] != corners[:-1]).any(axis=1)
    return corners[is_first], costs[order][is_first]


# 2. to 4. Reach, search, bound.


@dataclass(frozen=True, eq=False, repr=False)
class _Hull(HostOnly):
    """A hull, and the cells that may still join it.

    Attributes
    ----------
    corner : shape (n_dimensions,)
    n_inside : float
        The number of people inside.
    cells : shape (n,)
        In the order of the NCP of the hull with each cell.
    blockers : shape (n_blockers, n_dimensions)
        Points that it must not contain.
    """

    corner: Floats
    n_inside: float
    cells: Ints
    blockers: Floats


class _Search(HostOnly):
    """The search for a box that costs less than a limit.

    Attributes
    ----------
    corner : shape (n_dimensions of all axes,), or None
        The corner of the best box so far.
    bound : float
        A lower bound of the costs of all hulls that the search left out when it stopped.
    n_nodes : int
        The number of hulls from which the search branched, with those of earlier searches.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        k: int,
        blockers: Floats,
        limit: float,
        node_limit: int,
        n_nodes: int = 0,
    ) -> None:
        self.corner: Floats | None = None
        self.bound = np.inf
        self.n_nodes = n_nodes
        self._k = k
        self._limit = limit - TOLERANCE
        self._node_limit = node_limit
        near = np.flatnonzero(surroundings.costs < self._limit)
        near = near[np.argsort(surroundings.costs[near], kind="stable")]
        points = surroundings.coordinates(surroundings.positions[near])
        self._dimensions = _Dimensions.of(points)
        self._points = self._dimensions.select(points)
        self._people = surroundings.people[near].astype(np.float64)
        self._blockers = self._dimensions.select(blockers)
        self._prices = _Prices.of(surroundings, self._dimensions.numbers)
        self._sets = _large_sets(surroundings, self._dimensions.numbers)

    @property
    def is_stopped(self) -> bool:
        return self.n_nodes >= self._node_limit

    def run(self) -> None:
        """Search all hulls that cost less than the limit."""
        is_inside = (self._points <= 0).all(axis=1)
        root = _Hull(
            corner=np.zeros(len(self._dimensions.numbers)),
            n_inside=float(self._people[is_inside].sum()),
            cells=np.flatnonzero(~is_inside),
            blockers=self._blockers,
        )
        stack = [self._branches(root)]
        while stack:
            hull = next(stack[-1], None)
            if hull is None:
                stack.pop()
            else:
                stack.append(self._branches(hull))

    def _branches(self, hull: _Hull) -> Iterator[_Hull]:
        """Yield the hulls with one more cell that may lead to a better box.

        It is a generator, so that each step uses the latest limit.
        """
        n_needed = self._k - hull.n_inside
        points = np.maximum(self._points[hull.cells], hull.corner)
        if self._is_dispersed(hull.corner, points, self._people[hull.cells], n_needed):
            return
        cells, points, blockers = self._free_cells(hull, points)
        people = self._people[cells]
        if people.sum() < n_needed:
            return
        if self.n_nodes >= self._node_limit:
            self._note_open(points, people, n_needed)
            return
        pairs = _Pairs(self._prices, cells, points, people, self._limit, n_needed)
        for i in pairs.promising(n_needed):
            if pairs.costs[i] >= self._limit:
                return
            if self.n_nodes >= self._node_limit:
                self._note_open(pairs.points[i:], pairs.people[i:], n_needed)
                return
            n_joining, places = pairs.join(i, self._limit)
            if n_joining >= n_needed:
                self._note_best(pairs.points[i])
                return
            places = pairs.core(places, n_needed - n_joining)
            if n_joining + pairs.people[places].sum() < n_needed:
                continue
            self.n_nodes += 1
            yield _Hull(
                corner=pairs.points[i],
                n_inside=hull.n_inside + n_joining,
                cells=pairs.cells[places],
                blockers=np.vstack([blockers, pairs.blockers(i)]),
            )

    def _free_cells(self, hull: _Hull, points: Floats) -> tuple[Ints, Floats, Floats]:
        """Return the cells that may join a hull, the corners with them, and its blockers.

        A cell may not join if the hull would then contain a blocker. Blockers out of reach are left
        out. `points`, shape (n, n_dimensions), are the corners with each of the hull's cells.
        """
        cells = hull.cells
        blockers = hull.blockers
        if len(blockers):
            costs = self._prices.costs(np.maximum(blockers, hull.corner))
            blockers = blockers[costs < self._limit]
        if len(blockers):
            is_free = ~self._prices.contains(points, blockers).any(axis=1)
            cells = cells[is_free]
            points = points[is_free]
        return cells, points, blockers

    def _is_dispersed(
        self, corner: Floats, points: Floats, people: Floats, n_needed: float
    ) -> bool:
        """Return whether people are spread over too many categories for a hull below the limit.

        `points`, shape (n, n_dimensions), are the corners with each further cell, and `people` the
        people of these cells.
        """
        if not self._sets:
            return False
        costs = self._prices.costs(points)
        for dimensions, share in self._sets:
            is_new = points[:, dimensions] > corner[dimensions]
            has_new = is_new.any(axis=1)
            category = np.where(has_new, is_new.argmax(axis=1), -1)
            n_inside = np.count_nonzero(corner[dimensions]) + 1
            # the NCP of the set by the number of new categories; one category costs nothing
            prices = share * (n_inside + np.arange(n_needed + 1))
            if n_inside == 1:
                prices[0] = 0.0
            other_costs = costs - prices[has_new.astype(np.int64)]
            limits = self._limit - prices
            if not _has_enough_people(category, other_costs, people, n_needed, limits):
                return True
        return False

    def _note_best(self, corner: Floats) -> None:
        """Remember a corner as the best box so far; add cells that are outside only by rounding."""
        is_inside = self._prices.contains(corner[None], self._points)[0]
        hull = np.vstack([corner, self._points[is_inside]]).max(axis=0)
        self.corner = self._dimensions.expand(hull[None])[0]
        self._limit = float(self._prices.costs(corner[None])[0]) - TOLERANCE

    def _note_open(self, points: Floats, people: Floats, n_needed: float) -> None:
        """Lower the bound, because hulls with these cells were left out.

        `points`, shape (n, n_dimensions), are the corners with each cell, in order of their NCP.
        """
        place = int(np.searchsorted(np.cumsum(people), n_needed))
        if place < len(points):
            cost = self._prices.costs(points[place][None])[0]
            self.bound = min(self.bound, float(cost))


def _large_sets(surroundings: Surroundings, dimensions: Ints) -> list[tuple[Ints, float]]:
    """Return the dimensions and the NCP of one category for each set of many categories."""
    sets = []
    axis_of_dimension = surroundings.axis_of_dimension[dimensions]
    for j, axis in enumerate(surroundings.axes):
        of_axis = np.flatnonzero(axis_of_dimension == j)
        if axis.is_set and len(of_axis) > _MANY_CATEGORIES:
            # the first dimension means "any other category"
            sets.append((of_axis[1:], axis.weight / axis.n_categories))
    return sets


def _has_enough_people(
    category: Ints, costs: Floats, people: Floats, n_needed: float, limits: Floats
) -> bool:
    """Return whether some number of new categories of a set gives enough people below the limit.

    The more new categories a hull has, the less it may cost on the other quasi-identifiers. Of the
    cells that are cheap enough there, it contains at most the cells whose category is already
    inside, and the cells of the new categories with the most people.

    Parameters
    ----------
    category : shape (n,)
        The new category of each cell; -1 if its category is already inside.
    costs : shape (n,)
        The NCP of the hull with each cell, on the other quasi-identifiers.
    people : shape (n,)
    limits : shape (n_needed + 1,)
        The limit of these costs for each number of new categories.
    """
    order = np.argsort(costs, kind="stable")
    place = category[order] + 1
    people = people[order]
    n_affordable = np.searchsorted(costs[order], limits)
    for n_new, n_cells in enumerate(n_affordable.tolist()):
        if n_cells == 0:
            return False
        n_of_category = np.bincount(place[:n_cells], weights=people[:n_cells])
        largest = np.sort(n_of_category[1:])[::-1][:n_new]
        if n_of_category[0] + largest.sum() >= n_needed:
            return True
    return False


class _Pairs(HostOnly):
    """The cells that may join a hull, and the hulls with two of them.

    If there are too many cells, the costs of pairs are calculated when they are needed, and fewer
    cells can be excluded early.

    Attributes
    ----------
    cells : shape (n,)
    points : shape (n, n_dimensions)
        The corners of the hull with each cell.
    people : shape (n,)
    costs : shape (n,)
        The NCP of the corners, ascending.
    """

    def __init__(
        self,
        prices: _Prices,
        cells: Ints,
        points: Floats,
        people: Floats,
        limit: float,
        n_needed: float,
    ) -> None:
        self._prices = prices
        self._pairs: tuple[Floats, Floats] | None = None  # totals and costs, shape (n, n) each
        self._is_near: NDArray[np.float32] = np.empty((0, 0), np.float32)  # shape (n, n)
        if len(cells) <= _MOST_PAIRED:
            totals, costs = prices.pairs(points, points)
            is_near = (costs < limit).astype(np.float32)
            core = _core(is_near, people, n_needed)
            square = np.ix_(core, core)
            self._pairs = totals[square], costs[square]
            self._is_near = is_near[square]
            cells = cells[core]
            points = points[core]
            people = people[core]
        self.cells = cells
        self.points = points
        self.people = people
        self.costs = prices.costs(points)
        self._totals = points.sum(axis=1)
        self._first_contained = self._find_contained()

    def _find_contained(self) -> Ints:
        """Return, for each cell, the first earlier cell inside the hull with it; n if none."""
        n = len(self.cells)
        first = np.full(n, n)
        if self._pairs is not None:
            cell, container = np.nonzero(self._pairs[0] <= self._totals + TOLERANCE)
            is_earlier = cell < container
            np.minimum.at(first, container[is_earlier], cell[is_earlier])
        return first

    def promising(self, n_needed: float) -> list[int]:
        """Return the positions of cells with enough people in them and in later cells near them."""
        if self._pairs is None:
            return list(range(len(self.cells)))
        n_people = self.people + np.triu(self._is_near, 1) @ self.people
        is_new = self._first_contained >= np.arange(len(self.cells))
        promising: list[int] = np.flatnonzero(is_new & (n_people >= n_needed)).tolist()
        return promising

    def join(self, i: int, limit: float) -> tuple[float, Ints]:
        """Return the people in the hull with cell `i`, and the later cells that may join it.

        The cells are in the order of the NCP of the hull with both cells, which is below the limit.
        A cell may not join if the hull would then contain a cell before `i`.
        """
        later = slice(i + 1, None)
        if self._pairs is None:
            rows = self._prices.pairs(self.points[i][None], self.points[later])
            totals = rows[0][0]
            costs = rows[1][0]
        else:
            totals = self._pairs[0][i, later]
            costs = self._pairs[1][i, later]
        is_inside = totals <= self._totals[i] + TOLERANCE
        n_joining = self.people[i] + self.people[later][is_inside].sum()
        may_join = ~is_inside & (costs < limit) & (self._first_contained[later] >= i)
        places = np.flatnonzero(may_join)
        places = places[np.argsort(costs[places], kind="stable")]
        return float(n_joining), places + i + 1

    def core(self, places: Ints, n_needed: float) -> Ints:
        """Return the cells at `places` that have enough people near them."""
        if self._pairs is None:
            return places
        is_near = self._is_near[np.ix_(places, places)]
        return places[_core(is_near, self.people[places], n_needed)]

    def blockers(self, i: int) -> Floats:
        """Return the corners with each cell before cell `i`, without corners that contain another.

        A branch of cell `i` must not contain these cells.
        """
        is_new = self._first_contained[:i] >= np.arange(i)
        return self.points[:i][is_new]


def _core(is_near: NDArray[np.float32], people: Floats, n_needed: float) -> Ints:
    """Return the cells that a cheap enough hull can contain, shape (n_core,).

    All cells of a hull are near each other. So each of them has `n_needed` people near it. Cells
    with fewer people are removed, again and again until no more are.

    Parameters
    ----------
    is_near : shape (n, n)
        1 if the hull with both cells is cheap enough, otherwise 0.
    people : shape (n,)
    n_needed : float
    """
    n_people = people.astype(np.float32)
    n_before = len(people) + 1
    n_cells = len(people)
    while n_cells < n_before:
        has_enough = is_near @ n_people >= n_needed
        n_people[~has_enough] = 0
        n_before = n_cells
        n_cells = int(np.count_nonzero(n_people))
    return np.flatnonzero(n_people)
