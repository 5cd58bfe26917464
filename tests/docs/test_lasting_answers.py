"""docs/how-to/when-the-model-is-trained-again.md and its CSV show what the benchmark measured, and
what it measures today.
"""

from __future__ import annotations

import csv
import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import survival

EXPLANATION = Path(__file__).resolve().parents[2] / "docs" / "explanation"
KEPT = json.loads((EXPLANATION / "lasting-answers.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def make() -> dict[str, Any]:
    return runpy.run_path(str(EXPLANATION / "make_lasting_answers.py"))


def test_the_page_shows_the_figures_that_were_kept(make: dict[str, Any]) -> None:
    page = make["PAGE"].read_text("utf-8")
    assert make["table"](KEPT)[2:]
    assert "\n".join(make["table"](KEPT)) in page, "run docs/explanation/make_lasting_answers.py"
    assert make["render"](page, KEPT) == page, "run docs/explanation/make_lasting_answers.py"


def test_the_csv_has_every_figure_that_was_kept(make: dict[str, Any]) -> None:
    text = make["CSV"].read_text("utf-8")
    assert make["render_csv"](KEPT) == text, "run docs/explanation/make_lasting_answers.py"
    rows = [*csv.DictReader(io.StringIO(text))]
    assert {f"{row['table']} {row['model']} {row['answers']}" for row in rows} == set(KEPT)
    assert len(rows) == len(KEPT)
    for row in rows:
        kept = KEPT[f"{row['table']} {row['model']} {row['answers']}"]
        assert set(kept) == set(make["COLUMNS"])
        for name, column in make["COLUMNS"].items():
            assert (float(row[column]) if row[column] else None) == kept[name]


def test_page_and_csv_name_every_method_and_table(make: dict[str, Any]) -> None:
    assert set(make["METHODS"]) == set(survival.METHODS)
    assert set(make["TABLES"]) == set(survival.TABLES)
    assert set(make["MODELS"]) == set(survival.MODELS)


@pytest.fixture(scope="module")
def heart(shared_data: Path) -> survival.Trial:
    with survival.threadpool_limits(1):
        return survival.trial("heart", "forest", shared_data, 100)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["nearest", "margin-0", "default", "later"])
def test_the_kept_figures_of_heart_are_measured_again(method: str, heart: survival.Trial) -> None:
    figures = survival.rounded(survival.measure(heart, method))
    kept = KEPT[f"heart forest {method}"]
    assert set(figures) == set(kept)
    differing = {name for name, value in figures.items() if value != kept[name]}
    assert differing <= {"seconds"}
