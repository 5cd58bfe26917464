"""Hierarchies: order of the leaves, covers, errors."""

from __future__ import annotations

import pandas as pd
import pytest

from cfk_plugin.data.region import to_text
from cfk_plugin.data.schema import Hierarchy
from cfk_plugin.errors import SchemaError

TREE = {"b1": ["b", "*"], "a1": ["a", "*"], "b2": ["b", "*"], "a2": ["a", "*"], "a3": ["a", "*"]}


def test_leaves_under_a_node_are_a_range():
    tree = Hierarchy.of(TREE)
    for node, label in enumerate(tree.labels):
        under = set(tree.values_under(node))
        assert under == {leaf for leaf, path in TREE.items() if label in (leaf, *path)}


@pytest.mark.parametrize(
    ("values", "label"), [(["a1"], "a1"), (["a1", "a3"], "a"), (["b1", "b2"], "b"), (["a1", "b2"], "*")]
)
def test_cover_is_the_lowest_common_node(values, label):
    tree = Hierarchy.of(TREE)
    assert tree.labels[tree.cover(values)] == label


def test_frame_and_mapping_give_the_same_tree_and_numbers_are_text():
    frame = pd.DataFrame({"value": [9000.0, 9050.0, 2000.0], "region": ["E", "E", "A"]})
    tree = Hierarchy.of(frame)
    assert tree == Hierarchy.of({9000: ["E"], 9050: ["E"], 2000: ["A"]})
    assert hash(tree) == hash(Hierarchy.of({"9000": ["E"], "9050": ["E"], "2000": ["A"]}))
    assert set(tree.leaves) == {"9000", "9050", "2000"}
    assert tree != Hierarchy.of({9000: ["E"], 9050: ["A"], 2000: ["A"]})
    assert Hierarchy.of(tree) is tree
    assert tree.__eq__(3) is NotImplemented


def test_a_root_is_added():
    assert Hierarchy.of({"x": [], "y": []}).labels == ("x", "y", "*")
    assert Hierarchy.of({"x": ["all"], "y": ["all"]}).labels == ("x", "y", "all")


@pytest.mark.parametrize(
    "table", [{}, {"x": ["a"], "y": []}, {"x": ["a", "r"], "y": ["a", "s"]}, pd.DataFrame({"v": ["x", "x"], "p": "a"})]
)
def test_what_is_no_tree_is_refused(table):
    with pytest.raises(SchemaError):
        Hierarchy.of(table)


def test_repr_shows_counts():
    assert repr(Hierarchy.of(TREE)) == "Hierarchy(5 values, 8 nodes)"


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (3.0, "3"), ("3", "3"), (3.5, "3.5"), (True, "True")])
def test_one_spelling(value, text):
    assert to_text(value) == text
