"""Risk metrics against published examples and closed forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cfk_plugin import metrics
from cfk_plugin.errors import InputError

SALARY = [3, 4, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("scale", [1, 1000])
def test_t_closeness_of_the_published_example(scale):
    everybody = [v * scale for v in SALARY]
    assert metrics.t_closeness([3 * scale, 4 * scale, 5 * scale], everybody, ordered=True) == pytest.approx(0.375)
    assert metrics.t_closeness([6 * scale, 8 * scale, 11 * scale], everybody, ordered=True) == pytest.approx(1 / 6)


def test_t_closeness_equals_wasserstein_on_ranks():
    rng = np.random.default_rng(0)
    everybody = rng.integers(0, 20, 500)
    inside = everybody[:30]
    ranks = {v: i for i, v in enumerate(np.unique(everybody))}
    expected = stats.wasserstein_distance([ranks[v] for v in inside], [ranks[v] for v in everybody]) / (len(ranks) - 1)
    assert metrics.t_closeness(inside, everybody, ordered=True) == pytest.approx(expected)


def test_t_closeness_of_categories_is_total_variation():
    assert metrics.t_closeness(["a", "a"], ["a", "b", "c", "d"], ordered=False) == pytest.approx(0.75)
    assert metrics.t_closeness(["b", "a"], ["a", "b"], ordered=False) == 0


def test_t_closeness_counts_missing_as_a_value():
    assert metrics.t_closeness([np.nan, np.nan], [1.0, 2.0, np.nan, np.nan], ordered=True) == pytest.approx(0.5)
    assert metrics.t_closeness([None], ["a", None], ordered=False) == pytest.approx(0.5)
    same = [1.0, np.nan, 3.0]
    assert metrics.t_closeness(same, same, ordered=True) == 0
    assert metrics.t_closeness([np.nan], [1.0, 2.0], ordered=True) == 1


@pytest.mark.parametrize("seed", range(5))
def test_t_closeness_with_missing_bounds_the_exact_distance(seed):
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    everybody = rng.choice([1.0, 2.0, 3.0, 4.0, np.nan], 60)
    inside = everybody[:6]
    values = [1.0, 2.0, 3.0, 4.0, np.nan]

    def share(sample):
        return np.array([np.isnan(sample).mean() if np.isnan(v) else (sample == v).mean() for v in values])

    cost = np.array([[0 if i == j else 1 if 4 in (i, j) else abs(i - j) / 3 for j in range(5)] for i in range(5)])
    rows, columns = np.kron(np.eye(5), np.ones(5)), np.kron(np.ones(5), np.eye(5))
    exact = linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([share(inside), share(everybody)])
    )
    t = metrics.t_closeness(inside, everybody, ordered=True)
    assert exact.fun - 1e-9 <= t <= 1 + 1e-9


def test_dtypes_do_not_matter():
    a = pd.Series(pd.Categorical(["x", "y", "x"]))
    b = pd.Series(["x", "y", "y", "x"], dtype="string")
    assert metrics.t_closeness(a, b, ordered=False) == pytest.approx(1 / 6)
    assert metrics.t_closeness(pd.Series([1, 2], dtype="Int64"), [1.0, 2.0], ordered=True) == 0


@pytest.mark.parametrize(("inside", "everybody", "said"), [([], ["a"], "at least one"), (["a"], [], "at least one")])
@pytest.mark.parametrize("ordered", [True, False])
def test_distributions_of_nobody_are_refused(inside, everybody, said, ordered):
    with pytest.raises(InputError, match=said):
        metrics.t_closeness(inside, everybody, ordered)


def test_texts_have_no_order():
    with pytest.raises(InputError, match="ordered values"):
        metrics.t_closeness(["a"], ["a", "b"], ordered=True)


def test_l_diversity():
    even = metrics.l_diversity(["a", "b", "c", "d"])
    assert (even.distinct, even.recursive) == (4, pytest.approx(1 / 3))
    assert even.entropy == pytest.approx(4)
    single = metrics.l_diversity([7, 7, 7.0])
    assert single == metrics.LDiversity(1, 1.0, float("inf"))
    assert metrics.l_diversity(["a", None]).distinct == 2
    skewed = metrics.l_diversity(["a"] * 8 + ["b", "c"], l=2)
    assert skewed.recursive == pytest.approx(4)
    assert 1 < skewed.entropy < 3
    with pytest.raises(InputError):
        metrics.l_diversity([])


def test_attribute_disclosure():
    assert metrics.attribute_disclosure(["a", "a"], ["a"] + ["b"] * 9) == pytest.approx(0.9)
    assert metrics.attribute_disclosure(["a", "b"], ["b", "a"]) == 0


def test_reidentification_risks():
    risk = metrics.prosecutor_risk([2, 10, 20], threshold=0.2)
    assert (risk.highest, risk.at_risk) == (0.5, pytest.approx(1 / 3))
    assert risk.mean == metrics.marketer_risk([2, 10, 20]) == pytest.approx((0.5 + 0.1 + 0.05) / 3)
    assert metrics.journalist_risk([20, 100]).highest == 0.05
    assert np.isnan(metrics.marketer_risk([]))
    with pytest.raises(InputError):
        metrics.prosecutor_risk([0])


def test_k_private_reads_any_dtype():
    rows = pd.DataFrame({"pay": [60, 60, 80], "code": pd.Categorical([1, 2, 1]), "note": ["x", None, "x"]})
    assert metrics.k_private(rows, {"pay": "60"}) == 2
    assert metrics.k_private(rows, {"pay": 60.0, "code": "1"}) == 1
    assert metrics.k_private(rows, {"note": np.nan}) == 1
    assert metrics.k_private(rows, {"pay": 70}) == 0
    with pytest.raises(InputError, match="other"):
        metrics.k_private(rows, {"other": 1})
