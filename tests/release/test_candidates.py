"""protect(candidates=m): the best of m counterfactuals leaves, alone, by the ordinary way; nothing
else is released.
"""

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
from cfk_plugin import (
    KAnonymizer,
    Ledger,
    Population,
    PrivacyPolicy,
    Schema,
    Withheld,
    hookimpl,
    protect,
)
from cfk_plugin.errors import AdapterError, CFKError, InputError, PolicyError
from cfk_plugin.hookspecs import AdaptContext, CounterfactualBatch
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explainer import best_of, choose_candidates
from random_tables import described, random_table

M = 4
KEY = b"a key of sixteen bytes or more"


# --- the best, by its definition ------------------------------------------------------------------


def parity(value: Any) -> int:
    if isinstance(value, str):
        return ord(value[0]) % 2
    return 0 if pd.isna(value) else int(value.day if isinstance(value, pd.Timestamp) else value) % 2


def accepts(rows: pd.DataFrame) -> np.ndarray:
    """Accept by a private value and, for some, by a quasi-identifier, so that regions are not all
    pure.
    """
    odd = np.array([parity(value) for value in rows.iloc[:, 0]])
    return (rows["pay"].to_numpy(dtype=float) + odd > 2.5).astype(int)


def distance(query: pd.Series, candidate: pd.Series, train: pd.DataFrame) -> float:
    """Return how much two rows differ: numbers by their share of the range, categories by all or
    nothing.
    """
    total = 0.0
    for name in train:
        one, other, known = query[name], candidate[name], train[name].dropna()
        if pd.isna(one) or pd.isna(other):
            total += pd.isna(one) != pd.isna(other)
        elif isinstance(one, (str, bool, np.bool_)):
            total += one != other
        elif known.max() != known.min():
            total += abs(one - other) / (known.max() - known.min())
    return total / train.shape[1]


def key(policy: PrivacyPolicy, entry: Any, away: float) -> tuple[float, ...]:
    if isinstance(entry, Withheld):
        return (1,)
    cost, impure = away + entry.certificate.ncp, 1 - entry.certificate.pureness
    order = {
        "pureness": (impure, cost),
        "ncp": (cost, impure),
    }
    return (0, *np.round(order[policy.objective], 9))


def scene(seed: int, **settings: Any) -> tuple[KAnonymizer, pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Return a fitted anonymizer, candidates, the query of each, and the queries."""
    train = random_table(seed).drop(columns="person")
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3, **settings))
    anonymizer.fit(described(train.assign(person=0)), model=accepts, desired="opposite")
    explainer = NearestUnlikeNeighbour(train, accepts)
    queries = train.sample(5, random_state=seed).reset_index(drop=True)
    positions = explainer.candidates(queries, 6)
    query = np.repeat(np.arange(len(queries)), 6)[positions.reshape(-1) >= 0]
    return anonymizer, explainer.rows(positions[positions >= 0]), query, queries


POLICIES = [
    {"guarantee": "lookup", "objective": "pureness"},
    {"guarantee": "lookup", "objective": "ncp", "max_ncp": 0.1},
    {"guarantee": "lookup", "objective": "ncp", "min_pureness": 0.5},
    {"guarantee": "reciprocal", "objective": "ncp"},
    {"guarantee": "reciprocal", "objective": "pureness"},
]


@pytest.mark.parametrize("settings", POLICIES, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_chosen_is_the_best_by_definition(settings: dict[str, Any]) -> None:
    not_first = withheld = 0
    for seed in range(1, 6):
        anonymizer, candidates, query, queries = scene(seed, **settings)
        choice = choose_candidates(anonymizer, candidates, query, queries)
        alone = anonymizer.transform(candidates, factuals=queries.take(query))
        assert [e.status for e in choice.entries] == [e.status for e in alone]
        train = anonymizer.population_.frame[list(anonymizer.population_.schema.features)]
        for asked in range(len(queries)):
            own = np.flatnonzero(query == asked).tolist()
            if not own:
                assert choice.chosen[asked] == -1
                continue
            away = [distance(queries.iloc[asked], candidates.iloc[i], train) for i in own]
            assert choice.distances[own] == pytest.approx(away)
            keys = {i: key(anonymizer.policy_, alone[i], d) for i, d in zip(own, away, strict=True)}
            best = min(own, key=lambda i: (keys[i], i))
            assert choice.chosen[asked] == best
            not_first += best != own[0]
            withheld += (1,) in keys.values() and keys[best] != (1,)
        twice = choose_candidates(
            anonymizer, pd.concat([candidates] * 2), np.concatenate([query] * 2), queries
        )
        assert twice.chosen.tolist() == choice.chosen.tolist()  # the first of equally good ones
    assert not_first  # there was something to choose
    assert withheld or "max_ncp" not in settings


def test_bounds_are_compared_with_ncp_and_pureness_alone() -> None:
    """A ceiling that NCP meets and distance + NCP does not keeps nothing back, and does not change
    who is best.
    """
    anonymizer, candidates, query, queries = scene(5, guarantee="lookup", objective="ncp")
    choice = choose_candidates(anonymizer, candidates, query, queries)
    ceiling = max(choice.entries[i].certificate.ncp for i in choice.chosen if i >= 0)  # type: ignore[union-attr]
    assert (choice.distances[choice.chosen] > 0).any()
    limited, *_ = scene(5, guarantee="lookup", objective="ncp", max_ncp=ceiling)
    again = choose_candidates(limited, candidates, query, queries)
    assert again.chosen.tolist() == choice.chosen.tolist()
    assert all(again.entries[i].status == "released" for i in again.chosen)
    crossed = PrivacyPolicy(
        guarantee="reciprocal", objective="ncp", max_ncp=ceiling / 2, min_pureness=1.0
    )
    assert (
        best_of(crossed, choice.entries, choice.distances, query, len(queries)).tolist()
        == choice.chosen.tolist()
    )
    # One candidate of a query is chosen whatever becomes of it.
    strict, *_ = scene(5, guarantee="lookup", max_ncp=0.0)
    first = pd.Series(query).drop_duplicates().index.to_numpy()
    alone = choose_candidates(strict, candidates.iloc[first], query[first], queries)
    assert any(isinstance(entry, Withheld) for entry in alone.entries)
    assert alone.chosen[query[first]].tolist() == list(range(len(first)))


# --- the way of the chosen one --------------------------------------------------------------------


def table(n: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    train = pd.DataFrame(
        {
            "age": rng.integers(20_000, 60_000, n),
            "city": rng.choice(list("ABCDE"), n),
            "pay": rng.integers(10, 90, n),
        }
    )
    return pd.concat([train, train.head(20)], ignore_index=True)


TRAIN = table()
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"])
)
POLICY = PrivacyPolicy(k=5, guarantee="lookup", objective="ncp")
QUERIES = TRAIN[TRAIN["pay"] <= 50].head(6)
ASKED: list[int] = []


def model(rows: pd.DataFrame) -> np.ndarray:
    ASKED.append(len(rows))
    return (
        rows["pay"].to_numpy(dtype=float) + rows["age"].to_numpy(dtype=float) / 4_000 > 60
    ).astype(int)


def nearest(desired: Any = 1) -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(TRAIN, model, desired=desired)


def protected(explainer: Any = None, **options: Any) -> Any:
    settings = {"model": model, "population": POPULATION, "policy": POLICY, "desired": 1, **options}
    return protect(explainer or nearest(), **settings)


class Listener:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    @hookimpl
    def cfk_released(self, record: Any) -> None:
        self.heard.append(record)


@pytest.mark.parametrize(
    ("guarantee", "method"), [("lookup", "exact"), ("lookup", "grasp"), ("reciprocal", "auto")]
)
def test_the_chosen_one_leaves_in_the_place_of_the_nearest(
    guarantee: Any, method: str, tmp_path: Path
) -> None:
    """Of the others no ledger and no plugin knows; what was found for the chosen one is not
    searched for again.
    """
    policy, listener = (
        PrivacyPolicy(k=5, guarantee=guarantee, objective="ncp", min_pureness=0),
        Listener(),
    )
    queries, m = (QUERIES.head(1), 2) if method == "grasp" else (QUERIES, M)  # it takes its time
    rows = nearest().rows(nearest().candidates(queries, m).reshape(-1))
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        settings = {"policy": policy, "method": method, "ledger": ledger, "plugins": [listener]}
        anonymizer = KAnonymizer(**settings).fit(POPULATION, model=model, desired=1)  # type: ignore[arg-type]
        choice = choose_candidates(anonymizer, rows, np.repeat(np.arange(len(queries)), m), queries)
        assert (ledger.status().records, listener.heard) == (0, [])
        ASKED.clear()
        released, _ = choice.pipeline.release(rows.iloc[choice.chosen], np.arange(len(queries)))
        assert [len(queries)] == ASKED  # the chosen rows' own outcomes
        chosen = [choice.entries[i] for i in choice.chosen]
        assert [e.certificate for e in released] == [e.certificate for e in chosen]  # type: ignore[union-attr]
        assert ledger.status().records == len(rows.iloc[choice.chosen].drop_duplicates())
    private = protected(policy=policy, method=method, candidates=m)
    result, one = private.explain(queries), protected(policy=policy, method=method).explain(queries)
    assert private(queries) == result
    assert [entry.released for entry in result] == [entry.released for entry in chosen]  # type: ignore[union-attr]
    assert set(result.findings) == {"native"}
    if method != "grasp":
        assert [*result] == chosen
        first = np.arange(len(queries)) * m
        cost, before = (
            [e.certificate.ncp + choice.distances[i] for e, i in zip(found, at, strict=True)]
            for found, at in ((result, choice.chosen), (one, first))
        )
        assert np.all(np.array(cost) <= np.array(before) + 1e-12)
        assert sum(cost) < sum(before) or guarantee == "reciprocal"  # whose regions are as they are


def test_ledger_hooks_and_runs_know_of_the_chosen_ones_alone(
    tmp_path: Path, mlflow_store: str
) -> None:
    import mlflow

    listener = Listener()
    with Ledger(tmp_path / "ledger.db", key=KEY, create=True) as ledger:
        private = protected(candidates=M, ledger=ledger, plugins=[listener])
        result = private.explain(QUERIES)
        assert len(result.released) == len(QUERIES) == len(listener.heard)
        rows = {str(entry.region) + str(entry.released) for entry in result}
        assert ledger.status().releases == len(rows) < len(QUERIES) * M
        again = private.explain(QUERIES)
        assert [entry.region for entry in again] == [entry.region for entry in result]
        assert {entry.recount.ledger for entry in again.released} == {"again"}
        assert ledger.status().releases == len(rows)
    params = mlflow.get_run(result.log()).data.params
    assert (params["cfk.candidates"], params["cfk.generator"]) == (str(M), "nearest")
    one = protected(candidates=1).explain(QUERIES)
    assert one == protected().explain(QUERIES)
    assert "candidates" not in one.provenance


def test_what_none_is_found_for_is_withheld() -> None:
    result = protected(nearest(desired=7), candidates=M).explain(QUERIES)
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
            return CounterfactualBatch(
                found.iloc[back], back, np.repeat(np.arange(len(queries)), 3)
            )

    class Adapter:
        @hookimpl
        def cfk_adapt(self, explainer: Any) -> Source:
            return Source()

    result = protected(object(), candidates=3, plugins=[Adapter()]).explain(QUERIES)
    assert len(result.released) == len(QUERIES)
    assert {entry.released["pay"] for entry in result} == {sound["pay"]}


def test_what_has_no_use_for_candidates_is_refused(tmp_path: Path) -> None:
    for m in (0, -1, 1.5, "3", None, True):
        with pytest.raises(InputError, match="candidates must be a whole number >= 1, got"):
            protected(candidates=m)

    def richer(rows: pd.DataFrame) -> pd.DataFrame:
        return rows

    with pytest.raises(
        AdapterError, match=r"richer cannot be asked .* NearestUnlikeNeighbour, DiCE and adapters"
    ):
        protected(richer, candidates=2)
    for options in (
        {"policy": PrivacyPolicy(k=5, guarantee="catalogue")},
        {"method": "dp", "policy": None},
    ):
        with pytest.raises(PolicyError, match="candidates"):
            protected(candidates=2, **options)
    KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=5)).fit(POPULATION, model, 1).seal(
        tmp_path / "sealed"
    )
    with pytest.raises(InputError, match="ranges of all features"):
        protected(population=Population.open(tmp_path / "sealed"), policy=None, candidates=2)


@pytest.mark.parametrize("method", ["kdtree", "random"])
def test_dice_is_asked_for_as_many(method: str) -> None:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    labels = model(TRAIN)
    encode = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    fitted = make_pipeline(encode, DecisionTreeClassifier(max_depth=3, random_state=0)).fit(
        TRAIN, labels
    )
    data = dice_ml.Data(
        dataframe=TRAIN.assign(y=labels), continuous_features=["age", "pay"], outcome_name="y"
    )
    # the other one takes steps of 1 over the range
    options = {"posthoc_sparsity_algorithm": "binary"}
    options |= {"random_seed": 3} if method == "random" else {}  # type: ignore[dict-item]
    explainer = dice_ml.Dice(data, dice_ml.Model(model=fitted, backend="sklearn"), method=method)
    private = protected(explainer, model=fitted, candidates=3)
    queries = QUERIES[fitted.predict(QUERIES) == 0].head(3)
    result = private.explain(queries, **options)
    assert len(result.released) == len(result) == len(queries)
    batch: Any = load_plugins().adapt(explainer, AdaptContext(POPULATION.schema.features))
    batch = batch.candidates(queries, 3, **options)
    assert np.bincount(batch.query).tolist() == [3] * len(queries)
    anonymizer = KAnonymizer(policy=POLICY).fit(POPULATION, model=fitted, desired=1)
    choice = choose_candidates(anonymizer, batch.frame, batch.query[batch.slot], queries)
    assert [e.region for e in result] == [choice.entries[i].region for i in choice.chosen]  # type: ignore[union-attr]
    asked = {"query_instances": queries, "total_CFs": 2, "desired_class": 1, **options}
    # DiCE's own method, of which nothing is left out
    own = private.generate_counterfactuals(**asked)
    assert [len(examples.final_cfs_df) for examples in own.cf_examples_list] == [2] * len(queries)
    assert (
        own.to_json()
        == protected(explainer, model=fitted).generate_counterfactuals(**asked).to_json()
    )
    with pytest.raises(CFKError, match="leave out total_CFs"):
        private.explain(queries, total_CFs=2)
