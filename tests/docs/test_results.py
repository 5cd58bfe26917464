"""Results below docs/ are tables that can be read, and the pages show the figures that they hold."""

from __future__ import annotations

import csv
import re
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full_search

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.csv"))
LINK = re.compile(r"\]\(([^)\s]+\.csv)\)")


def linked_files() -> set[Path]:
    """Return every CSV file that a page links to."""
    found = set()
    for page in DOCS.rglob("*.md"):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            found.add((page.parent / target).resolve())
    return found


@pytest.mark.parametrize("name", RESULTS)
def test_each_row_has_as_many_cells_as_the_header(name: str) -> None:
    with (DOCS / name).open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert rows
    assert all(head)
    assert len(set(head)) == len(head)
    assert {len(row) for row in rows} == {len(head)}


@pytest.mark.parametrize("name", RESULTS)
def test_numbers_are_written_plainly(name: str) -> None:
    with (DOCS / name).open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    decorated = re.compile(r"[-+−]?[\d.,\s]*\d\s*(%|ms|s|GB)|\d+,\d{3}|−[\d.]+|\+[\d.]+|–|-")
    assert [cell for cell in cells if decorated.fullmatch(cell)] == []
    assert [cell for cell in cells if cell != cell.strip()] == []


@pytest.mark.parametrize("name", RESULTS)
def test_a_page_links_to_the_file(name: str) -> None:
    assert (DOCS / name).resolve() in linked_files()


def test_benchmarks_page_shows_the_figures_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    script = DOCS / "reference" / "make_benchmarks.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    assert runpy.run_path(str(script))["main"]() == 0, "run docs/reference/make_benchmarks.py"


@pytest.mark.parametrize("name", ["reference/benchmarks.md", "explanation/differential-privacy.md"])
def test_no_line_of_a_paragraph_begins_with_a_comment(name: str) -> None:
    """Such a line would begin a block of HTML, and end the paragraph."""
    text = (DOCS / name).read_text(encoding="utf-8")
    begun = re.findall(r"^ *(?:\* +)?<!-- .*", text, re.MULTILINE)
    alone = re.compile(r"<!-- [\w: -]+ -->")
    assert [line for line in begun if not alone.fullmatch(line)] == []
