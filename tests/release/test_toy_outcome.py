"""A kind of outcome that the product does not know is protected like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, ROWS
from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.outcome import RelativeOutcome

BANDS = ["low", "mid", "high"]
TRAIN = ROWS[FEATURES]
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "job"])
)


class BandModel:
    """Puts people in three ordered bands, mostly by their income."""

    classes_ = np.array(BANDS, dtype=object)

    def predict(self, rows: pd.DataFrame) -> Any:
        score = rows["income"].to_numpy(dtype=float) + 0.2 * rows["age"].to_numpy(dtype=float)
        return self.classes_[np.digitize(score, [50, 65])]


MODEL = BandModel()


def ranks(labels: Any) -> Any:
    return np.array([BANDS.index(label) for label in labels])


@dataclass(frozen=True)
class HigherBand(RelativeOutcome):
    """Any band above the factual's."""

    def is_desired(self, labels: Any, factual_labels: Any) -> Any:
        return ranks(labels) > ranks(factual_labels)


def people_of(band: str, n: int) -> pd.DataFrame:
    return TRAIN[MODEL.predict(TRAIN) == band].head(n).reset_index(drop=True)


def fitted(**policy: Any) -> KAnonymizer:
    return KAnonymizer(policy=PrivacyPolicy(k=5, **policy)).fit(POPULATION, MODEL, HigherBand())


def assert_outcome_is_higher(explanations: Explanations, band: str) -> None:
    for entry in explanations.generalized:
        outcome = entry.outcome
        labels = outcome.labels if outcome.label is None else [outcome.label]
        assert {*labels} == {*BANDS[BANDS.index(band) + 1 :]}


@pytest.mark.parametrize("band", BANDS)
def test_only_a_higher_band_is_released(band: str) -> None:
    candidates = pd.concat([people_of(other, 4) for other in BANDS], ignore_index=True)
    explanations = fitted(guarantee="lookup").transform(candidates, people_of(band, 12))
    is_higher = ranks(MODEL.predict(candidates)) > BANDS.index(band)
    for entry in explanations:
        assert is_higher[entry.query] or entry.reason == "not_desired"
    assert bool(explanations.released) == (band != "high")
    assert_outcome_is_higher(explanations, band)


@pytest.mark.parametrize("band", ["low", "mid"])
def test_catalogue_answers_with_a_higher_band(band: str) -> None:
    explanations = fitted().explain(people_of(band, 6))
    assert len(explanations.generalized) == 6
    assert_outcome_is_higher(explanations, band)
    advised = [{**entry.advised, **entry.released} for entry in explanations.generalized]
    assert (ranks(MODEL.predict(pd.DataFrame(advised))) > BANDS.index(band)).all()


def test_highest_band_has_no_answer() -> None:
    assert fitted().explain(people_of("high", 6)).summary()["reasons"] == {"infeasible": 6}
