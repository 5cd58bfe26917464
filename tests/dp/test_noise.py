"""Noise, privacy maps and composition: against formulas, and against another library's accounting."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from cfk_plugin.dp.forest import shares
from cfk_plugin.dp.noise import Marginal, PrivateRows, SeededRows
from cfk_plugin.errors import BudgetError, MissingDependencyError

pytest.importorskip("opendp", reason="the extra [dp] is not installed")
OWN = np.arange(4, dtype=np.int32)


def rows(n: int = 300, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 4, (n, columns)).astype(np.int32)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("person", [1, 3])
def test_the_composed_loss_is_the_declared_budget_and_never_above(epsilon: float, delta: float, person: int) -> None:
    asked = PrivateRows(rows(), epsilon, delta, shares(3), person)
    assert epsilon * (1 - 1e-6) <= asked.epsilon <= epsilon
    assert asked.delta == delta


def test_laplace_scales_are_those_of_the_formula() -> None:
    asked = PrivateRows(rows(), 1.0, 0.0, shares(3), 2)
    assert asked.scale(3, 0.2) == pytest.approx(2 * 3 / 0.2)
    assert asked.deviation(5.0) == pytest.approx(5 * math.sqrt(2))
    assert asked.magnitude(5.0) == 5.0


def test_gaussian_scales_are_those_of_the_formula_and_of_another_accountant() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="a second opinion on the conversion")
    asked = PrivateRows(rows(), 1.0, 1e-6, [1.0], 1)
    sigma = asked.scale(9, 1.0)
    rho = 9 / (2 * sigma**2)
    orders = [1 + x for x in np.geomspace(1e-3, 1e4, 4000)]
    other = accounting.rdp.RdpAccountant(orders)
    other.compose(accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    assert other.get_epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)


def test_noise_has_the_size_that_the_privacy_map_was_told() -> None:
    for delta, sd in ((0.0, lambda b: math.sqrt(2 * math.exp(-1 / b)) / (1 - math.exp(-1 / b))), (1e-6, lambda s: s)):
        asked = PrivateRows(np.zeros((5, 1), dtype=np.int32), 0.5, delta, [1.0], 1)
        scale = asked.scale(1, 1.0)
        (counts,) = asked.counts([Marginal([0], [np.arange(20_000, dtype=np.int32)])])
        # 20,000 draws: the standard error of a standard deviation is below 1.2 % (Laplace), this is five of them
        assert counts[1:].std() == pytest.approx(sd(scale), rel=0.06)
        assert abs(counts[1:].mean()) < 5 * sd(scale) / math.sqrt(20_000)
        assert (counts == np.rint(counts)).all()


def test_counts_are_of_the_merged_codes_in_the_shape_of_the_table() -> None:
    data = rows(5000, 2)
    merged = np.array([0, 1, 1, 1], dtype=np.int32)
    table = Marginal([0, 1], [merged, OWN])
    assert table.shape == (2, 4)
    (counts,) = PrivateRows(data, 1e6, 0.0, [1.0], 1).counts([table])
    expected = [[((data[:, 0] > 0) == i)[data[:, 1] == j].sum() for j in range(4)] for i in range(2)]
    assert counts.tolist() == expected


def test_the_best_score_wins_where_noise_is_small_and_not_always_where_it_is_large() -> None:
    sure = [PrivateRows(rows(), 1e4, 0.0, [1.0], 1).best(lambda _: [0.0, 5.0, 1.0]) for _ in range(20)]
    assert sure == [1] * 20
    unsure = [PrivateRows(rows(), 0.01, 0.0, [1.0], 1).best(lambda _: [0.0, 5.0, 1.0]) for _ in range(200)]
    assert len(set(unsure)) == 3


def test_more_questions_than_were_budgeted_are_refused() -> None:
    asked = PrivateRows(rows(), 1.0, 0.0, [1.0], 1)
    asked.counts([Marginal([0], [OWN])])
    with pytest.raises(BudgetError, match="more was asked"):
        asked.best(lambda _: [1.0])


def test_a_question_that_costs_more_than_its_share_is_refused_by_opendp_itself() -> None:
    asked = PrivateRows(rows(), 1.0, 0.0, [0.5, 0.5], 1)
    asked._noised_counts(lambda codes: np.zeros(4), 1, asked.scale(1, 0.5) * 1.01)
    with pytest.raises(Exception, match=r"privacy loss|insufficient|exceed|d_mid|budget"):
        asked._noised_counts(lambda codes: np.zeros(4), 1, asked.scale(1, 0.5) * 0.99)


def test_shares_that_are_not_the_whole_budget_are_refused() -> None:
    with pytest.raises(BudgetError, match="declared is 1"):
        PrivateRows(rows(), 1.0, 0.0, [0.5], 1)
    with pytest.raises(BudgetError, match="declared is 1"):
        PrivateRows(rows(), 1.0, 0.0, [0.5, 0.6], 1)


def test_rows_do_not_show_in_a_repr() -> None:
    assert repr(PrivateRows(rows(), 1.0, 0.0, shares(3), 1)) == "PrivateRows(4 questions left)"


def test_seeded_noise_repeats_and_says_so() -> None:
    one, two = (SeededRows(rows(), 1.0, 0.0, shares(3), seed=7) for _ in range(2))
    assert one.seeded
    assert "seeded" in one.mechanism
    tables = [Marginal([j], [OWN]) for j in range(3)]
    assert [c.tolist() for c in one.counts(tables)] == [c.tolist() for c in two.counts(tables)]
    assert one.best(lambda _: [0.0, 1.0]) == two.best(lambda _: [0.0, 1.0])


def test_without_opendp_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(MissingDependencyError, match=r"cfk-plugin\[dp\]"):
        PrivateRows(rows(), 1.0, 0.0, shares(3))
