"""Answer a request from the catalogue.

The model labels the queries, the search finds answers, the recount certifies or withholds each
answer, and the explanations are built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from cfk_plugin.data.codes import Codes, Floats, Ints
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.answers import Answer, explain, least_values
from cfk_plugin.release.catalogue import Catalogue, Part
from cfk_plugin.release.recount import Advice, Certified, Claims
from cfk_plugin.release.request import Request, Rows
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld, values_of

_BATCH_SIZE = 256  # queries that are answered together
_FEW = 4  # up to this number of queries, the calls of the model take most of the time


def answer(catalogue: Catalogue, request: Request, queries: Rows) -> list[Explanation]:
    """Return one explanation, released or withheld, for each slot of a request.

    Parameters
    ----------
    catalogue : Catalogue
    request : Request
        Its counterfactuals, if any, are further starts of the search.
    queries : Rows
        The encoded queries of the request.

    Raises
    ------
    CFKError
        If the model fails.
    """
    answering = _Answering(catalogue, request, queries)
    answers_of_query = answering.answers(np.flatnonzero(queries.are_valid))
    explanations: list[Explanation] = []
    for query, number in zip(request.query_of_slot.tolist(), request.number_of_slot, strict=True):
        fault = queries.faults[query]
        if fault is None:
            explanations.append(next(answers_of_query[query]))
        else:
            explanations.append(Withheld(number, fault.reason, fault.columns))
    return explanations


class _Candidate(NamedTuple):
    """An answer to a query, and the part of the catalogue that it comes from."""

    part: Part
    answer: Answer


@dataclass(frozen=True, eq=False, repr=False)
class _Batch(HostOnly):
    """Queries that are answered together.

    Attributes
    ----------
    query : shape (n_queries,)
        Positions of the queries in the request.
    rows : shape (n_queries, n_features)
        Their codes.
    limits : Limits
        The values that each query may change to.
    n_answers : shape (n_queries,)
        The number of answers that each query asks for.
    starts : shape (n_starts, n_queries, n_features)
        Counterfactuals of an explainer; NaN if a query has fewer than n_starts.
    """

    query: Ints
    rows: Floats
    limits: Limits
    n_answers: Ints
    starts: Floats

    def __len__(self) -> int:
        return len(self.query)

    def take(self, positions: Ints) -> _Batch:
        """Return the batch of the queries at these positions."""
        return _Batch(
            self.query[positions],
            self.rows[positions],
            self.limits.take(positions),
            self.n_answers[positions],
            self.starts[:, positions],
        )


@dataclass(frozen=True, eq=False, repr=False)
class _Answering(HostOnly):
    """Answers one request."""

    catalogue: Catalogue
    request: Request
    queries: Rows

    def answers(self, valid: Ints) -> dict[int, Iterator[Explanation]]:
        """Return the explanations of the valid queries, by the query's position in the request.

        `valid` contains these positions.
        """
        if not len(valid):
            return {}
        rows = self.queries.codes[valid]
        n_answers = np.bincount(self.request.query_of_slot, minlength=len(self.queries.codes))
        batch = _Batch(
            valid, rows, self.request.limits(rows), n_answers[valid], self._starts(valid)
        )
        candidates = None
        if len(batch) <= _FEW and not self.request.goal.needs_factual_labels:
            # The search labels the queries too, and the model remembers the labels. Searching
            # before the labels are needed saves one call of the model.
            candidates = self._candidates(batch)
        is_met = self.request.goal.is_met_already(len(batch), lambda: self._labels(batch))
        explanations = {
            query: [self._withheld(query, ALREADY_DESIRED)] * n
            for query, n in zip(valid.tolist(), batch.n_answers.tolist(), strict=True)
        }
        unmet = np.flatnonzero(~is_met)
        for start in range(0, len(unmet), _BATCH_SIZE):
            positions = unmet[start : start + _BATCH_SIZE]
            some_queries = batch.take(positions)
            if candidates is None:
                some_candidates = self._candidates(some_queries)
            else:
                some_candidates = [candidates[i] for i in positions.tolist()]
            explanations |= self._explanations(some_queries, some_candidates)
            if self.request.progress is not None:
                self.request.progress(start + len(positions), len(unmet))
        return {query: iter(of_query) for query, of_query in explanations.items()}

    def _starts(self, valid: Ints) -> Floats:
        """Return the explainer's counterfactuals of the valid queries.

        The shape is (n_starts, n_valid, n_features), with NaN if a query has fewer starts.
        """
        counterfactuals = self.request.counterfactuals
        if counterfactuals is None:
            return np.empty((0, len(valid), len(self._codes.columns)))
        query = self.request.query_of_slot[self.request.slot_of_counterfactual]
        n_starts = max(np.bincount(query).max(initial=0), 0)
        starts = np.full((n_starts, len(self.queries.codes), len(self._codes.columns)), np.nan)
        n_of_query = [0] * len(self.queries.codes)
        for i, row in zip(query.tolist(), counterfactuals.codes, strict=True):
            starts[n_of_query[i], i] = row
            n_of_query[i] += 1
        return starts[:, valid]

    @property
    def _codes(self) -> Codes:
        return self.catalogue.codes

    def _labels(self, batch: _Batch) -> Labels:
        """Return the model's label of each query, shape (n_queries,). The model remembers them."""
        return self.catalogue.model.labels(batch.rows)

    def _withheld(self, query: int, reason: str) -> Explanation:
        return Withheld(int(self.request.numbers[query]), reason)

    # The search

    def _candidates(self, batch: _Batch) -> list[list[_Candidate]]:
        """Return the nearest answers of all parts to each query, the nearest first."""
        candidates: list[list[_Candidate]] = [[] for _ in range(len(batch))]
        for part in self.catalogue.parts:
            positions = self._queries_for(part, batch)
            queries = batch.take(positions)
            n_answers = int(batch.n_answers.max())
            answers_of_query = explain(
                part.catalogue, queries.rows, queries.limits, n_answers, queries.starts
            )
            for i, answers in zip(positions.tolist(), answers_of_query, strict=True):
                candidates[i] += [_Candidate(part, answer) for answer in answers]
        for of_query in candidates:
            of_query.sort(key=lambda candidate: candidate.answer.distance)
        return candidates

    def _queries_for(self, part: Part, batch: _Batch) -> Ints:
        """Return the positions of the queries in the batch that desire a part's outcome."""
        if part.label is None:
            return np.arange(len(batch))
        outcome = np.empty(1, dtype=object)
        outcome[0] = part.label
        is_desired = self.request.goal.is_met_by_query(outcome, self._labels(batch))[:, 0]
        return np.flatnonzero(is_desired)

    # Explanations

    def _explanations(
        self, batch: _Batch, candidates: Sequence[Sequence[_Candidate]]
    ) -> dict[int, list[Explanation]]:
        """Return the explanations of each query, by its position in the request.

        If a query has too few candidates, the other slots are withheld with the reason.
        """
        by_distance: list[list[tuple[float, Explanation]]] = [[] for _ in range(len(batch))]
        for part in self.catalogue.parts:
            answers = [
                replace(candidate.answer, query=i)
                for i, of_query in enumerate(candidates)
                for candidate in of_query[: batch.n_answers[i]]
                if candidate.part is part
            ]
            if answers:
                explained = self._recounted(part, batch, answers)
                for answer, explanation in zip(answers, explained, strict=True):
                    by_distance[answer.query].append((answer.distance, explanation))
        explanations: dict[int, list[Explanation]] = {}
        for i, query in enumerate(batch.query.tolist()):
            nearest_first = sorted(by_distance[i], key=itemgetter(0))
            of_query = [explanation for _, explanation in nearest_first]
            reason = "no_other_answer" if of_query else self._reason_without_answer
            n_lacking = int(batch.n_answers[i]) - len(of_query)
            explanations[query] = of_query + [self._withheld(query, reason)] * n_lacking
        return explanations

    @property
    def _reason_without_answer(self) -> str:
        is_restricted = self.request.restricts_changes and len(self.catalogue) > 0
        return "no_actionable_answer" if is_restricted else "infeasible"

    def _recounted(
        self, part: Part, batch: _Batch, answers: Sequence[Answer]
    ) -> Iterator[Explanation]:
        """Recount answers of a part, and yield each as a released or withheld explanation."""
        query = np.array([answer.query for answer in answers], dtype=np.int64)
        points = np.stack([answer.point for answer in answers])
        region = np.array([answer.region for answer in answers], dtype=np.int64)
        private = points[:, self._codes.private]
        claims = Claims(region, private, Advice(points, batch.limits.take(query)))
        # The rows of the recount go into the same call of the model, which remembers their labels.
        questions = part.recounter.questions(claims)
        least = least_values(part.catalogue, answers, batch.rows, batch.limits, questions)
        verdicts = part.recounter.judge(claims)
        outcomes = self.request.goal.outcomes(
            part.catalogue.model.labels(points),
            self._labels(batch)[query],
            part.catalogue.model.label_model.classes,
        )
        for i, (verdict, outcome) in enumerate(zip(verdicts, outcomes, strict=True)):
            number = int(self.request.numbers[batch.query[query[i]]])
            if isinstance(verdict, Withheld):
                yield Withheld(number, verdict.reason)
                continue
            yield GeneralizedCounterfactual.of_verdict(
                self._with_origins(verdict, part, points[i], batch.rows[query[i]]),
                number,
                private[i],
                outcome,
                self._codes,
                self.catalogue.schema,
                advised=values_of(self._codes, self._codes.quasi, points[i][self._codes.quasi]),
                least=values_of(self._codes, np.arange(points.shape[1]), least[i]),
            )

    def _with_origins(
        self, verdict: Certified, part: Part, point: Floats, query: Floats
    ) -> Certified:
        """Add the names of private values that equal the query's, and of those that were moved.

        A moved value is neither the query's nor a shared value, but between the two.
        """
        unchanged: list[str] = []
        moved: list[str] = []
        for j, shared in zip(self._codes.private.tolist(), part.catalogue.shared, strict=True):
            if point[j] == query[j]:
                unchanged.append(self._codes.names[j])
            elif point[j] not in shared.values:
                moved.append(self._codes.names[j])
        recount = replace(verdict.recount, moved=tuple(moved), unchanged=tuple(unchanged))
        return verdict._replace(recount=recount)
