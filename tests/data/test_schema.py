"""Schemas and hierarchies: kinds from dtypes, roles, weights, trees, and errors that name the
column.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Hierarchy, Schema
from cfk_plugin.data.schema import SchemaAttribute
from cfk_plugin.errors import SchemaError

FRAME = pd.DataFrame(
    {"id": [1, 2], "age": [24, 27], "city": ["A", "B"], "pay": [1.0, 2.0], "y": [0, 1]}
)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.array([1, None], dtype="Int64"), "numeric"),
        (np.array([1, 2], dtype="uint8"), "numeric"),
        (pd.to_datetime(["2020-01-01", "2021-01-01"]), "numeric"),
        ([dt.date(2020, 1, 1), None], "numeric"),
        ([Decimal("1.5"), Decimal(2)], "numeric"),
        (pd.array([True, None], dtype="boolean"), "nominal"),
        ([True, False], "nominal"),
        (pd.array(["a", None], dtype="string"), "nominal"),
        (pd.Series(["1", "2"], dtype=object), "nominal"),
        (pd.Categorical([1, 2]), "nominal"),
        (pd.array(["2020-02-29", None], dtype="string"), "numeric"),
        (pd.array(["2020-02-30", "2020-02-29"], dtype="string"), "nominal"),
        (pd.array(["2020-02-29", "2020-02-29 10:00"], dtype="string"), "nominal"),
    ],
)
def test_kind_follows_from_the_dtype(values: Any, kind: str) -> None:
    assert (
        Schema.from_frame(pd.DataFrame({"x": pd.Series(values)}), quasi_identifiers=["x"])["x"].kind
        == kind
    )


def test_roles_weights_and_levels() -> None:
    schema = Schema.from_frame(
        FRAME,
        quasi_identifiers=["city", "age"],
        sensitive=["pay"],
        subject="id",
        target="y",
        columns={"age": Attribute(weight=3)},
        ordinal={"pay": [1.0, 2.0, 3.0]},
    )
    assert (schema.quasi_identifiers, schema.features) == (("age", "city"), ("age", "city", "pay"))
    assert (schema.private, schema.subject, schema.target) == (("pay",), "id", "y")
    assert (schema["age"].weight, schema["city"].weight) == (0.75, 0.25)
    assert schema["pay"].levels == ("1", "2", "3")  # spelled as categories are


def test_weights_are_normalised_however_the_schema_is_built() -> None:
    parts = [
        SchemaAttribute(name=n, role="quasi-identifier", weight=w)
        for n, w in (("a", 1.0), ("b", 3.0))
    ]
    schema = Schema((*parts, SchemaAttribute(name="c")))
    assert [schema[n].weight for n in "abc"] == [0.25, 0.75, 0.0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        *(
            ({role: ["zip"]}, "zip")
            for role in ("quasi_identifiers", "sensitive", "identifiers", "nominal")
        ),
        *(({role: "zip"}, "zip") for role in ("subject", "target")),
        ({"ordinal": {"zip": (0, 1)}}, "zip"),
        ({"quasi_identifiers": "age"}, "list"),
        ({"quasi_identifiers": []}, "quasi-identifier"),
        ({"sensitive": ["age"]}, "age"),
        ({"ordinal": {"city": ["A", "A"]}}, "city"),
    ],
)
def test_errors_name_the_column(options: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        Schema.from_frame(FRAME, **{"quasi_identifiers": ["age"], **options})


def test_an_attribute_is_there_once() -> None:
    schema = Schema.from_frame(FRAME, quasi_identifiers=["age"])
    with pytest.raises(SchemaError, match="'wage'"):
        schema["wage"]
    with pytest.raises(SchemaError, match="same name"):
        Schema((*schema.attributes, schema["age"]))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame([[1, 2]], columns=["age", "age"]),
        pd.DataFrame({0: [1], "age": [2]}),
        pd.DataFrame({"age": [None, None]}),
        pd.DataFrame({"age": pd.to_timedelta([1, 2])}),
        pd.DataFrame({"age": [1j, 2j]}),
    ],
)
def test_unusable_tables(frame: pd.DataFrame) -> None:
    with pytest.raises(SchemaError):
        Schema.from_frame(frame, quasi_identifiers=["age"])


TREE = {"b1": ["b", "*"], "a1": ["a", "*"], "b2": ["b", "*"], "a2": ["a", "*"], "a3": ["a", "*"]}


def test_leaves_under_a_node_are_a_range() -> None:
    tree = Hierarchy.of(TREE)
    for node, label in enumerate(tree.titles):
        assert set(tree.leaves[tree.low[node] : tree.high[node] + 1]) == {
            leaf for leaf, path in TREE.items() if label in (leaf, *path)
        }
    assert repr(tree) == "Hierarchy(5 values, 8 nodes)"


@pytest.mark.parametrize(
    ("values", "label"),
    [(["a1"], "a1"), (["a1", "a3"], "a"), (["b1", "b2"], "b"), (["a1", "b2"], "*")],
)
def test_cover_is_the_lowest_common_node(values: list[str], label: str) -> None:
    tree = Hierarchy.of(TREE)
    assert tree.titles[tree.cover(values)] == label


def test_frame_and_mapping_give_the_same_tree_and_schema_and_numbers_are_text() -> None:
    tree = Hierarchy.of(
        pd.DataFrame({"value": [9000.0, 9050.0, 2000.0], "region": ["E", "E", "A"]})
    )
    assert tree == Hierarchy.of({9000: ["E"], 9050: ["E"], 2000: ["A"]})
    assert hash(tree) == hash(Hierarchy.of({"9000": ["E"], "9050": ["E"], "2000": ["A"]}))
    assert set(tree.leaves) == {"9000", "9050", "2000"}
    assert tree != Hierarchy.of({9000: ["E"], 9050: ["A"], 2000: ["A"]})
    assert Hierarchy.of(tree) is tree
    assert tree != 3
    trees = ({"A": ["r"], "B": ["r"]}, pd.DataFrame({"value": ["A", "B"], "region": "r"}))
    one, two = (
        Schema.from_frame(
            FRAME, quasi_identifiers=["city"], columns={"city": Attribute(hierarchy=tree)}
        )
        for tree in trees
    )
    assert one == two
    assert hash(one) == hash(two)


def test_a_root_is_added() -> None:
    assert Hierarchy.of({"x": [], "y": []}).titles == ("x", "y", "*")
    assert Hierarchy.of({"x": ["all"], "y": ["all"]}).titles == ("x", "y", "all")


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"x": ["a"], "y": []},
        {"x": ["a", "r"], "y": ["a", "s"]},
        pd.DataFrame({"v": ["x", "x"], "p": "a"}),
    ],
)
def test_what_is_no_tree_is_refused(table: Any) -> None:
    with pytest.raises(SchemaError):
        Hierarchy.of(table)


def test_a_schema_says_its_roles() -> None:
    schema = Schema.from_frame(
        FRAME, quasi_identifiers=["city", "age"], sensitive=["pay"], subject="id", target="y"
    )
    assert (
        repr(schema)
        == "Schema(subject: id; quasi-identifier: age, city; sensitive: pay; target: y)"
    )


TABLE = pd.DataFrame(
    {
        "age": range(20, 50),
        "edu": pd.Categorical(["low", "mid", "high"] * 10, ["low", "mid", "high"], ordered=True),
        "sex": ["f", "m"] * 15,
    }
)
ITERABLES = [list, tuple, pd.Index, np.array, pd.Series, iter, dict.fromkeys]


@pytest.mark.parametrize("kind", ITERABLES)
@pytest.mark.parametrize("name", ["sensitive", "nominal", "nullable", "immutable", "identifiers"])
def test_lists_of_columns_are_any_iterable(name: str, kind: Any) -> None:
    expected = Schema.from_frame(TABLE, quasi_identifiers=["age"], **{name: ["sex"]})
    schema = Schema.from_frame(TABLE, quasi_identifiers=kind(["age"]), **{name: kind(["sex"])})
    assert schema == expected


@pytest.mark.parametrize("kind", [dict, pd.Series])
@pytest.mark.parametrize(
    "settings",
    [
        {"titles": {"age": "an age"}},
        {"units": {"age": "year"}},
        {"monotone": {"age": "increase"}},
        {"outcomes": {1: "granted"}},
        {"ordinal": {"sex": ["f", "m"]}},
        {"never_advise": {"sex": ["f"]}},
        {"cost": {"age": 2}},
        {"columns": {"age": Attribute(bounds=(0, 99))}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_columns_may_be_a_series(settings: dict[str, Any], kind: Any) -> None:
    (name, setting), *_ = settings.items()
    expected = Schema.from_frame(TABLE, quasi_identifiers=["age"], **settings)
    assert expected == Schema.from_frame(TABLE, quasi_identifiers=["age"], **{name: kind(setting)})


@pytest.mark.parametrize(
    "levels", [np.array(["f", "m"]), pd.Index(["f", "m"]), pd.CategoricalDtype(["f", "m"])]
)
def test_levels_are_any_list_or_a_dtype(levels: Any) -> None:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age"], ordinal={"sex": levels})
    assert schema["sex"].levels == ("f", "m")


def test_values_of_a_setting_are_any_list() -> None:
    columns = {
        "age": Attribute(bounds=TABLE["age"].agg(["min", "max"]), weight=np.float64(2)),
        "sex": Attribute(categories=pd.Series(["f", "m"])),
    }
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age"], columns=columns)
    assert schema["age"].bounds == (20, 49)
    assert schema["sex"].categories == ("f", "m")


@pytest.mark.parametrize(
    "name", ["titles", "ordinal", "monotone", "never_advise", "cost", "outcomes"]
)
def test_another_type_of_setting_names_the_argument(name: str) -> None:
    with pytest.raises(SchemaError, match=f"^{name} must be a mapping, .*; got list"):
        Schema.from_frame(TABLE, quasi_identifiers=["age"], **{name: ["age"]})


@pytest.mark.parametrize("cost", [0, -1, np.inf, np.nan, "5", None])
def test_cost_must_be_positive(cost: Any) -> None:
    with pytest.raises(SchemaError, match="'age': cost must be a"):
        Schema.from_frame(TABLE, quasi_identifiers=["age"], cost={"age": cost})


def test_only_features_have_a_cost() -> None:
    """An outcome or an identifier does not change."""
    with pytest.raises(SchemaError, match="'sex': only features can have a cost"):
        Schema.from_frame(TABLE, quasi_identifiers=["age"], target="sex", cost={"sex": 2})


def test_ordered_categories_are_levels() -> None:
    """They have the order of the dtype, unless the schema says that they have none."""
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age"], monotone={"edu": "increase"})
    assert (schema["edu"].kind, schema["edu"].levels) == ("ordinal", ("low", "mid", "high"))
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age"], nominal=["edu"])
    assert schema["edu"].kind == "nominal"
    with pytest.raises(SchemaError, match=r"'sex': monotone .* list the levels"):
        Schema.from_frame(TABLE, quasi_identifiers=["age"], monotone={"sex": "increase"})
