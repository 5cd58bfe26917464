"""A letter says in plain English or German what would have to be different."""

from __future__ import annotations

import pandas as pd
import pytest

from cfk_plugin import Explanations, ProtectedExplainer, Wording

GERMAN = Wording(
    language="de",
    titles={"income": "ein Einkommen", "debt": "ein Kredit"},
    units={"income": "EUR", "debt": "EUR"},
    outcomes={1: "das Modell würde den Kredit bewilligen"},
)


@pytest.fixture
def explanations(private: ProtectedExplainer, refused: pd.DataFrame) -> Explanations:
    """Return answers that change nothing but the income."""
    return private.explain(refused, features_to_vary=["income"])


def test_sentence_names_the_change(explanations: Explanations, refused: pd.DataFrame) -> None:
    """The words come from the schema; the new income stands next to the person's own."""
    for answer in explanations.released:
        person = refused.iloc[answer.query]
        sentence = answer.text(person)
        assert sentence.startswith("The model would grant the loan")
        assert f"an income of €{answer.released['income']:,.0f}" in sentence
        assert f"€{person['income']:,.2f}" in sentence


def test_unchanged_columns_are_not_named(explanations: Explanations, refused: pd.DataFrame) -> None:
    """A sentence is about what changes, and about nothing else."""
    for sentence in explanations.text(refused):
        assert "debt" not in sentence
        assert not any(town in sentence for town in refused["town"])


def test_wording_gives_german_sentences(explanations: Explanations, refused: pd.DataFrame) -> None:
    """Another wording says the same in another language, with its way to write numbers."""
    for answer in explanations.released:
        sentence = answer.text(refused.iloc[answer.query], GERMAN)
        income = f"{answer.released['income']:,.0f}".replace(",", ".")
        assert sentence.startswith("Das Modell würde den Kredit bewilligen, wenn")
        assert f"ein Einkommen von {income} Euro" in sentence


def test_withheld_person_reads_no_reason_code(
    private: ProtectedExplainer, refused: pd.DataFrame
) -> None:
    """Without an answer, the person reads a sentence too, and the operator has the reason."""
    withheld = private.explain(refused, permitted_range={"income": [0, 1]}, max_changes=1)
    assert len(withheld.withheld) > 0
    for answer in withheld.withheld:
        assert answer.reason not in answer.text()
