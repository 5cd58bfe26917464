"""What newcomers do wrong, and what the product answers: what to do next, and no value of a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import KAnonymizer, Population, Schema, protect
from cfk_plugin.errors import (
    AdapterError,
    CFKError,
    InputError,
    ModelError,
    NotFittedError,
    PolicyError,
    SchemaError,
)

N = 240
RANDOM = np.random.default_rng(17)
TRAIN = pd.DataFrame(
    {
        "age": RANDOM.integers(7_018, 7_070, N),
        "city": RANDOM.choice(["Canaryville", "Canaryton", "Canaryburg"], N),
        "income": RANDOM.integers(7_115, 7_190, N) * 100,
    }
)
FEATURES = list(TRAIN.columns)
TRAIN["approved"] = np.where(TRAIN["income"] > 715_000, "yes", "no")
QUERIES = TRAIN.loc[TRAIN["approved"] == "no", FEATURES].head(3)

MODEL = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"),
    DecisionTreeClassifier(max_depth=3, random_state=0),
).fit(TRAIN[FEATURES], TRAIN["approved"])
MODEL_OF_DUMMIES = LogisticRegression(max_iter=5_000).fit(
    pd.get_dummies(TRAIN[FEATURES]), TRAIN["approved"]
)


def declare(**settings: Any) -> Schema:
    """Declare the table, right but for the settings."""
    return Schema.from_frame(
        TRAIN, **{"quasi_identifiers": ["age", "city"], "target": "approved", **settings}
    )


@cache
def population() -> Population:
    return Population.from_frame(TRAIN, declare())


def wrap(explainer: Any = None, **settings: Any) -> Any:
    """Protect an explainer, right but for the settings."""
    right = {"model": MODEL, "population": population(), "desired": "yes", "k": 3}
    return protect(explainer, **right | settings)


WRONG_CALLS: dict[str, tuple[Callable[[], Any], type[CFKError], str]] = {
    "quasi-identifier misspelt": (
        lambda: declare(quasi_identifiers=["age", "citty"]),
        SchemaError,
        "unknown column citty; .*; did you mean 'city'",
    ),
    "quasi-identifiers as one text": (
        lambda: declare(quasi_identifiers="age"),
        SchemaError,
        r"must be a list of names, not one string; write \['age'\]",
    ),
    "table in place of a population": (
        lambda: wrap(population=TRAIN),
        InputError,
        "make one with Population.from_frame",
    ),
    "k larger than the table": (
        lambda: wrap(k=1_000),
        PolicyError,
        "above the number of people, 240; choose a smaller k",
    ),
    "model that is not fitted": (
        lambda: wrap(model=DecisionTreeClassifier()),
        ModelError,
        "raised NotFittedError on 240 rows",
    ),
    "model of encoded columns": (
        lambda: wrap(model=MODEL_OF_DUMMIES),
        ModelError,
        "columns that are made from 'city'; give a pipeline",
    ),
    "desired label misspelt": (
        lambda: wrap(desired="Yes"),
        ModelError,
        r"not one of the model's classes: text \('no', 'yes'\).*did you mean 'yes'",
    ),
    "object that does not explain": (
        lambda: wrap(object()),
        AdapterError,
        "Give a function that asks it",
    ),
    "one row as a Series": (
        lambda: wrap().explain(QUERIES.iloc[0]),
        InputError,
        r"queries must be a table .*; one row of a table is table.iloc\[\[0\]\]",
    ),
    "transform before fit": (
        lambda: KAnonymizer().transform(QUERIES),
        NotFittedError,
        r"call fit\(population, model=..., desired=...\) first",
    ),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_call_says_what_to_do(name: str) -> None:
    call, error, text = WRONG_CALLS[name]
    with pytest.raises(error, match=text) as caught:
        call()
    values = [str(value) for column in FEATURES for value in TRAIN[column]]
    assert not [value for value in values if value in str(caught.value)]
