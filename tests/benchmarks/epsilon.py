"""What audits of epsilon find: the sound mechanism, mechanisms that are broken, and their ceilings.

.venv/bin/python tests/benchmarks/epsilon.py --runs 2000 .venv/bin/python
tests/benchmarks/epsilon.py --runs 2000 --answers "a missing number"   # whole fits, by their
answers .venv/bin/python tests/benchmarks/epsilon.py --runs 2000 --counts "a missing number"   # the
same, by all noised counts
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from sys import path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import DPPrototypes, Population, Schema
from cfk_plugin.audit import canary_audit, one_run_audit
from cfk_plugin.dp import PublicDomain
from cfk_plugin.dp.audited import Measurements, measured

path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from neighbouring import (
    CANARY,
    domain_from_rows,
    heard,
    people,
    schema,
    valid_rows,
    with_little_noise,
    without_composition,
    without_later_noise,
)
from printing import arguments, heading
from residents import ODD, ORDINARY, RARE, SCHEMA, TABLE, person, published, told

CANARIES = {
    "declared values that nobody else has": RARE,
    "a row like others": ORDINARY,
    "a missing number": ODD["a missing number"],
    "a fraction among whole numbers": ODD["a fraction among whole numbers"],
    "a text among numbers": ODD["a text among numbers"],
    "an undeclared level": ODD["an undeclared level"],
}


def of_fits(names: list[str], epsilons: list[float], runs: int, by_counts: bool) -> None:
    """Audit whole fits by their noised counts or what is drawn and answered, and in one run, at
    `runs` times one.
    """
    print(
        heading("canary", "claimed", "epsilon at least (95 %)", "these runs could show", "verdict")
    )
    for claimed in epsilons:
        for name in names:
            if name == "one run":
                found = max(in_one_run(claimed, seed) for seed in range(runs))
                print(f"| one run, largest of {runs} | {claimed:g} | {found:.2f} | | |", flush=True)
                continue
            canary = person(**CANARIES[name])
            made = counted(claimed) if by_counts else published(claimed)
            score = partial(Measurements.seen, canary=canary) if by_counts else told(canary)
            report = canary_audit(
                made, TABLE, canary, claimed=claimed, runs=runs, score=score, schema=SCHEMA
            )
            print(
                f"| {name} | {claimed:g} | {report.epsilon_low:.2f} | {report.ceiling:.2f} | {report.verdict} |",
                flush=True,
            )


def counted(claimed: float) -> Callable[[pd.DataFrame], Measurements]:
    """Measure as `measuring` does; either table is read once, as nothing random is in that, and
    told by its size.
    """
    read: dict[int, tuple[PublicDomain, NDArray[np.int32]]] = {}

    def fit(table: pd.DataFrame) -> Measurements:
        if len(table) not in read:
            population = Population.from_frame(table, SCHEMA)
            domain = PublicDomain.of(population)
            read[len(table)] = domain, domain.codes_to_count(population, 1)
        return measured(*read[len(table)], claimed)

    return fit


def in_one_run(claimed: float, seed: int) -> float:
    """Return the bound of one fit with 200 canaries, each with a town of its own."""
    towns = [f"t{at}" for at in range(201)]
    table = pd.DataFrame({"town": ["t200"] * 500, "pay": 1})
    canaries = pd.DataFrame({"town": towns[:200], "pay": 0})
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["town"],
        categories={"town": towns, "pay": [0, 1]},
        nullable=[],
        nominal=["pay"],
    )

    def fit(rows: pd.DataFrame) -> pd.DataFrame:
        population = Population.from_frame(rows, schema)
        return (
            DPPrototypes(claimed, rows=20_000)
            .fit(population, lambda x: x["pay"].to_numpy(), 1)
            .served_.frame
        )

    def often(drawn: pd.DataFrame) -> pd.Series:
        return drawn["town"].value_counts().reindex(canaries["town"], fill_value=0).to_numpy(float)

    return one_run_audit(
        fit, table, canaries, claimed=claimed, score=often, schema=schema, seed=seed
    ).epsilon_low


def main() -> None:
    asked = arguments(
        __doc__, runs=400, only=[], epsilon=[0.5, 1.0, 3.0], answers=[""], counts=[""]
    )
    if asked.answers or asked.counts:
        of_fits(asked.counts or asked.answers, asked.epsilon, asked.runs, bool(asked.counts))
        return
    cases = {
        "sound": valid_rows,
        "noise on the number of rows alone": without_later_noise,
        "a fiftieth of the noise": with_little_noise,
        "composition ignored": without_composition,
        "domain read from rows": domain_from_rows,
    }
    print(
        heading(
            "mechanism", "claimed", "epsilon at least (95 %)", "these runs could show", "verdict"
        )
    )
    for name, make in cases.items():
        if asked.only and name not in asked.only:
            continue
        for claimed in asked.epsilon:
            score = None if make is domain_from_rows else heard
            given = None if make is domain_from_rows else schema(people())
            report = canary_audit(
                make(claimed),
                people(),
                CANARY,
                claimed=claimed,
                runs=asked.runs,
                score=score,
                schema=given,
            )
            found = f"{report.epsilon_low:.2f} | {report.ceiling:.2f} | {report.verdict}"
            print(f"| {name} | {claimed:g} | {found} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
