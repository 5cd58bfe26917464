"""Files of a run's rows: what is in them, and that they tell nothing else."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.record import rows_of_explanations, rows_of_recount
from cfk_plugin.tracking.tables import public_kind, read, recount_kind, written
from prototyped import prototypes
from tracked import explanations

ROWS = [{"step": 0, "k": 5, "reason": None}, {"step": 1, "k": None, "reason": "Zoë\u2028"}]


def test_a_file_is_lines_of_json_and_its_header_tells_neither_time_nor_name() -> None:
    content = written(ROWS)
    assert content == written(iter(ROWS))
    assert content[:4] == b"\x1f\x8b\x08\x00"  # no flag: no file name, no comment
    assert content[4:8] == b"\0\0\0\0"  # the time
    lines = gzip.decompress(content).decode("utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == ROWS
    assert lines[-1] == ""


def test_a_file_is_read_by_the_kinds_of_its_columns_and_not_by_its_values() -> None:
    columns = read(written(ROWS), public_kind, "a file")
    assert columns["step"].dtype == np.int64
    np.testing.assert_array_equal(columns["k"], [5.0, np.nan])
    assert columns["reason"].tolist() == [None, "Zoë\u2028"]
    nothing = read(written([{"reason": None, "k": None, "query": 3}]), public_kind, "a file")
    assert (nothing["k"].dtype, nothing["reason"].dtype, list(nothing)) == (
        float,
        object,
        ["reason", "k"],
    )
    assert read(written([]), public_kind, "a file") == {}


def test_every_column_of_a_recount_is_read_back() -> None:
    """The public columns that are not are texts, for people: values, regions and prototypes."""
    for result in (explanations(), prototypes()):
        record = result.by_group("sex", ["f", "m", "f"]).to_record()
        recount = rows_of_recount([record])
        assert set(read(written(recount), recount_kind, "a file")) == set(recount[0])
        rows = rows_of_explanations([record])
        unread = set(rows[0]) - set(read(written(rows), public_kind, "a file"))
        features = {name for name in unread if name.startswith("feature.")}
        assert unread - features <= {"query", "region", "released", "prototype"}


def test_what_is_no_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        written([{"ncp": float("nan")}])


def test_an_error_names_the_file_and_the_column_alone() -> None:
    with pytest.raises(TrackingError) as caught:
        read(written([{"k": "CANARY"}]), public_kind, "run 7, a file")
    assert str(caught.value) == "run 7, a file: column k holds text, expected numbers"
