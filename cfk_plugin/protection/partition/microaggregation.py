"""Microaggregation: dividing a population into groups of at least k people that lose little.

`partition_of` divides the people of each eligibility class by `group_classes`, which works on
equivalence classes (people with equal quasi-identifiers) in these steps:

1. *Orderings* (`_orderings`): order the classes so that classes that lose little together are near.
2. *Blocks* (`_divide_blocks`): cut the first ordering of very many classes into blocks, and divide
   each block by itself.
3. *Packing* (`_pack`): lay out small classes (fewer than k people), large ones (k or more) and
   empty ones for the kernels, and list which classes are near each.
4. *First groups* (`_first_groups`): cut the ordered small classes into runs of at least k people.
   Each large class is a group of its own.
5. *Local search* (`_search`): dissolve near groups, divide their people anew, and keep what is
   cheaper; large classes lend people beyond k. See `kernels`.
6. *Empty classes* (`_seat_empty_classes`): give each a near group, whose region then covers it.

Then `_assign_rows` gives rows their groups; a keyed hash draws which people of a divided class are
in which of its groups. At last `merge_unfit` merges the groups that miss k, l-diversity or
t-closeness.

The groups depend on the population, the policy and the key, never on a query or on the order of
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.display import advance
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import in_order
from cfk_plugin.metrics.risk import l_diversity, t_closeness
from cfk_plugin.protection.axes import (
    INTERVAL,
    NOMINAL,
    TREE,
    Axis,
    AxisArrays,
    Codes,
    Floats,
    Ints,
)
from cfk_plugin.protection.class_index import index_of
from cfk_plugin.protection.partition.kernels import (
    HOMES,
    LENDERS,
    GroupMembers,
    Groups,
    PackedClasses,
    improve,
    seats,
)
from cfk_plugin.protection.partition.merging import merge_unfit
from cfk_plugin.protection.partition.partition import Partition, by_group, regions_of

# Work of a search, in comparisons of a class with a group: for each small class; at least; and at
# most. The first two are multiplied by k / 10 from k = 10 up.
_WORK = (9e3, 1e7, 2e9)
_SLICES = 32  # calls of the search, which can be interrupted between them
_SEED = 0x9E3779B97F4A7C15
_WEIGHTINGS = 16  # ways to weigh the growth of a draft in the search
_LABEL_WEIGHT = 0.03
# kinds of classes, in the order of their numbers
_SMALL = 0
_LARGE = 1
_EMPTY = 2
_ORDERINGS = 4  # at most
_HALVINGS = 62  # bits of an ordering's key
_MAX_HALVINGS_OF_AXIS = 30
_NEAR = 16  # small classes that are listed as near a class
_REACH = 12  # places to either side in an ordering where they are looked for
_NEAR_LARGE = 4  # the same of large classes
_REACH_LARGE = 2
_COMPARED_AT_ONCE = 4096  # classes whose candidates for near ones are compared at once
BLOCK = 500_000  # about the most small classes of a block
_FAR = -1e30  # where missing values are on an INTERVAL axis: farther from all others than any range

Run = Callable[[Callable[[Ints], Ints], list[Ints]], list[Ints]]
"""Calls a function with each table, in any order and place, and returns the results in the tables'
order.
"""


class ClassShares(NamedTuple):
    """How the people of equivalence classes are divided into groups, as parallel arrays.

    A share is the people of one class who are in one group. A class has one share for each group
    that it has people in; an empty class has one share.
    """

    class_index: Ints  # shape (n_shares,); row of the class in the given table
    people: Ints  # shape (n_shares,); 0 for an empty class only
    group: Ints  # shape (n_shares,), sorted; groups are numbered from 0 without gaps


# Dividing equivalence classes.


def group_classes(
    axes: AxisArrays,
    classes: Codes,
    people: ArrayLike,
    k: int,
    labels: Floats | None = None,
    *,
    run: Run = lambda work, tables: [*map(work, tables)],
) -> ClassShares:
    """Divide the people of equivalence classes into groups of at least k.

    Apart from the row numbers of the classes, the result does not depend on their order.

    Parameters
    ----------
    axes
        What the quasi-identifiers cost.
    classes : shape (n_classes, n_axes)
        Codes of the classes, which are distinct.
    people : shape (n_classes,)
        Number of people of each class; 0 for an empty one. Together they are at least k.
    k
        Least number of people of a group.
    labels : shape (n_classes,), in [0, 1]
        Groups are kept similar in them: a group that holds both 0 and 1 loses `_LABEL_WEIGHT` more,
        next to an NCP of 1.
    run
        How blocks are executed. It has no influence on them.
    """
    codes = np.ascontiguousarray(classes, np.int32)
    counts = np.asarray(people, np.int64)
    if labels is not None:
        levels, level = np.unique(labels, return_inverse=True)
        label_axis = Axis.interval(_LABEL_WEIGHT * levels, _LABEL_WEIGHT)
        axes = _joined(axes, AxisArrays.of([label_axis]))
        codes = np.column_stack([codes, level]).astype(np.int32)
    canonical = np.lexsort(codes.T[::-1])
    shares = _divide_blocks(axes, codes[canonical], counts[canonical], k, run)
    return _renumbered(shares, canonical)


def _joined(axes: AxisArrays, added_axes: AxisArrays) -> AxisArrays:
    """Return the axes of both."""
    arrays = {
        name: np.append(array, getattr(added_axes, name)) for name, array in axes._asdict().items()
    }
    for name in ("offset", "node_offset"):
        start = getattr(axes, name)
        arrays[name] = np.append(start, start[-1] + getattr(added_axes, name)[1:])
    return AxisArrays(**arrays)


def _renumbered(shares: ClassShares, canonical: Ints) -> ClassShares:
    """Return shares with groups in the order of their first classes, and classes as given.

    Parameters
    ----------
    shares
        Shares of the classes in canonical order. Numbers of groups may have gaps.
    canonical : shape (n_classes,)
        The given row of each class in canonical order.
    """
    by_class = np.lexsort((shares.group, shares.class_index))
    class_index = shares.class_index[by_class]
    people = shares.people[by_class]
    group = pd.factorize(shares.group[by_class])[0].astype(np.int64)
    sorted_shares = np.lexsort((class_index, group))
    return ClassShares(
        class_index=canonical[class_index[sorted_shares]],
        people=people[sorted_shares],
        group=group[sorted_shares],
    )


def _orderings(axes: AxisArrays, codes: Codes, people: Ints) -> list[Ints]:
    """Return up to `_ORDERINGS` orders of the classes in which near ones lose little together.

    An order follows from a k-d tree that halves the people again and again, always across the axis
    that costs most. In the first order the costs are as they are; in each further one the axes are
    discounted in a rotated succession, so that other classes become near.

    Returns
    -------
    list of arrays, shape (n_classes,)
        The numbers of the classes in each order.
    """
    n_axes = axes.kind.size
    weight = np.maximum(people, 1)
    rank = np.empty(codes.shape)  # share of the people with smaller codes, and half of equal ones
    cost = np.empty(n_axes)  # of all values that occur
    for j in range(n_axes):
        values, value = np.unique(codes[:, j], return_inverse=True)
        share = np.bincount(value, weight) / weight.sum()
        rank[:, j] = (np.cumsum(share) - share / 2)[value]
        if axes.kind[j] == INTERVAL:
            cost[j] = np.ptp(axes.position[axes.offset[j] + values])
        else:
            cost[j] = axes.weight[j] * len(values) / axes.card[j]
    orderings = []
    for turn in range(min(n_axes + 1, _ORDERINGS)):
        succession = np.roll(np.arange(n_axes), turn - 1)
        discount = 0.2**succession if turn > 0 else np.ones(n_axes)
        # what each halving of each axis would cost; shape (_MAX_HALVINGS_OF_AXIS, n_axes)
        halves = np.multiply.outer(0.5 ** np.arange(_MAX_HALVINGS_OF_AXIS), cost * discount)
        dearest = np.argsort(-halves, axis=None, kind="stable")[:_HALVINGS]
        key = np.zeros(len(codes), np.int64)
        for level, j in zip(*divmod(dearest, n_axes), strict=True):
            is_upper_half = (rank[:, j] * 2.0 ** (level + 1)).astype(np.int64) & 1
            key = 2 * key + is_upper_half
        orderings.append(np.argsort(key, kind="stable"))
    return orderings


def _divide_blocks(axes: AxisArrays, codes: Codes, people: Ints, k: int, run: Run) -> ClassShares:
    """Divide the people of all classes, block by block if there are very many.

    The blocks depend on the classes alone, not on how they are executed.
    """
    blocks = _blocks(axes, codes, people, k)
    if len(blocks) < 2 or min(people[block].sum() for block in blocks) < k:
        return _divide_block(axes, codes, people, k)

    def divide(table: Ints) -> Ints:
        shares = _divide_block(axes, table[:, :-1].astype(np.int32), table[:, -1], k)
        return np.column_stack([shares.class_index, shares.people, shares.group])

    tables = [np.column_stack([codes[block], people[block]]).astype(np.int64) for block in blocks]
    class_index = []
    share_people = []
    group = []
    n_numbers = 0
    for block, shares in zip(blocks, run(divide, tables), strict=True):
        class_index.append(block[shares[:, 0]])
        share_people.append(shares[:, 1])
        group.append(shares[:, 2] + n_numbers)
        n_numbers += int(shares[:, 2].max()) + 1
    return ClassShares(
        class_index=np.concatenate(class_index),
        people=np.concatenate(share_people),
        group=np.concatenate(group),
    )


def _blocks(axes: AxisArrays, codes: Codes, people: Ints, k: int) -> list[Ints]:
    """Return the classes of each block, runs of the first ordering with about `BLOCK` small ones.

    The list is empty if one block is enough.
    """
    n_blocks = round(np.count_nonzero(people < k) / BLOCK)
    if n_blocks < 2:
        return []
    ordering = _orderings(axes, codes, people)[0]
    n_small = np.cumsum(people[ordering] < k)
    ends = n_small[-1] * np.arange(1, n_blocks) // n_blocks
    return np.split(ordering, np.searchsorted(n_small, ends, side="right"))


def _divide_block(axes: AxisArrays, codes: Codes, people: Ints, k: int) -> ClassShares:
    """Divide the people of one block. The numbers of groups may have gaps."""
    orderings = _orderings(axes, codes, people)
    kind = np.where(people >= k, _LARGE, _SMALL)
    kind[people == 0] = _EMPTY
    # The classes are numbered anew: small, large and empty ones, each along the first ordering.
    packed = orderings[0][np.argsort(kind[orderings[0]], kind="stable")]
    number = np.argsort(packed)
    n_of_kind = np.bincount(kind, minlength=3)
    n_small = int(n_of_kind[_SMALL])
    n_with_people = n_small + int(n_of_kind[_LARGE])
    packed_orderings = [number[ordering] for ordering in orderings]
    classes = _pack(axes, codes[packed], packed_orderings, n_small, n_with_people)
    groups = _first_groups(classes, people[packed], k)
    pool = GroupMembers.empty(len(packed), axes.kind.size, max(64, 4 * k + LENDERS))
    if n_small > 0:
        _search(classes, groups, pool, k)
    group_of_empty = _seat_empty_classes(classes, groups, pool, k, n_with_people)
    shares = _shares_of(groups, group_of_empty)
    return shares._replace(class_index=packed[shares.class_index])


def _pack(
    axes: AxisArrays, codes: Codes, orderings: list[Ints], n_small: int, n_with_people: int
) -> PackedClasses:
    """Lay out the classes of a block for the kernels.

    Parameters
    ----------
    axes
        What the quasi-identifiers cost.
    codes : shape (n_classes, n_axes)
        Small classes come first, then large ones, from `n_with_people` on empty ones.
    orderings : list of arrays, shape (n_classes,)
        The numbers of these classes in each ordering.
    n_small, n_with_people
        How many classes are small, and how many are not empty.
    """
    axis_of_node = np.repeat(np.arange(axes.kind.size), np.diff(axes.node_offset))
    n_leaves = axes.node_high - axes.node_low + 1
    node_cost = axes.weight[axis_of_node] * n_leaves / axes.card[axis_of_node]
    place = axes.offset[:-1] + codes  # in the arrays of all codes; (n_classes, n_axes)
    position = np.where(codes == axes.missing, _FAR, axes.position[place])
    node = axes.node_offset[:-1] + axes.leaf_node[place]
    coordinate = np.where(axes.kind == TREE, node, codes)
    no_classes = np.empty((0, 0), np.int32)
    classes = PackedClasses(
        kind=axes.kind,
        weight=axes.weight,
        value_cost=axes.weight / axes.card,
        first_leaf=axes.node_low,
        last_leaf=axes.node_high,
        parent=axes.node_parent + axes.node_offset[axis_of_node],
        node_cost=np.where(n_leaves > 1, node_cost, 0.0),
        coordinate=np.where(axes.kind == INTERVAL, position, coordinate),
        n_small=n_small,
        near_small=no_classes,
        near_large=no_classes,
    )
    near_small = _nearest(classes, orderings, 0, n_small, _REACH, _NEAR)
    near_large = _nearest(classes, orderings, n_small, n_with_people, _REACH_LARGE, _NEAR_LARGE)
    return classes._replace(near_small=near_small, near_large=near_large)


def _nearest(
    classes: PackedClasses,
    orderings: list[Ints],
    start: int,
    stop: int,
    reach: int,
    n_near: int,
) -> NDArray[np.int32]:
    """List the classes of one kind that are nearest to each class.

    Candidates are the `reach` classes of this kind to either side of a class in each ordering.

    Parameters
    ----------
    classes
        All classes; the near ones are not used.
    orderings : list of arrays, shape (n_classes,)
        The numbers of the classes in each ordering.
    start, stop
        The first number of the kind, and the first after it.
    reach, n_near
        How far to look, and how many to list.

    Returns
    -------
    shape (n_classes, n_near)
        Numbers of classes, the cheapest to share a group with first; then -1.
    """
    lines = []  # of each ordering, its classes of the kind, then -1
    places = []  # where each class is among them
    for ordering in orderings:
        is_of_kind = (ordering >= start) & (ordering < stop)
        n_before = np.empty(len(ordering), np.int64)
        n_before[ordering] = np.cumsum(is_of_kind) - is_of_kind
        lines.append(np.append(ordering[is_of_kind], -1))
        places.append(n_before)
    n_classes = len(classes.coordinate)
    near_classes = np.full((n_classes, n_near), -1, np.int32)
    shifts = np.arange(-reach, reach + 1)
    for rows in np.array_split(np.arange(n_classes), n_classes // _COMPARED_AT_ONCE + 1):
        columns = []
        for line, place in zip(lines, places, strict=True):
            # Place -1 of a line and the place after its last class are the same, and hold -1.
            window = (place[rows, None] + shifts).clip(-1, len(line) - 1)
            columns.append(line[window])
        candidates = np.hstack(columns)  # (n_rows, n_candidates)
        candidates.sort(axis=1)
        cost = _pair_costs(classes, rows, candidates)
        is_repeated = np.diff(candidates, prepend=-1) == 0
        cost[(candidates < 0) | (candidates == rows[:, None]) | is_repeated] = np.inf
        cheapest = np.argsort(cost, axis=1, kind="stable")[:, :n_near]
        is_candidate = np.take_along_axis(cost, cheapest, 1) < np.inf
        near_classes[rows] = np.where(is_candidate, np.take_along_axis(candidates, cheapest, 1), -1)
    return near_classes


def _pair_costs(classes: PackedClasses, rows: Ints, other_classes: Ints) -> Floats:
    """Return the cost of the hull of each class with each of several others.

    Parameters
    ----------
    classes
        All classes.
    rows : shape (n_rows,)
        Numbers of classes.
    other_classes : shape (n_rows, n_others)
        Numbers of the classes that each is compared with; -1 stands for any class.

    Returns
    -------
    shape (n_rows, n_others)
    """
    cost = np.zeros(other_classes.shape)
    for j, kind in enumerate(classes.kind):
        own_coordinate = classes.coordinate[rows, j][:, None]
        other_coordinate = classes.coordinate[other_classes, j]
        if kind == INTERVAL:
            cost += np.minimum(np.abs(own_coordinate - other_coordinate), classes.weight[j])
        elif kind == NOMINAL:
            cost += np.where(own_coordinate == other_coordinate, 0.0, 2 * classes.value_cost[j])
        else:
            leaf = classes.first_leaf[own_coordinate.astype(np.int64)]
            node = other_coordinate.astype(np.int64)
            while True:
                is_outside = (leaf < classes.first_leaf[node]) | (leaf > classes.last_leaf[node])
                if not is_outside.any():
                    break
                node = np.where(is_outside, classes.parent[node], node)
            cost += classes.node_cost[node]
    return cost


def _first_groups(classes: PackedClasses, people: Ints, k: int) -> Groups:
    """Divide the small classes into runs of at least k people; each large class is a group.

    If all small classes together have fewer than k people, the nearest large class joins them.
    """
    n_small = classes.n_small
    small_people = people[:n_small]
    n_small_people = int(small_people.sum())
    small = np.arange(n_small)
    run_ends = _run_ends(small_people, k)
    n_groups = 0
    if n_small > 0:
        n_groups = len(run_ends) + 1
    run_starts = np.append(0, run_ends)
    group = np.searchsorted(run_ends, small, side="right")
    slot = small - run_starts[group]
    n_numbers = int(min(people.sum() // k, n_small_people))
    class_in_slot = np.zeros((n_numbers, 2 * k), np.int64)
    people_in_slot = np.zeros((n_numbers, 2 * k), np.int64)
    class_in_slot[group, slot] = small
    people_in_slot[group, slot] = small_people
    groups_of_class = np.full((len(people), HOMES), -1)
    groups_of_class[small, 0] = group
    unmixed = people.copy()
    unmixed[small] = 0
    if 0 < n_small_people < k:
        large = classes.near_large[0, 0]
        class_in_slot[0, n_small] = large
        people_in_slot[0, n_small] = people[large]
        unmixed[large] = 0
    return Groups(
        class_in_slot=class_in_slot,
        people_in_slot=people_in_slot,
        n_classes=(people_in_slot > 0).sum(axis=1),
        n_people=people_in_slot.sum(axis=1),
        cost=np.zeros(n_numbers),
        free_numbers=np.arange(n_numbers)[::-1].copy(),
        n_free=np.array([n_numbers - n_groups]),
        unmixed=unmixed,
        groups_of_class=groups_of_class,
    )


def _run_ends(people: Ints, k: int) -> Ints:
    """Cut a line of classes into runs of at least k people; return where all but the last end.

    A run ends as soon as it has k people, but the last one takes what would be too few for one
    more.
    """
    total = np.cumsum(people)
    ends: list[int] = []
    n_grouped = 0
    while True:
        end = int(np.searchsorted(total, n_grouped + k)) + 1
        if end >= len(people) or total[-1] - total[end - 1] < k:
            return np.array(ends, np.int64)
        ends.append(end)
        n_grouped = int(total[end - 1])


def _search(classes: PackedClasses, groups: Groups, pool: GroupMembers, k: int) -> None:
    """Improve the groups in place by local search; there is at least one small class."""
    work_per_class, least_work, most_work = _WORK
    work = max(work_per_class * classes.n_small, least_work) * max(1.0, k / 10)
    work = int(min(work, most_work))
    gained_people = np.arange(k + 1).clip(1)
    exponent = (np.arange(_WEIGHTINGS) + 0.5) / _WEIGHTINGS
    growth_weights = k / gained_people ** exponent[:, None]  # (_WEIGHTINGS, k + 1)
    state = np.array([_SEED], np.uint64)
    done = 0
    for piece in range(1, _SLICES + 1):
        until = work * piece // _SLICES
        done = improve(classes, groups, pool, k, growth_weights, done, until, work, state)
        advance(piece, _SLICES)


def _seat_empty_classes(
    classes: PackedClasses, groups: Groups, pool: GroupMembers, k: int, first_empty: int
) -> Ints:
    """Return a near group for each empty class, shape (n_empty,), numbered as in `seats`."""
    group_of_empty = np.zeros(len(classes.coordinate) - first_empty, np.int64)
    if group_of_empty.size > 0:
        seats(classes, groups, pool, k, first_empty, group_of_empty)
    return group_of_empty


def _shares_of(groups: Groups, group_of_empty: Ints) -> ClassShares:
    """Return the shares of the packed classes: of mixed groups, unmixed ones, and empty classes.

    Mixed groups keep their numbers. The unmixed group of class c has the number ``n_numbers + c``.
    """
    n_numbers, n_slots = groups.class_in_slot.shape
    is_used = np.arange(n_slots) < groups.n_classes[:, None]  # (n_numbers, n_slots)
    mixed_group, _ = np.nonzero(is_used)
    unmixed = np.flatnonzero(groups.unmixed)
    n_classes = len(groups.unmixed)
    empty = np.arange(n_classes - len(group_of_empty), n_classes)
    class_index = [groups.class_in_slot[is_used], unmixed, empty]
    people = [groups.people_in_slot[is_used], groups.unmixed[unmixed], np.zeros_like(empty)]
    group = [mixed_group, n_numbers + unmixed, group_of_empty]
    return ClassShares(
        class_index=np.concatenate(class_index),
        people=np.concatenate(people),
        group=np.concatenate(group),
    )


# Dividing the rows of a population.

_BUILT: WeakKeyDictionary[Population, dict[tuple[object, ...], Partition]] = WeakKeyDictionary()


def partition_of(
    population: Population,
    policy: PrivacyPolicy,
    eligibility: Ints,
    likely: Floats | None,
) -> Partition:
    """Return the partition of a population for a policy; built once.

    Parameters
    ----------
    population
        It has rows, or they are on a cluster.
    policy
        Only its k, l and t matter.
    eligibility : shape (n_rows,)
        A group holds rows of one eligibility class only, and none of class -1.
    likely : shape (n_classes,)
        The partial dependence of the outcome, in which groups are kept similar.
    """
    built = _BUILT.setdefault(population, {})
    likely_bytes = None if likely is None else likely.tobytes()
    key = (policy.k, policy.l, policy.t, eligibility.tobytes(), likely_bytes)
    if key not in built:
        built[key] = _build(population, policy, eligibility, likely)
    return built[key]


def _build(
    population: Population,
    policy: PrivacyPolicy,
    eligibility: Ints,
    likely: Floats | None,
) -> Partition:
    """Divide the rows of each eligibility class, and merge groups that miss k, l or t."""
    group_of_row, eligibility_of_group = _group_eligible_rows(
        population, policy.k, eligibility, likely
    )
    n_groups = len(eligibility_of_group)
    grouped = np.flatnonzero(group_of_row >= 0)
    members = by_group(group_of_row, np.arange(population.n_rows), n_groups)
    people = np.array([population.people(rows) for rows in members], dtype=np.int64)

    def is_unfit(groups: Ints) -> bool:
        rows = np.sort(np.concatenate([members[group] for group in groups]))
        return population.people(rows) < policy.k or _is_too_alike(population, policy, rows)

    # Equal records stay together, so a group may have got fewer people than its shares have.
    if (people < policy.k).any() or policy.l is not None or policy.t is not None:
        new_number, eligibility_of_group = merge_unfit(
            index_of(population).axes,
            population.cells,
            [np.unique(population.cell_of(rows)) for rows in members],
            people,
            eligibility_of_group,
            is_unfit,
        )
        group_of_row[grouped] = new_number[group_of_row[grouped]]
    regions = regions_of(
        population,
        group_of_row[grouped],
        population.cell_of(grouped),
        len(eligibility_of_group),
    )
    return Partition(population, regions, group_of_row, eligibility_of_group=eligibility_of_group)


def _group_eligible_rows(
    population: Population, k: int, eligibility: Ints, likely: Floats | None
) -> tuple[Ints, Ints]:
    """Divide each eligibility class with at least k people by itself.

    Returns
    -------
    group_of_row : shape (n_rows,)
        The group of each row; -1 for none.
    eligibility_of_group : shape (n_groups,)
        The eligibility class of each group.
    """
    group_of_row = np.full(population.n_rows, -1, dtype=np.int64)
    eligibility_of_group = np.empty(0, dtype=np.int64)
    for eligibility_class in np.unique(eligibility[eligibility >= 0]):
        rows = np.flatnonzero(eligibility == eligibility_class)
        if population.people(rows) >= k:
            group = _group_rows(population, k, rows, likely)
            group_of_row[rows] = len(eligibility_of_group) + group
            added = np.full(group.max() + 1, eligibility_class)
            eligibility_of_group = np.append(eligibility_of_group, added)
    return group_of_row, eligibility_of_group


def _group_rows(population: Population, k: int, rows: Ints, likely: Floats | None) -> Ints:
    """Divide some rows into groups of at least k people; return the group of each row."""
    counted = counts_once(population, rows)
    classes, class_of_row = np.unique(population.cell_of(rows), return_inverse=True)
    people = np.bincount(class_of_row, weights=counted, minlength=len(classes)).astype(np.int64)
    labels = None if likely is None else likely[classes]
    shares = group_classes(
        index_of(population).axes,
        population.cells[classes],
        people,
        k,
        labels,
        run=_two_at_a_time,
    )
    return _assign_rows(population, rows, counted, class_of_row, shares)


def _two_at_a_time(work: Callable[[Ints], Ints], tables: list[Ints]) -> list[Ints]:
    """Apply a function to tables of numbers, two at a time: each takes up to a gigabyte."""
    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(work, tables)]


def _assign_rows(
    population: Population, rows: Ints, counted: Ints, class_of_row: Ints, shares: ClassShares
) -> Ints:
    """Return the group of each row, shape (n_rows,).

    Parameters
    ----------
    population
        The population of the rows.
    rows : shape (n_rows,)
        Row numbers in the population.
    counted : shape (n_rows,)
        1 where a person is counted, otherwise 0.
    class_of_row : shape (n_rows,)
        The class of each row, as a row of the table that the shares refer to.
    shares
        How the people of these classes are divided.
    """
    by_size = np.lexsort((shares.people, shares.class_index))  # the largest of a class comes last
    n_classes = int(class_of_row.max()) + 1
    first_share = np.searchsorted(shares.class_index[by_size], np.arange(n_classes + 1))
    largest_share = by_size[first_share[1:] - 1]
    group = shares.group[largest_share][class_of_row]
    divided = np.flatnonzero(np.diff(first_share) > 1)
    if not len(divided):
        return group
    members = np.flatnonzero(np.isin(class_of_row, divided))
    members = members[np.argsort(class_of_row[members], kind="stable")]
    keyed_numbers = population.keyed_numbers(rows[members])
    first_member = np.searchsorted(class_of_row[members], divided)
    next_member = np.searchsorted(class_of_row[members], divided, side="right")
    for c, first, stop in zip(divided, first_member, next_member, strict=True):
        members_of_class = members[first:stop]
        group[members_of_class] = _draw_groups_by_key(
            keyed_numbers[first:stop],
            counted[members_of_class],
            shares,
            by_size[first_share[c] : first_share[c + 1]],
        )
    return group


def _draw_groups_by_key(
    keyed_numbers: NDArray[np.uint64], counted: Ints, shares: ClassShares, shares_of_class: Ints
) -> Ints:
    """Draw which members of a divided class are in which of its groups; shape (n_members,).

    Their quasi-identifiers are equal, so an adversary who cannot foresee the draw does not know
    which of them a group holds. The draw is a keyed hash of the records. It does not depend on the
    order of the table, and rows with equal records stay together.

    Parameters
    ----------
    keyed_numbers : shape (n_members,)
        The hash of each row.
    counted : shape (n_members,)
        1 where a person is counted, otherwise 0.
    shares
        How the people of all classes are divided.
    shares_of_class : shape (n_shares,)
        The shares of this class among them, the largest last. It gets who is left.
    """
    *smaller_shares, largest_share = shares_of_class.tolist()
    group = np.full(len(keyed_numbers), shares.group[largest_share])
    _, record = np.unique(keyed_numbers, return_inverse=True)
    people_of_record = np.bincount(record, weights=counted)
    n_drawn = 0  # at least one record is left for the largest share
    for share in smaller_shares:
        people = 0
        while people < shares.people[share] and n_drawn < len(people_of_record) - 1:
            group[record == n_drawn] = shares.group[share]
            people += int(people_of_record[n_drawn])
            n_drawn += 1
    return group


def counts_once(population: Population, rows: Ints) -> Ints:
    """Return 1 for one row of each person, at which the person is counted, and 0 for the others.

    The shape is that of `rows`. The order of the table does not matter.
    """
    if not population.has_several_rows:
        return np.ones(len(rows), dtype=np.int64)
    order = in_order(population.codes[rows], population.schema)
    counted = np.zeros(len(rows), dtype=np.int64)
    counted[order[population.first_rows(rows[order])]] = 1
    return counted


def _is_too_alike(population: Population, policy: PrivacyPolicy, rows: Ints) -> bool:
    """Return whether the sensitive values of some rows miss l-diversity or t-closeness."""
    if policy.l is None and policy.t is None:
        return False
    for name in population.schema.sensitive:
        all_values = population.column(name)
        values = all_values.take(rows)
        if policy.l is not None and l_diversity(values).distinct < policy.l:
            return True
        is_ordered = population.domains[name].is_interval
        if policy.t is not None and t_closeness(values, all_values, is_ordered) > policy.t:
            return True
    return False
