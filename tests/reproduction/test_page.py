"""The page on the experiments: it says what its results say, and claims nothing that was not
run.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from reproduction.export import table_texts
from reproduction.measure import METHODS
from reproduction.page import (
    PAGE_WITH_FINDINGS,
    percent,
    render,
)
from reproduction.results import Aggregate, Results, Verdict
from reproduction.tables import NAMES as TABLES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
PAGE = FOLDER / "index.md"
KEPT = FOLDER / "results.json"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.from_json(KEPT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(results: Results) -> str:
    return render(results)


def records_of(results: Results, name: str, **values: str) -> list[dict[str, str]]:
    """Return the records of a CSV file that have some values."""
    found = csv.DictReader(table_texts(results)[name].splitlines())
    return [record for record in found if values.items() <= record.items()]


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    after = page[page.index(f"\n{heading}\n") :]
    lines = re.search(r"(?:^\|.*\|$\n?)+", after, re.M)
    assert lines is not None
    return [
        [cell.strip() for cell in line.split(" | ")] for line in lines[0].strip().splitlines()[2:]
    ]


def test_paper_stands_beside_ours(results: Results, page: str) -> None:
    """Figures of both are percentages, for CF-K and for Mondrian."""
    rows = {row[0].strip("| "): row for row in rows_of(page, "## CF-K: Tables 6, 9 and 11")}
    assert list(rows) == list(TABLES)
    assert rows["adult"][1] == "0.55 / 99.81"
    ours = results.find("adult", "exact-pureness", 10)
    assert ours is not None
    assert rows["adult"][3] == f"{percent(ours.ncp)} / {percent(ours.pureness)}"
    mondrian = rows_of(page, "## Mondrian: Tables 7, 10 and 12")
    assert mondrian[1][1] == "7.05 / 69.15"
    (printed,) = records_of(results, "methods", table="cmc", k="20", method="Mondrian as printed")
    assert (printed["ncp_percent"], printed["pureness_percent"]) == ("12.35", "59.4")


# --- the page of the documentation ----------------------------------------------------------------


def test_page_is_rendered_from_its_results(results: Results) -> None:
    """No figure on it is written by hand."""
    assert PAGE.read_text(encoding="utf-8") == render(results, PAGE_WITH_FINDINGS), (
        "run PYTHONPATH=docs python -m reproduction.page"
    )


def test_tables_are_written_from_the_results(results: Results) -> None:
    """Every CSV file of the folder is compared."""
    kept = {path.stem: path.read_text(encoding="utf-8") for path in (FOLDER / "tables").iterdir()}
    assert kept == table_texts(results), "run PYTHONPATH=docs python -m reproduction.page"


def test_every_figure_is_there(results: Results) -> None:
    """The page shows the four files of the folder, and no others."""
    shown = set(re.findall(r"\]\(figures/(\w+\.svg)\)", PAGE.read_text(encoding="utf-8")))
    assert shown == {path.name for path in (FOLDER / "figures").iterdir()}
    assert len(shown) == 4


def test_everything_was_run(results: Results) -> None:
    """Each method on each table with each k, 1000 queries at most, and each study."""
    expected = {(table, method, k) for table in TABLES for method in METHODS for k in (5, 10, 20)}
    assert {(a.table, a.method, a.k) for a in results.aggregates} == expected
    assert set(results.studies) == {"parameters", "fairness", "plausibility", "frontier"}
    assert all(results.studies.values())
    assert {summary.limit for summary in results.tables.values()} == {1000}


def test_counts_hold_together(results: Results) -> None:
    """Without the tables: k, the order of methods, the definition of C_DM, and shares."""
    for a in results.aggregates:
        assert a.released == a.n
        assert a.k_min is not None
        assert a.k_min >= a.k
        assert a.cdm == pytest.approx(a.cdm_per_explanation * a.released)
        assert 0 <= a.ncp <= 1
        least = results.find(a.table, "exact-ncp", a.k)
        if a.n == least.n and least.proven == 1:
            assert a.ncp >= least.ncp - 1e-12


# Every number that is written by hand in findings.md.j2, from the results.


NAMES = {"grasp": "CF-K (GRASP)", "exact-pureness": "*exact, purest*"}


def verdicts(results: Results, method: str, against: str) -> list[Verdict]:
    return [v for v in results.verdicts if (v.method, v.against) == (method, against)]


def find(results: Results, table: str, method: str, k: int) -> Aggregate:
    found = results.find(table, method, k)
    assert found is not None
    return found
