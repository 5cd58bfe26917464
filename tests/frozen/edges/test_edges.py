"""What users meet at the product's edges is what the stored lists say; see `regenerate.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

import exit_codes
import http_refusals
import json_schemas
import loaded_modules
import run_names
from built_wheels import Wheels
from pinned import assert_as_stored, differences


@pytest.fixture
def files(mlflow_store: str, tmp_path: Path) -> Path:
    """Return a folder with everything that the commands read."""
    folder = tmp_path / "files"
    folder.mkdir()
    exit_codes.make_files(folder)
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    return Wheels.build(tmp_path_factory.mktemp("wheels"))


def test_exit_codes(files: Path, tmp_path: Path) -> None:
    assert_as_stored("exit_codes.txt", exit_codes.measure(exit_codes.CASES, files, tmp_path))


@pytest.mark.slow
def test_exit_codes_of_slow_commands(files: Path, tmp_path: Path) -> None:
    lines = exit_codes.measure(exit_codes.SLOW_CASES, files, tmp_path)
    lines.append(exit_codes.code_of_a_server_that_is_told_to_end(files, tmp_path))
    assert_as_stored("exit_codes_slow.txt", sorted(lines))


def test_every_command_has_a_case() -> None:
    cases = exit_codes.CASES + exit_codes.SLOW_CASES
    assert {case.command for case in cases} - {""} == exit_codes.names_of_commands()


def test_http_refusals(tmp_path: Path) -> None:
    assert_as_stored("http_refusals.txt", http_refusals.measure(tmp_path))


def test_json_schemas() -> None:
    assert_as_stored("json_schemas.txt", json_schemas.measure())


@pytest.mark.parametrize("name", run_names.RUNS)
def test_names_of_a_run(name: str, mlflow_store: str) -> None:
    assert_as_stored(name, run_names.names_of(run_names.RUNS[name]()))


@pytest.mark.slow
@pytest.mark.parametrize("name", run_names.SLOW_RUNS)
def test_names_of_a_slow_run(name: str, mlflow_store: str) -> None:
    assert_as_stored(name, run_names.names_of(run_names.SLOW_RUNS[name]()))


@pytest.mark.slow
def test_names_of_a_logged_model(mlflow_store: str) -> None:
    assert_as_stored("logged_model.txt", run_names.names_of_a_logged_model())


def test_calls_of_hooks(wheels: Wheels) -> None:
    assert_as_stored("calls_of_hooks.txt", wheels.calls_of_hooks())


def test_loaded_modules() -> None:
    lines = loaded_modules.measure(loaded_modules.BARE, loaded_modules.COMMANDS)
    assert_as_stored("loaded_modules.txt", lines)


@pytest.mark.slow
def test_modules_loaded_by_protect() -> None:
    lines = loaded_modules.measure(loaded_modules.PROTECT)
    assert_as_stored("loaded_modules_of_protect.txt", lines)


def test_files_of_the_wheel(wheels: Wheels) -> None:
    assert_as_stored("wheel_files.txt", wheels.files())


def test_entry_points_of_the_wheel(wheels: Wheels) -> None:
    assert_as_stored("wheel_entry_points.txt", wheels.entry_points())


def test_a_difference_is_named() -> None:
    assert differences(["a", "b"], ["a", "b"]) == []
    assert differences(["a", "b"], ["b", "c"]) == ["  appeared:    c", "  disappeared: a"]
    assert differences(["a", "b"], ["b", "a"]) == ["  line 1 was: a", "  line 1 is:  b"]
    assert differences(["a"], ["a", "a"]) == ["  the number of lines was 1 and is 2"]
