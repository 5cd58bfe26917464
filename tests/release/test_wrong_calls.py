"""What newcomers do wrong is answered with what to do next, and with no value of a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin._files import goal_among
from cfk_plugin.data.tables import Counterfactual
from cfk_plugin.errors import (
    AdapterError,
    CFKError,
    InputError,
    ModelError,
    PolicyError,
    SchemaError,
)

N_PEOPLE = 240
RANDOM = np.random.default_rng(17)
# Values that no message has by chance.
TRAIN = pd.DataFrame(
    {
        "age": RANDOM.integers(7_018, 7_070, N_PEOPLE),
        "city": RANDOM.choice(["Canaryville", "Canaryton", "Canaryburg"], N_PEOPLE),
        "income": RANDOM.integers(7_115, 7_190, N_PEOPLE) * 100,
    }
)


class Model:
    classes_ = np.array(["no", "yes"])

    def predict(self, rows: pd.DataFrame) -> Any:
        return np.where(rows["income"] > 715_000, "yes", "no")


QUERIES = TRAIN[Model().predict(TRAIN) == "no"].head(3)


def declare(quasi_identifiers: Any = ("age", "city")) -> Schema:
    return Schema.from_frame(TRAIN, quasi_identifiers=quasi_identifiers)


@cache
def population() -> Population:
    return Population.from_frame(TRAIN, declare())


def wrap(explainer: Any = None, **settings: Any) -> Any:
    """Protect an explainer; everything but the settings is right."""
    right = {"model": Model(), "population": population(), "desired": "yes", "k": 3}
    return protect(explainer, **right | settings)


def fit() -> KAnonymizer:
    return KAnonymizer(policy=PrivacyPolicy(k=3)).fit(population(), Model(), "yes")


ROW = TRAIN.iloc[0].to_dict()
WRONG_CALLS: dict[str, tuple[Callable[[], Any], type[CFKError], str]] = {
    "misspelt quasi-identifier": (lambda: declare(["age", "citty"]), SchemaError, "'city'"),
    "quasi-identifiers as one text": (lambda: declare("age"), SchemaError, r"\['age'\]"),
    "table as population": (lambda: wrap(population=TRAIN), InputError, "Population.from_frame"),
    "k above the table": (lambda: wrap(k=1_000), PolicyError, "240"),
    "unfitted model": (
        lambda: wrap(model=DecisionTreeClassifier()),
        ModelError,
        "NotFittedError",
    ),
    "misspelt label": (lambda: wrap(desired="Yes"), ModelError, "did you mean 'yes'"),
    "object that does not explain": (lambda: wrap(object()), AdapterError, "function"),
    "row as a Series": (lambda: wrap().explain(QUERIES.iloc[0]), InputError, r"iloc\[\[0\]\]"),
    "two factuals of one query": (
        lambda: fit().transform([Counterfactual(0, ROW), Counterfactual(0, ROW)], QUERIES.head(2)),
        InputError,
        "number the queries differently",
    ),
    "later models of a file as one text": (
        lambda: KAnonymizer.load("catalogue.cfk", Model(), later="models"),
        InputError,
        "later must be a list",
    ),
    "transform before fit": (lambda: KAnonymizer().transform(QUERIES), NotFittedError, "fit"),
}


def assert_no_value(error: BaseException) -> None:
    values = TRAIN.astype(str).to_numpy().ravel()
    assert not [value for value in values if value in str(error)]


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_call_names_a_remedy(name: str) -> None:
    """And no value of a row."""
    call, error, word = WRONG_CALLS[name]
    with pytest.raises(error, match=word) as caught:
        call()
    assert_no_value(caught.value)


def test_transposed_table_is_not_quoted() -> None:
    """The names of its columns are values of rows, even if one is nearly a column's name."""
    turned = pd.DataFrame([[1, 2, 3]], columns=["age", "incom", "Canaryton"])
    with pytest.raises(CFKError, match="nearly") as caught:
        Population.from_frame(turned, declare())
    assert "incom'" not in str(caught.value)
    assert_no_value(caught.value)


@pytest.mark.parametrize(("n_labels", "is_named"), [(20, True), (30, False)])
def test_label_of_many_is_not_named(n_labels: int, is_named: bool) -> None:
    """So many labels are hardly classes, and could be values of rows."""
    with pytest.raises(InputError) as caught:
        goal_among([f"label {i:03}" for i in range(n_labels)], "labl 007")
    assert ("'label 007'" in str(caught.value)) == is_named


def test_failed_fit_answers_nothing() -> None:
    """Not even from the fit before."""
    anonymizer = fit()
    anonymizer.policy = PrivacyPolicy(k=1_000)
    with pytest.raises(PolicyError):
        anonymizer.fit(population(), Model(), "yes")
    with pytest.raises(NotFittedError):
        anonymizer.explain(QUERIES)
