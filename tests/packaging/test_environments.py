"""The package alone, and with each of its extras: an environment that holds nothing else.

It is made of links to what is installed here, so that it needs no package index and little time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]

SMALL = """
import numpy as np, pandas as pd
from cfk_plugin import Population, PrivacyPolicy, Schema, protect

random = np.random.default_rng(0)
table = pd.DataFrame({"age": random.integers(20, 60, 300), "pay": random.integers(0, 100, 300)})
schema = Schema.from_frame(table, quasi_identifiers=["age"])
population = Population.from_frame(table, schema)
private = protect(
    lambda queries: table[table["pay"] > 50].iloc[: len(queries)],
    model=lambda rows: (rows["pay"] > 50).to_numpy(),
    population=population,
    policy=PrivacyPolicy(k=10),
    desired=True,
)
found = private.explain(table[table["pay"] <= 50].head(3))
assert len(found.released) == 3
"""
# What needs an extra, and uses the library that it brings.
USES = {
    "dice": """
from cfk_plugin.plugins import generator

labels = (table["pay"] > 50).to_numpy().astype(int)
from sklearn.tree import DecisionTreeClassifier
tree = DecisionTreeClassifier().fit(table, labels)
explainer = generator("dice-random")(table, labels, tree, 1)
assert len(explainer.explain(table[labels == 0].head(2))) == 2
""",
    "dp": """
from cfk_plugin.dp.noise import load_opendp

dp = load_opendp()
noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=1.0)
assert isinstance(noise(5), int)
""",
    "parquet": """
from cfk_plugin._files import read_table, write_table
from cfk_plugin.cli import app
from typer.testing import CliRunner

write_table(Path("table.parquet"), table)
assert read_table(Path("table.parquet")).equals(table)
made = CliRunner().invoke(app, ["schema", "table.parquet"])
assert made.exit_code == 0, made.output
""",
    "plots": """
import matplotlib
matplotlib.use("agg")
from cfk_plugin.plots import RiskDisplay

RiskDisplay.from_explanations(found).plot().figure_.savefig("risk.png")
""",
    "serve": """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
from cfk_plugin import PrivacyReport

found.log(experiment="an environment of its own")
assert PrivacyReport.of_experiment("an environment of its own").to_json()
""",
}
# What says in one line which extra it needs, where there is none.
TOLD = {
    "schema table.parquet": "parquet",
    "demo": "serve",
}


NOT_INSTALLED = {"nvidia-nccl-cu12", "nvidia-nccl-cu13"}
"""Libraries of CUDA: xgboost asks for them, and nothing here uses them."""


class Environment:
    """A virtual environment with the package, what it requires, and one extra at a time."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)]
        subprocess.run(venv, check=True, capture_output=True)
        self.python = folder / "bin" / "python"
        version = sysconfig.get_python_version()
        self.site = folder / "lib" / f"python{version}" / "site-packages"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.site)
        (self.metadata,) = self.site.glob("cfk_plugin-*.dist-info")
        self.base = self._needed("")
        for found in self.base.values():
            self._link(found)

    @contextmanager
    def having(self, extra: str) -> Iterator[None]:
        """Add what an extra brings, inside the block."""
        made = []
        for name, found in self._needed(extra).items():
            if name not in self.base:
                made += self._link(found)
        try:
            yield
        finally:
            for path in made:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)  # with what Python compiled there
                else:
                    path.unlink(missing_ok=True)

    def run(self, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    def _needed(self, extra: str) -> dict[str, Distribution]:
        """Return the distributions that the package needs with an extra, by name."""
        found: dict[str, Distribution] = {}
        seen: set[tuple[str, str]] = set()
        open_ = [(Distribution.at(self.metadata), one) for one in {"", extra}]
        while open_:
            parent, its_extra = open_.pop()
            for requirement in map(Requirement, parent.requires or ()):
                if requirement.marker and not requirement.marker.evaluate({"extra": its_extra}):
                    continue
                name = canonicalize_name(requirement.name)
                if name in NOT_INSTALLED:
                    continue
                child = installed(name)
                found[name] = child
                for one in ("", *requirement.extras):
                    if (name, one) not in seen:
                        seen.add((name, one))
                        open_.append((child, one))
        return found

    def _link(self, found: Distribution) -> list[Path]:
        """Link every file of an installed distribution; return the links and the folders made."""
        made = []
        for file in found.files or ():
            link = self.site / file
            if ".." in file.parts or link.exists() or not found.locate_file(file).exists():
                continue
            made += [each for each in link.parents if not each.exists()]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(found.locate_file(file))
            made.append(link)
        return made


def installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        pytest.fail(f"{name} is required, and is not installed here")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return Environment(folder / "venv", wheel)


@pytest.mark.parametrize("extra", USES)
def test_extra_brings_what_it_needs(extra: str, environment: Environment, tmp_path: Path) -> None:
    """The feature works with the package, its requirements and this extra only."""
    script = f"from pathlib import Path\n{SMALL}\n{USES[extra]}"
    with environment.having(extra):
        done = environment.run("-W", "ignore", "-c", script, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_package_protects_without_extras(environment: Environment, tmp_path: Path) -> None:
    """A command that needs an extra names it in one line."""
    done = environment.run("-W", "error", "-c", SMALL, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "table.parquet").write_bytes(b"")
    for command, extra in TOLD.items():
        told = environment.run("-m", "cfk_plugin.cli", *command.split(), folder=tmp_path)
        assert told.returncode == 2, command
        assert told.stderr.startswith("cfk: ")
        assert told.stderr.endswith(f'pip install "cfk-plugin[{extra}]"\n')
        assert told.stderr.count("\n") == 1


def test_package_alone_is_small(environment: Environment) -> None:
    """Most of it is SciPy and pandas; a dependency too many would be seen here."""
    files = [path for path in environment.site.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert size < 360_000_000
