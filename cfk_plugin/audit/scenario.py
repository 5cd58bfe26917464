"""What attacks on one person need: the people whom the attacker looks for, and what can be asked.

In all of them the attacker knows the schema, the model, the ranges of the columns, and the
quasi-identifiers and the predicted outcome of everybody. A *look-up* is a guess from these alone: a
person drawn among those inside the region who have the outcome.

Host side only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.setting import AuditRows
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import GeneralizedCounterfactual

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Values = Mapping[str, Any]

_TIE = 1e-9  # distances that differ by less are equal


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NamingResult:
    """How often an attacker names the right person."""

    chances: Floats  # to name the right person, one per attempt, in [0, 1]
    lookups: Floats  # the same chance for somebody who only looks up the region
    n_queries: int
    n_answered: int  # of these

    def __repr__(self) -> str:
        return (
            f"NamingResult(chance={self.chance:.3f}, lookup={self.lookup:.3f},"
            f" n_attempts={self.n_attempts}, n_queries={self.n_queries},"
            f" n_answered={self.n_answered})"
        )

    @property
    def chance(self) -> float:
        """Mean over the attempts; NaN without any."""
        return mean_of(self.chances)

    @property
    def lookup(self) -> float:
        return mean_of(self.lookups)

    @property
    def n_attempts(self) -> int:
        return len(self.chances)

    @property
    def answered(self) -> float:
        """Share of the queries that were answered; NaN without any."""
        return self.n_answered / self.n_queries if self.n_queries else math.nan


def mean_of(values: Floats | Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


@dataclass(frozen=True, eq=False, repr=False)
class Service:
    """What an attacker can reach: answers to queries, and the published catalogue, if any."""

    explain: Callable[[pd.DataFrame], Explanations]
    published: Sequence[GeneralizedCounterfactual]


@dataclass(frozen=True, eq=False, repr=False)
class Scenario(AuditRows):
    """What the data holder knows: the people in the table, and others of the same source."""

    population: Population
    model: Any
    desired: Any  # one fixed outcome, as for `KAnonymizer.fit`; not "opposite"
    # people who are not in the table, with all features; the table itself where none are known
    outsiders: pd.DataFrame

    def _counts(self) -> str:
        return repr(self.population)

    @cached_property
    def features(self) -> list[str]:
        return list(self.population.schema.features)

    @cached_property
    def private(self) -> list[str]:
        return list(self.population.schema.private)

    @cached_property
    def quasi_identifiers(self) -> list[str]:
        return list(self.population.schema.quasi_identifiers)

    @cached_property
    def people(self) -> pd.DataFrame:
        """The training rows, in the order of the population."""
        return self.population.frame[self.features].reset_index(drop=True)

    @cached_property
    def has_outcome(self) -> Mask:
        """Say who in the table has the desired predicted outcome, shape (n_rows,)."""
        return self.is_desired(self.people)

    @cached_property
    def private_heom(self) -> Heom:
        """Distance over the private attributes."""
        return self._heom_over(self.private)

    @cached_property
    def quasi_heom(self) -> Heom:
        """Distance over the quasi-identifiers."""
        return self._heom_over(self.quasi_identifiers)

    @cached_property
    def private_codes(self) -> HeomCodes:
        """Private values of the training rows, for distances."""
        return self.private_heom.encode(self.people)

    @cached_property
    def _goal(self) -> DesiredOutcome:
        return DesiredOutcome.of(self.desired)

    @cached_property
    def _labels(self) -> LabelModel:
        return LabelModel(self.model, self.population.schema.features, self._goal)

    def _heom_over(self, columns: Collection[str]) -> Heom:
        whole = Heom.of(self.population)
        return Heom(
            [name for name in whole.numeric if name in columns],
            [name for name in whole.categorical if name in columns],
            whole.ranges,
        )

    def is_desired(self, rows: pd.DataFrame) -> Mask:
        """Say which rows get the desired outcome, shape (n,)."""
        if rows.empty:
            return np.zeros(0, dtype=bool)
        labels = self._labels(self.population.conform(rows[self.features]))
        return self._goal.is_met(labels.astype(object))

    def people_inside(self, region: Region) -> Rows:
        """Return the training rows inside a region that have the desired outcome."""
        inside = self.population.members(region)
        with_outcome: Rows = inside[self.has_outcome[inside]]
        return with_outcome

    def nearest_people(self, rows: Rows, values: Values) -> Rows:
        """Return which of some people are nearest to private values; several if they tie.

        Only the attributes in `values` count. Without any, everybody is equally near.
        """
        if not len(rows):
            return rows
        known = self.private_heom.encode(pd.DataFrame([{**dict.fromkeys(self.private), **values}]))
        repeated = known.take(np.zeros(len(rows), dtype=np.int64))
        # (n_rows, n_private), numbers first
        gaps = self.private_heom.parts(self.private_codes.take(rows), repeated)
        order = [*self.private_heom.numeric, *self.private_heom.categorical]
        counts = np.array([name in values for name in order], dtype=bool)
        distance = gaps[:, counts].sum(axis=1)
        nearest: Rows = rows[distance <= distance.min() + _TIE]
        return nearest

    def chance(self, named: Rows, right: Rows) -> float:
        """Return the chance that a person drawn from the rows `named` is one of those `right`."""
        hits = named[np.isin(named, right)]
        return self.population.people(hits) / max(self.population.people(named), 1)


def plain_values(entry: GeneralizedCounterfactual) -> dict[str, Any]:
    """Return the released private values of an answer, without those that are bins."""
    return {
        name: value for name, value in entry.released.items() if not isinstance(value, Interval)
    }


def is_same(a: Any, b: Any) -> bool:
    """Say whether two values are equal, or both missing."""
    if pd.isna(a) or pd.isna(b):
        return bool(pd.isna(a) and pd.isna(b))
    return bool(a == b)
