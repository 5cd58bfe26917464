"""Answers have the margin that their certificates state, counted again by brute force."""

from __future__ import annotations

from collections.abc import Callable
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

from cfk_plugin import (
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.errors import InputError, ModelError, PolicyError
from oracle import advised_points

FEATURES = ["age", "rooms", "income", "debt"]
K = 5


def table(seed: int = 0, n: int = 400) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "rooms": random.integers(1, 6, n),
            "income": random.integers(10, 70, n),
            "debt": random.integers(0, 30, n),
        }
    )


def outcomes_of(rows: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """Return noisy outcomes, so that probabilities take many values."""
    random = np.random.default_rng(seed)
    score = rows["income"] - rows["debt"] + 0.3 * rows["age"] + random.normal(0, 12, len(rows))
    return np.where(score > 38, "good", "bad")


def logistic(rows: pd.DataFrame, outcomes: np.ndarray) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, outcomes)


def forest(rows: pd.DataFrame, outcomes: np.ndarray, seed: int = 0) -> Any:
    model = RandomForestClassifier(30, max_leaf_nodes=16, random_state=seed, n_jobs=1)
    return model.fit(rows, outcomes)


def population(rows: pd.DataFrame) -> Population:
    schema = Schema.from_frame(rows, quasi_identifiers=["age", "rooms"])
    return Population.from_frame(rows, schema, key=b"a key of this test, long enough")


def fitted(rows: pd.DataFrame, model: Any, desired: Any = "good", **settings: Any) -> KAnonymizer:
    fit = {name: settings.pop(name) for name in ("threshold", "later") if name in settings}
    policy = PrivacyPolicy(**{"k": K, **settings})
    anonymizer = KAnonymizer(policy=policy)
    return anonymizer.fit(population(rows), model, desired, **fit)


def refused(rows: pd.DataFrame, model: Any, count: int = 40) -> pd.DataFrame:
    return rows[model.predict(rows) == "bad"].head(count).reset_index(drop=True)


def points_of(answers: Explanations, queries: pd.DataFrame) -> pd.DataFrame:
    """Return what each released answer asks for, as rows of the model."""
    return advised_points(answers, queries, TRAIN[FEATURES])[1]


def probability(model: Any, rows: pd.DataFrame, outcome: str = "good") -> np.ndarray:
    return np.asarray(model.predict_proba(rows)[:, list(model.classes_).index(outcome)])


TRAIN = table()
OUTCOMES = outcomes_of(TRAIN)
MODELS = {"logistic": logistic(TRAIN, OUTCOMES), "forest": forest(TRAIN, OUTCOMES)}


@pytest.mark.parametrize(("kind", "margin"), [("forest", 0.3), ("logistic", 0.5), ("forest", 0.0)])
def test_every_answer_has_the_margin(kind: str, margin: float) -> None:
    model = MODELS[kind]
    queries = refused(table(1), model)
    answers = fitted(TRAIN, model, margin=margin).explain(queries)
    reached = probability(model, points_of(answers, queries))
    assert len(reached) >= 35
    assert (reached >= 0.5 + margin * 0.5 - 1e-9).all()
    margins = {answer.certificate.margin for answer in answers.generalized}
    assert margins == {None if margin == 0 else margin}
    if margin == 0:  # otherwise the margin would be met by chance
        assert (reached < 0.55).any()


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_a_margin_is_relative_to_the_threshold_of_the_decision(threshold: float) -> None:
    model = MODELS["logistic"]
    queries = table(1)[probability(model, table(1)) < threshold].head(40).reset_index(drop=True)
    anonymizer = fitted(TRAIN, model, margin=0.4, threshold=threshold)
    reached = probability(model, points_of(anonymizer.explain(queries), queries))
    assert len(reached) >= 30
    assert (reached >= threshold + 0.4 * (1 - threshold) - 1e-9).all()


def test_with_opposite_each_answer_has_the_margin_of_its_own_outcome() -> None:
    model = MODELS["logistic"]
    queries = table(1).head(40)
    anonymizer = fitted(TRAIN, model, "opposite", margin=0.3)
    answers = anonymizer.explain(queries)
    points = points_of(answers, queries)
    before = model.predict(queries)[[answer.query for answer in answers.generalized]]
    after = model.predict(points)
    assert (after != before).all()
    assert set(after) == {"good", "bad"}
    assert (model.predict_proba(points).max(axis=1) >= 0.65 - 1e-9).all()


def three_outcomes(rows: pd.DataFrame) -> np.ndarray:
    score = rows["income"] - rows["debt"] + np.random.default_rng(3).normal(0, 9, len(rows))
    return np.select([score < 10, score < 30], ["low", "mid"], "high")


def test_of_three_outcomes_the_desired_ones_lead_by_the_margin() -> None:
    model = forest(TRAIN, three_outcomes(TRAIN))
    queries = table(1)[model.predict(table(1)) == "low"].head(40).reset_index(drop=True)
    anonymizer = fitted(TRAIN, model, {"mid", "high"}, margin=0.2)
    points = points_of(anonymizer.explain(queries), queries)
    probabilities = pd.DataFrame(model.predict_proba(points), columns=model.classes_)
    lead = probabilities[["high", "mid"]].max(axis=1) - probabilities["low"]
    assert len(lead) >= 30
    assert (lead >= 0.2 - 1e-9).all()


def sure(model: Any, rows: pd.DataFrame, margin: float) -> np.ndarray:
    return probability(model, rows) >= 0.5 + margin / 2 - 1e-9


def test_the_k_people_of_every_region_have_the_margin() -> None:
    model = MODELS["forest"]
    queries = refused(table(1), model)
    anonymizer = fitted(TRAIN, model, margin=0.3)
    answers = anonymizer.explain(queries).generalized
    assert answers
    for answer in answers:
        inside = TRAIN[
            [
                all(row[name] in answer.region[name] for name in ("age", "rooms"))
                for row in TRAIN.to_dict("records")
            ]
        ]
        assert sure(model, inside, 0.3).sum() >= K
        changed = inside.assign(**answer.released)[FEATURES]
        assert answer.recount.k_consistent == (model.predict(changed) == "good").sum() >= K


def test_pureness_is_that_of_the_bare_model() -> None:
    model = MODELS["forest"]
    queries = refused(table(1), model)
    anonymizer = fitted(TRAIN, model, k=60, min_pureness=0.3, margin=0.3)
    answers = anonymizer.explain(queries).generalized
    below = 0
    for answer in answers:
        ages = [age for age in TRAIN["age"].unique() if age in answer.region["age"]]
        rooms = [room for room in TRAIN["rooms"].unique() if room in answer.region["rooms"]]
        cells = pd.DataFrame(
            [{"age": age, "rooms": room, **answer.released} for age in ages for room in rooms]
        )[FEATURES]
        assert answer.certificate.pureness == pytest.approx((model.predict(cells) == "good").mean())
        below += sure(model, cells, 0.3).mean() < answer.certificate.pureness
    assert below, "no region tells the two figures apart"


def margin_of(anonymizer: KAnonymizer) -> float | None:
    """Return the margin that the certificates of a catalogue state."""
    return anonymizer.published()[0].certificate.margin


def test_the_default_is_the_largest_margin_that_leaves_three_in_four() -> None:
    """It is a multiple of 0.05, and the same whoever is left out."""
    model = MODELS["logistic"]
    leads = 2 * probability(model, TRAIN) - 1
    leads = leads[leads > 0]
    margins = [0.3, 0.25, 0.2, 0.15, 0.1, 0.05]
    expected = next(m for m in margins if (leads >= m).sum() >= 0.75 * len(leads))
    assert {margin_of(fitted(TRAIN.drop(index=i), model)) for i in (0, 7, 42)} == {expected}


def test_the_default_is_none_if_the_people_with_it_form_no_group() -> None:
    """Without the people of a weak outcome, everybody has one religion, and l asks for two."""
    rows = table(2, 80)
    rows["income"] = [90] * 30 + [54] * 10 + [20] * 40
    rows["religion"] = ["a"] * 30 + ["b"] * 50

    def ask(asked: pd.DataFrame) -> pd.Series:
        return asked["income"] / 100

    schema = Schema.from_frame(rows, quasi_identifiers=["age", "rooms"], sensitive=["religion"])
    people = Population.from_frame(rows, schema)
    settings = {"k": K, "l": 2}
    anonymizer = KAnonymizer(policy=PrivacyPolicy(**settings))
    anonymizer.fit(people, ask, 1, threshold=0.5)
    assert margin_of(anonymizer) == 0
    with pytest.raises(PolicyError, match="lower k, l or margin"):
        KAnonymizer(policy=PrivacyPolicy(**settings, margin=0.3)).fit(people, ask, 1, threshold=0.5)


def test_whether_a_query_has_the_outcome_is_judged_without_the_margin() -> None:
    model = MODELS["logistic"]
    reached = probability(model, TRAIN)
    barely = TRAIN[(reached > 0.5) & (reached < 0.55)].reset_index(drop=True)
    assert len(barely) > 3
    answers = fitted(TRAIN, model, margin=0.3).explain(barely)
    assert [entry.reason for entry in answers.withheld] == [ALREADY_DESIRED] * len(barely)


@pytest.mark.parametrize(
    "model",
    [
        lambda rows: np.where(rows["income"] > 40, "good", "bad"),
        LinearSVC().fit(TRAIN, OUTCOMES),
    ],
    ids=["function", "LinearSVC"],
)
def test_without_probabilities_there_is_no_margin_and_the_certificate_says_so(model: Any) -> None:
    queries = table(1).assign(income=20, debt=29).head(5)
    answers = fitted(TRAIN, model).explain(queries).generalized
    assert {answer.certificate.margin for answer in answers} == {0.0}
    with pytest.raises(ModelError, match="needs probabilities"):
        fitted(TRAIN, model, margin=0.1)


class Contrary:
    """A classifier whose predictions do not follow from its probabilities."""

    def __init__(self, model: Any, threshold: float = 0.6) -> None:
        self._model = model
        self._threshold = threshold
        self.classes_ = model.classes_

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return np.where(probability(self._model, rows) >= self._threshold, "good", "bad")

    def predict_proba(self, rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(self._model.predict_proba(rows))


def test_probabilities_that_say_something_else_than_predictions_give_no_margin() -> None:
    model = Contrary(MODELS["logistic"])
    queries = refused(table(1), model)
    anonymizer = fitted(TRAIN, model)
    answers = anonymizer.explain(queries)
    assert {answer.certificate.margin for answer in answers.generalized} == {0.0}
    assert (model.predict(points_of(answers, queries)) == "good").all()
    with pytest.raises(ModelError, match="disagree on some rows"):
        fitted(TRAIN, model, margin=0.1)


def test_other_guarantees_have_no_margin() -> None:
    assert PrivacyPolicy(guarantee="lookup").margin == 0
    with pytest.raises(PolicyError, match="margin"):
        PrivacyPolicy(guarantee="lookup", margin=0.2)
    assert PrivacyPolicy(guarantee="lookup").with_guarantee("catalogue").margin == "auto"
    assert PrivacyPolicy().with_guarantee("lookup").margin == 0


@pytest.mark.parametrize("margin", [-0.1, 1, 1.5, "much", True, None, float("nan")])
def test_what_is_no_margin_is_refused(margin: Any) -> None:
    with pytest.raises(PolicyError, match='margin must be "auto" or a number from 0 to below 1'):
        PrivacyPolicy(margin=margin)


def test_a_loaded_catalogue_has_the_margin(tmp_path: Path) -> None:
    model = MODELS["forest"]
    anonymizer = fitted(TRAIN, model)
    anonymizer.catalogue_.save(tmp_path / "catalogue")
    loaded = KAnonymizer.load(tmp_path / "catalogue", model)
    assert margin_of(loaded) == margin_of(anonymizer) == 0.3
    queries = refused(table(1), model)
    answers = loaded.explain(queries)
    assert answers.to_json() == anonymizer.explain(queries).to_json()
    assert (probability(model, points_of(answers, queries)) >= 0.65 - 1e-9).all()
    with pytest.raises(ModelError, match="needs probabilities"):
        KAnonymizer.load(tmp_path / "catalogue", model.predict)
    with pytest.raises(ModelError, match="disagree on some rows"):
        KAnonymizer.load(tmp_path / "catalogue", Contrary(model, 0.95))


def bootstraps(train: Callable[..., Any], count: int, first: int) -> list[Any]:
    models = []
    for seed in range(first, first + count):
        at = np.random.default_rng(seed).integers(0, len(TRAIN), len(TRAIN))
        models.append(train(TRAIN.iloc[at], OUTCOMES[at]))
    return models


def test_later_models_agree_with_every_answer() -> None:
    model = MODELS["logistic"]
    later = bootstraps(logistic, 4, 100)
    queries = refused(table(1), model)
    answers = fitted(TRAIN, model, later=later).explain(queries)
    points = points_of(answers, queries)
    assert len(points) >= 35
    for some in [model, *later]:
        assert (some.predict(points) == "good").all()
    certificates = [answer.certificate for answer in answers.generalized]
    assert {(each.n_later, each.margin) for each in certificates} == {(4, None)}
    # others agree more often than without
    others = bootstraps(logistic, 4, 200)
    bare = fitted(TRAIN, model, margin=0)
    points_without = points_of(bare.explain(queries), queries)
    lasting = np.mean([other.predict(points) == "good" for other in others])
    assert lasting > np.mean([other.predict(points_without) == "good" for other in others])


def test_later_models_are_held_to_the_threshold() -> None:
    model = MODELS["logistic"]
    later = bootstraps(logistic, 3, 0)
    queries = table(1)[probability(model, table(1)) < 0.2].head(30).reset_index(drop=True)
    anonymizer = fitted(TRAIN, model, threshold=0.2, later=later)
    points = points_of(anonymizer.explain(queries), queries)
    reached = np.array([probability(some, points) for some in later]).min(axis=0)
    assert len(reached) >= 20
    assert (reached >= 0.2).all()
    assert reached.min() < 0.25


def test_later_models_and_a_margin_hold_together() -> None:
    model = MODELS["logistic"]
    queries = refused(table(1), model)
    anonymizer = fitted(TRAIN, model, margin=0.4, later=bootstraps(logistic, 3, 0))
    answers = anonymizer.explain(queries)
    reached = probability(model, points_of(answers, queries))
    assert (reached >= 0.7 - 1e-9).all()
    assert {answer.certificate.margin for answer in answers.generalized} == {0.4}


def test_later_models_with_opposite_agree_with_each_outcome() -> None:
    model = MODELS["logistic"]
    later = bootstraps(logistic, 2, 0)
    queries = table(1).head(30)
    anonymizer = fitted(TRAIN, model, "opposite", later=later)
    points = points_of(anonymizer.explain(queries), queries)
    after = model.predict(points)
    assert set(after) == {"good", "bad"}
    assert all((some.predict(points) == after).all() for some in later)


def test_protect_takes_later_models() -> None:
    model = MODELS["logistic"]
    explain = protect(
        model=model,
        population=population(TRAIN),
        desired="good",
        k=K,
        later=bootstraps(logistic, 2, 0),
    )
    answers = explain(refused(table(1), model, 5)).generalized
    assert {answer.certificate.n_later for answer in answers} == {2}


def test_a_loaded_catalogue_needs_its_later_models(tmp_path: Path) -> None:
    model = MODELS["logistic"]
    later = bootstraps(logistic, 2, 0)
    anonymizer = fitted(TRAIN, model, later=later)
    anonymizer.catalogue_.save(tmp_path / "catalogue")
    with pytest.raises(ModelError, match="2 later models"):
        KAnonymizer.load(tmp_path / "catalogue", model)
    queries = refused(table(1), model)
    loaded = KAnonymizer.load(tmp_path / "catalogue", model, later=later)
    assert loaded.explain(queries).to_json() == anonymizer.explain(queries).to_json()


def test_unusable_later_models_are_refused() -> None:
    model = MODELS["logistic"]
    with pytest.raises(InputError, match="list of models that were trained again"):
        fitted(TRAIN, model, later=model)
    always = forest(TRAIN, np.where(OUTCOMES == "good", "better", "bad"))
    with pytest.raises(ModelError, match="does not have"):
        fitted(TRAIN, model, later=[always])
    with pytest.raises(PolicyError, match='needs guarantee="catalogue"'):
        fitted(TRAIN, model, guarantee="lookup", later=[model, model])
