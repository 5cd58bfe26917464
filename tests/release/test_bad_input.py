"""Bad input is a clear error before anything is released, or withheld with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

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
    CFKError,
    InputError,
    ModelError,
    PolicyError,
    PopulationError,
)

QUASI = ["age", "height", "city"]
RANDOM = np.random.default_rng(11)
N = 80
TRAIN = pd.DataFrame(
    {
        "age": 81_001 + 13 * RANDOM.permutation(N),  # a value shows whose row it is from
        "height": (1.5037 + RANDOM.permutation(N) / 1e3).round(4),
        "city": RANDOM.choice(["Antwerp", "Bruges", "Ghent", "Namur"], N),
        "pay": RANDOM.integers(20, 90, N),
        "rate": RANDOM.normal(5, 1, N).round(3),
    }
)
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=QUASI)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
GRANTED = TRAIN[TRAIN["pay"] > 40].head(4).reset_index(drop=True)
REFUSED = TRAIN[TRAIN["pay"] <= 40].head(4).reset_index(drop=True)
POLICY = PrivacyPolicy(guarantee="lookup", k=4)
DOUBLED = [*TRAIN.columns, "age"]


def model(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 40).to_numpy().astype(int)


def fit(
    model: Any = model,
    desired: Any = 1,
    population: Any = POPULATION,
    policy: PrivacyPolicy = POLICY,
) -> KAnonymizer:
    return KAnonymizer(policy=policy).fit(population, model=model, desired=desired)


LOOKUP = fit()


def assert_shows_no_row(output: object) -> None:
    text = str(output)
    values = [*TRAIN["age"], *TRAIN["height"]]
    assert not [value for value in values if str(value) in text]


def reasons(explanations: Explanations) -> list[str | None]:
    return [getattr(entry, "reason", None) for entry in explanations]


def explain(answer: Any, queries: Any = REFUSED) -> Explanations:
    """Ask an explainer that has one answer."""
    private = protect(
        lambda rows: answer, model=model, population=POPULATION, policy=POLICY, desired=1
    )
    result: Explanations = private.explain(queries)
    return result


# --- tables, policies, models and goals -------------------------------------------------------------

INFINITE = TRAIN.assign(height=[np.inf, *TRAIN["height"][1:]])
CALLS: dict[str, tuple[Callable[[], Any], type[CFKError], str]] = {
    "table with a column twice": (
        lambda: Population.from_frame(TRAIN[DOUBLED], SCHEMA),
        PopulationError,
        "duplicate columns",
    ),
    "table without a column": (
        lambda: Population.from_frame(TRAIN.drop(columns="city"), SCHEMA),
        PopulationError,
        "city",
    ),
    "table without rows": (
        lambda: Population.from_frame(TRAIN.head(0), SCHEMA),
        PopulationError,
        "at least one row",
    ),
    "infinite number": (
        lambda: Population.from_frame(INFINITE, SCHEMA),
        PopulationError,
        "'height'",
    ),
    "counterfactuals with a column twice": (
        lambda: LOOKUP.transform(GRANTED[DOUBLED]),
        InputError,
        "duplicate columns.*age",
    ),
    "counterfactuals without a column": (
        lambda: LOOKUP.transform(GRANTED.drop(columns="city")),
        InputError,
        "missing columns.*city",
    ),
    "no counterfactual": (
        lambda: LOOKUP.transform(GRANTED.head(0)),
        InputError,
        "at least one row",
    ),
    "too few factuals": (
        lambda: LOOKUP.transform(GRANTED, factuals=GRANTED.head(2)),
        InputError,
        "2 factuals for 4",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_is_refused(name: str) -> None:
    """The message names what is wrong, and shows no value of a row."""
    call, error, word = CALLS[name]
    with pytest.raises(error, match=word) as caught:
        call()
    assert_shows_no_row(caught.value)


@pytest.mark.parametrize("value", [None, 7, "age", {"age": 1}, np.zeros((2, 5)), object()])
def test_values_of_other_types_are_refused(value: Any) -> None:
    """None of them is a table, a population, a model or an explainer."""
    with pytest.raises(InputError, match="must be a table"):
        LOOKUP.transform(value)
    with pytest.raises(InputError, match="must be a table"):
        explain(GRANTED, value)
    with pytest.raises(InputError, match="Population"):
        fit(population=value)
    with pytest.raises(ModelError, match="predict"):
        fit(value)
    with pytest.raises((PolicyError, AdapterError)):
        protect(value, model=model, population=POPULATION, policy=POLICY)


NO_GOALS = [None, np.nan, pd.NA, [1], np.array([1]), {"label": 1}, set(), lambda labels: True]


@pytest.mark.parametrize("desired", NO_GOALS)
def test_impossible_goals_are_refused(desired: Any) -> None:
    with pytest.raises(ModelError, match="desired"):
        fit(desired=desired)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("k", value) for value in (1, 0, -3, "ten", 2.5, None, True, float("nan"), [10])),
        *(("margin", value) for value in (-0.1, 1, "much", True, None, float("nan"))),
        ("guarantee", "absolute"),
        ("objective", "best"),
        ("min_pureness", 1.5),
        ("max_ncp", -0.1),
        ("max_ncp", float("nan")),
        ("t", "low"),
        ("l", 0),
        ("near_native", 2),
    ],
)
def test_settings_out_of_range_are_named(setting: str, value: Any) -> None:
    with pytest.raises(PolicyError, match=f"^{setting}"):
        PrivacyPolicy(**{setting: value})


# --- values of counterfactuals and queries ----------------------------------------------------------

BAD_VALUES = [
    *((name, value, "missing_value") for name in ("age", "pay") for value in (np.nan, None, pd.NA)),
    *((name, np.nan, "missing_value") for name in ("height", "rate", "city")),
    *(("age", value, "invalid_value") for value in (np.inf, "eighty")),
    *(("height", value, "invalid_value") for value in (-np.inf, "1,5")),
    ("rate", "", "invalid_value"),
    *(("city", value, "unknown_category") for value in ("Atlantis", 4711, "antwerp ", "")),
]


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_bad_value_costs_only_its_row(guarantee: Any) -> None:
    """The reason names the column; neither it nor its texts show a value."""
    anonymizer = fit(policy=replace(POLICY, guarantee=guarantee))
    is_catalogue = guarantee == "catalogue"
    answer = anonymizer.explain if is_catalogue else anonymizer.transform
    row = (REFUSED if is_catalogue else GRANTED).head(1)
    rows = pd.concat([row] * (len(BAD_VALUES) + 1), ignore_index=True).astype(object)
    for i, (name, value, _) in enumerate(BAD_VALUES):
        rows.loc[i, name] = value
    result = answer(rows)
    assert reasons(result) == [*(reason for _, _, reason in BAD_VALUES), None]
    assert [entry.columns for entry in result.withheld] == [(name,) for name, _, _ in BAD_VALUES]
    assert {**result[-1].to_dict(), "query": 0} == answer(row)[0].to_dict()
    texts = [entry.text(row.iloc[0].to_dict()) for entry in result.withheld]
    assert_shows_no_row([*texts, *result.withheld, result[:-1].to_json()])


def test_values_outside_declared_bounds_are_withheld() -> None:
    bounds = {"age": Attribute(bounds=(81_000, 99_000)), "rate": Attribute(bounds=(0, 100))}
    schema = Schema.from_frame(TRAIN, quasi_identifiers=QUASI, columns=bounds)
    rows = GRANTED.assign(age=[80_999.5, 99_000.0, 81_001.0, 81_014.0])
    rows.loc[2, "rate"] = -1.0
    result = fit(population=Population.from_frame(TRAIN, schema)).transform(rows)
    assert reasons(result) == ["outside_domain", None, "outside_domain", None]


SPELLINGS: list[Callable[[pd.DataFrame], pd.DataFrame]] = [
    lambda rows: rows.astype({"age": "Int64", "city": "category"}),
    lambda rows: rows.assign(age=rows["age"].map("{:.1f}".format)),
    lambda rows: rows.astype(str),
    lambda rows: rows.set_index(pd.Index(["same"] * len(rows))),
    lambda rows: rows[rows.columns[::-1]].assign(label=1, name="somebody"),
]


@pytest.mark.parametrize("spell", SPELLINGS)
def test_spelling_makes_no_difference(spell: Any) -> None:
    """Dtypes, order and further columns change no answer, and the model never sees them."""
    dtypes = []

    def watching(rows: pd.DataFrame) -> Any:
        dtypes.append(rows.dtypes)
        return model(rows)

    result = fit(watching).transform(spell(GRANTED))
    assert result.to_json() == LOOKUP.transform(GRANTED).to_json()
    assert all(of_call.equals(TRAIN.dtypes) for of_call in dtypes)


def test_undesired_counterfactuals_are_withheld() -> None:
    rows = pd.concat([GRANTED.head(2), REFUSED.head(2)], ignore_index=True)
    result = LOOKUP.transform(rows)
    assert reasons(result) == [None, None, "not_desired", "not_desired"]
    assert_shows_no_row([result[2:].to_json(), *result[2:]])
    same = fit(desired="opposite").transform(GRANTED, factuals=GRANTED)
    assert set(reasons(same)) == {"not_desired"}


# --- answers of explainers --------------------------------------------------------------------------

BAD_ROWS = GRANTED.astype(object).assign(age=["eighty", 81_001, np.inf, GRANTED["age"][3]])
BAD_ROWS.loc[1, "city"] = "Atlantis"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (GRANTED.iloc[[0, 2]], [None, "none_found", None, "none_found"]),
        (GRANTED.head(2).assign(query=[3, 1]), ["none_found", None, "none_found", None]),
        (BAD_ROWS, ["invalid_value", "unknown_category", "invalid_value", None]),
    ],
    ids=["by index", "by query", "bad values"],
)
def test_answers_are_matched_to_queries(answer: pd.DataFrame, expected: list[str | None]) -> None:
    assert reasons(explain(answer)) == expected
