"""Intake: raw counterfactuals are checked and coded before anything else sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN
from cfk_plugin.errors import InputError
from cfk_plugin.population import Population


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Intake:
    """Counterfactuals in the population's terms. Host side only: it refuses to be pickled, like the population.

    Attributes
    ----------
    population : Population
    frame : DataFrame
        The features, in the training table's order and dtypes where the values survive that.
    codes : int32 array, shape (n, n_quasi_identifiers)
        Coded quasi-identifiers; -1 for a number that no training row has.
    numbers : float64 array, shape (n, n_quasi_identifiers)
        Their numbers.
    faults : tuple
        Per counterfactual None, or the reason and the columns for which it cannot be released.
    """

    population: Population
    frame: pd.DataFrame
    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    faults: tuple[tuple[str, tuple[str, ...]] | None, ...]

    def take(self, at: NDArray[np.int64]) -> Intake:
        """Return some of the counterfactuals, in better dtypes if only the others stood against it."""
        frame = self.population.conform(self.frame.take(at))
        return Intake(self.population, frame, self.codes[at], self.numbers[at], tuple(self.faults[i] for i in at))


def require_features(frame: object, population: Population, what: str) -> pd.DataFrame:
    """Return a table that has every feature once, or say which columns are at fault.

    Raises
    ------
    InputError
        If it is no DataFrame, has no rows, or columns are missing or doubled.
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{what} must be a pandas DataFrame, got {type(frame).__name__}")
    if frame.empty:
        raise InputError(f"{what} must have at least one row and one column")
    if not frame.columns.is_unique:
        doubled = [name for name in population.schema.features if (frame.columns == name).sum() > 1]
        raise InputError(f"{what}: duplicate columns {doubled or 'outside the schema'}; keep one of each")
    if lost := [name for name in population.schema.features if name not in frame.columns]:
        raise InputError(f"{what}: missing columns {lost}; every feature of the schema is needed")
    return frame


def take_in(frame: pd.DataFrame, population: Population) -> Intake:
    """Check and code a table of counterfactuals; identifiers, label and unknown columns are dropped.

    Parameters
    ----------
    frame : DataFrame
        Has every feature of the schema (`require_features`).
    population : Population

    Returns
    -------
    Intake
    """
    schema = population.schema
    conformed = population.conform(frame)
    coded = {name: population.domains[name].encode(frame[name]) for name in schema.features}
    n = len(frame)
    at_fault: dict[str, list[list[str]]] = {}

    def fault(reason: str, name: str, rows: NDArray[np.bool_]) -> None:
        columns = at_fault.setdefault(reason, [[] for _ in range(n)])
        for i in np.flatnonzero(rows):
            columns[i].append(name)

    for name, (codes, numbers) in coded.items():
        attribute = schema[name]
        fault("invalid_value", name, codes == INVALID)
        fault("missing_value", name, codes == UNEXPECTED_MISSING)
        if attribute.kind != "numeric":
            fault("unknown_category", name, codes == UNKNOWN)
        if attribute.bounds is not None:
            low, high = attribute.bounds
            with np.errstate(invalid="ignore"):
                fault("outside_domain", name, (numbers < low) | (numbers > high))
    faults = [
        next(((reason, tuple(columns[i])) for reason, columns in at_fault.items() if columns[i]), None)
        for i in range(n)
    ]
    return Intake(
        population,
        conformed,
        np.column_stack([coded[q][0] for q in schema.quasi_identifiers]),
        np.column_stack([coded[q][1] for q in schema.quasi_identifiers]),
        tuple(faults),
    )
