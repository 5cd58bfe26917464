"""By default a catalogue answers: an explainer that depends on rows is not asked."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, QUERIES, ROWS, dice_of, label
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    DPPrototypes,
    Explanations,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    protect,
)
from cfk_plugin.dp import infer_domains
from cfk_plugin.errors import (
    AdapterError,
    IgnoredOptionWarning,
    InputError,
    PolicyError,
    WideRegionsWarning,
)
from cfk_plugin.tracking.logger import RunLogger
from parts import figures_of

K = 5
# With everything declared there is nothing to warn of.
SCHEMA = Schema.from_frame(
    ROWS, quasi_identifiers=["age", "job"], target="approved", immutable=["age"]
)
POPULATION = Population.from_frame(ROWS, SCHEMA)
LOOKUP = PrivacyPolicy(k=K, guarantee="lookup")
CANARY = "the text of this explainer's error"


def private(explainer: Any = None, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"population": POPULATION, "desired": 1}
    if "policy" not in settings:
        defaults["k"] = K
    return protect(explainer, model=label, **defaults | settings)


def fail(queries: Any, weight: float = 1.0) -> Any:
    raise ValueError(CANARY)


@pytest.fixture
def silent() -> Iterator[None]:
    """Turn every warning into an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def explanations() -> Explanations:
    """Return what answers without an explainer."""
    result: Explanations = private().explain(QUERIES)
    return result


# --- settings -------------------------------------------------------------------------------------


def test_k_gives_the_default_policy(explanations: Explanations) -> None:
    """Nothing but the number of people has to be chosen."""
    assert explanations.policy == PrivacyPolicy(k=K)
    assert explanations == private(policy=PrivacyPolicy(k=K)).explain(QUERIES)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"policy": PrivacyPolicy(), "k": K}, "policy and k"),
        ({"k": K, "method": "dp"}, "leave out k"),
        ({"policy": PrivacyPolicy(), "method": "dp"}, "leave out policy"),
        ({"k": 1}, ">= 2"),
        ({"policy": LOOKUP}, "catalogue"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, Any], word: str) -> None:
    """A lookup without an explainer has nothing to protect."""
    with pytest.raises(PolicyError, match=word):
        private(**settings)


def test_policy_ignores_types_of_numbers() -> None:
    """NumPy's numbers and Python's give equal policies with the same hash."""
    policy = PrivacyPolicy(k=np.int64(10), l=np.int8(2), min_pureness=np.float32(0.5), t=1)
    plain = PrivacyPolicy(k=10, l=2, min_pureness=0.5, t=1.0)
    assert policy == plain
    assert policy.sha256 == plain.sha256


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
def test_prototypes_need_no_explainer() -> None:
    """The method reads the population, so there is no counterfactual to protect."""
    pytest.importorskip("opendp", reason="needs the extra [dp]")
    people = Population.from_frame(ROWS, infer_domains(ROWS, SCHEMA))
    method = DPPrototypes(rows=200, model_access="public", random_state=0)
    explainer = private(population=people, policy=None, method=method)
    assert len(explainer.explain(QUERIES)) == len(QUERIES)


# --- which explainers are asked -------------------------------------------------------------------


class Declared:
    """An explainer that declares whether its answers depend on single rows."""

    def __init__(self, depends_on_rows: str) -> None:
        self.depends_on_rows = depends_on_rows
        self.n_calls = 0

    def explain(self, queries: pd.DataFrame) -> pd.DataFrame:
        self.n_calls += 1
        return queries.assign(income=95.0)


@pytest.mark.parametrize(
    ("depends_on_rows", "guarantee", "is_asked"),
    [
        ("yes", "catalogue", False),
        ("unknown", "catalogue", False),
        ("no", "catalogue", True),
        ("yes", "lookup", True),
    ],
)
def test_row_dependent_explainer_is_not_asked(
    depends_on_rows: str, guarantee: Any, is_asked: bool
) -> None:
    """In lookup mode, it is: its counterfactual is what is protected."""
    explainer = Declared(depends_on_rows)
    policy = PrivacyPolicy(k=K, guarantee=guarantee)
    explanations = private(explainer, policy=policy).explain(QUERIES)
    assert (explainer.n_calls > 0) == is_asked
    assert (set(explanations.findings) != {None}) == is_asked


@pytest.mark.parametrize("explainer", [NearestUnlikeNeighbour(ROWS[FEATURES], label), fail])
def test_explainer_does_not_decide_on_answers(explainer: Any, explanations: Explanations) -> None:
    """A catalogue answers as without one, even if the explainer fails."""
    assert private(explainer).explain(QUERIES) == explanations


def test_unknown_declaration_is_refused() -> None:
    """The error names the attribute of the explainer."""
    with pytest.raises(AdapterError, match="depends_on_rows"):
        private(Declared("perhaps"))


# --- what an explanation says ---------------------------------------------------------------------


def test_certificate_lists_what_is_not_stopped(explanations: Explanations) -> None:
    """A catalogue leaves one attack, which needs a later release."""
    for entry in explanations.generalized:
        content = entry.to_dict()["certificate"]
        assert content["not_stopped"] == ["intersection after a change"]


def test_answer_names_unchanged_values(explanations: Explanations) -> None:
    """They are the released values that equal the query's."""
    entries = explanations.generalized
    contents = [entry.to_dict() for entry in entries]
    for entry, content in zip(entries, contents, strict=True):
        query = QUERIES.iloc[entry.query]
        equal = {name for name, value in entry.released.items() if value == query[name]}
        assert {*content.get("unchanged", [])} == equal
    assert any("unchanged" in content for content in contents)


# --- the explainer's own methods ------------------------------------------------------------------


@pytest.fixture(scope="module")
def private_dice() -> Any:
    return private(dice_of("random"))


def test_dice_method_returns_answers_of_explain(private_dice: Any) -> None:
    """DiCE's result has the released answers in the same order, and no others."""
    result = private_dice.generate_counterfactuals(QUERIES, total_CFs=2)
    explanations = private_dice.explain(QUERIES, total_CFs=2)
    assert explanations == private_dice.explain(QUERIES, answers=2)
    assert type(result).__name__ == "CounterfactualExplanations"
    for query, examples in enumerate(result.cf_examples_list):
        released = [entry for entry in explanations.for_query(query) if entry.status == "released"]
        incomes = [entry.released["income"] for entry in released]
        assert examples.final_cfs_df["income"].tolist() == incomes
        assert set(examples.final_cfs_df["approved"]) == {1}


def test_dice_importances_are_shares_of_answers(private_dice: Any) -> None:
    """The importance of a column is the share of released answers that change it."""
    result = private_dice.local_feature_importance(QUERIES, total_CFs=10)
    explanations = private_dice.explain(QUERIES, answers=10)
    for query, importance in enumerate(result.local_importance):
        incomes = [
            entry.released["income"]
            for entry in explanations.for_query(query)
            if entry.status == "released"
        ]
        is_changed = np.array(incomes) != QUERIES["income"].iat[query]
        assert {*importance} == {*FEATURES}
        assert importance["income"] == pytest.approx(is_changed.mean())


def test_options_without_effect_warn_once(private_dice: Any) -> None:
    """One warning names all of them, and points to the caller's file."""
    options = {"random_seed": 4, "proximity_weight": 0.5, "verbose": False}
    with pytest.warns(IgnoredOptionWarning, match="proximity_weight, random_seed") as caught:
        private_dice.generate_counterfactuals(QUERIES, total_CFs=1, **options)
    (warning,) = caught
    assert warning.filename == __file__
    with pytest.warns(IgnoredOptionWarning, match="weight"):
        private(fail)(QUERIES, weight=3.0)


def test_promising_option_is_refused(private_dice: Any) -> None:
    """To ignore `stopping_threshold` would break what it promises of the answers."""
    with pytest.raises(AdapterError, match="stopping_threshold"):
        private_dice.generate_counterfactuals(QUERIES, total_CFs=1, stopping_threshold=0.9)


@pytest.mark.usefixtures("silent")
def test_function_gives_several_answers() -> None:
    """`total_CFs` counts them for each query, as in DiCE."""
    assert len(private(fail)(QUERIES, total_CFs=2)) == 2 * len(QUERIES)


@pytest.mark.parametrize("n_quasi", [8, 12])
def test_many_quasi_identifiers_warn(n_quasi: int) -> None:
    """Only more than ten of them do: a few are the choice of the data holder."""
    draws = np.random.default_rng(0)
    names = [f"q{i}" for i in range(n_quasi)]
    table = pd.DataFrame(draws.integers(0, 50, (60, n_quasi)), columns=names)
    table["income"] = draws.integers(10, 90, 60)
    schema = Schema.from_frame(table, quasi_identifiers=names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        protect(
            model=lambda people: people["income"] > 50,
            population=Population.from_frame(table, schema),
            policy=PrivacyPolicy(k=10, margin=0),
            desired=True,
        )
    kinds = [warning.category for warning in caught]
    assert kinds == [WideRegionsWarning] * (n_quasi > 10)


# --- the explainer's sample -----------------------------------------------------------------------


def test_sample_measures_native_rate(mlflow_store: str) -> None:
    """The figure reaches the run once, however many calls are logged, and the report."""
    explainer = private(NearestUnlikeNeighbour(ROWS[FEATURES], label), sample_explainer=20)
    logger = RunLogger(experiment="defaults")
    for _ in range(2):
        logger.log(explainer.explain(QUERIES))
    figures = figures_of(logger.run_id, mlflow_store)
    assert (figures["sampled"], figures["native_rate"]) == (20, 1)
    metric = PrivacyReport.of_runs(explainer.explain(QUERIES).log()).data.metric("native_rate")
    assert (metric.value, metric.n) == (1, 20)


def test_sample_has_only_refused_people() -> None:
    """The explainer is asked about one at a time, and not at all if nobody wants a sample."""
    calls: list[pd.DataFrame] = []

    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        calls.append(queries)
        return queries.assign(income=95.0)

    assert private(explain).explain(QUERIES).summary()["sampled"] is None
    assert not calls
    private(explain, sample_explainer=7)
    assert [len(queries) for queries in calls] == [1] * 7
    assert not label(pd.concat(calls)).any()


def test_negative_sample_is_refused() -> None:
    """The error names the setting."""
    with pytest.raises(InputError, match="sample_explainer"):
        private(fail, sample_explainer=-1)


def test_failing_sample_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the class of the error without its text, and the rate is None."""
    with caplog.at_level(logging.WARNING, "cfk_plugin"):
        explainer = private(fail, sample_explainer=20)
    assert "ValueError" in caplog.text
    assert CANARY not in caplog.text
    assert explainer.explain(QUERIES).summary()["native_rate"] is None
