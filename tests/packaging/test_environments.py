"""Environments of their own, made from nothing: the package alone, and with each of its extras."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
LEDGER = """
from cfk_plugin import Ledger

Ledger("ledger.db", key=b"a key of this test, of 32 bytes.", create=True)
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
    "postgres": """
from cfk_plugin import Ledger
from cfk_plugin.errors import LedgerError
try:
    Ledger("postgresql://nobody@127.0.0.1:9/nothing", key=b"a key of this test, of 32 bytes.")
except LedgerError as error:
    assert "pip install" not in str(error), error
else:
    raise AssertionError("nothing listens there")
""",
    "serve": """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
from cfk_plugin import PrivacyReport
from cfk_plugin.serving.access import Metrics
from cfk_plugin.serving.server import make_app

found.log(experiment="an environment of its own")
assert PrivacyReport.of_experiment("an environment of its own").to_json()
assert b"cfk_requests" in Metrics().text()[0]
""",
    "sign": """
from cfk_plugin.release import signing

key = signing.new_key(Path("release.key"))
Path("found.json").write_text(found.to_json())
signing.sign("found.json", "release.key")
assert signing.verify("found.json", key)
""",
    "spark": """
import shutil
from cfk_plugin.data.rows import spark_functions
import pyarrow

functions = spark_functions()
if shutil.which("java"):
    from pyspark.sql import SparkSession

    with SparkSession.builder.master("local[1]").getOrCreate() as spark:
        people = Population.from_spark(spark.createDataFrame(table), schema, key=b"a secret")
        assert "300" in repr(people)
""",
}
# What says in one line which extra it needs, where there is none.
TOLD = {
    "schema table.parquet": "parquet",
    "serve --bundle population.cfk --model model.joblib --desired 1": "serve",
    "demo": "serve",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def environment(wheel: Path, extra: str, folder: Path) -> Path:
    """Return where the programs of a new environment are."""
    uv = shutil.which("uv") or Path(sys.executable).with_name("uv")
    if not Path(uv).exists():
        pytest.skip("needs uv, which is of [dev]")
    made = run(uv, "venv", "--python", sys.executable, folder / "venv", folder=folder)
    assert made.returncode == 0, made.stderr
    python = folder / "venv" / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else wheel
    installed = run(uv, "pip", "install", "--python", python, wanted, folder=folder)
    if "Failed to fetch" in installed.stderr:
        pytest.skip("needs a package index")
    assert installed.returncode == 0, installed.stderr
    return python.parent


@pytest.mark.parametrize("extra", USES)
def test_an_extra_alone_brings_what_its_feature_needs(
    extra: str, wheel: Path, tmp_path: Path
) -> None:
    programs = environment(wheel, extra, tmp_path)
    script = f"from pathlib import Path\n{SMALL}\n{USES[extra]}"
    done = run(programs / "python", "-W", "ignore", "-c", script, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_without_extras_it_protects_and_says_which_extra_something_needs(
    wheel: Path, tmp_path: Path
) -> None:
    programs = environment(wheel, "", tmp_path)
    script = SMALL + LEDGER
    done = run(programs / "python", "-W", "error", "-c", script, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert run(programs / "cfk", "--help", folder=tmp_path).returncode == 0
    (tmp_path / "table.parquet").write_bytes(b"")
    for command, extra in TOLD.items():
        told = run(programs / "cfk", *command.split(), folder=tmp_path)
        assert told.returncode == 2, command
        assert told.stderr.startswith("cfk: ")
        assert told.stderr.endswith(f'pip install "cfk-plugin[{extra}]"\n')
        assert told.stderr.count("\n") == 1


def test_the_package_alone_is_small(wheel: Path, tmp_path: Path) -> None:
    """Most of it is SciPy and the compiler of kernels; a dependency too many would be seen here."""
    site = environment(wheel, "", tmp_path).parent
    files = [path for path in site.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert size < 560_000_000
