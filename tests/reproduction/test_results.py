"""What follows from outcomes: aggregates, verdicts and studies that can be added up by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfk_plugin.protection.lookup.grasp import GraspProtector
from reproduced import measurement
from reproduction import published, run
from reproduction.measure import NICE, Distances, Measurement
from reproduction.results import StudyRow, Verdict, aggregate, judge
from reproduction.studies import (
    FRONTIER_KS,
    PARAMETERS,
    USUAL,
    fairness_rows,
    frontier_row,
    parameter_row,
    plausibility_row,
)
from reproduction.tables import NAMES as TABLES

Values = list[float | None]


# --- aggregates and verdicts ----------------------------------------------------------------------


def test_figures_are_over_what_was_released() -> None:
    found = aggregate(
        measurement(
            ncp=[0.1, None, 0.4, 0.1],
            pureness=[1.0, None, 0.5, 0.9],
            people=[10.0, None, 12.0, 17.0],
            k_desired=[8.0, None, 2.0, 11.0],
            k_consistent=[1.0, None, 2.0, 3.0],
            k_effective=[4.0, None, None, None],
            proven=[1.0, None, 0.0, 1.0],
            agrees=[0.0, None, 1.0, 1.0],
        )
    )
    assert (found.n, found.released) == (4, 3)
    assert (found.ncp, found.pureness) == pytest.approx((0.2, 0.8))
    assert found.ncp_low is not None
    assert found.ncp_high is not None
    assert 0.1 <= found.ncp_low < 0.2 < found.ncp_high < 0.4 + 1e-9
    assert (found.cdm, found.cdm_per_explanation) == (39, 13)
    assert found.cm == pytest.approx(1 / 3)
    assert (found.k_min, found.k_desired, found.k_desired_min) == (10, 7, 2)
    assert (found.k_consistent, found.k_consistent_min) == (2, 1)
    assert (found.k_effective, found.k_effective_min, found.k_effective_n) == (4, 4, 1)
    assert (found.proven, found.pure) == pytest.approx((2 / 3, 1 / 3))
    assert (found.seconds, found.search_seconds, found.model_seconds) == (0.5, 0.375, 0.125)


@pytest.mark.parametrize("values", [[None, None], []])
def test_nothing_released_is_none_and_not_zero(values: list[float | None]) -> None:
    every = dict.fromkeys(
        ("ncp", "pureness", "people", "k_desired", "k_consistent", "proven", "agrees"), values
    )
    found = aggregate(measurement(**every))
    assert (found.n, found.released) == (len(values), 0)
    empty = (
        found.ncp,
        found.ncp_low,
        found.pureness,
        found.cdm,
        found.cdm_per_explanation,
        found.cm,
        found.k_desired,
    )
    assert set(empty) == {None}
    assert (found.proven, found.pure, found.k_min, found.k_effective_n) == (None, None, None, 0)


def test_other_settings_are_not_judged() -> None:
    usual = measurement(ncp=[0.1])
    other = measurement(ncp=[0.9], settings={"alpha": 40})
    assert judge([usual, other]) == judge([usual])


def judged(
    ncp: Values, pureness: Values, grasp: tuple[Values, Values] | None = None, **ours: Values
) -> Verdict:
    """Return the verdict on our method against GRASP; against the paper without one."""
    mine = measurement(ncp=ncp, pureness=pureness, **{"proven": [0.0] * len(ncp), **ours})
    theirs = [measurement(method="grasp", ncp=grasp[0], pureness=grasp[1])] if grasp else []
    against = "grasp" if grasp else "paper"
    (found,) = [
        v for v in judge([mine, *theirs]) if (v.method, v.against) == ("exact-pureness", against)
    ]
    return found


VERDICTS: dict[str, tuple[Verdict, tuple[str, str, bool]]] = {
    "better than the paper": (judged([0.03], [0.99]), ("reached", "reached", True)),
    "worse than the paper": (judged([0.05, 0.0468], [0.9, 0.95]), ("missed", "missed", False)),
    "NCP alone": (judged([0.03], [0.9]), ("reached", "missed", False)),
    "pureness alone": (judged([0.05], [0.99]), ("missed", "reached", False)),
    "equal at the bound": (
        judged([0.0, 0.2], [1.0, 1.0], ([0.1, 0.2], [1.0, 1.0])),
        ("reached", "equal", True),
    ),
    "equal at the other": (judged([0.0], [1.0], ([0.0], [0.9])), ("equal", "reached", True)),
    "a tie elsewhere": (judged([0.1], [0.9], ([0.2], [0.9])), ("reached", "tied", False)),
    "a tie in one figure of what is proven": (
        judged([0.1], [0.9], ([0.2], [0.9]), proven=[1.0]),
        ("reached", "tied", False),
    ),
    "a tie that is proven": (
        judged([0.1], [1.0], ([0.1], [1.0]), proven=[1.0]),
        ("equal", "equal", True),
    ),
    **{
        f"a tie, {how}": (
            judged([0.1] * 2, [1.0] * 2, ([0.1] * 2, [1.0] * 2), proven=proven),
            ("tied", "equal", False),
        )
        for how, proven in {"half proven": [1.0, 0.0], "not measured": [1.0, None]}.items()
    },
    "nothing in common": (
        judged([None], [None], ([0.1], [1.0])),
        ("not measured", "not measured", False),
    ),
    "one that GRASP withheld": (
        judged([0.1, 0.9], [1.0, 0.0], ([0.2, None], [0.8, None])),
        ("reached", "reached", True),
    ),
    # GRASP was asked for two, and ours withheld the first: one is common.
    "one in common": (
        judged([None, 0.1, 0.9], [None, 1.0, 0.0], ([0.9, 0.2], [0.0, 0.8])),
        ("reached", "reached", True),
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_both_figures_must_be_reached_and_a_tie_counts_where_nothing_is_better(case: str) -> None:
    found, expected = VERDICTS[case]
    assert (found.ncp_word, found.pureness_word, found.is_reached) == expected


def test_a_verdict_says_by_how_much() -> None:
    found = VERDICTS["better than the paper"][0]
    assert (found.their_ncp, found.their_pureness) == (0.0384, 0.9315)
    assert (found.ncp_by, found.pureness_by) == pytest.approx((-0.0084, 0.0585))
    found = VERDICTS["worse than the paper"][0]
    assert (found.ncp_by, found.pureness_by) == pytest.approx((0.01, -0.0065))
    assert found.ncp_low is not None
    assert found.ncp_high is not None
    assert found.ncp_low <= 0.01 <= found.ncp_high
    found = VERDICTS["one in common"][0]
    assert (found.n, found.ncp, found.their_ncp) == (1, 0.1, 0.2)
    assert (VERDICTS["nothing in common"][0].n, VERDICTS["nothing in common"][0].is_measured) == (
        0,
        False,
    )


def test_a_verdict_on_nothing_proves_nothing() -> None:
    assert VERDICTS["nothing in common"][0].optimal is False
    assert VERDICTS["a tie that is proven"][0].optimal is True


def test_grasp_is_compared_on_the_explanations_that_it_was_asked_for() -> None:
    grasp = measurement(method="grasp", ncp=[0.1])
    mondrian = measurement(method="mondrian-raw", ncp=[0.3, 0.9])
    (verdict,) = [v for v in judge([grasp, mondrian]) if v.against == "mondrian-raw"]
    assert (verdict.n, verdict.ncp, verdict.their_ncp) == (1, 0.1, 0.3)


def test_a_k_that_the_paper_does_not_print_has_no_verdict_against_it() -> None:
    assert ("cf-k", 7, "cmc") not in published.RESULTS
    assert judge([measurement(k=7, ncp=[0.1])]) == []


def test_mondrian_is_a_yardstick_of_both() -> None:
    found = judge(
        [
            measurement(method=method, ncp=[0.1])
            for method in ("grasp", "mondrian-raw", "mondrian", "exact-pureness")
        ]
    )
    assert {(v.method, v.against) for v in found} == {
        ("exact-pureness", "paper"),
        ("exact-pureness", "grasp"),
        ("exact-pureness", "mondrian"),
        ("grasp", "paper"),
        ("grasp", "mondrian-raw"),
    }


# --- studies --------------------------------------------------------------------------------------

NCP = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, None, 0.0, 0.0, 0.2, 0.2, 0.1)
PURE = (1.0, 1.0, 1.0, 1.0, 0.4, 1.0, None, 1.0, 1.0, 0.8, 1.0, 1.0)
GROUPS = ("minority",) * 5 + ("other",) + ("majority",) * 6


def studied(
    method: str = "exact-pureness", k: int = 10, table: str = "german", **changes: Any
) -> Measurement:
    """Return a measurement whose means can be added up: 2.6 of NCP and 10.2 of pureness over eleven
    explanations.
    """
    usual = {
        "groups": GROUPS,
        "groups_asking": tuple(reversed(GROUPS)),
        "ncp": list(NCP),
        "pureness": list(PURE),
    }
    return measurement(table, method, k, **{**usual, **changes})


def rows_of_groups(measured: Measurement) -> dict[tuple[str, str, str], StudyRow]:
    rows = list(fairness_rows(measured))
    by_name = {(row["by"], row["group"], row["metric"]): row for row in rows}
    assert len(by_name) == len(rows) == 8
    return by_name


def test_a_mean_is_over_what_was_released() -> None:
    row = frontier_row(studied("exact-ncp", 3, "cmc"))
    assert row["ncp"] == pytest.approx(2.6 / 11)
    assert row["pureness"] == pytest.approx(10.2 / 11)
    assert row["ncp_low"] < row["ncp"] < row["ncp_high"]
    assert (row["released"], row["n"]) == (pytest.approx(11 / 12), 11)
    assert (row["table"], row["k"], row["method"]) == ("cmc", 3, "exact-ncp")


def test_nothing_released_is_no_figure() -> None:
    nothing = [None] * 12
    row = frontier_row(studied(ncp=nothing, pureness=nothing))
    assert row["ncp"] is row["ncp_low"] is row["pureness_high"] is None
    assert (row["released"], row["n"]) == (0, 0)


def test_groups_are_compared_by_hand() -> None:
    rows = rows_of_groups(studied())
    minority = rows["counterfactual", "minority", "ncp"]
    majority = rows["counterfactual", "majority", "ncp"]
    assert (minority["mean"], minority["n"]) == (pytest.approx(0.3), 5)
    assert (majority["mean"], majority["n"]) == (pytest.approx(0.1), 5)  # one of six was withheld
    assert minority["difference"] == majority["difference"] == pytest.approx(0.2)
    assert 0 < minority["difference_low"] < 0.2 < minority["difference_high"] < 0.4
    assert rows["counterfactual", "minority", "pureness"]["mean"] == pytest.approx(0.88)
    assert rows["asking", "minority", "ncp"]["mean"] == pytest.approx(0.5 / 5)
    assert rows["asking", "majority", "ncp"]["mean"] == pytest.approx(2.1 / 6)


def test_groups_too_small_for_an_interval_have_none() -> None:
    groups = ("minority",) * 4 + ("majority",) * 8
    rows = rows_of_groups(studied(groups=groups, groups_asking=("majority",) * 12))
    few = rows["counterfactual", "minority", "ncp"]
    many = rows["counterfactual", "majority", "ncp"]
    assert (few["mean"], few["mean_low"], few["mean_high"]) == (pytest.approx(0.25), None, None)
    assert many["mean_low"] is not None
    assert few["difference"] == pytest.approx(0.25 - 1.6 / 7)
    assert few["difference_low"] is None
    swapped = rows_of_groups(studied(groups=("majority",) * 4 + ("minority",) * 8))
    assert swapped["counterfactual", "minority", "ncp"]["difference_low"] is None
    nobody = rows["asking", "minority", "ncp"]
    assert nobody["mean"] is nobody["mean_low"] is nobody["difference"] is None
    assert nobody["n"] == 0


def test_a_distance_has_its_mean_and_interval() -> None:
    nearest = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
    row = plausibility_row(
        Distances(table="german", method="grasp", k=5, nearest=nearest, nearest_5=2 * nearest)
    )
    assert (row["nearest"], row["nearest_5"], row["n"]) == (pytest.approx(0.6), 1.2, 5)
    assert row["nearest_low"] < 0.6 < row["nearest_high"]


class Asked:
    """Stands in for what measures, and keeps what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def measure(self, prepared: object, method: str, k: int, **options: Any) -> Measurement:
        self.calls.append({"method": method, "k": k, **options})
        return studied(method, k, settings=options.get("settings"))

    def measure_distances(
        self, prepared: object, method: str, k: int | None = None, **options: Any
    ) -> Distances:
        self.calls.append({"method": method, "k": k, **options})
        values = np.array([0.1, 0.2])
        return Distances(table="german", method=method, k=k, nearest=values, nearest_5=values)


class Table:
    """Stands in for a table that is ready to be measured."""

    name = "german"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    stand_in = Asked()
    monkeypatch.setattr(run, "measure", stand_in.measure)
    monkeypatch.setattr(run, "measure_distances", stand_in.measure_distances)
    monkeypatch.setattr(run, "measure_nice_distances", stand_in.measure_distances)
    return stand_in


def test_parameters_are_those_of_figure_4(asked: Asked) -> None:
    rows = run.run_parameters(Table())  # type: ignore[arg-type]
    shown = [(row["method"], row["parameter"], row["value"]) for row in rows]
    exact = [("exact-pureness", "k", value) for value in PARAMETERS["k"]]
    grasp = [("grasp", name, value) for name, values in PARAMETERS.items() for value in values]
    assert sorted(shown) == sorted(exact + grasp)
    # The usual settings are a value of all three, and are measured once.
    assert len(asked.calls) == len(shown) - 2
    assert {call["n"] for call in asked.calls} == {15}
    usual = GraspProtector()
    assert {"k": 10, "alpha": usual.alpha, "iterations": usual.iterations} == USUAL


def test_a_parameter_is_the_only_one_that_is_changed(asked: Asked) -> None:
    run.run_parameters(Table())  # type: ignore[arg-type]
    changed = [
        (call["k"], call.get("settings", {})) for call in asked.calls if call["method"] == "grasp"
    ]
    assert (30, {}) in changed
    assert (10, {"alpha": 80}) in changed
    assert (10, {"iterations": 1}) in changed
    assert all(k == 10 for k, settings in changed if settings)


def test_a_time_is_per_explanation() -> None:
    assert parameter_row("k", 10, studied())["seconds"] == pytest.approx(2.0 / 12)


def test_table_8_has_a_column_for_every_nice_and_every_k(asked: Asked) -> None:
    rows = run.run_plausibility(Table())  # type: ignore[arg-type]
    shown = [(row["method"], row["k"]) for row in rows]
    ours = [(method, k) for method in ("grasp", "exact-pureness") for k in (5, 10, 20)]
    assert shown == [(name, None) for name in NICE] + ours
    of_grasp = {call["n"] for call in asked.calls if call["method"] == "grasp"}
    assert of_grasp == {20}


def test_what_the_main_tables_have_is_not_measured_again(asked: Asked) -> None:
    run.run_table(Table())  # type: ignore[arg-type]
    main = [call for call in asked.calls if call.get("n_effective") == 20]
    assert len(main) == 6 * 3
    assert {call["n"] for call in main if call["method"] == "grasp"} == {100}
    frontier = [call for call in asked.calls if set(call) == {"method", "k"}]
    of_frontier = {(call["method"], call["k"]) for call in frontier if call["k"] is not None}
    assert of_frontier == {
        (method, k)
        for method in ("exact-pureness", "exact-ncp")
        for k in FRONTIER_KS
        if k not in (5, 10, 20)
    }


# --- what the paper prints ------------------------------------------------------------------------

PAPER = "goethals-2023-explanation-linkage-attacks.txt"
FIGURES = ("ncp", "pureness", "seconds", "cdm", "cdm_per_explanation", "cm")


@pytest.fixture(scope="module")
def text(shared_data: Path) -> str:
    path = shared_data.parent / "papers" / PAPER
    if not path.is_file():
        pytest.skip("needs the text of the paper in ../shared/papers beside the repository")
    return path.read_text("utf-8")


def numbers(line: str) -> list[float]:
    """Return the six numbers that a row of the paper's tables ends with; nothing of another
    line.
    """
    found = re.search(r"((?:\s|^)[\d.,]+(?:%|s|(?=\s|$))){6}$", line.strip())
    if found is None:
        return []
    # 87,181 is a number of thousands, and 35,85 is one misprinted decimal.
    words = [
        re.sub(r",(?=\d{3}$)", "", word.rstrip("%s")).replace(",", ".") for word in found[0].split()
    ]
    return [float(word) for word in words]


def rows_after(text: str, heading: str) -> list[list[float]]:
    """Return the rows of numbers below a heading that starts a line."""
    lines = text[re.search(f"^{heading}", text, re.M).end() :].splitlines()  # type: ignore[union-attr]
    return [row for row in map(numbers, lines) if row]


@pytest.mark.parametrize(
    ("method", "k", "number"),
    [
        ("cf-k", 10, 6),
        ("mondrian", 10, 7),
        ("cf-k", 5, 9),
        ("mondrian", 5, 10),
        ("cf-k", 20, 11),
        ("mondrian", 20, 12),
    ],
)
def test_tables_are_the_papers(text: str, method: str, k: int, number: int) -> None:
    heading = re.search(rf"^Table {number}\. Results of .*$", text, re.M)
    assert heading is not None
    assert ("CF-K" in heading[0], f"= {k})" in heading[0]) == (method == "cf-k", True)
    for name, printed in zip(FIGURES, rows_after(text, rf"Table {number}\. Results"), strict=False):
        found = [getattr(published.RESULTS[method, k, table], name) for table in TABLES]  # type: ignore[index]
        scale = 100 if name in ("ncp", "pureness") else 1
        assert [scale * value for value in found] == pytest.approx(printed), name
    assert f"Table {number}," in published.RESULTS[method, k, "adult"].source  # type: ignore[index]


def test_descriptions_are_the_papers(text: str) -> None:
    rows, _, unique, below = rows_after(text, r"Table 5\. Description")[:4]
    found = [published.TABLES[table] for table in TABLES]
    assert [data.rows for data in found] == rows
    assert [100 * data.unique for data in found] == pytest.approx(unique)
    assert [100 * data.below_10 for data in found] == pytest.approx(below)


def test_distances_are_the_papers(text: str) -> None:
    for name, number in (("nearest", "1NN"), ("nearest_5", "5NN")):
        line = re.search(rf"^{number} (.+)$", text, re.M)
        assert line is not None
        assert [getattr(found, name) for found in published.DISTANCES] == [
            float(word) for word in line[1].split()
        ]
    order = [(found.method, found.k) for found in published.DISTANCES]
    nice = [f"nice-{how}" for how in ("none", "sparsity", "proximity", "plausibility")]
    assert order == [*((method, None) for method in nice), ("cf-k", 5), ("cf-k", 10), ("cf-k", 20)]


def test_shares_are_shares() -> None:
    for found in published.RESULTS.values():
        assert 0 <= found.ncp <= 1
        assert 0.5 <= found.pureness <= 1
    assert published.RESULTS["cf-k", 10, "adult"].ncp == 0.0055
    assert published.TABLES["adult"].unique == 0.0317


def test_both_forms_of_cdm_imply_one_number_of_explanations_per_table() -> None:
    # The same ones were explained at every k by both methods; a slip in either form would show.
    explained = {
        "adult": 787,
        "cmc": 406,
        "german": 60,
        "heart": 56,
        "hospital": 746,
        "informs": 661,
    }
    off = {
        key
        for key, r in published.RESULTS.items()
        if abs(r.cdm / explained[key[2]] - r.cdm_per_explanation) > 0.02
    }
    assert off == {("mondrian", 5, "german")}  # printed as 6.07, where 402 / 60 is 6.70
