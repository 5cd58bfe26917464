"""A few rows are read value by value, many column by column; both must be read alike."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.intake import FEW, Intake, take_in, take_in_records
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema

N = 3 * FEW


def table(seed: int) -> pd.DataFrame:
    """Rows in as many dtypes as there are, some values missing."""
    rng = np.random.default_rng(seed)
    some = rng.random(N) < 0.1
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, N),
            "small": rng.integers(0, 3, N).astype("int8"),
            "height": np.where(some, np.nan, rng.normal(170, 10, N)),
            "single": rng.normal(0, 1, N).astype("float32"),
            "nullable": pd.array(np.where(some, 1, rng.integers(0, 9, N)), dtype="Int64"),
            "town": rng.choice(["Ghent", "Namur"], N),
            "code": pd.Series(rng.choice(["1", "2", "3"], N), dtype=object),
            "grade": pd.Categorical(rng.choice(["a", "b"], N)),
            "number": pd.Categorical(rng.choice([1, 2], N)),
            "flag": rng.random(N) < 0.5,
            "gap": pd.Series(np.where(some, None, "x"), dtype="str"),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, N), unit="D"),
        }
    )


def population(seed: int, *, sealed: bool, tmp_path: Any) -> Population:
    train = table(seed)
    schema = Schema.from_frame(train, quasi_identifiers=["age", "town", "small", "day"], nominal=["code", "number"])
    whole = Population.from_frame(train, schema)
    if not sealed:
        return whole
    whole.seal(tmp_path / "population.cfk")
    return Population.open(tmp_path / "population.cfk")


def spoiled(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same rows with other dtypes, spellings, unknown values and faults."""
    rng = np.random.default_rng(seed)
    out = frame.astype(object)
    # No True: where there are many values, pandas takes it for a 1.
    strange: list[Any] = [None, np.nan, "Atlantis", "24", 24.0, 24.5, 1e300, float("inf"), "1.0", 2, "x"]
    for name in out.columns.drop("day"):  # whether text is dates is decided for a column as a whole
        for at in rng.choice(len(out), 12, replace=False):
            out.loc[at, name] = strange[rng.integers(len(strange))]
    return out


def check_alike(many: Intake, few: list[Intake]) -> None:
    assert np.array_equal(many.codes, np.concatenate([part.codes for part in few]))
    np.testing.assert_array_equal(many.numbers, np.concatenate([part.numbers for part in few]))
    assert many.faults == tuple(fault for part in few for fault in part.faults)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rows_are_read_alike_however_many_there_are(seed: int, sealed: bool, tmp_path: Any) -> None:
    people = population(seed, sealed=sealed, tmp_path=tmp_path)
    for frame in (table(seed), table(seed + 50), spoiled(table(seed), seed)):
        parts = [take_in(frame.iloc[at : at + 5], people.encoder) for at in range(0, N, 5)]
        check_alike(take_in(frame, people.encoder), parts)


@pytest.mark.parametrize("seed", range(4))
def test_good_rows_get_the_tables_dtypes_however_many_there_are(seed: int, tmp_path: Any) -> None:
    people = population(seed, sealed=False, tmp_path=tmp_path)
    known = table(seed)
    for frame in (known, known.astype(object), known[list(known)[::-1]].astype(object)):
        whole = take_in(frame, people.encoder).frame
        pd.testing.assert_frame_equal(whole, people.conform(known.iloc[: N + 1]))
        for at in range(0, N, 7):
            part = take_in(frame.iloc[at : at + 7], people.encoder)
            pd.testing.assert_frame_equal(part.frame, whole.iloc[at : at + 7].reset_index(drop=True))
            assert [pd.Series(v, dtype=object).isna().tolist() for v in part.values] == [
                part.frame[name].isna().tolist() for name in part.frame
            ]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_records_of_json_are_read_as_tables_are(seed: int, sealed: bool, tmp_path: Any) -> None:
    people = population(seed, sealed=sealed, tmp_path=tmp_path)
    rows = table(seed).assign(day=lambda frame: frame["day"].dt.strftime("%Y-%m-%d"))
    for frame in (rows, rows.assign(town="Atlantis"), rows.assign(age=rows["age"] + 0.5, height=None)):
        records = json.loads(frame.to_json(orient="records"))
        for at in range(0, N, 6):
            by_value = take_in_records(records[at : at + 6], people.encoder)
            by_table = take_in(pd.DataFrame(records[at : at + 6]), people.encoder)
            check_alike(by_table, [by_value])
            usable = all(fault is None for fault in by_value.faults)
            if usable:
                pd.testing.assert_frame_equal(by_value.frame, by_table.frame)
                for one, other in zip(by_value.values, by_table.values, strict=True):
                    pd.testing.assert_series_equal(pd.Series(one), pd.Series(other), check_dtype=False)
