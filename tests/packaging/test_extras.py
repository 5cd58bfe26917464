"""Every library that is imported is declared, and whoever lacks one is told what to install."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from cfk_plugin import (
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    log_protected_model,
)
from cfk_plugin._files import (
    check_output,
    load_model,
    progress_bar,
    read_table,
    write_table,
)
from cfk_plugin.data.values import as_pandas
from cfk_plugin.demo import run as run_demo
from cfk_plugin.dp.noise import load_opendp
from cfk_plugin.errors import MissingDependencyError, TrackingError
from cfk_plugin.plots import RiskDisplay
from cfk_plugin.tracking.run import check_store

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"docs", "test", "dev"}
OF_NO_EXTRA = {
    "nice",  # NICEx pins old libraries, and is installed with --no-deps.
    "joblib",  # Comes with scikit-learn, whose models are such files.
    "onnxruntime",  # A model's own library, installed by whoever has such a model.
    "xgboost",
}
INSTALLED = packages_distributions()
PACKAGES = ("cfk_plugin", "adapters/cfk_adapters", "adapters/cfk_recourse")
FRAME = pd.DataFrame({"age": np.arange(40) % 20 + 30, "pay": np.arange(40)})


def imports_of(path: Path) -> set[str]:
    """Return the libraries that a module imports, or has imported by their names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            names |= {value.value for value in node.args if isinstance(value, ast.Constant)}
    libraries = {name.split(".")[0] for name in names}
    return libraries - sys.stdlib_module_names - {Path(package).name for package in PACKAGES}


def names_of(requirements: list[str]) -> set[str]:
    """Return the projects that requirements name, spelled as an index spells them."""
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0] for line in requirements}  # type: ignore[index]
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def test_every_imported_library_is_declared() -> None:
    """It is required, or an extra for users brings it."""
    declared = names_of(PROJECT["dependencies"])
    for extra, requirements in EXTRAS.items():
        if extra not in FOR_DEVELOPERS:
            declared |= names_of(requirements)
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            for library in imports_of(path) - OF_NO_EXTRA:
                assert names_of(INSTALLED.get(library, [library])) & declared, f"{path}: {library}"


def hide(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Make every import of a library fail, as where it is not installed."""
    for name in [library, *sys.modules]:
        if name.split(".")[0] == library:
            monkeypatch.setitem(sys.modules, name, None)


def people() -> Population:
    return Population.from_frame(FRAME, Schema.from_frame(FRAME, quasi_identifiers=["age"]))


def read_polars() -> None:
    polars = pytest.importorskip("polars")
    as_pandas(polars.DataFrame({"age": [1]}))


TABLE = Path("table.parquet")
FEATURES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "noise": ("opendp", "dp", load_opendp),
    "reading Parquet": ("pyarrow", "parquet", lambda: read_table(TABLE)),
    "people in Parquet": (
        "pyarrow",
        "parquet",
        lambda: Population.from_parquet(TABLE, people().schema),
    ),
    "an output in Parquet": ("pyarrow", "parquet", lambda: check_output(Path("out.parquet"))),
    "writing Parquet": ("pyarrow", "parquet", lambda: write_table(Path("out.parquet"), FRAME)),
    "a table of polars": ("pyarrow", "parquet", read_polars),
    "a plot": ("matplotlib", "plots", lambda: RiskDisplay([10, 20]).plot()),
}


@pytest.mark.parametrize(("library", "extra", "use"), FEATURES.values(), ids=FEATURES)
def test_missing_extra_is_named(
    library: str,
    extra: str,
    use: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The message is one line, and nothing is written before."""
    monkeypatch.chdir(tmp_path)
    TABLE.write_bytes(b"")
    hide(monkeypatch, library)
    with pytest.raises(MissingDependencyError, match=rf'^.*pip install "cfk-plugin\[{extra}\]"$'):
        use()
    assert [*tmp_path.iterdir()] == [tmp_path / TABLE]


DATABASE = "sqlite:///mlflow.db"
OF_DATABASES: dict[str, Callable[[], object]] = {
    "a run": lambda: (
        KAnonymizer(policy=PrivacyPolicy(k=2))
        .fit(people(), lambda rows: (rows["pay"] > 5).to_numpy(), True)
        .explain(FRAME.tail(2))
        .log(tracking_uri=DATABASE)
    ),
    "the demo": lambda: run_demo(
        k=5, patients=3, folder=Path(), console=Console(), progress=progress_bar
    ),
    "a registered model": lambda: load_model("models:/credit/1"),
    "a model of a run": lambda: load_model("runs:/credit/model"),
    "a protected model": lambda: log_protected_model(None),
}


@pytest.mark.parametrize("use", OF_DATABASES.values(), ids=OF_DATABASES)
def test_database_needs_all_of_mlflow(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A store in a file is a database, which mlflow-skinny cannot use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", DATABASE)
    hide(monkeypatch, "alembic")
    with pytest.raises(TrackingError, match=r'pip install "cfk-plugin\[serve\]"$'):
        use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["https://tracking.example.org", "databricks"])
def test_server_needs_mlflow_skinny_only(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check passes without what only the whole of MLflow brings."""
    hide(monkeypatch, "alembic")
    check_store(address)
