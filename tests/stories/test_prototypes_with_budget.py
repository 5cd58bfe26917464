"""Differentially private prototypes answer people, and a budget limits how often they are made."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, BudgetAccountant, DPPrototypes, Population, Schema
from worlds import World

pytest.importorskip("opendp", reason="the extra [dp] is not installed")


@pytest.fixture(scope="module")
def declared(applicants: World) -> Population:
    """Return the table with its public values: nothing is learned from the rows."""
    schema = Schema.from_frame(
        applicants.table,
        quasi_identifiers=["age", "town", "education"],
        ordinal={"education": ["school", "college", "university"]},
        columns={
            "age": Attribute(bounds=(18, 80), whole=True),
            "income": Attribute(bounds=(0, 80_000)),
            "debt": Attribute(bounds=(0, 20_000), whole=True),
            "town": Attribute(categories=["Antwerp", "Ghent", "Namur"]),
            "job": Attribute(categories=["clerk", "nurse", "smith"]),
        },
        nullable=[],
    )
    return Population.from_frame(applicants.table, schema)


def rule(people: pd.DataFrame) -> np.ndarray:
    """Decide as the public rules of the bank do: they were not learned from the table."""
    return np.where(people["income"] - people["debt"] >= 35_000, 1, 0)


def prototypes(accountant: BudgetAccountant) -> DPPrototypes:
    return DPPrototypes(epsilon=0.5, model_access="public", accountant=accountant)


def test_rule_accepts_every_prototype(declared: Population, refused: pd.DataFrame) -> None:
    """Everybody whom the rule refuses gets a row that it accepts, with the ε of the fit."""
    people = refused[rule(refused) == 0]
    fitted = prototypes(BudgetAccountant(epsilon=1.0)).fit(declared, rule, 1)
    answers = fitted.explain(people).released
    assert len(answers) == len(people)
    assert (rule(pd.DataFrame([answer.values for answer in answers])) == 1).all()
    assert {answer.certificate.epsilon for answer in answers} == {0.5}


def test_third_fit_is_refused(declared: Population, refused: pd.DataFrame) -> None:
    """Each fit costs its ε and answers cost nothing; the budget is enough for two fits."""
    accountant = BudgetAccountant(epsilon=1.0)
    prototypes(accountant).fit(declared, rule, 1).explain(refused)
    assert accountant.remaining().epsilon == 0.5
    prototypes(accountant).fit(declared, rule, 1)
    with pytest.raises(ValueError, match="budget"):
        prototypes(accountant).fit(declared, rule, 1)
    assert accountant.remaining().epsilon == 0
