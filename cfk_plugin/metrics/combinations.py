"""What a region's value combinations are worth: how many get the outcome, how close they are to the
training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.metrics.intervals import clopper_pearson


@dataclass(frozen=True, slots=True)
class Pureness:
    """Share of a region's value combinations with the desired outcome."""

    value: float  # in [0, 1]; higher is better
    low: float  # ends of the two-sided 95 % Clopper-Pearson interval; equal to `value` when `exact`
    high: float
    exact: bool  # whether every combination was asked
    n: int  # combinations asked


def pureness(
    region: Region,
    counterfactual: Mapping[str, Any] | pd.Series | pd.DataFrame,
    population: Population,
    model: Any,
    desired: Any,
    *,
    method: Literal["auto", "exact", "sample"] = "auto",
    n: int = 1000,
    cell_budget: int = 10_000,
    random_state: int | np.random.Generator | None = None,
) -> Pureness:
    """Return the share of value combinations of a region that the model gives the desired outcome.

    |{cells of R with f(cell, private values) = desired}| / |cells of R|, over all combinations of
    values that occur in the population, however rare or impossible together; private values are the
    counterfactual's. The published estimate is ``method="sample", n=100``. Source: Goethals,
    Sörensen, Martens (2023), section 4.

    Parameters
    ----------
    counterfactual : mapping, Series or DataFrame of one row
        With every feature.
    model : estimator or callable
        From rows in the training table's columns and dtypes to labels.
    desired : the desired label, or a callable from labels to booleans
    method : {"auto", "exact", "sample"}
        "auto" is exact up to `cell_budget` combinations, and sampled above: `n` draws without
        replacement.

    Raises
    ------
    InputError, ModelError
        If the counterfactual lacks a feature or a setting is out of range; if the model fails.
    """
    if method not in ("auto", "exact", "sample") or n < 1 or cell_budget < 1:
        raise InputError(
            "method must be auto, exact or sample; n and cell_budget must be at least 1"
        )
    goal = DesiredOutcome.of(desired)
    goal.require_same_for_all(
        InputError('pureness needs the desired label itself: "opposite" depends on who asks')
    )
    row, grid = _combinations(region, counterfactual, population)
    exact = method == "exact" or (method == "auto" and grid.size <= cell_budget) or n >= grid.size
    cells = grid.all() if exact else grid.sample(n, np.random.default_rng(random_state))
    labels = LabelModel(model, population.schema.features)
    answers = labels(
        rows_for_cells(population.encoder, row, np.zeros(len(cells), dtype=np.int64), cells)
    )
    goal.check(labels.classes, answers)
    good = int(goal.is_met(answers).sum())
    value = good / len(cells)
    low, high = (value, value) if exact else clopper_pearson(good, len(cells))
    return Pureness(value, low, high, exact, len(cells))


@dataclass(frozen=True, slots=True)
class Plausibility:
    """Mean HEOM distance to training rows, in [0, 1] inside the population's ranges; lower is
    closer.
    """

    nearest: float  # to the nearest training row; 0 means native
    nearest_5: float  # to the 5 nearest (all, if fewer)
    n: int  # rows averaged over


def plausibility(rows: pd.DataFrame, population: Population) -> Plausibility:
    """Return how far rows are from the training rows: close is good for the advice and bad for
    privacy.

    Mean over rows of HEOM to the nearest, and of the mean HEOM to the 5 nearest; each duplicate
    counts. Source: Wilson, Martinez (1997), Improved heterogeneous distance functions.

    Parameters
    ----------
    rows : DataFrame of counterfactuals, with every feature of the schema in any order and dtype
    population : Population

    Returns
    -------
    Plausibility, NaN for an empty table
    """
    features = list(population.schema.features)
    if lost := [name for name in features if name not in rows.columns]:
        raise InputError(f"the rows lack {', '.join(lost)}")
    if not len(rows):
        return Plausibility(float("nan"), float("nan"), 0)
    table = population.frame[features]
    _, distances = Heom.of(population).nearest(
        population.conform(rows), table, k=min(5, population.n_rows)
    )
    return Plausibility(float(distances[:, 0].mean()), float(distances.mean()), len(rows))


def region_plausibility(
    region: Region,
    counterfactual: pd.DataFrame,
    population: Population,
    *,
    n: int = 100,
    random_state: int | np.random.Generator | None = None,
) -> Plausibility:
    """Return how far the value combinations that a region stands for are from the training rows.

    Parameters
    ----------
    region : Region
    counterfactual : DataFrame of one row
        Its private values go with every combination.
    population : Population
    n : int
        Combinations drawn without replacement; all, when the region has no more.
    random_state : int or Generator, optional

    Returns
    -------
    Plausibility
    """
    if n < 1:
        raise InputError("n must be at least 1")
    row, grid = _combinations(region, counterfactual, population)
    cells = grid.sample(n, np.random.default_rng(random_state))
    rows = rows_for_cells(population.encoder, row, np.zeros(len(cells), dtype=np.int64), cells)
    return plausibility(rows, population)


def _combinations(
    region: Region,
    counterfactual: Mapping[str, Any] | pd.Series | pd.DataFrame,
    population: Population,
) -> tuple[pd.DataFrame, Grid]:
    """Return a counterfactual as the training table would have it, and the combinations of its
    region.
    """
    features = population.schema.features
    if not isinstance(counterfactual, pd.DataFrame):
        counterfactual = pd.DataFrame(
            {name: [counterfactual[name]] for name in features if name in counterfactual}
        )
    if len(counterfactual) != 1:
        raise InputError("give one counterfactual, as one row")
    if lost := [name for name in features if name not in counterfactual.columns]:
        raise InputError(f"the counterfactual lacks {', '.join(lost)}")
    row = population.conform(counterfactual)
    grid = Grid.of(
        region, population, population.encode(row)[0][0, population.schema.quasi_positions].tolist()
    )
    if grid.size == 0:
        raise InputError("the region holds no value combination of the population")
    return row, grid
