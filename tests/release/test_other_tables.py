"""Tables of polars and pyarrow give the same explanations as those of pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import InputError, PopulationError, SchemaError
from residents import DECLARED, TABLE, rich

KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": pd.DataFrame.copy,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pl.from_pandas(frame).to_arrow(),
}
REFUSED = TABLE[rich(TABLE) == "no"].head(6)
ACCEPTED = TABLE[rich(TABLE) == "yes"].head(6)
KEY = b"of these tests"


def fitted(kind: str) -> KAnonymizer:
    train = KINDS[kind](TABLE)
    schema = Schema.from_frame(train, **DECLARED)
    population = Population.from_frame(train, schema, key=KEY)
    return KAnonymizer(policy=PrivacyPolicy(k=4)).fit(population, rich, "yes")


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    """Return what was fitted on a table of pandas."""
    return fitted("pandas")


@pytest.fixture(scope="module")
def explanations(anonymizer: KAnonymizer) -> Explanations:
    return anonymizer.explain(REFUSED)


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_answers_ignore_the_kind(kind: str, explanations: Explanations) -> None:
    """Of the training table, of the queries and of the table behind the sentences."""
    queries = KINDS[kind](REFUSED)
    result = fitted(kind).explain(queries)
    assert len(explanations.released) >= 5
    assert result.to_json() == explanations.to_json()
    assert result.text(queries) == explanations.text(REFUSED)


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_counterfactuals_ignore_the_kind(kind: str, anonymizer: KAnonymizer) -> None:
    result = anonymizer.transform(KINDS[kind](ACCEPTED), KINDS[kind](REFUSED))
    assert result.released
    assert result.to_json() == anonymizer.transform(ACCEPTED, REFUSED).to_json()


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_function_may_return_any_kind(kind: str, anonymizer: KAnonymizer) -> None:
    def explain(queries: pd.DataFrame) -> Any:
        return KINDS[kind](ACCEPTED.head(len(queries)))

    policy = PrivacyPolicy(guarantee="lookup", k=4)
    settings = {"population": anonymizer.population_, "policy": policy, "desired": "yes"}
    private = protect(explain, model=rich, **settings)
    assert len(private.explain(KINDS[kind](REFUSED)).released) >= 5


@pytest.mark.parametrize("table", [pl.from_pandas(TABLE).lazy(), pl.Series([1]), {"age": [1]}])
def test_other_objects_are_no_tables(table: Any, anonymizer: KAnonymizer) -> None:
    with pytest.raises(SchemaError):
        Schema.from_frame(table, quasi_identifiers=["age"])
    with pytest.raises(PopulationError):
        Population.from_frame(table, anonymizer.population_.schema)
    with pytest.raises(InputError, match=type(table).__name__):
        anonymizer.explain(table)
