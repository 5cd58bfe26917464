"""Copies of a model, recounted from what the attacker trained on and asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin.audit.extraction import RowsAsNumbers, extraction
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError, ModelError
from cfk_plugin.metrics import clopper_pearson
from copied_owners import IslandOwner, IslandService, island_people

CANARY = "CANARY-7731"
TREE = IslandOwner().architecture


def attack(owner: Any = None, people: int = 1600, **settings: Any) -> AttackReport:
    return extraction(
        owner or IslandOwner(),
        island_people(people),
        **{"queries": (60,), "unknown": TREE, **settings},
    )


# --- copies ---------------------------------------------------------------------------------------


def test_counterfactuals_on_the_boundary_copy_the_model_and_those_that_say_nothing_do_not() -> None:
    report = attack(repeats=8)
    for kind in ("known", "unknown"):
        found = report[f"extraction_{kind}_60"]
        assert found.worked
        assert found.control is not None
        assert found.main.low > max(found.baseline.value, found.control.value)
        assert min(found.figures["gain_low"], found.figures["gain_over_further"]) > 0.02
        assert found.figures["balanced_fidelity"] > found.figures["balanced_fidelity_alone"] + 0.05
        # the model is the truth here
        assert found.figures["accuracy"] == pytest.approx(found.main.value, abs=0.01)
        assert found.figures["accuracy_model"] == 1
        # What draws differ by is covered: Student's t with seven degrees, 97.5 %.
        assert found.main.value - found.main.low > 2.365 * found.figures["draws_sd"] / math.sqrt(8)
    nothing = attack(IslandOwner(informative=False), people=800)["extraction_known_60"]
    assert not nothing.worked
    assert nothing.figures["gain"] < 0


@dataclass
class Watched:
    """What an owner was trained on and asked, and the copies that were made, in order."""

    trained: list[pd.DataFrame] = field(default_factory=list)
    judged: list[pd.DataFrame] = field(default_factory=list)
    explained: list[pd.DataFrame] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)

    def owner(self, service: Callable[[], Any] = lambda: IslandService(informative=True)) -> Any:
        watched = self

        class Service:
            inner = service()

            def confidence(self, X: pd.DataFrame) -> np.ndarray:
                return self.inner.confidence(X)

            def desired(self, X: pd.DataFrame) -> np.ndarray:
                watched.judged.append(X)
                return self.inner.desired(X)

            def explain(self, X: pd.DataFrame) -> Answers:
                watched.explained.append(X)
                return self.inner.explain(X)

        class Owner:
            name = "watched"

            def train(self, people: Sample, seed: int) -> Service:
                watched.trained.append(people.X)
                return Service()

        return Owner()

    def copy(self, seed: int) -> Any:
        watched = self

        class Copy(DecisionTreeClassifier):
            def fit(self, X: pd.DataFrame, y: np.ndarray) -> Any:
                watched.copies.append((self, X, y))
                return super().fit(X[["place"]], y)

            def predict(self, X: pd.DataFrame) -> np.ndarray:
                return super().predict(X[["place"]])

            def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
                return DecisionTreeClassifier.predict_proba(self, X[["place"]])

        return Copy(random_state=seed)


def shares(
    copy: Any, people: pd.DataFrame, outcome: np.ndarray, truth: np.ndarray
) -> tuple[float, float, float]:
    """Return fidelity, balanced fidelity and accuracy of a copy."""
    guessed = DecisionTreeClassifier.predict(copy, people[["place"]])
    right = guessed == outcome
    return (
        right.mean(),
        np.mean([right[outcome == kind].mean() for kind in (True, False)]),
        (guessed == truth).mean(),
    )


def test_figures_of_a_draw_and_who_is_asked_are_what_a_recount_finds() -> None:
    sample, seen = island_people(400), Watched()
    report = extraction(
        seen.owner(), sample, queries=(20, 50), repeats=1, known=seen.copy, unknown=seen.copy
    )
    asked, held_out = seen.judged
    trained, order = set(seen.trained[0]["noise"]), asked["noise"].tolist()
    spent = 50 + len(seen.explained[0])
    assert len(asked) == 100  # 50, and as many further ones as there could be answers
    assert set(seen.explained[0]["noise"]) <= set(order[:50])
    assert not set(held_out["noise"]) & (trained | set(order[:spent]))
    assert not trained & set(order)
    assert len(held_out) == 400 - len(trained) - spent
    truth = pd.Series(sample.y, sample.X["noise"])[held_out["noise"]].to_numpy()
    outcome = IslandService(True).desired(held_out)
    explained, alone, further = seen.copies[0:6:2]  # known and unknown take turns
    found = report["extraction_known_20"]
    answered = (~IslandService(True).desired(asked.head(20))).sum()
    assert (found.figures["answers"], found.figures["answered"]) == (answered, 1)
    assert (
        explained[1]["place"].head(20).tolist()
        == alone[1]["place"].tolist()
        == asked["place"].head(20).tolist()
    )
    assert explained[2][20:].all()
    assert [len(pairs[2]) for pairs in (explained, alone, further)] == [
        20 + answered,
        20,
        20 + answered,
    ]
    for name, rate, (copy, *_) in (
        ("", found.main, explained),
        ("_alone", found.baseline, alone),
        ("_further", found.control, further),
    ):
        fidelity, balanced, accuracy = shares(copy, held_out, outcome, truth)
        assert rate.value == pytest.approx(fidelity)
        assert (rate.low, rate.high) == pytest.approx(
            clopper_pearson(round(fidelity * rate.n), rate.n)
        )
        assert found.figures[f"balanced_fidelity{name}"] == pytest.approx(balanced)
        assert found.figures[f"accuracy{name}"] == pytest.approx(accuracy)
    assert found.figures["gain"] == pytest.approx(found.main.value - found.baseline.value)
    assert found.figures["gain_low"] < found.figures["gain"] < found.figures["gain_high"]
    assert np.isnan(found.figures["draws_sd"])


def test_a_copy_that_knows_the_share_of_outcomes_is_matched_to_it() -> None:
    """Answers all have one label; a copy that is too generous by that alone is put right by its
    threshold.
    """

    class Generous(KNeighborsClassifier):
        def predict(self, X: pd.DataFrame) -> np.ndarray:
            return self.predict_proba(X)[:, 1] > 0.01

    def copy(seed: int) -> Any:
        return make_pipeline(RowsAsNumbers(), Generous(7))

    figures = attack(people=800, repeats=1, known=copy)["extraction_known_60"].figures
    assert figures["matched_fidelity"] > figures["balanced_fidelity"]
    assert {"matched_gain", "matched_gain_low", "matched_gain_over_further"} <= set(figures)


def test_sizes_beyond_the_people_are_named_and_one_without_further_people_has_no_control() -> None:
    report = attack(people=160, queries=(40, 110, 500), repeats=1)
    assert (report.settings["queries"], report.settings["queries_left_out"]) == ("40, 110", "500")
    assert report["extraction_known_40"].control is not None
    assert report["extraction_known_110"].control is None
    assert "gain_over_further" not in report["extraction_known_110"].figures


@dataclass
class Partial:
    """Desired is a place of one half and more; answers give a part of a row, or nothing."""

    said: Callable[[pd.DataFrame], tuple[pd.DataFrame, np.ndarray]]

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return self.desired(X).astype(float)

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return X["place"].to_numpy() >= 0.5

    def explain(self, X: pd.DataFrame) -> Answers:
        return Answers(*self.said(X))


def test_what_an_answer_does_not_give_is_the_querys_own_and_an_empty_one_is_none() -> None:
    def said(X: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
        rows = pd.DataFrame({"place": 0.5, "noise": np.nan, "kind": None}, index=X.index).astype(
            {"kind": object}
        )
        rows.iloc[::2] = np.nan
        return rows, np.ones(len(X), dtype=bool)

    seen = Watched()
    extraction(
        seen.owner(lambda: Partial(said)),
        island_people(400),
        queries=(40,),
        repeats=1,
        unknown=seen.copy,
    )
    _, X, y = seen.copies[0]
    queries, undesired = X.head(40), X.head(40)[~y[:40]]
    answers = X.iloc[40:]
    assert len(answers) == len(undesired) // 2
    assert (answers["place"] == 0.5).all()
    assert (
        answers[["noise", "kind"]].to_numpy().tolist()
        == undesired[["noise", "kind"]].iloc[1::2].to_numpy().tolist()
    )
    assert (answers.dtypes == queries.dtypes).all()


def test_rows_as_numbers_ignore_what_they_do_not_know() -> None:
    rows = pd.DataFrame({"age": [10, 50, 20, 60, 30], "job": ["a", "b", "a", "b", None]})
    encoder = RowsAsNumbers().fit(rows)
    found = encoder.transform(pd.DataFrame({"age": [34.0, np.nan], "job": ["z", "b"]}))
    assert found.tolist() == [[0, 0, 0], [0, 0, 1]]  # 34 is the mean age; a missing one becomes it
    assert encoder.transform(rows)[:, 0].std() == pytest.approx(1)
    constant = pd.DataFrame({"age": [3, 3], "empty": [np.nan, np.nan]})
    assert RowsAsNumbers().fit(constant).transform(constant).tolist() == [[0, 0], [0, 0]]


def test_an_owner_with_a_network_is_copied_by_one_with_a_layer_more_and_a_silent_one_without_knowing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers: list[tuple[int, ...]] = []
    fit = MLPClassifier.fit
    monkeypatch.setattr(
        MLPClassifier,
        "fit",
        lambda self, *pairs: layers.append(self.hidden_layer_sizes) or fit(self, *pairs),
    )

    class Silent:
        name, train = "silent", IslandOwner().train

    @dataclass(frozen=True)
    class Networked(IslandOwner):
        def architecture(self, seed: int) -> Any:
            return make_pipeline(RowsAsNumbers(), MLPClassifier((20, 10), max_iter=400))

    extraction(Networked(), island_people(200), queries=(30,), repeats=1)
    assert set(layers) == {(20, 10), (20, 10, 10)}
    report = extraction(Silent(), island_people(400), queries=(30,), repeats=1, unknown=TREE)
    assert [result.attack for result in report] == ["extraction_unknown_30"]


class Failing(IslandOwner):
    def train(self, people: Sample, seed: int) -> Any:
        raise ValueError(f"could not convert {CANARY}")


class Refusing:
    def fit(self, X: Any, y: Any) -> None:
        raise ValueError(f"could not convert {CANARY}")

    def get_params(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Odd(IslandOwner):
    service: Any = None

    def train(self, people: Sample, seed: int) -> Any:
        return self.service


class Short(IslandService):
    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.array([False])


@pytest.mark.parametrize(
    ("owner", "unknown", "said"),
    [
        (Failing(), TREE, r"the owner's training failed \(ValueError\)"),
        (IslandOwner(), lambda seed: Refusing(), r"training the surrogate failed \(ValueError\)"),
        (Odd(service=Short(True)), TREE, "1 outcomes for 120 rows"),
        (
            Odd(service=Partial(lambda X: (X[:1], np.array([True])))),
            TREE,
            r"1 answers to \d+ queries",
        ),
    ],
)
def test_failures_are_named_by_class_alone(owner: Any, unknown: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said) as raised:
        attack(owner, unknown=unknown)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"people": 60}, "give at least 80 people"),
        ({"queries": (0,)}, "whole numbers above 0"),
        ({"queries": (5000,)}, "ask fewer"),
        ({"repeats": 0}, "repeats"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        attack(**settings)
