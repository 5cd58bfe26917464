"""Store how many changed versions of a module its own tests tell from the module, in `mutants.json`.

    .venv/bin/uv pip install --python .venv/bin/python --target build/mutmut mutmut==3.8.1
    python tests/baseline/measure_mutants.py --tools build/mutmut [part of a module's path ...]

The mutants are made in a temporary copy of the commit that is checked out. Without parts of paths
all modules are measured; what is stored of the others stays.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from facts import REPOSITORY, environment, facts, store, stored

TESTS = {
    "cfk_plugin/records/rule.py": [
        "tests/records/test_rule.py",
        "tests/records/test_regions.py",
    ],
    "cfk_plugin/release/verification.py": [
        "tests/release/test_verification.py",
        "tests/release/test_what_may_change.py",
    ],
    "cfk_plugin/release/actionability.py": [
        "tests/release/test_what_may_change.py",
        "tests/protection/test_few_changes.py",
    ],
    "cfk_plugin/protection/catalogue/entries.py": ["tests/protection/test_entries.py"],
    "cfk_plugin/protection/catalogue/required_combinations.py": [
        "tests/protection/test_entries.py",
        "tests/protection/test_large_regions.py",
    ],
    "cfk_plugin/report/disclosure.py": [
        "tests/report/test_disclosure.py",
        "tests/report/test_figures.py",
    ],
}
"""The modules that are measured, and the tests that may kill their mutants."""

FILE = "mutants.json"
MUTMUT = "import sys; sys.path.append({tools!r}); from mutmut.__main__ import cli; cli()"
"""Runs mutmut from a folder of its own, which is looked at last: all else is the project's."""

SETTINGS = """
[mutmut]
source_paths=cfk_plugin
only_mutate={module}
also_copy=adapters
process_isolation=forkserver
timeout_multiplier=3
timeout_constant=10
pytest_add_cli_args=
    -p
    no:xdist
    -p
    no:cacheprovider
    --hypothesis-seed=0
pytest_add_cli_args_test_selection=
{tests}
"""
"""A mutant's tests run in a process of its own that has run no test before, so that nothing which
tests keep was made by the unchanged module. Its CPU seconds are limited to 6 times those of the
unchanged module plus 60.
"""

SURVIVED = {0, 5, 33}
"""Exit codes: its tests pass, there is none, or none reaches the function."""
FAILED = {1, 2, 3}
"""A test fails, cannot be collected, or breaks pytest."""
TIMED_OUT = {36, 24, -24, 152, 255, -9}
CRASHED = {-11, -6}
Z = 1.959964
"""The normal quantile of a 95 % interval."""


def main() -> None:
    """Measure the modules that are asked for, and store each as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for module, tests in TESTS.items():
        if asked.parts and not any(part in module for part in asked.parts):
            continue
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / "copy"
            copy_commit(copy)
            mutants = Mutants(copy, module, tests, asked.tools.resolve())
            measured = mutants.measure(asked.sample, asked.seed)
        content = stored(FILE)
        modules = content.get("modules", {})
        modules[module] = measured
        in_order = {name: modules[name] for name in TESTS if name in modules}
        store(FILE, facts() | {"modules": in_order})


def copy_commit(folder: Path) -> None:
    """Write the files of the commit that is checked out to a folder."""
    archive = folder.with_suffix(".tar")
    command = ["git", "archive", "--output", str(archive), "HEAD"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")


class Mutants:
    """The changed versions of one module, in a copy of the repository."""

    def __init__(self, copy: Path, module: str, tests: list[str], tools: Path) -> None:
        self._copy = copy
        self._module = module
        self._tests = tests
        self._tools = tools
        lines = "\n".join(f"    {path}" for path in tests)
        settings = SETTINGS.format(module=module, tests=lines)
        (copy / "setup.cfg").write_text(settings, encoding="utf-8")

    def measure(self, sample: int, seed: int) -> dict[str, Any]:
        """Try a random sample, and return what came of it."""
        # mutmut writes its list of mutants before it finds that none has this name, and stops.
        self._run("no mutant has this name")
        names = list(self._codes())
        chosen = random.Random(seed).sample(names, min(sample, len(names)))
        self._run(*chosen)
        codes = self._codes()
        killed_by = Counter(how_it_ended(name, codes[name]) for name in chosen)
        survivors = Counter(function_of(name) for name in chosen if codes[name] in SURVIVED)
        killed = len(chosen) - killed_by["survived"]
        low, high = wilson(killed, len(chosen))
        return facts() | {
            "tool": "mutmut 3.8.1",
            "tests": self._tests,
            "seed": seed,
            "mutants": len(names),
            "tried": len(chosen),
            "killed": killed,
            "timed_out": killed_by["timed out"],
            "share": round(killed / len(chosen), 4),
            "low": low,
            "high": high,
            "survivors": dict(sorted(survivors.items())),
        }

    def _run(self, *names: str) -> None:
        # Where the tests run, the copied product comes first, then its adapters.
        paths = [str(self._copy / "mutants" / folder) for folder in ("", "adapters")]
        mutmut = MUTMUT.format(tools=str(self._tools))
        command = [sys.executable, "-c", mutmut, "run", "--max-children", "1", *names]
        path = os.pathsep.join(paths)
        # It ends with an error if a mutant's name is unknown, as the first time.
        subprocess.run(command, cwd=self._copy, env=environment(PYTHONPATH=path), check=False)

    def _codes(self) -> dict[str, int | None]:
        """Return the exit code of each mutant's tests; None before they ran."""
        path = self._copy / "mutants" / f"{self._module}.meta"
        codes: dict[str, int | None] = json.loads(path.read_text(encoding="utf-8"))[
            "exit_code_by_key"
        ]
        return codes


def how_it_ended(name: str, code: int | None) -> str:
    """Return how the tests of a mutant ended, in words."""
    if code in SURVIVED:
        return "survived"
    if code in FAILED:
        return "failed"
    if code in TIMED_OUT:
        return "timed out"
    if code in CRASHED:
        return "crashed"
    raise SystemExit(f"{name} was not tried: exit code {code}")


def function_of(name: str) -> str:
    """Return the function that a mutant changes, with its class."""
    changed = name.rpartition(".")[2].partition("__mutmut_")[0]
    if "ǁ" in changed:
        _, owner, method = changed.split("ǁ")
        return f"{owner}.{method}"
    return changed.removeprefix("x_")


def wilson(killed: int, tried: int) -> tuple[float, float]:
    """Return the ends of the 95 % Wilson interval of a share."""
    share = killed / tried
    middle = share + Z**2 / (2 * tried)
    half = Z * math.sqrt(share * (1 - share) / tried + (Z / (2 * tried)) ** 2)
    scale = 1 + Z**2 / tried
    return round((middle - half) / scale, 4), round((middle + half) / scale, 4)


if __name__ == "__main__":
    main()
