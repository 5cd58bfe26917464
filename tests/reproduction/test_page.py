"""The page: what it says follows from the results, and nothing is claimed that was not run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import made_outcomes
from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.page import percent, points, render, seconds, table
from cfk_plugin.reproduction.plots import PLOTS, draw
from cfk_plugin.reproduction.results import Results, published


@pytest.fixture(scope="module")
def results() -> Results:
    return made_outcomes.results()


@pytest.fixture(scope="module")
def page(results: Results) -> str:
    return render(results)


def some(**changes: list[float | None]) -> Results:
    """Return results of one method on one table."""
    return Results.of({"a": made_outcomes.outcome(**(changes or {"ncp": [0.1]}))}, command="cfk reproduce")


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    after = page[page.index(f"\n{heading}\n") :]
    lines = re.search(r"(?:^\|.*\|$\n?)+", after, re.M)
    assert lines is not None
    return [[cell.strip() for cell in line.split(" | ")] for line in lines[0].strip().splitlines()[2:]]


def test_results_come_back_from_json(results: Results, page: str) -> None:
    again = Results.from_json(results.to_json())
    assert again == results
    assert again.to_json() == results.to_json()
    assert render(again) == page


def test_results_of_another_version_are_refused(results: Results) -> None:
    text = json.dumps({**json.loads(results.to_json()), "schema_version": 0})
    with pytest.raises(InputError, match="schema version 0, expected 1"):
        Results.from_json(text)


def test_outcomes_must_be_of_one_setting() -> None:
    one, other = made_outcomes.outcome(ncp=[0.1]), made_outcomes.outcome(k=5, ncp=[0.1])
    with pytest.raises(InputError, match="different settings"):
        Results.of({"a": one, "b": replace(other, config=replace(other.config, seed=1))}, command="")


def test_paper_stands_beside_ours(results: Results, page: str) -> None:
    rows = {row[0].strip("| "): row for row in rows_of(page, "### k = 10 (Table 6, section 6.1)")}
    assert list(rows) == list(made_outcomes.TABLES)
    assert rows["adult"][1] == "0.55 / 99.81"
    ours = results.find("adult", "exact-pureness", 10)
    assert ours is not None
    assert rows["adult"][3] == f"{percent(ours.ncp)} / {percent(ours.pureness)}"
    assert rows_of(page, "### k = 20 (Table 12, appendix A)")[1][1] == "12.35 / 59.40"


def test_every_verdict_has_its_row_and_every_miss_its_amount(results: Results, page: str) -> None:
    rows = rows_of(page, "### Against what the paper prints")
    verdicts = [v for v in results.verdicts if (v.against, v.method) == ("paper", "exact-pureness")]
    assert len(rows) == len(verdicts) == 18
    reached = sum("missed" not in row[-1] and "tied" not in row[-1] for row in rows)
    assert reached == sum(v.is_reached for v in verdicts) == 15
    assert f"| exact, purest | {reached} of 18 |" in page
    said = {(row[0].strip("| "), int(row[1])): row[-1] for row in rows}
    for verdict in verdicts:
        if not verdict.is_reached:
            assert f"NCP missed by {100 * verdict.ncp_by:.2f} points" in said[verdict.table, verdict.k]


def test_verdicts_change_with_the_numbers() -> None:
    worse = render(some(ncp=[0.5, 0.6], pureness=[0.9, 0.9]))
    better = render(some(ncp=[0.01, 0.02], pureness=[0.99, 0.99]))
    assert "NCP missed by 51.16 points**, **pureness missed by 3.15 points" in worse
    assert "| exact, purest | 0 of 1 | 0 of 1 | 0 of 1 |" in worse
    assert "| exact, purest | 1 of 1 | 1 of 1 | 1 of 1 |" in better
    assert "missed by" not in better


def test_what_somebody_says_stands_where_it_belongs() -> None:
    page = render(some(), template='{% extends "page.md.j2" %}{% block missed %}\nSaid by hand.\n{% endblock %}')
    after = page[page.index("### Against what the paper prints") :]
    assert "Said by hand." in after[: after.index("### Against the paper's method")]
    assert page.replace("Said by hand.\n\n", "") == render(some())


def test_every_figure_has_its_run(results: Results, page: str) -> None:
    rows = rows_of(page, "## Runs")
    assert len(rows) == len(results.aggregates) == 6 * 7 * 3
    assert len({row[-1] for row in rows}) == len(rows)
    assert {row[-1].strip("` |") for row in rows} == {a.run_id for a in results.aggregates}


def test_runs_of_studies_are_listed() -> None:
    row = {"table": "cmc", "k": 5, "m": 1, "distance": 0.1, "ncp": 0.1, "pureness": 1.0, "k_mean": 5.0, "n": 3}
    found = Results.of({}, command="", studies={"candidates": [{**row, "run_id": "abc"}]})
    assert "| candidates | cmc | – | `abc` |" in render(found)


@pytest.mark.parametrize("name", made_outcomes.studies())
def test_a_study_that_was_not_run_is_said_to_be_so(results: Results, page: str, name: str) -> None:
    without = render(replace(results, studies={k: rows for k, rows in results.studies.items() if k != name}))
    assert without.count("_Not run._") == 1 + page.count("_Not run._")
    assert (f"figures/{name}.svg" in page) == (name in PLOTS)
    assert f"figures/{name}.svg" not in without


def test_a_method_that_was_not_run_is_said_to_be_so() -> None:
    page = render(some())
    assert rows_of(page, "### k = 10 (Table 6, section 6.1)") == [
        ["| cmc", "3.84 / 93.15", "not run", "10.00 / 100.00 |"]
    ]
    after = page[page.index("### Against the paper's method on the same models") :]
    assert "_Not run._" in after[: after.index("\n## ")]


def test_an_empty_page_claims_nothing() -> None:
    page = render(Results(command="cfk reproduce"))
    assert page.count("_Not run._") == 16
    assert not re.search(r"^\|", page, re.M)
    assert "![" not in page


def test_nothing_released_is_no_figure() -> None:
    page = render(some(ncp=[None], pureness=[None], people=[None]))
    assert rows_of(page, "### Against what the paper prints")[0][-1] == "not measured |"
    assert "| 0 of 1 | – | – |" in page


def test_figures_are_linked_where_the_caller_has_them(results: Results) -> None:
    page = render(results, figures="../assets/reproduction/")
    assert set(re.findall(r"\]\(\.\./assets/reproduction/(\w+)\.svg\)", page)) == set(PLOTS)


def test_tables_are_whole(page: str) -> None:
    for block in re.findall(r"(?:^\|.*\|$\n?)+", page, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block.splitlines()[0]
    assert "None" not in page
    assert "nan" not in page


def test_numbers_are_not_rounded_to_what_they_are_not() -> None:
    assert [percent(share) for share in (0, 1, 0.00001, 0.99999, 0.1234567, None)] == [
        "0.00",
        "100.00",
        "<0.01",
        ">99.99",
        "12.35",
        "–",
    ]
    assert [points(share) for share in (0.0, -0.0123, 0.00002, None)] == ["0", "−1.23", "+0.002", "–"]
    assert [seconds(time) for time in (12.34, 0.5, 0.0123, 0.00012, 0.0, None)] == [
        "12.3 s",
        "500 ms",
        "12 ms",
        "0.12 ms",
        "0 ms",
        "–",
    ]


def test_text_in_cells_cannot_break_a_table() -> None:
    assert table(["a"], [["x | y"]]).splitlines()[-1] == "| x \\| y |"
    assert table(["a"], []) == "_Not run._"


def test_small_figure_is_the_same_file_twice(results: Results, tmp_path: Path) -> None:
    rows = [row for row in results.rows("fairness") if row["table"] == "cmc"]
    one = Results.of({}, command="", studies={"fairness": rows})
    files = [draw(one, tmp_path / name) for name in ("a", "b")]
    assert [set(found) for found in files] == [{"fairness"}, {"fairness"}]
    first, second = (found["fairness"].read_text("utf-8") for found in files)
    assert first == second
    assert "<dc:date>" not in first


@pytest.mark.slow
def test_every_figure_is_drawn_the_same_twice(results: Results, tmp_path: Path) -> None:
    files = [draw(results, tmp_path / name) for name in ("a", "b")]
    assert set(files[0]) == set(PLOTS)
    for name in PLOTS:
        assert files[0][name].read_bytes() == files[1][name].read_bytes()


def test_plots_have_titles_axes_and_a_series_per_method(results: Results) -> None:
    figure = PLOTS["methods"].draw(PLOTS["methods"].rows(results))
    assert figure.get_suptitle()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 2 * len(made_outcomes.TABLES)
    assert {len(ax.lines) for ax in shown} == {5}  # four methods and the paper
    styles = [(line.get_linestyle(), line.get_marker()) for line in shown[0].lines]
    assert len(set(styles)) == len(styles)  # told apart without colour
    assert shown[0].get_ylabel() == "mean NCP (%)\nlower is better"
    printed = [100 * published().results["cf-k", k, "adult"].ncp for k in (5, 10, 20)]
    assert shown[0].lines[0].get_ydata().tolist() == pytest.approx(printed)


def test_weights_that_beat_the_paper_are_bold(page: str) -> None:
    ((*_, bold, plain),) = rows_of(page, "## Between pureness and NCP")
    assert (bold, plain.rstrip(" |")) == ("**3.00 / 95.00**", "5.00 / 100.00")
