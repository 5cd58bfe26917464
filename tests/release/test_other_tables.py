"""Tables of polars and pyarrow are taken wherever pandas' are, and give the same explanations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import InputError, PopulationError, SchemaError

RANDOM = np.random.default_rng(2)
N = 80
TRAIN = pl.DataFrame(
    {
        "age": RANDOM.integers(20, 70, N),
        "town": RANDOM.choice(["Ghent", "Namur", "Mons"], N),
        "joined": [
            date(2020, 1, 1) + timedelta(days=int(days)) for days in RANDOM.integers(0, 900, N)
        ],
        "pay": np.round(RANDOM.normal(50, 15, N), 1),
        "owns": RANDOM.random(N) < 0.5,
    }
)
KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": pl.DataFrame.clone,
    "pyarrow": pl.DataFrame.to_arrow,
}
pytestmark = pytest.mark.full_search  # what is made once for all tests is searched for in full
POLICY = PrivacyPolicy(k=4, guarantee="catalogue")


def model(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"].astype(float) + rows["age"].astype(float) / 4 > 60, "yes", "no")


REFUSED = TRAIN.filter(pl.Series(model(TRAIN.to_pandas()) == "no")).head(6)
ACCEPTED = TRAIN.filter(pl.Series(model(TRAIN.to_pandas()) == "yes")).head(6)


def fitted(train: Any) -> KAnonymizer:
    schema = Schema.from_frame(train, quasi_identifiers=["age", "town", "joined"])
    return KAnonymizer(policy=POLICY).fit(
        Population.from_frame(train, schema, key=b"of this test alone"), model, "yes"
    )


@pytest.fixture(scope="module")
def expected() -> Explanations:
    return fitted(TRAIN.to_pandas()).explain(REFUSED.to_pandas())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_released_whatever_kind_the_tables_are(
    kind: str, expected: Explanations
) -> None:
    as_kind = KINDS[kind]
    anonymizer = fitted(as_kind(TRAIN))
    found = anonymizer.explain(as_kind(REFUSED))
    assert len(found.released) >= 5
    assert [entry.to_dict() for entry in found.released] == [
        entry.to_dict() for entry in expected.released
    ]
    assert found.text(as_kind(REFUSED)) == expected.text(REFUSED.to_pandas())
    behind = anonymizer.transform(as_kind(ACCEPTED), as_kind(REFUSED))
    plain = anonymizer.transform(ACCEPTED.to_pandas(), REFUSED.to_pandas())
    assert [entry.to_dict() for entry in behind.released] == [
        entry.to_dict() for entry in plain.released
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_function_that_returns_such_a_table_is_protected(kind: str) -> None:
    as_kind = KINDS[kind]

    def find(queries: pd.DataFrame) -> Any:
        return as_kind(ACCEPTED.head(len(queries)))

    population = fitted(as_kind(TRAIN)).population_
    private = protect(find, model=model, population=population, desired="yes", policy=POLICY)
    assert len(private.explain(as_kind(REFUSED)).released) >= 5


@pytest.mark.parametrize("table", [TRAIN.lazy(), TRAIN["age"], {"age": [1]}])
def test_what_is_no_table_of_rows_is_refused(table: Any, expected: Explanations) -> None:
    with pytest.raises(SchemaError):
        Schema.from_frame(table, quasi_identifiers=["age"])
    anonymizer = fitted(TRAIN)
    with pytest.raises(PopulationError):
        Population.from_frame(table, anonymizer.population_.schema)
    with pytest.raises(InputError, match=type(table).__name__):
        anonymizer.explain(table)
