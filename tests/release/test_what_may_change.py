"""Answers obey what the schema and the call exclude, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.region import Part
from cfk_plugin.data.sentences import Answer, message
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import InputError, PrivacyLeakWarning, SchemaError
from oracle import Rules, World, advised_points, find_faults

K = 5
KEY = b"a key of this test"
QUASI = ["age", "grade", "sex", "zip"]
LEVELS = ["low", "mid", "high"]
SAVINGS = ["few", "many", "unstated"]


def people(seed: int, n: int) -> pd.DataFrame:
    """Return people with gaps, and with two categories that are written as numbers."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": random.integers(18, 70, n).astype(float),
            "grade": random.choice(LEVELS, n).astype(object),
            "sex": random.choice(["m", "f"], n).astype(object),
            "zip": random.choice([1000, 2000, 3000], n),
            "pay": random.integers(20, 70, n),
            "hours": random.choice([20, 30, 40], n),
            "shop": random.choice([1, 2, 10], n),
            "savings": random.choice(SAVINGS, n).astype(object),
            "insured": random.choice([True, False], n),
        }
    )
    for name in ("age", "savings"):
        table.loc[table.index[1:][random.random(n - 1) < 0.1], name] = None
    return table


def model(rows: pd.DataFrame) -> Any:
    """Prefer what the rules exclude, so that answers would ask for it."""
    points = rows["pay"] / 8 + rows["hours"] / 10 + rows["age"].fillna(70) / 20
    points += 3 * rows["sex"].eq("m") + 2 * rows["grade"].eq("mid") + 3 * rows["grade"].eq("high")
    points += 2 * rows["zip"].eq(1000) + 2 * rows["shop"].eq(10)
    points += 3 * rows["savings"].eq("unstated") - 2 * rows["insured"].astype(float)
    return np.where(points > 16, "yes", "no")


TRAIN = people(0, 300)
FEATURES = list(TRAIN)
STRANGERS = people(99, 200)
QUERIES = STRANGERS[model(STRANGERS) == "no"].head(25).reset_index(drop=True)
CHANGES = {
    "immutable": ["sex"],
    "monotone": {"age": "increase", "grade": "increase", "hours": "decrease"},
}
NEVER: dict[str, list[Any]] = {
    "age": [None],
    "grade": ["mid"],
    "zip": [1000],
    "savings": ["unstated", None],
    "insured": [False],
}
RANGES = {"age": [30, 50], "pay": [20, 60], "zip": [1000, 2000], "grade": ["mid", "high"]}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the schema": (CHANGES, {}),
    "fixed features": ({}, {"features_to_vary": ["age", "grade", "zip", "pay", "savings"]}),
    "ranges": ({}, {"permitted_range": RANGES}),
    "never advised": ({"never_advise": NEVER}, {}),
    "never advised and permitted": (
        {**CHANGES, "never_advise": NEVER},
        {"permitted_range": {"savings": ["unstated", "few"], "zip": [1000, 2000]}},
    ),
}


def population_of(**declared: Any) -> Population:
    schema = Schema.from_frame(
        TRAIN,
        quasi_identifiers=QUASI,
        ordinal={"grade": LEVELS},
        nominal=["zip", "shop"],
        **declared,
    )
    return Population.from_frame(TRAIN, schema, key=KEY)


def fit(guarantee: Any = "catalogue", **declared: Any) -> KAnonymizer:
    policy = PrivacyPolicy(k=K, guarantee=guarantee)
    return KAnonymizer(policy=policy).fit(population_of(**declared), model, "yes")


def rules_of(declared: dict[str, Any], call: dict[str, Any]) -> Rules:
    """Return what the oracle checks: a feature that may not vary is immutable."""
    fixed = set(FEATURES) - set(call.get("features_to_vary", FEATURES))
    return Rules(
        immutable=[*declared.get("immutable", []), *fixed],
        monotone=declared.get("monotone", {}),
        never_advise=declared.get("never_advise", {}),
        permitted_range=call.get("permitted_range", {}),
        levels={"grade": LEVELS},
    )


def world_of(rules: Rules) -> World:
    return World(
        train=TRAIN,
        quasi_identifiers=QUASI,
        predict=model,
        desired=lambda labels, _: labels == "yes",
        k=K,
        rules=rules,
    )


def permits(rules: Rules, name: str, value: Any, factual: Any) -> bool:
    """Return what the oracle says; besides, a missing value has no direction."""
    if pd.isna(value) and not pd.isna(factual):
        is_excluded = name in rules.monotone or None in rules.never_advise.get(name, ())
        return not is_excluded and rules.permits(name, value, factual)
    return rules.permits(name, value, factual)


def excluded_changes(answers: Explanations, rules: Rules) -> list[tuple[int, str]]:
    """Return the query and the column of every advised change that is excluded."""
    queries, points = advised_points(answers, QUERIES, TRAIN, rules)
    return [
        (query, name)
        for i, query in enumerate(queries)
        for name in FEATURES
        if not permits(rules, name, points[name][i], QUERIES[name][query])
    ]


@pytest.fixture(scope="module")
def free() -> Explanations:
    """Return the answers of a catalogue without rules."""
    return fit().explain(QUERIES)


@pytest.mark.parametrize("case", CASES)
def test_catalogue_answers_obey_rules(case: str, free: Explanations) -> None:
    """The same queries get answers that break the rules if nothing is declared."""
    declared, call = CASES[case]
    answers = fit(**declared).explain(QUERIES, **call)
    rules = rules_of(declared, call)
    assert excluded_changes(free, rules)
    assert len(answers.released) > 10
    assert {answer.reason for answer in answers.withheld} <= {"no_actionable_answer"}
    assert excluded_changes(answers, rules) == []
    assert find_faults(answers, world_of(rules), QUERIES) == []


def test_loaded_catalogue_obeys_rules(tmp_path: Path) -> None:
    declared, call = CASES["never advised and permitted"]
    anonymizer = fit(**declared)
    anonymizer.catalogue_.save(tmp_path / "catalogue", key=KEY)
    loaded = KAnonymizer.load(tmp_path / "catalogue", model, key=KEY)
    answers = anonymizer.explain(QUERIES, **call)
    assert loaded.explain(QUERIES, **call).to_json() == answers.to_json()


def test_person_may_keep_excluded_value() -> None:
    answers = fit(never_advise=NEVER).explain(QUERIES).released
    for name in ("grade", "zip", "insured"):
        has_value = QUERIES[name].isin(NEVER[name])
        assert any(
            has_value[answer.query] and name not in answer.changes(QUERIES.loc[answer.query])
            for answer in answers
        )


@pytest.mark.parametrize("case", CASES)
def test_lookup_withholds_only_excluded_changes(case: str) -> None:
    """Every other counterfactual is released as if there were no rules."""
    declared, call = CASES[case]
    proposals = TRAIN[model(TRAIN) == "yes"].head(len(QUERIES)).reset_index(drop=True)
    for name in ("sex", "insured", "hours", "zip", "shop", "savings"):
        candidates = proposals.assign(**{name: QUERIES[name]})  # an explainer that changes little
        proposals[name] = np.where(model(candidates) == "yes", candidates[name], proposals[name])
    policy = PrivacyPolicy(k=K, guarantee="lookup")
    private = protect(
        lambda _: proposals,
        model=model,
        population=population_of(**declared),
        policy=policy,
        desired="yes",
    )
    rules = rules_of(declared, call)
    free = fit("lookup").transform(proposals, QUERIES)
    reasons = set()
    for before, after in zip(free, private.explain(QUERIES, **call), strict=True):
        query = QUERIES.loc[after.query]
        row = proposals.loc[after.query]
        is_permitted = all(permits(rules, name, row[name], query[name]) for name in FEATURES)
        if before.status == "released" and not is_permitted:
            assert after.reason == "no_actionable_answer"
        else:
            assert after.to_dict() == before.to_dict()
        reasons.add(getattr(after, "reason", None))
    assert {None, "no_actionable_answer"} <= reasons


@pytest.mark.parametrize("declared", [CHANGES, {"never_advise": NEVER}], ids=["changes", "never"])
def test_rules_need_the_factuals(declared: dict[str, Any]) -> None:
    proposals = TRAIN[model(TRAIN) == "yes"].head(5)
    with pytest.raises(InputError, match="give the factuals"):
        fit("lookup", **declared).transform(proposals)


@pytest.mark.parametrize(
    "call", [{"features_to_vary": ["heigth"]}, {"permitted_range": {"pay": [9, 1]}}]
)
def test_impossible_call_asks_no_explainer(call: dict[str, Any]) -> None:
    def explain(queries: pd.DataFrame, **options: Any) -> pd.DataFrame:
        raise AssertionError

    private = protect(explain, model=model, population=population_of(), desired="yes")
    for ask in (private.explain, private, fit().explain):
        with pytest.raises(InputError, match=r"heigth|'pay'"):
            ask(QUERIES, **call)


# --- sentences --------------------------------------------------------------------------------------


def test_sentences_advise_no_excluded_value() -> None:
    """Unless a person has it already, no change in words names it."""
    answers = fit(never_advise=NEVER).explain(QUERIES)
    for answer in answers.released:
        for change in answer.message(QUERIES.loc[answer.query]).changes:
            advice = change.text.partition(" instead of ")[0]
            for value in NEVER.get(change.column, []):
                words = {None: "not stated", False: "“no”", 1000: "1000"}.get(value, f"“{value}”")
                assert words not in advice


ABC = Interval("a", "c", levels=("a", "b", "c"))
PARTS: list[tuple[Part, set[str | None], str]] = [
    (frozenset({"few", "many", "rare"}), {"rare"}, "“few” or “many”"),
    (frozenset({"few", None}), {None}, "“few”"),
    (Interval(1, 2, missing=True), {None}, "1 to 2"),
    (Interval(None, None, missing=True), {None}, "not stated"),
    (ABC, {"b"}, "“a” or “c”"),
    (Interval("a", "b", True, ("a", "b")), {"a", "b"}, "not stated"),
]


@pytest.mark.parametrize(("part", "excluded", "words"), PARTS)
def test_sentence_leaves_out_excluded_values(
    part: Part, excluded: set[str | None], words: str
) -> None:
    """Neither the values of a part nor the name of a hierarchy's node stand for them."""
    answer = Answer(
        parts={"savings": part},
        outcome=Outcome("yes"),
        nodes={"savings": "some"},
        never_advised={"savings": frozenset(excluded)},
    )
    assert message(answer, None, Wording()).lead.endswith(f"savings {words}.")
    (change,) = message(answer, {"savings": "own"}, Wording()).changes
    assert change.text.startswith(f"savings {words}")


# --- prototypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("serve", ["rows", "prototypes"])
def test_prototypes_obey_rules(serve: Any) -> None:
    never_advise = {name: NEVER[name] for name in ("grade", "savings")}
    population = population_of(
        columns={
            "age": Attribute(bounds=(18, 70)),
            "sex": Attribute(categories=["m", "f"]),
            "zip": Attribute(categories=[1000, 2000, 3000]),
            "pay": Attribute(bounds=(20, 70)),
            "hours": Attribute(bounds=(20, 40)),
            "shop": Attribute(categories=[1, 2, 10]),
            "savings": Attribute(categories=SAVINGS),
            "insured": Attribute(categories=[True, False]),
        },
        nullable=["age", "savings"],
        never_advise=never_advise,
    )
    settings: Any = {"rows": 1_000, "prototypes": 8, "random_state": 1, "model_access": "public"}
    prototypes = DPPrototypes(epsilon=100.0, serve=serve, **settings)
    with pytest.warns(PrivacyLeakWarning, match="seeded"):
        prototypes.fit(population, model=model, desired="yes")
    rules = Rules(never_advise=never_advise, levels={"grade": LEVELS})
    answers = prototypes.explain(QUERIES).released
    assert answers
    for answer in answers:
        for name in never_advise:
            factual = QUERIES[name][answer.query]
            assert permits(rules, name, answer.values[name], factual)


def test_prototypes_need_a_permitted_row() -> None:
    """If every drawn row has a value that is never advised, the fit is refused."""
    train = pd.DataFrame({"age": [20, 30] * 20, "job": ["clerk"] * 40})
    schema = Schema.from_frame(
        train,
        quasi_identifiers=["age"],
        columns={
            "job": Attribute(categories=["clerk", "nurse"]),
            "age": Attribute(bounds=(18, 60)),
        },
        nullable=[],
        never_advise={"job": ["clerk"]},
    )
    population = Population.from_frame(train, schema)
    prototypes = DPPrototypes(epsilon=1e6, rows=20)
    with pytest.raises(SchemaError, match="never_advise"):
        prototypes.fit(population, model=lambda rows: rows["age"] > 25, desired=True)
