"""Tables of polars and pyarrow give the same explanations as those of pandas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import polars as pl
import pytest

from cfk_plugin import Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InputError, PopulationError, SchemaError
from worlds import World

KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pl.from_pandas(frame).to_arrow(),
}


@pytest.fixture(params=["residents", "patients"])
def world(request: pytest.FixtureRequest) -> World:
    """Return people with gaps, and people with several rows."""
    people: World = request.getfixturevalue(request.param)
    return people


@pytest.mark.parametrize("kind", KINDS)
def test_answers_ignore_the_kind(kind: str, world: World) -> None:
    """Of the training table, of the queries, and of the table behind the sentences."""
    other = replace(world, table=KINDS[kind](world.table))
    queries = KINDS[kind](world.refused)
    result = world.fit(population=other.population).explain(queries)
    assert len(result.released) >= 5
    assert result.to_json() == world.answers.to_json()
    assert result.text(queries) == world.answers.text(world.refused)


@pytest.mark.parametrize("kind", KINDS)
def test_counterfactuals_ignore_the_kind(kind: str, residents: World) -> None:
    """Those of a table, and those that a function returns."""
    expected = residents.lookup.transform(residents.accepted, residents.refused).to_json()
    counterfactuals = KINDS[kind](residents.accepted)
    queries = KINDS[kind](residents.refused)
    assert residents.lookup.transform(counterfactuals, queries).to_json() == expected
    policy = PrivacyPolicy(guarantee="lookup", k=residents.k)
    private = residents.protect(lambda rows: counterfactuals, policy=policy)
    assert private.explain(queries).to_json() == expected


@pytest.mark.parametrize("table", [pl.DataFrame({"age": [1]}).lazy(), pl.Series([1]), {"age": [1]}])
def test_other_objects_are_no_tables(table: Any, residents: World) -> None:
    """A schema, a population and a call refuse them."""
    with pytest.raises(SchemaError):
        Schema.from_frame(table, quasi_identifiers=["age"])
    with pytest.raises(PopulationError):
        Population.from_frame(table, residents.schema)
    with pytest.raises(InputError, match=type(table).__name__):
        residents.anonymizer.explain(table)
