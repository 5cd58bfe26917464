"""Local search over a partition of people into groups: take a few neighbouring groups apart, divide them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection.axes import AxisArrays, CellTree, Codes, Floats, Ints, jit, nearest, reach
from cfk_plugin.protection.hull import GroupHull, begin, extend_group_hull, joined_group_hull, prices

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Candidates(NamedTuple):
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

    @classmethod
    def empty(cls, cells: int, q: int) -> Candidates:
        cell, people, taken, one, other = (np.zeros(n, np.int64) for n in (cells, cells, cells, 1, 1))
        return cls(np.zeros((cells, q)), cell, people, np.zeros(cells, np.bool_), taken, np.zeros(cells), one, other)


class Division(NamedTuple):
    """Groups over a pool as linked lists of shares; ``used`` counts groups and shares."""

    head: Ints
    total: Ints
    slots: Ints
    cost: Floats
    member: Ints
    people: Ints
    follow: Ints
    used: Ints

    @classmethod
    def empty(cls, groups: int, shares: int) -> Division:
        head, total, slots, member, people, follow, used = (
            np.zeros(n, np.int64) for n in (groups, groups, groups, shares, shares, shares, 2)
        )
        return cls(head, total, slots, np.zeros(groups), member, people, follow, used)


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
def note(pool: Candidates, division: Division, count: int, cost: float) -> int:
    """Write the group that was grown into the division; returns how many of it had to be placed."""
    g = division.used[0]
    division.used[0] += 1
    division.head[g], division.slots[g], division.total[g], division.cost[g] = -1, 0, count, cost
    placed = 0
    for i in range(pool.size[0]):
        if pool.taken[i] == 0:
            continue
        add(division, g, i, pool.taken[i])
        if not pool.own[i]:
            placed += pool.taken[i]
        pool.taken[i] = 0
    return placed


@jit
def add(division: Division, g: int, i: int, people: int) -> None:
    s = division.used[1]
    division.used[1] += 1
    division.member[s], division.people[s], division.follow[s] = i, people, division.head[g]
    division.head[g] = s
    division.slots[g] += 1


@jit
def load(axes: AxisArrays, pool: Candidates, division: Division, hull: GroupHull, g: int) -> None:
    s = division.head[g]
    begin(axes, hull, pool.x, division.member[s])
    s = division.follow[s]
    while s >= 0:
        extend_group_hull(axes, hull, pool.x, division.member[s])
        s = division.follow[s]


@jit
def insert(axes: AxisArrays, pool: Candidates, division: Division, hull: GroupHull, i: int) -> None:
    """Add what is left of a cell to the group whose cost grows least."""
    best, choice, after = np.inf, -1, 0.0
    for g in range(division.used[0]):
        load(axes, pool, division, hull, g)
        price = joined_group_hull(axes, hull, pool.x, i, np.inf)
        rise = division.total[g] * (price - division.cost[g]) + pool.people[i] * price
        if rise < best:
            best, choice, after = rise, g, price
    division.cost[choice] = after
    division.total[choice] += pool.people[i]
    s = division.head[choice]
    while s >= 0 and division.member[s] != i:
        s = division.follow[s]
    if s >= 0:
        division.people[s] += pool.people[i]
    else:
        add(division, choice, i, pool.people[i])
    pool.people[i] = 0


# Dividing the people of a few cells into groups: the greedy construction that the search repeats.


class Weights(NamedTuple):
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
    axes: AxisArrays,
    k: int,
    pool: Candidates,
    division: Division,
    hull: GroupHull,
    weights: Weights,
    state: NDArray[np.uint64],
) -> bool:
    """Put all people of the pool, but those of cells that stay on their own, into groups of at least k.

    Returns False where that fails; it never does for a pool of at least k people.
    """
    division.used[:] = 0
    left = 0
    for i in range(pool.size[0]):
        if not pool.own[i]:
            left += pool.people[i]
    while left > 0 and division.used[0] < division.head.size:
        alone = division.used[0] == 0
        if left < k and not alone and chance(state) >= weights.borrow:
            break
        seed = _seed(axes, pool, division, hull, state)
        count, cost = _grow(axes, k, pool, hull, weights, state, seed, alone)
        if count < k:
            _give_back(pool)
            break
        count, cost = _prune(axes, k, pool, hull, count, cost)
        left -= note(pool, division, count, cost)
    if left > 0 and division.used[0] == 0:
        return False
    for i in range(pool.size[0]):
        if pool.people[i] > 0 and not pool.own[i]:
            insert(axes, pool, division, hull, i)
    return True


@jit
def _seed(axes: AxisArrays, pool: Candidates, division: Division, hull: GroupHull, state: NDArray[np.uint64]) -> int:
    """Choose the cell that a group begins with: any, or the one that fits the last group least."""
    n = pool.size[0]
    far = division.used[0] > 0 and chance(state) < 0.5
    start, worst, seed = int(chance(state) * n), -1.0, -1
    if far:
        load(axes, pool, division, hull, division.used[0] - 1)
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
    axes: AxisArrays,
    k: int,
    pool: Candidates,
    hull: GroupHull,
    weights: Weights,
    state: NDArray[np.uint64],
    seed: int,
    alone: bool,
) -> tuple[int, float]:
    """Take cells, the cheapest first, until the group has k people; returns people and cost.

    A large cell gives those it can spare. Only where nobody else is left, and no group that could take them, it is
    taken as a whole: all of its people then pay for a few.
    """
    begin(axes, hull, pool.x, seed)
    count, cost, blink, whole = pool.people[seed], 0.0, weights.blink, False
    pool.taken[seed], pool.people[seed] = count, 0
    while count < k:
        choice, amount, after = _cheapest(axes, k, pool, hull, weights, state, count, cost, blink, whole)
        if choice < 0:
            if blink == 0.0 and (whole or not alone):
                return count, cost
            whole = blink == 0.0
            blink = 0.0
            continue
        if not pool.own[choice] and chance(state) >= weights.part:
            amount = pool.people[choice]
        extend_group_hull(axes, hull, pool.x, choice)
        pool.taken[choice] += amount
        pool.people[choice] -= amount
        count, cost = count + amount, after
    return count, cost


@jit
def _cheapest(
    axes: AxisArrays,
    k: int,
    pool: Candidates,
    hull: GroupHull,
    weights: Weights,
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
        take, saved = pool.people[i], weights.typical
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
        score = weights.worth[fill] * (pool.price[i] - cost) + pool.price[i] * share - saved
        if score < best:
            best, choice, amount, after = score, i, take, pool.price[i]
    return choice, amount, after


@jit
def _give_back(pool: Candidates) -> None:
    for i in range(pool.size[0]):
        pool.people[i] += pool.taken[i]
        pool.taken[i] = 0


@jit
def _without(axes: AxisArrays, pool: Candidates, hull: GroupHull, out: int) -> float:
    """Cost of the group that is being grown without one of its cells; ``hull`` becomes its hull."""
    cost, first = 0.0, True
    for i in range(pool.size[0]):
        if pool.taken[i] == 0 or i == out:
            continue
        if first:
            begin(axes, hull, pool.x, i)
            first = False
        else:
            cost = joined_group_hull(axes, hull, pool.x, i, np.inf)
            extend_group_hull(axes, hull, pool.x, i)
    return cost


@jit
def _prune(axes: AxisArrays, k: int, pool: Candidates, hull: GroupHull, count: int, cost: float) -> tuple[int, float]:
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


LENDERS = 24  # large cells that a pool may borrow from
MOST = 6  # groups that are taken apart at once
_COLD = 0.003  # temperature at last, in costs of a group


class Cells(NamedTuple):
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

    @classmethod
    def empty(cls, most: int, width: int) -> Groups:
        cell, people = np.zeros((2, most, width), np.int32)
        slots, total = np.zeros((2, most), np.int64)
        follow, unused = np.full(most * width, -1), np.arange(most)[::-1].copy()
        return cls(cell, people, follow, slots, total, np.zeros(most), unused, np.array([most]))


class SearchSpace(NamedTuple):
    axes: AxisArrays
    k: int
    cells: Cells
    groups: Groups
    pool: Candidates
    division: Division
    hull: GroupHull
    state: NDArray[np.uint64]


@jit
def found(space: SearchSpace, blocks: Ints) -> bool:
    """Divide the small cells, block by block; returns False if a block has too few people."""
    axes, k, cells, groups, pool, division, hull, state = space
    weights = Weights(0.05, _worth(k, 0.5, np.empty(k + 1)), 0.0, 0.5, 0.5)
    for b in range(blocks.size - 1):
        for c in range(blocks[b], blocks[b + 1]):
            _enlist(cells, pool, c, 0)
        _invite(cells, pool, k)
        done = divide(axes, k, pool, division, hull, weights, state) and _fits(groups, division, 0)
        if done:
            _commit(cells, groups, pool, division)
        _disband(cells, pool)
        if not done:
            return False
    return True


@jit
def total_cost(groups: Groups) -> float:
    total = 0.0
    for g in range(groups.slots.size):
        if groups.slots[g] > 0:
            total += groups.total[g] * groups.cost[g]
    return total


@jit
def anneal(space: SearchSpace, steps: int, work: int, hot: float) -> None:
    """Take groups apart and divide them anew, until so many steps are made or so much work is done.

    Worse divisions are kept with the odds of simulated annealing. Groups differ in cost by orders of magnitude, so
    the temperature is in proportion to the geometric mean of what the groups at hand and an average group cost.
    """
    axes, k, cells, groups, pool, division, hull, state = space
    broken, worth = np.empty(MOST, np.int64), np.empty(k + 1)
    average = total_cost(groups) / max(1, groups.slots.size - groups.height[0])
    pool.work[0] = 0
    for step in range(steps):
        spent = max(step / steps, pool.work[0] / work)
        if spent >= 1.0:
            break
        wanted = 2 + int((MOST - 1) * chance(state) ** 2)
        size, cost, count = _gather(cells, groups, pool, broken, wanted, state)
        _invite(cells, pool, k)
        typical, blink = 2.0 * chance(state) * cost / count, 0.3 * chance(state) ** 2
        weights = Weights(typical, _worth(k, chance(state), worth), blink, chance(state), chance(state))
        if divide(axes, k, pool, division, hull, weights, state) and _fits(groups, division, size):
            price = 0.0
            for d in range(division.used[0]):
                price += division.total[d] * division.cost[d]
            heat = hot * (_COLD / hot) ** spent * np.sqrt(average * cost / size)
            if price <= cost - heat * np.log(1.0 - chance(state)):
                for g in broken[:size]:
                    _dissolve(cells, groups, g)
                _commit(cells, groups, pool, division)
        _disband(cells, pool)


@jit
def _worth(k: int, thirst: float, worth: Floats) -> Floats:
    worth[0] = np.inf
    for n in range(1, k + 1):
        worth[n] = k / n**thirst
    return worth


@jit
def _gather(
    cells: Cells, groups: Groups, pool: Candidates, broken: Ints, wanted: int, state: NDArray[np.uint64]
) -> tuple[int, float, int]:
    """Take groups around a small cell into the pool; returns how many, their cost and their people."""
    seed = _somewhere(cells, groups, state)
    size, cost, count = 0, 0.0, 0
    for rank in range(-1, cells.near.shape[1]):
        c = seed if rank < 0 else cells.near[seed, rank]
        share = cells.first[c] if c >= 0 else -1
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
                _enlist(cells, pool, groups.cell[g, s], groups.people[g, s])
        if size == wanted:
            break
    return size, cost, count


@jit
def _somewhere(cells: Cells, groups: Groups, state: NDArray[np.uint64]) -> int:
    """Draw a small cell; every other time the one of two whose group is dearer, as there is more to gain."""
    small, width = cells.near.shape[0], groups.cell.shape[1]
    seed = int(chance(state) * small)
    if chance(state) < 0.5:
        other = int(chance(state) * small)
        if groups.cost[cells.first[other] // width] > groups.cost[cells.first[seed] // width]:
            return other
    return seed


@jit
def _enlist(cells: Cells, pool: Candidates, c: int, people: int) -> None:
    """Add people of a cell to the pool, on first sight together with those who are in no group."""
    i = cells.local[c]
    if i < 0:
        i = pool.size[0]
        pool.size[0] += 1
        cells.local[c] = i
        pool.x[i] = cells.x[c]
        pool.cell[i], pool.people[i], pool.taken[i] = c, cells.free[c], 0
    pool.people[i] += people


@jit
def _invite(cells: Cells, pool: Candidates, k: int) -> None:
    """Add large cells near the pool, the nearest of each cell first, and tell which cells can stay on their own."""
    members = pool.size[0]
    last = min(members + LENDERS, pool.cell.size)
    for rank in range(cells.rich.shape[1]):
        for i in range(members):
            c = pool.cell[i]
            rich = cells.rich[c, rank] if c < cells.rich.shape[0] else -1
            if rich >= 0 and pool.size[0] < last and cells.local[rich] < 0 and cells.free[rich] >= k:
                _enlist(cells, pool, rich, 0)
    for i in range(pool.size[0]):
        pool.own[i] = pool.people[i] >= k


@jit
def _disband(cells: Cells, pool: Candidates) -> None:
    for i in range(pool.size[0]):
        cells.local[pool.cell[i]] = -1
    pool.size[0] = 0


@jit
def _dissolve(cells: Cells, groups: Groups, g: int) -> None:
    """Forget a group; its people must be in the pool by now."""
    small, width = cells.near.shape[0], groups.cell.shape[1]
    for s in range(groups.slots[g]):
        c, share = groups.cell[g, s], g * width + s
        if c >= small:
            continue
        if cells.first[c] == share:
            cells.first[c] = groups.follow[share]
            continue
        at = cells.first[c]
        while groups.follow[at] != share:
            at = groups.follow[at]
        groups.follow[at] = groups.follow[share]
    groups.slots[g] = 0
    groups.unused[groups.height[0]] = g
    groups.height[0] += 1


@jit
def _fits(groups: Groups, division: Division, released: int) -> bool:
    """Whether there is room for the groups of a division once others are dissolved."""
    for d in range(division.used[0]):
        if division.slots[d] > groups.cell.shape[1]:
            return False
    return bool(division.used[0] <= groups.height[0] + released)


@jit
def _commit(cells: Cells, groups: Groups, pool: Candidates, division: Division) -> None:
    """Make the groups of a division; whom it left over is in no group."""
    small, width = cells.near.shape[0], groups.cell.shape[1]
    for d in range(division.used[0]):
        groups.height[0] -= 1
        g = groups.unused[groups.height[0]]
        groups.slots[g], groups.total[g], groups.cost[g] = division.slots[d], division.total[d], division.cost[d]
        s, at = 0, division.head[d]
        while at >= 0:
            c = pool.cell[division.member[at]]
            groups.cell[g, s], groups.people[g, s] = c, division.people[at]
            if c < small:
                groups.follow[g * width + s] = cells.first[c]
                cells.first[c] = g * width + s
            s, at = s + 1, division.follow[at]
    for i in range(pool.size[0]):
        cells.free[pool.cell[i]] = pool.people[i]


# Which cells are near each other, and which group a cell of nobody joins.


@jit
def neighbours(tree: CellTree, axes: AxisArrays, cells: Codes, place: Floats, most: int) -> NDArray[np.int32]:
    """Up to ``most`` cells of a tree (rows in tree order) nearest to each cell, itself excluded; padded with -1.

    Every cell of the tree must have weight 1.
    """
    table = np.full((cells.shape[0], most), -1, np.int32)
    for i in range(cells.shape[0]):
        found = np.sort(nearest(tree, axes, cells[i], place[i], most + 1)[0])
        cost = np.empty(found.size)
        for s in range(found.size):
            cost[s] = reach(axes, cells[i], place[i], tree.codes, tree.codes, found[s], np.inf)
        size = 0
        for s in np.argsort(cost, kind="mergesort"):
            if size < most and np.any(tree.codes[found[s]] != cells[i]):
                table[i, size] = found[s]
                size += 1
    return table


@jit
def cheapest_groups(
    axes: AxisArrays, x: Floats, rest: Ints, cell: Ints, start: Ints, count: Ints, hull: GroupHull
) -> Ints:
    """For each row of ``rest`` the group whose cost, summed over its people, grows least if it joins.

    Group ``g`` has ``count[g]`` people and the cells ``cell[start[g]:start[g + 1]]``.
    """
    least, choice = np.full(rest.size, np.inf), np.zeros(rest.size, np.int64)
    for g in range(count.size):
        cost = 0.0
        begin(axes, hull, x, cell[start[g]])
        for s in range(start[g] + 1, start[g + 1]):
            cost = joined_group_hull(axes, hull, x, cell[s], np.inf)
            extend_group_hull(axes, hull, x, cell[s])
        for r in range(rest.size):
            limit = cost + least[r] / count[g]
            if limit <= cost:
                continue
            rise = count[g] * (joined_group_hull(axes, hull, x, rest[r], limit) - cost)
            if rise < least[r]:
                least[r], choice[r] = rise, g
    return choice
