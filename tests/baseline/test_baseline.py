"""Stored measurements can be read, and say what they are about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
FILES = ("branch_coverage.json", "durations.json", "mutants.json", "users.json")


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_when_and_where_it_was_measured(name: str) -> None:
    content = read(name)
    assert content["date"]
    assert content["commit"]
    assert content["machine"].keys() == {"cores", "python", "numpy", "numba"}


def test_taken_branches_are_counted_of_modules_that_exist() -> None:
    content = read("branch_coverage.json")
    assert content["modules"]
    for path, row in content["modules"].items():
        assert (REPOSITORY / path).is_file(), path
        assert 0 <= row["taken"] <= row["branches"], path
        assert row["share"] is None or 0 <= row["share"] <= 1, path
    assert content["total"]["taken"] == sum(row["taken"] for row in content["modules"].values())


def test_killed_mutants_are_counted_of_modules_and_by_tests_that_exist() -> None:
    modules = read("mutants.json")["modules"]
    assert modules
    for path, row in modules.items():
        assert all((REPOSITORY / each).is_file() for each in [path, *row["tests"]]), path
        assert 0 <= row["killed"] <= row["tried"] <= row["mutants"], path
        assert 0 <= row["low"] <= row["share"] <= row["high"] <= 1, path
        assert sum(row["survivors"].values()) == row["tried"] - row["killed"], path


def test_durations_are_positive() -> None:
    durations = read("durations.json")["durations"]
    assert {"make test", ".ci/run"} < durations.keys()
    assert all(min(row["seconds"]) > 0 for row in durations.values())


def test_every_row_of_a_benchmark_has_the_cells_of_its_heading() -> None:
    parts = read("users.json")["parts"]
    assert parts
    for part, measured in parts.items():
        assert measured["tables"], part
        for table in measured["tables"]:
            assert table["rows"], part
            assert all(len(row) == len(table["columns"]) for row in table["rows"]), part
