"""The rows behind the cells: what is in memory answers, what is not there refuses, and what travels shows nothing."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Population, Schema
from cfk_plugin.data.domain import CodeIndex
from cfk_plugin.data.rows import RecordReader, RowStore, one_row_each, signed, unsigned
from cfk_plugin.errors import MissingDependencyError, PopulationError

TRAIN = pd.DataFrame({"age": [30, 41, 52, 30], "pay": [9, 8, 7, 6], "who": ["a", "b", "a", "b"]})
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age"], subject="who")


def test_rows_in_memory_are_numbered() -> None:
    population = Population.from_frame(TRAIN, SCHEMA, key=b"a secret")
    numbers = population.keyed_order(*population.encode(TRAIN))
    assert population.keyed_numbers(np.array([2, 0])).tolist() == numbers[[2, 0]].tolist()


def test_codes_of_all_rows_are_those_of_the_table() -> None:
    population = Population.from_frame(TRAIN, SCHEMA)
    assert population.codes.tolist() == population.encode(TRAIN)[0].tolist()
    with pytest.raises(ValueError, match="read-only"):
        population.codes[0, 0] = 1


def test_no_rows_refuse() -> None:
    rows = RowStore(np.array([0, 0, 2]))
    for refused in (
        lambda: rows.table,
        lambda: rows.numbers(np.array([0])),
        lambda: rows.map(lambda table, _: table, "pay long"),
    ):
        with pytest.raises(PopulationError, match="has no rows"):
            refused()


def test_what_numbers_records_travels_to_workers_alone_and_does_not_show_its_key() -> None:
    population = Population.from_frame(TRAIN, SCHEMA, key=b"a secret")
    reader = RecordReader(population.encoder, b"a secret")
    assert "a secret" not in repr(reader) + repr(population.encoder)
    assert "30" not in repr(population.encoder)
    with pytest.raises(PopulationError, match="refuses to be pickled"):
        cloudpickle.dumps(population.encoder)
    there = cloudpickle.loads(cloudpickle.dumps(reader))
    assert there.numbers(TRAIN).tolist() == population.keyed_order(*population.encode(TRAIN)).tolist()


def test_people_are_counted_at_the_first_of_their_cells() -> None:
    cells, people = np.array([2, 0, 1, 1, 2]), np.array([0, 1, 1, 0, 2])
    assert sorted(one_row_each(cells, people).tolist()) == [1, 3, 4]
    assert one_row_each(cells, None).tolist() == [0, 1, 2, 3, 4]


def test_rows_of_codes_are_found_where_they_are() -> None:
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(-1, 50, (3_000, 3)).astype(np.int32), axis=0)
    wanted = rng.integers(-1, 50, (2_000, 3)).astype(np.int32)
    place = {tuple(row): at for at, row in enumerate(codes.tolist())}
    assert CodeIndex(codes).find(wanted).tolist() == [place.get(tuple(r), -1) for r in wanted.tolist()]


def test_keyed_numbers_keep_their_order_where_numbers_have_a_sign() -> None:
    numbers = np.sort(np.random.default_rng(0).integers(0, 2**64, 1_000, dtype=np.uint64))
    assert (np.diff(signed(numbers)) >= 0).all()
    assert unsigned(pd.Series(signed(numbers))).tolist() == numbers.tolist()


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingDependencyError, match=r"cfk-plugin\[spark\]"):
        Population.from_spark(TRAIN, SCHEMA, key=b"a secret")
