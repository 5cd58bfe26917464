"""How fit and search scale: synthetic populations of 10^5 to 10^7 people with five
quasi-identifiers.

Run ``python tests/benchmarks/scale.py`` to print a Markdown table. Anchors are random people, so
crowded and sparse places are met as often as people live there; the outliers show in the last
percentiles.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing import get_context

import numpy as np
import pandas as pd

from cfk_plugin import Population, Schema
from cfk_plugin.protection.axes import Codes
from cfk_plugin.protection.class_index import ClassIndex, index_of
from cfk_plugin.protection.lookup.solver import solve
from printing import arguments, heading, line, peak

SIZES = (80, 500, 2, 6, 16)  # age, postal area, sex, marital status, education


def synthetic_rows(rows: int, seed: int = 0) -> Codes:
    """Codes of people: a bent age pyramid, postal areas and statuses of very unequal size."""
    rng = np.random.default_rng(seed)
    age = (80 * rng.beta(1.3, 1.9, rows)).astype(np.int32)
    areas = 1.0 / np.arange(1, SIZES[1] + 1) ** 0.8
    area = rng.choice(rng.permutation(SIZES[1]), rows, p=areas / areas.sum())
    sex = rng.integers(0, 2, rows)
    marital = np.where(age < 15, 0, rng.choice(6, rows, p=[0.35, 0.42, 0.11, 0.07, 0.035, 0.015]))
    education = np.clip(np.round(rng.normal(8.5, 2.8, rows) - (age > 60)), 0, 15)
    return np.column_stack([age, area, sex, marital, education]).astype(np.int32)


def table_of(people: Codes, postal: str) -> pd.DataFrame:
    """The people as a table: numbers, and text where a value is a name."""
    areas = np.char.add("P", np.arange(SIZES[1]).astype(str))
    columns = {
        "age": people[:, 0],
        "area": people[:, 1] if postal == "numeric" else areas[people[:, 1]],
        "sex": np.array(["f", "m"])[people[:, 2]],
        "marital": np.array(["single", "married", "divorced", "widowed", "apart", "absent"])[
            people[:, 3]
        ],
        "education": people[:, 4],
    }
    return pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})


def plain_index(index: ClassIndex) -> ClassIndex:
    """Take the same cells without a tree, so that every search scans all of them."""
    tree = index.tree
    box = {name: getattr(tree, name)[:1] for name in ("start", "stop", "low", "high")}
    flat = tree._replace(child=np.full(1, -1, np.int64), **box)
    return ClassIndex(index.axes, flat, index.original)


def measure(rows: int, postal: str, k: int, anchors: int, check: int) -> str:
    """Fit a population, explain random people one by one, compare some with searches that scan all
    cells.
    """
    frame = table_of(synthetic_rows(rows), postal)
    start = time.perf_counter()
    population = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=list(frame))
    )
    index = index_of(population)
    build = time.perf_counter() - start
    chosen = population.cells[
        population.cell_of(np.random.default_rng(1).choice(rows, anchors, replace=False))
    ]
    place = np.zeros(chosen.shape)
    solve(index, chosen[:1], place[:1], k)
    spent, cost, proven = np.empty(anchors), np.empty(anchors), np.empty(anchors, bool)
    for a in range(anchors):
        start = time.perf_counter()
        (answer,) = solve(index, chosen[a : a + 1], place[:1], k)
        spent[a] = 1e3 * (time.perf_counter() - start)
        cost[a], proven[a] = answer.cost, answer.proven
    hard = np.argsort(-spent)[: check // 2]
    sample = np.append(hard, np.arange(check - hard.size))
    scanned = solve(plain_index(index), chosen[sample], place[sample], k)
    if not np.allclose([found.cost for found in scanned], cost[sample], atol=1e-11):
        raise AssertionError("the index changed an optimum")
    (p50, p99), cells = np.percentile(spent, [50, 99]), f"{len(population.cells):,}"
    times = f"{build:.1f}", f"{peak():.2f}", f"{p50:.2f}", f"{p99:.2f}", f"{spent.max():.1f}"
    return line(postal, f"{rows:,}", cells, k, *times, f"{proven.mean():.1%}", check)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all sizes and print the table."""
    sizes, postal = [10**5, 10**6, 10**7], ["nominal", "numeric"]
    ask = arguments(__doc__, argv, rows=sizes, postal=postal, k=[10], anchors=500, check=20)
    cases = [
        (rows, postal, k, ask.anchors, ask.check)
        for rows in ask.rows
        for postal in ask.postal
        for k in ask.k
    ]
    # A process each: the peak of memory is then that of one case.
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        times = ("fit s", "peak GB", "p50 ms", "p99 ms", "max ms")
        print(heading("postal area", "people", "cells", "k", *times, "proven", "same"))
        print(*pool.starmap(measure, cases, chunksize=1), sep="\n")


if __name__ == "__main__":
    main()
