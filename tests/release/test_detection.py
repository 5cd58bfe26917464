"""Native rows are found through dtypes, order, labels, missing values and rounding; the tolerance
is calibrated.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError
from cfk_plugin.release.detection import Detector

QUASI = ["age", "city"]


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "city": rng.choice(["Antwerp", "Ghent", "Bruges", "Namur"], n),
            "income": rng.normal(3000, 800, n),
            "rate": rng.random(n).astype("float32"),
            "member": rng.random(n) < 0.5,
            "visits": pd.array(
                np.where(rng.random(n) < 0.2, None, rng.integers(0, 30, n)), dtype="Int64"
            ),
            "code": rng.choice(["7", "8", "9"], n),
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "note": pd.Series(
                np.where(rng.random(n) < 0.3, None, rng.choice(["p", "q"], n)), dtype=object
            ),
        }
    )


@pytest.fixture(scope="module")
def train():
    return table()


@pytest.fixture(scope="module")
def detector(train):
    return Detector(Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=QUASI)))


FLOATS = {"age": "float64", "visits": "float64", "rate": "float64", "code": "int64"}
SPELLED = {
    "object": lambda rows: rows.astype(object),
    "category": lambda rows: rows.astype("category"),
    "string": lambda rows: rows.astype("string"),
    "float": lambda rows: rows.astype(FLOATS),
    "float codes": lambda rows: rows.astype({"code": "float64"}).astype({"code": "string"}),
    "float32": lambda rows: rows.assign(income=rows["income"].astype("float32").astype(float)),
    "bools as numbers": lambda rows: rows.assign(member=rows["member"].astype(int)),
    "order": lambda rows: rows[rows.columns[::-1]],
    "label": lambda rows: rows.assign(outcome=1).set_index(pd.Index(range(900, 900 + len(rows)))),
    "missing": lambda rows: rows.assign(
        visits=rows["visits"].astype(object).where(rows["visits"].notna(), None)
    ),
    **{
        f"{n} decimals": lambda rows, n=n: rows.round({"income": n, "rate": n + 2})
        for n in range(3)
    },
}


@pytest.mark.parametrize("how", SPELLED)
def test_no_spelling_hides_a_native_row(train, detector, how):
    rows = train.sample(40, random_state=1)
    assert set(detector.find(SPELLED[how](rows))) == {"native"}


def test_one_row_at_a_time_is_enough(train, detector):
    for i in range(20):
        assert detector.find(SPELLED["1 decimals"](train.iloc[[i]])) == ("native",)


def test_other_rows_are_not_native(train, detector):
    rows = train.head(30).assign(income=train["income"].head(30) + 60)
    examined = detector.examine(rows)
    assert not examined.native.any()
    assert examined.native_qi.all()
    assert list(detector.find(rows)) == [
        "near-native" if near else "native-qi" for near in examined.near
    ]


def test_rounding_is_forgiven_only_where_the_batch_is_rounded(train):
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["income", "city"])
    )
    row = train.iloc[[3]].copy()
    shift = 0.4 if row["income"].iloc[0] % 1 < 0.5 else -0.4
    row["income"] = row["income"] + shift + 0.0001
    assert not Detector(population).examine(row).native.any()
    row["income"] = train["income"].iloc[[3]].round(0)
    assert Detector(population).examine(row).native.all()


def test_rounding_is_capped_at_one_percent_of_the_range():
    frame = pd.DataFrame({"a": ["x"] * 5, "p": [0.11, 0.21, 0.31, 0.41, 0.52]})
    detector = Detector(
        Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a"]))
    )
    found = detector.examine(pd.DataFrame({"a": ["x"], "p": [0.0]}))
    assert not found.native.any()


def test_missing_where_the_population_has_none_is_not_native(train, detector):
    row = train.iloc[[0]].astype(object)
    row["income"] = np.nan
    assert detector.find(row) == ("native-qi",)
    row["city"] = None
    assert detector.find(row) in {("near-native",), ("synthetic",)}


def test_unknown_category_and_odd_values_are_compared_and_not_refused(train, detector):
    row = train.iloc[[0, 1]].astype(object)
    row["city"] = ["Atlantis", 3.5]
    row["age"] = ["many", np.inf]
    assert len(detector.find(row)) == 2


def test_provenance(train, detector):
    rng = np.random.default_rng(5)
    far = pd.DataFrame({name: rng.permutation(train[name].astype(object))[:50] for name in train})
    assert "synthetic" in detector.find(far)
    assert "synthetic" not in detector.find(far, instance_based=True)


def test_wrong_tables(train, detector):
    assert detector.find(train.head(0)) == ()
    with pytest.raises(InputError, match="income"):
        detector.find(train.drop(columns="income"))
    with pytest.raises(InputError, match="two columns"):
        detector.find(pd.concat([train, train[["age"]]], axis=1))
    with pytest.raises(InputError, match="near_native"):
        Detector(detector._population, near_native=2)


def test_given_tolerance_needs_no_calibration(train, detector):
    strict = Detector(detector._population, near_native=0.0)
    loose = Detector(detector._population, near_native=1.0)
    rows = train.head(20).assign(city="Atlantis", income=train["income"].head(20) + 60)
    assert strict.tolerance.n == 0
    assert set(strict.find(rows)) == {"synthetic"}
    assert set(loose.find(rows)) == {"near-native"}


def test_duplicates_do_not_calibrate_to_zero():
    rows = table(300).drop(columns=["visits", "note"])
    doubled = pd.concat([rows, rows.head(200)], ignore_index=True)
    detector = Detector(
        Population.from_frame(doubled, Schema.from_frame(doubled, quasi_identifiers=QUASI))
    )
    assert detector.tolerance.distance > 0
    assert detector.tolerance.ratio > 0


def test_calibration_by_hand():
    frame = pd.DataFrame({"a": [0.0, 1.0, 3.0, 7.0, 15.0]})
    detector = Detector(
        Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a"]))
    )
    distance = np.array([1, 1, 2, 4, 8]) / 15
    # the neighbour's own distance to its nearest, without the row that is left out
    ratio = np.array([1 / 2, 1 / 3, 2 / 1, 4 / 2, 8 / 4])
    assert detector.tolerance.distance == pytest.approx(np.quantile(distance, 0.05))
    assert detector.tolerance.ratio == pytest.approx(np.quantile(ratio, 0.05))


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [1.0, 2.0]])
def test_tiny_populations(values):
    frame = pd.DataFrame({"a": values})
    detector = Detector(
        Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a"]))
    )
    found = detector.find(pd.DataFrame({"a": [1.0, 5.0]}))
    assert found[0] == "native"
    assert found[1] != "native"


def test_nothing_shows_a_value_and_the_tolerance_follows_from_the_seed(train, detector):
    shown = repr(detector) + repr(detector.tolerance) + repr(detector.examine(train.head(3)))
    for name in ("city", "income"):
        assert not any(str(v) in shown for v in train[name].head(3))
    one, other = (Detector(detector._population, seed=1).tolerance for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", ["age", "city", "since"])
@pytest.mark.parametrize("cell", [[1], {}, 10**400, (1, 2)])
def test_a_cell_that_cannot_be_read_equals_none(train, detector, name, cell):
    rows = train.head(2).astype(object)
    rows[name] = pd.Series([cell, rows[name].iloc[1]], dtype=object)
    assert detector.examine(rows).native.tolist() == [False, True]


def test_a_whole_number_is_found_through_noise():
    frame = pd.DataFrame({"a": [-1, 0, 1, 40], "b": ["x"] * 4})
    detector = Detector(
        Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a"]))
    )
    noisy = frame.assign(a=frame["a"] * (1 - 1e-7))
    assert set(detector.find(noisy)) == {"native"}


@pytest.fixture(scope="module")
def split(shared_data):
    def read(name):
        meta = json.loads((shared_data / f"{name}.json").read_text())
        rows = pd.read_csv(shared_data / f"{name}.csv.gz")[meta["features"]]
        order = np.random.default_rng(0).permutation(len(rows))
        cut = int(0.6 * len(rows))
        train, test = (
            rows.iloc[part].reset_index(drop=True) for part in (order[:cut], order[cut:])
        )
        schema = Schema.from_frame(train, quasi_identifiers=meta["quasi_identifiers"])
        return Population.from_frame(train, schema), train, test

    return read


@pytest.mark.parametrize(
    ("name", "distance", "ratio"), [("german", 0.07, 0.6), ("adult", 0.0011, 0.16)]
)
def test_real_tables(split, name, distance, ratio):
    population, train, test = split(name)
    detector = Detector(population)
    tolerance = detector.tolerance
    assert tolerance.distance == pytest.approx(distance, rel=0.3)
    assert tolerance.ratio == pytest.approx(ratio, rel=0.3)
    assert detector.examine(train.sample(100, random_state=1)).native.all()
    honest = detector.examine(test.head(200))
    assert (honest.near & ~honest.native).mean() <= 0.3
    mixed = pd.DataFrame(
        {c: train[c].sample(100, random_state=i).to_numpy() for i, c in enumerate(train)}
    )
    assert detector.examine(mixed).near.mean() <= 0.2
    assert [f == "native" for f in detector.find(mixed)] == detector.examine(mixed).native.tolist()
