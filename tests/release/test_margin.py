"""Answers have the margin that their certificates state, recounted by the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InputError, ModelError, PolicyError
from oracle import World, advised_points, find_faults

K = 5
QUASI = ["age", "rooms"]


def people(seed: int, n: int = 400) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "rooms": random.integers(1, 6, n),
            "income": random.integers(10, 70, n),
            "debt": random.integers(0, 30, n),
        }
    )


TRAIN = people(0)
STRANGERS = people(1)
SCORE = TRAIN["income"] - TRAIN["debt"] + 0.3 * TRAIN["age"]
SCORE += np.random.default_rng(0).normal(0, 12, len(TRAIN))  # probabilities take many values
OUTCOMES = np.where(SCORE > 38, "good", "bad")
LEVELS = np.select([SCORE < 25, SCORE < 45], ["low", "mid"], "high")
POPULATION = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=QUASI))


def forest(outcomes: Any) -> Any:
    model = RandomForestClassifier(10, max_leaf_nodes=16, random_state=0, n_jobs=1)
    return model.fit(TRAIN, outcomes)


def logistic(seed: int) -> Any:
    """Return a model that was trained on people who were drawn again, as a later one will be."""
    rows = np.random.default_rng(seed).integers(0, len(TRAIN), len(TRAIN))
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(
        TRAIN.iloc[rows], OUTCOMES[rows]
    )


FOREST = forest(OUTCOMES)
OF_THREE = forest(LEVELS)
LOGISTIC, *LATER = map(logistic, range(4))
QUERIES = STRANGERS[LOGISTIC.predict(STRANGERS) == "bad"].head(30).reset_index(drop=True)


def probability(model: Any, rows: pd.DataFrame, outcome: str = "good") -> Any:
    return model.predict_proba(rows)[:, list(model.classes_).index(outcome)]


def fit(model: Any, desired: Any = "good", **settings: Any) -> KAnonymizer:
    of_fit = {name: settings.pop(name) for name in ("threshold", "later") if name in settings}
    policy = PrivacyPolicy(**{"k": K, **settings})
    return KAnonymizer(policy=policy).fit(POPULATION, model, desired, **of_fit)


def margins_of(answers: Any) -> set[float | None]:
    return {answer.certificate.margin for answer in answers.released}


def over_half(rows: pd.DataFrame) -> Any:
    return 2 * probability(FOREST, rows) - 1


def over_threshold(rows: pd.DataFrame) -> Any:
    return (probability(LOGISTIC, rows) - 0.3) / 0.7


def over_low(rows: pd.DataFrame) -> Any:
    others = [probability(OF_THREE, rows, level) for level in ("mid", "high")]
    return np.max(others, axis=0) - probability(OF_THREE, rows, "low")


@pytest.mark.parametrize(
    ("model", "desired", "settings", "lead"),
    [
        (FOREST, "good", {"margin": 0.3}, over_half),
        (FOREST, "good", {"k": 60, "min_pureness": 0.3, "margin": 0.3}, over_half),
        (LOGISTIC, "good", {"threshold": 0.3, "margin": 0.4}, over_threshold),
        (OF_THREE, {"mid", "high"}, {"margin": 0.2}, over_low),
    ],
    ids=["forest", "wide regions", "threshold", "three outcomes"],
)
def test_release_has_the_margin(model: Any, desired: Any, settings: Any, lead: Any) -> None:
    """Entries have it for k people, answers at their point; pureness ignores it."""
    label = "good" if desired == "good" else "high"
    world = World(
        train=TRAIN,
        quasi_identifiers=QUASI,
        predict=lambda rows: np.where(lead(rows) >= 0, label, "other"),
        desired=lambda labels, _: labels == label,
        lead=lead,
        k=settings.get("k", K),
        least_pureness=settings.get("min_pureness", 0.5),
    )
    queries = STRANGERS[lead(STRANGERS) < 0].head(12).reset_index(drop=True)
    anonymizer = fit(model, desired, **settings)
    answers = anonymizer.explain(queries)
    assert len(answers.released) >= 9
    assert margins_of(answers) == {settings["margin"]}
    assert find_faults(answers, world, queries) == []
    assert find_faults(anonymizer.published(), world, most=5) == []


def test_opposite_has_margins_of_both_outcomes() -> None:
    """Later models agree with both as well."""
    queries = STRANGERS.head(40)
    answers = fit(LOGISTIC, "opposite", margin=0.3, later=LATER).explain(queries)
    positions, points = advised_points(answers, queries, TRAIN)
    outcomes = LOGISTIC.predict(points)
    assert (outcomes != LOGISTIC.predict(queries.iloc[positions])).all()
    assert set(outcomes) == {"good", "bad"}
    assert (LOGISTIC.predict_proba(points).max(axis=1) >= 0.65 - 1e-9).all()
    assert all((model.predict(points) == outcomes).all() for model in LATER)


def test_margin_does_not_judge_queries() -> None:
    """Whoever has the outcome barely has it already."""
    chances = probability(LOGISTIC, TRAIN)
    barely = TRAIN[(chances > 0.5) & (chances < 0.55)]
    answers = fit(LOGISTIC, margin=0.3).explain(barely)
    assert {answer.reason for answer in answers} == {"already_desired"}


def test_default_margin_depends_on_no_row() -> None:
    """It is the largest multiple of 0.05 that three in four accepted people have."""
    leads = 2 * probability(LOGISTIC, TRAIN) - 1
    leads = leads[leads > 0]
    candidates = [0.3, 0.25, 0.2, 0.15, 0.1, 0.05]
    expected = next(m for m in candidates if (leads >= m).mean() >= 0.75)
    for left_out in (0, 7):
        population = Population.from_frame(TRAIN.drop(index=left_out), POPULATION.schema)
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, LOGISTIC, "good")
        assert margins_of(anonymizer.published()) == {expected}


def test_default_margin_is_none_without_groups() -> None:
    """Without the people of a weak outcome, everyone has one religion, and l asks for two."""
    table = people(2, 80)
    table["income"] = [90] * 30 + [54] * 10 + [20] * 40
    table["religion"] = ["a"] * 30 + ["b"] * 50
    schema = Schema.from_frame(table, quasi_identifiers=QUASI, sensitive=["religion"])
    world = (Population.from_frame(table, schema), lambda rows: rows["income"] / 100, 1)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, l=2)).fit(*world, threshold=0.5)
    assert margins_of(anonymizer.published()) == {0.0}
    with pytest.raises(PolicyError, match="margin"):
        KAnonymizer(policy=PrivacyPolicy(k=K, l=2, margin=0.3)).fit(*world, threshold=0.5)


class Contrary:
    """A classifier whose predictions do not follow from its probabilities."""

    classes_ = LOGISTIC.classes_
    predict_proba = staticmethod(LOGISTIC.predict_proba)

    def predict(self, rows: pd.DataFrame) -> Any:
        return np.where(probability(LOGISTIC, rows) >= 0.6, "good", "bad")


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (LinearSVC().fit(TRAIN, OUTCOMES), "needs probabilities"),
        (Contrary(), "disagree"),
    ],
    ids=["LinearSVC", "contrary"],
)
def test_margin_needs_fitting_probabilities(model: Any, problem: str) -> None:
    """Without them, the default is none, the certificates say so, and a number is refused."""
    assert margins_of(fit(model).published()) == {0.0}
    with pytest.raises(ModelError, match=problem):
        fit(model, margin=0.1)


def test_lookup_has_no_margin() -> None:
    """It releases the explainer's private values."""
    assert PrivacyPolicy(guarantee="lookup").margin == 0
    with pytest.raises(PolicyError, match="margin"):
        PrivacyPolicy(guarantee="lookup", margin=0.2)


# --- later models and files -------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "least"), [(None, 0.5), (0.2, 0.2)])
def test_later_models_accept_every_answer(threshold: float | None, least: float) -> None:
    """They have the threshold of the model, and the default needs no margin beside them."""
    queries = STRANGERS[probability(LOGISTIC, STRANGERS) < 0.2].head(30).reset_index(drop=True)
    answers = fit(LOGISTIC, later=LATER, threshold=threshold).explain(queries)
    _, points = advised_points(answers, queries, TRAIN)
    lowest = np.min([probability(model, points) for model in [LOGISTIC, *LATER]], axis=0)
    assert len(lowest) >= 20
    assert least <= lowest.min() < least + 0.05
    certificates = [answer.certificate for answer in answers.released]
    assert {(one.n_later, one.margin) for one in certificates} == {(len(LATER), None)}


@pytest.mark.parametrize(
    ("settings", "error", "word"),
    [
        ({"later": LOGISTIC}, InputError, "retrained models"),
        ({"later": [OF_THREE]}, ModelError, "does not have"),
        ({"later": LATER, "guarantee": "lookup"}, PolicyError, "guarantee"),
    ],
)
def test_unusable_later_models_are_refused(settings: Any, error: Any, word: str) -> None:
    """They are a list of models with the same outcomes, for a catalogue."""
    with pytest.raises(error, match=word):
        fit(LOGISTIC, **settings)


def test_loaded_catalogue_needs_its_models(tmp_path: Path) -> None:
    """Its probabilities for the margin, and as many later models as it was fitted with."""
    fit(LOGISTIC).catalogue_.save(tmp_path / "margin")
    with pytest.raises(ModelError, match="needs probabilities"):
        KAnonymizer.load(tmp_path / "margin", LOGISTIC.predict)
    anonymizer = fit(LOGISTIC, later=LATER)
    anonymizer.catalogue_.save(tmp_path / "later")
    with pytest.raises(ModelError, match="3 later models"):
        KAnonymizer.load(tmp_path / "later", LOGISTIC)
    loaded = KAnonymizer.load(tmp_path / "later", LOGISTIC, later=LATER)
    assert loaded.explain(QUERIES).to_json() == anonymizer.explain(QUERIES).to_json()
