"""Populations: classes and counts against pandas, people against rows, fingerprints, and the rows
behind them.
"""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfk_plugin import Attribute, Interval, Population, Region, Schema
from cfk_plugin.errors import CopiedRowsWarning, InputError, PopulationError


def table(n: int = 500, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(20, 30, n)),
            "city": pd.Series(rng.choice(["a", "b", "c"], n)).where(rng.random(n) > 0.1),
            "kind": rng.choice(["k" + str(i) for i in range(80)], n),
            "pay": rng.integers(0, 5, n),
            "who": rng.integers(0, n // 2, n),
        }
    )


QUASI = ["age", "city", "kind"]
FRAME = table()
SCHEMA = Schema.from_frame(FRAME, quasi_identifiers=QUASI, subject="who")


def random_region(population: Population, rng: np.random.Generator) -> Region:
    parts = {}
    for name in QUASI:
        values = [v for v in pd.unique(population.frame[name]) if not pd.isna(v)]
        if name == "age":
            low, high = sorted(rng.choice(values, 2))
            parts[name] = Interval(low, high, missing=bool(rng.random() < 0.5))
        else:
            chosen = list(rng.choice(values, rng.integers(1, len(values) + 1), replace=False))
            parts[name] = frozenset(chosen + ([None] if rng.random() < 0.5 else []))
    return Region(parts)


@pytest.mark.parametrize("seed", range(4))
def test_classes_members_and_people_against_pandas(seed: int) -> None:
    frame, rng = table(seed=seed), np.random.default_rng(seed)
    population = Population.from_frame(frame, SCHEMA)
    assert (population.n_rows, population.n_people) == (len(frame), frame["who"].nunique())
    groups = frame.groupby(QUASI, dropna=False).ngroup()
    pairs = pd.DataFrame({"g": groups, "c": population.class_of_row}).drop_duplicates()
    assert len(population.classes) == groups.nunique() == len(pairs)
    for _ in range(10):
        region = random_region(population, rng)
        inside = [i for i, row in enumerate(frame.to_dict("records")) if region.contains(row)]
        assert population.members(region).tolist() == inside
        assert population.count(region) == frame["who"].iloc[inside].nunique()
        assert population.people(np.array(inside, dtype=int)) == population.count(region)


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=40))
def test_a_person_counts_by_the_smallest_class(rows: list[tuple[int, int]]) -> None:
    frame = pd.DataFrame(rows, columns=["cell", "person"])
    population = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=["cell"], subject="person")
    )
    size = frame["cell"].map(frame.groupby("cell")["person"].nunique())
    smallest = size.groupby(frame["person"], sort=False).min()
    assert population.smallest_classes().tolist() == smallest.tolist()
    profile = population.risk_profile(3)
    assert (profile.unique, profile.below_k) == pytest.approx(
        ((smallest == 1).mean(), (smallest < 3).mean())
    )
    assert (profile.k, profile.people, profile.classes) == (
        3,
        frame["person"].nunique(),
        frame["cell"].nunique(),
    )


def test_wide_keys_do_not_overflow() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.permutation(3000) for i in range(9)})
    frame = pd.concat([frame, frame.head(100)], ignore_index=True)
    population = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=list(frame))
    )
    assert len(population.classes) == 3000
    assert (np.bincount(population.class_of_row) == 2).sum() == 100


def test_conform_takes_the_populations_spelling() -> None:
    frame = pd.DataFrame(
        {
            "zip": pd.Series(["9000", "1000"], dtype=object),
            "n": np.array([1, 2], "int8"),
            "b": [True, False],
        }
    )
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["zip"]))
    given_ = {"b": ["True", "False"], "label": [1, 1], "n": ["2", "1"], "zip": [1000, 9000.0]}
    expected = frame.iloc[::-1].assign(b=[True, False]).reset_index(drop=True)
    pd.testing.assert_frame_equal(population.conform(pd.DataFrame(given_, index=[7, 3])), expected)


def test_a_fingerprint_is_keyed_and_of_the_classes_and_how_many_people_have_each() -> None:
    frame = FRAME.drop(columns="who")
    schema = Schema.from_frame(frame, quasi_identifiers=["age", "city"])

    def prints(*variants: tuple[pd.DataFrame, Schema, bytes]) -> set[str]:
        return {
            Population.from_frame(rows, roles, key=key).fingerprint for rows, roles, key in variants
        }

    same = prints(
        *(
            (rows, schema, b"1")
            for rows in (frame, frame.sample(frac=1, random_state=0), frame.assign(pay=0))
        )
    )
    assert len(same) == 1
    first, other = frame["age"].dropna().unique()[:2]
    moved = frame.assign(
        age=frame["age"].where(frame.index != frame.index[frame["age"] == first][0], other)
    )
    weighted = Schema.from_frame(
        frame, quasi_identifiers=["age", "city"], columns={"age": Attribute(weight=2.0)}
    )
    different = prints(
        (frame, schema, b"2"),
        (moved, schema, b"1"),
        (frame.head(400), schema, b"1"),
        (frame, weighted, b"1"),
    )
    assert len(different | same) == 5


def test_errors_name_columns_and_no_value() -> None:
    mixed = pd.DataFrame({"q": pd.Series([True, "True"], dtype=object)})
    for frame, schema, named in (
        (FRAME.assign(who=None), SCHEMA, "who"),
        (mixed, Schema.from_frame(mixed, quasi_identifiers=["q"]), "'q'"),
    ):
        with pytest.raises(PopulationError, match=named):
            Population.from_frame(frame, schema)
    with pytest.raises(InputError, match=r"key must be bytes, got str"):
        Population.from_frame(FRAME, SCHEMA, key="secret")  # type: ignore[arg-type]


def test_it_shows_no_row_and_refuses_pickling() -> None:
    population = Population.from_frame(FRAME, SCHEMA)
    assert (
        repr(population)
        == f"Population({population.n_people} people, 500 rows, {len(population.classes)} classes)"
    )
    for holder in (population, population.row_codes):
        with pytest.raises(InputError, match="refuses to be pickled"):
            pickle.dumps(holder)
    with pytest.raises(ValueError, match="read-only"):
        population.coded_rows[0, 0] = 1


def people(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "town": rng.choice(["a", "b"], n),
            "income": rng.lognormal(3, 1, n).round(2),
        }
    )


REPEATED = pd.concat([people(40)] * 12, ignore_index=True)
NAMED = REPEATED.assign(name=[f"n{i}" for i in range(len(REPEATED))])


def test_copied_rows_are_a_warning() -> None:
    """Twelve rows of one person would count as twelve people."""
    schema = Schema.from_frame(REPEATED, quasi_identifiers=["age", "town"])
    with pytest.warns(CopiedRowsWarning, match="have exact copies"):
        Population.from_frame(REPEATED.sample(frac=1, random_state=0), schema)


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (people(400), {}),
        (pd.concat([people(400), people(400).head(90)]), {}),
        (people(4000)[["age", "town"]], {}),  # equal by chance
        (NAMED, {"subject": "name"}),
        (NAMED, {"identifiers": ["name"]}),
    ],
    ids=["no copies", "few copies", "coarse columns", "a subject", "names"],
)
def test_other_tables_get_no_warning(table: pd.DataFrame, settings: dict[str, Any]) -> None:
    schema = Schema.from_frame(table, quasi_identifiers=["age", "town"], **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Population.from_frame(table, schema)
