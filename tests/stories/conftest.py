"""The world of the stories: people who applied for a loan, and the bank's model."""

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

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cfk_plugin import Explanations, Interval, Population, ProtectedExplainer, Schema, protect

K = 10
LEVELS = ["school", "college", "university"]
CATEGORIES = ["town", "education", "job"]
NUMBERS = ["age", "income", "debt"]


def _people(n: int, seed: int) -> pd.DataFrame:
    """Return made-up people whose incomes all differ."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "town": random.choice(["Antwerp", "Ghent", "Namur"], n),
            "education": random.choice(LEVELS, n),
            "job": random.choice(["clerk", "nurse", "smith"], n),
            "income": random.normal(40_000, 6_000, n).round(2),
            "debt": random.integers(0, 40, n) * 500,
        }
    )


@pytest.fixture(scope="session")
def applicants() -> pd.DataFrame:
    """Return the training table: the only people who could be recognised."""
    return _people(300, seed=0)


@pytest.fixture(scope="session")
def granted(applicants: pd.DataFrame) -> pd.Series:
    """Return who got a loan, 1 or 0."""
    points = applicants["income"] - applicants["debt"] + 200 * applicants["age"]
    points += 4_000 * applicants["education"].map(LEVELS.index)
    points += 6_000 * (applicants["job"] == "nurse")
    return (points > points.median()).astype(int)


@pytest.fixture(scope="session")
def model(applicants: pd.DataFrame, granted: pd.Series) -> Any:
    """Return the bank's model, a scikit-learn pipeline with the labels 0 and 1."""
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), CATEGORIES), (StandardScaler(), NUMBERS)
    )
    return make_pipeline(encoder, LogisticRegression()).fit(applicants, granted)


@pytest.fixture(scope="session")
def schema(applicants: pd.DataFrame) -> Schema:
    """Return what the bank declares about the columns."""
    return Schema.from_frame(
        applicants,
        quasi_identifiers=["age", "town", "education"],
        ordinal={"education": LEVELS},
        immutable=["town"],
        monotone={"age": "increase"},
        titles={"income": "an income", "debt": "a debt"},
        units={"income": "EUR", "debt": "EUR"},
        outcomes={1: "the model would grant the loan"},
    )


@pytest.fixture(scope="session")
def population(applicants: pd.DataFrame, schema: Schema) -> Population:
    return Population.from_frame(applicants, schema)


@pytest.fixture(scope="session")
def refused(model: Any) -> pd.DataFrame:
    """Return eight people who ask; none of them is in the training table."""
    people = _people(60, seed=1)
    return people[model.predict(people) == 0].head(8)


@pytest.fixture(scope="session")
def private(model: Any, population: Population) -> ProtectedExplainer:
    """Return what answers from the catalogue, without an explainer."""
    return protect(model=model, population=population, k=K, desired=1)


@pytest.fixture(scope="session")
def people_inside(applicants: pd.DataFrame) -> Callable[[Any], pd.DataFrame]:
    """Return a function that selects the training people who fit an answer, in plain pandas."""

    def select(answer: Any) -> pd.DataFrame:
        inside = pd.Series(True, index=applicants.index)
        for name, part in answer.region.items():
            if not isinstance(part, Interval):
                inside &= applicants[name].isin(part)
            elif part.levels is not None:
                inside &= applicants[name].isin(part.levels)
            else:
                inside &= applicants[name].between(part.low, part.high)
        return applicants[inside]

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
