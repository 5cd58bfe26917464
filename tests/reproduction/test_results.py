"""What follows from outcomes: aggregates, verdicts and studies that can be added up by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reproduced
from cfk_plugin.errors import InputError
from cfk_plugin.protection.baselines import GraspProtector
from reproduced import outcome
from reproduction.measure import NICE, Job, Measurement
from reproduction.results import Results, Verdict, aggregate, published, verdicts
from reproduction.studies import PARAMETERS, STUDIES, USUAL
from reproduction.tables import NAMES as TABLES

Values = list[float | None]


# --- aggregates and verdicts ----------------------------------------------------------------------


def test_figures_are_over_what_was_released() -> None:
    found = aggregate(
        outcome(
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
    assert (found.seconds, found.search_seconds, found.model_seconds, found.fit_seconds) == (
        0.5,
        0.375,
        0.125,
        0.5,
    )


@pytest.mark.parametrize("values", [[None, None], []])
def test_nothing_released_is_none_and_not_zero(values: list[float | None]) -> None:
    every = dict.fromkeys(
        ("ncp", "pureness", "people", "k_desired", "k_consistent", "proven", "agrees"), values
    )
    found = aggregate(outcome(**every))
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


def test_other_settings_are_left_out_and_runs_found() -> None:
    usual = outcome(ncp=[0.1])
    found = Results.of(
        {"a": usual, "b": replace(usual, options={"alpha": 40})},
        command="",
        runs={"a": "a1", "b": "b1"},
    )
    assert [a.run_id for a in found.aggregates] == ["a1"]


def judged(
    ncp: Values, pureness: Values, grasp: tuple[Values, Values] | None = None, **ours: Values
) -> Verdict:
    """Return the verdict on our method against GRASP; against the paper without one."""
    mine = outcome(ncp=ncp, pureness=pureness, **{"proven": [0.0] * len(ncp), **ours})
    theirs = [outcome(method="grasp", ncp=grasp[0], pureness=grasp[1])] if grasp else []
    against = "grasp" if grasp else "paper"
    (found,) = [
        v for v in verdicts([mine, *theirs]) if (v.method, v.against) == ("exact-pureness", against)
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


def test_different_explanations_do_not_compare() -> None:
    ours, theirs = outcome(ncp=[0.1]), outcome(method="grasp", ncp=[0.2])
    with pytest.raises(InputError, match="different settings"):
        verdicts([ours, replace(theirs, config=replace(theirs.config, seed=1))])


def test_a_k_that_the_paper_does_not_print_has_no_verdict_against_it() -> None:
    assert published().result("cf-k", 7, "cmc") is None
    assert verdicts([outcome(k=7, ncp=[0.1])]) == []


def test_mondrian_is_a_yardstick_of_both() -> None:
    found = verdicts(
        [
            outcome(method=method, ncp=[0.1])
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

INTERVALS = {
    name: [name, f"{name}_low", f"{name}_high"]
    for name in ("ncp", "pureness", "nearest", "nearest_5", "distance")
}
COLUMNS = {
    "parameters": [
        "table",
        "parameter",
        "value",
        "method",
        *INTERVALS["ncp"],
        *INTERVALS["pureness"],
        "seconds",
        "n",
    ],
    "fairness": [
        *["table", "k", "method", "by", "group", "metric", "mean", "low", "high", "n"],
        *["difference", "difference_low", "difference_high"],
    ],
    "plausibility": [
        "table",
        "method",
        "k",
        *INTERVALS["nearest"],
        *INTERVALS["nearest_5"],
        "n",
        "unit",
    ],
    "frontier": [
        "table",
        "k",
        "method",
        *INTERVALS["ncp"],
        *INTERVALS["pureness"],
        "released",
        "n",
    ],
}
NCP = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, None, 0.0, 0.0, 0.2, 0.2, 0.1)
PURE = (1.0, 1.0, 1.0, 1.0, 0.4, 1.0, None, 1.0, 1.0, 0.8, 1.0, 1.0)
GROUPS = ("minority",) * 5 + ("other",) + ("majority",) * 6


def studied(
    method: str = "exact-pureness", k: int = 10, table: str = "german", **changes: Any
) -> Measurement:
    """Return an outcome whose means can be added up: 2.6 of NCP and 10.2 of pureness over eleven
    explanations.
    """
    figures = {
        "ncp": NCP,
        "pureness": PURE,
        "k": tuple(None if value is None else 12.0 for value in NCP),
        "nearest": tuple(None if value is None else 2 * value for value in NCP),
        "nearest_5": tuple(None if value is None else 4 * value for value in NCP),
        "distance": tuple(None if value is None else value / 2 for value in NCP),
    }
    usual = {
        "seconds": 6.0,
        "figures": figures,
        "groups": GROUPS,
        "groups_asking": tuple(reversed(GROUPS)),
    }
    return replace(outcome(table, method, k, ncp=[None] * 12), **{**usual, **changes})


def of_job(job: Job) -> Measurement:
    return studied(job.method, job.k, job.table, options=job.options)


@pytest.mark.parametrize("name", list(STUDIES))
def test_rows_have_their_columns_and_say_which_job_they_are_of(name: str) -> None:
    jobs = STUDIES[name].jobs(["german", "heart"], 50)
    config = reproduced.config(table="german")
    outcomes = {job.key(config): of_job(job) for job in jobs}
    assert len(outcomes) == len(jobs)  # no job twice
    found = STUDIES[name].rows(outcomes)
    assert all(list(row) == ["piece", *COLUMNS[name]] for row in found)
    assert {row["piece"] for row in found} == set(outcomes)
    assert STUDIES[name].rows({}) == []
    assert STUDIES[name].jobs([], 50) == []


@pytest.mark.parametrize("name", ["parameters", "fairness", "plausibility"])
def test_grasp_can_be_asked_for_less(name: str) -> None:
    jobs = STUDIES[name].jobs(["german", "heart"], 7)
    assert {job.asked for job in jobs if job.method == "grasp"} == {7}


def test_parameters_are_those_of_figure_4() -> None:
    jobs = STUDIES["parameters"].jobs(["german", "adult"], 50)
    assert {job.table for job in jobs} == {"german"}
    assert {job.asked for job in jobs} == {50}
    assert STUDIES["parameters"].jobs(["adult"], 50) == []
    usual = GraspProtector()
    assert {"k": 10, "alpha": usual.alpha, "iterations": usual.iterations} == USUAL
    found = STUDIES["parameters"].rows({f"{i}": of_job(job) for i, job in enumerate(jobs)})
    shown = [(row["method"], row["parameter"], row["value"]) for row in found]
    exact = [("exact-pureness", "k", value) for value in PARAMETERS["k"]]
    grasp = [("grasp", name, value) for name, values in PARAMETERS.items() for value in values]
    assert sorted(shown) == sorted(exact + grasp)
    assert len(jobs) == len(shown) - 2  # the usual settings are a value of all three, measured once
    assert found[0]["seconds"] == 0.5


def test_a_mean_is_over_what_was_released() -> None:
    (row,) = STUDIES["frontier"].rows({"key": studied("exact-ncp", 3, "cmc")})
    assert row["ncp"] == pytest.approx(2.6 / 11)
    assert row["pureness"] == pytest.approx(10.2 / 11)
    assert row["ncp_low"] < row["ncp"] < row["ncp_high"]
    assert (row["released"], row["n"]) == (pytest.approx(11 / 12), 11)
    assert (row["table"], row["k"], row["method"]) == ("cmc", 3, "exact-ncp")


def test_nothing_released_is_no_figure() -> None:
    nothing = dict.fromkeys(studied().figures, (None,) * 12)
    (row,) = STUDIES["frontier"].rows({"key": studied(figures=nothing)})
    assert (row["ncp"], row["ncp_low"], row["pureness_high"], row["released"], row["n"]) == (
        None,
        None,
        None,
        0,
        0,
    )


def test_groups_are_compared_by_hand() -> None:
    found = STUDIES["fairness"].rows({"key": studied()})
    by = {(row["by"], row["group"], row["metric"]): row for row in found}
    assert len(by) == len(found) == 8
    minority, majority = (
        by["counterfactual", "minority", "ncp"],
        by["counterfactual", "majority", "ncp"],
    )
    assert (minority["mean"], minority["n"]) == (pytest.approx(0.3), 5)
    assert (majority["mean"], majority["n"]) == (pytest.approx(0.1), 5)  # one of six was withheld
    assert minority["difference"] == majority["difference"] == pytest.approx(0.2)
    assert 0 < minority["difference_low"] < 0.2 < minority["difference_high"] < 0.4
    assert by["counterfactual", "minority", "pureness"]["mean"] == pytest.approx(0.88)
    assert by["asking", "minority", "ncp"]["mean"] == pytest.approx(0.5 / 5)
    assert by["asking", "majority", "ncp"]["mean"] == pytest.approx(2.1 / 6)


def test_groups_too_small_for_an_interval_have_none() -> None:
    groups = ("minority",) * 4 + ("majority",) * 8
    found = STUDIES["fairness"].rows(
        {"key": studied(groups=groups, groups_asking=("majority",) * 12)}
    )
    by = {(row["by"], row["group"], row["metric"]): row for row in found}
    few, many = by["counterfactual", "minority", "ncp"], by["counterfactual", "majority", "ncp"]
    assert (few["mean"], few["low"], few["high"]) == (pytest.approx(0.25), None, None)
    assert many["low"] is not None
    assert few["difference"] == pytest.approx(0.25 - 1.6 / 7)
    assert few["difference_low"] is None
    nobody = by["asking", "minority", "ncp"]
    assert (nobody["mean"], nobody["low"], nobody["n"], nobody["difference"]) == (
        None,
        None,
        0,
        None,
    )


def test_fairness_measures_what_the_main_tables_do() -> None:
    found = STUDIES["fairness"].jobs(["adult"], 100)
    assert Job(table="adult", method="grasp", k=20, asked=100) in found
    assert Job(table="adult", method="exact-pureness", k=5) in found
    assert len(found) == 6


def test_table_8_has_a_column_for_every_nice_and_every_k() -> None:
    jobs = STUDIES["plausibility"].jobs(["german", "heart"], 20)
    found = STUDIES["plausibility"].rows({f"{i}": of_job(job) for i, job in enumerate(jobs)})
    shown = {(row["method"], row["k"]) for row in found}
    ours = {(method, k) for method in ("grasp", "exact-pureness") for k in (5, 10, 20)}
    assert shown == {(name, None) for name in NICE} | ours
    assert found[0]["nearest_5"] == pytest.approx(4 * 2.6 / 11)
    assert found[0]["unit"] == "sum over features"


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
        found = [getattr(published().results[method, k, table], name) for table in TABLES]  # type: ignore[index]
        scale = 100 if name in ("ncp", "pureness") else 1
        assert [scale * value for value in found] == pytest.approx(printed), name
    assert f"Table {number}," in published().results[method, k, "adult"].source  # type: ignore[index]


def test_descriptions_are_the_papers(text: str) -> None:
    rows, _, unique, below = rows_after(text, r"Table 5\. Description")[:4]
    found = [published().data[table] for table in TABLES]
    assert [data.rows for data in found] == rows
    assert [100 * data.unique for data in found] == pytest.approx(unique)
    assert [100 * data.below_10 for data in found] == pytest.approx(below)


def test_distances_are_the_papers(text: str) -> None:
    for name, number in (("nearest", "1NN"), ("nearest_5", "5NN")):
        line = re.search(rf"^{number} (.+)$", text, re.M)
        assert line is not None
        assert [getattr(found, name) for found in published().plausibility] == [
            float(word) for word in line[1].split()
        ]
    order = [(found.method, found.k) for found in published().plausibility]
    nice = [f"nice-{how}" for how in ("none", "sparsity", "proximity", "plausibility")]
    assert order == [*((method, None) for method in nice), ("cf-k", 5), ("cf-k", 10), ("cf-k", 20)]


def test_shares_are_shares() -> None:
    for found in published().results.values():
        assert 0 <= found.ncp <= 1
        assert 0.5 <= found.pureness <= 1
    assert published().results["cf-k", 10, "adult"].ncp == 0.0055
    assert published().data["adult"].unique == 0.0317


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
        for key, r in published().results.items()
        if abs(r.cdm / explained[key[2]] - r.cdm_per_explanation) > 0.02
    }
    assert off == {("mondrian", 5, "german")}  # printed as 6.07, where 402 / 60 is 6.70
