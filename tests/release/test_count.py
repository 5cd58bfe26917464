"""People are counted alike however their table is laid out, and as a reader of the text counts."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Attribute,
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
)
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import PopulationError

KEY = b"a key of tests"

# --- the layout of the table ----------------------------------------------------------------------

QUASI_IDENTIFIERS = ["born", "age", "sex", "city", "zip", "grade"]
TREE = {1000: ["Brussels"], 1050: ["Brussels"], 2000: ["Antwerp"], 9000: ["Ghent"]}


def people(n: int, seed: int) -> pd.DataFrame:
    """Return people with quasi-identifiers of all kinds; some have several rows."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 60, n) * 100, unit="D")
    return pd.DataFrame(
        {
            "born": pd.Timestamp("1960-01-01") + days,
            "age": rng.integers(18, 90, n),
            "sex": rng.choice(["f", "m"], n),
            "city": rng.choice(["Aalst", "Brugge", "Gent", "Hasselt"], n),
            "zip": rng.choice([*TREE], n),
            "grade": rng.choice(["low", "mid", "high"], n),
            "debt": rng.integers(0, 50, n),
            "job": rng.choice(["a", "b", "c"], n),
            "person": rng.integers(0, n * 3 // 4, n),
        }
    )


def accept(rows: pd.DataFrame) -> np.ndarray:
    debt, age = (
        pd.to_numeric(rows[name].astype(object)).to_numpy(float) for name in ("debt", "age")
    )
    return (3 * debt + age) % 7 < 5


def fitted(table: pd.DataFrame, guarantee: Any, method: str = "auto") -> KAnonymizer:
    schema = Schema.from_frame(
        table,
        quasi_identifiers=[name for name in table if name in QUASI_IDENTIFIERS],
        ordinal={"grade": ["low", "mid", "high"]},
        columns={"zip": Attribute(hierarchy=TREE, weight=0.7), "age": Attribute(weight=0.3)},
        subject="person",
    )
    population = Population.from_frame(table, schema, key=KEY)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4, guarantee=guarantee), method=method)
    return anonymizer.fit(population, model=accept, desired=True)


DTYPES = [
    {
        "age": "float64",
        "zip": "Int64",
        "city": "category",
        "born": "datetime64[s]",
        "debt": "Int64",
    },
    {"age": "object", "zip": "object", "city": "object", "debt": "float64", "job": "category"},
]


@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_lookup_ignores_the_layout(method: str, dtypes: dict[str, str]) -> None:
    """Neither dtypes, nor the order of rows and columns, nor the index decide on an answer."""
    table = people(35, seed=len(dtypes))
    other = table.astype(dtypes).sample(frac=1, random_state=1)
    other = other[other.columns[::-1]].set_index(pd.Index(["x"] * len(table)))
    one = fitted(table, "lookup", method)
    two = fitted(other, "lookup", method)
    assert one.fingerprint_ == two.fingerprint_
    answers = table.head(3)
    spelled = answers[[*other]].astype(dtypes)
    expected = [entry.to_dict() for entry in one.transform(answers)]
    assert [entry.to_dict() for entry in two.transform(spelled)] == expected


def published() -> str:
    return fitted(people(60, 6), "catalogue").published().to_json()


def test_catalogue_ignores_the_process() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_count"
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}; print(test_count.published())"],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == published()


# --- the text of a region contains the people who were certified ----------------------------------

N_ROWS = 40
LEVELS = ["I", "II", "III", "IV", "V"]
RANDOM = np.random.default_rng(3)
STEPS = RANDOM.integers(0, 60, N_ROWS)
SEXES = RANDOM.choice(["f", "m"], N_ROWS)


def moments(unit: str, step: str) -> pd.Series:
    start = pd.Timestamp("2020-10-25").as_unit("us")
    return pd.Series(start + pd.to_timedelta(STEPS, unit=step)).astype(f"datetime64[{unit}]")


def number(value: Any) -> Decimal:
    """Read a number, or its text, as a person does."""
    return Decimal(str(value))


def in_brussels(value: Any) -> pd.Timestamp:
    moment = pd.Timestamp(value)
    return moment if moment.tz is not None else moment.tz_localize("Europe/Brussels")


# Values, and how a person reads one of them or its text.
COLUMNS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "beyond 1e14": (10**14 + STEPS, number),
    "below 2**53": (2**53 - STEPS, number),
    "even beyond 2**53": (2**53 + 2 * STEPS, number),
    "Int64": (pd.array(10**15 + STEPS, dtype="Int64"), number),
    "fine": (1e6 + RANDOM.random(N_ROWS) * 50, number),
    "sums": (STEPS * 0.1 + 0.2, number),
    "tiny": (RANDOM.random(N_ROWS) * 1e-300, number),
    "subnormal": ((STEPS + 1) * 5e-324, number),
    "cents": ([Decimal(int(i)) / 100 for i in STEPS], number),
    "zeros": (RANDOM.choice([-0.0, 0.0, 1.5, -1.5, 1e-9, -1e-9], N_ROWS), number),
    "seconds": (moments("s", "s"), pd.Timestamp),
    "days": ([dt.date(1990, 1, 1) + dt.timedelta(int(i)) for i in STEPS], pd.Timestamp),
    "summer time": (
        moments("us", "m").dt.tz_localize("UTC").dt.tz_convert("Europe/Brussels"),
        in_brussels,
    ),
    "ordinal": (RANDOM.choice(LEVELS, N_ROWS), LEVELS.index),
    "text of numbers": (RANDOM.choice(["6", "06", "6.5", "6.50", "1e3", "-0"], N_ROWS), str),
    "nominal whole": (2**60 + STEPS % 8, number),
    "nominal": (RANDOM.choice([6.0, 0.1 + 0.2, 0.3, 1e6 + 1 / 3, 2.0**60], N_ROWS), number),
}


def released(kind: str, guarantee: Any) -> tuple[pd.DataFrame, Explanations]:
    """Return a table with a column of some kind, and explanations with regions of it."""
    values, _ = COLUMNS[kind]
    table = pd.DataFrame({"x": values, "sex": SEXES, "pay": 1})
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["x", "sex"],
        ordinal={"x": LEVELS} if kind == "ordinal" else None,
        nominal=["x"] if "nominal" in kind else (),
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4, guarantee=guarantee)).fit(
        Population.from_frame(table, schema, key=KEY), lambda rows: np.ones(len(rows)), 1
    )
    if guarantee == "catalogue":
        return table, anonymizer.published()
    return table, anonymizer.transform(table.head(12))


def between(values: pd.Series, low: Any, high: Any) -> pd.Series:
    return pd.Series([low <= value <= high for value in values])


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_text_contains_certified_people(kind: str, guarantee: str) -> None:
    """A reader of the table, of the JSON or of a sentence counts as many as the certificate."""
    read = COLUMNS[kind][1]
    table, explanations = released(kind, guarantee)
    values = pd.Series([read(value) for value in table["x"].tolist()], dtype=object)
    cells = explanations.to_frame(text=True)["x"]
    contents = json.loads(explanations.to_json())["explanations"]
    assert explanations.generalized
    for entry, cell, content in zip(explanations.generalized, cells, contents, strict=True):
        part = content["region"]["x"]
        if part["kind"] == "set":
            texts = [cell.strip("{}").split(", "), part["values"]]
            are_inside = [values.isin({read(text) for text in ends}) for ends in texts]
        else:
            texts = [cell.split("–"), [part["low"], part["high"]]]
            if read is number:
                text = Wording(phrases={"x": "{}"}).described("x", entry.region["x"])
                texts.append(text.replace(",", "").split(" to "))
            are_inside = [between(values, read(ends[0]), read(ends[-1])) for ends in texts]
        has_sex = table["sex"].isin(entry.region["sex"])
        n_people = [int((is_inside & has_sex).sum()) for is_inside in are_inside]
        assert n_people == [entry.recount.k] * len(texts)


# --- numbers that float64 cannot tell apart -------------------------------------------------------


def test_region_excludes_people_just_outside() -> None:
    """The bounds of a region from elsewhere need not be values of the table."""
    table = pd.DataFrame({"x": 2**53 + 2 * np.arange(8)})
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["x"]))
    for low, high, n_people in ((0, 2**60, 8), (2**53 + 2, 2**53 + 6, 3), (10**400, 10**401, 0)):
        assert population.count(Region({"x": Interval(low, high)})) == n_people


REFUSED: dict[str, tuple[Any, str]] = {
    "whole": ([2**53 + 1, 2**53 + 3, 5], "nominal="),
    "unsigned": (np.array([2**63 + 1, 5, 6], dtype="uint64"), "nominal="),
    "decimals": ([Decimal("0.1000000000000000000001"), Decimal("0.1"), Decimal(1)], "nominal="),
    "nanoseconds": (pd.to_datetime([1, 2, 3], unit="ns"), "floor"),
    "zones": (pd.Series([in_brussels("2020-01-01")] * 3, dtype=object), "utc=True"),
    "too large": ([-1.7e308, 0.0, 1.7e308], "scale"),
}


@pytest.mark.parametrize("quasi_identifier", ["amount", "sex"])
@pytest.mark.parametrize("kind", REFUSED)
def test_inexact_column_is_refused(kind: str, quasi_identifier: str) -> None:
    """The error names the column and a remedy, and quotes no value."""
    values, advice = REFUSED[kind]
    table = pd.DataFrame({"amount": values, "sex": ["f", "m", "f"]})
    schema = Schema.from_frame(table, quasi_identifiers=[quasi_identifier])
    with pytest.raises(PopulationError, match=f"'amount'.*{advice}") as caught:
        Population.from_frame(table, schema)
    quoted = [str(value) for value in table["amount"].dropna() if len(str(value)) > 3]
    assert not [value for value in quoted if value in str(caught.value)]
