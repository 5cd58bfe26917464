"""The figures of the README are those of the quality table and the attack table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
README = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
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


CLAIMS = {
    "look-up": f"looks up who matches an answer | at least k people | {span(of_attacks('look-up'), 2)} |",
    "rerun": f"who gets this answer | at least k people | {span(of_attacks('rerun'), 2)} |",
    "outcomes": f"said about every person | at least k people | {span(of_attacks('outcome-known'), 2)} |",
    "model": f"received this answer | at least k people | {span(of_attacks('model-asked'), 2)} |",
    "chosen queries": "as many as they like | none | "
    + span(of_attacks("posing", "trilateration", "steering", "inversion"), 2),
    "colluders": f"private values | none | AUC of {span(of_attacks('sybil-rank'), 2)}, "
    f"and {span(of_attacks('sybil-rank', column='control'), 2)} without that row |",
    "joiner": f"| AUC of {span(of_attacks('joiner-desired', 'joiner-refused'), 2)} for who joined;",
    "turnover": f"AUC of {span(of_attacks('turnover-joined', 'turnover-left'), 2)}, and "
    f"{span(of_attacks('turnover-joined', 'turnover-left', column='control'), 2)} for people who "
    "were never there |",
    "regions": f"right for {span(100 * of_attacks('outcome-certain'), 0)} % of those it names; "
    f"guessing, {span(100 * of_attacks('outcome-certain', column='guessing'), 0)} % |",
    "membership": f"AUC of {span(of_attacks('membership'), 2)} |",
    "NCP": f"A range covers {span(100 * QUALITY['ncp'], 0)} % of its column",
    "truth": f"the desired outcome for {100 * QUALITY['true'].min():.0f} % of the answers",
    "distance": f"answers are at {span(QUALITY['distance_to_row'], 2)}, depending on the table",
    "NICE": f"That is {span(QUALITY['distance_to_nice'], 2)} times as far as the answers of NICE",
    "needless": f"{100 * QUALITY['needless_margin'].max():.0f} % of them contain a change",
    "survival": f"it still accepted {span(100 * QUALITY['survival'], 0)} % of them",
    "batch": f"One takes {span(QUALITY['ms_batch'], 0)} ms of processor time in a batch of 60",
    "alone": f"and {span(QUALITY['ms_alone'], 0)} ms alone",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_figure_is_the_measured_one(claim: str) -> None:
    """The passage with the measured figure is in the README."""
    assert CLAIMS[claim] in README


def test_no_one_was_withheld() -> None:
    """The README says that every person of the six tables got an answer."""
    assert (QUALITY["answered"] == 1).all()
