"""The page on the experiments: it says what its results say, and claims nothing that was not
run.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from cfk_plugin.errors import InputError
from reproduced import outcome
from reproduction.measure import METHODS
from reproduction.page import number, percent, points, render, seconds, table
from reproduction.plots import PLOTS, draw
from reproduction.results import Aggregate, Results, Row, Verdict, published
from reproduction.studies import STUDIES
from reproduction.tables import NAMES as TABLES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
PAGE = FOLDER / "index.md"
SAID = FOLDER / "findings.md.j2"
KEPT = FOLDER / "results.json"
FIGURES = "figures/"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.from_json(KEPT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(results: Results) -> str:
    return render(results)


def some(**changes: list[float | None]) -> Results:
    """Return results of one method on one table."""
    return Results.of({"a": outcome(**(changes or {"ncp": [0.1]}))}, command="a test")


def rows_of(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    after = page[page.index(f"\n{heading}\n") :]
    lines = re.search(r"(?:^\|.*\|$\n?)+", after, re.M)
    assert lines is not None
    return [
        [cell.strip() for cell in line.split(" | ")] for line in lines[0].strip().splitlines()[2:]
    ]


def test_results_come_back_from_json(results: Results, page: str) -> None:
    again = Results.from_json(results.to_json())
    assert again == results
    assert again.to_json() == results.to_json()
    assert render(again) == page


def test_results_of_another_version_are_refused(results: Results) -> None:
    text = json.dumps({**json.loads(results.to_json()), "schema_version": 0})
    with pytest.raises(InputError, match="schema version 0, expected 1"):
        Results.from_json(text)


def test_paper_stands_beside_ours(results: Results, page: str) -> None:
    rows = {row[0].strip("| "): row for row in rows_of(page, "### k = 10 (Table 6, section 6.1)")}
    assert list(rows) == list(TABLES)
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
    assert reached == sum(v.is_reached for v in verdicts) == 16
    assert f"| exact, purest | {reached} of 18 |" in page
    said = {(row[0].strip("| "), int(row[1])): row[-1] for row in rows}
    for verdict in verdicts:
        if not verdict.is_reached:
            assert (
                f"NCP missed by {100 * verdict.ncp_by:.2f} points" in said[verdict.table, verdict.k]
            )


def test_verdicts_change_with_the_numbers() -> None:
    worse = render(some(ncp=[0.5, 0.6], pureness=[0.9, 0.9]))
    better = render(some(ncp=[0.01, 0.02], pureness=[0.99, 0.99]))
    assert "NCP missed by 51.16 points**, **pureness missed by 3.15 points" in worse
    assert "| exact, purest | 0 of 1 | 0 of 1 | 0 of 1 |" in worse
    assert "| exact, purest | 1 of 1 | 1 of 1 | 1 of 1 |" in better
    assert "missed by" not in better


def test_what_somebody_says_stands_where_it_belongs() -> None:
    page = render(
        some(),
        template='{% extends "page.md.j2" %}{% block missed %}\nSaid by hand.\n{% endblock %}',
    )
    after = page[page.index("### Against what the paper prints") :]
    assert "Said by hand." in after[: after.index("### Against the paper's method")]
    assert page.replace("Said by hand.\n\n", "") == render(some())


def test_every_figure_has_its_run(results: Results, page: str) -> None:
    rows = rows_of(page, "## Runs")
    assert len(rows) == len(results.aggregates) == 6 * 6 * 3
    assert {row[-1].strip("` |") for row in rows} == {a.run_id for a in results.aggregates}


def test_runs_of_studies_are_listed() -> None:
    row = {
        "table": "cmc",
        "k": 5,
        "method": "exact-ncp",
        "ncp": 0.1,
        "pureness": 1.0,
        "released": 1.0,
        "n": 3,
    }
    found = Results.of({}, command="", studies={"frontier": [{**row, "run_id": "abc"}]})
    assert "| frontier | cmc |" in render(found)
    assert "`abc` |" in render(found)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_was_not_run_is_said_to_be_so(results: Results, page: str, name: str) -> None:
    without = render(
        replace(results, studies={k: rows for k, rows in results.studies.items() if k != name})
    )
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
    page = render(Results(command="a test"))
    assert page.count("_Not run._") == 14
    assert not re.search(r"^\|", page, re.M)
    assert "![" not in page


def test_nothing_released_is_no_figure_of_the_page() -> None:
    page = render(some(ncp=[None], pureness=[None], people=[None]))
    assert rows_of(page, "### Against what the paper prints")[0][-1] == "not measured |"
    assert "| 0 of 1 | – | – |" in page


def test_figures_are_linked_where_the_caller_has_them(results: Results) -> None:
    page = render(results, figures="elsewhere/")
    assert set(re.findall(r"\]\(elsewhere/(\w+)\.svg\)", page)) == set(PLOTS)


def test_tables_are_whole(page: str) -> None:
    for block in re.findall(r"(?:^\|.*\|$\n?)+", page, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block.splitlines()[0]
    assert "None" not in page
    assert "nan" not in page


def test_numbers_are_not_rounded_to_what_they_are_not() -> None:
    shares = {
        0: "0.00",
        1: "100.00",
        0.00001: "<0.01",
        0.99999: ">99.99",
        0.1234567: "12.35",
        None: "–",
    }
    assert {share: percent(share) for share in shares} == shares
    assert [points(share) for share in (0.0, -0.0123, 0.00002, None)] == [
        "0",
        "−1.23",
        "+0.002",
        "–",
    ]
    times = {
        12.34: "12.3 s",
        0.5: "500 ms",
        0.0123: "12 ms",
        0.00012: "0.12 ms",
        0.0: "0 ms",
        None: "–",
    }
    assert {time: seconds(time) for time in times} == times


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


def test_plots_have_titles_axes_and_a_series_per_method(results: Results) -> None:
    figure = PLOTS["methods"].draw(PLOTS["methods"].rows(results))
    assert figure.get_suptitle()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 2 * len(TABLES)
    assert {len(ax.lines) for ax in shown} == {5}  # four methods and the paper
    styles = [(line.get_linestyle(), line.get_marker()) for line in shown[0].lines]
    assert len(set(styles)) == len(styles)  # told apart without colour
    assert shown[0].get_ylabel() == "mean NCP (%)\nlower is better"
    printed = [100 * published().results["cf-k", k, "adult"].ncp for k in (5, 10, 20)]
    assert shown[0].lines[0].get_ydata().tolist() == pytest.approx(printed)


# --- the page of the documentation ----------------------------------------------------------------


def test_page_is_rendered_from_its_results(results: Results) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(
        results, FIGURES, SAID.read_text(encoding="utf-8")
    ), "render it anew"


def test_every_figure_is_there(results: Results) -> None:
    shown = set(re.findall(rf"\]\({FIGURES}(\w+\.svg)\)", PAGE.read_text(encoding="utf-8")))
    assert shown == {path.name for path in (FOLDER / "figures").iterdir()}
    assert len(shown) == 4


@pytest.mark.slow
def test_figures_are_drawn_from_the_results_and_the_same_twice(
    results: Results, tmp_path: Path
) -> None:
    once, twice = (draw(results, tmp_path / name) for name in ("a", "b"))
    assert set(once) == set(PLOTS)
    for name, path in once.items():
        assert path.read_bytes() == twice[name].read_bytes()
        kept = (FOLDER / "figures" / path.name).read_text(encoding="utf-8")
        # Coordinates may differ in their last digits between releases of matplotlib; what is
        # written may not.
        assert re.findall(r"<!-- (.*) -->", path.read_text(encoding="utf-8")) == re.findall(
            r"<!-- (.*) -->", kept
        )


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
    """What can be checked without the tables: k, the order of methods, the definitions of C_DM and
    of shares.
    """
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


# Every number that is written by hand in reproduction.md.j2, from the results.


@pytest.fixture(scope="module")
def said() -> str:
    return " ".join(SAID.read_text(encoding="utf-8").split())


NAMES = {"grasp": "CF-K (GRASP)", "exact-pureness": "“exact, purest”"}


def verdicts(results: Results, method: str, against: str) -> list[Verdict]:
    return [v for v in results.verdicts if (v.method, v.against) == (method, against)]


def find(results: Results, table: str, method: str, k: int) -> Aggregate:
    found = results.find(table, method, k)
    assert found is not None
    return found


def quality(found: Aggregate | Verdict) -> str:
    return f"{percent(found.ncp)} % / {percent(found.pureness)} %"


def test_what_was_reached_and_what_was_missed_is_as_said(results: Results, said: str) -> None:
    of_paper, of_grasp = (
        verdicts(results, "exact-pureness", against) for against in ("paper", "grasp")
    )
    assert (
        f"both are reached in {sum(v.is_reached for v in of_paper)} of {len(of_paper)} combinations"
        in said
    )
    assert (
        f"both are reached in {sum(v.is_reached for v in of_grasp)} of {len(of_grasp)} combinations"
        in said
    )
    missed = [v for v in of_paper if not v.is_reached]
    assert {v.table for v in missed} == {"cmc"}
    assert said.count("NCP missed by") == len(missed)
    assert [v for v in of_grasp if not v.is_reached] == []
    for v in missed:
        least, grasp = (
            find(results, v.table, "exact-ncp", v.k),
            find(results, v.table, "grasp", v.k),
        )
        assert (least.proven, least.released) == (1, v.n)
        assert least.ncp < v.their_ncp
        assert (
            f"**{v.table}, k = {v.k}**: NCP missed by {100 * v.ncp_by:.2f} points. The least possible mean NCP "
            f"at any pureness is {percent(least.ncp)} %; the rest is the price of pureness. The paper's own method gives "
            f"{quality(grasp)} on this model (first {grasp.n} explanations)." in said
        )


def test_findings_on_mondrian_and_on_k_are_as_said(results: Results, said: str) -> None:
    for method, other, name in (
        ("grasp", "mondrian-raw", "CF-K (GRASP) has lower NCP than Mondrian with raw widths"),
        (
            "exact-pureness",
            "mondrian",
            "“Exact, purest” has lower NCP than Mondrian with normalised widths",
        ),
    ):
        found = verdicts(results, method, other)
        less, pure = (
            sum(v.ncp_word == "reached" for v in found),
            sum(v.pureness_word != "missed" for v in found),
        )
        assert f"{name} in {less} of {len(found)}" in said
        assert (
            f"and at least its pureness in {pure} of {len(found)}."
            in said[said.index(name) :][:200]
        )
    assert "From k = 5 to 20, mean NCP of" in said
    for method, name in NAMES.items():
        chains = [[find(results, table, method, k) for k in (5, 10, 20)] for table in TABLES]
        rises = sum(all(a.ncp <= b.ncp for a, b in pairwise(chain)) for chain in chains)
        falls = sum(all(a.pureness >= b.pureness for a, b in pairwise(chain)) for chain in chains)
        sentence = f"mean NCP of {name} never falls on {rises} of 6 tables, and mean pureness never rises on {falls} of 6"
        assert sentence in said
    found = verdicts(results, "grasp", "paper")
    ncp, pure = (
        max(found, key=lambda v: abs(v.ncp_by)),
        max(found, key=lambda v: abs(v.pureness_by)),
    )
    assert (
        f"farthest from what the paper prints by {points(ncp.ncp_by)} points of NCP ({ncp.table}, k = {ncp.k}) and "
        f"{points(pure.pureness_by)} points of pureness ({pure.table}, k = {pure.k})." in said
    )
    ratios = {
        (table, k): find(results, table, "mondrian-raw", k).ncp / printed.ncp
        for (method, k, table), printed in published().results.items()
        if method == "mondrian"
    }
    ends = [
        (number(ratios[at]), *at)
        for at in (min(ratios, key=ratios.get), max(ratios, key=ratios.get))
    ]
    low, high = (f"{ratio} ({table}, k = {k})" for ratio, table, k in ends)
    assert (
        f"Mondrian with raw widths has {low} to {high} times the NCP that the paper prints for Mondrian."
        in said
    )


def test_findings_of_the_studies_are_as_said(results: Results, said: str) -> None:
    for name, sign in (("k", "k"), ("alpha", "α"), ("iterations", "iterations")):
        rows = [
            r
            for r in results.rows("parameters")
            if (r["method"], r["parameter"]) == ("grasp", name)
        ]
        a, b = min(rows, key=lambda r: r["value"]), max(rows, key=lambda r: r["value"])
        assert (a["table"], a["n"]) == ("german", b["n"])
        assert f"on german, over {a['n']} explanations" in said
        assert (
            f"From {sign} = {a['value']} to {b['value']}, "
            f"NCP goes from {percent(a['ncp'])} % to {percent(b['ncp'])} %, "
            f"pureness from {percent(a['pureness'])} % to {percent(b['pureness'])} %, "
            f"time from {seconds(a['seconds'])} to {seconds(b['seconds'])}." in said
        )
    minority = [
        r
        for r in results.rows("fairness")
        if (r["group"], r["by"]) == ("minority", "counterfactual") and r["difference"] is not None
    ]
    assert said.count("At k = 10, mean") == 2
    clear = {}
    for method, name in NAMES.items():
        own = [r for r in minority if r["method"] == method]
        for metric in ("ncp", "pureness"):
            shown = [r for r in own if (r["metric"], r["k"]) == (metric, 10)]
            assert f"{sum(r['difference'] > 0 for r in shown)} of {len(shown)}" in part(
                said, metric, name
            )
            clear[method, metric] = [
                r
                for r in shown
                if (r["difference_low"] or 0) > 0 or (r["difference_high"] or 0) < 0
            ]
        at = {(r["table"], r["k"]): r["difference"] for r in own if r["metric"] == "ncp"}
        tables = [table for table in TABLES if {(table, 5), (table, 20)} <= set(at)]
        wider = sum(at[table, 20] > at[table, 5] for table in tables)
        assert f"on {wider} of {len(tables)}" in part(said, "growth", name)
    (grasp,), (exact,) = clear["grasp", "ncp"], clear["exact-pureness", "ncp"]
    assert (
        f"leaves out 0 on {grasp['table']} alone, with both: {gap(grasp)} and {gap(exact)}." in said
    )
    assert exact["table"] == grasp["table"]
    assert clear["grasp", "pureness"] == []
    (exact,) = clear["exact-pureness", "pureness"]
    assert f"leaves out 0 on none, and on {exact['table']}: {gap(exact)}." in said
    rows = results.rows("plausibility")
    best = min(
        r["nearest"] for r in rows if r["method"].startswith("nice") and r["method"] != "nice-none"
    )
    for method in NAMES:
        assert [r["nearest"] < best for r in rows if r["method"] == method] == [True] * 3
    assert "at 3 of 3 k, both CF-K (GRASP) and “exact, purest” are nearer" in said
    assert f"than every NICE that perturbs (nearest: {number(best)})." in said


def gap(row: Row) -> str:
    return f"{points(row['difference'])} ({points(row['difference_low'])} to {points(row['difference_high'])})"


def part(said: str, what: str, method: str) -> str:
    """Return what is said of a method in a sentence on groups."""
    start = {
        "ncp": "mean NCP is higher for",
        "pureness": "mean pureness is higher for",
        "growth": "It is larger at k = 20",
    }
    sentence = said[said.index(start[what]) :].replace(";", ".").split(".")[0]
    (found,) = (piece for piece in sentence.split(", and on") if method in piece)
    return found if found.startswith(start[what]) else f"on{found}"


def test_data_are_other_than_the_papers_where_it_is_said(results: Results, said: str) -> None:
    for name, scene in results.scenes.items():
        paper, rows = published().data[name], scene.rows_train + scene.rows_test
        same = rows == paper.rows and abs(scene.unique - paper.unique) < 0.0005
        assert (f"**{name}**:" in said) != same
        if not same:
            sentence = said[said.index(f"**{name}**:") :]
            assert (
                f"{percent(scene.unique)} % of rows are unique instead of {percent(paper.unique)} %"
                in sentence
            )
    paper, scene = published().data["hospital"], results.scenes["hospital"]
    assert f"{scene.rows_train + scene.rows_test:,} rows instead of {paper.rows:,}" in said
    assert (
        f"{percent(scene.below_10)} % in classes below 10 instead of {percent(paper.below_10)} %"
        in said
    )
