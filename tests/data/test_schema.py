"""Schemas: kinds from dtypes, roles, weights, errors by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.schema import Attribute, Schema
from cfk_plugin.errors import SchemaError

FRAME = pd.DataFrame({"id": [1, 2], "age": [24, 27], "city": ["A", "B"], "pay": [1.0, 2.0], "y": [0, 1]})


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
    ],
)
def test_kind_follows_from_the_dtype(values, kind):
    frame = pd.DataFrame({"x": pd.Series(values)})
    assert Schema.from_frame(frame, quasi_identifiers=["x"])["x"].kind == kind


def test_roles_and_weights():
    schema = Schema.from_frame(
        FRAME, quasi_identifiers=["city", "age"], sensitive=["pay"], subject="id", target="y", weights={"age": 3}
    )
    assert schema.quasi_identifiers == ("age", "city")
    assert schema.features == ("age", "city", "pay")
    assert (schema.private, schema.subject, schema.target) == (("pay",), "id", "y")
    assert (schema["age"].weight, schema["city"].weight) == (0.75, 0.25)


def test_weights_are_normalised_however_the_schema_is_built():
    parts = [Attribute(name=n, role="quasi-identifier", weight=w) for n, w in (("a", 1.0), ("b", 3.0))]
    schema = Schema((*parts, Attribute(name="c")))
    assert [schema[n].weight for n in "abc"] == [0.25, 0.75, 0.0]


def test_levels_are_spelled_as_categories_are():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    schema = Schema.from_frame(frame, quasi_identifiers=["x"], ordinal={"x": [1.0, 2.0, 3.0]})
    assert schema["x"].levels == ("1", "2", "3")


def test_schemas_with_hierarchies_compare_and_hash():
    tree = {"A": ["r"], "B": ["r"]}
    one, two = (Schema.from_frame(FRAME, quasi_identifiers=["city"], hierarchies={"city": tree}) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"quasi_identifiers": ["nope"]}, "nope"),
        ({"quasi_identifiers": "age"}, "list"),
        ({"quasi_identifiers": []}, "quasi-identifier"),
        ({"quasi_identifiers": ["age"], "sensitive": ["age"]}, "age"),
        ({"quasi_identifiers": ["age"], "weights": {"city": 1}}, "city"),
        ({"quasi_identifiers": ["age"], "weights": {"age": -1}}, "weights"),
        ({"quasi_identifiers": ["age"], "weights": {"age": float("nan")}}, "weight"),
        ({"quasi_identifiers": ["age"], "bounds": {"age": (3, 1)}}, "age"),
        ({"quasi_identifiers": ["city"], "bounds": {"city": (1, 3)}}, "city"),
        ({"quasi_identifiers": ["city"], "ordinal": {"city": ["A", "A"]}}, "city"),
        ({"quasi_identifiers": ["city"], "ordinal": {"other": ["A"]}}, "other"),
        ({"quasi_identifiers": ["age"], "weights": {"age": 0}}, "positive sum"),
        ({"quasi_identifiers": ["age"], "whole": ["city"]}, "city"),
    ],
)
def test_errors_name_the_column(options, named):
    with pytest.raises(SchemaError, match=named):
        Schema.from_frame(FRAME, **options)


def test_an_attribute_is_there_once():
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
def test_unusable_tables(frame):
    with pytest.raises(SchemaError):
        Schema.from_frame(frame, quasi_identifiers=["age"])
