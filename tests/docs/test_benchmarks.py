"""docs/reference/benchmarks.md shows what the benchmarks wrote."""

from __future__ import annotations

import runpy
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_page_shows_the_results() -> None:
    """To write the tables again changes nothing: run docs/reference/make_benchmarks.py."""
    page = (REFERENCE / "benchmarks.md").read_text(encoding="utf-8")
    rendered = runpy.run_path(str(REFERENCE / "make_benchmarks.py"))["rendered"]
    assert rendered(page) == page
