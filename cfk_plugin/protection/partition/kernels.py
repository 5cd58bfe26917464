"""Local search over a partition: dissolve a few near groups, divide their people anew, keep what
costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from cfk_plugin.protection.axes import INTERVAL, NOMINAL, TREE, Floats, Ints
from cfk_plugin.protection.compiled import inner, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_F = TypeVar("_F", bound=Callable[..., Any])

LENDERS = 4  # large cells that may join a pool
HOMES = 4  # groups that a small cell may be divided among
_ONE: Any = np.int64(1)  # a plain 1 has another type, for which everything would be compiled again
_FEW = 64  # small cells; with fewer, starts vary too little, so one in eight candidates is skipped
_DRAFTS = 32  # most groups that a pool may be divided into
_MOST = 4  # groups that are dissolved at once
_HOT, _COLD = 0.3, 0.01  # first and last temperature, in costs of a group
_FLAGS: dict[str, Any] = {
    "error_model": "numpy",
    "_nrt": False,
}  # as nothing is allocated, reference counts are not needed: saves half of the time


def _entry(function: _F) -> _F:
    return jit(function, **_FLAGS)


def _inner(function: _F) -> _F:
    return inner(function, forceinline=True, **_FLAGS)


class PackedClasses(NamedTuple):
    """The cells and what a group of them costs.

    ``x`` is a place on INTERVAL axes, a code on NOMINAL ones, and the leaf's node on a TREE; nodes
    are numbered through all axes. The first ``small`` cells have fewer than k people, the others
    are large. ``near`` and ``rich`` list the small and large cells nearest to each, then -1.
    """

    kind: NDArray[np.int8]
    weight: Floats
    unit: Floats  # cost of one value of a NOMINAL axis
    first: Ints  # leaf of each node
    last: Ints
    parent: Ints
    node_cost: Floats
    x: Floats
    small: int
    near: NDArray[np.int32]
    rich: NDArray[np.int32]


class Groups(NamedTuple):
    """Groups of several cells, ``slots[g]`` of them; 0 marks a free number, which is on the stack
    ``unused``.

    Of each cell, ``free`` people are in no group: none, or at least k, who form one of their own.
    ``home`` lists the groups of a small cell, padded with -1. A cost is that of one person.
    """

    cell: Ints
    people: Ints
    slots: Ints
    total: Ints
    cost: Floats
    unused: Ints
    height: Ints
    free: Ints
    home: Ints


class GroupMembers(NamedTuple):
    """Cells whose people are being divided among drafts of groups.

    Column ``i`` of ``x`` is the cell ``cell[i]``. Of its people, ``people`` have no group yet
    (``keep`` of them stay on their own), ``take[g, i]`` are in draft ``g``, others in ``elsewhere``
    groups; ``price`` is the current draft's cost with it. ``low`` and ``high`` are the ends of a
    draft on INTERVAL axes. On NOMINAL ones ``low`` is the number of values, and ``known`` says
    which cells' values are inside; on a TREE it is the covering node if ``high`` is above 0.
    """

    x: Floats
    cell: Ints
    people: Ints
    keep: Ints
    elsewhere: Ints
    price: Floats
    score: Floats
    local: Ints  # column of each cell, else -1
    broken: Ints  # groups that were dissolved
    take: Ints
    total: Ints
    cost: Floats
    low: Floats
    high: Floats
    known: NDArray[np.bool_]

    @classmethod
    def empty(cls, cells: int, q: int, room: int) -> GroupMembers:
        cell, people, keep, elsewhere = np.zeros((4, room), np.int64)
        price, score = np.zeros((2, room))
        low, high = np.zeros((2, _DRAFTS, q))
        take, total, cost = (
            np.zeros((_DRAFTS, room), np.int64),
            np.zeros(_DRAFTS, np.int64),
            np.zeros(_DRAFTS),
        )
        x, local, broken, known = (
            np.zeros((q, room)),
            np.full(cells, -1),
            np.zeros(_MOST, np.int64),
            (_DRAFTS, q, room),
        )
        places = cell, people, keep, elsewhere, price, score, local, broken
        return cls(x, *places, take, total, cost, low, high, np.zeros(known, np.bool_))


@_entry
def improve(
    space: PackedClasses,
    groups: Groups,
    pool: GroupMembers,
    k: int,
    worth: Floats,
    done: int,
    until: int,
    work: int,
    state: NDArray[np.uint64],
) -> int:
    """Divide neighboring groups anew until the work done reaches ``until``, of ``work`` in all;
    returns it.

    Worse divisions are kept with the odds of simulated annealing. Groups differ in cost by orders
    of magnitude, so the temperature is proportional to the geometric mean of the current groups'
    cost and an average group's.
    """
    cost, number = 0.0, 0
    for g in range(groups.slots.size):
        if groups.slots[g] > 0:
            groups.cost[g] = (
                _cost(space, groups, pool, g, -_ONE, k) if done == 0 else groups.cost[g]
            )
            cost, number = cost + groups.total[g] * groups.cost[g], number + 1
    average = cost / number
    while done < until:
        m, broken, old = _gather(space, groups, pool, k, state)
        done += 10 + 2 * m
        if old > 0.0:
            heat = _HOT * (_COLD / _HOT) ** (done / work) * np.sqrt(average * old / broken)
            limit = old - heat * np.log(1.0 - _chance(state))
            drafts, spent = _divide(space, pool, m, k, worth, old, limit, state)
            done += spent
            if 0 < drafts <= groups.height[0] + broken and _has_room(groups, pool, m, drafts):
                _commit(groups, pool, m, broken, drafts)
        for i in range(m):
            pool.local[pool.cell[i]] = -1
    return done


@_inner
def _gather(  # noqa: C901 - a kernel
    space: PackedClasses, groups: Groups, pool: GroupMembers, k: int, state: NDArray[np.uint64]
) -> tuple[int, int, float]:
    """Fill the pool with groups around a small cell and large cells near them; returns cells,
    groups and their cost.
    """
    wanted, skip = 2 + int((_MOST - 1) * _chance(state) ** 2), 0.5 * _chance(state)
    m, broken, old = 0 * _ONE, 0 * _ONE, 0.0
    seed = int(_chance(state) * space.small)
    for rank in range(-1, space.near.shape[1]):
        c: Any = seed if rank < 0 else np.int64(space.near[seed, rank])
        if c < 0 or broken == wanted:
            break
        for h in range(HOMES):
            g = groups.home[c, h]
            if g < 0 or broken == wanted or (rank >= 0 and _chance(state) < skip):
                continue
            is_new = m + groups.slots[g] + LENDERS <= pool.people.size
            for b in range(broken):
                is_new &= pool.broken[b] != g
            if is_new:
                pool.broken[broken] = g
                broken += 1
                old += groups.total[g] * groups.cost[g]
                for s in range(groups.slots[g]):
                    m = _enlist(space, groups, pool, m, groups.cell[g, s], groups.people[g, s], k)
    members, turn = m, int(_chance(state) * m)
    for rank in range(space.rich.shape[1]):
        for i in range(members):
            c = np.int64(space.rich[pool.cell[(i + turn) % members], rank])
            if c >= 0 and m < members + LENDERS and pool.local[c] < 0 and groups.free[c] > k:
                m = _enlist(space, groups, pool, m, c, 0 * _ONE, k)
    return m, broken, old


@_inner
def _enlist(
    space: PackedClasses, groups: Groups, pool: GroupMembers, m: int, c: int, people: int, k: int
) -> int:
    """Add people of a cell, the first time together with those in no group; returns the pool's
    size.
    """
    i = pool.local[c]
    if i < 0:
        i = m
        m += 1
        pool.local[c], pool.cell[i], pool.people[i] = i, c, groups.free[c]
        pool.keep[i], pool.elsewhere[i] = k if c >= space.small else 0, 0
        for j in range(space.kind.size):
            pool.x[j, i] = space.x[c, j]
        for h in range(HOMES):
            pool.elsewhere[i] += groups.home[c, h] >= 0
    pool.people[i] += people
    pool.elsewhere[i] -= 1
    return m


@_inner
def _divide(
    space: PackedClasses,
    pool: GroupMembers,
    m: int,
    k: int,
    worth: Floats,
    old: float,
    limit: float,
    state: NDArray[np.uint64],
) -> tuple[int, int]:
    """Divide the pool greedily; returns the number of drafts (0 if they cost more than ``limit``)
    and the work.

    Drawn at random are the assumed cost of a person in another group, and how often large cells
    fill one more group.
    """
    left, drafts, spent, work = _left(pool, m), 0 * _ONE, 0.0, 0
    typical, borrow = 2.0 * _chance(state) * old / max(1, left), _chance(state)
    thirst, part = int(_chance(state) * worth.shape[0]), _chance(state)
    while left > 0 and drafts < _DRAFTS and (drafts == 0 or left >= k or _chance(state) < borrow):
        seed = int(_chance(state) * m)
        while pool.people[seed] == 0 or pool.keep[seed] > 0:
            seed = seed + 1 if seed + 1 < m else 0
        count, cost, tried = _grow(
            space,
            pool,
            m,
            k,
            drafts,
            seed,
            worth[thirst],
            typical,
            part,
            (limit - spent) / k,
            state,
        )
        work += tried
        if count < k:
            for i in range(m):
                pool.people[i] += pool.take[drafts, i]
            break
        spent += count * cost
        if spent > limit:
            return 0, work
        pool.total[drafts], pool.cost[drafts] = count, cost
        drafts += 1
        left = _left(pool, m)
    for i in range(m):
        if drafts > 0 and pool.people[i] > 0 and pool.keep[i] == 0:
            spent += _join(space, pool, m, i, drafts)
            work += 2 * drafts
            if spent > limit:
                return 0, work
    return drafts, work


@_inner
def _left(pool: GroupMembers, m: int) -> int:
    """Count the people who need a group."""
    left = 0
    for i in range(m):
        left += pool.people[i] if pool.keep[i] == 0 else 0
    return left


@_inner
def _grow(
    space: PackedClasses,
    pool: GroupMembers,
    m: int,
    k: int,
    g: int,
    seed: int,
    worth: Floats,
    typical: float,
    part: float,
    most: float,
    state: NDArray[np.uint64],
) -> tuple[int, float, int]:
    """Let the cheapest cells join a draft until it has k people; returns people, cost and work.

    ``worth[n]`` weighs the growth of a draft that gains ``n`` people by it. For a person who needs
    a group anyway, only the price above the ``typical`` one counts. ``part`` is how often the last
    cell gives no more than are needed.
    """
    people, keep, price, score, take = pool.people, pool.keep, pool.price, pool.score, pool.take
    for i in range(m):
        take[g, i] = 0
    _clear(space, pool, m, g)
    count, cost, work, choice, n = 0, 0.0, 0, seed, people[seed]
    while True:
        _extend(space, pool, m, g, choice)
        take[g, choice] += n
        people[choice] -= n
        count += n
        if count >= k:
            return count, cost, work
        _write_prices(space, pool, m, g)
        work += 6 + m // 2
        need, best, choice = k - count, np.inf, 0
        blind = _blind(state) if space.small < _FEW else np.uint64(0)
        while best == np.inf:
            for i in range(m):  # without branches, which would be mispredicted half of the time
                n = min(people[i] - keep[i], need)
                y = worth[n] * (price[i] - cost) + price[i] - (0.0 if keep[i] > 0 else typical)
                score[i] = np.inf if n == 0 or (blind >> np.uint64(i & 63)) & np.uint64(1) else y
                best = min(best, score[i])
            if best == np.inf and blind == np.uint64(0):
                return count, cost, work
            blind = np.uint64(0)
        while score[choice] != best:
            choice += 1
        n, cost = min(people[choice] - keep[choice], need), price[choice]
        if keep[choice] == 0 and n < people[choice] and _chance(state) >= part:
            n = people[choice]
        if cost > most:
            return k, np.inf, work


@_inner
def _join(space: PackedClasses, pool: GroupMembers, m: int, i: int, drafts: int) -> float:
    """Add the rest of a cell to the draft whose cost grows least; returns by how much."""
    least, g, cost = np.inf, 0, 0.0
    for d in range(drafts):
        _write_prices(space, pool, m, d)
        price = pool.price[i]
        rise = pool.total[d] * (price - pool.cost[d]) + pool.people[i] * price
        if rise < least:
            least, g, cost = rise, d, price
    _extend(space, pool, m, g, i)
    pool.take[g, i] += pool.people[i]
    pool.total[g] += pool.people[i]
    pool.cost[g], pool.people[i] = cost, 0
    return least


# A draft's hull and what it costs.


@_inner
def _clear(space: PackedClasses, pool: GroupMembers, m: int, g: int) -> None:
    for j in range(space.kind.size):
        pool.low[g, j], pool.high[g, j] = np.inf if space.kind[j] == INTERVAL else 0.0, -np.inf
        for i in range(m if space.kind[j] == NOMINAL else 0):
            pool.known[g, j, i] = False


@_inner
def _extend(space: PackedClasses, pool: GroupMembers, m: int, g: int, i: int) -> None:
    """Let cell ``i`` join draft ``g``."""
    low, high = pool.low, pool.high
    for j in range(space.kind.size):
        y = pool.x[j, i]
        if space.kind[j] == INTERVAL:
            low[g, j], high[g, j] = min(low[g, j], y), max(high[g, j], y)
        elif space.kind[j] == TREE:
            low[g, j], high[g, j] = _cover(space, low[g, j] if high[g, j] > 0.0 else y, y), 1.0
        elif not pool.known[g, j, i]:
            low[g, j] += 1.0
            for c in range(m):
                pool.known[g, j, c] |= pool.x[j, c] == y


@_inner
def _write_prices(space: PackedClasses, pool: GroupMembers, m: int, g: int) -> None:
    """Write the cost of draft ``g`` with each of the cells."""
    x, price = pool.x, pool.price
    for i in range(m):
        price[i] = 0.0
    for j in range(space.kind.size):
        u, v, w, unit = pool.low[g, j], pool.high[g, j], space.weight[j], space.unit[j]
        if space.kind[j] == INTERVAL:
            for i in range(m):
                price[i] += min(max(v, x[j, i]) - min(u, x[j, i]), w)
        elif space.kind[j] == NOMINAL:
            same, more = (unit * u if u > 1.0 else 0.0), (unit * (u + 1.0) if u > 0.0 else 0.0)
            for i in range(m):
                price[i] += same if pool.known[g, j, i] else more
        else:
            for i in range(m):
                price[i] += space.node_cost[_cover(space, u if v > 0.0 else x[j, i], x[j, i])]


@_inner
def _cover(space: PackedClasses, above: float, leaf: float) -> int:
    """Lowest node above (or at) a node that covers a leaf."""
    node, place = int(above), space.first[int(leaf)]
    while place < space.first[node] or place > space.last[node]:
        node = space.parent[node]
    return node


@_inner
def _has_room(groups: Groups, pool: GroupMembers, m: int, drafts: int) -> bool:
    for g in range(drafts):
        slots = 0
        for i in range(m):
            slots += pool.take[g, i] > 0
        if slots > groups.cell.shape[1]:
            return False
    for i in range(m):
        homes = pool.elsewhere[i]
        for g in range(drafts):
            homes += pool.take[g, i] > 0
        if pool.keep[i] == 0 and homes > HOMES:
            return False
    return True


@_inner
def _commit(groups: Groups, pool: GroupMembers, m: int, broken: int, drafts: int) -> None:  # noqa: C901 - a kernel
    """Replace the dissolved groups by the drafts."""
    for b in range(broken):
        g = pool.broken[b]
        for s in range(groups.slots[g]):
            for h in range(HOMES):
                if groups.home[groups.cell[g, s], h] == g:
                    groups.home[groups.cell[g, s], h] = -1
        groups.slots[g] = 0
        groups.unused[groups.height[0]] = g
        groups.height[0] += 1
    for d in range(drafts):
        groups.height[0] -= 1
        g, s = groups.unused[groups.height[0]], 0
        for i in range(m):
            if pool.take[d, i] > 0:
                groups.cell[g, s], groups.people[g, s] = pool.cell[i], pool.take[d, i]
                s += 1
                h = 0
                while pool.keep[i] == 0 and groups.home[pool.cell[i], h] >= 0:
                    h += 1
                if pool.keep[i] == 0:
                    groups.home[pool.cell[i], h] = g
        groups.slots[g], groups.total[g], groups.cost[g] = s, pool.total[d], pool.cost[d]
    for i in range(m):
        groups.free[pool.cell[i]] = pool.people[i]


@_inner
def _chance(state: NDArray[np.uint64]) -> float:
    """Next number of a xorshift generator, in [0, 1)."""
    s = state[0]
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    state[0] = s
    return float(s >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_inner
def _blind(state: NDArray[np.uint64]) -> Any:
    """Draw a word with one bit in eight set, on average."""
    _chance(state)
    s = state[0]
    return s & (s >> np.uint64(21) | s << np.uint64(43)) & (s >> np.uint64(42) | s << np.uint64(22))


# Outside of the search: costs of the first groups, and cells of nobody joining groups.


@_inner
def _cost(
    space: PackedClasses, groups: Groups, pool: GroupMembers, g: int, c: int, k: int
) -> float:
    """Cost of a group (of none, if ``g`` is -1) with one more cell (with none, if ``c`` is -1)."""
    m = 0 * _ONE
    for s in range(groups.slots[g] if g >= 0 else 0):
        m = _enlist(space, groups, pool, m, groups.cell[g, s], 0 * _ONE, k)
    if c >= 0:
        m = _enlist(space, groups, pool, m, c, 0 * _ONE, k)
    _clear(space, pool, m, 0 * _ONE)
    pool.total[0], pool.cost[0] = 0, 0.0
    for i in range(m):
        _join(space, pool, m, i, _ONE)
        pool.local[pool.cell[i]] = -1
    return float(pool.cost[0])


@_entry
def seats(
    space: PackedClasses, groups: Groups, pool: GroupMembers, k: int, start: int, choice: Ints
) -> None:
    """Write, for each cell from ``start`` on, the near group whose cost per person grows least if
    it joins.
    """
    for c in range(start, space.x.shape[0]):
        least = np.inf
        for r in range(space.near.shape[1] + space.rich.shape[1]):
            other = np.int64(
                space.near[c, r]
                if r < space.near.shape[1]
                else space.rich[c, r - space.near.shape[1]]
            )
            for h in range(HOMES if other >= 0 else 0):
                g, rise = groups.home[other, h], np.inf
                if g >= 0:
                    rise = groups.total[g] * (_cost(space, groups, pool, g, c, k) - groups.cost[g])
                elif h == 0 and groups.free[other] > 0:
                    g = groups.slots.size + other
                    rise = groups.free[other] * _cost(space, groups, pool, -_ONE, c, k)
                if rise < least:
                    least, choice[c - start] = rise, g
