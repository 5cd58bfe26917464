"""Results stay the same bit for bit: what every method released is kept as digests, made before
code was changed.

Run as a script, it writes the digests anew: ``python tests/paper/test_stored_results.py
../shared/data``.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    Attribute,
    Explanations,
    GeneralizedCounterfactual,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
)
from cfk_plugin.protection import ExactProtector, GraspProtector, MondrianProtector

pytestmark = pytest.mark.full_search

STORED = Path(__file__).with_name("stored_results.json")
KEY = b"a key of the stored results"
LEVELS = ["low", "mid", "high", "top"]
CITIES = ["north", "north east", "south", "south west", "centre"]
TREE = {city: ["upper" if city.startswith("n") else "lower"] for city in CITIES}
SIZES = (2, 5, 10, 20)
TABLES = {
    "heart": SIZES,
    "cmc": SIZES,
    "german": SIZES,
    "informs": (5,),
    "hospital": (20,),
    "adult": (10,),
}
SHORT = ExactProtector(node_limit=400, rounds=4, cell_budget=600)


@dataclass(frozen=True)
class Votes:
    """A model without chance and without floats: each column votes for one of two outcomes."""

    # numbers and dates vote by what is in the middle, texts by their length
    middles: dict[str, Any]
    enough: int = 0  # Votes for the desired outcome

    @classmethod
    def of(cls, table: pd.DataFrame) -> Votes:
        is_text = {
            name: table[name].dtype == object or isinstance(table[name].dtype, pd.StringDtype)
            for name in table
        }
        found = cls(
            {
                name: None if is_text[name] else table[name].quantile(interpolation="lower")
                for name in table
            }
        )
        return replace(found, enough=int(np.sort(found.count(table))[int(0.6 * len(table))]))

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        return (self.count(rows) >= self.enough).astype(int)

    def count(self, rows: pd.DataFrame) -> np.ndarray:
        votes = np.zeros(len(rows), dtype=np.int64)
        for name, middle in self.middles.items():
            of_text = (
                [len(str(value)) % 3 == 0 for value in rows[name]]
                if middle is None
                else rows[name] > middle
            )
            votes += np.asarray(of_text, dtype=bool)
        return votes


@dataclass(frozen=True)
class Table:
    """A population, a model, and what is protected."""

    population: Population
    rows: pd.DataFrame
    model: Votes
    counterfactuals: pd.DataFrame


def generated() -> Table:
    """Return a table with every kind of column, gaps, copies and weights."""
    rng = np.random.default_rng(7)
    n = 90
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "size": rng.normal(170, 12, n).round(1),
            "born": pd.Timestamp("1980-02-28")
            + pd.to_timedelta(rng.integers(0, 3000, n), unit="D"),
            "level": rng.choice(LEVELS, n).astype(object),
            "city": rng.choice(CITIES, n).astype(object),
            "job": rng.choice(list("abcdefg"), n, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05]).astype(
                object
            ),
            "pay": rng.integers(0, 60, n),
            "illness": rng.choice(["a", "bb", "ccc"], n).astype(object),
        }
    )
    for name in ("size", "born", "city", "job", "level"):
        table.loc[table.index[2:][rng.random(n - 2) < 0.08], name] = None
    table = pd.concat([table, table.iloc[rng.integers(0, n, 25)]], ignore_index=True)
    features = table.copy()
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["age", "size", "born", "level", "city", "job"],
        sensitive=["illness"],
        ordinal={"level": LEVELS},
        columns={
            "city": Attribute(hierarchy=TREE),
            "age": Attribute(weight=1.5),
            "born": Attribute(weight=0.5),
            "job": Attribute(weight=2.0),
        },
    )
    return described(table, features, schema, 10)


def published(name: str, folder: Path) -> Table:
    """Return a table of the published experiments."""
    about = json.loads((folder / f"{name}.json").read_text())
    texts = {column["name"]: str for column in about["columns"] if column["type"] != "numeric"}
    table = pd.read_csv(folder / f"{name}.csv.gz", dtype=texts)[about["features"]]
    schema = Schema.from_frame(table, quasi_identifiers=about["quasi_identifiers"])
    return described(table, table, schema, 6)


def described(table: pd.DataFrame, features: pd.DataFrame, schema: Schema, count: int) -> Table:
    """Take counterfactuals from the table; every other one with values of two rows, so that it is
    nobody's.
    """
    rng = np.random.default_rng(3)
    wanted = Votes.of(features)(features) == 1
    found = features[wanted].sample(count, random_state=3).reset_index(drop=True)
    other = features.iloc[rng.integers(0, len(features), count)].reset_index(drop=True)
    for j, name in enumerate(features):
        at = np.flatnonzero((np.arange(count) % 2 == 1) & (rng.random(count) < 0.4))
        found.loc[at, name] = other.loc[at, name]
        if name == "age" and len(at):
            found.loc[at[0], name] = 17 + j  # a number that may be nobody's
    if "size" in found:
        found.loc[1, "size"] = 171.234
    return Table(Population.from_frame(table, schema, key=KEY), table, Votes.of(features), found)


LOOKUP: dict[str, tuple[Any, dict[str, Any]]] = {
    "exact-ncp": ("exact", {"objective": "ncp"}),
    "exact-pureness": (SHORT, {"objective": "pureness"}),
    "exact-bounds": (SHORT, {"objective": "ncp", "min_pureness": 0.6, "max_ncp": 0.3}),
    "exact-few-nodes": (ExactProtector(node_limit=12), {"objective": "ncp"}),
    "exact-few-cells": (ExactProtector(rounds=2, cell_budget=40, threads=2), {}),
    "grasp-pureness": (GraspProtector(iterations=1), {"objective": "pureness"}),
    "grasp-ncp": (
        GraspProtector(alpha=5, iterations=2, samples=20, reuse_answers=True),
        {"objective": "ncp"},
    ),
    "mondrian": ("mondrian", {}),
    "mondrian-raw": (MondrianProtector(normalise=False), {}),
}


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:20]


def of_region(region: Region | None) -> str:
    return "none" if region is None else json.dumps(region.to_dict(), sort_keys=True, default=str)


def of_entries(explanations: Explanations) -> str:
    lines = []
    for entry in explanations:
        if not isinstance(entry, GeneralizedCounterfactual):
            lines.append(json.dumps(entry.to_dict(), default=str))
            continue
        found = entry.certificate
        recount = entry.recount
        gap = None if found.gap is None else found.gap.hex()
        counts = [
            found.k,
            recount.k_consistent,
            recount.k_private,
            recount.private_matches,
            (),  # two figures that were recorded once, and were empty
            (),
        ]
        said = [found.optimal, gap, found.ncp.hex(), found.pureness.hex(), *counts]
        released = {name: str(value) for name, value in entry.released.items()}
        lines.append(f"{of_region(entry.region)} {said} {sorted(released.items())}")
    return digest(lines)


def fitted(
    table: Table, population: Population, k: int, method: Any = "auto", **policy: Any
) -> KAnonymizer:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=k, near_native=0.0, **policy), method=method)
    return anonymizer.fit(population, model=table.model, desired=1)


def of_searches(
    table: Table, sizes: tuple[int, ...], names: Iterable[str] = LOOKUP
) -> dict[str, str]:
    """Return the digests of explanations by each search."""
    found = {}
    for name, k in product(names, sizes):
        method, policy = LOOKUP[name]
        anonymizer = fitted(table, table.population, k, method, guarantee="lookup", **policy)
        found[f"{name}-{k}"] = of_entries(anonymizer.transform(table.counterfactuals))
    return found


def of_generated() -> dict[str, str]:
    return of_searches(generated(), SIZES)


def of_published(name: str, folder: Path) -> dict[str, str]:
    return of_searches(published(name, folder), TABLES[name])


def stored(name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(STORED.read_text())[name]
    return found


def test_of_one_size_of_a_small_published_table(shared_data: Path) -> None:
    table = published("heart", shared_data)
    assert of_searches(table, (10,)).items() <= stored("heart").items()


@pytest.mark.slow
def test_of_a_generated_table() -> None:
    assert of_generated() == stored("generated")


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_of_published_tables(name: str, shared_data: Path) -> None:
    assert of_published(name, shared_data) == stored(name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    made = {"generated": of_generated()} | {
        table: of_published(table, Path(sys.argv[1])) for table in TABLES
    }
    STORED.write_text(json.dumps(made, indent=1) + "\n")
