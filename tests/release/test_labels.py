"""The outcome that a call asks for is certified or refused, and what a result says is what was
certified.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.adapting import desired_of
from cfk_plugin.data.outcome import DesiredRange, Outcome
from cfk_plugin.errors import AdapterError, CFKError, InputError

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
nice = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")

FEATURES = ["age", "city", "income", "debt"]
GUARANTEES = ["lookup", "catalogue"]


def table(n: int = 240) -> pd.DataFrame:
    random = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "city": random.choice(["Antwerp", "Bruges", "Ghent"], n),
            "income": random.integers(10, 60, n),
            "debt": random.integers(0, 30, n),
        }
    )


def score_of(rows: pd.DataFrame) -> np.ndarray:
    """Quasi-identifiers matter, so that regions are impure; every outcome is frequent."""
    cities = {"Antwerp": 0.0, "Bruges": 10.0, "Ghent": 20.0}
    age, income, debt = (rows[name].to_numpy(dtype=float) for name in ("age", "income", "debt"))
    return age * 0.4 + income - 0.5 * debt + [cities[str(city)] for city in rows["city"].tolist()]


class Bands(ClassifierMixin, BaseEstimator):
    """Says in which of several bands the score is; its labels are given, DiCE's are their
    positions.
    """

    def __init__(
        self, edges: tuple[float, ...] = (55.0,), labels: tuple[Any, ...] = (0, 1)
    ) -> None:
        self.edges, self.labels = edges, labels
        self.classes_ = np.array(labels)

    def fit(self, X: Any, y: Any) -> Bands:
        return self

    def positions(self, X: pd.DataFrame) -> np.ndarray:
        return np.searchsorted(self.edges, score_of(X))

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return self.classes_[self.positions(X)]

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return np.eye(len(self.labels))[self.positions(X)] * 0.9 + 0.1 / len(self.labels)


class Score(RegressorMixin, BaseEstimator):
    """A regressor."""

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return score_of(X)


TRAIN = table()
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"])
)
NUMBERED, NAMED = Bands(), Bands(labels=("refused", "granted"))
THREE = Bands(edges=(45.0, 65.0), labels=("low", "middle", "high"))


def dice(model: Any) -> Any:
    is_number = isinstance(model, Score)
    outcome = score_of(TRAIN) if is_number else model.positions(TRAIN)
    data = dice_ml.Data(
        dataframe=TRAIN.assign(outcome=outcome),
        continuous_features=["age", "income", "debt"],
        outcome_name="outcome",
    )
    kind = "regressor" if is_number else "classifier"
    return dice_ml.Dice(
        data, dice_ml.Model(model=model, backend="sklearn", model_type=kind), method="kdtree"
    )


def shielded(explainer: Any, model: Any, guarantee: Any = "lookup", **options: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):
        policy = PrivacyPolicy(k=5, guarantee=guarantee)
        return protect(explainer, model=model, population=POPULATION, policy=policy, **options)


def cells_of(entry: GeneralizedCounterfactual) -> pd.DataFrame:
    """Return every combination of values in a region, with the private values that were
    released.
    """
    age: Any = entry.region["age"]
    ages = sorted(set(TRAIN.loc[TRAIN["age"].between(age.low, age.high), "age"]))
    grid = pd.MultiIndex.from_product([ages, sorted(entry.region["city"])], names=["age", "city"])  # type: ignore[arg-type]
    return grid.to_frame(index=False).assign(**dict(entry.released))


def met(outcome: Outcome, labels: np.ndarray) -> np.ndarray:
    if outcome.labels:
        return np.array([label in outcome.labels for label in labels])
    if outcome.bounds is not None:
        return (labels >= outcome.bounds[0]) & (labels <= outcome.bounds[1])
    return (labels != outcome.label) if outcome.is_other else (labels == outcome.label)


def certified(
    result: Explanations, model: Any, also: Any = lambda _: True
) -> list[GeneralizedCounterfactual]:
    """Check that each certificate's pureness is that of the outcome it names; return the
    entries.
    """
    for entry in result.generalized:
        found = model.predict(cells_of(entry))
        assert entry.certificate.pureness == pytest.approx(
            (met(entry.outcome, found) & also(found)).mean()
        )
    assert result.generalized
    return [*result.generalized]


def shown(result: Any) -> list[tuple[Any, set[Any], Any]]:
    """Return of each query of a DiCE result: its label, the outcomes of its rows, and the one it is
    headed with.
    """
    return [
        (
            e.test_instance_df["outcome"].iat[0],
            set() if e.final_cfs_df is None else set(e.final_cfs_df["outcome"]),
            e.new_outcome,
        )
        for e in result.cf_examples_list
    ]


# --- classes --------------------------------------------------------------------------------------

CLASSES = [
    ("lookup", NUMBERED, 0), ("lookup", NAMED, 1), ("catalogue", NAMED, 0), ("catalogue", NUMBERED, 1),
    ("lookup", THREE, 2), ("lookup", THREE, 1), ("catalogue", THREE, 0),
]  # fmt: skip


@pytest.mark.parametrize(("guarantee", "model", "position"), CLASSES)
def test_the_class_that_a_call_asks_for_is_certified_whatever_the_querys_own(
    guarantee: str, model: Bands, position: int
) -> None:
    private, positions = shielded(dice(model), model, guarantee), model.positions(TRAIN)
    queries = pd.concat([TRAIN[positions == other].head(2) for other in range(len(model.labels))])
    entries = certified(private.explain(queries, total_CFs=2, desired_class=position), model)
    assert len(entries) >= 4
    assert {entry.outcome for entry in entries} == {Outcome(model.labels[position])}
    result = private.generate_counterfactuals(queries, total_CFs=2, desired_class=position)
    wanted = model.labels[position]
    # A query that has the class already has no row, and DiCE's own heading: what the call named.
    assert all(
        own in model.labels and outcomes <= {wanted} and headed in {position, wanted}
        for own, outcomes, headed in shown(result)
    )
    assert all(headed == wanted for _, outcomes, headed in shown(result) if outcomes)
    has_row = [bool(outcomes) for _, outcomes, _ in shown(result)]
    assert not any(has_row[2 * position : 2 * position + 2])


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_without_a_class_the_opposite_is_certified_and_shown(guarantee: str) -> None:
    private, own = shielded(dice(NUMBERED), NUMBERED, guarantee), NUMBERED.predict(TRAIN)
    queries = pd.concat([TRAIN[own == label].head(3) for label in (0, 1)])
    entries = certified(private.explain(queries), NUMBERED)
    assert len(entries) >= 4
    assert all(entry.outcome == Outcome(1 - own[queries.index[entry.query]]) for entry in entries)
    found = shown(private.generate_counterfactuals(queries, total_CFs=1))
    assert sum(len(outcomes) for _, outcomes, _ in found) >= 4
    assert all(outcomes <= {1 - label} and headed == 1 - label for label, outcomes, headed in found)
    # Of three classes it is any other.
    low, high = (TRAIN[THREE.predict(TRAIN) == label] for label in ("low", "high"))
    other = shielded(lambda rows: high.head(len(rows)).set_axis(rows.index), THREE, guarantee)
    told = {entry.outcome for entry in certified(other.explain(low.head(3)), THREE)}
    assert told == {Outcome("low", is_other=True)}
    assert [*map(str, told)] == ["not low"]


def test_another_outcome_than_is_protected_for_and_what_is_no_class_is_refused() -> None:
    own = NUMBERED.predict(TRAIN)
    private = shielded(dice(NUMBERED), NUMBERED, desired=1)
    for options in ({}, {"desired_class": 1}):
        certified(private.explain(TRAIN[own == 0].head(2), **options), NUMBERED)
    for call in (private.explain, private.generate_counterfactuals):
        with pytest.raises(InputError, match='desired="opposite"'):
            call(TRAIN[own == 1].head(2), total_CFs=1, desired_class=0)
    with pytest.raises(CFKError, match="position of a class"):
        private.explain(TRAIN.head(2), desired_class=7)
    function = shielded(lambda rows, desired=None: TRAIN.head(len(rows)), NUMBERED)
    with pytest.raises(InputError, match="none of the model's labels"):
        function.explain(TRAIN.head(2), desired="granted")


# --- NICE and functions ---------------------------------------------------------------------------


def nice_of_three() -> Any:
    return nice.NICE(
        lambda rows: THREE.predict_proba(pd.DataFrame(rows, columns=FEATURES)),
        TRAIN.to_numpy(dtype=object),
        cat_feat=[1],
        y_train=THREE.positions(TRAIN),
        optimization="none",
    )


def test_nice_names_a_class_by_its_position_or_by_its_label() -> None:
    private, queries = shielded(nice_of_three(), THREE), TRAIN[THREE.positions(TRAIN) == 0].head(3)
    for position in (1, 2):
        entries = certified(private.explain(queries, target_class=position), THREE)
        assert [entry.outcome for entry in entries] == [Outcome(THREE.labels[position])] * 3
        assert private.explain(queries.to_numpy(dtype=object), target_class=[position]).shape == (
            3,
            4,
        )
        label = THREE.labels[position]
        named = certified(private.explain(queries, target_class=label), THREE)
        assert [entry.outcome for entry in named] == [Outcome(label)] * 3
    with pytest.raises(InputError, match="none of the model's labels"):
        private.explain(queries, target_class="granted")
    entries = certified(private.explain(queries, target_class=[1, 2]), THREE)
    assert {entry.outcome for entry in entries} == {Outcome(labels=("high", "middle"))}
    with pytest.raises(CFKError, match="no outcome"):
        private.explain(queries, target_class=[])


def test_a_functions_own_argument_for_the_outcome_is_read() -> None:
    labels = THREE.predict(TRAIN)

    def explain(
        queries: pd.DataFrame,
        desired: Any = None,
        desired_class: Any = None,
        target: Any = None,
        target_class: Any = None,
    ) -> pd.DataFrame:
        wanted = next(
            asked for asked in (desired, desired_class, target, target_class) if asked is not None
        )
        return TRAIN[labels == wanted].head(len(queries)).set_axis(queries.index)

    private = shielded(explain, THREE)
    for name in ("desired", "desired_class", "target", "target_class"):
        entries = certified(
            private.explain(TRAIN[labels == "high"].head(3), **{name: "low"}), THREE
        )
        assert [entry.outcome for entry in entries] == [Outcome("low")] * 3


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "desired", [DesiredRange(40, 90), lambda found: found > 52], ids=["range", "function"]
)
def test_a_range_that_a_call_asks_for_is_certified(desired: Any) -> None:
    private = shielded(dice(Score()), Score(), desired=desired)
    queries = TRAIN[score_of(TRAIN) < 40].head(4)
    entries = certified(
        private.explain(queries, total_CFs=2, desired_range=[50.0, 60.0]), Score(), desired
    )
    assert len(entries) >= 4
    assert {entry.outcome for entry in entries} == {Outcome(bounds=(50.0, 60.0))}
    result = private.generate_counterfactuals(queries, total_CFs=2, desired_range=[50.0, 60.0])
    assert {said for _, outcomes, _ in shown(result) for said in outcomes} == {"50–60"}


def test_ranges_must_not_tell_the_outcomes_of_people_who_count() -> None:
    private = shielded(dice(Score()), Score(), "catalogue", desired=DesiredRange(50, 60))
    queries = TRAIN[score_of(TRAIN) < 40].head(4)
    assert private.explain(queries, desired_range=[50, 60]).generalized
    with pytest.raises(InputError, match=r"desired=\(low, high\)"):
        private.explain(queries, desired_range=[50, 59])
    with pytest.raises(CFKError, match="two numbers"):
        private.explain(queries, desired_range=[50])


# --- ranges and sets that are protected for -------------------------------------------------------

GOALS = [
    (Score(), (50, 80), Outcome(bounds=(50, 80))), (Score(), (60, None), Outcome(bounds=(60, np.inf))),
    (THREE, {"middle", "high"}, Outcome(labels=("high", "middle"))), (THREE, {"middle"}, Outcome("middle")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("guarantee", "model", "desired", "outcome"),
    [
        *((name, *GOALS[i]) for i, name in enumerate([*GUARANTEES, "catalogue"])),
        *((n, *GOALS[2]) for n in GUARANTEES[:2]),
    ],
)
def test_the_goal_of_protect_is_certified_and_dice_is_told_of_it(
    guarantee: str, model: Any, desired: Any, outcome: Outcome
) -> None:
    private = shielded(dice(model), model, guarantee, desired=desired)
    queries = TRAIN[score_of(TRAIN) < 40].head(4)
    entries = certified(private.explain(queries), model)
    assert {entry.outcome for entry in entries} == {outcome}
    headed = shown(private.generate_counterfactuals(queries, total_CFs=1))
    assert {said for _, outcomes, _ in headed for said in outcomes} == {str(outcome)}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_nice_is_asked_for_any_class_of_the_set_that_is_protected_for(guarantee: str) -> None:
    private = shielded(nice_of_three(), THREE, guarantee, desired={"low", "middle"})
    entries = certified(private.explain(TRAIN[THREE.positions(TRAIN) == 2].head(3)), THREE)
    assert {entry.outcome for entry in entries} == {Outcome(labels=("low", "middle"))}


def test_of_a_set_a_call_may_ask_for_a_part_unless_that_tells_who_counts() -> None:
    queries = TRAIN[THREE.positions(TRAIN) == 0].head(3)
    wide = shielded(dice(THREE), THREE, desired={"middle", "high"})
    assert {e.outcome for e in certified(wide.explain(queries, desired_class=2), THREE)} == {
        Outcome("high")
    }
    with pytest.raises(InputError, match="another outcome"):
        wide.explain(queries, desired_class=0)
    with pytest.raises(InputError, match="part of the outcomes"):
        shielded(dice(THREE), THREE, "catalogue", desired={"middle", "high"}).explain(
            queries, desired_class=2
        )


# --- positions and labels -------------------------------------------------------------------------

NAMES = [
    (("no", "yes"), 1, "yes"), (("no", "yes"), np.int64(0), "no"), (("no", "yes"), np.str_("yes"), "yes"),
    ((False, True), True, True), ((0.0, 1.0), 1, 1.0), ((0, 1), 1.0, 1),
    ((10, 20), 20, 20), ((10, 20), 1, 20), ((-1, 1), -1, -1), ((1, 2), 1, 2), ((1, 2, 3), 0, 1),
]  # fmt: skip


@pytest.mark.parametrize(("classes", "named", "label"), NAMES)
def test_a_whole_number_is_a_position_and_else_a_label(
    classes: Any, named: Any, label: Any
) -> None:
    found = desired_of({"desired_class": named}, classes)
    assert found == label
    assert type(found) is type(label)


@pytest.mark.parametrize(
    ("classes", "named", "said"),
    [
        ((1, 2), 2, "0 for 1, 1 for 2"),
        (("no", "yes"), -1, "0 for 'no', 1 for 'yes'"),
        (tuple(range(5, 20)), 30, "9 for 14 and so on"),
    ],
)
def test_a_whole_number_that_could_be_both_is_refused_with_the_positions(
    classes: Any, named: Any, said: str
) -> None:
    with pytest.raises(AdapterError, match=f"desired_class is the position of a class: .*{said}$"):
        desired_of({"desired_class": named}, classes)
