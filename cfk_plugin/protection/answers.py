"""Answers: the least change of each query that the catalogue can promise.

The search first looks for a point: the least change for which the model gives the outcome with the
margin. It begins at starts that the catalogue offers (`starts`), takes back changes, and shrinks
the remaining ones (`moves`). Then it looks for a region of the catalogue for whose people the model
gives the outcome with the point's private values. If there is none, it moves entries of the
catalogue as far as their region agrees. A point without a region is never an answer.

The region is released as the catalogue publishes it. The point may lie outside of it in
quasi-identifiers with the query's own value: "36 to 50, or your own 27".

An answer is a function of the query, the catalogue and the model. Other queries of the same call
make no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.data.constraints import Limits
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.catalogue import Catalogue
from cfk_plugin.protection.moves import (
    ROWS_PER_CALL,
    Distance,
    least_together,
    rank_in_run,
    shrink,
    take_back,
)
from cfk_plugin.protection.regions import LineParts, SetParts
from cfk_plugin.protection.starts import PAIRS_AT_ONCE, Points, Starts, as_bytes

_QUERIES_AT_ONCE = 256
_STARTS = 16  # nearest true starts of a query whose changes are taken back, for each answer
_MOST_STARTS = 64  # the same for all answers of a query
_FIRST_ROWS = 96  # starts of a query in the first call of the model
_ENDS = 4  # nearest points of a query that shrink, for each answer
_REGIONS = 24  # regions that are tried for a point
_FIRST_REGIONS = 4  # regions that are tried in the first round
_FEW_QUERIES = 4  # up to this many queries, rows are asked about early to save calls of the model
_PROBES = 6  # most doubtful combinations of a region, which are asked about first
_MORE_PROBES = 64  # combinations that are asked about next, before all of many
_BOUND_TRIED = 64  # nearest true points of a query that are tried with their own region, per answer
_BOUND = 6  # points of these that move, for each answer
_MOST_TRIES = 2  # how often a point is moved again, each time with more combinations
_MUCH_LESS = 0.5  # a change is much smaller than another if it is at most this share of it


@dataclass(frozen=True, eq=False, repr=False)
class Answer(HostOnly):
    """A point with the outcome, and a region whose people have it with the same private values.

    Attributes
    ----------
    query : int
        The position of the query.
    region : int
        The number of the region. It contains the quasi-identifiers of the point that differ from
        the query's own.
    point : shape (n_features,)
        The model gives it the outcome with the margin.
    distance : float
        The distance between the query and the point.
    """

    query: int
    region: int
    point: Floats
    distance: float


def explain(
    catalogue: Catalogue,
    queries: Floats,
    limits: Limits | None = None,
    n_answers: int = 1,
    starts: Floats | None = None,
) -> list[list[Answer]]:
    """Return up to `n_answers` answers to each query, nearest first.

    Parameters
    ----------
    catalogue : Catalogue
    queries : shape (n_queries, n_features), without NaN
    limits : Limits, optional
        The limits of these queries. By default, those of the schema.
    n_answers : int
    starts : shape (n_queries, n_features) or (n_starts, n_queries, n_features), optional
        Counterfactuals of an explainer, as further starts of the search. Their private values are
        replaced by shared ones. A row with NaN means no counterfactual.

    Returns
    -------
    list of list of Answer
        The answers to each query; an empty list if it has none.
    """
    if limits is None:
        limits = Limits.of(catalogue.codes, queries)
    if starts is None:
        starts = np.empty((0, *queries.shape))
    if starts.ndim == 2:
        starts = starts[None]
    answers: list[list[Answer]] = []
    if not len(catalogue.entries):
        return [[] for _ in queries]
    n_largest = max(len(catalogue.regions), len(catalogue.centres))
    at_once = min(_QUERIES_AT_ONCE, max(PAIRS_AT_ONCE // n_largest, 1))
    for first in range(0, len(queries), at_once):
        batch = np.arange(first, min(first + at_once, len(queries)))
        search = _Search(catalogue, limits.take(batch), n_answers, starts[:, batch])
        for points in search.answers():
            answers.append([search.answer(points, i, first) for i in range(len(points))])
    return answers


def least_values(
    catalogue: Catalogue,
    answers: Sequence[Answer],
    queries: Floats,
    limits: Limits,
    along: Floats | None = None,
) -> Floats:
    """Return the smallest changes of numbers and levels with which answers are true without margin.

    With all these values together, the model gives the outcome today.

    Parameters
    ----------
    catalogue : Catalogue
    answers : sequence of Answer
        Answers to any of the queries.
    queries, limits
        As in `explain`.
    along : shape (n_rows, n_features), optional
        Rows that the caller needs soon. The model is asked about them in the same call and
        remembers them.

    Returns
    -------
    array, shape (n_answers, n_features)
        NaN if a value is that of the point. All are NaN if the catalogue has no margin.
    """
    if catalogue.model.margin == 0 or not len(answers):
        return np.full((len(answers), queries.shape[1]), np.nan)
    points = np.array([answer.point for answer in answers])
    query = np.array([answer.query for answer in answers])

    def keeps(rows: Floats, _: Ints) -> Mask:
        all_rows = rows if along is None else np.concatenate([rows, along])
        has_outcome = catalogue.model.has_outcome(all_rows)[: len(rows)]
        return has_outcome & limits.codes.obey_rules(rows)

    least = least_together(points, query, limits, keeps)
    return np.where(least == points, np.nan, least)


@dataclass(frozen=True, eq=False, repr=False)
class _Search(HostOnly):
    """The search for answers to a batch of queries.

    Attributes
    ----------
    counterfactuals : shape (n_starts, n_queries, n_features)
        The counterfactuals of an explainer.
    """

    catalogue: Catalogue
    limits: Limits
    n_answers: int
    counterfactuals: Floats

    @cached_property
    def distance(self) -> Distance:
        return Distance(self.limits, self.catalogue.spans, self.catalogue.settings.change_cost)

    @cached_property
    def starts(self) -> Starts:
        return Starts(self.catalogue, self.limits, self.distance)

    @property
    def _quasi(self) -> Ints:
        return self.catalogue.codes.quasi

    @property
    def _private(self) -> Ints:
        return self.catalogue.codes.private

    def answers(self) -> list[Points]:
        """Return the points of each query's answers, nearest first."""
        answers = self._useful(self._with_region(self._ends()))
        for further_points in (self.starts.entries, self.starts.required_points):
            n_of_query = np.bincount(answers.query, minlength=len(self.limits))
            unfinished = np.flatnonzero(n_of_query < self.n_answers)
            if len(unfinished):
                points = further_points(unfinished)
                answers = Points.joined([answers, self._bound(points, answers)])
        answers = answers.take(np.argsort(self._distances(answers), kind="stable"))
        return [answers.take(answers.query == q) for q in range(len(self.limits))]

    def answer(self, points: Points, i: int, first: int) -> Answer:
        """Return point `i` as an answer; `first` is the position of the batch's first query."""
        point = points.take(np.array([i]))
        distance = float(self._distances(point)[0])
        return Answer(first + int(point.query[0]), int(point.region[0]), point.rows[0], distance)

    def _useful(self, points: Points) -> Points:
        """Choose up to `n_answers` points of each query that differ usefully, and near ones first.

        A change that a chosen point also asks for counts twice in the distance of the next point.
        """
        prices = self._distances(points)
        chosen = [np.empty(0, dtype=np.int64)]
        is_open = np.ones(len(points), dtype=bool)
        for _ in range(self.n_answers):
            order = np.lexsort((prices, points.query))
            order = order[is_open[order]]
            nearest = order[rank_in_run(points.query[order]) == 0]
            chosen.append(nearest)
            is_open &= self._differ(points, points.take(nearest))
            prices += self._repeated_costs(points, points.take(nearest))
        return points.take(np.concatenate(chosen))

    def _repeated_costs(self, points: Points, answers: Points) -> Floats:
        """Return the cost of those changes of points that an answer to the same query also has.

        The shape is (n_points,).
        """
        point, answer = np.nonzero(points.query[:, None] == answers.query)
        rows = points.rows[point]
        query = points.query[point]
        factual = self.limits.queries[query]
        is_line = self.catalogue.codes.is_line
        is_spared = _spared(answers.rows[answer], rows, factual, is_line)
        costs = np.where(is_spared, 0.0, self.distance.by_column(rows, query)).sum(axis=1)
        return np.round(np.bincount(point, costs, len(points)), 9)

    def _differ(self, points: Points, answers: Points) -> Mask:
        """Return which points differ usefully from all answers to their query, (n_points,)."""
        point, answer = np.nonzero(points.query[:, None] == answers.query)
        factual = self.limits.queries[points.query[point]]
        is_line = self.catalogue.codes.is_line
        differ = differ_usefully(points.rows[point], answers.rows[answer], factual, is_line)
        return ~np.isin(np.arange(len(points)), point[~differ])

    def _distances(self, points: Points) -> Floats:
        """Return the distance of each point from its query, rounded so that equal ones tie."""
        return np.round(self.distance.of(points.rows, points.query), 9)

    def _ask(self, *rows: Floats) -> None:
        """Ask the model about rows that are needed soon, in one call; it remembers the outputs."""
        self.catalogue.model.leads(np.concatenate(rows))

    def _sure(self, rows: Floats, _: Ints) -> Mask:
        """Return which rows have the outcome with the margin and obey all rules."""
        return self.catalogue.model.sure(rows) & self.catalogue.codes.obey_rules(rows)

    # Points

    def _ends(self) -> Points:
        """Return the nearest points of each query that cannot come closer, nearest first."""
        points = self._true_starts()
        rows = take_back(points.rows, points.query, self.distance, self._sure)
        points = self._nearest(points.moved(rows), vary=self.n_answers > 1)

        def foresee(rows: Floats, trials: Floats) -> None:
            ends = self._nearest(points.moved(rows))
            pairs = self._pairs(ends).take(slice(_FIRST_REGIONS))
            questions = self._questions(pairs)
            self._ask(trials, questions.rows[: ROWS_PER_CALL - len(trials)])

        helper = foresee if len(self.limits) <= _FEW_QUERIES else None
        rows = shrink(
            points.rows,
            points.query,
            self.distance,
            self._sure,
            foresee=helper,
        )
        ends = self._nearest(points.moved(rows))
        return ends.take(self.limits.few_changes(ends.rows, ends.query))

    def _true_starts(self) -> Points:
        """Return the nearest starts of each query that have the outcome with the margin.

        Counterfactuals of an explainer are preferred.
        """
        explained = self.starts.explained(self.counterfactuals)
        points = Points.joined([explained, self.starts.everywhere()])
        is_explained = np.arange(len(points)) < len(explained)
        is_too_much = ~self.limits.few_changes(points.rows, points.query)
        order = np.lexsort((self._distances(points), is_too_much, ~is_explained, points.query))
        points = points.take(order).distinct()
        n = min(_STARTS * self.n_answers, _MOST_STARTS)
        rank = rank_in_run(points.query)
        is_true = np.zeros(len(points), dtype=bool)
        is_now = rank < (len(points) if len(points) <= ROWS_PER_CALL else _FIRST_ROWS)
        self._ask(points.rows[is_now], self.limits.queries)  # the caller needs labels of queries
        while is_now.any():
            is_true[is_now] = self._sure(points.rows[is_now], points.query[is_now])
            n_true = np.bincount(points.query, is_true, len(self.limits))
            is_now = (rank > rank[is_now].max()) & (n_true < n)[points.query]
        points = points.take(is_true)
        return points.take(rank_in_run(points.query) < n)

    def _nearest(self, points: Points, *, vary: bool = False) -> Points:
        """Return the nearest distinct points of each query, nearest first.

        With `vary`, points are preferred that change other columns than nearer points do.
        """
        points = points.distinct()
        distances = self._distances(points)
        is_too_much = ~self.limits.few_changes(points.rows, points.query)
        preference = np.zeros(len(points), dtype=np.int64)
        if vary:
            is_changed = points.rows != self.limits.queries[points.query]
            keys = np.column_stack([points.query, is_changed])
            preference = _rank_among_equal(keys, distances)
        order = np.lexsort((distances, preference, is_too_much, points.query))
        order = order[rank_in_run(points.query[order]) < _ENDS * self.n_answers]
        return points.take(order[np.lexsort((distances[order], points.query[order]))])

    # Regions of points

    def _with_region(self, ends: Points) -> Points:
        """Return ends with a region that agrees: one for each query, or one for each end.

        For one answer, the nearest end of each query with such a region is enough.
        """
        pairs = self._pairs(ends)
        unit = pairs.query if self.n_answers == 1 else _number_of_run(pairs)
        return pairs.take(self._first_agreed(pairs, unit))

    def _pairs(self, ends: Points) -> Points:
        """Return pairs of an end and a region that may contain it, near regions first."""
        regions = self.catalogue.regions
        has_entry = np.isin(np.arange(len(regions)), self.catalogue.entries.region)
        price = np.where(has_entry, regions.ncp, np.inf)[None].repeat(len(ends), axis=0)
        for j, part in zip(self._quasi.tolist(), regions.parts, strict=True):
            values = ends.rows[:, j]
            is_outside = ~part.contains_by_region(values)
            is_changed = values != self.limits.queries[ends.query, j]
            weight = part.column.attribute.weight
            price += np.where(is_outside, weight * _growth(part, values), 0.0)
            price[is_outside & is_changed[:, None]] = np.inf
        best = np.argsort(price, axis=1, kind="stable")[:, :_REGIONS]
        end = np.repeat(np.arange(len(ends)), best.shape[1])
        region = best.reshape(-1)
        pairs = Points(ends.query[end], ends.rows[end], region)
        return pairs.take(np.isfinite(price[end, region]))

    def _first_agreed(self, pairs: Points, unit: Ints) -> Ints:
        """Return the position of the first pair of each unit whose region agrees, in order.

        `unit`, shape (n_pairs,), is a number for each pair; equal numbers are next to each other.
        """
        is_open = np.ones(len(pairs), dtype=bool)
        agreed = [np.empty(0, dtype=np.int64)]
        n_next = _FIRST_REGIONS
        while is_open.any():
            candidates = np.flatnonzero(is_open)
            candidates = candidates[rank_in_run(unit[candidates]) < n_next]
            is_open[candidates] = False
            if self._n_questions(pairs.take(candidates)) <= ROWS_PER_CALL:
                self._ask(self._questions(pairs.take(candidates)).rows)
            candidates = candidates[self._agree(pairs.take(candidates), _PROBES)]
            while len(candidates):
                is_first = rank_in_run(unit[candidates]) == 0
                first = candidates[is_first]
                agreed.append(first[self._agree(pairs.take(first))])
                candidates = candidates[~is_first & ~np.isin(unit[candidates], unit[agreed[-1]])]
            is_open &= ~np.isin(unit, unit[np.concatenate(agreed)])
            n_next *= 2
        return np.sort(np.concatenate(agreed))

    def _agree(self, pairs: Points, n_combinations: int | None = None) -> Mask:
        """Return whether the people of regions have the outcome with the points' private values.

        The model is asked about all combinations that a region requires, or about the
        `n_combinations` most doubtful ones. Entries agree without a call.
        """
        agrees = self._is_entry(pairs)
        others = np.flatnonzero(~agrees)
        is_all = n_combinations is None
        if is_all and self._n_questions(pairs.take(others)) > ROWS_PER_CALL:
            others = others[self._agree(pairs.take(others), _MORE_PROBES)]
        questions = self._questions(pairs.take(others), n_combinations)
        is_outcome = self.catalogue.model.has_outcome(questions.rows)
        n_rows = np.bincount(questions.query, minlength=len(others))
        n_outcomes = np.bincount(questions.query, is_outcome, len(others))
        agrees[others] = (n_rows > 0) & (n_outcomes == n_rows)
        return agrees

    def _is_entry(self, pairs: Points) -> Mask:
        """Return which points have the private values of an entry of their region."""
        keys = as_bytes(np.column_stack([pairs.region, pairs.rows[:, self._private]]))
        return np.isin(keys, self._entry_keys)

    @cached_property
    def _entry_keys(self) -> NDArray[np.void]:
        """The region and private values of every entry as one value, shape (n_entries,)."""
        entries = self.catalogue.entries
        return as_bytes(np.column_stack([entries.region, entries.values]))

    def _n_questions(self, pairs: Points) -> int:
        """Return the number of rows of `_questions`, without asking the model about them."""
        required = self.catalogue.required(pairs.region)
        return sum(len(required[region]) for region in pairs.region.tolist())

    def _questions(self, pairs: Points, n_combinations: int | None = None) -> Points:
        """Return the rows that must have the outcome if regions are to agree with points.

        They have the point's private values and each combination that the region requires, or the
        `n_combinations` most doubtful ones. The `query` of each row is the position of its pair.
        """
        required = self.catalogue.required(pairs.region)
        combinations = [required[region][:n_combinations] for region in pairs.region.tolist()]
        return self._at(pairs, combinations)

    def _at(self, points: Points, combinations: list[Floats]) -> Points:
        """Return the private values of each point with each of its combinations.

        The `query` of each row is the position of its point.
        """
        point = np.repeat(np.arange(len(points)), [len(quasi) for quasi in combinations])
        rows = points.rows[point]
        rows[:, self._quasi] = np.concatenate([np.empty((0, len(self._quasi))), *combinations])
        return Points.of(point, rows)

    # Points that begin with a region

    def _bound(self, points: Points, others: Points) -> Points:
        """Move points closer to their queries as far as their own region agrees.

        Return the nearest ones of each query. Together with `others`, these are at most `n_answers`
        for each query, and they differ usefully.

        While points move, the model is asked about a few combinations of their region. If the
        region does not agree with a point at the end, the combinations without the outcome are
        added, and the point moves again from its start. If this fails, an entry stays unmoved.
        """
        starts = self._bound_starts(points)
        probes = self._first_combinations(starts)
        ends = self._moved(starts, probes)
        n_tries = np.zeros(len(starts), dtype=np.int64)
        n_agreed = np.bincount(others.query, minlength=len(self.limits))
        agreed = [np.empty(0, dtype=np.int64)]
        is_open = self._are_new(ends, others)
        while is_open.any():
            nearest = self._nearest_open(ends, is_open)
            agrees = self._agree(ends.take(nearest))
            agreed.append(nearest[agrees])
            n_agreed += np.bincount(ends.query[agreed[-1]], minlength=len(n_agreed))
            failures = nearest[~agrees]
            n_tries[failures] += 1
            stays = failures[n_tries[failures] > _MOST_TRIES]
            ends.rows[stays] = starts.rows[stays]
            is_open[stays] = self._is_entry(starts.take(stays))
            is_open &= (n_agreed < self.n_answers)[ends.query]
            retries = failures[is_open[failures] & (n_tries[failures] <= _MOST_TRIES)]
            worst = self._worst_combinations(ends.take(retries))
            for point, combinations in zip(retries.tolist(), worst, strict=True):
                probes[point] = np.concatenate([probes[point], combinations])
            new_ends = self._moved(
                starts.take(retries), [probes[point] for point in retries.tolist()]
            )
            ends.rows[retries] = new_ends.rows
            answers = Points.joined([others, ends.take(np.concatenate(agreed))])
            is_open &= self._are_new(ends, answers)
        return ends.take(np.concatenate(agreed))

    def _are_new(self, points: Points, answers: Points) -> Mask:
        """Return which points change few columns and differ usefully from all answers."""
        is_few = self.limits.few_changes(points.rows, points.query)
        return is_few & self._differ(points, answers)

    def _bound_starts(self, points: Points) -> Points:
        """Return the nearest true points of each query whose region agrees at its first probes.

        The nearest entries of the query are among them.
        """
        points = points.take(self._sure(points.rows, points.query))
        is_too_much = ~self.limits.few_changes(points.rows, points.query)
        points = points.take(np.lexsort((self._distances(points), is_too_much, points.query)))
        is_near = rank_in_run(points.query) < _BOUND_TRIED * self.n_answers
        points = points.take(is_near | self._is_entry(points))
        points = points.take(self._agree(points, _PROBES))
        entries = np.flatnonzero(self._is_entry(points))
        is_chosen = rank_in_run(points.query) < _BOUND * self.n_answers
        is_chosen[entries[rank_in_run(points.query[entries]) < self.n_answers]] = True
        return points.take(is_chosen)

    def _first_combinations(self, points: Points) -> list[Floats]:
        """Return the most doubtful combinations of each point's region."""
        required = self.catalogue.required(points.region)
        return [required[region][:_PROBES] for region in points.region.tolist()]

    def _nearest_open(self, points: Points, is_open: Mask) -> Ints:
        """Return the nearest open point of each query."""
        positions = np.flatnonzero(is_open)
        candidates = points.take(positions)
        order = np.lexsort((self._distances(candidates), candidates.query))
        nearest: Ints = positions[order[rank_in_run(candidates.query[order]) == 0]]
        return nearest

    def _moved(self, points: Points, probes: list[Floats]) -> Points:
        """Move points closer to their queries while their probes have the outcome.

        `probes` contains combinations of each point's region.
        """
        if not len(points):
            return points

        def keeps(rows: Floats, place: Ints) -> Mask:
            trials = Points(points.query[place], rows, points.region[place])
            questions = self._at(trials, [probes[i] for i in place.tolist()])
            is_kept = self._is_in_region(trials)
            if len(rows) + len(questions) <= ROWS_PER_CALL:
                self._ask(rows[is_kept], questions.rows[is_kept[questions.query]])
            is_kept &= self._sure(rows, place)
            questions = questions.take(is_kept[questions.query])
            is_outcome = self.catalogue.model.has_outcome(questions.rows)
            is_kept[questions.query[~is_outcome]] = False
            return is_kept

        n_rows = 1 + max(len(combinations) for combinations in probes)
        rows = take_back(points.rows, points.query, self.distance, keeps, n_rows)
        rows = shrink(rows, points.query, self.distance, keeps, n_rows)
        return points.moved(rows)

    def _worst_combinations(self, points: Points) -> list[Floats]:
        """Return a few required combinations for each point: those with the lowest leads.

        The model does not give them the outcome.
        """
        model = self.catalogue.model
        questions = self._questions(points, _MORE_PROBES)
        questions = questions.take(~model.has_outcome(questions.rows))
        without = np.setdiff1d(np.arange(len(points)), questions.query)
        further = self._questions(points.take(without))
        further = further.take(~model.has_outcome(further.rows))
        further = Points.of(without[further.query], further.rows)
        questions = Points.joined([questions, further])
        questions = questions.take(np.lexsort((model.leads(questions.rows), questions.query)))
        questions = questions.take(rank_in_run(questions.query) < _PROBES)
        quasi = questions.rows[:, self._quasi]
        return [quasi[questions.query == point] for point in range(len(points))]

    def _is_in_region(self, points: Points) -> Mask:
        """Return whether the region of each point contains its changed quasi-identifiers."""
        is_in = np.ones(len(points), dtype=bool)
        for j, part in zip(self._quasi.tolist(), self.catalogue.regions.parts, strict=True):
            values = points.rows[:, j]
            is_own = values == self.limits.queries[points.query, j]
            is_in &= is_own | part.contains_by_region(values)[np.arange(len(points)), points.region]
        return is_in


def differ_usefully(first: Floats, second: Floats, factual: Floats, is_line: Mask) -> Mask:
    """Return whether two answers give a person a choice.

    They do if each of them makes some change of the other unnecessary, or at most half as large.

    Parameters
    ----------
    first, second, factual : shape (..., n_features)
        The answers, and their query.
    is_line : shape (n_features,)

    Returns
    -------
    array, shape (...)
    """
    is_first_spared = _spared(second, first, factual, is_line).any(axis=-1)
    is_second_spared = _spared(first, second, factual, is_line).any(axis=-1)
    differ: Mask = np.logical_and(is_first_spared, is_second_spared)
    return differ


def _spared(rows: Floats, others: Floats, factual: Floats, is_line: Mask) -> Mask:
    """Return which changes of `others` are at most half as large in `rows`, or different.

    The shape is that of the rows. A category can only be different.
    """
    is_changed = others != factual
    change = np.where(is_changed, others - factual, 1.0)
    is_less = (rows - factual) / change <= _MUCH_LESS
    spared: Mask = is_changed & np.where(is_line, is_less, rows != others)
    return spared


def _growth(part: LineParts | SetParts, values: Floats) -> Floats:
    """Return roughly how much the NCP of each part would grow to contain each value.

    The shape is (n_values, n_regions).
    """
    if isinstance(part, SetParts):
        return np.full((len(values), len(part.inside)), 1 / part.inside.shape[1])
    nearest = np.clip(values[:, None], part.low, part.high)
    return np.minimum(np.abs(values[:, None] - nearest) / part.column.span, 1.0)


def _rank_among_equal(keys: Floats, distances: Floats) -> Ints:
    """Return the number of nearer points with the same key, shape (n_points,)."""
    group = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((distances, group))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = rank_in_run(group[order])
    return rank


def _number_of_run(points: Points) -> Ints:
    """Return a number for each run of equal points, shape (n_points,)."""
    keys = as_bytes(np.column_stack([points.query, points.rows]))
    is_new = np.ones(len(points), dtype=bool)
    is_new[1:] = keys[1:] != keys[:-1]
    return np.cumsum(is_new)
