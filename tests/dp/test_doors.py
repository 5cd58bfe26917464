"""Doors beside differential privacy: what told of one person although counts were noised, and
audits that see it.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
from joblib.externals import loky
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

import neighbouring
from cfk_plugin import (
    Attribute,
    BudgetAccountant,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.audit import EpsilonAudit, canary_audit, one_run_audit
from cfk_plugin.dp.audited import measuring
from cfk_plugin.errors import BudgetError, ModelError, PopulationError
from residents import (
    DECLARED,
    LEFT_OUT,
    ODD,
    ORDINARY,
    RARE,
    SCHEMA,
    TABLE,
    fitted,
    form,
    person,
    published,
    rich,
    told,
)

pytest.importorskip("opendp", reason="the extra [dp] is not installed")

# noise cannot be seeded: at 95 % one run of these tests in twenty would accuse the innocent
SURE = 1 - 1e-6


PEOPLE = Population.from_frame(TABLE, SCHEMA)


def joined(canary: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([TABLE, canary], ignore_index=True)


# --- audits ---------------------------------------------------------------------------------------


def audited(odd: str, epsilon: float, runs: int) -> EpsilonAudit:
    canary = person(**ODD[odd])
    return canary_audit(
        measuring(SCHEMA, epsilon),
        TABLE,
        canary,
        claimed=epsilon,
        runs=runs,
        score=lambda found: found.seen(canary),
        schema=SCHEMA,
        confidence=SURE,
    )


def test_an_audit_of_another_dtype_finds_nothing() -> None:
    # what a dtype tells is told every time
    report = audited("a fraction among whole numbers", 0.1, runs=50)
    assert report.epsilon_low <= 0.1 < report.ceiling


def test_an_audit_sees_a_mechanism_that_looks_at_the_dtype() -> None:
    def looks(table: pd.DataFrame) -> float:
        return float(table["kids"].dtype.kind == "i")

    report = canary_audit(looks, TABLE, person(kids=np.nan), claimed=0.5, runs=100, schema=SCHEMA)
    assert report.verdict == "fail"
    # of 2.03 that these runs could show; noise may hide the canary in a few of them
    assert report.epsilon_low > 1.5


def test_an_audit_in_one_run_takes_all_of_them() -> None:
    canaries = pd.concat(
        [person(age=20 + i, **odd) for i, odd in enumerate(ODD.values()) if "age" not in odd]
    )
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


@pytest.mark.slow
def test_a_sound_mechanism_is_not_accused() -> None:
    """With a delta; an audit of all that leaves a fit is one without."""
    epsilon, delta = 1.0, 1e-5
    table, canary = neighbouring.people(), neighbouring.CANARY
    report = canary_audit(
        neighbouring.valid_rows(epsilon, delta),
        table,
        canary,
        claimed=epsilon,
        delta=delta,
        runs=150,
        score=neighbouring.heard,
        schema=neighbouring.schema(table),
        confidence=SURE,
    )
    assert report.epsilon_low <= epsilon < report.ceiling


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "claimed", "runs"),
    [
        (neighbouring.without_later_noise, 2.0, 120),
        (neighbouring.with_little_noise, 0.5, 60),
        (neighbouring.domain_from_rows, 1.0, 60),
    ],
)
def test_broken_mechanisms_are_refuted(mechanism: Any, claimed: float, runs: int) -> None:
    table = neighbouring.people()
    scored = {} if mechanism is neighbouring.domain_from_rows else {"score": neighbouring.heard}
    declared = {"schema": neighbouring.schema(table)} if scored else {}
    report = canary_audit(
        mechanism(claimed),
        table,
        neighbouring.CANARY,
        claimed=claimed,
        runs=runs,
        **scored,
        **declared,
    )
    assert report.verdict == "fail"
    assert scored or report.epsilon_low == pytest.approx(report.ceiling)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_one_run_tells_the_sound_mechanism_from_one_with_little_noise(broken: bool) -> None:
    values = [f"v{i}" for i in range(201)]
    table = pd.DataFrame({"a": ["v200"] * 2000, "b": np.tile(["x", "y"], 1000)})
    canaries = pd.DataFrame({"a": values[:200], "b": "x"})
    declared = Schema.from_frame(
        table,
        quasi_identifiers=["a"],
        columns={"a": Attribute(categories=values), "b": Attribute(categories=["x", "y"])},
        nullable=[],
    )
    report = one_run_audit(
        neighbouring.with_little_noise(1.0, declared) if broken else measuring(declared, 1.0),
        table,
        canaries,
        claimed=1.0,
        score=lambda found: found.scores(canaries),
        schema=declared,
        confidence=0.95 if broken else SURE,
    )
    assert report.verdict == ("fail" if broken else "pass")


def dtype_of_the_table(table: pd.DataFrame) -> DPPrototypes:
    found = fitted(table, rows=50)
    kind = "float32" if table["kids"].dtype.kind == "i" else "float64"
    found.served_ = replace(found.served_, frame=found.served_.frame.astype({"kids": kind}))
    return found


def as_many_rows_as_people(table: pd.DataFrame) -> DPPrototypes:
    return fitted(table, rows=len(table))


def columns_in_an_order_of_the_table(table: pd.DataFrame) -> DPPrototypes:
    found = fitted(table, rows=50)
    order = table.nunique().sort_values(kind="stable").index
    found.served_ = replace(found.served_, frame=found.served_.frame[order])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("door", "canary"),
    [
        (dtype_of_the_table, ODD["a missing number"]),
        (as_many_rows_as_people, ORDINARY),
        (columns_in_an_order_of_the_table, RARE),
    ],
)
def test_audit_sees_doors_that_noise_leaves_open(door: Any, canary: dict[str, Any]) -> None:
    """The form of a table tells of one person, next to all that is noise."""
    who = person(**canary)
    report = canary_audit(door, TABLE, who, score=told(who), claimed=1.0, runs=60, schema=SCHEMA)
    assert report.verdict == "fail"


@pytest.mark.slow
@pytest.mark.parametrize("canary", [RARE, ODD["an undeclared level"]])
def test_an_audit_of_all_that_leaves_of_a_fit_finds_nothing(canary: dict[str, Any]) -> None:
    who = person(**canary)
    report = canary_audit(
        published(0.5),
        TABLE,
        who,
        claimed=0.5,
        runs=100,
        score=told(who),
        schema=SCHEMA,
        confidence=SURE,
    )
    assert report.epsilon_low <= 0.5 < report.ceiling


# --- the dtype of a table, and values that nobody declared ----------------------------------------


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("odd", ODD)
def test_one_persons_value_changes_nobodys_row(odd: str) -> None:
    found, others = (
        fitted(table, random_state=1).served_.frame for table in (joined(person(**ODD[odd])), TABLE)
    )
    assert found.dtypes.to_dict() == others.dtypes.to_dict()
    if odd in LEFT_OUT:  # with noise that repeats, leaving them out is having never seen them
        pd.testing.assert_frame_equal(found, others)


@pytest.mark.parametrize(
    "others",
    [
        lambda table: table.head(0),
        lambda table: table.head(7),
        lambda table: pd.concat([table] * 3, ignore_index=True),
        lambda table: table[[*table][::-1]].assign(further=1),
        lambda table: joined(person(**RARE)),
        *(lambda table, odd=odd: joined(person(**odd)) for odd in ODD.values()),
    ],
    ids=["nobody", "few", "many", "other columns", "rare values", *ODD],
)
def test_the_form_of_what_leaves_is_that_of_any_other_table(
    others: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    """Columns, their order and dtypes, index, number of rows, JSON and texts: what no noise is
    added to.
    """
    settings = {"model_access": "public", "plausibility": 0.2}
    assert form(fitted(others(TABLE), **settings)) == form(fitted(TABLE, **settings))


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    "other",
    [
        lambda table: table.sample(frac=1.0, random_state=0),
        lambda table: table.sample(frac=1.0, axis=1, random_state=0),
        lambda table: table.set_axis(table.index[::-1] * 7),
        lambda table: table.astype(object),
        lambda table: table.astype(str),
        lambda table: table.astype(
            {"age": float, "kids": "Int64", "pay": "float32", "since": "datetime64[ns]"}
        ),
        lambda table: table.astype(
            {"town": "category", "level": "category", "member": object, "kids": "category"}
        ),
        lambda table: pd.read_csv(io.StringIO(table.to_csv(index=False))),
    ],
    ids=[
        "rows mixed",
        "columns mixed",
        "index",
        "objects",
        "texts",
        "other numbers",
        "categories",
        "CSV",
    ],
)
def test_the_same_people_in_another_order_or_dtype_give_the_same_rows(
    other: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    found, expected = (
        fitted(table, random_state=1).served_.frame for table in (other(TABLE), TABLE)
    )
    pd.testing.assert_frame_equal(found, expected)


def test_a_schema_brings_no_dtype_along_and_whole_numbers_are_declared() -> None:
    whole, fractional = (
        Schema.from_frame(t, **DECLARED)
        for t in (TABLE, TABLE.astype({"kids": float, "age": float}))
    )
    odd = joined(person(kids="two", since="never", pay=3 + 4j, member=1j))
    assert whole == fractional == Schema.from_frame(odd, **DECLARED)
    frame = fitted(TABLE).served_.frame
    assert frame["age"].dtype == "int64"
    assert (frame["kids"].dropna() % 1 != 0).any()
    columns = {**DECLARED["columns"], "kids": Attribute(bounds=(0, 12), whole=True)}
    declared = Schema.from_frame(TABLE, **{**DECLARED, "columns": columns})
    kids = fitted(TABLE.astype({"kids": float}), declared, epsilon=50.0).served_.frame["kids"]
    assert (kids.dropna() % 1 == 0).all()


@pytest.mark.parametrize(
    "odd", ["an infinite number", "an undeclared level", "a text among numbers"]
)
def test_a_value_that_is_not_declared_refuses_nobody_here_and_where_people_are_counted(
    odd: str,
) -> None:
    population = Population.from_frame(joined(person(**ODD[odd])), SCHEMA)
    found = DPPrototypes(1e4, rows=200).fit(population, rich, "yes")
    assert found.forest_.people == pytest.approx(len(TABLE), abs=1)
    answers = protect(rich, model=rich, population=population, desired="yes", method="dp").explain(
        TABLE[rich(TABLE) != "yes"].head(3)
    )
    assert answers[0].status == "released"
    for use in (
        lambda: population.n_people,
        lambda: population.risk_profile(5),
        lambda: population.fingerprint,
        lambda: KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=5)).fit(
            population, rich, "yes"
        ),
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
    for rows, expected in ((table, 200), (lost, 199), (table.head(0), 1)):
        found = DPPrototypes(1e4, rows=100).fit(
            Population.from_frame(rows, schema), lambda x: np.ones(len(x)), 1
        )
        assert found.forest_.people == pytest.approx(expected, abs=1)


# --- copies keep their account --------------------------------------------------------------------


def pickled(one: DPPrototypes) -> DPPrototypes:
    return pickle.loads(pickle.dumps(one))


def cloudpickled(one: DPPrototypes) -> DPPrototypes:
    return pickle.loads(cloudpickle.dumps(one))


def through_joblib(one: DPPrototypes) -> DPPrototypes:
    file = io.BytesIO()
    joblib.dump(one, file)
    return joblib.load(io.BytesIO(file.getvalue()))


HERE, ELSEWHERE = [copy.copy, copy.deepcopy, clone], [pickled, cloudpickled, through_joblib]


@pytest.mark.parametrize("made", HERE + ELSEWHERE)
@pytest.mark.parametrize("how", ["given", "in force"])
@pytest.mark.parametrize("before", ["configured", "fitted"])
def test_a_copy_spends_from_the_same_account_or_refuses(
    made: Callable[[DPPrototypes], DPPrototypes], how: str, before: str
) -> None:
    accountant = BudgetAccountant(1.0)
    one = DPPrototypes(1.0, rows=50, accountant=accountant if how == "given" else None)
    with accountant if how == "in force" else nullcontext():
        if before == "fitted":
            one.fit(PEOPLE, rich, "yes")
            twin = made(one)
        else:
            twin = made(one)
            if made in HERE:
                twin.fit(PEOPLE, rich, "yes")
            else:
                accountant.spend(1.0, what="another fit")
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


def outcome_of_fit(one: DPPrototypes) -> str:
    try:
        one.fit(Population.from_frame(TABLE, SCHEMA), rich, "yes")
    except BudgetError:
        return "refused"
    return "fitted"


def test_threads_within_a_block_spend_and_processes_refuse() -> None:
    def fits(number: int) -> list[str]:
        with ThreadPoolExecutor(3) as threads:
            return [
                *threads.map(outcome_of_fit, [DPPrototypes(1.0, rows=50) for _ in range(number)])
            ]

    with BudgetAccountant(2.0) as accountant:
        assert fits(6).count("fitted") == 2
        process = loky.get_reusable_executor(max_workers=1)
        job = process.submit(outcome_of_fit, DPPrototypes(1.0)).result()
    assert job == "refused"
    assert accountant.remaining().epsilon == 0
    with BudgetAccountant(2.0) as outer, BudgetAccountant(2.0) as inner:
        assert fits(3) == ["refused"] * 3  # which of them, a thread cannot know
    assert outer.spends() == inner.spends() == []


@pytest.mark.parametrize("place", ["memory", "file"])
def test_what_was_spent_is_the_same_for_tables_that_differ_by_one_person(
    place: str, tmp_path: Any
) -> None:
    spent, texts = [], []
    for number, second in enumerate((TABLE, joined(person(age=50)))):
        path = None if place == "memory" else tmp_path / f"{number}.db"
        accountant = BudgetAccountant(3.0, path=path)
        populations = [
            Population.from_frame(table, SCHEMA, key=b"key") for table in (TABLE, second)
        ]
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
    assert spent == ["2.0", "2.0"]
    assert texts[0] == texts[1]


# --- a surrogate that was fitted elsewhere --------------------------------------------------------

LABELLED = TABLE.assign(outcome=rich(TABLE))
WITH_OUTCOME = Population.from_frame(
    LABELLED,
    Schema.from_frame(
        LABELLED,
        target="outcome",
        **{
            **DECLARED,
            "nullable": [],
            "columns": {**DECLARED["columns"], "outcome": Attribute(categories=["yes", "no"])},
        },
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


class Remembers:
    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        return asks_the_private_model(rows)


def asks_the_private_model(rows: pd.DataFrame) -> np.ndarray:
    return (PRIVATE.predict(rows[NUMBERS]) == "yes").astype(float)[:, None]


def then_regression(function: Any, **settings: Any) -> Any:
    return make_pipeline(FunctionTransformer(function, **settings), LogisticRegression())


FITTED_BEFORE = {
    "a fitted tree": PRIVATE,
    "a frozen tree": FrozenEstimator(PRIVATE),
    "a frozen step": make_pipeline(KEPT, FrozenEstimator(PRIVATE)),
    "a step that is fitted": make_pipeline(
        StandardScaler().fit(TABLE[NUMBERS]), LogisticRegression()
    ),
    "a frozen tree in a search": GridSearchCV(FrozenEstimator(PRIVATE), {}),
    "a frozen tree in a stack": StackingClassifier(
        [("tree", FrozenEstimator(PRIVATE))], LogisticRegression()
    ),
    "a prefit stack": StackingClassifier(
        [("tree", DecisionTreeClassifier())], LogisticRegression(), cv="prefit"
    ),
    "a prefit selection": make_pipeline(
        SelectFromModel(LogisticRegression(), prefit=True), LogisticRegression()
    ),
    "a clone of its own": OwnClone(),
    "a function that asks": then_regression(asks_the_private_model),
    "a lambda": then_regression(lambda x: asks_the_private_model(x) + 0),
    "a method": then_regression(PRIVATE.predict_proba),
    "an object that is called": then_regression(Remembers()),
    "a ufunc of one's own": then_regression(np.frompyfunc(Remembers(), 1, 1)),
    "a model as a setting": then_regression(np.asarray, kw_args={"like": PRIVATE}),
    "a function": rich,
}


@pytest.mark.parametrize("what", FITTED_BEFORE)
def test_a_surrogate_that_was_fitted_is_refused_before_anything_is_spent(what: str) -> None:
    accountant = BudgetAccountant(1.0)
    prototypes = DPPrototypes(1.0, rows=500, model_access="surrogate", accountant=accountant)
    with pytest.raises(ModelError, match="surrogate"):
        prototypes.fit(WITH_OUTCOME, FITTED_BEFORE[what], "yes")
    assert accountant.spends() == []


def test_a_surrogate_that_was_not_fitted_serves() -> None:
    numbers = ColumnTransformer(
        [("numbers", StandardScaler(), make_column_selector(dtype_include=np.number))]
    )
    search = GridSearchCV(LogisticRegression(warm_start=True), {"C": [0.1, 1.0]}, cv=2)
    estimator = make_pipeline(numbers, FunctionTransformer(np.tanh), search)
    found = DPPrototypes(20.0, rows=500, model_access="surrogate").fit(
        WITH_OUTCOME, estimator, "yes"
    )
    assert found.certificate_.total == (20.0, 0.0)
    assert not hasattr(estimator, "classes_")
