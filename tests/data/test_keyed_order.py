"""The keyed number of a record: the same for the same values however they are spelled, for nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cfk_plugin import Population, Schema

TRAIN = pd.DataFrame(
    {
        "age": [30, 41, 52, 63, 41, 30],
        "height": [1.7123456789, 1.8234567891, 1.5345678912, 1.6456789123, 1.8234567891, np.nan],
        "city": ["Ghent", "Namur", None, "Ghent", "Namur", "Ghent"],
        "born": pd.to_datetime(["1990-05-01 03:00:01"] * 3 + ["1970-01-01 00:00:00"] + ["1990-05-01 03:00:01"] * 2),
        "pay": [10.25, 20.5, 30.125, 40.0, 20.5, 10.25],
    }
)
POPULATION = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "height", "city"]))


NUMBERS = POPULATION.keyed_order(*POPULATION.encode(TRAIN)).tolist()


def find(frame: pd.DataFrame) -> list[int]:
    """Return the first training row with the same number; -1 where there is none."""
    asked = POPULATION.keyed_order(*POPULATION.encode(frame)).tolist()
    return [NUMBERS.index(number) if number in NUMBERS else -1 for number in asked]


def test_a_training_row_is_found_at_its_first_copy() -> None:
    assert find(TRAIN) == [0, 1, 2, 3, 1, 5]
    assert find(TRAIN[::-1]) == [5, 1, 3, 2, 1, 0]


def test_the_answer_for_a_record_does_not_depend_on_the_others() -> None:
    stranger = TRAIN.head(1).assign(age=99)
    assert find(pd.concat([stranger, TRAIN, stranger])) == [-1, *find(TRAIN), -1]
    assert [find(TRAIN.iloc[[i]])[0] for i in range(len(TRAIN))] == find(TRAIN)


def test_numbers_that_went_through_single_precision_are_found() -> None:
    rough = TRAIN.astype({"height": np.float32, "pay": np.float32}).astype({"height": float, "pay": float})
    assert (rough["height"] != TRAIN["height"])[:5].all()
    assert find(rough) == [0, 1, 2, 3, 1, 5]
    assert find(TRAIN.astype({"height": np.float32, "age": float})) == [0, 1, 2, 3, 1, 5]


def test_rounded_numbers_are_another_record() -> None:
    assert find(TRAIN.assign(height=TRAIN["height"].round(4))) == [-1, -1, -1, -1, -1, 5]
    assert find(TRAIN.assign(pay=TRAIN["pay"] + 1e-3)) == [-1] * 6


def test_every_feature_counts() -> None:
    changes = {"age": 41, "height": 1.8234567891, "city": "Namur", "born": pd.Timestamp("1970-01-01"), "pay": 40.0}
    for name, value in changes.items():
        assert find(TRAIN.head(1).assign(**{name: value})) == [-1]


def test_a_date_that_is_off_by_a_second_is_another_record() -> None:
    assert find(TRAIN.head(1).assign(born=pd.Timestamp("1990-05-01 03:00:02"))) == [-1]


def test_missing_values_equal_missing_values_alone() -> None:
    assert find(TRAIN.iloc[[5]]) == [5]
    assert find(TRAIN.iloc[[2]]) == [2]
    assert find(TRAIN.iloc[[2]].assign(height=np.nan)) == [-1]
    assert find(TRAIN.iloc[[0]].assign(city=None)) == [-1]
    assert find(TRAIN.iloc[[0]].assign(pay=np.nan)) == [-1]


def test_unknown_and_invalid_values_are_no_training_row() -> None:
    assert find(TRAIN.head(1).assign(city="Atlantis")) == [-1]
    assert find(TRAIN.head(1).assign(age=np.inf)) == [-1]
    assert find(TRAIN.head(1).assign(age="old")) == [-1]
    assert find(TRAIN.head(1).assign(age=-(10**9))) == [-1]


def test_spelling_does_not_matter() -> None:
    assert find(TRAIN.astype({"age": str})) == find(TRAIN)
    assert find(TRAIN.astype(object)) == find(TRAIN)
    assert find(TRAIN[TRAIN.columns[::-1]]) == find(TRAIN)


def test_agrees_with_a_plain_search_on_random_tables() -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        n = int(rng.integers(1, 60))
        train = pd.DataFrame({"a": rng.integers(0, 4, n), "b": rng.choice(list("xyz"), n), "c": rng.integers(0, 3, n)})
        population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["a"]))
        asked = pd.DataFrame(
            {"a": rng.integers(0, 5, 40), "b": rng.choice(list("xyzw"), 40), "c": rng.integers(0, 3, 40)}
        )
        rows = list(train.itertuples(index=False, name=None))
        wanted = [rows.index(r) if r in rows else -1 for r in asked.itertuples(index=False, name=None)]
        numbers = population.keyed_order(*population.encode(train)).tolist()
        found = population.keyed_order(*population.encode(asked)).tolist()
        assert [numbers.index(number) if number in numbers else -1 for number in found] == wanted


def test_follows_from_the_key_and_the_values_not_from_the_table() -> None:
    whole = Population.from_frame(TRAIN, POPULATION.schema, key=b"a secret")
    part = Population.from_frame(TRAIN.iloc[[0, 2, 3, 5]], POPULATION.schema, key=b"a secret")
    other = Population.from_frame(TRAIN, POPULATION.schema, key=b"another one")
    asked = TRAIN.iloc[[5, 3, 0]]
    numbers = whole.keyed_order(*whole.encode(asked)).tolist()
    assert part.keyed_order(*part.encode(asked)).tolist() == numbers
    assert not set(other.keyed_order(*other.encode(asked)).tolist()) & set(numbers)
