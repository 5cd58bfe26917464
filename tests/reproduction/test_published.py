"""The paper's numbers: as its text has them, and consistent with each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfk_plugin.reproduction.results import published
from cfk_plugin.reproduction.tables import NAMES

PAPER = "goethals-2023-explanation-linkage-attacks.txt"
FIGURES = ("ncp", "pureness", "seconds", "cdm", "cdm_per_explanation", "cm")


@pytest.fixture(scope="module")
def text(shared_data: Path) -> str:
    path = shared_data.parent / "papers" / PAPER
    if not path.is_file():
        pytest.skip("needs the text of the paper in ../shared/papers beside the repository")
    return path.read_text("utf-8")


def numbers(line: str) -> list[float]:
    """Return the six numbers that a row of the paper's tables ends with; nothing of another line."""
    found = re.search(r"((?:\s|^)[\d.,]+(?:%|s|(?=\s|$))){6}$", line.strip())
    if found is None:
        return []
    # 87,181 is a number of thousands, and 35,85 is one misprinted decimal.
    words = [re.sub(r",(?=\d{3}$)", "", word.rstrip("%s")).replace(",", ".") for word in found[0].split()]
    return [float(word) for word in words]


def rows_after(text: str, heading: str) -> list[list[float]]:
    """Return the rows of numbers below a heading that starts a line."""
    lines = text[re.search(f"^{heading}", text, re.M).end() :].splitlines()  # type: ignore[union-attr]
    return [row for row in map(numbers, lines) if row]


@pytest.mark.parametrize(
    ("method", "k", "number"),
    [("cf-k", 10, 6), ("mondrian", 10, 7), ("cf-k", 5, 9), ("mondrian", 5, 10), ("cf-k", 20, 11), ("mondrian", 20, 12)],
)
def test_tables_are_the_papers(text: str, method: str, k: int, number: int) -> None:
    heading = re.search(rf"^Table {number}\. Results of .*$", text, re.M)
    assert heading is not None
    assert ("CF-K" in heading[0], f"= {k})" in heading[0]) == (method == "cf-k", True)
    for name, printed in zip(FIGURES, rows_after(text, rf"Table {number}\. Results"), strict=False):
        found = [getattr(published().results[method, k, table], name) for table in NAMES]  # type: ignore[index]
        scale = 100 if name in ("ncp", "pureness") else 1
        assert [scale * value for value in found] == pytest.approx(printed), name
    assert f"Table {number}," in published().results[method, k, "adult"].source  # type: ignore[index]


def test_descriptions_are_the_papers(text: str) -> None:
    rows, _, unique, below = rows_after(text, r"Table 5\. Description")[:4]
    found = [published().data[table] for table in NAMES]
    assert [data.rows for data in found] == rows
    assert [100 * data.unique for data in found] == pytest.approx(unique)
    assert [100 * data.below_10 for data in found] == pytest.approx(below)


def test_distances_are_the_papers(text: str) -> None:
    for name, number in (("nearest", "1NN"), ("nearest_5", "5NN")):
        line = re.search(rf"^{number} (.+)$", text, re.M)
        assert line is not None
        assert [getattr(found, name) for found in published().plausibility] == [float(word) for word in line[1].split()]
    order = [(found.method, found.k) for found in published().plausibility]
    nice = [f"nice-{how}" for how in ("none", "sparsity", "proximity", "plausibility")]
    assert order == [*((method, None) for method in nice), ("cf-k", 5), ("cf-k", 10), ("cf-k", 20)]


def test_shares_are_shares() -> None:
    for found in published().results.values():
        assert 0 <= found.ncp <= 1
        assert 0.5 <= found.pureness <= 1
    assert published().results["cf-k", 10, "adult"].ncp == 0.0055
    assert published().data["adult"].unique == 0.0317


def test_both_forms_of_cdm_imply_one_number_of_explanations_per_table() -> None:
    # The same ones were explained at every k by both methods; a slip in either form would show.
    explained = {"adult": 787, "cmc": 406, "german": 60, "heart": 56, "hospital": 746, "informs": 661}
    off = {
        key for key, r in published().results.items() if abs(r.cdm / explained[key[2]] - r.cdm_per_explanation) > 0.02
    }
    assert off == {("mondrian", 5, "german")}  # printed as 6.07, where 402 / 60 is 6.70


def test_what_is_not_printed_is_none() -> None:
    assert published().result("cf-k", 7, "adult") is None
