"""Tables of rows: which columns they have, and how rows and columns are selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.values import as_pandas
from cfk_plugin.errors import InputError, rename_hint, shown

COPIES_EAGERLY = int(pd.__version__.split(".")[0]) < 3  # pandas 3 copies on write
FEW = 32
"""Rows up to which a loop over values is faster than pandas' machinery."""

LARGEST = 1e300
"""Largest number that is accepted: the difference of any two is finite, and it can be written as
text.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Counterfactual:
    """One raw counterfactual, which must not leave the data holder. Its `repr` shows no value.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    values : mapping of feature to value
    """

    query: int
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Counterfactual(query={self.query}, {len(self.values)} values withheld)"


def require_features(frame: object, features: Sequence[str], table_name: str) -> pd.DataFrame:
    """Return a table as pandas; raise an InputError unless it has rows and every feature once."""
    if not isinstance(frame, pd.DataFrame) and not isinstance(
        frame := as_pandas(frame), pd.DataFrame
    ):
        raise InputError(
            f"{table_name} must be a table (pandas, polars or pyarrow), got"
            f" {type(frame).__name__}; give a table with a column for each feature, such as"
            " pd.DataFrame(rows, columns=population.schema.features); one row of a table is"
            " table.iloc[[0]]"
        )
    if frame.empty:
        raise InputError(f"{table_name} must have at least one row and one column")
    names = frame.columns.tolist()
    if not frame.columns.is_unique:
        doubled = [name for name in features if names.count(name) > 1]
        raise InputError(
            f"{table_name}: duplicate columns {doubled or 'outside the schema'}; keep one of each"
        )
    if not set(features).issubset(names):
        missing_features = [name for name in features if name not in names]
        hint = rename_hint(missing_features, names, features)
        raise InputError(
            f"{table_name}: missing columns {missing_features}{hint}; every feature of the schema"
            " is needed"
        )
    return frame


def require_person(factual: object, features: Iterable[str]) -> None:
    """Raise an InputError unless `factual` has one person's value of every feature."""
    if not isinstance(factual, (Mapping, pd.Series)):
        raise InputError(
            "factual must be one person's values, a mapping or a Series by feature, got"
            f" {type(factual).__name__}; give one row of the queries, such as"
            " queries.iloc[entry.query]"
        )
    if missing_features := [name for name in features if name not in factual]:
        raise InputError(
            f"factual: missing features {missing_features}; give the person's value of each"
        )


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return a setting as an int; raise an InputError unless it is a whole number >= `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}, got {shown(value)}")
    return int(value)


def as_table(
    counterfactuals: object, features: Sequence[str]
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return counterfactuals as a table, and the position of the query that each one answers."""
    if isinstance(counterfactuals, Sequence) and all(
        isinstance(c, Counterfactual) for c in counterfactuals
    ):
        frame = pd.DataFrame([dict(c.values) for c in counterfactuals])
        query = np.array([c.query for c in counterfactuals], dtype=np.int64)
        return require_features(frame, features, "counterfactuals"), query
    frame = require_features(counterfactuals, features, "counterfactuals")
    return frame, np.arange(len(frame))


def select(frame: pd.DataFrame, names: Sequence[str], *, renumber: bool = True) -> pd.DataFrame:
    """Return the named columns, in this order, with rows numbered from 0.

    If the table has this form already, it is returned itself. With ``renumber=False`` the rows
    keep their index.
    """
    if not frame.columns.is_(_header(tuple(names))) and frame.columns.tolist() != list(names):
        frame = frame[list(names)]
    index = frame.index
    if not renumber or (isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1):
        return frame
    return frame.reset_index(drop=True)


def one_row(frame: pd.DataFrame, position: int) -> pd.DataFrame:
    """Return one row as a table with the index 0."""
    # a slice is faster than picking rows by a list
    row = frame.iloc[position : position + 1].copy(deep=COPIES_EAGERLY)
    row.index = pd.RangeIndex(1)
    return row


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table with these columns, which are not copied."""
    # pandas 3 would convert an array of objects to text, but not a Series.
    arrays = (pd.Series(a, dtype=object) if _has_objects(a) else a for a in columns.values())
    frame = pd.DataFrame(dict(enumerate(arrays)), copy=False)
    frame.columns = _header(tuple(columns)).view()
    return frame


def _has_objects(array: Any) -> bool:
    """Return True for an array of the dtype object."""
    return (
        isinstance(array, (np.ndarray, pd.arrays.NumpyExtensionArray)) and array.dtype == "object"
    )


@lru_cache
def _header(names: tuple[str, ...]) -> pd.Index:
    """Return column names as an index; the cache saves time, as an index is slow to make."""
    return pd.Index(names)
