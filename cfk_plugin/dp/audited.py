"""The measurements of a fit, for an audit of epsilon whose attacker sees every noised count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.dp.domain import PublicDomain, require_declared
from cfk_plugin.dp.forest import Forest, shares
from cfk_plugin.dp.noise import NoisedCounts, PrivateRows


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """All that one fit released about the rows: everything else is computed from this."""

    domain: PublicDomain
    answers: tuple[NoisedCounts, ...]

    def scores(self, canaries: pd.DataFrame) -> NDArray[np.float64]:
        """Return, for each row, the counts of its own cells, weighted by their noise; 0 for
        undeclared values.
        """
        codes = self.domain.codes(canaries)
        known, scores = (codes >= 0).all(axis=1), np.zeros(len(codes))
        scores[known] = sum(
            one.table.at(codes[known], one.counts) / one.scale**2 for one in self.answers
        )
        return scores

    def seen(self, canary: pd.DataFrame) -> NDArray[np.float64]:
        """Return all that may reveal a person: `scores` of their rows, the sum of counts, and every
        table's size.
        """
        total = sum(one.counts.sum() / one.scale**2 for one in self.answers)
        return np.array(
            [self.scores(canary).sum(), total, len(self.answers), *self.domain.sizes],
            dtype=np.float64,
        )


def measuring(
    schema: Schema, epsilon: float, delta: float = 0.0, rows_per_person: int = 1
) -> Callable[[pd.DataFrame], Measurements]:
    """Return the part of `DPPrototypes` that touches rows, as a function from a table to all that
    it releases.

    To be audited with ``score=lambda found: found.scores(canaries)``, summed for one canary with
    several rows. Raises `SchemaError` if the schema does not declare a public domain.
    """
    require_declared(schema, schema.features)

    def fit(table: pd.DataFrame) -> Measurements:
        population = Population.from_frame(table, schema)
        domain = PublicDomain.of(population)
        return measured(
            domain,
            domain.codes_to_count(population, rows_per_person),
            epsilon,
            delta,
            rows_per_person,
        )

    return fit


def measured(
    domain: PublicDomain,
    codes: NDArray[np.int32],
    epsilon: float,
    delta: float = 0.0,
    rows_per_person: int = 1,
) -> Measurements:
    """Return all that one fit releases of coded rows."""
    rows = PrivateRows(codes, epsilon, delta, shares(len(domain.columns)), rows_per_person)
    Forest.measure(rows, domain.sizes, [column.groups for column in domain.columns])
    return Measurements(domain, tuple(rows.answers))
