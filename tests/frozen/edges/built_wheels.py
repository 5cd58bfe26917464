"""The wheels of the product and of a toy plugin: built, installed, and used in another process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]


@dataclass(frozen=True)
class Wheels:
    product: Path
    plugin: Path
    installed: Path  # the folder that both are installed in

    @classmethod
    def build(cls, folder: Path) -> Wheels:
        """Build both wheels without a network, and install them without what they depend on."""
        wheels = cls(
            product=_built(REPOSITORY, folder / "product"),
            plugin=_built(HERE / "toy_plugin", folder / "plugin"),
            installed=folder / "installed",
        )
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
        target = ["--target", str(wheels.installed)]
        _output_of([*install, *target, str(wheels.product), str(wheels.plugin)])
        return wheels

    def files(self) -> list[str]:
        """Return the names of the files in the product's wheel, without its version."""
        with zipfile.ZipFile(self.product) as archive:
            names = archive.namelist()
        return sorted(re.sub(r"-[\d.]+\.dist-info/", "-VERSION.dist-info/", name) for name in names)

    def entry_points(self) -> list[str]:
        """Return the names under which others find commands, plugins and evaluators."""
        lines: list[str] = []
        group = ""
        with zipfile.ZipFile(self.product) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith("/entry_points.txt"))
            for line in archive.read(name).decode().splitlines():
                if line.startswith("["):
                    group = line
                elif line:
                    lines.append(f"{group} {line}")
        return sorted(lines)

    def calls_of_hooks(self) -> list[str]:
        """Return the calls that the installed toy plugin gets, in their order."""
        script = str(HERE / "use_toy_plugin.py")
        words = ["-W", "ignore", "-P", script, str(self.installed)]
        environment = {**os.environ, "PYTHONPATH": str(self.installed)}
        return _output_of(words, environment).splitlines()


def _built(source: Path, folder: Path) -> Path:
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    _output_of(build)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _output_of(words: list[str], environment: dict[str, str] | None = None) -> str:
    """Run Python with these words, and return what it prints; if it fails, show that."""
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
