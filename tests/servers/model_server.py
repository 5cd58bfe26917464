"""A real `mlflow models serve` with a protected model, for tests that speak HTTP to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import Population, PrivacyPolicy, Schema, log_protected_model

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
    """The model: whoever earns enough, unless they are very young."""
    return ((rows["pay"].astype(float) > 1_100_000) & (rows["age"].astype(float) > 21)).to_numpy().astype(int)


class NearestInAge:
    """The explainer: an accepted training row. Misbehaves when it is asked about certain ages."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows

    def __call__(self, queries: pd.DataFrame) -> Any:
        ages = queries["age"].tolist()
        if 97 in ages:
            raise RuntimeError(f"no neighbour of {self.rows.iloc[0].to_dict()}")
        if 98 in ages:
            return "rubbish " + str(self.rows.iloc[0].to_dict())
        good = self.rows[accepts(self.rows) == 1]
        return pd.concat([good.loc[[(good["age"] - age).abs().idxmin()]] for age in ages])


def population() -> Population:
    train = patients()
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "town"]))


def logged(k: int = K, **options: Any) -> Any:
    """Log the explainer as a protected model."""
    settings: dict[str, Any] = {
        "model": accepts,
        "population": population(),
        "desired": 1,
        "policy": PrivacyPolicy(k=k),
    }
    return log_protected_model(NearestInAge(patients()), **settings | {"policy": PrivacyPolicy(k=k)} | options)


@dataclass(frozen=True)
class Server:
    """Where it listens and what it said on its own console."""

    url: str
    console: Path

    def post(self, body: Any, kind: str = "application/json") -> tuple[int, str]:
        """Return status and text of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/invocations", data=data, headers={"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@contextmanager
def model_server(folder: Path, **environment: str) -> Iterator[Server]:
    """Log a protected model, serve it, and stop the server afterwards."""
    import mlflow

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("serving", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("serving")
    with mlflow.start_run():
        info = logged(most=50)
    port = _free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", info.model_uri]
    command += ["--env-manager", "local", "--port", str(port)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the command starts uvicorn by name
    env = os.environ | {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true", "PATH": path}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
    console = folder / "server.txt"
    with console.open("wb") as said:
        process = subprocess.Popen(
            command, env=env | environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait(f"http://127.0.0.1:{port}/ping", process, console)
            yield Server(f"http://127.0.0.1:{port}", console)
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes], console: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{console.read_text()}")
