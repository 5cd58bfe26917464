"""Counterfactuals that are training rows, or near to one, are detected in any spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError
from cfk_plugin.release.detection import Detector

N_ROWS = 400
RANDOM = np.random.default_rng(0)
TRAIN = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 90, N_ROWS),
        "city": RANDOM.choice(["Antwerp", "Ghent", "Bruges", "Namur"], N_ROWS),
        "income": RANDOM.normal(3000, 800, N_ROWS),
        "rate": RANDOM.random(N_ROWS).astype("float32"),
        "member": RANDOM.random(N_ROWS) < 0.5,
        "visits": pd.array(RANDOM.choice([None, 1, 7, 30], N_ROWS), dtype="Int64"),
        "code": RANDOM.choice(["7", "8", "9"], N_ROWS),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RANDOM.integers(0, 900, N_ROWS), "D"),
        "note": pd.Series(RANDOM.choice([None, "p", "q"], N_ROWS), dtype=object),
    }
)


def population_of(frame: pd.DataFrame, *quasi_identifiers: str) -> Population:
    schema = Schema.from_frame(frame, quasi_identifiers=quasi_identifiers)
    return Population.from_frame(frame, schema)


POPULATION = population_of(TRAIN, "age", "city")


@pytest.fixture(scope="module")
def detector() -> Detector:
    """Return a detector whose tolerance is calibrated."""
    return Detector(POPULATION)


FLOATS = {"age": "float64", "visits": "float64", "rate": "float64", "code": "int64"}
SPELLINGS = {
    "object": lambda rows: rows.astype(object),
    "category": lambda rows: rows.astype("category"),
    "float": lambda rows: rows.astype(FLOATS),
    "noise": lambda rows: rows.assign(age=rows["age"] * (1 - 1e-7)),
    "bools as numbers": lambda rows: rows.assign(member=rows["member"].astype(int)),
    "label": lambda rows: rows.assign(outcome=1).reset_index(drop=True),
    "2 decimals": lambda rows: rows.round({"income": 2, "rate": 4}),
    "no decimals": lambda rows: rows.round({"income": 0, "rate": 2}),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelling_hides_no_native_row(spelling: str, detector: Detector) -> None:
    """In a batch, and alone: other rows are not needed to see that one is rounded."""
    rows = SPELLINGS[spelling](TRAIN.sample(20, random_state=1))
    assert set(detector.find(rows)) == {"native"}
    assert detector.find(rows.head(1)) == ("native",)


def test_other_private_values_are_not_native(detector: Detector) -> None:
    """With the quasi-identifiers of a training row, they are near-native or native-qi."""
    rows = TRAIN.head(30).assign(income=TRAIN["income"].head(30) + 60)
    detection = detector.examine(rows)
    assert not detection.native.any()
    assert detection.native_qi.all()
    findings = ["near-native" if is_near else "native-qi" for is_near in detection.near]
    assert list(detector.find(rows)) == findings


def test_only_rounding_is_tolerated() -> None:
    """A number with decimals that is as far away as a rounded one is another number."""
    detector = Detector(population_of(TRAIN, "income", "city"))
    income = TRAIN["income"].iloc[[3]]
    rounded = income.round(0)
    for number, is_native in ((rounded, True), (2 * income - rounded + 0.0001, False)):
        assert detector.examine(TRAIN.iloc[[3]].assign(income=number)).native.all() == is_native


def test_coarse_rounding_is_not_tolerated() -> None:
    """A number may be off by one percent of the range at most."""
    frame = pd.DataFrame({"a": ["x"] * 5, "p": [0.11, 0.21, 0.31, 0.41, 0.52]})
    detector = Detector(population_of(frame, "a"))
    assert not detector.examine(pd.DataFrame({"a": ["x"], "p": [0.0]})).native.any()


UNREADABLE: dict[str, list[Any]] = {
    "income": [np.nan],
    "city": ["Atlantis", 3.5, [1], {}],
    "age": ["many", np.inf, 10**400, (1, 2)],
    "since": ["never", [1]],
}


@pytest.mark.parametrize("column", UNREADABLE)
def test_unreadable_cell_equals_no_row(column: str, detector: Detector) -> None:
    """It does not stop the comparison of other rows."""
    cells = UNREADABLE[column]
    rows = TRAIN.head(len(cells) + 1).astype(object)
    rows[column] = pd.Series([*cells, rows[column].iloc[-1]], dtype=object)
    assert detector.examine(rows).native.tolist() == [False] * len(cells) + [True]


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [1.0, 2.0]])
def test_tiny_population_is_compared(values: list[float]) -> None:
    """Even if there are too few rows to calibrate."""
    detector = Detector(population_of(pd.DataFrame({"a": values}), "a"))
    native, other = detector.find(pd.DataFrame({"a": [1.0, 5.0]}))
    assert native == "native" != other


def test_tolerance_equals_hand_calculation() -> None:
    """A neighbour's isolation is measured without the row that is left out."""
    frame = pd.DataFrame({"a": [0.0, 1.0, 3.0, 7.0, 15.0]})
    detector = Detector(population_of(frame, "a"))
    assert detector.used is None
    tolerance = detector.tolerance
    assert detector.used == tolerance.distance
    distance = np.array([1, 1, 2, 4, 8]) / 15
    ratio = np.array([1 / 2, 1 / 3, 2 / 1, 4 / 2, 8 / 4])
    assert tolerance.distance == pytest.approx(np.quantile(distance, 0.05))
    assert tolerance.ratio == pytest.approx(np.quantile(ratio, 0.05))


@pytest.mark.parametrize(("near_native", "finding"), [(0.0, "synthetic"), (1.0, "near-native")])
def test_fixed_tolerance_is_not_calibrated(near_native: float, finding: str) -> None:
    """The policy may state it."""
    rows = TRAIN.head(20).assign(city="Atlantis", income=TRAIN["income"].head(20) + 60)
    assert set(Detector(POPULATION, near_native=near_native).find(rows)) == {finding}


@pytest.mark.parametrize(("near_native", "is_near"), [(0.24, False), (0.25, True)])
def test_tolerance_belongs_to_near(near_native: float, is_near: bool) -> None:
    """The row is a quarter of the range away from the nearest person."""
    population = population_of(pd.DataFrame({"a": [0.0, 4.0, 8.0]}), "a")
    detector = Detector(population, near_native=near_native)
    assert detector.used == near_native
    assert detector.examine(pd.DataFrame({"a": [2.0]})).near.all() == is_near


def test_instance_based_explainer_is_near_native(detector: Detector) -> None:
    """Its rows are never called synthetic."""
    shuffled = {name: TRAIN[name].sample(50, random_state=i).array for i, name in enumerate(TRAIN)}
    rows = pd.DataFrame(shuffled)
    assert "synthetic" in detector.find(rows)
    assert "synthetic" not in detector.find(rows, instance_based=True)


def test_wrong_columns_are_refused(detector: Detector) -> None:
    """One is missing, or there twice."""
    for rows in (TRAIN.drop(columns="income"), TRAIN[[*TRAIN, "age"]]):
        with pytest.raises(InputError, match="table of counterfactuals"):
            detector.find(rows)
