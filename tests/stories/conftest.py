"""What the stories have at hand: the applicants for a loan, and the bank's model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Explanations, Interval, Population, ProtectedExplainer
from worlds import World


@pytest.fixture(scope="session")
def model(applicants: World) -> Any:
    """Return the bank's model, a scikit-learn pipeline with the labels 0 and 1."""
    return applicants.model


@pytest.fixture(scope="session")
def population(applicants: World) -> Population:
    """Return the training table with what the bank declares about its columns."""
    return applicants.population


@pytest.fixture(scope="session")
def refused(applicants: World) -> pd.DataFrame:
    """Return eight people who ask; none of them is in the training table."""
    return applicants.refused


@pytest.fixture(scope="session")
def private(applicants: World) -> ProtectedExplainer:
    """Return what answers from the catalogue, without an explainer."""
    return applicants.private


@pytest.fixture(scope="session")
def people_inside(applicants: World) -> Callable[[Any], pd.DataFrame]:
    """Return a function that selects the training people who fit an answer, in plain pandas."""

    def select(answer: Any) -> pd.DataFrame:
        table = applicants.table
        inside = pd.Series(True, index=table.index)
        for name, part in answer.region.items():
            if not isinstance(part, Interval):
                inside &= table[name].isin(part)
            elif part.levels is not None:
                inside &= table[name].isin(part.levels)
            else:
                inside &= table[name].between(part.low, part.high)
        return table[inside]

    return select


@pytest.fixture(scope="session")
def after_advice() -> Callable[[pd.DataFrame, Explanations], pd.DataFrame]:
    """Return a function from people and their answers to the people who followed the answers."""

    def follow(people: pd.DataFrame, explanations: Explanations) -> pd.DataFrame:
        rows = []
        for answer in explanations.released:
            rows.append({**answer.advised, **answer.released})
        return pd.DataFrame(rows)[list(people.columns)]

    return follow


@pytest.fixture
def cfk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Return a function that runs the installed command and gives its exit code."""
    (command,) = entry_points(group="console_scripts", name="cfk")

    def run(words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["cfk", *words.split()])
        with pytest.raises(SystemExit) as end:
            command.load()()
        return int(end.value.code or 0)

    return run


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return a function that serves a logged model with `mlflow models serve`.

    It returns the address for requests once the server is ready.
    """
    processes = []

    def start(uri: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        # MLflow starts uvicorn by name.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        options = ["-m", uri, "--env-manager", "local", "--port", port]
        with (tmp_path / "server.txt").open("wb") as console:
            process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "models", "serve", *options],
                env=os.environ | {"PATH": path},
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        processes.append(process)
        _wait_for(f"http://127.0.0.1:{port}/ping", process)
        return f"http://127.0.0.1:{port}/invocations"

    yield start
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Return when the server answers; fail if it ends or needs two minutes."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the server did not start")
