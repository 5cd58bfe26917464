"""Schemas and hierarchies: kinds from dtypes, roles, settings, trees, and errors that name the
column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Hierarchy, Schema
from cfk_plugin.errors import SchemaError

TABLE = pd.DataFrame(
    {
        "who": [7, 7, 8],
        "age": [20, 30, 40],
        "town": ["a", "b", "b"],
        "zip": [1000, 2000, 1000],
        "edu": pd.Categorical(["low", "mid", "high"], ["low", "mid", "high"], ordered=True),
        "since": ["2020-01-01", "2021-06-01", "2020-01-01"],
        "pay": [1.5, 2.5, 3.5],
        "label": [0, 1, 0],
    }
)
ZIP = {1000: ["1*"], 2000: ["2*"]}


def schema_of(**settings: Any) -> Schema:
    """Return a schema of the table; settings replace what is declared."""
    declared = {"quasi_identifiers": ["age", "zip"], "subject": "who", "target": "label"}
    return Schema.from_frame(TABLE, **declared | settings)


# --- kinds and roles --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series(["1", "2"], dtype=object), "nominal"),
        (pd.Categorical([1, 2]), "nominal"),
        (pd.array(["2020-02-29", None], dtype="string"), "numeric"),
        (pd.array(["2020-02-30", "2020-02-29"], dtype="string"), "nominal"),
        (pd.array(["2020-02-29", "2020-02-29 10:00"], dtype="string"), "nominal"),
    ],
)
def test_kind_follows_from_dtype(values: Any, kind: str) -> None:
    """Text is numeric only if each value is a day."""
    frame = pd.DataFrame({"x": pd.Series(values)})
    assert Schema.from_frame(frame, quasi_identifiers=["x"])["x"].kind == kind


def test_columns_have_roles() -> None:
    """What is neither a quasi-identifier nor named is a private feature."""
    schema = schema_of(
        sensitive=["pay"], identifiers=["town"], ordinal={"since": TABLE["since"][:2]}
    )
    assert schema.quasi_identifiers == ("age", "zip")
    assert schema.features == ("age", "zip", "edu", "since", "pay")
    assert schema.private == ("edu", "pay", "since")
    assert (schema.subject, schema.target) == ("who", "label")
    assert schema["since"].levels == ("2020-01-01", "2021-06-01")
    for name in schema.features:
        assert name in repr(schema)


def test_ordered_categories_are_levels() -> None:
    """They have the order of the dtype, unless the schema says that they have none."""
    schema = schema_of(monotone={"edu": "increase"})
    assert (schema["edu"].kind, schema["edu"].levels) == ("ordinal", ("low", "mid", "high"))
    assert schema_of(nominal=["edu"])["edu"].kind == "nominal"
    with pytest.raises(SchemaError, match=r"'town': monotone .* list the levels"):
        schema_of(monotone={"town": "increase"})


@pytest.mark.parametrize("levels", [np.array(["b", "a"]), pd.CategoricalDtype(["b", "a"])])
def test_levels_may_be_a_dtype(levels: Any) -> None:
    """Or any list."""
    assert schema_of(ordinal={"town": levels})["town"].levels == ("b", "a")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sensitive": ["zap"]}, "zap"),
        ({"identifiers": ["zap"]}, "zap"),
        ({"nominal": ["zap"]}, "zap"),
        ({"subject": "zap"}, "zap"),
        ({"target": "zap"}, "zap"),
        ({"ordinal": {"zap": (0, 1)}}, "zap"),
        ({"quasi_identifiers": "age"}, "list"),
        ({"quasi_identifiers": []}, "quasi-identifier"),
        ({"sensitive": ["age"]}, "age"),
        ({"ordinal": {"town": ["a", "a"]}}, "town"),
        ({"cost": {"label": 2}}, "'label': only features can have a cost"),
        *(
            ({"cost": {"age": cost}}, "'age': cost must be a")
            for cost in (0, -1, np.inf, np.nan, "5")
        ),
        *(
            ({name: ["age"]}, f"^{name} must be a mapping, .*; got list")
            for name in ("titles", "ordinal", "monotone", "never_advise", "cost", "outcomes")
        ),
    ],
)
def test_errors_name_the_column(options: dict[str, Any], named: str) -> None:
    """Or the argument, if that has another type."""
    with pytest.raises(SchemaError, match=named):
        schema_of(**options)


def test_attribute_is_there_once() -> None:
    """Names are unique, and unknown ones are an error."""
    schema = schema_of()
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
    ],
)
def test_unusable_table_is_refused(frame: pd.DataFrame) -> None:
    """Columns have a name each, and values."""
    with pytest.raises(SchemaError):
        Schema.from_frame(frame, quasi_identifiers=["age"])


@pytest.mark.parametrize("kind", [tuple, pd.Index, np.array, pd.Series, iter, dict.fromkeys])
def test_lists_are_any_iterable(kind: Any) -> None:
    """Names of columns, and values of a setting."""
    names = ("sensitive", "nominal", "nullable", "immutable", "identifiers")
    for name in names:
        expected = schema_of(**{name: ["town"]})
        assert (
            schema_of(quasi_identifiers=kind(["age", "zip"]), **{name: kind(["town"])}) == expected
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"monotone": {"age": "increase"}},
        {"ordinal": {"town": ["a", "b"]}},
        {"never_advise": {"town": ["a"]}},
        {"columns": {"age": Attribute(bounds=(0, 99))}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_may_be_a_series(settings: dict[str, Any]) -> None:
    """A series is a mapping of columns."""
    series = {name: pd.Series(setting) for name, setting in settings.items()}
    assert schema_of(**series) == schema_of(**settings)


# --- rare settings of single columns ----------------------------------------------------------------


def test_settings_are_read_by_column() -> None:
    """Bounds, bins, weights, categories, hierarchies and phrases."""
    columns = {
        "age": Attribute(bounds=(18, 99), bins=[18, 50, 99], weight=np.float64(3), whole=True),
        "town": Attribute(categories=pd.Series(["a", "b", "c"]), phrases={"a": "in a"}),
        "zip": Attribute(hierarchy=ZIP, weight=1),
        "since": Attribute(bounds=("2019-01-01", "2022-01-01")),
        "pay": Attribute(bounds=TABLE["pay"].agg(["min", "max"])),
        "label": Attribute(categories=[0, 1]),
    }
    schema = schema_of(columns=columns, nullable=[], ordinal={"edu": ["low", "mid", "high"]})
    age = schema["age"]
    assert (age.bounds, age.bins, age.weight, age.dtype) == ((18, 99), (18, 50, 99), 0.75, "int64")
    assert schema["town"].categories == ("a", "b", "c")
    assert (schema["zip"].hierarchy, schema["zip"].weight) == (Hierarchy.of(ZIP), 0.25)
    assert (schema["since"].kind, schema["since"].dtype) == ("numeric", "datetime64[us]")
    assert schema["pay"].bounds == (1.5, 3.5)
    assert (schema["label"].kind, schema["label"].dtype) == ("nominal", "int64")
    assert schema.wording.phrases == {"town": {"a": "in a"}}
    assert schema.is_public


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["age"], "columns must be a mapping, column to its Attribute; got list"),
        ({"agee": Attribute()}, "columns: unknown column agee; .*did you mean 'age'"),
        ({"age": {"bounds": (0, 99)}}, r"column 'age': write .*Attribute\(.*got dict"),
        ({"who": Attribute(whole=True)}, "column 'who' is subject, .*leave it out of columns"),
        ({"label": Attribute(bins=[0, 1])}, "column 'label': only numeric features can have"),
        ({"pay": Attribute(weight=1)}, "column 'pay': only quasi-identifiers can have"),
        ({"age": Attribute(weight=-1)}, "column 'age': weight must be a finite number >= 0"),
        ({"age": Attribute(weight=float("nan"))}, "column 'age': weight must be a finite number"),
        ({"age": Attribute(weight="2")}, "column 'age': weight must be a number, got str"),
        ({"age": Attribute(weight=0), "zip": Attribute(weight=0)}, "positive sum"),
        ({"age": Attribute(bounds=3)}, "column 'age': bounds must be a list of values, got int"),
        ({"age": Attribute(bounds=(3, 1))}, r"column 'age': bounds are \(low, high\)"),
        ({"age": Attribute(bounds=(1, 2, 3))}, r"column 'age': bounds are \(low, high\)"),
        ({"town": Attribute(bounds=(1, 3))}, r"column 'town': bounds are \(low, high\)"),
        ({"age": Attribute(bins=["a", "b"])}, "column 'age': .*bins"),
        ({"town": Attribute(whole=True)}, "column 'town': whole=True is only for numeric"),
        ({"town": Attribute(categories="ab")}, "column 'town': categories must be a list"),
        ({"town": Attribute(hierarchy=3)}, "column 'town': a hierarchy is a table or a mapping"),
        ({"town": Attribute(hierarchy={})}, "column 'town': a hierarchy needs at least one value"),
    ],
)
def test_invalid_setting_names_its_column(columns: Any, text: str) -> None:
    """The error says what is expected."""
    with pytest.raises(SchemaError, match=text):
        schema_of(columns=columns)


# --- hierarchies ------------------------------------------------------------------------------------

TREE = {"b1": ["b", "*"], "a1": ["a", "*"], "b2": ["b", "*"], "a2": ["a", "*"], "a3": ["a", "*"]}


def test_leaves_of_node_are_a_range() -> None:
    """Each node has a first and a last leaf."""
    tree = Hierarchy.of(TREE)
    for node, label in enumerate(tree.titles):
        leaves = {leaf for leaf, path in TREE.items() if label in (leaf, *path)}
        assert set(tree.leaves[tree.low[node] : tree.high[node] + 1]) == leaves


@pytest.mark.parametrize(
    ("values", "label"),
    [(["a1"], "a1"), (["a1", "a3"], "a"), (["b1", "b2"], "b"), (["a1", "b2"], "*")],
)
def test_cover_is_lowest_common_node(values: list[str], label: str) -> None:
    """The node over some values has no smaller node over all of them."""
    tree = Hierarchy.of(TREE)
    assert tree.titles[tree.cover(values)] == label


def test_hierarchy_may_be_a_table() -> None:
    """Numbers are text, and equal trees are equal."""
    frame = pd.DataFrame({"value": [9000.0, 9050.0, 2000.0], "region": ["E", "E", "A"]})
    tree = Hierarchy.of(frame)
    assert set(tree.leaves) == {"9000", "9050", "2000"}
    assert tree == Hierarchy.of({9000: ["E"], 9050: ["E"], 2000: ["A"]})
    assert hash(tree) == hash(Hierarchy.of({"9000": ["E"], "9050": ["E"], "2000": ["A"]}))
    assert tree != Hierarchy.of({9000: ["E"], 9050: ["A"], 2000: ["A"]})


def test_root_is_added_to_forests() -> None:
    """A tree that has a root keeps it."""
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
def test_other_graphs_are_refused(table: Any) -> None:
    """Paths of one length, one parent each, and every value once."""
    with pytest.raises(SchemaError):
        Hierarchy.of(table)
