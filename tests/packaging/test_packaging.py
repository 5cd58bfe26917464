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


def name_of(path: Path) -> str:
    """Return a path as the repository's reader knows it."""
    return path.relative_to(REPOSITORY).as_posix()


def build(*options: str, source: Path, into: Path) -> None:
    """Build a distribution with the backend of the test environment, so without the network."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        *options,
        "--outdir",
        str(into),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel but for its record, which lists the others."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")
        }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build("--wheel", source=REPOSITORY, into=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_adapters_folder_is_no_package() -> None:
    # PyPI's `adapters` owns that import name; an `__init__.py` here would shadow it from the
    # repository root.
    assert not (REPOSITORY / "adapters" / "__init__.py").exists()


def test_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    top = {name.split("/")[0] for name in contents(wheel)}
    metadata = {name for name in top if name.endswith(".dist-info")}
    assert top - metadata == set(PACKAGES)
    assert len(metadata) == 1


def test_wheel_holds_every_module(wheel: Path) -> None:
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*.py")
    }
    assert expected <= set(contents(wheel))


def test_wheel_holds_what_modules_read(wheel: Path) -> None:
    read = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for suffix in ("j2", "css", "js", "json", "toml")
        for path in folder.rglob(f"*.{suffix}")
    }
    assert {
        "cfk_plugin/report/templates/report.html.j2",
        "cfk_plugin/report/templates/style.css.j2",
    } <= read
    assert read <= set(contents(wheel))


def test_every_entry_point_can_be_loaded(wheel: Path) -> None:
    (text,) = (data for name, data in contents(wheel).items() if name.endswith("/entry_points.txt"))
    points = ConfigParser()
    points.read_string(text.decode())
    assert points.sections()
    for group in points.sections():
        for name, value in points[group].items():
            assert EntryPoint(name, value, group).load() is not None


@pytest.mark.slow
def test_wheel_from_source_distribution_is_the_same(wheel: Path, tmp_path: Path) -> None:
    # `build` without options makes the source distribution and then the wheel from it.
    build(source=REPOSITORY, into=tmp_path)
    (rebuilt,) = tmp_path.glob("*.whl")
    assert contents(rebuilt) == contents(wheel)


def test_import_is_light_and_warns_of_nothing() -> None:
    code = "import sys, cfk_plugin; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "cfk_plugin" in loaded
    assert loaded.isdisjoint(
        {
            "mlflow",
            "dice_ml",
            "matplotlib",
            "pydantic",
            "sqlalchemy",
            "cfk_adapters",
            "cfk_recourse",
        }
    )


def repository_files() -> list[Path]:
    """Return the files that git tracks, or would after `git add`."""
    # The option lets this work in a checkout that belongs to another user, as on some CI machines.
    git = ["git", "-c", "safe.directory=*"]
    listing = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a checkout")
    return [
        path for name in done.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()
    ]


def test_no_file_mentions_a_machine() -> None:
    found = []
    for path in repository_files():
        if path == Path(__file__).resolve():
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if MACHINE_PATH.search(line) or f"{REPOSITORY}/" in line:
                found.append(f"{name_of(path)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)
