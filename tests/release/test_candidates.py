"""protect(candidates=m): the best of m counterfactuals leaves, alone, by the ordinary way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import KAnonymizer, Ledger, Population, PrivacyPolicy, Schema, hookimpl, protect
from cfk_plugin.errors import AdapterError, CFKError, InputError, PolicyError
from cfk_plugin.hookspecs import AdaptContext, CounterfactualBatch
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explainer import choose_candidates

M = 4
NUMBERS = ["age", "pay"]


def table(n: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    train = pd.DataFrame(
        {"age": rng.integers(20_000, 60_000, n), "city": rng.choice(list("ABCDE"), n), "pay": rng.integers(10, 90, n)}
    )
    return pd.concat([train, train.head(20)], ignore_index=True)


TRAIN = table()
POPULATION = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"]))
POLICY = PrivacyPolicy(k=5, guarantee="nominal", objective="ncp")
QUERIES = TRAIN[TRAIN["pay"] <= 50].head(6)


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"].to_numpy(dtype=float) + rows["age"].to_numpy(dtype=float) / 4_000 > 60).astype(int)


def nearest() -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(TRAIN, model, desired=1)


def protected(explainer: Any = None, policy: PrivacyPolicy = POLICY, **options: Any) -> Any:
    settings = {"model": model, "population": POPULATION, "policy": policy, "desired": 1, **options}
    return protect(explainer or nearest(), **settings)


class Listener:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    @hookimpl
    def cfk_released(self, record: Any) -> None:
        self.heard.append(record)


@pytest.mark.parametrize("guarantee", ["nominal", "reciprocal"])
def test_the_chosen_one_leaves_in_the_place_of_the_nearest(guarantee: Any) -> None:
    policy = PrivacyPolicy(k=5, guarantee=guarantee, objective="ncp")
    explainer, private = nearest(), protected(policy=policy, candidates=M)
    result = private.explain(QUERIES)
    positions = explainer.candidates(QUERIES, M)
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=1)
    rows, query = explainer.rows(positions.reshape(-1)), np.repeat(np.arange(len(QUERIES)), M)
    choice = choose_candidates(anonymizer, rows, query, QUERIES)
    assert [*result] == [choice.entries[i] for i in choice.chosen]
    assert set(result.findings) == {"native"}
    one = protected(policy=policy).explain(QUERIES)
    away = choice.distances
    first = np.arange(len(QUERIES)) * M
    cost = [e.certificate.ncp + away[i] for e, i in zip(result, choice.chosen, strict=True)]
    before = [e.certificate.ncp + away[i] for e, i in zip(one, first, strict=True)]
    assert np.all(np.array(cost) <= np.array(before) + 1e-12)
    assert sum(cost) < sum(before)
    assert private(QUERIES) == result


def test_one_candidate_is_what_it_was_without() -> None:
    assert protected(candidates=1).explain(QUERIES) == protected().explain(QUERIES)
    assert "candidates" not in protected(candidates=1).explain(QUERIES).provenance


def test_ledger_and_hooks_know_of_the_chosen_ones_alone(tmp_path: Path) -> None:
    listener = Listener()
    with Ledger(tmp_path / "ledger.db", key=b"a key of sixteen bytes or more", create=True) as ledger:
        private = protected(candidates=M, ledger=ledger, plugins=[listener])
        result = private.explain(QUERIES)
        assert len(result.released) == len(QUERIES) == len(listener.heard)
        rows = {str(entry.region) + str(entry.released) for entry in result}
        assert ledger.status().releases == len(rows) < len(QUERIES) * M
        again = private.explain(QUERIES)
        assert [entry.region for entry in again] == [entry.region for entry in result]
        assert {entry.certificate.ledger for entry in again.released} == {"again"}
        assert ledger.status().releases == len(rows)


def test_a_run_says_how_many_candidates_there_were(mlflow_store: str) -> None:
    import mlflow

    result = protected(candidates=M).explain(QUERIES)
    params = mlflow.get_run(result.log()).data.params
    assert params["cfk.candidates"] == str(M)
    assert params["cfk.generator"] == "nearest"


def test_what_none_is_found_for_is_withheld() -> None:
    result = protected(NearestUnlikeNeighbour(TRAIN, model, desired=7), candidates=M).explain(QUERIES)
    assert [e.reason for e in result] == ["none_found"] * len(QUERIES)
    rare = NearestUnlikeNeighbour(TRAIN[model(TRAIN) == 1].head(2), model, desired=1)
    assert len(protected(rare, candidates=M).explain(QUERIES).released) == len(QUERIES)


def test_bad_candidates_come_after_good_ones() -> None:
    """The first has an undesired outcome, the second no number for an age; the third is sound."""
    sound = TRAIN[model(TRAIN) == 1].iloc[0]

    class Source:
        name, instance_based, methods = "three", False, {}

        def generate(self, queries: pd.DataFrame) -> Any: ...

        def restore(self, native: Any, explanations: Any) -> Any: ...

        def candidates(self, queries: pd.DataFrame, m: int) -> CounterfactualBatch:
            three = [{**sound, "pay": 10}, {**sound, "age": "about forty"}, dict(sound)]
            found = pd.DataFrame(three * len(queries), columns=list(TRAIN))
            back = np.arange(len(found))[::-1]  # in any order: slots say which is which
            return CounterfactualBatch(found.iloc[back], back, np.repeat(np.arange(len(queries)), 3))

    class Adapter:
        @hookimpl
        def cfk_adapt(self, explainer: Any) -> Source:
            return Source()

    result = protected(object(), candidates=3, plugins=[Adapter()]).explain(QUERIES)
    assert len(result.released) == len(QUERIES)
    assert {entry.released["pay"] for entry in result} == {sound["pay"]}


@pytest.mark.parametrize("m", [0, -1, 1.5, "3", None, True])
def test_wrong_numbers_are_refused(m: Any) -> None:
    with pytest.raises(InputError, match="candidates must be a whole number >= 1, got"):
        protected(candidates=m)


def test_explainers_that_name_one_counterfactual_are_refused() -> None:
    def richer(rows: pd.DataFrame) -> pd.DataFrame:
        return rows

    with pytest.raises(AdapterError, match=r"richer cannot be asked .* NearestUnlikeNeighbour, DiCE and adapters"):
        protected(richer, candidates=2)


@pytest.mark.parametrize("options", [{"policy": PrivacyPolicy(k=5, guarantee="catalogue")}, {"method": "dp"}])
def test_ways_without_a_use_for_candidates_are_refused(options: dict[str, Any]) -> None:
    options = {"policy": None, **options} if "method" in options else options
    with pytest.raises(PolicyError, match="candidates"):
        protected(candidates=2, **options)


def test_dice_is_asked_for_as_many() -> None:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    labels = model(TRAIN)
    encode = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    fitted = make_pipeline(encode, DecisionTreeClassifier(max_depth=3, random_state=0)).fit(TRAIN, labels)
    data = dice_ml.Data(dataframe=TRAIN.assign(y=labels), continuous_features=NUMBERS, outcome_name="y")
    binary = {"posthoc_sparsity_algorithm": "binary"}  # the other one takes steps of 1 over the range
    for method, options in {"kdtree": binary, "random": {"random_seed": 3, **binary}}.items():
        explainer = dice_ml.Dice(data, dice_ml.Model(model=fitted, backend="sklearn"), method=method)
        private = protected(explainer, model=fitted, candidates=3)
        queries = QUERIES[fitted.predict(QUERIES) == 0].head(3)
        result = private.explain(queries, **options)
        assert len(result.released) == len(result) == len(queries)
        source = load_plugins().adapt(explainer, AdaptContext(POPULATION.schema.features))
        batch = source.candidates(queries, 3, **options)
        assert np.bincount(batch.query).tolist() == [3] * len(queries)
        anonymizer = KAnonymizer(policy=POLICY).fit(POPULATION, model=fitted, desired=1)
        choice = choose_candidates(anonymizer, batch.frame, batch.query[batch.slot], queries)
        assert [e.region for e in result] == [choice.entries[i].region for i in choice.chosen]
        asked = {"query_instances": queries, "total_CFs": 2, "desired_class": 1, **options}
        own = private.generate_counterfactuals(**asked)  # DiCE's own method, of which nothing is left out
        assert [len(examples.final_cfs_df) for examples in own.cf_examples_list] == [2] * len(queries)
        assert own.to_json() == protected(explainer, model=fitted).generate_counterfactuals(**asked).to_json()
        with pytest.raises(CFKError, match="leave out total_CFs"):
            private.explain(queries, total_CFs=2)
