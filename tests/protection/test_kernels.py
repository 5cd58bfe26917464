"""Kernels are kept where they can be, compiled where they cannot, and never read from somebody else's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import event

from cfk_plugin import _compiled as compiled


class Count(event.Listener):  # type: ignore[misc]
    compiled = 0

    def on_start(self, _: object) -> None:
        self.compiled += 1

    def on_end(self, _: object) -> None:
        pass


def total(a: Any, b: Any) -> Any:
    return a + b


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path / "cfk_plugin"


def compiles() -> int:
    """Run a kernel as a process would that has not run it yet; return how often the compiler was called."""
    with event.install_listener("numba:compile", Count()) as count:
        assert compiled.jit(total)(1, 2) == 3
    return int(count.compiled)


def test_what_was_compiled_is_kept(folder: Path) -> None:
    assert [compiles(), compiles()] == [1, 0]
    assert len([*folder.iterdir()]) == 1


@pytest.mark.parametrize("content", [b"", b"no pickle", None], ids=["empty", "garbage", "cut"])
def test_a_damaged_file_is_compiled_anew(folder: Path, content: bytes | None) -> None:
    compiles()
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100] if content is None else content)
    assert [compiles(), compiles()] == [1, 0]


def test_kernels_of_other_sources_are_compiled_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiles()
    monkeypatch.setattr(compiled, "_stamp", lambda: "of a later version")
    assert [compiles(), compiles()] == [1, 0]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a user's temporary files are the user's own")
@pytest.mark.parametrize("made", ["open to others", "a link"])
def test_a_temporary_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"cfk_plugin-{os.getuid()}"
    assert own in compiled._folders()
    own.rmdir()
    if made == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(tmp_path / "elsewhere")
    else:
        own.mkdir()
        own.chmod(0o777)
    assert own not in compiled._folders()


READ_ONLY = """
import errno, os, sys

def refuse(event, args):
    if event in ("os.mkdir", "os.rename") or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        raise OSError(errno.EROFS, "read-only file system")

sys.addaudithook(refuse)

from cfk_plugin._compiled import jit

@jit
def total(a, b):
    return a + b

print(total(1, 2), total(1.5, 2.0))
"""


def test_a_process_that_can_write_nowhere_compiles_for_itself_and_says_so_once() -> None:
    nowhere = {"NUMBA_CACHE_DIR": "/dev/null/kernels", "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache"}
    asked = [sys.executable, "-c", READ_ONLY]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, env={**os.environ, **nowhere})
    assert done.stdout.split() == ["3", "3.5"]
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
