"""The plain tree: what `DPPrototypes` is compared with, at the same budget and from the same
noise.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cfk_plugin import Population
from cfk_plugin.dp import PublicDomain
from cfk_plugin.dp.forest import Edge, Forest, _on_simplex
from cfk_plugin.dp.noise import Marginal, PrivateRows


def plain_tree_codes(population: Population, epsilon: float, rows: int) -> NDArray[np.int32]:
    """Draw rows from one-way counts, a spanning tree by report-noisy-max, and its two-way
    counts.
    """
    domain = PublicDomain.of(population)
    turns = len(domain.columns) - 1
    asked = PrivateRows(
        domain.codes_to_count(population, 1), epsilon, 0.0, [0.2, *[0.2 / turns] * turns, 0.6]
    )
    return measure(asked, domain.sizes).sample(rows, np.random.default_rng())


def measure(rows: PrivateRows, sizes: tuple[int, ...]) -> Forest:
    """Measure a spanning tree, whatever its edges are worth."""
    own = tuple(np.arange(size, dtype=np.int32) for size in sizes)
    noised = rows.counts([Marginal([j], [codes]) for j, codes in enumerate(own)])
    people = max(1.0, float(np.mean([counts.sum() for counts in noised])))
    single = tuple(_on_simplex(counts, people) for counts in noised)
    expected = rows.magnitude(rows.scale(len(sizes) - 1, 0.6))
    alone = Forest(people, single, own)
    tables = {(a, b): alone.pair(a, b) for a, b in combinations(range(len(sizes)), 2)}
    part_of, chosen = list(range(len(sizes))), []
    for _ in range(len(sizes) - 1):
        pairs = [(a, b) for a, b in tables if part_of[a] != part_of[b]]

        def scores(codes: NDArray[np.int32], pairs: list[tuple[int, int]] = pairs) -> list[float]:
            gaps = [np.abs(tables[p].count(codes) - alone.independent(*p)).sum() for p in pairs]
            return [
                float(gap) - expected * tables[p].cells for gap, p in zip(gaps, pairs, strict=True)
            ]

        a, b = pairs[rows.best(scores)]
        chosen.append((a, b))
        part_of = [part_of[a] if part == part_of[b] else part for part in part_of]
    counted = rows.counts([tables[pair] for pair in chosen])
    edges = [
        Edge(*pair, _on_simplex(counts, people))
        for pair, counts in zip(chosen, counted, strict=True)
    ]
    return replace(alone, edges=tuple(edges))
