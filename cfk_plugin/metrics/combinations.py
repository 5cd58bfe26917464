"""What a region's value combinations are worth: how many get the outcome, how close they are to the
training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Floats, mixed
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
    row, options = _combinations(region, counterfactual, population)
    n_combinations = prod(map(len, options))
    is_exact = method == "exact" or n >= n_combinations
    is_exact |= method == "auto" and n_combinations <= cell_budget
    quasi = mixed(options) if is_exact else _drawn(options, n, random_state)
    label_model = LabelModel(model, population.schema.features)
    labels = label_model(_rows(quasi, row, population))
    goal.check(label_model.classes, labels)
    n_desired = int(goal.is_met(labels).sum())
    value = n_desired / len(quasi)
    low, high = (value, value) if is_exact else clopper_pearson(n_desired, len(quasi))
    return Pureness(value, low, high, is_exact, len(quasi))


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
    row, options = _combinations(region, counterfactual, population)
    quasi = _drawn(options, n, random_state)
    return plausibility(_rows(quasi, row, population), population)


def _combinations(
    region: Region,
    counterfactual: Mapping[str, Any] | pd.Series | pd.DataFrame,
    population: Population,
) -> tuple[Floats, list[Floats]]:
    """Return a counterfactual, shape (n_features,), and the values of its region.

    A number of the counterfactual that no training row has is one more value.
    """
    codes = population.row_codes
    if not isinstance(counterfactual, pd.DataFrame):
        counterfactual = pd.DataFrame(
            {name: [counterfactual[name]] for name in codes.names if name in counterfactual}
        )
    if len(counterfactual) != 1:
        raise InputError("give one counterfactual, as one row")
    if lost := [name for name in codes.names if name not in counterfactual.columns]:
        raise InputError(f"the counterfactual lacks {', '.join(lost)}")
    row = codes.encode(counterfactual)[0]
    if np.isnan(row).any():
        names = [name for name, code in zip(codes.names, row, strict=True) if np.isnan(code)]
        raise InputError(
            f"the counterfactual has values that the population lacks: {', '.join(names)}"
        )
    options = codes.options(region)
    if not all(map(len, options)):
        raise InputError("the region holds no value combination of the population")
    for place, j in enumerate(codes.quasi.tolist()):
        is_new = row[j] not in codes.columns[j].places
        if is_new and codes.columns[j].has_value(region[codes.names[j]], row[j]):
            options[place] = np.union1d(options[place], row[[j]])
    return row, options


def _drawn(options: list[Floats], n: int, random_state: int | np.random.Generator | None) -> Floats:
    """Return n different combinations, drawn uniformly, or all if there are not more.

    The shape is (n_combinations, n_quasi).
    """
    sizes = [len(values) for values in options]
    if n >= prod(sizes):
        return mixed(options)
    random = np.random.default_rng(random_state)
    combinations: dict[tuple[int, ...], None] = {}
    while len(combinations) < n:  # rejection needs little memory, however large the region is
        picks = [random.integers(0, size, n).tolist() for size in sizes]
        combinations |= dict.fromkeys(zip(*picks, strict=True))
    places = np.array(list(combinations)[:n])
    columns = [values[place] for values, place in zip(options, places.T, strict=True)]
    return np.column_stack(columns)


def _rows(quasi: Floats, row: Floats, population: Population) -> pd.DataFrame:
    """Return combinations, shape (n, n_quasi), with a row's private values, as the model takes
    them.
    """
    codes = population.row_codes
    return codes.decode(codes.rows_of(quasi, row[codes.private]))
