"""Counterfactuals that are training rows, or near to one, are detected in any spelling."""

from __future__ import annotations

import json
from pathlib import Path
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


def population_of(frame: pd.DataFrame, quasi_identifiers: list[str]) -> Population:
    return Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=quasi_identifiers)
    )


def detector_of(frame: pd.DataFrame, *quasi_identifiers: str) -> Detector:
    return Detector(population_of(frame, list(quasi_identifiers)))


POPULATION = population_of(TRAIN, ["age", "city"])


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(POPULATION)


FLOATS = {"age": "float64", "visits": "float64", "rate": "float64", "code": "int64"}
SPELLINGS = {
    "object": lambda rows: rows.astype(object),
    "category": lambda rows: rows.astype("category"),
    "string": lambda rows: rows.astype("string"),
    "float": lambda rows: rows.astype(FLOATS),
    "noise": lambda rows: rows.assign(age=rows["age"] * (1 - 1e-7)),
    "bools as numbers": lambda rows: rows.assign(member=rows["member"].astype(int)),
    "label": lambda rows: rows.assign(outcome=1).reset_index(drop=True),
    "2 decimals": lambda rows: rows.round({"income": 2, "rate": 4}),
    "1 decimal": lambda rows: rows.round({"income": 1, "rate": 3}),
    "no decimals": lambda rows: rows.round({"income": 0, "rate": 2}),
}


# --- native rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spelling_hides_no_native_row(spelling: str, detector: Detector) -> None:
    rows = TRAIN.sample(40, random_state=1)
    assert set(detector.find(SPELLINGS[spelling](rows))) == {"native"}


def test_native_row_is_detected_alone(detector: Detector) -> None:
    """Other rows of a batch are not needed to see that it is rounded."""
    for i in range(20):
        assert detector.find(TRAIN.iloc[[i]].round({"income": 1})) == ("native",)


def test_other_private_values_are_not_native(detector: Detector) -> None:
    rows = TRAIN.head(30).assign(income=TRAIN["income"].head(30) + 60)
    detection = detector.examine(rows)
    assert not detection.native.any()
    assert detection.native_qi.all()
    findings = ["near-native" if is_near else "native-qi" for is_near in detection.near]
    assert list(detector.find(rows)) == findings


def test_only_rounding_is_tolerated() -> None:
    """A number with decimals that is as far away as a rounded one is another number."""
    detector = detector_of(TRAIN, "income", "city")
    income = TRAIN["income"].iloc[[3]]
    rounded = income.round(0)
    for number, is_native in ((rounded, True), (2 * income - rounded + 0.0001, False)):
        assert detector.examine(TRAIN.iloc[[3]].assign(income=number)).native.all() == is_native


def test_coarse_rounding_is_not_tolerated() -> None:
    """A number may be off by one percent of the range at most."""
    frame = pd.DataFrame({"a": ["x"] * 5, "p": [0.11, 0.21, 0.31, 0.41, 0.52]})
    row = pd.DataFrame({"a": ["x"], "p": [0.0]})
    assert not detector_of(frame, "a").examine(row).native.any()


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
    detector = detector_of(pd.DataFrame({"a": values}), "a")
    native, other = detector.find(pd.DataFrame({"a": [1.0, 5.0]}))
    assert native == "native" != other


# --- near-native rows -----------------------------------------------------------------------------


def test_tolerance_equals_hand_calculation() -> None:
    """A neighbour's isolation is measured without the row that is left out."""
    tolerance = detector_of(pd.DataFrame({"a": [0.0, 1.0, 3.0, 7.0, 15.0]}), "a").tolerance
    distance = np.array([1, 1, 2, 4, 8]) / 15
    ratio = np.array([1 / 2, 1 / 3, 2 / 1, 4 / 2, 8 / 4])
    assert tolerance.distance == pytest.approx(np.quantile(distance, 0.05))
    assert tolerance.ratio == pytest.approx(np.quantile(ratio, 0.05))


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.CopiedRowsWarning")
def test_duplicates_do_not_calibrate_to_zero() -> None:
    doubled = pd.concat([TRAIN, TRAIN.head(200)], ignore_index=True)
    tolerance = detector_of(doubled.drop(columns=["visits", "note"]), "age", "city").tolerance
    assert tolerance.distance > 0
    assert tolerance.ratio > 0


@pytest.mark.parametrize(("near_native", "finding"), [(0.0, "synthetic"), (1.0, "near-native")])
def test_fixed_tolerance_is_not_calibrated(near_native: float, finding: str) -> None:
    rows = TRAIN.head(20).assign(city="Atlantis", income=TRAIN["income"].head(20) + 60)
    detector = Detector(POPULATION, near_native=near_native)
    assert set(detector.find(rows)) == {finding}
    assert detector.tolerance.n == 0


def test_instance_based_explainer_is_near_native(detector: Detector) -> None:
    shuffled = {name: TRAIN[name].sample(50, random_state=i).array for i, name in enumerate(TRAIN)}
    rows = pd.DataFrame(shuffled)
    assert "synthetic" in detector.find(rows)
    assert "synthetic" not in detector.find(rows, instance_based=True)


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows", [TRAIN.drop(columns="income"), pd.concat([TRAIN, TRAIN[["age"]]], axis=1)]
)
def test_wrong_columns_are_refused(rows: pd.DataFrame, detector: Detector) -> None:
    with pytest.raises(InputError, match="table of counterfactuals"):
        detector.find(rows)


def test_detector_shows_no_value(detector: Detector) -> None:
    text = f"{detector!r} {detector.tolerance!r} {detector.examine(TRAIN.head(3))!r}"
    assert not [value for value in TRAIN.head(3)[["city", "income"]].stack() if str(value) in text]


@pytest.mark.parametrize(
    ("name", "distance", "ratio"), [("german", 0.07, 0.6), ("adult", 0.0011, 0.16)]
)
def test_public_table_is_calibrated(
    name: str, distance: float, ratio: float, shared_data: Path
) -> None:
    """Training rows are native, and few new people are near-native."""
    meta = json.loads((shared_data / f"{name}.json").read_text())
    rows = pd.read_csv(shared_data / f"{name}.csv.gz")[meta["features"]]
    train = rows.sample(frac=0.6, random_state=0)
    newcomers = rows.drop(train.index)
    detector = detector_of(train, *meta["quasi_identifiers"])
    assert detector.tolerance.distance == pytest.approx(distance, rel=0.3)
    assert detector.tolerance.ratio == pytest.approx(ratio, rel=0.3)
    assert detector.examine(train.sample(100, random_state=1)).native.all()
    detection = detector.examine(newcomers.head(200))
    assert (detection.near & ~detection.native).mean() <= 0.3
