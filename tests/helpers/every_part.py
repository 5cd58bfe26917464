"""Small random tables, and every way to generalise one of their values: what searches are held
against.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import Attribute, Population, Schema

LEVELS = ["low", "mid", "high", "top"]
TREE = {
    "a": ["x", "l"],
    "b": ["x", "l"],
    "c": ["y", "l"],
    "d": ["y", "l"],
    "e": ["z", "r"],
    "f": ["z", "r"],
}
KINDS = ["number", "level", "leaf", "name"]


def people(rng: np.random.Generator, n: int) -> Population:
    """Return people with one to four quasi-identifiers; values of some are missing."""
    kinds = rng.choice(KINDS, int(rng.integers(1, 5)))
    table = pd.DataFrame(index=range(n))
    for j, kind in enumerate(kinds):
        points = np.sort(rng.choice(40, int(rng.integers(1, 7)), replace=False)).astype(float)
        values = {
            "number": points,
            "level": LEVELS,
            "leaf": list(TREE),
            "name": list("pqrst")[: len(points)],
        }[kind]
        column = rng.choice(np.array(values, dtype=object), n)
        column[1:][rng.random(n - 1) < rng.choice([0, 0.2])] = None
        table[f"{kind}{j}"] = column.astype(float) if kind == "number" else column
    weights = rng.dirichlet(np.ones(len(kinds))) if rng.random() < 0.5 else np.ones(len(kinds))
    schema = Schema.from_frame(
        table.assign(pay=1),
        quasi_identifiers=list(table),
        ordinal={name: LEVELS for name in table if name.startswith("level")},
        columns={
            name: Attribute(hierarchy=TREE if name.startswith("leaf") else None, weight=weight)
            for name, weight in zip(table, weights, strict=True)
        },
    )
    return Population.from_frame(table.assign(pay=1), schema)


def parts_with(own: Any, column: pd.Series) -> dict[frozenset[Any], float]:
    """Return all ways to generalise a value: what is inside, and the share of the attribute that is
    lost.
    """
    return dict(_parts(own, str(column.name)[:-1], column))


def _parts(own: Any, kind: str, column: pd.Series) -> Iterator[tuple[frozenset[Any], float]]:
    values, gaps = sorted(column.dropna().unique()), [None] * int(column.isna().any())
    if kind == "name":
        every = [*values, *gaps]
        for size in range(len(every)):
            for extra in itertools.combinations([v for v in every if v != own], size):
                yield frozenset({own, *extra}), (size + 1) / len(every) if size else 0.0
    elif kind == "leaf":
        yield frozenset({own}), 0.0
        for node in TREE[own] if own is not None else ():
            under = [leaf for leaf, path in TREE.items() if node in path]
            yield frozenset(under), len(under) / len([*TREE, *gaps])
        if gaps or own is None:
            yield frozenset([*TREE, None]), 1.0
        yield (
            frozenset(TREE if own is not None else [*TREE, None]),
            len(TREE) / len([*TREE, *gaps]) if own else 1.0,
        )
    else:
        yield from _ranges(
            own, values if kind == "number" else LEVELS, bool(gaps), is_level=kind == "level"
        )


def _ranges(
    own: Any, values: list[Any], gaps: bool, *, is_level: bool
) -> Iterator[tuple[frozenset[Any], float]]:
    low, width = (
        (0, 3) if is_level else (min(values, default=0.0), np.ptp(values) if values else 0.0)
    )
    known = values if own is None or is_level else sorted({*values, own})
    place = {
        v: ((i if is_level else v) - low) / width if width else 0.0 for i, v in enumerate(known)
    }
    if own is None:
        yield frozenset({None}), 0.0
    for first, last in itertools.combinations_with_replacement(known, 2):
        if own is None or place[first] <= place[own] <= place[last]:
            inside = [v for v in known if place[first] <= place[v] <= place[last]]
            if own is not None:
                yield frozenset(inside), min(1.0, place[last] - place[first])
            if gaps:
                yield frozenset([*inside, None]), 1.0


def plain(value: Any) -> Any:
    return None if pd.isna(value) else value
