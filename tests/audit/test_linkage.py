"""Attacks on regions: by hand on the paper's example, and against plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toy
from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.audit import (
    AuditResult,
    Setting,
    linkage,
    model_filter,
    run_linkage_audit,
    uniqueness,
)
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector


class PaperRegion:
    """Proposes the region of the paper's Figure 2 for Fiona and Gina, and Antwerp or Brussels for
    everybody else.
    """

    name = "figure-2"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        return [Proposal(self.region(request, i)) for i in range(len(request))]

    def region(self, request: ProtectionRequest, i: int) -> Region:
        person = request.population.row_codes.decode(request.rows[[i]]).iloc[0]
        if person["Age"] in {24, 27}:
            return toy.REGION
        town = "Antwerp" if person["City"] == "Antwerp" else "Brussels"
        return Region(
            {"Age": Interval(20, 70), "Gender": frozenset({"F", "M"}), "City": frozenset({town})}
        )


def of_paper(**options: Any) -> Setting:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup"), method=PaperRegion())
    return Setting(anonymizer.fit(toy.population(), toy.model, toy.DESIRED), toy.FIONA, **options)


BY_HAND: dict[str, tuple[Callable[[Setting], AuditResult], float, dict[str, float]]] = {
    "linkage: the raw explanation is Fiona, the protected one is one of three; Ingrid has 60 and is single as well": (
        linkage,
        1 / 3,
        {
            "baseline": 1 / 10,
            "raw_success": 1,
            "raw_singled_out": 1,
            "singled_out": 0,
            "k_min": 3,
            "values_right": 2 / 3,
        },
    ),
    "model_filter: the model leaves Fiona alone": (
        model_filter,
        1.0,
        {
            "baseline": 1 / 3,
            "k_consistent_min": 1,
            "k_consistent_one": 1,
            "struck_out": 2 / 3,
        },
    ),
    "uniqueness: private values are shared by two": (
        uniqueness,
        1 / 2,
        {"private_matches_min": 2, "k_private_min": 2},
    ),
}


@pytest.mark.parametrize("attack", BY_HAND)
def test_on_the_papers_example_an_attack_reaches_what_a_hand_counts(attack: str) -> None:
    run, main, figures = BY_HAND[attack]
    found = run(of_paper())
    assert (found.main.value, found.control) == (pytest.approx(main), None)
    said = {"baseline": found.baseline.value, **found.figures}
    assert {name: said[name] for name in figures} == pytest.approx(figures)


def test_people_outside_of_the_table_are_the_control() -> None:
    outside = pd.DataFrame(
        [
            (25, "F", "Antwerp", 60, "Single"),
            (26, "F", "Antwerp", 90, "Single"),
            (80, "M", "Ghent", 60, "Single"),
        ],
        columns=toy.FEATURES,
    )
    one = of_paper(holdout=outside)
    expected = {
        linkage: 1 / 2,
        model_filter: 1,  # only the first is consistent
        uniqueness: 1,  # two of them have 60 and are single
    }
    assert {attack: attack(one).control.value for attack in expected} == pytest.approx(expected)  # type: ignore[operator]


# --- against plain loops --------------------------------------------------------------------------

QUASI = ["age", "town", "level"]


def table(n: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "town": random.choice(["A", "B", "C"], n),
            "level": random.choice(["low", "mid", "high"], n),
            "pay": random.integers(20, 90, n),
            "owns": random.choice(["yes", "no"], n),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] + rows["age"] / 2 + 5 * (rows["town"] == "A") > 70, "good", "bad")


TRAIN = table()
GOOD = model(TRAIN) == "good"
NATIVE = TRAIN[GOOD].head(8).reset_index(drop=True)
QUERIES = TRAIN[~GOOD].head(8).reset_index(drop=True)


def setting(
    method: str | Protector = "auto", *, guarantee: str = "lookup", **policy: Any
) -> Setting:
    settings = {"k": 5, "guarantee": guarantee, "objective": "ncp"}
    asked = PrivacyPolicy(**{**settings, **policy})
    schema = Schema.from_frame(
        TRAIN, quasi_identifiers=QUASI, ordinal={"level": ["low", "mid", "high"]}
    )
    anonymizer = KAnonymizer(policy=asked, method=method, random_state=1)
    anonymizer.fit(Population.from_frame(TRAIN, schema), model, "good")
    return Setting(anonymizer, NATIVE, QUERIES)


def crowd(counts: Sequence[int], name: str, k: int = 5) -> dict[str, Any]:
    """Return the five figures that a count of people comes as."""
    all_ = np.asarray(counts)
    figures = {
        "min": all_.min(),
        "median": np.median(all_),
        "p05": np.quantile(all_, 0.05),
        "below_k": (all_ < k).mean(),
        "one": (all_ == 1).mean(),
    }
    return {f"{name}_{figure}": pytest.approx(value) for figure, value in figures.items()}


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_asking_the_model_agrees_with_a_loop(guarantee: str) -> None:
    one = setting(guarantee=guarantee)
    consistent = []
    for entry in one.explanations.released:
        inside = TRAIN[[entry.region.contains(row) for row in TRAIN.to_dict("records")]]
        released = inside.assign(pay=entry.released["pay"], owns=entry.released["owns"])
        consistent.append((model(released) == "good").sum())
    figures = model_filter(one).figures
    expected = crowd(consistent, "k_consistent")
    assert {name: figures[name] for name in expected} == expected
    assert [entry.recount.k_consistent for entry in one.explanations.released] == consistent
    assert linkage(one).figures["k_min"] >= 5
    if guarantee == "catalogue":
        assert min(consistent) >= 5


# --- who and what is attacked ---------------------------------------------------------------------


def test_several_rows_of_one_person_count_once() -> None:
    frame = pd.DataFrame(
        {"who": ["a", "a", "b", "c", "d"], "age": [30, 31, 31, 32, 40], "pay": [1, 1, 2, 3, 4]}
    )
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup", objective="ncp"))
    anonymizer.fit(Population.from_frame(frame, schema), lambda rows: rows["pay"] > 0, True)
    report = run_linkage_audit(Setting(anonymizer, frame.iloc[[0]], holdout=frame))
    assert (report["linkage"].figures["k_min"], report["linkage"].main.value) == (
        2,
        pytest.approx(1 / 2),
    )
    assert report["uniqueness"].main.value == 1.0  # two rows carry the values, of one person
    assert report.checks[0].holds


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_where_nothing_was_released_there_is_nothing_to_name(guarantee: Any) -> None:
    one = setting(guarantee=guarantee, max_ncp=0.0)
    assert not len(one.releases)
    report = run_linkage_audit(one)
    assert [result.n for result in report.results] == [0] * len(report.results)
    assert all(np.isnan(result.main.value) for result in report.results)


def test_a_catalogue_is_not_attacked_without_queries() -> None:
    with pytest.raises(InputError, match="give their queries"):
        Setting(setting(guarantee="catalogue").anonymizer, NATIVE)


def test_opposite_goals_are_judged_by_the_queries() -> None:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=QUASI)
    policy = PrivacyPolicy(k=4, guarantee="lookup", objective="ncp")
    anonymizer = KAnonymizer(policy=policy).fit(
        Population.from_frame(TRAIN, schema), model, "opposite"
    )
    good, bad = NATIVE.head(4), TRAIN[~GOOD].head(4)
    found, alone = (model_filter(Setting(anonymizer, good, *queries)) for queries in ([bad], []))
    assert found.n == 4
    assert found.figures["k_consistent_min"] == alone.figures["k_consistent_min"]
    with pytest.raises(PolicyError, match="catalogue"):
        anonymizer.explain(bad)
