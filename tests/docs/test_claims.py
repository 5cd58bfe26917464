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
    "Measured with the default policy and k = 10",
    "a chance of at most 1/k",
    "[106](https://github.com/interpretml/DiCE/issues/106)",
    "[441](https://github.com/interpretml/DiCE/issues/441)",
    "[206](https://github.com/interpretml/DiCE/issues/206)",
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
    said = [
        "the desired outcome for 100 % of the answers",
        f"Ranges cover {span(default['ncp_percent'], 0)} % of a column",
        f"Their distance is {span(default['distance'], 2)} times that of the nearest training row",
        f"One takes {span(default['ms_per_query'], 0)} ms of processor time",
    ]
    assert [passage for passage in said if passage not in README] == []
