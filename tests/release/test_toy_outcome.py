"""A kind of outcome that the product does not know is protected like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer
from cfk_plugin.data.outcome import RelativeOutcome
from worlds import World

BANDS = ["low", "mid", "high"]


class BandModel:
    """Puts people in three ordered bands of their salary."""

    classes_ = np.array(BANDS, dtype=object)

    def predict(self, rows: pd.DataFrame) -> Any:
        return self.classes_[np.digitize(rows["salary"].to_numpy(dtype=float), [50, 85])]


def ranks(labels: Any) -> Any:
    return np.array([BANDS.index(label) for label in labels])


@dataclass(frozen=True)
class HigherBand(RelativeOutcome):
    """Any band above the factual's."""

    def is_desired(self, labels: Any, factual_labels: Any) -> Any:
        return ranks(labels) > ranks(factual_labels)


def fit(world: World, guarantee: str) -> KAnonymizer:
    return world.fit(model=BandModel(), desired=HigherBand(), guarantee=guarantee)


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_only_a_higher_band_is_released(guarantee: str, residents: World) -> None:
    """Whoever is in the highest band has no answer."""
    queries = residents.strangers.head(40).reset_index(drop=True)
    candidates = residents.strangers.tail(40).reset_index(drop=True)
    anonymizer = fit(residents, guarantee)
    if guarantee == "lookup":
        explanations = anonymizer.transform(candidates, queries)
    else:
        explanations = anonymizer.explain(queries)
    own = ranks(BandModel().predict(queries))
    assert len(explanations.released) >= 10
    for entry in explanations.released:
        advised = pd.DataFrame([{**queries.loc[entry.query], **entry.released}])
        assert ranks(BandModel().predict(advised))[0] > own[entry.query]
        outcome = entry.outcome
        labels = outcome.labels if outcome.label is None else [outcome.label]
        assert {*labels} == {*BANDS[own[entry.query] + 1 :]}
    reasons = {entry.reason for entry in explanations.withheld if own[entry.query] == 2}
    assert reasons <= {"infeasible", "not_desired"}
