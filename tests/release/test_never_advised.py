"""No answer tells a person to change to a value that is never advised: compared with plain Python on
small random tables, for every way to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from cfk_plugin.data.region import Part, part_contains, to_text
from cfk_plugin.data.sentences import Answer, message
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import InputError, PersonalColumnWarning, PrivacyLeakWarning, SchemaError

LEVELS = ["low", "mid", "high", "top"]
TOWNS = {"Aix": ["north"], "Bonn": ["north"], "Chur": ["south"], "Dole": ["south"]}
QUASI = ["age", "grade", "town", "home"]
FEATURES = ["age", "grade", "town", "home", "job", "savings", "insured", "pay"]
NEVER: dict[str, list[Any]] = {
    "age": [None],
    "grade": ["mid"],
    "town": ["Bonn", "Chur"],
    "home": ["unstated", None],
    "job": ["none"],
    "savings": ["unstated", None],
    "insured": [False],
    "pay": [None],
}
K = 3


def table(seed: int, n: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "age": rng.integers(18, 60, n).astype(float),
            "grade": rng.choice(LEVELS, n).astype(object),
            "town": rng.choice([*TOWNS], n).astype(object),
            "home": rng.choice(["owned", "rented", "unstated"], n).astype(object),
            "job": rng.choice(["clerk", "nurse", "none"], n).astype(object),
            "savings": rng.choice(["few", "many", "unstated"], n).astype(object),
            "insured": rng.choice([True, False], n),
            "pay": rng.integers(20, 70, n).astype(float),
        }
    )
    for name in ("age", "home", "savings", "pay"):
        rows.loc[rows.index[1:][rng.random(n - 1) < 0.15], name] = None
    return rows


def model(rows: pd.DataFrame) -> np.ndarray:
    """Accept people for what must not be advised, so that answers would ask for it."""
    score = rows["pay"].fillna(75).to_numpy(dtype=float) / 6
    score = score + 3 * (rows["savings"].isna() | rows["savings"].eq("unstated"))
    score = score + 2 * rows["job"].eq("none") + 2 * rows["home"].eq("unstated")
    score = score + 2 * rows["town"].isin(["Bonn", "Chur"]) + rows["grade"].eq("mid")
    score = score - rows["insured"].astype(float) + rows["age"].fillna(70) / 30
    return np.where(score > 13, "yes", "no")


def population(train: pd.DataFrame, never_advise: Any = NEVER) -> Population:
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        ordinal={"grade": LEVELS},
        columns={"town": Attribute(hierarchy=TOWNS)},
        never_advise=never_advise,
    )
    return Population.from_frame(train, schema, key=b"key")


def refused(seed: int, n: int = 25) -> pd.DataFrame:
    rows = table(seed + 1000, 6 * n)
    return rows[model(rows) == "no"].head(n).reset_index(drop=True)


def texts_of(values: list[Any]) -> set[str | None]:
    return {None if value is None else to_text(value) for value in values}


def values_inside(part: Part) -> list[Any]:
    """Return the values of a part: of a range of numbers, one that stands for all."""
    if isinstance(part, frozenset):
        return list(part)
    values: list[Any] = [] if part.low is None else list(part.levels or [part.low])
    return [*values, None] if part.missing else values


def advises_excluded(part: Part, name: str, own: Any) -> bool:
    """Return whether a part leaves a person nothing but values that are never advised."""
    if part_contains(part, own):
        return False
    return texts_of(values_inside(part)) <= texts_of(NEVER[name])


def faults(answers: Explanations, people: pd.DataFrame) -> list[tuple[int, str]]:
    """Return the query and the column of every change that must not be asked for."""
    return [
        (entry.query, name)
        for entry in answers.generalized
        for name, part in {**entry.parts(), **parts_of(entry.advised)}.items()
        if advises_excluded(part, name, people[name].iloc[entry.query])
    ]


def parts_of(values: Mapping[str, Any]) -> dict[str, Part]:
    return {name: frozenset({value}) for name, value in values.items()}


def fitted(train: pd.DataFrame, never_advise: Any = NEVER, **settings: Any) -> KAnonymizer:
    policy = PrivacyPolicy(**{"k": K, **settings})
    people = population(train, never_advise)
    return KAnonymizer(policy=policy).fit(people, model=model, desired="yes")


@pytest.mark.parametrize("seed", range(2))
def test_no_answer_of_a_catalogue_changes_a_value_to_one_that_is_never_advised(seed: int) -> None:
    train, people = table(seed), refused(seed)
    free = fitted(train, None).explain(people, answers=2)
    held = fitted(train).explain(people, answers=2)
    assert faults(free, people)  # or the test would show nothing
    assert len(held.released) > 5
    assert not faults(held, people)


def test_a_person_may_keep_a_value_that_is_never_advised() -> None:
    people = refused(2, 60)
    answers = fitted(table(2)).explain(people)
    for name in ("home", "job", "savings", "insured"):
        never_advised = texts_of(NEVER[name])
        kept = [
            entry.query
            for entry in answers.generalized
            if part_contains(entry.parts()[name], own := people[name].iloc[entry.query])
            and (None if pd.isna(own) else to_text(own)) in never_advised
        ]
        assert kept, name


def changes_in_words(answers: Explanations, people: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the column and the words for its new value, of every change that is asked for."""
    changes = []
    for entry in answers.generalized:
        for change in entry.message(people.iloc[entry.query]).changes:
            changes.append((change.column, change.text.partition(" instead of ")[0]))
    return changes


@pytest.mark.parametrize("seed", range(2))
def test_no_sentence_names_a_value_that_is_never_advised_as_a_change(seed: int) -> None:
    people = refused(seed, 40)
    said = changes_in_words(fitted(table(seed)).explain(people), people)
    assert said
    for name, text in said:
        words = [f"“{word}”" for word in texts_of(NEVER[name]) if word is not None]
        assert not any(word in text for word in words), (name, text)
        assert None not in NEVER[name] or "not stated" not in text


@pytest.mark.parametrize(
    ("part", "never_advised", "expected"),
    [
        (frozenset({"few", "many", "unstated"}), {"unstated"}, "savings “few” or “many”"),
        (frozenset({"few", None}), {None}, "savings “few”"),
        (frozenset({"unstated"}), {"unstated"}, "savings “unstated”"),  # a person's own
        (Interval(1, 2, missing=True), {None}, "savings 1 to 2"),
        (Interval(None, None, missing=True), {None}, "savings not stated"),
        (Interval("a", "c", levels=("a", "b", "c")), {"b"}, "savings “a” or “c”"),
        (Interval("a", "c", levels=("a", "b", "c")), {"a"}, "savings “b” or “c”"),
        (Interval("a", "e", levels=(*"abcde",)), {"e"}, "savings “a” to “d”"),
        (
            Interval("a", "f", True, (*"abcdef",)),
            {"d", None},
            "savings “a”, “b”, “c” or one of two more",
        ),
        (Interval("a", "b", True, ("a", "b")), {"a", "b"}, "savings not stated"),
    ],
)
def test_a_sentence_leaves_out_what_is_never_advised_of_a_part(
    part: Part, never_advised: set[str | None], expected: str
) -> None:
    never = {"savings": frozenset(never_advised)}
    answer = Answer(parts={"savings": part}, outcome=Outcome("yes"), nodes={}, never_advised=never)
    assert message(answer, None, Wording()).lead.endswith(f"{expected}.")
    change = message(answer, {"savings": "own"}, Wording()).changes[0].text
    assert change.startswith(expected)


def test_the_name_of_a_hierarchy_does_not_hide_a_value_that_is_never_advised() -> None:
    answer = Answer(
        parts={"town": frozenset({"Aix", "Bonn"})},
        outcome=Outcome("yes"),
        nodes={"town": "north"},
    )
    assert "north" in str(message(answer, None, Wording()))
    never = {"town": frozenset({"Bonn"})}
    held = Answer(
        parts=answer.parts, outcome=answer.outcome, nodes=answer.nodes, never_advised=never
    )
    assert str(message(held, None, Wording())).endswith("town “Aix”.")


@pytest.mark.parametrize("guarantee", ["catalogue", "lookup"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.LookupGuaranteeWarning")
def test_what_an_explainer_found_is_held_to_it(guarantee: str, seed: int) -> None:
    train, people = table(seed), refused(seed)
    found = train[model(train) == "yes"].head(len(people)).reset_index(drop=True)
    policy = PrivacyPolicy(k=K, guarantee=guarantee, min_pureness=0)
    answers = {
        name: protect(
            lambda _: found,
            model=model,
            population=population(train, never_advise),
            policy=policy,
            desired="yes",
        ).explain(people)
        for name, never_advise in {"free": None, "held": NEVER}.items()
    }
    assert faults(answers["free"], people)
    assert not faults(answers["held"], people)
    if guarantee == "catalogue":
        assert len(answers["held"].released) > 10
    else:  # what was found is released as before, or not at all
        excluded = {query for query, _ in faults(answers["free"], people)}
        for before, after in zip(answers["free"], answers["held"], strict=True):
            if before.status == "released" and before.query not in excluded:
                assert getattr(after, "reason", None) in (None, "no_actionable_answer")
            elif before.status == "released":
                assert after.reason == "no_actionable_answer"


def test_factuals_are_needed_and_given_counterfactuals_are_held_to_it() -> None:
    train, people = table(1), refused(1)
    found = train[model(train) == "yes"].head(len(people)).reset_index(drop=True)
    anonymizer = fitted(train, guarantee="lookup", min_pureness=0)
    with pytest.raises(InputError, match="may change; give the factuals"):
        anonymizer.transform(found)
    assert not faults(anonymizer.transform(found, people), people)


def test_a_call_cannot_permit_what_the_schema_never_advises() -> None:
    people = refused(0, 40)
    asked = {"savings": ["unstated", "few"], "job": ["none"]}
    answers = fitted(table(0)).explain(people, permitted_range=asked)
    assert answers.released
    assert not faults(answers, people)
    for entry in answers.generalized:
        own = people.iloc[entry.query]
        assert entry.released["job"] == own["job"]  # it may only be kept
        own_savings = None if pd.isna(own["savings"]) else own["savings"]
        assert entry.released["savings"] in ("few", own_savings)


def test_a_loaded_catalogue_gives_the_same_answers(tmp_path: Path) -> None:
    people = refused(3, 40)
    here = fitted(table(3))
    here.catalogue_.save(tmp_path / "catalogue", key=b"key")
    there = KAnonymizer.load(tmp_path / "catalogue", model, key=b"key")
    assert there.schema_.never_advised == here.schema_.never_advised
    answers = there.explain(people)
    assert answers.to_json() == here.explain(people).to_json()
    assert answers.released


@pytest.mark.parametrize(("serve", "move_towards_query"), [("rows", True), ("prototypes", False)])
def test_prototypes_are_held_to_it(serve: Any, move_towards_query: bool) -> None:
    train, people = table(0), refused(0, 40)
    never_advise = {name: NEVER[name] for name in ("grade", "savings", "pay")}
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        ordinal={"grade": LEVELS},
        columns={
            "town": Attribute(hierarchy=TOWNS),
            "home": Attribute(categories=["owned", "rented", "unstated"]),
            "job": Attribute(categories=["clerk", "nurse", "none"]),
            "savings": Attribute(categories=["few", "many", "unstated"]),
            "insured": Attribute(categories=[True, False]),
            "age": Attribute(bounds=(18, 60)),
            "pay": Attribute(bounds=(20, 70)),
        },
        nullable=["age", "home", "savings", "pay"],
        never_advise=never_advise,
    )
    prototypes = DPPrototypes(
        epsilon=100.0,
        rows=1000,
        serve=serve,
        prototypes=8,
        seed=1,
        model_access="public",
        move_towards_query=move_towards_query,
    )
    with pytest.warns(PrivacyLeakWarning, match="seeded"):
        prototypes.fit(Population.from_frame(train, schema), model=model, desired="yes")
    answers = prototypes.explain(people)
    assert answers.released
    for entry in answers.released:
        for name in never_advise:
            own = people[name].iloc[entry.query]
            assert not advises_excluded(entry.parts()[name], name, own)


def test_prototypes_are_not_fitted_where_every_row_has_a_value_that_is_never_advised() -> None:
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
    prototypes = DPPrototypes(epsilon=1e6, rows=20, seed=1)
    people = Population.from_frame(train, schema)
    with (
        pytest.warns(PrivacyLeakWarning),
        pytest.raises(SchemaError, match="every drawn row has a value of never_advise"),
    ):
        prototypes.fit(people, model=lambda rows: rows["age"] > 25, desired=True)


def test_a_column_is_still_asked_about_if_only_some_of_its_values_are_never_advised() -> None:
    train = table(0).rename(columns={"job": "marital_status"})

    def by_status(rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(rows["marital_status"] == "nurse")

    schema = Schema.from_frame(
        train,
        quasi_identifiers=["grade"],
        ordinal={"grade": LEVELS},
        never_advise={"marital_status": ["none"]},
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K))
    anonymizer.fit(Population.from_frame(train, schema), model=by_status, desired=True)
    with pytest.warns(PersonalColumnWarning, match="marital_status"):
        anonymizer.explain(train[~by_status(train)].head(5))
