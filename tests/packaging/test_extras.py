"""What an extra installs: every library that is imported is declared, and whoever lacks one is told in
one line what to install.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from cfk_plugin import (
    Explanations,
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
from cfk_plugin.tracking.run import check_store, client_of

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
FRAME = pd.DataFrame({"age": np.arange(40) % 20 + 30, "pay": np.arange(40)})


def modules() -> Iterator[Path]:
    for folder in ("cfk_plugin", "adapters/cfk_adapters", "adapters/cfk_recourse"):
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the libraries that a module imports, or has imported by their names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    libraries = {name.split(".")[0] for name in found}
    return libraries - sys.stdlib_module_names - {"cfk_plugin", "cfk_adapters", "cfk_recourse"}


def names_of(requirements: list[str]) -> set[str]:
    """Return the projects that requirements name, spelled as an index spells them."""
    found = {re.match(r"[A-Za-z0-9._-]+", line)[0] for line in requirements}  # type: ignore[index]
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}


def distributions_of(library: str) -> set[str]:
    return names_of(list(INSTALLED.get(library, [library])))


def extras_of(library: str) -> set[str]:
    """Return the extras for users that declare a library."""
    return {
        extra
        for extra, requirements in EXTRAS.items()
        if extra not in FOR_DEVELOPERS and distributions_of(library) & names_of(requirements)
    }


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    """Return by library which modules import it."""
    found: dict[str, set[str]] = {}
    for path in modules():
        for library in imported(path):
            found.setdefault(library, set()).add(path.relative_to(REPOSITORY).as_posix())
    return found


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """Return by library which extra `load_extra` or `check_extra` tells people to install."""
    found = {"dice_ml": "dice"}  # generators say what they need in a way of their own
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "load_extra",
                "check_extra",
            ):
                module, extra = (ast.literal_eval(each) for each in node.args[:2])
                found[module.split(".")[0]] = extra
    return found


def test_every_library_that_is_imported_is_required_or_of_an_extra_that_is_told(
    used: dict[str, set[str]], told: dict[str, str]
) -> None:
    required = names_of(PROJECT["dependencies"])
    for library, where in used.items():
        if library in OF_NO_EXTRA or distributions_of(library) & required:
            continue
        assert extras_of(library), f"{library} is declared nowhere, and is imported in {where}"
        is_told = library == "pyspark" or told.get(library) in extras_of(library)
        assert is_told, (
            f"nobody is told what brings {library}"
        )  # a Spark table needs pyspark itself


def test_every_extra_is_told_of(told: dict[str, str]) -> None:
    assert set(told.values()) == set(EXTRAS) - FOR_DEVELOPERS


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


FEATURES: dict[str, tuple[str, str, Callable[[], object]]] = {
    "noise": ("opendp", "dp", load_opendp),
    "a table in Parquet": ("pyarrow", "parquet", lambda: read_table(Path("table.parquet"))),
    "people in Parquet": (
        "pyarrow",
        "parquet",
        lambda: Population.from_parquet("table.parquet", people().schema),
    ),
    "an output in Parquet": ("pyarrow", "parquet", lambda: check_output(Path("out.parquet"))),
    "writing Parquet": ("pyarrow", "parquet", lambda: write_table(Path("out.parquet"), FRAME)),
    "a table of polars": ("pyarrow", "parquet", read_polars),
    "a plot": ("matplotlib", "plots", lambda: RiskDisplay([10, 20]).plot()),
}


def explained() -> Explanations:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2))
    anonymizer.fit(people(), model=lambda rows: (rows["pay"] > 5).to_numpy(), desired=True)
    return anonymizer.explain(FRAME.tail(2))


DATABASE = "sqlite:///mlflow.db"
STORES: dict[str, Callable[[], object]] = {
    "a store": lambda: check_store(DATABASE),
    "a client": lambda: client_of(DATABASE),
    "a run": lambda: explained().log(tracking_uri=DATABASE),
    "the demo": lambda: run_demo(
        k=5, patients=3, folder=Path(), console=Console(), progress=progress_bar
    ),
    "a registered model": lambda: load_model("models:/credit/1"),
    "a model of a run": lambda: load_model("runs:/credit/model"),
    "a protected model": lambda: log_protected_model(None),
}


@pytest.mark.parametrize("use", STORES.values(), ids=STORES)
def test_a_store_in_a_database_needs_all_of_mlflow(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlflow, "get_tracking_uri", lambda: DATABASE)
    monkeypatch.setattr(mlflow, "get_registry_uri", lambda: DATABASE)
    hide(monkeypatch, "alembic")
    with pytest.raises(TrackingError, match=r'pip install "cfk-plugin\[serve\]"$'):
        use()
    assert not list(tmp_path.iterdir())


def test_a_tracking_server_needs_no_more_than_mlflow_skinny(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "alembic")
    check_store("https://tracking.example.org")
    check_store("databricks")


@pytest.mark.parametrize(("library", "extra", "use"), FEATURES.values(), ids=FEATURES)
def test_whoever_lacks_an_extra_is_told_in_one_line_what_to_install(
    library: str,
    extra: str,
    use: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.parquet").write_bytes(b"")
    hide(monkeypatch, library)
    with pytest.raises(MissingDependencyError) as raised:
        use()
    assert str(raised.value).endswith(f'pip install "cfk-plugin[{extra}]"')
    assert "\n" not in str(raised.value)
    assert {path.name for path in tmp_path.iterdir()} == {"table.parquet"}
