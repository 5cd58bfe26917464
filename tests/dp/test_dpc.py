"""DPC through its public class: it flips, it repeats itself by seed, it promises nothing, it refuses what it must."""

from __future__ import annotations

import copy
import pickle
import re
import traceback

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from cfk_plugin import Population, Schema, protect
from cfk_plugin.dp import DPC, PublicDomain, PublicEncoder
from cfk_plugin.errors import (
    CFKError,
    InputError,
    ModelError,
    NotFittedError,
    PolicyError,
    PopulationError,
    SchemaError,
)

FAST = {"epochs": 100, "batch_size": None, "rate": 0.02, "seed": 0}


def table(n: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"age": random.integers(20, 70, n), "pay": random.random(n), "city": random.choice(list("AB"), n)}
    )
    return rows.assign(loan=np.where(rows["pay"] + 0.3 * (rows["city"] == "A") > 0.7, "granted", "denied"))


ROWS = table()
FEATURES = ["age", "pay", "city"]
DECLARED = {
    "bounds": {"age": (18, 90), "pay": (0, 1)},
    "categories": {"city": ["A", "B"]},
    "nullable": [],
    "whole": ["age"],
}


def population(rows: pd.DataFrame = ROWS, target: str | None = "loan") -> Population:
    kept = rows if target else rows[FEATURES]
    return Population.from_frame(kept, Schema.from_frame(kept, quasi_identifiers=["age"], target=target, **DECLARED))


PEOPLE = population()
ENCODER = PublicEncoder(PublicDomain.of(PEOPLE))


@pytest.fixture(scope="module")
def model() -> Pipeline:
    network = MLPClassifier((8,), activation="tanh", solver="lbfgs", max_iter=300, random_state=0)
    return make_pipeline(ENCODER, network).fit(ROWS[FEATURES], ROWS["loan"])


@pytest.fixture
def queries(model: Pipeline) -> pd.DataFrame:
    return ROWS.loc[model.predict(ROWS[FEATURES]) == "denied", FEATURES].head(20)


@pytest.mark.parametrize("desired", ["granted", "opposite"])
@pytest.mark.parametrize("shape", [{}, {"hidden": (6,)}, {"batch_size": 64, "epochs": 40}], ids=str)
def test_counterfactuals_flip_the_outcome(model: Pipeline, queries: pd.DataFrame, desired: str, shape: dict) -> None:
    method = DPC(np.inf, **{**FAST, **shape}).fit(PEOPLE, model, desired)
    found = method.generate(queries)
    assert found.dtypes.to_dict() == queries.dtypes.to_dict()
    assert len(found) == len(queries)
    assert not ENCODER.domain.outside(found)
    assert (model.predict(found) == "granted").mean() > 0.9


def test_rows_are_those_of_the_search_rounded(model: Pipeline, queries: pd.DataFrame) -> None:
    method = DPC(**FAST).fit(PEOPLE, model, "granted")
    pd.testing.assert_frame_equal(method.generate(queries), ENCODER.decode(method.search(queries)))


def test_several_counterfactuals_of_a_query_stand_together_and_the_first_is_the_single_one(
    model: Pipeline, queries: pd.DataFrame
) -> None:
    method = DPC(np.inf, **FAST).fit(PEOPLE, model, "granted")
    several = method.search(queries.head(3), per_query=4)
    np.testing.assert_allclose(several[::4], method.search(queries.head(3)))
    assert len(np.unique(several.round(6), axis=0)) == 12


def test_a_seed_repeats_everything_and_none_does_not(model: Pipeline, queries: pd.DataFrame) -> None:
    one, same, other, unseeded = (
        DPC(0.5, **{**FAST, "seed": seed}).fit(PEOPLE, model, "granted").search(queries) for seed in (1, 1, 2, None)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert not np.allclose(one, unseeded)


def test_epsilon_scales_the_noise(model: Pipeline, queries: pd.DataFrame) -> None:
    none, hardly, much = (
        DPC(epsilon, **FAST).fit(PEOPLE, model, "granted").search(queries) for epsilon in (np.inf, 1e9, 0.5)
    )
    np.testing.assert_allclose(none, hardly, atol=0.05)  # the search magnifies the last digits
    assert np.abs(none - much).max() > 0.1


def test_classes_are_the_targets_or_else_predictions(model: Pipeline, queries: pd.DataFrame) -> None:
    swapped = ROWS.assign(loan=np.where(ROWS["loan"] == "denied", "granted", "denied"))
    own, other = (DPC(np.inf, **FAST).fit(population(rows), model, "granted") for rows in (ROWS, swapped))
    predicted = DPC(np.inf, **FAST).fit(population(target=None), model, "granted")
    assert own.labels_from == "the target column 'loan'"
    assert predicted.labels_from == "the model's predictions"
    assert not np.allclose(own.search(queries), other.search(queries), atol=1e-3)
    assert np.allclose(own.search(queries), predicted.search(queries), atol=0.2)  # few rows are predicted otherwise


def test_the_prototype_of_a_lone_member_is_that_member(model: Pipeline) -> None:
    lone = pd.concat([ROWS[ROWS["loan"] == "denied"], ROWS[ROWS["loan"] == "granted"].head(1)], ignore_index=True)
    method = DPC(**FAST, alpha=0, beta=0).fit(population(lone), model, "granted")
    member = method._net.decode(method._net.encode(ENCODER.transform(lone.tail(1))))[0]
    np.testing.assert_allclose(method.search(ROWS.head(1)), member)


def test_opposite_takes_the_nearest_other_prototype() -> None:
    rows = ROWS.assign(loan=pd.cut(ROWS["pay"], [-1, 0.33, 0.66, 1], labels=["low", "mid", "high"]).astype(str))
    model = make_pipeline(ENCODER, LogisticRegression(C=1000.0)).fit(rows[FEATURES], rows["loan"])
    method = DPC(np.inf, **{**FAST, "epochs": 300}).fit(population(rows), model, "opposite")
    low = rows.loc[model.predict(rows[FEATURES]) == "low", FEATURES].head(20)
    assert (model.predict(method.generate(low)) == "mid").mean() > 0.9


def test_a_function_of_gradients_serves_any_model(queries: pd.DataFrame) -> None:
    def gradient(encoded: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert set(targets) == {True}
        logit = 8 * (encoded[:, 1] - 0.7)
        slope = np.zeros_like(encoded)
        slope[:, 1] = 8 / (1 + np.exp(logit))
        return -np.log1p(np.exp(-logit)), slope

    method = DPC(np.inf, **FAST, gradient=gradient).fit(population(target=None), lambda rows: rows["pay"] > 0.7, True)
    assert (method.generate(queries)["pay"] > 0.7).mean() > 0.9


def test_it_is_labelled_as_without_a_guarantee(model: Pipeline) -> None:
    method = DPC(0.75)
    assert repr(method) == "DPC(claimed epsilon=0.75, no guarantee)"
    assert (method.epsilon, method.guarantee, method.sensitivity) == (0.75, "no guarantee; see audit", 132)
    assert "no guarantee" in (DPC.__doc__ or "")


def test_it_refuses_to_be_pickled_or_copied(model: Pipeline) -> None:
    method = DPC(**FAST).fit(PEOPLE, model, "granted")
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PopulationError, match="refuses to be pickled"):
            attempt(method)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"hidden": ()}, "hidden"),
        ({"hidden": (4, 1)}, "hidden"),
        ({"beta": -0.1}, "beta"),
        ({"rate": -1}, "rate"),
        ({"tied": True}, "tied"),
        ({"alpha": float("nan")}, "alpha"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_named(settings: dict, named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        DPC(**settings)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_without_known_gradients_are_refused_with_advice() -> None:
    x, y = ROWS[FEATURES], ROWS["loan"]
    numbers = ENCODER.transform(x)
    ranged = Population.from_frame(
        ROWS,
        Schema.from_frame(
            ROWS, quasi_identifiers=["age"], target="loan", **{**DECLARED, "bounds": {"age": (0, 99), "pay": (0, 1)}}
        ),
    )
    several = MLPClassifier((2,), max_iter=5).fit(numbers, np.column_stack([y == "granted", x["age"] > 40]))
    cases = {
        "gradients are known of a LogisticRegression: give a fitted Pipeline": LogisticRegression().fit(numbers, y),
        "gradients are known of a RandomForestClassifier": make_pipeline(ENCODER, RandomForestClassifier(2)).fit(x, y),
        "gradients are known of a OneVsRestClassifier": make_pipeline(
            ENCODER, OneVsRestClassifier(LogisticRegression())
        ).fit(x, y),
        "LogisticRegression is not fitted": make_pipeline(ENCODER, LogisticRegression()),
        "has another domain": make_pipeline(PublicEncoder(PublicDomain.of(ranged)), LogisticRegression()).fit(x, y),
        "one sigmoid or softmax": Pipeline([("encode", ENCODER), ("net", several)]),
    }
    for message, wrong in cases.items():
        with pytest.raises(ModelError, match=re.escape(message)):
            DPC(**FAST).fit(PEOPLE, wrong, "granted")


def test_goals_that_it_cannot_search_for_are_refused(model: Pipeline) -> None:
    with pytest.raises(ModelError, match="one of the model's classes"):
        DPC(**FAST).fit(PEOPLE, model, "Granted")
    with pytest.raises(ModelError, match="must be a label"):
        DPC(**FAST).fit(PEOPLE, model, lambda labels: labels == "granted")
    alike = ROWS[ROWS["loan"] == "denied"]
    for desired in ("granted", "opposite"):
        with pytest.raises(ModelError, match="no row is of a class that is desired, by the target column 'loan'"):
            DPC(**FAST).fit(population(alike), model, desired)


def test_a_fit_that_fails_leaves_nothing_of_the_one_before(model: Pipeline, queries: pd.DataFrame) -> None:
    method = DPC(**FAST).fit(PEOPLE, model, "granted")
    with pytest.raises(ModelError):
        method.fit(population(ROWS[ROWS["loan"] == "denied"]), model, "granted")
    with pytest.raises(NotFittedError):
        method.generate(queries)


def test_domains_that_are_not_declared_are_refused(model: Pipeline) -> None:
    schema = Schema.from_frame(ROWS, quasi_identifiers=["age"], target="loan")
    with pytest.raises(SchemaError, match="'pay' lacks bounds or bins"):
        DPC(**FAST).fit(Population.from_frame(ROWS, schema), model, "granted")


def test_a_sealed_population_has_no_rows_to_train_on(model: Pipeline, tmp_path) -> None:
    PEOPLE.seal(tmp_path / "people.cfk")
    with pytest.raises(CFKError):
        DPC(**FAST).fit(Population.open(tmp_path / "people.cfk"), model, "granted")


def test_wrong_queries_are_refused(model: Pipeline, queries: pd.DataFrame) -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        DPC().generate(queries)
    method = DPC(**FAST).fit(PEOPLE, model, "granted")
    with pytest.raises(InputError, match="no rows"):
        method.generate(queries.head(0))
    with pytest.raises(InputError, match="lacks the features pay"):
        method.generate(queries.drop(columns="pay"))
    with pytest.raises(InputError, match="at least 1"):
        method.generate(queries, per_query=0)


CANARY = "canary-7319"


def _raise(encoded: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    raise ValueError(f"{CANARY} {encoded[0]}")


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (_raise, "raised ValueError on 3 rows"),
        (lambda encoded, targets: (np.zeros(len(encoded)), np.zeros(2)), "must return arrays of shapes"),
        (lambda encoded, targets: (np.full(len(encoded), np.nan), encoded), "not finite"),
    ],
    ids=["raises", "shapes", "nan"],
)
def test_a_wrong_function_of_gradients_is_refused_without_a_value(gradient, message: str) -> None:
    method = DPC(**FAST, gradient=gradient).fit(population(target=None), lambda rows: rows["pay"] > 0.7, True)
    with pytest.raises(ModelError, match=message) as caught:
        method.generate(ROWS[FEATURES].head(3))
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_no_value_of_a_row_is_in_an_error_or_repr(model: Pipeline, queries: pd.DataFrame) -> None:
    shown = []
    for column, value in (("city", CANARY), ("loan", CANARY), ("pay", np.inf)):
        rows = ROWS.copy()
        rows.loc[3, column] = value
        with pytest.raises(CFKError) as caught:
            DPC(**FAST).fit(population(rows), model, "granted")
        shown.append(str(caught.value))
        assert column in shown[-1]
    with pytest.raises(InputError) as caught:
        DPC(**FAST).fit(PEOPLE, model, "granted").generate(queries.assign(city=CANARY))
    method = DPC(**FAST).fit(PEOPLE, model, "granted")
    shown += [str(caught.value), repr(method), repr(method._net), repr(method._encoder), repr(method._slope)]
    assert not any(CANARY in text for text in shown)
    assert repr(method) == "DPC(claimed epsilon=0.025, no guarantee)"


def test_every_answer_says_that_nothing_is_guaranteed(model: Pipeline, mlflow_store: str) -> None:
    denied = ROWS[ROWS["loan"] == "denied"].head(20)[FEATURES]
    result = DPC(1e6, **FAST).fit(PEOPLE, model, "granted").explain(denied)  # so little noise that answers flip
    assert result.released
    assert {entry.reason for entry in result.suppressed} <= {"not_desired"}
    for entry in result.released:
        assert entry.certificate.guarantee == "none"
        assert entry.certificate.total is None
        assert entry.to_dict()["certificate"]["covers"] == "nothing is guaranteed; see audit"
    run = MlflowClient().get_run(result.log())
    assert run.data.tags["cfk.dp.guarantee"] == "no guarantee; see audit"
    assert run.data.tags["cfk.verdict"] == "review"
    assert run.data.params["cfk.method"] == "dpc"
    assert "cfk.epsilon_spent" not in run.data.metrics


def test_answers_at_which_the_model_decides_otherwise_are_withheld(model: Pipeline) -> None:
    denied = ROWS[ROWS["loan"] == "denied"].head(20)[FEATURES].reset_index(drop=True)
    published = DPC(0.025, **FAST).fit(PEOPLE, model, "granted")
    met = model.predict(published.generate(denied)) == "granted"
    assert [entry.status == "released" for entry in published.explain(denied)] == met.tolist()


def test_protect_answers_by_it_without_asking_the_explainer(model: Pipeline) -> None:
    def leaks(rows: pd.DataFrame) -> pd.DataFrame:
        raise AssertionError("the explainer was asked")

    private = protect(leaks, model=model, population=PEOPLE, desired="granted", method=DPC(**FAST))
    assert len(private.explain(ROWS[FEATURES].head(3))) == 3
    assert "no guarantee" in repr(private)
