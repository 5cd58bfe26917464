"""The page on the experiments: it says what its results say, and claims nothing that was not
run.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from reproduced import measurement
from reproduction import published
from reproduction.export import plain, table_texts
from reproduction.figures import draw_figures, make_figures
from reproduction.measure import LABELS, METHODS
from reproduction.page import (
    PAGE_WITH_FINDINGS,
    find_row,
    number,
    percent,
    points,
    render,
    seconds,
    time_span,
    with_interval,
)
from reproduction.results import Aggregate, Results, StudyRow, Verdict, aggregate, judge
from reproduction.studies import fairness_rows, frontier_row
from reproduction.tables import NAMES as TABLES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduction"
PAGE = FOLDER / "index.md"
SAID = FOLDER / "findings.md.j2"
KEPT = FOLDER / "results.json"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.from_json(KEPT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(results: Results) -> str:
    return render(results)


def results_of(results: Results, **figures: list[float | None]) -> Results:
    """Return results of cmc alone, where the purest regions at k = 10 have other figures."""
    ours = measurement("cmc", "exact-pureness", 10, **figures)
    aggregates = [a for a in results.aggregates if a.table == "cmc"]
    aggregates = [a for a in aggregates if (a.method, a.k) != (ours.method, ours.k)]
    studies = {
        name: [row for row in rows if row["table"] == "cmc"]
        for name, rows in results.studies.items()
    }
    return replace(
        results,
        tables={"cmc": results.tables["cmc"]},
        aggregates=[*aggregates, aggregate(ours)],
        verdicts=judge([ours]),
        studies=studies,
    )


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


def test_results_come_back_from_json(results: Results, page: str) -> None:
    again = Results.from_json(results.to_json())
    assert again == results
    assert again.to_json() == results.to_json()
    assert render(again) == page


def test_paper_stands_beside_ours(results: Results, page: str) -> None:
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


def test_every_verdict_has_its_record_and_is_counted(results: Results, page: str) -> None:
    records = records_of(results, "verdicts")
    assert len(records) == len(results.verdicts) == 7 * 18
    for verdict, record in zip(results.verdicts, records, strict=True):
        assert record["against"] == LABELS[verdict.against]
        assert record["ncp_verdict"] == verdict.ncp_word
        assert record["pureness_verdict"] == verdict.pureness_word
        assert float(record["ncp_difference_points"]) == pytest.approx(
            100 * verdict.ncp_by, abs=1e-6
        )
    counted = {
        tuple(row[:2]): row[2] for row in rows_of(page, "## Are the paper's figures reached?")
    }
    for method in ("exact-pureness", "exact-ncp"):
        for against in ("paper", "grasp"):
            reached = sum(v.is_reached for v in results.verdicts_of(method, against))
            assert counted[f"| {LABELS[method]}", LABELS[against]] == f"{reached} of 18"


def test_verdicts_change_with_the_numbers(results: Results) -> None:
    worse = results_of(results, ncp=[0.5, 0.6], pureness=[0.9, 0.9])
    better = results_of(results, ncp=[0.01, 0.02], pureness=[0.99, 0.99])
    assert "| exact, purest | CF-K as printed | 0 of 1 | 0 of 1 | 0 of 1 |" in render(worse)
    assert "| exact, purest | CF-K as printed | 1 of 1 | 1 of 1 | 1 of 1 |" in render(better)
    (record,) = records_of(worse, "verdicts", against="CF-K as printed")
    assert record["ncp_difference_points"] == "51.16"
    assert record["ncp_verdict"] == record["pureness_verdict"] == "missed"


def test_what_somebody_says_stands_where_it_belongs(results: Results) -> None:
    page = render(results, PAGE_WITH_FINDINGS)
    after = page[page.index("## Are the paper's figures reached?") :]
    assert "\nThe two misses are" in after[: after.index("## CF-K: Tables 6, 9 and 11")]
    assert "The two misses are" not in render(results)


def test_every_mean_has_its_record(results: Results) -> None:
    records = records_of(results, "methods")
    assert len(records) == len(results.aggregates) + len(published.RESULTS) == 6 * 8 * 3
    for mean in results.aggregates:
        label = LABELS[mean.method]
        (record,) = records_of(results, "methods", table=mean.table, k=str(mean.k), method=label)
        assert float(record["ncp_percent"]) == pytest.approx(100 * mean.ncp, abs=1e-6)
        assert float(record["seconds"]) == pytest.approx(mean.seconds, abs=1e-6)
        assert record["k_effective_min"] == plain(mean.k_effective_min)


def test_every_row_of_a_study_has_its_record(results: Results) -> None:
    files = {
        "parameters": "parameters",
        "fairness": "groups",
        "plausibility": "plausibility",
        "frontier": "frontier",
    }
    assert {study: len(records_of(results, name)) for study, name in files.items()} == {
        study: len(rows) for study, rows in results.studies.items()
    }
    (nearest,) = records_of(results, "plausibility", method="exact, purest", k="10")
    assert nearest["nearest_in_paper"] == "1.22"
    (variant,) = records_of(results, "plausibility", method="NICE (sparsity)")
    assert (variant["k"], variant["nearest_in_paper"]) == ("", "2.77")


@pytest.mark.parametrize("study", ["parameters", "plausibility"])
def test_a_study_of_german_that_was_not_run_is_said_to_be_so(
    results: Results, page: str, study: str
) -> None:
    without = render(replace(results, studies={**results.studies, study: []}))
    assert without.count("_Not run: it is about german._") == 1
    assert "_Not run" not in page
    assert study not in table_texts(replace(results, studies={**results.studies, study: []}))


def test_nothing_released_is_no_figure_of_the_page(results: Results) -> None:
    nothing = results_of(results, ncp=[None], pureness=[None], people=[None])
    (verdict,) = records_of(nothing, "verdicts", against="CF-K as printed")
    assert verdict["ncp_verdict"] == verdict["pureness_verdict"] == "not measured"
    assert verdict["ncp_percent"] == ""
    (mean,) = records_of(nothing, "methods", method="exact, purest", k="10")
    assert (mean["released"], mean["ncp_percent"], mean["cdm"]) == ("0", "", "")
    assert rows_of(render(nothing), "## CF-K: Tables 6, 9 and 11")[0][3] == "– / –"


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


def test_numbers_of_files_are_plain() -> None:
    values = {0.1 + 0.2: "0.3", 1e-9: "0", -1e-9: "0", 12243.0: "12243", 7: "7", None: "", "a": "a"}
    assert {value: plain(value) for value in values} == values


def test_times_have_a_span() -> None:
    assert time_span([0.5, None, 2.0]) == "500 ms to 2.0 s"
    assert time_span([None]) == "–"


def test_an_interval_is_left_out_where_there_is_none() -> None:
    assert with_interval(points, 0.01, 0.005, 0.02) == "+1.00 (+0.50 to +2.00)"
    assert with_interval(points, 0.01, None, None) == "+1.00"


def test_a_row_of_a_study_is_found_by_its_values() -> None:
    rows = [{"k": 5, "n": 1}, {"k": 10, "n": 2}]
    assert find_row(rows, k=10) is rows[1]
    with pytest.raises(LookupError, match=r"no row has \{'k': 20\}"):
        find_row(rows, k=20)


def of_one_table(results: Results) -> Results:
    """Return results of cmc alone, with two measurements."""
    measured = [measurement("cmc", method, 10, ncp=[0.1] * 6) for method in ("grasp", "exact-ncp")]
    return replace(
        results,
        tables={"cmc": results.tables["cmc"]},
        aggregates=[aggregate(each) for each in measured],
        studies={
            "fairness": [row for each in measured for row in fairness_rows(each)],
            "frontier": [frontier_row(each) for each in measured],
            "parameters": [],
            "plausibility": [],
        },
    )


def test_small_figures_are_the_same_files_twice(results: Results, tmp_path: Path) -> None:
    first, second = (draw_figures(of_one_table(results), tmp_path / name) for name in ("a", "b"))
    assert set(first) == set(second) == {"methods", "fairness", "frontier"}
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes()
        assert "<dc:date>" not in path.read_text("utf-8")


def test_figures_have_titles_axes_and_a_series_per_method(results: Results) -> None:
    figure = make_figures(results)["methods"]
    assert figure.get_suptitle()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 2 * len(TABLES)
    assert {len(ax.lines) for ax in shown} == {5}  # four methods and the paper
    styles = [(line.get_linestyle(), line.get_marker()) for line in shown[0].lines]
    assert len(set(styles)) == len(styles)  # told apart without colour
    assert shown[0].get_ylabel() == "mean NCP (%)\nlower is better"
    printed = [100 * published.RESULTS["cf-k", k, "adult"].ncp for k in (5, 10, 20)]
    assert shown[0].lines[0].get_ydata().tolist() == pytest.approx(printed)


def test_bars_are_the_means_of_groups(results: Results) -> None:
    figure = make_figures(results)["fairness"]
    panel = figure.axes[0]
    bars = [bar for bar in panel.patches if bar.get_height() > 0]
    rows = [
        row
        for row in results.studies["fairness"]
        if (row["method"], row["k"], row["metric"], row["by"])
        == ("grasp", 10, "ncp", "counterfactual")
        and row["mean"] is not None
    ]
    assert [bar.get_height() for bar in bars] == pytest.approx([100 * row["mean"] for row in rows])
    assert set(panel.get_legend_handles_labels()[1]) == {"minority", "majority"}
    centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    shift = {"minority": -0.2, "majority": 0.2}
    expected = [TABLES.index(row["table"]) + shift[row["group"]] for row in rows]
    assert centres == pytest.approx(expected)


# --- the page of the documentation ----------------------------------------------------------------


def test_page_is_rendered_from_its_results(results: Results) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(results, PAGE_WITH_FINDINGS), (
        "run PYTHONPATH=docs python -m reproduction.page"
    )


def test_tables_are_written_from_the_results(results: Results) -> None:
    kept = {path.stem: path.read_text(encoding="utf-8") for path in (FOLDER / "tables").iterdir()}
    assert kept == table_texts(results), "run PYTHONPATH=docs python -m reproduction.page"


def test_every_figure_is_there(results: Results) -> None:
    shown = set(re.findall(r"\]\(figures/(\w+\.svg)\)", PAGE.read_text(encoding="utf-8")))
    assert shown == {path.name for path in (FOLDER / "figures").iterdir()}
    assert len(shown) == 4


@pytest.mark.slow
def test_figures_are_drawn_from_the_results_and_the_same_twice(
    results: Results, tmp_path: Path
) -> None:
    once, twice = (draw_figures(results, tmp_path / name) for name in ("a", "b"))
    assert set(once) == {"methods", "parameters", "fairness", "frontier"}
    for name, path in once.items():
        assert path.read_bytes() == twice[name].read_bytes()
        kept = (FOLDER / "figures" / path.name).read_text(encoding="utf-8")
        # Coordinates may differ in their last digits between releases of matplotlib; what is
        # written may not.
        assert re.findall(r"<!-- (.*) -->", path.read_text(encoding="utf-8")) == re.findall(
            r"<!-- (.*) -->", kept
        )


def test_everything_was_run(results: Results) -> None:
    expected = {(table, method, k) for table in TABLES for method in METHODS for k in (5, 10, 20)}
    assert {(a.table, a.method, a.k) for a in results.aggregates} == expected
    assert set(results.studies) == {"parameters", "fairness", "plausibility", "frontier"}
    assert all(results.studies.values())
    assert {summary.limit for summary in results.tables.values()} == {1000}


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


# Every number that is written by hand in findings.md.j2, from the results.


@pytest.fixture(scope="module")
def said() -> str:
    return " ".join(SAID.read_text(encoding="utf-8").split())


NAMES = {"grasp": "CF-K (GRASP)", "exact-pureness": "*exact, purest*"}


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
        "reaches both figures that the paper prints for its method in "
        f"{sum(v.is_reached for v in of_paper)} of {len(of_paper)} combinations" in said
    )
    assert (
        "reaches both figures of the paper's method in "
        f"{sum(v.is_reached for v in of_grasp)} of {len(of_grasp)} combinations" in said
    )
    clear = sum((v.ncp_high or 0) < 0 for v in of_grasp)
    assert f"The difference in NCP is clear in {clear} of {len(of_grasp)}:" in said
    anew = verdicts(results, "grasp", "paper")
    lower = sum((v.ncp_high or 0) < 0 for v in anew)
    higher = sum((v.ncp_low or 0) > 0 for v in anew)
    assert (
        "The paper's method, written anew, reaches both figures that the paper prints in "
        f"{sum(v.is_reached for v in anew)} of {len(anew)}. Its NCP is clearly lower in {lower} of "
        f"{len(anew)}, and clearly higher in {higher}." in said
    )
    missed = [v for v in of_paper if not v.is_reached]
    assert {v.table for v in missed} == {"cmc"}
    assert {v.pureness_word for v in missed} == {"reached"}
    assert said.count("NCP missed by") == len(missed) == 2
    assert [v for v in of_grasp if not v.is_reached] == []
    for v in missed:
        least = find(results, v.table, "exact-ncp", v.k)
        grasp = find(results, v.table, "grasp", v.k)
        assert (least.proven, least.released) == (1, v.n)
        assert least.ncp < v.their_ncp
        assert (
            f"**{v.table}, k = {v.k}**: NCP missed by {100 * v.ncp_by:.2f} points. Without regard to pureness, mean NCP "
            f"could be {percent(least.ncp)} %. The paper's method, run on this model, gives {quality(grasp)} (first {grasp.n} explanations)."
            in said
        )


def test_findings_on_mondrian_and_on_k_are_as_said(results: Results, said: str) -> None:
    for method, other, name in (
        ("grasp", "mondrian-raw", "CF-K (GRASP) has lower NCP than Mondrian with raw widths"),
        (
            "exact-pureness",
            "mondrian",
            "*Exact, purest* has lower NCP than Mondrian with normalised widths",
        ),
    ):
        found = verdicts(results, method, other)
        less = sum(v.ncp_word == "reached" for v in found)
        pure = sum(v.pureness_word != "missed" for v in found)
        assert (
            f"{name} in {less} of {len(found)} combinations, and at least its pureness in {pure} "
            f"of {len(found)}." in said
        )
    assert "From k = 5 to 20, with CF-K (GRASP)" in said
    for method, name in NAMES.items():
        chains = [[find(results, table, method, k) for k in (5, 10, 20)] for table in TABLES]
        rises = sum(all(a.ncp <= b.ncp for a, b in pairwise(chain)) for chain in chains)
        falls = sum(all(a.pureness >= b.pureness for a, b in pairwise(chain)) for chain in chains)
        assert (
            f"ith {name}, mean NCP rises or stays the same on {rises} of 6 tables, and mean "
            f"pureness falls or stays the same on {falls} of 6." in said
        )
    found = verdicts(results, "grasp", "paper")
    ncp = max(found, key=lambda v: abs(v.ncp_by))
    pure = max(found, key=lambda v: abs(v.pureness_by))
    assert (
        "The largest differences between CF-K (GRASP) here and what the paper prints are "
        f"{points(ncp.ncp_by)} points of NCP ({ncp.table}, k = {ncp.k}) and "
        f"{points(pure.pureness_by)} points of pureness ({pure.table}, k = {pure.k})." in said
    )
    ratios = {
        (table, k): find(results, table, "mondrian-raw", k).ncp / printed.ncp
        for (method, k, table), printed in published.RESULTS.items()
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
    normalised = {
        (table, k): find(results, table, "mondrian", k).ncp
        / published.RESULTS["mondrian", k, table].ncp
        for table, k in ratios
    }
    nearer = sum(abs(ratios[at] - 1) < abs(normalised[at] - 1) for at in ratios)
    assert (
        "It is nearer to the printed figure than normalised widths in "
        f"{nearer} of {len(ratios)} combinations." in said
    )


def test_findings_on_parameters_are_as_said(results: Results, said: str) -> None:
    ends = {}
    for name, sign in (("k", "k"), ("alpha", "α"), ("iterations", "iterations")):
        rows = [
            r
            for r in results.studies["parameters"]
            if (r["method"], r["parameter"]) == ("grasp", name)
        ]
        a = min(rows, key=lambda r: r["value"])
        b = max(rows, key=lambda r: r["value"])
        ends[name] = (a, b)
        assert (a["table"], a["n"]) == ("german", b["n"])
        assert f"CF-K (GRASP) on german, over {a['n']} explanations" in said
        assert (
            f"| {sign} = {a['value']} | {b['value']} | "
            f"{percent(a['ncp'])} to {percent(b['ncp'])} | "
            f"{percent(a['pureness'])} to {percent(b['pureness'])} | "
            f"{seconds(a['seconds'])} to {seconds(b['seconds'])} |" in said
        )
    assert "NCP moves as in the paper." in said
    for name, is_more in (("k", True), ("alpha", True), ("iterations", False)):
        a, b = ends[name]
        assert (b["ncp"] > a["ncp"]) == is_more
    assert "Pureness does not fall with α here, and does not rise with iterations." in said
    assert ends["iterations"][1]["pureness"] <= ends["iterations"][0]["pureness"]
    assert "A larger k takes less time." in said
    assert ends["alpha"][1]["pureness"] >= ends["alpha"][0]["pureness"]
    assert ends["k"][1]["seconds"] < ends["k"][0]["seconds"]


def is_clear(row: StudyRow) -> bool:
    """Return True if the interval of a difference excludes 0."""
    return (row["difference_low"] or 0) > 0 or (row["difference_high"] or 0) < 0


def test_findings_on_groups_are_as_said(results: Results, said: str) -> None:
    minority = [
        r
        for r in results.studies["fairness"]
        if (r["group"], r["by"]) == ("minority", "counterfactual") and r["difference"] is not None
    ]
    clear = {}
    higher = {}
    wider = {}
    for method in NAMES:
        own = [r for r in minority if r["method"] == method]
        for metric in ("ncp", "pureness"):
            shown = [r for r in own if (r["metric"], r["k"]) == (metric, 10)]
            clear[method, metric] = [r["table"] for r in shown if is_clear(r)]
            if metric == "ncp":
                count = sum(r["difference"] > 0 for r in shown)
                higher[method] = f"on {count} of {len(shown)}"
        at = {(r["table"], r["k"]): r["difference"] for r in own if r["metric"] == "ncp"}
        tables = [table for table in TABLES if {(table, 5), (table, 20)} <= set(at)]
        count = sum(at[table, 20] > at[table, 5] for table in tables)
        wider[method] = f"on {count} of {len(tables)}"
    assert (
        f"mean NCP is higher for the minority {higher['grasp']} tables with CF-K (GRASP), and "
        f"{higher['exact-pureness']} with *exact, purest*; only on heart does the interval exclude "
        "0, with both methods." in said
    )
    assert clear["grasp", "ncp"] == clear["exact-pureness", "ncp"] == ["heart"]
    assert (
        f"larger at k = 20 than at k = 5 {wider['grasp']} tables with CF-K (GRASP), and "
        f"{wider['exact-pureness']} with *exact, purest*." in said
    )
    assert (
        "the interval excludes 0 on no table with CF-K (GRASP), and only on hospital with "
        "*exact, purest*." in said
    )
    assert clear["grasp", "pureness"] == []
    assert clear["exact-pureness", "pureness"] == ["hospital"]


def test_findings_on_plausibility_are_as_said(results: Results, said: str) -> None:
    rows = results.studies["plausibility"]
    variants = {r["method"]: r["nearest"] for r in rows if r["method"].startswith("nice")}
    assert variants.pop("nice-none") == 0
    best = min(variants.values())
    for method in NAMES:
        assert [r["nearest"] < best for r in rows if r["method"] == method] == [True] * 3
    assert "at 3 of 3 values of k for both CF-K (GRASP) and *exact, purest*" in said
    assert f"The nearest such variant is at {number(best)}." in said
    counts = (
        {r["n"] for r in rows if r["method"] == "grasp"},
        {r["n"] for r in rows if r["method"] != "grasp"},
    )
    assert counts == ({20}, {80})
    assert "CF-K (GRASP) was measured on 20 explanations, the others on 80." in said


def test_people_who_remain_are_as_said(results: Results, said: str) -> None:
    alone = [find(results, table, "exact-pureness", 10).k_effective_min for table in TABLES]
    assert (
        "a single person remains for at least one of the 20 explanations on "
        f"{alone.count(1)} of 6 tables" in said
    )
    pairs = [
        (find(results, table, "reciprocal", 10), find(results, table, "exact-pureness", 10))
        for table in TABLES
    ]
    more = sum(a.ncp > b.ncp for a, b in pairs)
    less = sum(a.pureness < b.pureness for a, b in pairs)
    assert f"NCP is higher on {more} of 6 tables, and pureness is lower on {less} of 6." in said


def test_data_are_other_than_the_papers_where_it_is_said(results: Results, said: str) -> None:
    for name, scene in results.tables.items():
        paper = published.TABLES[name]
        rows = scene.rows_train + scene.rows_test
        same = rows == paper.rows and abs(scene.unique - paper.unique) < 0.0005
        assert (f"**{name}** is" in said) != same
        if not same:
            sentence = said[said.index(f"**{name}** is") :]
            assert (
                f"{percent(scene.unique)} % of rows are unique instead of {percent(paper.unique)} %"
                in sentence
            )
    paper = published.TABLES["hospital"]
    scene = results.tables["hospital"]
    assert f"{scene.rows_train + scene.rows_test:,} rows instead of {paper.rows:,}" in said
    assert (
        f"{percent(scene.below_10)} % are in classes below 10 instead of {percent(paper.below_10)} %"
        in said
    )
