"""What it takes to find answers among the drawn rows of `DPPrototypes`, and to move them: CPU
times.

    .venv/bin/python tests/benchmarks/served.py --data ../shared/data --tables adult german numbers

"numbers" is a made-up table of 23 numeric features, "codes" one of 23 categories. "all compared" is
the batch with every row that may answer compared by `Heom.nearest`, which gives the same answers.
"moved" is beside the model, whose answers are recorded in a first round; it is asked so many times
per lone query, and per batch. Prints Markdown tables.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

from answer_figures import figures_of
from cfk_plugin import DPPrototypes, Population, Schema
from printing import DATA, arguments, heading, line
from prototypes import Case, case

MADE_UP = 23


def made_up(name: str, rows: int = 20_000) -> Case:
    """Return a table of features that have little to do with each other; half of the rows have the
    outcome.
    """
    random, names = np.random.default_rng(0), [f"x{j}" for j in range(MADE_UP)]
    if name == "numbers":
        frame = pd.DataFrame(random.random((rows, MADE_UP)), columns=names)
        declared = {"bounds": dict.fromkeys(names, (0, 1))}
    else:
        frame = pd.DataFrame(random.choice(list("abcde"), (rows, MADE_UP)), columns=names)
        declared = {"categories": {name: list("abcde") for name in names}}
    schema = Schema.from_frame(frame, quasi_identifiers=["x0"], nullable=[], **declared)
    middle = "c" if name == "codes" else 0.5

    class Model:
        def predict(self, asked: pd.DataFrame) -> np.ndarray:
            return (asked["x0"] >= middle).to_numpy().astype(int)

    queries = frame[frame["x0"] < middle].head(200).reset_index(drop=True)
    return Case(name, Population.from_frame(frame, schema), frame, Model(), 1, queries)  # type: ignore[arg-type]


class Recorded:
    """A model that gives what it answered once again, at once."""

    def __init__(self, model: Any) -> None:
        self.model, self.said, self.again = model, list[Any](), iter(())

    def predict(self, rows: pd.DataFrame) -> Any:
        if (said := next(self.again, None)) is None:
            self.said.append(said := self.model.predict(rows))
        return said


def moved(one: Case, epsilon: float, size: int, turns: int) -> tuple[float, float]:
    """Return CPU milliseconds a query beside the model, of three rounds the best, and calls of the
    model a batch.
    """
    model = Recorded(one.model)
    made = DPPrototypes(epsilon, model_access="public").fit(one.population, model, one.desired)
    batches = [
        one.queries.iloc[start : start + size]
        for start in range(0, min(size * turns, len(one.queries)), size)
    ]
    model.said, taken = [], []
    for _ in range(4):
        model.again, started = iter(tuple(model.said)), process_time()
        for batch in batches:
            made.generate(batch)
        taken.append(process_time() - started)
    return 1000 * min(taken[1:]) / sum(map(len, batches)), len(model.said) / len(batches)


def milliseconds(work: object, queries: pd.DataFrame, size: int, turns: int) -> float:
    """Return CPU milliseconds a query in batches of a size, of three rounds the best; the first
    batch makes ready.
    """
    batches = [
        queries.iloc[start : start + size]
        for start in range(0, min(size * turns, len(queries)), size)
    ]
    taken = []
    for _ in range(3):
        work(batches[0])  # type: ignore[operator]
        started = process_time()
        for batch in batches[1:]:
            work(batch)  # type: ignore[operator]
        taken.append(process_time() - started)
    return 1000 * min(taken) / sum(map(len, batches[1:]))


def main() -> None:
    asked = arguments(
        __doc__, data=DATA, tables=["adult", "german", "hospital", "numbers", "codes"], epsilon=1.0
    )
    kinds = ("rows", "prototypes")
    print(
        heading(
            "table",
            "features",
            "serve",
            "fit s",
            "lone ms",
            "in batches of 50",
            "all compared",
            "L1",
        )
    )
    for name in asked.tables:
        one = made_up(name) if name in ("numbers", "codes") else case(name, Path(asked.data), 200)
        for serve in kinds:
            started = process_time()
            made = DPPrototypes(
                asked.epsilon, serve=serve, model_access="public", move_towards_query=False
            )  # type: ignore[arg-type]
            made.fit(one.population, one.model, one.desired)
            fitted, served = process_time() - started, made.served_
            may = np.flatnonzero(made.goal_.is_met(served.labels))

            def compared(
                batch: pd.DataFrame, rows: np.ndarray = may, made: DPPrototypes = made
            ) -> None:
                of = made.served_
                of.heom.nearest(batch, of.codes.take(rows), cost=of.cost[rows])

            times = [
                milliseconds(work, one.queries, size, turns)
                for work, size, turns in (
                    (made.generate, 1, 50),
                    (made.generate, 50, 4),
                    (compared, 50, 3),
                )
            ]
            answers = figures_of(
                one.queries,
                made.generate(one.queries)[0],
                one.population,
                model=one.model,
                desired=one.desired,
            )
            figures = [f"{value:.3g}" for value in (fitted, *times, answers.l1.value)]
            print(line(name, len(made.features_), serve, *figures), flush=True)
    print("\n" + heading("table", "moved: lone ms", "calls", "in batches of 50", "calls"))
    for name in asked.tables:
        one = made_up(name) if name in ("numbers", "codes") else case(name, Path(asked.data), 200)
        found = [moved(one, asked.epsilon, size, turns) for size, turns in ((1, 50), (50, 4))]
        print(line(name, *(f"{value:.2g}" for pair in found for value in pair)), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
