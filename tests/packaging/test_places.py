"""Where it runs: nothing can be written, the user is nobody in particular, and has no home."""

from __future__ import annotations

import os
import re
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


def run(code: str, *words: str, bare: bool = False) -> str:
    """Return what a script prints, in a bare place if needed."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    command = [sys.executable, "-W", "ignore", "-c", code, *words]
    if bare:
        is_root = os.name == "posix" and os.getuid() == 0
        if not is_root or not shutil.which("unshare") or not shutil.which("setpriv"):
            pytest.skip("a read-only file system needs root, unshare and setpriv")
        command = ["unshare", "--mount", "sh", "-c", BARE, "sh", *command]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=env
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this container may not mount")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_read_only_place_is_enough() -> None:
    """The user is nobody in particular and has no home; MLflow and other heavy libraries stay out."""
    output = run(WRITES + PROTECTS, "catalogue", "lookup", bare=True).splitlines()
    assert output == ["catalogue 3", "lookup 3", ""]


def test_entry_modules_import_no_mlflow() -> None:
    """A worker of Spark imports the first module, and the command line the second."""
    modules = "cfk_plugin.release.spark, cfk_plugin.cli, cfk_plugin.release.recount"
    assert run(f"import sys, {modules}; print('mlflow' in sys.modules)") == "False\n"


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
def test_mlflow_skinny_tracks_to_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what only the whole of MLflow brings, a run and a protected model are logged."""
    with tracking_server(tmp_path) as server:
        server.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        output = run(SKINNY + PROTECTS + LOGS, "catalogue")
        run_id, uri = re.findall(r"^logged (.+)$", output, re.M)
        mlflow.set_tracking_uri(server.url)
        assert mlflow.get_run(run_id).data.metrics["cfk.asked"] == 3
        folder = Path(mlflow.artifacts.download_artifacts(uri))
        assert "mlflow==" in (folder / "requirements.txt").read_text()
