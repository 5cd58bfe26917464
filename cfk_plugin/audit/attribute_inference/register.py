"""People by their quasi-identifiers and private values, in codes: where an adversary looks up who fits an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, part_contains
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import InputError

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


class Register:
    """Everybody's features, coded. Host side only: its `repr` shows counts, and it refuses to be pickled.

    Distinct combinations of quasi-identifiers are called *cells*. An answer that fits one person of a cell fits all
    of them, so that everything is looked up and guessed per cell.

    Parameters
    ----------
    people : DataFrame
        All features; numbers and dates are told from categories by dtype.
    quasi_identifiers : sequence of str

    Attributes
    ----------
    cell_of : int array, shape (n_people,)
    cells : int array, shape (n_cells, n_quasi_identifiers)
        Codes.
    """

    def __init__(self, people: pd.DataFrame, quasi_identifiers: Sequence[str]) -> None:
        population = Population.from_frame(people, Schema.from_frame(people, quasi_identifiers=quasi_identifiers))
        self.quasi_identifiers = population.schema.quasi_identifiers
        self.private = population.schema.private
        self.cells, self.cell_of = population.cells, population.cell_of(np.arange(len(people)))
        self._domains = population.domains
        codes = population.encode(people)[0]
        self._codes = {name: codes[:, at] for at, name in enumerate(population.schema.features)}

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Register({len(self.cell_of)} people, {len(self.cells)} cells)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold everybody's values."""
        raise InputError("an audit holds people's values and refuses to be pickled; keep its report")

    def domain(self, name: str) -> Domain:
        """Return the values that an attribute has."""
        return self._domains[name]

    def codes(self, name: str, people: Rows) -> NDArray[np.int32]:
        """Return the codes of some people's values of an attribute."""
        return self._codes[name][people]

    def fitting(self, parts: Mapping[str, Part]) -> Rows:
        """Return the cells that fit what an answer says of the quasi-identifiers; what it does not name fits all."""
        fits = np.ones(len(self.cells), dtype=bool)
        for at, name in enumerate(self.quasi_identifiers):
            if name in parts:
                fits &= holding(self._domains[name], parts[name])[self.cells[:, at]]
        return np.flatnonzero(fits)


def holding(domain: Domain, part: Part) -> Mask:
    """Say of every value of a domain whether it is inside a part, however the part spells kinds of its own."""
    if isinstance(part, Interval) and part.levels is not None:
        part = frozenset([*part.levels, None] if part.missing else part.levels)
    if not isinstance(part, Interval) or domain.attribute.kind == "numeric":
        return domain.inside(part)
    values = [*domain.originals, *([None] if domain.has_missing else [])]
    return np.array([part_contains(part, value) for value in values], dtype=bool)


def near(domain: Domain, part: Part, tolerance: float) -> Mask:
    """Say of every value of a domain whether a guess at a part is right there.

    Parameters
    ----------
    domain : Domain
    part : Interval or frozenset
        One value, or several: a bin, a range, a set.
    tolerance : float
        Share of the domain's range by which one number may be off.
    """
    number = number_of(domain, part)
    if number is None:
        return holding(domain, part)
    right = np.zeros(domain.size, dtype=bool)
    right[: len(domain.values)] = np.abs(domain.values - number) <= tolerance * width(domain) * (1 + 1e-9)
    return right


def number_of(domain: Domain, part: Part) -> float | None:
    """Return the number that a part of a numeric domain is; None where it is several, missing or no number."""
    if domain.attribute.kind != "numeric":
        return None
    if isinstance(part, Interval):
        return to_number(part.low) if part.is_single and part.low is not None else None
    (value, *others) = part
    return None if others or value is None else to_number(value)


def is_one_value(part: Part) -> bool:
    """Say whether a part is one value alone."""
    return part.is_single if isinstance(part, Interval) else len(part) == 1


def width(domain: Domain) -> float:
    """Return the range of a numeric domain."""
    return float(np.ptp(domain.values)) if len(domain.values) else 0.0
