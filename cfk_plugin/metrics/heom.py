"""HEOM: the heterogeneous Euclidean-overlap distance between mixed rows, and the features that it looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.columns import is_numeric, to_numbers, to_text
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.population import Population


# HEOM: the heterogeneous Euclidean-overlap distance between mixed rows, as a mean over features.

_BLOCK = 1 << 18  # distances held at once; 2 MB stay in a core's cache
_TIE = 1e-12  # distances closer than this are the same: sums of the same terms in another order are
_MISSING = np.uint64(0)


@dataclass(frozen=True, slots=True, eq=False)
class HeomCodes:
    """Rows prepared for `Heom`. Host side only; its `repr` shows counts."""

    # shape (n_rows, n_numeric); numbers (dates in seconds), NaN where missing; stored by column
    numbers: NDArray[np.float64]
    # shape (n_rows, n_categorical); hash of each category's text, 0 where missing; stored by column
    codes: NDArray[np.uint64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.numbers)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"HeomCodes({len(self)} rows)"

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> HeomCodes:
        """Return the rows at some positions (or where a mask is true)."""
        return HeomCodes(np.asfortranarray(self.numbers[rows]), np.asfortranarray(self.codes[rows]))


@dataclass(frozen=True, slots=True)
class Heom:
    """Distance between rows of mixed type: the mean over features of a distance in [0, 1] per feature.

    A number differs by ``|x - y| / range`` (0 where the range is 0; above 1 outside of it), a category by 0 or 1.
    A missing value differs from every other by 1 and from another missing one by 0. Categories are compared as
    text, so that 3, 3.0 and "3" are the same. It remembers ranges, no row and no category.

    Parameters
    ----------
    numeric, categorical : sequence of str
        Columns of either kind.
    ranges : mapping
        Numeric column to the width of its range; 0 where not given.

    References
    ----------
    Wilson, Martinez (1997), "Improved heterogeneous distance functions", section 3.

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

    def __init__(self, numeric: Sequence[str], categorical: Sequence[str], ranges: Mapping[str, float]) -> None:
        if both := [name for name in numeric if name in categorical]:
            raise InputError(f"columns both numeric and categorical: {', '.join(both)}")
        object.__setattr__(self, "numeric", tuple(numeric))
        object.__setattr__(self, "categorical", tuple(categorical))
        widths = {name: float(ranges.get(name, 0.0)) for name in numeric}
        object.__setattr__(self, "ranges", MappingProxyType(widths))

    def __repr__(self) -> str:
        """Name the columns; ranges are the data's."""
        return f"Heom(numeric={list(self.numeric)}, categorical={list(self.categorical)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Make it again from its ranges: a read-only view of them cannot be pickled."""
        return Heom, (self.numeric, self.categorical, dict(self.ranges))

    @classmethod
    def fit(cls, frame: pd.DataFrame, numeric: Sequence[str] | None = None) -> Heom:
        """Take columns and ranges from a table.

        Parameters
        ----------
        frame : DataFrame
            Every column counts as a feature.
        numeric : sequence of str, optional
            Columns to compare as numbers. Default: those whose dtype is a number or a date.

        Returns
        -------
        Heom

        Raises
        ------
        InputError
            If a column is unknown.
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

    def encode(self, frame: pd.DataFrame) -> HeomCodes:
        """Prepare the rows of a table once, for many comparisons; the columns may stand in any order.

        Raises
        ------
        InputError
            If a column is missing.
        """
        if lost := [name for name in (*self.numeric, *self.categorical) if name not in frame.columns]:
            raise InputError(f"missing column {', '.join(lost)}")
        numbers = np.empty((len(frame), len(self.numeric)), order="F")
        for j, name in enumerate(self.numeric):
            numbers[:, j] = to_numbers(frame[name])[0]
        numbers[~np.isfinite(numbers)] = np.nan
        codes = np.empty((len(frame), len(self.categorical)), dtype=np.uint64, order="F")
        for j, name in enumerate(self.categorical):
            codes[:, j] = _hash(frame[name])
        return HeomCodes(numbers, codes)

    def distances(self, a: pd.DataFrame | HeomCodes, b: pd.DataFrame | HeomCodes) -> NDArray[np.float64]:
        """Return the distance of every row of `a` to every row of `b`, shape (len(a), len(b))."""
        left, right = self._codes(a), self._codes(b)
        out = np.empty((len(left), len(right)))
        for rows in _blocks(len(left), len(right)):
            out[rows] = self._block(left.take(rows), right)
        return out

    def parts(self, a: pd.DataFrame | HeomCodes, b: pd.DataFrame | HeomCodes) -> NDArray[np.float64]:
        """Return how much every row of `a` differs from the row of `b` at its place, feature by feature.

        Returns
        -------
        float64 array, shape (len(a), n_numeric + n_categorical)
            Numbers first. The mean of a row is the distance.

        Raises
        ------
        InputError
            If one table is longer than the other.
        """
        left, right = self._codes(a), self._codes(b)
        if len(left) != len(right):
            raise InputError(f"rows are compared in pairs, but there are {len(left)} and {len(right)}")
        widths = np.array([self.ranges[name] for name in self.numeric])
        numbers = np.abs(left.numbers - right.numbers) / np.where(widths > 0, widths, np.inf)
        missing, other = np.isnan(left.numbers), np.isnan(right.numbers)
        return np.hstack([np.where(missing | other, missing ^ other, numbers), left.codes != right.codes])

    def nearest(
        self,
        a: pd.DataFrame | HeomCodes,
        b: pd.DataFrame | HeomCodes,
        k: int = 1,
        exclude_same: bool = False,
        cost: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find the k nearest rows of `b` for every row of `a`; of equally near ones the first in `b`.

        Parameters
        ----------
        a, b : DataFrame or HeomCodes
        k : int
        exclude_same : bool
            Leave out the rows of `b` at distance 0: the row itself when `a` and `b` are one table, and its
            duplicates.
        cost : float64 array, shape (len(b),), optional
            Added to the distance to each row of `b`.

        Returns
        -------
        indices : int64 array, shape (len(a), k)
            Positions in `b`, nearest first; -1 where `b` has fewer rows to offer.
        distances : float64 array, shape (len(a), k)
            Their distances, cost included; infinite where there is no row.
        """
        if k < 1:
            raise InputError("k must be at least 1")
        left, right = self._codes(a), self._codes(b)
        indices = np.full((len(left), k), -1, dtype=np.int64)
        found = np.full((len(left), k), np.inf)
        if not len(right):
            return indices, found
        for rows in _blocks(len(left), len(right)):
            block = self._block(left.take(rows), right)
            if exclude_same:
                block[block <= _TIE] = np.inf
            if cost is not None:
                block += cost
            indices[rows], found[rows] = _smallest(block, k)
        return indices, found

    def _codes(self, rows: pd.DataFrame | HeomCodes) -> HeomCodes:
        return rows if isinstance(rows, HeomCodes) else self.encode(rows)

    def _block(self, a: HeomCodes, b: HeomCodes) -> NDArray[np.float64]:
        total = np.zeros((len(a), len(b)))
        for j, name in enumerate(self.numeric):
            x, y = a.numbers[:, j, None], b.numbers[None, :, j]
            part = np.abs(x - y)
            if self.ranges[name] > 0:
                part /= self.ranges[name]
            else:
                part[:] = 0
            x_missing, y_missing = np.isnan(x), np.isnan(y)
            if x_missing.any() or y_missing.any():
                part = np.where(x_missing | y_missing, x_missing ^ y_missing, part)
            total += part
        differ = np.zeros(total.shape, dtype=np.uint16)
        for j in range(len(self.categorical)):
            differ += a.codes[:, j, None] != b.codes[None, :, j]
        total += differ
        total /= max(len(self.numeric) + len(self.categorical), 1)
        return total


def _blocks(n_a: int, n_b: int) -> list[slice]:
    step = max(_BLOCK // max(n_b, 1), 1)
    return [slice(start, min(start + step, n_a)) for start in range(0, n_a, step)]


def _smallest(block: NDArray[np.float64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return positions and values of the k smallest per row; -1 and infinite where there are fewer."""
    n, width = block.shape
    take = min(k, width)
    if take == 1:
        limit = block.min(axis=1)
        order = np.argmax(block <= limit[:, None] + _TIE, axis=1)[:, None]
    else:
        limit = np.partition(block, take - 1, axis=1)[:, take - 1]
        order = np.empty((n, take), dtype=np.int64)
        for i, row in enumerate(block):
            near = np.flatnonzero(row <= limit[i] + _TIE)
            order[i] = near[np.argsort(np.round(row[near] / _TIE), kind="stable")[:take]]
    values = np.take_along_axis(block, order, axis=1)
    indices, found = np.full((n, k), -1, dtype=np.int64), np.full((n, k), np.inf)
    indices[:, :take] = np.where(np.isinf(values), -1, order)
    found[:, :take] = values
    return indices, found


def _hash(column: pd.Series) -> NDArray[np.uint64]:
    codes, distinct = pd.factorize(column.astype(object), use_na_sentinel=True)
    texts = np.array([to_text(value) for value in distinct], dtype=object)
    hashes = pd.util.hash_array(texts, categorize=False) if len(texts) else np.empty(0, np.uint64)
    return np.append(hashes, _MISSING)[codes]


# The features of a population as distances, bins and equality see them.

_BINS = 16
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close


@dataclass(frozen=True, slots=True, eq=False)
class FeatureSpace:
    """Ranges, bins and precision of every feature; it remembers no row."""

    heom: Heom  # Distance with declared ranges where the schema has bounds, else those of the population
    declared: tuple[str, ...]  # Numeric features whose range is declared
    # Per numeric feature the edges of its bins: declared ones, else 16 of equal width over the range
    edges: tuple[NDArray[np.float64], ...]
    # shape (n_numeric,); share of a number below which a difference is none: single precision; 0 for dates
    precision: NDArray[np.float64]

    @classmethod
    def of(cls, population: Population) -> FeatureSpace:
        """Read ranges and bins from a schema, and from the rows where nothing is declared."""
        features = population.schema.features
        numeric = [population.domains[name] for name in features if population.schema[name].kind == "numeric"]
        ends = {domain.attribute.name: _ends(domain) for domain in numeric}
        return cls(
            heom=Heom(
                list(ends),
                [name for name in features if name not in ends],
                {name: high - low for name, (low, high) in ends.items()},
            ),
            declared=tuple(domain.attribute.name for domain in numeric if domain.attribute.bounds is not None),
            edges=tuple(_edges(domain, *ends[domain.attribute.name]) for domain in numeric),
            precision=np.array([0.0 if domain.is_date else _SINGLE for domain in numeric]),
        )

    def __repr__(self) -> str:
        """Show counts; ranges are the data's."""
        return f"FeatureSpace({len(self.heom.numeric)} numeric, {len(self.heom.categorical)} categorical features)"

    def changed(self, a: HeomCodes, b: HeomCodes) -> NDArray[np.bool_]:
        """Say feature by feature whether a row of `a` has another value than the row of `b` at its place."""
        missing, other = np.isnan(a.numbers), np.isnan(b.numbers)
        with np.errstate(invalid="ignore"):
            far = np.abs(a.numbers - b.numbers) > np.abs(b.numbers) * self.precision
        return np.hstack([np.where(missing | other, missing ^ other, far), a.codes != b.codes])

    def bins(self, rows: HeomCodes) -> list[NDArray[np.uint64]]:
        """Return each feature in coarse form: numbers as bins, missing ones apart, categories as they are."""
        binned = []
        for j, edges in enumerate(self.edges):
            numbers = rows.numbers[:, j]
            at = np.searchsorted(edges, numbers, side="right")
            at[numbers == edges[-1]] = len(edges) - 1  # the last bin has both ends
            at[np.isnan(numbers)] = len(edges) + 1
            binned.append(at.astype(np.uint64))
        return [*binned, *(rows.codes[:, j] for j in range(rows.codes.shape[1]))]

    def keys(
        self, rows: HeomCodes, table: HeomCodes, names: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return a number per row of either table that is equal where some features are.

        Numbers of `rows` count as the nearest of `table` when they are equal to single precision.
        """
        cut = len(rows)
        keys = np.zeros(cut + len(table), dtype=np.int64)
        for name in names:
            if name in self.heom.ranges:
                j = self.heom.numeric.index(name)
                known = table.numbers[:, j]
                column = np.concatenate([_snapped(rows.numbers[:, j], known, self.precision[j]), known])
                codes = pd.factorize(column, use_na_sentinel=False)[0]
            else:
                j = self.heom.categorical.index(name)
                codes = pd.factorize(np.concatenate([rows.codes[:, j], table.codes[:, j]]))[0]
            keys = pd.factorize(keys * (int(codes.max(initial=0)) + 1) + codes)[0].astype(np.int64)
        return keys[:cut], keys[cut:]


def _ends(domain: Domain) -> tuple[float, float]:
    if domain.attribute.bounds is not None:
        return domain.attribute.bounds
    return (float(domain.values[0]), float(domain.values[-1])) if len(domain.values) else (0.0, 0.0)


def _edges(domain: Domain, low: float, high: float) -> NDArray[np.float64]:
    if domain.attribute.bins is not None:
        return np.array(domain.attribute.bins)
    return np.linspace(low, high, _BINS + 1) if high > low else np.array([low, np.nextafter(low, np.inf)])


def _snapped(numbers: NDArray[np.float64], known: NDArray[np.float64], precision: float) -> NDArray[np.float64]:
    """Return numbers, each as the nearest known one where the two are the same to a precision."""
    values = np.unique(known[~np.isnan(known)])
    if not len(values) or not precision:
        return numbers
    right = np.searchsorted(values, numbers).clip(max=len(values) - 1)
    left = (right - 1).clip(min=0)
    nearest = np.where(np.abs(values[left] - numbers) < np.abs(values[right] - numbers), values[left], values[right])
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(nearest - numbers) <= np.abs(nearest) * precision, nearest, numbers)
