"""What is released of private values, in codes that are equal where the same is released.

A private value is released as it is, as the bin that it is in, or not at all; which of these is
decided for each entry (`PrivateRelease`). Two entries of a group of which the same is released are
one entry to everyone who sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from cfk_plugin.data.domain import INVALID, UNKNOWN, Domain, bin_of
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.uniqueness import Coarse
from cfk_plugin.protection.axes import Codes, Floats
from cfk_plugin.protection.catalogue.private_values import EncodedValues

Detail: TypeAlias = Literal["value", "bin", "nothing"]
"""What is released of one private value."""

Pattern: TypeAlias = tuple[Detail, ...]
"""What is released of each private attribute, in the order of the schema."""


class ReleasedValues(HostOnly):
    """What is released of the private values of n entries.

    Parameters
    ----------
    population : Population
    values : EncodedValues
        Private values of the n entries.
    forms : sequence of n forms
        Forms in which they are released; empty if all are released as they are.
    """

    def __init__(
        self, population: Population, values: EncodedValues, forms: Sequence[Coarse]
    ) -> None:
        self._names = population.schema.private
        self._domains = [population.domains[name] for name in self._names]
        self._values = values
        self._patterns = [self._pattern_of(form) for form in forms]

    def __len__(self) -> int:
        return len(self._values)

    def _counts(self) -> str:
        return f"{len(self)} entries"

    def _pattern_of(self, form: Coarse) -> Pattern:
        return tuple(_detail_of(form, name) for name in self._names)

    @cached_property
    def _numbers_without_code(self) -> list[Floats]:
        """For each private attribute the numbers of entries that no row has, ascending."""
        return [np.unique(column[~np.isnan(column)]) for column in self._values.numbers.T]

    @cached_property
    def patterns(self) -> list[Pattern]:
        """The patterns of all entries, each once."""
        value: Detail = "value"
        unchanged = (value,) * len(self._names)
        if len(self._patterns) == 0:
            return [unchanged]
        return list(dict.fromkeys(self._patterns))

    @cached_property
    def codes(self) -> Codes:
        """What is released of each entry, as codes; shape (n_entries, n_private)."""
        if len(self._patterns) == 0:
            (unchanged,) = self.patterns
            return self.codes_in(unchanged, self._values)
        released = self._values.codes.copy()
        for i, pattern in enumerate(self._patterns):
            released[i] = self.codes_in(pattern, self._values.take(np.array([i])))[0]
        return released

    def codes_in(self, pattern: Pattern, values: EncodedValues) -> Codes:
        """Return what would be released of some private values in a pattern, as codes.

        Parameters
        ----------
        pattern : what is released of each attribute
        values : n private values; numbers may also stand beside a code

        Returns
        -------
        array of int32, shape (n, n_private)
            A value that a row has keeps its code. Numbers that an entry has, and no row, get codes
            below `INVALID`; those that no entry has either keep `UNKNOWN`. Bins have codes above
            ``domain.size``, with -1 for a number outside of all bins. Nothing is ``domain.size``.
        """
        released = values.codes.copy()
        for j, (domain, detail) in enumerate(zip(self._domains, pattern, strict=True)):
            codes = values.codes[:, j]
            numbers = values.numbers[:, j]
            if detail == "value":
                released[:, j] = _codes_of_values(codes, numbers, self._numbers_without_code[j])
            elif detail == "bin":
                released[:, j] = _codes_of_bins(domain, codes, numbers)
            else:
                released[:, j] = domain.size
        return released


def _detail_of(form: Coarse, name: str) -> Detail:
    """Return what a form releases of an attribute; those that it does not name are unchanged."""
    if name not in form:
        return "value"
    part, _ = form[name]
    return "nothing" if part is None else "bin"


def _codes_of_values(codes: Codes, numbers: Floats, without_code: Floats) -> Codes:
    """Return codes, of shape (n,), with one below `INVALID` for each number of `without_code`.

    `without_code` is ascending. Other values keep their code.
    """
    if not len(without_code):
        return codes
    place = np.searchsorted(without_code, numbers).clip(max=len(without_code) - 1)
    is_listed = (codes == UNKNOWN) & (without_code[place] == numbers)
    return np.where(is_listed, INVALID - 1 - place, codes).astype(np.int32)


def _codes_of_bins(domain: Domain, codes: Codes, numbers: Floats) -> list[int]:
    """Return a code for the bin of each of n numbers; shape (n,)."""
    bins = [bin_of(domain, number) for number in domain.numbers_of(codes, numbers).tolist()]
    return [-1 if number is None else domain.size + 1 + number for number in bins]
