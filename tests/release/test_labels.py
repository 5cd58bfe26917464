"""The outcome that a call asks for is certified or refused, and what a result says is what was certified."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from cfk_plugin import Explanations, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.data.model import Outcome
from cfk_plugin.errors import CFKError, InputError
from cfk_plugin.hookspecs import DesiredRange
from cfk_plugin.release.results import GeneralizedCounterfactual

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
nice = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")

FEATURES = ["age", "city", "income", "debt"]
GUARANTEES = ["nominal", "reciprocal", "catalogue"]


def score_of(rows: pd.DataFrame) -> np.ndarray:
    """Quasi-identifiers matter, so that regions are impure; every outcome is frequent."""
    city = rows["city"].astype(str).map({"Antwerp": 0, "Bruges": 10, "Ghent": 20}).to_numpy(dtype=float)
    numbers = rows[["age", "income", "debt"]].astype(float)
    return (numbers["age"] * 0.4 + numbers["income"] - 0.5 * numbers["debt"]).to_numpy() + city


class Bands(ClassifierMixin, BaseEstimator):
    """Says in which of several bands the score is; its labels are given, DiCE's are their positions."""

    def __init__(self, edges: tuple[float, ...] = (55.0,), labels: tuple[Any, ...] = (0, 1)) -> None:
        self.edges, self.labels = edges, labels
        self.classes_ = np.array(labels)

    def fit(self, X: Any, y: Any) -> Bands:
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return self.classes_[np.searchsorted(self.edges, score_of(X))]

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return np.eye(len(self.labels))[np.searchsorted(self.edges, score_of(X))] * 0.9 + 0.1 / len(self.labels)


class Score(RegressorMixin, BaseEstimator):
    """A regressor."""

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return score_of(X)


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    random = np.random.default_rng(11)
    n = 240
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "city": random.choice(["Antwerp", "Bruges", "Ghent"], n),
            "income": random.integers(10, 60, n),
            "debt": random.integers(0, 30, n),
        }
    )


@pytest.fixture(scope="module")
def population(train: pd.DataFrame) -> Population:
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "city"]))


def dice(train: pd.DataFrame, model: Any, outcome: np.ndarray, method: str = "kdtree", kind: str = "classifier") -> Any:
    data = dice_ml.Data(
        dataframe=train.assign(outcome=outcome), continuous_features=["age", "income", "debt"], outcome_name="outcome"
    )
    return dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn", model_type=kind), method=method)


def shielded(
    explainer: Any, model: Any, population: Population, guarantee: Any = "reciprocal", desired: Any = "opposite"
) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = PrivacyPolicy(k=5, guarantee=guarantee)
        return protect(explainer, model=model, population=population, policy=policy, desired=desired)


def cells_of(entry: GeneralizedCounterfactual, train: pd.DataFrame) -> pd.DataFrame:
    """Return every combination of values in a region, with the private values that were released."""
    parts = entry.region.parts
    inside = train[[parts["age"].low <= age <= parts["age"].high for age in train["age"]]]
    grid = pd.MultiIndex.from_product([sorted(set(inside["age"])), sorted(parts["city"])], names=["age", "city"])
    return grid.to_frame(index=False).assign(**dict(entry.released))


def met(outcome: Outcome, labels: np.ndarray) -> np.ndarray:
    if outcome.bounds is not None:
        return (labels >= outcome.bounds[0]) & (labels <= outcome.bounds[1])
    return (labels != outcome.label) if outcome.is_other else (labels == outcome.label)


def is_true(explanations: Explanations, model: Any, train: pd.DataFrame) -> int:
    """Check that each certificate's pureness is that of the outcome it names; return how many are released."""
    for entry in explanations.generalized:
        labels = model.predict(cells_of(entry, train))
        assert entry.certificate.pureness == pytest.approx(met(entry.outcome, labels).mean())
    return len(explanations.generalized)


def shown(result: Any) -> list[tuple[Any, set[Any], Any]]:
    """Return of each query of a DiCE result: its label, the outcomes of its rows, and the one it is headed with."""
    return [
        (
            e.test_instance_df["outcome"].iat[0],
            set() if e.final_cfs_df is None else set(e.final_cfs_df["outcome"]),
            e.new_outcome,
        )
        for e in result.cf_examples_list
    ]


# --- two classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("labels", [(0, 1), ("refused", "granted")])
@pytest.mark.parametrize("position", [0, 1])
def test_the_class_that_a_call_asks_for_is_certified_whatever_the_querys_own(
    train: pd.DataFrame, population: Population, guarantee: str, labels: tuple[Any, ...], position: int
) -> None:
    model = Bands(labels=labels)
    outcome = np.searchsorted(model.edges, score_of(train))
    private = shielded(dice(train, model, outcome), model, population, guarantee)
    queries = pd.concat([train[outcome == label].head(3) for label in (0, 1)])
    explanations = private.explain(queries, total_CFs=2, desired_class=position)
    assert is_true(explanations, model, train) >= 4
    assert {entry.outcome for entry in explanations.generalized} == {Outcome(labels[position])}
    for _, outcomes, headed in shown(private.generate_counterfactuals(queries, total_CFs=2, desired_class=position)):
        assert outcomes <= {position}
        assert headed == position


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_without_a_class_the_opposite_is_certified_and_shown(
    train: pd.DataFrame, population: Population, guarantee: str
) -> None:
    model = Bands()
    outcome = model.predict(train)
    private = shielded(dice(train, model, outcome), model, population, guarantee)
    queries = pd.concat([train[outcome == label].head(3) for label in (0, 1)])
    explanations = private.explain(queries)
    assert is_true(explanations, model, train) >= 4
    assert all(entry.outcome == Outcome(1 - outcome[queries.index[entry.query]]) for entry in explanations.generalized)
    found = shown(private.generate_counterfactuals(queries, total_CFs=1))
    assert sum(len(outcomes) for _, outcomes, _ in found) >= 4
    assert all(outcomes <= {1 - own} and headed == 1 - own for own, outcomes, headed in found)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_another_outcome_than_is_protected_for_is_refused(
    train: pd.DataFrame, population: Population, guarantee: str
) -> None:
    model = Bands()
    outcome = model.predict(train)
    private = shielded(dice(train, model, outcome), model, population, guarantee, desired=1)
    queries = train[outcome == 0].head(2)
    assert is_true(private.explain(queries, desired_class=1), model, train)
    assert is_true(private.explain(queries), model, train)
    for call in (private.explain, private.generate_counterfactuals):
        with pytest.raises(InputError, match='desired="opposite"'):
            call(train[outcome == 1].head(2), total_CFs=1, desired_class=0)


def test_what_is_no_class_is_refused(train: pd.DataFrame, population: Population) -> None:
    model = Bands()
    private = shielded(lambda rows, desired=None: train.head(len(rows)), model, population)
    with pytest.raises(InputError, match="none of the model's labels"):
        private.explain(train.head(2), desired="granted")
    kdtree = shielded(dice(train, model, model.predict(train)), model, population)
    with pytest.raises(CFKError, match="position of a class"):
        kdtree.explain(train.head(2), desired_class=7)


# --- three classes -----------------------------------------------------------------------------------------------

THREE = Bands(edges=(45.0, 65.0), labels=("low", "middle", "high"))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_of_three_classes_is_certified_and_not_any_other_than_the_querys(
    train: pd.DataFrame, population: Population, guarantee: str, position: int
) -> None:
    outcome = np.searchsorted(THREE.edges, score_of(train))
    private = shielded(dice(train, THREE, outcome), THREE, population, guarantee)
    queries = train[outcome != position].head(4)
    explanations = private.explain(queries, total_CFs=2, desired_class=position)
    assert is_true(explanations, THREE, train) >= 4
    assert {entry.outcome for entry in explanations.generalized} == {Outcome(THREE.labels[position])}
    result = private.generate_counterfactuals(queries, total_CFs=2, desired_class=position)
    assert all(outcomes <= {position} and headed == position for _, outcomes, headed in shown(result))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_of_three_classes_any_other_is_said_to_be_any_other(
    train: pd.DataFrame, population: Population, guarantee: str
) -> None:
    labels = THREE.predict(train)
    other = train[labels == "high"].head(1)
    private = shielded(
        lambda rows: other.loc[[*other.index] * len(rows)].set_axis(rows.index), THREE, population, guarantee
    )
    explanations = private.explain(train[labels == "low"].head(3))
    assert is_true(explanations, THREE, train)
    assert {entry.outcome for entry in explanations.generalized} == {Outcome("low", is_other=True)}
    assert str(Outcome("low", is_other=True)) == "not low"


# --- NICE, functions and candidates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [1, 2])
def test_nice_names_a_class_by_its_position(train: pd.DataFrame, population: Population, position: int) -> None:
    labels = np.searchsorted(THREE.edges, score_of(train))
    explainer = nice.NICE(
        lambda rows: THREE.predict_proba(pd.DataFrame(rows, columns=FEATURES)),
        train.to_numpy(dtype=object),
        cat_feat=[1],
        y_train=labels,
        optimization="none",
    )
    private = shielded(explainer, THREE, population)
    queries = train[labels == 0].head(3)
    explanations = private.explain(queries, target_class=position)
    assert is_true(explanations, THREE, train) == 3
    assert {entry.outcome for entry in explanations.generalized} == {Outcome(THREE.labels[position])}
    rows = queries.to_numpy(dtype=object)
    assert private.explain(rows, target_class=[position]).shape == (3, 4)
    with pytest.raises(CFKError, match="certified for one"):
        private.explain(queries, target_class=[1, 2])


@pytest.mark.parametrize("name", ["desired", "desired_class", "target", "target_class"])
def test_a_functions_own_argument_for_the_outcome_is_read(
    train: pd.DataFrame, population: Population, name: str
) -> None:
    labels = THREE.predict(train)

    def explain(queries: pd.DataFrame, desired: Any = None, desired_class: Any = None, target: Any = None,
                target_class: Any = None) -> pd.DataFrame:  # fmt: skip
        wanted = next(asked for asked in (desired, desired_class, target, target_class) if asked is not None)
        return train[labels == wanted].head(len(queries)).set_axis(queries.index)

    private = shielded(explain, THREE, population)
    explanations = private.explain(train[labels == "high"].head(3), **{name: "low"})
    assert is_true(explanations, THREE, train) == 3
    assert {entry.outcome for entry in explanations.generalized} == {Outcome("low")}


def test_the_outcome_of_a_call_decides_among_candidates(train: pd.DataFrame, population: Population) -> None:
    outcome = np.searchsorted(THREE.edges, score_of(train))
    policy = PrivacyPolicy(k=5)
    explainer = dice(train, THREE, outcome)
    private = protect(explainer, model=THREE, population=population, policy=policy, candidates=4)
    explanations = private.explain(train[outcome == 2].head(3), desired_class=1)
    assert is_true(explanations, THREE, train) == 3
    assert {entry.outcome for entry in explanations.generalized} == {Outcome("middle")}


# --- numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("desired", [DesiredRange(40, 90), lambda found: found > 52], ids=["range", "function"])
def test_a_range_that_a_call_asks_for_is_certified(train: pd.DataFrame, population: Population, desired: Any) -> None:
    model = Score()
    private = shielded(dice(train, model, score_of(train), "kdtree", "regressor"), model, population, desired=desired)
    queries = train[score_of(train) < 40].head(4)
    explanations = private.explain(queries, total_CFs=2, desired_range=[50.0, 60.0])
    assert {entry.outcome for entry in explanations.generalized} == {Outcome(bounds=(50.0, 60.0))}
    for entry in explanations.generalized:
        found = model.predict(cells_of(entry, train))
        assert entry.certificate.pureness == pytest.approx((met(entry.outcome, found) & desired(found)).mean())
    assert len(explanations.generalized) >= 4
    result = private.generate_counterfactuals(queries, total_CFs=2, desired_range=[50.0, 60.0])
    assert {said for _, outcomes, _ in shown(result) for said in outcomes} == {"50–60"}


def test_ranges_must_not_tell_the_outcomes_of_people_who_count(train: pd.DataFrame, population: Population) -> None:
    model = Score()
    explainer = dice(train, model, score_of(train), "kdtree", "regressor")
    private = shielded(explainer, model, population, "catalogue", desired=DesiredRange(50, 60))
    queries = train[score_of(train) < 40].head(4)
    assert private.explain(queries, desired_range=[50, 60]).generalized
    with pytest.raises(InputError, match="DesiredRange"):
        private.explain(queries, desired_range=[50, 59])
    with pytest.raises(CFKError, match="two numbers"):
        private.explain(queries, desired_range=[50])
