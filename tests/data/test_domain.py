"""Domains: codes, round trips and casts across dtypes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Domain
from cfk_plugin.data.region import Interval
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import conform, to_numbers
from cfk_plugin.errors import PopulationError

DAYS = pd.DatetimeIndex(["2020-06-01 10:00", "2020-06-02 11:30", "2021-01-05"])
COLUMNS = {
    "int8": np.array([1, 2, 3], "int8"),
    "uint64": np.array([1, 2, 3], "uint64"),
    "float32": np.array([24.1, 3.3, np.nan], "float32"),
    "Int64": pd.array([1, None, 3], dtype="Int64"),
    "Float64": pd.array([1.5, None, 3], dtype="Float64"),
    "bool": [True, False, True],
    "boolean": pd.array([True, None, False], dtype="boolean"),
    "string": pd.array(["a", None, "b"], dtype="string"),
    "object": pd.Series(["1", "2", None], dtype=object),
    "int categories": pd.Categorical([3, 1, 3]),
    "text categories": pd.Categorical(["x", "y", None]),
    "naive dates": DAYS,
    "zoned dates": DAYS.tz_localize("Europe/Brussels"),
    "float codes": pd.Categorical([9000.0, np.nan, 1000.0]),
    "constant": [5, 5, 5],
}


def domain_of(values, **options):
    frame = pd.DataFrame({"x": values, "q": 1})
    schema = Schema.from_frame(frame, quasi_identifiers=["q"], **options)
    return Domain.of(frame["x"], schema["x"]), frame["x"]


@pytest.mark.parametrize("name", COLUMNS)
def test_encode_and_restore(name):
    domain, column = domain_of(COLUMNS[name])
    codes, _ = domain.encode(column)
    assert (codes >= 0).all()
    pd.testing.assert_series_equal(domain.restore(codes), column, check_names=False)
    again, _ = domain.encode(column.astype(object))
    assert (again == codes).all()


@pytest.mark.parametrize("name", COLUMNS)
def test_conform_gives_the_dtype_back(name):
    column = pd.Series(COLUMNS[name])
    pd.testing.assert_series_equal(conform(column.astype(object), column.dtype), column)


@pytest.mark.parametrize("values", [[24.0, 27.0], ["24", "27"], [24, 27], pd.Categorical(["24", "27"])])
@pytest.mark.parametrize("trained", [[24, 27], [24.0, 27.0], pd.array([24, 27], dtype="Int64")])
def test_a_number_is_a_number_however_it_is_written(values, trained):
    domain, _ = domain_of(trained)
    assert domain.encode(pd.Series(values))[0].tolist() == [0, 1]


@pytest.mark.parametrize("values", [[9000.0, 1000.0], ["9000", "1000"], ["9000.0", "1000.0"], [9000, 1000]])
@pytest.mark.parametrize("trained", [[9000, 1000], ["9000", "1000"], [9000.0, 1000.0], ["9000.0", "1000.0"]])
def test_codes_of_categories_too(values, trained):
    domain, column = domain_of(trained, nominal=["x"])
    assert (domain.encode(pd.Series(values))[0] == domain.encode(column)[0]).all()


def test_two_spellings_that_are_both_categories_stay_apart():
    domain, _ = domain_of(["1", "1.0"])
    assert domain.encode(pd.Series(["1.0", "1"]))[0].tolist() == [1, 0]


@pytest.mark.parametrize("values", [[True, False], [1, 0], ["True", "False"], [1.0, 0.0]])
def test_booleans(values):
    domain, _ = domain_of([True, False])
    assert domain.encode(pd.Series(values))[0].tolist() == [1, 0]


def test_marks_of_what_cannot_be_coded():
    numbers, _ = domain_of([1.0, 2.0])
    assert numbers.encode(pd.Series([1.0, 1.5, np.nan, np.inf, "x"], dtype=object))[0].tolist() == [
        0,
        UNKNOWN,
        UNEXPECTED_MISSING,
        INVALID,
        INVALID,
    ]
    cities, _ = domain_of(["a", "b"])
    assert cities.encode(pd.Series(["b", "z", None]))[0].tolist() == [1, UNKNOWN, UNEXPECTED_MISSING]


def test_a_date_that_is_none_is_invalid_and_not_quoted():
    numbers, invalid = to_numbers(pd.Series(["2020-01-01", "2020-13-45", "2020-01-01T10:00:00"]))
    assert invalid.tolist() == [False, True, False]
    assert numbers[2] - numbers[0] == 36_000


def test_missing_has_the_last_code():
    domain, column = domain_of(["b", None, "a"])
    assert domain.encode(column)[0].tolist() == [1, 2, 0]
    assert (domain.size, domain.missing_code, domain.value(2)) == (3, 2, None)


def test_inside_takes_nobody_who_is_just_outside():
    big = np.array([1_000_000_000, 1_000_000_001, 1_000_000_002])
    domain, _ = domain_of(big)
    assert domain.inside(Interval(1_000_000_001, 1_000_000_001)).tolist() == [False, True, False]
    days = pd.date_range("2020-01-01", periods=3, freq="s")
    domain, _ = domain_of(days)
    assert domain.inside(Interval(days[1], days[1])).tolist() == [False, True, False]
    assert domain.inside(Interval(days[1].isoformat(), days[2].isoformat())).tolist() == [False, True, True]


def test_inside_takes_the_ends_of_fractions():
    values = np.linspace(0.1, 0.9, 9)
    domain, _ = domain_of(values)
    assert domain.inside(Interval(values[2], values[6])).sum() == 5
    assert domain.inside(Interval(0.3, 0.7)).sum() == 4  # the seventh is 0.7000000000000001: read literally, outside


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([-1e308, 1e308]), "wider range"),
        (np.array([2**53 + 1, 5], dtype="int64"), "'x'"),
        (np.array([np.inf, 1.0]), "infinite"),
    ],
)
def test_numbers_that_float64_does_not_hold_are_refused(values, said):
    with pytest.raises(PopulationError, match=said):
        domain_of(values)


def test_ordinal_levels_keep_their_order_and_need_to_be_declared():
    domain, column = domain_of([2.0, 1.0], ordinal={"x": [1, 2, 3]})
    assert domain.encode(column)[0].tolist() == [1, 0]
    assert domain.positions.tolist() == [0, 0.5, 1]
    assert domain.restore(np.array([1, 0])).tolist() == [2.0, 1.0]
    with pytest.raises(PopulationError, match="'x'"):
        domain_of(["a", "z"], ordinal={"x": ["a", "b"]})


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([200, 1], "int8"),
        ([-1, 1], "uint8"),
        ([0.5, 1.0], "int64"),
        (["yes", "True"], "bool"),
        ([None, True], "bool"),
        (["a", "z"], pd.CategoricalDtype(["a", "b"])),
    ],
)
def test_conform_changes_no_value(values, dtype):
    column = pd.Series(values, dtype=object)
    cast = conform(column, np.dtype(dtype) if isinstance(dtype, str) else dtype)
    assert cast.astype(object).tolist() == values


def test_many_categories_are_fast_enough():
    values = [f"name-{i}" for i in range(100_000)]
    domain, column = domain_of(values)
    codes, _ = domain.encode(column)
    assert domain.size == 100_000
    assert len(np.unique(codes)) == 100_000
    assert domain.restore(codes[:5]).tolist() == values[:5]


def test_repr_shows_no_value():
    domain, _ = domain_of(["secret", "other"])
    assert "secret" not in repr(domain)
