"""Several answers to one person: they share no private values, and add to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.protection.answers.points import TIE, Keys, Points, ValueTable
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

_MOST_PREDICTIONS = 1 << 22  # that are kept for verification; it asks the model for others again
_NEARNESS = 0.5  # weight of the distance against that of diversity, which is 1: DiCE's own
_RIDGE = 1e-9  # so that two answers at one point are no error


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TrueAnswers(HostOnly):
    """Possible answers to queries, each true for the person who asks; from near to far per query.

    Attributes
    ----------
    query, entry, values_entry : int64, shape (n,)
        As in `RegionAndValues`.
    points : Points, n
        What an answer asks for, with the private values that are released.
    start_keys, released_keys : uint64, shape (n,)
        Keys of the private values that the search began with, and of those that are released.
    distance : float64, shape (n,)
    predictions : n items
        The model's at all combinations of the answer's region; None where it was not asked.
    """

    query: Ints
    entry: Ints
    values_entry: Ints
    points: Points
    start_keys: Keys
    released_keys: Keys
    distance: Floats
    predictions: list[Predictions | None]

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Ints) -> TrueAnswers:
        return TrueAnswers(
            query=self.query[rows],
            entry=self.entry[rows],
            values_entry=self.values_entry[rows],
            points=self.points.take(rows),
            start_keys=self.start_keys[rows],
            released_keys=self.released_keys[rows],
            distance=self.distance[rows],
            predictions=[self.predictions[row] for row in rows.tolist()],
        )

    @classmethod
    def joined(cls, parts: Sequence[TrueAnswers]) -> TrueAnswers:
        """Return the answers of all parts, one part after the other."""
        return cls(
            query=np.concatenate([part.query for part in parts]),
            entry=np.concatenate([part.entry for part in parts]),
            values_entry=np.concatenate([part.values_entry for part in parts]),
            points=Points.joined([part.points for part in parts]),
            start_keys=np.concatenate([part.start_keys for part in parts]),
            released_keys=np.concatenate([part.released_keys for part in parts]),
            distance=np.concatenate([part.distance for part in parts]),
            predictions=[one for part in parts for one in part.predictions],
        )


class AnswersSoFar:
    """The answers that were given so far.

    No two answers to the same person have the same private values, or began with the same.
    Otherwise an attacker could attribute two answers to one record and intersect their regions.

    Among the other results the nearest is given. If a query wants several answers, the result is
    given that adds the most to those before it, which is the one with the least
    ``0.5 d(c, x) - g(c)``: d is the summed HEOM distance to the query, and g the factor by which c
    raises det K, ``K_ij = 1 / (1 + d(c_i, c_j))``. These are proximity, diversity and weights of
    DiCE (Mothilal, Sharma, Tan 2020, section 3). If another answer a lies on the way,
    ``d(x, a) + d(a, c) = d(x, c)``, then c asks for more than that one: it is given last.

    Parameters
    ----------
    catalogue : Catalogue
    values : ValueTable
    queries : EncodedTable
    person_of_query : int64, shape (n_queries,)
    n_wanted : int64, shape (n_queries,)
        How many answers each query wants.

    Attributes
    ----------
    n_open : int64, shape (n_queries,)
        How many answers each query still wants.
    wants_several : bool, shape (n_queries,)
    given : list of TrueAnswers
    """

    def __init__(
        self,
        catalogue: Catalogue,
        values: ValueTable,
        queries: EncodedTable,
        person_of_query: Ints,
        n_wanted: Ints,
    ) -> None:
        self._catalogue = catalogue
        self._values = values
        self._queries = queries
        self.n_open = n_wanted.copy()
        self.wants_several = n_wanted > 1
        self.given: list[TrueAnswers] = []
        self._n_predictions = 0
        self._person = np.unique(person_of_query, return_inverse=True)[1]  # numbered from 0
        n_wanted_by_person = np.bincount(self._person, n_wanted, minlength=1)
        self._most_answers = int(n_wanted_by_person.max())
        n_people = len(n_wanted_by_person)
        self._n_given = np.zeros(n_people, dtype=np.int64)
        self._start_keys = np.zeros((n_people, self._most_answers), dtype=np.uint64)
        self._released_keys = np.zeros((n_people, self._most_answers), dtype=np.uint64)
        self._compared: _ComparedAnswers | None = None
        if self._most_answers > 1:
            self._compared = _ComparedAnswers(_heom_of(catalogue), n_people, self._most_answers)

    def has_any(self, query: Ints) -> Mask:
        """Return a mask of the queries whose person has an answer; shape (n,)."""
        return np.asarray(self._n_given[self._person[query]] > 0)

    def keys(self, points: Points, entry: Ints) -> Keys:
        """Return keys of points: of their private values or, if there are none, of their regions.

        `entry` has the shape (n_points,). The keys are all 0 if nobody wants a second answer.
        """
        if self._most_answers == 1:
            return np.zeros(len(entry), dtype=np.uint64)
        private_columns = self._values.private_columns
        if not len(private_columns):
            return self._catalogue.released_region[self._catalogue.region_of_entry[entry]].astype(
                np.uint64
            )
        columns: dict[int, Floats | Ints] = {}
        names = self._values.schema.private
        for name, j in zip(names, private_columns.tolist(), strict=True):
            if self._catalogue.domains[name].is_numeric:
                columns[len(columns)] = self._values.number(points, j) + 0.0  # -0.0 becomes 0.0
            else:
                columns[len(columns)] = points.places[:, j]
        hashes = pd.util.hash_pandas_object(pd.DataFrame(columns), index=False)
        return np.asarray(hashes, np.uint64)

    def is_new(self, query: Ints, start_keys: Keys, released_keys: Keys | None = None) -> Mask:
        """Return a mask of private values that no answer to the query's person has yet.

        All arguments have the shape (n,). Private values must not have been begun with before nor,
        if `released_keys` are known, be released again.
        """
        person = self._person[query]
        is_equal = self._start_keys[person] == start_keys[:, None]  # (n, most_answers)
        if released_keys is not None:
            is_equal |= self._released_keys[person] == released_keys[:, None]
        is_given = np.arange(self._most_answers) < self._n_given[person][:, None]
        return np.asarray(~(is_equal & is_given).any(axis=1))

    def add(self, results: TrueAnswers) -> None:
        """Give the best results, until no query that wants an answer can get one of them."""
        if self._compared is None:  # the same result, with nothing to compare
            order = np.lexsort((np.round(results.distance / TIE), results.query))
            self._note(results, order[_first_of_each(results.query[order])])
            return
        points = self._compared.encode(self._values.frame(results.points))
        factuals = self._compared.encode(self._queries.frame.take(results.query))
        to_query = self._compared.distance(points, factuals)
        while True:
            rows = np.flatnonzero(self._may_be_given(results))
            if not len(rows):
                return
            query = results.query[rows]
            person = self._person[query]
            to_answers = self._compared.distances_to_answers(
                person, self._n_given[person], points.take(rows)
            )
            similarity = 1 / (1 + to_answers)
            is_beyond_another = self._compared.is_beyond(person, to_answers, to_query[rows])
            distance = results.distance[rows]
            score = _NEARNESS * distance - self._compared.gain(person, similarity)
            several = self.wants_several[query]
            rank = np.round(np.where(several, score, distance) / TIE)
            order = np.lexsort((rank, several & is_beyond_another, query))
            best = order[_first_of_each(query[order])]
            slot = self._n_given[person[best]]
            answers = points.take(rows[best])
            self._compared.add(person[best], slot, answers, to_query[rows[best]], similarity[best])
            self._start_keys[person[best], slot] = results.start_keys[rows[best]]
            self._released_keys[person[best], slot] = results.released_keys[rows[best]]
            self._note(results, rows[best])

    def _may_be_given(self, results: TrueAnswers) -> Mask:
        is_open = self.n_open[results.query] > 0
        return is_open & self.is_new(results.query, results.start_keys, results.released_keys)

    def _note(self, results: TrueAnswers, rows: Ints) -> None:
        """Note that some results, at most one per query, are given as answers."""
        answers = results.take(rows)
        self._n_given[self._person[answers.query]] += 1
        self.n_open[answers.query] -= 1
        self._n_predictions += sum(len(one) for one in answers.predictions if one is not None)
        if self._n_predictions > _MOST_PREDICTIONS:
            answers = replace(answers, predictions=[None] * len(answers))
        self.given.append(answers)


class _ComparedAnswers:
    """The answers of each person at the places 0 to `most_answers` - 1, and how they differ.

    Parameters
    ----------
    heom : Heom
        The distance that points are compared by.
    n_people, most_answers : int
    """

    def __init__(self, heom: Heom, n_people: int, most_answers: int) -> None:
        self._heom = heom
        self._to_query = np.zeros((n_people, most_answers))
        # K of each person; shape (n_people, most_answers, most_answers)
        self._similarity = np.tile(np.eye(most_answers), (n_people, 1, 1))
        self._numbers = np.zeros((n_people, most_answers, len(heom.numeric)))
        self._codes = np.zeros((n_people, most_answers, len(heom.categorical)), dtype=np.uint64)

    def encode(self, rows: pd.DataFrame) -> HeomCodes:
        return self._heom.encode(rows)

    def distance(self, a: HeomCodes, b: HeomCodes) -> Floats:
        """Return the summed HEOM distance between row i of `a` and of `b`; shape (n,)."""
        return np.asarray(self._heom.parts(a, b).sum(axis=1))

    def distances_to_answers(self, person: Ints, n_given: Ints, points: HeomCodes) -> Floats:
        """Return how far each of n points is from every answer that its person has.

        `person` and `n_given` have the shape (n,), the result (n, most_answers). It is infinite
        where the person has no answer.
        """
        most_answers = self._to_query.shape[1]
        distances = np.full((len(person), most_answers), np.inf)
        for slot in range(int(n_given.max())):
            answers = HeomCodes(self._numbers[person, slot], self._codes[person, slot])
            has_answer = slot < n_given
            distances[has_answer, slot] = self.distance(points, answers)[has_answer]
        return distances

    def is_beyond(self, person: Ints, to_answers: Floats, to_query: Floats) -> Mask:
        """Return a mask of the points on whose way from the query an answer lies; shape (n,)."""
        by_way_of_answer = self._to_query[person] + to_answers  # (n, most_answers)
        return np.asarray((by_way_of_answer <= to_query[:, None] + TIE).any(axis=1))

    def gain(self, person: Ints, similarity: Floats) -> Floats:
        """Return the factor by which det K grows with each of n points; shape (n,).

        `similarity`, of shape (n, most_answers), is that of each point to its person's answers.
        """
        most_answers = similarity.shape[1]
        k = self._similarity[person] + _RIDGE * np.eye(most_answers)
        weights = np.linalg.solve(k, similarity[:, :, None])[:, :, 0]  # (n, most_answers)
        return np.asarray(1 - (similarity * weights).sum(axis=1))

    def add(
        self, person: Ints, slot: Ints, points: HeomCodes, to_query: Floats, similarity: Floats
    ) -> None:
        """Note n points as the answers of different people, each at its place `slot`."""
        self._numbers[person, slot] = points.numbers
        self._codes[person, slot] = points.codes
        self._to_query[person, slot] = to_query
        self._similarity[person, slot] = similarity
        self._similarity[person, :, slot] = similarity
        self._similarity[person, slot, slot] = 1.0


def _heom_of(catalogue: Catalogue) -> Heom:
    """Return the distance between points: over all features, with the catalogue's ranges."""
    population = catalogue.partition.population
    ranges = {}
    for name in population.schema.quasi_identifiers:
        domain = population.domains[name]
        if domain.attribute.kind == "numeric":
            ranges[name] = domain.width
    ranges |= catalogue.private_values[0].ranges
    categorical = [name for name in population.schema.features if name not in ranges]
    return Heom(list(ranges), categorical, ranges)


def _first_of_each(values: Ints) -> Ints:
    """Return the position of the first of each value, in order of values."""
    return np.unique(values, return_index=True)[1]
