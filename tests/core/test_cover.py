"""Everyone joins the nearest group, and small regions contain refused people."""

from __future__ import annotations

import numpy as np

from cfk_plugin.core.cover import cover

K = 5


def test_people_join_hull_that_grows_least() -> None:
    """The growth of all hulls is compared by brute force."""
    random = np.random.default_rng(0)
    points = random.random((60, 3))
    group = np.arange(60) // K
    others = random.random((40, 3))
    caps = np.array([1.0, 1.0, 0.4])
    joined = cover(points, group, others, np.zeros(40, dtype=bool), caps, K).group
    for other, number in zip(others, joined.tolist(), strict=True):
        growth = []
        for members in points.reshape(-1, K, 3):
            with_other = np.vstack([members, other])
            before = np.minimum(np.ptp(members, axis=0), caps).sum()
            growth.append(np.minimum(np.ptp(with_other, axis=0), caps).sum() - before)
        assert growth[number] <= min(growth) + 1e-9


def test_small_hull_takes_nearest_refused_person() -> None:
    """A fifth of the members must be refused people, if fewer than 2 k people are inside."""
    points = np.repeat([[0.0], [0.5]], K, axis=0)
    group = np.repeat([0, 1], K)
    others = np.array([[0.45], [0.4], [0.1]])
    is_refused = np.array([True, True, False])
    people = cover(points, group, others, is_refused, np.ones(1), K)
    assert people.group.tolist() == [1, 1, 0]
    assert people.extra.tolist() == [[0, 1]]


def test_large_hull_takes_nobody_else() -> None:
    """With 2 k people inside, nobody can tell who has the outcome."""
    points = np.zeros((K, 1))
    others = np.array([[0.0]] * K + [[1.0]])
    is_refused = np.arange(K + 1) == K
    people = cover(points, np.zeros(K, dtype=int), others, is_refused, np.ones(1), K)
    assert len(people.extra) == 0


def test_nobody_else_is_no_problem() -> None:
    """If all people have the outcome, there is no one to join."""
    points = np.zeros((K, 1))
    nobody = np.empty((0, 1))
    people = cover(points, np.zeros(K, dtype=int), nobody, np.zeros(0, bool), np.ones(1), K)
    assert len(people.group) == len(people.extra) == 0
