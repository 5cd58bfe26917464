"""Growing Spheres: evenly drawn shells, distances to a known boundary, and what is put back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.growing_spheres import GrowingSpheres
from cfk_adapters.shells import l1_shell
from cfk_plugin.errors import AdapterError
from loan_table import Linear, numbers


def test_a_shell_is_filled_evenly_by_volume() -> None:
    random = np.random.default_rng(0)
    drawn = l1_shell(np.array([0.0, 2.0]), np.array([1.0, 3.0]), 4000, 3, random)
    radius = np.abs(drawn).sum(axis=1)
    for part, low, high in ((radius[:4000], 0, 1), (radius[4000:], 2, 3)):
        assert low <= part.min() <= part.max() <= high
        halfway = ((low**3 + high**3) / 2) ** (1 / 3)  # half of the volume is inside of it
        assert (part < halfway).mean() == pytest.approx(0.5, abs=0.03)
    assert np.abs(drawn[:4000].mean(axis=0)).max() < 0.02
    # Even on the simplex: the largest of three shares is 11/18 of them on average.
    shares = np.abs(drawn) / radius[:, None]
    assert shares.max(axis=1).mean() == pytest.approx(11 / 18, abs=0.01)


@pytest.mark.parametrize("within_ranges", [True, False])
def test_distance_is_close_to_that_of_the_boundary(within_ranges: bool) -> None:
    train, weights = numbers(300, 2), np.array([1.0, -2.0])
    model = Linear(weights, -0.3)
    queries = train[model.predict(train) == 0].head(40)
    explainer = GrowingSpheres(train, model, within_ranges=within_ranges)
    answers = explainer.explain(queries)
    assert (model.predict(answers) == 1).all()
    scale = explainer.encoding.scale
    exact = -(queries.to_numpy() @ weights - 0.3) / np.abs(weights * scale).max()
    found = (np.abs(answers - queries) / scale).sum(axis=1)
    assert (found / exact).between(1, 1.25).all()
    assert (found / exact).mean() < 1.05


def test_a_category_wins_only_where_it_is_nearer() -> None:
    # Twenty years of fifty, or another city: 0.4 against 1. Shells go on after the first draw of another city.
    train = pd.DataFrame({"age": [20.0, 70.0] * 10, "city": ["a", "b"] * 10})
    queries = pd.DataFrame({"age": [30.0] * 20, "city": ["a"] * 20})
    answers = GrowingSpheres(train, lambda rows: (rows["age"] >= 50) | (rows["city"] == "b")).explain(queries)
    assert (answers["city"] == "a").all()
    assert answers["age"].between(50, 53).all()
    cities = GrowingSpheres(train, lambda rows: rows["city"] == "b").explain(queries)
    assert (cities["city"] == "b").all()
    assert (cities["age"] - 30).abs().max() < 5


def test_sparse_answers_change_no_more_than_they_need() -> None:
    train, model = numbers(200, 6).assign(city="a", kind="b"), Linear(np.array([2.0, -1.0, 0, 0, 0, 0]), -1.0)
    train.loc[::2, "city"] = "b"

    def predict(rows: pd.DataFrame) -> np.ndarray:
        return np.maximum(model.predict(rows[train.columns[:6]]), rows["city"] == "c").astype(int)

    queries = train[predict(train) == 0].head(25)
    full, sparse = (GrowingSpheres(train, predict, sparse=sparse).explain(queries) for sparse in (False, True))
    changed = (sparse != queries).to_numpy()
    assert (predict(sparse) == 1).all()
    assert (full != queries).to_numpy()[:, :6].all()
    assert not changed[:, 2:].any()  # the model does not look at them, or not at what there is to choose
    for name in ["x0", "x1"]:  # nothing more can be put back
        back = predict(sparse.assign(**{name: queries[name]}))
        assert (back[sparse[name] != queries[name]] == 0).all()


def test_nothing_is_found_beyond_the_limit() -> None:
    train = numbers(100, 2)
    answers = GrowingSpheres(train, Linear(np.array([1.0, 1.0]), -50.0), within_ranges=False, limit=0.5).explain(train)
    assert answers.isna().all(axis=None)
    assert GrowingSpheres(train, Linear(np.array([1.0, 1.0]), -50.0)).explain(train).isna().all(axis=None)


@pytest.mark.parametrize("settings", [{"samples": 0}, {"start": 0.0}, {"growth": 1.0}])
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(AdapterError, match="samples must be at least 1"):
        GrowingSpheres(numbers(5, 2), Linear(np.ones(2)), **settings)
