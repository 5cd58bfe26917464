"""Whoever lets answers change sex or age is warned once, unless they said how these may change."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import PersonalColumnWarning, UntrackedWarning, refitting
from cfk_plugin.serving.model import explainer_of
from cfk_plugin.serving.requests import answer_request
from cfk_plugin.tracking.logger import RunLogger

RANDOM = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {
        "age": RANDOM.integers(20, 60, 200),
        "sex": RANDOM.choice(["f", "m"], 200),
        "pay": RANDOM.integers(0, 100, 200).astype(float),
    }
)


def grants(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 50) & (rows["age"] > 40) & (rows["sex"] == "f")


GRANTED = PEOPLE[grants(PEOPLE)].head(8).reset_index(drop=True)
REFUSED = PEOPLE[(PEOPLE["sex"] == "m") & (PEOPLE["age"] < 35)].head(8)


def population_of(**declared: Any) -> Population:
    schema = Schema.from_frame(PEOPLE, quasi_identifiers=["age", "sex"], **declared)
    return Population.from_frame(PEOPLE, schema)


def fit(guarantee: Any = "catalogue", **declared: Any) -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    return KAnonymizer(policy=policy).fit(population_of(**declared), grants, True)


def warnings_of(call: Any) -> list[str]:
    """Return the texts of the warnings that a call raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PersonalColumnWarning)
        call()
    return [str(one.message) for one in caught if one.category is PersonalColumnWarning]


def test_warning_is_given_once_per_fit() -> None:
    """It says how to declare the columns."""
    anonymizer = fit()
    for _ in range(2):
        (text,) = warnings_of(lambda: anonymizer.explain(REFUSED))
        assert 'immutable=["age", "sex"]' in text
        assert warnings_of(lambda: anonymizer.explain(REFUSED)) == []
        anonymizer.fit(population_of(), grants, True)


@pytest.mark.parametrize(
    ("guarantee", "factuals", "n_warnings"),
    [("lookup", REFUSED, 1), ("catalogue", REFUSED, 1), ("lookup", None, 0)],
)
def test_counterfactuals_warn_with_factuals(guarantee: str, factuals: Any, n_warnings: int) -> None:
    """Without them, nobody knows what changes."""
    anonymizer = fit(guarantee)
    assert len(warnings_of(lambda: anonymizer.transform(GRANTED, factuals))) == n_warnings


@pytest.mark.parametrize(
    ("declared", "columns"),
    [
        ({"immutable": ["age", "sex"]}, None),
        ({"monotone": {"age": "increase"}, "immutable": ["sex"]}, None),
        ({"monotone": {"age": "increase"}}, '["sex"]'),
        ({"never_advise": {"age": [None]}}, '["age", "sex"]'),
    ],
)
def test_declared_columns_are_not_named(declared: dict[str, Any], columns: str | None) -> None:
    """A column is declared if the schema decides on all of its values."""
    anonymizer = fit(**declared)
    texts = warnings_of(lambda: anonymizer.explain(PEOPLE[~grants(PEOPLE)].head(60)))
    assert len(texts) == (columns is not None)
    assert all(f"immutable={columns}" in text for text in texts)


@pytest.mark.parametrize(
    "call",
    [
        {"features_to_vary": ["age", "sex", "pay"]},
        {"permitted_range": {"age": [18, 60], "sex": ["f"]}},
    ],
    ids=["features_to_vary", "permitted_range"],
)
def test_call_that_decides_does_not_warn(call: dict[str, Any]) -> None:
    """It names the columns."""
    anonymizer = fit()
    assert warnings_of(lambda: anonymizer.explain(REFUSED, **call)) == []


def test_audit_does_not_warn() -> None:
    """It fits again only to measure a fit that has warned already."""
    with refitting():
        anonymizer = fit()
    assert warnings_of(lambda: anonymizer.explain(REFUSED)) == []


def test_server_logs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """No request gives a warning, and the second one adds no line."""
    explainer = explainer_of(fit())
    with caplog.at_level(logging.WARNING, "cfk_plugin"):
        assert (
            warnings_of(lambda: [answer_request(explainer, REFUSED, {}, 50) for _ in range(2)])
            == []
        )
    assert caplog.text.count("immutable=") == 1


def test_withheld_answers_give_no_warning(tmp_path: Path) -> None:
    """Without a record no answer leaves, so none changes who a person is."""
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", journal=tmp_path, strict=True)
    with pytest.warns(UntrackedWarning) as caught:
        answers = fit().explain(REFUSED, track=logger)
    assert not answers.released
    assert {warning.category for warning in caught} == {UntrackedWarning}
