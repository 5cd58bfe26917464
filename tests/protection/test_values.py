"""Shared private values, and the centres of crowds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Schema
from cfk_plugin.data.codes import MISSING, Codes, Floats, people_with
from cfk_plugin.data.rounding import DAY
from cfk_plugin.errors import PolicyError
from cfk_plugin.protection.values import ColumnPeople, SharedValues, crowd_centres

K = 5


def patients(n: int = 400) -> pd.DataFrame:
    """Return patients with missing values, and with numbers that few of them have."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": random.integers(20, 90, n),
            "visits": random.poisson(3, n),
            "weight": np.round(random.normal(75, 15, n), 1),
            "dose": random.exponential(0.02, n),
            "admitted": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(random.integers(0, 700, n), "D"),
            "ward": random.choice(
                np.array(["A", "B", "C", None], dtype=object), n, p=[0.5, 0.3, 0.1, 0.1]
            ),
            "stage": random.choice(["I", "II", "IV"], n),
        }
    )
    frame.loc[random.random(n) < 0.1, "weight"] = np.nan
    frame.loc[0, "ward"] = "D"
    return frame


class World:
    """A table whose private values are shared; every second person has the outcome."""

    def __init__(self, frame: pd.DataFrame, **settings: Any) -> None:
        schema = Schema.from_frame(frame, quasi_identifiers=["age"], **settings)
        self.codes = Codes.read(frame, schema)
        self.private = self.codes.encode(frame)[:, self.codes.private]
        self.person = np.arange(len(frame))
        self.eligible = self.private[::2]

    def shared(self, k: int = K) -> list[SharedValues]:
        return [
            SharedValues.of(
                self.codes.columns[j],
                ColumnPeople.of(self.private[:, i], self.person),
                self.eligible[:, i],
                k,
            )
            for i, j in enumerate(self.codes.private.tolist())
        ]

    def of(self, name: str, k: int = K) -> SharedValues:
        return next(shared for shared in self.shared(k) if shared.column.name == name)

    def people_of(self) -> dict[bytes, int]:
        combinations, counts = people_with(self.private, self.person)
        keys = [row.tobytes() for row in combinations]
        return dict(zip(keys, counts.tolist(), strict=True))

    def centres(self, k: int = K) -> Floats:
        return crowd_centres(self.eligible, self.shared(k), self.people_of(), k)


@pytest.fixture
def world() -> World:
    return World(patients(), ordinal={"stage": ["I", "II", "III", "IV"]})


def numbers(values: Any, dtype: Any = None, **settings: Any) -> World:
    """Return people with one private number each."""
    amounts = pd.Series(values, dtype=dtype)
    ages = np.arange(len(amounts)) % 50 + 20
    return World(pd.DataFrame({"age": ages, "amount": amounts}), **settings)


@pytest.mark.parametrize("k", [2, 5, 20])
def test_values_are_shared(world: World, k: int) -> None:
    """Each value is that of at least k people or of no one, in the table's own type."""
    for i, shared in enumerate(world.shared(k)):
        column = shared.column
        contained = column.encode(pd.Series(column.decode(shared.values)))
        np.testing.assert_array_equal(contained, shared.values)
        n_people = (world.private[:, i] == shared.values[:, None]).sum(axis=1)
        assert not np.any((n_people > 0) & (n_people < k))
        assert np.all(np.diff(shared.values) > 0)


def test_categories_belong_to_k_people(world: World) -> None:
    """A missing category counts as a category, the level of no one is shared, a rare one is not."""
    ward = world.of("ward")
    assert [ward.column.value(code) for code in ward.values] == ["A", "B", "C", None]
    assert world.of("stage").values.tolist() == [0, 1, 2, 3]


def test_ends_differ_from_extremes(world: World) -> None:
    """The lowest and the highest number of a column are not those of single people."""
    for name in ("weight", "dose", "admitted"):
        shared = world.of(name)
        values = shared.column.values
        assert shared.values.min() not in (values[0], values[-1])
        assert shared.values.max() not in (values[0], values[-1])
        assert shared.span == pytest.approx(values[-1] - values[0], rel=0.6)


def test_outlier_leaves_values_alone() -> None:
    """One person far away changes neither the values nor the span."""
    amounts = np.random.default_rng(0).normal(100, 20, 300).round(2)
    plain = numbers(amounts).of("amount")
    amounts[np.argmax(amounts)] = 1e7
    outlying = numbers(amounts).of("amount")
    np.testing.assert_array_equal(outlying.values, plain.values)
    assert outlying.span == plain.span


SECONDS = np.random.default_rng(0).integers(0, 10**8, 200)
BYTES = np.random.default_rng(0).integers(0, 256, 300)
PERCENT = np.random.default_rng(0).uniform(3, 97, 200)


@pytest.mark.parametrize(
    ("values", "dtype", "bounds", "low", "high", "step"),
    [
        (pd.to_datetime(SECONDS, unit="s"), None, None, 0, 2 * 10**8, DAY),  # have times of day
        (BYTES, "uint8", None, 0, 255, 1),
        (PERCENT, None, (3, 97), 3, 97, None),
        (-PERCENT, None, None, -150, 0, None),
        (np.arange(16) / 3, None, None, -3, 8, None),  # of fewer than 2 k people with the outcome
    ],
    ids=["dates", "bytes", "bounds", "negative", "few"],
)
def test_shared_numbers_fit_column(
    values: Any, dtype: Any, bounds: Any, low: float, high: float, step: float | None
) -> None:
    """They are whole days or numbers, and within bounds; the others do not pass zero."""
    shared = numbers(values, dtype, columns={"amount": Attribute(bounds=bounds)}).of("amount")
    assert len(shared) > 5
    assert low <= shared.values.min() <= shared.values.max() <= high
    assert step is None or not np.any(shared.values % step)


def test_taken_points_get_finer_ones() -> None:
    """If single people have all points of a coarse grid, points between them are shared."""
    amounts = np.arange(0, 1000, 10.0)
    shared = numbers(amounts, float, columns={"amount": Attribute(bounds=(0, 1000))}).of("amount")
    assert shared.values[0] == 5
    assert not np.isin(shared.values[:-1], amounts).any()
    assert np.abs(shared.nearest(amounts) - amounts).max() <= 25


def test_nearest_agrees_with_brute_force(world: World) -> None:
    """A number becomes the nearest shared one; a rare category has none, like a missing value."""
    for i, shared in enumerate(world.shared()):
        codes = world.private[:, i]
        nearest = shared.nearest(codes)
        if shared.column.is_line:
            present = shared.values[shared.values != MISSING]
            gap = np.abs(present - codes[:, None]).min(axis=1)
            is_present = codes != MISSING
            np.testing.assert_array_equal(np.abs(nearest - codes)[is_present], gap[is_present])
        is_shared = shared.is_shared(codes)
        np.testing.assert_array_equal(nearest[is_shared], codes[is_shared])
    assert np.isnan(world.of("visits").nearest(np.array([MISSING]))).all()
    assert world.of("weight").nearest(np.array([MISSING])).tolist() == [MISSING]


@pytest.mark.parametrize("k", [2, 5, 20])
def test_centres_are_shared(world: World, k: int) -> None:
    """All values of a centre are shared, and the whole centre is that of k people or of no one."""
    centres = world.centres(k)
    assert len(centres) > 10
    assert len(np.unique(centres, axis=0)) == len(centres)
    for j, shared in enumerate(world.shared(k)):
        assert shared.is_shared(centres[:, j]).all()
    people_of = world.people_of()
    for centre in centres:
        assert not 0 < people_of.get(centre.tobytes(), 0) < k


def test_centres_ignore_row_order(world: World) -> None:
    """Centres do not depend on the order of people."""
    first = world.centres()
    order = np.random.default_rng(1).permutation(len(world.eligible))
    world.eligible = world.eligible[order]
    np.testing.assert_array_equal(world.centres(), first)


def test_colluders_learn_no_median() -> None:
    """In a crowd of k - 1 colluders and one person, the median would be that person's number."""
    frame = pd.DataFrame(
        {
            "age": 30,
            "job": ["clerk"] * 100 + ["nurse"] * 100 + ["organist"] * K,
            "pay": [*np.linspace(10, 90, 200).round(1), 71.3, 10.0, 10.0, 90.0, 90.0],
        }
    )
    world = World(frame)
    world.eligible = world.private
    assert not np.any(world.centres()[:, 0] == 2)


def test_unshared_columns_raise_error() -> None:
    """If each person has a category of their own, the error names the column and no value."""
    frame = pd.DataFrame({"age": 30, "job": [f"job {i}" for i in range(20)], "pay": 10})
    with pytest.raises(PolicyError, match="no value of 'job' is shared by k = 5") as error:
        World(frame).centres()
    assert "job 1" not in str(error.value)


def test_too_few_people_have_no_centre() -> None:
    """Fewer than k people with the outcome are no crowd."""
    world = numbers([7.0] * 20)
    world.eligible = world.private[: K - 1]
    assert world.centres().shape == (0, 1)
