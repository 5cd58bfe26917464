"""Calls that are wrong in the ways people get them wrong: each says what came, what is expected,
and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    DPPrototypes,
    Hierarchy,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    log_protected_model,
    protect,
    protected,
)
from cfk_plugin._files import goal_among
from cfk_plugin.audit import Setting
from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.extraction import extraction
from cfk_plugin.audit.linkage import run_linkage_audit
from cfk_plugin.audit.membership import choose_attacks, membership
from cfk_plugin.audit.suite import Scope, select_audits
from cfk_plugin.audit.targets import RawOwner, Sample
from cfk_plugin.cli.frame import names
from cfk_plugin.errors import AdapterError, CFKError, InputError, did_you_mean
from cfk_plugin.frontier import frontier
from cfk_plugin.release.detection import Detector
from cfk_plugin.release.results import PrototypePolicy
from cfk_plugin.report.inputs import HumanInputs

DICE = "dice_ml"
RANDOM = np.random.default_rng(5)
TRAIN = pd.DataFrame(
    {
        "age": 7_001 + 3 * RANDOM.permutation(60),
        "city": RANDOM.choice(["Antwerp", "Bruges"], 60),
        "pay": RANDOM.integers(20, 90, 60),
    }
)
LISTS = TRAIN.assign(tags=[[7_777]] * len(TRAIN))
MONTHS = TRAIN.assign(tags=pd.period_range("2020-01", periods=len(TRAIN), freq="M"))
OLDER = Schema.from_frame(LISTS.assign(tags="one"), quasi_identifiers=["age", "tags"])
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"])
POPULATION = Population.from_frame(TRAIN, SCHEMA)
MODEL = DecisionTreeClassifier(max_depth=2, random_state=0).fit(TRAIN[["pay"]], TRAIN["pay"] > 50)
POLICY = PrivacyPolicy(k=3, guarantee="lookup")
HIGH = TRAIN[TRAIN["pay"] > 50]
QUERIES = TRAIN[TRAIN["pay"] <= 50].head(2)


def explainer(
    queries: pd.DataFrame, *, wealthy: bool = True, desired_class: Any = True
) -> pd.DataFrame:
    if wealthy not in (True, False):
        raise ValueError(f"somebody of {TRAIN['age'][0]}")
    return HIGH.head(len(queries["age"]))


PROTECTED = protect(explainer, model=MODEL, population=POPULATION, policy=POLICY, desired=True)
FITTED = KAnonymizer(policy=POLICY).fit(POPULATION, model=MODEL, desired=True)
EXPLAINED = PROTECTED.explain(QUERIES)
OWNER = RawOwner("raw", MODEL, explainer)
ENTRY = EXPLAINED[0]
SAMPLE = Sample(TRAIN, (TRAIN["pay"] > 50).to_numpy())


def wrapped(**changes: Any) -> Any:
    return protect(
        explainer,
        **{"model": MODEL, "population": POPULATION, "policy": POLICY, "desired": True, **changes},
    )


def fitted(population: Any = POPULATION, desired: Any = True, **settings: Any) -> KAnonymizer:
    return KAnonymizer(**{"policy": POLICY, **settings}).fit(
        population, model=MODEL, desired=desired
    )


def declared(**settings: Any) -> Schema:
    return Schema.from_frame(TRAIN, **{"quasi_identifiers": ["age"], **settings})


FRAME = "population must be a Population, got DataFrame; make one with Population.from_frame"
NUMBER = "policy must be a PrivacyPolicy, got int; write PrivacyPolicy(k=10)"
OBJECT = "policy must be a PrivacyPolicy, got dict; write PrivacyPolicy(k=10)"
CLASSES = "is 'yes', not one of the model's classes: booleans (False, True); give one of them, spelled and typed as it is"
MONTH = "column 'tags' holds cells of type Period; a cell is one number, date or text"
CELLS = "column 'tags' holds cells of type list; a cell is one number, date or text"
ARRAY = "must be a table (pandas, polars or pyarrow), got ndarray; give a row each and a column per feature"
NO_SCHEMA = "schema must be a Schema, got list; declare one with Schema.from_frame"
PERSON = "one person's values, a mapping or a Series by feature, got DataFrame; give one row of the queries"

WRONG: Mapping[str, tuple[Callable[[], Any], str]] = {
    "protect population": (lambda: wrapped(population=TRAIN), FRAME),
    "protected population": (lambda: protected(model=MODEL, population=TRAIN)(explainer), FRAME),
    "fit population": (lambda: fitted(TRAIN), FRAME),
    "prototypes population": (lambda: DPPrototypes(epsilon=1.0).fit(TRAIN, MODEL, True), FRAME),  # type: ignore[arg-type]
    "frontier population": (
        lambda: frontier(HIGH, population=TRAIN, model=MODEL, desired=True),
        FRAME,
    ),  # type: ignore[arg-type]
    "logged population": (
        lambda: log_protected_model(explainer, model=MODEL, population=TRAIN, desired=True),
        FRAME,
    ),  # type: ignore[arg-type]
    "protect policy 10": (lambda: wrapped(policy=10), NUMBER),
    "protect policy {}": (lambda: wrapped(policy={"k": 10}), OBJECT),
    "protect policy falsy": (lambda: wrapped(policy={}), OBJECT),
    "fit policy 10": (lambda: fitted(policy=10), NUMBER),
    "frontier policy": (
        lambda: frontier(HIGH, population=POPULATION, model=MODEL, desired=True, policy=10),  # type: ignore[arg-type]
        NUMBER,
    ),
    "logged policy": (
        lambda: log_protected_model(
            explainer, model=MODEL, population=POPULATION, desired=True, policy={"k": 3}
        ),  # type: ignore[arg-type]
        OBJECT,
    ),
    "audit anonymizer": (
        lambda: Setting(PROTECTED, HIGH),
        "anonymizer must be a KAnonymizer, got ProtectedExplainer;",
    ),  # type: ignore[arg-type]
    "audit limit": (
        lambda: Setting(FITTED, HIGH, limit=0),
        "limit must be a whole number >= 1, got 0",
    ),
    "audit a table": (lambda: membership(OWNER, TRAIN), "sample must be a Sample, got DataFrame;"),  # type: ignore[arg-type]
    "copy from a table": (
        lambda: extraction(OWNER, TRAIN),
        "make one of features and true outcomes",
    ),  # type: ignore[arg-type]
    "ledger": (
        lambda: wrapped(ledger="ledger.db"),
        "ledger must be a Ledger, got str; open one with Ledger(path)",
    ),
    "track": (
        lambda: wrapped(track=7),
        "track must be True, False or the name of an MLflow experiment; got int",
    ),
    "plugins": (lambda: wrapped(plugins=7), "plugins must be a list of plugins, got int"),
    "groups": (
        lambda: wrapped(groups=7),
        "groups must be a str, got int; name one column of the queries",
    ),
    "seed": (lambda: fitted(seed="7"), "seed must be a whole number >= 0, got '7'"),
    "desired of protect": (lambda: wrapped(desired="yes"), CLASSES),
    "desired of fit": (lambda: fitted(desired="yes"), CLASSES),
    "desired of a call": (
        lambda: PROTECTED.explain(QUERIES, desired_class="yes"),
        "an outcome that is none of the model's labels (False, True)",
    ),
    "k": (lambda: PrivacyPolicy(k=2.5), "k must be a whole number >= 2, got 2.5"),  # type: ignore[arg-type]
    "k of a profile": (
        lambda: POPULATION.risk_profile("ten"),
        "k must be a whole number >= 1, got 'ten'",
    ),  # type: ignore[arg-type]
    "lists, declared": (lambda: Schema.from_frame(LISTS, quasi_identifiers=["age"]), CELLS),
    "lists, counted": (lambda: Population.from_frame(LISTS, OLDER), CELLS),
    "months, declared": (lambda: Schema.from_frame(MONTHS, quasi_identifiers=["age"]), MONTH),
    "months, counted": (lambda: Population.from_frame(MONTHS, OLDER), MONTH),
    "a person's key": (
        lambda: Population.from_frame(
            LISTS,
            Schema.from_frame(LISTS.assign(tags=1), quasi_identifiers=["age"], subject="tags"),
        ),
        "subject key 'tags' holds list; give each person one text or number",
    ),
    "schema": (lambda: Population.from_frame(TRAIN, ["age"]), NO_SCHEMA),  # type: ignore[arg-type]
    "schema of a file": (lambda: Population.from_parquet("rows.parquet", ["age"]), NO_SCHEMA),  # type: ignore[arg-type]
    "schema of a cluster": (lambda: Population.from_spark(TRAIN, ["age"]), NO_SCHEMA),  # type: ignore[arg-type]
    "a path": (
        lambda: Schema.from_frame("rows.csv", quasi_identifiers=["age"]),
        "at least one row and one column; got str",
    ),  # type: ignore[arg-type]
    "a model of an identifier": (
        lambda: fitted(
            Population.from_frame(
                TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age"], identifiers=["pay"])
            )
        ),
        "the model wants ['pay'], no features of the schema; fit it without, or give",
    ),
    "one name": (
        lambda: declared(nominal="city"),
        "nominal columns must be a list of names, not one string",
    ),
    "no names": (
        lambda: declared(sensitive=7),
        "sensitive columns must be a list of names, got int",
    ),
    "bounds": (
        lambda: declared(bounds=["age"]),
        "bounds must be a mapping, column to (low, high); got list",
    ),
    "a bound": (
        lambda: declared(bounds={"age": 7}),
        "column 'age': bounds must give (low, high), got int",
    ),
    "levels": (
        lambda: declared(ordinal={"city": "Ghent"}),
        "ordinal must give its levels in order, got str",
    ),
    "categories": (
        lambda: declared(categories={"city": 7}),
        "categories must give a list of its values, got int",
    ),
    "weights": (
        lambda: declared(weights={"age": "2"}),
        "column 'age': weights must give a number, got str",
    ),
    "hierarchy": (
        lambda: declared(hierarchies={"city": 7}),
        "must give a Hierarchy, or an object, value to its",
    ),
    "explain an array": (lambda: PROTECTED.explain(QUERIES.to_numpy()), ARRAY),
    "transform an array": (lambda: FITTED.transform(HIGH.to_numpy()), ARRAY),  # type: ignore[arg-type]
    "factuals": (lambda: FITTED.transform(HIGH, factuals=HIGH.to_numpy()), ARRAY),  # type: ignore[arg-type]
    "audit an array": (lambda: Setting(FITTED, HIGH.to_numpy()), ARRAY),  # type: ignore[arg-type]
    "text of a table": (lambda: ENTRY.text(QUERIES), PERSON),  # type: ignore[arg-type]
    "runs": (
        lambda: PrivacyReport.of_runs(7),
        "run_ids must be the id of a run or a list of them, got int;",
    ),  # type: ignore[arg-type]
    "runs of a result": (
        lambda: PrivacyReport.of_runs(EXPLAINED),
        "got Explanations; Explanations.log returns one",
    ),  # type: ignore[arg-type]
    "experiment": (
        lambda: PrivacyReport.of_experiment(7),
        "experiment must be a str, got int; give its name",
    ),  # type: ignore[arg-type]
    "inputs": (
        lambda: PrivacyReport.of_runs("x", inputs=7),
        "inputs must be a mapping or the path of a JSON file, got int",
    ),  # type: ignore[arg-type]
    "path": (
        lambda: PrivacyReport.read({}),
        "path must be a str or a Path, got dict",
    ),  # type: ignore[arg-type]
    "run": (
        lambda: EXPLAINED.log(7),
        "run_id must be a str, got int; give the id of a run, or settings by name",
    ),  # type: ignore[arg-type]
    "labels": (
        lambda: EXPLAINED.by_group("age", 7),
        "labels of 'age' must be a list, one per query, got int",
    ),  # type: ignore[arg-type]
    "detector": (lambda: Detector(TRAIN), FRAME),  # type: ignore[arg-type]
    "row of a region": (
        lambda: ENTRY.region.contains(QUERIES),
        "row must be one person's values by feature",
    ),
    "a tree": (
        lambda: Hierarchy.of(7),
        "a hierarchy is a table or a mapping, value to its ancestors; got int",
    ),  # type: ignore[arg-type]
    "text without a feature": (
        lambda: ENTRY.text({"age": 1}),
        "factual: missing features ['city', 'pay']; give the person's value of each",
    ),
    "words with a brace": (
        lambda: declared(phrases={"age": "years older {"}),
        "column 'age': a phrase is a text such as",
    ),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_is_told_what_came_what_is_expected_and_what_to_do(call: str) -> None:
    wrong, said = WRONG[call]
    with pytest.raises(CFKError) as caught:
        wrong()
    assert said in str(caught.value)
    assert not any(str(value) in str(caught.value) for value in [*TRAIN["age"], 7_777])


MISSPELT: Mapping[str, tuple[Callable[[], Any], str]] = {
    "weights": (lambda: declared(weights={"aeg": 2}), "not one: aeg; did you mean 'age'?"),
    "two columns": (
        lambda: declared(nominal=["aeg", "citty"]),
        "did you mean 'age', 'city'?",
    ),
    "column of a schema": (
        lambda: SCHEMA["AGE"],
        "'AGE' is not in the schema; did you mean 'age'?",
    ),
    "desired": (lambda: wrapped(desired="oposite"), "did you mean 'opposite'?"),
    "audits": (
        lambda: select_audits(
            [OWNER],
            SAMPLE,
            Scope(quasi_identifiers=("age",), explainer=None),  # type: ignore[arg-type]
            audits=["linkages"],
        ),
        "'linkage'?",
    ),
    "attacks of linkage": (
        lambda: run_linkage_audit(Setting(FITTED, HIGH), ["uniquenes"]),
        "did you mean 'uniqueness'?",
    ),
    "attacks of membership": (
        lambda: choose_attacks(["membership_randm"]),
        "did you mean 'membership_random'?",
    ),
    "columns of an attack": (
        lambda: attribute_inference(OWNER, SAMPLE, quasi_identifiers=["agee"]),
        "did you mean 'age'?",
    ),
    "answers for a report": (
        lambda: HumanInputs.read({"answer": 1}),
        "did you mean 'answers'?",
    ),
    "options of a command": (
        lambda: names("--only", "linkag", ["linkage", "membership"]),
        "did you mean 'linkage'?",
    ),
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(name: str) -> None:
    call, text = MISSPELT[name]
    with pytest.raises(CFKError) as caught:
        call()
    assert text in str(caught.value)


def test_a_name_that_is_close_to_none_is_left_alone() -> None:
    assert did_you_mean(["town", 7], ["age", "city", None, True]) == ""
    assert did_you_mean([], ["age"]) == did_you_mean(["age"], []) == ""
    assert did_you_mean(["AGE", "agee"], ["age"]) == "; did you mean 'age'?"


def test_a_label_of_many_is_not_named() -> None:
    """Labels as many as these are hardly classes, and could be values of rows."""
    labels = [f"label {i:03}" for i in range(30)]
    with pytest.raises(InputError) as caught:
        goal_among(labels, "labl 007")
    assert "did you mean" not in str(caught.value)
    with pytest.raises(InputError, match="did you mean 'label 007'"):
        goal_among(labels[:20], "labl 007")


def test_a_missing_column_is_not_looked_for_among_values() -> None:
    """In a table that was turned around, the names of columns are values of rows."""
    turned = pd.DataFrame([[1, 2, 3]], columns=["pay", "citty", "aged 7001"])
    with pytest.raises(InputError) as caught:
        FITTED.transform(turned)
    assert "(a column of nearly this name is there: rename it)" in str(caught.value)
    assert "citty" not in str(caught.value)
    with pytest.raises(CFKError) as refused:
        Population.from_frame(turned, SCHEMA)
    assert "(a column of nearly this name is there: rename it)" in str(refused.value)
    assert "citty" not in str(refused.value)


def test_an_explainer_that_is_called_as_its_method_is_named_once() -> None:
    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        raise ValueError

    with pytest.raises(AdapterError, match=r"^explain failed: the explainer raised ValueError"):
        protect(explain, model=MODEL, population=POPULATION, policy=POLICY, desired=True).explain(
            QUERIES
        )


class Own:
    """An explainer with methods of its own."""

    def explain(self, queries: pd.DataFrame, *, wealthy: bool = True) -> pd.DataFrame:
        return explainer(queries, wealthy=wealthy)


REFUSED: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "explainer failed in explain, called with total_CF: the explainer raised TypeError": (
        lambda private: private.explain(QUERIES, total_CF=2),
        "function",
    ),
    "explainer failed in explain, called with wealthy: the explainer raised ValueError": (
        lambda private: private.explain(QUERIES, wealthy="very"),
        "function",
    ),
    "Own failed in explain: the explainer raised IndexError": (
        lambda private: private.explain(QUERIES.to_numpy()),
        "object",
    ),
    "Own failed in explain, called with total_CF: the explainer raised TypeError": (
        lambda private: private.explain(QUERIES, total_CF=2),
        "object",
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_call_that_the_explainer_refuses_raises_and_says_how_to_read_why(said: str) -> None:
    call, kind = REFUSED[said]
    private = (
        wrapped()
        if kind == "function"
        else protect(Own(), model=MODEL, population=POPULATION, policy=POLICY)
    )
    with pytest.raises(AdapterError) as caught:
        call(private)
    assert said in str(caught.value)
    assert "call the explainer itself, without protection, on data that may be shown" in str(
        caught.value
    )
    assert str(TRAIN["age"][0]) not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            "explain",
            "^dice:DiceRandom failed in explain, called with .*total_CF: the explainer raised",
        ),
        (
            "generate_counterfactuals",
            "^generate_counterfactuals: missing a required argument: 'total_CFs'; it takes ",
        ),
    ],
)
def test_a_call_that_dice_refuses_says_what_is_wrong(method: str, text: str) -> None:
    dice_ml = pytest.importorskip(DICE)
    table = dice_ml.Data(
        dataframe=TRAIN.assign(rich=TRAIN["pay"] > 50),
        continuous_features=["age", "pay"],
        outcome_name="rich",
    )
    dice = dice_ml.Dice(table, dice_ml.Model(model=MODEL, backend="sklearn"), method="random")
    private = protect(
        dice, model=lambda rows: (rows["pay"] > 50).to_numpy(), population=POPULATION, policy=POLICY
    )
    with pytest.raises(AdapterError, match=text):
        getattr(private, method)(QUERIES, total_CF=2)
    with pytest.raises(InputError, match=r"queries must be a table .*, got ndarray"):
        private.explain(QUERIES.to_numpy())


def test_numbers_of_numpy_are_numbers() -> None:
    plain = PrivacyPolicy(k=10, l=2, min_pureness=0.5)
    numpy = PrivacyPolicy(
        k=np.int64(10),
        l=np.int8(2),
        min_pureness=np.float32(0.5),
    )  # type: ignore[arg-type]
    assert (numpy, numpy.sha256, repr(numpy)) == (plain, plain.sha256, repr(plain))
    assert PrototypePolicy(method="dp", epsilon=np.float32(1), people=np.int64(60)).people == 60  # type: ignore[arg-type]
    assert POPULATION.risk_profile(np.int64(3)) == POPULATION.risk_profile(3)  # type: ignore[arg-type]
    assert Setting(FITTED, HIGH, seed=np.int64(1)).seed == 1  # type: ignore[arg-type]
    with pytest.raises(CFKError, match="min_pureness"):
        PrivacyPolicy(min_pureness=np.float64("nan"))  # no floor at all, if it were taken for None
