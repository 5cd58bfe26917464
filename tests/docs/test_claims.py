"""The figures of the README are those of the quality table and the attack table."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# One item for each row of a table, each bullet and each paragraph.
PASSAGES = [
    " ".join(passage.split())
    for passage in re.split(
        r"\n(?=\n|\||\* )", (REPOSITORY / "README.md").read_text(encoding="utf-8")
    )
]
RESULTS = REPOSITORY / "tests" / "benchmarks"
QUALITY = pd.read_csv(RESULTS / "quality-core.csv").groupby("table").mean()
ATTACKS = pd.read_csv(RESULTS / "attacks.csv")


def span(values: pd.Series, decimals: int) -> str:
    """Return the least and the largest value, or the one that both are."""
    low = f"{values.min():.{decimals}f}"
    high = f"{values.max():.{decimals}f}"
    return low if low == high else f"{low} to {high}"


def of_attacks(*names: str, column: str = "value") -> pd.Series:
    """Return a column of some attacks on all tables."""
    return ATTACKS.loc[ATTACKS["attack"].isin(names), column].dropna()


# What a passage of the README is about, and the figures that it has to contain.
CLAIMS = {
    "looks up who matches an answer": [
        span(of_attacks("look-up"), 2),
        span(of_attacks("look-up", column="control"), 2),
    ],
    "to see who gets this answer": [span(of_attacks("rerun"), 2)],
    "what the model said about every person": [span(of_attacks("outcome-known"), 2)],
    "asks the model which people": [span(of_attacks("model-asked"), 2)],
    "chooses the questions": [
        span(of_attacks("posing", "trilateration", "steering", "inversion"), 2)
    ],
    "puts k − 1 rows": [
        span(of_attacks("sybil-rank"), 2),
        span(of_attacks("sybil-rank", column="control"), 2),
    ],
    "compares two catalogues": [
        span(of_attacks("joiner-desired", "joiner-refused"), 2),
        span(of_attacks("turnover-joined", "turnover-left"), 2),
    ],
    "who has the desired outcome": [
        span(100 * of_attacks("outcome-certain"), 0),
        span(100 * of_attacks("outcome-certain", column="guessing"), 0),
    ],
    "*whether* a person is in the table": [span(of_attacks("membership"), 2)],
    "wider than a row": [f"{span(100 * QUALITY['ncp'], 0)} %"],
    "Answers are true": [f"{100 * QUALITY['true'].min():.0f} %"],
    "Answers are near": [
        span(QUALITY["distance_to_row"], 2),
        span(QUALITY["distance_to_nice"], 2),
    ],
    "no needless change": [f"{100 * QUALITY['needless_margin'].max():.0f} %"],
    "Answers last": [f"{span(100 * QUALITY['survival'], 0)} %"],
    "Answers are quick": [span(QUALITY["ms_batch"], 0), span(QUALITY["ms_alone"], 0)],
}


@pytest.mark.parametrize("subject", CLAIMS)
def test_figures_are_measured_ones(subject: str) -> None:
    """The one passage about the subject contains the figures that were measured."""
    passages = [passage for passage in PASSAGES if subject in passage]
    assert len(passages) == 1
    for figure in CLAIMS[subject]:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\.?\d)", passages[0])


def test_no_one_was_withheld() -> None:
    """The README says that every person of the six tables got an answer."""
    assert (QUALITY["answered"] == 1).all()
