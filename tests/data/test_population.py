"""Populations: classes and counts against pandas, people against rows, fingerprints, and copies."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Attribute, Interval, Population, Region, Schema
from cfk_plugin.errors import CopiedRowsWarning, InputError, PopulationError
from worlds import World


def population_of(frame: pd.DataFrame, names: list[str], **roles: Any) -> Population:
    """Return a population whose quasi-identifiers have these names."""
    return Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=names, **roles))


def some_region(population: Population, random: np.random.Generator) -> Region:
    """Return any range of births, some towns, and insured people or all."""
    table = population.frame
    low, high = np.sort(random.choice(table["born"].dropna(), 2))
    n_towns = random.integers(1, 4)
    return Region(
        {
            "born": Interval(low, high, missing=bool(random.random() < 0.5)),
            "town": frozenset(random.choice(table["town"].unique(), n_towns, replace=False)),
            "insured": frozenset({True, bool(random.random() < 0.5)}),
        }
    )


def test_members_equal_those_of_pandas(patients: World) -> None:
    """Rows inside a region, and the people whose rows they are."""
    population = patients.population
    table = patients.table
    assert (population.n_rows, population.n_people) == (len(table), table["person"].nunique())
    random = np.random.default_rng(0)
    for _ in range(20):
        region = some_region(population, random)
        inside = [i for i, row in enumerate(table.to_dict("records")) if region.contains(row)]
        assert population.members(region).tolist() == inside
        assert population.count(region) == table["person"].iloc[inside].nunique()
        assert population.people(np.array(inside, dtype=int)) == population.count(region)


def test_classes_equal_those_of_pandas(patients: World) -> None:
    """Rows with equal quasi-identifiers, missing ones included, are one class."""
    names = patients.roles["quasi_identifiers"]
    groups = patients.table.groupby(names, dropna=False).ngroup()
    classes = patients.population.class_of_row
    pairs = pd.DataFrame({"group": groups, "class": classes}).drop_duplicates()
    assert len(patients.population.classes) == groups.nunique() == len(pairs)


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=40))
def test_person_counts_by_smallest_class(rows: list[tuple[int, int]]) -> None:
    """A person with several rows is as easy to recognise as by the rarest of them."""
    frame = pd.DataFrame(rows, columns=["cell", "person"])
    population = population_of(frame, ["cell"], subject="person")
    size = frame["cell"].map(frame.groupby("cell")["person"].nunique())
    smallest = size.groupby(frame["person"], sort=False).min()
    assert population.smallest_classes().tolist() == smallest.tolist()
    profile = population.risk_profile(3)
    assert profile.unique == pytest.approx((smallest == 1).mean())
    assert profile.below_k == pytest.approx((smallest < 3).mean())
    assert profile.classes == frame["cell"].nunique()


def test_wide_keys_do_not_overflow() -> None:
    """Nine columns of 3,000 values have more combinations than a whole number of 64 bits."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": random.permutation(3000) for i in range(9)})
    frame = pd.concat([frame, frame.head(100)], ignore_index=True)
    population = population_of(frame, list(frame))
    assert len(population.classes) == 3000
    assert (np.bincount(population.class_of_row) == 2).sum() == 100


def test_conform_takes_training_spelling() -> None:
    """Columns have the order and the dtypes of the training table."""
    frame = pd.DataFrame(
        {
            "zip": pd.Series(["9000", "1000"], dtype=object),
            "n": np.array([1, 2], "int8"),
            "b": [True, False],
        }
    )
    population = population_of(frame, ["zip"])
    columns = {"b": ["True", "False"], "label": [1, 1], "n": ["2", "1"], "zip": [1000, 9000.0]}
    expected = frame.iloc[::-1].assign(b=[True, False]).reset_index(drop=True)
    pd.testing.assert_frame_equal(population.conform(pd.DataFrame(columns, index=[7, 3])), expected)


def test_fingerprint_is_of_classes(applicants: World) -> None:
    """It depends on the key, the schema, and how many people are in each class."""
    table = applicants.table

    def fingerprint(rows: pd.DataFrame, schema: Schema, key: bytes = b"1") -> str:
        return Population.from_frame(rows, schema, key=key).fingerprint

    schema = applicants.schema
    first = fingerprint(table, schema)
    assert fingerprint(table.sample(frac=1, random_state=0), schema) == first
    assert fingerprint(table.assign(debt=0), schema) == first
    others = [
        fingerprint(table, schema, b"2"),
        fingerprint(table.head(200), schema),
        fingerprint(table.assign(age=table["age"].mask(table.index == 0, 99)), schema),
        fingerprint(table, applicants.declare(columns={"age": Attribute(weight=2)}).schema),
    ]
    assert len({first, *others}) == 5


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"person": None}, "person"), ({"town": pd.Series([True, "True"] * 120)}, "'town'")],
)
def test_error_names_column(patients: World, changes: dict[str, Any], named: str) -> None:
    """Rows need their person, and categories one spelling."""
    frame = patients.table.assign(**changes)
    schema = Schema.from_frame(patients.table, quasi_identifiers=["born", "town"], subject="person")
    with pytest.raises(PopulationError, match=named):
        Population.from_frame(frame, schema)


def test_key_is_bytes(applicants: World) -> None:
    """A text would have to be encoded."""
    with pytest.raises(InputError, match=r"key must be bytes, got str"):
        Population.from_frame(applicants.table, applicants.schema, key="secret")  # type: ignore[arg-type]


def test_population_shows_no_row(applicants: World) -> None:
    """It shows counts, and its arrays cannot be changed."""
    population = applicants.population
    assert "300 people, 300 rows" in repr(population)
    with pytest.raises(ValueError, match="read-only"):
        population.coded_rows[0, 0] = 1


def people(n: int) -> pd.DataFrame:
    """Return people whose incomes hardly ever agree."""
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": random.integers(18, 80, n),
            "town": random.choice(["a", "b"], n),
            "income": random.lognormal(3, 1, n).round(2),
        }
    )


REPEATED = pd.concat([people(40)] * 12, ignore_index=True)
NAMED = REPEATED.assign(name=[f"n{i}" for i in range(len(REPEATED))])


def test_copied_rows_are_a_warning() -> None:
    """Twelve rows of one person would count as twelve people."""
    with pytest.warns(CopiedRowsWarning, match="in subject"):
        population_of(REPEATED.sample(frac=1, random_state=0), ["age", "town"])


@pytest.mark.parametrize(
    ("table", "roles"),
    [
        (people(400), {}),
        (pd.concat([people(400), people(400).head(90)]), {}),
        (people(4000)[["age", "town"]], {}),  # equal by chance
        (NAMED, {"subject": "name"}),
        (NAMED, {"identifiers": ["name"]}),
    ],
    ids=["no copies", "few copies", "coarse columns", "a subject", "names"],
)
def test_other_tables_get_no_warning(table: pd.DataFrame, roles: dict[str, Any]) -> None:
    """Few copies, and equal rows of different people."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        population_of(table, ["age", "town"], **roles)
