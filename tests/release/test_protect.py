"""The main job: an explainer goes in, and what comes out holds k people by a plain recount."""

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
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Counterfactual,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    Suppressed,
    protect,
)
from cfk_plugin.data.model import Outcome
from cfk_plugin.release.explanations import Explanations

CITIES = ["Antwerp", "Bruges", "Ghent", "Liege", "Namur"]
LEVELS = ["low", "mid", "high"]
K = 5


def table(n: int = 240, seed: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
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


TRAIN = table()
QUASI = ["age", "height", "city", "education"]
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=QUASI, sensitive=["pay"], ordinal={"education": LEVELS})
POPULATION = Population.from_frame(TRAIN, SCHEMA)
POLICY = PrivacyPolicy(guarantee="nominal", k=K)


def granted(rows: pd.DataFrame) -> np.ndarray:
    score = (
        rows["pay"].to_numpy(dtype=float) + rows["age"].to_numpy(dtype=float) / 3 - rows["debt"].to_numpy(dtype=float)
    )
    return np.where(score > 50, "granted", "refused")


REFUSED = TRAIN[granted(TRAIN) == "refused"].head(6).reset_index(drop=True)


def part_mask(column: pd.Series, part: Any) -> pd.Series:
    """Say of every value of a column whether it is inside a part; pandas alone, nothing of the package."""
    if isinstance(part, Interval):
        if part.levels is not None:
            inside = column.astype(object).isin(part.levels)
        elif part.low is None:
            inside = pd.Series(False, index=column.index)
        else:
            inside = column.between(part.low, part.high)
        inside = inside.astype(bool)
        return inside | column.isna() if part.missing else inside & column.notna()
    inside = column.astype(object).isin([value for value in part if value is not None])
    return inside | column.isna() if None in part else inside & column.notna()


def inside(entry: GeneralizedCounterfactual, train: pd.DataFrame) -> pd.Series:
    mask = pd.Series(True, index=train.index)
    for name, part in entry.region.items():
        mask &= part_mask(train[name], part)
    return mask


def recount(
    result: Explanations, train: pd.DataFrame = TRAIN, k: int = K, subject: str | None = None
) -> list[GeneralizedCounterfactual]:
    """Check k of every released entry; return them."""
    assert len(result.released) > 0
    for entry in result.released:
        rows = train[inside(entry, train)]
        people = rows[subject].nunique() if subject else len(rows)
        assert people == entry.certificate.k
        assert people >= k
        assert list(entry.released) == [c for c in train.columns if c in entry.released]
    assert result.summary()["released_native"] == 0
    return list(result.released)


def anonymized(
    train: pd.DataFrame, counterfactuals: pd.DataFrame, policy: PrivacyPolicy | None = None, **schema: Any
) -> Any:
    described = Schema.from_frame(train, **{"quasi_identifiers": QUASI, **schema})
    anonymizer = KAnonymizer(policy=policy or POLICY).fit(
        Population.from_frame(train, described), model=granted, desired="granted"
    )
    return anonymizer.transform(counterfactuals)


# --- explainers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
@pytest.mark.parametrize("objective", ["pureness", "ncp", "weighted"])
def test_nearest_neighbour(method: str, objective: Any) -> None:
    explainer = NearestUnlikeNeighbour(TRAIN, granted)
    policy = PrivacyPolicy(guarantee="nominal", k=K, objective=objective)
    private = protect(explainer, model=granted, population=POPULATION, policy=policy, method=method)
    result = private.explain(REFUSED)
    assert [entry.query for entry in result] == list(range(len(REFUSED)))
    assert set(result.findings) == {"native"}
    released = recount(result)
    raw = explainer.explain(REFUSED).reset_index(drop=True)
    for entry in released:
        own = raw.iloc[entry.query]
        assert entry.region.contains(own[QUASI].to_dict())
        assert dict(entry.released) == {"pay": own["pay"], "debt": own["debt"]}
        assert entry.certificate.method == method
        assert entry.certificate.k_private >= 1


def test_function_with_several_answers_per_query_in_any_order() -> None:
    candidates = TRAIN[granted(TRAIN) == "granted"]

    def explainer(rows: pd.DataFrame) -> pd.DataFrame:
        found = pd.concat([candidates.iloc[i * 5 : i * 5 + 3] for i in range(len(rows))])
        found["query"] = np.repeat(np.arange(len(rows)), 3)
        return found.sample(frac=1, random_state=1)

    result = protect(explainer, model=granted, population=POPULATION, policy=POLICY).explain(REFUSED)
    assert [entry.query for entry in result] == np.repeat(np.arange(len(REFUSED)), 3).tolist()
    recount(result)
    for i in range(len(REFUSED)):
        pays = sorted(entry.released["pay"] for entry in result.for_query(i))  # type: ignore[union-attr]
        assert pays == sorted(candidates["pay"].iloc[i * 5 : i * 5 + 3])


def forest() -> Pipeline:
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city", "education"]), remainder="passthrough"
    )
    labels = (granted(TRAIN) == "granted").astype(int)
    return make_pipeline(encoder, RandomForestClassifier(15, random_state=0, n_jobs=1)).fit(TRAIN, labels)


@pytest.fixture(scope="module")
def classifier() -> Pipeline:
    return forest()


@pytest.mark.parametrize("method", ["random", "kdtree"])
@pytest.mark.usefixtures("each_guarantee")
def test_dice(method: str, classifier: Pipeline) -> None:
    dice_ml = pytest.importorskip("dice_ml")
    continuous = ["age", "height", "pay", "debt"]
    data = dice_ml.Data(
        dataframe=TRAIN.assign(outcome=classifier.predict(TRAIN)),
        continuous_features=continuous,
        outcome_name="outcome",
    )
    explainer = dice_ml.Dice(data, dice_ml.Model(model=classifier, backend="sklearn"), method=method)
    private = protect(explainer, model=classifier, population=POPULATION, policy=POLICY)
    queries = TRAIN[classifier.predict(TRAIN) == 0].head(2)
    options = {"random_seed": 1} if method == "random" else {}
    before, state = queries.copy(deep=True), random_state()
    result = private.explain(queries, total_CFs=3, **options)
    assert [entry.query for entry in result] == [0, 0, 0, 1, 1, 1]
    recount(result)
    if method == "kdtree":
        assert "native" in result.findings
    native = private.generate_counterfactuals(queries, total_CFs=3, desired_class="opposite", **options)
    rebuilt = [examples.final_cfs_df for examples in native.cf_examples_list if examples.final_cfs_df is not None]
    assert type(native).__module__.startswith("dice_ml")
    assert sum(map(len, rebuilt)) == len(result.released)
    pd.testing.assert_frame_equal(queries, before)
    assert random_state() == state


# --- outcomes --------------------------------------------------------------------------------------------------


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.digitize(rows["pay"], [40, 65])


@pytest.mark.usefixtures("each_guarantee")
def test_opposite_of_three_classes() -> None:
    queries = pd.concat([TRAIN[three(TRAIN) == c].head(2) for c in range(3)])
    private = protect(NearestUnlikeNeighbour(TRAIN, three), model=three, population=POPULATION, policy=POLICY)
    result = private.explain(queries)
    own = three(queries)
    for entry in recount(result):
        rows = TRAIN[inside(entry, TRAIN)]
        assert entry.certificate.k_desired == (three(rows) != own[entry.query]).sum()
        assert three(pd.DataFrame([dict(entry.released)]))[0] != own[entry.query]


@pytest.mark.usefixtures("each_guarantee")
def test_one_class_of_three() -> None:
    raw = pd.concat([TRAIN[three(TRAIN) == c].head(2) for c in range(3)])
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=three, desired=2).transform(raw)
    assert [entry.status for entry in result] == ["suppressed"] * 4 + ["released"] * 2
    for entry in recount(result):
        assert entry.certificate.k_desired == (three(TRAIN[inside(entry, TRAIN)]) == 2).sum()


@pytest.mark.usefixtures("each_guarantee")
def test_regressor_with_a_callable_goal() -> None:
    numbers = TRAIN[["age", "height", "pay", "debt"]]
    regressor = RandomForestRegressor(10, random_state=0, n_jobs=1).fit(numbers, numbers["pay"] - numbers["debt"])

    def enough(values: np.ndarray) -> np.ndarray:
        return np.asarray(values) > 40.5

    raw = TRAIN[enough(regressor.predict(numbers))].head(4)
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=regressor, desired=enough).transform(raw)
    for entry in recount(result):
        rows = numbers[inside(entry, TRAIN)]
        assert entry.certificate.k_desired == enough(regressor.predict(rows)).sum()
        consistent = rows.assign(**dict(entry.released))
        assert entry.certificate.k_consistent == enough(regressor.predict(consistent)).sum()


@pytest.mark.parametrize("desired", ["granted", np.str_("granted"), lambda labels: labels == "granted"])
@pytest.mark.usefixtures("each_guarantee")
def test_forms_of_the_same_goal(desired: Any) -> None:
    raw = TRAIN.head(12)
    plain = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired="granted").transform(raw)
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired=desired).transform(raw)
    told = Outcome() if callable(desired) else Outcome("granted")
    same = [replace(e, outcome=told) if isinstance(e, GeneralizedCounterfactual) else e for e in plain]
    assert list(result) == same
    facts = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired="opposite")
    turned = facts.transform(raw, factuals=pd.concat([REFUSED.head(1)] * 12))
    assert [entry.status for entry in turned] == [entry.status for entry in plain]


@pytest.mark.usefixtures("each_guarantee")
def test_opposite_without_factuals_means_the_counterfactuals_own_outcome() -> None:
    raw = TRAIN.head(8)
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired="opposite").transform(raw)
    own = granted(raw)
    assert len(recount(result)) == len(raw)
    for entry in result.released:
        assert entry.certificate.k_desired == (granted(TRAIN[inside(entry, TRAIN)]) == own[entry.query]).sum()


# --- data ------------------------------------------------------------------------------------------------------

WANTED = TRAIN[granted(TRAIN) == "granted"].head(6)


@pytest.mark.usefixtures("each_guarantee")
def test_subject_key_counts_people() -> None:
    train = TRAIN.assign(person=np.arange(len(TRAIN)) // 4)
    result = anonymized(train, train.loc[WANTED.index], subject="person", ordinal={"education": LEVELS})
    recount(result, train, subject="person")
    assert any(inside(entry, train).sum() > entry.certificate.k for entry in result.released)
    assert "person" not in result.to_json()


@pytest.mark.usefixtures("each_guarantee")
def test_missing_values() -> None:
    train = TRAIN.astype({"city": object, "education": object, "age": float})
    for step, name in enumerate(QUASI, start=5):
        train.loc[::step, name] = np.nan if name in ("age", "height") else None

    def careful(rows: pd.DataFrame) -> np.ndarray:
        return granted(rows.fillna({"age": 40.0}))

    schema = Schema.from_frame(train, quasi_identifiers=QUASI, ordinal={"education": LEVELS})
    anonymizer = KAnonymizer(policy=POLICY).fit(Population.from_frame(train, schema), model=careful, desired="granted")
    raw = train[careful(train) == "granted"].head(15)
    assert len(recount(anonymizer.transform(raw), train)) == len(raw)


@pytest.mark.usefixtures("each_guarantee")
def test_many_categories() -> None:
    rng = np.random.default_rng(1)
    train = TRAIN.assign(city=[f"place {i}" for i in rng.integers(0, 150, len(TRAIN))])
    assert train["city"].nunique() > 100
    recount(anonymized(train, train.loc[WANTED.index], ordinal={"education": LEVELS}), train)


@pytest.mark.usefixtures("each_guarantee")
def test_hierarchy() -> None:
    tree = {city: ["west" if city in ("Antwerp", "Bruges", "Ghent") else "south"] for city in CITIES}
    result = anonymized(TRAIN, WANTED, hierarchies={"city": tree}, ordinal={"education": LEVELS})
    nodes = [{city} for city in CITIES] + [{"Antwerp", "Bruges", "Ghent"}, {"Liege", "Namur"}, set(CITIES)]
    for entry in recount(result):
        assert set(entry.region["city"]) in nodes  # type: ignore[arg-type]


@pytest.mark.parametrize("free", QUASI)
def test_weight_of_zero_is_generalised_first(free: str) -> None:
    weights = {name: 0.0 if name == free else 1.0 for name in QUASI}
    tree = {city: ["north" if city < "C" else "south"] for city in CITIES}
    policy = PrivacyPolicy(guarantee="nominal", k=K, objective="ncp")
    for more in ({}, {"hierarchies": {"city": tree}}):
        result = anonymized(TRAIN, WANTED, policy, weights=weights, ordinal={"education": LEVELS}, **more)
        assert len(recount(result)) == len(WANTED)
        assert all(entry.certificate.optimal for entry in result.released)


def test_weights_steer() -> None:
    policy = PrivacyPolicy(guarantee="nominal", k=K, objective="ncp")
    heavy = anonymized(TRAIN, WANTED, policy, weights={"age": 20.0}, ordinal={"education": LEVELS})
    light = anonymized(TRAIN, WANTED, policy, weights={"age": 0.05}, ordinal={"education": LEVELS})

    def width(result: Explanations) -> float:
        return float(np.mean([e.region["age"].high - e.region["age"].low for e in result.released]))  # type: ignore[union-attr]

    assert width(heavy) < width(light)


@pytest.mark.parametrize("zone", [None, "Europe/Brussels"])
@pytest.mark.usefixtures("each_guarantee")
def test_dates(zone: str | None) -> None:
    rng = np.random.default_rng(2)
    born = pd.Timestamp("1960-01-01", tz=zone) + pd.to_timedelta(rng.integers(0, 15_000, len(TRAIN)), unit="D")
    train = TRAIN.assign(height=born)
    result = anonymized(train, train.loc[WANTED.index], ordinal={"education": LEVELS})
    for entry in recount(result, train):
        assert isinstance(entry.region["height"].low, pd.Timestamp)  # type: ignore[union-attr]
    result.to_json()


@pytest.mark.usefixtures("each_guarantee")
def test_constant_boolean_and_categorical_columns() -> None:
    rng = np.random.default_rng(4)
    train = TRAIN.assign(
        height=170.0,
        city=pd.Categorical(TRAIN["city"], categories=[*CITIES, "nowhere"]),
        education=rng.random(len(TRAIN)) < 0.4,
    )
    seen: list[pd.Series] = []

    def watching(rows: pd.DataFrame) -> np.ndarray:
        seen.append(rows.dtypes)
        return granted(rows)

    schema = Schema.from_frame(train, quasi_identifiers=QUASI)
    anonymizer = KAnonymizer(policy=POLICY).fit(Population.from_frame(train, schema), model=watching, desired="granted")
    for entry in recount(anonymizer.transform(train.loc[WANTED.index]), train):
        assert entry.region["height"] == Interval(170.0, 170.0)
        assert set(entry.region["education"]) <= {True, False}  # type: ignore[arg-type]
    assert all(dtypes.equals(train.dtypes) for dtypes in seen)


def test_counterfactuals_off_the_population() -> None:
    raw = WANTED.astype({"age": float})
    raw["age"] += 0.5
    raw["height"] = [1.0, 300.0, *raw["height"][2:]]
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired="granted").transform(raw)
    assert set(result.findings) <= {"synthetic", "near-native"}
    for entry in recount(result):
        assert entry.region.contains(raw.iloc[entry.query].to_dict())


@pytest.mark.usefixtures("each_guarantee")
def test_sensitive_diversity() -> None:
    train = TRAIN.assign(status=np.random.default_rng(0).choice(["x", "y", "z"], len(TRAIN), p=[0.8, 0.15, 0.05]))
    policy = replace(POLICY, k=3, l=3, t=0.4)
    result = anonymized(train, train.loc[WANTED.index], policy, sensitive=["status"], ordinal={"education": LEVELS})
    for entry in recount(result, train, k=3):
        statuses = train.loc[inside(entry, train), "status"]
        assert statuses.nunique() == entry.certificate.l >= 3
        assert entry.certificate.t is not None
        assert entry.certificate.t <= 0.4


@pytest.mark.usefixtures("each_guarantee")
def test_floors_and_ceilings() -> None:
    policy = replace(POLICY, k=40, min_pureness=0.95, max_ncp=0.5)
    result = KAnonymizer(policy=policy).fit(POPULATION, model=granted, desired="granted").transform(WANTED)
    assert {e.reason for e in result.suppressed} <= {"pureness_below_floor", "ncp_above_ceiling"}
    for entry in result.released:
        assert entry.certificate.pureness_low >= 0.95
        assert entry.certificate.ncp <= 0.5


@pytest.mark.usefixtures("each_guarantee")
def test_identifiers_and_label_stay() -> None:
    train = TRAIN.assign(name=[f"person-{i:04d}" for i in range(len(TRAIN))], label=granted(TRAIN))
    result = anonymized(
        train, train.loc[WANTED.index], identifiers=["name"], target="label", ordinal={"education": LEVELS}
    )
    recount(result, train)
    shown = result.to_json() + result.to_frame().to_csv()
    assert "person-" not in shown
    certified = '"outcome": {"label": "granted"}'  # and not a person's own label
    assert certified in shown
    assert "granted" not in shown.replace(certified, "")


# --- manners ---------------------------------------------------------------------------------------------------


def random_state() -> tuple[Any, ...]:
    legacy = np.random.get_state()  # noqa: NPY002 - looked at, not used
    return random.getstate(), legacy[0], legacy[1].tobytes(), *legacy[2:]  # type: ignore[union-attr, misc]


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_same_seed_same_result_and_nothing_else_changes(method: str) -> None:
    check_same_seed_same_result(method)


@pytest.mark.usefixtures("each_guarantee")
def test_same_result_and_nothing_else_changes_for_every_guarantee() -> None:
    check_same_seed_same_result("auto")


def check_same_seed_same_result(method: str) -> None:
    class Explainer:
        instance_based = True
        calls = 0

        def explain(self, rows: pd.DataFrame) -> pd.DataFrame:
            found = NearestUnlikeNeighbour(TRAIN, granted).explain(rows)
            random.random()
            np.random.seed(1)  # noqa: NPY002 - what careless explainers do
            rows.loc[:, "age"] = 0
            return found

    explainer, given = Explainer(), REFUSED.copy(deep=True)
    train = TRAIN.copy(deep=True)
    population = Population.from_frame(train, SCHEMA)
    before = random_state()
    results = [
        protect(explainer, model=granted, population=population, policy=POLICY, method=method, seed=9).explain(given)
        for _ in range(2)
    ]
    assert random_state() == before
    assert results[0] == results[1]
    assert results[0].to_json() == results[1].to_json()
    assert vars(explainer) == {}
    pd.testing.assert_frame_equal(given, REFUSED)
    pd.testing.assert_frame_equal(train, TRAIN)
    pd.testing.assert_frame_equal(population.frame, TRAIN)


@pytest.mark.usefixtures("each_guarantee")
def test_instance_is_used_again() -> None:
    private = protect(NearestUnlikeNeighbour(TRAIN, granted), model=granted, population=POPULATION, policy=POLICY)
    whole = private.explain(REFUSED)
    assert private.explain(REFUSED) == whole
    one_by_one = [private.explain(REFUSED.iloc[[i]])[0] for i in range(len(REFUSED))]
    for alone, entry in zip(one_by_one, whole, strict=True):
        assert alone.query == 0
        assert alone.to_dict() == {**entry.to_dict(), "query": 0}
    anonymizer = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired="granted")
    first = anonymizer.transform(WANTED)
    anonymizer.fit(POPULATION, model=three, desired=2)
    assert anonymizer.transform(WANTED) != first
    anonymizer.fit(POPULATION, model=granted, desired="granted")
    assert anonymizer.transform(WANTED) == first


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_progress_is_told(method: str) -> None:
    check_progress(method)


@pytest.mark.usefixtures("each_guarantee")
def test_progress_is_told_for_every_guarantee() -> None:
    check_progress("auto")


def check_progress(method: str) -> None:
    told: list[tuple[int, int]] = []
    private = protect(
        NearestUnlikeNeighbour(TRAIN, granted), model=granted, population=POPULATION, policy=POLICY, method=method
    )
    private.explain(REFUSED, progress=lambda done, total: told.append((done, total)))
    assert told
    assert told[-1][0] == told[-1][1] > 0
    assert all(0 <= done <= total for done, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_equal_counterfactuals_get_equal_answers(each_guarantee: str) -> None:
    raw = pd.concat([WANTED.head(2), WANTED.head(2)])
    method = "grasp" if each_guarantee == "nominal" else "auto"
    result = KAnonymizer(policy=POLICY, method=method).fit(POPULATION, model=granted, desired="granted").transform(raw)
    for i in range(2):
        assert result[i].to_dict() == {**result[i + 2].to_dict(), "query": i}  # type: ignore[union-attr]


@pytest.mark.usefixtures("each_guarantee")
def test_model_is_asked_about_the_columns_it_was_fitted_on() -> None:
    columns = ["pay", "age"]
    forest = RandomForestClassifier(5, random_state=0, n_jobs=1).fit(TRAIN[columns], granted(TRAIN))
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=forest, desired="granted").transform(WANTED)
    recount(result)


@pytest.mark.usefixtures("each_guarantee")
def test_decorated_explainer_is_called_as_before() -> None:
    explainer = NearestUnlikeNeighbour(TRAIN, granted)
    private = protect(explainer, model=granted, population=POPULATION, policy=POLICY)
    assert private.desired == "opposite"
    assert protect(lambda rows: WANTED.head(len(rows)), model=granted, population=POPULATION, policy=POLICY)(
        REFUSED
    ) == protect(lambda rows: WANTED.head(len(rows)), model=granted, population=POPULATION, policy=POLICY).explain(
        REFUSED
    )


@pytest.mark.usefixtures("each_guarantee")
def test_quiet(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.INFO)
    private = protect(NearestUnlikeNeighbour(TRAIN, granted), model=granted, population=POPULATION, policy=POLICY)
    private.explain(REFUSED)
    assert not [record for record in caplog.records if record.name.startswith("cfk")]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("each_guarantee")
def test_table_of_the_result() -> None:
    result = KAnonymizer(policy=POLICY).fit(POPULATION, model=granted, desired="granted").transform(TRAIN.head(10))
    shown, audit = result.to_frame(), result.audit_frame()
    assert list(shown["status"]) == [entry.status for entry in result]
    assert list(shown.columns[3:9]) == list(TRAIN.columns)
    assert len(audit) == len(result)
    for entry in result:
        if isinstance(entry, Suppressed):
            assert shown.loc[entry.query, list(TRAIN.columns)].isna().all()


def test_counterfactuals_may_come_as_objects_with_their_queries() -> None:
    frame = pd.DataFrame({"age": np.arange(40), "income": np.arange(40) * 10})
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["age"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="nominal", k=3)).fit(
        population, lambda rows: rows["income"] > 100, desired=True
    )
    objects = [Counterfactual(query, frame.iloc[row].to_dict()) for query, row in [(7, 20), (2, 30)]]
    given = anonymizer.transform(objects)
    assert [entry.query for entry in given] == [7, 2]
    table = anonymizer.transform(frame.iloc[[20, 30]])
    assert [entry.region for entry in given.released] == [entry.region for entry in table.released]


def test_the_model_is_asked_once_about_each_cell() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"age": rng.integers(18, 60, 300), "city": rng.choice(CITIES, 300), "income": rng.permutation(300)}
    )
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"]))
    asked: list[tuple[Any, ...]] = []

    def model(rows: pd.DataFrame) -> Any:
        if len(rows) != 256:  # the trial in `fit`
            asked.extend(rows.itertuples(index=False, name=None))
        return (rows["income"] + 3 * rows["age"] > 180).to_numpy()

    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="nominal", k=8)).fit(population, model, desired=True)
    raw = frame[frame["income"] + 3 * frame["age"] > 180].head(20)
    released = anonymizer.transform(raw).released
    members = {tuple(row) for entry in released for row in frame.iloc[population.members(entry.region)].to_numpy()}
    counts = pd.Series([tuple(row) for row in asked]).value_counts()
    again = {cell for cell, n in counts.items() if n > 1}
    assert (
        again <= {tuple(row) for row in raw.to_numpy()} | members
    )  # a training row's own prediction is another question
    assert counts.max() <= 2


def test_a_node_of_a_hierarchy_is_called_by_its_name() -> None:
    tree = {"1000": ["10**", "1***"], "1050": ["10**", "1***"], "2000": ["20**", "2***"], "2018": ["20**", "2***"]}
    frame = pd.DataFrame({"zip": [*tree, "1000"] * 3, "income": range(15)})
    schema = Schema.from_frame(frame, quasi_identifiers=["zip"], hierarchies={"zip": tree})
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="nominal", k=5)).fit(
        Population.from_frame(frame, schema), lambda rows: rows["income"] >= 0, desired=True
    )
    entry = anonymizer.transform(frame.iloc[[2]])[0]
    assert isinstance(entry, GeneralizedCounterfactual)
    assert entry.region["zip"] == {"2000", "2018"}
    assert entry.cells()["zip"] == "20**"
    assert entry.text({"zip": "1000", "income": 2}) == "If you had zip 20**, the outcome would be the desired one."
    alone = anonymizer.transform(frame.iloc[[0]])[0]
    assert isinstance(alone, GeneralizedCounterfactual)
    assert (alone.cells()["zip"], alone.labels) == ("1000", {})
