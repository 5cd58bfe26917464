"""Choosing between candidates, against a choice made here one candidate at a time."""

from __future__ import annotations

import numpy as np
import pytest

import reproduced
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.reproduction.measure import Measurement
from cfk_plugin.reproduction.prepare import Prepared


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return reproduced.prepared()


@pytest.mark.parametrize("method", ["exact-pureness", "exact-ncp"])
def test_one_candidate_is_the_ordinary_outcome(prepared: Prepared, method: str) -> None:
    usual, one = reproduced.measure(prepared, method, 5), reproduced.choose(prepared, method, 5, 1)
    assert {name: one.figures[name] for name in usual.figures} == usual.figures
    assert (one.groups, one.groups_asking, one.asked) == (usual.groups, usual.groups_asking, 12)
    own = Heom.fit(prepared.train).parts(prepared.queries, prepared.counterfactuals).mean(axis=1)
    np.testing.assert_allclose(one.figures["distance"], own)
    assert one.options == {"candidates": 1}


def test_the_best_of_the_nearest_is_chosen(prepared: Prepared) -> None:
    found = reproduced.choose(prepared, "exact-ncp", 5, 4, asked=4)
    train = prepared.train
    may = train[(prepared.model.predict(train) == "absent") & (prepared.labels == "absent")].drop_duplicates()
    distances = Heom.fit(train).distances(prepared.queries.head(4), may)
    better = 0
    for i, away in enumerate(distances):
        nearest = np.argsort(away, kind="stable")[:4]
        entries = reproduced.protect(prepared, "exact-ncp", 5, may.iloc[nearest])
        costs = [d + entry.certificate.ncp for d, entry in zip(away[nearest], entries, strict=True)]
        best = int(np.argmin(costs))
        assert found.figures["distance"][i] + found.figures["ncp"][i] == pytest.approx(costs[best])
        better += best > 0
    assert better  # else the first would have done
    assert (found.groups, len(found.groups_asking), found.asked) == ((), 4, 4)
    assert Measurement.from_json(found.to_json()) == found


def test_more_candidates_than_there_are_rows(prepared: Prepared) -> None:
    costs = []
    for m in (len(prepared.train) + 1, 3):
        found = reproduced.choose(prepared, "exact-ncp", 5, m, asked=1)
        costs.append(found.figures["distance"][0] + found.figures["ncp"][0])
    assert costs[0] <= costs[1]


def test_at_least_one_candidate(prepared: Prepared) -> None:
    with pytest.raises(InputError, match="candidates must be a whole number >= 1"):
        reproduced.choose(prepared, "exact-pureness", 5, 0)
