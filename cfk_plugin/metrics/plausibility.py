"""Plausibility: how close explanations are to the training data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.model import Grid, rows_for_cells
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom


@dataclass(frozen=True, slots=True)
class Plausibility:
    """Mean HEOM distance to training rows, in [0, 1] inside the population's ranges; lower is closer."""

    nearest: float  # to the nearest training row; 0 means native
    nearest_5: float  # to the 5 nearest (all, if fewer)
    n: int  # rows averaged over


def plausibility(rows: pd.DataFrame, population: Population) -> Plausibility:
    """Return how far rows are from the training rows: close is good for the advice and bad for privacy.

    Mean over rows of HEOM to the nearest, and of the mean HEOM to the 5 nearest; duplicates count each. Source: Wilson,
    Martinez (1997), Improved heterogeneous distance functions.

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
    _, distances = Heom.of(population).nearest(population.conform(rows), table, k=min(5, population.n_rows))
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
        Whose private values go with every combination.
    population : Population
    n : int
        Combinations drawn without replacement; all, when the region has no more.
    random_state : int or Generator, optional

    Returns
    -------
    Plausibility
    """
    if len(counterfactual) != 1 or n < 1:
        raise InputError("give one counterfactual, and n >= 1")
    if lost := [name for name in population.schema.features if name not in counterfactual.columns]:
        raise InputError(f"the counterfactual lacks {', '.join(lost)}")
    row = population.conform(counterfactual)
    own = [int(population.domains[q].encode(row[q])[0][0]) for q in population.schema.quasi_identifiers]
    grid = Grid.of(region, population, [code if code >= 0 else UNKNOWN for code in own])
    if grid.size == 0:
        raise InputError("the region holds no value combination of the population")
    cells = grid.sample(n, np.random.default_rng(random_state))
    rows = rows_for_cells(population.encoder, row, np.zeros(len(cells), dtype=np.int64), cells)
    return plausibility(rows, population)
