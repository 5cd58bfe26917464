"""What a catalogue answers: which region and private values go to a query, and how near they are moved to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.intake import Intake
from cfk_plugin.data.model import Ahead, Labels
from cfk_plugin.data.policy import Mask
from cfk_plugin.protection._moves import (
    AT_ONCE,
    TIE,
    Candidates,
    Given,
    Keys,
    Moves,
    Points,
    Pools,
    Probe,
    nearest_first,
    target_of,
)
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue, spread

_BLOCK = 1 << 22  # distances held at once
_TRIED, _REVERTED = 16, 8  # nearest entries that are looked at in one go, and how many true answers are moved
_NEAR, _MIXED = 24, 48  # nearest regions and private values that are combined, and nearest combinations looked at
_RESTARTS = 6  # how often moving begins anew where something was lost
_SHOWN = 4  # combinations that it learns from then
_FURTHER = 8  # rounds in which more answers are looked for, where there is one
_OWN, _ANCHOR = -1, -2  # private values that are no entry's: the query's own, and the explainer's counterfactual's


class CatalogueAnswers(NamedTuple):
    """What some queries are answered with."""

    entry: Ints  # of each query; -1 where none is true for who asks
    private: pd.DataFrame  # the private values of each answer
    said: list[Labels | None]  # what the model says at all combinations of its region, where it was asked

    @property
    def columns(self) -> dict[str, Any]:
        return {str(name): column.array for name, column in self.private.items()}

    def ahead(self, catalogue: Catalogue) -> Ahead:
        """Return what the model said, as verification asks for it; positions are those of the answers alone."""
        at, cells, known = list[int](), list[Codes](), list[Labels]()
        groups = catalogue.group_at[self.entry[self.entry >= 0]]
        for i, labels in enumerate(self.said):
            if labels is not None and len(labels):
                at.append(i)
                cells.append(catalogue.combinations(int(groups[i])))
                known.append(labels)
        if not known:
            return Ahead()
        return Ahead(np.repeat(at, [*map(len, cells)]), np.concatenate(cells), np.concatenate(known))


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
    explainer's (unless they are to be shared). They then become the query's, or come closer, as long as that stays so.
    The nearest result is the answer. Whoever was consistent with the weakest entry is consistent with the answer, and
    nobody's row is looked at.

    With `anchors`, an explainer's counterfactuals, the search begins there: an anchor stays in its own
    group where that may have its private values, else the nearest answer to it is taken. So everybody in the group,
    with the private values that left, is given the same region. Truth and moves are the query's all the same.

    Regions leave what is permitted to who asks, and the nearest point is one that is. Private values are permitted: of
    entries those that are, and to revert, all take the nearest ones that are before anything is asked of them.

    Queries of which `who` says that they are the same one are given different answers; see `Given`. Without anchors
    these are diverse, and from near to far; with them one after the other takes what is nearest to it.
    """
    queries, anchors = limits.queries, None if catalogue.is_shared else anchors  # which may be somebody's
    asked, who = _Asked(limits, anchors), np.arange(len(queries)) if who is None else who
    turn, first, times = _turns(who)
    wanted = np.where(turn > 0, 0, times) if anchors is None else np.ones(len(queries), dtype=np.int64)
    given, step = Given(catalogue, queries.frame, who, wanted), max(_BLOCK // max(len(catalogue), 1), 1)
    pools = Pools(catalogue, queries, asked.start)
    for now in range(int(turn[wanted > 0].max(initial=-1)) + 1 if len(catalogue) else 0):
        askers = np.flatnonzero((turn == now) & (wanted > 0))
        for waiting in (askers[start : start + step] for start in range(0, len(askers), step)):
            for further, pairs in enumerate(
                _candidates(catalogue, asked, pools, given, waiting, open_to, revert=revert)
            ):
                is_open = (given.left > 0) & (further < _FURTHER or ~given.has_any(np.arange(len(queries))))
                if not is_open[waiting].any():
                    break
                if len(at := np.flatnonzero(is_open[pairs.query])):
                    for results in _results(catalogue, asked, pools, pairs.take(at), given, revert=revert):
                        given.add(results)
    found, private = np.full(len(queries), -1, dtype=np.int64), list(catalogue.partition.population.schema.private)
    if not given.found:
        return CatalogueAnswers(found, queries.frame.head(0)[private], [])
    asker, entry, distance = (np.concatenate(each) for each in list(zip(*given.found, strict=True))[:3])
    line = np.lexsort((np.round(distance / TIE), asker))
    asker = asker[line]
    place = np.argsort(who, kind="stable")[first[asker] + turn[asker] + _turns(asker)[0]]
    found[place] = entry[line]
    *_, frames, labels = zip(*given.found, strict=True)
    line, said = line[np.argsort(place)], list(chain.from_iterable(labels))
    rows = catalogue.private.take(found[found >= 0]) if catalogue.forms else pd.concat(frames)[private].take(line)
    rows = rows.reset_index(drop=True)
    return CatalogueAnswers(found, rows, list(map(said.__getitem__, line.tolist())))


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
        found[at] = np.where(np.isfinite(least), np.argmax(away <= least[:, None] + TIE, axis=1), -1)
    itself = catalogue.own(counterfactuals, groups)
    return np.where(itself >= 0, itself, found)


def _candidates(
    catalogue: Catalogue, asked: _Asked, pools: Pools, given: Given, query: Ints, open_to: Mask, *, revert: bool
) -> Iterator[_Pairs]:
    """Yield what may answer some queries, in rounds from near to far."""
    if asked.anchors is not None:
        yield _in_own_group(catalogue, asked, asked.anchors, query, revert=revert)
        query = query[given.left[query] > 0]
    if not len(query):
        return
    regions, parts = catalogue.distances(asked.start, query, open_to)
    if asked.limits.rules:
        quasi, private = _limits_of(catalogue, asked.limits.take(query))
        offered = {name: catalogue.offered(name) for name in asked.limits.rules}
        regions[~quasi.admissible(offered, regions.shape[1])] = np.inf
        if not revert:
            parts[~private.admissible(offered, len(catalogue))] = np.inf
    away = regions[:, catalogue.group_at] + parts
    line = nearest_first(away, _TRIED)
    for first in range(0, len(catalogue), _TRIED):
        if first == _TRIED:  # rare: nothing nearer is true
            rows = np.flatnonzero(given.left[query] > 0)
            query, away = query[rows], away[rows]
            line = nearest_first(away, len(catalogue))
        entry = line[:, first : first + _TRIED]
        distance = np.take_along_axis(away, entry, axis=1)
        at, place = np.nonzero(np.isfinite(distance))
        some = _Pairs(query[at], entry[at, place], entry[at, place], distance[at, place])
        mixes = revert and not first
        yield some.joined(_mixed(catalogue, asked, pools, query, regions, parts)) if mixes else some


def _limits_of(catalogue: Catalogue, limits: Constraints) -> tuple[Constraints, Constraints]:
    """Return what is said of quasi-identifiers, and of private attributes."""
    schema = catalogue.partition.population.schema
    return limits.only(schema.quasi_identifiers), limits.only(schema.private)


def _in_own_group(catalogue: Catalogue, asked: _Asked, anchors: Anchors, query: Ints, *, revert: bool) -> _Pairs:
    """Return anchors in their own groups: with their private values as they are, and as the entry that they are."""
    groups, nowhere = anchors.groups[query], np.zeros(len(query))
    weakest, itself = catalogue.weakest_of(groups), catalogue.own(anchors.counterfactuals.take(query), groups)
    kept = _Pairs(query, weakest, np.full(len(query), _ANCHOR), nowhere).take(np.flatnonzero(revert & (weakest >= 0)))
    pairs = kept.joined(_Pairs(query, itself, itself, nowhere).take(np.flatnonzero(itself >= 0)))
    quasi, private = _limits_of(catalogue, asked.limits.take(pairs.query))
    fits = quasi.admits({n: catalogue.offered(n).take(catalogue.group_at[pairs.entry]) for n in quasi.rules})
    if not revert:
        fits &= private.admits({n: catalogue.offered(n).take(pairs.part) for n in private.rules})
    return pairs.take(np.flatnonzero(fits))


def _mixed(catalogue: Catalogue, asked: _Asked, pools: Pools, query: Ints, regions: Floats, parts: Floats) -> _Pairs:
    """Return the nearest combinations of a region and private values that come from elsewhere."""
    part, nowhere = np.append([_ANCHOR, _OWN], catalogue.distinct), np.zeros(len(query))
    parts = np.column_stack(
        [
            nowhere,
            pools.gaps(pools.queries.take(query), pools.start.take(query)).sum(axis=1),
            parts[:, catalogue.distinct],
        ]
    )
    if asked.anchors is None:  # there is no counterfactual beside the query
        part, parts = part[1:], parts[:, 1:]
    group, private = nearest_first(regions, _NEAR), nearest_first(parts, _NEAR)
    total = np.take_along_axis(regions, group, axis=1)[:, :, None] + np.take_along_axis(parts, private, axis=1)[:, None]
    total = total.reshape(len(query), -1)
    line = nearest_first(total, _MIXED)
    distance = np.take_along_axis(total, line, axis=1)
    at, place = np.nonzero(np.isfinite(distance))
    which, width = line[at, place], private.shape[1]
    entry = catalogue.weakest[group[at, which // width]]
    pairs = _Pairs(query[at], entry, part[private[at, which % width]], distance[at, place])
    return pairs.take(np.flatnonzero(~catalogue.is_wide(entry)))


def _results(
    catalogue: Catalogue, asked: _Asked, pools: Pools, pairs: _Pairs, given: Given, *, revert: bool
) -> Iterator[Candidates]:
    """Yield what some pairs come to, of those that are true and begin with new private values; from near to far."""
    pairs = pairs.take(np.lexsort((np.round(pairs.distance / TIE), pairs.query)))
    points, is_other = _points(catalogue, asked, pools, pairs)
    start = given.keys(pools, points, pairs.entry)
    if len(new := np.flatnonzero(given.is_new(pairs.query, start))) < len(start):
        pairs, points, is_other, start = pairs.take(new), points.take(new), is_other[new], start[new]
    target = target_of(pools, asked.limits, pairs.query, points) if revert else points
    several = given.several[pairs.query]
    is_other |= pairs.part != pairs.entry
    search = _Search(Probe(catalogue, pools), pools, pairs, points, target, is_other)

    def is_given(at: Ints, moved: Points) -> Mask:
        return ~given.is_new(pairs.query[at], start[at], given.keys(pools, moved, pairs.entry[at]))

    # Of an explainer's counterfactual only what is nearest to it is moved, if that is new: it decides.
    at_once = _REVERTED if revert and asked.anchors is None else 1
    for _ in range(_REVERTED // at_once):
        found = search.next(
            at_once, given.left[pairs.query] > 0, several, start, None if asked.anchors is None else is_given
        )
        if found is None:
            break
        at, moved, distance = found
        distance = distance if asked.anchors is None else pairs.distance[at]
        leaving = given.keys(pools, moved, pairs.entry[at])
        said = list(map(search.said.get, at.tolist()))
        yield Candidates(pairs.query[at], pairs.entry[at], pools.frame(moved), start[at], leaving, distance, said)


IsGiven = Callable[[Ints, Points], Mask]


class _Search:
    """Finds which pairs of some queries are true, from near to far, and what those come to.

    Private values that are not their entry's are tried at a few combinations, and whether a combination is lost is seen
    of the result. What is learnt from one that loses some holds for its query alone.
    """

    def __init__(self, probe: Probe, pools: Pools, pairs: _Pairs, start: Points, target: Points, is_other: Mask):
        self._probe, self._pools, self._pairs, self._is_other = probe, pools, pairs, is_other
        self._start, self._target = start, target
        self._query = np.unique(pairs.query, return_inverse=True)[1]
        self._first = np.searchsorted(self._query, self._query)
        self._fixed = pairs.distance - pools.gaps(start, target).sum(axis=1)
        self._good = ~(is_other & probe.catalogue.is_wide(pairs.entry))
        self._known, self._done = ~self._good, np.zeros(len(is_other), dtype=bool)
        self._more = [probe.catalogue.no_cells] * len(is_other)
        self.said: dict[int, Labels] = {}  # by pair, the labels of the combinations of its region

    def _before(self, flags: Mask) -> Ints:
        """Return how many of the same query come before each."""
        counts: Ints = np.cumsum(flags) - flags
        return counts - counts[self._first]

    def _true(self, count: int, wanted: Mask, several: Mask) -> Ints:
        """Return the first true ones of each query, or all."""
        while True:
            is_open = ~self._known & wanted & ~self._done
            at = np.flatnonzero(is_open & (several | (self._before(self._good & self._known) < count)))
            if not len(at):
                break
            at = at[self._before(is_open)[at] < max(AT_ONCE // len(np.unique(self._query[at])), 2 * count)]
            entry, tell = self._pairs.entry[at], self._is_other[at]
            self._good[at] = self._probe.keeps(self._start.take(at), entry, self._more, at, tell)
            self._known[at] = True
        true = self._good & self._known
        return np.flatnonzero(true & wanted & ~self._done & (several | (self._before(true) < count)))

    def next(
        self, count: int, wanted: Mask, several: Mask, start: Keys, is_given: IsGiven | None
    ) -> tuple[Ints, Points, Floats] | None:
        """Return the nearest result of the next true pairs of each query, or all of them where several are wanted."""
        over, found, used = np.zeros(len(wanted), dtype=bool), list[tuple[Ints, Points, Floats]](), list[Ints]()
        for attempt in count_from(0):  # once nothing is moved, what loses some is none that is true
            some = self._true(count, wanted & ~over, several)
            if not len(some):
                break
            if several[some].any():  # so many of them, and the first of all that begin alike
                keys = np.column_stack([self._query[some], start[some].astype(np.int64)])
                is_first = np.zeros(len(some), dtype=bool)
                is_first[np.unique(keys, axis=0, return_index=True)[1]] = True
                kept = ~several[some] | is_first | (self._before(self._good & self._known)[some] < count)
                self._done[some[~kept]] = True
                some = some[kept]
            at, points, distance, lost = self._moved(some, several, is_given, moves=attempt < _RESTARTS)
            kept = np.array([not len(cells) for cells in lost], dtype=bool)
            found.append((at[kept], points.take(kept), distance[kept]))
            self._done[at[kept]] = True
            over |= np.isin(self._query, self._query[at[kept & ~several[at]]])
            used.append(some)
            for i, cells in zip(at[~kept].tolist(), [cells for cells in lost if len(cells)], strict=True):
                self._learn(i, cells)
        for some in used:  # they had their turn
            self._done[some] = True
        if not found:
            return None
        return (
            np.concatenate([at for at, *_ in found]),
            Points(*(np.concatenate(each) for each in zip(*(points for _, points, _ in found), strict=True))),
            np.concatenate([distance for *_, distance in found]),
        )

    def _moved(
        self, some: Ints, several: Mask, is_given: IsGiven | None, *, moves: bool
    ) -> tuple[Ints, Points, Floats, list[Codes]]:
        """Move pairs; return those that are the nearest of their query or wanted besides, and what each has lost."""
        start, entry, query, alone = self._start.take(some), self._pairs.entry[some], self._query[some], ~several[some]
        moving = Moves(self._probe, self._pools, entry, start, self._target.take(some), [self._more[i] for i in some])
        movable = self._probe.catalogue.is_movable(entry) & moves
        away = moving.go(query, self._fixed[some], movable, best_alone=alone)
        line = np.lexsort((np.round(away / TIE), query))
        is_nearest = np.zeros(len(some), dtype=bool)
        is_nearest[line[np.unique(query[line], return_index=True)[1]]] = True
        chosen = np.flatnonzero(np.isfinite(away) & (is_nearest | ~alone))
        points = moving.points.take(chosen)
        if is_given is not None:  # what would become an answer that was given stays as it is
            points = points.either(start.take(chosen), is_given(some[chosen], points))
        asked = np.flatnonzero(self._is_other[some[chosen]] | points.differ(start.take(chosen)))
        lost, at = [self._probe.catalogue.no_cells] * len(chosen), some[chosen].tolist()
        for i in at:
            self.said.pop(i, None)
        for i, cells, labels in zip(
            asked.tolist(), *self._probe.lost(points.take(asked), entry[chosen[asked]]), strict=True
        ):
            lost[i], self.said[at[i]] = cells, labels
        return some[chosen], points, away[chosen], lost

    def _learn(self, i: int, cells: Codes) -> None:
        alike = (self._query == self._query[i]) & (self._pairs.entry == self._pairs.entry[i])
        for j in np.flatnonzero(alike).tolist():
            self._more[j] = np.concatenate([self._more[j], cells[spread(len(cells), _SHOWN)]])
        self._known[alike & self._is_other & self._good] = False


def _points(catalogue: Catalogue, asked: _Asked, pools: Pools, pairs: _Pairs) -> tuple[Points, Mask]:
    """Return the permitted point of each region that is nearest to the query, with the private values of the pair.

    Also, where these are others, as they would not be permitted.
    """
    population, limits = catalogue.partition.population, asked.limits
    own, begin = pools.queries.take(pairs.query), pools.start.take(pairs.query)
    points = own.either(begin, pairs.part == _ANCHOR)
    changed, is_entry = np.zeros(len(pairs.query), dtype=bool), pairs.part >= 0
    for i, j in enumerate(pools.private.tolist()):
        name = pools.schema.features[j]
        if catalogue.forms:  # of what stays behind no answer may tell
            told = catalogue.offered(name).take(pairs.part)
            near, is_told = limits.nearest(name, told, pairs.query, told.of), ~told.is_silent[told.of]
            points.at[is_told, j], points.numbers[is_told, j] = near[0][is_told], near[1][is_told]
            continue
        points.at[is_entry, j] = catalogue.codes[pairs.part[is_entry], i]
        if name in limits.rules:
            domain = population.domains[name]
            codes = np.where(points.at[:, j] < domain.size, points.at[:, j], UNKNOWN).astype(np.int32)
            numbers = np.where(is_entry, np.nan, points.numbers[:, j])
            codes, numbers, is_other = limits.nearest_to(name, pairs.query, codes, numbers)
            places = np.where((codes < 0) & (not domain.is_numeric), own.at[:, j], codes)  # one that is not known here
            points.at[is_other, j], points.numbers[is_other, j] = places[is_other], numbers[is_other]
            changed |= is_other
    for j in pools.schema.quasi_positions:
        name = pools.schema.features[j]
        regions = catalogue.offered(name).take(catalogue.group_at[pairs.entry])
        points.at[:, j], points.numbers[:, j] = limits.nearest(name, regions, pairs.query, regions.of)
    return points, changed
