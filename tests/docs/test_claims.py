"""Every figure of the README is in the register of claims, and is the figure that was measured."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
README = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
REGISTER = REPOSITORY / "docs" / "claims.yaml"
RESULTS = REPOSITORY / "docs" / "reference" / "benchmarks" / "answers.csv"

NOT_MEASURED = (
    "with an income of 52K you would have got the loan",
    "You need Python 3.11 or later",
    "k = 10 promises",
    "Single values such as 78",
    "the person's age of 57 lies in its range, and the blood pressure of 117",
    "[DiCE issue 441](https://github.com/interpretml/DiCE/issues/441)",
    "[issue 206](https://github.com/interpretml/DiCE/issues/206)",
    "[issue 258](https://github.com/interpretml/DiCE/issues/258)",
    "Transactions on Intelligent Systems and Technology, 2023",
    "[Apache-2.0](LICENSE)",
)
"""Passages with digits that state no measured figure."""


class Claim(NamedTuple):
    """A passage of the README with a figure, and where the figure comes from."""

    says: str
    script: str
    command: str
    commit: str
    result: str


@cache
def claims() -> list[Claim]:
    return [Claim(**entry) for entry in yaml.safe_load(REGISTER.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.says)
def test_a_claim_is_in_the_readme_and_its_script_and_result_are_there(claim: Claim) -> None:
    assert " ".join(claim.says.split()) in README
    assert (REPOSITORY / claim.script).is_file()
    assert claim.script in claim.command
    assert (REPOSITORY / claim.result).is_file()
    assert re.fullmatch(r"[0-9a-f]{8,40}", claim.commit)


def without_claims(text: str) -> str:
    """Return a text without code, known claims, and passages that state no figure."""
    rest = " ".join(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split())
    for passage in (*(" ".join(claim.says.split()) for claim in claims()), *NOT_MEASURED):
        rest = rest.replace(passage, "")
    return re.sub(r"\]\([^)]*\)", "]", rest)


def test_every_figure_of_the_readme_is_claimed() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert re.findall(r".{0,40}\d.{0,40}", without_claims(text)) == []


def test_a_figure_that_nobody_registered_is_found() -> None:
    assert "12" in without_claims("Answers take 12 ms.")


def test_passages_without_a_figure_are_still_there() -> None:
    assert [passage for passage in NOT_MEASURED if passage not in README] == []


def span(values: pd.Series, decimals: int) -> str:
    return f"{values.min():.{decimals}f} to {values.max():.{decimals}f}"


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    results = pd.read_csv(RESULTS)
    default = results[results["answers"] == "catalogue-shared"]
    assert len(default) == 6
    for column in ("k_effective", "k_desired", "k_consistent"):
        assert default[column].min() == 10
    assert (default["true_percent"] == 100).all()
    figures = [
        f"A range covers {span(default['ncp_percent'], 0)} % of its column",
        f"is at distance 1, answers are at {span(default['distance'], 2)}",
        f"{default['answered_percent'].min():.1f} to 100 % of the people got an answer",
        f"One takes {span(default['ms_per_query'], 0)} ms of processor time",
    ]
    nice = results[results["answers"] == "NICE-sparsity"]
    figures.append(f"NICE, without protection, is at {span(nice['distance'], 2)}")
    assert [figure for figure in figures if figure not in README] == []


def test_shares_of_lasting_answers_are_those_of_the_results() -> None:
    folder = REPOSITORY / "docs/how-to/when-the-model-is-trained-again"
    survival = pd.read_csv(folder / "survival.csv")
    of_forests = survival[(survival["model"] == "forest") & (survival["answers"] == "default")]
    shares = 100 * of_forests["survival_share"]
    assert len(shares) == 6
    mean = f"it still accepted {shares.mean():.0f} % of them on average"
    assert f"{mean}, and at least {int(shares.min())} % on each table" in README
