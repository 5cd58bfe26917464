"""Real servers with one explainer behind them, for tests that speak HTTP: `mlflow models serve`,
and `cfk serve`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
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


class Panic(BaseException):
    """What libraries written in Rust raise."""


def _raises(kind: Callable[[str], BaseException]) -> Callable[[str], None]:
    def hazard(row: str) -> None:
        raise kind(f"no neighbour of {row}")

    return hazard


def _recurses(row: str) -> None:
    _recurses(row)


def _has_a_thread(row: str) -> None:
    thread = threading.Thread(target=_raises(ValueError), args=(row,))
    thread.start()
    thread.join()


def _has_a_finalizer(row: str) -> None:
    class Finalized:
        def __del__(self) -> None:
            raise ValueError(row)

    Finalized()


def _logs(row: str) -> None:
    try:
        raise ValueError(row)
    except ValueError:
        logging.getLogger("somebody").exception("no neighbour of %s", row)


def _hangs(row: str) -> None:
    time.sleep(3_600)


HAZARDS: dict[int, Callable[[str], None]] = {
    80: _raises(SystemExit),
    81: _raises(KeyboardInterrupt),
    82: _raises(Panic),
    83: _raises(GeneratorExit),
    84: _recurses,
    85: _raises(MemoryError),
    86: _raises(StopIteration),
    87: _raises(asyncio.CancelledError),
    # a class that is named after a row
    88: lambda row: _raises(type(row, (BaseException,), {}))(row),
    96: _hangs,
    97: _raises(RuntimeError),
}
"""By the age of who asks, what the explainer does instead of answering; it is told a row."""

BESIDE: dict[int, Callable[[str], None]] = {90: _has_a_thread, 91: _has_a_finalizer, 92: _logs}
"""What it does before it answers."""

SPOILED: dict[int, tuple[str, Any]] = {
    61: ("age", np.inf),
    62: ("illness", "\ud800"),
    63: ("pay", 10**400),
    64: ("illness", patients),
    65: ("illness", ["a", "b"]),
    66: ("town", np.nan),
    67: ("age", "forty"),
    68: ("age", pd.Timestamp("2020-01-01")),
    69: ("pay", 1j),
    70: ("pay", 1e308),
    71: ("pay", "2020-01-01"),
}
"""What it puts into one cell of its answer, in the place of the value."""

RUBBISH: dict[int, Callable[[pd.DataFrame], Any]] = {
    72: lambda answer: "rubbish " + str(answer),
    73: lambda answer: answer.rename(columns={"pay": str(answer)}),
    74: lambda answer: pd.concat([answer] * 3),
    75: lambda answer: answer[[*answer.columns, "age"]],
    76: lambda answer: answer.to_numpy()[:, :2],
    77: lambda answer: [1, 2, 3],
    78: lambda answer: (row for row in answer.to_dict("records")),
    79: lambda answer: answer.assign(pay=13),
    98: lambda answer: "rubbish " + str(answer),
}
"""What it returns in the place of its answer; of 79, the model raises."""


class NearestInAge:
    """The explainer: an accepted training row. Misbehaves when it is asked about certain ages."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows

    def __call__(self, queries: pd.DataFrame) -> Any:
        ages, row = queries["age"].tolist(), str(self.rows.iloc[0].to_dict())
        for age in ages:
            (HAZARDS.get(age) or BESIDE.get(age) or str)(row)
        good = self.rows[accepts(self.rows) == 1]
        answer = pd.concat([good.loc[[(good["age"] - age).abs().idxmin()]] for age in ages])
        if spoiled := {at: SPOILED[age] for at, age in enumerate(ages) if age in SPOILED}:
            answer = answer.reset_index(drop=True).astype(object)
            for at, (column, value) in spoiled.items():
                answer.at[at, column] = value
        for age in ages:
            answer = RUBBISH[age](answer) if age in RUBBISH else answer
        return answer


def population() -> Population:
    train = patients()
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "town"]))


def logged(k: int = K, **options: Any) -> Any:
    """Log the explainer as a protected model."""
    settings: dict[str, Any] = {
        "model": accepts,
        "population": population(),
        "desired": 1,
        "code_paths": [__file__],  # so that the server finds the explainer and the model, too
        "policy": PrivacyPolicy(guarantee="reciprocal", k=k),
    }
    return log_protected_model(
        NearestInAge(patients()),
        **settings | {"policy": PrivacyPolicy(guarantee="reciprocal", k=k)} | options,
    )


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

    def memory(self) -> int:
        """Return the bytes that its processes have in memory."""
        pages = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # another process has ended
                fields = path.read_text().rpartition(")")[2].split()
                pages += int(fields[21]) if int(fields[2]) == self.process.pid else 0
        return pages * os.sysconf("SC_PAGE_SIZE")


class Explainer(mlflow.pyfunc.PythonModel):
    """The same explainer as somebody registered it before they knew of protection."""

    def predict(self, context, model_input, params=None):
        return NearestInAge(patients())(model_input)


class Model(mlflow.pyfunc.PythonModel):
    """The model as a model of MLflow."""

    def predict(self, context, model_input, params=None):
        return accepts(model_input)


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


def register_unprotected() -> tuple[str, str]:
    """Register explainer and model as they are; return their URIs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mlflow.start_run():
            explainer = mlflow.pyfunc.log_model(
                name="explainer", python_model=Explainer(), pip_requirements=[]
            )
            model = mlflow.pyfunc.log_model(name="model", python_model=Model(), pip_requirements=[])
    return explainer.model_uri, model.model_uri


def by_mlflow(folder: Path, **options: Any) -> list[str]:
    """Log a protected model; return the command that serves it."""
    with mlflow.start_run():
        info = logged(**{"most": 50} | options)
    return ["mlflow", "models", "serve", "-m", info.model_uri, "--env-manager", "local"]


def by_cfk(folder: Path, *options: str) -> list[str]:
    """Register explainer and model, and seal the population; return the command that protects the
    explainer.
    """
    explainer, model = register_unprotected()
    bundle = folder / "population.cfk"
    KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=K)).fit(
        population(), model=accepts, desired=1
    ).seal(bundle)
    command = [
        "cfk_plugin.cli",
        "serve",
        explainer,
        "--bundle",
        str(bundle),
        "--model",
        model,
        "--desired",
        "1",
    ]
    return [*command, "--most", "50", *options]


@contextmanager
def serving(
    folder: Path,
    uri: str,
    command: list[str],
    context: ssl.SSLContext | None = None,
    **environment: str,
) -> Iterator[Server]:
    """Run a command that serves, over TLS with a context, until the block ends."""
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
            url = f"http://127.0.0.1:{port}" if context is None else f"https://localhost:{port}"
            wait_for(f"{url}/ping", process, console, context)
            yield Server(url, console, process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(
    url: str, process: subprocess.Popen[bytes], console: Path, context: ssl.SSLContext | None = None
) -> None:
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2, context=context):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{console.read_text()}")
