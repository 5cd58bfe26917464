"""Bad input is a clear error before anything is released, or withheld with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Explanations, PrivacyPolicy
from cfk_plugin.errors import AdapterError, CFKError, InputError, ModelError, PolicyError
from worlds import World


def assert_shows_no_row(world: World, output: object) -> None:
    incomes = [*world.table["income"], *world.strangers["income"]]
    assert not [income for income in incomes if str(income) in str(output)]


def reasons(explanations: Explanations) -> list[str | None]:
    return [getattr(entry, "reason", None) for entry in explanations]


BAD_TABLES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "duplicate columns.*age": lambda rows: rows[[*rows, "age"]],
    "missing columns.*town": lambda rows: rows.drop(columns="town"),
    "at least one row": lambda rows: rows.head(0),
    "8 factuals for 2": lambda rows: rows.head(2),
}


@pytest.mark.parametrize("problem", BAD_TABLES)
def test_unusable_counterfactuals_are_refused(problem: str, applicants: World) -> None:
    """The message names what is wrong, and shows no value of a row."""
    rows = BAD_TABLES[problem](applicants.native)
    with pytest.raises(InputError, match=problem) as caught:
        applicants.lookup.transform(rows, factuals=applicants.refused)
    assert_shows_no_row(applicants, caught.value)


CALLS: list[tuple[Callable[[World, Any], Any], tuple[type[CFKError], ...]]] = [
    (lambda world, value: world.lookup.transform(value), (InputError,)),
    (lambda world, value: world.private.explain(value), (InputError,)),
    (lambda world, value: world.fit(population=value), (InputError,)),
    (lambda world, value: world.fit(model=value), (ModelError,)),
    (lambda world, value: world.protect(value, policy=PrivacyPolicy(guarantee="lookup")),
     (PolicyError, AdapterError)),
]  # fmt: skip


@pytest.mark.parametrize("value", [None, 7, "age", {"age": 1}, np.zeros((2, 5)), object()])
@pytest.mark.parametrize(("call", "errors"), CALLS)
def test_values_of_other_types_are_refused(
    call: Any, errors: Any, value: Any, applicants: World
) -> None:
    """None of them is a table, a population, a model or an explainer."""
    with pytest.raises(errors):
        call(applicants, value)


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("k", (1, -3, "ten", 2.5, None, True, float("nan"))),
        ("margin", (-0.1, 1, "much", True, None, float("nan"))),
        ("guarantee", ("absolute",)),
        ("objective", ("best",)),
        ("min_pureness", (1.5,)),
        ("max_ncp", (-0.1, float("nan"))),
        ("t", ("low",)),
        ("l", (0,)),
        ("near_native", (2,)),
    ],
)
def test_settings_out_of_range_are_named(setting: str, values: Any) -> None:
    """The message begins with the setting."""
    for value in values:
        with pytest.raises(PolicyError, match=f"^{setting}"):
            PrivacyPolicy(**{setting: value})


BAD_VALUES = [
    *(("age", value, "missing_value") for value in (np.nan, None, pd.NA)),
    *((name, np.nan, "missing_value") for name in ("income", "town")),
    *(("age", value, "invalid_value") for value in (np.inf, "eighty")),
    ("income", "1,5", "invalid_value"),
    *(("town", value, "unknown_category") for value in ("Atlantis", 4711, "antwerp ", "")),
]


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_bad_value_costs_only_its_row(guarantee: str, applicants: World) -> None:
    """The reason names the column; neither it nor its texts show a value."""
    is_catalogue = guarantee == "catalogue"
    answer = applicants.anonymizer.explain if is_catalogue else applicants.lookup.transform
    row = (applicants.refused if is_catalogue else applicants.accepted).head(1)
    rows = pd.concat([row] * (len(BAD_VALUES) + 1), ignore_index=True).astype(object)
    for i, (name, value, _) in enumerate(BAD_VALUES):
        rows.loc[i, name] = value
    result = (
        answer(rows) if is_catalogue else answer(rows, rows.assign(**applicants.refused.loc[0]))
    )
    assert reasons(result) == [*(reason for _, _, reason in BAD_VALUES), None]
    assert [entry.columns for entry in result.withheld] == [(name,) for name, _, _ in BAD_VALUES]
    texts = [entry.text(row.iloc[0].to_dict()) for entry in result.withheld]
    assert_shows_no_row(applicants, [*texts, *result.withheld, result[:-1].to_json()])


def test_values_outside_declared_bounds_are_withheld(applicants: World) -> None:
    """Bounds of a quasi-identifier, and of a private column."""
    columns = {"age": Attribute(bounds=(18, 90)), "debt": Attribute(bounds=(0, 100_000))}
    population = applicants.declare(columns=columns, monotone={}, immutable=[])
    rows = applicants.native.head(4).assign(age=[17.5, 90.0, 30.0, 31.0])
    rows["debt"] = [0, 0, -1, 0]
    result = applicants.fit(population=population, guarantee="lookup").transform(rows)
    assert reasons(result)[::2] == ["outside_domain", "outside_domain"]
    assert "outside_domain" not in reasons(result)[1::2]


def test_undesired_counterfactuals_are_withheld(applicants: World) -> None:
    """Counterfactuals that the model refuses, and those of people who have the outcome already."""
    is_refused = applicants.lookup.transform(applicants.refused, applicants.refused)
    assert set(reasons(is_refused)) == {"not_desired"}
    assert_shows_no_row(applicants, [is_refused.to_json(), *is_refused])
    opposite = applicants.fit(desired="opposite", guarantee="lookup")
    same = opposite.transform(applicants.native, factuals=applicants.native)
    assert set(reasons(same)) == {"not_desired"}
