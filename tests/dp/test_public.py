"""Public domains: declared, never read from rows; codes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Population, Schema
from cfk_plugin.dp import PublicDomain, infer_domains
from cfk_plugin.errors import PrivacyLeakWarning, SchemaError

DECLARED: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex"],
    "bounds": {"age": (17, 90), "kids": (0, 5), "pay": (0, 100), "since": ("2019-01-01", "2021-01-01")},
    "bins": {"debt": [0, 1, 1000, 5000]},
    "categories": {"sex": ["m", "f", "x"], "smokes": [True, False]},
    "ordinal": {"level": [1, 2, 3]},
    "hierarchies": {"town": {"A": ["north"], "B": ["north"], "C": ["south"]}},
    "nullable": ["age"],
    "whole": ["age", "kids", "debt"],
}


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": pd.array([20, 30, 77, None], dtype="Int64"),
            "kids": [0, 1, 2, 5],
            "sex": ["m", "f", "f", "m"],
            "pay": [1.5, 2.5, 99.0, 100.0],
            "since": pd.to_datetime(["2020-01-01", "2019-01-01", "2020-06-01", "2021-01-01"]),
            "debt": [0, 1, 999, 5000],
            "smokes": [True, False, True, True],
            "level": [1, 2, 3, 1],
            "town": ["A", "B", "C", "A"],
        }
    )


def domain(train: pd.DataFrame | None = None, **changes: Any) -> PublicDomain:
    train = table() if train is None else train
    return PublicDomain.of(Population.from_frame(train, Schema.from_frame(train, **{**DECLARED, **changes})))


def test_sizes_follow_from_what_is_declared_alone() -> None:
    # 16 bins of bounds and missing; a bin per whole number; categories; declared bins; levels; leaves
    assert domain().sizes == (17, 6, 3, 16, 16, 3, 2, 3, 3)
    assert domain(table().head(2)).sizes == domain().sizes


def test_a_number_belongs_to_the_bin_that_starts_with_it_and_the_last_bin_is_closed() -> None:
    codes = domain().codes(table())
    assert codes[:, 1].tolist() == [0, 1, 2, 5]
    assert codes[:, 5].tolist() == [0, 1, 1, 2]
    assert codes[:, 0].tolist() == [0, 2, 13, 16]


def test_numbers_outside_of_the_bounds_count_as_the_nearest_and_undeclared_values_as_none() -> None:
    other = table().assign(kids=[-3, 9, 1, 1], sex=["m", "q", None, "f"], pay=[np.inf, np.nan, -1.0, 200.0])
    codes = domain().codes(other)
    assert codes[:, 1].tolist() == [0, 5, 1, 1]
    assert codes[:, 2].tolist() == [0, -1, -1, 1]
    assert codes[:, 3].tolist() == [-1, -1, 0, 15]
    assert domain().outside(other) == {"sex": 2, "pay": 2}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_is_drawn_for_codes_has_these_codes(seed: int) -> None:
    random, found = np.random.default_rng(seed), domain()
    codes = np.column_stack([random.integers(0, size, 50) for size in found.sizes]).astype(np.int32)
    drawn = found.draw(codes, random)
    assert found.codes(drawn).tolist() == codes.tolist()


def test_what_is_drawn_has_the_types_that_are_declared_whatever_the_tables_are() -> None:
    categories = {**DECLARED["categories"], "sex": pd.CategoricalDtype(["m", "f", "x"])}
    declared = Schema.from_frame(table(), **{**DECLARED, "categories": categories})
    for other in (table(), table().astype(object), table().astype(str)):
        found = PublicDomain.of(Population.from_frame(other, declared))
        drawn = found.draw(domain().codes(table()), np.random.default_rng(0))
        # a number with gaps is float64; dates count in microseconds
        expected = [*table().dtypes.drop("age").drop("sex").replace(table()["since"].dtype, "datetime64[us]")]
        assert drawn.dtypes.drop(["age", "sex"]).tolist() == expected
        assert drawn["age"].dtype == "float64"
        assert drawn["sex"].cat.categories.tolist() == ["m", "f", "x"]
        assert drawn["age"].isna().tolist() == [False, False, False, True]
        assert (drawn["age"].dropna() % 1 == 0).all()


def test_a_missing_declaration_is_refused_by_name_and_without_a_value() -> None:
    with pytest.raises(SchemaError) as caught:
        domain(bounds={}, categories={}, nullable=None)
    said = str(caught.value)
    for lack in ("'age' lacks bounds or bins and whether it is in nullable", "'sex' lacks categories", "'debt' lacks"):
        assert lack in said
    assert not any(str(value) in said for value in ("77", "99.0", "5000", "2020"))


def test_inferring_warns_and_is_remembered() -> None:
    train = table()
    schema = Schema.from_frame(train, quasi_identifiers=["age", "sex"], nullable=[])
    with pytest.warns(PrivacyLeakWarning, match="read from the rows"):
        filled = infer_domains(train, schema)
    found = PublicDomain.of(Population.from_frame(train, filled))
    assert set(found.inferred) == set(train.columns)
    assert filled["kids"].bounds == (0.0, 5.0)


def test_inferring_some_columns_leaves_the_others_lacking() -> None:
    train = table()
    schema = Schema.from_frame(train, quasi_identifiers=["age"], nullable=[])
    with pytest.warns(PrivacyLeakWarning, match="domains of kids are read"):
        filled = infer_domains(train, schema, ["kids"])
    with pytest.raises(SchemaError, match="'age' lacks"):
        PublicDomain.of(Population.from_frame(train, filled))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"categories": {"sex": []}}, "at least one"),
        ({"categories": {"sex": ["m", "m"]}}, "distinct"),
        ({"categories": {"level": ["m"]}}, "nominal"),
        ({"categories": {"sex": [None]}}, "texts, numbers or booleans"),
        ({"nullable": ["nobody"]}, "unknown column"),
    ],
)
def test_wrong_declarations_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        domain(**changes)
