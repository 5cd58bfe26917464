"""Measure what each guarantee costs, and two attacks on it, on the six tables; the figures of
docs/explanation.

Run it from the repository's root: ``python tests/benchmarks/guarantees.py --data FOLDER [--tables
adult,cmc]
[--only cost,snapped,catalogue,several]``. The tables, models and counterfactuals are those of
tests/benchmarks.
"""

from __future__ import annotations

import time
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Interval, KAnonymizer, PrivacyPolicy
from cfk_plugin.data.region import part_contains
from cfk_plugin.errors import LookupGuaranteeWarning
from cfk_plugin.metrics.heom import Heom
from printing import DATA, arguments, heading, line
from tables import TABLES, Case, case

POLICIES = {
    "lookup": {"guarantee": "lookup"},
    # without a floor, which would leave out the regions that cost most
    "reciprocal": {"guarantee": "reciprocal", "min_pureness": 0},
    "catalogue": {"guarantee": "catalogue", "private_values": "exact"},
}
FIGURES = ("k_min", "k_effective_min", "k_desired_min", "k_consistent_min")


def fitted(table: Case, name: str, k: int, *, measure: bool = False) -> KAnonymizer:
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(k=k, **POLICIES[name]), measure_k_effective=measure
    )
    return anonymizer.fit(table.population, table.model, table.desired)


def cost(table: Case, k: int) -> None:
    """Release native counterfactuals under each guarantee, and time what is fixed beforehand."""
    for name in POLICIES:
        started = time.perf_counter()
        anonymizer = fitted(table, name, k, measure=True)
        seconds = time.perf_counter() - started
        s = anonymizer.transform(table.counterfactuals).summary()
        people = " | ".join(str(s[figure]) for figure in FIGURES)
        quality = f"{100 * s['ncp_mean']:.2f} | {100 * s['pureness_mean']:.1f}"
        print(
            f"| {table.name} | {name} | {s['released']} | {quality} | {people} | {seconds:.1f} |",
            flush=True,
        )


def snapped(table: Case, k: int, draws: int = 20) -> None:
    """Give everybody's quasi-identifiers other private values, so that nothing is a training row:
    who gets the same?

    With p_j the share of draws in which person j comes out with a region, an adversary who takes
    the source for j is left with sum_j p_j / max_j p_j people.
    """
    population, random = table.population, np.random.default_rng(0)
    codes, numbers = population.encode(population.frame)
    private = [population.schema.features.index(name) for name in population.schema.private]
    cell_of = population.cell_of(np.arange(len(codes)))
    partition = fitted(table, "reciprocal", k).guarantee_.partition
    number = {region: i for i, region in enumerate(dict.fromkeys(partition.regions))}
    index = np.array([number[region] for region in partition.regions])
    hits = np.zeros((len(population.cells), len(number)))
    for _ in range(draws):
        order = random.permutation(len(codes))
        changed, moved = codes.copy(), numbers.copy()
        changed[:, private], moved[:, private] = (
            codes[order][:, private],
            numbers[order][:, private],
        )
        side = np.zeros(len(codes), dtype=np.int64)
        np.add.at(hits, (cell_of, index[partition.group_of(changed, moved, side)]), 1.0)
    people = np.bincount(cell_of, minlength=len(hits))
    share = hits / (people * draws)[:, None]
    left = (people @ share) / share.max(axis=0).clip(min=1e-12)
    left = left[share.max(axis=0) > 0]
    shares = f"{100 * np.mean(left < k - 0.5):.1f} | {100 * np.mean(left < 1.5):.1f}"
    print(
        f"| {table.name} | {left.min():.1f} | {np.median(left):.0f} | {shares} |",
        flush=True,
    )


def catalogue(table: Case, k: int) -> None:
    """Take each member of a released group for the counterfactual: who is answered with the same
    entry?
    """
    anonymizer = fitted(table, "catalogue", k)
    population, partition = table.population, anonymizer.guarantee_.partition
    left = []
    for entry in anonymizer.transform(table.counterfactuals).released:
        members = population.rows(partition.rows_mapped_to(entry.region)).reset_index(drop=True)
        tried = members.assign(**entry.released)[list(population.schema.features)]
        answers = anonymizer.transform(tried).released
        left.append(
            sum(
                a.region == entry.region and dict(a.released) == dict(entry.released)
                for a in answers
            )
        )
    size = np.array(left)
    shares = f"{100 * np.mean(size < k):.0f} | {100 * np.mean(size <= 1):.0f}"
    figures = len(anonymizer.guarantee_.catalogue), size.min(), f"{np.median(size):.0f}"
    print(line(table.name, *figures, shares), flush=True)


def apart(table: Case, query: dict[str, Any], parts: dict[str, Any]) -> float:
    """HEOM, summed over the features, from a query to the nearest point of what was released."""
    total = 0.0
    for name, part in parts.items():
        domain, value = table.population.domains[name], query[name]
        if domain.attribute.kind == "numeric" and part.low is not None and not pd.isna(value):
            width = domain.values[-1] - domain.values[0]
            total += max(0.0, part.low - value, value - part.high) / width if width else 0.0
        else:
            total += not part_contains(part, value)
    return total


def several(table: Case, k: int, answers: int = 4) -> None:
    """Answer each query several times: each answer by itself, those to a query together, and begun
    at the query.
    """
    anonymizer, queries = (
        fitted(table, "catalogue", k),
        table.queries[list(table.population.schema.features)],
    )
    explainer = NearestUnlikeNeighbour(table.population.frame, table.model, desired=table.desired)
    train = table.population.frame
    unlike = train[explainer.predicted == table.desired].drop_duplicates()
    heom = Heom.fit(train)
    nearest = heom.nearest(heom.encode(queries), heom.encode(unlike), k=answers)[0]
    found = unlike.iloc[nearest.reshape(-1)].reset_index(drop=True)
    query = np.repeat(np.arange(len(queries)), answers)
    asked = queries.take(query).reset_index(drop=True)
    ways = {
        "each by itself": anonymizer.pipeline_.release(
            found, np.arange(len(query)), factuals=asked
        )[0],
        "together": anonymizer.pipeline_.release(found, query, factuals=asked)[0],
        "at the query": [*anonymizer.explain(queries, answers=answers)],
    }
    heom = Heom.of(table.population)
    for name, entries in ways.items():
        equal, left, near, far, unlike, spread = [], [], [], [], [], []
        for i, own in enumerate(queries.to_dict("records")):
            given = [e for e in entries[i * answers : (i + 1) * answers] if e.status == "released"]
            points = pd.DataFrame(
                [nearest_point(own, e.parts()) for e in given], columns=list(queries)
            )
            away = heom.distances(points, points) * len(own)
            same = [(a, b) for a, b in combinations(given, 2) if a.released == b.released]
            equal.append(any(a.region == b.region for a, b in same))
            left.append([in_both(table, a, b) for a, b in same if a.region != b.region])
            near += [apart(table, own, e.parts()) for e in given]
            far += [*away[np.triu_indices(len(away), 1)]]
            unlike += [(x != y).sum() for x, y in combinations(points.astype(str).to_numpy(), 2)]
            spread.append(np.linalg.det(1 / (1 + away)))
        few = np.mean([min(people, default=k) < k for people in left])
        fewest = min((people for each in left for people in each), default="–")
        means = f"{np.mean(near):.2f} | {np.mean(far):.2f} | {np.mean(unlike):.1f} | {np.mean(spread):.2f}"
        shares = f"{len(near) / len(queries):.1f} | {100 * np.mean(equal):.0f} % | {100 * few:.0f} % | {fewest}"
        print(f"| {table.name} | {name} | {shares} | {means} |", flush=True)


def in_both(table: Case, one: Any, other: Any) -> int:
    """Count people of both regions whom the model gives the outcome with the private values that
    the two share.
    """
    rows = np.intersect1d(
        one.region.members(table.population), other.region.members(table.population)
    )
    people = table.population.frame.take(rows).assign(**one.released)
    return int((table.model.predict(people) == table.desired).sum()) if len(rows) else 0


def nearest_point(query: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, part in parts.items():
        if part_contains(part, query[name]):
            found[name] = query[name]
        elif isinstance(part, Interval) and part.low is not None:
            found[name] = part.low if pd.isna(query[name]) or query[name] < part.low else part.high
        else:
            found[name] = min(part, key=str) if not isinstance(part, Interval) else None
    return found


COST = (
    "guarantee",
    "released",
    "NCP %",
    "pureness %",
    "k",
    "k effective",
    "k desired",
    "k consistent",
    "fit s",
)
SEVERAL = (
    "answers",
    "given",
    "two equal",
    "two leave fewer than k",
    "fewest left",
    "distance",
    "apart",
    "unlike",
    "det",
)
WHAT = {
    "cost": (cost, COST),
    "snapped": (snapped, ("least", "median", "regions below k, %", "alone, %")),
    "several": (several, SEVERAL),
    "catalogue": (catalogue, ("entries", "least", "median", "below k, %", "alone, %")),
}


def main() -> None:
    options = arguments(__doc__, data=DATA, tables=TABLES, only=list(WHAT), k=10, limit=50)
    warnings.simplefilter("ignore", LookupGuaranteeWarning)
    for name in options.only:
        measure, head = WHAT[name]
        print("\n" + heading("table", *head), flush=True)
        for table in options.tables:
            measure(case(table, options.data, options.limit), options.k)


if __name__ == "__main__":
    main()
