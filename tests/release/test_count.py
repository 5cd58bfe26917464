"""People are counted alike however their table is laid out, and as a reader of the text counts."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

import worlds
from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.wording import Wording
from worlds import World

# --- the layout of the table ----------------------------------------------------------------------

DTYPES = {
    "age": "float64",
    "zip": "category",
    "school": "object",
    "salary": "Int64",
    "since": "datetime64[s]",
}


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_lookup_ignores_the_layout(method: str, residents: World) -> None:
    """Neither dtypes, nor the order of rows and columns, nor the index decide on an answer."""
    table = residents.table
    other = table.astype(DTYPES).sample(frac=1, random_state=1)
    other = other[other.columns[::-1]].set_index(pd.Index(["x"] * len(table)))
    spelled = residents.native[residents.native.columns[::-1]].astype(DTYPES)
    one = residents.fit(guarantee="lookup", method=method)
    two = replace(residents, table=other).fit(guarantee="lookup", method=method)
    assert one.fingerprint_ == two.fingerprint_
    expected = [entry.to_dict() for entry in one.transform(residents.native)]
    assert [entry.to_dict() for entry in two.transform(spelled)] == expected


def test_catalogue_ignores_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python hashes texts differently in each process."""
    monkeypatch.setenv("CFK_KEY", "of this test")
    code = "import worlds; print(worlds.residents().anonymizer.published().to_json())"
    paths = os.pathsep.join(filter(None, sys.path))
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == worlds.residents().anonymizer.published().to_json()


# --- the text of a region contains the people who were certified ----------------------------------

N_ROWS = 40
LEVELS = ["I", "II", "III", "IV", "V"]
RANDOM = np.random.default_rng(3)
STEPS = RANDOM.integers(0, 60, N_ROWS)
MOMENTS = pd.Timestamp("2020-10-25").as_unit("us") + pd.to_timedelta(STEPS, unit="m")


def number(value: Any) -> Decimal:
    """Read a number, or its text, as a person does."""
    return Decimal(str(value))


def in_brussels(value: Any) -> pd.Timestamp:
    moment = pd.Timestamp(value)
    return moment if moment.tz is not None else moment.tz_localize("Europe/Brussels")


# Values, and how a person reads one of them or its text.
COLUMNS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "below 2**53": (2**53 - STEPS, number),
    "even beyond 2**53": (2**53 + 2 * STEPS, number),
    "Int64": (pd.array(10**15 + STEPS, dtype="Int64"), number),
    "sums": (STEPS * 0.1 + 0.2, number),
    "subnormal": ((STEPS + 1) * 5e-324, number),
    "cents": ([Decimal(int(i)) / 100 for i in STEPS], number),
    "zeros": (RANDOM.choice([-0.0, 0.0, 1.5, -1.5, 1e-9, -1e-9], N_ROWS), number),
    "days": ([dt.date(1990, 1, 1) + dt.timedelta(int(i)) for i in STEPS], pd.Timestamp),
    "summer time": (
        pd.Series(MOMENTS).dt.tz_localize("UTC").dt.tz_convert("Europe/Brussels"),
        in_brussels,
    ),
    "ordinal": (RANDOM.choice(LEVELS, N_ROWS), LEVELS.index),
    "text of numbers": (RANDOM.choice(["6", "06", "6.5", "6.50", "1e3", "-0"], N_ROWS), str),
    "nominal": (RANDOM.choice([6.0, 0.1 + 0.2, 0.3, 1e6 + 1 / 3, 2.0**60], N_ROWS), number),
}


def published(kind: str) -> tuple[pd.Series, Explanations]:
    """Return a column of some kind, and a catalogue whose regions are of it."""
    table = pd.DataFrame({"x": COLUMNS[kind][0], "pay": 1})
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["x"],
        ordinal={"x": LEVELS} if kind == "ordinal" else None,
        nominal=["x"] if kind == "nominal" else (),
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=4))
    anonymizer.fit(Population.from_frame(table, schema), lambda rows: np.ones(len(rows)), 1)
    return table["x"], anonymizer.published()


@pytest.mark.parametrize("kind", COLUMNS)
def test_text_contains_certified_people(kind: str) -> None:
    """A reader of the table, of the JSON or of a sentence counts as many as the certificate."""
    read = COLUMNS[kind][1]
    column, explanations = published(kind)
    values = pd.Series([read(value) for value in column.tolist()], dtype=object)
    cells = explanations.to_frame(text=True)["x"]
    contents = json.loads(explanations.to_json())["explanations"]
    assert explanations.generalized
    for entry, cell, content in zip(explanations.generalized, cells, contents, strict=True):
        part = content["region"]["x"]
        if part["kind"] == "set":
            sets = [cell.strip("{}").split(", "), part["values"]]
            n_people = [values.isin({read(text) for text in texts}).sum() for texts in sets]
        else:
            ends = [cell.split("–"), [part["low"], part["high"]]]
            if read is number:
                text = Wording(phrases={"x": "{}"}).described("x", entry.region["x"])
                ends.append(text.replace(",", "").split(" to "))
            n_people = [
                sum(read(texts[0]) <= value <= read(texts[-1]) for value in values)
                for texts in ends
            ]
        assert set(n_people) == {entry.recount.k}
