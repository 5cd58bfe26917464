"""docs/explanation/threat-model.md and how-it-works.md say what their tables of results say."""

from __future__ import annotations

import csv
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "explanation"
Table = list[dict[str, str]]


def table(page: str, name: str) -> Table:
    with (DOCS / page / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text(page: str) -> str:
    return " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())


def span(rows: Table, column: str) -> str:
    """Return the smallest and the largest number of a column, as they are written there."""
    numbers = sorted((row[column] for row in rows if row[column]), key=float)
    return f"{numbers[0]} to {numbers[-1]}"


def least(name: str, column: str) -> int:
    return min(int(row[column]) for row in table("threat-model", name))


def test_chances_of_look_up_are_those_of_the_table() -> None:
    rows, page = table("threat-model", "look-up"), text("threat-model")
    for guarantee, words in (
        ("raw", "the mean chance to name the source is {} %"),
        ("catalogue", "With the catalogue it is {} %"),
        ("reciprocal", 'with `"reciprocal"` {} %'),
        ("lookup", 'and with `"lookup"` {} %'),
    ):
        assert words.format(span(rows, f"{guarantee}_chance_percent")) in page


def test_at_least_ten_people_are_left_where_the_page_says_so() -> None:
    assert least("outcomes-and-model", "catalogue_model_fewest_people") >= 10
    assert least("behind-an-explainer", "fewest_people") >= 10
    assert min(int(row["k_desired_fewest"]) for row in catalogue_cost()) >= 10


def catalogue_cost() -> Table:
    return [row for row in table("how-it-works", "cost") if row["guarantee"] == "catalogue"]


def test_other_spans_are_those_of_the_tables() -> None:
    page = text("threat-model")
    releases = table("threat-model", "intersection")
    for guarantee in ("catalogue", "reciprocal"):
        for n in (2, 5):
            assert f"{span(releases, f'{guarantee}_{n}_releases_below_10_percent')} %" in page
    margins = table("threat-model", "margin")
    assert f"{span(margins, 'no_margin_auc')} without one" in page
    assert f"{span(margins, 'default_auc')} with the default" in page


def test_costs_of_the_guarantees_are_those_of_the_table() -> None:
    page, rows = text("how-it-works"), table("how-it-works", "cost")
    for column, unit in (("ncp_mean_percent", " %"), ("k_consistent_fewest", "")):
        spans = [
            span([row for row in rows if row["guarantee"] == guarantee], column) + unit
            for guarantee in ("lookup", "reciprocal", "catalogue")
        ]
        assert f"| {' | '.join(spans)} |" in page
