"""The features of a population as distances, bins and equality see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.heom import Heom, HeomCodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cfk_plugin.domain import Domain
    from cfk_plugin.population import Population

_BINS = 16
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close


@dataclass(frozen=True, slots=True, eq=False)
class FeatureSpace:
    """Ranges, bins and precision of every feature; it remembers no row.

    Attributes
    ----------
    heom : Heom
        Distance with declared ranges where the schema has bounds, else those of the population.
    declared : tuple of str
        Numeric features whose range is declared.
    edges : tuple of float64 arrays
        Per numeric feature the edges of its bins: declared ones, else 16 of equal width over the range.
    precision : float64 array, shape (n_numeric,)
        Share of a number below which a difference is none: single precision; 0 for dates.
    """

    heom: Heom
    declared: tuple[str, ...]
    edges: tuple[NDArray[np.float64], ...]
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
