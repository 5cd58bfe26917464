"""Several answers to one query: which of the candidates are given, and in what order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.model import Labels, Mask
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.protection._moves import TIE, Points, Pools
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue

_NEARNESS = 0.5  # weight of the distance against that of diversity, which is 1: DiCE's own
_RIDGE = 1e-9  # two answers at one point are as alike as can be, and no error

Keys = NDArray[np.uint64]


class Candidates(NamedTuple):
    """What could be answered: each is true for who asks."""

    asker: Ints  # near to far for each
    entry: Ints
    rows: pd.DataFrame  # the point that an answer asks for, its private values as they would leave
    start: Keys  # private values that it began with, before they were moved
    leaving: Keys  # and those that it has now
    distance: Floats
    said: list[Labels | None]  # see `CatalogueAnswers`


class Given:
    """The answers so far. No two to the same query have the same private values, or began with the same.

    So nobody can take two of them for one record's, and intersect their regions. Of what is left the nearest is given,
    or, where an asker wants several, what adds the most to them: each time the least ``0.5 d(c, x) - g(c)``, where d is
    the summed HEOM distance to the query and g the factor by which c raises det K, ``K_ij = 1 / (1 + d(c_i, c_j))``.
    These are proximity, diversity and weights of DiCE (Mothilal, Sharma, Tan 2020, section 3). What another answer lies
    on the way to, d(x, a) + d(a, c) = d(x, c), asks for more than that one and is given where nothing else is left.
    """

    def __init__(self, catalogue: Catalogue, queries: pd.DataFrame, who: Ints, wanted: Ints) -> None:
        self._catalogue, self._queries, self.left = catalogue, queries, wanted.copy()  # per asker
        self._several = wanted > 1
        self._who = np.unique(who, return_inverse=True)[1]  # several askers may be one person
        counts = np.bincount(self._who, wanted) if len(who) else np.zeros(1)
        self._count, self._most = np.zeros(len(counts), dtype=np.int64), int(counts.max())
        shape = len(counts), self._most
        self._start, self._leaving = np.zeros(shape, dtype=np.uint64), np.zeros(shape, dtype=np.uint64)
        self._way = np.zeros(shape)  # how far from the query
        self._alike = np.tile(np.eye(self._most), (len(counts), 1, 1))
        schema, domains = catalogue.partition.population.schema, catalogue.partition.population.domains
        widths = {n: domains[n].width for n in schema.quasi_identifiers if domains[n].attribute.kind == "numeric"}
        widths |= catalogue.private_values[0].ranges
        self._heom = Heom([*widths], [name for name in schema.features if name not in widths], widths)
        self._numbers = np.zeros((*shape, len(self._heom.numeric)))
        self._codes = np.zeros((*shape, len(self._heom.categorical)), dtype=np.uint64)
        self.found: list[tuple[Ints, Ints, Floats, pd.DataFrame, list[Labels | None]]] = []

    def has_any(self, asker: Ints) -> Mask:
        """Say of askers whether their queries have an answer."""
        return np.asarray(self._count[self._who[asker]] > 0)

    def wants_several(self, asker: Ints) -> Mask:
        return np.asarray(self._several[asker])

    def keys(self, pools: Pools, points: Points, entry: Ints) -> Keys:
        """Return what points are recognised by: their private values, or where there are none, their regions."""
        if self._most == 1:
            return np.zeros(len(entry), dtype=np.uint64)
        if not len(pools.private):
            return self._catalogue.region_at[self._catalogue.group_at[entry]].astype(np.uint64)
        codes = pools.codes(points)
        columns = [*(codes.numbers + 0.0).T, *codes.codes.T]
        return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(dict(enumerate(columns))), index=False), np.uint64)

    def is_new(self, asker: Ints, start: Keys, leaving: Keys | None = None) -> Mask:
        """Say of what would be given to some askers whether their queries have no answer that is recognised by it."""
        person = self._who[asker]
        known = self._start[person] == start[:, None]
        if leaving is not None:
            known |= self._leaving[person] == leaving[:, None]
        known &= np.arange(self._most) < self._count[person][:, None]
        return np.asarray(~known.any(axis=1))

    def add(self, results: Candidates) -> None:
        """Give what is best for whoever wants an answer, until nobody can be given another one."""
        if self._most == 1:  # the same, without what others are compared by
            line = np.lexsort((np.round(results.distance / TIE), results.asker))
            self._note(results, line[np.unique(results.asker[line], return_index=True)[1]])
            return
        leaving, points = results.leaving, self._heom.encode(results.rows)
        way = self._heom.parts(points, self._heom.encode(self._queries.take(results.asker))).sum(axis=1)
        while len(at := np.flatnonzero(self._may_be_given(results, leaving))):
            asker, person = results.asker[at], self._who[results.asker[at]]
            apart = self._apart(person, points.take(at))
            alike, beyond = 1 / (1 + apart), (self._way[person] + apart <= way[at, None] + TIE).any(axis=1)
            score = _NEARNESS * results.distance[at] - self._gained(person, alike)
            is_one, several = results.distance[at], self._several[asker]
            line = np.lexsort((np.round(np.where(several, score, is_one) / TIE), several & beyond, asker))
            best = line[np.unique(asker[line], return_index=True)[1]]
            self._give(results, at[best], leaving, points, way, alike[best])

    def _may_be_given(self, results: Candidates, leaving: Keys) -> Mask:
        return (self.left[results.asker] > 0) & self.is_new(results.asker, results.start, leaving)

    def _apart(self, person: Ints, points: HeomCodes) -> Floats:
        """Return how far some points are from every answer that the person has; infinitely where there is none."""
        apart = np.full((len(person), self._most), np.inf)
        for slot in range(int(self._count[person].max())):
            given, has = HeomCodes(self._numbers[person, slot], self._codes[person, slot]), slot < self._count[person]
            apart[has, slot] = self._heom.parts(points, given).sum(axis=1)[has]
        return apart

    def _gained(self, person: Ints, alike: Floats) -> Floats:
        """Return the factor by which det K grows with each point."""
        among = self._alike[person] + _RIDGE * np.eye(self._most)
        return np.asarray(1 - (alike * np.linalg.solve(among, alike[:, :, None])[:, :, 0]).sum(axis=1))

    def _give(
        self, results: Candidates, at: Ints, leaving: Keys, points: HeomCodes, way: Floats, alike: Floats
    ) -> None:
        person = self._who[results.asker[at]]
        slot = self._count[person]
        self._start[person, slot], self._leaving[person, slot] = results.start[at], leaving[at]
        self._numbers[person, slot], self._codes[person, slot] = points.numbers[at], points.codes[at]
        self._way[person, slot] = way[at]
        self._alike[person, slot], self._alike[person, :, slot] = alike, alike
        self._alike[person, slot, slot] = 1.0
        self._note(results, at)

    def _note(self, results: Candidates, at: Ints) -> None:
        asker = results.asker[at]
        self._count[self._who[asker]] += 1
        self.left[asker] -= 1
        said = [results.said[i] for i in at.tolist()]
        self.found.append((asker, results.entry[at], results.distance[at], results.rows.take(at), said))
