"""Groups of at least k people that lose little, and cover everyone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from cfk_plugin.data.codes import MISSING, Floats, Ints, Mask
from cfk_plugin.protection.diversity import Diversity, merge
from cfk_plugin.protection.groups import cover, divide

K = 5


def one_hot(category: Ints, n_values: int, weight: float) -> Floats:
    """Return the coordinates of a category, shape (n_points, n_values)."""
    return (category[:, None] == np.arange(n_values)) * (weight / n_values)


def people(n_people: int, seed: int) -> tuple[Floats, Floats]:
    """Return points and caps: a number, one with missing values, and two categories."""
    random = np.random.default_rng(seed)
    age = random.integers(0, 60, n_people) / 60 * 0.25
    income = random.random(n_people) * 0.25
    income[random.random(n_people) < 0.1] = MISSING
    town = one_hot(random.integers(0, 12, n_people), 12, 0.25)
    sex = one_hot(random.integers(0, 2, n_people), 2, 0.25)
    caps = np.repeat([0.25, 0.25, 0.25 / 12, 0.125], [1, 1, 12, 2])
    return np.column_stack([age, income, town, sex]), caps


def box_ncp(points: Floats, caps: Floats) -> float:
    """Return the NCP of the box of some points."""
    return float(np.minimum(np.ptp(points, axis=0), caps).sum())


def mean_ncp(points: Floats, group: Ints, caps: Floats) -> float:
    """Return the mean NCP of people's groups."""
    cost = np.array([box_ncp(points[group == number], caps) for number in range(group.max() + 1)])
    return float(cost[group].mean())


def least_mean_ncp(line: Floats, k: int) -> float:
    """Return the least mean NCP of groups of a line, by dynamic programming."""
    line = np.sort(line)
    least = np.full(len(line) + 1, np.inf)
    least[0] = 0.0
    for end in range(k, len(line) + 1):
        starts = np.arange(max(end - 2 * k + 1, 0), end - k + 1)
        loss = least[starts] + (end - starts) * (line[end - 1] - line[starts])
        least[end] = loss.min()
    return float(least[-1] / len(line))


@pytest.mark.parametrize("k", [2, 7, 40])
def test_groups_have_k_people(k: int) -> None:
    """Every person is in a group, and groups are numbered without gaps."""
    points, caps = people(500, seed=k)
    group = divide(points, k, caps, 3, np.random.default_rng(0))
    assert np.bincount(group).min() >= k


def test_equal_people_are_a_group() -> None:
    """A crowd of k or more with equal points is not divided, and no one else joins it."""
    points, caps = people(200, seed=0)
    points[:12] = points[0]
    group = divide(points, K, caps, 3, np.random.default_rng(0))
    is_equal = (points == points[0]).all(axis=1)
    assert np.array_equal(group == group[0], is_equal)


def test_few_others_join_nearest_crowd() -> None:
    """People who are too few for a group join the equal people who are nearest."""
    points = np.repeat([0.0, 0.5, 1.0, 0.6], [K, K, K, 2])[:, None]
    group = divide(points, K, np.ones(1), None, np.random.default_rng(0))
    assert group.tolist() == [0] * K + [1] * K + [2] * K + [1] * 2


def test_groups_of_line_are_near_optimum() -> None:
    """On one line the least mean NCP is known."""
    ratios = []
    for seed in range(3):
        line = np.random.default_rng(seed).random(120) ** 3
        group = divide(line[:, None], K, np.ones(1), None, np.random.default_rng(0))
        ratios.append(mean_ncp(line[:, None], group, np.ones(1)) / least_mean_ncp(line, K))
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) <= 1.12


def test_clusters_become_groups() -> None:
    """People of a cluster share the town and are near in age; clusters have k people."""
    random = np.random.default_rng(2)
    cluster = random.permutation(np.repeat(np.arange(40), K))
    age = cluster // 8 / 5 + 0.01 * random.random(len(cluster))
    points = np.column_stack([age / 2, one_hot(cluster % 8, 8, 0.5)])
    caps = np.append(0.5, np.full(8, 0.5 / 8))
    group = divide(points, K, caps, None, np.random.default_rng(0))
    assert len(np.unique(np.column_stack([cluster, group]), axis=0)) == 40


def test_large_numbers_are_told_apart() -> None:
    """Two minutes of the same day are different, although dates are seconds since 1970."""
    seconds = 1.7e9 + np.repeat([0.0, 60.0], K)
    jitter = np.tile(np.arange(K), 2) / 10
    points = (seconds + jitter)[:, None] / 61
    group = divide(points, K, np.ones(1), None, np.random.default_rng(0))
    assert len(set(group[:K])) == len(set(group[K:])) == 1


# --- Everyone else


def growths(points: Floats, group: Ints, other: Floats, caps: Floats) -> tuple[Floats, Floats]:
    """Return by how much another person widens each hull, and the NCP of the hulls."""
    numbers = range(group.max() + 1)
    cost = np.array([box_ncp(points[group == number], caps) for number in numbers])
    wider = [box_ncp(np.vstack([points[group == number], other]), caps) for number in numbers]
    return np.array(wider) - cost, cost


def everyone(n_people: int, seed: int) -> tuple[Floats, Ints, Floats, Mask, Floats]:
    """Return points of people in groups, their groups, others, who of these is refused, caps."""
    points, caps = people(n_people, seed)
    n_grouped = n_people // 2
    group = np.argsort(np.argsort(points[:n_grouped, 0], kind="stable")) // K
    is_refused = np.random.default_rng(seed).random(n_people - n_grouped) < 0.8
    return points[:n_grouped], group, points[n_grouped:], is_refused, caps


def test_people_join_hull_that_grows_least() -> None:
    """The growth of all hulls is compared by brute force; of ties, the smallest hull is chosen."""
    points, group, others, is_refused, caps = everyone(200, seed=5)
    joined = cover(
        points, group, others, is_refused, np.arange(len(points) + len(others)), caps, K
    ).group
    for other, number in zip(others, joined.tolist(), strict=True):
        growth, cost = growths(points, group, other, caps)
        is_least = growth <= growth.min() + 1e-6
        assert is_least[number]
        assert cost[number] <= cost[is_least].min() + 1e-6


def test_many_people_join_near_hulls() -> None:
    """In a large table most people join the hull that brute force chooses, or a similar one."""
    points, group, others, is_refused, caps = everyone(12_000, seed=6)
    joined = cover(
        points, group, others, is_refused, np.arange(len(points) + len(others)), caps, K
    ).group
    random = np.random.default_rng(0)
    excess = []
    for i in random.choice(len(others), 15, replace=False).tolist():
        growth, _ = growths(points, group, others[i], caps)
        excess.append(growth[joined[i]] - growth.min())
    assert np.mean(excess) < 0.02


@dataclass
class Line:
    """Members of groups and other people on a line, and whom the hulls take."""

    members: list[float]
    group: list[int]
    others: list[float]
    is_refused: list[bool]
    joined: list[int]  # the group of each of the others
    extra: list[tuple[int, int]]  # refused people who are taken: group, and position of others
    person: list[int] | None = None  # of each row, the others' after the members'


LINES = {
    # A fifth of the members must be refused people, if fewer than 2 k people are inside.
    "the nearest": Line(
        [0.0] * K + [0.5] * K,
        [0] * K + [1] * K,
        [0.45, 0.4, 0.1],
        [True, True, False],
        joined=[1, 1, 0],
        extra=[(0, 1)],
    ),
    # With 2 k people inside, an attacker cannot tell who has the outcome.
    "no one": Line([0.0] * K, [0] * K, [0.0] * K + [1.0], [False] * K + [True], [0] * (K + 1), []),
    "no one else": Line([0.0] * K, [0] * K, [], [], joined=[], extra=[]),
    # There are 2 k rows inside, but of k people.
    "rows of members": Line(
        [0.0] * K + [0.5] * K,
        [0] * K + [1] * K,
        [0.0] * K + [0.45],
        [False] * K + [True],
        joined=[0] * K + [1],
        extra=[(0, K)],
        person=[*range(2 * K), *range(K), 2 * K],
    ),
    # Two refused people are needed, and the first has three rows near the hull.
    "rows of one person": Line(
        [0.0] * 8 + [0.5] * 15,
        [0] * 8 + [1] * 15,
        [0.1, 0.41, 0.42, 0.45],
        [True] * 4,
        joined=[0, 1, 1, 1],
        extra=[(0, 3)],
        person=[*range(23), 23, 23, 23, 24],
    ),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_hulls_take_refused_people(line: Line) -> None:
    """Only if an attacker could tell otherwise that the people inside have the outcome."""
    n_rows = len(line.members) + len(line.others)
    result = cover(
        np.array(line.members)[:, None],
        np.array(line.group),
        np.array(line.others).reshape(-1, 1),
        np.array(line.is_refused, dtype=bool),
        np.arange(n_rows) if line.person is None else np.array(line.person),
        np.ones(1),
        K,
    )
    assert result.group.tolist() == line.joined
    assert [tuple(pair) for pair in result.extra.tolist()] == line.extra


def test_group_merges_with_the_nearest() -> None:
    """The group in the middle has one sensitive value; with the right one, its region is smaller."""
    points = np.array([[0.0], [1.0], [5.0], [6.0], [9.0], [10.0]])
    group = np.array([0, 0, 1, 1, 2, 2])
    values = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    diversity = Diversity([values], [values], [False], l=2, t=None)
    merged = merge(group, points, np.array([np.inf]), diversity)
    assert merged is not None
    assert merged.tolist() == [0, 0, 1, 1, 1, 1]
    alike = Diversity([np.zeros(6)], [np.zeros(6)], [False], l=2, t=None)
    assert merge(group, points, np.array([np.inf]), alike) is None
