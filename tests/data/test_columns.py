"""One declaration per column says the same as the arguments of `Schema.from_frame`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Hierarchy, Schema
from cfk_plugin.data.columns import ColumnDeclaration
from cfk_plugin.errors import SchemaError

TABLE = pd.DataFrame(
    {
        "id": [1, 2, 3],
        "who": [7, 7, 8],
        "age": [20, 30, 40],
        "town": ["a", "b", "b"],
        "school": ["low", "high", "mid"],
        "zip": [1000, 2000, 1000],
        "pay": [1.5, 2.5, None],
        "label": [0, 1, 0],
    }
)
ZIP = {1000: ["1*"], 2000: ["2*"]}
WIDE = pd.CategoricalDtype(["a", "b", "c"])


def by_arguments(columns: dict[str, Any]) -> dict[str, Any]:
    """Write declarations as the arguments that the documentation names for them."""

    def named(key: str, choice: str) -> list[str]:
        return [name for name, column in columns.items() if column.get(key) == choice]

    def values(key: str) -> dict[str, Any]:
        return {name: column[key] for name, column in columns.items() if key in column}

    directions = {
        name: change for name, change in values("change").items() if change not in ("any", "never")
    }
    return {
        "quasi_identifiers": named("role", "quasi-identifier"),
        "sensitive": named("role", "sensitive"),
        "identifiers": named("role", "identifier"),
        "subject": next(iter(named("role", "subject")), None),
        "target": next(iter(named("role", "target")), None),
        "nominal": named("kind", "nominal"),
        "whole": named("kind", "integer"),
        "immutable": named("change", "never"),
        "monotone": directions,
        "ordinal": values("levels"),
        "hierarchies": values("hierarchy"),
        "categories": values("categories"),
        "bounds": values("bounds"),
        "bins": values("bins"),
        "weights": values("weight"),
        "never_advise": values("never_advise"),
        "titles": values("title"),
        "units": values("unit"),
        "phrases": values("phrases"),
    }


ROLES = [{}, {"role": "quasi-identifier"}, {"role": "sensitive"}, {"role": "other"}]
NUMBERS: list[dict[str, Any]] = [
    {},
    {"kind": "nominal"},
    {"kind": "integer"},
    {"bounds": (0, 99)},
    {"bounds": (99, 0)},
    {"bins": [0, 50, 99], "bounds": (0, 99)},
    {"levels": [20, 30, 40]},
    {"kind": "nominal", "categories": [20, 30, 40]},
    {"kind": "integer", "levels": [20, 30, 40]},
]
CHANGES: list[dict[str, Any]] = [
    {},
    {"change": "any"},
    {"change": "never"},
    {"change": "increase"},
    {"never_advise": [None]},
    {"never_advise": [20], "title": "an age"},
    {"change": "never", "never_advise": [20]},
]
TOWNS: list[dict[str, Any]] = [
    {},
    {"categories": WIDE},
    {"categories": ["a"]},
    {"hierarchy": {"a": ["x"], "b": ["x"]}, "weight": 2.0},
    {"levels": ["a", "b"], "change": "decrease"},
    {"never_advise": ["a"], "phrases": {"a": "in a"}},
    {"never_advise": ["a", "b"]},
    {"change": "increase", "unit": "km"},
]


def outcome(**arguments: Any) -> Any:
    try:
        return Schema.from_frame(TABLE, **arguments)
    except SchemaError as error:
        return str(error)


@pytest.mark.parametrize("nullable", [None, [], ["age", "pay"]], ids=str)
def test_columns_are_the_arguments(nullable: list[str] | None) -> None:
    n_schemas = 0
    n_refused = 0
    declarations = [*itertools.product(ROLES, NUMBERS, CHANGES, TOWNS)]
    some = declarations[::11]  # 11 shares no factor with the length of any list
    for role, numbers, change, town in some:
        columns: dict[str, Any] = {
            "id": {"role": "identifier"},
            "who": {"role": "subject"},
            "age": {**role, **numbers, **change},
            "town": {"role": "quasi-identifier", **town},
            "label": {"role": "target"},
        }
        expected = outcome(nullable=nullable, **by_arguments(columns))
        assert outcome(nullable=nullable, columns=columns) == expected
        n_schemas += isinstance(expected, Schema)
        n_refused += isinstance(expected, str)
    assert n_schemas > 50
    assert n_refused > 50


def test_columns_and_arguments_can_be_mixed() -> None:
    mixed = Schema.from_frame(
        TABLE,
        columns={"age": ColumnDeclaration(role="quasi-identifier", change="increase", weight=3)},
        quasi_identifiers=["town", "zip"],
        hierarchies={"zip": ZIP},
        weights={"town": 2},
        outcomes={1: "granted"},
    )
    assert mixed == Schema.from_frame(
        TABLE,
        quasi_identifiers=["town", "zip", "age"],
        hierarchies={"zip": Hierarchy.of(ZIP)},
        weights={"town": 2, "age": 3},
        monotone={"age": "increase"},
        outcomes={1: "granted"},
    )


def test_the_order_of_columns_does_not_matter() -> None:
    columns: dict[str, ColumnDeclaration] = {
        "age": {"role": "quasi-identifier"},
        "town": {"role": "quasi-identifier", "weight": 0.3},
        "pay": {"role": "sensitive"},
    }
    backwards = dict(reversed(columns.items()))
    assert Schema.from_frame(TABLE, columns=columns) == Schema.from_frame(TABLE, columns=backwards)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("quasi_identifiers", ["age", "town"]),
        ("sensitive", ["age"]),
        ("identifiers", ["age"]),
        ("subject", "age"),
        ("target", "age"),
        ("ordinal", {"age": [20, 30]}),
        ("nominal", ["age"]),
        ("hierarchies", {"age": ZIP}),
        ("weights", {"age": 1}),
        ("bounds", {"age": (0, 99)}),
        ("bins", {"age": [0, 99]}),
        ("categories", {"age": [20, 30]}),
        ("whole", ["age"]),
        ("immutable", ("age",)),
        ("monotone", {"age": "increase"}),
        ("never_advise", {"age": [None]}),
        ("titles", {"age": "an age"}),
        ("units", {"age": "year"}),
        ("phrases", {"age": "{} years"}),
    ],
)
def test_a_column_is_declared_once(argument: str, value: Any) -> None:
    with pytest.raises(SchemaError, match=f"'age' is declared in columns and in {argument}; move"):
        Schema.from_frame(TABLE, columns={"age": {}}, **{argument: value})


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["age"], "columns must be a mapping, column to what is declared of it"),
        ({"agee": {}}, "unknown column agee; .*did you mean 'age'"),
        ({"age": "quasi-identifier"}, "column 'age': write what is declared of it as a mapping"),
        ({"age": {"rol": "other"}}, "column 'age': unknown key rol; .*did you mean 'role'"),
        ({"age": {"role": "sensitiv"}}, "column 'age': role is one of .*did you mean 'sensitive'"),
        ({"age": {"kind": "numeric"}}, "column 'age': kind is one of .*Leave kind out"),
        ({"age": {"change": ["never"]}}, "column 'age': change is one of"),
        (
            {"id": {"role": "subject"}, "who": {"role": "subject"}},
            "columns 'id' and 'who' both have the role 'subject'",
        ),
        ({"age": {"role": "sensitive"}}, "at least one quasi-identifier"),
        ({}, "at least one quasi-identifier"),
    ],
)
def test_a_declaration_that_cannot_be_read_names_the_column(columns: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        Schema.from_frame(TABLE, columns=columns)


def test_a_subject_is_named_once() -> None:
    with pytest.raises(SchemaError, match="columns 'who' and 'id' both have the role 'subject'"):
        Schema.from_frame(TABLE, columns={"id": {"role": "subject"}}, subject="who")


@pytest.mark.parametrize("frame", [pd.DataFrame(), np.zeros((2, 2))], ids=["empty", "array"])
def test_what_is_no_table_is_refused_first(frame: Any) -> None:
    with pytest.raises(SchemaError, match="a schema needs a table"):
        Schema.from_frame(frame, columns={"age": {"role": "quasi-identifier"}})


def test_an_argument_of_the_wrong_form_is_still_refused() -> None:
    with pytest.raises(SchemaError, match="must be a list of names, not one string"):
        Schema.from_frame(
            TABLE, columns={"age": {"role": "quasi-identifier"}}, quasi_identifiers="town"
        )
