"""Each kernel of the partition computes what the plain Python function beside it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cfk_plugin.protection.axes import Axis, AxisArrays, Codes, Floats, Ints
from cfk_plugin.protection.axes import plain_hull_cost as cost_of_codes
from cfk_plugin.protection.class_index import ClassIndex
from cfk_plugin.protection.partition import microaggregation
from cfk_plugin.protection.partition.kernels import (
    HOMES,
    LENDERS,
    GroupMembers,
    Groups,
    PackedClasses,
    PlainGroups,
    PlainRandom,
    PlainSearch,
    hull_cost,
    improve,
    seats,
    seats_in_python,
)
from cfk_plugin.protection.partition.merging import GroupHulls
from cfk_plugin.protection.partition.microaggregation import group_classes
from cfk_plugin.protection.partition.neighbor_kernels import (
    RowTree,
    nearest_rows,
    nearest_rows_in_python,
    scan_rows,
    scan_rows_in_python,
)

SEED = 0x9E3779B97F4A7C15


def some_axes(seed: int) -> AxisArrays:
    """Return up to four axes of all kinds."""
    tree = Axis.tree([0, 0, 0, 1, 2, 3, 2], [3, 1, 0, 1, 2, 3, 3], [-1, 0, 1, 1, 6, 6, 0], 0.2)
    ages = Axis.interval(np.linspace(0, 0.3, 12), 0.3, missing=True)
    days = Axis.interval(np.linspace(0, 0.2, 9) ** 2, 0.2)
    axes = [ages, Axis.nominal(7, 0.25), tree, days]
    return AxisArrays.of([[*axes], axes[:1], axes[1:3], axes[:3]][seed % 4])


@dataclass
class Block:
    """A few classes with the first groups of the search."""

    axes: AxisArrays
    codes: Codes  # shape (n_classes, n_axes), as they are packed
    people: Ints
    classes: PackedClasses
    groups: Groups
    pool: GroupMembers
    k: int
    room: int
    n_with_people: int


def some_block(seed: int) -> Block:
    """Return classes of all sizes; some small ones, some large ones, some empty ones."""
    rng = np.random.default_rng(seed)
    axes = some_axes(seed)
    k = int(rng.integers(2, 7))
    n_classes = int(rng.integers(8, 70))
    if seed % 8 == 0:
        n_classes = 300  # so many small classes that the search skips no candidates
    codes = np.unique(rng.integers(0, np.diff(axes.offset), (n_classes, axes.kind.size)), axis=0)
    people = rng.choice([0, 1, 1, 1, 2, 3, k, 3 * k], len(codes))
    people[:2] = 1, 3 * k  # a small and a large class
    kind = np.where(people >= k, 1, 0)
    kind[people == 0] = 2
    order = np.argsort(kind, kind="stable")
    codes = codes[order].astype(np.int32)
    people = people[order]
    orderings = microaggregation._orderings(axes, codes, people)
    n_small = int((kind == 0).sum())
    n_with_people = int((kind < 2).sum())
    classes = microaggregation._pack(axes, codes, orderings, n_small, n_with_people)
    groups = microaggregation._first_groups(classes, people, k)
    room = max(24, 2 * k + LENDERS)
    pool = GroupMembers.empty(len(codes), axes.kind.size, room)
    return Block(axes, codes, people, classes, groups, pool, k, room, n_with_people)


def growth_weights(k: int) -> Floats:
    exponent = (np.arange(16) + 0.5) / 16
    return np.asarray(k / np.arange(k + 1).clip(1) ** exponent[:, None])


@pytest.mark.parametrize("seed", range(16))
def test_search_divides_as_the_plain_search_does(seed: int) -> None:
    block = some_block(seed)
    plain = PlainSearch(
        classes=block.classes,
        groups=PlainGroups.of(block.groups),
        k=block.k,
        room=block.room,
        growth_weights=growth_weights(block.k),
        random=PlainRandom(SEED),
    )
    state = np.array([SEED], np.uint64)
    weights = growth_weights(block.k)
    done = plain_done = 0
    work = 20_000
    first_groups = PlainGroups.of(block.groups)
    for until in (5_000, 12_000, work):
        done = improve(
            block.classes, block.groups, block.pool, block.k, weights, done, until, work, state
        )
        plain_done = plain.improve(plain_done, until, work)
        assert done == plain_done
        assert PlainGroups.of(block.groups) == plain.groups
        assert int(state[0]) == plain.random.state
        assert (block.pool.column_of_class == -1).all()
    if len(first_groups.members) > 1:
        assert plain.groups != first_groups, "the search replaces groups"


@pytest.mark.parametrize("seed", range(16))
def test_search_keeps_what_its_groups_promise(seed: int) -> None:
    block = some_block(seed)
    state = np.array([SEED], np.uint64)
    weights = growth_weights(block.k)
    groups = block.groups
    improve(block.classes, groups, block.pool, block.k, weights, 0, 30_000, 30_000, state)
    people = groups.unmixed.copy()
    homes: list[set[int]] = [set() for _ in people]
    for g, members in PlainGroups.of(groups).members.items():
        assert groups.n_people[g] == sum(members.values()) >= block.k
        assert groups.cost[g] == pytest.approx(hull_cost(block.classes, members), abs=1e-12)
        for c, n in members.items():
            people[c] += n
            homes[c].add(g)
    assert people.tolist() == block.people.tolist(), "everyone is in one group"
    assert not ((groups.unmixed > 0) & (groups.unmixed < block.k)).any()
    for c in range(block.classes.n_small):
        assert {g for g in groups.groups_of_class[c].tolist() if g >= 0} == homes[c]
        assert len(homes[c]) <= HOMES
    free = groups.free_numbers[: groups.n_free[0]].tolist()
    assert sorted(free) == np.flatnonzero(groups.n_classes == 0).tolist()


@pytest.mark.parametrize("seed", range(16))
def test_empty_classes_get_the_groups_that_plain_python_chooses(seed: int) -> None:
    block = some_block(seed)
    state = np.array([SEED], np.uint64)
    weights = growth_weights(block.k)
    improve(block.classes, block.groups, block.pool, block.k, weights, 0, 3_000, 3_000, state)
    chosen = np.zeros(len(block.codes) - block.n_with_people, np.int64)
    seats(block.classes, block.groups, block.pool, block.k, block.n_with_people, chosen)
    n_numbers = block.groups.n_classes.size
    groups = PlainGroups.of(block.groups)
    assert chosen.tolist() == seats_in_python(block.classes, groups, n_numbers, block.n_with_people)


@pytest.mark.parametrize("seed", range(12))
def test_plain_hull_costs_are_those_of_the_codes(seed: int) -> None:
    """The packed classes, and the hulls that are merged, cost what the reference says."""
    block = some_block(seed)
    rng = np.random.default_rng(seed)
    groups = [rng.choice(len(block.codes), int(rng.integers(1, 6))) for _ in range(20)]
    anywhere = np.zeros(block.axes.kind.size)
    expected = [
        cost_of_codes(block.axes, block.codes[members], block.codes[members[0]], anywhere)
        for members in groups
    ]
    assert [hull_cost(block.classes, members) for members in groups] == pytest.approx(expected)
    hulls = GroupHulls(block.axes, block.codes, groups, np.ones(len(groups), np.int64))
    assert hulls._loss.tolist() == pytest.approx(expected)


def test_order_of_classes_and_of_blocks_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(microaggregation, "BLOCK", 20)
    block = some_block(8)
    rng = np.random.default_rng(8)
    assert len(microaggregation._blocks(block.axes, block.codes, block.people, block.k)) > 2
    order = rng.permutation(len(block.codes))

    def backwards(work: Any, tables: list[Ints]) -> list[Ints]:
        return [work(table) for table in tables[::-1]][::-1]

    shares = group_classes(block.axes, block.codes, block.people, block.k)
    other = group_classes(
        block.axes, block.codes[order], block.people[order], block.k, run=backwards
    )
    assert sorted(zip(order[other.class_index], other.people, other.group, strict=True)) == sorted(
        zip(*shares, strict=True)
    )


def rows_with_gaps(rng: np.random.Generator, n: int) -> tuple[Codes, Floats]:
    """Return codes of two numbers (the last code is missing) and two categories, and positions."""
    codes = rng.integers(0, (11, 8, 4, 3), (n, 4)).astype(np.int32)
    return codes, np.append(np.linspace(0, 1, 10), np.inf)


def row_tree(codes: Codes, positions: Floats) -> RowTree:
    axes = [Axis.interval(positions[:-1], 1.0, missing=True)]
    axes += [Axis.interval(positions[:7], 1.0, missing=True)]
    axes += [Axis.nominal(n, 1.0, card=2) for n in (4, 3)]
    _, tree, _ = ClassIndex.build(codes, np.ones(len(codes), np.int64), AxisArrays.of(axes))

    def placed(some: Codes) -> np.ndarray:
        places = some.astype(np.float32)
        places[:, 0] = positions[some[:, 0]]
        places[:, 1] = np.append(positions[:7], np.inf)[some[:, 1]]
        return places

    return RowTree(
        tree.start, tree.stop, tree.child, placed(tree.low), placed(tree.high), placed(tree.codes)
    )


def places_near(rng: np.random.Generator, tree: RowTree) -> Iterator[Floats]:
    """Yield rows, rows with a number moved, and rows with a missing number or another category."""
    for row in tree.rows[rng.choice(len(tree.rows), 12)].astype(np.float64):
        yield row
        yield np.append(rng.random(2), row[2:])
        yield np.array([np.inf, row[1], -1, row[3]])


@pytest.mark.parametrize("exclude_same", [False, True])
@pytest.mark.parametrize(("seed", "k"), [(0, 1), (1, 1), (2, 3), (3, 40)])
def test_tree_finds_the_rows_that_plain_python_finds(seed: int, k: int, exclude_same: bool) -> None:
    rng = np.random.default_rng(seed)
    n_rows = 30 if k == 40 else 400  # once fewer than k
    tree = row_tree(*rows_with_gaps(rng, n_rows))
    for place in places_near(rng, tree):
        found, distances, limit = nearest_rows(tree, place, 2, k, 1e-6, exclude_same)
        expected = nearest_rows_in_python(tree.rows, place, 2, k, 1e-6, exclude_same)
        within = distances <= limit
        order = np.argsort(found[within])
        assert found[within][order].tolist() == expected[0]
        assert distances[within][order].tolist() == pytest.approx(expected[1])
        assert limit == pytest.approx(expected[2])


@pytest.mark.parametrize("n_rows", [1, 300, 9000])
@pytest.mark.parametrize("seed", range(3))
def test_scan_finds_the_rows_that_plain_python_finds(seed: int, n_rows: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((5, n_rows)).astype(np.float32)
    rows[:3][rng.random((3, n_rows)) < 0.1] = np.nan
    rows[3:] = rng.integers(0, 4, (2, n_rows))
    places = rng.random((7, 5)).astype(np.float32)
    places[:, :3][rng.random((7, 3)) < 0.2] = np.nan
    places[:, 3:] = rng.integers(-1, 4, (7, 2))
    cost = (0.1 * rng.random(n_rows)).astype(np.float32)
    from_missing = rng.random((7, 3)).astype(np.float32)
    slack = np.full(7, 0.05)
    place, row = scan_rows(rows, cost, places, from_missing, 3, slack, 1e-5)
    found = set(zip(place.tolist(), row.tolist(), strict=True))
    expected = scan_rows_in_python(rows, cost, places, from_missing, 3, slack, 1e-5)
    assert len(found) == len(place)
    assert found >= expected
    if n_rows < 4096:  # one block, in which the limit is known from the start
        assert found == expected
