"""Distances between people and counterfactuals, against HEOM and by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.membership import HeomSum, HypercubePopulation, choose_distance, l1
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom

MIXED = pd.DataFrame({"age": [20, 60, 40], "city": ["Antwerp", "Ghent", "Ghent"], "children": [0.0, 2.0, np.nan]})


def test_mixed_tables_are_compared_feature_by_feature() -> None:
    other = MIXED.iloc[[1, 1, 0]].reset_index(drop=True)
    assert HeomSum.fit(MIXED)(MIXED, other).tolist() == [3, 0, 0.5 + 1 + 1]


def test_wide_tables_of_numbers_are_compared_in_the_same_way() -> None:
    pool, a, b = (HypercubePopulation(d=130).draw(40, seed).X for seed in range(3))
    pool["x0"], b.loc[3, "x1"], a.loc[4, "x2"], b.loc[4, "x2"] = 1.0, np.nan, np.nan, np.nan
    named = Heom.fit(pool).parts(a.assign(s="s"), b.assign(s="s")).sum(axis=1)
    assert HeomSum.fit(pool)(a, b) == pytest.approx(named)
    assert HeomSum.fit(pool)(a, b.astype(object)) == pytest.approx(HeomSum.fit(pool)(a, b))
    pool["x3"] = np.nan
    assert np.isfinite(HeomSum.fit(pool)(a, b)).all()


def test_l1_is_for_numbers() -> None:
    a = pd.DataFrame({"x": [0, 1], "y": [2.0, 5.0]})
    assert l1(a, a.iloc[::-1]).tolist() == [4, 4]
    with pytest.raises(InputError, match="numbers"):
        l1(MIXED, MIXED)


def test_a_distance_is_chosen_by_name_or_brought() -> None:
    assert choose_distance(None, MIXED)[0] == choose_distance("heom", MIXED)[0] == "heom"
    assert choose_distance("l1", MIXED) == ("l1", l1)
    assert choose_distance(l1, MIXED)[1] is l1
    assert "20" not in repr(choose_distance(None, MIXED)[1])
