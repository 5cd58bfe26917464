"""The page's project is written out, installed and run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "write-an-adapter.md"
FILES = dict(
    re.findall(r"^`([\w.]+)`\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
)


def run(*command: str, path: list[Path], **environment: str) -> str:
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_project_installs_and_keeps_the_contract(tmp_path: Path) -> None:
    pytest.importorskip("pip", reason="installs a project")
    pytest.importorskip("hatchling", reason="builds a project")
    project, installed, elsewhere = (
        tmp_path / "project",
        tmp_path / "installed",
        tmp_path / "elsewhere",
    )
    for folder in (project, elsewhere):
        folder.mkdir()
    for name in ("pyproject.toml", "cfk_flipper.py"):
        (project / name).write_text(FILES[name], encoding="utf-8")
    for name in ("flipper.py", "check_flipper.py"):
        (elsewhere / name).write_text(FILES[name], encoding="utf-8")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    run(*pip, "--disable-pip-version-check", "--target", str(installed), str(project), path=[])
    path = [installed, elsewhere, REPOSITORY, REPOSITORY / "adapters"]
    run(sys.executable, "-W", "error", str(elsewhere / "check_flipper.py"), path=path)
    loaded = "from cfk_plugin.plugins import load_plugins; print(load_plugins().versions())"
    assert "'cfk-flipper': '0.1.0'" in run(sys.executable, "-c", loaded, path=path)
    disabled = run(sys.executable, "-c", loaded, path=path, CFK_DISABLE_PLUGINS="flipper")
    assert "cfk-flipper" not in disabled


def test_plugin_with_hooks_prints_what_the_page_says(tmp_path: Path) -> None:
    script = tmp_path / "counting.py"
    script.write_text(FILES["counting.py"], encoding="utf-8")
    (said,) = re.findall(
        r"^`counting\.py`\n\n```python\n.*?^```\n\n```text\n(.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
        re.M | re.S,
    )
    command = [sys.executable, "-W", "ignore", str(script)]
    assert run(*command, path=[REPOSITORY, REPOSITORY / "adapters"]) == said
