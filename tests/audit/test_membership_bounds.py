"""Bounds of differential privacy against a mechanism that reaches them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cfk_plugin.audit.epsilon_bounds import (
    bound_curves,
    largest_balanced_accuracy,
    largest_tpr,
    published_balanced_accuracy,
    replace_one,
)
from cfk_plugin.audit.result import measure_roc
from cfk_plugin.errors import InputError


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_tight_bound_is_reached_and_never_exceeded(epsilon: float, delta: float) -> None:
    """A true answer with probability delta that says it is certain; else randomised response."""
    random, n = np.random.default_rng(2), 100_000
    truthful = 1 / (1 + math.exp(-epsilon))
    sides = []
    for member in (True, False):
        certain, honest = random.random(n) < delta, random.random(n) < truthful
        answer = np.where(honest, member, not member)
        sides.append(np.where(certain, 3.0 if member else -3.0, np.where(answer, 1.0, -1.0)))
    found = measure_roc(*sides)
    allowed = largest_balanced_accuracy(epsilon, delta)
    assert found.balanced_accuracy_max == pytest.approx(allowed, abs=0.005)
    assert np.all(np.array(found.curve.tpr) <= largest_tpr(found.curve.fpr, epsilon, delta) + 0.005)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 10.0, 2000.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.3, 1.0])
def test_the_two_bounds_and_the_region_agree(epsilon: float, delta: float) -> None:
    fpr = np.linspace(0, 1, 20_001)
    tight, paper = largest_balanced_accuracy(epsilon, delta), published_balanced_accuracy(epsilon, delta)
    assert ((largest_tpr(fpr, epsilon, delta) + 1 - fpr) / 2).max() == pytest.approx(tight, abs=1e-4)
    assert 0.5 <= tight <= paper + 1e-12 <= 1 + 1e-12
    curves = bound_curves(epsilon, delta)
    for curve in curves.values():
        assert np.all(np.diff(curve.tpr) >= 0)
        assert (curve.fpr[-1], curve.tpr[-1]) == (1, 1)
    assert np.all(np.array(curves["bound_tight"].tpr) <= np.array(curves["bound_paper"].tpr) + 1e-12)


def test_published_numbers() -> None:
    assert largest_balanced_accuracy(1.0) == pytest.approx(math.e / (1 + math.e))
    assert published_balanced_accuracy(1.0) == pytest.approx(0.816, abs=1e-3)
    assert largest_tpr(0.01, 1.0) == pytest.approx(0.01 * math.e)


def test_a_claim_about_one_person_more_or_less_counts_twice() -> None:
    assert replace_one(1.0) == (2.0, 0.0)
    assert replace_one(1.0, 1e-5) == pytest.approx((2.0, (1 + math.e) * 1e-5))
    assert replace_one(1.0, 1e-5, "replace-one") == (1.0, 1e-5)
    assert replace_one(900.0, 0.5)[1] == 1.0
    with pytest.raises(InputError, match="epsilon"):
        replace_one(-1.0)
    with pytest.raises(InputError, match="delta"):
        replace_one(1.0, 1.0)
