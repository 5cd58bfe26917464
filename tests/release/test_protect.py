"""Protecting an explainer or counterfactuals: answers belong to queries and to nothing else."""

from __future__ import annotations

import logging
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, ROWS, label
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Attribute,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.data.tables import Counterfactual
from cfk_plugin.errors import PolicyError

K = 5
QUASI_IDENTIFIERS = ["age", "job", "education"]
TRAIN = ROWS[FEATURES]
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=QUASI_IDENTIFIERS)
)
REFUSED = TRAIN[label(TRAIN) == 0].head(6).reset_index(drop=True)
ACCEPTED = TRAIN[label(TRAIN) == 1].head(6).reset_index(drop=True)
LOOKUP = PrivacyPolicy(guarantee="lookup", k=K)
POLICIES = {"lookup": LOOKUP, "catalogue": PrivacyPolicy(k=K)}


def fitted(policy: PrivacyPolicy = LOOKUP, model: Any = label, desired: Any = 1) -> KAnonymizer:
    return KAnonymizer(policy=policy).fit(POPULATION, model, desired)


def private(explainer: Any, **settings: Any) -> Any:
    defaults = {"model": label, "population": POPULATION, "policy": LOOKUP, "desired": 1}
    return protect(explainer, **defaults | settings)


@pytest.fixture(scope="module")
def neighbour() -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(TRAIN, label)


def contents(explanations: Any) -> list[Any]:
    """Return explanations as JSON without the numbers of their queries."""
    return [{**entry.to_dict(), "query": 0} for entry in explanations]


# --- progress -------------------------------------------------------------------------------------


class CallerError(Exception):
    """What a caller's own code raises."""


@pytest.mark.parametrize("guarantee", POLICIES)
def test_error_in_progress_reaches_the_caller(
    guarantee: str, neighbour: NearestUnlikeNeighbour
) -> None:
    """It is not mistaken for a failure of the protector, which would withhold every answer."""

    def stop(done: int, total: int) -> None:
        raise CallerError

    explainer = private(neighbour, policy=POLICIES[guarantee])
    with pytest.raises(CallerError):
        explainer.explain(REFUSED, progress=stop)
    assert len(explainer.explain(REFUSED).released) == len(REFUSED)


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_progress_rises_to_the_total(method: str, neighbour: NearestUnlikeNeighbour) -> None:
    reports: list[tuple[int, int]] = []
    explanations = private(neighbour, method=method).explain(
        REFUSED, progress=lambda *report: reports.append(report)
    )
    assert [entry.query for entry in explanations] == [*range(len(REFUSED))]
    assert {entry.certificate.method for entry in explanations.generalized} == {method}
    assert reports == sorted(reports)
    assert reports[-1][0] == reports[-1][1] > 0


# --- queries and their answers --------------------------------------------------------------------


def test_unordered_answers_find_their_queries() -> None:
    """A function may return several answers to a query."""
    accepted = TRAIN[label(TRAIN) == 1]
    numbers = np.repeat(np.arange(len(REFUSED)), 3)

    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        answers = accepted.head(len(numbers)).assign(query=numbers)
        return answers.sample(frac=1, random_state=1)

    explanations = private(explain).explain(REFUSED)
    assert [entry.query for entry in explanations] == numbers.tolist()
    for query in range(len(REFUSED)):
        incomes = {entry.released["income"] for entry in explanations.for_query(query)}
        assert incomes == set(accepted["income"].iloc[3 * query : 3 * query + 3])


def test_counterfactuals_may_be_objects() -> None:
    objects = [
        Counterfactual(7, ACCEPTED.loc[2].to_dict()),
        Counterfactual(2, ACCEPTED.loc[3].to_dict()),
    ]
    explanations = fitted().transform(objects)
    assert [entry.query for entry in explanations] == [7, 2]
    assert contents(explanations) == contents(fitted().transform(ACCEPTED[2:4]))


@pytest.mark.parametrize("desired", [1, lambda labels: labels == 1, "opposite"])
def test_lone_request_equals_batch(desired: Any) -> None:
    """A batch of many is computed in another way than a few."""
    counterfactuals = pd.concat([TRAIN[label(TRAIN) == 1]] * 2, ignore_index=True).head(60)
    counterfactuals.loc[::3, "income"] += 0.5
    counterfactuals.loc[1::3, "age"] += 40
    factuals = pd.concat([REFUSED] * 10, ignore_index=True)
    anonymizer = fitted(replace(LOOKUP, min_pureness=0), desired=desired)
    batch = anonymizer.transform(counterfactuals, factuals)
    assert batch.released
    for i in range(30):
        single = anonymizer.transform(counterfactuals.iloc[[i]], factuals.iloc[[i]])
        assert contents(single) == contents(batch[i : i + 1])


def test_repeated_query_asks_no_model() -> None:
    n_calls = Counter[str]()

    def model(rows: pd.DataFrame) -> Any:
        n_calls["model"] += 1
        return label(rows)

    anonymizer = fitted(POLICIES["catalogue"], model)
    explanations = anonymizer.explain(REFUSED)
    n_calls.clear()
    assert anonymizer.explain(REFUSED) == explanations
    assert not n_calls


def test_lookup_asks_once_about_a_combination() -> None:
    """Only a training row's own label is another question."""
    n_questions = Counter[Any]()

    def model(rows: pd.DataFrame) -> Any:
        if is_fitted:
            n_questions.update(rows.itertuples(index=False, name=None))
        return label(rows)

    is_fitted = False
    anonymizer = fitted(model=model)
    is_fitted = True
    assert anonymizer.transform(ACCEPTED).released
    assert 1 <= max(n_questions.values()) <= 2


class Careless:
    """An explainer that changes its argument and the global random states."""

    instance_based = True

    def explain(self, rows: pd.DataFrame) -> pd.DataFrame:
        answers = NearestUnlikeNeighbour(TRAIN, label).explain(rows)
        random.random()
        np.random.seed(1)  # noqa: NPY002
        rows.loc[:, "age"] = 0
        return answers


def random_states() -> str:
    with np.printoptions(threshold=1_000):
        return f"{random.getstate()} {np.random.get_state()}"  # noqa: NPY002


METHODS = [("grasp", "lookup"), ("mondrian", "lookup"), ("auto", "lookup"), ("auto", "catalogue")]


@pytest.mark.parametrize(("method", "guarantee"), METHODS)
def test_same_seed_gives_same_answers(method: str, guarantee: str) -> None:
    settings = KAnonymizer(policy=POLICIES[guarantee], method=method, random_state=9)
    one, two = (private(Careless(), policy=None, method=settings) for _ in range(2))
    explanations = one.explain(REFUSED)
    assert one.explain(REFUSED) == two.explain(REFUSED) == two(REFUSED) == explanations
    assert two.explain(REFUSED).to_json() == explanations.to_json()
    assert not hasattr(settings, "policy_"), "the caller's settings are not fitted"


@pytest.mark.parametrize("guarantee", POLICIES)
def test_nothing_of_the_caller_changes(
    guarantee: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables and random states stay as they are, and the terminal stays empty."""
    caplog.set_level(logging.INFO)
    before = random_states()
    queries = REFUSED.copy()
    private(Careless(), policy=POLICIES[guarantee]).explain(queries)
    assert random_states() == before
    pd.testing.assert_frame_equal(queries, REFUSED)
    pd.testing.assert_frame_equal(POPULATION.frame, TRAIN)
    assert capsys.readouterr() == ("", "")
    messages = [record.message for record in caplog.records if record.name.startswith("cfk")]
    # `fit` must say this of a table.
    assert [text for text in messages if "in groups without an entry" not in text] == []


# --- models and outcomes --------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", POLICIES)
def test_regressor_with_callable_goal_is_recounted(guarantee: str) -> None:
    def score(rows: pd.DataFrame) -> Any:
        return (rows["age"] + rows["income"]).to_numpy()

    def is_enough(scores: Any) -> Any:
        return scores > 90

    is_accepted = is_enough(score(TRAIN))
    anonymizer = fitted(replace(POLICIES[guarantee], min_pureness=0), score, is_enough)
    explanations = anonymizer.transform(TRAIN[is_accepted].head(4), TRAIN[~is_accepted].head(4))
    assert len(explanations.generalized) == 4
    for entry in explanations.generalized:
        inside = TRAIN[[entry.region.contains(row) for row in TRAIN.to_dict("records")]]
        advised = inside.assign(income=entry.released["income"])
        assert len(inside) == entry.recount.k >= K
        assert entry.recount.k_desired == is_enough(score(inside)).sum()
        assert entry.recount.k_consistent == is_enough(score(advised)).sum()


def test_weight_narrows_a_column() -> None:
    def width(weight: float) -> float:
        columns = {"age": Attribute(weight=weight)}
        schema = Schema.from_frame(TRAIN, quasi_identifiers=QUASI_IDENTIFIERS, columns=columns)
        anonymizer = KAnonymizer(policy=replace(LOOKUP, objective="ncp"))
        anonymizer.fit(Population.from_frame(TRAIN, schema), label, 1)
        ages = [entry.region["age"] for entry in anonymizer.transform(ACCEPTED).generalized]
        return float(np.mean([age.high - age.low for age in ages]))

    assert width(20.0) < width(0.05)


def test_fit_replaces_the_one_before() -> None:
    anonymizer = fitted()
    before = anonymizer.transform(ACCEPTED)
    anonymizer.fit(POPULATION, lambda rows: np.digitize(rows["income"], [40, 65]), 2)
    assert anonymizer.transform(ACCEPTED) != before
    assert anonymizer.fit(POPULATION, label, 1).transform(ACCEPTED) == before


@pytest.mark.parametrize("name", ["policy", "k", "plugins"])
def test_anonymizer_has_its_own_settings(name: str) -> None:
    settings = {"policy": None} | {name: {"policy": LOOKUP, "k": 5, "plugins": [object()]}[name]}
    with pytest.raises(PolicyError, match=name):
        private(None, method=KAnonymizer(policy=LOOKUP), **settings)


# --- what is shown --------------------------------------------------------------------------------


def test_no_persons_label_is_shown() -> None:
    """The table has every feature, and the certificate names the outcome that was asked for."""
    train = TRAIN.assign(label=np.where(label(TRAIN) == 1, "granted", "refused"))
    schema = Schema.from_frame(train, quasi_identifiers=QUASI_IDENTIFIERS, target="label")
    population = Population.from_frame(train, schema)
    anonymizer = KAnonymizer(policy=LOOKUP).fit(population, label, 1)
    explanations = anonymizer.transform(train.head(10))
    frame = explanations.to_frame(text=True)
    assert {*FEATURES} <= {*frame}
    assert frame.loc[frame["status"] == "withheld", FEATURES].isna().all(axis=None)
    assert "granted" not in explanations.to_json() + frame.to_csv()
