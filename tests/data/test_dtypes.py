"""A table of dtypes: fit, queries, served bodies and CSV files give the same answers.

A row of the table is a column of the training table. Whatever its dtype, the model gets it back in
fit and for every query, and a query in any spelling gets the answer of the one before it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.region import is_missing, json_value, to_text
from cfk_plugin.data.values import cells_of
from cfk_plugin.errors import SchemaError
from cfk_plugin.serving.model import explainer_of
from cfk_plugin.serving.requests import answer_request

N = 100
RANDOM = np.random.default_rng(5)
BASE = pd.DataFrame({"age": RANDOM.integers(18, 60, N), "income": RANDOM.integers(15, 90, N)})
RATE = pd.Series(RANDOM.integers(0, 30, N) / 10)
WHOLE = pd.Series(RANDOM.integers(1, 9, N))
DAY = pd.Series(pd.Timestamp("1990-01-27") + pd.to_timedelta(RANDOM.integers(0, 9, N), unit="D"))
TIME = DAY + pd.to_timedelta(RANDOM.integers(0, 3, N), unit="h")
ISO = DAY.dt.strftime("%Y-%m-%d")
FLAG = pd.Series(RANDOM.random(N) < 0.5)
WORD = pd.Series(RANDOM.choice(["a", "b", "c"], N))
LEVEL = pd.Series(pd.Categorical(RANDOM.choice(["low", "mid"], N), ["low", "mid", "high"], True))
IS_GAP = pd.Series(RANDOM.random(N) < 0.1)
HOUR_EAST = timezone(timedelta(hours=1))


def objects(column: pd.Series, convert: Callable[[Any], Any]) -> pd.Series:
    return pd.Series([convert(cell) for cell in column], dtype=object)


def gaps(column: pd.Series) -> pd.Series:
    return column.mask(IS_GAP)


# By kind in the schema and name.
COLUMNS: dict[str, dict[str, pd.Series]] = {
    "numeric": {
        "float32": RATE.astype("float32"),
        "Float64": gaps(RATE).astype("Float64"),
        "double[pyarrow]": gaps(RATE).astype("double[pyarrow]"),
        "objects of float32": objects(RATE.astype("float32"), float),
        "decimals": objects(RATE, lambda rate: Decimal(str(rate))),
        "int8": WHOLE.astype("int8"),
        "uint64": WHOLE.astype("uint64"),
        "Int64": gaps(WHOLE).astype("Int64"),
        "objects of integers": objects(WHOLE, int),
        "datetime64[s]": gaps(DAY.astype("datetime64[s]")),
        "dates in Brussels": TIME.dt.tz_localize("Europe/Brussels"),
        "dates an hour east": DAY.dt.tz_localize(HOUR_EAST),
        "days as str with gaps": gaps(ISO),
        "days as string[pyarrow]": gaps(ISO).astype("string[pyarrow]"),
        "objects of date": DAY.dt.date,
        "objects of Timestamp": TIME.astype(object),
        "date32": DAY.dt.date.astype("date32[pyarrow]"),
        "timestamp in UTC[pyarrow]": TIME.dt.tz_localize("UTC").astype(
            "timestamp[ns, tz=UTC][pyarrow]"
        ),
    },
    "nominal": {
        "boolean": gaps(FLAG.astype("boolean")),
        "bool[pyarrow]": FLAG.astype("bool[pyarrow]"),
        "objects of bool": objects(FLAG, bool),
        "true as text": FLAG.map({True: "true", False: "false"}),
        "object": gaps(WORD).astype(object),
        "string": gaps(WORD).astype("string"),
        "whole categories": WHOLE.astype("category"),
        "number categories": RATE.astype("float32").astype("category"),
        "floats as text": WHOLE.astype(float).astype(str),
        "days as categories": ISO.astype("category"),
    },
    "ordinal": {
        "ordered categories with gaps": LEVEL.mask(IS_GAP),
        "ordered numbers": pd.Series(pd.Categorical(WHOLE, range(10), ordered=True)),
    },
}
CASES = [
    pytest.param(kind, column, id=name)
    for kind, columns in COLUMNS.items()
    for name, column in columns.items()
]


def forms(column: pd.Series) -> tuple[str, set[type]]:
    """Return the dtype of a column, and the types of its cells."""
    return str(column.dtype), {type(cell) for cell in column if not is_missing(cell)}


def body_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return queries as a server reads them: numbers, truths and texts of JSON."""
    columns = {name: [json_value(cell) for cell in cells_of(rows[name])] for name in rows}
    return pd.DataFrame(json.loads(json.dumps(columns)))


def csv_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return queries as a CSV file has them, with the day of a date in UTC."""
    return pd.read_csv(io.StringIO(rows.to_csv(index=False)))


def texts_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return queries as text only."""
    return rows.map(to_text, na_action="ignore").astype(object)


SPELLINGS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "objects": lambda rows: rows.astype(object),
    "categories": lambda rows: rows.astype(object).astype("category"),
    "a body": body_of,
    "CSV": csv_of,
    "texts": texts_of,
}


@pytest.mark.parametrize(("kind", "column"), CASES)
def test_every_spelling_gets_same_answer(kind: str, column: pd.Series, tmp_path: Path) -> None:
    """The column is there twice, public and private, and no answer asks for another value of it.

    The model gets the training dtypes, in fit, for queries and from the catalogue's file.
    """
    table = BASE.assign(v=column, w=column)

    def model(rows: pd.DataFrame) -> Any:
        for name in ("v", "w"):
            assert forms(rows[name])[0] == forms(column)[0]
            assert forms(rows[name])[1] <= forms(column)[1]
        return np.where(rows["income"] > 50, "granted", "refused")

    schema = Schema.from_frame(table, quasi_identifiers=["age", "v"], immutable=["age"])
    assert schema["v"].kind == schema["w"].kind == kind
    population = Population.from_frame(table, schema)
    codes = population.row_codes
    features = table[list(schema.features)]
    pd.testing.assert_frame_equal(codes.decode(codes.encode(table)), features, check_freq=False)
    policy = PrivacyPolicy(k=5)
    anonymizer = KAnonymizer(policy=policy).fit(population, model=model, desired="granted")
    queries = table[table["income"] < 40].head(3).reset_index(drop=True)
    answers = anonymizer.explain(queries)
    sentences = answers.text(queries)
    assert len(answers.released) == len(queries)
    assert not any(" v " in sentence or " w " in sentence for sentence in sentences)

    anonymizer.catalogue_.save(tmp_path / "catalogue.cfk")
    loaded = KAnonymizer.load(tmp_path / "catalogue.cfk", model)
    for spelling, spell in SPELLINGS.items():
        rows = spell(queries)
        assert anonymizer.explain(rows).to_json() == answers.to_json(), spelling
        assert answers.text(rows) == sentences, spelling
        served = answer_request(explainer_of(loaded), rows, {}, 50)["explanations"]
        assert [entry["sentence"] for entry in served] == sentences, spelling


REFUSED = {
    "Sparse": (WHOLE.astype("Sparse[int64]"), lambda v: v.sparse.to_dense()),
    "timedelta": (DAY - DAY.min(), lambda v: v.dt.total_seconds()),
    "period": (DAY.dt.to_period("D"), lambda v: v.dt.to_timestamp()),
    "complex": (RATE + 1j, lambda v: v.map(abs)),
    "datetime64": (DAY.astype("category"), lambda v: v.astype(v.cat.categories.dtype)),
    "interval": (pd.cut(WHOLE, [0, 3, 9]), lambda v: v.cat.rename_categories(str)),
    "decimal": (RATE.map(lambda rate: Decimal(str(rate))), lambda v: v.astype("float64")),
    "dictionary": (WORD, lambda v: v.astype("category")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_dtype_has_a_remedy(name: str) -> None:
    """The message names the column, its dtype and a conversion after which it is read."""
    column, convert = REFUSED[name]
    arrow = {"decimal": pa.decimal128(9, 2), "dictionary": pa.dictionary(pa.int32(), pa.string())}
    if name in arrow:
        column = column.astype(pd.ArrowDtype(arrow[name]))
    with pytest.raises(SchemaError, match=rf"column 'v' has dtype {name}.*convert it with column"):
        Schema.from_frame(BASE.assign(v=column), quasi_identifiers=["age", "v"])
    schema = Schema.from_frame(BASE.assign(v=convert(column)), quasi_identifiers=["age", "v"])
    assert schema["v"].kind in ("numeric", "nominal", "ordinal")
