"""Rounding of the numbers that an answer asks to change."""

from __future__ import annotations

import numpy as np

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.protection.answers.points import TIE, Points, ValueTable
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

_DIGITS = 2  # the step is five in the digit this many places behind the first: in the third


def round_outwards(numbers: Floats, factual_numbers: Floats, decimals: int) -> Floats:
    """Round numbers away from a person's own ones.

    A rounded number is a multiple of five in the third significant digit: 1,234 becomes 1,250 where
    the person has less, and 1,200 where the person has more. A number stays as it is where it is
    missing, the person's own, or 0, where the column has no such digit, and where rounding would
    move it by more than it differs from the person's own.

    Parameters
    ----------
    numbers, factual_numbers : arrays of shape (n,)
    decimals : int
        Decimals that numbers of the column have.

    Returns
    -------
    array of shape (n,)
    """
    is_number = np.isfinite(numbers) & np.isfinite(factual_numbers)
    may_change = is_number & (numbers != factual_numbers) & (numbers != 0)
    size = np.where(may_change, np.abs(numbers), 1.0)
    first_digit = np.floor(np.log10(size) + TIE)
    step = 5.0 * 10.0 ** (first_digit - _DIGITS)
    n_steps = np.where(may_change, numbers, 0.0) / step
    # a multiple of the step must not become the next one because of a float's last bit
    n_steps = np.where(numbers > factual_numbers, np.ceil(n_steps - TIE), np.floor(n_steps + TIE))
    rounded = np.round(n_steps * step, decimals)
    has_digit = step * 10.0**decimals > 1 - TIE
    with np.errstate(invalid="ignore"):
        is_small = np.abs(rounded - numbers) <= np.abs(numbers - factual_numbers)
    return np.where(may_change & has_digit & is_small, rounded, numbers)


class Rounder:
    """Rounds the private numbers of points that are not the query's own.

    Dates and categories stay as they are, and so does a number that would leave the range of the
    catalogue's column or what the query may have.

    Parameters
    ----------
    catalogue : Catalogue
    values : ValueTable
    constraints : Constraints
    """

    def __init__(self, catalogue: Catalogue, values: ValueTable, constraints: Constraints) -> None:
        self._values = values
        self._constraints = constraints
        domains = zip(values.private_columns.tolist(), catalogue.domains.values(), strict=True)
        self._ranges = {
            j: (domain.values[0], domain.values[-1])
            for j, domain in domains
            if domain.is_numeric and len(domain.values)
        }

    def rounded(self, points: Points, query: Ints) -> Points:
        """Return n points with rounded numbers; `query` has the shape (n,)."""
        factuals = self._values.factuals.take(query)
        rounded = points.copy()
        columns = zip(
            self._values.private_columns.tolist(), self._values.decimals.tolist(), strict=True
        )
        for j, decimals in columns:
            if j not in self._ranges or np.isnan(decimals):
                continue
            numbers = self._values.number(points, j)
            outwards = round_outwards(numbers, self._values.number(factuals, j), int(decimals))
            low, high = self._ranges[j]
            is_inside = (outwards >= low) & (outwards <= high)
            rows = np.flatnonzero((outwards != numbers) & is_inside)
            rows = rows[self._are_permitted(j, query[rows], outwards[rows])]
            rounded.write(rows, j, outwards[rows])
        return rounded

    def _are_permitted(self, j: int, query: Ints, numbers: Floats) -> Mask:
        """Return a mask of the numbers of feature j that their queries may have.

        `query`, `numbers` and the mask have the shape (n,).
        """
        name = self._values.schema.features[j]
        if name not in self._constraints.rules:
            return np.ones(len(numbers), dtype=bool)
        codes = np.full(len(numbers), UNKNOWN, dtype=np.int32)
        _, permitted, _ = self._constraints.nearest_to(name, query, codes, numbers)
        return np.asarray(permitted == numbers)
