"""Mixed tables as arrays for recourse methods, and back: numbers and codes of categories."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.errors import AdapterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Points:
    """Rows as arrays. Host side only: its `repr` shows counts.

    Attributes
    ----------
    numbers : float64 array, shape (n, n_numeric)
        In their own units.
    codes : int64 array, shape (n, n_categorical)
        Positions in `Encoding.pools`.
    """

    numbers: Matrix
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.numbers)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Points({len(self)} rows)"

    def take(self, rows: NDArray[Any] | slice) -> Points:
        """Return the rows at some positions or under a mask."""
        return Points(self.numbers[rows], self.codes[rows])


class Encoding:
    """How a table is encoded, from its training rows: ranges of numbers, values of categories.

    A column whose dtype is a number holds numbers; every other column, booleans included, holds
    categories, of which a missing value is one. One unit of a number is the width of its range in
    the training rows, so that a distance sums ``|difference| / range`` over numbers, and 1 for each
    category that differs. Numbers are computed as whole matrices: a table of 7,000 numbers per row
    costs no loop over columns.

    It holds ranges and every category of the training rows: host side only.

    Parameters
    ----------
    train : DataFrame
        Features alone.

    Attributes
    ----------
    names, numeric, categorical : list
        Columns: all of them in order, those with numbers, those with categories.
    low, high, scale : float64 arrays, shape (n_numeric,)
        Range, and the size of one unit: 1 where all rows have the same number.
    whole : bool array, shape (n_numeric,)
        Whether the training rows have whole numbers there (and not one constant float), and so
        answers do.
    pools : list of Index
        Values of each categorical column.
    sizes : list of int
        How many of these occur in training rows; besides them, answers take only a query's own.

    Raises
    ------
    AdapterError
        If there are no rows, or a number is missing or infinite, or a column holds dates. It names
        the columns.
    """

    def __init__(self, train: pd.DataFrame) -> None:
        if not len(train):
            raise AdapterError("a recourse method needs at least one training row")
        kinds = {dtype: _is_number(dtype) for dtype in set(train.dtypes)}
        numeric = np.array([kinds[dtype] for dtype in train.dtypes], dtype=bool)
        self.names = list(train.columns)
        self.numeric = [
            name for name, is_number in zip(self.names, numeric, strict=True) if is_number
        ]
        self.categorical = [
            name for name, is_number in zip(self.names, numeric, strict=True) if not is_number
        ]
        if dates := [
            str(name)
            for name in self.categorical
            if pd.api.types.is_datetime64_any_dtype(train[name])
        ]:
            raise AdapterError(
                f"columns {', '.join(dates)} hold dates; give them as numbers to a recourse method"
            )
        numbers = _numbers(train, self.numeric)
        if unusable := [
            str(self.numeric[j]) for j in np.flatnonzero(~np.isfinite(numbers).all(axis=0))
        ]:
            raise AdapterError(
                "missing or infinite numbers in the training rows; impute column"
                f" {', '.join(unusable)}"
            )
        self.low, self.high = numbers.min(axis=0), numbers.max(axis=0)
        self.scale = np.where(self.high > self.low, self.high - self.low, 1.0)
        dtypes = train.dtypes[numeric].tolist()
        typed = np.array([pd.api.types.is_integer_dtype(dtype) for dtype in dtypes], dtype=bool)
        self.whole = (numbers == np.round(numbers)).all(axis=0) & (typed | (self.high > self.low))
        self._places = {
            dtype: [j for j, own in enumerate(dtypes) if own == dtype]
            for dtype in dict.fromkeys(dtypes)
        }
        self._coarse = [dtype for dtype in self._places if dtype in (np.float32, np.float16)]
        self.pools = [_values(train[name]) for name in self.categorical]
        self.sizes = [len(pool) for pool in self.pools]

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Encoding({len(self.numeric)} numbers, {len(self.categorical)} categories)"

    def knowing(self, frame: pd.DataFrame) -> Encoding:
        """Return the encoding for some rows: their categories that no training row has may be kept,
        not taken on.
        """
        known = copy.copy(self)
        known.pools = [
            _with_unseen(pool.take(range(size)), _values(frame[name]))
            for pool, size, name in zip(self.pools, self.sizes, self.categorical, strict=True)
        ]
        return known

    @property
    def is_fine(self) -> bool:
        """Whether all columns are numbers that can take any value that float64 can."""
        return not (self.categorical or self._coarse or self.whole.any())

    def encode(self, frame: pd.DataFrame) -> Points:
        """Encode rows; a missing number is NaN."""
        codes = [
            pool.get_indexer(pd.Index(frame[n]))
            for pool, n in zip(self.pools, self.categorical, strict=True)
        ]
        empty = np.empty((len(frame), 0), dtype=np.int64)
        return Points(
            _numbers(frame, self.numeric), np.column_stack([empty, *codes]).astype(np.int64)
        )

    def decode(self, points: Points) -> pd.DataFrame:
        """Return points as rows with the columns and dtypes of the training rows, numbered from
        0.
        """
        blocks = []
        for dtype, places in self._places.items():
            block = (
                points.numbers if len(places) == len(self.numeric) else points.numbers[:, places]
            )
            columns = [self.numeric[j] for j in places]
            # in one block, however wide
            blocks.append(pd.DataFrame(block, columns=columns).astype(dtype))
        taken = {
            name: pd.Series(pool.take(codes))
            for name, pool, codes in zip(self.categorical, self.pools, points.codes.T, strict=True)
        }
        if taken:
            blocks.append(pd.DataFrame(taken))
        return blocks[0] if len(blocks) == 1 else pd.concat(blocks, axis=1)[self.names]

    def bounds(self, own: Matrix, *, within_ranges: bool) -> tuple[Matrix, Matrix]:
        """Return the least and largest number allowed in place of each row's own.

        The training range, widened to the row's own number; or only the limits of the dtype.
        """
        if within_ranges:
            return np.minimum(own, self.low), np.maximum(own, self.high)
        low, high = np.full(self.low.shape, -np.inf), np.full(self.low.shape, np.inf)
        for dtype, places in self._places.items():
            if pd.api.types.is_integer_dtype(dtype):
                limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
                # halves, as floats near the limits overflow
                low[places], high[places] = limits.min / 2, limits.max / 2
        return np.broadcast_to(low, own.shape), np.broadcast_to(high, own.shape)

    def settled(self, numbers: Matrix, own: Matrix, bounds: tuple[Matrix, Matrix]) -> Matrix:
        """Return numbers that an answer can have: within bounds, whole where needed, as the dtypes
        can hold.
        """
        inside = np.clip(numbers, *bounds)
        for dtype in self._coarse:
            inside[:, self._places[dtype]] = inside[:, self._places[dtype]].astype(dtype)
        if not self.whole.any():
            return inside
        return np.where(self.whole & (inside != own), np.round(inside), inside)

    def distance(self, a: Points, b: Points, norm: str = "l1") -> Matrix:
        """Return the distance of row i of `a` to row i of `b`, in units; categories differ by 1."""
        numbers, codes = (
            np.abs(a.numbers - b.numbers) / self.scale,
            (a.codes != b.codes).sum(axis=1),
        )
        if norm == "l2":
            return np.asarray(np.sqrt((numbers**2).sum(axis=1) + codes))
        return np.asarray(numbers.sum(axis=1) + codes)


def _is_number(dtype: Any) -> bool:
    types = pd.api.types
    return bool(
        types.is_numeric_dtype(dtype)
        and not types.is_bool_dtype(dtype)
        and not types.is_complex_dtype(dtype)
    )


def _numbers(frame: pd.DataFrame, columns: list[Any]) -> Matrix:
    return np.asarray(frame[columns].to_numpy(dtype=np.float64, na_value=np.nan))


def _values(column: pd.Series) -> pd.Index:
    return pd.Index(pd.factorize(column, use_na_sentinel=False)[1])  # type: ignore[no-any-return]


def _with_unseen(pool: pd.Index, found: pd.Index) -> pd.Index:
    unseen = found.take(np.flatnonzero(pool.get_indexer(found) < 0))
    return pool.append(unseen) if len(unseen) else pool
