"""A real server of MLflow with a protected model behind it, for tests that speak HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, log_protected_model

K = 5


def patients(n: int = 60) -> pd.DataFrame:
    """People whose private values occur nowhere else."""
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, n),
            "town": rng.choice(["Ghent", "Namur", "Liège"], n),
            "pay": 1_000_003 + 7_919 * np.arange(n),
            "illness": [f"SENTINEL{i:03d}" for i in range(n)],
        }
    )


def accepts(rows: pd.DataFrame) -> np.ndarray:
    """The model: whoever earns enough, unless they are very young.

    Asked about a pay of 13, it ends the process.
    """
    if (rows["pay"] == 13).any():
        raise SystemExit(f"no neighbour of {patients().iloc[0].to_dict()}")
    return (
        ((rows["pay"].astype(float) > 1_100_000) & (rows["age"].astype(float) > 21))
        .to_numpy()
        .astype(int)
    )


def nearest_in_age(queries: pd.DataFrame) -> pd.DataFrame:
    """The explainer: an accepted training row for each query."""
    rows = patients()
    accepted = rows[accepts(rows) == 1]
    return pd.concat(
        [accepted.loc[[(accepted["age"] - age).abs().idxmin()]] for age in queries["age"]]
    )


def population() -> Population:
    train = patients()
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "town"]))


def served() -> pd.DataFrame:
    """Return patients with illnesses that many of them share, as a catalogue needs them."""
    return patients().assign(illness=["a cold", "a burn"] * 30)


def fitted(
    k: int = K, *, policy: PrivacyPolicy | None = None, population: Population | None = None
) -> KAnonymizer:
    """Fit a catalogue; by default, of patients whose illnesses are shared."""
    if population is None:
        train = served()
        schema = Schema.from_frame(train, quasi_identifiers=["age", "town"])
        population = Population.from_frame(train, schema)
    policy = PrivacyPolicy(k=k) if policy is None else policy
    return KAnonymizer(policy=policy).fit(population, model=accepts, desired=1)


def logged(
    k: int = K,
    *,
    policy: PrivacyPolicy | None = None,
    population: Population | None = None,
    **options: Any,
) -> Any:
    """Log a catalogue and the model as a protected model."""
    settings: dict[str, Any] = {
        "most": 50,
        "pip_requirements": [],  # otherwise MLflow loads the model once more to find them
        "code_paths": [__file__],  # so that the server finds the model, too
    }
    private = fitted(k, policy=policy, population=population)
    return log_protected_model(private, **settings | options)


@dataclass(frozen=True)
class Server:
    """Where it listens, what it said on its own console, and its process."""

    url: str
    console: Path
    process: subprocess.Popen[bytes]

    def post(self, body: Any, kind: str = "application/json") -> tuple[int, str]:
        """Return status and text of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/invocations", data=data, headers={"Content-Type": kind}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def store(folder: Path) -> str:
    """Make a store of MLflow in a folder and use it; return its URI."""
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    if mlflow.get_experiment_by_name("serving") is None:
        mlflow.create_experiment("serving", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("serving")
    # it would hold for later tests and for other tracking servers
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)
    return uri


def serving_command(model: str) -> list[str]:
    """Return the command that serves a model."""
    return ["mlflow", "models", "serve", "-m", model, "--env-manager", "local"]


@contextmanager
def serving(
    folder: Path,
    uri: str,
    command: list[str],
    **environment: str,
) -> Iterator[Server]:
    """Run a command that serves until the block ends."""
    port = free_port()
    # MLflow starts uvicorn by name
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {
        "MLFLOW_TRACKING_URI": uri,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PATH": path,
    }
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
    console = folder / f"server-{port}.txt"
    with console.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--port", str(port)],
            env=env | environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(f"{url}/ping", process, console)
            yield Server(url, console, process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], console: Path, tries: int = 600) -> None:
    for _ in range(tries):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{console.read_text()}")
