"""The main job: an explainer goes in, and its answers come out protected; and the manners of the
doors.
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Attribute,
    Explanations,
    GeneralizedCounterfactual,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.tables import Counterfactual
from cfk_plugin.errors import PolicyError

CITIES = ["Antwerp", "Bruges", "Ghent", "Liege", "Namur"]
LEVELS = ["low", "mid", "high"]
QUASI = ["age", "height", "city", "education"]
NUMBERS = ["age", "height", "pay", "debt"]
K = 5


def table(n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "height": rng.normal(172, 9, n).round(1),
            "city": rng.choice(CITIES, n),
            "education": rng.choice(LEVELS, n, p=[0.5, 0.3, 0.2]),
            "pay": rng.integers(15, 95, n),
            "debt": rng.normal(20, 6, n).round(2),
        }
    )


def granted(rows: pd.DataFrame) -> np.ndarray:
    score = rows["pay"].astype(float) + rows["age"].astype(float) / 3 - rows["debt"].astype(float)
    return np.where(score > 50, "granted", "refused")


TRAIN = table()
OPTIONS: dict[str, Any] = {
    "quasi_identifiers": QUASI,
    "sensitive": ["pay"],
    "ordinal": {"education": LEVELS},
}
SCHEMA = Schema.from_frame(TRAIN, **OPTIONS)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
GUARANTEES = ["lookup", "catalogue"]
POLICY = PrivacyPolicy(guarantee="lookup", k=K)
REFUSED = TRAIN[granted(TRAIN) == "refused"].head(6).reset_index(drop=True)
WANTED = TRAIN[granted(TRAIN) == "granted"].head(6)


def fitted(
    population: Population = POPULATION, policy: PrivacyPolicy = POLICY, **options: Any
) -> KAnonymizer:
    asked = {"model": granted, "desired": "granted", **options}
    return KAnonymizer(policy=policy).fit(population, **asked)


def private(explainer: Any, **options: Any) -> Any:
    return protect(
        explainer, **{"model": granted, "population": POPULATION, "policy": POLICY, **options}
    )


def recount(result: Explanations, n: int | None = None) -> list[GeneralizedCounterfactual]:
    """Check k of every released entry, and how many there are; return them."""
    assert len(result.released) == (len(result) if n is None else n) > 0
    for entry in result.generalized:
        inside = [entry.region.contains(row) for row in TRAIN[QUASI].to_dict("records")]
        assert sum(inside) == entry.certificate.k >= K
    return [*result.generalized]


class OfCallerError(Exception):
    """What a caller's own code raises."""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_a_callers_progress_raises_reaches_the_caller(guarantee: Any) -> None:
    """It was taken for a failure of the protector, which withheld every explanation."""

    def stop(done: int, total: int) -> None:
        raise OfCallerError(f"{done} of {total}")

    policy = PrivacyPolicy(guarantee=guarantee, k=K)
    explainer, anonymizer = (
        private(NearestUnlikeNeighbour(TRAIN, granted), policy=policy),
        fitted(policy=policy),
    )
    calls: list[Any] = [lambda: explainer.explain(REFUSED, progress=stop)]
    if guarantee == "catalogue":
        calls += [lambda: anonymizer.explain(REFUSED, progress=stop)]
    else:
        calls += [lambda: anonymizer.transform(WANTED, progress=stop)]
    for call in calls:
        with pytest.raises(OfCallerError, match=r"\d of \d"):
            call()
    assert len(explainer.explain(REFUSED).released) == len(REFUSED)


# --- explainers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        ("exact", "pureness"),
        ("exact", "ncp"),
        ("grasp", "ncp"),
        ("mondrian", "pureness"),
    ],
)
def test_every_method_protects_nearest_neighbours(method: str, objective: Any) -> None:
    explainer, told = NearestUnlikeNeighbour(TRAIN, granted), []
    policy = PrivacyPolicy(guarantee="lookup", k=K, objective=objective)
    result = private(explainer, policy=policy, method=method).explain(
        REFUSED, progress=lambda done, total: told.append((done, total))
    )
    assert [entry.query for entry in result] == list(range(len(REFUSED)))
    assert set(result.findings) == {"native"}
    raw = explainer.explain(REFUSED).reset_index(drop=True)
    for entry in recount(result):
        own = raw.iloc[entry.query]
        assert entry.region.contains(own[QUASI].to_dict())
        assert dict(entry.released) == {"pay": own["pay"], "debt": own["debt"]}
        assert entry.certificate.method == method
        assert (entry.recount.k_private or 0) >= 1
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0
    assert all(0 <= done <= total for done, total in told)


def test_a_function_may_give_several_answers_per_query_in_any_order() -> None:
    candidates = TRAIN[granted(TRAIN) == "granted"]

    def explainer(rows: pd.DataFrame) -> pd.DataFrame:
        found = pd.concat([candidates.iloc[i * 5 : i * 5 + 3] for i in range(len(rows))])
        return found.assign(query=np.repeat(np.arange(len(rows)), 3)).sample(frac=1, random_state=1)

    result = private(explainer).explain(REFUSED)
    assert [entry.query for entry in result] == np.repeat(np.arange(len(REFUSED)), 3).tolist()
    recount(result)
    for i in range(len(REFUSED)):
        pays = sorted(entry.released["pay"] for entry in result.for_query(i))
        assert pays == sorted(candidates["pay"].iloc[i * 5 : i * 5 + 3])


@pytest.mark.parametrize(
    ("method", "guarantee"),
    [("random", "lookup"), ("kdtree", "lookup")],
)
def test_dice(method: str, guarantee: Any) -> None:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    encoder = make_column_transformer(
        (OneHotEncoder(), ["city", "education"]), remainder="passthrough"
    )
    labels = (granted(TRAIN) == "granted").astype(int)
    classifier = make_pipeline(encoder, RandomForestClassifier(15, random_state=0, n_jobs=1)).fit(
        TRAIN, labels
    )
    data = dice_ml.Data(
        dataframe=TRAIN.assign(outcome=labels), continuous_features=NUMBERS, outcome_name="outcome"
    )
    explainer = dice_ml.Dice(
        data, dice_ml.Model(model=classifier, backend="sklearn"), method=method
    )
    protected = private(
        explainer,
        model=classifier,
        policy=PrivacyPolicy(k=K, guarantee=guarantee),
    )
    queries = TRAIN[classifier.predict(TRAIN) == 0].head(2)
    options = {"random_seed": 1} if method == "random" else {}
    before, state = queries.copy(deep=True), random_state()
    result = protected.explain(queries, total_CFs=3, **options)
    assert [entry.query for entry in result] == [0, 0, 0, 1, 1, 1]
    recount(result, len(result.released))
    assert {entry.reason for entry in result.withheld} <= {"pureness_below_floor", "none_found"}
    assert ("native" in result.findings) == (method == "kdtree")
    native = protected.generate_counterfactuals(
        queries, total_CFs=3, desired_class="opposite", **options
    )
    rebuilt = [
        examples.final_cfs_df
        for examples in native.cf_examples_list
        if examples.final_cfs_df is not None
    ]
    assert type(native).__module__.startswith("dice_ml")
    assert sum(map(len, rebuilt)) == len(result.released)
    pd.testing.assert_frame_equal(queries, before)
    assert random_state() == state


# --- models and outcomes --------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_regressor_of_some_columns_with_a_callable_goal(guarantee: Any) -> None:
    numbers = TRAIN[NUMBERS[::-1]]
    regressor = RandomForestRegressor(10, random_state=0, n_jobs=1).fit(
        numbers, numbers["pay"] - numbers["debt"]
    )

    def enough(values: np.ndarray) -> np.ndarray:
        return np.asarray(values) > 40.5

    is_enough = enough(regressor.predict(numbers))
    result = fitted(
        policy=replace(POLICY, guarantee=guarantee, min_pureness=0), model=regressor, desired=enough
    ).transform(TRAIN[is_enough].head(4), TRAIN[~is_enough].head(4))
    for entry in recount(result):
        rows = numbers[[entry.region.contains(row) for row in TRAIN[QUASI].to_dict("records")]]
        assert entry.recount.k_desired == enough(regressor.predict(rows)).sum()
        assert (
            entry.recount.k_consistent
            == enough(regressor.predict(rows.assign(**dict(entry.released)))).sum()
        )


@pytest.mark.parametrize("desired", [np.str_("granted"), lambda labels: labels == "granted"])
def test_forms_of_the_same_goal(desired: Any) -> None:
    raw = TRAIN.head(12)
    plain, result = fitted().transform(raw), fitted(desired=desired).transform(raw)
    told = Outcome() if callable(desired) else Outcome("granted")
    assert [*result] == [
        replace(e, outcome=told) if isinstance(e, GeneralizedCounterfactual) else e for e in plain
    ]
    turned = fitted(desired="opposite").transform(raw, factuals=pd.concat([REFUSED.head(1)] * 12))
    assert [entry.status for entry in turned] == [entry.status for entry in plain]


def test_weights_steer() -> None:
    policy = PrivacyPolicy(guarantee="lookup", k=K, objective="ncp")

    def result(**weights: float) -> Explanations:
        columns = {name: Attribute(weight=weight) for name, weight in weights.items()}
        schema = Schema.from_frame(TRAIN, **OPTIONS, columns=columns)
        return fitted(Population.from_frame(TRAIN, schema), policy).transform(WANTED)

    def width(result: Explanations) -> float:
        return float(np.mean([e.region["age"].high - e.region["age"].low for e in recount(result)]))  # type: ignore[union-attr]

    assert width(result(age=20.0)) < width(result(age=0.05))
    for free in QUASI:
        found = result(**{name: float(name != free) for name in QUASI})
        assert all(entry.certificate.optimal for entry in recount(found))


def test_the_model_is_asked_once_about_each_cell() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 60, 300),
            "city": rng.choice(CITIES, 300),
            "income": rng.permutation(300),
        }
    )
    population = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"])
    )
    asked: list[tuple[Any, ...]] = []

    def model(rows: pd.DataFrame) -> Any:
        if len(rows) != 256:  # the trial in `fit`
            asked.extend(rows.itertuples(index=False, name=None))
        return (rows["income"] + 3 * rows["age"] > 180).to_numpy()

    anonymizer = fitted(
        population, PrivacyPolicy(guarantee="lookup", k=8), model=model, desired=True
    )
    raw = frame[frame["income"] + 3 * frame["age"] > 180].head(20)
    released = anonymizer.transform(raw).released
    members = {
        tuple(row)
        for entry in released
        for row in frame.iloc[population.members(entry.region)].to_numpy()
    }
    counts = pd.Series([tuple(row) for row in asked]).value_counts()
    again = {cell for cell, n in counts.items() if n > 1}
    # A training row's own prediction is another question.
    assert again <= {tuple(row) for row in raw.to_numpy()} | members
    assert counts.max() <= 2


# --- what is shown --------------------------------------------------------------------------------


def test_the_table_of_a_result_has_every_column_and_no_label() -> None:
    train = TRAIN.assign(label=granted(TRAIN))
    population = Population.from_frame(train, Schema.from_frame(train, **OPTIONS, target="label"))
    result = fitted(population).transform(train.head(10))
    frame, audit = result.to_frame(), result.audit_frame()
    assert (
        frame["status"].tolist() == audit["status"].tolist() == [entry.status for entry in result]
    )
    assert list(frame.columns[3:9]) == list(TRAIN.columns)
    assert frame.loc[frame["status"] == "withheld", list(TRAIN.columns)].isna().all(axis=None)
    certified = '"outcome": {"label": "granted"}'  # and not a person's own label
    assert certified in result.to_json()
    assert "granted" not in result.to_json().replace(certified, "") + frame.to_csv()


def test_a_node_of_a_hierarchy_is_called_by_its_name() -> None:
    tree = {
        "1000": ["10**", "1***"],
        "1050": ["10**", "1***"],
        "2000": ["20**", "2***"],
        "2018": ["20**", "2***"],
    }
    frame = pd.DataFrame({"zip": [*tree, "1000"] * 3, "income": range(15)})
    schema = Schema.from_frame(
        frame, quasi_identifiers=["zip"], columns={"zip": Attribute(hierarchy=tree)}
    )
    anonymizer = fitted(
        Population.from_frame(frame, schema), model=lambda rows: rows["income"] >= 0, desired=True
    )
    entry, alone = anonymizer.transform(frame.iloc[[2, 0]]).generalized
    assert entry.region["zip"] == {"2000", "2018"}
    assert entry.cells()["zip"] == "20**"
    assert entry.text({"zip": "1000", "income": 2}) == (
        "The model would predict “yes” if one thing were different: zip “20**” instead of “1000”."
    )
    assert (alone.cells()["zip"], alone.titles) == ("1000", {})


def test_counterfactuals_may_come_as_objects_with_their_queries() -> None:
    objects = [Counterfactual(query, WANTED.iloc[row].to_dict()) for query, row in [(7, 2), (2, 3)]]
    given = fitted().transform(objects)
    assert [entry.query for entry in given] == [7, 2]
    assert [entry.region for entry in given.released] == [
        e.region for e in fitted().transform(WANTED[2:4]).released
    ]


# --- manners --------------------------------------------------------------------------------------


def random_state() -> tuple[Any, ...]:
    legacy = np.random.get_state()  # noqa: NPY002 - looked at, not used
    return random.getstate(), legacy[0], legacy[1].tobytes(), *legacy[2:]  # type: ignore[union-attr, misc]


@pytest.mark.parametrize(
    ("method", "guarantee"),
    [("grasp", "lookup"), ("mondrian", "lookup"), *(("auto", name) for name in GUARANTEES)],
)
def test_same_seed_same_result_and_nothing_else_changes(
    method: str,
    guarantee: Any,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Careless:
        instance_based = True

        def explain(self, rows: pd.DataFrame) -> pd.DataFrame:
            found = NearestUnlikeNeighbour(TRAIN, granted).explain(rows)
            random.random()
            np.random.seed(1)  # noqa: NPY002 - what careless explainers do
            rows.loc[:, "age"] = 0
            return found

    caplog.set_level(logging.INFO)
    explainer, given, train = Careless(), REFUSED.head(3), TRAIN.copy(deep=True)
    population, before = Population.from_frame(train, SCHEMA), random_state()
    settings = KAnonymizer(policy=replace(POLICY, guarantee=guarantee), method=method, seed=9)
    options = {"population": population, "policy": None, "method": settings}
    one, two = (private(explainer, **options) for _ in range(2))
    assert not hasattr(settings, "policy_"), "the settings that were given are not fitted"
    result = one.explain(given)
    recount(result)
    # decorated, it is called as before
    assert one.explain(given) == two.explain(given) == two(given) == result
    assert two.explain(given).to_json() == result.to_json()
    doubled = one.explain(pd.concat([given, given]))
    assert [{**e.to_dict(), "query": 0} for e in doubled[:3]] == [
        {**e.to_dict(), "query": 0} for e in doubled[3:]
    ]
    if method != "grasp":  # which draws for all of a table together
        alone = [one.explain(given.iloc[[i]])[0].to_dict() for i in range(3)]
        assert alone == [{**entry.to_dict(), "query": 0} for entry in result[:3]]
    assert random_state() == before
    assert vars(explainer) == {}
    for frame, own in ((given, REFUSED.head(3)), (train, TRAIN), (population.frame, TRAIN)):
        pd.testing.assert_frame_equal(frame, own)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("cfk")]
    assert all("in groups without an entry" in each for each in said)  # which `fit` must tell
    assert capsys.readouterr() == ("", "")


def test_a_fit_replaces_the_one_before() -> None:
    anonymizer = fitted()
    first = anonymizer.transform(WANTED)
    anonymizer.fit(POPULATION, model=lambda rows: np.digitize(rows["pay"], [40, 65]), desired=2)
    assert anonymizer.transform(WANTED) != first
    assert anonymizer.fit(POPULATION, model=granted, desired="granted").transform(WANTED) == first


@pytest.mark.parametrize("given", ["policy", "k", "plugins"])
def test_beside_an_anonymizer_with_its_own_settings_others_are_refused(given: str) -> None:
    values = {"policy": POLICY, "k": 5, "plugins": [object()]}
    with pytest.raises(PolicyError, match=f"leave out {given}: the KAnonymizer"):
        private(
            NearestUnlikeNeighbour(TRAIN, granted),
            **{"policy": None, "method": KAnonymizer(policy=POLICY), given: values[given]},
        )
