"""Risks against published examples, closed forms and linear programs; unique private values; gaps
between groups.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import linprog

import public_tables
from cfk_plugin import Population, Schema, metrics
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import POOLED, AttributeProfile, group_gap, private_profile, t_closeness


@pytest.mark.parametrize("scale", [1, 1000])
def test_t_closeness_of_the_published_example(scale: int) -> None:
    everybody = [v * scale for v in range(3, 12)]
    assert t_closeness([3 * scale, 4 * scale, 5 * scale], everybody, ordered=True) == pytest.approx(
        0.375
    )
    assert t_closeness(
        [6 * scale, 8 * scale, 11 * scale], everybody, ordered=True
    ) == pytest.approx(1 / 6)


def test_t_closeness_equals_wasserstein_on_ranks() -> None:
    everybody = np.random.default_rng(0).integers(0, 20, 500)
    inside = everybody[:30]
    ranks = {v: i for i, v in enumerate(np.unique(everybody))}
    expected = stats.wasserstein_distance(
        [ranks[v] for v in inside], [ranks[v] for v in everybody]
    ) / (len(ranks) - 1)
    assert t_closeness(inside, everybody, ordered=True) == pytest.approx(expected)


def test_t_closeness_of_categories_is_total_variation_whatever_the_dtype() -> None:
    assert t_closeness(["a", "a"], ["a", "b", "c", "d"], ordered=False) == pytest.approx(0.75)
    assert t_closeness(["b", "a"], ["a", "b"], ordered=False) == 0
    inside, everybody = (
        pd.Series(pd.Categorical(["x", "y", "x"])),
        pd.Series(["x", "y", "y", "x"], dtype="string"),
    )
    assert t_closeness(inside, everybody, ordered=False) == pytest.approx(1 / 6)
    assert t_closeness(pd.Series([1, 2], dtype="Int64"), [1.0, 2.0], ordered=True) == 0


def test_t_closeness_counts_missing_as_a_value() -> None:
    assert t_closeness([np.nan, np.nan], [1.0, 2.0, np.nan, np.nan], ordered=True) == pytest.approx(
        0.5
    )
    assert t_closeness([None], ["a", None], ordered=False) == pytest.approx(0.5)
    assert t_closeness([1.0, np.nan, 3.0], [1.0, np.nan, 3.0], ordered=True) == 0
    assert t_closeness([np.nan], [1.0, 2.0], ordered=True) == 1


@pytest.mark.parametrize("seed", range(5))
def test_t_closeness_with_missing_bounds_the_exact_distance(seed: int) -> None:
    everybody = np.random.default_rng(seed).choice([1.0, 2.0, 3.0, 4.0, np.nan], 60)
    inside = everybody[:6]

    def share(sample: np.ndarray) -> np.ndarray:
        return np.array([*((sample == v).mean() for v in (1, 2, 3, 4)), np.isnan(sample).mean()])

    cost = np.array(
        [
            [0 if i == j else 1 if 4 in (i, j) else abs(i - j) / 3 for j in range(5)]
            for i in range(5)
        ]
    )
    moves = np.vstack([np.kron(np.eye(5), np.ones(5)), np.kron(np.ones(5), np.eye(5))])
    exact = linprog(
        cost.ravel(), A_eq=moves, b_eq=np.concatenate([share(inside), share(everybody)])
    )
    assert exact.fun - 1e-9 <= t_closeness(inside, everybody, ordered=True) <= 1 + 1e-9


@pytest.mark.parametrize("ordered", [True, False])
def test_distributions_of_nobody_and_texts_in_order_are_refused(ordered: bool) -> None:
    for inside, everybody in (([], ["a"]), (["a"], [])):
        with pytest.raises(InputError, match="at least one"):
            t_closeness(inside, everybody, ordered)
    with pytest.raises(InputError, match="ordered values"):
        t_closeness(["a"], ["a", "b"], ordered=True)


def test_l_diversity() -> None:
    even = metrics.l_diversity(["a", "b", "c", "d"])
    assert even == metrics.LDiversity(4, pytest.approx(4), pytest.approx(1 / 3))
    assert metrics.l_diversity([7, 7, 7.0]) == metrics.LDiversity(1, 1.0, float("inf"))
    assert metrics.l_diversity(["a", None]).distinct == 2
    skewed = metrics.l_diversity(["a"] * 8 + ["b", "c"], l=2)
    assert skewed.recursive == pytest.approx(4)
    assert 1 < skewed.entropy < 3
    with pytest.raises(InputError):
        metrics.l_diversity([])


def test_attribute_disclosure_is_how_much_surer_an_attacker_becomes() -> None:
    assert metrics.attribute_disclosure(["a", "a"], ["a"] + ["b"] * 9) == pytest.approx(0.9)
    assert metrics.attribute_disclosure(["a", "b"], ["b", "a"]) == 0


def test_reidentification_risks() -> None:
    risk = metrics.prosecutor_risk([2, 10, 20], threshold=0.2)
    assert (risk.highest, risk.at_risk) == (0.5, pytest.approx(1 / 3))
    assert risk.mean == metrics.marketer_risk([2, 10, 20]) == pytest.approx((0.5 + 0.1 + 0.05) / 3)
    assert np.isnan(metrics.marketer_risk([]))
    with pytest.raises(InputError):
        metrics.prosecutor_risk([0])


def test_k_private_reads_any_dtype() -> None:
    rows = pd.DataFrame(
        {"pay": [60, 60, 80], "code": pd.Categorical([1, 2, 1]), "note": ["x", None, "x"]}
    )
    assert metrics.k_private(rows, {"pay": "60"}) == 2
    assert metrics.k_private(rows, {"pay": 60.0, "code": "1"}) == 1
    assert metrics.k_private(rows, {"note": np.nan}) == 1
    assert metrics.k_private(rows, {"pay": 70}) == 0
    with pytest.raises(InputError, match="other"):
        metrics.k_private(rows, {"other": 1})


# --- how many people private values single out ----------------------------------------------------

TABLE = pd.DataFrame(
    {
        "person": [0, 1, 2, 3, 4, 4],
        "age": range(6),
        "pay": [1, 1, 2, 3, 9, np.nan],
        "job": ["a", "a", "a", "b", "b", "b"],
    }
)


def population(table: pd.DataFrame = TABLE, **settings: object) -> Population:
    return Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=["age"], **settings)
    )  # type: ignore[arg-type]


def test_unique_private_values_by_hand() -> None:
    profile = private_profile(population(TABLE.drop(columns="person")), k=3)
    assert profile.attributes["pay"] == AttributeProfile(distinct=5, below_k=1.0, unique=4 / 6)
    assert profile.attributes["job"] == AttributeProfile(distinct=2, below_k=0.0, unique=0.0)
    assert (profile.unique, profile.k, profile.people) == (4 / 6, 3, 6)
    assert private_profile(population(TABLE[["age"]])).unique == 0.0
    with pytest.raises(InputError, match="k must be"):
        private_profile(population(), k=0)


def test_people_count_once_by_their_rarest_value() -> None:
    profile = private_profile(population(subject="person"), k=2)
    assert profile.attributes["pay"] == AttributeProfile(distinct=5, below_k=3 / 5, unique=3 / 5)
    assert (profile.attributes["job"].unique, profile.people) == (0.0, 5)


@pytest.mark.parametrize(
    ("name", "unique"),
    [
        ("german", 1.00),
        ("hospital", 0.92),
        ("adult", 0.21),
        ("cmc", 0.12),
        ("informs", 0.01),
    ],
)
def test_unique_private_values_of_published_tables(
    name: str, unique: float, shared_data: Path
) -> None:
    frame, about = public_tables.read(name, shared_data)
    frame = frame[about["features"]]
    categories = [*frame.select_dtypes(exclude="number")]
    schema = Schema.from_frame(
        frame, quasi_identifiers=about["quasi_identifiers"], nominal=categories
    )
    profile = private_profile(Population.from_frame(frame, schema))
    assert profile.unique == pytest.approx(unique, abs=0.0051)


# --- gaps between groups of people ----------------------------------------------------------------


def test_gap_of_two_groups() -> None:
    a, b = group_gap([1.0] * 50 + [0.0] * 50 + [np.nan], ["a"] * 50 + ["b"] * 51)
    assert (a.group, a.n, a.mean, a.rest, a.gap) == ("a", 50, 1, 0, 1)
    assert (b.n, b.low, b.gap, b.high) == (50, -1, -1, -1)
    (only,) = group_gap([1.0] * 12, ["a"] * 12)
    assert np.isnan(only.gap)
    with pytest.raises(InputError):
        group_gap([1.0], ["a", "b"])


def test_small_groups_are_pooled_and_never_named() -> None:
    values, groups = (
        np.random.default_rng(0).random(55),
        ["big"] * 40 + ["tiny"] * 6 + ["mini"] * 6 + [None] * 3,
    )
    assert [(g.group, g.n) for g in group_gap(values, groups)] == [("big", 40), (POOLED, 15)]
    assert [g.group for g in group_gap(values[:45], groups[:45])] == ["big"]


def test_the_interval_of_a_gap_covers_no_difference_and_is_seeded() -> None:
    rng = np.random.default_rng(3)
    values, groups = rng.random(200), rng.integers(0, 2, 200)
    found = group_gap(values, groups)
    assert found == group_gap(values, groups)
    assert all(g.low < g.gap < g.high and g.low < 0 < g.high for g in found)
