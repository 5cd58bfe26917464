"""Intake: raw counterfactuals are checked and coded before anything else sees them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.coding import FEW, Reading
from cfk_plugin.data.columns import select, values_of
from cfk_plugin.data.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, InputError


@dataclass(frozen=True, slots=True, repr=False)
class Counterfactual:
    """One raw counterfactual instance. Host side only: its `repr` shows no value.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    values : mapping
        Feature to value.
    """

    query: int
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        """Show which query it answers, never a value."""
        return f"Counterfactual(query={self.query}, {len(self.values)} values withheld)"


# Intake: raw counterfactuals are checked and coded before anything else sees them.

LARGEST = 1e300
"""Largest number that is taken: the difference of any two is still one, and its text can be written."""

_NUMBERS = {bool, int, float, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQefd")}
_DATES = {date, datetime, pd.Timestamp, np.datetime64}
_TEXTS = {str, np.str_}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MISSING = {type(None), type(pd.NA), type(pd.NaT)}


@dataclass(frozen=True, eq=False, repr=False)
class Intake(HostOnly):
    """Counterfactuals in the population's terms. Host side only; refuses to be pickled."""

    population: Population
    raw: pd.DataFrame  # The features as they came
    reading: Reading  # What the features are in the population's terms
    # Per counterfactual None, or the reason and the columns for which it cannot be released
    faults: tuple[tuple[str, tuple[str, ...]] | None, ...]
    plain: list[list[Any]] | None = None  # Values of `frame`, feature by feature, where they are known

    def __len__(self) -> int:
        """Return the number of counterfactuals."""
        return len(self.raw)

    _refusal = InputError, "raw counterfactuals refuse to be pickled"

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The features in the training table's order and dtypes, where the values survive that."""
        return self.population.conform(self.raw, self.reading)

    @cached_property
    def values(self) -> list[list[Any]]:
        """Values of `frame`, feature by feature."""
        if self.plain is not None:
            return self.plain
        return [self.frame[name].tolist() for name in self.frame] if len(self) > FEW else values_of(self.frame)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Coded features, shape (n, n_features); -1 for a number that no training row has."""
        return self.reading.codes

    @property
    def numbers(self) -> NDArray[np.float64]:
        """Their numbers; NaN for categories."""
        return self.reading.numbers

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
        codes, numbers, settled = self.reading
        return Intake(self.population, self.raw.take(at), Reading(codes[at], numbers[at], settled), faults)


def require_features(frame: object, features: Sequence[str], what: str) -> pd.DataFrame:
    """Return a table that has every feature once, or say which columns are at fault."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{what} must be a pandas DataFrame, got {type(frame).__name__}")
    if frame.empty:
        raise InputError(f"{what} must have at least one row and one column")
    if not frame.columns.is_unique:
        doubled = [name for name in features if (frame.columns == name).sum() > 1]
        raise InputError(f"{what}: duplicate columns {doubled or 'outside the schema'}; keep one of each")
    if lost := [name for name in features if name not in frame.columns]:
        raise InputError(f"{what}: missing columns {lost}; every feature of the schema is needed")
    return frame


def as_table(counterfactuals: object, population: Population) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return counterfactuals as a table, and the query that each one answers."""
    if isinstance(counterfactuals, Sequence) and all(isinstance(c, Counterfactual) for c in counterfactuals):
        frame = pd.DataFrame([dict(c.values) for c in counterfactuals])
        query = np.array([c.query for c in counterfactuals], dtype=np.int64)
        return require_features(frame, population.schema.features, "counterfactuals"), query
    frame = require_features(counterfactuals, population.schema.features, "counterfactuals")
    return frame, np.arange(len(frame))


def take_in(frame: pd.DataFrame, population: Population) -> Intake:
    """Check and code a table of counterfactuals; identifiers, label and unknown columns are dropped."""
    raw, odd = _plain_table(select(frame, population.schema.features), population)
    reading = population.read(raw)
    return Intake(population, raw, reading, _faults(population, reading.codes, reading.numbers, odd))


def take_in_records(records: Sequence[Mapping[str, Any]], population: Population) -> Intake:
    """Do as `take_in`, for records of plain values, such as JSON holds; each has every feature."""
    if len(records) > FEW:
        return take_in(
            pd.DataFrame([{name: r[name] for name in population.schema.features} for r in records]), population
        )
    names, domains = population.schema.features, population.domains
    is_odd = [[not _is_plain(record[name], domains[name]) for name in names] for record in records]
    odd = np.array(is_odd, dtype=bool)
    if odd.any():
        records = [
            {name: None if bad else record[name] for name, bad in zip(names, flags, strict=True)}
            for record, flags in zip(records, is_odd, strict=True)
        ]
    raw, reading, plain = population.coding.read_records(records)
    return Intake(population, raw, reading, _faults(population, reading.codes, reading.numbers, odd), plain)


def _plain_table(raw: pd.DataFrame, population: Population) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return a table without the values that cannot be read or written (`_is_plain`), and where they were."""
    odd = np.zeros(raw.shape, dtype=bool)
    for j, (name, dtype) in enumerate(zip(raw.columns, raw.dtypes, strict=True)):
        domain = population.domains[name]
        if _needs_look(dtype, domain):
            odd[:, j] = [not _is_plain(value, domain) for value in raw.iloc[:, j]]
    if not odd.any():
        return raw, odd
    columns = {
        name: raw[name].astype(object).mask(odd[:, j], None) if odd[:, j].any() else raw[name]
        for j, name in enumerate(raw.columns)
    }
    return pd.DataFrame(columns), odd


def _needs_look(dtype: Any, domain: Domain) -> bool:
    """Say whether a column of a dtype may hold what is not plain: one of numbers holds none that `_faults` misses."""
    is_number = domain.attribute.kind == "numeric"
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        return is_number  # all of it can be encoded
    if types.is_datetime64_any_dtype(dtype):
        return is_number and not domain.is_date
    kind = dtype.kind if isinstance(dtype, np.dtype) else "O"
    return kind not in "biuf" or domain.is_date or (kind == "f" and not is_number)


def _is_plain(value: Any, domain: Domain) -> bool:
    """Say whether a value is missing, or of one of the types that its attribute can have and that can be written.

    A closed list: what an explainer or a request holds may be anything, and what is let in here is put on record,
    written as text and sent as JSON without a further look.
    """
    kind = type(value)
    if kind in _MISSING:
        return True
    if kind in _TEXTS:
        return _is_readable(value, domain)
    if kind in _NUMBERS:
        return not domain.is_date and not abs(value) > LARGEST  # a missing one is not larger either
    if kind is Decimal:
        return not domain.is_date and (value.is_qnan() or (value.is_finite() and abs(value) <= LARGEST))
    return kind in _DATES and (domain.is_date or domain.attribute.kind != "numeric")


def _is_readable(text: str, domain: Domain) -> bool:
    """Say whether a text is what its attribute needs: a date, a number, or whatever can be encoded."""
    try:
        if domain.attribute.kind != "numeric":
            return text.isascii() or bool(text.encode())
        return bool(_DATE.match(text)) if domain.is_date else "_" not in text and abs(float(text)) <= LARGEST
    except ValueError:  # lone surrogates cannot be encoded
        return False


def _faults(
    population: Population, codes: NDArray[np.int32], numbers: NDArray[np.float64], odd: NDArray[np.bool_]
) -> tuple[tuple[str, tuple[str, ...]] | None, ...]:
    """Return for each counterfactual None, or the first reason that holds and the columns at fault."""
    attributes = [population.schema[name] for name in population.schema.features]
    listed = np.array([a.kind != "numeric" and not population.domains[a.name].is_open for a in attributes])
    found = {
        "invalid_value": (codes == INVALID) | odd | (np.abs(numbers) > LARGEST),
        "missing_value": codes == UNEXPECTED_MISSING,
        "unknown_category": (codes == UNKNOWN) & listed,
    }
    if any(a.bounds is not None for a in attributes):
        low, high = np.array([a.bounds or (-np.inf, np.inf) for a in attributes], dtype=np.float64).T
        with np.errstate(invalid="ignore"):
            found["outside_domain"] = (numbers < low) | (numbers > high)
    faults: list[tuple[str, tuple[str, ...]] | None] = [None] * len(codes)
    for i in np.flatnonzero(np.any([flags.any(axis=1) for flags in found.values()], axis=0)).tolist():
        reason, flags = next((reason, flags[i]) for reason, flags in found.items() if flags[i].any())
        faults[i] = (reason, tuple(attributes[j].name for j in np.flatnonzero(flags)))
    return tuple(faults)
