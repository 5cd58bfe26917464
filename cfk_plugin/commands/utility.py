"""`cfk audit utility`: measure counterfactuals, whatever made them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from cfk_plugin.commands.files import check_report, load_model, read_schema, read_table, write_report
from cfk_plugin.commands.inputs import wanted
from cfk_plugin.data.population import Population
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import Estimate, Utility, utility

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from rich.console import Console

QUERY = "query"
"""Column of the counterfactuals that says which query each answers, where it is no feature."""

_SHOWN = {
    "flipping_ratio": "flipped, of all queries",
    "l1": "to the query, sum",
    "euclidean": "to the query, Euclidean",
    "features_changed": "number",
    "nn1": "to the nearest desired row",
    "nn5": "to the 5 nearest",
    "unseen_pair": "has an unseen value pair",
    "copies": "equals a training row",
    "singled_out": "fits exactly one person",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk audit utility --help``."""

    train: Path
    queries: Path
    counterfactuals: Path
    schema: Path
    model: str
    desired: str
    holdout: Path | None
    output: Path | None
    seed: int


def run(job: Job, out: Console) -> int:
    """Measure, show and write; return 0, or 3 when no query was answered."""
    check_report(job.output)
    train, queries, given = (read_table(path) for path in (job.train, job.queries, job.counterfactuals))
    holdout = None if job.holdout is None else read_table(job.holdout)
    schema = read_schema(job.schema, train)
    population, model = Population.from_frame(train, schema), load_model(job.model)
    found = utility(
        queries,
        given,
        population,
        model=model,
        desired=wanted(job.desired, model, train[list(schema.features)]),
        answered=None if QUERY in schema.features else _answered(given),
        holdout=holdout,
        random_state=job.seed,
    )
    if job.output is not None:
        write_report(job.output, json.dumps(found.to_dict(), indent=1, allow_nan=False))
    _show(found, out)
    return 0 if found.answered else 3


def _answered(given: pd.DataFrame) -> NDArray[np.int64] | None:
    if QUERY not in given.columns or not len(given):
        return None
    if given[QUERY].dtype.kind not in "iu":
        raise InputError(f"column {QUERY!r} of the counterfactuals must hold whole numbers: the query of each, from 0")
    return given[QUERY].to_numpy(dtype=np.int64)


def _show(found: Utility, out: Console) -> None:
    table = Table("figure", "", "value (95 %)", "fresh rows")
    for name, meaning in _SHOWN.items():
        fresh = getattr(found.chance.fresh, name, None) if found.chance is not None else None
        table.add_row(name, meaning, _text(getattr(found, name)), _text(fresh))
    out.print(table)
    out.print(
        f"{found.answered} of {found.queries} queries answered; {found.desired_rows} of {found.training_rows} training "
        "rows have the desired outcome",
        highlight=False,
    )
    chance = found.chance
    if chance is None:
        return
    for name, is_above in found.above_chance.items():
        among = [getattr(chance, f"{name}_{where}") for where in ("train", "holdout")]
        said = (
            "not measured" if is_above is None else "more than chance" if is_above else "not shown to be above chance"
        )
        out.print(
            f"{name}: {_text(among[0])} among {chance.rows} training rows, {_text(among[1])} among as many holdout "
            f"rows: {said}",
            highlight=False,
            soft_wrap=True,
        )


def _text(estimate: Estimate | None) -> str:
    if estimate is None or math.isnan(estimate.value):
        return "–"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
