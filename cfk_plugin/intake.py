"""Intake: raw counterfactuals are checked and coded before anything else sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Counterfactual
from cfk_plugin.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN
from cfk_plugin.errors import InputError
from cfk_plugin.population import Population


@dataclass(frozen=True, eq=False, repr=False)
class Intake:
    """Counterfactuals in the population's terms. Host side only; refuses to be pickled.

    Attributes
    ----------
    population : Population
    raw : DataFrame
        The features as they came.
    codes : int32 array, shape (n, n_features)
        Coded features; -1 for a number that no training row has.
    numbers : float64 array, shape (n, n_features)
        Their numbers; NaN for categories.
    faults : tuple
        Per counterfactual None, or the reason and the columns for which it cannot be released.
    """

    population: Population
    raw: pd.DataFrame
    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    faults: tuple[tuple[str, tuple[str, ...]] | None, ...]

    def __len__(self) -> int:
        """Return the number of counterfactuals."""
        return len(self.raw)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold raw counterfactuals."""
        raise InputError("raw counterfactuals refuse to be pickled")

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The features in the training table's order and dtypes, where the values survive that."""
        return self.population.conform(self.raw, self.codes)

    @property
    def quasi_identifiers(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Codes and numbers of the quasi-identifiers alone."""
        schema = self.population.schema
        at = [schema.features.index(name) for name in schema.quasi_identifiers]
        return self.codes[:, at], self.numbers[:, at]

    def take(self, at: NDArray[np.int64]) -> Intake:
        """Return some of the counterfactuals, in better dtypes if only the others stood against it."""
        if len(at) == len(self) and (at == np.arange(len(self))).all():
            return self
        faults = tuple(self.faults[i] for i in at)
        return Intake(self.population, self.raw.take(at), self.codes[at], self.numbers[at], faults)


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


def as_table(counterfactuals: object, population: Population) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return counterfactuals as a table, and the query that each one answers.

    Parameters
    ----------
    counterfactuals : DataFrame or sequence of Counterfactual
        Row i of a table answers query i.
    population : Population

    Raises
    ------
    InputError
        See `require_features`.
    """
    if isinstance(counterfactuals, Sequence) and all(isinstance(c, Counterfactual) for c in counterfactuals):
        frame = pd.DataFrame([dict(c.values) for c in counterfactuals])
        query = np.array([c.query for c in counterfactuals], dtype=np.int64)
        return require_features(frame, population, "counterfactuals"), query
    frame = require_features(counterfactuals, population, "counterfactuals")
    return frame, np.arange(len(frame))


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
    schema, raw = population.schema, frame[list(population.schema.features)].reset_index(drop=True)
    codes, numbers = population.encode(raw)
    n = len(raw)
    at_fault: dict[str, list[list[str]]] = {}

    def fault(reason: str, name: str, rows: NDArray[np.bool_]) -> None:
        columns = at_fault.setdefault(reason, [[] for _ in range(n)])
        for i in np.flatnonzero(rows):
            columns[i].append(name)

    for j, name in enumerate(schema.features):
        attribute, code, number = schema[name], codes[:, j], numbers[:, j]
        fault("invalid_value", name, code == INVALID)
        fault("missing_value", name, code == UNEXPECTED_MISSING)
        if attribute.kind != "numeric" and not population.domains[name].is_open:
            fault("unknown_category", name, code == UNKNOWN)
        if attribute.bounds is not None:
            low, high = attribute.bounds
            with np.errstate(invalid="ignore"):
                fault("outside_domain", name, (number < low) | (number > high))
    faults = [
        next(((reason, tuple(columns[i])) for reason, columns in at_fault.items() if columns[i]), None)
        for i in range(n)
    ]
    return Intake(population, raw, codes, numbers, tuple(faults))
