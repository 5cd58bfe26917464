"""Validity: how often a person who follows the generalised advice gets the desired outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from cfk_plugin.data.model import Goal, Grid, LabelModel, rows_for_cells
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import InputError
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

    |{cells of R with f(cell, private values) = desired}| / |cells of R|, of values that occur in the population
    attribute by attribute, however rare or impossible together; private values are the counterfactual's. The published
    estimate is ``method="sample", n=100``. Source: Goethals, Sörensen, Martens (2023), section 4.

    Parameters
    ----------
    region : Region
    counterfactual : mapping, Series or DataFrame of one row
        With every feature.
    population : Population
    model : estimator or callable
        From rows in the training table's columns and dtypes to labels.
    desired : the desired label, or a callable from labels to booleans
    method : {"auto", "exact", "sample"}
        "auto" is exact up to `cell_budget` combinations and sampled above.
    n, cell_budget : int
        Draws of the sampled method, without replacement; see `method`.
    random_state : int or Generator, optional

    Returns
    -------
    Pureness

    Raises
    ------
    InputError
        If the counterfactual lacks a feature or a setting is out of range.
    ModelError
        If the model fails.
    """
    if method not in ("auto", "exact", "sample") or n < 1 or cell_budget < 1:
        raise InputError("method must be auto, exact or sample; n and cell_budget must be at least 1")
    goal = Goal(desired)
    if goal.is_opposite:
        raise InputError('pureness needs the desired label itself: "opposite" depends on who asks')
    row = _one_row(counterfactual, population)
    own = [int(population.domains[q].encode(row[q])[0][0]) for q in population.schema.quasi_identifiers]
    grid = Grid.of(region, population, own)
    if grid.size == 0:
        raise InputError("the region holds no value combination of the population")
    exact = method == "exact" or (method == "auto" and grid.size <= cell_budget) or n >= grid.size
    cells = grid.all() if exact else grid.sample(n, np.random.default_rng(random_state))
    labels = LabelModel(model, population.schema.features)
    answers = labels(rows_for_cells(population.encoder, row, np.zeros(len(cells), dtype=np.int64), cells))
    goal.check(labels, answers)
    good = int(goal.met(answers).sum())
    value = good / len(cells)
    low, high = (value, value) if exact else clopper_pearson(good, len(cells))
    return Pureness(value, low, high, exact, len(cells))


def _one_row(counterfactual: Mapping[str, Any] | pd.Series | pd.DataFrame, population: Population) -> pd.DataFrame:
    features = population.schema.features
    if isinstance(counterfactual, pd.DataFrame):
        if len(counterfactual) != 1:
            raise InputError("pureness is of one counterfactual; give one row")
        frame = counterfactual
    else:
        frame = pd.DataFrame({name: [counterfactual[name]] for name in features if name in counterfactual})
    if lost := [name for name in features if name not in frame.columns]:
        raise InputError(f"the counterfactual lacks {', '.join(lost)}")
    return population.conform(frame)
