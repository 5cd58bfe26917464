"""The compiled part of microaggregation: its local search, and the groups of empty classes.

`improve` starts from any division of the people into groups of at least k, and repeats three steps:

1. *Dissolve near groups* (`_dissolve`): draw a small class, and collect two to four groups of this
   class and of small classes near it in a pool. Large classes near by lend people to the pool.
2. *Divide the pool anew* (`_divide`): start a draft of a group with one class of the pool, let the
   cheapest classes join until the draft has k people (`_grow`), and start the next draft. The
   people who remain join the draft whose cost grows least (`_join`).
3. *Keep what is cheaper* (`_replace`): the drafts replace the dissolved groups if they cost less,
   or a little more at the odds of simulated annealing.

`PlainSearch` states the same search with lists and dictionaries, and `seats_in_python` the choice
of groups for empty classes; tests compare both with the kernels.

A *class* is an equivalence class: people with equal quasi-identifiers. A small class has fewer than
k people, a large one k or more, an empty one none; they are numbered in this order. The *cost* of a
group is the NCP of its hull, which each of its people loses; a group loses its cost times its
people. In all kernels, c is the number of a class, g that of a group, d that of a draft, i one of
the m columns of the pool that are in use, j an axis, s a slot of a group, and h one of the `HOMES`
entries of a class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from cfk_plugin.protection.axes import INTERVAL, NOMINAL, TREE, Floats, Ints
from cfk_plugin.protection.compiled import inner, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_F = TypeVar("_F", bound=Callable[..., Any])

LENDERS = 4  # large classes that may join a pool
HOMES = 4  # groups that a small class may be divided among
_FEW = (
    64  # small classes; with fewer, starts vary too little, so one in eight candidates is skipped
)
_MAX_DRAFTS = 32  # groups that a pool may be divided into
_MAX_DISSOLVED = 4  # groups that are dissolved at once
_HOT = 0.3  # first temperature, in costs of a group
_COLD = 0.01  # last temperature
# Integers that go from kernel to kernel. The literals 0 and 1 have other types than an np.int64,
# and numba would compile the kernels once more for them.
_ZERO: Any = np.int64(0)
_ONE: Any = np.int64(1)
_NO_CLASS: Any = np.int64(-1)
_FLAGS: dict[str, Any] = {
    "error_model": "numpy",
    "_nrt": False,
}  # as nothing is allocated, reference counts are not needed: saves half of the time


def _entry(function: _F) -> _F:
    return jit(function, **_FLAGS)


def _inner(function: _F) -> _F:
    return inner(function, forceinline=True, **_FLAGS)


class PackedClasses(NamedTuple):
    """The equivalence classes of a block, and what a hull of them costs; kernels only read it.

    The classes are numbered as small, large and empty ones, and within each kind along the first
    ordering. Costs are NCP, in the weights of the axes. The nodes of all trees are numbered
    together.

    Attributes
    ----------
    kind : int8, shape (n_axes,)
        INTERVAL, NOMINAL or TREE.
    weight : float64, shape (n_axes,)
        Cost of the whole domain of an axis.
    value_cost : float64, shape (n_axes,)
        Cost of one value of a NOMINAL axis, where a hull has more than one.
    first_leaf, last_leaf : int64, shape (n_nodes,)
        Codes of the leaves below a node of a TREE; each node covers a range of them.
    parent : int64, shape (n_nodes,)
        The node above a node; no kernel reads that of a root.
    node_cost : float64, shape (n_nodes,)
        Cost of a hull whose lowest covering node this is; 0 for a leaf.
    coordinate : float64, shape (n_classes, n_axes)
        Position on an INTERVAL axis, in units of cost; code on a NOMINAL one; node of the leaf on a
        TREE.
    n_small : int
        Number of small classes.
    near_small : int32, shape (n_classes, n_near)
        The small classes nearest to each class, nearest first, then -1.
    near_large : int32, shape (n_classes, n_near_large)
        The same for large classes.
    """

    kind: NDArray[np.int8]
    weight: Floats
    value_cost: Floats
    first_leaf: Ints
    last_leaf: Ints
    parent: Ints
    node_cost: Floats
    coordinate: Floats
    n_small: int
    near_small: NDArray[np.int32]
    near_large: NDArray[np.int32]


class Groups(NamedTuple):
    """The groups of the search, which kernels change in place.

    Groups that mix several classes have numbers from 0 to n_numbers - 1, which are used again when
    a group is dissolved. People of a class who are in no such group are a group of their own, the
    unmixed group of the class, which has no number here and costs nothing. Each mixed group, and
    each unmixed group of a class with people, has at least k people.

    Attributes
    ----------
    class_in_slot : int64, shape (n_numbers, n_slots)
        The classes of a group; only its first ``n_classes[g]`` slots mean anything.
    people_in_slot : int64, shape (n_numbers, n_slots)
        How many people of this class are in the group.
    n_classes : int64, shape (n_numbers,)
        Number of classes of a group; 0 where the number is free.
    n_people : int64, shape (n_numbers,)
        Number of people of a group.
    cost : float64, shape (n_numbers,)
        NCP of the hull of a group. `improve` writes it first.
    free_numbers : int64, shape (n_numbers,)
        A stack of the numbers that no group has.
    n_free : int64, shape (1,)
        Height of this stack.
    unmixed : int64, shape (n_classes,)
        People of a class who are in no mixed group: 0, or at least k.
    groups_of_class : int64, shape (n_classes, HOMES)
        The groups that a small class has people in, with -1 in unused entries. Large classes have
        only -1: they may be in any number of groups.
    """

    class_in_slot: Ints
    people_in_slot: Ints
    n_classes: Ints
    n_people: Ints
    cost: Floats
    free_numbers: Ints
    n_free: Ints
    unmixed: Ints
    groups_of_class: Ints


class GroupMembers(NamedTuple):
    """The pool: the members of dissolved groups, and drafts of the groups that may replace them.

    It is working memory, which kernels fill anew in each step; only ``column_of_class`` must be -1
    everywhere between two steps. Column i of the pool is a class.

    Attributes
    ----------
    coordinate : float64, shape (n_axes, room)
        `PackedClasses.coordinate` of the columns.
    class_of_column : int64, shape (room,)
        The class of a column.
    undivided : int64, shape (room,)
        People of a column who are in no draft yet.
    reserved : int64, shape (room,)
        How many of them must stay in the unmixed group of their class: k for a large class, 0 for a
        small one.
    n_other_groups : int64, shape (room,)
        Groups that a class has people in and that were not dissolved. Only read for small classes.
    price : float64, shape (room,)
        Cost of the hull of one draft with each column.
    score : float64, shape (room,)
        What `_grow` minimises.
    column_of_class : int64, shape (n_classes,)
        Column of a class; -1 where the pool lacks it.
    dissolved : int64, shape (_MAX_DISSOLVED,)
        Numbers of the dissolved groups.
    in_draft : int64, shape (_MAX_DRAFTS, room)
        People of each column who are in a draft.
    draft_people : int64, shape (_MAX_DRAFTS,)
        People of a draft.
    draft_cost : float64, shape (_MAX_DRAFTS,)
        Cost of the hull of a draft.
    hull_low, hull_high : float64, shape (_MAX_DRAFTS, n_axes)
        The hull of a draft. INTERVAL: its least and greatest coordinate. NOMINAL: ``hull_low`` is
        the number of its values. TREE: ``hull_low`` is its lowest covering node, if ``hull_high``
        is above 0; otherwise the hull is empty.
    is_inside : bool, shape (_MAX_DRAFTS, n_axes, room)
        Whether the hull of a draft has the value of a column on a NOMINAL axis.
    """

    coordinate: Floats
    class_of_column: Ints
    undivided: Ints
    reserved: Ints
    n_other_groups: Ints
    price: Floats
    score: Floats
    column_of_class: Ints
    dissolved: Ints
    in_draft: Ints
    draft_people: Ints
    draft_cost: Floats
    hull_low: Floats
    hull_high: Floats
    is_inside: NDArray[np.bool_]

    @classmethod
    def empty(cls, n_classes: int, n_axes: int, room: int) -> GroupMembers:
        """Return a pool with room for a number of columns."""
        return cls(
            coordinate=np.zeros((n_axes, room)),
            class_of_column=np.zeros(room, np.int64),
            undivided=np.zeros(room, np.int64),
            reserved=np.zeros(room, np.int64),
            n_other_groups=np.zeros(room, np.int64),
            price=np.zeros(room),
            score=np.zeros(room),
            column_of_class=np.full(n_classes, -1),
            dissolved=np.zeros(_MAX_DISSOLVED, np.int64),
            in_draft=np.zeros((_MAX_DRAFTS, room), np.int64),
            draft_people=np.zeros(_MAX_DRAFTS, np.int64),
            draft_cost=np.zeros(_MAX_DRAFTS),
            hull_low=np.zeros((_MAX_DRAFTS, n_axes)),
            hull_high=np.zeros((_MAX_DRAFTS, n_axes)),
            is_inside=np.zeros((_MAX_DRAFTS, n_axes, room), np.bool_),
        )


# The search.


@_entry
def improve(
    classes: PackedClasses,
    groups: Groups,
    pool: GroupMembers,
    k: int,
    growth_weights: Floats,
    done: int,
    until: int,
    work: int,
    state: NDArray[np.uint64],
) -> int:
    """Divide near groups anew until enough work is done; `PlainSearch` says the same.

    Worse divisions are kept at the odds of simulated annealing. Groups differ in cost by orders of
    magnitude, so the temperature is proportional to the geometric mean of the dissolved groups'
    mean cost and the mean cost of all groups at the start of the call.

    Parameters
    ----------
    classes
        The equivalence classes; at least one of them is small.
    groups
        Changed in place. Their costs are written if nothing is `done` yet.
    pool
        Working memory.
    k
        Least number of people in a group.
    growth_weights : float64, shape (n_weightings, k + 1)
        A draft is grown with one of these weightings. ``growth_weights[w, n]`` is the weight of the
        cost that a draft gains, where it gains n people with it.
    done, until, work
        Work that earlier calls did, that this call may reach, and that all calls will do. Its unit
        is about one comparison of a class with a draft. A step may exceed it.
    state : uint64, shape (1,)
        State of the random numbers, changed in place.

    Returns
    -------
    int
        The work that is done now.
    """
    total_cost = 0.0
    n_groups = 0
    for g in range(groups.n_classes.size):
        if groups.n_classes[g] > 0:
            if done == 0:
                groups.cost[g] = _cost(classes, groups, pool, g, _NO_CLASS, k)
            total_cost += groups.n_people[g] * groups.cost[g]
            n_groups += 1
    mean_cost = total_cost / n_groups
    while done < until:
        m, n_dissolved, old_cost = _dissolve(classes, groups, pool, k, state)
        done += 10 + 2 * m
        if old_cost > 0.0:
            temperature = _HOT * (_COLD / _HOT) ** (done / work)
            scale = np.sqrt(mean_cost * old_cost / n_dissolved)
            limit = old_cost - temperature * scale * np.log(1.0 - _chance(state))
            n_drafts, spent = _divide(classes, pool, m, k, growth_weights, old_cost, limit, state)
            done += spent
            if 0 < n_drafts <= groups.n_free[0] + n_dissolved and _fits(groups, pool, m, n_drafts):
                _replace(groups, pool, m, n_dissolved, n_drafts)
        for i in range(m):
            pool.column_of_class[pool.class_of_column[i]] = -1
    return done


@_inner
def _dissolve(  # noqa: C901 - a kernel
    classes: PackedClasses,
    groups: Groups,
    pool: GroupMembers,
    k: int,
    state: NDArray[np.uint64],
) -> tuple[int, int, float]:
    """Fill the pool with groups around a small class, and with large classes near them.

    Returns the number of columns of the pool, the number of dissolved groups, and what these lose
    together. The groups themselves are not changed.
    """
    n_wanted = 2 + int((_MAX_DISSOLVED - 1) * _chance(state) ** 2)
    skip_odds = 0.5 * _chance(state)
    m = _ZERO
    n_dissolved = _ZERO
    old_cost = 0.0
    seed = int(_chance(state) * classes.n_small)
    for rank in range(-1, classes.near_small.shape[1]):
        c: Any = seed if rank < 0 else np.int64(classes.near_small[seed, rank])
        if c < 0 or n_dissolved == n_wanted:
            break
        for h in range(HOMES):
            g = groups.groups_of_class[c, h]
            if g < 0 or n_dissolved == n_wanted or (rank >= 0 and _chance(state) < skip_odds):
                continue
            is_taken = m + groups.n_classes[g] + LENDERS <= pool.undivided.size
            for b in range(n_dissolved):
                is_taken &= pool.dissolved[b] != g
            if is_taken:
                pool.dissolved[n_dissolved] = g
                n_dissolved += 1
                old_cost += groups.n_people[g] * groups.cost[g]
                for s in range(groups.n_classes[g]):
                    member = groups.class_in_slot[g, s]
                    people = groups.people_in_slot[g, s]
                    m = _enlist(classes, groups, pool, m, member, people, k)
    n_members = m
    turn = int(_chance(state) * m)
    for rank in range(classes.near_large.shape[1]):
        for i in range(n_members):
            member = pool.class_of_column[(i + turn) % n_members]
            c = np.int64(classes.near_large[member, rank])
            has_room = m < n_members + LENDERS
            if c >= 0 and has_room and pool.column_of_class[c] < 0 and groups.unmixed[c] > k:
                m = _enlist(classes, groups, pool, m, c, _ZERO, k)
    return m, n_dissolved, old_cost


@_inner
def _enlist(
    classes: PackedClasses, groups: Groups, pool: GroupMembers, m: int, c: int, people: int, k: int
) -> int:
    """Add people of one group's class to the pool; return the number of its columns.

    The first time, the people of the unmixed group of the class are added, too.
    """
    i = pool.column_of_class[c]
    if i < 0:
        i = m
        m += 1
        pool.column_of_class[c] = i
        pool.class_of_column[i] = c
        pool.undivided[i] = groups.unmixed[c]
        pool.reserved[i] = k if c >= classes.n_small else 0
        for j in range(classes.kind.size):
            pool.coordinate[j, i] = classes.coordinate[c, j]
        pool.n_other_groups[i] = 0
        for h in range(HOMES):
            pool.n_other_groups[i] += groups.groups_of_class[c, h] >= 0
    pool.undivided[i] += people
    pool.n_other_groups[i] -= 1
    return m


@_inner
def _divide(
    classes: PackedClasses,
    pool: GroupMembers,
    m: int,
    k: int,
    growth_weights: Floats,
    old_cost: float,
    limit: float,
    state: NDArray[np.uint64],
) -> tuple[int, int]:
    """Divide the m columns of the pool greedily; return the number of drafts, and the work.

    There are 0 drafts if they lose more than `limit`. Four numbers are drawn for each division: the
    cost that is assumed for a person in another draft, how often large classes fill one more draft,
    how a draft weighs its growth, and how often it leaves surplus people of its last class.
    """
    n_left = _n_left(pool, m)
    n_drafts = _ZERO
    spent = 0.0
    work = 0
    usual_cost = 2.0 * _chance(state) * old_cost / max(1, n_left)
    borrow_odds = _chance(state)
    weighting = int(_chance(state) * growth_weights.shape[0])
    split_odds = _chance(state)
    while (
        n_left > 0
        and n_drafts < _MAX_DRAFTS
        and (n_drafts == 0 or n_left >= k or _chance(state) < borrow_odds)
    ):
        seed = int(_chance(state) * m)
        while pool.undivided[seed] == 0 or pool.reserved[seed] > 0:
            seed = seed + 1 if seed + 1 < m else 0
        people, cost, work_of_draft = _grow(
            classes,
            pool,
            m,
            k,
            n_drafts,
            seed,
            growth_weights[weighting],
            usual_cost,
            split_odds,
            (limit - spent) / k,
            state,
        )
        work += work_of_draft
        if people < k:
            for i in range(m):
                pool.undivided[i] += pool.in_draft[n_drafts, i]
            break
        spent += people * cost
        if spent > limit:
            return 0, work
        pool.draft_people[n_drafts] = people
        pool.draft_cost[n_drafts] = cost
        n_drafts += 1
        n_left = _n_left(pool, m)
    for i in range(m):
        if n_drafts > 0 and pool.undivided[i] > 0 and pool.reserved[i] == 0:
            spent += _join(classes, pool, m, i, n_drafts)
            work += 2 * n_drafts
            if spent > limit:
                return 0, work
    return n_drafts, work


@_inner
def _n_left(pool: GroupMembers, m: int) -> int:
    """Count the people who still need a draft, who are those of small classes."""
    n_left = 0
    for i in range(m):
        if pool.reserved[i] == 0:
            n_left += pool.undivided[i]
    return n_left


@_inner
def _grow(
    classes: PackedClasses,
    pool: GroupMembers,
    m: int,
    k: int,
    d: int,
    seed: int,
    growth_weight: Floats,
    usual_cost: float,
    split_odds: float,
    cost_limit: float,
    state: NDArray[np.uint64],
) -> tuple[int, float, int]:
    """Let the cheapest columns join draft d, first `seed`, until it has k people.

    ``growth_weight[n]``, shape (k + 1,), weighs the cost that the draft gains if it gains n people
    with it. A person of a small class needs a draft anyway, so only the cost above `usual_cost`
    counts. `split_odds` is how often the last class gives no more people than are needed.

    Returns the people and the cost of the draft, and the work. There are fewer than k people if the
    pool has no more. The cost is infinite if it would exceed `cost_limit`.
    """
    undivided = pool.undivided
    reserved = pool.reserved
    price = pool.price
    score = pool.score
    for i in range(m):
        pool.in_draft[d, i] = 0
    _clear_hull(classes, pool, m, d)
    people = 0
    cost = 0.0
    work = 0
    choice = seed
    n = undivided[seed]
    while True:
        _extend_hull(classes, pool, m, d, choice)
        pool.in_draft[d, choice] += n
        undivided[choice] -= n
        people += n
        if people >= k:
            return people, cost, work
        _write_prices(classes, pool, m, d)
        work += 6 + m // 2
        need = k - people
        best = np.inf
        choice = 0
        skipped = _one_bit_in_eight(state) if classes.n_small < _FEW else np.uint64(0)
        while best == np.inf:
            for i in range(m):  # without branches, which would be mispredicted half of the time
                n = min(undivided[i] - reserved[i], need)
                weighed = growth_weight[n] * (price[i] - cost) + price[i]
                rating = weighed - (0.0 if reserved[i] > 0 else usual_cost)
                is_skipped = (skipped >> np.uint64(i & 63)) & np.uint64(1)
                score[i] = np.inf if n == 0 or is_skipped else rating
                best = min(best, score[i])
            if best == np.inf and skipped == np.uint64(0):
                return people, cost, work
            skipped = np.uint64(0)
        while score[choice] != best:
            choice += 1
        n = min(undivided[choice] - reserved[choice], need)
        cost = price[choice]
        if reserved[choice] == 0 and n < undivided[choice] and _chance(state) >= split_odds:
            n = undivided[choice]
        if cost > cost_limit:
            return k, np.inf, work


@_inner
def _join(classes: PackedClasses, pool: GroupMembers, m: int, i: int, n_drafts: int) -> float:
    """Add the rest of a column to the draft that loses least by it; return how much it loses."""
    least_rise = np.inf
    best_draft = 0
    best_cost = 0.0
    for d in range(n_drafts):
        _write_prices(classes, pool, m, d)
        price = pool.price[i]
        rise = pool.draft_people[d] * (price - pool.draft_cost[d]) + pool.undivided[i] * price
        if rise < least_rise:
            least_rise = rise
            best_draft = d
            best_cost = price
    _extend_hull(classes, pool, m, best_draft, i)
    pool.in_draft[best_draft, i] += pool.undivided[i]
    pool.draft_people[best_draft] += pool.undivided[i]
    pool.draft_cost[best_draft] = best_cost
    pool.undivided[i] = 0
    return least_rise


@_inner
def _fits(groups: Groups, pool: GroupMembers, m: int, n_drafts: int) -> bool:
    """Return whether each draft has a slot per class, and each small class an entry per group."""
    for d in range(n_drafts):
        n_classes = 0
        for i in range(m):
            n_classes += pool.in_draft[d, i] > 0
        if n_classes > groups.class_in_slot.shape[1]:
            return False
    for i in range(m):
        n_homes = pool.n_other_groups[i]
        for d in range(n_drafts):
            n_homes += pool.in_draft[d, i] > 0
        if pool.reserved[i] == 0 and n_homes > HOMES:
            return False
    return True


@_inner
def _replace(  # noqa: C901 - a kernel
    groups: Groups, pool: GroupMembers, m: int, n_dissolved: int, n_drafts: int
) -> None:
    """Replace the dissolved groups by the drafts."""
    for b in range(n_dissolved):
        g = pool.dissolved[b]
        for s in range(groups.n_classes[g]):
            c = groups.class_in_slot[g, s]
            for h in range(HOMES):
                if groups.groups_of_class[c, h] == g:
                    groups.groups_of_class[c, h] = -1
        groups.n_classes[g] = 0
        groups.free_numbers[groups.n_free[0]] = g
        groups.n_free[0] += 1
    for d in range(n_drafts):
        groups.n_free[0] -= 1
        g = groups.free_numbers[groups.n_free[0]]
        s = 0
        for i in range(m):
            if pool.in_draft[d, i] > 0:
                c = pool.class_of_column[i]
                groups.class_in_slot[g, s] = c
                groups.people_in_slot[g, s] = pool.in_draft[d, i]
                s += 1
                if pool.reserved[i] == 0:
                    h = 0
                    while groups.groups_of_class[c, h] >= 0:
                        h += 1
                    groups.groups_of_class[c, h] = g
        groups.n_classes[g] = s
        groups.n_people[g] = pool.draft_people[d]
        groups.cost[g] = pool.draft_cost[d]
    for i in range(m):
        groups.unmixed[pool.class_of_column[i]] = pool.undivided[i]


# The hull of a draft, and what it costs.


@_inner
def _clear_hull(classes: PackedClasses, pool: GroupMembers, m: int, d: int) -> None:
    """Let draft d have no class; m is the number of columns of the pool."""
    for j in range(classes.kind.size):
        pool.hull_low[d, j] = np.inf if classes.kind[j] == INTERVAL else 0.0
        pool.hull_high[d, j] = -np.inf
        if classes.kind[j] == NOMINAL:
            for i in range(m):
                pool.is_inside[d, j, i] = False


@_inner
def _extend_hull(classes: PackedClasses, pool: GroupMembers, m: int, d: int, i: int) -> None:
    """Extend the hull of draft d to the class of column i."""
    low = pool.hull_low
    high = pool.hull_high
    for j in range(classes.kind.size):
        own_coordinate = pool.coordinate[j, i]
        if classes.kind[j] == INTERVAL:
            low[d, j] = min(low[d, j], own_coordinate)
            high[d, j] = max(high[d, j], own_coordinate)
        elif classes.kind[j] == TREE:
            start_node = low[d, j] if high[d, j] > 0.0 else own_coordinate
            low[d, j] = _covering_node(classes, start_node, own_coordinate)
            high[d, j] = 1.0
        elif not pool.is_inside[d, j, i]:
            low[d, j] += 1.0
            for other in range(m):
                pool.is_inside[d, j, other] |= pool.coordinate[j, other] == own_coordinate


@_inner
def _write_prices(classes: PackedClasses, pool: GroupMembers, m: int, d: int) -> None:
    """Write into ``pool.price`` the cost of the hull of draft d with each of m columns."""
    x = pool.coordinate
    price = pool.price
    for i in range(m):
        price[i] = 0.0
    for j in range(classes.kind.size):
        low = pool.hull_low[d, j]
        high = pool.hull_high[d, j]
        if classes.kind[j] == INTERVAL:
            weight = classes.weight[j]
            for i in range(m):
                width = max(high, x[j, i]) - min(low, x[j, i])
                price[i] += min(width, weight)
        elif classes.kind[j] == NOMINAL:
            value_cost = classes.value_cost[j]
            with_old = value_cost * low if low > 1.0 else 0.0
            with_new = value_cost * (low + 1.0) if low > 0.0 else 0.0
            for i in range(m):
                price[i] += with_old if pool.is_inside[d, j, i] else with_new
        else:
            for i in range(m):
                start_node = low if high > 0.0 else x[j, i]
                price[i] += classes.node_cost[_covering_node(classes, start_node, x[j, i])]


@_inner
def _covering_node(classes: PackedClasses, start_node: float, leaf: float) -> int:
    """Return the lowest node that covers a node and a leaf, which is given by its own node."""
    node = int(start_node)
    code = classes.first_leaf[int(leaf)]
    while code < classes.first_leaf[node] or code > classes.last_leaf[node]:
        node = classes.parent[node]
    return node


# Random numbers.


@_inner
def _chance(state: NDArray[np.uint64]) -> float:
    """Return the next number of a xorshift generator, in [0, 1)."""
    s = state[0]
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    state[0] = s
    return float(s >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_inner
def _one_bit_in_eight(state: NDArray[np.uint64]) -> Any:
    """Return a random word, uint64, with one bit in eight set on average."""
    _chance(state)
    s = state[0]
    return s & (s >> np.uint64(21) | s << np.uint64(43)) & (s >> np.uint64(42) | s << np.uint64(22))


# Outside of the search: costs of the first groups, and groups for empty classes.


@_inner
def _cost(
    classes: PackedClasses, groups: Groups, pool: GroupMembers, g: int, c: int, k: int
) -> float:
    """Return the cost of a mixed group with class c, or as it is if c is `_NO_CLASS`.

    The pool is used, and left as it has to be between two steps.
    """
    m = _ZERO
    for s in range(groups.n_classes[g]):
        m = _enlist(classes, groups, pool, m, groups.class_in_slot[g, s], _ZERO, k)
    if c >= 0:
        m = _enlist(classes, groups, pool, m, c, _ZERO, k)
    _clear_hull(classes, pool, m, _ZERO)
    pool.draft_people[0] = 0
    pool.draft_cost[0] = 0.0
    for i in range(m):
        _join(classes, pool, m, i, _ONE)
        pool.column_of_class[pool.class_of_column[i]] = -1
    return float(pool.draft_cost[0])


@_entry
def seats(
    classes: PackedClasses,
    groups: Groups,
    pool: GroupMembers,
    k: int,
    first_empty: int,
    group_of_empty: Ints,
) -> None:
    """Choose a near group for each empty class; `seats_in_python` says the same.

    It is the group that loses least by it. An unmixed group counts as if it lost nothing.

    Writes into ``group_of_empty``, shape (n_empty,), the group of class ``first_empty + e``: the
    number of a mixed group, or ``n_numbers + c`` for the unmixed group of class c.
    """
    n_near_small = classes.near_small.shape[1]
    for c in range(first_empty, classes.coordinate.shape[0]):
        least_rise = np.inf
        for rank in range(n_near_small + classes.near_large.shape[1]):
            if rank < n_near_small:
                other = np.int64(classes.near_small[c, rank])
            else:
                other = np.int64(classes.near_large[c, rank - n_near_small])
            if other < 0:
                continue
            for h in range(HOMES):
                g = groups.groups_of_class[other, h]
                rise = np.inf
                if g >= 0:
                    cost = _cost(classes, groups, pool, g, c, k)
                    rise = groups.n_people[g] * (cost - groups.cost[g])
                elif h == 0 and groups.unmixed[other] > 0:
                    g = groups.n_classes.size + other
                    rise = 0.0
                if rise < least_rise:
                    least_rise = rise
                    group_of_empty[c - first_empty] = g


# What the kernels compute, in plain Python: for readers, and for the tests.


def hull_cost(classes: PackedClasses, members: Iterable[int]) -> float:
    """Return the cost of the hull of some classes, which each person of their group loses."""
    coordinates = classes.coordinate[list(members)]  # (n_members, n_axes)
    cost = 0.0
    for j, kind in enumerate(classes.kind):
        if kind == INTERVAL:
            cost += min(float(np.ptp(coordinates[:, j])), float(classes.weight[j]))
        elif kind == NOMINAL:
            n_values = len(np.unique(coordinates[:, j]))
            if n_values > 1:
                cost += float(classes.value_cost[j]) * n_values
        else:
            nodes = coordinates[:, j].astype(np.int64)
            codes = classes.first_leaf[nodes]
            node = nodes[0]
            while codes.min() < classes.first_leaf[node] or codes.max() > classes.last_leaf[node]:
                node = classes.parent[node]
            cost += float(classes.node_cost[node])
    return cost


@dataclass
class PlainGroups:
    """`Groups` as dictionaries and lists."""

    members: dict[int, dict[int, int]]  # of each mixed group, how many people of each class
    groups_of_class: list[list[int]]
    unmixed: list[int]
    free_numbers: list[int]
    max_classes: int  # of one group

    @classmethod
    def of(cls, groups: Groups) -> PlainGroups:
        members = {}
        for g, n_classes in enumerate(groups.n_classes.tolist()):
            if n_classes > 0:
                member_classes = groups.class_in_slot[g, :n_classes].tolist()
                people = groups.people_in_slot[g, :n_classes].tolist()
                members[g] = dict(zip(member_classes, people, strict=True))
        return cls(
            members=members,
            groups_of_class=groups.groups_of_class.tolist(),
            unmixed=groups.unmixed.tolist(),
            free_numbers=groups.free_numbers[: groups.n_free[0]].tolist(),
            max_classes=groups.class_in_slot.shape[1],
        )

    def loss(self, classes: PackedClasses, g: int) -> float:
        """Return what the people of a group lose together."""
        return sum(self.members[g].values()) * hull_cost(classes, self.members[g])


@dataclass
class PlainRandom:
    """The random numbers of the kernels."""

    state: int
    _word: int = field(default=2**64 - 1, repr=False)

    def chance(self) -> float:
        self.state ^= self.state << 13 & self._word
        self.state ^= self.state >> 7
        self.state ^= self.state << 17 & self._word
        return (self.state >> 11) / 2**53

    def one_bit_in_eight(self) -> int:
        self.chance()
        rotated_by_21 = self.state >> 21 | self.state << 43 & self._word
        rotated_by_42 = self.state >> 42 | self.state << 22 & self._word
        return self.state & rotated_by_21 & rotated_by_42


@dataclass
class PlainSearch:
    """`improve`, with the arrays of `Groups` and `GroupMembers` as dictionaries and lists."""

    classes: PackedClasses
    groups: PlainGroups
    k: int
    room: int  # most classes in a pool
    growth_weights: Floats
    random: PlainRandom

    def improve(self, done: int, until: int, work: int) -> int:
        """Divide near groups anew until enough work is done; return the work that is done."""
        groups = self.groups
        losses = [groups.loss(self.classes, g) for g in sorted(groups.members)]
        mean_cost = sum(losses) / len(losses)
        while done < until:
            dissolved, undivided = self._dissolve()
            done += 10 + 2 * len(undivided)
            old_cost = 0.0
            for g in dissolved:
                old_cost += groups.loss(self.classes, g)
            if old_cost == 0:
                continue
            temperature = _HOT * (_COLD / _HOT) ** (done / work)
            scale = math.sqrt(mean_cost * old_cost / len(dissolved))
            limit = old_cost - temperature * scale * math.log(1 - self.random.chance())
            drafts, spent = self._divide(undivided, old_cost, limit)
            done += spent
            if drafts and self._fits(dissolved, undivided, drafts):
                self._replace(dissolved, undivided, drafts)
        return done

    def _dissolve(self) -> tuple[list[int], dict[int, int]]:
        """Draw groups; return their numbers, and the people of each class of the pool."""
        groups = self.groups
        near_small = self.classes.near_small
        n_wanted = 2 + int((_MAX_DISSOLVED - 1) * self.random.chance() ** 2)
        skip_odds = 0.5 * self.random.chance()
        seed = int(self.random.chance() * self.classes.n_small)
        dissolved: list[int] = []
        undivided: dict[int, int] = {}
        for rank, c in enumerate([seed, *near_small[seed].tolist()]):
            if c < 0 or len(dissolved) == n_wanted:
                break
            for g in groups.groups_of_class[c]:
                if g < 0 or len(dissolved) == n_wanted:
                    continue
                if rank > 0 and self.random.chance() < skip_odds:
                    continue
                members = groups.members[g]
                if g in dissolved or len(undivided) + len(members) + LENDERS > self.room:
                    continue
                dissolved.append(g)
                for member, people in members.items():
                    undivided.setdefault(member, groups.unmixed[member])
                    undivided[member] += people
        self._add_lenders(undivided)
        return dissolved, undivided

    def _add_lenders(self, undivided: dict[int, int]) -> None:
        """Add large classes that are near those of the pool and have more than k people left."""
        unmixed = self.groups.unmixed
        members = list(undivided)
        turn = int(self.random.chance() * len(members))
        for nearest_large in self.classes.near_large.T:  # shape (n_classes,)
            for i in range(len(members)):
                c = int(nearest_large[members[(i + turn) % len(members)]])
                has_room = len(undivided) < len(members) + LENDERS
                if c >= 0 and has_room and c not in undivided and unmixed[c] > self.k:
                    undivided[c] = unmixed[c]

    def _divide(
        self, undivided: dict[int, int], old_cost: float, limit: float
    ) -> tuple[list[dict[int, int]], int]:
        """Move people into drafts; return the people of each class of each draft, and the work."""
        drafts: list[dict[int, int]] = []
        spent = 0.0
        work = 0
        usual_cost = 2 * self.random.chance() * old_cost / max(1, self._n_left(undivided))
        borrow_odds = self.random.chance()
        weighting = int(self.random.chance() * len(self.growth_weights))
        split_odds = self.random.chance()
        pool = list(undivided)
        while self._n_left(undivided) > 0 and len(drafts) < _MAX_DRAFTS:
            is_needed = not drafts or self._n_left(undivided) >= self.k
            if not is_needed and self.random.chance() >= borrow_odds:
                break
            seed = int(self.random.chance() * len(pool))
            while undivided[pool[seed]] == 0 or self._is_large(pool[seed]):
                seed = (seed + 1) % len(pool)
            draft, work_of_draft = self._grow(
                undivided,
                pool[seed],
                self.growth_weights[weighting],
                usual_cost,
                split_odds,
                (limit - spent) / self.k,
            )
            work += work_of_draft
            if draft is None:
                return [], work
            if sum(draft.values()) < self.k:
                for c, people in draft.items():
                    undivided[c] += people
                break
            spent += sum(draft.values()) * hull_cost(self.classes, draft)
            if spent > limit:
                return [], work
            drafts.append(draft)
        left = [c for c, n in undivided.items() if n > 0 and not self._is_large(c)]
        for c in left if drafts else []:
            spent += self._join(undivided, c, drafts)
            work += 2 * len(drafts)
            if spent > limit:
                return [], work
        return drafts, work

    def _grow(
        self,
        undivided: dict[int, int],
        seed: int,
        growth_weight: Floats,
        usual_cost: float,
        split_odds: float,
        cost_limit: float,
    ) -> tuple[dict[int, int] | None, int]:
        """Return the people of each class of a draft, or None if it costs too much; and the work.

        The draft has fewer than k people if the pool has no more.
        """
        draft: dict[int, int] = {}
        cost = 0.0
        work = 0
        choice = seed
        n = undivided[seed]
        while True:
            draft[choice] = draft.get(choice, 0) + n
            undivided[choice] -= n
            need = self.k - sum(draft.values())
            if need <= 0:
                return draft, work
            work += 6 + len(undivided) // 2
            skipped = 0
            if self.classes.n_small < _FEW:
                skipped = self.random.one_bit_in_eight()
            gains: dict[int, int] = {}
            prices: dict[int, float] = {}
            ratings: dict[int, float] = {}
            for c, people in undivided.items():
                reserved = self.k if self._is_large(c) else 0
                gains[c] = min(people - reserved, need)
                prices[c] = hull_cost(self.classes, [*draft, c])
                if gains[c] > 0:
                    weighed = growth_weight[gains[c]] * (prices[c] - cost) + prices[c]
                    ratings[c] = weighed if self._is_large(c) else weighed - usual_cost
            if not ratings:
                return draft, work
            is_skipped = {c: skipped >> i % 64 & 1 for i, c in enumerate(undivided)}
            candidates = [c for c in ratings if not is_skipped[c]] or list(ratings)
            choice = min(candidates, key=ratings.__getitem__)
            n = gains[choice]
            cost = prices[choice]
            if not self._is_large(choice) and n < undivided[choice]:
                if self.random.chance() >= split_odds:
                    n = undivided[choice]
            if cost > cost_limit:
                return None, work

    def _join(self, undivided: dict[int, int], c: int, drafts: list[dict[int, int]]) -> float:
        """Add the rest of a class to the draft that loses least by it; return how much."""
        people = undivided[c]
        rises = []
        for draft in drafts:
            cost = hull_cost(self.classes, draft)
            price = hull_cost(self.classes, [*draft, c])
            rises.append(sum(draft.values()) * (price - cost) + people * price)
        best_draft = drafts[rises.index(min(rises))]
        best_draft[c] = best_draft.get(c, 0) + people
        undivided[c] = 0
        return min(rises)

    def _fits(
        self, dissolved: list[int], undivided: dict[int, int], drafts: list[dict[int, int]]
    ) -> bool:
        """Return whether there are numbers, slots and entries for the drafts."""
        if len(drafts) > len(self.groups.free_numbers) + len(dissolved):
            return False
        if max(map(len, drafts)) > self.groups.max_classes:
            return False
        for c in undivided:
            n_homes = sum(c in draft for draft in drafts)
            n_homes += sum(g >= 0 and g not in dissolved for g in self.groups.groups_of_class[c])
            if n_homes > HOMES and not self._is_large(c):
                return False
        return True

    def _replace(
        self, dissolved: list[int], undivided: dict[int, int], drafts: list[dict[int, int]]
    ) -> None:
        groups = self.groups
        for g in dissolved:
            for c in groups.members.pop(g):
                groups.groups_of_class[c] = [-1 if h == g else h for h in groups.groups_of_class[c]]
            groups.free_numbers.append(g)
        for draft in drafts:
            g = groups.free_numbers.pop()
            groups.members[g] = {c: draft[c] for c in undivided if c in draft}
            for c in draft:
                if not self._is_large(c):
                    first_unused = groups.groups_of_class[c].index(-1)
                    groups.groups_of_class[c][first_unused] = g
        for c, people in undivided.items():
            groups.unmixed[c] = people

    def _is_large(self, c: int) -> bool:
        return c >= self.classes.n_small

    def _n_left(self, undivided: dict[int, int]) -> int:
        return sum(people for c, people in undivided.items() if not self._is_large(c))


def seats_in_python(
    classes: PackedClasses, groups: PlainGroups, n_numbers: int, first_empty: int
) -> list[int]:
    """Return a near group for each empty class, numbered as in `seats`."""
    group_of_empty = []
    for c in range(first_empty, len(classes.coordinate)):
        rises: dict[int, float] = {}  # of each group that has people of a near class
        for near_class in [*classes.near_small[c].tolist(), *classes.near_large[c].tolist()]:
            if near_class < 0:
                continue
            if groups.unmixed[near_class] > 0:
                rises[n_numbers + near_class] = 0.0
            for g in groups.groups_of_class[near_class]:
                if g >= 0:
                    members = groups.members[g]
                    added_cost = hull_cost(classes, [*members, c]) - hull_cost(classes, members)
                    rises[g] = sum(members.values()) * added_cost
        group_of_empty.append(min(rises, key=rises.__getitem__))
    return group_of_empty
