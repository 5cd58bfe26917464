"""The handles by which a ledger knows the people of a population."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import Rows
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly
from cfk_plugin.records.keys import canonical_text
from cfk_plugin.records.rule import Handles

if TYPE_CHECKING:
    from cfk_plugin.records.ledger import Ledger


class PersonHandles(HostOnly):
    """The handles by which a ledger knows the people of a population.

    A person is known by the subject key, where the schema names one. Otherwise each row is a
    person, known by the values of all features, and by a number if several rows have the same
    values. Where rows are not in this process, people cannot be told apart by values: they are
    known by the fingerprint of the population, so that none is found in another population.
    """

    def __init__(self, ledger: Ledger, population: Population) -> None:
        self.ledger = ledger
        self._population = population
        self._handle_of_row: NDArray[np.object_] = np.full(population.n_rows, None, dtype=object)

    def of_rows(self, rows: Rows) -> NDArray[np.object_]:
        """Return the handle of the person behind each row; shape (n_rows,)."""
        new = rows[self._handle_of_row[rows] == None]  # noqa: E711 - element by element
        if len(new):
            texts = self._texts(new)
            self._handle_of_row[new] = [self.ledger.person(text) for text in texts]
        return self._handle_of_row[rows]

    def of(self, rows: Rows) -> Handles:
        """Return the handles of the people behind some rows."""
        return frozenset(self.of_rows(rows).tolist())

    def everybody(self) -> NDArray[np.object_]:
        """Return the handle of the person behind every row; shape (n_rows,)."""
        return self.of_rows(np.arange(self._population.n_rows))

    def of_everybody(self) -> Handles:
        """Return the handles of all people."""
        return frozenset(self.everybody().tolist())

    def _texts(self, rows: Rows) -> list[list[str | None]]:
        """Return what identifies the person of each row."""
        population = self._population
        if not population.has_rows:
            return [[population.fingerprint, str(row)] for row in rows.tolist()]
        subjects = population.subject_keys(rows)
        if subjects is not None:
            return [[canonical_text(subject)] for subject in subjects]
        columns = [
            [texts[code] for code in population.codes[rows, j].tolist()]
            for j, texts in zip(population.schema.canonical, self._texts_of_codes, strict=True)
        ]
        columns.append([str(number) for number in population.number_among_equal[rows].tolist()])
        return [list(row) for row in zip(*columns, strict=True)]

    @cached_property
    def _texts_of_codes(self) -> list[list[str | None]]:
        """The text of each code of each feature, in the order of the features' names."""
        population = self._population
        names = sorted(population.schema.features)
        return [
            [canonical_text(domain.value(code)) for code in range(domain.size)]
            for domain in (population.domains[name] for name in names)
        ]
