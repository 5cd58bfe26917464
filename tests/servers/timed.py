"""An explainer and a model that servers load for benchmarks; the model's own time can be read from
outside.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

CLOCK = "CFK_BENCHMARK_CLOCK"


class Timed:
    """A model that adds the seconds it takes to a file which other processes read."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, rows: pd.DataFrame) -> Any:
        start = time.perf_counter()
        labels = self.model.predict(rows)
        clock = _clock()
        clock[:8] = struct.pack("d", struct.unpack("d", clock[:8])[0] + time.perf_counter() - start)
        return labels


class Unprotected(mlflow.pyfunc.PythonModel):
    """The explainer as anybody would log it."""

    def __init__(self, explainer: Any) -> None:
        self.explainer = explainer

    def predict(self, context, model_input, params=None):
        return self.explainer(model_input)


class Explainer:
    """Looks up counterfactuals that were found before: it takes no time that would hide what
    protection takes.
    """

    def __init__(self, queries: pd.DataFrame, counterfactuals: pd.DataFrame) -> None:
        self.columns = list(queries)
        self.at = {_name(row): i for i, row in enumerate(queries.to_numpy())}
        self.counterfactuals = counterfactuals

    def __call__(self, queries: pd.DataFrame) -> pd.DataFrame:
        return self.counterfactuals.iloc[
            [self.at[_name(row)] for row in queries[self.columns].to_numpy()]
        ]


def _name(row: Any) -> tuple[str, ...]:
    return tuple("" if pd.isna(value) else str(value) for value in row)


_open: list[mmap.mmap] = []


def _clock() -> mmap.mmap:
    if not _open:
        with Path(os.environ[CLOCK]).open("r+b") as file:
            _open.append(mmap.mmap(file.fileno(), 8))
    return _open[0]


def model_seconds() -> float:
    return float(struct.unpack("d", _clock()[:8])[0])
