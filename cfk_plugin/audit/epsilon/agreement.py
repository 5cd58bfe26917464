"""What a table that was released has in common with a canary, as numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.region import to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import is_numeric, to_numbers

Floats = NDArray[np.float64]
_NEAR = 0.05  # numbers within this share of the column's range agree


class Agreement:
    """Counts of released rows that agree with a canary in every column and pair of columns.

    A mechanism that draws rows from counts of one or two columns shows a canary there and nowhere else. Numbers agree
    within 5 % of the column's range; their mean and ends are in the vector as well, and so is the number of rows.

    Parameters
    ----------
    table : DataFrame
        The training rows, for the ranges.
    canary : DataFrame
        In the table's dtypes.
    schema : Schema, optional
        Says which numbers are codes of categories.
    """

    def __init__(self, table: pd.DataFrame, canary: pd.DataFrame, schema: Schema | None = None) -> None:
        self._canary = canary
        self._columns = _columns(table, schema)
        self._reach = {name: _reach(table[name], canary[name]) for name, numeric in self._columns.items() if numeric}

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Agreement({len(self._canary)} rows, {len(self._columns)} columns)"

    def __call__(self, released: pd.DataFrame) -> Floats:
        """Return the counts of one released table, a column that it lacks as one without agreement."""
        parts: list[Floats] = [np.array([len(released)], dtype=np.float64)]
        upper = np.triu_indices(len(self._columns))
        for at in range(len(self._canary)):
            agrees = np.column_stack([self._agrees(released, name, at) for name in self._columns]).astype(np.float64)
            most = agrees.sum(axis=1)
            parts += [(agrees.T @ agrees)[upper], np.array([(most == len(self._columns)).sum(), most.max(initial=0.0)])]
        for name in self._reach:
            if name in released.columns:
                numbers, _ = to_numbers(released[name])
                seen = numbers[np.isfinite(numbers)]
                parts.append(np.array([seen.mean(), seen.min(), seen.max()]) if len(seen) else np.zeros(3))
        return np.concatenate(parts)

    def _agrees(self, released: pd.DataFrame, name: str, at: int) -> NDArray[np.bool_]:
        if name not in released.columns:
            return np.zeros(len(released), dtype=bool)
        if name in self._reach:
            own = float(to_numbers(self._canary[name].iloc[[at]])[0][0])
            numbers, _ = to_numbers(released[name])
            return np.isnan(numbers) if np.isnan(own) else np.abs(numbers - own) <= self._reach[name]
        own_text = _texts(self._canary[name].iloc[[at]])[0]
        codes, values = pd.factorize(released[name], use_na_sentinel=False)
        return np.isin(codes, np.flatnonzero(_texts(pd.Series(values, dtype=object)) == own_text))


class ManyAgreements:
    """One number per canary: how much more often than before its values, and pairs of them, are released.

    Parameters
    ----------
    table : DataFrame
        The training rows without any canary.
    canaries : DataFrame
        In the table's dtypes.
    schema : Schema, optional

    Notes
    -----
    Sum over columns, pairs of columns and whole rows of (after - before) / sqrt(before + 1 / rows), where before and
    after are shares of the rows of the table and of the release that agree with the canary there.
    Numbers are compared in 20 equal bins of the column's range.
    """

    def __init__(self, table: pd.DataFrame, canaries: pd.DataFrame, schema: Schema | None = None) -> None:
        self._table, self._canaries = table, canaries
        self._columns = _columns(table, schema)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"ManyAgreements({len(self._canaries)} canaries, {len(self._columns)} columns)"

    def __call__(self, released: pd.DataFrame) -> Floats:
        """Return one number per canary; higher speaks for "in"."""
        coded = [self._codes(released, name) for name in self._columns if name in released.columns]
        total, sizes = np.zeros(len(self._canaries)), (len(self._table), max(len(released), 1))
        for before, own, after in _combinations(coded):
            base = _counts(before, own) / sizes[0]
            total += (_counts(after, own) / sizes[1] - base) / np.sqrt(base + 1 / sizes[0])
        return total

    def _codes(self, released: pd.DataFrame, name: str) -> tuple[NDArray[np.int64], ...]:
        columns = [frame[name] for frame in (self._table, self._canaries, released)]
        if self._columns[name]:
            numbers = [to_numbers(column)[0] for column in columns]
            known = np.concatenate(numbers[:2])
            low, width = np.nanmin(known, initial=0.0), _reach(columns[0], columns[1]) or 1.0
            return tuple(
                np.nan_to_num(np.floor((n - low) / width), nan=-1.0, posinf=-2.0, neginf=-2.0).astype(np.int64)
                for n in numbers
            )
        codes = pd.factorize(np.concatenate([_texts(column) for column in columns]))[0].astype(np.int64)
        ends = np.cumsum([len(column) for column in columns])[:-1]
        return tuple(np.split(codes, ends))


def _combinations(coded: list[tuple[NDArray[np.int64], ...]]) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yield the codes of every column, of every pair and of whole rows, for each of the tables."""
    yield from coded
    if len(coded) > 2:
        rows = [np.column_stack(parts) for parts in zip(*coded, strict=True)]
        whole = np.unique(np.vstack(rows), axis=0, return_inverse=True)[1].ravel()
        yield tuple(np.split(whole, np.cumsum([len(part) for part in rows])[:-1]))
    for at, left in enumerate(coded):
        for right in coded[at + 1 :]:
            size = max(int(part.max(initial=0)) for part in right) + 3  # codes begin at -2
            yield tuple(a * size + b for a, b in zip(left, right, strict=True))


def _counts(codes: NDArray[np.int64], wanted: NDArray[np.int64]) -> Floats:
    values, counts = np.unique(codes, return_counts=True)
    if not len(values):
        return np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[at] == wanted, counts[at], 0).astype(np.float64)


def _columns(table: pd.DataFrame, schema: Schema | None) -> dict[str, bool]:
    """Return the columns that are compared, and whether each is one of numbers."""
    if schema is None:
        return {str(name): is_numeric(table[name]) for name in table.columns}
    names = [name for name in (*schema.features, *schema.names("target")) if name in table.columns]
    return {name: schema[name].kind == "numeric" and is_numeric(table[name]) for name in names}


def _reach(column: pd.Series, canary: pd.Series) -> float:
    numbers = np.concatenate([to_numbers(column)[0], to_numbers(canary)[0]])
    seen = numbers[np.isfinite(numbers)]
    return _NEAR * float(np.ptp(seen)) if len(seen) else 0.0


def _texts(column: pd.Series) -> NDArray[np.object_]:
    """Spell categories alike whatever the dtype; a missing value is the empty text."""
    return np.array(["" if pd.isna(value) else to_text(value) for value in column.astype(object)], dtype=object)
