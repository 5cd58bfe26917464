"""A kind of outcome that the product does not know is protected like those that it knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.data.outcome import RelativeOutcome
from cfk_plugin.release.results import GeneralizedCounterfactual

BANDS = ("low", "mid", "high")
RANK = {band: rank for rank, band in enumerate(BANDS)}

N_PEOPLE = 300
RANDOM = np.random.default_rng(5)
PEOPLE = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 60, N_PEOPLE),
        "city": RANDOM.choice(["A", "B", "C"], N_PEOPLE).astype(object),
        "pay": RANDOM.integers(0, 90, N_PEOPLE),
    }
)
POPULATION = Population.from_frame(
    PEOPLE, Schema.from_frame(PEOPLE, quasi_identifiers=["age", "city"], nullable=[])
)


class BandModel:
    """Puts people in three ordered bands, mostly by their pay."""

    classes_ = np.array(BANDS, dtype=object)

    def predict(self, rows: pd.DataFrame) -> NDArray[np.object_]:
        score = rows["pay"].to_numpy(dtype=float) + 0.2 * rows["age"].to_numpy(dtype=float)
        return self.classes_[np.digitize(score, [35, 65])]


MODEL = BandModel()
PEOPLE_WITH_BAND = PEOPLE.assign(band=MODEL.predict(PEOPLE))


@dataclass(frozen=True)
class HigherBand(RelativeOutcome):
    """Any band above the factual's."""

    def is_desired(
        self, labels: NDArray[np.object_], factual_labels: NDArray[np.object_]
    ) -> NDArray[np.bool_]:
        return ranks(labels) > ranks(factual_labels)


def ranks(labels: NDArray[np.object_]) -> NDArray[np.int64]:
    return np.array([RANK[label] for label in labels.tolist()], dtype=np.int64)


def people_of_band(band: str, n: int) -> pd.DataFrame:
    """Return the first n people whom the model puts in a band, without the band."""
    in_band = PEOPLE_WITH_BAND[PEOPLE_WITH_BAND["band"] == band]
    return in_band[[*PEOPLE]].head(n).reset_index(drop=True)


def higher_bands(band: str) -> set[str]:
    return {*BANDS[RANK[band] + 1 :]}


def labels_at_released_values(entry: GeneralizedCounterfactual) -> set[str]:
    """Return the model's labels of everybody inside a region, given the released pay."""
    inside = PEOPLE.iloc[POPULATION.members(entry.region)]
    return {*MODEL.predict(inside.assign(pay=entry.released["pay"]))}


@pytest.mark.filterwarnings("ignore::UserWarning")  # a lookup guarantee warns of what it is
@pytest.mark.parametrize("band", BANDS)
def test_only_a_higher_band_is_released(band: str) -> None:
    policy = PrivacyPolicy(k=5, guarantee="lookup")
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, MODEL, HigherBand())
    candidates = pd.concat([people_of_band(each, 4) for each in BANDS], ignore_index=True)
    factuals = people_of_band(band, len(candidates))

    found = anonymizer.transform(candidates, factuals)

    is_above = ranks(MODEL.predict(candidates)) > RANK[band]
    assert {entry.query for entry in found.released} <= {*np.flatnonzero(is_above)}
    for entry in found.withheld:
        assert is_above[entry.query] or entry.reason == "not_desired"
    if band == "high":
        assert not found.released
    else:
        assert found.generalized
    for entry in found.generalized:
        assert outcomes_of(entry) == higher_bands(band)


def outcomes_of(entry: GeneralizedCounterfactual) -> set[str]:
    """Return the labels that a certificate names as desired."""
    if entry.outcome.label is not None:
        return {entry.outcome.label}
    return {*entry.outcome.labels}


@pytest.mark.parametrize("band", ["low", "mid"])
def test_a_catalogue_answers_with_a_higher_band(band: str) -> None:
    queries = people_of_band(band, 6)
    protected = protect(
        model=MODEL, population=POPULATION, policy=PrivacyPolicy(k=5), desired=HigherBand()
    )

    found = protected.explain(queries)

    assert len(found.generalized) == len(queries)
    for entry in found.generalized:
        assert outcomes_of(entry) == higher_bands(band)
        assert labels_at_released_values(entry) & higher_bands(band)


def test_a_catalogue_has_no_answer_above_the_highest_band() -> None:
    protected = protect(
        model=MODEL, population=POPULATION, policy=PrivacyPolicy(k=5), desired=HigherBand()
    )

    found = protected.explain(people_of_band("high", 6))

    assert not found.released
    assert {entry.reason for entry in found.withheld} == {"infeasible"}
