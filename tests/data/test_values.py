"""Values across dtypes: how they are read, coded and given back; and regions that hold them, as
text and JSON.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, Population, Region, Schema
from cfk_plugin.data.region import json_value, part_from_dict, part_to_text, to_number
from cfk_plugin.data.values import conform, to_numbers
from cfk_plugin.errors import InputError, PopulationError

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


def population_of(values: Any, **options: Any) -> Population:
    frame = pd.DataFrame({"x": values})
    return Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=["x"], **options)
    )


def codes(population: Population, values: Any) -> list[float]:
    matrix = population.row_codes.encode(pd.DataFrame({"x": pd.Series(values)}))
    return matrix[:, 0].tolist()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_as_it_was(name: str) -> None:
    frame = pd.DataFrame({"x": COLUMNS[name]})
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["x"]))
    spelled = frame.astype(object)
    assert codes(population, spelled["x"]) == codes(population, frame["x"])
    assert not np.isnan(codes(population, frame["x"])).any()
    pd.testing.assert_frame_equal(population.conform(spelled), frame)
    pd.testing.assert_series_equal(conform(spelled["x"], frame["x"].dtype), frame["x"])


@pytest.mark.parametrize(
    "values", [[24.0, 27.0], ["24", "27"], [24, 27], pd.Categorical(["24", "27"])]
)
@pytest.mark.parametrize("trained", [[24, 27], [24.0, 27.0], pd.array([24, 27], dtype="Int64")])
def test_a_number_is_a_number_however_it_is_written(values: Any, trained: Any) -> None:
    assert codes(population_of(trained), values) == [24, 27]


@pytest.mark.parametrize(
    "values", [[9000.0, 1000.0], ["9000", "1000"], ["9000.0", "1000.0"], [9000, 1000]]
)
@pytest.mark.parametrize(
    "trained", [[9000, 1000], ["9000", "1000"], [9000.0, 1000.0], ["9000.0", "1000.0"]]
)
def test_codes_of_categories_too(values: Any, trained: Any) -> None:
    assert codes(population_of(trained, nominal=["x"]), values) == [1, 0]


@pytest.mark.parametrize("values", [["1", "1.0"], ["true", "True"], [1, "1"], [True, "yes"]])
def test_one_category_has_one_spelling(values: list[Any]) -> None:
    """Which people share a value must not depend on how a table writes it."""
    with pytest.raises(PopulationError, match="spells one category in two ways"):
        population_of(pd.Series(values, dtype=object))


@pytest.mark.parametrize("values", [[True, False], [1, 0], ["True", "False"], [1.0, 0.0]])
def test_booleans(values: Any) -> None:
    assert codes(population_of([True, False]), values) == [1, 0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    "moment", ["1900-01-01", "1969-12-31T23:59:59.999999999", "2024-02-29T12:00:00.1234567+02:00"]
)
def test_a_moment_is_the_same_number_alone_as_in_a_column(moment: str, unit: Any) -> None:
    stamp = pd.Timestamp(moment).as_unit(unit)
    assert to_number(stamp) == to_numbers(pd.Series([stamp]))[0][0]


def test_a_date_that_is_none_is_invalid_and_not_quoted() -> None:
    numbers, invalid = to_numbers(pd.Series(["2020-01-01", "2020-13-45", "2020-01-01T10:00:00"]))
    assert invalid.tolist() == [False, True, False]
    assert numbers[2] - numbers[0] == 36_000


SECONDS = pd.date_range("2020-01-01", periods=3, freq="s")
FRACTIONS = np.linspace(0.1, 0.9, 9)


@pytest.mark.parametrize(
    ("values", "part", "inside"),
    [
        (10**9 + np.arange(3), Interval(10**9 + 1, 10**9 + 1), [1]),
        (SECONDS, Interval(SECONDS[1], SECONDS[1]), [1]),
        (SECONDS, Interval(SECONDS[1].isoformat(), SECONDS[2].isoformat()), [1, 2]),
        (FRACTIONS, Interval(FRACTIONS[2], FRACTIONS[6]), [2, 3, 4, 5, 6]),
        # the seventh is 0.7000000000000001: read literally, outside
        (FRACTIONS, Interval(0.3, 0.7), [2, 3, 4, 5]),
    ],
)
def test_a_range_holds_its_ends_and_nobody_just_outside(
    values: Any, part: Interval, inside: list[int]
) -> None:
    assert population_of(values).members(Region({"x": part})).tolist() == inside


def test_ordinal_levels_keep_their_order_and_need_to_be_declared() -> None:
    population = population_of([2.0, 1.0], ordinal={"x": [1, 2, 3]})
    assert codes(population, [2.0, 1.0]) == [1, 0]
    assert population.row_codes.columns[0].places.tolist() == [0, 1, 2]
    with pytest.raises(PopulationError, match="'x'"):
        population_of(["a", "z"], ordinal={"x": ["a", "b"]})


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([200, 1], "int8"),
        ([-1, 1], "uint8"),
        ([0.5, 1.0], "int64"),
        ([-(2**63) - 1, 1], "int64"),
        ([2**63, 1], "int64"),
        (["yes", "True"], "bool"),
        ([None, True], "bool"),
        (["a", "z"], pd.CategoricalDtype(["a", "b"])),
    ],
)
def test_conform_changes_no_value(values: Any, dtype: Any) -> None:
    cast = conform(
        pd.Series(values, dtype=object), np.dtype(dtype) if isinstance(dtype, str) else dtype
    )
    assert cast.astype(object).tolist() == values


# --- regions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, np.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN")])
def test_every_kind_of_missing(value: Any) -> None:
    assert value in Interval(1, 2, missing=True)
    assert value not in Interval(1, 2)
    assert Region({"x": frozenset({"a", None})}).contains({"x": value})
    assert not Region({"x": frozenset({"a"})}).contains({"x": value})
    assert json_value(value) is None


@pytest.mark.parametrize("value", [24, 24.0, np.int8(24), np.float32(24), "24"])
def test_contains_reads_any_dtype(value: Any) -> None:
    assert Region({"x": frozenset({24, "x"})}).contains({"x": value})
    assert Region({"x": Interval("24", "30", levels=("24", "30"))}).contains({"x": value})
    assert Region({"x": Interval(24, 24)}).contains({"x": value})


def test_only_missing_inside() -> None:
    part = Interval(None, None, missing=True)
    assert 3 not in part
    assert part.is_single
    assert str(part) == "missing"
    assert not Interval(1, 1, missing=True).is_single


def test_regions_compare_by_their_parts_and_cannot_be_changed() -> None:
    parts: dict[str, Any] = {"x": Interval(1, 2), "y": frozenset({"b", "a"})}
    region, same = Region(parts), Region({"y": frozenset({"a", "b"}), "x": Interval(1.0, 2.0)})
    assert region == same
    assert hash(region) == hash(same)
    parts["x"] = Interval(0, 9)
    assert region["x"] == Interval(1, 2)


@pytest.mark.parametrize("part", [frozenset(), {1}, "a"])
def test_unfit_parts(part: Any) -> None:
    with pytest.raises(InputError, match="'x'"):
        Region({"x": part})


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Interval(1, 2.5), "1–2.5"),
        (Interval(24.0, 24.0), "24"),
        (Interval(1, 2, missing=True), "1–2 or missing"),
        (Interval(None, None, missing=True), "missing"),
        (Interval("a", "b", levels=("a", "b")), "a–b"),
        (frozenset({"b", "a"}), "{a, b}"),
        (frozenset({"a"}), "a"),
        (frozenset({"a", None}), "{a, missing}"),
    ],
)
def test_a_part_as_text_and_json(part: Any, text: str) -> None:
    assert part_to_text(part) == text
    assert part_from_dict(json.loads(json.dumps(Region({"x": part}).to_dict()))["x"]) == part


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.bool_(True), True),
        (pd.Timestamp("2020-01-02"), "2020-01-02"),
        (pd.Timestamp("2020-01-02 10:00"), "2020-01-02T10:00:00"),
        (dt.date(2020, 1, 2), "2020-01-02"),
        (Decimal("1.5"), 1.5),
    ],
)
def test_json_values(value: Any, expected: Any) -> None:
    assert json_value(value) == expected
    json.dumps(json_value(value))
