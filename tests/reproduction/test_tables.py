"""Tables come one at a time, and what cannot come is told before the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.tables import load
from openml_copies import HEART, keep, made


def test_each_table_is_read_when_it_is_its_turn(shared_data: Path, tmp_path: Path) -> None:
    for name in ("heart", "cmc"):
        for suffix in (".json", ".csv.gz"):
            (tmp_path / f"{name}{suffix}").symlink_to(shared_data / f"{name}{suffix}")
    tables = load(["heart", "cmc"], tmp_path)
    assert next(tables).name == "heart"
    (tmp_path / "cmc.csv.gz").unlink()
    with pytest.raises(InputError, match="has no table cmc"):
        next(tables)


def test_a_table_that_the_folder_lacks_is_told_at_once(shared_data: Path) -> None:
    with pytest.raises(InputError, match="has no table census"):
        load(["heart", "census"], shared_data)


def test_without_a_folder_tables_come_from_openml(tmp_path: Path) -> None:
    keep(HEART, made(HEART), tmp_path)
    (table,) = load(["heart"], cache=tmp_path)
    assert table.source.startswith("OpenML data set 49")


def test_a_table_that_openml_lacks_is_told_at_once() -> None:
    with pytest.raises(InputError, match="no copy of hospital, informs; give a folder that has the tables: --data"):
        load(["heart", "hospital", "informs"])
