"""The core's model: leads, what is remembered, and how failures are reported."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.data.codes import Codes, Floats
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome_model import Model, ModelMemory, choose_margin, largest_margin
from cfk_plugin.errors import ModelError

JOBS = ["clerk", "nurse", "smith"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, 60),
            "job": random.choice(JOBS, 60),
            "income": np.round(random.uniform(0, 1, 60), 3),
        }
    )


@pytest.fixture(scope="module")
def codes(frame: pd.DataFrame) -> Codes:
    return Codes.read(frame, Schema.from_frame(frame, quasi_identifiers=["age"]))


@pytest.fixture(scope="module")
def rows(codes: Codes, frame: pd.DataFrame) -> Floats:
    return codes.encode(frame)


def chances(rows: pd.DataFrame) -> Any:
    """Return the probability of outcome 1, which is the income."""
    return rows["income"].to_numpy()


class Classifier:
    """A classifier with some classes, whose probabilities a function returns."""

    def __init__(self, classes: list[Any], probabilities: Any) -> None:
        self.classes_ = np.array(classes, dtype=object)
        self.predict_proba = probabilities

    def predict(self, rows: pd.DataFrame) -> Any:
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]


def of_two(rows: pd.DataFrame) -> Any:
    return np.column_stack([1 - chances(rows), chances(rows)])


def of_three(rows: pd.DataFrame) -> Any:
    """Return the probabilities of three classes."""
    weights = np.column_stack([chances(rows), rows["age"] / 70, rows["job"] == "nurse"]) + 0.01
    return weights / weights.sum(axis=1, keepdims=True)


def test_leads_of_two_classes(codes: Codes, rows: Floats, frame: pd.DataFrame) -> None:
    """The lead is the probability above one half, in shares of what can be above."""
    model = Model.of(codes, Classifier(["no", "yes"], of_two), "yes", margin=0.2)
    assert model.leads(rows) == pytest.approx(2 * chances(frame) - 1, abs=1e-8)
    assert np.array_equal(model.has_outcome(rows), chances(frame) > 0.5)
    assert np.array_equal(model.sure(rows), chances(frame) >= 0.6)
    assert np.array_equal(model.labels(rows), np.where(chances(frame) > 0.5, "yes", "no"))


@pytest.mark.parametrize("desired", [0, 1])
def test_leads_with_a_threshold(
    desired: int, codes: Codes, rows: Floats, frame: pd.DataFrame
) -> None:
    """The lead is 0 at the threshold, 1 where the desired outcome is certain."""
    p, t = chances(frame), 0.3
    if desired == 0:
        p, t = 1 - p, 1 - t
    model = Model.of(codes, chances, desired, threshold=0.3)
    expected = np.where(p >= t, (p - t) / (1 - t), (p - t) / t)
    assert model.leads(rows) == pytest.approx(expected, abs=1e-8)
    assert np.array_equal(model.has_outcome(rows), model.labels(rows) == desired)


@pytest.mark.parametrize("desired", ["a", {"a", "c"}])
def test_leads_of_three_classes(
    desired: Any, codes: Codes, rows: Floats, frame: pd.DataFrame
) -> None:
    """The lead is the distance to the best class that is not desired."""
    model = Model.of(codes, Classifier(["a", "b", "c"], of_three), desired)
    is_desired = np.isin(["a", "b", "c"], list(desired))
    probabilities = of_three(frame)
    best = probabilities[:, is_desired].max(axis=1)
    best_other = probabilities[:, ~is_desired].max(axis=1)
    assert model.leads(rows) == pytest.approx(best - best_other, abs=1e-8)


def test_leads_of_ties_follow_labels(codes: Codes, rows: Floats) -> None:
    """If both classes are equally probable, only the class that the model gives is ahead."""
    classifier = Classifier([0, 1], lambda rows: np.full((len(rows), 2), 0.5))
    assert Model.of(codes, classifier, 0).sure(rows).all()
    assert not Model.of(codes, classifier, 1).sure(rows).any()


def test_leads_without_probabilities(codes: Codes, rows: Floats, frame: pd.DataFrame) -> None:
    """A function of labels, or of numbers, is sure of all or nothing, and has no margin."""
    model = Model.of(codes, chances, (0.4, None))
    assert np.array_equal(model.leads(rows), np.where(chances(frame) >= 0.4, 1.0, -1.0))
    assert choose_margin(model, rows, np.arange(len(rows)), k=2) == 0
    with pytest.raises(ModelError, match="a margin needs probabilities"):
        model.with_margin(0.1)


def test_rows_are_asked_once(codes: Codes, rows: Floats) -> None:
    """Equal rows are one row, in one call and in later calls."""
    model = Model.of(codes, chances, 1, threshold=0.5)
    repeated = np.concatenate([rows[:10], rows[:10], rows[5:20]])
    leads = model.leads(repeated)
    assert (model.n_calls, model.n_rows) == (1, 20)
    assert np.array_equal(model.leads(repeated), leads)
    model.with_outcome(lambda labels: labels == 0).with_margin(0.1).sure(rows[:20])
    assert (model.n_calls, model.n_rows) == (1, 20)
    assert model.leads(rows[:0]).shape == (0,)


@pytest.mark.parametrize("has_probabilities", [True, False])
def test_threads_share_full_memory(
    has_probabilities: bool, codes: Codes, rows: Floats, frame: pd.DataFrame
) -> None:
    """A memory for few rows forgets, and every thread still gets what the model returns."""
    label_model = LabelModel(Classifier([0, 1], of_two), codes.names)
    memory = ModelMemory(
        codes, label_model, has_probabilities=has_probabilities, most_rows=40, batch=7
    )
    expected = of_two(frame) if has_probabilities else of_two(frame).argmax(axis=1)[:, None]

    def is_right(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(rows), 50)
        return np.array_equal(memory.outputs(rows[order]), expected[order])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_right, range(40)))
    assert len(memory) <= 40


def test_later_models_lower_leads(codes: Codes, rows: Floats, frame: pd.DataFrame) -> None:
    """Every later model has to be sure; none is asked about rows without the outcome."""
    strict = Classifier([0, 1], lambda rows: of_two(rows) * [1, 0.9])
    lenient = Classifier([0, 1], lambda rows: of_two(rows) * [0.9, 1])
    model = Model.of(codes, Classifier([0, 1], of_two), 1, 0.1, later=[strict, lenient])
    p = chances(frame)
    later_leads = 0.9 * p - (1 - p)
    assert np.array_equal(model.sure(rows), np.minimum(2 * p - 1, later_leads) >= 0.1)
    assert np.array_equal(model.has_outcome(rows), p > 0.5)
    assert model.later[0].n_rows == len(np.unique(rows[p > 0.5], axis=0))


def test_labels_decide_without_margin(codes: Codes, rows: Floats, frame: pd.DataFrame) -> None:
    """If predict and predict_proba disagree, labels are used, and no margin is possible."""
    classifier = Classifier([0, 1], of_two)
    classifier.predict = lambda rows: (chances(rows) > 0.8).astype(int)  # type: ignore[method-assign]
    model = Model.of(codes, classifier, 1).checked(rows)
    assert np.array_equal(model.has_outcome(rows), chances(frame) > 0.8)
    with pytest.raises(ModelError, match="predict_proba of a model disagree"):
        Model.of(codes, classifier, 1, margin=0.1).checked(rows)
    agreeing = Model.of(codes, Classifier([0, 1], of_two), 1, margin=0.1)
    assert agreeing.checked(rows) is agreeing


def test_failures_name_no_values(codes: Codes, rows: Floats) -> None:
    """An error of the model may quote a row, and ours must not."""

    def fails(rows: pd.DataFrame) -> Any:
        raise ValueError(f"cannot read {rows['job'].iloc[0]}")

    model = Model.of(codes, fails, 1)
    with pytest.raises(ModelError) as failure:
        model.leads(rows)
    assert not any(job in str(failure.value) for job in JOBS)


def test_largest_margin_leaves_enough_people() -> None:
    """Three in four people, and at least 5 k, still have the outcome."""
    leads = np.concatenate([np.full(25, 0.04), np.full(75, 0.2), np.full(50, -0.9)])
    assert largest_margin(leads, k=5) == 0.2
    assert largest_margin(leads, k=15) == 0.2
    assert largest_margin(leads, k=16) == 0
    assert largest_margin(np.full(50, 0.9), k=10) == 0.3


def test_margin_counts_people_once(codes: Codes, rows: Floats, frame: pd.DataFrame) -> None:
    """A person with several rows counts with the best of them."""
    model = Model.of(codes, chances, 1, threshold=0.5)
    person = np.arange(len(rows)) // 3
    best = pd.Series(2 * chances(frame) - 1).groupby(person).max().to_numpy()
    assert choose_margin(model, rows, person, k=2) == largest_margin(best, k=2) > 0
