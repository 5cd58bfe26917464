"""Trilateration: name the owner of published private values by where the region of answers
switches.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.scenario import (
    Floats,
    Mask,
    NamingResult,
    Rows,
    Scenario,
    Service,
    Values,
    is_same,
    plain_values,
)
from cfk_plugin.audit.targets import nearest_inside
from cfk_plugin.data.region import Region
from cfk_plugin.release.results import GeneralizedCounterfactual

_PIECES = 64  # places of the numbers on the way between two entries
_HALF_STEP = 0.5  # numbers make up for half of the gap that one category makes
_FAR = 0.25  # least sum of gaps between the numbers of two entries
_TOLERANCE = 0.02  # of a measured difference of distances, beside what the last step leaves open
_TRIED = 20  # entries that are looked at for one that has one owner
_DRAWN = 6  # places that are drawn for one to measure from
_VALUES = 24  # values of each private attribute at which it may be held
_SEVERAL = (2, 3)  # attributes that are held together where one is not enough
_WAYS = 150  # most ways to hold one attribute, or several
_LOOKED_AT = 3  # points of a path that tell whether the model refuses all of it


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """Private values on the way from those of one published entry to those of another."""

    points: list[dict[str, Any]]  # in the order in which gaps fall
    gaps: Floats  # (n_points,): how much nearer each point is to the target's values

    def at(self, which: Rows) -> Path:
        """Return the path with some of its points alone, in the same order."""
        return Path(points=[self.points[i] for i in which.tolist()], gaps=self.gaps[which])


@dataclass(frozen=True, eq=False, repr=False)
class ProbedPath:
    """Quasi-identifiers to ask from, and a path whose points the model all refuses there."""

    place: dict[str, Any]
    path: Path


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """Two published entries, and how to move from the private values of one to those of the other.

    Along the path of each probe, regions switch from that of the target, whose owner is sought, to
    that of the partner.
    """

    target: GeneralizedCounterfactual
    partner: GeneralizedCounterfactual
    probes: list[ProbedPath]


@dataclass(frozen=True, slots=True)
class Measurement:
    """How much farther the owner of the target is from a place than the owner of the partner.

    Both ends are gaps of the path, between which regions switch.
    """

    place: Values
    low: float
    high: float


def trilaterate(
    scenario: Scenario,
    service: Service,
    n_victims: int,
    n_places: int,
    rng: np.random.Generator,
) -> NamingResult:
    """Name the owners of published private values from where the *region* of answers switches.

    The attacker knows everybody's quasi-identifiers, and that the explainer returns the nearest row
    by the sum of HEOM gaps. An entry (the target) was published with private values P and a region
    R, another one (the partner) with P' and R'. Queries have quasi-identifiers Q and private values
    on a path from P to P'. While the owner i of P is nearest, the region is R; when the owner o of
    P' is, it is R'. Where it switches, d(Q, Q_i) + d(x, P) = d(Q, Q_o) + d(x, P'), and x is the
    attacker's own choice. So bisection measures d(Q, Q_i) - d(Q, Q_o) for every Q the attacker
    likes. The attacker names the person in R who fits, with some person in R', most of the
    measurements. People who fit equally many share the chance. Of the answers only regions are
    used.

    P and P' have the outcome, and a query that has it gets no answer. So the attacker holds a few
    private attributes of all x at values with which the model refuses x. This adds an amount to
    d(x, P') - d(x, P) that the attacker knows. Where the model refuses no such x, nothing is asked.

    Owners are the people inside R with the outcome whose private values are nearest to P. A look-up
    names anybody inside R with the outcome. Where no answer depends on single rows, regions do not
    switch by this rule, and the chance is that of a look-up.

    Parameters
    ----------
    scenario : Scenario
    service : Service
        What is asked, and the published entries.
    n_victims : int
        Most entries whose owner is sought.
    n_places : int
        Most quasi-identifiers to measure from, for each of them. Six times as many are tried.
    rng : numpy.random.Generator

    Returns
    -------
    NamingResult
        One attempt per entry. Two queries are asked from each of up to six times as many places,
        and about eight more from each that can be measured from.
    """
    pairs = _draw_pairs(scenario, service.published, n_victims, n_places, rng)
    observer = _Observer(scenario, service, pairs)
    measured = observer.measure(n_places)
    chances = []
    lookups = []
    for pair, measurements in zip(pairs, measured, strict=True):
        inside = scenario.people_inside(pair.target.region)
        others = scenario.people_inside(pair.partner.region)
        owners = scenario.nearest_people(inside, pair.target.released)
        named = _best_fit(scenario, inside, others, measurements)
        chances.append(scenario.chance(named, owners))
        lookups.append(scenario.chance(inside, owners))
    return NamingResult(
        chances=np.array(chances, dtype=np.float64),
        lookups=np.array(lookups, dtype=np.float64),
        n_queries=observer.n_queries,
        n_answered=observer.n_answered,
    )


def _draw_pairs(
    scenario: Scenario,
    published: Sequence[GeneralizedCounterfactual],
    n_victims: int,
    n_places: int,
    rng: np.random.Generator,
) -> list[Pair]:
    """Draw target entries, each with the partner that is nearest to it among those far enough.

    Targets have one owner: somebody is nearest to their private values, and nobody equally near.
    Far enough: numbers differ by at least a quarter of a range in sum, so that there is a path to
    move on; where no entry does, the one whose numbers differ most. Entries that withhold or bin a
    private value are left out.
    """
    complete = [entry for entry in published if len(plain_values(entry)) == len(scenario.private)]
    if not complete or not scenario.private:
        return []
    heom = scenario.private_heom
    codes = heom.encode(pd.DataFrame([entry.released for entry in complete]))
    pairs: list[Pair] = []
    for i in rng.permutation(len(complete))[: _TRIED * n_victims].tolist():
        if len(pairs) == n_victims:
            break
        target = complete[i]
        inside = scenario.people_inside(target.region)
        is_elsewhere = np.array([entry.region != target.region for entry in complete])
        if len(scenario.nearest_people(inside, target.released)) != 1 or not is_elsewhere.any():
            continue
        repeated = codes.take(np.full(len(complete), i))
        gaps = heom.parts(repeated, codes)
        in_numbers = gaps[:, : len(heom.numeric)].sum(axis=1)
        is_far = is_elsewhere & (in_numbers >= _FAR)
        cost = np.where(is_elsewhere, -in_numbers, np.inf)
        if is_far.any():
            cost = np.where(is_far, gaps.sum(axis=1), np.inf)
        partner = complete[int(cost.argmin())]
        places = _places(scenario, target, partner, _DRAWN * n_places, rng)
        probes = _probes(scenario, target, partner, places, rng)
        pairs.append(Pair(target=target, partner=partner, probes=probes))
    return pairs


def _path(
    scenario: Scenario,
    target: GeneralizedCounterfactual,
    partner: GeneralizedCounterfactual,
    held: Values,
) -> Path:
    """Return private values on the way from those of one entry, P, to those of another, P'.

    The gap of a point x, d(x, P') - d(x, P), falls from point to point. On each level one category
    more has changed, and all numbers move together from P towards P'. One category passes through a
    value that is neither, if there is one, so that no gap is skipped. Attributes that are held have
    one value on the whole way.
    """
    start = {**target.released, **held}
    end = {**partner.released, **held}
    heom = scenario.private_heom
    differing = [name for name in start if not is_same(start[name], end[name])]
    moving = [name for name in differing if _is_number(start[name]) and _is_number(end[name])]
    moving = [name for name in moving if heom.ranges.get(name)]
    changed = [name for name in differing if name not in moving]
    neutral: dict[str, Any] = {}
    for name in changed:
        values = scenario.outsiders[name].dropna().unique().tolist()
        others = [value for value in values if value not in (start[name], end[name])]
        if others and name in heom.categorical:
            neutral = {name: others[0]}
            changed.remove(name)
            changed.append(name)  # the last one to change
            break
    levels = []
    for n_changed in range(len(changed) + 1):
        level = {**start, **{name: end[name] for name in changed[:n_changed]}}
        levels.append(level)
        if neutral and n_changed < len(changed):
            levels.append({**level, **neutral})
    shares = np.array([0.0])
    width = sum(abs(end[name] - start[name]) / heom.ranges[name] for name in moving)
    if moving:
        reach = min(width, _HALF_STEP) / width
        shares = np.linspace((1 - reach) / 2, (1 + reach) / 2, _PIECES)
    points = [start]
    for level in levels:
        for share in shares.tolist():
            moved = {name: start[name] + share * (end[name] - start[name]) for name in moving}
            points.append({**level, **moved})
    points.append(end)
    at = heom.encode(pd.DataFrame(points))
    of_target = heom.encode(pd.DataFrame([target.released] * len(points)))
    of_partner = heom.encode(pd.DataFrame([partner.released] * len(points)))
    gaps = (heom.parts(at, of_partner) - heom.parts(at, of_target)).sum(axis=1)
    return Path(points=points, gaps=gaps).at(np.argsort(-gaps, kind="stable"))


def _probes(
    scenario: Scenario,
    target: GeneralizedCounterfactual,
    partner: GeneralizedCounterfactual,
    places: Sequence[dict[str, Any]],
    rng: np.random.Generator,
) -> list[ProbedPath]:
    """Return a probe for each place at which the model can be made to refuse a path.

    Nothing is held where the model refuses the path anyway. Else one attribute is held, or several
    where one is not enough, at the values that take the path least far from both entries: the
    farther it is, the more often somebody else is nearest.
    """
    usual = _path(scenario, target, partner, {})
    few = np.linspace(0, len(usual.points) - 1, _LOOKED_AT).round().astype(np.int64)
    looked_at = usual.at(few).points
    waiting = list(places)
    probes = []
    for ways in _ways_to_hold(scenario, rng):
        if not waiting:
            break
        if not ways:
            continue
        by_length = _shortest_first(scenario, target, partner, ways)
        points = [{**point, **held} for held in by_length for point in looked_at]
        is_refused = _is_refused(scenario, waiting, points)
        by_way = is_refused.reshape(len(waiting), len(ways), _LOOKED_AT)
        refuses_all = np.asarray(by_way.all(axis=2))  # (n_waiting, n_ways)
        first = np.where(refuses_all.any(axis=1), refuses_all.argmax(axis=1), -1)
        for way in np.unique(first[first >= 0]).tolist():
            there = [waiting[i] for i in np.flatnonzero(first == way)]
            path = _path(scenario, target, partner, by_length[way])
            for place, is_kept in zip(
                there, _is_refused(scenario, there, path.points), strict=True
            ):
                probes.append(ProbedPath(place=place, path=path.at(np.flatnonzero(is_kept))))
        waiting = [waiting[i] for i in np.flatnonzero(first < 0)]
    return probes


def _is_refused(
    scenario: Scenario, places: Sequence[Values], points: Sequence[dict[str, Any]]
) -> Mask:
    """Say where the model refuses private values, shape (n_places, n_points)."""
    of_place = np.repeat(np.arange(len(places)), len(points))
    of_point = np.tile(np.arange(len(points)), len(places))
    quasi = pd.DataFrame(places).take(of_place).reset_index(drop=True)
    private = pd.DataFrame(points).take(of_point).reset_index(drop=True)
    is_desired = scenario.is_desired(pd.concat([quasi, private], axis=1))
    return ~is_desired.reshape(len(places), len(points))


def _ways_to_hold(scenario: Scenario, rng: np.random.Generator) -> Iterator[list[dict[str, Any]]]:
    """Yield ways to hold no private attribute, then one, then several.

    One is held at any value of people outside of the table, several at those of one of these people
    whom the model refuses.
    """
    yield [{}]
    one_held = []
    for name in scenario.private:
        values = scenario.outsiders[name].dropna().value_counts().index.tolist()
        if name in scenario.private_heom.numeric:
            values.sort()
            evenly = np.linspace(0, len(values) - 1, min(_VALUES, len(values))).round()
            values = [values[i] for i in evenly.astype(np.int64).tolist()]
        one_held += [{name: value} for value in values[:_VALUES]]
    drawn = rng.permutation(len(one_held))[:_WAYS]
    yield [one_held[i] for i in drawn.tolist()]
    is_donor = ~scenario.is_desired(scenario.outsiders)
    is_donor &= scenario.outsiders[scenario.private].notna().all(axis=1).to_numpy()
    donors = scenario.outsiders[scenario.private][is_donor].to_dict("records")
    for n_held in _SEVERAL:
        if not donors or n_held > len(scenario.private):
            break
        several_held = []
        for i in rng.integers(0, len(donors), _WAYS).tolist():
            names = rng.permutation(scenario.private)[:n_held].tolist()
            several_held.append({name: donors[i][name] for name in names})
        yield several_held


def _shortest_first(
    scenario: Scenario,
    target: GeneralizedCounterfactual,
    partner: GeneralizedCounterfactual,
    ways: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Sort ways to hold attributes by how far they are from both entries together."""
    heom = scenario.private_heom
    from_both = np.zeros(len(ways))
    for entry in (target, partner):
        held = heom.encode(pd.DataFrame([{**entry.released, **values} for values in ways]))
        own = heom.encode(pd.DataFrame([entry.released] * len(ways)))
        from_both += heom.parts(held, own).sum(axis=1)
    return [ways[i] for i in np.argsort(from_both, kind="stable")]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _places(
    scenario: Scenario,
    target: GeneralizedCounterfactual,
    partner: GeneralizedCounterfactual,
    n_drawn: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Draw quasi-identifiers to ask from: mixtures of those of people in both regions.

    Kept are those at which either entry is true for the person who asks, as only then its region is
    an answer. The attacker can tell, who knows the model.
    """
    regions = (target.region, partner.region)
    inside = np.concatenate([scenario.people_inside(region) for region in regions])
    if not len(inside):
        return []
    quasi = scenario.people[scenario.quasi_identifiers].take(inside)
    columns = {
        name: quasi[name].to_numpy(dtype=object)[rng.integers(0, len(quasi), n_drawn)]
        for name in quasi
    }
    kept = pd.DataFrame(columns).drop_duplicates()
    names = scenario.quasi_identifiers
    drawn = [dict(zip(names, row, strict=True)) for row in kept[names].to_numpy(dtype=object)]
    is_true: Mask = np.ones(len(drawn), dtype=bool)
    for entry in (target, partner):
        points = [
            {name: nearest_inside(part, place[name]) for name, part in entry.region.items()}
            for place in drawn
        ]
        is_true &= scenario.is_desired(pd.DataFrame(points).assign(**entry.released))
    return [place for place, holds in zip(drawn, is_true, strict=True) if holds]


class _Observer:
    """Asks from all places of all pairs at the same time, with one batch of queries per step."""

    def __init__(self, scenario: Scenario, service: Service, pairs: Sequence[Pair]) -> None:
        self._scenario = scenario
        self._service = service
        self._pairs = pairs
        # one for each place of each pair, with the number of the pair
        self._probes = [(n, probe) for n, pair in enumerate(pairs) for probe in pair.probes]
        self.n_queries = 0
        self.n_answered = 0

    def measure(self, n_places: int) -> list[list[Measurement]]:
        """Return, for each pair, where regions switch from the target's to the partner's.

        A place can be measured from if the regions at both ends of its path are those of the pair.
        Elsewhere a third person is nearest. Measured from are the first `n_places` of each pair.
        """
        everywhere = np.arange(len(self._probes))
        pairs = [self._pairs[number] for number, _ in self._probes]
        low = np.zeros(len(pairs), dtype=np.int64)
        n_points = [len(probe.path.points) for _, probe in self._probes]
        high = np.array(n_points, dtype=np.int64) - 1
        at_start = self._regions(everywhere, low)
        beyond = self._regions(everywhere, high)  # the region just past the switch
        is_usable = np.zeros(len(pairs), dtype=bool)
        n_usable = [0] * len(self._pairs)
        for i, pair in enumerate(pairs):
            number, _ = self._probes[i]
            is_target = at_start[i] == pair.target.region
            if is_target and beyond[i] == pair.partner.region and n_usable[number] < n_places:
                is_usable[i] = True
                n_usable[number] += 1
        while len(unsure := np.flatnonzero(is_usable & (high - low > 1))):
            middle = (low + high) // 2
            regions = self._regions(unsure, middle[unsure])
            for i, region in zip(unsure.tolist(), regions, strict=True):
                if region == pairs[i].target.region:
                    low[i] = middle[i]
                else:
                    high[i] = middle[i]
                    beyond[i] = region
        measured: list[list[Measurement]] = [[] for _ in self._pairs]
        for i in np.flatnonzero(is_usable).tolist():
            if beyond[i] != pairs[i].partner.region:
                continue  # a third person is nearest there
            number, probe = self._probes[i]
            # Along a path gaps fall from the target's owner to the partner's.
            nearer = float(probe.path.gaps[high[i]])
            farther = float(probe.path.gaps[low[i]])
            measured[number].append(Measurement(place=probe.place, low=nearer, high=farther))
        return measured

    def _regions(self, probes: Rows, steps: Rows) -> list[Region | None]:
        """Return the region of the answer at a point of each probe; None where it is withheld."""
        regions: list[Region | None] = [None] * len(probes)
        if not len(probes):
            return regions
        rows = []
        for i, step in zip(probes.tolist(), steps.tolist(), strict=True):
            _, probe = self._probes[i]
            rows.append({**probe.place, **probe.path.points[step]})
        queries = pd.DataFrame(rows)[self._scenario.features]
        answers = self._service.explain(self._scenario.population.conform(queries)).generalized
        for answer in answers:
            regions[answer.query] = answer.region
        self.n_queries += len(rows)
        self.n_answered += len(answers)
        return regions


def _best_fit(
    scenario: Scenario, inside: Rows, others: Rows, measurements: Sequence[Measurement]
) -> Rows:
    """Return who inside the target's region fits most measurements, with somebody of the others."""
    if not measurements or not len(others):
        return inside
    heom = scenario.quasi_heom
    codes = heom.encode(scenario.people)
    n_columns = len(scenario.quasi_identifiers)
    places = heom.encode(pd.DataFrame([each.place for each in measurements]))
    own = n_columns * heom.distances(places, codes.take(inside))  # (n_measurements, n_inside)
    other = n_columns * heom.distances(places, codes.take(others))  # (n_measurements, n_others)
    n_fits = np.zeros((len(inside), len(others)), dtype=np.int64)
    for i, measurement in enumerate(measurements):
        farther = own[i][:, None] - other[i][None, :]
        is_above = farther >= measurement.low - _TOLERANCE
        n_fits += is_above & (farther <= measurement.high + _TOLERANCE)
    most = n_fits.max(axis=1)
    named: Rows = inside[most == most.max()]
    return named
