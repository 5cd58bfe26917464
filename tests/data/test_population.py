"""Populations: cells against groupby, counts against brute force, people against rows, published shares."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, PopulationError


def table(n=500, seed=0):
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


def population_of(frame, **options):
    return Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=["age", "city", "kind"], subject="who", **options)
    )


def random_region(population, rng):
    parts = {}
    for name in population.schema.quasi_identifiers:
        values = [v for v in pd.unique(population.frame[name]) if not pd.isna(v)]
        if population.schema[name].kind == "numeric":
            low, high = sorted(rng.choice(values, 2))
            parts[name] = Interval(low, high, missing=bool(rng.random() < 0.5))
        else:
            chosen = list(rng.choice(values, rng.integers(1, len(values) + 1), replace=False))
            parts[name] = frozenset(chosen + ([None] if rng.random() < 0.5 else []))
    return Region(parts)


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_the_groups_of_pandas(seed):
    frame = table(seed=seed)
    population = population_of(frame)
    groups = frame.groupby(["age", "city", "kind"], dropna=False).ngroup()
    assert len(population.cells) == groups.nunique()
    cells = population.cell_of(np.arange(len(frame)))
    assert pd.DataFrame({"g": groups, "c": cells}).drop_duplicates().shape[0] == groups.nunique()


@pytest.mark.parametrize("seed", range(6))
def test_members_and_count_against_brute_force(seed):
    frame = table(seed=seed)
    population, rng = population_of(frame), np.random.default_rng(seed)
    for _ in range(10):
        region = random_region(population, rng)
        inside = [i for i, row in enumerate(frame.to_dict("records")) if region.contains(row)]
        assert region.members(population).tolist() == inside
        assert population.count(region) == frame["who"].iloc[inside].nunique()
        assert population.people(np.array(inside, dtype=int)) == population.count(region)
        additive = int(population.cell_people[population.cells_inside(region)].sum())
        assert additive <= population.count(region)


def test_people_and_rows():
    frame = table()
    population = population_of(frame)
    assert (population.n_rows, population.n_people) == (len(frame), frame["who"].nunique())


def test_risk_profile_counts_a_person_by_the_smallest_class():
    frame = pd.DataFrame({"q": ["a", "a", "b", "b", "c"], "who": [1, 2, 1, 1, 3], "p": 0})
    schema = Schema.from_frame(frame, quasi_identifiers=["q"], subject="who")
    profile = Population.from_frame(frame, schema).risk_profile(2)
    # b holds person 1 alone, c person 3 alone
    assert (profile.unique, profile.people, profile.classes) == (pytest.approx(2 / 3), 3, 3)


def test_wide_keys_do_not_overflow():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.permutation(3000) for i in range(9)})
    frame = pd.concat([frame, frame.head(100)], ignore_index=True)
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=list(frame)))
    assert len(population.cells) == 3000
    assert (population.cell_people == 2).sum() == 100


def test_conform_takes_the_populations_spelling():
    frame = pd.DataFrame(
        {"zip": pd.Series(["9000", "1000"], dtype=object), "n": np.array([1, 2], "int8"), "b": [True, False]}
    )
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["zip"]))
    given = pd.DataFrame(
        {"b": ["True", "False"], "label": [1, 1], "n": ["2", "1"], "zip": [1000, 9000.0]}, index=[7, 3]
    )
    pd.testing.assert_frame_equal(
        population.conform(given),
        pd.DataFrame(
            {"zip": pd.Series(["1000", "9000"], dtype=object), "n": np.array([2, 1], "int8"), "b": [True, False]}
        ),
    )


def test_fingerprint_is_keyed_and_ignores_the_order_of_rows():
    frame = table()
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    prints = {
        Population.from_frame(rows, schema, key=key).fingerprint
        for rows, key in ((frame, b"1"), (frame.sample(frac=1, random_state=0), b"1"))
    }
    assert len(prints) == 1
    assert Population.from_frame(frame, schema, key=b"2").fingerprint not in prints
    assert Population.from_frame(frame.assign(pay=0), schema, key=b"1").fingerprint in prints


def test_fingerprint_is_of_the_cells_and_of_how_many_people_have_each():
    frame = table().drop(columns="who")
    schema = Schema.from_frame(frame, quasi_identifiers=["age", "city"])
    first, other = frame["age"].dropna().unique()[:2]
    moved = frame.assign(age=frame["age"].where(frame.index != frame.index[frame["age"] == first][0], other))
    weighted = Schema.from_frame(frame, quasi_identifiers=["age", "city"], weights={"age": 2.0})
    prints = [
        Population.from_frame(rows, roles, key=b"1").fingerprint
        for rows, roles in ((frame, schema), (moved, schema), (frame.head(400), schema), (frame, weighted))
    ]
    assert len(set(prints)) == 4


def test_errors_name_columns_and_no_value():
    frame = table()
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    with pytest.raises(PopulationError, match="pay"):
        Population.from_frame(frame.drop(columns="pay"), schema)
    with pytest.raises(PopulationError, match="who"):
        Population.from_frame(frame.assign(who=None), schema)
    with pytest.raises(PopulationError, match="age") as error:
        Population.from_frame(frame.assign(age=np.inf), schema)
    assert "inf" not in str(error.value).replace("infinite", "")
    mixed = pd.DataFrame({"q": pd.Series([True, "True"], dtype=object)})
    with pytest.raises(PopulationError, match="'q'"):
        Population.from_frame(mixed, Schema.from_frame(mixed, quasi_identifiers=["q"]))


def test_it_shows_no_row_and_refuses_pickling():
    population = population_of(table())
    assert repr(population).startswith("Population(")
    with pytest.raises(PopulationError):
        pickle.dumps(population)


@pytest.mark.parametrize(
    ("name", "unique", "below"),
    [("adult", 3.17, 15.39), ("cmc", 4.41, 53.77), ("german", 83.7, 100), ("heart", 4.62, 79.54)],
)
def test_published_shares_of_unique_people(shared_data, name, unique, below):
    meta = json.loads((shared_data / f"{name}.json").read_text())
    frame = pd.read_csv(shared_data / f"{name}.csv.gz")[meta["features"]]
    profile = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=meta["quasi_identifiers"])
    ).risk_profile()
    assert round(100 * profile.unique, 2) == unique
    assert round(100 * profile.below_k, 2) == below


def test_a_key_that_is_text_is_refused_at_once() -> None:
    train = pd.DataFrame({"age": [20, 30]})
    with pytest.raises(InputError, match=r"key must be bytes, got str"):
        Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age"]), key="secret")  # type: ignore[arg-type]
