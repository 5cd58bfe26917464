"""Where it runs: nothing can be written, the user is nobody in particular, and has no home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from tracking_server import tracking_server

REPOSITORY = Path(__file__).resolve().parents[2]

# All is read-only there, for a user who is not in /etc/passwd and may read all, with an empty
# environment.
BARE = """
mount --make-rprivate / && mount -o remount,ro,bind / || exit 77
for each in /tmp /var/tmp /dev/shm; do mount -o remount,ro,bind "$each" 2>/dev/null; done
exec setpriv --reuid 12345 --regid 12345 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search \
    env -i PATH=/usr/bin:/bin PYTHONPATH="$PYTHONPATH" "$@"
"""
WRITES = """
import os
for place in ("/tmp", os.getcwd(), os.path.expanduser("~")):
    try:
        open(os.path.join(place, "canary"), "w")
    except OSError:
        continue
    raise SystemExit(f"{place} can be written")
"""
PROTECTS = """
import logging, sys
import numpy as np, pandas as pd
from cfk_plugin import Population, PrivacyPolicy, Schema, protect

random = np.random.default_rng(0)
table = pd.DataFrame({"age": random.integers(20, 60, 300), "pay": random.integers(0, 100, 300)})
population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
for guarantee in sys.argv[1:]:
    private = protect(
        lambda queries: table[table["pay"] > 50].iloc[: len(queries)],
        model=lambda rows: (rows["pay"] > 50).to_numpy(),
        population=population,
        policy=PrivacyPolicy(k=10, guarantee=guarantee),
        desired=True,
    )
    found = private.explain(table[table["pay"] <= 50].head(3))
    found.to_json(), found.to_frame(), found.summary()
    print(guarantee, len(found.released))
print(*sorted({"mlflow", "matplotlib", "dice_ml", "pyspark", "sqlalchemy", "torch"} & {*sys.modules}))
"""


def run(code: str, *words: str, source: Path = REPOSITORY, bare: bool = True) -> str:
    """Return what a script prints; in a bare place unless told otherwise."""
    path = os.pathsep.join([str(source), str(source / "adapters")])
    command = [sys.executable, "-W", "ignore", "-c", code, *words]
    if bare:
        if (
            os.name != "posix"
            or os.getuid()
            or not (shutil.which("unshare") and shutil.which("setpriv"))
        ):
            pytest.skip("a read-only file system needs root, unshare and setpriv")
        command = ["unshare", "--mount", "sh", "-c", BARE, "sh", *command]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=source,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this container may not mount")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_protects_where_nothing_can_be_written_by_a_user_without_a_home() -> None:
    said = run(WRITES + PROTECTS, "catalogue", "lookup").splitlines()
    assert said[:2] == ["catalogue 3", "lookup 3"]


@pytest.mark.slow
def test_it_compiles_there_for_itself(tmp_path: Path) -> None:
    for name in ("cfk_plugin", "adapters"):
        shutil.copytree(
            REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    tmp_path.chmod(0o755)
    assert run(WRITES + PROTECTS, "lookup", source=tmp_path).startswith("lookup 3")


def test_a_process_that_only_protects_imports_no_mlflow() -> None:
    assert run(PROTECTS, "catalogue", "lookup", bare=False).splitlines()[2] == ""


def test_workers_of_spark_and_commands_import_no_mlflow() -> None:
    modules = "cfk_plugin.release.spark, cfk_plugin.cli, cfk_plugin.release.recount"
    assert run(f"import sys, {modules}; print('mlflow' in sys.modules)", bare=False) == "False\n"


# What mlflow-skinny does not bring, and that it is not called mlflow.
SKINNY = """
import sys
from importlib.metadata import Distribution, PackageNotFoundError

absent = "aiohttp alembic docker flask flask_cors graphene gunicorn huey matplotlib skops"
sys.modules.update(dict.fromkeys(absent.split()))
named = Distribution.from_name


def without(name):
    if name == "mlflow":
        raise PackageNotFoundError(name)
    return named(name)


Distribution.from_name = without
"""
LOGS = """
import mlflow
from cfk_plugin import KAnonymizer, log_protected_model

print("logged", found.log(experiment="skinny"))
with mlflow.start_run():
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=10)).fit(population, lambda rows: (rows["pay"] > 50).to_numpy(), True)
    print("logged", log_protected_model(anonymizer, pip_requirements=[]).model_uri)
"""


@pytest.mark.slow
def test_what_mlflow_skinny_brings_suffices_to_track_to_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tracking_server(tmp_path) as server:
        server.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        said = run(SKINNY + PROTECTS + LOGS, "catalogue", bare=False).splitlines()
        run_id, uri = (line.removeprefix("logged ") for line in said if line.startswith("logged "))
        mlflow.set_tracking_uri(server.url)
        assert mlflow.get_run(run_id).data.metrics["cfk.asked"] == 3
        assert (
            "mlflow=="
            in (Path(mlflow.artifacts.download_artifacts(uri)) / "requirements.txt").read_text()
        )
