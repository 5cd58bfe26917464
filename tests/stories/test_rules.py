"""Answers are possible for one person: their values obey the rules that the schema declares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
)
from cfk_plugin.errors import LookupGuaranteeWarning, PrivacyLeakWarning

RULES = [
    "years_employed <= age - 15",
    "if owns_home then rent == 0",
    "household >= children + 1",
    "debt <= 3 * income",
    "if education == 'master' then age >= 22",
]
Follow = Callable[[pd.DataFrame, Explanations], pd.DataFrame]


def households(n: int, seed: int) -> pd.DataFrame:
    """Return made-up people who obey the rules."""
    random = np.random.default_rng(seed)
    age = random.integers(18, 70, n)
    owns_home = random.random(n) < 0.3
    income = random.normal(30_000, 6_000, n).round(-2).clip(10_000)
    children = random.integers(0, 4, n)
    return pd.DataFrame(
        {
            "age": age,
            "education": np.where((age >= 22) & (random.random(n) < 0.4), "master", "school"),
            "years_employed": np.minimum(random.integers(0, 30, n), age - 16),
            "owns_home": owns_home,
            "rent": np.where(owns_home, 0, random.integers(4, 16, n) * 100),
            "income": income,
            "debt": (income * random.uniform(0, 2.9, n)).round(-2),
            "children": children,
            "household": children + random.integers(1, 3, n),
        }
    )


TABLE = households(600, seed=0)
QUERIES = households(40, seed=1)


def grants(rows: pd.DataFrame) -> np.ndarray:
    """Return whether a bank grants a loan: for what the rules forbid together."""
    points = rows["years_employed"] / 10 - rows["age"] / 30 + rows["household"] - rows["children"]
    points += rows["debt"] / rows["income"] + 2 * rows["owns_home"] + rows["rent"] / 1000
    points += (rows["education"] == "master") - rows["age"] / 30
    return (points > 3).to_numpy(dtype=bool)


def broken(rows: pd.DataFrame) -> dict[str, int]:
    """Return how many rows break each rule, in plain pandas."""
    breaks = [
        rows["years_employed"] > rows["age"] - 15,
        rows["owns_home"].astype(bool) & (rows["rent"] != 0),
        rows["household"] < rows["children"] + 1,
        rows["debt"] > 3 * rows["income"],
        (rows["education"] == "master") & (rows["age"] < 22),
    ]
    return {rule: int(rows.sum()) for rule, rows in zip(RULES, breaks, strict=True)}


def population_with(rules: list[str], **declared: object) -> Population:
    """Return the people of the table, with rules."""
    schema = Schema.from_frame(
        TABLE, quasi_identifiers=["age", "education"], rules=rules, **declared
    )
    return Population.from_frame(TABLE, schema)


def test_answers_obey_rules(after_advice: Follow) -> None:
    """Without the rules, some people are told to become what nobody can be."""
    refused = QUERIES[~grants(QUERIES)].reset_index(drop=True)
    n_broken = []
    for rules in ([], RULES):
        anonymizer = KAnonymizer().fit(population_with(rules), grants, True)
        answers = anonymizer.explain(refused, answers=2)
        assert len(answers.released) > len(refused) / 2
        n_broken.append(sum(broken(after_advice(refused, answers)).values()))
    assert n_broken[0] > 0
    assert n_broken[1] == 0


def test_loaded_catalogue_obeys_rules(after_advice: Follow, tmp_path: Path) -> None:
    """The file of a catalogue contains the rules."""
    refused = QUERIES[~grants(QUERIES)].reset_index(drop=True)
    anonymizer = KAnonymizer().fit(population_with(RULES), grants, True)
    anonymizer.catalogue_.save(tmp_path / "loans.cfk")
    loaded = KAnonymizer.load(tmp_path / "loans.cfk", model=grants)
    after = after_advice(refused, loaded.explain(refused))
    pd.testing.assert_frame_equal(after, after_advice(refused, anonymizer.explain(refused)))
    assert not any(broken(after).values())


def test_impossible_counterfactual_is_withheld() -> None:
    """A counterfactual of an explainer that breaks a rule is not released."""
    tenants = QUERIES[~QUERIES["owns_home"]].reset_index(drop=True)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3, guarantee="lookup"))
    with pytest.warns(LookupGuaranteeWarning):
        anonymizer.fit(population_with(RULES), lambda rows: rows["owns_home"], True)
    possible = anonymizer.transform(tenants.assign(owns_home=True, rent=0), tenants)
    assert len(possible.released) > 0
    impossible = anonymizer.transform(tenants.assign(owns_home=True), tenants)
    assert {answer.reason for answer in impossible} == {"no_actionable_answer"}


@pytest.mark.parametrize("serve", ["rows", "prototypes"])
def test_prototypes_obey_rules(serve: str) -> None:
    """Noise makes rows that break rules; these are not served, and moves do not break any."""
    numbers = ["years_employed", "rent", "income", "debt", "children", "household"]
    columns = {
        name: Attribute(bounds=(0, float(TABLE[name].max())), whole=True) for name in numbers
    }
    columns |= {
        "age": Attribute(bounds=(18, 70), whole=True),
        "education": Attribute(categories=["school", "master"]),
        "owns_home": Attribute(categories=[True, False]),
    }
    population = population_with(RULES, columns=columns, nullable=[])
    prototypes = DPPrototypes(epsilon=2, serve=serve, random_state=0)
    with pytest.warns(PrivacyLeakWarning):  # of the seed, and that the model is asked
        prototypes.fit(population, grants, True)
    rows, is_answer = prototypes.generate(QUERIES)
    assert is_answer.any()
    assert not any(broken(rows[is_answer]).values())
