"""Doors beside differential privacy: what told of one person although every count was noised."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import StackingClassifier
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import BudgetAccountant, DPPrototypes, KAnonymizer, Ledger, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.audit import canary_audit, one_run_audit
from cfk_plugin.dp.audited import Measurements, measuring
from cfk_plugin.errors import BudgetError, ModelError, PolicyError, PopulationError

pytest.importorskip("opendp", reason="the extra [dp] is not installed")

SURE = 1 - 1e-6  # noise cannot be seeded: at 95 % one run of these tests in twenty would accuse the innocent


def people(n: int = 200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 80, n),
            "kids": random.integers(0, 6, n),
            "pay": random.integers(0, 5000, n).astype(float),
            "town": random.choice(["Antwerp", "Ghent"], n),
            "level": random.choice(["low", "high"], n),
            "member": random.random(n) < 0.3,
            "since": pd.to_datetime(random.choice(["2020-01-01", "2020-06-01"], n)),
        }
    )


TABLE = people()
DECLARED: dict[str, Any] = {
    "quasi_identifiers": ["age", "town"],
    "bounds": {"age": (18, 90), "kids": (0, 12), "pay": (0, 5000), "since": ("2019-01-01", "2021-01-01")},
    "categories": {"town": ["Antwerp", "Ghent", "Namur"], "member": [True, False]},
    "ordinal": {"level": ["low", "mid", "high"]},
    "nullable": ["kids", "pay", "member"],
    "whole": ["age"],
}
SCHEMA = Schema.from_frame(TABLE, **DECLARED)

SOMEBODY: dict[str, Any] = {**TABLE.iloc[0].to_dict(), "age": 85, "kids": 9, "pay": 4999.0}
ODD: dict[str, dict[str, Any]] = {
    "a fraction among whole numbers": {"kids": 2.5},
    "a missing number": {"kids": np.nan},
    "a missing answer": {"member": None},
    "a text among numbers": {"kids": "two"},
    "a number among answers": {"member": 1},
    "a text among dates": {"since": "unknown"},
    "an infinite number": {"pay": np.inf},
    "a number that no float holds": {"age": 10**400},
    "an undeclared town": {"town": "Elsewhere"},
    "an undeclared level": {"level": "top"},
    "a missing value where none may be": {"age": None},
    "a list": {"town": ["Ghent"]},
    "a complex number": {"pay": 3 + 4j},
}
"""One person each, whose value changes the dtype of a column, or is not declared."""
COUNTED = {"a fraction among whole numbers", "a missing number", "a missing answer", "a number among answers"}
LEFT_OUT = ODD.keys() - COUNTED


def person(**odd: Any) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([{**SOMEBODY, **odd}[name]]) for name in TABLE})


def joined(canary: pd.DataFrame, table: pd.DataFrame = TABLE) -> pd.DataFrame:
    return pd.concat([table, canary], ignore_index=True)


def rich(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] > 2500, "yes", "no")


def fitted(table: pd.DataFrame, schema: Schema = SCHEMA, **settings: Any) -> DPPrototypes:
    settings = {"rows": 500, "epsilon": 1.0, **settings}
    return DPPrototypes(**settings).fit(Population.from_frame(table, schema), rich, "yes")


# --- the dtype of a table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ODD)
def test_an_audit_takes_a_canary_of_any_value_and_finds_nothing(odd: str) -> None:
    canary = person(**ODD[odd])

    def seen(found: Measurements) -> np.ndarray:
        return found.seen(canary)

    report = canary_audit(
        measuring(SCHEMA, 0.5), TABLE, canary, claimed=0.5, runs=100, score=seen, schema=SCHEMA, confidence=SURE
    )
    assert report.ceiling > 1.0
    assert report.epsilon_low <= 0.5
    assert report.verdict != "fail"


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["a fraction among whole numbers", "a text among numbers", "an undeclared level"])
def test_a_larger_audit_finds_nothing_either(odd: str) -> None:
    canary = person(**ODD[odd])
    report = canary_audit(
        measuring(SCHEMA, 0.5),
        TABLE,
        canary,
        claimed=0.5,
        runs=400,
        score=lambda found: found.seen(canary),
        schema=SCHEMA,
        confidence=SURE,
    )
    assert report.epsilon_low <= 0.5 < report.ceiling


def test_an_audit_sees_a_mechanism_that_looks_at_the_dtype() -> None:
    def looks(table: pd.DataFrame) -> float:
        return float(table["kids"].dtype.kind == "i")

    report = canary_audit(looks, TABLE, person(kids=np.nan), claimed=0.5, runs=100, schema=SCHEMA)
    assert (report.verdict, report.epsilon_low) == ("fail", report.ceiling)


def test_an_audit_in_one_run_takes_them_too() -> None:
    canaries = pd.concat([person(age=20 + i, **odd) for i, odd in enumerate(ODD.values()) if "age" not in odd])
    report = one_run_audit(
        measuring(SCHEMA, 1.0),
        TABLE,
        canaries.reset_index(drop=True),
        claimed=1.0,
        schema=SCHEMA,
        confidence=SURE,
        score=lambda found: found.scores(canaries),
    )
    assert report.epsilon_low == 0


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("odd", ODD)
def test_one_persons_value_changes_nobodys_row(odd: str) -> None:
    found, others = (fitted(table, seed=1) for table in (joined(person(**ODD[odd])), TABLE))
    assert found.served_.frame.dtypes.to_dict() == others.served_.frame.dtypes.to_dict()
    if odd in LEFT_OUT:  # with noise that repeats, leaving them out is having never seen them
        pd.testing.assert_frame_equal(found.served_.frame, others.served_.frame)


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    "other",
    [
        lambda table: table.astype(object),
        lambda table: table.astype(str),
        lambda table: table.astype({"age": float, "kids": "Int64", "pay": "float32", "since": "datetime64[ns]"}),
        lambda table: table.astype({"town": "category", "level": "category", "member": object, "kids": "category"}),
        lambda table: pd.read_csv(io.StringIO(table.to_csv(index=False))),
    ],
    ids=["objects", "texts", "other numbers", "categories", "CSV"],
)
def test_the_same_people_in_other_dtypes_give_the_same_rows(other: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    found, expected = fitted(other(TABLE), seed=1), fitted(TABLE, seed=1)
    pd.testing.assert_frame_equal(found.served_.frame, expected.served_.frame)


def test_a_schema_brings_no_dtype_along() -> None:
    whole, fractional = (Schema.from_frame(t, **DECLARED) for t in (TABLE, TABLE.astype({"kids": float, "age": float})))
    odd = joined(person(kids="two", since="never", pay=3 + 4j, member=1j))
    assert whole == fractional == Schema.from_frame(odd, **DECLARED)


def test_whole_numbers_are_declared_and_others_are_fractions() -> None:
    frame = fitted(TABLE).served_.frame
    assert frame["age"].dtype == "int64"
    assert (frame["kids"].dropna() % 1 != 0).any()
    declared = Schema.from_frame(TABLE, **{**DECLARED, "whole": ["age", "kids"]})
    kids = fitted(TABLE.astype({"kids": float}), declared, epsilon=50.0).served_.frame["kids"]
    assert (kids.dropna() % 1 == 0).all()


# --- people with values that nobody declared ---------------------------------------------------------------------


@pytest.mark.parametrize("odd", sorted(LEFT_OUT))
def test_a_value_that_is_not_declared_refuses_nobody(odd: str) -> None:
    population = Population.from_frame(joined(person(**ODD[odd])), SCHEMA)
    found = DPPrototypes(1e4, rows=200).fit(population, rich, "yes")
    assert found.forest_.people == pytest.approx(len(TABLE), abs=1)
    answers = protect(rich, model=rich, population=population, desired="yes", method="dp").explain(TABLE.head(3))
    assert answers[0].status == "released"


@pytest.mark.parametrize("odd", ["an infinite number", "an undeclared level", "a text among numbers"])
def test_what_counts_people_still_refuses_such_a_population(odd: str) -> None:
    population = Population.from_frame(joined(person(**ODD[odd])), SCHEMA)
    for use in (
        lambda: population.n_people,
        lambda: population.risk_profile(5),
        lambda: population.fingerprint,
        lambda: KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, rich, "yes"),
    ):
        with pytest.raises(PopulationError, match=r"column '(pay|level|kids)'"):
            use()
    assert repr(population) == "Population(not counted)"
    undeclared = Schema.from_frame(TABLE, quasi_identifiers=["age"], ordinal=DECLARED["ordinal"])
    with pytest.raises(PopulationError):
        Population.from_frame(joined(person(level="top")), undeclared)


def test_a_row_of_nobody_and_a_table_without_rows_refuse_nothing() -> None:
    table = TABLE.assign(who=np.arange(len(TABLE)))
    schema = Schema.from_frame(table, subject="who", **DECLARED)
    lost = table.assign(who=table["who"].astype(object).where(table.index != 3))
    for rows, expected in ((table, 200), (lost, 199), (table.head(0), 0)):
        found = DPPrototypes(1e4, rows=100).fit(Population.from_frame(rows, schema), lambda x: np.ones(len(x)), 1)
        assert found.forest_.people == pytest.approx(max(expected, 1), abs=1)


# --- copies keep their account -----------------------------------------------------------------------------------


def pickled(one: DPPrototypes) -> DPPrototypes:
    return pickle.loads(pickle.dumps(one))


def cloudpickled(one: DPPrototypes) -> DPPrototypes:
    return pickle.loads(cloudpickle.dumps(one))


def through_joblib(one: DPPrototypes) -> DPPrototypes:
    file = io.BytesIO()
    joblib.dump(one, file)
    return joblib.load(io.BytesIO(file.getvalue()))


COPIES = [copy.copy, copy.deepcopy, clone, pickled, cloudpickled, through_joblib]
PEOPLE = Population.from_frame(TABLE, SCHEMA)


@pytest.mark.parametrize("made", COPIES)
@pytest.mark.parametrize("how", ["given", "in force"])
@pytest.mark.parametrize("before", ["configured", "fitted"])
def test_a_copy_spends_from_the_same_account_or_refuses(
    made: Callable[[DPPrototypes], DPPrototypes], how: str, before: str
) -> None:
    accountant = BudgetAccountant(1.0)
    one = DPPrototypes(1.0, rows=100, accountant=accountant if how == "given" else None)
    if before == "fitted":
        with accountant:
            one.fit(PEOPLE, rich, "yes")
        twin = made(one)
    else:
        with accountant:
            twin = made(one)
            if how == "in force" and made in COPIES[:3]:
                twin.fit(PEOPLE, rich, "yes")
        if how == "given" and made in COPIES[:3]:
            twin.fit(PEOPLE, rich, "yes")
        elif made not in COPIES[:3]:
            accountant.spend(None, 1.0, what="another fit")
    assert accountant.remaining().epsilon == 0
    with pytest.raises(BudgetError):
        twin.fit(PEOPLE, rich, "yes")
    with accountant, pytest.raises(BudgetError):
        twin.fit(PEOPLE, rich, "yes")


def test_what_comes_back_answers_and_spends_again_once_it_is_given_an_account() -> None:
    accountant = BudgetAccountant(2.0)
    one = DPPrototypes(1.0, rows=200, accountant=accountant).fit(PEOPLE, rich, "yes")
    twin = pickled(pickled(one))
    assert twin.explain(TABLE.head(3)) == one.explain(TABLE.head(3))
    for other in (twin, copy.copy(twin), clone(twin)):
        with pytest.raises(BudgetError, match="set its accountant"):
            other.fit(PEOPLE, rich, "yes")
    twin.accountant = accountant
    assert twin.fit(PEOPLE, rich, "yes").spent_ == 2.0


def test_a_fit_outside_of_the_block_counts_where_the_one_before_did() -> None:
    one = DPPrototypes(1.0, rows=100)
    with BudgetAccountant(2.0) as accountant:
        one.fit(PEOPLE, rich, "yes")
    first = one.certificate_
    assert one.fit(PEOPLE, rich, "yes").spent_ == 2.0
    assert one.certificate_.fit != first.fit
    with pytest.raises(BudgetError):
        one.fit(PEOPLE, rich, "yes")
    assert accountant.remaining().epsilon == 0


def test_threads_within_a_block_spend() -> None:
    def fit(_: int) -> bool:
        try:
            DPPrototypes(1.0, rows=50).fit(PEOPLE, rich, "yes")
        except BudgetError:
            return False
        return True

    with BudgetAccountant(2.0) as accountant, ThreadPoolExecutor(3) as threads:
        assert sum(threads.map(fit, range(6))) == 2
    assert accountant.remaining().epsilon == 0
    with BudgetAccountant(2.0) as outer, BudgetAccountant(2.0) as inner, ThreadPoolExecutor(3) as threads:
        assert sum(threads.map(fit, range(3))) == 0  # which of them, a thread cannot know
    assert outer.spends() == inner.spends() == []


def _fit_elsewhere(one: DPPrototypes) -> str:
    try:
        one.fit(Population.from_frame(TABLE, SCHEMA), rich, "yes")
    except BudgetError:
        return "refused"
    return "fitted"


def test_processes_within_a_block_refuse() -> None:
    with BudgetAccountant(1.0):
        job = joblib.Parallel(2, backend="loky")(
            joblib.delayed(_fit_elsewhere)(DPPrototypes(1.0, rows=50)) for _ in "ab"
        )
    assert job == ["refused", "refused"]


# --- a surrogate that was fitted elsewhere -----------------------------------------------------------------------

LABELLED = TABLE.assign(outcome=rich(TABLE))
WITH_OUTCOME = Population.from_frame(
    LABELLED,
    Schema.from_frame(
        LABELLED,
        target="outcome",
        **{**DECLARED, "nullable": [], "categories": {**DECLARED["categories"], "outcome": ["yes", "no"]}},
    ),
)
NUMBERS = ["age", "pay"]
PRIVATE = DecisionTreeClassifier(random_state=0).fit(LABELLED[NUMBERS], LABELLED["outcome"])
KEPT = ColumnTransformer([("keep", "passthrough", NUMBERS)])


class OwnClone(ClassifierMixin, BaseEstimator):
    """Decides for itself what a clone is."""

    def __sklearn_clone__(self) -> OwnClone:
        return self

    def fit(self, X: Any, y: Any) -> OwnClone:
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return PRIVATE.predict(X[NUMBERS])


def asks_the_private_model(rows: pd.DataFrame) -> np.ndarray:
    return (PRIVATE.predict(rows[NUMBERS]) == "yes").astype(float)[:, None]


class Remembers:
    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        return asks_the_private_model(rows)


FITTED_BEFORE = {
    "a fitted tree": PRIVATE,
    "a frozen tree": FrozenEstimator(PRIVATE),
    "a frozen step": make_pipeline(KEPT, FrozenEstimator(PRIVATE)),
    "a step that is fitted": make_pipeline(StandardScaler().fit(TABLE[NUMBERS]), LogisticRegression()),
    "a frozen tree in a search": GridSearchCV(FrozenEstimator(PRIVATE), {}),
    "a frozen tree in a stack": StackingClassifier([("tree", FrozenEstimator(PRIVATE))], LogisticRegression()),
    "a prefit stack": StackingClassifier([("tree", DecisionTreeClassifier())], LogisticRegression(), cv="prefit"),
    "a prefit selection": make_pipeline(SelectFromModel(LogisticRegression(), prefit=True), LogisticRegression()),
    "a clone of its own": OwnClone(),
    "a function that asks": make_pipeline(FunctionTransformer(asks_the_private_model), LogisticRegression()),
    "a lambda": make_pipeline(FunctionTransformer(lambda x: asks_the_private_model(x) + 0), LogisticRegression()),
    "a method": make_pipeline(FunctionTransformer(PRIVATE.predict_proba), LogisticRegression()),
    "an object that is called": make_pipeline(FunctionTransformer(Remembers()), LogisticRegression()),
    "a ufunc of one's own": make_pipeline(FunctionTransformer(np.frompyfunc(Remembers(), 1, 1)), LogisticRegression()),
    "a model as a setting": make_pipeline(
        FunctionTransformer(np.asarray, kw_args={"like": PRIVATE}), LogisticRegression()
    ),
    "a function": rich,
}


@pytest.mark.parametrize("what", FITTED_BEFORE)
def test_a_surrogate_that_was_fitted_is_refused_before_anything_is_spent(what: str) -> None:
    accountant = BudgetAccountant(1.0)
    prototypes = DPPrototypes(1.0, rows=500, model_access="surrogate", accountant=accountant)
    with pytest.raises(ModelError, match="surrogate"):
        prototypes.fit(WITH_OUTCOME, FITTED_BEFORE[what], "yes")
    assert accountant.spends() == []


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(KEPT, DecisionTreeClassifier(max_depth=3)),
        make_pipeline(
            ColumnTransformer([("numbers", StandardScaler(), make_column_selector(dtype_include=np.number))]),
            FunctionTransformer(np.tanh),
            GridSearchCV(LogisticRegression(warm_start=True), {"C": [0.1, 1.0]}, cv=2),
        ),
    ],
    ids=["a tree", "a search"],
)
def test_a_surrogate_that_was_not_fitted_serves(estimator: Any) -> None:
    found = DPPrototypes(20.0, rows=500, model_access="surrogate").fit(WITH_OUTCOME, estimator, "yes")
    assert found.certificate_.total == (20.0, 0.0)
    assert not hasattr(estimator, "classes_")


# --- what tells whether two tables are the same ------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "ledger"])
def test_what_was_spent_is_the_same_for_tables_that_differ_by_one_person(place: str, tmp_path: Any) -> None:
    spent, texts = [], []
    for number, second in enumerate((TABLE, joined(person(age=50)))):
        ledger = None if place == "memory" else Ledger(tmp_path / f"{number}.db", create=True)
        accountant = BudgetAccountant(3.0, ledger=ledger, scope=None if ledger is None else "patients")
        populations = [Population.from_frame(table, SCHEMA, key=b"key") for table in (TABLE, second)]
        for population in populations:
            one = DPPrototypes(1.0, rows=100, accountant=accountant).fit(population, rich, "yes")
        result = one.explain(TABLE.head(2))
        spent.append(result.provenance["epsilon_spent"])
        prints = [population.fingerprint for population in populations]
        with pytest.raises(BudgetError) as caught:
            DPPrototypes(2.0, rows=100, accountant=accountant).fit(population, rich, "yes")
        texts.append(str(caught.value))
        said = repr((result.provenance, result.about, one, accountant, texts)) + result.to_json()
        assert not any(each in said for each in prints)
        accountant.close()
    assert spent == ["2.0", "2.0"]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"delta": 0.5}, "at most 1e-06"),
        ({"delta": 1.01e-6}, "people="),
        ({"delta": 0.5, "people": 200}, "below 1 / people = 0.005"),
        ({"delta": 1e-4, "people": 10_000}, "below 1 / people"),
        ({"model_access": "dp", "model_epsilon": 1.0, "model_delta": 0.5}, "at most"),
        ({"delta": 6e-5, "model_access": "dp", "model_epsilon": 1.0, "model_delta": 6e-5, "people": 10_000}, "below 1"),
        ({"people": 0}, "whole number"),
        ({"people": True}, "whole number"),
    ],
)
def test_a_delta_that_lets_somebodys_row_leave_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        fitted(TABLE, **settings)


def test_the_tables_own_number_of_people_does_not_decide_on_delta() -> None:
    for table in (TABLE, TABLE.head(5)):
        assert fitted(table, delta=1e-6).certificate_.delta == 1e-6
        assert fitted(table, delta=1e-3, people=900).certificate_.delta == 1e-3
