"""Owners: trained on people and seed alone, asked through services that hold rows and show none."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.svm import LinearSVC

from cfk_plugin import PrivacyPolicy
from cfk_plugin.audit.targets import (
    KnownArchitecture,
    ProtectedOwner,
    PrototypeOwner,
    RawOwner,
    Sample,
    Target,
    full_depth_forest,
    measured_schema,
    network,
    seeded,
)
from cfk_plugin.errors import InputError, ModelError
from overfitted import QUASI, forest, nearest, people

EVERYBODY = people(240)
MODEL = forest(EVERYBODY)
CATALOGUE = PrivacyPolicy(k=5, guarantee="catalogue")
OWNERS: dict[str, Target] = {
    "raw": RawOwner("raw", MODEL, nearest),
    "exact": ProtectedOwner("exact", MODEL, nearest, QUASI, rules=PrivacyPolicy(k=5, guarantee="nominal")),
    "reciprocal": ProtectedOwner("reciprocal", MODEL, nearest, QUASI, rules=PrivacyPolicy(k=5)),
    "catalogue": ProtectedOwner("catalogue", MODEL, None, QUASI, rules=CATALOGUE),
    "dp": PrototypeOwner("dp", MODEL, measured_schema(EVERYBODY, QUASI), rows=2_000, repeatable=True),
    "reverted": PrototypeOwner(
        "reverted", MODEL, measured_schema(EVERYBODY, QUASI), revert=True, rows=2_000, repeatable=True
    ),
}


def answered(owner: Target, seed: int = 3) -> tuple[Any, Any, pd.DataFrame]:
    service = owner.train(EVERYBODY.take(np.arange(120)), seed)
    others = EVERYBODY.X.iloc[120:]
    queries = others[~service.desired(others)].head(12)
    return service, service.explain(queries), queries


@cache
def asked(name: str) -> tuple[Any, Any, pd.DataFrame]:
    return answered(OWNERS[name])


@pytest.mark.parametrize("name", OWNERS)
def test_every_owner_answers_and_is_a_function_of_people_and_seed(name: str) -> None:
    service, answers, queries = asked(name)
    assert answers.found.all()
    assert answers.rows.index.equals(queries.index)
    assert (answers.rows.dtypes == queries.dtypes).all()
    assert (answers.explanations is None) == (name == "raw")
    confidence = service.confidence(queries)
    assert ((confidence >= 0) & (confidence <= 0.5)).all()
    if name not in (
        "exact",
        "reciprocal",
    ):  # nobody asked the model about that point of a region
        assert service.desired(answers.rows).all()
    again = answered(pickle.loads(pickle.dumps(OWNERS[name])))
    pd.testing.assert_frame_equal(again[1].rows, answers.rows)
    np.testing.assert_array_equal(again[0].confidence(queries), confidence)


def test_another_seed_trains_another_model() -> None:
    service, _, queries = asked("raw")
    other = answered(OWNERS["raw"], seed=4)[0]
    assert not np.array_equal(other.confidence(queries), service.confidence(queries))


@pytest.mark.parametrize("name", OWNERS)
def test_services_show_no_row_and_refuse_to_be_pickled(name: str) -> None:
    service, answers, _ = asked(name)
    with pytest.raises(InputError, match="refuses to be pickled"):
        pickle.dumps(service)
    assert repr(service) == "Trained(Pipeline)"
    assert repr(answers) == "Answers(12 of 12)"
    assert repr(OWNERS[name]).count(name) == 1


def test_a_raw_owner_gives_out_training_rows_and_a_protected_one_regions_of_k() -> None:
    train = EVERYBODY.X.head(120)
    _, raw, _ = asked("raw")
    assert len(raw.rows.merge(train.drop_duplicates())) == len(raw.rows)
    _, kept, _ = asked("reciprocal")
    assert kept.explanations.summary()["k_effective_min"] >= 5
    _, prototypes, _ = asked("dp")
    assert {entry.certificate.guarantee for entry in prototypes.explanations.prototypes} == {"none"}


def test_policies_are_settings_for_reports() -> None:
    assert OWNERS["raw"].policy is None
    assert OWNERS["catalogue"].policy["guarantee"] == "catalogue"
    assert OWNERS["dp"].policy["epsilon"] == 1.0


@pytest.mark.parametrize("name", OWNERS)
def test_the_architecture_is_the_model_before_it_saw_anybody(name: str) -> None:
    owner = OWNERS[name]
    assert isinstance(owner, KnownArchitecture)
    kind = owner.architecture(5)
    assert (kind[-1].n_estimators, kind[-1].random_state) == (15, 5)
    assert not hasattr(kind[-1], "classes_")
    assert set(kind.fit(EVERYBODY.X, EVERYBODY.y).predict(EVERYBODY.X)) == {False, True}


def test_a_seed_reaches_every_step_and_the_model_given_stays_as_it_was() -> None:
    model = network(EVERYBODY.X, width=5, epochs=5)
    assert seeded(model, 7).get_params()["mlpclassifier__random_state"] == 7
    assert model.get_params()["mlpclassifier__random_state"] is None
    service = RawOwner("network", model, nearest).train(EVERYBODY.take(np.arange(60)), 0)
    assert len(np.unique(service.confidence(EVERYBODY.X))) > 5


def test_a_full_depth_forest_knows_its_people_by_heart() -> None:
    members, others = EVERYBODY.take(np.arange(120)), EVERYBODY.take(np.arange(120, 240))
    service = RawOwner("forest", full_depth_forest(EVERYBODY.X), nearest).train(members, 0)
    assert (service.desired(members.X) == members.y).mean() > 0.97
    assert (service.desired(others.X) == others.y).mean() < 0.7


def test_what_cannot_be_trained_is_said() -> None:
    alike = Sample(EVERYBODY.X, np.ones(240, dtype=bool))
    with pytest.raises(InputError, match="same outcome"):
        OWNERS["raw"].train(alike, 0)
    with pytest.raises(ModelError, match="predict_proba"):
        RawOwner("svc", LinearSVC(), nearest).train(EVERYBODY, 0)
    with pytest.raises(ModelError, match="ValueError") as caught:
        RawOwner("text", forest(EVERYBODY)[-1], nearest).train(EVERYBODY, 0)  # text without its encoding
    assert "none" not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(InputError, match="one of both"):
        ProtectedOwner("no schema", MODEL, nearest)
    with pytest.raises(InputError, match="catalogue"):
        ProtectedOwner("no explainer", MODEL, None, QUASI)


def test_no_query_is_no_answer() -> None:
    service = OWNERS["raw"].train(EVERYBODY, 0)
    assert service.explain(EVERYBODY.X.head(0)).found.tolist() == []
