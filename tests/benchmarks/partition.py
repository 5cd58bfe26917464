"""What one partition of everybody costs, next to a region for each person alone and to Mondrian's
partition.

Run ``python tests/benchmarks/partition.py --data ../shared/data`` for the six tables, whole and
their training split, or ``--rows 1000000`` for synthetic people. Prints Markdown; all losses are
NCP in percent, averaged over people.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np

from cfk_plugin import Population, Schema
from cfk_plugin.protection.axes import AxisArrays, Codes, Ints, plain_hull_cost
from cfk_plugin.protection.class_index import index_of
from cfk_plugin.protection.lookup.mondrian import MondrianPartition
from cfk_plugin.protection.lookup.solver import solve
from cfk_plugin.protection.partition import microaggregation as groups
from cfk_plugin.protection.partition.microaggregation import ClassShares, Effort, group_classes
from printing import DATA, arguments, heading, peak
from scale import synthetic_rows, table_of
from tables import TABLES, read, split

T = TypeVar("T")


def timed(function: Callable[..., T], *args: object, **options: object) -> tuple[T, float]:
    """Result and seconds of processor time."""
    start = time.process_time()
    result = function(*args, **options)
    return result, time.process_time() - start


def loss(axes: AxisArrays, cells: Codes, shares: ClassShares) -> float:
    """Cost of the groups' hulls, averaged over people, by the reference that the kernels are tested
    against.
    """
    order = np.argsort(shares.group, kind="stable")
    first = np.flatnonzero(np.diff(shares.group[order], prepend=-1))
    total = 0.0
    for members in np.split(order, first[1:]):
        if len(members) > 1:
            codes = cells[shares.class_index[members]]
            total += shares.people[members].sum() * plain_hull_cost(
                axes, codes, codes[0], np.zeros(axes.kind.size)
            )
    return float(total / shares.people.sum())


def check(people: Ints, shares: ClassShares, k: int) -> None:
    """Nobody is lost and no group is small."""
    if not np.array_equal(np.bincount(shares.class_index, shares.people, len(people)), people):
        raise AssertionError("people were lost")
    if np.bincount(shares.group, shares.people).min() < k:
        raise AssertionError("a group is too small")


def mondrian(population: Population, k: int) -> float:
    """Loss of the strict Mondrian partition with normalised widths."""
    axes, todo, total = (
        index_of(population).axes,
        [MondrianPartition(population, k, normalise=True).root],
        0.0,
    )
    while todo:
        node = todo.pop()
        if node.below is not None and node.above is not None:
            todo += [node.below, node.above]
            continue
        codes = population.cells[node.classes]
        people = population.cell_people[node.classes].sum()
        total += people * plain_hull_cost(axes, codes, codes[0], np.zeros(axes.kind.size))
    return total / population.n_people


def lookup(population: Population, k: int) -> float:
    """Least loss of a region for each person alone."""
    found = solve(index_of(population), population.cells, np.zeros(population.cells.shape), k)
    if not all(one.proven for one in found):
        raise AssertionError("an optimum is not proven")
    return float(np.average([one.cost for one in found], weights=population.cell_people))


def populations(names: Sequence[str], data: Path) -> Iterator[tuple[str, Population]]:
    """Each table as a whole, and the 60 % of its rows on which `tables.case` trains."""
    for name in names:
        frame, about = read(name, data)
        for part, rows in (("all", frame), ("train", split(frame, 0.6, 0)[0])):
            table = rows[about["features"]]
            schema = Schema.from_frame(table, quasi_identifiers=about["quasi_identifiers"])
            yield f"{name} {part}", Population.from_frame(table, schema)


def table_rows(names: Sequence[str], data: Path, ks: Sequence[int]) -> Iterator[str]:
    """One line per table and k."""
    efforts = get_args(Effort)
    yield heading(
        "table",
        "people",
        "cells",
        "k",
        "optimum alone",
        "Mondrian",
        *(f"{name} / CPU s" for name in efforts),
    )
    for name, population in populations(names, data):
        axes, cells, people = index_of(population).axes, population.cells, population.cell_people
        group_classes(axes, cells[:50], people[:50], 2)  # compiles
        for k in ks:
            found = []
            for effort in efforts:
                shares, seconds = timed(group_classes, axes, cells, people, k, effort=effort)
                check(people, shares, k)
                found.append(f"{loss(axes, cells, shares):.2%} / {seconds:.2f}")
            yield (
                f"| {name} | {population.n_people:,} | {len(cells):,} | {k} | {lookup(population, k):.2%} | "
                f"{mondrian(population, k):.2%} | {' | '.join(found)} |"
            )


def synthetic(rows: int, postal: str, k: int, blocks: Sequence[int]) -> Iterator[str]:
    """Lines for synthetic people, by the size of blocks: loss, time and memory.

    Mondrian would take hours.
    """
    yield heading(
        "postal area",
        "people",
        "cells",
        "k",
        "cells of a block",
        "groups",
        "NCP %",
        "CPU s",
        "peak GB",
    )
    frame = table_of(synthetic_rows(rows), postal)
    population = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=list(frame))
    )
    axes, cells, people = index_of(population).axes, population.cells, population.cell_people
    for block in blocks:
        groups.BLOCK = block
        shares, seconds = timed(group_classes, axes, cells, people, k, run=population.run)
        check(people, shares, k)
        found = shares.group.max() + 1, 100 * loss(axes, cells, shares)
        yield (
            f"| {postal} | {rows:,} | {len(cells):,} | {k} | {block:,} | {found[0]:,} | {found[1]:.3f} | {seconds:.0f} "
            f"| {peak():.1f} |"
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    ask = arguments(
        __doc__,
        argv,
        data=DATA,
        tables=TABLES,
        k=[10],
        rows=0,
        postal="nominal",
        blocks=[groups.BLOCK],
    )
    lines = (
        synthetic(ask.rows, ask.postal, ask.k[0], ask.blocks)
        if ask.rows
        else table_rows(ask.tables, ask.data, ask.k)
    )
    for text in lines:
        print(text, flush=True)


if __name__ == "__main__":
    main()
