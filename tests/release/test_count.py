"""The count: the same people are the same groups however their table is laid out, and what is
printed holds them.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfk_plugin import (
    Attribute,
    Explanations,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
)
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import PopulationError, SchemaError
from cfk_plugin.serving.records import record_of

KEY = b"a key of tests"

# --- The order of rows and columns, the index, the dtype, the process -----------------------------


def people(n: int, seed: int) -> pd.DataFrame:
    """Return people with quasi-identifiers of all kinds."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "born": pd.Timestamp("1960-01-01")
            + pd.to_timedelta(random.integers(0, 60, n) * 100, unit="D"),
            "age": random.integers(18, 90, n),
            "sex": random.choice(["f", "m"], n),
            "city": random.choice(["Aalst", "Brugge", "Gent", "Hasselt", "Leuven", "Namur"], n),
            "zip": random.choice([1000, 1050, 2000, 2018, 9000], n),
            "grade": random.choice(["low", "mid", "high"], n),
            "debt": random.integers(0, 50, n),
            "pay": random.integers(10, 20, n) * 100.5,
            "job": random.choice(["a", "b", "c"], n),
        }
    )


QUASI = ["born", "age", "sex", "city", "zip", "grade"]
TREE = {
    1000: ["Brussels"],
    1050: ["Brussels"],
    2000: ["Antwerp"],
    2018: ["Antwerp"],
    9000: ["Ghent"],
}


def wanted(rows: pd.DataFrame) -> np.ndarray:
    """Judge people by name of the column, whatever its dtype."""
    debt, age = (
        pd.to_numeric(rows[name].astype(object)).to_numpy(dtype=float) for name in ("debt", "age")
    )
    return (3 * debt + age) % 7 < 5


def population_of(table: pd.DataFrame, key: bytes | None = KEY) -> Population:
    schema = Schema.from_frame(
        table,
        quasi_identifiers=[name for name in table if name in QUASI],
        sensitive=["job"],
        ordinal={"grade": ["low", "mid", "high"]},
        columns={
            "zip": Attribute(hierarchy=TREE, weight=0.7),
            "age": Attribute(weight=0.3),
            "city": Attribute(weight=0.1),
            "sex": Attribute(weight=0.2),
        },
        subject="person" if "person" in table else None,
    )
    return Population.from_frame(table, schema, key=key)


def fitted(
    table: pd.DataFrame, guarantee: str, k: int = 4, method: str = "auto", **options: Any
) -> KAnonymizer:
    policy = PrivacyPolicy(k=k, guarantee=guarantee)  # type: ignore[arg-type]
    anonymizer = KAnonymizer(policy=policy, method=method, **options)
    return anonymizer.fit(population_of(table), model=wanted, desired=True)


def plain(region: Region | None) -> Any:
    """Return a region whose categories are spelled in one way, as their dtype may differ."""
    return region and {
        name: part if isinstance(part, Interval) else sorted(str(value) for value in part)
        for name, part in sorted(region.items())
    }


def told(explanations: Explanations) -> list[Any]:
    """Return what is released to each person, but for how a dtype spells it."""
    return [
        (
            plain(e.region),
            {n: str(v).removesuffix(".0") for n, v in e.released.items()},
            e.certificate.to_dict(),
        )
        if isinstance(e, GeneralizedCounterfactual)
        else e.reason
        for e in explanations
    ]


OTHER_DTYPES = {
    "age": ["int64", "float64", "Int64", "object", "int16", "uint8"],
    "zip": ["int64", "Int64", "object", "category"],
    "city": ["object", "category", "string"],
    "sex": ["object", "category"],
    "born": ["datetime64[s]", "datetime64[ns]", "object"],
    "debt": ["int64", "float64", "Int64", "object"],
    "job": ["object", "category"],
}


@st.composite
def layouts(draw: st.DrawFn) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return people, some with several rows, and the same people laid out otherwise."""
    table = people(draw(st.integers(25, 40)), draw(st.integers(0, 2**31)))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    if draw(st.booleans()):
        table["person"] = random.integers(0, 20, len(table))
    other = table.astype(
        {name: draw(st.sampled_from(kinds)) for name, kinds in OTHER_DTYPES.items()}
    )
    if isinstance(other["city"].dtype, pd.CategoricalDtype):
        levels = ["Nobody's", *random.permutation(table["city"].unique())]
        other["city"] = other["city"].cat.set_categories(levels)
    who = random.permutation(len(table))
    other = other[list(random.permutation(list(table)))].iloc[who]
    if draw(st.booleans()):
        other.index = pd.Index(random.choice(["x", "y"], len(table)))
    return table, other


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(layouts())
def test_a_lookup_does_not_depend_on_how_the_table_is_laid_out(
    method: str, layout: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    table, other = layout
    one, two = fitted(table, "lookup", method=method), fitted(other, "lookup", method=method)
    assert one.fingerprint_ == two.fingerprint_
    some = table.head(3)
    same = some[list(other)].astype({name: other[name].dtype for name in other})
    assert told(one.transform(some)) == told(two.transform(same))


PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_count import published
print(published())
"""


def published() -> str:
    return repr(told(fitted(people(60, 6), "catalogue").published()))


def test_the_catalogue_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROCESS, str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    output = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == published()


# --- What is printed holds the people that were certified -----------------------------------------


def _fine(random: np.random.Generator, n: int) -> Any:
    return 1e6 + random.random(n) * 50


def _days(random: np.random.Generator, n: int, unit: str, step: str) -> pd.Series:
    start = pd.Timestamp("2020-10-25").as_unit("us")
    return pd.Series(start + pd.to_timedelta(random.integers(0, 200, n), unit=step)).astype(
        f"datetime64[{unit}]"
    )


COLUMNS: dict[str, Any] = {
    "whole": lambda r, n: r.integers(10**6, 10**6 + 60, n),
    "beyond 1e14": lambda r, n: 10**14 + r.integers(0, 60, n),
    "below 2**53": lambda r, n: 2**53 - r.integers(0, 60, n),
    "below -2**53 and above": lambda r, n: r.choice([-1, 1], n) * (2**53 - r.integers(0, 60, n)),
    "uint64": lambda r, n: (2**52 + r.integers(0, 60, n)).astype("uint64"),
    "Int64": lambda r, n: pd.array(10**15 + r.integers(0, 60, n), dtype="Int64"),
    "objects": lambda r, n: np.array([10**15 + int(i) for i in r.integers(0, 60, n)], dtype=object),
    "even beyond 2**53": lambda r, n: 2**53 + 2 * r.integers(0, 60, n),
    "fine": _fine,
    "sums": lambda r, n: r.integers(0, 30, n) * 0.1 + 0.2,
    "single": lambda r, n: (r.integers(0, 60, n) * 0.1).astype(np.float32),
    "Float64": lambda r, n: pd.array(_fine(r, n), dtype="Float64"),
    "tiny": lambda r, n: r.random(n) * 1e-300,
    "subnormal": lambda r, n: r.integers(1, 60, n) * 5e-324,
    "zeros": lambda r, n: r.choice([-0.0, 0.0, 1.5, -1.5, 1e-9, -1e-9], n),
    "cents": lambda r, n: np.array(
        [Decimal(int(i)) / 100 for i in r.integers(0, 60, n)], dtype=object
    ),
    "seconds": lambda r, n: _days(r, n, "s", "s"),
    "microseconds": lambda r, n: _days(r, n, "us", "us"),
    "hours": lambda r, n: _days(r, n, "ns", "h"),
    "whole days": lambda r, n: _days(r, n, "ns", "D"),
    "summer time": lambda r, n: (
        _days(r, n, "us", "min").dt.tz_localize("UTC").dt.tz_convert("Europe/Brussels")
    ),
    "midnights": lambda r, n: _days(r, n, "us", "D").dt.tz_localize("America/Sao_Paulo"),
    "long ago and never": lambda r, n: pd.Series(
        r.choice(
            np.array(["1600-01-01", "1500-06-01", "9999-12-31", "2020-01-01"], dtype="M8[us]"), n
        )
    ),
    "date objects": lambda r, n: [
        dt.date(1990, 1, 1) + dt.timedelta(int(i)) for i in r.integers(0, 60, n)
    ],
    "ordinal": lambda r, n: r.choice(["I", "II", "III", "IV", "V"], n),
    "text of numbers": lambda r, n: r.choice(["6", "06", "6.5", "6.50", "1e3", "-0"], n),
    "nominal numbers": lambda r, n: r.choice([6.0, 0.1 + 0.2, 0.3, 1e6 + 1 / 3, 2.0**60], n),
    "nominal whole": lambda r, n: 2**60 + r.integers(0, 8, n),
}


def released(
    kind: str, seed: int, guarantee: str, asked: int
) -> tuple[pd.DataFrame, Population, Explanations]:
    """Return a table with a column of a kind, and what is released of it for some people."""
    if kind == "long ago and never" and pd.__version__ < "3":
        pytest.skip(
            "pandas 2 reads no date before 1678 or after 2262 from an object, so that these are withheld"
        )
    random, n = np.random.default_rng(seed), 40
    table = pd.DataFrame(
        {"x": COLUMNS[kind](random, n), "sex": random.choice(["f", "m"], n), "pay": 1}
    )
    options: dict[str, Any] = (
        {"ordinal": {"x": ["I", "II", "III", "IV", "V"]}} if kind == "ordinal" else {}
    )
    options |= {"nominal": ["x"]} if kind.startswith("nominal") else {}
    schema = Schema.from_frame(table, quasi_identifiers=["x", "sex"], **options)
    population = Population.from_frame(table, schema, key=KEY)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4, guarantee=guarantee))  # type: ignore[arg-type]
    anonymizer.fit(population, model=lambda rows: np.ones(len(rows)), desired=1)
    if guarantee == "catalogue":
        return table, population, anonymizer.published()
    explanations = anonymizer.transform(table.head(asked))
    assert len(explanations.released) == asked
    return table, population, explanations


def on_paper(value: Any) -> Any:
    """Read a value, or the text of one, as a person does: a decimal, a moment, a category."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (dt.date, np.datetime64)):
        return pd.Timestamp(value)
    return (
        Decimal(str(float(value)))
        if isinstance(value, (float, np.floating))
        else Decimal(str(value))
    )


def between(column: pd.Series, low: Any, high: Any) -> np.ndarray:
    """Say who is inside of a printed range, read on paper."""
    return np.array([on_paper(low) <= on_paper(value) <= on_paper(high) for value in column])


def read(text: str, column: pd.Series, kind: str) -> np.ndarray:
    """Say who is inside of the text of one cell: ``a–b``, ``{a, b}`` or a single value."""
    if kind == "ordinal":
        levels = ["I", "II", "III", "IV", "V"]
        low, *high = [levels.index(level) for level in text.split("–")]
        return column.map(levels.index).between(low, (high or [low])[0]).to_numpy()
    if "text" in kind or "nominal" in kind:
        said = {on_paper(part) for part in text.strip("{}").split(", ")}
        return np.array(
            [str(value).removesuffix(".0") in said for value in column.tolist()]
        ) | np.array([any(_alike(part, value) for part in said) for value in column.tolist()])
    ends = text.split("–")
    if pd.api.types.is_datetime64_any_dtype(column) or kind == "date objects":
        moments = [pd.Timestamp(end) for end in ends]
        zone = getattr(column.dtype, "tz", None)
        moments = [m.tz_localize(zone) if zone is not None and m.tz is None else m for m in moments]
        return between(column, moments[0], moments[-1])
    return between(column, Decimal(ends[0]), Decimal(ends[-1]))


def _alike(text: str, value: Any) -> bool:
    return not isinstance(value, str) and Decimal(text) == on_paper(value)


def in_json(part: dict[str, Any], column: pd.Series) -> np.ndarray:
    """Say who is inside of a part of the JSON, in plain pandas."""
    if part["kind"] == "set":
        return column.isin(part["values"]).to_numpy()
    if "levels" in part:
        return column.isin(part["levels"]).to_numpy()
    low, high = part["low"], part["high"]
    if isinstance(low, str):
        column, low, high = pd.to_datetime(column), pd.Timestamp(low), pd.Timestamp(high)
    elif column.dtype == object and isinstance(column.iloc[0], Decimal):
        low, high = Decimal(str(low)), Decimal(str(high))
    return ((column >= low) & (column <= high)).to_numpy()


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_every_printed_form_holds_the_people_that_were_certified(kind: str, guarantee: str) -> None:
    table, population, explanations = released(kind, 3, guarantee, 12)
    shown, dumped = explanations.to_frame(), json.loads(explanations.to_json())["explanations"]
    names = population.schema.features
    read_back = pd.read_csv(StringIO(shown.to_csv(index=False)), dtype=str, keep_default_na=False)
    rows = table.to_dict("records")
    for i in (
        pd.Series([entry.region for entry in explanations.generalized]).drop_duplicates().index
    ):
        entry, plain_entry = explanations.generalized[i], dumped[i]
        parts, k = plain_entry["region"], entry.certificate.k
        rest = in_json(parts["sex"], table["sex"])
        forms = {
            "json": in_json(parts["x"], table["x"]),
            "frame": read(shown["x"][i], table["x"], kind),
            "csv": read(read_back["x"][i], table["x"], kind),
            "cells": read(entry.cells()["x"], table["x"], kind),
            "contains": np.array([entry.region.contains(row) for row in rows]),
            "record": _of_record(record_of(entry, None, names), table["x"]),
        }
        if isinstance(entry.region["x"], Interval):
            forms["str"] = read(str(entry.region["x"]), table["x"], kind)
        counts = {form: int((inside & rest).sum()) for form, inside in forms.items()}
        assert counts == dict.fromkeys(counts, k)


def _of_record(record: dict[str, Any], column: pd.Series) -> np.ndarray:
    x = next(feature for feature in record["features"] if feature["name"] == "x")
    if x["kind"] == "number":
        return in_json({"kind": "interval", "low": x["low"], "high": x["high"]}, column)
    if x["kind"] == "date":
        return in_json({"kind": "interval", "low": x["values"][0], "high": x["values"][1]}, column)
    if x["kind"] == "rank":
        levels = ["I", "II", "III", "IV", "V"]
        low, high = map(levels.index, x["values"])
        return column.isin(levels[low : high + 1]).to_numpy()
    return column.map(str).isin(x["values"]).to_numpy()


NUMBERS = [kind for kind in list(COLUMNS)[: list(COLUMNS).index("cents") + 1] if kind != "zeros"]
NUMBER_ALONE = Wording(phrases={"x": "{}"})


@pytest.mark.parametrize("kind", NUMBERS)
def test_the_numbers_of_a_sentence_give_the_certified_range(kind: str) -> None:
    table, _, explanations = released(kind, 4, "lookup", 15)
    for entry in explanations.generalized:
        text = NUMBER_ALONE.described("x", entry.region["x"])
        ends = [Decimal(end.replace(",", "")) for end in text.split(" to ")]
        inside = between(table["x"], ends[0], ends[-1])
        inside &= table["sex"].isin(entry.region["sex"]).to_numpy()
        assert int(inside.sum()) == entry.certificate.k


def test_a_region_from_elsewhere_counts_nobody_who_is_just_outside_of_it() -> None:
    table = pd.DataFrame(
        {"x": 2**53 + 2 * np.arange(8), "at": pd.date_range("2020-01-01", periods=8, freq="us")}
    )
    population = Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=["x", "at"])
    )
    everything = {"x": Interval(0, 2**60), "at": Interval("1990-01-01", "2030-01-01")}
    assert population.count(Region(everything)) == 8
    assert population.count(Region(everything | {"x": Interval(2**53 + 1, 2**53 + 5)})) == 2
    late = table["at"][1].isoformat() + "001"  # a nanosecond after the second
    assert population.count(Region(everything | {"at": Interval(late, "2030-01-01")})) == 6
    assert population.count(Region(everything | {"at": Interval("1990-01-01", late)})) == 2
    assert population.count(Region(everything | {"x": Interval(10**400, 10**401)})) == 0


# --- What cannot be counted is refused by name ----------------------------------------------------


REFUSED: dict[str, tuple[Any, str]] = {
    "whole": ([2**53 + 1, 2**53 + 3, 5], "nominal="),
    "negative": ([-(2**53) - 1, 0, 5], "nominal="),
    "unsigned": (np.array([2**63 + 1, 5, 6], dtype="uint64"), "nominal="),
    "nullable": (pd.array([2**62 + 1, None, 6], dtype="Int64"), "nominal="),
    "objects": (np.array([2**70 + 1, 5, 6], dtype=object), "nominal="),
    "decimals": ([Decimal("0.1000000000000000000001"), Decimal("0.1"), Decimal(1)], "nominal="),
    "nanoseconds": (pd.to_datetime([1, 2, 3], unit="ns"), "floor"),
    "far microseconds": (
        np.array(["9999-12-31T23:59:59.999999", "2020-01-01", "2021-01-01"], dtype="M8[us]"),
        "floor",
    ),
    "zones": (
        pd.Series([pd.Timestamp("2020-01-01", tz="Europe/Brussels")] * 3, dtype=object),
        "utc=True",
    ),
    "too large": ([-1.7e308, 0.0, 1.7e308], "scale"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_float64_cannot_hold_is_refused_by_the_name_of_its_column(kind: str) -> None:
    column, advice = REFUSED[kind]
    table = pd.DataFrame({"amount": column, "sex": ["f", "m", "f"]})
    for quasi in ("amount", "sex"):
        with pytest.raises(PopulationError, match=f"'amount'.*{advice}") as refused:
            Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=[quasi]))
        shown = [str(value) for value in table["amount"].dropna()]
        assert not any(value in str(refused.value) for value in shown if len(value) > 3)


def test_text_bounds_and_bins_that_are_read_as_other_numbers_are_refused_by_name() -> None:
    table = pd.DataFrame({"x": [1, 2, 3], "sex": ["f", "m", "f"]})
    schema = Schema.from_frame(table, quasi_identifiers=["x"])
    with pytest.raises(PopulationError, match="'x'"):
        Population.from_frame(table.assign(x=["9007199254740993", "0.25", "3"]), schema)
    for option in (
        {"columns": {"x": Attribute(bounds=(0, 2**53 + 1))}},
        {"columns": {"x": Attribute(bins=[0, 2**53 + 1, 2**60])}},
    ):
        with pytest.raises(SchemaError, match=r"'x': its (bounds|bins) have"):
            Schema.from_frame(table, quasi_identifiers=["sex"], **option)  # type: ignore[arg-type]


def test_what_is_refused_can_be_a_category_and_exact_numbers_come_in_any_dtype() -> None:
    table = pd.DataFrame(
        {"x": [2**53, 2**53 + 1, 2**53 + 1, 2**53 + 2], "sex": ["f", "m", "f", "m"]}
    )
    population = Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=["x"], nominal=["x"])
    )
    assert population.count(Region({"x": frozenset({2**53 + 1})})) == 2
    exact = table.assign(x=[2**53, 2**53 - 1, 10**15, 7])
    schema = Schema.from_frame(exact, quasi_identifiers=["x"])
    for dtype in ("int64", "float64", "Int64", "object", "category", "uint64"):
        people = Population.from_frame(exact.astype({"x": dtype}), schema)
        assert people.count(Region({"x": Interval(2**53 - 1, 2**53)})) == 2
