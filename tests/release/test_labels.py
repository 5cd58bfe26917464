"""The outcome that a call names is certified or refused, however explainers name it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from applicants import ROWS
from cfk_plugin import Explanations, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.adapting import desired_of
from cfk_plugin.errors import AdapterError, CFKError, InputError
from oracle import World, find_faults

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
nice = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")

QUASI = ["age", "job"]
GUARANTEES = ["lookup", "catalogue"]
TRAIN = ROWS[["age", "income", "job"]]
SCORE = TRAIN["age"] / 2 + TRAIN["income"] + 10 * (TRAIN["job"] == "nurse")
POPULATION = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=QUASI))


def train(estimator: Any, outcomes: Any) -> Any:
    encoder = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    return make_pipeline(encoder, estimator).fit(TRAIN, outcomes)


def tree(outcomes: Any) -> Any:
    return train(DecisionTreeClassifier(max_depth=4, random_state=0), outcomes)


TWO = tree(np.where(SCORE > 75, "granted", "refused"))
THREE = tree(np.select([SCORE < 65, SCORE < 85], ["low", "middle"], "high"))
REGRESSOR = train(LinearRegression(), SCORE)
HIGH, LOW, MIDDLE = range(3)  # positions among the classes of THREE


def queries_of(model: Any, n: int = 3) -> pd.DataFrame:
    """Return n rows of each class, class by class; of a regressor, rows of a low score."""
    if model is REGRESSOR:
        return TRAIN[SCORE < 60].head(n)
    return pd.concat([TRAIN[model.predict(TRAIN) == label].head(n) for label in model.classes_])


def dice_of(model: Any) -> Any:
    """Return DiCE, for which outcomes are positions of classes, or numbers."""
    labels = model.predict(TRAIN)
    is_number = model is REGRESSOR
    data = dice_ml.Data(
        dataframe=TRAIN.assign(
            outcome=labels if is_number else np.searchsorted(model.classes_, labels)
        ),
        continuous_features=["age", "income"],
        outcome_name="outcome",
    )
    kind = "regressor" if is_number else "classifier"
    wrapped = dice_ml.Model(model=model, backend="sklearn", model_type=kind)
    return dice_ml.Dice(data, wrapped, method="kdtree")


def nice_of_three() -> Any:
    return nice.NICE(
        lambda rows: THREE.predict_proba(pd.DataFrame(rows, columns=[*TRAIN])),
        TRAIN.to_numpy(dtype=object),
        cat_feat=[2],
        y_train=np.searchsorted(THREE.classes_, THREE.predict(TRAIN)),
        optimization="none",
    )


def wrap(explainer: Any, model: Any, guarantee: Any = "lookup", **settings: Any) -> Any:
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    settings |= {"model": model, "population": POPULATION, "policy": policy}
    return protect(explainer, **settings)


def outcomes_of(
    answers: Explanations, queries: pd.DataFrame, model: Any, guarantee: str = "lookup"
) -> list[Any]:
    """Return the outcomes that answers state, without repetitions; the oracle recounts them."""
    world = World(
        train=TRAIN,
        quasi_identifiers=QUASI,
        predict=model.predict,
        desired=lambda labels, _: np.ones(len(labels), dtype=bool),
        k=5,
        guarantee=guarantee,
    )
    assert find_faults(answers, world, queries) == []
    outcomes: list[Any] = []
    for answer in answers.released:
        outcome = answer.to_dict()["outcome"]
        outcomes += [outcome] if outcome not in outcomes else []
    return outcomes


# --- calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_class_of_dice_is_certified(guarantee: str) -> None:
    """DiCE's own result has the label, too; queries of the class have no answer."""
    queries = queries_of(THREE)
    private = wrap(dice_of(THREE), THREE, guarantee)
    answers = private.explain(queries, total_CFs=1, desired_class=MIDDLE)
    assert outcomes_of(answers, queries, THREE, guarantee) == [{"label": "middle"}]
    result = private.generate_counterfactuals(queries, total_CFs=1, desired_class=MIDDLE)
    for i, examples in enumerate(result.cf_examples_list):
        if examples.final_cfs_df is not None:
            assert THREE.predict(queries.iloc[[i]]) != "middle"
            assert examples.new_outcome == "middle"
            assert set(examples.final_cfs_df["outcome"]) == {"middle"}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_call_without_class_gets_the_opposite(guarantee: str) -> None:
    """Of each query."""
    queries = queries_of(TWO)
    answers = wrap(dice_of(TWO), TWO, guarantee).explain(queries)
    outcomes = outcomes_of(answers, queries, TWO, guarantee)
    assert outcomes == [{"label": "refused"}, {"label": "granted"}]


@pytest.mark.parametrize(
    ("target", "outcome"),
    [
        (MIDDLE, {"label": "middle"}),
        ("middle", {"label": "middle"}),
        ([MIDDLE], {"label": "middle"}),
        ([HIGH, MIDDLE], {"any": ["high", "middle"]}),
    ],
)
def test_nice_takes_positions_or_labels(target: Any, outcome: Any) -> None:
    """One of them, or a list."""
    queries = TRAIN[THREE.predict(TRAIN) == "low"].head(3)
    answers = wrap(nice_of_three(), THREE).explain(queries, target_class=target)
    assert outcomes_of(answers, queries, THREE) == [outcome]


@pytest.mark.parametrize("name", ["desired", "target_class"])
def test_argument_of_a_function_is_certified(name: str) -> None:
    """Whatever the function calls its goal."""
    labels = THREE.predict(TRAIN)
    queries = TRAIN[labels == "high"].head(3)

    def explain(queries: pd.DataFrame, **options: Any) -> pd.DataFrame:
        return TRAIN[labels == options[name]].head(len(queries)).set_axis(queries.index)

    answers = wrap(explain, THREE).explain(queries, **{name: "low"})
    assert outcomes_of(answers, queries, THREE) == [{"label": "low"}]


@pytest.mark.parametrize("desired", [(40, 90), lambda scores: scores > 60], ids=["range", "rule"])
def test_range_of_a_call_is_certified(desired: Any) -> None:
    """If the goal of `protect` contains it."""
    private = wrap(dice_of(REGRESSOR), REGRESSOR, desired=desired)
    queries = queries_of(REGRESSOR)
    answers = private.explain(queries, total_CFs=1, desired_range=[65.0, 80.0])
    assert outcomes_of(answers, queries, REGRESSOR) == [{"low": 65.0, "high": 80.0}]
    result = private.generate_counterfactuals(queries, total_CFs=1, desired_range=[65.0, 80.0])
    for examples in result.cf_examples_list:
        assert set(examples.final_cfs_df["outcome"]) == {"65–80"}


# --- goals of protect -------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(
    ("explainer", "model", "desired", "outcome"),
    [
        (dice_of, REGRESSOR, (65, None), {"low": 65.0, "high": None}),
        (dice_of, THREE, {"middle", "high"}, {"any": ["high", "middle"]}),
        (lambda _: nice_of_three(), THREE, {"low", "middle"}, {"any": ["low", "middle"]}),
    ],
)
def test_goal_of_protect_is_certified(
    guarantee: str, explainer: Any, model: Any, desired: Any, outcome: Any
) -> None:
    """The call names nothing: the explainer is told."""
    queries = queries_of(model)
    answers = wrap(explainer(model), model, guarantee, desired=desired).explain(queries)
    assert outcomes_of(answers, queries, model, guarantee) == [outcome]


@pytest.mark.parametrize(
    ("model", "desired", "call"),
    [
        (REGRESSOR, (65, 90), {"desired_range": [65, 89]}),
        (THREE, {"middle", "high"}, {"desired_class": HIGH}),
    ],
)
def test_catalogue_refuses_parts_of_its_goal(model: Any, desired: Any, call: Any) -> None:
    """A part would tell who of the people inside has it; a lookup may answer."""
    queries = queries_of(model)
    assert wrap(dice_of(model), model, desired=desired).explain(queries, **call).released
    with pytest.raises(InputError, match=r"desired=|part of the outcomes"):
        wrap(dice_of(model), model, "catalogue", desired=desired).explain(queries, **call)


@pytest.mark.parametrize(
    ("explainer", "settings", "call"),
    [
        (dice_of(THREE), {"desired": {"middle", "high"}}, {"desired_class": LOW}),
        (dice_of(THREE), {}, {"desired_class": 7}),
        (nice_of_three(), {}, {"target_class": "granted"}),
        (nice_of_three(), {}, {"target_class": []}),
        (lambda rows, desired=None: TRAIN.head(len(rows)), {}, {"desired": "granted"}),
    ],
)
def test_other_outcomes_are_refused(explainer: Any, settings: Any, call: Any) -> None:
    """What the goal of `protect` does not contain, and what is no outcome."""
    private = wrap(explainer, THREE, **settings)
    with pytest.raises(CFKError, match=r"outcome|position of a class"):
        private.explain(queries_of(THREE), **call)


# --- positions and labels ---------------------------------------------------------------------------

NO_YES = ("no", "yes")


@pytest.mark.parametrize(
    ("classes", "name", "label"),
    [
        (NO_YES, 1, "yes"),
        ((False, True), True, True),
        ((0.0, 1.0), 1, 1.0),
        ((10, 20), 1, 20),
    ],
)
def test_whole_number_is_position_before_label(classes: Any, name: Any, label: Any) -> None:
    """Except if it is a label and not a position."""
    outcome = desired_of({"desired_class": name}, classes)
    assert outcome == label
    assert type(outcome) is type(label)


def test_ambiguous_number_is_refused() -> None:
    """It is a position and the label of another class."""
    with pytest.raises(AdapterError, match="0 for 1, 1 for 2"):
        desired_of({"desired_class": 2}, (1, 2))
