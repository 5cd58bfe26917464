"""The page's project is written out, installed and run as it stands."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from cfk_plugin.plugins import load_plugins

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "write-an-adapter.md"
FILES = dict(
    re.findall(r"^`([\w.]+)`\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
)


def write(folder: Path, *names: str) -> Path:
    """Write some of the page's files into a new folder."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(FILES[name], encoding="utf-8")
    return folder


def install(project: Path, target: Path) -> None:
    """Install a project into a folder, as it stands and without a network."""
    options = "--quiet --no-deps --no-build-isolation --no-index --disable-pip-version-check"
    command = [sys.executable, "-m", "pip", "install", *options.split()]
    command += ["--target", str(target), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_project_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found once it is installed, and can be switched off."""
    pytest.importorskip("pip", reason="installs a project")
    pytest.importorskip("hatchling", reason="builds a project")
    project = write(tmp_path / "project", "pyproject.toml", "cfk_flipper.py")
    library = write(tmp_path / "library", "flipper.py", "check_flipper.py")
    installed = tmp_path / "installed"
    install(project, installed)
    for folder in (installed, library):
        monkeypatch.syspath_prepend(folder)
    runpy.run_path(str(library / "check_flipper.py"), run_name="__main__")
    assert load_plugins().versions()["cfk-flipper"] == "0.1.0"
    monkeypatch.setenv("CFK_DISABLE_PLUGINS", "flipper")
    assert "cfk-flipper" not in load_plugins().versions()
