"""Local search over a partition of people into groups: take a few neighbouring groups apart, divide them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection._axes import AxisArrays, Floats, Ints, jit
from cfk_plugin.protection._group_build import Mood, divide
from cfk_plugin.protection._group_draft import Draft, Pool, chance
from cfk_plugin.protection._group_hull import Hull

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENDERS = 24  # large cells that a pool may borrow from
MOST = 6  # groups that are taken apart at once
_COLD = 0.003  # temperature at last, in costs of a group


class Crowd(NamedTuple):
    """The cells with people: first the small ones, of fewer than k people, then the large ones.

    ``near`` and ``rich`` list the small and the large cells nearest to each small one, -1 where there are no more.
    ``free[c]`` people are in no group: none, or at least k, who are a group of their own. ``first[c]`` begins the list
    of a small cell's shares; ``local[c]`` is its place in the pool at hand, -1 outside.
    """

    x: Floats
    near: NDArray[np.int32]
    rich: NDArray[np.int32]
    free: Ints
    first: Ints
    local: Ints


class Groups(NamedTuple):
    """Groups of several cells; slot ``s`` of group ``g`` is share ``g * width + s``, 0 slots mark an unused number.

    ``follow`` leads from a share to the next one of the same small cell. ``unused`` stacks numbers, ``height[0]`` of
    them. A cost is that of one person.
    """

    cell: NDArray[np.int32]
    people: NDArray[np.int32]
    follow: Ints
    slots: Ints
    total: Ints
    cost: Floats
    unused: Ints
    height: Ints


@jit
def found(
    axes: AxisArrays,
    k: int,
    crowd: Crowd,
    groups: Groups,
    pool: Pool,
    draft: Draft,
    hull: Hull,
    state: NDArray[np.uint64],
    blocks: Ints,
) -> bool:
    """Divide the small cells, block by block; returns False if a block has too few people."""
    mood = Mood(0.05, _worth(k, 0.5, np.empty(k + 1)), 0.0, 0.5, 0.5)
    for b in range(blocks.size - 1):
        for c in range(blocks[b], blocks[b + 1]):
            _enlist(crowd, pool, c, 0)
        _invite(crowd, pool, k)
        done = divide(axes, k, pool, draft, hull, mood, state) and _fits(groups, draft, 0)
        if done:
            _commit(crowd, groups, pool, draft)
        _disband(crowd, pool)
        if not done:
            return False
    return True


@jit
def total_cost(groups: Groups) -> float:
    """Cost of all people who are in groups of several cells."""
    total = 0.0
    for g in range(groups.slots.size):
        if groups.slots[g] > 0:
            total += groups.total[g] * groups.cost[g]
    return total


@jit
def anneal(
    axes: AxisArrays,
    k: int,
    crowd: Crowd,
    groups: Groups,
    pool: Pool,
    draft: Draft,
    hull: Hull,
    state: NDArray[np.uint64],
    steps: int,
    work: int,
    hot: float,
) -> None:
    """Take groups apart and divide them anew, until so many steps are made or so much work is done.

    Worse divisions are kept with the odds of simulated annealing. Groups differ in cost by orders of magnitude, so
    the temperature is in proportion to the geometric mean of what the groups at hand and an average group cost.
    """
    broken, worth = np.empty(MOST, np.int64), np.empty(k + 1)
    average = total_cost(groups) / max(1, groups.slots.size - groups.height[0])
    pool.work[0] = 0
    for step in range(steps):
        spent = max(step / steps, pool.work[0] / work)
        if spent >= 1.0:
            break
        wanted = 2 + int((MOST - 1) * chance(state) ** 2)
        size, cost, count = _gather(crowd, groups, pool, broken, wanted, state)
        _invite(crowd, pool, k)
        typical, blink = 2.0 * chance(state) * cost / count, 0.3 * chance(state) ** 2
        mood = Mood(typical, _worth(k, chance(state), worth), blink, chance(state), chance(state))
        if divide(axes, k, pool, draft, hull, mood, state) and _fits(groups, draft, size):
            price = 0.0
            for d in range(draft.used[0]):
                price += draft.total[d] * draft.cost[d]
            heat = hot * (_COLD / hot) ** spent * np.sqrt(average * cost / size)
            if price <= cost - heat * np.log(1.0 - chance(state)):
                for g in broken[:size]:
                    _dissolve(crowd, groups, g)
                _commit(crowd, groups, pool, draft)
        _disband(crowd, pool)


@jit
def _worth(k: int, thirst: float, worth: Floats) -> Floats:
    """Fill the table of `Mood`: k / n ** thirst."""
    worth[0] = np.inf
    for n in range(1, k + 1):
        worth[n] = k / n**thirst
    return worth


@jit
def _gather(
    crowd: Crowd, groups: Groups, pool: Pool, broken: Ints, wanted: int, state: NDArray[np.uint64]
) -> tuple[int, float, int]:
    """Take groups around a small cell into the pool; returns how many, their cost and their people."""
    seed = _somewhere(crowd, groups, state)
    size, cost, count = 0, 0.0, 0
    for rank in range(-1, crowd.near.shape[1]):
        c = seed if rank < 0 else crowd.near[seed, rank]
        share = crowd.first[c] if c >= 0 else -1
        while share >= 0 and size < wanted:
            g = share // groups.cell.shape[1]
            share = groups.follow[share]
            if np.any(broken[:size] == g) or pool.size[0] + groups.slots[g] + LENDERS > pool.cell.size:
                continue
            broken[size] = g
            size += 1
            cost += groups.total[g] * groups.cost[g]
            count += groups.total[g]
            for s in range(groups.slots[g]):
                _enlist(crowd, pool, groups.cell[g, s], groups.people[g, s])
        if size == wanted:
            break
    return size, cost, count


@jit
def _somewhere(crowd: Crowd, groups: Groups, state: NDArray[np.uint64]) -> int:
    """Draw a small cell; every other time the one of two whose group is dearer, as there is more to gain."""
    small, width = crowd.near.shape[0], groups.cell.shape[1]
    seed = int(chance(state) * small)
    if chance(state) < 0.5:
        other = int(chance(state) * small)
        if groups.cost[crowd.first[other] // width] > groups.cost[crowd.first[seed] // width]:
            return other
    return seed


@jit
def _enlist(crowd: Crowd, pool: Pool, c: int, people: int) -> None:
    """Add people of a cell to the pool, on first sight together with those who are in no group."""
    i = crowd.local[c]
    if i < 0:
        i = pool.size[0]
        pool.size[0] += 1
        crowd.local[c] = i
        pool.x[i] = crowd.x[c]
        pool.cell[i], pool.people[i], pool.taken[i] = c, crowd.free[c], 0
    pool.people[i] += people


@jit
def _invite(crowd: Crowd, pool: Pool, k: int) -> None:
    """Add large cells near the pool, the nearest of each cell first, and tell which cells can stay on their own."""
    members = pool.size[0]
    last = min(members + LENDERS, pool.cell.size)
    for rank in range(crowd.rich.shape[1]):
        for i in range(members):
            c = pool.cell[i]
            rich = crowd.rich[c, rank] if c < crowd.rich.shape[0] else -1
            if rich >= 0 and pool.size[0] < last and crowd.local[rich] < 0 and crowd.free[rich] >= k:
                _enlist(crowd, pool, rich, 0)
    for i in range(pool.size[0]):
        pool.own[i] = pool.people[i] >= k


@jit
def _disband(crowd: Crowd, pool: Pool) -> None:
    """Empty the pool."""
    for i in range(pool.size[0]):
        crowd.local[pool.cell[i]] = -1
    pool.size[0] = 0


@jit
def _dissolve(crowd: Crowd, groups: Groups, g: int) -> None:
    """Forget a group; its people must be in the pool by now."""
    small, width = crowd.near.shape[0], groups.cell.shape[1]
    for s in range(groups.slots[g]):
        c, share = groups.cell[g, s], g * width + s
        if c >= small:
            continue
        if crowd.first[c] == share:
            crowd.first[c] = groups.follow[share]
            continue
        at = crowd.first[c]
        while groups.follow[at] != share:
            at = groups.follow[at]
        groups.follow[at] = groups.follow[share]
    groups.slots[g] = 0
    groups.unused[groups.height[0]] = g
    groups.height[0] += 1


@jit
def _fits(groups: Groups, draft: Draft, released: int) -> bool:
    """Whether there is room for the groups of a draft once others are dissolved."""
    for d in range(draft.used[0]):
        if draft.slots[d] > groups.cell.shape[1]:
            return False
    return bool(draft.used[0] <= groups.height[0] + released)


@jit
def _commit(crowd: Crowd, groups: Groups, pool: Pool, draft: Draft) -> None:
    """Make the groups of a draft; whom it left over is in no group."""
    small, width = crowd.near.shape[0], groups.cell.shape[1]
    for d in range(draft.used[0]):
        groups.height[0] -= 1
        g = groups.unused[groups.height[0]]
        groups.slots[g], groups.total[g], groups.cost[g] = draft.slots[d], draft.total[d], draft.cost[d]
        s, at = 0, draft.head[d]
        while at >= 0:
            c = pool.cell[draft.member[at]]
            groups.cell[g, s], groups.people[g, s] = c, draft.people[at]
            if c < small:
                groups.follow[g * width + s] = crowd.first[c]
                crowd.first[c] = g * width + s
            s, at = s + 1, draft.follow[at]
    for i in range(pool.size[0]):
        crowd.free[pool.cell[i]] = pool.people[i]
