"""docs/explanation/reproduction.md is what its results say, and each of its numbers has a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfk_plugin.reproduction.measure import METHODS
from cfk_plugin.reproduction.page.plots import draw
from cfk_plugin.reproduction.page.rendering import render
from cfk_plugin.reproduction.results import Results, published
from cfk_plugin.reproduction.studies import STUDIES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, KEPT = DOCS / "explanation" / "reproduction.md", DOCS / "explanation" / "reproduction.json"
FIGURES = "../assets/reproduction/"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.from_json(KEPT.read_text(encoding="utf-8"))


def test_page_is_rendered_from_its_results(results: Results) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(results, FIGURES), (
        "run python docs/explanation/make_reproduction.py"
    )


def test_every_figure_is_there(results: Results) -> None:
    shown = set(re.findall(rf"\]\({FIGURES}(\w+\.svg)\)", PAGE.read_text(encoding="utf-8")))
    assert shown == {path.name for path in (DOCS / "assets" / "reproduction").iterdir()}
    assert len(shown) == 5


@pytest.mark.slow
def test_figures_are_drawn_from_the_results(results: Results, tmp_path: Path) -> None:
    for path in draw(results, tmp_path).values():
        kept = (DOCS / "assets" / "reproduction" / path.name).read_text(encoding="utf-8")
        # Coordinates may differ in their last digits between releases of matplotlib; what is written may not.
        assert re.findall(r"<!-- (.*) -->", path.read_text(encoding="utf-8")) == re.findall(r"<!-- (.*) -->", kept)


def test_everything_was_run_and_every_number_has_a_run(results: Results) -> None:
    tables = set(published().data)
    expected = {(table, method, k) for table in tables for method in METHODS for k in (5, 10, 20)}
    assert {(a.table, a.method, a.k) for a in results.aggregates} == expected
    assert set(results.studies) == set(STUDIES)
    rows = [row for name in STUDIES for row in results.rows(name)]
    runs = [a.run_id for a in results.aggregates] + [row["run_id"] for row in rows]
    assert all(isinstance(run, str) and len(run) == 32 for run in runs)
    assert {s.limit for s in results.settings.values()} == {1000}
    assert {s.explainer for s in results.settings.values()} == {"nice"}


def test_counts_hold_together(results: Results) -> None:
    """What can be checked without the tables: k, the order of methods, the definitions of C_DM and of shares."""
    for a in results.aggregates:
        assert a.released == a.n
        assert a.k_min is not None
        assert a.k_min >= a.k
        assert a.cdm == pytest.approx(a.cdm_per_explanation * a.released)
        assert 0 <= a.ncp <= 1
        least = results.find(a.table, "exact-ncp", a.k)
        if a.n == least.n and least.proven == 1:
            assert a.ncp >= least.ncp - 1e-12
        if a.method == "reciprocal":
            assert a.k_effective_min >= a.k
