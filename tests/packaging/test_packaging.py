"""What gets shipped: the wheel's contents, and what an import costs."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {
    "cfk_plugin": REPOSITORY / "cfk_plugin",
    "cfk_adapters": REPOSITORY / "adapters" / "cfk_adapters",
    "cfk_recourse": REPOSITORY / "adapters" / "cfk_recourse",
}


# Absolute paths of somebody's machine; the first look-behind spares URLs and paths inside the
# repository.
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:work|root|home|Users)/\w|/tmp/venv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a wheel that is built from the working tree, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    done = subprocess.run([*command, str(REPOSITORY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_adapters_folder_is_no_package() -> None:
    """Another project on PyPI owns the import name `adapters`, which a package would shadow."""
    assert not (REPOSITORY / "adapters" / "__init__.py").exists()


def test_wheel_has_the_packages_only(wheel: dict[str, bytes]) -> None:
    """Every module is there, and every file that a module reads."""
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*.*")
        if path.suffix != ".pyc"
    }
    assert {name for name in wheel if ".dist-info/" not in name} == expected
    assert "cfk_plugin/report/templates/report.html.j2" in expected


def test_every_entry_point_loads(wheel: dict[str, bytes]) -> None:
    """Plugins, generators, the command and MLflow's evaluator are where the wheel says."""
    (text,) = (content for name, content in wheel.items() if name.endswith("/entry_points.txt"))
    points = ConfigParser()
    points.read_string(text.decode())
    assert points.sections()
    for group in points.sections():
        for name, value in points[group].items():
            assert EntryPoint(name, value, group).load() is not None


HEAVY = {"mlflow", "dice_ml", "matplotlib", "pydantic", "sqlalchemy", "cfk_adapters"}


def test_import_loads_no_heavy_library() -> None:
    """The package warns of nothing while it is imported."""
    code = "import sys, cfk_plugin; print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(done.stdout.split())


def test_no_file_mentions_a_machine() -> None:
    """No file that git tracks, or would after `git add`, has a path of someone's machine."""
    # The option lets this work in a checkout that belongs to another user, as on some CI machines.
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        done = subprocess.run(git, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a checkout")
    lines = []
    for name in done.stdout.split("\0"):
        path = REPOSITORY / name
        if not path.is_file() or path == Path(__file__).resolve():
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if MACHINE_PATH.search(line) or f"{REPOSITORY}/" in line:
                lines.append(f"{name}: {line.strip()[:120]}")
    assert not lines, "\n".join(lines)
