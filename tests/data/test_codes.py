"""Codes: every column comes back as it was, and values without a code are NaN."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Hierarchy
from cfk_plugin.data.codes import MISSING, Codes, Column, gaps
from cfk_plugin.data.schema import SchemaAttribute
from cfk_plugin.errors import PopulationError
from worlds import World

TREE = Hierarchy.of({"Aa": ["North"], "Bree": ["North"], "Ceel": ["South"], "Diest": ["South"]})


def read(series: pd.Series, **declared: Any) -> Column:
    return Column.read(series, SchemaAttribute(name="x", **declared))


def test_codes_ignore_the_dtype() -> None:
    """Numbers, texts and categories are the same values, however a table has them."""
    number = read(pd.Series([1, 2, 3]), kind="numeric")
    for dtype in ("float32", "Int64", "string", object, "category"):
        assert number.encode(pd.Series([3, 1], dtype=dtype)).tolist() == [3, 1]
    category = read(pd.Series(["1", "2", "3"], dtype=object))
    for values in ([3, 1], [3.0, 1.0], ["3.0", "1"], pd.Categorical([3, 1])):
        assert category.encode(pd.Series(values)).tolist() == [2, 0]
    truth = read(pd.Series([True, False]))
    for values in (["true", "False"], [1, 0], ["1.0", "0.0"], [True, False]):
        assert truth.encode(pd.Series(values)).tolist() == [1, 0]


def test_unknown_values_have_no_code() -> None:
    """NaN stands for a category, or a gap, that the table lacks, and for what is no number."""
    category = read(pd.Series(["a", "b"]))
    codes = category.encode(pd.Series(["b", "c", "a.0", None]))
    np.testing.assert_array_equal(codes, [1, np.nan, np.nan, np.nan])
    number = read(pd.Series([1.0, 2.0]), kind="numeric")
    codes = number.encode(pd.Series([2, "x", None, np.inf, -1e30], dtype=object))
    np.testing.assert_array_equal(codes, [2, np.nan, MISSING, np.nan, np.nan])


@pytest.mark.parametrize(
    ("kept", "others"),
    [
        (
            7,
            ["2020-01-01", pd.Timestamp("2020-01-01"), "x", "1_0", "inf", 10**400, [7], "\ud800"],
        ),
        (
            "2020-02-29",
            [7, 1e9, True, "20200101", "yesterday", "2020-13-45", [], "\ud800"],
        ),
    ],
)
def test_values_of_other_types_fail(kept: Any, others: list[Any]) -> None:
    """Neither a value alone nor one beside a readable value, which keeps its code."""
    column = read(pd.Series([kept, kept]), kind="numeric")
    for other in others:
        alone = column.encode(pd.Series([other], dtype=object))
        both = column.encode(pd.Series([kept, other], dtype=object))
        assert np.isnan([alone[0], both[1]]).all(), other
        assert both[0] == column.values[0]


def test_float_noise_has_one_code() -> None:
    """A number that differs by rounding is the training value; another one stays as it is."""
    column = read(pd.Series([0.3, 0.5, 100.0]), kind="numeric")
    assert column.encode(pd.Series([0.1 + 0.2, 0.5 + 1e-4])).tolist() == [0.3, 0.5 + 1e-4]
    narrow = read(pd.Series([0.3, 0.5]), kind="numeric")
    assert narrow.encode(pd.Series([float(np.float32(0.3))])).tolist() == [0.3]
    tiny = read(pd.Series([1e-12, 1e-12]), kind="numeric")
    assert tiny.encode(pd.Series([2e-12])).tolist() == [2e-12]


def test_decode_widens_numbers_when_needed() -> None:
    """Whole numbers become floats for decimals, gaps and numbers beyond their dtype."""
    column = read(pd.Series([3, -1], dtype="int8"), kind="numeric")
    assert column.decode(np.array([3.0, 120.0])).dtype == np.int8
    assert column.decode(np.array([3.0, 200.0])).tolist() == [3.0, 200.0]
    assert column.decode(np.array([3.0, 0.5])).tolist() == [3.0, 0.5]
    np.testing.assert_array_equal(column.decode(np.array([3.0, MISSING])), [3.0, np.nan])
    longs = read(pd.Series([3, -1]), kind="numeric")
    assert longs.decode(np.array([2.0**62])).tolist() == [2**62]
    assert longs.decode(np.array([2.0**63])).tolist() == [2.0**63]


@pytest.mark.parametrize(
    ("series", "declared", "message"),
    [
        (pd.Series([1, "1"], dtype=object), {}, "two ways"),
        (pd.Series(["1", "1.0"]), {}, "two ways"),
        (pd.Series(["true", "True"]), {}, "two ways"),
        (pd.Series([True, "yes"], dtype=object), {}, "two ways"),
        (pd.Series(["a", "z"]), {"kind": "ordinal", "levels": ("a", "b")}, "1 values"),
        (pd.Series(["Aa", "Z"]), {"kind": "hierarchical", "hierarchy": TREE}, "1 values"),
        (pd.Series([2**53 + 1, 0]), {"kind": "numeric"}, "float64"),
        (pd.Series([Decimal("0.12345678901234567890")]), {"kind": "numeric"}, "float64"),
        (pd.to_datetime(pd.Series(["2020-01-01 00:00:00.123456789"])), {"kind": "numeric"}, "date"),
        (pd.Series([1.0, np.inf]), {"kind": "numeric"}, "infinite"),
        (pd.Series(["1", "x"]), {"kind": "numeric"}, "non-numeric"),
        (pd.Series([-1e30, 1.0]), {"kind": "numeric"}, "scale"),
        (pd.Series([[1], [2]]), {}, "cells of type list"),
    ],
)
def test_ambiguous_columns_raise(series: pd.Series, declared: Any, message: str) -> None:
    """Values that codes would mix up, or that are undeclared, are an error without values."""
    with pytest.raises(PopulationError, match=message) as error:
        read(series, **declared)
    assert "1234567" not in str(error.value)
    assert "z" not in str(error.value).split()


@pytest.mark.parametrize("name", ["patients", "residents"])
def test_tables_round_trip(name: str, request: pytest.FixtureRequest) -> None:
    """A table comes back as it was, with its columns in the order of the schema."""
    world: World = request.getfixturevalue(name)
    codes = Codes.read(world.table, world.schema)
    rows = codes.encode(world.table)
    features = world.table[list(world.schema.features)]
    pd.testing.assert_frame_equal(codes.decode(rows), features)
    again = codes.rows_of(rows[:, codes.quasi], rows[:, codes.private])
    np.testing.assert_array_equal(again, rows)
    assert {codes.names[j] for j in codes.quasi} == set(world.roles["quasi_identifiers"])


def test_gaps_are_shares_of_spans() -> None:
    """Categories, and a number and a missing one, are 1 apart; two missing values are equal."""
    spans = np.array([4.0, 1.0])
    is_line = np.array([True, False])
    a = np.array([[1.0, 0.0], [MISSING, 3.0], [MISSING, 0.0]])
    b = np.array([[3.0, 0.0], [2.0, 1.0], [MISSING, 2.0]])
    assert gaps(a, b, spans, is_line).tolist() == [[0.5, 0.0], [1.0, 1.0], [0.0, 1.0]]
