"""Groups of at least k people: who lends to whom, cells of nobody, labels, and impossible requests."""

from __future__ import annotations

import numpy as np
import pytest

from cfk_plugin.protection.axes import Axis, AxisArrays
from cfk_plugin.protection.groups import group_cells
from reference import hull_cost


def line(values, weight=1.0):
    return AxisArrays.of([Axis.interval(np.linspace(0, weight, values), weight)])


def groups_of(shares):
    """The shares as a list of dictionaries from cell to people."""
    members = [{} for _ in range(shares.group.max() + 1)]
    for cell, people, group in zip(shares.cell, shares.people, shares.group, strict=True):
        members[group][int(cell)] = int(people)
    return members


def codes(*values):
    return np.array(values, np.int32).reshape(len(values), -1)


def test_neighbours_share_a_group():
    shares = group_cells(line(11), codes(0, 1, 9, 10), [1, 1, 1, 1], 2)
    assert groups_of(shares) == [{0: 1, 1: 1}, {2: 1, 3: 1}]


def test_large_cells_lend_people_and_keep_k():
    shares = group_cells(line(11), codes(0, 1, 10), [2, 9, 8], 5)
    assert groups_of(shares) == [{0: 2, 1: 3}, {1: 6}, {2: 8}]


def test_a_cell_is_split_where_that_helps():
    shares = group_cells(line(11), codes(0, 1, 2), [2, 2, 2], 3)
    assert groups_of(shares) == [{0: 2, 1: 1}, {1: 1, 2: 2}]


def test_a_large_cell_is_taken_whole_where_nobody_else_is_left():
    shares = group_cells(line(11), codes(0, 3, 9), [2, 5, 5], 5)
    assert groups_of(shares) == [{0: 2, 1: 5}, {2: 5}]


def test_cells_of_nobody_join_a_group_that_need_not_grow():
    shares = group_cells(line(11), codes(0, 1, 2, 9, 10), [2, 0, 2, 4, 0], 4)
    assert groups_of(shares) == [{0: 2, 1: 0, 2: 2}, {3: 4, 4: 0}]


def test_cells_of_nobody_join_where_fewest_pay():
    shares = group_cells(line(11), codes(0, 5, 10), [90, 0, 10], 10)
    assert groups_of(shares) == [{0: 90}, {1: 0, 2: 10}]


def test_missing_values_keep_apart_from_numbers():
    axes = AxisArrays.of([Axis.interval(np.linspace(0, 0.5, 5), 0.5, missing=True), Axis.nominal(4, 0.5)])
    shares = group_cells(axes, codes((5, 0), (5, 1), (0, 0), (2, 1)), [1, 1, 1, 1], 2)
    assert groups_of(shares) == [{2: 1, 3: 1}, {0: 1, 1: 1}]


def test_with_k_one_every_cell_is_a_group():
    shares = group_cells(line(5), codes(3, 0, 4), [1, 7, 2], 1)
    assert groups_of(shares) == [{1: 7}, {0: 1}, {2: 2}]


def test_as_few_as_k_people_are_one_group():
    shares = group_cells(line(5), codes(0, 2, 4), [1, 2, 1], 4)
    assert groups_of(shares) == [{0: 1, 1: 2, 2: 1}]


def test_similar_labels_share_a_group():
    axes = AxisArrays.of([Axis.nominal(8, 1.0)])
    cells, labels = codes(*range(8)), [0, 1, 0, 1, 0, 1, 0, 1]
    for group in groups_of(group_cells(axes, cells, np.ones(8, int), 4, labels=np.array(labels, float))):
        assert len({labels[c] for c in group}) == 1


def test_a_label_weight_of_zero_changes_nothing():
    rng = np.random.default_rng(3)
    cells, people = np.unique(rng.integers(0, 40, (60, 1)), axis=0, return_counts=True)
    plain = group_cells(line(40), cells, people, 4)
    labelled = group_cells(line(40), cells, people, 4, labels=np.zeros(len(cells)), label_weight=0.0)
    assert groups_of(plain) == groups_of(labelled)


def test_a_search_is_better_than_none(monkeypatch):
    rng = np.random.default_rng(1)
    axes = AxisArrays.of([Axis.interval(np.linspace(0, 0.5, 30), 0.5), Axis.nominal(12, 0.5)])
    cells, people = np.unique(rng.integers(0, [30, 12], (300, 2)), axis=0, return_counts=True)

    def loss():
        groups = groups_of(group_cells(axes, cells, people, 6))
        return sum(sum(g.values()) * hull_cost(axes, cells[list(g)], cells[next(iter(g))], np.zeros(2)) for g in groups)

    searched = loss()
    monkeypatch.setattr("cfk_plugin.protection.groups._STEPS", 0)
    assert searched < loss()


def test_refuses_what_is_impossible():
    with pytest.raises(ValueError, match="4 people cannot be divided"):
        group_cells(line(5), codes(0, 1), [2, 2], 5)
