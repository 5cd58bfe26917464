"""What follows from outcomes: aggregates, verdicts and studies that can be added up by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduced import measurement
from reproduction import published, run
from reproduction.measure import Distances, Measurement
from reproduction.results import StudyRow, Verdict, aggregate, judge
from reproduction.studies import (
    fairness_rows,
)
from reproduction.tables import NAMES as TABLES

Values = list[float | None]


# --- aggregates and verdicts ----------------------------------------------------------------------


def test_figures_are_over_what_was_released() -> None:
    """One of four explanations is withheld, and no mean includes it."""
    found = aggregate(
        measurement(
            ncp=[0.1, None, 0.4, 0.1],
            pureness=[1.0, None, 0.5, 0.9],
            people=[10.0, None, 12.0, 17.0],
            k_desired=[8.0, None, 2.0, 11.0],
            k_consistent=[1.0, None, 2.0, 3.0],
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
    assert (found.proven, found.pure) == pytest.approx((2 / 3, 1 / 3))
    assert (found.seconds, found.search_seconds, found.model_seconds) == (0.5, 0.375, 0.125)


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
def test_verdict_needs_both_figures(case: str) -> None:
    """A tie counts only if nothing is better: at a bound, or with a proof."""
    found, expected = VERDICTS[case]
    assert (found.ncp_word, found.pureness_word, found.is_reached) == expected


def test_verdict_has_the_differences() -> None:
    """They are taken over the explanations in common, and have an interval."""
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


def test_group_means_equal_hand_calculation() -> None:
    """Groups are of the counterfactuals or of those who ask; a withheld one does not count."""
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
    """Each number is read from the text of the paper."""
    heading = re.search(rf"^Table {number}\. Results of .*$", text, re.M)
    assert heading is not None
    assert ("CF-K" in heading[0], f"= {k})" in heading[0]) == (method == "cf-k", True)
    for name, printed in zip(FIGURES, rows_after(text, rf"Table {number}\. Results"), strict=False):
        found = [getattr(published.RESULTS[method, k, table], name) for table in TABLES]  # type: ignore[index]
        scale = 100 if name in ("ncp", "pureness") else 1
        assert [scale * value for value in found] == pytest.approx(printed), name
    assert f"Table {number}," in published.RESULTS[method, k, "adult"].source  # type: ignore[index]


def test_descriptions_are_the_papers(text: str) -> None:
    """Table 5 has the rows of each table, and the shares of unique and of rare ones."""
    rows, _, unique, below = rows_after(text, r"Table 5\. Description")[:4]
    found = [published.TABLES[table] for table in TABLES]
    assert [data.rows for data in found] == rows
    assert [100 * data.unique for data in found] == pytest.approx(unique)
    assert [100 * data.below_10 for data in found] == pytest.approx(below)


def test_distances_are_the_papers(text: str) -> None:
    """To one and to five rows, for the variants of NICE and each k of CF-K."""
    for name, number in (("nearest", "1NN"), ("nearest_5", "5NN")):
        line = re.search(rf"^{number} (.+)$", text, re.M)
        assert line is not None
        assert [getattr(found, name) for found in published.DISTANCES] == [
            float(word) for word in line[1].split()
        ]
    order = [(found.method, found.k) for found in published.DISTANCES]
    nice = [f"nice-{how}" for how in ("none", "sparsity", "proximity", "plausibility")]
    assert order == [*((method, None) for method in nice), ("cf-k", 5), ("cf-k", 10), ("cf-k", 20)]


def test_published_shares_are_fractions() -> None:
    """The paper prints them in percent."""
    for found in published.RESULTS.values():
        assert 0 <= found.ncp <= 1
        assert 0.5 <= found.pureness <= 1
    assert published.RESULTS["cf-k", 10, "adult"].ncp == 0.0055
    assert published.TABLES["adult"].unique == 0.0317
