"""Shared private values: nothing that 1 to k - 1 people have is released, recounted in pandas."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cfk_plugin import Attribute, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import PolicyError
from cfk_plugin.protection.catalogue import crowds
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.scales import (
    Step,
    _scale_of,
    extrapolated_ends,
    people_by_code,
)

K = 4
LEVELS = ["none", "some", "much", "all"]
PRIVATE = ["amount", "count", "share", "paid", "level", "job"]


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Draw people, some with several rows, whose private numbers are continuous, tied or missing."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.integers(40, 120))
    n_counts = draw(st.sampled_from([2, 8, 40, 400]))
    decimals = draw(st.sampled_from([0, 1, 6]))
    share_missing = draw(st.sampled_from([0.0, 0.03, 0.4]))
    days = random.integers(0, draw(st.sampled_from([5, 4000])), n_rows)
    table = pd.DataFrame(
        {
            "age": random.integers(20, 30, n_rows),
            "amount": random.lognormal(3, draw(st.sampled_from([0.1, 1.5])), n_rows),
            "count": random.integers(-2, n_counts, n_rows),
            "share": random.normal(0, 1, n_rows).round(decimals),
            "paid": pd.Timestamp("2001-02-03") + pd.to_timedelta(days, unit="D"),
            "level": random.choice(LEVELS, n_rows, p=[0.5, 0.46, 0.04, 0.0]),
            "job": random.choice(list("abcdefgh"), n_rows, p=[0.4, 0.4, *[0.2 / 6] * 6]),
            "person": random.integers(0, draw(st.sampled_from([n_rows, 3 * n_rows])), n_rows),
        }
    )
    if draw(st.booleans()):
        table["amount"] = table["amount"].astype("float32")
    if draw(st.booleans()):
        table["count"] = table["count"].astype("int8" if n_counts < 100 else "Int64")
    is_missing = random.random((n_rows, 2)) < share_missing
    table["share"] = table["share"].mask(is_missing[:, 0])
    table["job"] = table["job"].mask(is_missing[:, 1])
    return table


def likes_ages_and_amounts(rows: pd.DataFrame) -> np.ndarray:
    age = rows["age"].to_numpy(dtype=float)
    amount = rows["amount"].to_numpy(dtype=float)
    return np.where(age % 5 + np.log1p(np.abs(amount)) > 3.5, "yes", "no")


def catalogue_of(table: pd.DataFrame, k: int = K) -> Catalogue:
    return anonymizer_of(table, k).guarantee_.catalogue  # type: ignore[return-value]


def anonymizer_of(table: pd.DataFrame, k: int = K) -> KAnonymizer:
    schema = Schema.from_frame(
        table, quasi_identifiers=["age"], ordinal={"level": LEVELS}, subject="person"
    )
    population = Population.from_frame(table, schema, key=b"always the same")
    policy = PrivacyPolicy(k=k, min_pureness=0.3)
    anonymizer = KAnonymizer(policy=policy)
    return anonymizer.fit(population, model=likes_ages_and_amounts, desired="yes")


def people_with(table: pd.DataFrame, values: pd.Series) -> int:
    """Count the people who have all of some values in one row."""
    has_all = np.ones(len(table), dtype=bool)
    for name, value in values.items():
        column = table[name]
        same = column.isna() if pd.isna(value) else (column == value).fillna(False)
        has_all &= same.to_numpy(dtype=bool)
    return int(table.loc[has_all, "person"].nunique())


def rare_among(table: pd.DataFrame, entries: pd.DataFrame, k: int) -> list[str]:
    """Name the columns of entries with a value that 1 to k - 1 people have, or "all together"."""
    rare = []
    for name in PRIVATE:
        for value in entries[name].drop_duplicates():
            if 0 < people_with(table, pd.Series({name: value})) < k:
                rare.append(name)
    for _, entry in entries.drop_duplicates().iterrows():
        if 0 < people_with(table, entry) < k:
            rare.append("all together")
    return rare


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), k=st.sampled_from([2, 4, 9]))
def test_no_value_of_an_entry_or_range_is_held_by_fewer_than_k_people(
    table: pd.DataFrame, k: int
) -> None:
    try:
        catalogue = catalogue_of(table, k)
    except PolicyError:  # fewer than k people have the outcome
        assume(False)
    assert rare_among(table, catalogue.private, k) == []
    for name, ends in catalogue.ends.items():
        for end in ends:
            assert not 0 < people_with(table, pd.Series({name: end})) < k


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), seed=st.integers(0, 100))
def test_entries_are_the_same_again_and_for_any_order_of_rows(
    table: pd.DataFrame, seed: int
) -> None:
    try:
        catalogue = catalogue_of(table)
    except PolicyError:
        assume(False)
    turned = table.sample(frac=1, random_state=seed, ignore_index=True)
    for other in (catalogue_of(table), catalogue_of(turned)):
        pd.testing.assert_frame_equal(catalogue.private, other.private)
        assert catalogue.ends.keys() == other.ends.keys()
        for name, ends in catalogue.ends.items():
            pd.testing.assert_series_equal(ends, other.ends[name])


def some_people(seed: int = 0, n_rows: int = 150) -> pd.DataFrame:
    """Return people whose amounts are all different and beyond every count in a file."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 30, n_rows),
            "amount": random.permutation(n_rows) * 3.07 + 10_001.7,
            "count": random.poisson(6, n_rows) * 7_919,
            "share": random.normal(0, 1, n_rows),
            "paid": pd.Timestamp("2001-02-03")
            + pd.to_timedelta(random.integers(0, 4000, n_rows), unit="D"),
            "level": random.choice(LEVELS, n_rows, p=[0.5, 0.48, 0.02, 0.0]),
            "job": random.choice(
                ["clerk", "nurse", "diver", "queen"], n_rows, p=[0.5, 0.46, 0.02, 0.02]
            ),
            "person": random.integers(0, 130, n_rows),
        }
    )


def test_medians_as_they_are_would_be_single_peoples_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: the check above finds values of single people where centers are not replaced."""
    table = some_people()
    assert rare_among(table, catalogue_of(table).private, K) == []
    releasable = crowds.releasable_values

    def every_value(population: Population, scales: Any, k: int) -> Any:
        return releasable(population, scales, 1)

    monkeypatch.setattr(crowds, "releasable_values", every_value)
    found = rare_among(table, catalogue_of(table).private, K)
    assert {"amount", "share", "paid"} <= {*found}
    assert "all together" not in found


@pytest.mark.parametrize("seed", [5, 6, 11])
def test_attributes_that_differ_equally_do_not_take_turns_with_the_order_of_rows(seed: int) -> None:
    """Sums of the same numbers in another order differ in their last digits."""
    amount = np.random.default_rng(seed + 50).normal(10_000, 50, 150)
    table = some_people(seed).assign(
        age=24,
        amount=amount,
        count=np.random.default_rng(seed).permutation(amount),
        share=0.5,
        paid=pd.Timestamp("2001-02-03"),
        level="none",
        job="clerk",
        person=np.arange(150),
    )
    private = catalogue_of(table).private
    assert len(private) >= 2 * K
    for turn in range(3):
        turned = table.sample(frac=1, random_state=turn, ignore_index=True)
        pd.testing.assert_frame_equal(private, catalogue_of(turned).private)


# --- sealed files


def numbers_and_texts(path: Path) -> tuple[set[float], set[str]]:
    """Return every number and every text that stands in a sealed file, wherever it stands."""
    numbers = set[float]()
    texts = set[str]()
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            content = file.read(name)
            if name.endswith(".npy"):
                numbers |= {float(n) for n in np.load(io.BytesIO(content)).ravel()}
                continue
            for value in plain_values(json.loads(content)):
                if isinstance(value, str):
                    texts.add(value)
                else:
                    numbers.add(float(value))
    return numbers, texts


def plain_values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from plain_values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from plain_values(inner)
    elif value is not None:
        yield value


def numbers_of_few(table: pd.DataFrame, k: int) -> dict[str, set[float]]:
    """Return the private numbers, dates as seconds, that 1 to k - 1 people have."""
    few = {}
    seconds = (table["paid"] - pd.Timestamp(0)).dt.total_seconds()
    for name, column in table.assign(paid=seconds)[["amount", "count", "share", "paid"]].items():
        n_people = table["person"].groupby(column).nunique()
        few[str(name)] = {float(value) for value in n_people.index[n_people < k]}
    return few


def test_a_sealed_file_has_no_number_and_no_category_of_fewer_than_k_people(
    tmp_path: Path,
) -> None:
    table = some_people()
    few = numbers_of_few(table, K)
    assert all(few.values())
    anonymizer_of(table).seal(tmp_path / "sealed.cfk")
    numbers, texts = numbers_and_texts(tmp_path / "sealed.cfk")
    found = {name for name, values in few.items() if values & numbers}
    n_people = table.groupby("job")["person"].nunique()
    rare_jobs = {*n_people.index[n_people < K]}
    assert rare_jobs
    assert found == set()
    assert not texts & rare_jobs


def test_a_sealed_catalogue_with_round_numbers_of_no_one_answers_the_same(tmp_path: Path) -> None:
    table = some_people(2)
    anonymizer = anonymizer_of(table)
    assert not catalogue_of(table).private["amount"].isin(table["amount"]).any()
    queries = some_people(3).drop(columns="person").assign(amount=1.5)  # mostly without the outcome
    queries = queries[queries["job"].isin(table["job"])]
    anonymizer.seal(tmp_path / "sealed.cfk")
    opened = Population.open(tmp_path / "sealed.cfk", key=b"always the same")
    alone = KAnonymizer().fit(opened, model=likes_ages_and_amounts, desired="yes")
    here = anonymizer.explain(queries)
    assert sum(bool(entry.recount.moved) for entry in here.released) > 20
    assert alone.explain(queries).to_json() == here.to_json()
    assert alone.published().to_json() == anonymizer.published().to_json()
    alone.seal(tmp_path / "again.cfk")
    assert (tmp_path / "again.cfk").read_bytes() == (tmp_path / "sealed.cfk").read_bytes()


# --- round numbers


def test_continuous_numbers_are_points_of_a_grid_that_one_row_does_not_change() -> None:
    table = some_people(4)
    points = {*catalogue_of(table).private["amount"]}
    assert len(points) > 5
    assert all(point % 25 == 0 for point in points)
    for row in range(3):
        changed = table.copy()
        changed.loc[row, ["amount", "share"]] = [10_461.23, 9.0]
        assert all(point % 25 == 0 for point in {*catalogue_of(changed).private["amount"]})


def test_a_point_of_the_grid_that_fewer_than_k_people_have_is_skipped() -> None:
    table = some_people(5)
    used = catalogue_of(table).private["amount"].value_counts().index[0]
    table.loc[table.index[:2], "amount"] = used
    assert 0 < people_with(table, pd.Series({"amount": used})) < K
    points = {*catalogue_of(table).private["amount"]}
    assert points
    assert used not in points


def test_whole_numbers_without_a_gap_are_moved_to_those_of_no_one() -> None:
    """Every whole number of the range is one person's, so that only numbers beyond it are left."""
    table = some_people(6, 60).assign(person=np.arange(60))
    table["count"] = np.random.default_rng(6).permutation(60)
    counts = catalogue_of(table).private["count"]
    assert pd.api.types.is_integer_dtype(counts.dtype)
    assert not counts.isin(table["count"]).any()


def test_declared_bounds_are_not_passed() -> None:
    table = some_people(7)
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["age"],
        ordinal={"level": LEVELS},
        subject="person",
        columns={"amount": Attribute(bounds=(10_001, 10_460))},
    )
    population = Population.from_frame(table, schema, key=b"always the same")
    policy = PrivacyPolicy(k=K, min_pureness=0.3)
    anonymizer = KAnonymizer(policy=policy)
    anonymizer.fit(population, model=likes_ages_and_amounts, desired="yes")
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    assert catalogue.private["amount"].between(10_001, 10_460).all()


def test_an_attribute_without_a_value_to_release_is_refused_by_name() -> None:
    table = some_people().assign(code=[f"code {i}" for i in range(150)])
    with pytest.raises(PolicyError, match="no value of 'code' is shared by k = 4 people") as caught:
        catalogue_of(table)
    assert "code 1" not in str(caught.value)


def test_where_only_the_missing_value_is_shared_all_entries_have_it() -> None:
    grades = ["none", "low", "high", "top"]
    table = pd.DataFrame({"age": np.arange(60) % 10, "grade": [*grades * 2, *[None] * 52]})
    schema = Schema.from_frame(table, quasi_identifiers=["age"], ordinal={"grade": grades})
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(
        Population.from_frame(table, schema), lambda rows: np.ones(len(rows), dtype=bool), True
    )
    assert set(anonymizer.published().to_frame()["grade"]) == {"missing"}


def test_a_range_at_zero_that_few_people_have_has_a_grid() -> None:
    numbers = np.array([-3.5, -2.25, 0.0, 0.0, 0.0, 1.125, 4.0625, 9.0])
    table = pd.DataFrame({"age": 30, "amount": numbers})
    schema = Schema.from_frame(table, quasi_identifiers=["age"])
    population = Population.from_frame(table, schema)
    n_people = people_by_code(population, schema.features.index("amount"))
    scale = _scale_of(population.domains["amount"], numbers, n_people, 4)
    assert scale.step is not None
    assert scale.step.size == 0.05


def test_a_table_without_private_attributes_has_entries_all_the_same() -> None:
    table = some_people()[["age", "level", "person"]]
    schema = Schema.from_frame(
        table, quasi_identifiers=["age", "level"], ordinal={"level": LEVELS}, subject="person"
    )
    policy = PrivacyPolicy(k=K)
    anonymizer = KAnonymizer(policy=policy).fit(
        Population.from_frame(table, schema),
        model=lambda rows: np.where(rows["age"].to_numpy(dtype=float) > 24, "yes", "no"),
        desired="yes",
    )
    assert len(anonymizer.published()) > 2


@pytest.mark.parametrize("n_people", [K, 2 * K - 1, 2 * K])
def test_ranges_of_few_people_are_nobodys_numbers_either(n_people: int) -> None:
    """Where 2k - 1 people have the outcome, the k-th lowest number is the k-th highest, too."""
    table = some_people(n_rows=n_people).assign(age=24, job="clerk", person=np.arange(n_people))
    table["amount"] += 1_000
    table["share"] = 3.25
    catalogue = catalogue_of(table)
    for name, ends in catalogue.ends.items():
        for end in ends:
            assert people_with(table, pd.Series({name: end})) in {0, n_people}
    assert rare_among(table, catalogue.private, K) == []


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(100) * 1e300,
        np.arange(100) * 1e-310,
        2.0**53 - 1 - np.arange(100),
        1e9 + np.arange(100) * 1e-6,
        -(2.0 ** np.arange(100)),
    ],
    ids=["huge", "tiny", "large and whole", "far from zero", "skewed"],
)
def test_extreme_numbers_have_ranges_and_grids(numbers: np.ndarray) -> None:
    table = some_people(n_rows=100).assign(person=np.arange(100), share=numbers)
    if numbers[0] == 2.0**53 - 1:
        table["share"] = numbers.astype(np.int64)
    catalogue = catalogue_of(table)
    assert rare_among(table, catalogue.private, K) == []
    low, high = catalogue.ends["share"]
    assert low < high
    assert np.isfinite(catalogue.domains["share"].width)


@pytest.mark.parametrize(
    ("size", "unit", "expected"),
    [
        (0.013, 1, 0.02),
        (0.2, 1, 0.2),
        (1, 1, 1),
        (2.1, 1, 5),
        (5.1, 1, 10),
        (700, 1, 1000),
        (86_400 * 3, 86_400, 86_400 * 5),
    ],
)
def test_a_step_is_rounded_up_to_1_2_or_5_times_a_power_of_ten(
    size: float, unit: float, expected: float
) -> None:
    step = Step.at_least(size, unit)
    assert step.size == expected
    assert step.finer().size < step.size / 1.9
    assert step.multiples(np.array([-3, 0, 7])).tolist() == pytest.approx(
        [-3 * expected, 0, 7 * expected]
    )


def test_points_are_the_decimal_numbers_that_they_are_written_as() -> None:
    step = Step.at_least(0.05)
    assert step.multiples(np.array([3, 6, 14])).tolist() == [0.15, 0.3, 0.7]


def test_ranges_end_where_an_exponential_tail_would() -> None:
    """On average over samples, the expected largest number is met; the smallest one is not passed."""
    random = np.random.default_rng(0)
    k = 10
    ends = []
    largest = []
    for _ in range(400):
        numbers = np.sort(random.exponential(1, 500))
        ends.append(extrapolated_ends(numbers, k))
        largest.append(numbers[-1])
    high = np.mean([end for _, end in ends])
    assert high == pytest.approx(np.mean(largest), rel=0.05)
    assert min(low for low, _ in ends) >= 0


def test_ranges_depend_on_the_kth_and_2kth_numbers_alone() -> None:
    numbers = np.sort(np.random.default_rng(1).normal(0, 1, 100))
    changed = numbers.copy()
    changed[: K - 1] -= 100
    changed[-K + 1 :] += 100
    changed[K + 1 : 2 * K - 2] = changed[K]
    assert extrapolated_ends(changed, K) == extrapolated_ends(numbers, K)
