"""The attacks on a made-up table, next to what they must give."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import attacks
from attack_scenarios import (
    Inversion,
    LookUp,
    Membership,
    ModelAsked,
    NumberOwner,
    OutcomeCertain,
    OutcomeKnown,
    OutcomeShare,
    OutsideRegions,
    Posing,
    Rerun,
    Steering,
    is_certainly_behind,
    sybil_score,
)
from attack_world import Answer, Attempts, Distances, World, chance, hull, inside, rank
from cfk_plugin import Interval, Region


class PaidMore:
    """A model that says yes to people who are paid more than 50."""

    classes_ = ("no", "yes")

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return np.where(rows["pay"] > 50, "yes", "no")


def table(n: int, first_pay: int) -> pd.DataFrame:
    """Return people of all ages and different pay."""
    number = np.arange(n)
    return pd.DataFrame(
        {
            "age": 20 + number,
            "city": np.where(number % 2 == 0, "Ghent", "Liège"),
            "pay": first_pay + number * 41 % 97,
            "job": np.where(number % 3 == 0, "cook", "clerk"),
        }
    )


@pytest.fixture
def world() -> World:
    people = table(60, 0)
    return World(
        name="made-up",
        k=4,
        people=people,
        labels=pd.Series(PaidMore().predict(people)),
        outsiders=table(40, 3),
        quasi_identifiers=["age", "city"],
        model=PaidMore(),
        limits={},
        desired="yes",
        seed=0,
    )


@dataclass
class FixedService:
    """A service that published some entries."""

    published: Sequence[Answer]


def with_entries(world: World, entries: Sequence[Answer]) -> World:
    """Return the world with a product that published these entries."""
    changed = replace(world)
    changed.__dict__["protected"] = FixedService(entries)
    return changed


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# --- figures


def test_chance_shares_ties_on_both_sides() -> None:
    """Someone of four is named, and is one of two who cannot be told apart."""
    assert chance(np.arange(4), np.array([2, 3])) == pytest.approx(2 / 8)
    assert chance(np.arange(4), np.array([9])) == 0


def test_auc_of_separated_groups_is_one() -> None:
    """And its interval has no width."""
    attempts = Attempts.groups(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert attempts.interval == (1.0, 1.0, 1.0)


def test_rank_counts_ties_as_half() -> None:
    """One other score is lower, and one is equal."""
    assert rank(np.array([2.0, 1.0, 2.0, 3.0]), 0) == pytest.approx(0.5)


def test_interval_is_students() -> None:
    """Of 0, 0, 1, 1: the mean 0.5, and 3.182 standard errors of 0.289 on both sides, cut off."""
    attempts = Attempts.of([(0, 0.1), (0, 0.1), (1, 0.1), (1, 0.1)])
    assert attempts.interval == (0.5, 0.0, 1.0)
    half = 1.98422 * 0.5025 / 10
    attempts = Attempts.of([(0, 0), (1, 0)] * 50)
    assert attempts.interval == pytest.approx((0.5, 0.5 - half, 0.5 + half), abs=1e-4)


def test_interval_is_missing_without_attempts() -> None:
    """It is not zero."""
    assert np.isnan(Attempts.of([]).interval).all()


# --- regions and distances


def test_inside_reads_every_part() -> None:
    """Ranges, sets and missing values."""
    rows = pd.DataFrame({"age": [20, 30, None, 40], "city": ["Ghent", None, "Ghent", "Liège"]})
    region = Region({"age": Interval(20, 30, True), "city": frozenset({"Ghent", None})})
    assert inside(region, rows).tolist() == [True, True, True, False]


def test_hull_contains_exactly_its_rows() -> None:
    """Their missing values as well."""
    rows = pd.DataFrame({"age": [20, 25, None], "city": ["Ghent", None, "Ghent"]})
    assert inside(hull(rows), rows).all()
    other = pd.DataFrame({"age": [26.0, 20.0], "city": ["Ghent", "Liège"]})
    assert not inside(hull(rows), other).any()


def test_distances_add_gaps_of_columns() -> None:
    """A missing value is as far as can be."""
    people = pd.DataFrame({"age": [0.0, 100.0], "city": ["Ghent", "Liège"]})
    distances = Distances(people, ["age", "city"]).between(people, people)
    assert distances == pytest.approx(np.array([[0, 2], [2, 0]]))  # gaps are at most 1
    missing = pd.DataFrame({"age": [None], "city": ["Ghent"]}).astype({"age": float})
    assert Distances(people, ["age", "city"]).between(missing, people)[0].tolist() == [1, 2]


# --- answers


def test_raw_unique_row_is_named_surely(world: World) -> None:
    """This is the control of the first attack."""
    assert (LookUp().control(world, rng()).values == 1).all()


def test_product_leaves_k_people(world: World) -> None:
    """Against attackers who know outcomes, too."""
    for attack in (LookUp(), OutcomeKnown(), ModelAsked()):
        values = attack.main(world, rng()).values
        assert len(values)
        assert (values <= 1 / world.k).all()


def test_outcomes_narrow_down_weak_regions(world: World) -> None:
    """Four people are inside, of whom some have the outcome."""
    attempts = OutcomeKnown().control(world, rng())
    people = world.people.to_dict("records")
    for answer, value in zip(world.weak.explain(world.refused), attempts.values, strict=True):
        paid = [row["pay"] > 50 for row in people if answer.region.contains(row)]
        assert len(paid) == 4
        assert value == pytest.approx(1 / sum(paid))


@pytest.mark.parametrize("attack", [Posing(), Rerun(), Inversion(), Steering()])
def test_chosen_queries_find_the_nearest_row(world: World, attack: Any) -> None:
    """Everyone lives in another town, and those who are paid more are paid nearly the same."""
    number = np.arange(60)
    towns = [f"town {i}" for i in number]
    people = world.people.assign(city=towns, pay=np.where(number % 2, 90 + number / 10, 10))
    outsiders = world.outsiders.assign(city=towns[:40], pay=10.0)
    control = attack.control(replace(world, people=people, outsiders=outsiders), rng())
    assert control.values.mean() > 1.5 * control.guessing.mean()


# --- the published catalogue


def test_published_rows_tell_members(world: World) -> None:
    """Everyone else is paid more."""
    far = world.outsiders.assign(pay=1000)
    assert Membership().control(replace(world, outsiders=far), rng()).interval[0] == 1


def test_raw_number_names_its_owner(world: World) -> None:
    """Each pay belongs to one person."""
    assert (NumberOwner().control(world, rng()).values == 1).all()


# --- colluders


def test_sybils_reveal_the_record_of_entries(world: World) -> None:
    """The entries of the victim's region are the victim's record; elsewhere, they are another's."""
    records = world.people.iloc[[1, 7, 14, 30]]
    own, other = ({"pay": row["pay"], "job": row["job"]} for _, row in records.iloc[:2].iterrows())
    entries = [
        Answer(0, hull(world.people[["age", "city"]].iloc[[1]]), own, 4),
        Answer(1, hull(world.people[["age", "city"]].iloc[10:20]), other, 4),
    ]
    scores = sybil_score(with_entries(world, entries), 1, records)
    assert rank(scores, 0) == 1


def test_sybils_reveal_nothing_without_a_region(world: World) -> None:
    """No entry is about the victim."""
    entry = Answer(
        0, hull(world.people[["age", "city"]].iloc[10:20]), {"pay": 60, "job": "cook"}, 4
    )
    scores = sybil_score(with_entries(world, [entry]), 1, world.people.iloc[:4])
    assert rank(scores, 0) == 0.5


# --- outcomes


def test_full_region_tells_its_outcomes() -> None:
    """As many people are inside as have the outcome."""
    people = pd.DataFrame({"age": [20, 21, 22, 40]})
    region = Region({"age": Interval(20, 22)})
    assert is_certainly_behind(region, people, 3, people).tolist() == [True, True, True, False]


def test_certain_outcomes_are_not_certain(world: World) -> None:
    """Regions cover refused people as well, so the attacker is wrong about some."""
    certain = OutcomeCertain().main(world, rng())
    share = OutcomeShare().main(world, rng())
    assert 0 < certain.values.mean() < 1
    assert share.values.sum() == certain.values.sum()


def test_people_outside_regions_are_judged_refused(world: World) -> None:
    """Only ages up to 29 are in a region."""
    entry = Answer(0, hull(world.people[["age", "city"]].iloc[:10]), {}, 4)
    attempts = OutsideRegions().main(with_entries(world, [entry]), rng())
    assert len(attempts.values) == 50
    assert attempts.values.mean() == pytest.approx((~world.has_outcome[10:]).mean())


# --- the program


def test_program_writes_a_row_per_attack(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """With the limit of the promise."""
    output = tmp_path / "attacks.csv"
    monkeypatch.setattr(World, "load", lambda *arguments: world)
    command = ["attacks.py", "--tables", "heart", "--splits", "1", "--output", str(output)]
    monkeypatch.setattr("sys.argv", [*command, "--attacks", "look-up,membership"])
    attacks.main()
    with output.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["attack"] for row in rows] == ["look-up", "membership"]
    assert set(rows[0]) == set(attacks.COLUMNS)
    assert float(rows[0]["value"]) <= float(rows[0]["limit"]) == 0.25
