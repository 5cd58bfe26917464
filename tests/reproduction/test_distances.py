"""Distances to training rows, recomputed from the rows themselves."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pandas as pd
import pytest

import reproduced
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.reproduction.measure import NICE, Measurement
from cfk_plugin.reproduction.prepare import AutoEncoder, Prepared


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return reproduced.prepared()


def mean_distances(rows: pd.DataFrame, train: pd.DataFrame) -> tuple[float, float]:
    """Return mean distances to the nearest and the five nearest training rows, summed over the four features."""
    sorted_ones = np.sort(4 * Heom.fit(train).distances(rows, train), axis=1)
    return sorted_ones[:, 0].mean(), sorted_ones[:, :5].mean()


def combinations(region: Region, counterfactual: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    """Return every combination of training values that a region allows, with the counterfactual's other values."""
    values = [
        [v for v in train[name].unique() if (part.low <= v <= part.high if isinstance(part, Interval) else v in part)]
        for name, part in region.parts.items()
    ]
    rows = pd.DataFrame(list(itertools.product(*values)), columns=list(region.parts))
    return rows.assign(**{name: counterfactual[name] for name in ("pain", "pressure")})


def test_a_region_is_as_far_as_its_value_combinations_are_on_average(prepared: Prepared) -> None:
    found = reproduced.measure(prepared, "exact-ncp", 5, kind="distances")
    entries = reproduced.protect(prepared, "exact-ncp", 5, prepared.counterfactuals)
    for i, entry in enumerate(entries):
        rows = combinations(entry.region, prepared.counterfactuals.iloc[i], prepared.train)
        assert len(rows) <= 100  # so that all are drawn
        nearest, nearest_5 = mean_distances(rows, prepared.train)
        assert found.figures["nearest"][i] == pytest.approx(nearest)
        assert found.figures["nearest_5"][i] == pytest.approx(nearest_5)
    assert any(value > 0 for value in found.figures["nearest"])


def test_the_other_figures_are_those_of_the_certificates(prepared: Prepared) -> None:
    found, usual = (
        reproduced.measure(prepared, "exact-pureness", 5, kind="distances", asked=4),
        reproduced.measure(prepared, "exact-pureness", 5),
    )
    for name, values in usual.figures.items():
        assert found.figures[name] == values[:4]
    assert (found.asked, found.groups, found.k) == (4, usual.groups[:4], 5)
    assert Measurement.from_json(found.to_json()) == found


def test_nice_without_optimisation_returns_training_rows(prepared: Prepared) -> None:
    pytest.importorskip("nice", reason="needs NICEx, which is installed apart")
    found = reproduced.measure(prepared, "nice-none", 0, kind="distances")
    assert found.figures["nearest"] == (0.0,) * 12
    by_hand = [
        mean_distances(row.to_frame().T.astype(prepared.train.dtypes), prepared.train)[1]
        for _, row in prepared.counterfactuals.iterrows()
    ]
    np.testing.assert_allclose(found.figures["nearest_5"], by_hand)
    assert found.figures["ncp"] == found.figures["pureness"] == (None,) * 12
    assert (found.k, found.groups, found.groups_asking) == (0, (), prepared.groups_asking)
    assert found.model_calls == 12  # NICE asks once what each query is predicted
    assert found.seconds >= found.model_seconds > 0


@pytest.mark.parametrize("method", [name for name in NICE if name != "nice-none"])
def test_optimised_ones_are_made_up(prepared: Prepared, method: str) -> None:
    pytest.importorskip("nice", reason="needs NICEx, which is installed apart")
    found = reproduced.measure(prepared, method, 0, kind="distances", asked=4)
    assert max(found.figures["nearest"]) > 0
    assert all(a <= b for a, b in zip(found.figures["nearest"], found.figures["nearest_5"], strict=True))
    assert Measurement.from_json(found.to_json()) == found


def test_without_nice_it_says_how_to_install_it(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nice", None)  # as where it is not installed
    with pytest.raises(InputError, match="pip install --no-deps NICEx"):
        reproduced.measure(prepared, "nice-sparsity", 0, kind="distances")


def test_what_is_asked_must_make_sense(prepared: Prepared) -> None:
    with pytest.raises(InputError, match=r"unknown method 'dice'; known: grasp, .*, nice-plausibility"):
        reproduced.measure(prepared, "dice", 5, kind="distances")
    with pytest.raises(InputError, match="nice-none has neither k nor settings"):
        reproduced.measure(prepared, "nice-none", 5, kind="distances")
    with pytest.raises(InputError, match="exact-ncp has no setting alpha"):
        reproduced.measure(prepared, "exact-ncp", 5, kind="distances", options={"alpha": 3})
    with pytest.raises(PolicyError):
        reproduced.measure(prepared, "exact-ncp", 1000, kind="distances")


def test_an_auto_encoder_knows_rows_like_those_it_was_trained_on() -> None:
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 120)
    rows = np.column_stack([kind, (kind + 1) % 3, 10 * kind + random.normal(0, 0.1, 120)]).astype(float)
    rows[:3, 2] = np.nan
    judge = AutoEncoder(rows, [0, 1], seed=0)
    mixed = np.column_stack([random.permutation(column) for column in rows.T])
    mixed = mixed[(mixed[:, 1] != (mixed[:, 0] + 1) % 3)]
    assert judge(mixed).min() > 5 * np.median(judge(rows))
    np.testing.assert_array_equal(judge(mixed), AutoEncoder(rows, [0, 1], seed=0)(mixed))
    assert judge(rows).shape == (120,)
    assert np.isfinite(judge(rows)).all()
    assert repr(judge) == "AutoEncoder(7 columns)"


def test_an_auto_encoder_of_one_column() -> None:
    rows = np.linspace(0, 1, 50)[:, None]
    assert AutoEncoder(rows, [], seed=0)(rows).shape == (50,)
