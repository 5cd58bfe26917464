"""No answer asks for a change that is excluded: recounted in plain pandas, for every guarantee and
way to ask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.errors import InputError

QUASI, LEVELS = ["age", "grade", "sex", "zip"], ["low", "mid", "high"]
FEATURES = ["age", "sex", "grade", "zip", "pay", "hours", "job"]
K = 5
SCHEMA = {
    "immutable": ["sex"],
    "monotone": {"age": "increase", "grade": "increase", "hours": "decrease"},
}
NEVER: dict[str, list[Any]] = {"grade": ["mid"], "zip": [1000], "job": ["smith"]}
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two features fixed": ({}, {"features_to_vary": ["age", "grade", "zip", "pay", "hours"]}),
    "the schema": (SCHEMA, {}),
    "ranges": (
        {},
        {
            "permitted_range": {
                "age": [30, 50],
                "pay": [20, 60],
                "zip": [1000, 2000],
                "grade": ["mid", "high"],
            }
        },
    ),
    "all of it": (
        SCHEMA,
        {"features_to_vary": ["age", "grade", "pay", "sex"], "permitted_range": {"age": [25, 66]}},
    ),
    "values that are never advised": ({"never_advise": NEVER}, {}),
    "these too": (
        {**SCHEMA, "never_advise": NEVER},
        {"permitted_range": {"pay": [20, 69], "zip": [1000, 2000]}},
    ),
}


def table(seed: int, n: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, n).astype(float),
            "sex": rng.choice(["m", "f"], n).astype(object),
            "grade": rng.choice(LEVELS, n).astype(object),
            "zip": rng.choice([1000, 2000, 3000], n),
            "pay": rng.integers(20, 70, n),
            "hours": rng.choice([20, 30, 40], n),
            "job": rng.choice(["clerk", "nurse", "smith"], n).astype(object),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    pay, hours, age = (rows[name].to_numpy(dtype=float) for name in ("pay", "hours", "age"))
    return np.where(
        pay + hours / 4 + age / 5 + 4 * (rows["sex"] == "m") + 3 * (rows["grade"] == "high") > 62,
        "yes",
        "no",
    )


def fitted(
    train: pd.DataFrame, changes: dict[str, Any] | None = None, **settings: Any
) -> KAnonymizer:
    policy = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", **settings})
    return KAnonymizer(policy=policy).fit(
        population_of(train, **changes or {}), model=model, desired="yes"
    )


def population_of(train: pd.DataFrame, **options: Any) -> Population:
    schema = Schema.from_frame(
        train, quasi_identifiers=QUASI, ordinal={"grade": LEVELS}, nominal=["zip"], **options
    )
    return Population.from_frame(train, schema, key=b"key")


def refused(n: int) -> pd.DataFrame:
    """Return people who do not have the outcome, some with numbers that nobody else has."""
    rows = table(99, 4 * n)
    rows = rows[model(rows) == "no"].head(n).reset_index(drop=True)
    rows.loc[rows.index % 7 == 0, "age"] += 0.5
    return rows


def permits(changes: dict[str, Any], call: dict[str, Any], name: str, own: Any, value: Any) -> bool:
    """Return whether a person with a value may be told to have another one, or may keep it."""
    if value == own:
        return True
    change = changes.get("monotone", {}).get(
        name, "never" if name in changes.get("immutable", []) else "any"
    )
    change = change if name in call.get("features_to_vary", FEATURES) else "never"
    within = call.get("permitted_range", {}).get(name)
    if within is not None and not (
        within[0] <= value <= within[1] if name in ("age", "pay") else value in within
    ):
        return False
    if value in changes.get("never_advise", {}).get(name, []) and value != own:
        return False
    own, value = (LEVELS.index(each) if name == "grade" else each for each in (own, value))
    return {"any": True, "never": value == own, "increase": value >= own, "decrease": value <= own}[
        change
    ]


@pytest.fixture(scope="module", params=list(CALLS))
def case(request: pytest.FixtureRequest) -> tuple[pd.DataFrame, dict[str, Any], dict[str, Any]]:
    return (table(0), *CALLS[request.param])


def test_no_answer_of_a_catalogue_asks_for_an_excluded_change(case: Any) -> None:
    train, changes, call = case
    queries = refused(40)
    answers = fitted(train, changes).explain(queries, **call)
    assert len(answers.generalized) > 15
    assert {entry.reason for entry in answers.withheld} <= {"no_actionable_answer"}
    fixed = set(FEATURES) - {*call.get("features_to_vary", FEATURES)}
    fixed |= {*changes.get("immutable", [])}
    for entry in answers.generalized:
        query = queries.loc[entry.query]
        point = {**entry.advised, **entry.released}
        for name in FEATURES:
            assert permits(changes, call, name, query[name], point[name]), name
        assert not entry.changes(query) & fixed
        assert model(pd.DataFrame([point])) == "yes"


def test_a_lookup_withholds_what_asks_for_an_excluded_change_and_nothing_else(case: Any) -> None:
    settings = {"guarantee": "lookup"}
    train, changes, call = case
    asks, found = refused(60), train[model(train) == "yes"].head(60).reset_index(drop=True)
    for name in ("sex", "job", "hours", "zip"):  # an explainer that changes little
        found[name] = np.where(
            model(found.assign(**{name: asks[name]})) == "yes", asks[name], found[name]
        )
    free = fitted(train, **settings).transform(found, asks)
    options = {"model": model, "desired": "yes", "policy": PrivacyPolicy(k=K, **settings)}
    held = protect(lambda _: found, population=population_of(train, **changes), **options).explain(
        asks, **call
    )
    reasons = []
    for before, entry in zip(free, held, strict=True):
        query, counterfactual = asks.loc[entry.query], found.loc[entry.query]
        is_permitted = all(
            permits(changes, call, name, query[name], counterfactual[name]) for name in FEATURES
        )
        if before.status == "released" and not is_permitted:
            assert entry.reason == "no_actionable_answer"
        else:
            assert entry.to_dict() == before.to_dict()
        reasons.append(getattr(entry, "reason", None))
    assert {None, "no_actionable_answer"} <= set(reasons)


def test_who_asks_must_be_known_where_the_schema_says_what_cannot_change() -> None:
    train, asks = table(0), refused(5)
    anonymizer = fitted(train, SCHEMA, guarantee="lookup")
    found = train[model(train) == "yes"].head(5)
    with pytest.raises(InputError, match="may change; give the factuals"):
        anonymizer.transform(found)
    assert len(anonymizer.transform(found, asks)) == 5


@pytest.mark.parametrize(
    "asked", [{"features_to_vary": ["heigth"]}, {"permitted_range": {"pay": [9, 1]}}]
)
def test_a_call_that_cannot_be_meant_is_refused_before_the_explainer_is_asked(
    asked: dict[str, Any],
) -> None:
    train = table(0)

    def explain(queries: pd.DataFrame, **options: Any) -> pd.DataFrame:
        raise AssertionError

    private = protect(explain, model=model, population=population_of(train), desired="yes")
    for call in (private.explain, private, fitted(train).explain):
        with pytest.raises(InputError, match=r"heigth|'pay'"):
            call(refused(3), **asked)


@pytest.mark.parametrize("guarantee", ["catalogue", "lookup"])
def test_a_private_category_that_is_written_as_a_number_is_a_category(
    guarantee: str,
) -> None:
    numbers = {"clerk": 1, "nurse": 2, "smith": 10}
    train = table(0).assign(job=lambda rows: rows["job"].map(numbers))
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        ordinal={"grade": LEVELS},
        nominal=["zip", "job"],
    )
    policy = PrivacyPolicy(k=K, guarantee=guarantee, min_pureness=0)  # type: ignore[arg-type]
    asks = refused(30).assign(job=lambda rows: rows["job"].map(numbers))
    found = (
        train[model(train) == "yes"].head(len(asks)).reset_index(drop=True).assign(job=asks["job"])
    )
    people = Population.from_frame(train, schema, key=b"key")
    private = protect(lambda _: found, model=model, population=people, policy=policy, desired="yes")
    answers = private.explain(asks, features_to_vary=[name for name in FEATURES if name != "job"])
    assert answers.released
    assert {entry.reason for entry in answers.withheld} <= {
        "no_actionable_answer",
        "pureness_below_minimum",
    }
    shown = [
        (entry.query, entry.released["job"])
        for entry in answers.generalized
        if "job" in entry.released
    ]
    assert all(int(value) == asks["job"][query] for query, value in shown)
