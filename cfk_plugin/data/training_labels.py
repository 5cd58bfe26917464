"""What the model says of training rows and of combinations, each asked at most once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.combinations import rows_for_cells
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import Codes
from cfk_plugin.data.encoded_table import FEW, EncodedTable, divided
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import OutcomeTest
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, Predictions, Requirement
from cfk_plugin.data.region import Region
from cfk_plugin.errors import HostOnly

_TRIED = 256  # rows


class KnownOutcomes(NamedTuple):
    """What the model said of cells before verification asks; ``which`` is the counterfactual of
    each.
    """

    which: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    cells: Codes = np.empty((0, 0), dtype=np.int32)
    predictions: Predictions = Predictions.joined([])

    def restrict(self, is_kept: Mask) -> KnownOutcomes:
        """Return what is known of some of the counterfactuals, which are renumbered from 0."""
        if is_kept.all():
            return self
        at = np.flatnonzero(is_kept[self.which])
        number = np.cumsum(is_kept) - 1
        return KnownOutcomes(number[self.which[at]], self.cells[at], self.predictions.part(at))


class TrainingLabels(HostOnly):
    """Predictions for the population's own rows, each asked at most once."""

    def __init__(self, model: LabelModel, population: Population) -> None:
        self.model, self.population = model, population
        self._label: NDArray[Any] = np.empty(population.n_rows, dtype=object)
        self._known = np.zeros(population.n_rows, dtype=bool)
        # what answers require of the outcomes that they rest on
        self.requirement: Requirement = AnyOutcome()

    def predictions(self, frame: pd.DataFrame) -> Predictions:
        """Return the model's labels of a table, and whether an answer may rest on each."""
        return self.requirement.predictions(self.model, frame)

    def predictions_of_rows(self) -> Predictions:
        """Return the predictions for all rows of the population."""
        at = np.arange(self.population.n_rows)
        labels = self.labels(at)
        if isinstance(self.requirement, AnyOutcome):
            return Predictions(labels, np.ones(len(at), dtype=bool))
        return self.predictions(self.population.rows(at))

    def labels(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        if len(unknown := np.unique(rows[~self._known[rows]])):
            self._label[unknown] = self.model(self.population.rows(unknown)).astype(object)
            self._known[unknown] = True
        return self._label[rows]

    def tried(self) -> NDArray[Any] | None:
        """Return labels of the first rows, to see whether the model works; None without rows."""
        if not self.population.has_rows:
            return None
        return self.model(self.population.rows(np.arange(min(_TRIED, self.population.n_rows))))

    def ask(self, frame: pd.DataFrame) -> NDArray[Any]:
        return self.model(frame).astype(object)

    def outcomes(
        self,
        accepted: EncodedTable,
        queries: EncodedTable | NDArray[Any] | None,
        fixed: Any,
        foreseen: Callable[[Region], Codes] | None,
    ) -> tuple[NDArray[Any], NDArray[Any] | None, KnownOutcomes]:
        """Ask for the labels of counterfactuals and, unless known, of queries; and for cells of
        `foreseen`.

        This is one call of the model, if the tables have the same dtypes.
        """
        count, known = len(accepted), None if isinstance(queries, EncodedTable) else queries
        if not 0 < count <= FEW:
            if not isinstance(queries, EncodedTable):
                return self._ask_all(accepted)[0], known, KnownOutcomes()
            own, known = self._ask_all(accepted, queries)
            return own, known, KnownOutcomes()
        every = accepted.joined(queries) if isinstance(queries, EncodedTable) else accepted
        codes, sizes = every.quasi_identifiers[0], self.population.sizes.astype(np.int32)
        which, cells = [np.arange(len(every))], [np.where(codes < 0, sizes, codes)]
        if fixed is not None and foreseen is not None:
            groups = fixed.group_of(
                accepted.codes, accepted.numbers, np.zeros(count, dtype=np.int64)
            )
            for i in np.flatnonzero(groups >= 0).tolist():
                cells.append(foreseen(fixed.regions[groups[i]]))
                which.append(np.full(len(cells[-1]), i))
        at, asked = np.concatenate(which), np.concatenate(cells)
        frame = rows_for_cells(self.population.encoder, every, at, asked)
        of_accepted, of_queries, rest = self.predictions(frame).divided(
            [count, len(every) - count, len(at) - len(every)]
        )
        known_outcomes = KnownOutcomes(at[len(every) :], asked[len(every) :], rest)
        labels_of_queries = of_queries.labels if isinstance(queries, EncodedTable) else known
        return of_accepted.labels, labels_of_queries, known_outcomes

    def _ask_all(self, *intakes: EncodedTable) -> list[NDArray[Any]]:
        """Return the labels of each table, in one call where all have the same dtypes."""
        frames = [encoded.frame for encoded in intakes if len(encoded)]
        if len(frames) > 1 and all(frames[0].dtypes.equals(each.dtypes) for each in frames):
            labels = self.ask(pd.concat(frames, ignore_index=True))
            return divided(labels, [len(encoded) for encoded in intakes])
        nothing = np.empty(0, dtype=object)
        return [self.ask(encoded.frame) if len(encoded) else nothing for encoded in intakes]

    def queried(
        self, factuals: pd.DataFrame, query: NDArray[np.int64]
    ) -> EncodedTable | NDArray[Any]:
        """Return the labels of the queries, each asked once; where they are few, the queries, to be
        asked later.
        """
        encoder = self.population.encoder
        if len(query) <= FEW:
            return encoder.read(factuals)
        _, first, of = np.unique(query, return_index=True, return_inverse=True)
        return self.ask(encoder.conform(factuals.take(first)))[of]


REFUSED, DESIRED, SURE = 0, 1, 2
"""What the model thinks of a cell: another outcome; the desired one; that, and an answer may rest
on it.
"""


class CombinationOutcomes(HostOnly):
    """Says for a set of counterfactuals whether the outcome of a cell, or of a training row, is the
    desired one.

    A cell is asked about with its quasi-identifiers and the counterfactual's private values.
    `desired_at`: codes of the counterfactuals' own quasi-identifiers, where all are known to have
    the outcome; `known_outcomes`: what else is known.
    """

    def __init__(
        self,
        judge: OutcomeTest,
        rows: TrainingLabels,
        counterfactuals: pd.DataFrame | EncodedTable,
        desired_at: Codes | None = None,
        known_outcomes: KnownOutcomes | None = None,
    ) -> None:
        self._judge = judge
        self._rows = rows
        self._counterfactuals = counterfactuals
        self._answers: dict[Any, int] = {}
        self._at = np.arange(len(counterfactuals))
        # one number per counterfactual and cell, where 64 bits hold it
        sizes = rows.population.sizes + 1
        self._radix: NDArray[np.int64] | None = None
        if prod(sizes.tolist()) * max(len(counterfactuals), 1) < np.iinfo(np.int64).max:
            self._radix = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
            self._span = int(sizes.prod())
        if desired_at is not None:
            own = np.where(desired_at < 0, sizes - 1, desired_at).astype(np.int32)
            self._answers.update(dict.fromkeys(self._keys(self._at, own), SURE))
        if known_outcomes is not None and len(known_outcomes.which):
            grades = self._graded(known_outcomes.predictions, known_outcomes.which).tolist()
            self._answers.update(
                zip(self._keys(known_outcomes.which, known_outcomes.cells), grades, strict=True)
            )

    def _counts(self) -> str:
        return f"{len(self._answers)} cells known"

    def restrict(self, at: NDArray[np.int64]) -> CombinationOutcomes:
        """Return this oracle for some of its counterfactuals, renumbered from 0; answers stay
        shared.
        """
        part = object.__new__(CombinationOutcomes)
        part.__dict__.update(vars(self), _at=self._at[at])
        return part

    def ask(self, which: NDArray[np.int64], cells: Codes, *, reuse: bool = True) -> Mask:
        """Say of every cell whether it gets the desired outcome; see `grades`."""
        return np.asarray(self.grades(which, cells, reuse=reuse) >= DESIRED)

    def grades(
        self, which: NDArray[np.int64], cells: Codes, *, reuse: bool = True
    ) -> NDArray[np.int8]:
        """Say what the model thinks of every cell, in one call: `REFUSED`, `DESIRED` or `SURE`.

        ``cells[i]`` are codes for counterfactual ``which[i]``, of private attributes too unless
        `reuse`; ``domain.size`` is the counterfactual's own value. With `reuse`, answers are
        remembered.
        """
        which = self._at[which]
        if not reuse:
            return self._evaluate(which, cells)
        keys, answers = self._keys(which, cells), self._answers
        if None in (found := [*map(answers.get, keys)]):
            first = {key: i for i, key in enumerate(keys) if key not in answers}
            at = np.fromiter(first.values(), dtype=np.int64, count=len(first))
            answers.update(zip(first, self._evaluate(which[at], cells[at]).tolist(), strict=True))
            found = [*map(answers.get, keys)]
        return np.array(found, dtype=np.int8)

    def desired_rows(self, which: int | NDArray[np.int64], rows: NDArray[np.int64]) -> Mask | None:
        """Say of training rows whether their prediction is what a counterfactual asks for; None
        without rows.

        Of several counterfactuals, for each; shape (counterfactuals, rows).
        """
        if not self._rows.population.has_rows:
            return None
        labels = np.tile(self._rows.labels(rows), np.size(which))
        return self._judge(labels, np.repeat(self._at[which], len(rows))).reshape(
            *np.shape(which), len(rows)
        )

    def _evaluate(self, which: NDArray[np.int64], cells: Codes) -> NDArray[np.int8]:
        frame = rows_for_cells(self._rows.population.encoder, self._counterfactuals, which, cells)
        return self._graded(self._rows.predictions(frame), which)

    def _graded(self, predictions: Predictions, which: NDArray[np.int64]) -> NDArray[np.int8]:
        is_desired = self._judge(predictions.labels, which)
        return np.where(is_desired, np.where(predictions.is_sure, SURE, DESIRED), REFUSED).astype(
            np.int8
        )

    def _keys(self, which: NDArray[np.int64], cells: Codes) -> list[Any]:
        if self._radix is not None:
            keys: list[Any] = (cells.astype(np.int64) @ self._radix + which * self._span).tolist()
            return keys
        return [
            (i, cell.tobytes())
            for i, cell in zip(which.tolist(), np.ascontiguousarray(cells), strict=True)
        ]
