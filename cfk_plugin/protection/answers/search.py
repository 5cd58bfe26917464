"""The search for the answers of a catalogue.

An answer is a region of the catalogue with private values. `find_answers` finds one for each query
of a request:

1. Candidates (`candidates`): pairs of a region and private values, in rounds from near to far.
2. Starts (`starts`): the point of each candidate's region that is nearest to the query, with
   private values that are permitted, and the point that it may move towards.
3. Questions (`probe`): the model is asked whether the first candidates are true. What else is to be
   known, such as the queries' own outcomes, is asked along with the first question.
4. Moves (`moves`): private values become the query's or come closer, as long as the outcome is kept
   wherever the region requires it.
5. Rounding (`rounding`): numbers are rounded where that keeps the outcome.
6. Choice (`diversity`): the nearest result is the answer or, where a person asks for several, the
   one that adds most to the answers before it.

Queries that have no answer after a round go on to the next.

Whoever is consistent with the weakest entry of a group is consistent with the answer, and no row of
a person is looked at: an answer is a function of the query, the catalogue and the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.data.training_labels import KnownOutcomes
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.answers.candidates import (
    NEAREST_COMBINED,
    PAIRS_MOVED,
    QUERY_VALUES,
    CandidateSearch,
)
from cfk_plugin.protection.answers.diversity import AnswersSoFar, TrueAnswers
from cfk_plugin.protection.answers.moves import Search
from cfk_plugin.protection.answers.points import TIE, Points, ValueTable
from cfk_plugin.protection.answers.probe import Probe
from cfk_plugin.protection.answers.request import CatalogueRequest
from cfk_plugin.protection.answers.rounding import Rounder
from cfk_plugin.protection.answers.starts import Starts, starts_of
from cfk_plugin.protection.axes import Codes, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

_BLOCK = 1 << 22  # distances held at once
_MOVED_FROM_STARTS = 24  # pairs that begin at explainers' starts and are moved at once
_MOST_ROUNDS = 8  # in a search for more answers, once the person has one


@final
@dataclass(frozen=True, eq=False, repr=False)
class CatalogueAnswers(HostOnly):
    """The answers to n queries, of which m have one.

    What has the length m is in the order of the queries that have an answer.

    Attributes
    ----------
    entry : int64, shape (n,)
        The entry whose region answers each query; -1 if none is true for the person who asks.
    points : EncodedTable, m rows, optional
        Rows that answers ask for, with the first combination of their regions. None if m is 0.
    predictions : m items
        The model's at all combinations of an answer's region; None where it was not asked.
    values_entry : int64, shape (m,), optional
        Which private values each answer began with; see `RegionAndValues`.
    moved : bool, shape (m, n_private), optional
        Which private values are no longer those, but the query's own or on the way to them.
    labels_at_start : shape (n,), optional
        The model's labels of the explainer's counterfactuals; None if they were not asked along.
    labels_at_queries : shape (n,), optional
        The same, of the queries.
    """

    entry: Ints
    points: EncodedTable | None
    predictions: list[Predictions | None]
    values_entry: Ints | None = None
    moved: Mask | None = None
    labels_at_start: Labels | None = None
    labels_at_queries: Labels | None = None

    def without(self, is_dropped: Mask) -> CatalogueAnswers:
        """Return the same without the answers to some of the queries.

        The mask has the shape (n_queries,).
        """
        is_answered = self.entry >= 0
        positions = np.flatnonzero(~is_dropped[is_answered])
        if len(positions) == is_answered.sum():
            return self
        entry = np.where(is_dropped, -1, self.entry)
        if not len(positions):
            return replace(
                self, entry=entry, points=None, predictions=[], values_entry=None, moved=None
            )
        points = None if self.points is None else self.points.take(positions)
        values_entry = None if self.values_entry is None else self.values_entry[positions]
        moved = None if self.moved is None else self.moved[positions]
        return replace(
            self,
            entry=entry,
            points=points,
            predictions=[self.predictions[i] for i in positions.tolist()],
            values_entry=values_entry,
            moved=moved,
        )

    def known_outcomes(self, catalogue: Catalogue) -> KnownOutcomes:
        """Return the model's predictions in the form that verification uses.

        Its positions count the m answers.
        """
        answers: list[int] = []
        combinations: list[Codes] = []
        known_predictions: list[Predictions] = []
        groups = catalogue.region_of_entry[self.entry[self.entry >= 0]]
        for i, predictions in enumerate(self.predictions):
            if predictions is not None and len(predictions):
                answers.append(i)
                combinations.append(catalogue.required_combinations.asked(int(groups[i])))
                known_predictions.append(predictions)
        if not known_predictions:
            return KnownOutcomes()
        sizes = [len(of_answer) for of_answer in combinations]
        return KnownOutcomes(
            np.repeat(answers, sizes),
            np.concatenate(combinations),
            Predictions.joined(known_predictions),
        )


@dataclass(frozen=True, eq=False, repr=False)
class PointsAlong(HostOnly):
    """Points that the model is asked about in the call that asks the first question.

    Attributes
    ----------
    points : Points, optional
        Counterfactuals of the explainer, followed by queries; None if nothing is asked along.
    n_start : int
        How many of the points are counterfactuals.
    place_of_query : int64, shape (n_queries,), optional
        The place of each query among the queries that are asked, each once; None if none is.
    """

    points: Points | None
    n_start: int
    place_of_query: Ints | None

    @classmethod
    def of(cls, request: CatalogueRequest, values: ValueTable) -> PointsAlong:
        """Choose the points: of the equal queries of one person, the first."""
        n_start = len(request) if request.asks_start_labels else 0
        start = values.start.take(np.arange(n_start))
        if not request.asks_query_labels:
            points = start if request.asks_start_labels else None
            return cls(points=points, n_start=n_start, place_of_query=None)
        _, first, place_of_query = np.unique(
            request.person_of_query, return_index=True, return_inverse=True
        )
        return cls(
            points=Points.joined([start, values.factuals.take(first)]),
            n_start=n_start,
            place_of_query=place_of_query,
        )

    def labels_at_start(self, predictions: Predictions | None) -> Labels | None:
        """Return the labels of the explainer's counterfactuals; None if they were not asked."""
        if predictions is None or self.n_start == 0:
            return None
        return predictions.labels[: self.n_start]

    def labels_at_queries(self, predictions: Predictions | None) -> Labels | None:
        """Return the labels of the queries, shape (n_queries,); None if they were not asked."""
        if predictions is None or self.place_of_query is None:
            return None
        return np.asarray(predictions.labels[self.n_start :][self.place_of_query])


def find_answers(catalogue: Catalogue, request: CatalogueRequest) -> CatalogueAnswers:
    """Return the nearest answer to each query that is true for its person.

    An answer is true if the model gives the outcome at the point of its region that is nearest to
    the query.

    Answers are entries, and other private values that have the outcome at every combination where
    the group's weakest entry has it: other entries', the query's own, or the explainer's if it may
    keep these. They then become the query's, or come closer, as long as that stays so. The nearest
    result is the answer.

    With an `explainer_start`, the search starts at the explainer's counterfactuals: one stays in
    its own group if it may keep its private values and the group may have them. Otherwise the
    answer nearest to it is taken. So everybody in the group, with the private values that are
    released, gets the same region. Truth and moves still concern the query.

    Regions contain something that is permitted to the person, and their nearest point is permitted.
    So are private values: all take the nearest permitted values before the model is asked. What
    changes more than `max_changes` permits is no answer.

    With `options`, answers that ask for fewer changes come first, and the numbers of moved answers
    are rounded away from the query's own where that keeps the outcome; see `round_outwards`.

    The queries of one person get different answers; see `AnswersSoFar`. Without an explainer's
    start these are diverse, and ordered from near to far. With it, each query in turn takes what is
    nearest to its own counterfactual.
    """
    values = ValueTable(catalogue, request.queries, request.start)
    along = PointsAlong.of(request, values)
    probe = Probe(catalogue, values, along.points)
    so_far = AnswersSoFar(
        catalogue, values, request.queries, request.person_of_query, _n_wanted(request)
    )
    if len(catalogue):
        _search(request, catalogue, values, probe, so_far)
    answers = CatalogueAnswers(
        entry=np.full(len(request), -1, dtype=np.int64),
        points=None,
        predictions=[],
        labels_at_start=along.labels_at_start(probe.predictions_along),
        labels_at_queries=along.labels_at_queries(probe.predictions_along),
    )
    if not so_far.given:
        return answers
    query, true_answers = _by_query(request, TrueAnswers.joined(so_far.given))
    answers.entry[query] = true_answers.entry
    return replace(
        answers,
        points=_rows(catalogue, values, true_answers),
        predictions=true_answers.predictions,
        values_entry=true_answers.values_entry,
        moved=_moved(catalogue, values, values.start.take(query), true_answers),
    )


def _n_wanted(request: CatalogueRequest) -> Ints:
    """Return how many answers the search looks for, by query; shape (n_queries,).

    From an explainer's start there is one for each. Otherwise the equal queries of one person have
    one search, of the first of them, so that their answers can be compared.
    """
    if request.explainer_start is not None:
        return np.ones(len(request), dtype=np.int64)
    _, person, n_queries = np.unique(
        request.person_of_query, return_inverse=True, return_counts=True
    )
    return np.where(_turn(request.person_of_query) == 0, n_queries[person], 0)


def _turn(values: Ints) -> Ints:
    """Return how many equal values come before each; both arrays have the shape (n,)."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    turn = np.empty(len(values), dtype=np.int64)
    turn[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return turn


def _search(
    request: CatalogueRequest,
    catalogue: Catalogue,
    values: ValueTable,
    probe: Probe,
    so_far: AnswersSoFar,
) -> None:
    """Find answers and add them to those so far.

    Queries of one person take turns, because the answer to one excludes answers to the next. All
    other queries are searched together, in blocks that limit the memory.
    """
    is_searched = so_far.n_open > 0
    turn = _turn(request.person_of_query)
    n_turns = int(turn[is_searched].max(initial=-1)) + 1
    block = _queries_per_block(catalogue)
    every_query = np.arange(len(request))
    candidates = CandidateSearch(catalogue, request, values, so_far)
    for now in range(n_turns):
        searched = np.flatnonzero((turn == now) & is_searched)
        for queries in np.split(searched, range(block, len(searched), block)):
            for n_rounds, pairs in enumerate(candidates.rounds(queries)):
                is_open = so_far.n_open > 0
                if n_rounds >= _MOST_ROUNDS:
                    is_open &= ~so_far.has_any(every_query)
                if not is_open[queries].any():
                    break
                open_pairs = pairs.take(is_open[pairs.query])
                if len(open_pairs):
                    starts = starts_of(catalogue, request, values, so_far, open_pairs)
                    for results in _results(request, values, probe, so_far, starts):
                        so_far.add(results)


def _queries_per_block(catalogue: Catalogue) -> int:
    """Return how many queries are searched together; each has as many distances as candidates."""
    n_combined = NEAREST_COMBINED * NEAREST_COMBINED
    n_values = 1
    if catalogue.inside:  # large regions: codes and numbers of rows at all their combinations
        n_values = 8 * int(catalogue.n_asked(catalogue.weakest).max())
    return max(_BLOCK // max(len(catalogue), n_combined, n_values), 1)


def _results(
    request: CatalogueRequest,
    values: ValueTable,
    probe: Probe,
    so_far: AnswersSoFar,
    starts: Starts,
) -> Iterator[TrueAnswers]:
    """Yield what the searches of some starts come to, from near to far."""
    catalogue = probe.catalogue
    options = request.options
    rounder = None
    if options.rounding:
        rounder = Rounder(catalogue, values, request.constraints)
    search = Search(probe, values, starts, so_far, options, rounder=rounder)
    n_moved = PAIRS_MOVED
    has_explainer_start = request.explainer_start is not None
    if has_explainer_start:
        n_moved = _n_moved_from_start(starts)
    for results in search.results(n_moved, one_by_one=has_explainer_start):
        pairs = starts.pairs.take(results.pair)
        # An explainer's start is answered by what is nearest to it, not to the query.
        distance = pairs.distance if has_explainer_start else results.distance
        yield TrueAnswers(
            query=pairs.query,
            entry=pairs.entry,
            values_entry=pairs.values_entry,
            points=results.points,
            start_keys=starts.keys[results.pair],
            released_keys=so_far.keys(results.points, pairs.entry),
            distance=distance,
            predictions=results.predictions,
        )


def _n_moved_from_start(starts: Starts) -> int:
    """Return how many true pairs of a query are moved at once if an explainer's start is given.

    Then only the pair that is nearest to the counterfactual is moved, if its result is new. More at
    once give the same result with fewer questions, which pays for few queries.
    """
    n_queries = len(np.unique(starts.pairs.query))
    return max(1, _MOVED_FROM_STARTS // max(n_queries, 3))


def _by_query(request: CatalogueRequest, answers: TrueAnswers) -> tuple[Ints, TrueAnswers]:
    """Return the m answers in the order of the queries that they belong to, and these queries.

    If one query was searched for several answers, its person's equal queries get them, from near to
    far.
    """
    answers = answers.take(np.lexsort((np.round(answers.distance / TIE), answers.query)))
    by_person = np.argsort(request.person_of_query, kind="stable")
    place_of_query = np.empty(len(request), dtype=np.int64)
    place_of_query[by_person] = np.arange(len(request))
    query = by_person[place_of_query[answers.query] + _turn(answers.query)]
    order = np.argsort(query)
    return query[order], answers.take(order)


def _moved(catalogue: Catalogue, values: ValueTable, start: Points, answers: TrueAnswers) -> Mask:
    """Return a mask of the private values of answers that are not those they began with.

    Values that began as the query's own count as moved.

    Parameters
    ----------
    start : m points
        Where the search began for the query of each answer; overwritten.
    answers : TrueAnswers, m

    Returns
    -------
    bool, shape (m, n_private)
    """
    value_choices = catalogue.value_choices
    is_taken = answers.values_entry >= 0
    choices = answers.values_entry[is_taken]
    for i, j in enumerate(values.private_columns.tolist()):
        start.places[is_taken, j] = value_choices.values.codes[choices, i]
        start.numbers[is_taken, j] = value_choices.values.numbers[choices, i]
    moved = values.changed(start, answers.points)
    moved[answers.values_entry == QUERY_VALUES] = True
    moved[is_taken] |= ~value_choices.is_given[choices]
    return moved


def _rows(catalogue: Catalogue, values: ValueTable, answers: TrueAnswers) -> EncodedTable:
    """Return the rows of answers, with the first combination of their regions; overwrite points."""
    group = catalogue.region_of_entry[answers.entry]
    answers.points.places[:, list(values.schema.quasi_positions)] = catalogue.corners[group]
    return values.rows(answers.points)


def nearest(
    catalogue: Catalogue, counterfactuals: EncodedTable, open_to: Mask, groups: Ints
) -> Ints:
    """Return the entry that each counterfactual is in its group, or the nearest one to it.

    The query does not count. `open_to` has the shape (n, n_classes), `groups` and the result have
    the shape (n,). The result is -1 if there is no entry.
    """
    entry = np.full(len(counterfactuals), -1, dtype=np.int64)
    block = max(_BLOCK // max(len(catalogue), 1), 1)
    n_searched = len(counterfactuals) if len(catalogue) else 0
    for start in range(0, n_searched, block):
        rows = np.arange(start, min(start + block, n_searched))
        region_distances, values_distances = catalogue.distances(counterfactuals, rows, open_to)
        distances = region_distances[:, catalogue.region_of_entry] + values_distances
        least_distance = distances.min(axis=1)
        first_nearest = np.argmax(distances <= least_distance[:, None] + TIE, axis=1)
        entry[rows] = np.where(np.isfinite(least_distance), first_nearest, -1)
    own_entry = catalogue.entry_of(counterfactuals, groups)
    return np.where(own_entry >= 0, own_entry, entry)
