"""What is asked of the rows: noise and composition by formulas and by another library, and the
noised model of them.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from cfk_plugin.dp import forest as module
from cfk_plugin.dp.forest import Forest, shares
from cfk_plugin.dp.mover import _ranks
from cfk_plugin.dp.noise import Marginal, PrivateRows, SeededRows
from cfk_plugin.errors import BudgetError, MissingDependencyError

pytest.importorskip("opendp", reason="the extra [dp] is not installed")
OWN = np.arange(4, dtype=np.int32)


def rows(n: int = 300, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 4, (n, columns)).astype(np.int32)


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("epsilon", "person"), [(0.1, 1), (1.0, 3), (10.0, 1)])
def test_the_composed_loss_is_the_declared_budget_and_never_above(
    epsilon: float, delta: float, person: int
) -> None:
    asked = PrivateRows(rows(), epsilon, delta, shares(3), person)
    assert epsilon * (1 - 1e-6) <= asked.epsilon <= epsilon
    assert asked.delta == delta
    assert repr(asked) == "PrivateRows(2 questions left)"


def test_scales_are_those_of_the_formulas_and_of_another_accountant() -> None:
    assert PrivateRows(rows(), 1.0, 0.0, shares(3), 2).scale(3, 0.2) == pytest.approx(2 * 3 / 0.2)
    accounting = pytest.importorskip("dp_accounting", reason="a second opinion on the conversion")
    sigma = PrivateRows(rows(), 1.0, 1e-6, [1.0], 1).scale(9, 1.0)
    rho = 9 / (2 * sigma**2)
    other = accounting.rdp.RdpAccountant([1 + x for x in np.geomspace(1e-3, 1e4, 4000)])
    other.compose(accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    assert other.get_epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_has_the_size_that_the_privacy_map_was_told(delta: float) -> None:
    asked = PrivateRows(np.zeros((5, 1), dtype=np.int32), 0.5, delta, [1.0], 1)
    scale = asked.scale(1, 1.0)
    sd = scale if delta else math.sqrt(2 * math.exp(-1 / scale)) / (1 - math.exp(-1 / scale))
    (counts,) = asked.counts([Marginal([0], [np.arange(20_000, dtype=np.int32)])])
    # 20,000 draws: the standard error of a standard deviation is below 1.2 % (Laplace), this is
    # five of them
    assert counts[1:].std() == pytest.approx(sd, rel=0.06)
    assert abs(counts[1:].mean()) < 5 * sd / math.sqrt(20_000)
    assert (counts == np.rint(counts)).all()


def test_counts_are_of_the_merged_codes_in_the_shape_of_the_table() -> None:
    data, merged = rows(5000, 2), np.array([0, 1, 1, 1], dtype=np.int32)
    table = Marginal([0, 1], [merged, OWN])
    (counts,) = PrivateRows(data, 1e6, 0.0, [1.0], 1).counts([table])
    assert counts.tolist() == [
        [((data[:, 0] > 0) == i)[data[:, 1] == j].sum() for j in range(4)] for i in range(2)
    ]


def test_the_best_score_wins_where_noise_is_small_and_not_always_where_it_is_large() -> None:
    sure, unsure = (
        [
            PrivateRows(rows(), epsilon, 0.0, [1.0], 1).best(lambda _: [0.0, 5.0, 1.0])
            for _ in range(60)
        ]
        for epsilon in (1e4, 0.01)
    )
    assert (set(sure), set(unsure)) == ({1}, {0, 1, 2})


@pytest.mark.parametrize("person", [1, 3])
def test_choice_has_the_budgets_noise(person: int) -> None:
    """Of two scores the higher one wins as often as with exponential noise of scale 2 / epsilon."""
    n_draws = 800
    wins = [
        PrivateRows(rows(20), 1.0 * person, 0.0, [1.0], person).best(lambda _: [0.0, 2.0])
        for _ in range(n_draws)
    ]
    expected = 1 - math.exp(-2 / 2) / 2
    standard_error = math.sqrt(expected * (1 - expected) / n_draws)
    assert np.mean(wins) == pytest.approx(expected, abs=5 * standard_error)


def test_more_or_dearer_questions_than_were_budgeted_and_shares_that_are_not_the_whole_are_refused() -> (
    None
):
    asked = PrivateRows(rows(), 1.0, 0.0, [1.0], 1)
    asked.counts([Marginal([0], [OWN])])
    with pytest.raises(BudgetError, match="more was asked"):
        asked.best(lambda _: [1.0])
    asked = PrivateRows(rows(), 1.0, 0.0, [0.5, 0.5], 1)
    asked._noised_counts(lambda codes: np.zeros(4), 1, asked.scale(1, 0.5) * 1.01)
    # by OpenDP itself
    with pytest.raises(Exception, match=r"privacy loss|insufficient|exceed|d_mid|budget"):
        asked._noised_counts(lambda codes: np.zeros(4), 1, asked.scale(1, 0.5) * 0.99)
    for wrong in ([0.5], [0.5, 0.6]):
        with pytest.raises(BudgetError, match="declared is 1"):
            PrivateRows(rows(), 1.0, 0.0, wrong, 1)


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


# --- the noised model -----------------------------------------------------------------------------


def linked(n: int = 4000, seed: int = 0) -> np.ndarray:
    """Return rows of which columns 0 and 1 belong together, 2 and 3 as well, and 4 with none."""
    random = np.random.default_rng(seed)
    a, c, e = random.integers(0, 4, n), random.integers(0, 3, n), random.integers(0, 5, n)
    b = np.where(random.random(n) < 0.8, a, random.integers(0, 4, n))
    return np.column_stack([a, b, c, (c > 0).astype(int), e]).astype(np.int32)


SIZES = (4, 4, 3, 2, 5)


def measured(
    data: np.ndarray, epsilon: float, sizes: tuple[int, ...] = SIZES, delta: float = 0.0
) -> Forest:
    return Forest.measure(PrivateRows(data, epsilon, delta, shares(len(sizes)), 1), sizes)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_columns_that_belong_together_are_found(delta: float) -> None:
    pairs = {(edge.first, edge.second) for edge in measured(linked(), 5.0, delta=delta).edges}
    assert {(0, 1), (2, 3)} <= pairs


def test_columns_of_many_codes_do_not_seem_to_belong_together_by_chance() -> None:
    random = np.random.default_rng(0)
    many, few = random.integers(0, 30, (2000, 2)), random.integers(0, 3, 2000)
    alike = np.where(random.random(2000) < 0.15, few, random.integers(0, 3, 2000))
    codes, gaps = np.column_stack([many, few, alike]).astype(np.int32), {}
    for a, b in ((0, 1), (2, 3)):
        table = pd.crosstab(codes[:, a], codes[:, b]).to_numpy()
        gaps[a, b] = np.abs(table - np.outer(table.sum(1), table.sum(0)) / 2000).sum()
    assert gaps[0, 1] > 1.5 * gaps[2, 3]  # though the first two are independent
    first = measured(codes, 50.0, (30, 30, 3, 3)).edges[0]
    assert (first.first, first.second) == (2, 3)


def test_a_row_changes_no_score_of_a_pair_by_more_than_one() -> None:
    alone = Forest.of_singles(
        tuple(map(np.arange, SIZES)), [np.full(size, 300 / size) for size in SIZES], 1.0
    )

    def scores(data: np.ndarray) -> np.ndarray:
        found: list[np.ndarray] = []
        asked = SimpleNamespace(
            best=lambda score: found.append(np.array(score(data))) or len(found[0]) - 1
        )
        alone.choose_pairs(asked, 2.0, 1)
        return found[0]

    data = linked(300)
    change = np.abs([scores(np.delete(data, i, axis=0)) - scores(data) for i in range(40)]).max()
    assert 0.9 < change <= 1 + 1e-9


def test_pairs_form_no_cycle_and_none_is_chosen_where_noise_would_choose() -> None:
    counted: dict[float, list[int]] = {0.05: [], 1.0: [], 50.0: []}
    for epsilon, seed in product(counted, range(8)):
        edges, part = measured(linked(40, seed), epsilon).edges, list(range(len(SIZES)))
        counted[epsilon].append(len(edges))
        for edge in edges:
            assert part[edge.first] != part[edge.second]
            part = [part[edge.first] if p == part[edge.second] else p for p in part]
    assert not any(counted[0.05])
    assert np.mean(counted[50.0]) >= 2


@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.4, 1.0])
def test_there_are_at_most_so_many_pairs_as_0_0015_times_epsilon_and_rows(epsilon: float) -> None:
    data = linked(8000)  # the number of rows is noised by about 10 / epsilon
    counted = [len(measured(data, epsilon).edges) for _ in range(5)]
    assert max(counted) <= min(len(SIZES) - 1, int(0.0015 * epsilon * (len(data) + 300 / epsilon)))
    assert max(counted) > 0 or epsilon < 0.2


def test_without_pairs_the_whole_budget_is_in_the_counts_of_single_columns() -> None:
    asked = PrivateRows(rows(400), 0.1, 0.0, shares(3), 1)
    found = Forest.measure(asked, (4, 4, 4))
    assert found.edges == ()
    assert [len(answer.table.columns) for answer in asked.answers] == [0, 1, 1, 1]
    assert [answer.scale for answer in asked.answers] == pytest.approx(
        [10 / 0.03, *[30 / 0.97] * 3]
    )
    with pytest.raises(BudgetError, match="more was asked"):
        asked.best(lambda _: [0.0])


def test_where_no_pair_is_worth_its_noise_single_columns_are_counted_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FILLED", 1e9)
    asked = PrivateRows(rows(4000), 1.0, 0.0, shares(3), 1)
    assert Forest.measure(asked, (4, 4, 4)).edges == ()
    assert [answer.scale for answer in asked.answers[1:]] == pytest.approx(
        [3 / 0.35] * 3 + [3 / 0.52] * 3
    )
    with pytest.raises(BudgetError, match="more was asked"):
        asked.best(lambda _: [0.0])


def test_with_hardly_any_noise_the_counts_are_those_of_the_rows() -> None:
    data = linked()
    found = measured(data, 1e5)
    assert found.people == pytest.approx(len(data), abs=1)
    for j, counts in enumerate(found.single):
        assert counts == pytest.approx(np.bincount(data[:, j], minlength=SIZES[j]), abs=1)
    for edge in found.edges:
        exact = np.zeros(edge.counts.shape)
        codes = (found.merged[each][data[:, each]] for each in (edge.first, edge.second))
        np.add.at(exact, tuple(codes), 1)
        assert edge.counts == pytest.approx(exact, abs=2)


def test_probabilities_of_all_rows_add_up_to_one_and_are_the_frequencies_of_what_is_drawn() -> None:
    forest = measured(linked(), 1.0)
    codes = forest.sample(100_000, np.random.default_rng(0))
    log_probability = forest.likelihood().of(codes)
    known = {
        tuple(row): value
        for row, value in zip(codes.tolist(), np.exp(log_probability), strict=True)
    }
    assert set(known) <= set(product(*map(range, SIZES)))
    # rows of tiny probability may not have been drawn
    assert sum(known.values()) == pytest.approx(1.0, abs=4e-3)
    drawn, times = np.unique(codes, axis=0, return_counts=True)
    expected = np.array([known[tuple(row)] for row in drawn.tolist()])
    often = expected * len(codes) > 30  # so that a normal distribution is near enough
    error = np.abs(times / len(codes) - expected) / np.sqrt(expected / len(codes))
    assert often.sum() > 50
    assert error[often].max() < 7


def test_columns_are_taken_over_in_the_order_of_their_gains_in_distance_and_log_probability() -> (
    None
):
    random = np.random.default_rng(0)
    forest = measured(
        np.column_stack([linked(), random.integers(0, 40, 4000)]).astype(np.int32),
        5.0,
        (*SIZES, 40),
    )
    codes, own, likelihood = (
        forest.sample(50, random),
        forest.sample(50, random),
        forest.likelihood(),
    )
    gaps, weight = np.where(codes != own, random.random(codes.shape), 0.0), random.random(50)
    rank, size = _ranks(likelihood, codes, own, gaps, weight)
    for row, mine, left, each, places, n in zip(codes, own, gaps, weight, rank, size, strict=True):
        for turn in range(n + 1):
            tried = np.where(np.eye(len(row), dtype=bool), mine, row).astype(np.int32)
            gain = np.where(
                left > 0, left + each * (likelihood.of(tried) - likelihood.of(row[None])), 0.0
            )
            if turn == n:
                assert gain.max() <= 1e-9
                break
            assert places[gain.argmax()] == turn
            row[gain.argmax()], left[gain.argmax()] = mine[gain.argmax()], 0.0
        assert (places < len(row)).sum() == n
    assert size.max() > 1


def test_rare_codes_are_counted_together_and_drawn_one_by_one() -> None:
    random = np.random.default_rng(0)
    rare = np.where(random.random(20_000) < 0.6, 0, random.integers(1, 200, 20_000))
    found = measured(np.column_stack([rare, rare == 0]).astype(np.int32), 1.0, (200, 2))
    assert len(np.unique(found.merged[0])) < 20
    codes = found.sample(20_000, random)
    assert len(np.unique(codes[:, 0])) > 100
    assert ((codes[:, 0] == 0) == (codes[:, 1] == 1)).mean() > 0.95


def test_rare_codes_are_merged_within_their_groups_and_rare_groups_with_others() -> None:
    counts = np.array([50.0, 3, 4, 5, 9, 90, 1, 1, 2])
    groups = [np.array([0, 0, 0, 1, 1, 2, 3, 3, 4]), np.array([5, 5, 5, 5, 5, 6, 7, 7, 7])]
    # 7 of group 0 and 14 of group 1 are 21 together; 4 of groups 3 and 4 are with those that are
    # left, if any
    assert module._merge_rare(counts, 10.0, groups).tolist() == [0, 1, 1, 2, 2, 3, 1, 1, 1]
    assert module._merge_rare(counts, 20.0, groups).tolist() == [0, 1, 1, 1, 1, 2, 3, 3, 3]
    assert module._merge_rare(counts, 10.0).tolist() == [0, 1, 1, 1, 1, 2, 1, 1, 1]
    assert module._merge_rare(counts, 1.0, groups).tolist() == [*range(9)]


def test_codes_of_a_hierarchy_are_told_apart_by_group_where_they_are_rare() -> None:
    random = np.random.default_rng(0)
    leaf = random.integers(0, 200, 8000)
    data, groups = (
        np.column_stack([leaf, leaf // 20]).astype(np.int32),
        np.arange(200, dtype=np.int32) // 20,
    )
    with_tree = Forest.measure(PrivateRows(data, 1.0, 0.0, shares(2), 1), (200, 10), [[groups], []])
    assert (
        with_tree.likelihood().of(data).mean()
        > measured(data, 1.0, (200, 10)).likelihood().of(data).mean() + 0.5
    )
    drawn = with_tree.sample(5000, random)
    assert (drawn[:, 0] // 20 == drawn[:, 1]).mean() > 0.75


def test_shares_are_the_whole_budget_and_a_single_column_needs_no_pairs() -> None:
    assert [sum(shares(columns)) for columns in (1, 2, 12)] == pytest.approx([1.0] * 3)
    found = measured(linked()[:, :1], 1.0, (4,))
    assert found.edges == ()
    assert found.sample(100, np.random.default_rng(0)).shape == (100, 1)


@settings(max_examples=25)
@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), st.floats(1, 100, width=32))
def test_the_projection_is_the_nearest_point_that_counts_can_be(
    values: list[float], total: float
) -> None:
    given_counts = np.array(values)
    found = module._on_simplex(given_counts, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-6)
    other = minimize(
        lambda x: ((x - given_counts) ** 2).sum(),
        np.full(len(values), total / len(values)),
        bounds=[(0, None)] * len(values),
        constraints={"type": "eq", "fun": lambda x: x.sum() - total},
    )
    assert ((found - given_counts) ** 2).sum() <= other.fun + 1e-3 * max(1.0, other.fun)


def test_shrinking_keeps_what_noise_does_not_explain_and_leaves_no_cell_without_doubt() -> None:
    base = np.full(10, 100.0)
    noise = base + np.array([3.0, -3] * 5)  # 90 is the sum of squares

    def expected(kept: np.ndarray, deviation: float) -> np.ndarray:
        raised = kept + 0.3 * deviation * 100 / (100 + deviation)
        return raised * 1000 / raised.sum()

    signal = base + np.array([500.0, -100, -100, -100, -80, -80, 0, 0, -20, -20])
    found = module._shrink([signal], [base], 10.0)[0]
    share = 1 - 100 * 8 / ((signal - base) ** 2).sum()
    assert found == pytest.approx(expected(base + share * (signal - base), 10.0))
    assert found.min() > 2.5
    # positive-part James-Stein: 1 - 1.5^2 (10 - 2) / 90; and nothing where noise explains all
    assert module._shrink([noise], [base], 1.5)[0] == pytest.approx(
        expected(base + 0.8 * (noise - base), 1.5)
    )
    assert module._shrink([noise], [base], 4.0)[0] == pytest.approx(base)


def test_what_divides_a_question_costs_no_more_than_the_question() -> None:
    asked = PrivateRows(rows(), 1.0, 0.0, [0.4, 0.6], 1)
    with pytest.raises(BudgetError, match="last question"):
        asked.divide([0.4])
    asked.counts([Marginal([0], [OWN])])
    with pytest.raises(BudgetError, match="not more"):
        asked.divide([0.4, 0.3])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_parts_of_a_question_have_their_own_noise_and_dearer_ones_are_refused(delta: float) -> None:
    asked = PrivateRows(np.zeros((5, 1), dtype=np.int32), 1.0, delta, [0.4, 0.6], 1)
    asked.counts([Marginal([0], [OWN])])
    asked.divide([0.2, 0.4])
    assert asked.best(lambda _: [0.0, 9e9]) == 1
    scale = asked.scale(1, 0.4)
    (counts,) = asked.counts([Marginal([0], [np.arange(20_000, dtype=np.int32)])])
    sd = scale if delta else math.sqrt(2 * math.exp(-1 / scale)) / (1 - math.exp(-1 / scale))
    assert counts[1:].std() == pytest.approx(sd, rel=0.06)
    with pytest.raises(BudgetError, match="more was asked"):
        asked.counts([Marginal([0], [OWN])])
    again = PrivateRows(rows(), 1.0, delta, [1.0], 1)
    again.divide([0.5, 0.5])
    with pytest.raises(Exception, match=r"insufficient|budget"):  # by OpenDP itself
        again._noised_counts(lambda codes: np.zeros(4), 1, again.scale(1, 0.5) * 0.99)


def test_the_number_of_rows_is_the_mean_weighted_by_cells() -> None:
    assert module._people([np.array([10.0, 12.0]), np.array([1.0, 2, 3, 4])]) == pytest.approx(
        (22 / 2 + 10 / 4) / 0.75
    )
