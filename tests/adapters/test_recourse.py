"""What all recourse methods keep: answers that flip, determinism, nothing changed, nothing told, and protection."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_adapters import function
from cfk_adapters.c_chvae import CChvae
from cfk_adapters.face import Face
from cfk_adapters.growing_spheres import GrowingSpheres
from cfk_adapters.recourse import Recourse
from cfk_adapters.scfe import Scfe
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import AdapterError
from cfk_plugin.testing import check_adapter
from loan_table import CANARY, loans, model_of_loans

METHODS: list[type[Any]] = [Scfe, GrowingSpheres, Face, CChvae]
TRAIN = loans(250)
MODEL = model_of_loans(TRAIN)
QUERIES = loans(18, seed=1)


QUICK: dict[type[Any], dict[str, Any]] = {GrowingSpheres: {"samples": 60}, CChvae: {"samples": 40, "steps": 100}}


@pytest.fixture(params=METHODS, ids=lambda method: method.__name__)
def explainer(request: pytest.FixtureRequest) -> Any:
    return request.param(TRAIN, MODEL, desired="yes", **QUICK.get(request.param, {}))


def refused(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[MODEL.predict(rows) == "no"]


def test_answers_flip_and_are_rows_as_the_model_takes_them(explainer: Any) -> None:
    queries = refused(QUERIES)
    answers = explainer.explain(queries)
    assert answers.index.equals(queries.index)
    assert (answers.dtypes == TRAIN.dtypes).all()
    assert (MODEL.predict(answers) == "yes").all()
    assert answers["age"].between(TRAIN["age"].min(), TRAIN["age"].max()).all()
    assert set(answers["job"].dropna()) <= set(TRAIN["job"].dropna())
    assert set(answers["children"]) <= {0, 1, 2, 3}


def test_who_has_the_outcome_already_or_lacks_a_number_gets_no_answer(explainer: Any) -> None:
    queries = QUERIES.astype({"age": "Int64"})
    lacking = refused(QUERIES).index[0]
    queries.loc[lacking, "age"] = pd.NA
    everybody = QUERIES.assign(age=queries["age"])
    model = explainer._model
    explainer._model = lambda rows: model.predict(rows.assign(age=rows["age"].fillna(18).astype("int64")))
    answers = explainer.explain(everybody)
    found = ~answers.isna().all(axis=1)
    assert not found[lacking]
    assert found.drop(lacking).tolist() == (MODEL.predict(QUERIES.drop(lacking)) == "no").tolist()


def test_the_same_seed_gives_the_same_answers_and_touches_nothing_else(explainer: Any) -> None:
    queries, before = refused(QUERIES).head(12), refused(QUERIES).head(12).copy(deep=True)
    train = TRAIN.copy(deep=True)
    states = random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002 - looked at
    first = explainer.explain(queries)
    np.random.seed(3)  # noqa: NPY002 - what others do
    states = random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    pd.testing.assert_frame_equal(explainer.explain(queries), first)
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == states  # noqa: NPY002
    pd.testing.assert_frame_equal(queries, before)
    pd.testing.assert_frame_equal(TRAIN, train)


def test_a_column_that_is_no_feature_is_left_out(explainer: Any) -> None:
    labelled = TRAIN.assign(granted=MODEL.predict(TRAIN))
    again = type(explainer)(labelled, MODEL, "yes", list(TRAIN.columns), **QUICK.get(type(explainer), {}))
    queries = refused(QUERIES).head(6)
    expected = explainer.explain(queries)
    pd.testing.assert_frame_equal(again.explain(queries[list(TRAIN.columns)[::-1]].assign(extra=1)), expected)


def test_it_refuses_to_be_pickled_and_shows_counts(explainer: Any) -> None:
    name = type(explainer).__name__
    with pytest.raises(AdapterError, match=f"{name} holds training rows and refuses to be pickled"):
        pickle.dumps(explainer)
    assert repr(explainer) == f"{name}(250 rows, 6 features)"


def test_exceptions_name_columns_and_quote_nothing(explainer: Any) -> None:
    with pytest.raises(AdapterError, match="queries have no column age, job"):
        explainer.explain(QUERIES.drop(columns=["age", "job"]))
    with pytest.raises(AdapterError, match="training rows have no column zip"):
        type(explainer)(TRAIN, MODEL, features=["age", "zip"])

    def quoting(rows: pd.DataFrame) -> None:
        raise ValueError(f"cannot take {rows.to_dict()}")

    explainer._model = quoting
    with pytest.raises(AdapterError, match="the model raised ValueError on 18 rows") as caught:
        explainer.explain(QUERIES)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None
    explainer._model = lambda rows: ["no"]
    with pytest.raises(AdapterError, match="1 labels for 18 rows"):
        explainer.explain(QUERIES)


def test_the_contract_of_adapters_holds(explainer: Any) -> None:
    batch = check_adapter(
        explainer, refused(QUERIES).head(5), list(TRAIN.columns), plugins=[function], deterministic=True
    )
    assert len(batch.frame) == 5


def test_it_can_be_protected(explainer: Any) -> None:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "region"], sensitive=["income"])
    population = Population.from_frame(TRAIN, schema)
    private = protect(
        explainer,
        model=MODEL,
        population=population,
        policy=PrivacyPolicy(k=5),
        desired="yes",
        plugins=[function],
    )
    explanations = private.explain(refused(QUERIES).head(8))
    assert len(explanations) == 8
    released = [entry for entry in explanations if entry.status == "released"]
    assert released
    assert all(entry.certificate.k >= 5 for entry in released)


@pytest.mark.parametrize("method", METHODS)
def test_tables_of_categories_alone_are_answered(method: type[Any]) -> None:
    train = TRAIN[["job", "owner"]]
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(train, train["owner"])
    answers = method(train, model, **QUICK.get(method, {})).explain(train.head(6))
    assert (answers["owner"] != train["owner"].head(6)).all()


def test_the_base_searches_nothing_itself() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Recourse(TRAIN, MODEL, "yes")  # type: ignore[abstract]
