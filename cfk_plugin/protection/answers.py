"""What a catalogue answers: which region and private values go to a query, and how near they are moved to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.intake import Intake, table_of
from cfk_plugin.data.model import Mask
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue

_BLOCK = 1 << 22  # distances held at once
_TIE = 1e-9
_TRIED, _REVERTED = 16, 8  # nearest entries that are looked at in one go, and how many true answers are moved
_NEAR, _MIXED = 24, 48  # nearest regions and private values that are combined, and nearest combinations looked at
_FURTHER = 8  # rounds in which more answers are looked for, where there is one
_HALVINGS = 4
_NEARNESS = 0.5  # weight of the distance against that of diversity, which is 1: DiCE's own
_RIDGE = 1e-9  # two answers at one point are as alike as can be, and no error
_MOST_DECIMALS = 6
_OWN, _ANCHOR = -1, -2  # private values that are no entry's: the query's own, and the explainer's counterfactual's


Keys = NDArray[np.uint64]


class CatalogueAnswers(NamedTuple):
    """What some queries are answered with."""

    entry: Ints  # of each query; -1 where none is true for who asks
    private: pd.DataFrame  # the private values of each answer


class _Pairs(NamedTuple):
    """A query, the entry whose region may answer it, and whose private values go with it: an entry's, or others."""

    query: Ints
    entry: Ints
    part: Ints
    distance: Floats

    def take(self, at: Ints) -> _Pairs:
        return _Pairs(self.query[at], self.entry[at], self.part[at], self.distance[at])

    def joined(self, others: _Pairs) -> _Pairs:
        return _Pairs(*(np.concatenate(both) for both in zip(self, others, strict=True)))


class Anchors(NamedTuple):
    """An explainer's counterfactuals, one per query, with their groups; -1 for none."""

    counterfactuals: Intake
    groups: Ints


class _Asked(NamedTuple):
    """Who asks, what may change, and where the search begins: at the query, or at an explainer's counterfactual."""

    limits: Constraints
    anchors: Anchors | None

    @property
    def queries(self) -> Intake:
        return self.limits.queries

    @property
    def start(self) -> Intake:
        return self.queries if self.anchors is None else self.anchors.counterfactuals


def answer(
    catalogue: Catalogue,
    limits: Constraints,
    open_to: Mask,
    *,
    revert: bool,
    who: Ints | None = None,
    anchors: Anchors | None = None,
) -> CatalogueAnswers:
    """Return the nearest answer to each query of those that are true for who asks: at the nearest point of the region.

    Answers are entries; to revert adds others and moves them. Any private values may go with a region when they have
    the outcome at every combination at which the group's weakest entry has it: other entries', the query's own, the
    explainer's. They then become the query's, or come closer, as long as that stays so. The nearest result is the
    answer. Whoever was consistent with the weakest entry is consistent with the answer, and nobody's row is looked at.

    With `anchors`, an explainer's counterfactuals, the search begins there: an anchor stays in its own
    group where that may have its private values, else the nearest answer to it is taken. So everybody in the group,
    with the private values that left, is given the same region. Truth and moves are the query's all the same.

    Regions leave what is permitted to who asks, and the nearest point is one that is. Private values are permitted: of
    entries those that are, and to revert, all take the nearest ones that are before anything is asked of them.

    Queries of which `who` says that they are the same one are given different answers; see `Given`. Without anchors
    these are diverse, and from near to far; with them one after the other takes what is nearest to it.
    """
    queries = limits.queries
    asked, who = _Asked(limits, anchors), np.arange(len(queries)) if who is None else who
    turn, first, times = _turns(who)
    wanted = np.where(turn > 0, 0, times) if anchors is None else np.ones(len(queries), dtype=np.int64)
    given, step = Given(catalogue, queries.frame, who, wanted), max(_BLOCK // max(len(catalogue), 1), 1)
    for now in range(int(turn[wanted > 0].max(initial=-1)) + 1 if len(catalogue) else 0):
        askers = np.flatnonzero((turn == now) & (wanted > 0))
        for waiting in (askers[start : start + step] for start in range(0, len(askers), step)):
            for further, pairs in enumerate(_candidates(catalogue, asked, waiting, open_to, revert=revert)):
                is_open = (given.left > 0) & (further < _FURTHER or ~given.has_any(np.arange(len(queries))))
                if not is_open[waiting].any():
                    break
                if len(at := np.flatnonzero(is_open[pairs.query])):
                    for results in _results(catalogue, asked, pairs.take(at), given, revert=revert):
                        given.add(results)
    found, private = np.full(len(queries), -1, dtype=np.int64), list(catalogue.partition.population.schema.private)
    if not given.found:
        return CatalogueAnswers(found, queries.frame.head(0)[private])
    asker, entry, distance = (np.concatenate(each) for each in list(zip(*given.found, strict=True))[:3])
    line = np.lexsort((np.round(distance / _TIE), asker))
    asker = asker[line]
    place = np.argsort(who, kind="stable")[first[asker] + turn[asker] + _turns(asker)[0]]
    found[place] = entry[line]
    rows = pd.concat([each[3] for each in given.found], ignore_index=True)
    return CatalogueAnswers(found, rows[private].take(line[np.argsort(place)]).reset_index(drop=True))


def _turns(who: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the how manieth of its like each is, where its like begin when sorted, and how many there are."""
    _, at, times = np.unique(who, return_inverse=True, return_counts=True)
    first, turn = (np.cumsum(times) - times)[at], np.empty(len(who), dtype=np.int64)
    turn[np.argsort(at, kind="stable")] = np.arange(len(who))
    return turn - first, first, times[at]


def nearest(catalogue: Catalogue, counterfactuals: Intake, open_to: Mask, groups: Ints) -> Ints:
    """Return the entry that each counterfactual is in its group, or the nearest, whoever asked; -1 where none is."""
    found, step = np.full(len(counterfactuals), -1, dtype=np.int64), max(_BLOCK // max(len(catalogue), 1), 1)
    for start in range(0, len(counterfactuals) if len(catalogue) else 0, step):
        at = np.arange(start, min(start + step, len(counterfactuals)))
        regions, parts = catalogue.distances(counterfactuals, at, open_to)
        away = regions[:, catalogue.group_at] + parts
        least = away.min(axis=1)
        found[at] = np.where(np.isfinite(least), np.argmax(away <= least[:, None] + _TIE, axis=1), -1)
    itself = catalogue.own(counterfactuals.codes, groups)
    return np.where(itself >= 0, itself, found)


def _candidates(catalogue: Catalogue, asked: _Asked, query: Ints, open_to: Mask, *, revert: bool) -> Iterator[_Pairs]:
    """Yield what may answer some queries, in rounds from near to far."""
    if asked.anchors is not None:
        yield _in_own_group(catalogue, asked, asked.anchors, query, revert=revert)
    regions, parts = catalogue.distances(asked.start, query, open_to)
    if asked.limits.rules:
        quasi, private = _limits_of(catalogue, asked.limits.take(query))
        offered = {name: catalogue.offered(name) for name in asked.limits.rules}
        regions[~quasi.admissible(offered, regions.shape[1])] = np.inf
        if not revert:
            parts[~private.admissible(offered, len(catalogue))] = np.inf
    away = regions[:, catalogue.group_at] + parts
    line = _order(away)
    for first in range(0, len(catalogue), _TRIED):
        entry = line[:, first : first + _TRIED]
        distance = np.take_along_axis(away, entry, axis=1)
        at, place = np.nonzero(np.isfinite(distance))
        some = _Pairs(query[at], entry[at, place], entry[at, place], distance[at, place])
        yield some.joined(_mixed(catalogue, asked, query, regions, parts)) if revert and not first else some


def _limits_of(catalogue: Catalogue, limits: Constraints) -> tuple[Constraints, Constraints]:
    """Return what is said of quasi-identifiers, and of private attributes."""
    schema = catalogue.partition.population.schema
    return limits.only(schema.quasi_identifiers), limits.only(schema.private)


def _order(distances: Floats) -> Ints:
    """Return positions from near to far, row by row; of equally near ones the first comes first."""
    return np.argsort(np.round(distances / _TIE), axis=1, kind="stable")


def _in_own_group(catalogue: Catalogue, asked: _Asked, anchors: Anchors, query: Ints, *, revert: bool) -> _Pairs:
    """Return anchors in their own groups: with their private values as they are, and as the entry that they are."""
    groups, nowhere = anchors.groups[query], np.zeros(len(query))
    weakest, itself = catalogue.weakest_of(groups), catalogue.own(anchors.counterfactuals.codes[query], groups)
    kept = _Pairs(query, weakest, np.full(len(query), _ANCHOR), nowhere).take(np.flatnonzero(revert & (weakest >= 0)))
    pairs = kept.joined(_Pairs(query, itself, itself, nowhere).take(np.flatnonzero(itself >= 0)))
    quasi, private = _limits_of(catalogue, asked.limits.take(pairs.query))
    fits = quasi.admits({n: catalogue.offered(n).take(catalogue.group_at[pairs.entry]) for n in quasi.rules})
    if not revert:
        fits &= private.admits({n: catalogue.offered(n).take(pairs.part) for n in private.rules})
    return pairs.take(np.flatnonzero(fits))


def _mixed(catalogue: Catalogue, asked: _Asked, query: Ints, regions: Floats, parts: Floats) -> _Pairs:
    """Return the nearest combinations of a region and private values that come from elsewhere."""
    part, nowhere = np.append([_ANCHOR, _OWN], catalogue.distinct), np.zeros(len(query))
    parts = np.column_stack([nowhere, _gaps(catalogue, asked, query), parts[:, catalogue.distinct]])
    if asked.anchors is None:  # there is no counterfactual beside the query
        part, parts = part[1:], parts[:, 1:]
    group, private = _order(regions)[:, :_NEAR], _order(parts)[:, :_NEAR]
    total = np.take_along_axis(regions, group, axis=1)[:, :, None] + np.take_along_axis(parts, private, axis=1)[:, None]
    total = total.reshape(len(query), -1)
    line = _order(total)[:, :_MIXED]
    distance = np.take_along_axis(total, line, axis=1)
    at, place = np.nonzero(np.isfinite(distance))
    which, width = line[at, place], private.shape[1]
    entry = catalogue.weakest[group[at, which // width]]
    pairs = _Pairs(query[at], entry, part[private[at, which % width]], distance[at, place])
    return pairs.take(np.flatnonzero(~catalogue.is_wide(entry)))


def _gaps(catalogue: Catalogue, asked: _Asked, query: Ints) -> Floats:
    """Return how far the private values of queries are from those of their anchors."""
    heom, _ = catalogue.private_values
    frames = (each.frame.take(query) for each in (asked.queries, asked.start))
    found: Floats = heom.parts(*frames).sum(axis=1)
    return found


def _results(catalogue: Catalogue, asked: _Asked, pairs: _Pairs, given: Given, *, revert: bool) -> Iterator[Candidates]:
    """Yield what some pairs come to, of those that are true and begin with new private values; from near to far."""
    pairs = pairs.take(np.lexsort((np.round(pairs.distance / _TIE), pairs.query)))
    points, is_other = _points(catalogue, asked, pairs)
    start = given.keys(points, pairs.entry)
    if not (is_new := given.is_new(pairs.query, start)).all():
        pairs, points = pairs.take(np.flatnonzero(is_new)), points[is_new]
        is_other, start = is_other[is_new], start[is_new]
    good = catalogue.is_desired(points, pairs.entry)
    other = np.flatnonzero(good & (is_other | (pairs.part != pairs.entry)))
    good[other] = catalogue.holds(points.take(other), pairs.entry[other])
    if not len(true := np.flatnonzero(good)):
        return
    # Of an explainer's counterfactual only what is nearest to it is moved, if that is new: it decides.
    at_once = _REVERTED if revert and asked.anchors is None else 1
    turn = _turns(pairs.query[true])[0] // at_once
    _, first = np.unique(np.column_stack([pairs.query[true], start[true].astype(np.int64)]), axis=0, return_index=True)
    turn[first[given.wants_several(pairs.query[true[first]])]] = 0
    for now in range(_REVERTED // at_once):
        some = true[(turn == now) & (given.left[pairs.query[true]] > 0)]
        if not len(some):
            break
        query, entry, _, distance = pairs.take(some)
        rows = begun = points.take(some).reset_index(drop=True)
        if revert:
            rows, gained = _reverted(catalogue, asked.limits, query, entry, begun)
            distance = distance - gained if asked.anchors is None else distance
        if revert and asked.anchors is not None:  # what would become an answer that was given stays as it is
            is_given = ~given.is_new(query, start[some], given.keys(rows, entry))
            rows = pd.concat([rows, begun]).take(np.arange(len(rows)) + len(rows) * is_given).reset_index(drop=True)
        yield Candidates(query, entry, rows, start[some], distance)


def _keeps(catalogue: Catalogue, entry: Ints, rows: pd.DataFrame, at: Ints) -> Mask:
    """Say of rows, each of ``entry[at]``, whether they have its outcome, here and wherever its group's must hold."""
    kept = catalogue.is_desired(rows, entry[at])
    good = np.flatnonzero(kept)
    kept[good] = catalogue.holds(rows.take(good), entry[at[good]])
    return kept


def _points(catalogue: Catalogue, asked: _Asked, pairs: _Pairs) -> tuple[pd.DataFrame, Mask]:
    """Return the permitted point of each region that is nearest to the query, with the private values of the pair.

    Also, where these are others, as they would not be permitted.
    """
    population, queries, limits = catalogue.partition.population, asked.queries, asked.limits
    offered = catalogue.private.take(np.maximum(pairs.part, 0))
    columns: dict[str, Any] = {}
    changed = np.zeros(len(pairs.query), dtype=bool)
    for name in population.schema.private:
        columns[name] = offered[name].array
        for source, whose in ((queries, _OWN), (asked.start, _ANCHOR)):
            columns[name] = _either(columns[name], source.frame[name].take(pairs.query).array, pairs.part == whose)
        if name in limits.rules:
            domain = population.domains[name]
            codes, numbers = domain.encode(pd.Series(columns[name]))
            codes, numbers, is_other = limits.nearest_to(name, pairs.query, codes, numbers)
            own = (codes < 0) & (not domain.is_numeric)  # a category that is not known here
            others = _either(_column(domain, codes, numbers), queries.frame[name].take(pairs.query).array, own)
            columns[name] = _either(columns[name], others, is_other)
            changed |= is_other
    for name in population.schema.quasi_identifiers:
        regions = catalogue.offered(name).take(catalogue.group_at[pairs.entry])
        codes, numbers = limits.nearest(name, regions, pairs.query, regions.of)
        columns[name] = population.domains[name].column(codes, numbers).array
    return table_of({name: columns[name] for name in population.schema.features}), changed


def _either(values: Any, others: Any, is_other: Mask) -> Any:
    if not is_other.any():
        return values
    both = pd.concat([pd.Series(values), pd.Series(others)], ignore_index=True).array
    return both.take(np.arange(len(values)) + len(values) * is_other)


def _column(domain: Domain, codes: Codes, numbers: Floats) -> Any:
    return domain.column(codes if domain.is_numeric else np.maximum(codes, 0), numbers).array


def _target(limits: Constraints, query: Ints, points: pd.DataFrame) -> pd.DataFrame:
    """Return the queries' own private values, or of a number the nearest permitted one, of others the point's."""
    queries = limits.queries
    target = queries.frame.take(query).reset_index(drop=True)
    for name in limits.only(queries.encoder.schema.private).rules:
        at, domain = queries.encoder.schema.features.index(name), queries.encoder.domains[name]
        own = queries.codes[query, at], queries.numbers[query, at]
        codes, numbers, is_other = limits.nearest_to(name, query, *own)
        is_nearer = domain.is_numeric & ~np.isnan(numbers) & ~target[name].isna().to_numpy()
        others = _either(points[name].array, _column(domain, codes, numbers), is_nearer)
        target[name] = _either(target[name].array, others, is_other)
    return target


def _reverted(
    catalogue: Catalogue, limits: Constraints, query: Ints, entry: Ints, points: pd.DataFrame
) -> tuple[pd.DataFrame, Floats]:
    """Return points with private values reverted to the queries', and how much nearer that makes them."""
    heom, _ = catalogue.private_values
    target = _target(limits, query, points)
    wanted = heom.encode(target)
    gaps = heom.parts(heom.encode(points), wanted)
    steps = np.where(catalogue.is_movable(entry)[:, None], gaps, 0.0)
    decimals = {name: _decimals_of(catalogue.domains[name]) for name in (*heom.numeric, *heom.categorical)}
    rows = _Rows(points, target, decimals, partial(_keeps, catalogue, entry))
    for column in np.argsort(-steps, axis=1, kind="stable").T:
        at = np.flatnonzero(steps[np.arange(len(steps)), column] > 0)
        if not len(at):
            break
        held = rows.put(at, column[at], {name: values.take(at) for name, values in rows.wanted.items()})
        rows.halve(at[~held], column[at[~held]])
    nearer = table_of(rows.current)
    return nearer, gaps.sum(axis=1) - heom.parts(heom.encode(nearer), wanted).sum(axis=1)


def _decimals_of(domain: Domain) -> int | None:
    """Return how many decimals a number may have on its way; None for what moves at once or not at all."""
    if not domain.is_numeric or domain.is_date:
        return None
    if types.is_integer_dtype(domain.dtype):
        return 0
    if not types.is_float_dtype(domain.dtype):
        return None
    written = (d for d in range(_MOST_DECIMALS) if np.array_equal(np.round(domain.values, d), domain.values))
    return next(written, _MOST_DECIMALS)


class _Rows:
    """Rows on their way to others, column by column; `holds` says of some, and of which, whether they may stay so."""

    def __init__(
        self,
        start: pd.DataFrame,
        target: pd.DataFrame,
        decimals: Mapping[str, int | None],
        holds: Callable[[pd.DataFrame, Ints], Mask],
    ) -> None:
        both = {n: pd.concat([start[n], target[n]], ignore_index=True).array for n in map(str, start.columns)}
        self.current: dict[str, Any] = {name: values[: len(start)].copy() for name, values in both.items()}
        self.wanted: dict[str, Any] = {name: both[name][len(start) :] for name in decimals}
        self._names, self._decimals, self._holds = [*decimals], [*decimals.values()], holds

    def put(self, at: Ints, column: Ints, values: Mapping[str, Any]) -> Mask:
        """Put a value into the column of each row where everything holds with it, and say where that is."""
        trial = {name: array.take(at) for name, array in self.current.items()}
        for j in np.unique(column):
            is_here, name = column == j, self._names[j]
            trial[name][is_here] = values[name][is_here]
        held = self._holds(table_of(trial), at)
        for j in np.unique(column[held]):
            is_here, name = held & (column == j), self._names[j]
            self.current[name][at[is_here]] = trial[name][is_here]
        return held

    def halve(self, at: Ints, column: Ints) -> None:
        """Move numbers part of the way, on the decimals that their attribute is written with."""
        begin, end = self._numbers(self.current, at, column), self._numbers(self.wanted, at, column)
        known = np.flatnonzero(np.isfinite(begin) & np.isfinite(end))
        at, column, begin, end = at[known], column[known], begin[known], end[known]
        low, high = np.zeros(len(at)), np.ones(len(at))
        for _ in range(_HALVINGS if len(at) else 0):
            middle = (low + high) / 2
            numbers, values = begin + (end - begin) * middle, {}
            for j in np.unique(column):
                numbers[column == j] = np.round(numbers[column == j], self._decimals[j] or 0)
                numbers = np.clip(numbers, np.minimum(begin, end), np.maximum(begin, end))
                dtype = self.current[self._names[j]].dtype
                values[self._names[j]] = numbers.astype(np.int64) if types.is_integer_dtype(dtype) else numbers
            held = self.put(at, column, values)
            low, high = np.where(held, middle, low), np.where(held, high, middle)

    def _numbers(self, values: Mapping[str, Any], at: Ints, column: Ints) -> Floats:
        """Return the number that each row has in its column; NaN where it is missing or does not go part of the way."""
        found = np.full(len(at), np.nan)
        for j in np.unique(column):
            if self._decimals[j] is not None:
                is_here = column == j
                of_rows = pd.Series(values[self._names[j]].take(at[is_here]))
                found[is_here] = of_rows.to_numpy(np.float64, na_value=np.nan)
        return found


class Candidates(NamedTuple):
    """What could be answered: each is true for who asks."""

    asker: Ints  # near to far for each
    entry: Ints
    rows: pd.DataFrame  # the point that an answer asks for, its private values as they would leave
    start: Keys  # private values that it began with, before they were moved
    distance: Floats


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
        self.found: list[tuple[Ints, Ints, Floats, pd.DataFrame]] = []

    def has_any(self, asker: Ints) -> Mask:
        """Say of askers whether their queries have an answer."""
        return np.asarray(self._count[self._who[asker]] > 0)

    def wants_several(self, asker: Ints) -> Mask:
        return np.asarray(self._several[asker])

    def keys(self, rows: pd.DataFrame, entry: Ints) -> Keys:
        """Return what rows are recognised by: their private values, or where there are none, their regions."""
        if self._most == 1:
            return np.zeros(len(rows), dtype=np.uint64)
        if not (heom := self._catalogue.private_values[0]).numeric and not heom.categorical:
            return self._catalogue.region_at[self._catalogue.group_at[entry]].astype(np.uint64)
        codes = heom.encode(rows)
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
            line = np.lexsort((np.round(results.distance / _TIE), results.asker))
            self._note(results, line[np.unique(results.asker[line], return_index=True)[1]])
            return
        leaving, points = self.keys(results.rows, results.entry), self._heom.encode(results.rows)
        way = self._heom.parts(points, self._heom.encode(self._queries.take(results.asker))).sum(axis=1)
        while len(at := np.flatnonzero(self._may_be_given(results, leaving))):
            asker, person = results.asker[at], self._who[results.asker[at]]
            apart = self._apart(person, points.take(at))
            alike, beyond = 1 / (1 + apart), (self._way[person] + apart <= way[at, None] + _TIE).any(axis=1)
            score = _NEARNESS * results.distance[at] - self._gained(person, alike)
            is_one, several = results.distance[at], self._several[asker]
            line = np.lexsort((np.round(np.where(several, score, is_one) / _TIE), several & beyond, asker))
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
        self.found.append((asker, results.entry[at], results.distance[at], results.rows.take(at)))
