"""What the product releases, recounted by the oracle; and that the oracle notices what is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cfk_plugin import Attribute, KAnonymizer, Population, PrivacyPolicy, Schema
from oracle import Rules, World, find_faults
from public_tables import LEAVES, TABLES, forest, read, schema_of, split
from random_tables import KINDS, LEVELS, TREE, column

SEARCH = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a table is drawn from a seed: nothing shrinks
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# --- tables with every kind of column ---------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Draw a table with some kinds of quasi-identifiers, gaps, copies and several rows per person."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    n_rows = draw(st.integers(30, 60))
    table = pd.DataFrame({f"q_{kind}": column(kind, n_rows, random) for kind in kinds})
    if draw(st.booleans()):
        for name in table.columns.difference(["q_whole", "q_weightless", "q_constant", "q_flag"]):
            has_gap = random.random(n_rows) < 0.15
            has_gap[0] = False
            table[name] = table[name].mask(has_gap)
    table["pay"] = random.integers(0, 8, n_rows)
    table["debt"] = random.normal(10, 4, n_rows).round(1)
    table["seen"] = column("date", n_rows, random)
    table["illness"] = random.choice(list("abcd"), n_rows, p=[0.55, 0.2, 0.15, 0.1])
    copies = table.iloc[random.integers(0, n_rows, n_rows // 4)]
    table = pd.concat([table, copies], ignore_index=True)
    if draw(st.booleans()):
        return table.assign(person=random.integers(0, len(table) * 2 // 3 + 1, len(table)))
    return table


BONUS = {"a": 2, "b": 0, "c": -2, "d": 1}


def predict(rows: pd.DataFrame) -> Any:
    """Return a label from pay, debt and illness."""
    bonus = [BONUS[illness] for illness in rows["illness"]]
    pay = rows["pay"].to_numpy(dtype=float)
    debt = rows["debt"].to_numpy(dtype=float)
    return np.where(pay - debt / 4 + bonus > 2, "yes", "no")


def world_of(table: pd.DataFrame, **settings: Any) -> World:
    """Return what the oracle counts with."""
    names = [name for name in table if name.startswith("q_")]
    is_weighted = "q_weightless" in names and len(names) > 1
    world = {
        "train": table,
        "quasi_identifiers": names,
        "predict": predict,
        "desired": lambda labels, _: labels == "yes",
        "k": 3,
        "subject": "person" if "person" in table else None,
        "hierarchies": {"q_hierarchical": TREE},
        "weights": {name: float(name != "q_weightless") for name in names} if is_weighted else None,
        "rules": Rules(levels={"q_ordinal": LEVELS}),
    }
    return World(**(world | settings))


def population_of(world: World, **settings: Any) -> Population:
    """Return the population of a world."""
    names = world.quasi_identifiers
    schema = Schema.from_frame(
        world.train,
        quasi_identifiers=names,
        sensitive=["illness"],
        subject=world.subject,
        ordinal={name: LEVELS for name in names if name == "q_ordinal"},
        columns={
            name: Attribute(
                hierarchy=TREE if name == "q_hierarchical" else None,
                weight=None if world.weights is None else world.weights[name],
            )
            for name in names
        },
        **settings,
    )
    return Population.from_frame(world.train, schema, key=bytes(32))


def refused_rows(world: World) -> pd.DataFrame:
    """Return the first rows that the model refuses."""
    rows = world.rows[world.labels != "yes"]
    return rows.head(4).reset_index(drop=True)


def fit(world: World, method: str = "auto", **policy: Any) -> KAnonymizer:
    """Fit an anonymizer on the population of a world."""
    rules = PrivacyPolicy(k=world.k, guarantee=world.guarantee, **policy)
    return KAnonymizer(policy=rules, method=method).fit(population_of(world), predict, "yes")


@SEARCH
@given(table=tables(), l=st.sampled_from([None, 2]))
def test_catalogue_has_no_faults(table: pd.DataFrame, l: int | None) -> None:  # noqa: E741
    """Entries and answers of the default, with and without l, on every kind of column."""
    world = world_of(table, l=l, sensitive=["illness"])
    if world.count(world.labels == "yes") < world.k:
        return
    anonymizer = fit(world, l=l)
    assert find_faults(anonymizer.published(), world, most=6) == []
    queries = refused_rows(world)
    if len(queries):
        assert find_faults(anonymizer.explain(queries), world, queries) == []


RULES = [
    Rules(levels={"q_ordinal": LEVELS}, immutable=["pay"]),
    Rules(levels={"q_ordinal": LEVELS}, monotone={"pay": "increase", "debt": "decrease"}),
    Rules(levels={"q_ordinal": LEVELS}, monotone={"pay": "decrease", "debt": "increase"}),
    Rules(levels={"q_ordinal": LEVELS}, never_advise={"illness": ["a"]}, max_changes=2),
    Rules(levels={"q_ordinal": LEVELS}, permitted_range={"pay": (2, 6), "illness": ["a", "c"]}),
]


@SEARCH
@given(table=tables(), rules=st.sampled_from(RULES))
def test_answers_meet_constraints(table: pd.DataFrame, rules: Rules) -> None:
    """Immutable, monotone, never advised, permitted ranges and the number of changes."""
    world = world_of(table, rules=rules)
    queries = refused_rows(world)
    if world.count(world.labels == "yes") < world.k or queries.empty:
        return
    population = population_of(
        world,
        immutable=rules.immutable,
        monotone=dict(rules.monotone),
        never_advise=dict(rules.never_advise),
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=world.k)).fit(population, predict, "yes")
    answers = anonymizer.explain(
        queries, permitted_range=dict(rules.permitted_range), max_changes=rules.max_changes
    )
    assert find_faults(answers, world, queries) == []


@SEARCH
@given(table=tables())
def test_opposite_outcome_has_no_faults(table: pd.DataFrame) -> None:
    """Everyone may ask for the other outcome: two catalogues, one per label."""
    world = world_of(table, desired=lambda labels, own: labels != own)
    if min(world.count(world.labels == label) for label in ("yes", "no")) < world.k:
        return
    policy = PrivacyPolicy(k=world.k)
    anonymizer = KAnonymizer(policy=policy).fit(population_of(world), predict, "opposite")
    assert find_faults(anonymizer.published(), world, most=4) == []
    queries = world.rows.head(4)
    assert find_faults(anonymizer.explain(queries), world, queries) == []


@SEARCH
@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
@given(table=tables(), t=st.sampled_from([None, 0.4]))
def test_lookup_has_no_faults(table: pd.DataFrame, method: str, t: float | None) -> None:
    """Training rows with the outcome are the counterfactuals, as native as they can be."""
    world = world_of(table, guarantee="lookup", t=t, l=2, sensitive=["illness"])
    proposals = world.rows[world.labels == "yes"].head(4).reset_index(drop=True)
    queries = refused_rows(world)
    n_pairs = min(len(proposals), len(queries))
    if n_pairs == 0:
        return
    proposals = proposals.head(n_pairs)
    queries = queries.head(n_pairs)
    anonymizer = fit(world, method, t=t, l=2)
    explanations = anonymizer.transform(proposals, queries)
    assert find_faults(explanations, world, queries, proposals) == []


# --- the six public tables --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_public_table_has_no_faults(name: str, shared_data: Path) -> None:
    """The default on a table of the papers, with a forest and a margin."""
    frame, about = read(name, shared_data)
    train, test = split(frame, 0.6, seed=0)
    train = train.head(1500)
    features = train[about["features"]]
    limits = {"max_leaf_nodes": LEAVES[name]}
    model = forest(features, train[about["target"]], trees=20, **limits)
    desired = about["desired_outcome"]
    column_of_outcome = list(model.classes_).index(desired)

    def lead(rows: pd.DataFrame) -> Any:
        shares = model.predict_proba(rows)
        others = np.delete(shares, column_of_outcome, axis=1).max(axis=1)
        if len(model.classes_) == 2:
            return 2 * shares[:, column_of_outcome] - 1
        return shares[:, column_of_outcome] - others

    world = World(
        train=features,
        quasi_identifiers=about["quasi_identifiers"],
        predict=model.predict,
        desired=lambda labels, _: labels == desired,
        lead=lead,
        k=10,
    )
    population = Population.from_frame(features, schema_of(train, about), key=bytes(32))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=10)).fit(population, model, desired)
    assert find_faults(anonymizer.published(), world, most=50) == []
    others = test[about["features"]].head(1000)
    queries = others[model.predict(others) != desired].head(30).reset_index(drop=True)
    answers = anonymizer.explain(queries)
    assert len(answers.released) > 0.9 * len(queries)
    assert find_faults(answers, world, queries) == []


# --- the oracle notices -----------------------------------------------------------------------------


TOWN = pd.DataFrame(
    {
        "q_age": [30, 31, 32, 33, 34, 35, 36, 37],
        "q_city": list("AAAABBBB"),
        "pay": [10, 10, 10, 40, 40, 40, 40, 70],
        "illness": list("aaabbbba"),
    }
)
"""Eight people. The model accepts a pay of 40 and more: five of them."""

QUERY = pd.DataFrame({"q_age": [29], "q_city": ["B"], "pay": [20], "illness": ["b"]})
ANSWER = {
    "query": 0,
    "status": "released",
    "outcome": {"label": "yes"},
    "region": {
        "q_age": {"kind": "interval", "low": 33, "high": 36},
        "q_city": {"kind": "set", "values": ["A", "B"]},
    },
    "released": {"pay": 40, "illness": "b"},
    "advised": {"q_age": 35, "q_city": "B"},
    "certificate": {
        "k": 4,
        "ncp": 0.72,  # (3 / 7 + 1) / 2, rounded up
        "pureness": 1.0,
        "exact": True,
        "margin": 0.0,
    },
}
"""An answer without a fault, for k = 4."""


def accept(rows: pd.DataFrame) -> Any:
    """Return the label that the pay decides."""
    return np.where(rows["pay"].astype(float) >= 40, "yes", "no")


def town(**settings: Any) -> World:
    """Return the world of the eight people."""
    world = {
        "train": TOWN,
        "quasi_identifiers": ["q_age", "q_city"],
        "predict": accept,
        "desired": lambda labels, _: labels == "yes",
        "k": 4,
    }
    return World(**(world | settings))


def release(**changes: Any) -> str:
    """Return the JSON of a release with the answer, of which some parts are replaced."""
    answer = copy.deepcopy(ANSWER)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = answer
        for name in parents:
            place = place[name]
        place[last] = value
    return json.dumps({"explanations": [answer]})


def test_answer_without_faults() -> None:
    """The answer that the next tests break is right, as an answer and as an entry."""
    assert find_faults(release(), town(), QUERY) == []
    assert find_faults(release(), town()) == []


SHORT = {"kind": "interval", "low": 34, "high": 36}
BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a region one person short": (
        {"region__q_age": SHORT, "certificate__ncp": (2 / 7 + 1) / 2},
        {},
        "the region contains 3 people, fewer than 4",
    ),
    "a certificate with a larger k": (
        {"certificate__k": 5},
        {},
        "the certificate states k = 5, and 4 people are inside",
    ),
    "a person without the outcome": (
        {"region__q_age__low": 32, "region__q_age__high": 35, "certificate__k": 4},
        {},
        "3 people inside have the desired outcome, fewer than 4",
    ),
    "private values that the model refuses": (
        {"released__pay": 30, "certificate__pureness": 0.0},
        {"least_pureness": 0.0},
        "the model agrees with the private values for 0 people inside, fewer than 4",
    ),
    "another NCP": (
        {"certificate__ncp": 0.25},
        {},
        "the certificate states an NCP of 0.25, and it is 0.714",
    ),
    "another pureness": (
        {"certificate__pureness": 0.9},
        {},
        "the certificate states a pureness of 0.9, and it is 1.0",
    ),
    "an impure region": (
        {"certificate__pureness": 0.25},
        {"predict": lambda rows: np.where(rows["q_age"] > 35, "yes", "no")},
        "the pureness is 0.250, less than 0.5",
    ),
    "an answer that is not true": (
        {
            "region__q_age__low": 32,
            "certificate__k": 5,
            "certificate__ncp": (4 / 7 + 1) / 2,
            "certificate__pureness": 0.8,
            "advised__q_age": 32,
        },
        {"predict": lambda rows: np.where(rows["q_age"] > 32, "yes", "no")},
        "the answer is not true: the model refuses the advised point",
    ),
    "an answer without its margin": (
        {"certificate__margin": 0.2, "advised__q_age": 33},
        {"lead": lambda rows: np.where(rows["q_age"] > 33, 0.3, 0.1)},
        "the model accepts the advised point, but not with the margin",
    ),
    "a point outside of the region": (
        {"advised__q_age": 37},
        {},
        "the advised q_age is neither in the region nor the query's own",
    ),
    "another person's category": (
        {"released__illness": "c"},
        {"train": TOWN.replace({"illness": {"a": "c"}}).assign(illness=list("aaabbbbc"))},
        "the value of illness belongs to 1 people, and is not the query's own",
    ),
    "a change of what is immutable": (
        {},
        {"rules": Rules(immutable=["pay"])},
        "pay asks for a change that is excluded",
    ),
    "a change in the wrong direction": (
        {},
        {"rules": Rules(monotone={"q_age": "decrease"})},
        "q_age asks for a change that is excluded",
    ),
    "a number out of its range": (
        {},
        {"rules": Rules(permitted_range={"pay": (0, 39)})},
        "pay asks for a change that is excluded",
    ),
    "a range with no permitted number": (
        {},
        {"rules": Rules(permitted_range={"q_age": (40, 50)})},
        "q_age asks for a change that is excluded",
    ),
    "a value that is never advised": (
        {"released__illness": "a"},
        {"rules": Rules(never_advise={"illness": ["a"]})},
        "illness asks for a change that is excluded",
    ),
    "too many changes": (
        {},
        {"rules": Rules(max_changes=1)},
        "it asks for 2 changes, more than 1",
    ),
    "a region that is not diverse": (
        {},
        {"l": 2, "sensitive": ["illness"]},
        "illness has 1 values inside, fewer than 2",
    ),
    "a region that is not close": (
        {},
        {"t": 0.4, "sensitive": ["illness"], "guarantee": "lookup"},
        "illness is at a distance of 0.500 from everyone, more than 0.4",
    ),
    "several rows of one person": (
        {},
        {"train": TOWN.assign(person=[1, 2, 3, 4, 4, 5, 6, 7]), "subject": "person"},
        "the region contains 3 people, fewer than 4",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_oracle_notices_broken_answer(broken: str) -> None:
    """Each property is broken once, and the oracle says which."""
    changes, settings, sentence = BROKEN[broken]
    faults = find_faults(release(**changes), town(**settings), QUERY)
    assert any(sentence in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"released__pay": 70}, "the value of pay belongs to 1 people"),
        (
            {"released__pay": 40, "released__illness": "a"},
            "the private values together belong to 1 people",
        ),
    ],
)
def test_oracle_notices_entry_of_one_person(changes: dict[str, Any], sentence: str) -> None:
    """One person's value, and one person's combination of values that many have."""
    table = TOWN.assign(illness=list("aaaabbbb"))
    faults = find_faults(release(**changes), town(train=table))
    assert any(sentence in fault for fault in faults), faults


def test_oracle_notices_lying_protector() -> None:
    """A region that does not contain the counterfactual, and private values of another row."""
    proposal = pd.DataFrame({"q_age": [37], "q_city": ["B"], "pay": [70], "illness": ["a"]})
    faults = find_faults(release(), town(guarantee="lookup"), QUERY, proposal)
    assert [fault.partition(": ")[2] for fault in faults] == [
        "the region does not contain the counterfactual's q_age",
        "pay is not the counterfactual's",
        "illness is not the counterfactual's",
    ]
