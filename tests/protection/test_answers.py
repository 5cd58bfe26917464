"""The search for answers: its request, the order of candidates, and what is asked along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.protection.answers.candidates import nearest_first
from cfk_plugin.protection.answers.points import TIE
from cfk_plugin.protection.answers.request import CatalogueRequest, ExplainerStart
from cfk_plugin.protection.answers.search import CatalogueAnswers, find_answers

K = 3


def table(seed: int, n_rows: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 30, n_rows),
            "pay": random.integers(10, 60, n_rows),
            "job": random.choice(["clerk", "nurse"], n_rows),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    score = rows["age"].to_numpy(dtype=float) + rows["pay"].to_numpy(dtype=float)
    return np.where(score > 60, "yes", "no")


@pytest.fixture
def anonymizer() -> KAnonymizer:
    train = table(0, 120)
    schema = Schema.from_frame(train, quasi_identifiers=["age"])
    population = Population.from_frame(train, schema, key=b"always the same")
    policy = PrivacyPolicy(k=K, min_pureness=0.3)
    fitted = KAnonymizer(policy=policy).fit(population, model=model, desired="yes")
    fitted.explain(table(3, 60))  # the model is asked about the groups once
    return fitted


def request_of(anonymizer: KAnonymizer, queries: pd.DataFrame, **fields: Any) -> CatalogueRequest:
    return CatalogueRequest(
        constraints=Constraints(encode(queries, anonymizer.population_.encoder), {}),
        open_to=np.ones((len(queries), 1), dtype=bool),
        person_of_query=np.arange(len(queries)),
        options=anonymizer.pipeline_.search,
        **fields,
    )


def find(anonymizer: KAnonymizer, request: CatalogueRequest) -> tuple[CatalogueAnswers, int]:
    """Return answers, and the number of calls of the model."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    calls_before = anonymizer.model_.calls
    return find_answers(catalogue, request), anonymizer.model_.calls - calls_before


def start_of(anonymizer: KAnonymizer, counterfactuals: pd.DataFrame) -> ExplainerStart:
    encoded = encode(counterfactuals, anonymizer.population_.encoder)
    partition = anonymizer.guarantee_.partition
    assert partition is not None
    sides = np.zeros(len(encoded), dtype=np.int64)
    return ExplainerStart(encoded, partition.group_of(encoded.codes, encoded.numbers, sides))


def test_labels_are_asked_along_without_another_call(anonymizer: KAnonymizer) -> None:
    queries = table(1, 20)
    counterfactuals = table(2, 20)
    start = start_of(anonymizer, counterfactuals)
    alone, n_calls_alone = find(anonymizer, request_of(anonymizer, queries, explainer_start=start))
    both, n_calls_both = find(
        anonymizer,
        request_of(
            anonymizer,
            queries,
            explainer_start=start,
            asks_start_labels=True,
            asks_query_labels=True,
        ),
    )
    assert n_calls_alone == n_calls_both > 0
    assert (alone.entry == both.entry).all()
    assert alone.labels_at_start is None
    assert alone.labels_at_queries is None
    assert both.labels_at_start is not None
    assert both.labels_at_queries is not None
    assert both.labels_at_start.tolist() == model(counterfactuals).tolist()
    assert both.labels_at_queries.tolist() == model(queries).tolist()


def test_equal_queries_of_one_person_are_asked_about_once(anonymizer: KAnonymizer) -> None:
    queries = table(1, 4).iloc[[0, 0, 1, 2, 3, 0]].reset_index(drop=True)
    person = np.array([5, 5, 1, 2, 3, 5])
    request = request_of(anonymizer, queries, asks_query_labels=True)
    rows_before = anonymizer.model_.rows
    find(anonymizer, replace(request, person_of_query=person, asks_query_labels=False))
    n_rows_alone = anonymizer.model_.rows - rows_before
    rows_before = anonymizer.model_.rows
    answers, _ = find(anonymizer, replace(request, person_of_query=person))
    assert anonymizer.model_.rows - rows_before == n_rows_alone + 4
    assert answers.labels_at_queries is not None
    assert answers.labels_at_queries.tolist() == model(queries).tolist()
    assert (answers.entry >= 0).all()
    assert answers.points is not None
    released = answers.points.frame[["pay", "job"]].iloc[[0, 1, 5]]
    assert not released.duplicated().any()


def test_labels_of_the_start_need_a_start(anonymizer: KAnonymizer) -> None:
    with pytest.raises(ValueError, match="explainer_start"):
        request_of(anonymizer, table(1, 3), asks_start_labels=True)


@given(seed=st.integers(0, 10**6), width=st.integers(1, 60), count=st.integers(1, 20))
def test_nearest_columns_are_those_of_a_stable_sort(seed: int, width: int, count: int) -> None:
    random = np.random.default_rng(seed)
    distances = random.integers(0, 8, (5, width)) + random.choice([0.0, TIE / 10], (5, width))
    distances[random.random((5, width)) < 0.2] = np.inf
    expected = np.argsort(np.round(distances, 6), axis=1, kind="stable")[:, :count]
    assert nearest_first(distances, count).tolist() == expected.tolist()
