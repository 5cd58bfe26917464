"""Input that must end well: a clear error before anything is released, or `Withheld` with its
reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    Attribute,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.errors import (
    AdapterError,
    InputError,
    ModelError,
    NotFittedError,
    PersonalColumnWarning,
    PolicyError,
    PopulationError,
    SchemaError,
)

QUASI = ["age", "height", "city"]


def table(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "age": 81_001 + 13 * rng.permutation(n),
            "height": (1.5037 + rng.permutation(n) / 1e3).round(4),
            "city": rng.choice(["Antwerp", "Bruges", "Ghent", "Namur"], n),
            "pay": rng.integers(20, 90, n),
            "rate": rng.normal(5, 1, n).round(3),
        }
    )


TRAIN = table()
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=QUASI)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
RAW = TRAIN[TRAIN["pay"] > 40].head(4).reset_index(drop=True)
REFUSED = TRAIN[TRAIN["pay"] <= 40].head(4).reset_index(drop=True)
POLICY = PrivacyPolicy(guarantee="lookup", k=4)
GUARANTEES = ["lookup", "catalogue"]


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 40).to_numpy().astype(int)


def fitted(
    answer: Any = model,
    desired: Any = 1,
    population: Population = POPULATION,
    policy: PrivacyPolicy = POLICY,
) -> KAnonymizer:
    return KAnonymizer(policy=policy).fit(population, model=answer, desired=desired)


@cache
def shared(guarantee: Any = "lookup") -> KAnonymizer:
    return fitted(policy=replace(POLICY, guarantee=guarantee))


def shows_a_row(shown: object) -> bool:
    return any(str(value) in str(shown) for name in ("age", "height") for value in TRAIN[name])


def reasons(explanations: Explanations) -> list[str | None]:
    return [getattr(entry, "reason", None) for entry in explanations]


# --- schemas, tables and policies -----------------------------------------------------------------


def test_columns_that_are_doubled_or_missing_are_named() -> None:
    doubled = TRAIN[[*TRAIN.columns, "age"]]
    with pytest.raises(SchemaError, match="same name"):
        Schema.from_frame(doubled, quasi_identifiers=["age"])
    with pytest.raises(PopulationError, match="duplicate columns"):
        Population.from_frame(doubled, SCHEMA)
    with pytest.raises(SchemaError, match="'age' is quasi-identifier and"):
        Schema.from_frame(TRAIN, quasi_identifiers=["age", "age"])
    with pytest.raises(SchemaError, match="one role"):
        Schema.from_frame(TRAIN, quasi_identifiers=["age"], sensitive=["age"])
    with pytest.raises(PopulationError, match="city"):
        Population.from_frame(TRAIN.drop(columns="city"), SCHEMA)
    with pytest.raises(InputError, match=r"duplicate columns \['age'\]"):
        shared().transform(RAW[[*RAW.columns, "age"]])
    with pytest.raises(InputError, match=r"missing columns \['city'\]"):
        shared().transform(RAW.drop(columns="city"))
    # its values are names of columns
    turned = RAW.set_index(pd.Index([str(RAW["age"][0])] * len(RAW))).T
    with pytest.raises(InputError) as caught:
        shared().transform(turned)
    assert not shows_a_row(caught.value)


@pytest.mark.parametrize("empty", [RAW.head(0), pd.DataFrame(), pd.DataFrame(index=[0, 1])])
def test_an_empty_table_is_refused(empty: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="at least one row"):
        shared().transform(empty)
    with pytest.raises(SchemaError, match="at least one row"):
        Schema.from_frame(empty, quasi_identifiers=[])
    with pytest.raises(PopulationError, match="at least one row"):
        Population.from_frame(empty, SCHEMA)


@pytest.mark.parametrize("other", [None, 7, "age", [1, 2], {"age": 1}, np.zeros((2, 5))])
def test_what_is_no_table_is_refused(other: Any) -> None:
    with pytest.raises(InputError, match="must be a table"):
        shared().transform(other)
    with pytest.raises(InputError, match="must be a table"):
        shared().transform(RAW, factuals=other if other is not None else 0)
    with pytest.raises(InputError, match="Population"):
        KAnonymizer().fit(other, model=model, desired=1)


def test_calls_at_the_wrong_time_or_with_too_few_factuals_are_refused() -> None:
    with pytest.raises(InputError, match="2 factuals for 4"):
        fitted(desired="opposite").transform(RAW, factuals=RAW.head(2))
    with pytest.raises(NotFittedError, match="fit"):
        KAnonymizer().transform(RAW)
    for method in ("safest", None, 7):
        with pytest.raises(InputError, match="method"):
            KAnonymizer(policy=POLICY, method=method).fit(POPULATION, model=model, desired=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 0, -3, "ten", 2.5, None, True, float("nan"), [10]])
def test_k_is_a_whole_number_from_2(k: Any) -> None:
    with pytest.raises(PolicyError, match="k must be a whole number >= 2"):
        PrivacyPolicy(guarantee="lookup", k=k)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_k_is_at_most_the_number_of_people(guarantee: Any) -> None:
    for k in (10**30, len(TRAIN) + 1):
        with pytest.raises(PolicyError, match="above the number of people, 80"):
            fitted(policy=PrivacyPolicy(guarantee=guarantee, k=k))
    whole = PrivacyPolicy(guarantee=guarantee, k=len(TRAIN), objective="ncp", min_pureness=0)
    if guarantee == "catalogue":  # only those with the desired outcome count, and they are fewer
        with pytest.raises(PolicyError, match="desired outcome form no group with k = 80, so"):
            fitted(policy=whole)
    else:
        everybody = fitted(policy=whole).transform(RAW)
        assert [entry.certificate.k for entry in everybody.released] == [len(TRAIN)] * len(RAW)
    with pytest.raises(PolicyError, match="sensitive"):
        fitted(policy=PrivacyPolicy(guarantee=guarantee, k=4, l=2))


@pytest.mark.parametrize(
    "setting",
    [
        {"guarantee": "absolute"},
        {"objective": "best"},
        {"min_pureness": 1.5},
        {"max_ncp": -0.1},
        {"max_ncp": float("nan")},
        {"t": "low"},
        {"l": 0},
        {"near_native": 2},
    ],
)
def test_settings_of_a_policy_that_are_out_of_range_are_named(setting: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(setting))):
        PrivacyPolicy(**setting)


def test_columns_that_cannot_be_counted_are_refused_by_name() -> None:
    for missing in (np.nan, None, pd.NA, pd.NaT):
        with pytest.raises(SchemaError, match="'nothing' has no value at all"):
            Schema.from_frame(TRAIN.assign(nothing=missing), quasi_identifiers=["age", "nothing"])
    for bad in (np.inf, -np.inf):
        with pytest.raises(PopulationError, match="'height'") as caught:
            Population.from_frame(TRAIN.assign(height=[bad, *TRAIN["height"][1:]]), SCHEMA)
        assert not shows_a_row(caught.value)


def test_a_quasi_identifier_of_a_hundred_thousand_texts() -> None:
    n, rng = 100_000, np.random.default_rng(0)
    texts = np.char.add("code-", np.arange(n).astype(str))
    train = pd.DataFrame(
        {"code": texts, "age": rng.integers(18, 90, n), "pay": rng.integers(20, 90, n)}
    )
    people = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["code", "age"])
    )
    result = fitted(population=people).transform(train[train["pay"] > 40].head(3))
    assert len(result) == 3
    for entry in result.generalized:
        code, age = entry.region["code"], entry.region["age"]
        inside = train["code"].isin(code) & train["age"].between(age.low, age.high)  # type: ignore[arg-type, union-attr]
        assert inside.sum() == entry.certificate.k >= 4


# --- values of counterfactuals --------------------------------------------------------------------

BAD_VALUES = [
    *((name, value, "missing_value") for name in ("age", "pay") for value in (np.nan, None, pd.NA)),
    *((name, np.nan, "missing_value") for name in ("height", "rate", "city")),
    *(("age", value, "invalid_value") for value in (np.inf, "eighty")),
    *(("height", value, "invalid_value") for value in (-np.inf, "1,5")),
    *(("rate", value, "invalid_value") for value in (np.inf, "")),
    *(("city", value, "unknown_category") for value in ("Atlantis", 4711, "antwerp ", "")),
]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_bad_value_costs_its_own_row_alone(guarantee: str) -> None:
    def answer(rows: pd.DataFrame) -> Explanations:
        anonymizer = shared(guarantee)
        return anonymizer.explain(rows) if guarantee == "catalogue" else anonymizer.transform(rows)

    row = (REFUSED if guarantee == "catalogue" else RAW).head(1)
    good = answer(row)[0]
    bad = pd.concat([row] * (len(BAD_VALUES) + 1), ignore_index=True).astype(object)
    for i, (name, value, _) in enumerate(BAD_VALUES):
        bad.loc[i, name] = value
    result = answer(bad)
    assert reasons(result) == [*(reason for _, _, reason in BAD_VALUES), None]
    assert [entry.columns for entry in result.withheld] == [(name,) for name, _, _ in BAD_VALUES]
    assert {**result[-1].to_dict(), "query": 0} == good.to_dict()
    told = [entry.text(row.iloc[0].to_dict()) for entry in result.withheld]
    assert not shows_a_row([*told, *result.withheld, result[:-1].to_json()])
    two_faults = row.assign(age=np.inf, city="Atlantis")
    assert reasons(answer(two_faults)) == ["invalid_value"]


def test_values_outside_of_declared_bounds_are_withheld() -> None:
    schema = Schema.from_frame(
        TRAIN,
        quasi_identifiers=QUASI,
        columns={"age": Attribute(bounds=(81_000, 99_000)), "rate": Attribute(bounds=(0, 100))},
    )
    changed = RAW.astype({"age": float})
    changed.loc[0, "age"], changed.loc[1, "age"] = 80_999.5, 99_000.0
    changed.loc[2, "rate"] = -1.0
    result = fitted(population=Population.from_frame(TRAIN, schema)).transform(changed)
    assert reasons(result) == ["outside_domain", None, "outside_domain", None]


SPELLED: list[Callable[[pd.DataFrame], pd.DataFrame]] = [
    *(
        lambda f, dtype=dtype: f.astype({"age": dtype})
        for dtype in (str, float, "Int64", "string", "category")
    ),
    lambda f: f.assign(age=f["age"].map("{:.1f}".format)),
    lambda f: f.astype({"pay": str, "rate": str, "height": str}),
    lambda f: f.astype({"city": "category"}),
    lambda f: f.astype(object),
    lambda f: f.astype(str),
    lambda f: f.set_index(pd.Index(["same"] * len(f))),
    lambda f: f[f.columns[::-1]].assign(label=1, name="somebody"),
]


def test_spelling_order_and_further_columns_make_no_difference_and_the_model_never_sees_them() -> (
    None
):
    seen: list[pd.Series] = []

    def watching(rows: pd.DataFrame) -> Any:
        seen.append(rows.dtypes)
        return model(rows)

    anonymizer, good = fitted(watching), shared().transform(RAW)
    for spelled in SPELLED:
        result = anonymizer.transform(spelled(RAW))
        assert result == good
        assert result.to_json() == good.to_json()
    assert all(dtypes.equals(TRAIN.dtypes) for dtypes in seen)


# --- models and goals -----------------------------------------------------------------------------


def test_what_is_no_model_of_this_table_is_refused() -> None:
    for other in (None, 7, "model", object()):
        with pytest.raises(ModelError, match="predict"):
            fitted(other)
    regression = LinearRegression().fit(
        TRAIN[["age"]].rename(columns={"age": "years"}), TRAIN["pay"]
    )
    with pytest.raises(ModelError, match="years"):
        fitted(regression, desired=lambda labels: labels > 50)
    tree = DecisionTreeClassifier(max_depth=2).fit(TRAIN[["age", "pay"]], model(TRAIN))
    for desired in ("1", 2, ">50K"):
        with pytest.raises(ModelError, match="not one of the model's classes"):
            fitted(tree, desired)


@pytest.mark.parametrize(
    "desired",
    [
        None,
        np.nan,
        pd.NA,
        [1],
        np.array([1]),
        {"label": 1},
        set(),
        lambda labels: labels,
        lambda labels: True,
    ],
)
def test_what_is_no_goal_is_refused(desired: Any) -> None:
    with pytest.raises(ModelError, match="desired"):
        fitted(desired=desired)


def test_an_undesired_counterfactual_is_withheld() -> None:
    mixed = pd.concat([RAW.head(2), TRAIN[TRAIN["pay"] <= 40].head(2)], ignore_index=True)
    result = shared().transform(mixed)
    assert reasons(result) == [None, None, "not_desired", "not_desired"]
    assert not shows_a_row([result[2:].to_json(), *result[2:]])
    assert reasons(fitted(desired="opposite").transform(RAW, factuals=RAW)) == [
        "not_desired"
    ] * len(RAW)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_bad_value_does_not_warn(guarantee: str) -> None:
    anonymizer = shared(guarantee)  # which warns if the guarantee is lookup
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PersonalColumnWarning)
        anonymizer.transform(RAW.assign(age=["eighty", 81_001, 81_014, 81_027]), REFUSED)


# --- explainers -----------------------------------------------------------------------------------


def explain(answer: Any, queries: Any = REFUSED) -> Explanations:
    private = protect(
        lambda rows: answer, model=model, population=POPULATION, policy=POLICY, desired=1
    )
    result: Explanations = private.explain(queries)
    return result


@pytest.mark.parametrize(
    "nothing", [None, [], (), pd.DataFrame(), RAW.head(0), [None] * 4, RAW.mask(RAW.notna())]
)
def test_an_explainer_may_find_nothing(nothing: Any) -> None:
    assert reasons(explain(nothing)) == ["none_found"] * len(RAW)


def test_answers_are_told_apart_by_index_or_query() -> None:
    assert reasons(explain(RAW.iloc[[0, 2]])) == [None, "none_found", None, "none_found"]
    assert reasons(explain(RAW.head(2).assign(query=[3, 1]))) == [
        "none_found",
        None,
        "none_found",
        None,
    ]
    several = explain(pd.concat([RAW, RAW]).assign(query=[0, 1, 2, 3] * 2, name="somebody"))
    assert [entry.query for entry in several] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert "somebody" not in several.to_json()
    for answer, said in (
        (RAW.head(2).set_index(pd.Index([70, 71])), "2 rows"),
        (pd.concat([RAW, RAW]), "8 rows"),
    ):
        with pytest.raises(AdapterError, match=f"{said} for 4 queries") as caught:
            explain(answer)
        assert not shows_a_row(caught.value)
    bad = RAW.astype(object).assign(age=["eighty", 81_001, np.inf, RAW["age"][3]])
    bad.loc[1, "city"] = "Atlantis"
    assert reasons(explain(bad)) == ["invalid_value", "unknown_category", "invalid_value", None]


def test_queries_and_explainers_that_are_none_are_refused() -> None:
    for bad in (RAW.drop(columns="city"), RAW.head(0), RAW[[*RAW.columns, "age"]], "row", None):
        with pytest.raises(InputError):
            explain(RAW, bad)
    for explainer in (None, 7, "explainer", object(), pd.DataFrame):
        with pytest.raises(PolicyError if explainer is None else AdapterError):
            protect(explainer, model=model, population=POPULATION, policy=POLICY)
