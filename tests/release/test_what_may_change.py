"""What the schema and the call exclude, where the oracle and the stories do not look."""

from __future__ import annotations

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
from cfk_plugin.errors import InputError, SchemaError
from oracle import Rules, World, advised_points, find_faults

K = 5
QUASI = ["age", "grade", "sex", "zip"]
LEVELS = ["low", "mid", "high"]


def people(seed: int, n: int) -> pd.DataFrame:
    """Return people with gaps, and with a category that is written as a number."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": random.integers(18, 70, n).astype(float),
            "grade": random.choice(LEVELS, n).astype(object),
            "sex": random.choice(["m", "f"], n).astype(object),
            "zip": random.choice([1000, 2000, 3000], n),
            "pay": random.integers(20, 70, n),
            "savings": random.choice(["few", "many", "unstated"], n).astype(object),
            "insured": random.choice([True, False], n),
        }
    )
    for name in ("age", "savings"):
        table.loc[table.index[1:][random.random(n - 1) < 0.1], name] = None
    return table


def model(rows: pd.DataFrame) -> Any:
    """Prefer what the rules exclude, so that answers would ask for it."""
    points = rows["pay"] / 8 + rows["age"].fillna(70) / 20
    points += 3 * rows["sex"].eq("m") + 2 * rows["grade"].eq("mid") + 3 * rows["grade"].eq("high")
    points += 2 * rows["zip"].eq(1000)
    points += 3 * rows["savings"].eq("unstated") - 2 * rows["insured"].astype(float)
    return np.where(points > 12, "yes", "no")


TRAIN = people(0, 300)
STRANGERS = people(99, 200)
QUERIES = STRANGERS[model(STRANGERS) == "no"].head(25).reset_index(drop=True)
PROPOSALS = TRAIN[model(TRAIN) == "yes"].head(len(QUERIES)).reset_index(drop=True)
NEVER: dict[str, list[Any]] = {
    "age": [None],
    "grade": ["mid"],
    "zip": [1000],
    "savings": ["unstated", None],
    "insured": [False],
}
DECLARED = {"immutable": ["sex"], "monotone": {"age": "increase"}, "never_advise": NEVER}
RANGES = {"savings": ["unstated", "few"], "zip": [1000, 2000]}
RULES = Rules(**DECLARED, permitted_range=RANGES, levels={"grade": LEVELS})


def population_of(**declared: Any) -> Population:
    schema = Schema.from_frame(
        TRAIN, quasi_identifiers=QUASI, ordinal={"grade": LEVELS}, nominal=["zip"], **declared
    )
    return Population.from_frame(TRAIN, schema)


def fit(guarantee: Any = "catalogue", **declared: Any) -> KAnonymizer:
    policy = PrivacyPolicy(k=K, guarantee=guarantee)
    return KAnonymizer(policy=policy).fit(population_of(**declared), model, "yes")


def permits(name: str, value: Any, factual: Any) -> bool:
    """Return what the oracle says; besides, a missing value has no direction."""
    if pd.isna(value) and not pd.isna(factual):
        is_excluded = name in RULES.monotone or None in NEVER.get(name, ())
        return not is_excluded and RULES.permits(name, value, factual)
    return RULES.permits(name, value, factual)


def excluded_changes(answers: Explanations) -> list[tuple[int, str]]:
    """Return the query and the column of every advised change that is excluded."""
    queries, points = advised_points(answers, QUERIES, TRAIN, RULES)
    return [
        (query, name)
        for i, query in enumerate(queries)
        for name in TRAIN
        if not permits(name, points[name][i], QUERIES[name][query])
    ]


def test_answers_obey_all_rules() -> None:
    """Of the schema and the call together, with gaps and codes; without them, none is obeyed."""
    answers = fit(**DECLARED).explain(QUERIES, permitted_range=RANGES)
    world = World(
        train=TRAIN,
        quasi_identifiers=QUASI,
        predict=model,
        desired=lambda labels, _: labels == "yes",
        k=K,
        rules=RULES,
    )
    assert excluded_changes(fit().explain(QUERIES))
    assert len(answers.released) > 10
    assert {answer.reason for answer in answers.withheld} <= {"no_actionable_answer"}
    assert excluded_changes(answers) == []
    assert find_faults(answers, world, QUERIES) == []


def test_person_may_keep_excluded_value() -> None:
    """What someone has already is not advised."""
    answers = fit(never_advise=NEVER).explain(QUERIES).released
    for name in ("grade", "zip", "insured"):
        has_value = QUERIES[name].isin(NEVER[name])
        assert any(
            has_value[answer.query] and name not in answer.changes(QUERIES.loc[answer.query])
            for answer in answers
        )


def test_lookup_withholds_only_excluded_changes() -> None:
    """Every other counterfactual is released as if there were no rules."""
    proposals = PROPOSALS.copy()
    for name in ("sex", "insured", "zip", "savings"):
        candidates = proposals.assign(**{name: QUERIES[name]})  # an explainer that changes little
        proposals[name] = np.where(model(candidates) == "yes", candidates[name], proposals[name])
    private = protect(
        lambda _: proposals,
        model=model,
        population=population_of(**DECLARED),
        policy=PrivacyPolicy(k=K, guarantee="lookup"),
        desired="yes",
    )
    free = fit("lookup").transform(proposals, QUERIES)
    reasons = set()
    for before, after in zip(free, private.explain(QUERIES, permitted_range=RANGES), strict=True):
        query, row = QUERIES.loc[after.query], proposals.loc[after.query]
        is_permitted = all(permits(name, row[name], query[name]) for name in TRAIN)
        if before.status == "released" and not is_permitted:
            assert after.reason == "no_actionable_answer"
        else:
            assert after.to_dict() == before.to_dict()
        reasons.add(getattr(after, "reason", None))
    assert {None, "no_actionable_answer"} <= reasons


@pytest.mark.parametrize("declared", [{"immutable": ["sex"]}, {"never_advise": NEVER}])
def test_rules_need_the_factuals(declared: dict[str, Any]) -> None:
    """Without them nobody knows what a counterfactual changes."""
    with pytest.raises(InputError, match="give the factuals"):
        fit("lookup", **declared).transform(PROPOSALS)


@pytest.mark.parametrize(
    "call", [{"features_to_vary": ["heigth"]}, {"permitted_range": {"pay": [9, 1]}}]
)
def test_impossible_call_asks_no_explainer(call: dict[str, Any]) -> None:
    """The error names the column."""

    def explain(queries: pd.DataFrame, **options: Any) -> pd.DataFrame:
        raise AssertionError

    private = protect(explain, model=model, population=population_of(), desired="yes")
    for ask in (private.explain, private, fit().explain):
        with pytest.raises(InputError, match=r"heigth|'pay'"):
            ask(QUERIES, **call)


# --- sentences --------------------------------------------------------------------------------------

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


def prototypes_of(job: Any) -> DPPrototypes:
    """Fit prototypes of people with a job; clerk is never advised."""
    table = pd.DataFrame({"age": [20, 30] * 20, "job": job})
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["age"],
        columns={
            "job": Attribute(categories=["clerk", "nurse"]),
            "age": Attribute(bounds=(18, 60)),
        },
        nullable=[],
        never_advise={"job": ["clerk"]},
    )
    population = Population.from_frame(table, schema)
    prototypes = DPPrototypes(epsilon=1e6, rows=20)
    return prototypes.fit(population, model=lambda rows: rows["age"] > 25, desired=True)


def test_prototypes_obey_never_advise() -> None:
    """Half of the people have the value."""
    answers = prototypes_of(["clerk", "nurse"] * 20).explain(
        pd.DataFrame({"age": [20], "job": ["nurse"]})
    )
    assert {answer.values["job"] for answer in answers.released} == {"nurse"}


def test_prototypes_need_a_permitted_row() -> None:
    """If every drawn row has a value that is never advised, the fit is refused."""
    with pytest.raises(SchemaError, match="never_advise"):
        prototypes_of("clerk")
