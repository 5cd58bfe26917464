"""Actionability: withhold a certified region if the person cannot do what it asks for.

The schema and a call say which changes are excluded, for example of an age that cannot become
lower, and how many features may change (`cfk_plugin.data.constraints`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.constraints import Constraints, DistinctParts
from cfk_plugin.data.domain import Codes, Rows
from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.data.outcome import OutcomeTest
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Part, Region, part_contains, part_of
from cfk_plugin.errors import HostOnly
from cfk_plugin.release.verdicts import Certified, Verdict, refused

_MOST_CODES = 1 << 22  # codes that a chunk of queries holds at once, per attribute

Ask = Callable[[pd.DataFrame], NDArray[Any]]  # from rows to the model's labels


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedAnswers(HostOnly):
    """Certified regions, each with the query that it answers."""

    positions: Rows  # shape (n,); of the queries in the batch
    verdicts: list[Certified]
    constraints: Constraints  # the n queries, and what may change
    encoded: EncodedTable  # the n counterfactuals
    # by attribute; the quasi-identifiers, and the private attributes that the constraints restrict
    parts: dict[str, DistinctParts]

    def take(self, at: Rows) -> CertifiedAnswers:
        return CertifiedAnswers(
            positions=self.positions[at],
            verdicts=[self.verdicts[i] for i in at.tolist()],
            constraints=self.constraints.take(at),
            encoded=self.encoded.take(at),
            parts={name: parts.take(at) for name, parts in self.parts.items()},
        )


class Actionability(HostOnly):
    """Withholds certified regions that are of no use to the person who asks.

    The model is asked about every permitted value combination of a region if these are at most
    `cell_budget`; otherwise about `samples` of them, drawn with `seed`.
    """

    def __init__(
        self,
        population: Population,
        *,
        cell_budget: int,
        samples: int,
        seed: int,
    ) -> None:
        self._population = population
        self._cell_budget = cell_budget
        self._samples = samples
        self._seed = seed

    def withhold_excluded_changes(
        self,
        constraints: Constraints,
        encoded: EncodedTable,
        verdicts: Sequence[Verdict],
        is_desired: OutcomeTest,
        ask: Ask,
    ) -> list[Verdict]:
        """Withhold regions in which no permitted combination of values has the desired outcome.

        The share of the permitted combinations that have it is noted as `permitted_pureness` of
        the others.

        Parameters
        ----------
        constraints : the query of each verdict, and what may change
        encoded : the counterfactual of each verdict, whose private values are released
        verdicts : one per query
        is_desired : tells which of the model's labels are desired, given the query of each
        ask : asks the model
        """
        answers = self._certified_answers(constraints, encoded, verdicts)
        checked: list[Verdict] = list(verdicts)
        for i in answers.positions.tolist():
            checked[i] = refused("no_actionable_answer")
        if len(answers.positions) == 0:
            return checked
        has_permitted_values = answers.constraints.admits_paired(answers.parts)
        answerable = np.flatnonzero(has_permitted_values)
        n_at_once = self._n_queries_at_once()
        for start in range(0, len(answerable), n_at_once):
            chunk = answers.take(answerable[start : start + n_at_once])
            shares = self._permitted_pureness(chunk, is_desired, ask)
            for i, verdict, share in zip(
                chunk.positions.tolist(), chunk.verdicts, shares, strict=True
            ):
                if share > 0:
                    checked[i] = verdict.with_counts(permitted_pureness=share)
        return checked

    def withhold_too_many_changes(
        self, constraints: Constraints, encoded: EncodedTable, verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Withhold regions that ask for more changes than the constraints permit.

        A feature changes if what the explanation says of it does not hold the query's own value.
        These are the features that a sentence lists.
        """
        checked: list[Verdict] = list(verdicts)
        if constraints.max_changes is None:
            return checked
        queries = self._population.conform(constraints.queries.frame).to_dict("records")
        for i, verdict in enumerate(verdicts):
            if not isinstance(verdict, Certified):
                continue
            query = queries[i]
            parts = _parts_of(verdict, encoded, i)
            n_changes = sum(not part_contains(part, query[name]) for name, part in parts.items())
            if n_changes > constraints.max_changes:
                checked[i] = refused("no_actionable_answer")
        return checked

    def _certified_answers(
        self, constraints: Constraints, encoded: EncodedTable, verdicts: Sequence[Verdict]
    ) -> CertifiedAnswers:
        """Select the verdicts that are certified, with what each says of the attributes."""
        certified = {i: v for i, v in enumerate(verdicts) if isinstance(v, Certified)}
        explanations = [_parts_of(verdict, encoded, i) for i, verdict in certified.items()]
        restricted = {*self._population.schema.quasi_identifiers, *constraints.rules}
        distinct_parts = {}
        for name, domain in self._population.domains.items():
            if name in restricted:
                parts = [explanation[name] for explanation in explanations]
                distinct_parts[name] = DistinctParts.build(domain, parts)
        positions = np.array([*certified], dtype=np.int64)
        return CertifiedAnswers(
            positions=positions,
            verdicts=[*certified.values()],
            constraints=constraints.take(positions),
            encoded=encoded.take(positions),
            parts=distinct_parts,
        )

    def _n_queries_at_once(self) -> int:
        """Return how many queries fit into memory, with a flag for each code of an attribute."""
        most_values = max(domain.size for domain in self._population.domains.values())
        return max(_MOST_CODES // most_values, 1)

    def _permitted_pureness(
        self, answers: CertifiedAnswers, is_desired: OutcomeTest, ask: Ask
    ) -> list[float]:
        """Return the share of each region's permitted combinations that have the outcome.

        It is 0 where no combination is permitted.
        """
        rows, answer_of_row = self._permitted_rows(answers)
        n_answers = len(answers.positions)
        has_outcome = is_desired(ask(rows), answers.positions[answer_of_row])
        n_desired = np.bincount(answer_of_row, weights=has_outcome, minlength=n_answers)
        n_asked = np.bincount(answer_of_row, minlength=n_answers)
        shares: list[float] = (n_desired / np.maximum(n_asked, 1)).tolist()
        return shares

    def _permitted_rows(self, answers: CertifiedAnswers) -> tuple[pd.DataFrame, Rows]:
        """Return the permitted combinations of all regions as rows, and the answer of each row.

        A combination has one value per quasi-identifier. All other features have the
        counterfactual's value.

        A permitted value that lies nearest to the query may be a number that no training row has.
        Such a number has no code; the rows take it from the columns that `narrowed` returns.
        """
        population = self._population
        varying = {name: answers.parts[name] for name in population.schema.quasi_identifiers}
        nearest_permitted, keep_permitted = answers.constraints.narrowed(varying)
        combinations = []
        for i in range(len(answers.verdicts)):
            axes = self._axes(answers.verdicts[i].region)
            for name, keep in keep_permitted.items():
                axes[name] = keep(i, axes[name])
            grid = Grid(tuple(axes.values()))
            combinations.append(grid.drawn(self._cell_budget, self._samples, self._seed))
        answer_of_row = np.repeat(np.arange(len(combinations)), [*map(len, combinations)])
        rows = rows_for_cells(
            population.encoder,
            answers.encoded.frame.assign(**nearest_permitted),
            answer_of_row,
            np.concatenate(combinations),
        )
        return rows, answer_of_row

    def _axes(self, region: Region) -> dict[str, Codes]:
        """Return, by quasi-identifier, the codes inside a region."""
        quasi_identifiers = self._population.schema.quasi_identifiers
        no_new_values = [0] * len(quasi_identifiers)  # any code other than `UNKNOWN`
        grid = Grid.of(region, self._population, no_new_values)
        return dict(zip(quasi_identifiers, grid.codes, strict=True))


def _parts_of(verdict: Certified, encoded: EncodedTable, row: int) -> dict[str, Part]:
    """Return what an explanation says of each attribute, released private values included."""
    parts = dict(verdict.region)
    for name, value in encoded.private[row].items():
        parts[name] = part_of(value)
    return parts
