"""Attack what the product releases, with every attack of the threat model, and write one CSV.

Run it from the repository's root: ``python tests/benchmarks/attacks.py --data ../shared/data
[--tables heart,german] [--attacks look-up,posing] [--splits 3] [--k 10] [--output attacks.csv]``.

Each row is one attack on one table. `value` is a chance to be right or an area under the curve
(AUC), with a 95 % interval over the attempts of all splits. `guessing` is what an attacker reaches
without the attack, `control` the same attack where it must work or cannot work, and `limit` what
the promise allows, if it allows anything. What the attacker does, and what the control is, stands
in the docstring of the attack in `attack_scenarios.py`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attack_scenarios import ATTACKS, Attack
from attack_world import Attempts, World

TABLES = ("heart", "german", "cmc", "adult")
COLUMNS = (
    "attack",
    "table",
    "measure",
    "value",
    "low",
    "high",
    "guessing",
    "control",
    "control_low",
    "control_high",
    "n",
    "limit",
)


def row_of(attack: Attack, table: str, worlds: Sequence[World]) -> dict[str, Any]:
    """Attack all worlds, and return one row of the CSV."""
    mains = []
    controls = []
    for world in worlds:
        mains.append(attack.main(world, np.random.default_rng(world.seed)))
        controls.append(attack.control(world, np.random.default_rng(world.seed)))
    main = Attempts.pooled(mains)
    value, low, high = main.interval
    control, control_low, control_high = Attempts.pooled(controls).interval
    guessing = main.guessing.mean() if len(main.guessing) else float("nan")
    figures = (value, low, high, guessing, control, control_low, control_high)
    texts = ["" if np.isnan(figure) else f"{figure:.3f}" for figure in figures]
    limit = attack.limit(worlds[0].k)
    ends = (main.n, "" if limit is None else f"{limit:.3g}")
    cells = (attack.name, table, attack.measure, *texts, *ends)
    return dict(zip(COLUMNS, cells, strict=True))


def rows_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    attacks = [attack for attack in ATTACKS if attack.name in options.attacks]
    for table in options.tables:
        seeds = range(options.splits)
        worlds = [World.load(table, options.data, options.k, seed) for seed in seeds]
        for attack in attacks:
            start = time.process_time()
            row = row_of(attack, table, worlds)
            seconds = time.process_time() - start
            print(*row.values(), f"({seconds:.0f} s)", flush=True)
            yield row


def read_options() -> argparse.Namespace:
    names = [attack.name for attack in ATTACKS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--attacks", default=",".join(names))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("attacks.csv"))
    options = parser.parse_args()
    options.tables = options.tables.split(",")
    options.attacks = options.attacks.split(",")
    if unknown := set(options.attacks) - set(names):
        parser.error(f"no attack is called {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = read_options()
    warnings.simplefilter("ignore")
    with options.output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows_of(options):
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
