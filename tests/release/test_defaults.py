"""What the defaults say about one person."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, QUERIES, ROWS, label
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    DPPrototypes,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    protect,
)
from cfk_plugin.dp import infer_domains
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.records.logger import RunLogger
from parts import figures_of

K = 5
SCHEMA = Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved")
POPULATION = Population.from_frame(ROWS, SCHEMA, key=b"the key of these tests")
# Nothing is left open: a warning would ask whether age can change.
DECLARED = Population.from_frame(
    ROWS,
    Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved", immutable=["age"]),
)
AFTER_A_CHANGE = "intersection after a change"
CANARY = "the text of this explainer's error"


def neighbour() -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(ROWS[FEATURES], label)


def private(explainer: Any, **options: Any) -> Any:
    settings = {
        "policy": PrivacyPolicy(k=K),
        "desired": 1,
        "population": POPULATION,
        **options,
    }
    return protect(explainer, model=label, **settings)


def not_stopped(explanations: Any) -> set[tuple[str, ...]]:
    return {entry.certificate.not_stopped for entry in explanations.generalized}


@pytest.fixture
def silent() -> Iterator[None]:
    """Turn every warning into an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# --- settings -------------------------------------------------------------------------------------


def test_another_guarantee_has_its_own_default() -> None:
    lookup = PrivacyPolicy().with_guarantee("lookup")
    assert lookup == PrivacyPolicy(guarantee="lookup")
    assert lookup.with_guarantee("catalogue") == PrivacyPolicy()


@pytest.mark.usefixtures("silent")
def test_defaults_warn_of_nothing() -> None:
    explanations = private(None, population=DECLARED).explain(QUERIES)
    assert not_stopped(explanations) == {(AFTER_A_CHANGE,)}


# --- the start of the search ----------------------------------------------------------------------


def test_a_nearest_neighbour_does_not_decide_on_answers() -> None:
    explanations = private(neighbour()).explain(QUERIES)
    assert explanations == private(None).explain(QUERIES)
    assert not_stopped(explanations) == {(AFTER_A_CHANGE,)}


class Independent:
    """An explainer whose answers depend on no single row."""

    depends_on_rows = "no"

    def explain(self, queries: pd.DataFrame) -> pd.DataFrame:
        return queries.assign(income=95.0)


@pytest.mark.usefixtures("silent")
def test_an_explainer_that_depends_on_no_row_starts_the_search_and_steers_to_none() -> None:
    explanations = private(Independent(), population=DECLARED).explain(QUERIES)
    assert not_stopped(explanations) == {(AFTER_A_CHANGE,)}
    assert set(explanations.findings) != {None}


def test_the_public_certificate_lists_what_is_not_stopped() -> None:
    entry = private(None).explain(QUERIES).generalized[0]
    assert entry.to_dict()["certificate"]["not_stopped"] == [AFTER_A_CHANGE]


# --- moves ----------------------------------------------------------------------------------------


def test_an_answer_says_only_which_values_equal_the_querys() -> None:
    explanations = private(None).explain(QUERIES)
    n_unchanged = 0
    for entry in explanations.generalized:
        query = QUERIES.iloc[entry.query]
        equal = [name for name, value in entry.released.items() if value == query[name]]
        said = entry.to_dict()
        assert sorted(said.get("unchanged", [])) == sorted(equal)
        assert "moved" not in said
        n_unchanged += len(equal)
    assert n_unchanged > 0


# --- the explainer's sample at fit ----------------------------------------------------------------


def test_the_explainer_is_sampled_at_fit_and_not_asked_for_answers() -> None:
    explanations = private(neighbour()).explain(QUERIES)
    summary = explanations.summary()
    assert summary["sampled"] == 20
    assert summary["native_rate"] == 1  # a nearest neighbour returns training rows
    assert set(explanations.findings) == {None}


def test_the_sample_can_be_switched_off() -> None:
    summary = private(neighbour(), sample_explainer=0).explain(QUERIES).summary()
    assert summary["sampled"] is None
    assert summary["native_rate"] is None
    with pytest.raises(InputError, match="sample_explainer"):
        private(neighbour(), sample_explainer=-1)


def test_only_refused_people_are_explained_and_one_at_a_time() -> None:
    calls: list[pd.DataFrame] = []

    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        calls.append(queries)
        return queries.assign(income=95.0)

    private(explain, sample_explainer=7)
    assert [len(queries) for queries in calls] == [1] * 7
    assert not np.any(label(pd.concat(calls)) == 1)


def test_no_further_person_is_explained_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.release.sampling.SECONDS", -1.0)
    assert private(neighbour()).explain(QUERIES).summary()["sampled"] is None


def test_an_explainer_that_fails_at_fit_is_a_warning_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        raise ValueError(CANARY)

    with caplog.at_level(logging.WARNING, "cfk_plugin"):
        protected = private(explain)
    assert "ValueError" in caplog.text
    assert CANARY not in caplog.text
    assert protected.explain(QUERIES).summary()["sampled"] is None


def test_the_sample_is_logged_once_however_many_calls_follow(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    logger = RunLogger(experiment="defaults", tracking_uri=uri)
    protected = private(neighbour())
    for _ in range(3):
        logger.log(protected.explain(QUERIES))
    figures = figures_of(logger.run_id, uri)
    assert (figures["sampled"], figures["native_rate"], figures["examined"]) == (20, 1, 0)


# --- the report -----------------------------------------------------------------------------------

RAW_VALUES = "Private values are released unchanged"


def reported(explanations: Any) -> Any:
    return PrivacyReport.of_runs(explanations.log(experiment="defaults")).data


@pytest.mark.usefixtures("mlflow_store")
def test_the_report_says_what_the_default_leaves_open_and_how_the_explainer_would_leak() -> None:
    data = reported(private(neighbour()).explain(QUERIES))
    limits = " ".join(data.limits)
    assert RAW_VALUES not in limits
    assert "at least k people could have them" in limits
    assert data.metric("native_rate").value == 1
    assert data.metric("native_rate").n == 20


# --- k alone --------------------------------------------------------------------------------------


def test_k_alone_is_the_default_policy_with_this_k() -> None:
    by_k = private(None, policy=None, k=K).explain(QUERIES)
    by_policy = private(None).explain(QUERIES)
    assert by_k.policy == PrivacyPolicy(k=K)
    assert by_k.to_json() == by_policy.to_json()


def test_k_beside_a_policy_or_prototypes_is_refused() -> None:
    with pytest.raises(PolicyError, match="policy and k both say"):
        private(None, k=K)
    with pytest.raises(PolicyError, match="leave out k: prototypes have no policy, no k"):
        private(None, policy=None, k=K, method="dp")
    with pytest.raises(PolicyError, match="k must be a whole number >= 2, got 1"):
        private(None, policy=None, k=1)


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_prototypes_need_no_explainer() -> None:
    people = Population.from_frame(ROWS, infer_domains(ROWS, SCHEMA))
    settings = {"model": label, "population": people, "desired": 1}
    with pytest.raises(PolicyError, match="leave out policy: prototypes"):
        protect(**settings, method="dp", policy=PrivacyPolicy())
    answers = DPPrototypes(rows=200, model_access="public", seed=0)
    private = protect(**settings, method=answers)
    assert "no_explainer" in repr(private)
    assert len(private.explain(QUERIES)) == len(QUERIES)


def test_a_policy_is_the_same_however_its_numbers_are_written() -> None:
    shares = ("min_pureness", "max_ncp", "t", "near_native")
    for name in shares:
        one, other = PrivacyPolicy(**{name: 1}), PrivacyPolicy(**{name: 1.0})
        assert one == other
        assert one.sha256 == other.sha256
