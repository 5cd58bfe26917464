"""Utility of differentially private prototypes, beside the plain tree, native neighbours and rows of nobody.

    .venv/bin/python tests/benchmarks/prototypes.py --data ../shared/data --tables adult german --epsilon 0.1 1

"singled out" is the share of answers whose quasi-identifiers exactly one training person has, "outside" the same among
equally many people who are not in the table: what chance gives. All methods answer the same queries of the same forest.
Domains of the tables are taken for published: bounds and levels of their code books, bins as below. Prints a Markdown
table; figures are means over the fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import DPPrototypes, Population, Schema
from cfk_plugin.dp import PublicDomain
from cfk_plugin.metrics import utility
from plain_tree import PlainTree
from printing import DATA, arguments, heading, line
from tables import forest, read, split

BINS = {
    "adult": {
        "age": [*range(17, 92, 3), 92],
        "capital_gain": [0, 1, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 10000, 15000, 20000, 30000, 100000],
        "capital_loss": [0, 1, 1000, 1400, 1600, 1800, 2000, 2200, 2500, 4357],
        "hours_per_week": [1, 10, 20, 30, 35, 40, 41, 45, 50, 55, 60, 70, 80, 100],
    },
    "german": {
        "duration_months": [4, 7, 10, 13, 16, 19, 22, 25, 31, 37, 49, 73],
        "credit_amount": [250, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7000, 10000, 18425],
        "age": [19, 23, 26, 29, 32, 36, 40, 45, 50, 60, 76],
    },
}
FIGURES = ("flips", "L1", "changed", "nn1", "unseen", "singled out", "outside", "fit s", "ms/query")


@dataclass(frozen=True)
class Case:
    """One table: training rows, the people who are not in them, the model, and the queries."""

    name: str
    population: Population
    holdout: pd.DataFrame
    model: Pipeline
    desired: Any
    queries: pd.DataFrame


def declared(name: str, frame: pd.DataFrame, about: dict[str, Any]) -> Schema:
    """Return the schema with the domains of the code book."""
    columns = {c["name"]: c for c in about["columns"] if c["name"] in about["features"]}
    numeric = {n: (c["min"], c["max"]) for n, c in columns.items() if c["type"] == "numeric"}
    bins = BINS.get(name, {})
    texts = [n for n in columns if n not in numeric]
    return Schema.from_frame(
        frame,
        quasi_identifiers=about["quasi_identifiers"],
        bounds={n: ends for n, ends in numeric.items() if n not in bins},
        bins=bins,
        categories={n: [*map(str, columns[n].get("levels") or sorted(frame[n].dropna().unique()))] for n in texts},
        nullable=[n for n in columns if frame[n].isna().any()],
    )


def case(name: str, data: Path, queries: int, seed: int = 0, trees: int = 50) -> Case:
    """Split 60/40, declare the domain, fit a forest, and take undesired test rows as queries."""
    frame, about = read(name, data)
    for column in about["columns"]:
        if column["name"] in about["features"]:
            least = column["min"] if column["type"] == "numeric" else "?"
            frame[column["name"]] = frame[column["name"]].fillna(least)
    train, test = split(frame, 0.6, seed)
    features = about["features"]
    leaf = 5 if len(frame) > 5000 else 3
    model = forest(train[features], train[about["target"]], seed, trees, min_samples_leaf=leaf)
    asked = test[features][model.predict(test[features]) != about["desired_outcome"]].head(queries)
    population = Population.from_frame(train[features], declared(name, frame[features], about))
    return Case(name, population, test[features], model, about["desired_outcome"], asked.reset_index(drop=True))


Answer = Callable[[pd.DataFrame], tuple[pd.DataFrame, NDArray[np.bool_]]]


def methods(one: Case, epsilons: Sequence[float], delta: float) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Name the methods; each returns, when called, what answers queries: its fit is what is timed."""

    def among(rows: pd.DataFrame) -> Answer:
        explainer = NearestUnlikeNeighbour(rows, one.model, desired=one.desired)
        return lambda queries: (explainer.explain(queries), np.ones(len(queries), dtype=bool))

    def uniform() -> Answer:
        domain, random = PublicDomain.of(one.population), np.random.default_rng(0)
        codes = np.column_stack([random.integers(0, size, 20_000) for size in domain.sizes]).astype(np.int32)
        rows = domain.draw(codes, random)
        return among(rows[one.model.predict(rows) == one.desired])

    yield "nearest training row", lambda: among(one.population.frame)
    yield "uniform rows, epsilon = 0", uniform
    for epsilon in epsilons:
        for kind in (PlainTree, DPPrototypes):
            settings = {"epsilon": epsilon, "delta": delta, "model_access": "public"}

            def fit(kind: type = kind, settings: dict[str, Any] = settings) -> Answer:
                made: Answer = kind(**settings).fit(one.population, one.model, one.desired).generate
                return made

            yield f"{'plain tree' if kind is PlainTree else 'DPPrototypes'}, epsilon = {epsilon:g}", fit


def fresh(one: Case) -> str:
    """Return the line of people who are not in the table: at most 1,000 with the desired outcome, near to nobody."""
    native = NearestUnlikeNeighbour(one.population.frame, one.model, desired=one.desired).explain(one.queries)
    found = utility(
        one.queries, native, one.population, model=one.model, desired=one.desired, holdout=one.holdout
    ).chance
    assert found is not None  # a holdout was given
    support = found.fresh
    figures = {"nn1": support.nn1, "unseen": support.unseen_pair}
    cells = [f"{figures[name].value:.3g}" if name in figures else "–" for name in FIGURES]
    return line(f"{support.nn1.n} people who are not in the table", *cells)


def measured(one: Case, fit: Callable[[], Answer]) -> dict[str, float]:
    """Fit once, answer all queries, and measure."""
    started = process_time()
    answer = fit()
    fitted = process_time()
    rows, answered = answer(one.queries)
    done = process_time()
    found = utility(
        one.queries,
        rows[answered],
        one.population,
        model=one.model,
        desired=one.desired,
        answered=np.flatnonzero(answered),
        holdout=one.holdout,
    )
    chance = found.chance
    assert chance is not None  # a holdout was given
    values = (
        found.flipping_ratio.value,
        found.l1.value,
        found.features_changed.value,
        found.nn1.value,
        found.unseen_pair.value,
        chance.singled_out_train.value,
        chance.singled_out_holdout.value,
        fitted - started,
        1000 * (done - fitted) / len(one.queries),
    )
    return dict(zip(FIGURES, values, strict=True))


def main() -> None:
    tables = ("adult", "german", "hospital", "informs")
    asked = arguments(
        __doc__, data=DATA, tables=tables, epsilon=[0.1, 0.5, 1.0, 3.0, 10.0], delta=0.0, queries=200, fits=3
    )
    for name in asked.tables:
        one = case(name, asked.data, asked.queries)
        print(f"\n{name}: {len(one.population.frame)} rows, {len(one.queries)} queries, {asked.fits} fits\n")
        print(heading("method", *FIGURES))
        print(fresh(one), flush=True)
        for label, fit in methods(one, asked.epsilon, asked.delta):
            repeats = asked.fits if "epsilon" in label and label[-3:] != "= 0" else 1
            found = pd.DataFrame([measured(one, fit) for _ in range(repeats)]).mean()
            print(line(label, *(f"{found[name]:.3g}" for name in FIGURES)), flush=True)


if __name__ == "__main__":
    main()
