"""Dividing the people of a few cells into groups: the greedy construction that the search repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection._axes import AxisArrays, Floats, jit
from cfk_plugin.protection._group_draft import Draft, Pool, chance, insert, load, note
from cfk_plugin.protection._group_hull import Hull, begin, extend, joined, prices

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Mood(NamedTuple):
    """How greedy construction weighs things this time; it differs from step to step so that results differ.

    ``typical`` is what a person is thought to cost in another group. ``worth[n]`` weighs the growth of a group that
    gains ``n`` people by it: with k / n many people make up for growth, with k they do not. Three probabilities: to
    overlook a candidate (``blink``), to take of the last cell only whom the group needs (``part``), to fill one more
    group with people of large cells rather than let the last few join groups that are full (``borrow``).
    """

    typical: float
    worth: Floats
    blink: float
    part: float
    borrow: float


@jit
def divide(
    axes: AxisArrays, k: int, pool: Pool, draft: Draft, hull: Hull, mood: Mood, state: NDArray[np.uint64]
) -> bool:
    """Put all people of the pool, but those of cells that stay on their own, into groups of at least k.

    Returns False where that fails; it never does for a pool of at least k people.
    """
    draft.used[:] = 0
    left = 0
    for i in range(pool.size[0]):
        if not pool.own[i]:
            left += pool.people[i]
    while left > 0 and draft.used[0] < draft.head.size:
        alone = draft.used[0] == 0
        if left < k and not alone and chance(state) >= mood.borrow:
            break
        seed = _seed(axes, pool, draft, hull, state)
        count, cost = _grow(axes, k, pool, hull, mood, state, seed, alone)
        if count < k:
            _give_back(pool)
            break
        count, cost = _prune(axes, k, pool, hull, count, cost)
        left -= note(pool, draft, count, cost)
    if left > 0 and draft.used[0] == 0:
        return False
    for i in range(pool.size[0]):
        if pool.people[i] > 0 and not pool.own[i]:
            insert(axes, pool, draft, hull, i)
    return True


@jit
def _seed(axes: AxisArrays, pool: Pool, draft: Draft, hull: Hull, state: NDArray[np.uint64]) -> int:
    """Choose the cell that a group begins with: any, or the one that fits the last group least."""
    n = pool.size[0]
    far = draft.used[0] > 0 and chance(state) < 0.5
    start, worst, seed = int(chance(state) * n), -1.0, -1
    if far:
        load(axes, pool, draft, hull, draft.used[0] - 1)
        prices(axes, hull, pool.x, n, pool.price)
        pool.work[0] += n
    for step in range(n):
        i = (start + step) % n
        if pool.people[i] == 0 or pool.own[i]:
            continue
        if not far:
            return int(i)
        if pool.price[i] > worst:
            worst, seed = pool.price[i], i
    return seed


@jit
def _grow(
    axes: AxisArrays, k: int, pool: Pool, hull: Hull, mood: Mood, state: NDArray[np.uint64], seed: int, alone: bool
) -> tuple[int, float]:
    """Take cells, the cheapest first, until the group has k people; returns people and cost.

    A large cell gives those it can spare. Only where nobody else is left, and no group that could take them, it is
    taken as a whole: all of its people then pay for a few.
    """
    begin(axes, hull, pool.x, seed)
    count, cost, blink, whole = pool.people[seed], 0.0, mood.blink, False
    pool.taken[seed], pool.people[seed] = count, 0
    while count < k:
        choice, amount, after = _cheapest(axes, k, pool, hull, mood, state, count, cost, blink, whole)
        if choice < 0:
            if blink == 0.0 and (whole or not alone):
                return count, cost
            whole = blink == 0.0
            blink = 0.0
            continue
        if not pool.own[choice] and chance(state) >= mood.part:
            amount = pool.people[choice]
        extend(axes, hull, pool.x, choice)
        pool.taken[choice] += amount
        pool.people[choice] -= amount
        count, cost = count + amount, after
    return count, cost


@jit
def _cheapest(
    axes: AxisArrays,
    k: int,
    pool: Pool,
    hull: Hull,
    mood: Mood,
    state: NDArray[np.uint64],
    count: int,
    cost: float,
    blink: float,
    whole: bool,
) -> tuple[int, int, float]:
    """Choose who fills the group at the least price each; returns the cell, how many, and the group's new cost.

    Of a person who needs a group anyway only the price above the typical one counts.
    """
    need, best, choice, amount, after = k - count, np.inf, -1, 0, 0.0
    pool.work[0] += pool.size[0]
    prices(axes, hull, pool.x, pool.size[0], pool.price)
    for i in range(pool.size[0]):
        take, saved = pool.people[i], mood.typical
        if take == 0 or (pool.taken[i] > 0 and not (whole and pool.own[i])) or (blink > 0.0 and chance(state) < blink):
            continue
        if pool.own[i]:
            take, saved = take if whole else min(take - k, need), 0.0
            if take == 0:
                continue
        fill, share = min(take, need), 1.0
        if pool.own[i] and take > fill:
            share = take / fill
        elif take > fill:
            take = fill
        score = mood.worth[fill] * (pool.price[i] - cost) + pool.price[i] * share - saved
        if score < best:
            best, choice, amount, after = score, i, take, pool.price[i]
    return choice, amount, after


@jit
def _give_back(pool: Pool) -> None:
    """Dissolve the group that is being grown."""
    for i in range(pool.size[0]):
        pool.people[i] += pool.taken[i]
        pool.taken[i] = 0


@jit
def _without(axes: AxisArrays, pool: Pool, hull: Hull, out: int) -> float:
    """Cost of the group that is being grown without one of its cells; ``hull`` becomes its hull."""
    cost, first = 0.0, True
    for i in range(pool.size[0]):
        if pool.taken[i] == 0 or i == out:
            continue
        if first:
            begin(axes, hull, pool.x, i)
            first = False
        else:
            cost = joined(axes, hull, pool.x, i, np.inf)
            extend(axes, hull, pool.x, i)
    return cost


@jit
def _prune(axes: AxisArrays, k: int, pool: Pool, hull: Hull, count: int, cost: float) -> tuple[int, float]:
    """Give back cells that the group does not need and that make it dearer; one that must be placed stays."""
    if count == k:
        return count, cost
    placed = 0
    for i in range(pool.size[0]):
        if pool.taken[i] > 0 and not pool.own[i]:
            placed += 1
    for i in range(pool.size[0]):
        spare = min(pool.taken[i], count - k)
        if spare > 0 and pool.own[i] and spare < pool.taken[i]:
            if pool.people[i] == 0:  # taken as a whole: it cannot stand alone again
                continue
            pool.taken[i] -= spare
            pool.people[i] += spare
            count -= spare
        elif spare > 0 and spare == pool.taken[i] and (pool.own[i] or placed > 1):
            lower = _without(axes, pool, hull, i)
            if lower < cost:
                pool.people[i] += spare
                pool.taken[i] = 0
                count, cost = count - spare, lower
                placed -= 0 if pool.own[i] else 1
    return count, cost
