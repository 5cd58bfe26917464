"""Who is attacked: trained on people and seed alone, read as documented, and what their answers
tell of members.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Interval, PrivacyPolicy, Schema
from cfk_plugin.audit import AuditResult, Rate
from cfk_plugin.audit.result import AttackReport, Roc, measure_roc, readable, side_by_side
from cfk_plugin.audit.targets import (
    ProtectedOwner,
    PrototypeOwner,
    RawOwner,
    Sample,
    Target,
    compare,
    full_depth_forest,
    measured_schema,
    standard_owners,
)
from cfk_plugin.errors import InputError, ModelError
from cfk_plugin.metrics.heom import Heom

QUASI = ("age", "town")


def people(n: int) -> Sample:
    """Return people of whose outcomes most is chance, so that a good memory is all that a model can
    have.
    """
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, n),
            "town": random.choice(list("ABCD"), n),
            "income": random.normal(50, 15, n).round(1),
            "debt": random.normal(20, 8, n).round(1),
            "job": random.choice(["none", "part", "full"], n),
        }
    )
    return Sample(frame, random.random(n) < 0.5 + 0.1 * (frame["income"] > 50))


def forest(trees: int) -> Any:
    texts = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["town", "job"]), remainder="passthrough"
    )
    return make_pipeline(texts, RandomForestClassifier(trees, n_jobs=1))


def nearest(
    train: pd.DataFrame, labels: Any, model: Any, desired: Any, seed: int
) -> NearestUnlikeNeighbour:
    """Make the explainer that returns training rows; found by name where it is pickled."""
    return NearestUnlikeNeighbour(train, model, desired)


EVERYBODY = people(240)
MODEL = forest(10)
SCHEMA = measured_schema(EVERYBODY, QUASI)
# so that every query has an answer
NO_FLOOR = PrivacyPolicy(guarantee="lookup", k=5, min_pureness=0)
OWNERS: dict[str, Target] = {
    "raw": RawOwner("raw", MODEL, nearest),
    "exact": ProtectedOwner("exact", MODEL, nearest, QUASI, rules=NO_FLOOR),
    "catalogue": ProtectedOwner(
        "catalogue", MODEL, None, QUASI, rules=PrivacyPolicy(k=5, guarantee="catalogue")
    ),
    "dp": PrototypeOwner("dp", MODEL, SCHEMA, rows=2_000, repeatable=True),
    "moved_towards_query": PrototypeOwner(
        "moved_towards_query", MODEL, SCHEMA, move_towards_query=True, rows=2_000, repeatable=True
    ),
}
every = pytest.mark.parametrize("name", OWNERS)


def answered(owner: Target, seed: int = 3) -> tuple[Any, Any, pd.DataFrame]:
    service = owner.train(EVERYBODY.take(np.arange(120)), seed)
    others = EVERYBODY.X.iloc[120:]
    queries = others[~service.desired(others)].head(12)
    return service, service.explain(queries), queries


@cache
def asked(name: str) -> tuple[Any, Any, pd.DataFrame]:
    return answered(OWNERS[name])


# --- owners ---------------------------------------------------------------------------------------


@every
def test_an_owner_answers_each_query_is_a_function_of_people_and_seed_and_shows_no_row(
    name: str,
) -> None:
    service, answers, queries = asked(name)
    assert answers.found.all()
    assert answers.rows.index.equals(queries.index)
    assert (answers.rows.dtypes == queries.dtypes).all()
    confidence = service.confidence(queries)
    assert ((confidence >= 0) & (confidence <= 0.5)).all()
    # nobody asked the model about that point of a region
    if name not in ("exact", "catalogue"):
        assert service.desired(answers.rows).all()
    again = answered(pickle.loads(pickle.dumps(OWNERS[name])))
    pd.testing.assert_frame_equal(again[1].rows, answers.rows)
    np.testing.assert_array_equal(again[0].confidence(queries), confidence)
    with pytest.raises(InputError, match="refuses to be pickled"):
        pickle.dumps(service)
    shown = f"{service!r} {answers!r} {OWNERS[name]!r}"
    assert "12 of 12" in shown
    assert not any(str(value) in shown for value in answers.rows["income"])


def test_answers_are_training_rows_regions_of_k_or_seeded_prototypes() -> None:
    raw, kept, drawn = (asked(name)[1] for name in ("raw", "exact", "dp"))
    assert raw.explanations is None
    assert len(raw.rows.merge(EVERYBODY.X.head(120).drop_duplicates())) == len(raw.rows)
    assert kept.explanations.summary()["k_min"] >= 5
    assert {entry.certificate.guarantee for entry in drawn.explanations.prototypes} == {"none"}
    policies = {name: OWNERS[name].policy for name in OWNERS}  # type: ignore[attr-defined]
    assert policies["raw"] is None
    assert (policies["catalogue"]["guarantee"], policies["dp"]["epsilon"]) == ("catalogue", 1.0)


def test_a_seed_reaches_every_step_and_the_model_given_stays_as_it_was() -> None:
    service, _, queries = asked("raw")
    other = answered(OWNERS["raw"], seed=4)[0]
    assert not np.array_equal(other.confidence(queries), service.confidence(queries))
    kind = OWNERS["raw"].architecture(5)  # type: ignore[attr-defined]
    assert (kind[-1].n_estimators, kind[-1].random_state, hasattr(kind[-1], "classes_")) == (
        10,
        5,
        False,
    )
    assert MODEL[-1].random_state is None
    assert service.explain(EVERYBODY.X.head(0)).found.tolist() == []


def test_what_cannot_be_trained_is_said_without_a_value() -> None:
    with pytest.raises(InputError, match="same outcome"):
        OWNERS["raw"].train(Sample(EVERYBODY.X, np.ones(240, dtype=bool)), 0)
    with pytest.raises(ModelError, match="predict_proba"):
        RawOwner("svc", LinearSVC(), nearest).train(EVERYBODY, 0)
    with pytest.raises(ModelError, match="ValueError") as caught:
        RawOwner("text", MODEL[-1], nearest).train(EVERYBODY, 0)  # text without its encoding
    assert "none" not in str(caught.value)
    with pytest.raises(InputError, match="one of both"):
        ProtectedOwner("no schema", MODEL, nearest)
    with pytest.raises(InputError, match="catalogue"):
        ProtectedOwner("no explainer", MODEL, None, QUASI, rules=PrivacyPolicy(guarantee="lookup"))


# --- how answers are read -------------------------------------------------------------------------


def gaps(n: int = 160) -> Sample:
    """Return people with missing numbers and categories, ranks, and a job that one person has."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": np.where(random.random(n) < 0.15, np.nan, random.integers(20, 60, n)),
            "town": np.where(random.random(n) < 0.15, None, random.choice(list("ABCD"), n)),
            "rank": random.choice(["low", "mid", "high"], n),
            "pay": random.integers(0, 100, n),
            "job": ["rare", *random.choice(["a", "b"], n - 1)],
        }
    )
    return Sample(frame, frame["pay"].to_numpy() > 40)


class PayModel(LinearSVC):
    """Decides by pay alone."""

    def fit(self, X: pd.DataFrame, y: Any) -> Any:
        self.classes_ = np.array([False, True])
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return X["pay"].to_numpy() > 40

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        sure = X["pay"].to_numpy() / 100
        return np.column_stack([1 - sure, sure])


def inside(part: Any, own: Any) -> Any:
    """Return what the reference says is read of a part of a region."""
    missing = bool(pd.isna(own))
    if not isinstance(part, Interval):
        if (None if missing else own) in part:
            return None if missing else own
        return next(iter(sorted(value for value in part if value is not None)), None)
    if part.low is None or (missing and part.missing):
        return None
    if part.levels is not None:
        return own if own in part.levels else part.levels[0]
    return part.low if missing else min(max(own, part.low), part.high)


def test_answers_are_read_as_the_nearest_instance() -> None:
    sample = gaps()
    schema = Schema.from_frame(
        sample.X,
        quasi_identifiers=["age", "town", "rank"],
        ordinal={"rank": ["low", "mid", "high"]},
    )
    rules = PrivacyPolicy(k=3, guarantee="lookup")
    service = ProtectedOwner("read", PayModel(), nearest, schema=schema, rules=rules).train(
        sample, 0
    )
    random = np.random.default_rng(2)
    queries = gaps(60).X.assign(pay=random.integers(0, 41, 60))
    for name in ("age", "town", "rank"):
        queries[name] = random.permutation(queries[name].to_numpy())
    queries.loc[:3, "age"] = [5.0, 500.0, 30.5, 41.25]
    answers = service.explain(queries)
    assert answers.found.sum() > 40
    for entry, (_, row), (_, own) in zip(
        answers.explanations, answers.rows.iterrows(), queries.iterrows(), strict=True
    ):
        if entry.status != "released":
            assert row.isna().all()
            continue
        for name in ("age", "town", "rank"):
            expected = inside(entry.region[name], own[name])
            assert row[name] == expected or (expected is None and pd.isna(row[name]))
        assert entry.region.contains(
            {name: None if pd.isna(row[name]) else row[name] for name in entry.region}
        )
        assert (row["pay"], row["job"]) == (entry.released["pay"], entry.released["job"])


def test_several_or_fewer_answers_are_refused_and_withheld_ones_are_missing() -> None:
    sample = gaps()
    queries, twice = sample.X[~sample.y].head(3), lambda asked: asked.assign(query=[0, 0, 1])
    with pytest.raises(InputError, match="one each"):
        RawOwner("raw", PayModel(), lambda *_: twice).train(sample, 0).explain(queries)
    owner = ProtectedOwner(
        "half",
        PayModel(),
        lambda *_: lambda asked: asked.assign(pay=[90, 10, 90]),
        ("age",),
        rules=PrivacyPolicy(guarantee="lookup", k=3),
    )
    answers = owner.train(sample, 0).explain(queries)
    assert not answers.found[1]
    assert answers.rows.iloc[1].isna().all()


# --- the same attack on several -------------------------------------------------------------------


def owners(**settings: Any) -> list[Target]:
    return standard_owners(
        EVERYBODY, forest(3), {"one": nearest, "other": nearest}, QUASI, **settings
    )


def test_there_is_an_owner_for_every_way_to_answer() -> None:
    made = owners(k=4, epsilon=0.5)
    assert [owner.name for owner in made] == [
        "one",
        "other",
        "exact",
        "catalogue",
        "dp",
        "dp-moved",
    ]
    policies = {owner.name: owner.policy for owner in made}  # type: ignore[attr-defined]
    guarantees = [policies[name]["guarantee"] for name in ("exact", "catalogue")]
    assert guarantees == ["lookup", "catalogue"]
    assert (policies["exact"]["k"], policies["dp"]["epsilon"]) == (4, 0.5)
    assert [owner.move_towards_query for owner in made if isinstance(owner, PrototypeOwner)] == [
        False,
        True,
    ]
    with pytest.raises(InputError, match="one, other"):
        owners(protects="third")
    with pytest.raises(InputError, match="there is none"):
        standard_owners(EVERYBODY, MODEL, {}, QUASI)


def counted(owner: Target, sample: Sample, seed: int) -> AttackReport:
    """Ask a trained service something that depends on people and seed alone."""
    share = float(owner.train(sample, seed).desired(sample.X).mean())
    figures = {
        "balanced_accuracy": 0.5,
        "balanced_accuracy_low": 0.4,
        "balanced_accuracy_high": 0.6,
        "own": 0.25,
    }
    rate, coin = Rate(share, share - 0.1, share + 0.1, len(sample)), Rate(0.5, 0.5, 0.5, 1)
    result = AuditResult(
        "membership_made_up", "Counts.", rate, coin, None, figures, seed, len(sample)
    )
    return AttackReport(kind="membership", subject=owner.name, results=(result,), settings={})


def test_one_attack_runs_on_all_with_the_same_people_and_seed_and_is_read_side_by_side() -> None:
    reports = compare(owners()[:2], EVERYBODY, counted, seed=3)
    table = side_by_side(reports)
    assert table["subject"].tolist() == ["one", "other"]
    assert table["main"].nunique() == 1  # the same forest of the same people
    assert table["balanced_accuracy_high"].tolist() == [0.6, 0.6]
    assert "own" not in table
    assert "tpr_at_0_1" not in table  # of no report
    assert readable(table, digits=1)["balanced_accuracy"].tolist() == ["0.5 [0.4, 0.6]"] * 2
    with pytest.raises(InputError, match="same name"):
        compare(owners()[:1] * 2, EVERYBODY, counted, seed=3)
    nothing = Rate(math.nan, 0, 1, 0)
    result = AuditResult(
        "membership_made_up", "Counts.", nothing, Rate(0.5, 0.5, 0.5, 1), None, {"own": 0.25}, 0, 0
    )
    report = AttackReport(kind="membership", subject="s", results=(result,), settings={})
    assert readable(side_by_side([report], ["own"])).to_dict("records") == [
        {
            "subject": "s",
            "attack": "membership_made_up",
            "n": 0,
            "main": "–",
            "baseline": "0.50",
            "own": "0.25",
        }
    ]


# --- what answers tell of who was trained on ------------------------------------------------------

MANY = people(2400)


def owner(name: str) -> Target:
    if name == "raw":
        return RawOwner(name, full_depth_forest(MANY.X), nearest)
    schema = measured_schema(MANY, QUASI)
    private = PrototypeOwner(name, forest(15), schema, rows=4_000, repeatable=True)
    if name == "dp":
        return private
    # to the very border
    return replace(private, move_towards_query=True, plausibility=0.0)


def distances(name: str, n_train: int) -> Roc:
    """Measure how far answers are from people whose outcome is undesired, and the model says so."""
    order = np.random.default_rng(0).permutation(len(MANY))
    table, strangers = MANY.take(order[:n_train]), MANY.take(order[n_train:])
    service, heom = owner(name).train(table, 0), Heom.fit(strangers.X)
    apart = []
    for side in (table, strangers):
        queries = side.X[~side.y].reset_index(drop=True)
        queries = queries[~service.desired(queries)]
        answers = service.explain(queries)
        assert answers.found.all()
        apart.append(heom.parts(queries, answers.rows).sum(axis=1))
    return measure_roc(*apart)


def test_the_outcome_itself_tells_members() -> None:
    """Who is refused among people who are not has been learnt by heart: members are nearer to
    desired rows.
    """
    assert distances("raw", 600).auc.high < 0.5
