"""Rounding of the numbers that an answer asks to change."""

from __future__ import annotations

import numpy as np

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.protection.answers.moves import TIE, Points, ValueTable
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

_DIGITS = 2  # the step is five in the digit this many places behind the first: in the third


def round_outwards(numbers: Floats, own: Floats, decimals: int) -> Floats:
    """Round numbers away from a person's own ones.

    A rounded number is a multiple of five in the third significant digit: 1,234 becomes 1,250 where
    the person has less, and 1,200 where the person has more. A number stays as it is where it is
    missing, the person's own, or 0, where the column has no such digit, and where rounding would
    move it by more than it differs from the person's own.

    Parameters
    ----------
    numbers, own : arrays of shape (n,)
    decimals : int
        Decimals that numbers of the column have.

    Returns
    -------
    array of shape (n,)
    """
    may_change = np.isfinite(numbers) & np.isfinite(own) & (numbers != own) & (numbers != 0)
    size = np.where(may_change, np.abs(numbers), 1.0)
    first_digit = np.floor(np.log10(size) + TIE)
    step = 5.0 * 10.0 ** (first_digit - _DIGITS)
    n_steps = np.where(may_change, numbers, 0.0) / step
    # a multiple of the step must not become the next one because of a float's last bit
    n_steps = np.where(numbers > own, np.ceil(n_steps - TIE), np.floor(n_steps + TIE))
    rounded = np.round(n_steps * step, decimals)
    has_digit = step * 10.0**decimals > 1 - TIE
    with np.errstate(invalid="ignore"):
        is_small = np.abs(rounded - numbers) <= np.abs(numbers - own)
    return np.where(may_change & has_digit & is_small, rounded, numbers)


class Rounder:
    """Rounds the private numbers of points that are not the query's own.

    Dates and categories stay as they are, and so does a number that would leave the range of the
    catalogue's column or what the query may have.

    Parameters
    ----------
    catalogue : Catalogue
    pools : Pools
    limits : Constraints
    """

    def __init__(self, catalogue: Catalogue, pools: ValueTable, limits: Constraints) -> None:
        self._pools = pools
        self._limits = limits
        self._ends = {
            j: (domain.values[0], domain.values[-1])
            for j, domain in zip(pools.private.tolist(), catalogue.domains.values(), strict=True)
            if domain.is_numeric and len(domain.values)
        }

    def rounded(self, points: Points, query: Ints) -> Points:
        """Return points with rounded numbers; both arguments belong to n points."""
        own = self._pools.queries.take(query)
        rounded = Points(points.at.copy(), points.numbers.copy())
        for j, decimals in zip(
            self._pools.private.tolist(), self._pools.decimals.tolist(), strict=True
        ):
            if j not in self._ends or np.isnan(decimals):
                continue
            numbers = self._pools.number(points, j)
            nearest = round_outwards(numbers, self._pools.number(own, j), int(decimals))
            low, high = self._ends[j]
            is_inside = (nearest >= low) & (nearest <= high)
            at = np.flatnonzero((nearest != numbers) & is_inside)
            at = at[self._are_permitted(j, query[at], nearest[at])]
            rounded.write(at, np.full(len(at), j), nearest[at])
        return rounded

    def _are_permitted(self, j: int, query: Ints, numbers: Floats) -> Ints:
        """Return the positions of the numbers of a column that their queries may have."""
        name = self._pools.schema.features[j]
        if name not in self._limits.rules:
            return np.arange(len(numbers))
        codes = np.full(len(numbers), UNKNOWN, dtype=np.int32)
        permitted = self._limits.nearest_to(name, query, codes, numbers)[1]
        return np.flatnonzero(permitted == numbers)
