"""HEOM: the heterogeneous Euclidean-overlap distance between mixed rows, as a mean over
features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import to_text
from cfk_plugin.data.values import is_numeric, to_numbers
from cfk_plugin.errors import InputError

_BLOCK = 1 << 18  # distances held at once; 2 MB stay in a core's cache
TIE = 1e-12  # distances closer than this are equal: they may sum the same terms in another order
_MISSING = np.uint64(0)
_WIDE = 100  # columns; fewer are read faster one by one
_FEW = 256  # rows; with more, each distinct category is hashed once
_WHOLE = 2**53  # whole numbers below it are floats, too
_WHOLES, _FLOATS = (int, np.int64), (float, np.float64)
_PLAIN = (str, bool, type(None), *_WHOLES, *_FLOATS)


@dataclass(frozen=True, slots=True, eq=False)
class HeomCodes:
    """Rows prepared for `Heom`, stored by column."""

    numbers: NDArray[np.float64]  # shape (n_rows, n_numeric); dates in seconds, NaN where missing
    # shape (n_rows, n_categorical); hash of each category's text, 0 where missing
    codes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.numbers)

    def __repr__(self) -> str:
        return f"HeomCodes({len(self)} rows)"

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> HeomCodes:
        return HeomCodes(np.asfortranarray(self.numbers[rows]), np.asfortranarray(self.codes[rows]))


@dataclass(frozen=True, slots=True)
class Heom:
    """Distance between rows of mixed type: the mean over features of a distance in [0, 1] per
    feature.

    A number differs by ``|x - y| / range`` (0 where the range is 0; above 1 outside of it), a
    category by 0 or 1. A missing value differs from every other by 1 and from another missing one
    by 0. Categories are compared as text, so that 3, 3.0 and "3" are the same. It stores ranges, no
    row and no category. Source: Wilson, Martinez (1997), "Improved heterogeneous distance
    functions", section 3.

    Parameters
    ----------
    numeric, categorical : sequence of str
        Columns of either kind.
    ranges : mapping of numeric column to the width of its range; 0 where not given

    Examples
    --------
    >>> table = pd.DataFrame({"age": [20, 60], "city": ["Antwerp", "Ghent"]})
    >>> Heom.fit(table).distances(table, table)
    array([[0., 1.],
           [1., 0.]])
    """

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    ranges: Mapping[str, float]

    def __init__(
        self, numeric: Sequence[str], categorical: Sequence[str], ranges: Mapping[str, float]
    ) -> None:
        if both := [name for name in numeric if name in categorical]:
            raise InputError(f"columns both numeric and categorical: {', '.join(both)}")
        object.__setattr__(self, "numeric", tuple(numeric))
        object.__setattr__(self, "categorical", tuple(categorical))
        object.__setattr__(self, "ranges", {name: float(ranges.get(name, 0.0)) for name in numeric})

    def __repr__(self) -> str:  # ranges are the data's
        return f"Heom(numeric={list(self.numeric)}, categorical={list(self.categorical)})"

    @classmethod
    def fit(cls, frame: pd.DataFrame, numeric: Sequence[str] | None = None) -> Heom:
        """Take columns and ranges from a table; numeric are those named, else those of numbers or
        dates.
        """
        if numeric is None:
            numeric = [name for name in frame.columns if is_numeric(frame[name])]
        elif unknown := [name for name in numeric if name not in frame.columns]:
            raise InputError(f"unknown column {', '.join(unknown)}")
        ranges = {}
        for name in numeric:
            numbers = to_numbers(frame[name])[0]
            finite = numbers[np.isfinite(numbers)]
            ranges[name] = float(finite.max() - finite.min()) if len(finite) else 0.0
        return cls(numeric, [name for name in frame.columns if name not in ranges], ranges)

    @classmethod
    def of(cls, population: Population) -> Heom:
        """Take columns and ranges from a population whose rows are in this process."""
        columns = population.row_codes.columns
        widths = {
            column.name: column.span if len(column.values) > 1 else 0.0
            for column in columns
            if column.is_numeric
        }
        return cls([*widths], [c.name for c in columns if not c.is_numeric], widths)

    def encode(self, frame: pd.DataFrame) -> HeomCodes:
        if lost := [
            name for name in (*self.numeric, *self.categorical) if name not in frame.columns
        ]:
            raise InputError(f"missing column {', '.join(lost)}")
        few = _values_of(frame) if len(frame) <= _FEW and self.categorical else None
        return HeomCodes(_numbers(frame, self.numeric, few), _hashes(frame, self.categorical, few))

    def distances(
        self, a: pd.DataFrame | HeomCodes, b: pd.DataFrame | HeomCodes
    ) -> NDArray[np.float64]:
        """Return the distance of every row of `a` to every row of `b`, shape (len(a), len(b))."""
        left, right = self._codes(a), self._codes(b)
        out = np.empty((len(left), len(right)))
        for rows, block in self._blocks(left, right):
            out[rows] = block
        return out

    def parts(
        self, a: pd.DataFrame | HeomCodes, b: pd.DataFrame | HeomCodes
    ) -> NDArray[np.float64]:
        """Return how much row i of `a` differs from row i of `b`, feature by feature, numbers
        first.
        """
        left, right = self._codes(a), self._codes(b)
        if len(left) != len(right):
            raise InputError(
                f"rows are compared in pairs, but there are {len(left)} and {len(right)}"
            )
        numbers = differences(
            left.numbers, right.numbers, np.array([self.ranges[name] for name in self.numeric])
        )
        return np.hstack([numbers, left.codes != right.codes])

    def nearest(
        self,
        a: pd.DataFrame | HeomCodes,
        b: pd.DataFrame | HeomCodes,
        k: int = 1,
        exclude_same: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find the k nearest rows of `b` for every row of `a`; of equally near ones the first in
        `b`.

        Returns positions in `b`, nearest first, and distances; -1 and infinite where there is no
        row. `exclude_same` leaves out rows at distance 0, such as the row itself.
        """
        if k < 1:
            raise InputError("k must be at least 1")
        left, right = self._codes(a), self._codes(b)
        indices = np.full((len(left), k), -1, dtype=np.int64)
        found = np.full((len(left), k), np.inf)
        take = min(k, len(right))
        if not take:
            return indices, found
        for rows, away in self._blocks(left, right):
            if exclude_same:
                away[away <= TIE] = np.inf
            indices[rows, :take], found[rows, :take] = smallest(away, take)
        return indices, found

    def _codes(self, rows: pd.DataFrame | HeomCodes) -> HeomCodes:
        return rows if isinstance(rows, HeomCodes) else self.encode(rows)

    def _blocks(self, a: HeomCodes, b: HeomCodes) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield the distances of some rows of `a` at a time to all of `b`."""
        step = max(_BLOCK // max(len(b), 1), 1)
        for start in range(0, len(a), step):
            rows = slice(start, start + step)
            few = a.take(rows)
            yield rows, self._apart(few.numbers[:, None], few.codes[:, None], b)

    def pairs(self, a: HeomCodes, b: HeomCodes) -> NDArray[np.float64]:
        """Return the distance of row i of `a` to row i of `b`: bit for bit that of `distances`."""
        total = np.zeros(len(a))
        for column in differences(a.numbers, b.numbers, np.array([*self.ranges.values()])).T:
            total += column
        total += (a.codes != b.codes).sum(axis=1)
        total /= max(len(self.numeric) + len(self.categorical), 1)
        return total

    def _apart(
        self, numbers: NDArray[np.float64], codes: NDArray[np.uint64], b: HeomCodes
    ) -> NDArray[np.float64]:
        shape = np.broadcast_shapes(numbers.shape[:-1], (len(b),))
        total, differ = np.zeros(shape), np.zeros(shape, dtype=np.uint16)
        for j, name in enumerate(self.numeric):
            total += differences(numbers[..., j], b.numbers[:, j], np.array(self.ranges[name]))
        for j in range(len(self.categorical)):
            differ += codes[..., j] != b.codes[:, j]
        total += differ
        total /= max(len(self.numeric) + len(self.categorical), 1)
        return total


def differences(
    x: NDArray[np.float64], y: NDArray[np.float64], widths: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far numbers are apart, in widths of their ranges; NaN stands for what is
    missing.
    """
    part = np.abs(x - y)
    part /= np.where(widths > 0, widths, np.inf)
    missing, other = np.isnan(x), np.isnan(y)
    if missing.any() or other.any():
        part = np.where(missing | other, missing ^ other, part)
    return part


def _values_of(frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the values of each column; those of a single row are read faster one by one."""
    row = [frame.iat[0, j] for j in range(frame.shape[1])] if len(frame) == 1 else [frame]
    is_plain = all(type(value) in _PLAIN for value in row)
    values = np.array([row], dtype=object) if is_plain else frame.to_numpy(dtype=object)
    return dict(zip(frame.columns.tolist(), values.T, strict=True))


def _numbers(
    frame: pd.DataFrame, names: Sequence[str], few: Mapping[str, NDArray[Any]] | None
) -> NDArray[np.float64]:
    """Return columns as numbers by column, NaN where missing or infinite; many plain ones at once.

    `few` has the values where there are few rows: then these are read faster than columns are
    taken.
    """
    if len(names) > _WIDE and all(
        isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in set(frame.dtypes)
    ):
        numbers = frame[list(names)].to_numpy(dtype=np.float64).copy(order="F")
    else:
        numbers = np.empty((len(frame), len(names)), order="F")
        for j, name in enumerate(names):
            values: list[Any] = [None] if few is None else few[name].tolist()
            is_plain = all(
                isinstance(v, _FLOATS) or (type(v) in _WHOLES and abs(v) < _WHOLE) for v in values
            )
            numbers[:, j] = values if is_plain else to_numbers(frame[name])[0]
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def smallest(away: NDArray[np.float64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return positions and values of the k smallest of each row, of equal ones the first; -1 for
    infinite ones.
    """
    order = _smallest(away, k)
    values = np.take_along_axis(away, order, axis=1)
    return np.where(np.isinf(values), -1, order), values


def _smallest(block: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    if k == 1:
        first: NDArray[np.int64] = np.argmax(block <= block.min(axis=1)[:, None] + TIE, axis=1)
        return first[:, None]
    limit = np.partition(block, k - 1, axis=1)[:, k - 1]
    order = np.empty((len(block), k), dtype=np.int64)
    for i, row in enumerate(block):
        near = np.flatnonzero(row <= limit[i] + TIE)
        order[i] = near[np.argsort(np.round(row[near] / TIE), kind="stable")[:k]]
    return order


def _hashes(
    frame: pd.DataFrame, names: Sequence[str], few: Mapping[str, NDArray[Any]] | None
) -> NDArray[np.uint64]:
    codes = np.empty((len(frame), len(names)), dtype=np.uint64, order="F")
    if few is not None:  # all columns at once
        values = np.concatenate([few[name] for name in names])
        hashes = np.where(
            pd.isna(values), _MISSING, hashes_of([*map(to_text, values.tolist())])[:-1]
        )
        codes[:] = hashes.reshape(len(names), len(frame)).T
        return codes
    for j, name in enumerate(names):
        at, distinct = pd.factorize(frame[name].astype(object), use_na_sentinel=True)
        codes[:, j] = hashes_of([to_text(value) for value in distinct])[at]
    return codes


def hashes_of(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return the code of each category, and after them that of a missing one."""
    array = np.array(texts, dtype=object)
    return np.append(
        pd.util.hash_array(array, categorize=False) if len(array) else np.empty(0, np.uint64),
        _MISSING,
    )
