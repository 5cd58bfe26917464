"""What leaves of the private attributes: bins, rare values, (alpha, k)-homogeneity, and who fits it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Interval, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data import domain as bins
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.intake import take_in
from cfk_plugin.data.model import Grid
from cfk_plugin.data.region import Region
from cfk_plugin.errors import PolicyError, SchemaError
from cfk_plugin.metrics.uniqueness import PrivateRelease, PrivateValues
from cfk_plugin.release.pipeline import private_values
from cfk_plugin.release.results import Certificate, GeneralizedCounterfactual

TABLE = pd.DataFrame(
    {
        "age": range(20, 30),
        "pay": [5.0, 15, 25, 35, 45, 55, 65, 75, 85, np.nan],
        "job": ["a"] * 5 + ["b"] * 4 + ["c"],
        "rank": ["low"] * 8 + ["high"] * 2,
    }
)
EDGES = [0, 20, 40, 60, 80]
QUASI = ["age"]


def population(**settings: Any) -> Population:
    given = {"quasi_identifiers": QUASI, "ordinal": {"rank": ["low", "high"]}, "bins": {"pay": EDGES}, **settings}
    return Population.from_frame(TABLE, Schema.from_frame(TABLE, **given))


def policy(**settings: Any) -> PrivacyPolicy:
    return PrivacyPolicy(**{"k": 3, "guarantee": "nominal", **settings})


def decide(
    row: pd.DataFrame, rows: list[int], people: Population | None = None, **settings: Any
) -> dict[str, Interval | None] | None:
    people = people or population()
    codes, numbers = people.encode(row)
    coarse = PrivateRelease(people, policy(**settings)).decide(codes[0], numbers[0], np.array(rows))
    return None if coarse is None else {name: form for name, (form, _) in coarse.items()}


# --- the schema ------------------------------------------------------------------------------------------------


def test_bins_are_declared_edges() -> None:
    assert population().schema["pay"].bins == (0.0, 20.0, 40.0, 60.0, 80.0)
    assert population(bins=None).schema["pay"].bins is None


@pytest.mark.parametrize(
    "bins",
    [
        {"pay": [1]},
        {"pay": []},
        {"pay": [1, 1]},
        {"pay": [3, 2, 4]},
        {"pay": [0, float("inf")]},
        {"pay": [0, float("nan")]},
        {"pay": [0, "much"]},
        {"pay": "0, 20"},
        {"pay": 3},
        {"job": [1, 2]},
        {"rank": [0, 1]},
        {"age": [30, 20]},
        {"wage": [1, 2]},
    ],
)
def test_wrong_bins_are_refused_by_the_column(bins: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=next(iter(bins))):
        population(bins=bins)


@pytest.mark.parametrize("role", ["identifiers", "subject", "target"])
def test_bins_of_a_column_that_is_never_released_are_refused(role: str) -> None:
    given = {role: ["pay"] if role == "identifiers" else "pay"}
    with pytest.raises(SchemaError, match="pay"):
        population(**given)


def test_attribute_written_by_hand() -> None:
    assert Attribute(name="pay", role="sensitive", kind="numeric", bins=(0.0, 1.0)).bins == (0.0, 1.0)
    with pytest.raises(SchemaError, match="bins"):
        Attribute(name="pay", role="target", kind="numeric", bins=(0.0, 1.0))


# --- bins of a domain ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "at"),
    [(-0.1, None), (0, 0), (19.9, 0), (20, 1), (59, 2), (60, 3), (80, 3), (80.1, None), (float("nan"), None)],
)
def test_a_bin_has_its_lower_edge_and_the_last_one_both(number: float, at: int | None) -> None:
    assert bins.bin_of(population().domains["pay"], number) == at


def test_codes_of_a_bin_are_those_of_its_values() -> None:
    table = pd.DataFrame({"age": range(5), "pay": [0, 20, 40, 60, 80]})
    schema = Schema.from_frame(table, quasi_identifiers=["age"], bins={"pay": [20, 40, 60]})
    domain = Population.from_frame(table, schema).domains["pay"]
    assert [domain.values[slice(*bins.bin_codes(domain, at))].tolist() for at in range(2)] == [[20], [40, 60]]
    assert bins.bin_part(domain, 0) == Interval(20, 40)
    assert isinstance(bins.bin_part(domain, 0).low, int)


def test_dates_have_bins_of_dates() -> None:
    table = pd.DataFrame({"age": range(3), "day": pd.to_datetime(["2020-01-01", "2020-07-01", "2021-01-01"])})
    edges = ["2020-01-01", "2020-07-01", "2022-01-01"]
    schema = Schema.from_frame(table, quasi_identifiers=["age"], bins={"day": edges})
    domain = Domain.of(table["day"], schema["day"])
    assert bins.bin_codes(domain, 1) == (1, 3)
    assert str(bins.bin_part(domain, 1)) == "2020-07-01–2022-01-01"


def test_without_bins_there_is_no_bin() -> None:
    assert bins.bin_of(population(bins=None).domains["pay"], 5) is None


# --- the policy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"private_values": "rounded"},
        {"rare_values": True},
        {"alpha": 1.1},
        {"alpha": "0.8"},
        {"min_lift": -1},
        {"min_lift": float("inf")},
        {"on_homogeneous": "raise"},
    ],
)
def test_settings_out_of_range(setting: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(setting))):
        policy(**setting)


def test_bins_that_are_nowhere_declared_are_refused_at_fit() -> None:
    anonymizer = KAnonymizer(policy=policy(private_values="bins"))
    with pytest.raises(PolicyError, match="bins"):
        anonymizer.fit(population(bins=None), model=lambda rows: rows["age"] > 22, desired=True)


# --- decisions -------------------------------------------------------------------------------------------------


def test_default_releases_everything_exactly() -> None:
    assert decide(TABLE.iloc[[3]], [2, 3, 4]) == {}


def test_bins_are_for_numbers_with_bins() -> None:
    assert decide(TABLE.iloc[[3]], [2, 3, 4], private_values="bins") == {"pay": Interval(20.0, 40.0)}


@pytest.mark.parametrize("pay", [-5.0, 85.0, 900.0])
def test_a_number_in_no_bin_is_withheld(pay: float) -> None:
    assert decide(TABLE.iloc[[3]].assign(pay=pay), [2, 3, 4], private_values="bins") == {"pay": None}


@pytest.mark.parametrize(("pay", "form"), [(31.0, Interval(20, 40)), (900.0, None)])
def test_a_number_that_no_row_has_is_no_missing_one(pay: float, form: Interval | None) -> None:
    table = TABLE.head(9).astype({"pay": int})
    people = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=QUASI, bins={"pay": EDGES}))
    row = table.iloc[[3]].assign(pay=pay)
    assert decide(row, [2, 3, 4], people, private_values="bins") == {"pay": form}
    assert decide(row, [2, 3, 4], people, rare_values="withhold")["pay"] is None  # type: ignore[index]
    assert ("pay" in (decide(row, [3], people, alpha=0.5, min_lift=1) or {})) == (pay == 31.0)  # close to 35 of row 3


def test_a_missing_number_is_a_value_of_its_own() -> None:
    row = TABLE.iloc[[9]].assign(job="a", rank="low")
    assert decide(row, [8, 9], private_values="bins") == {}
    assert decide(row, [8, 9], private_values="bins", rare_values="withhold") == {"pay": None}


def test_rare_values_are_those_of_fewer_than_k_people() -> None:
    row = TABLE.iloc[[3]]
    assert decide(row, [2, 3, 4], rare_values="withhold") == {"pay": None}
    two = {"k": 2, "rare_values": "withhold", "private_values": "bins"}
    assert decide(row, [2, 3, 4], **two) == {"pay": Interval(20.0, 40.0)}
    assert decide(row.assign(job="c", pay=31.0), [2, 3, 4], **two) == {
        "pay": Interval(20.0, 40.0),
        "job": None,
    }
    assert decide(row.assign(pay=31.0), [2, 3, 4], rare_values="withhold") == {"pay": None}


def test_homogeneous_is_a_large_share_that_is_larger_than_elsewhere() -> None:
    # Of the people 0-2 all have job a (5 of 10 everywhere) and rank low (8 of 10 everywhere): lift 2 and 1.25.
    row = TABLE.iloc[[1]]
    assert decide(row, [0, 1, 2], alpha=0.8) == {"job": None}
    assert decide(row, [0, 1, 2], alpha=0.8, min_lift=2.0) == {}
    assert decide(row, [0, 1, 2], alpha=0.8, min_lift=1.2) == {"job": None, "rank": None}
    assert decide(row, [0, 1, 2], alpha=1.0) == {}
    assert decide(row, [3, 4, 5], alpha=0.6) == {}  # 2 of 3, and 4 / 3 as many as elsewhere
    assert decide(row, [3, 4, 5], alpha=0.6, min_lift=1.3) == {"job": None}
    assert decide(row, [0, 1, 2], alpha=0.8, on_homogeneous="suppress") is None
    assert decide(row, [0, 5, 6], alpha=0.8, on_homogeneous="suppress") == {}


def close_numbers() -> Population:
    """Return 40 people with pay 0 to 4 (a range of 100 makes them close) and 60 with more."""
    table = pd.DataFrame({"age": range(100), "pay": [0, 1, 2, 3, 4] * 8 + list(range(41, 101))})
    return Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"], bins={"pay": [0, 50, 100]}))


def test_close_numbers_tell_the_same() -> None:
    people = close_numbers()
    row = pd.DataFrame({"age": [3], "pay": [3]})
    assert decide(row, [0, 1, 2, 3, 4], people, alpha=0.9) == {"pay": None}  # in the bin, too
    far = pd.DataFrame({"age": [50], "pay": [52]})
    assert decide(far, [48, 50, 60, 70], people, alpha=0.7) == {}  # 49, 51, 61, 71: two of four are close
    # Close to 52 are 11 of 100 people; the bin has 51, so its lift is 1.96.
    assert decide(far, [50, 51, 52], people, alpha=0.7, min_lift=2) == {"pay": Interval(50, 100)}
    assert decide(far, [50, 51, 52], people, alpha=0.7) == {"pay": None}


def test_a_bin_is_homogeneous_as_a_whole() -> None:
    people, row = close_numbers(), pd.DataFrame({"age": [3], "pay": [3]})
    assert decide(row, [0, 1, 2, 3, 4], people, private_values="bins", alpha=0.9) == {"pay": None}
    assert decide(row, [0, 1, 60, 61], people, private_values="bins", alpha=0.9) == {"pay": Interval(0, 50)}


def test_people_count_once() -> None:
    table = pd.DataFrame({"person": [0, 0, 0, 1, 2, 3], "age": range(6), "job": ["a", "a", "b", "b", "b", "b"]})
    people = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"], subject="person"))
    row = table.iloc[[0]]
    assert decide(row, [0, 1, 2], people, k=2, rare_values="withhold") == {"job": None}  # one person has a
    assert decide(row, [0, 1], people, alpha=0.9) == {"job": None}


# --- what it stands for ----------------------------------------------------------------------------------------


def part_of(row: pd.DataFrame, **settings: Any) -> Any:
    people = population()
    codes, numbers = people.encode(row)
    rows = np.array([2, 3, 4])
    return PrivateRelease(people, policy(**settings)).part(codes[0], numbers[0], rows, rows)


def test_codes_and_counts_of_a_bin() -> None:
    part = part_of(TABLE.iloc[[3]], private_values="bins")
    assert [axis.tolist() for axis in part.axes] == [[0], [2, 3], [0]]  # job, pay, rank
    assert (part.inside, part.anywhere, part.binned, part.withheld) == (2, 2, ("pay",), ())


def test_codes_and_counts_of_what_is_withheld() -> None:
    part = part_of(TABLE.iloc[[3]], rare_values="withhold")
    assert [axis.tolist() for axis in part.axes] == [[0], list(range(10)), [0]]  # a missing value included
    assert (part.inside, part.anywhere, part.binned, part.withheld) == (3, 5, (), ("pay",))


def test_a_value_of_its_own_is_among_the_codes() -> None:
    part = part_of(TABLE.iloc[[3]].assign(pay=31.0), private_values="bins")
    assert part.axes[1].tolist() == [2, 3, 10]
    assert (part.inside, part.anywhere) == (2, 2)
    assert part_of(TABLE.iloc[[3]].assign(pay=31.0)).anywhere == 0


def test_an_empty_part_is_the_default() -> None:
    part = part_of(TABLE.iloc[[3]])
    assert (part.axes, part.binned, part.withheld, part.inside, part.anywhere) == ((), (), (), 1, 1)


def test_grid_over_region_and_private_values() -> None:
    people = population()
    part = part_of(TABLE.iloc[[3]], private_values="bins")
    grid = Grid.of(Region({"age": Interval(22, 24)}), people, [3], part.axes)
    assert grid.size == 3 * 2
    assert grid.all()[:, [0, 2]].tolist() == [[a, p] for a in (2, 3, 4) for p in (2, 3)]


def certificate(**settings: Any) -> Certificate:
    figures = dict.fromkeys(["k", "k_desired", "k_consistent", "k_private", "private_matches"], 3)
    shares = dict.fromkeys(["ncp", "pureness", "pureness_low", "pureness_high", "prosecutor_risk"], 0.5)
    texts = dict.fromkeys(["method", "guarantee", "policy_hash", "population"], "")
    return Certificate(**figures, **shares, **texts, exact=True, optimal=False, gap=None, majority=True, **settings)


def test_what_leaves_has_the_form_of_the_certificate() -> None:
    intake = take_in(TABLE.iloc[[3]], population().encoder)
    assert private_values(certificate(), intake, 0) == {"pay": 35.0, "job": "a", "rank": "low"}
    mixed = certificate(binned=("pay",), withheld=("job",))
    assert private_values(mixed, intake, 0) == {"pay": Interval(20.0, 40.0), "rank": "low"}
    with pytest.raises(ValueError, match="pay"):
        private_values(mixed, take_in(TABLE.iloc[[8]], population().encoder), 0)


@pytest.mark.parametrize(
    ("released", "withheld"),
    [
        ({"pay": 35, "job": "a"}, ("job",)),
        ({"pay": 35}, ("job",)),
        ({}, ("job",)),
        ({"pay": Interval(20, 40)}, ()),
        ({"pay": Interval(20, 40), "job": "a"}, ("job",)),
    ],
)
def test_another_form_than_certified_is_refused(released: dict[str, Any], withheld: tuple[str, ...]) -> None:
    region = Region({"age": Interval(20, 30)})
    held = certificate(binned=("pay",), withheld=("job",))
    with pytest.raises(ValueError, match="otherwise than certified"):
        GeneralizedCounterfactual(0, region, released, held, withheld=withheld)
    assert GeneralizedCounterfactual(0, region, {"pay": Interval(20, 40)}, held, withheld=("job",)).withheld == ("job",)


def test_nothing_shows_a_value() -> None:
    people = population()
    shown = repr(PrivateRelease(people, policy())) + repr(PrivateValues(people))
    assert shown.count("10 rows, 3 attributes") == 2
