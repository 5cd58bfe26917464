"""Cells whose people are to be divided, and the groups that are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection._axes import AxisArrays, Floats, Ints, jit
from cfk_plugin.protection._group_hull import Hull, begin, extend, joined

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Pool(NamedTuple):
    """Cells with people to place. ``own``: at least k of them, who may stay a group of their own.

    ``people[i]`` are still without a group and ``taken[i]`` in the one that is being grown, which would cost
    ``price[i]`` with cell ``i``. ``size[0]`` is the number of cells; ``work[0]`` counts how often a cell was held
    against a hull, which is what all of this costs.
    """

    x: Floats
    cell: Ints
    people: Ints
    own: NDArray[np.bool_]
    taken: Ints
    price: Floats
    size: Ints
    work: Ints


class Draft(NamedTuple):
    """Groups over a pool as linked lists of shares; ``used`` counts groups and shares."""

    head: Ints
    total: Ints
    slots: Ints
    cost: Floats
    member: Ints
    people: Ints
    follow: Ints
    used: Ints


@jit
def chance(state: NDArray[np.uint64]) -> float:
    """Next number of a xorshift generator, in [0, 1)."""
    s = state[0]
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    state[0] = s
    return float(s >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def room_for_pool(cells: int, q: int) -> Pool:
    """Return an empty pool."""
    cell, people, taken = np.zeros(cells, np.int64), np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    own = np.zeros(cells, np.bool_)
    return Pool(
        np.zeros((cells, q)), cell, people, own, taken, np.zeros(cells), np.zeros(1, np.int64), np.zeros(1, np.int64)
    )


@jit
def room_for_draft(groups: int, shares: int) -> Draft:
    """Return a draft without groups."""
    group, share = np.zeros(groups, np.int64), np.zeros(shares, np.int64)
    return Draft(
        group, group.copy(), group.copy(), np.zeros(groups), share, share.copy(), share.copy(), np.zeros(2, np.int64)
    )


@jit
def note(pool: Pool, draft: Draft, count: int, cost: float) -> int:
    """Write the group that was grown into the draft; returns how many of it had to be placed."""
    g = draft.used[0]
    draft.used[0] += 1
    draft.head[g], draft.slots[g], draft.total[g], draft.cost[g] = -1, 0, count, cost
    placed = 0
    for i in range(pool.size[0]):
        if pool.taken[i] == 0:
            continue
        add(draft, g, i, pool.taken[i])
        if not pool.own[i]:
            placed += pool.taken[i]
        pool.taken[i] = 0
    return placed


@jit
def add(draft: Draft, g: int, i: int, people: int) -> None:
    """Append a share to a group."""
    s = draft.used[1]
    draft.used[1] += 1
    draft.member[s], draft.people[s], draft.follow[s] = i, people, draft.head[g]
    draft.head[g] = s
    draft.slots[g] += 1


@jit
def load(axes: AxisArrays, pool: Pool, draft: Draft, hull: Hull, g: int) -> None:
    """Make ``hull`` the hull of a group of the draft."""
    s = draft.head[g]
    begin(axes, hull, pool.x, draft.member[s])
    s = draft.follow[s]
    while s >= 0:
        extend(axes, hull, pool.x, draft.member[s])
        s = draft.follow[s]


@jit
def insert(axes: AxisArrays, pool: Pool, draft: Draft, hull: Hull, i: int) -> None:
    """Add what is left of a cell to the group whose cost grows least."""
    best, choice, after = np.inf, -1, 0.0
    for g in range(draft.used[0]):
        load(axes, pool, draft, hull, g)
        price = joined(axes, hull, pool.x, i, np.inf)
        rise = draft.total[g] * (price - draft.cost[g]) + pool.people[i] * price
        if rise < best:
            best, choice, after = rise, g, price
    draft.cost[choice] = after
    draft.total[choice] += pool.people[i]
    s = draft.head[choice]
    while s >= 0 and draft.member[s] != i:
        s = draft.follow[s]
    if s >= 0:
        draft.people[s] += pool.people[i]
    else:
        add(draft, choice, i, pool.people[i])
    pool.people[i] = 0
