"""Groups of at least k people whose regions lose little information.

A person is a point whose coordinates are those of `Space`, in which the NCP of a group is the sum
of the sides of its box. `divide` works in these steps:

1. If at least k people have equal points, they are a group.
2. The other people are halved at medians into blocks, and each block is divided into groups.
3. In each round, two to four near groups are put into a pool and divided again. The new groups
   replace the old ones if they lose less information, or a little more with the probability of
   simulated annealing.

To divide a pool or block, a draft of a group starts with one point and takes the points that widen
it least, until it has k points. Then the next draft starts (k-member clustering [1]_). The last
points, fewer than k, join the drafts that lose least by it. In blocks, drafts start in dense
places, so that few groups contain people who are far from all others.

All pools are divided together. Their arrays have the shape (n_pools, n_columns, n_slots). A slot
contains a point or is empty.

References
----------
.. [1] J.-W. Byun, A. Kamra, E. Bertino, N. Li. Efficient k-anonymization using clustering
   techniques. DASFAA 2007.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Floats, Ints, Mask, one_row_each
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.points import (
    Neighbourhoods,
    Points,
    Singles,
    cells,
    chunks,
    halved,
    near_points,
)

_MOST_ROUNDS = 14
_LEAST_ROUNDS = 8
_FEW_POINTS = 6000  # up to this many points, in groups of 10, there are _MOST_ROUNDS
_COPIES = 4  # independent divisions of very few points; the best one is used
_COPIED_POINTS = 1000  # the most points in all copies
_BLOCK = 500  # the least number of points of a block, unless groups are small or large:
_LEAST_BLOCK_GROUPS = 8  # a block has at least this many groups
_MOST_BLOCK_GROUPS = 50  # a block with at least twice as many groups is halved
_MOST_POOLED = 4  # groups of a pool
_MOST_TRIES = 6  # the most pools that begin with the same group in one round
_TRIED_POINTS = 6000  # the most points in the first groups of pools, if groups have several tries
_FEWER = 0.1  # the share of pools that are divided into one group less
_HOT = 0.15  # the first temperature, in costs of a group
_COLD = 0.01  # the last temperature
_NOISE = 0.3  # the most by which growths are randomly increased for the choice of the next point
_USUAL = 2.0  # the highest cost at which a draft may take more than its target, in mean costs
_FAR = 0.25  # the share of pools whose drafts start far from one of their points
_SAME = 1e-7  # a growth up to this is rounding
_AT_ONCE = 1 << 19  # coordinates in memory at once
_ROWS_AT_ONCE = 1 << 12
_ALL_PAIRS = 1 << 22  # up to this many pairs of points and groups, all pairs are compared
_REFUSED = 0.2  # the least number of refused people inside a region, as a share of its members


def divide(
    points: Floats, k: int, caps: Floats, n_rounds: int | None, random: np.random.Generator
) -> Ints:
    """Divide points into groups of at least k.

    At least k equal points are a group. Local search finds the other groups: their mean NCP is low,
    but not the least.

    Parameters
    ----------
    points : shape (n_points, n_dimensions)
        At least k. Coordinates in which the NCP of a group is the sum of the sides of its box.
    k : int
    caps : shape (n_dimensions,)
        The most that each side of a box counts.
    n_rounds : int, optional
        The number of rounds of local search. By default it is higher for few points.
    random : numpy.random.Generator

    Returns
    -------
    array, shape (n_points,)
        The group of each point; groups are numbered from 0.
    """
    _, cell, n_people = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    group = np.where(n_people[cell] >= k, cell, -1)
    others = np.flatnonzero(group < 0)
    others = others[np.argsort(cell[others], kind="stable")]
    if 0 < len(others) < k:
        group[others] = _nearest_group(points, group, others, caps)
    elif len(others) > 0:
        search = _Search(Points.of(points[others], caps), _without_gaps(cell[others]), k, random)
        group[others] = len(n_people) + search.best_group(n_rounds)
    return _without_gaps(group)


def _without_gaps(numbers: Ints) -> Ints:
    """Renumber from 0 without gaps, in the same order."""
    return np.unique(numbers, return_inverse=True)[1].reshape(-1)


def _nearest_group(points: Floats, group: Ints, others: Ints, caps: Floats) -> int:
    """Return the group of equal points whose box with all `others` is smallest."""
    low = np.minimum(points, points[others].min(axis=0))
    high = np.maximum(points, points[others].max(axis=0))
    cost = np.minimum(high - low, caps).sum(axis=1)
    return int(group[np.where(group >= 0, cost, np.inf).argmin()])


# --- Dividing pools


class _Drafts(HostOnly):
    """Drafts of groups in pools of points. One draft of each pool grows.

    Parameters
    ----------
    points : Points
    members : shape (n_pools, n_slots)
        The points of each pool; -1 for an empty slot.
    n_drafts : int
        The largest number of drafts of a pool.

    Attributes
    ----------
    draft : shape (n_pools, n_slots)
        The draft of each slot; -1 if it is in none.
    is_free : shape (n_pools, n_slots)
        Whether a slot has a point that is in no draft.
    growing : shape (n_pools,)
        The number of the draft that grows; all drafts before it are complete.
    size, cost : shape (n_pools, n_drafts)
        The number of points of each draft, and the NCP of its box.
    """

    def __init__(self, points: Points, members: Ints, n_drafts: int) -> None:
        n_pools, n_slots = members.shape
        self._caps = points.caps
        self._steps = points.steps
        self._is_capped = points.is_capped
        self._lines = np.ascontiguousarray(points.lines[members].swapaxes(1, 2))
        self._categories = np.ascontiguousarray(points.categories[members].swapaxes(1, 2))
        self.draft = np.full(members.shape, -1)
        self.is_free = members >= 0
        self.growing = np.zeros(n_pools, np.int64)
        self.size = np.zeros((n_pools, n_drafts), np.int64)
        self.cost = np.zeros((n_pools, n_drafts))
        # boxes of drafts: ends of lines, number of categories inside, slots with other categories
        self._low = np.full((n_pools, n_drafts, len(points.caps)), np.inf, np.float32)
        self._high = np.full((n_pools, n_drafts, len(points.caps)), -np.inf, np.float32)
        self._n_inside = np.zeros((n_pools, n_drafts, len(points.steps)), np.int64)
        self._is_outside = np.ones((n_pools, n_drafts, len(points.steps), n_slots), dtype=bool)

    def growth(self, pools: Ints, draft: Ints) -> Singles:
        """Return the growth of the NCP of one draft's box by each slot of its pool.

        `pools` and `draft` have the shape (n_rows,), the result (n_rows, n_slots).
        """
        lines = self._lines[pools]
        low = self._low[pools, draft]
        high = self._high[pools, draft]
        total = np.zeros((len(pools), lines.shape[2]), np.float32)
        side = np.empty_like(total)
        lowest = np.empty_like(total)
        for j, cap in enumerate(self._caps):
            np.maximum(lines[:, j], high[:, j, None], out=side)
            np.minimum(lines[:, j], low[:, j, None], out=lowest)
            side -= lowest
            if self._is_capped[j]:
                np.minimum(side, cap, out=side)
            total += side
        total -= np.minimum(high - low, self._caps).sum(axis=1)[:, None]
        is_outside = self._is_outside[pools, draft]
        n_inside = self._n_inside[pools, draft]
        for j, step in enumerate(self._steps):
            # one category costs nothing, so the second one adds the cost of two
            growth_of_value = np.where(n_inside[:, j] == 1, 2 * step, step)
            np.multiply(is_outside[:, j], growth_of_value[:, None], out=side)
            total += side
        return total

    def add(self, pools: Ints, draft: Ints, slot: Ints, growth: Floats | Singles) -> None:
        """Put one slot of each pool into a draft and widen its box; all shapes are (n_rows,)."""
        line = self._lines[pools, :, slot]
        self._low[pools, draft] = np.minimum(self._low[pools, draft], line)
        self._high[pools, draft] = np.maximum(self._high[pools, draft], line)
        is_outside = self._is_outside[pools, draft]
        self._n_inside[pools, draft] += is_outside[np.arange(len(pools)), :, slot]
        category = self._categories[pools, :, slot]
        is_outside &= self._categories[pools] != category[:, :, None]
        self._is_outside[pools, draft] = is_outside
        self.draft[pools, slot] = draft
        self.is_free[pools, slot] = False
        self.size[pools, draft] += 1
        self.cost[pools, draft] += growth

    def absorb(self, pools: Ints, is_inside: Mask, room: Ints) -> None:
        """Put free slots inside the box of the growing draft into it, at most `room` of them.

        `pools` and `room` have the shape (n_rows,), `is_inside` (n_rows, n_slots).
        """
        is_inside = is_inside & self.is_free[pools]
        rows = np.flatnonzero(is_inside.any(axis=1))
        pools = pools[rows]
        is_added = is_inside[rows]
        is_added &= np.cumsum(is_added, axis=1) <= room[rows, None]
        draft = self.growing[pools]
        self.draft[pools] = np.where(is_added, draft[:, None], self.draft[pools])
        self.is_free[pools] &= ~is_added
        self.size[pools, draft] += is_added.sum(axis=1)

    def loss(self, k: int) -> Floats:
        """Return the loss of each pool: the sum over drafts of NCP times points; (n_pools,).

        A draft counts with at least k points.
        """
        loss: Floats = (np.maximum(self.size, k) * self.cost).sum(axis=1)
        return loss


class _Plan(NamedTuple):
    """Parameters for the division of pools.

    Attributes
    ----------
    limit : shape (n_pools,)
        The largest loss of a pool.
    target : shape (n_pools,)
        The number of points of a draft, at least k. The last draft may have k to `target` points.
    usual : shape (n_pools,)
        If a draft's box costs at most this, the draft takes all points inside, even above `target`.
    order : shape (n_pools, n_slots)
        A draft starts with the free slot of the least number.
    """

    limit: Floats
    target: Ints
    usual: Floats
    order: Floats


def _divide_pools(pools: _Drafts, plan: _Plan, k: int, random: np.random.Generator) -> Mask:
    """Divide pools into drafts; return which pools lose at most their limit, shape (n_pools,).

    The division of a pool stops as soon as it loses more.
    """
    n_pools, n_slots = pools.is_free.shape
    noise = 1 + _NOISE * random.random((n_pools, n_slots), np.float32)
    is_open = np.ones(n_pools, dtype=bool)
    first = np.where(pools.is_free, plan.order, np.inf).argmin(axis=1)
    pools.add(np.arange(n_pools), pools.growing, first, np.zeros(n_pools))
    rows = np.arange(n_pools)
    while len(rows):
        growing = pools.growing[rows]
        growth = pools.growth(rows, growing)
        is_cheap = pools.cost[rows, growing] <= plan.usual[rows]
        room = np.where(is_cheap, n_slots, plan.target[rows] - pools.size[rows, growing])
        pools.absorb(rows, growth <= _SAME, room)
        is_free = pools.is_free[rows]
        n_free = is_free.sum(axis=1)
        size = pools.size[rows, growing]
        is_full = (size >= plan.target[rows]) | ((size >= k) & (n_free == 0))
        pools.growing[rows] += is_full
        score = growth * noise[rows]
        score[is_full] = plan.order[rows[is_full]]
        score[~is_free] = np.inf
        slot = score.argmin(axis=1)
        growth_of_draft = np.where(is_full, 0, growth[np.arange(len(rows)), slot])
        is_within = pools.loss(k)[rows] + k * growth_of_draft <= plan.limit[rows]
        is_open[rows[~is_within]] = False
        is_complete = is_full & (n_free < k)
        goes_on = is_within & ~is_complete
        rows = rows[goes_on]
        pools.add(rows, pools.growing[rows], slot[goes_on], growth_of_draft[goes_on])
    _join(pools, np.flatnonzero(is_open))
    return is_open & (pools.loss(k) <= plan.limit)


def _join(pools: _Drafts, rows: Ints) -> None:
    """Let the free slots of pools join drafts, in the order of the loss that they add."""
    rows = rows[pools.is_free[rows].any(axis=1)]
    n_pools, n_slots = pools.is_free.shape
    n_drafts = pools.size.shape[1]
    growth = np.full((n_pools, n_drafts, n_slots), np.inf)
    added_loss = np.full((n_pools, n_drafts, n_slots), np.inf)
    complete = [(rows[pools.growing[rows] > d], d) for d in range(n_drafts)]
    changed_rows = np.concatenate([pool for pool, _ in complete])
    changed_drafts = np.concatenate([np.full(len(pool), d) for pool, d in complete])
    while len(rows):
        for chunk in chunks(np.arange(len(changed_rows)), n_pools):
            place = (changed_rows[chunk], changed_drafts[chunk])
            growth[place] = pools.growth(changed_rows[chunk], changed_drafts[chunk])
            size = pools.size[place][:, None]
            added_loss[place] = (size + 1) * growth[place] + pools.cost[place][:, None]
        loss = np.where(pools.is_free[rows, None], added_loss[rows], np.inf)
        draft, slot = np.divmod(loss.reshape(len(rows), -1).argmin(axis=1), n_slots)
        pools.add(rows, draft, slot, growth[rows, draft, slot])
        is_left = pools.is_free[rows].any(axis=1)
        rows = rows[is_left]
        changed_rows = rows
        changed_drafts = draft[is_left]


# --- Local search


class _Divisions(NamedTuple):
    """The divisions of pools.

    Attributes
    ----------
    draft : shape (n_pools, n_slots)
        The draft of each slot; -1 for an empty slot.
    cost : shape (n_pools, n_drafts)
        The NCP of each draft.
    loss : shape (n_pools,)
        The loss of each pool; inf if it exceeds its limit.
    """

    draft: NDArray[np.int16]
    cost: Floats
    loss: Floats


class _Search(HostOnly):
    """Local search for groups of points.

    Very few points are divided in several independent copies, because this costs hardly more time:
    point i has the number c * n_points + i in copy c.

    Parameters
    ----------
    points : Points
    cell : shape (n_points,)
        A number for each point; equal points have the same one. Numbers are ascending, without
        gaps.
    k : int
    random : numpy Generator

    Attributes
    ----------
    group : shape (n_copies * n_points,)
        Groups are numbered without gaps.
    cost : shape (n_groups,)
        The NCP of each group.
    """

    def __init__(self, points: Points, cell: Ints, k: int, random: np.random.Generator) -> None:
        self._points = points
        self._cell = cell
        self._k = k
        self._random = random
        self._n_copies = min(max(_COPIED_POINTS // len(points), 1), _COPIES)
        self._first = np.unique(cell, return_index=True)[1]  # point of each cell
        self._n_people = np.bincount(cell)
        self._near = near_points(points.take(self._first), random)  # cells near each
        self.group = np.zeros(self._n_copies * len(points), np.int64)
        self.cost = np.zeros(1)

    def best_group(self, n_rounds: int | None) -> Ints:
        """Divide the points; return the group of each, (n_points,)."""
        if n_rounds is None:
            work = len(self._points) * self._k / 10
            n_rounds = round(_MOST_ROUNDS * min(_FEW_POINTS / work, 1.0) ** 0.4)
            n_rounds = max(n_rounds, _LEAST_ROUNDS)
        self._divide_blocks()
        for progress in np.linspace(0, 1, n_rounds):
            self._improve(_HOT * (_COLD / _HOT) ** progress)
        cost = self.cost[self.group].reshape(self._n_copies, -1)
        best: Ints = self.group.reshape(self._n_copies, -1)[cost.sum(axis=1).argmin()]
        return best

    def _divide_blocks(self) -> None:
        """Make the first groups from blocks, beginning in dense places."""
        n_points = len(self._points)
        n_least = max(_BLOCK, _LEAST_BLOCK_GROUPS * self._k)
        n_least = min(n_least, _MOST_BLOCK_GROUPS * self._k)
        blocks = []
        for copy in range(self._n_copies):
            for block in halved(self._points, n_least, self._random):
                blocks.append(copy * n_points + block)
        pools = _padded(blocks)
        plan = _Plan(
            limit=np.full(len(pools), np.inf),
            target=np.full(len(pools), self._k),
            usual=np.zeros(len(pools)),
            order=self._radius()[pools % n_points],
        )
        divisions = self._divided(pools, plan)
        self._replace(pools, divisions, np.ones(len(pools), dtype=bool))

    def _radius(self) -> Floats:
        """Return the approximate distance of each point to its k-th nearest, shape (n_points,)."""
        near = self._near
        distance = self._points.distances(self._first[:, None], self._first[near])
        n_people = np.where(near < 0, 0, self._n_people[near])
        n_within = self._n_people[:, None] + np.cumsum(n_people, axis=1)
        n_nearer = (n_within < self._k).sum(axis=1)
        last = np.minimum(n_nearer, (near >= 0).sum(axis=1) - 1).clip(0)
        radius: Floats = distance[np.arange(len(near)), last]
        return radius[self._cell]

    def _improve(self, temperature: float) -> None:
        """Divide near groups again; accept a lower loss and, at random, a slightly higher one.

        The higher the temperature, the more the loss may increase.
        """
        members = _members(self.group)
        size = np.bincount(self.group)
        pooled = self._near_groups(members, size)
        if not len(pooled):
            return
        n_points = np.where(pooled < 0, 0, size[pooled]).sum(axis=1)
        by_size = np.argsort(n_points, kind="stable")  # pools that are divided at once are alike
        pooled = pooled[by_size]
        n_points = n_points[by_size]
        loss = np.where(pooled < 0, 0, (size * self.cost)[pooled]).sum(axis=1)
        slots = np.where(pooled[:, :, None] < 0, -1, members[pooled]).reshape(len(pooled), -1)
        pools = -np.sort(-slots, axis=1)[:, : n_points.max()]  # empty slots are last
        scale = np.sqrt(self.cost.mean() * loss / (pooled >= 0).sum(axis=1))
        chance = self._random.random((2, len(pools)))
        plan = _Plan(
            limit=loss - temperature * scale * np.log(1 - chance[0]),
            target=self._targets(n_points),
            usual=_USUAL * chance[1] * loss / n_points,
            order=self._starts(pools),
        )
        divisions = self._divided(pools, plan)
        gain = plan.limit - divisions.loss
        gain[np.abs(divisions.loss - loss) <= _SAME] = 0  # very likely the same groups
        is_chosen = _disjoint(pooled, gain, len(self.cost))
        self._replace(pools, divisions, is_chosen)

    def _near_groups(self, members: Ints, size: Ints) -> Ints:
        """Return pools of two to four near groups, shape (n_pools, 4); -1 means no group.

        Each group begins a pool, or several pools. Cheap groups are left out at random, because
        little can be gained. The other groups of a pool have points near a point of the first.
        """
        n_points = len(self._points)
        n_tries = min(max(_TRIED_POINTS // len(self.group), 1), _MOST_TRIES)
        first = np.repeat(np.arange(len(size)), n_tries)
        every_pool = np.arange(len(first))
        drawn = (self._random.random(len(first)) * size[first]).astype(np.int64)
        copy, point = np.divmod(members[first, drawn], n_points)
        near = self._near[self._cell[point]]
        drawn = (self._random.random(near.shape) * self._n_people[near]).astype(np.int64)
        groups = self.group[copy[:, None] * n_points + self._first[near] + drawn]
        skip = 0.5 * self._random.random((len(first), 1))
        is_skipped = self._random.random(near.shape) < skip
        groups[(near < 0) | is_skipped | (groups == first[:, None])] = -1
        pooled = np.full((len(first), _MOST_POOLED), -1)
        pooled[:, 0] = first
        for place in range(1, _MOST_POOLED):
            nearest = groups[every_pool, (groups >= 0).argmax(axis=1)]
            pooled[:, place] = nearest
            groups[groups == nearest[:, None]] = -1
        n_pooled = 2 + ((_MOST_POOLED - 1) * self._random.random(len(first)) ** 3).astype(np.int64)
        pooled[np.arange(_MOST_POOLED) >= n_pooled[:, None]] = -1
        is_leader = self._random.random(len(first)) * self.cost.mean() < self.cost[first]
        is_pool: Mask = is_leader & (pooled[:, 1] >= 0)
        return pooled[is_pool]

    def _targets(self, n_points: Ints) -> Ints:
        """Return the number of points that drafts of each pool take: k, or a few more.

        `n_points` is the number of points of each pool; both shapes are (n_pools,).
        """
        chance = self._random.random((2, len(n_points)))
        n_drafts = np.maximum(n_points // self._k - (chance[0] < _FEWER), 1)
        spare = n_points // n_drafts - self._k
        target: Ints = self._k + (chance[1] ** 2 * (spare + 1)).astype(np.int64)
        return target

    def _starts(self, pools: Ints) -> Floats:
        """Return the order in which points start drafts, (n_pools, n_slots).

        It is random or, in a share of the pools, begins far from one of the points.
        """
        order = self._random.random(pools.shape)
        points = pools % len(self._points)
        center = np.where(pools < 0, -1, order).argmax(axis=1)
        is_far = np.flatnonzero(self._random.random(len(pools)) < _FAR)
        centers = points[is_far, center[is_far]]
        order[is_far] = -self._points.distances(centers[:, None], points[is_far])
        return order

    def _divided(self, pools: Ints, plan: _Plan) -> _Divisions:
        """Divide pools, in chunks that fit in memory."""
        n_in_pool = (pools >= 0).sum(axis=1)
        n_drafts = int(n_in_pool.max()) // self._k
        draft = np.full(pools.shape, -1, np.int16)
        cost = np.zeros((len(pools), n_drafts))
        loss = np.zeros(len(pools))
        n_coordinates = pools.shape[1] * max(self._points.n_columns, 1)
        for rows in chunks(np.arange(len(pools)), _AT_ONCE // n_coordinates):
            width = int(n_in_pool[rows].max())
            slots = pools[rows, :width]
            members = np.where(slots < 0, -1, slots % len(self._points))
            drafts = _Drafts(self._points, members, width // self._k)
            plan_of_rows = _Plan(
                plan.limit[rows], plan.target[rows], plan.usual[rows], plan.order[rows, :width]
            )
            is_open = _divide_pools(drafts, plan_of_rows, self._k, self._random)
            draft[rows, :width] = drafts.draft
            cost[rows, : width // self._k] = drafts.cost
            loss[rows] = np.where(is_open, drafts.loss(self._k), np.inf)
        return _Divisions(draft, cost, loss)

    def _replace(self, pools: Ints, divisions: _Divisions, is_chosen: Mask) -> None:
        """Replace the groups of the chosen pools with their drafts."""
        draft = divisions.draft[is_chosen].astype(np.int64)
        cost = divisions.cost[is_chosen]
        n_drafts = cost.shape[1]
        number = len(self.cost) + np.arange(len(draft))[:, None] * n_drafts + draft
        self.group[pools[is_chosen][draft >= 0]] = number[draft >= 0]
        is_used = np.unique(self.group)
        self.cost = np.append(self.cost, cost)[is_used]
        self.group = _without_gaps(self.group)


def _padded(lists: list[Ints]) -> Ints:
    """Return lists of numbers as rows of one array, padded with -1, the shortest first."""
    lists = sorted(lists, key=len)
    rows = np.full((len(lists), len(lists[-1])), -1)
    for row, numbers in zip(rows, lists, strict=True):
        row[: len(numbers)] = numbers
    return rows


def _members(group: Ints) -> Ints:
    """Return the points of each group, (n_groups, n_slots); -1 for an empty slot."""
    size = np.bincount(group)
    order = np.argsort(group, kind="stable")
    first = np.cumsum(size) - size
    members = np.full((len(size), size.max()), -1)
    members[group[order], np.arange(len(group)) - np.repeat(first, size)] = order
    return members


def _disjoint(pooled: Ints, gain: Floats, n_groups: int) -> Mask:
    """Choose pools with a gain that have no group in common, those of the largest gain first.

    Return a mask of shape (n_pools,). `pooled` contains the groups of each pool, (n_pools, n_most),
    and -1 for no group.
    """
    n_pools = len(pooled)
    rank = np.empty(n_pools, np.int64)
    rank[np.argsort(-gain, kind="stable")] = np.arange(n_pools)
    is_chosen = np.zeros(n_pools, dtype=bool)
    is_candidate = gain > 0
    for _ in range(_MOST_POOLED):
        rank[~is_candidate] = n_pools
        best = np.full(n_groups + 1, n_pools)  # rank of each group; the last is for no group
        np.minimum.at(best, pooled.reshape(-1), np.repeat(rank, pooled.shape[1]))
        is_best = (best[pooled] == rank[:, None]) | (pooled < 0)
        is_chosen |= is_candidate & is_best.all(axis=1)
        is_taken = np.zeros(n_groups + 1, dtype=bool)
        is_taken[pooled[is_chosen]] = True
        is_taken[-1] = False
        is_candidate &= ~is_taken[pooled].any(axis=1)
    return is_chosen


# --- Groups that cover every person


class Cover(NamedTuple):
    """The groups for people who are in no group.

    Attributes
    ----------
    group : shape (n_joining,)
        The group that each of the first rows joins.
    extra : shape (n_extra, 2)
        Pairs of a group and a row that is inside its hull without joining it.
    """

    group: Ints
    extra: Ints


def cover(
    points: Floats,
    group: Ints,
    others: Floats,
    is_refused: Mask,
    person: Ints,
    caps: Floats,
    k: int,
    n_joining: int | None = None,
) -> Cover:
    """Let all other rows, or the first `n_joining`, join the group whose hull grows least.

    If only people with the outcome were in groups, an attacker who knows all quasi-identifiers
    could infer outcomes from regions: a person outside of all regions was refused, and if exactly k
    people fit a region, all of them have the outcome. So if a hull has fewer than 2 k people inside
    and few of them were refused, it is widened by the nearest refused people.

    The growth of a hull is that of its `points`, regardless of other rows that join it. If several
    hulls grow equally, the smallest is chosen. In large tables, only hulls of near points are
    compared, and only people near a point of a hull are counted. If only some rows of a person are
    near, the person counts in part.

    Parameters
    ----------
    points : shape (n_points, n_dimensions)
        The people in groups, as in `divide`.
    group : shape (n_points,)
        Every number from 0 to the largest occurs.
    others : shape (n_others, n_dimensions)
        All other rows: rows of other people, and further rows of people in groups.
    is_refused : shape (n_others,)
        Which of the others belong to a person without the outcome in any row.
    person : shape (n_points + n_others,)
        The number of each row's person.
    caps : shape (n_dimensions,)
    k : int
    n_joining : int, optional
        The first `n_joining` of the others join a group, by default all. The rest have a region,
        but may still be in `Cover.extra`.

    Returns
    -------
    Cover
    """
    if not len(others):
        return Cover(np.empty(0, np.int64), np.empty((0, 2), np.int64))
    all_points = Points.of(np.concatenate([points, others]), caps)
    hulls = _Hulls.of(all_points, group)
    group_of_joiner = _groups_to_join(all_points, hulls, group)[:n_joining]
    person_of_other = person[len(points) :]
    n_groups = len(hulls.cost)
    n_needed = np.ceil(_REFUSED * np.bincount(group)).astype(np.int64)
    joiner = person_of_other[: len(group_of_joiner)]
    is_refused_joiner = is_refused[: len(group_of_joiner)]
    n_needed -= _n_people(group_of_joiner[is_refused_joiner], joiner[is_refused_joiner], n_groups)
    poor = np.flatnonzero(n_needed > 0)
    poor = poor[_people_inside(all_points, np.append(group, group_of_joiner), person, poor) < 2 * k]
    is_counted = is_refused_joiner & np.isin(group_of_joiner, poor)
    pairs_inside = _pairs(group_of_joiner[is_counted], joiner[is_counted], person)
    extra = [np.empty((0, 2), np.int64)]
    refused = len(points) + one_row_each(person_of_other, np.flatnonzero(is_refused))
    representative = np.unique(group, return_index=True)[1][poor]
    for chunk, near in _compared(all_points, representative, refused):
        number = poor[chunk][:, None]  # an axis for the refused people
        growth = hulls.growth(all_points, near, number)
        growth[(near < 0) | np.isin(_pairs(number, person[near], person), pairs_inside)] = np.inf
        nearest = np.argsort(growth, axis=1, kind="stable")
        is_taken = np.arange(near.shape[1]) < n_needed[number]
        is_taken &= np.take_along_axis(growth, nearest, axis=1) < np.inf
        other = np.take_along_axis(near, nearest, axis=1)[is_taken] - len(points)
        extra.append(np.column_stack([poor[chunk][np.nonzero(is_taken)[0]], other]))
    return Cover(group_of_joiner, np.concatenate(extra))


def nearest_groups(points: Floats, group: Ints, others: Floats, caps: Floats) -> Ints:
    """Return the group whose hull grows least by each of the other points, shape (n_others,).

    The parameters are those of `cover`.
    """
    all_points = Points.of(np.concatenate([points, others]), caps)
    return _groups_to_join(all_points, _Hulls.of(all_points, group), group)


def _pairs(group: Ints, member: Ints, person: Ints) -> Ints:
    """Return a number for each pair of a group and a member; both are broadcast.

    `person` contains all people.
    """
    return group * (int(person.max()) + 1) + member


def _n_people(group: Ints, person: Ints, n_groups: int) -> Ints:
    """Return the number of people with rows in each group, (n_groups,); arguments are (n_rows,)."""
    if not len(group):
        return np.zeros(n_groups, np.int64)
    first = np.unique(_pairs(group, person, person), return_index=True)[1]
    return np.bincount(group[first], minlength=n_groups)


def _groups_to_join(all_points: Points, hulls: _Hulls, group: Ints) -> Ints:
    """Return the group whose hull grows least by each point after the members, (n_others,)."""
    n_points = len(group)
    first, cell = cells(all_points)
    others, place = np.unique(first[cell[n_points:]], return_inverse=True)
    if len(others) * len(hulls.cost) <= _ALL_PAIRS:
        members = np.unique(group, return_index=True)[1]  # one of each group
    else:
        pairs = np.column_stack([cell[:n_points], group])
        members = np.unique(pairs, axis=0, return_index=True)[1]
    nearest = np.empty(len(others), np.int64)
    for chunk, near in _compared(all_points, others, members):
        groups = group[near]
        growth = hulls.growth(all_points, others[chunk][:, None], groups)
        growth[near < 0] = np.inf
        is_least = growth <= growth.min(axis=1, keepdims=True) + _SAME
        best = np.where(is_least, hulls.cost[groups], np.inf).argmin(axis=1)
        nearest[chunk] = groups[np.arange(len(chunk)), best]
    return nearest[place.reshape(-1)]


def _people_inside(all_points: Points, group: Ints, person: Ints, numbers: Ints) -> Ints:
    """Return a lower bound of the number of people inside groups' hulls, shape (n_numbers,).

    `numbers` are the groups, `person` is the person of every row, and `group` the group of the
    first rows, which make the hulls. A person counts by the share of their rows inside.
    """
    hulls = _Hulls.of(all_points, group)
    first, cell = cells(all_points)
    share = 1 / np.bincount(person)[person]  # the share of its person that each row counts
    counts = np.zeros(len(all_points))  # stored at the first point of each cell
    counts[first] = np.bincount(cell, share)
    representative = np.unique(group, return_index=True)[1][numbers]
    n_people = _n_people(group, person[: len(group)], len(hulls.cost))[numbers]
    for chunk, near in _compared(all_points, representative, first):
        growth = hulls.growth(all_points, near, numbers[chunk][:, None])
        is_inside = (near >= 0) & (growth <= _SAME)
        n_inside = np.where(is_inside, counts[near], 0.0).sum(axis=1)
        whole = np.floor(n_inside + _SAME).astype(np.int64)
        n_people[chunk] = np.maximum(n_people[chunk], whole)
    return n_people


def _compared(points: Points, rows: Ints, candidates: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield chunks of rows, as positions in `rows`, with the candidates to compare each row with.

    These are all candidates or, if there are too many pairs, near ones. The shapes are (n_chunk,)
    and (n_chunk, n_near); -1 means no candidate.
    """
    if len(rows) * len(candidates) <= _ALL_PAIRS:
        for chunk in chunks(np.arange(len(rows)), _AT_ONCE // max(len(candidates), 1)):
            yield chunk, np.tile(candidates, (len(chunk), 1))
        return
    both = np.append(candidates, rows)
    is_candidate = np.arange(len(both)) < len(candidates)
    neighbourhoods = Neighbourhoods(points.take(both), is_candidate, np.random.default_rng(0))
    for chunk in chunks(np.arange(len(rows)), _ROWS_AT_ONCE):
        near = neighbourhoods.of(len(candidates) + chunk)
        yield chunk, np.where(near < 0, -1, both[near])


@dataclass(frozen=True, eq=False, repr=False)
class _Hulls(HostOnly):
    """The boxes of groups.

    Attributes
    ----------
    low, high : shape (n_groups, n_lines)
    inside : list of arrays
        For each categorical column, ``group * n_values + value`` for all values inside, in order.
    n_values : list of int
        The number of values of each categorical column.
    n_inside : shape (n_groups, n_categories)
        The number of values inside.
    cost : shape (n_groups,)
        The NCP of each box.
    """

    low: Singles
    high: Singles
    inside: list[Ints]
    n_values: list[int]
    n_inside: Ints
    cost: Floats

    @classmethod
    def of(cls, points: Points, group: Ints) -> _Hulls:
        """Return the boxes of groups; `group` contains the group of each of the first points.

        Every number from 0 to the largest must occur.
        """
        order = np.argsort(group, kind="stable")
        n_groups = int(group[order[-1]]) + 1
        start = np.searchsorted(group[order], np.arange(n_groups))
        low = np.minimum.reduceat(points.lines[order], start, axis=0)
        high = np.maximum.reduceat(points.lines[order], start, axis=0)
        cost = np.minimum(high - low, points.caps).sum(axis=1, dtype=np.float64)
        inside = []
        n_values = []
        n_inside = np.empty((n_groups, len(points.steps)), np.int64)
        for j, category in enumerate(points.categories.T):
            n_values.append(int(category.max()) + 1)
            inside.append(np.unique(group * n_values[j] + category[: len(group)]))
            n_inside[:, j] = np.bincount(inside[j] // n_values[j], minlength=n_groups)
            cost += np.where(n_inside[:, j] > 1, n_inside[:, j], 0) * points.steps[j]
        return cls(low, high, inside, n_values, n_inside, cost)

    def growth(self, points: Points, rows: Ints, groups: Ints) -> Floats:
        """Return the growth of the NCP of groups' boxes by points; positions are broadcast."""
        total = np.zeros(np.broadcast_shapes(rows.shape, groups.shape))
        for j, cap in enumerate(points.caps):
            value = points.lines[rows, j]
            low = self.low[groups, j]
            high = self.high[groups, j]
            side = np.minimum(np.maximum(value, high) - np.minimum(value, low), cap)
            total += side - np.minimum(high - low, cap)
        for j, step in enumerate(points.steps):
            key = groups * self.n_values[j] + points.categories[rows, j]
            place = np.searchsorted(self.inside[j], key).clip(max=len(self.inside[j]) - 1)
            growth_of_value = np.where(self.n_inside[groups, j] == 1, 2 * step, step)
            total += np.where(self.inside[j][place] == key, 0, growth_of_value)
        return total
