"""Whether the entries of a catalogue alone tell who is in the table, with and without a margin.

Run it from the repository's root: ``python tests/benchmarks/entries_alone.py --data FOLDER
[--tables heart,german,cmc,informs] [--splits 3]``. The attacker has the entries and a person's
private values, and scores the person by the distance to the nearest entry. Members are training
rows with the outcome, the others test rows with it. Printed is the AUC, 0.5 by chance.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from tables import LEAVES, forest, read, split


def distance_to_nearest(people: pd.DataFrame, entries: pd.DataFrame, rows: pd.DataFrame) -> Any:
    """Return the summed HEOM distance of each person to the nearest entry; shape (n_people,).

    `rows` set the ranges of numbers.
    """
    total = np.zeros((len(people), len(entries)))
    for name in entries:
        if pd.api.types.is_numeric_dtype(rows[name]):
            width = max(float(np.ptp(rows[name].dropna())), 1e-9)
            own = people[name].to_numpy(dtype=float)
            offered = entries[name].to_numpy(dtype=float)
            gap = np.abs(own[:, None] - offered) / width
            total += np.nan_to_num(gap, nan=1.0).clip(max=1.0)
        else:
            own = people[name].astype(str).to_numpy()
            total += own[:, None] != entries[name].astype(str).to_numpy()
    return total.min(axis=1)


def auc(name: str, data: Path, seed: int, margin: Any) -> float:
    """Return the attack's AUC on one split of one table."""
    frame, about = read(name, data)
    features = about["features"]
    desired = about["desired_outcome"]
    train, test = split(frame, 0.6, seed)
    model = forest(train[features], train[about["target"]], seed, max_leaf_nodes=LEAVES[name])
    schema = Schema.from_frame(train[features], quasi_identifiers=about["quasi_identifiers"])
    population = Population.from_frame(train[features], schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(margin=margin)).fit(population, model, desired)
    entries = anonymizer.guarantee_.catalogue.private
    members, others = (
        table[features][model.predict(table[features]) == desired] for table in (train, test)
    )
    scores = [-distance_to_nearest(people, entries, train) for people in (members, others)]
    is_member = np.repeat([1, 0], [len(members), len(others)])
    return float(roc_auc_score(is_member, np.concatenate(scores)))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", default="heart,german,cmc,informs")
    parser.add_argument("--splits", type=int, default=3)
    given = parser.parse_args()
    print("| table | `margin=0` | default |\n|---|---|---|")
    for name in given.tables.split(","):
        cells = []
        for margin in (0.0, "auto"):
            figures = [auc(name, given.data, seed, margin) for seed in range(given.splits)]
            cells.append(f"{np.mean(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
