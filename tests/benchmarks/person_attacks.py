"""Attacks on one person: who is behind a released explanation, and who is in the training table.

Each attack takes a `Scenario`, which is what the data holder needs to judge the attacker's guesses,
and a `Service`, which is what an attacker can reach. Host side only: a scenario holds rows. Results
are counts and shares.

In all attacks the attacker knows the schema, the model, the ranges of the columns, and the
quasi-identifiers and the predicted outcome of everybody. A *look-up* is the same guess from these
alone: a person drawn among those inside the region who have the outcome.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import Explanations, GeneralizedCounterfactual, Population, Region
from cfk_plugin.audit.result import measure_roc
from cfk_plugin.data.region import part_contains
from cfk_plugin.frontier import nearest_points
from cfk_plugin.metrics.heom import Heom, HeomCodes

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Values = Mapping[str, Any]

_TIE = 1e-9  # distances that differ by less are equal
_DRAWS = 20  # times that an attacker tries to make a query that the model refuses


@dataclass(frozen=True, slots=True)
class NamingResult:
    """How often an attacker names the right person."""

    chance: float  # to name the right person, mean over the attempts; NaN without any
    lookup: float  # the same chance for somebody who only looks up the region
    n_attempts: int
    n_queries: int
    n_answered: int


@dataclass(frozen=True, slots=True)
class MembershipResult:
    """How well an attacker tells people of the training table from other people."""

    auc: float  # area under the curve; 0.5 is a coin; NaN if nobody could be attacked
    lookup: float  # the same for somebody who counts the published regions that hold the person
    n_members: int
    n_others: int
    n_queries: int
    n_answered: int


@dataclass(frozen=True, eq=False, repr=False)
class Service:
    """What an attacker can reach: answers to queries, and the published catalogue."""

    explain: Callable[[pd.DataFrame], Explanations]
    published: Sequence[GeneralizedCounterfactual]


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """What the data holder knows: the people in the table, and others of the same source."""

    population: Population
    model: Any
    desired: Any
    outsiders: pd.DataFrame  # people who are not in the table, with all features

    @cached_property
    def features(self) -> list[str]:
        return list(self.population.schema.features)

    @cached_property
    def private(self) -> list[str]:
        return list(self.population.schema.private)

    @cached_property
    def quasi_identifiers(self) -> list[str]:
        return list(self.population.schema.quasi_identifiers)

    @cached_property
    def people(self) -> pd.DataFrame:
        """The training rows, in the order of the population."""
        return self.population.frame[self.features].reset_index(drop=True)

    @cached_property
    def has_outcome(self) -> Mask:
        """Return who in the table has the desired predicted outcome, shape (n_rows,)."""
        return self.is_desired(self.people)

    @cached_property
    def private_heom(self) -> Heom:
        return self._heom_over(self.private)

    @cached_property
    def quasi_heom(self) -> Heom:
        return self._heom_over(self.quasi_identifiers)

    @cached_property
    def private_codes(self) -> HeomCodes:
        """Private values of the training rows, for distances."""
        return self.private_heom.encode(self.people)

    def _heom_over(self, columns: Iterable[str]) -> Heom:
        whole = Heom.of(self.population)
        kept = set(columns)
        return Heom(
            [name for name in whole.numeric if name in kept],
            [name for name in whole.categorical if name in kept],
            whole.ranges,
        )

    def is_desired(self, rows: pd.DataFrame) -> Mask:
        """Return which rows get the desired outcome, shape (n,)."""
        if rows.empty:
            return np.zeros(0, dtype=bool)
        labels = self.model.predict(self.population.conform(rows[self.features]))
        return np.asarray(np.asarray(labels) == self.desired, dtype=bool)

    def people_inside(self, region: Region) -> Rows:
        """Return the training rows inside a region that have the desired outcome."""
        inside = self.population.members(region)
        with_outcome: Rows = inside[self.has_outcome[inside]]
        return with_outcome

    def nearest_people(self, rows: Rows, values: Values) -> Rows:
        """Return which of some people are nearest to private values; several if they tie.

        Only the attributes in `values` count. Without any, everybody is equally near.
        """
        known = self.private_heom.encode(pd.DataFrame([{**dict.fromkeys(self.private), **values}]))
        repeated = known.take(np.zeros(len(rows), dtype=np.int64))
        # (n_rows, n_private), numbers first
        gaps = self.private_heom.parts(self.private_codes.take(rows), repeated)
        order = [*self.private_heom.numeric, *self.private_heom.categorical]
        counts = np.array([name in values for name in order])
        distance = gaps[:, counts].sum(axis=1)
        nearest: Rows = rows[distance <= distance.min() + _TIE]
        return nearest

    def members_and_others(self, limit: int, rng: np.random.Generator) -> People:
        """Draw at most `limit` people with the desired outcome from the table, and others."""
        inside = self.people[self.has_outcome]
        outside = self.outsiders[self.is_desired(self.outsiders)]
        return People(members=_drawn(inside, limit, rng), others=_drawn(outside, limit, rng))


@dataclass(frozen=True, eq=False, repr=False)
class People:
    """People with the desired outcome: some of the training table, and some who are not in it."""

    members: pd.DataFrame
    others: pd.DataFrame

    @property
    def everybody(self) -> pd.DataFrame:
        """Members first."""
        return pd.concat([self.members, self.others], ignore_index=True)

    def area(self, scores: Floats) -> float:
        """Return the area under the curve of scores, members first; larger means a member."""
        n_members = len(self.members)
        if not n_members or not len(self.others) or np.isnan(scores).all():
            return math.nan
        return measure_roc(scores[:n_members], scores[n_members:]).auc.value


def _drawn(rows: pd.DataFrame, limit: int, rng: np.random.Generator) -> pd.DataFrame:
    chosen = np.sort(rng.permutation(len(rows))[:limit])
    return rows.take(chosen).reset_index(drop=True)


# --- pose as the victim


def pose_as_victims(
    scenario: Scenario, service: Service, n_victims: int, rng: np.random.Generator
) -> NamingResult:
    """Ask in the name of a victim, and guess that the answer is made of the victim's own row.

    The attacker knows the quasi-identifiers of a victim who is in the table and has the desired
    outcome. One query has the victim's quasi-identifiers and the private values of somebody else
    (of the same source, not in the table) with which the model refuses it. An explainer that
    returns the nearest row then returns the victim's. If the region of the answer holds the victim,
    the attacker guesses that the private values in it, apart from those of the query, are the
    victim's.

    The row behind an answer is the row inside its region, with the outcome, that is nearest to
    these private values. Several that are equally near share the chance. So an answer that has
    nothing but the query's own private values is worth exactly a look-up.
    """
    victims = rng.permutation(np.flatnonzero(scenario.has_outcome))[:n_victims]
    posed = refused_as(scenario, victims, rng)
    explanations = service.explain(posed.queries)
    chances = []
    lookups = []
    for entry in explanations.generalized:
        victim = posed.victims[entry.query]
        inside = scenario.people_inside(entry.region)
        if victim not in inside:
            continue
        values = not_of_query(entry, posed.queries.iloc[entry.query])
        behind = scenario.nearest_people(inside, values)
        chances.append(float(victim in behind) / len(behind))
        lookups.append(1 / len(inside))
    return NamingResult(
        chance=_mean(chances),
        lookup=_mean(lookups),
        n_attempts=len(chances),
        n_queries=len(posed.queries),
        n_answered=len(explanations.generalized),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Posed:
    """Queries in the name of victims, one each."""

    queries: pd.DataFrame
    victims: Rows  # shape (n_queries,); rows of the table


def refused_as(scenario: Scenario, victims: Rows, rng: np.random.Generator) -> Posed:
    """Return a query with each victim's quasi-identifiers that the model refuses.

    Private values are those of one outsider per query, drawn until the model refuses; victims for
    whom it never does are left out.
    """
    queries = pd.DataFrame()
    answered = np.empty(0, dtype=np.int64)
    waiting = victims
    for _ in range(_DRAWS):
        if not len(waiting):
            break
        donors = rng.integers(0, len(scenario.outsiders), len(waiting))
        rows = scenario.outsiders[scenario.features].take(donors).reset_index(drop=True)
        rows[scenario.quasi_identifiers] = (
            scenario.people[scenario.quasi_identifiers].take(waiting).to_numpy(dtype=object)
        )
        rows = scenario.population.conform(rows)
        is_refused = ~scenario.is_desired(rows)
        queries = pd.concat([queries, rows[is_refused]], ignore_index=True)
        answered = np.concatenate([answered, waiting[is_refused]])
        waiting = waiting[~is_refused]
    return Posed(queries=queries, victims=answered)


def not_of_query(entry: GeneralizedCounterfactual, query: pd.Series[Any]) -> dict[str, Any]:
    """Return the private values of an answer that are not the query's own."""
    return {
        name: value for name, value in entry.released.items() if not _is_same(value, query[name])
    }


def _is_same(a: Any, b: Any) -> bool:
    if pd.isna(a) or pd.isna(b):
        return bool(pd.isna(a) and pd.isna(b))
    return bool(a == b)


# --- membership from published entries


def published_membership(
    scenario: Scenario, service: Service, limit: int, rng: np.random.Generator
) -> MembershipResult:
    """Guess who is in the table from the published entries alone, without model and queries.

    The attacker knows the whole record of a person who has the desired outcome, and takes the
    person for a member of the table if the person's private values are near to those of some
    published entry: entries are made of the rows of people with the desired outcome. Measured by
    the area under the curve over people with the outcome, in the table and outside. Compare
    arXiv 2606.06334.
    """
    people = scenario.members_and_others(limit, rng)
    values = pd.DataFrame([entry.released for entry in service.published])
    heom = scenario.private_heom
    _, distance = heom.nearest(heom.encode(people.everybody), heom.encode(_distinct(values)))
    return _without_queries(people, -distance[:, 0], service.published)


def known_numbers_membership(
    scenario: Scenario, service: Service, limit: int, rng: np.random.Generator
) -> MembershipResult:
    """Guess who is in the table from exact numbers that the published entries hold.

    The attacker knows the private numbers of a person who has the desired outcome, and looks for
    each of them among the published entries. Each one that occurs there counts by how rare it is
    among other people of the same source, whom the attacker knows and who are not judged. Without
    private numbers in the table there is nothing to know, and the area is NaN.
    """
    people = scenario.members_and_others(limit, rng)
    judged = set(map(tuple, people.others[scenario.private].astype(object).to_numpy()))
    rows = scenario.outsiders[scenario.private].astype(object).to_numpy()
    reference = scenario.outsiders[[tuple(row) not in judged for row in rows]]
    scores = np.zeros(len(people.everybody))
    if not scenario.private_heom.numeric:
        scores[:] = math.nan
    for name in scenario.private_heom.numeric:
        published = {entry.released.get(name) for entry in service.published}
        holders = Counter(reference[name].tolist())
        values = people.everybody[name].tolist()
        for i, value in enumerate(values):
            if value in published:
                scores[i] += math.log((len(reference) + 1) / (holders[value] + 1))
    return _without_queries(people, scores, service.published)


def _without_queries(
    people: People, scores: Floats, published: Sequence[GeneralizedCounterfactual]
) -> MembershipResult:
    return MembershipResult(
        auc=people.area(scores),
        lookup=people.area(regions_holding(people.everybody, published)),
        n_members=len(people.members),
        n_others=len(people.others),
        n_queries=0,
        n_answered=0,
    )


def regions_holding(rows: pd.DataFrame, published: Sequence[GeneralizedCounterfactual]) -> Floats:
    """Return how many of the published regions hold each row, shape (n,)."""
    counts = np.zeros(len(rows))
    factorized: dict[str, tuple[Rows, list[Any]]] = {}
    for name in published[0].region:
        codes, distinct = pd.factorize(rows[name].astype(object), use_na_sentinel=False)
        factorized[name] = codes, distinct.tolist()
    known: dict[Any, Mask] = {}
    for region in {entry.region for entry in published}:
        is_inside = np.ones(len(rows), dtype=bool)
        for name, part in region.items():
            if (name, part) not in known:
                codes, values = factorized[name]
                holds = np.array([part_contains(part, value) for value in values])
                known[name, part] = holds[codes]
            is_inside &= known[name, part]
        counts += is_inside
    return counts


def _distinct(values: pd.DataFrame) -> pd.DataFrame:
    return values[~values.astype(object).duplicated()]


# --- membership from the field `moved`

Moves = Callable[[pd.DataFrame, Sequence[GeneralizedCounterfactual]], Sequence[int]]
"""From queries and answers, whose `query` numbers them, to how many values an answer says it moved.
"""


def public_moves(_: pd.DataFrame, answers: Sequence[GeneralizedCounterfactual]) -> list[int]:
    """Count the attributes that the public form of each answer names as moved."""
    return [len(answer.to_dict().get("moved", ())) for answer in answers]


def moves_from(start: Callable[[pd.DataFrame], pd.DataFrame]) -> Moves:
    """Count private values of an answer that differ from those that its search began with.

    This is what an earlier definition of `moved` disclosed. It compares the answer with a row that
    the recipient does not see, so it says how far this row is from the query. `start` returns
    this row for each query: the counterfactual of the explainer.
    """

    def count(queries: pd.DataFrame, answers: Sequence[GeneralizedCounterfactual]) -> list[int]:
        begun = start(queries).reset_index(drop=True)
        return [len(not_of_query(answer, begun.iloc[answer.query])) for answer in answers]

    return count


def moves_membership(
    scenario: Scenario, service: Service, moves: Moves, limit: int, rng: np.random.Generator
) -> MembershipResult:
    """Guess who is in the table from how many private values an answer says it moved.

    The attacker knows the whole record of a person who has the desired outcome, and sends it as the
    query. If the person is in the table, an answer that begins with the nearest row begins with the
    person's own row, and nothing is left to move. The attacker may read the count either way, so
    the area is that of the better direction. People without an answer get the median count.
    """
    people = scenario.members_and_others(limit, rng)
    queries = people.everybody
    answers = service.explain(queries).generalized
    counts = np.full(len(queries), np.nan)
    counts[[answer.query for answer in answers]] = moves(queries, answers)
    counts[np.isnan(counts)] = np.nanmedian(counts) if len(answers) else 0.0
    area = people.area(-counts)
    return MembershipResult(
        auc=max(area, 1 - area),
        lookup=people.area(regions_holding(queries, service.published)),
        n_members=len(people.members),
        n_others=len(people.others),
        n_queries=len(queries),
        n_answered=len(answers),
    )


# --- owners of published numbers


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue:
    """One published catalogue, and who has the desired outcome by the model it was made with."""

    published: Sequence[GeneralizedCounterfactual]
    has_outcome: Mask  # shape (n_rows,)


def name_owners(
    scenario: Scenario, catalogues: Sequence[Catalogue], columns: Sequence[str] | None = None
) -> NamingResult:
    """Name the only person who has a published number.

    The attacker looks at a private number in the published entries. Each region that it is
    published with votes for the people inside who have the desired outcome. The attacker names one
    of those with the most votes. With several catalogues of the same table (made with another k,
    model or key) the regions differ, and fewer people are in all of them.

    Judged are all published numbers that exactly one training row has. (An attacker who guesses
    that a number with many digits belongs to one person is right.) A look-up is the same guess from
    a single one of the regions.
    """
    chances = []
    lookups = []
    for name in columns or scenario.private_heom.numeric:
        regions = [_regions_by_value(name, catalogue.published) for catalogue in catalogues]
        owners = _sole_owners(scenario.people[name])
        for value in {value for by_value in regions for value in by_value if value in owners}:
            votes = np.zeros(len(scenario.people))
            alone = []
            for catalogue, by_value in zip(catalogues, regions, strict=True):
                for region in by_value.get(value, ()):
                    inside = scenario.population.members(region)
                    inside = inside[catalogue.has_outcome[inside]]
                    votes[inside] += 1
                    alone.append(float(owners[value] in inside) / max(len(inside), 1))
            named = np.flatnonzero(votes == votes.max())
            chances.append(float(owners[value] in named) / len(named))
            lookups.append(_mean(alone))
    return NamingResult(
        chance=_mean(chances),
        lookup=_mean(lookups),
        n_attempts=len(chances),
        n_queries=0,
        n_answered=0,
    )


def _regions_by_value(
    name: str, published: Sequence[GeneralizedCounterfactual]
) -> dict[Any, set[Region]]:
    found: dict[Any, set[Region]] = {}
    for entry in published:
        value = entry.released.get(name)
        if value is not None:
            found.setdefault(value, set()).add(entry.region)
    return found


def _sole_owners(column: pd.Series[Any]) -> dict[Any, int]:
    """Return the values that exactly one row has, each with the position of the row."""
    is_alone = ~column.duplicated(keep=False) & column.notna()
    rows = np.flatnonzero(is_alone)
    return dict(zip(column.iloc[rows].tolist(), rows.tolist(), strict=True))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


# --- trilateration

_PIECES = 64  # places of the numbers on the way between two entries
_HALF_STEP = 0.5  # numbers make up for half of the gap that one category makes
_FAR = 0.25  # least sum of gaps between the numbers of two entries
_TOLERANCE = 0.02  # of a measured difference of distances, beside what the last step leaves open


@dataclass(frozen=True, eq=False, repr=False)
class Probe:
    """A place to measure from: quasi-identifiers, and a path between two published entries.

    The path leads from the private values of the target, whose owner is sought, to those of the
    partner; see `_Path`.
    """

    target: GeneralizedCounterfactual
    partner: GeneralizedCounterfactual
    place: Values  # quasi-identifiers


@dataclass(frozen=True, slots=True)
class Measurement:
    """How much farther the owner of the target is from a place than the owner of the partner.

    Both ends are gaps of the path, between which regions switch.
    """

    probe: int  # its position among all probes
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

    Owners are the people inside R with the outcome whose private values are nearest to P. A look-up
    names anybody inside R with the outcome.
    """
    pairs = _targets(scenario, service.published, n_victims, rng)
    probes = []
    pair_of_probe = []
    for number, (target, partner) in enumerate(pairs):
        for place in _places(scenario, target, partner, n_places, rng):
            probes.append(Probe(target=target, partner=partner, place=place))
            pair_of_probe.append(number)
    prober = _Prober(scenario, service, probes)
    measurements = prober.measure()
    chances = []
    lookups = []
    for number, (target, partner) in enumerate(pairs):
        mine = [each for each in measurements if pair_of_probe[each.probe] == number]
        inside = scenario.people_inside(target.region)
        others = scenario.people_inside(partner.region)
        places = [probes[each.probe].place for each in mine]
        named = _best_fit(scenario, inside, others, places, mine)
        owners = scenario.nearest_people(inside, target.released)
        chances.append(float(np.isin(named, owners).mean()))
        lookups.append(len(owners) / len(inside))
    return NamingResult(
        chance=_mean(chances),
        lookup=_mean(lookups),
        n_attempts=len(chances),
        n_queries=prober.n_queries,
        n_answered=prober.n_answered,
    )


Pair = tuple[GeneralizedCounterfactual, GeneralizedCounterfactual]


def _targets(
    scenario: Scenario,
    published: Sequence[GeneralizedCounterfactual],
    n_victims: int,
    rng: np.random.Generator,
) -> list[Pair]:
    """Draw target entries, each with the partner that is nearest to it among those far enough.

    Targets have one owner: somebody is nearest to their private values, and nobody equally near.
    Far enough: numbers differ by at least a quarter of a range in sum, so that there is a path to
    move on; where no entry does, the one whose numbers differ most.
    """
    heom = scenario.private_heom
    codes = heom.encode(pd.DataFrame([entry.released for entry in published]))
    pairs: list[Pair] = []
    for i in rng.permutation(len(published)).tolist():
        if len(pairs) == n_victims:
            break
        target = published[i]
        inside = scenario.people_inside(target.region)
        if len(scenario.nearest_people(inside, target.released)) > 1:
            continue
        repeated = codes.take(np.full(len(published), i))
        gaps = heom.parts(repeated, codes)
        numbers = gaps[:, : len(heom.numeric)].sum(axis=1)
        is_elsewhere = np.array([entry.region != target.region for entry in published])
        if not is_elsewhere.any():
            continue
        is_far = is_elsewhere & (numbers >= _FAR)
        if is_far.any():
            cost = np.where(is_far, gaps.sum(axis=1), np.inf)
        else:
            cost = np.where(is_elsewhere, -numbers, np.inf)
        pairs.append((target, published[int(cost.argmin())]))
    return pairs


def _places(
    scenario: Scenario,
    target: GeneralizedCounterfactual,
    partner: GeneralizedCounterfactual,
    n_places: int,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Draw quasi-identifiers to measure from: mixtures of those of people in both regions.

    Kept are those at which either entry is true for the person who asks, as only then its region is
    an answer. The attacker can tell, who knows the model.
    """
    inside = np.concatenate(
        [scenario.people_inside(target.region), scenario.people_inside(partner.region)]
    )
    quasi = scenario.people[scenario.quasi_identifiers].take(inside)
    columns = {
        name: quasi[name].to_numpy(dtype=object)[rng.integers(0, len(quasi), 6 * n_places)]
        for name in quasi
    }
    drawn = pd.DataFrame(columns).drop_duplicates()
    is_true = np.ones(len(drawn), dtype=bool)
    for entry in (target, partner):
        rows = [{**place, **entry.released} for place in drawn.to_dict("records")]
        points = nearest_points([entry] * len(rows), rows, scenario.population)
        is_true &= scenario.is_desired(points)
    kept = drawn[is_true].head(n_places).to_numpy(dtype=object)
    return [dict(zip(scenario.quasi_identifiers, values, strict=True)) for values in kept]


class _Prober:
    """Bisects all probes at the same time, with one batch of queries per step."""

    def __init__(self, scenario: Scenario, service: Service, probes: Sequence[Probe]) -> None:
        self._scenario = scenario
        self._service = service
        self._probes = probes
        self._paths = [_Path.between(scenario, probe) for probe in probes]
        self.n_queries = 0
        self.n_answered = 0

    def measure(self) -> list[Measurement]:
        """Return where regions switch from the target's to the partner's."""
        everywhere = np.arange(len(self._probes))
        at_start = self._regions(everywhere, [path.start for path in self._paths])
        at_end = self._regions(everywhere, [path.end for path in self._paths])
        usable = [
            i
            for i, probe in enumerate(self._probes)
            if at_start[i] == probe.target.region and at_end[i] == probe.partner.region
        ]
        brackets = {i: (0, self._paths[i].n_steps) for i in usable}
        beyond = {i: at_end[i] for i in usable}  # region where the target's ends
        while open_to := [i for i, (low, high) in brackets.items() if high - low > 1]:
            middles = [sum(brackets[i]) // 2 for i in open_to]
            asked = [
                self._paths[i].point(middle) for i, middle in zip(open_to, middles, strict=True)
            ]
            regions = self._regions(np.array(open_to), asked)
            for i, middle, region in zip(open_to, middles, regions, strict=True):
                low, high = brackets[i]
                if region == self._probes[i].target.region:
                    brackets[i] = (middle, high)
                else:
                    brackets[i] = (low, middle)
                    beyond[i] = region
        found = []
        for i, (low, high) in brackets.items():
            if beyond[i] != self._probes[i].partner.region:
                continue  # a third person is nearest there
            found.append(
                Measurement(probe=i, low=self._paths[i].gap(high), high=self._paths[i].gap(low))
            )
        return found

    def _regions(self, probes: Rows, points: Sequence[Values]) -> list[Region | None]:
        """Return the region of the answer at a point of each probe; None where it is withheld."""
        if not len(probes):
            return []
        rows = [
            {**self._probes[i].place, **point}
            for i, point in zip(probes.tolist(), points, strict=True)
        ]
        queries = pd.DataFrame(rows)[self._scenario.features]
        explanations = self._service.explain(self._scenario.population.conform(queries))
        regions: list[Region | None] = [None] * len(rows)
        for entry in explanations.generalized:
            regions[entry.query] = entry.region
        self.n_queries += len(rows)
        self.n_answered += len(explanations.generalized)
        return regions


@dataclass(frozen=True, eq=False, repr=False)
class _Path:
    """Private values between those of two entries, P and P', in steps.

    The gap of a point x, d(x, P') - d(x, P), falls from step to step. A category counts 1 in it if
    it is that of P, -1 if it is that of P', and 0 if it is neither. On each level some categories
    are changed, and all numbers move together from P towards P'.
    """

    start: dict[str, Any]  # private values P
    end: dict[str, Any]  # private values P'
    flipped: tuple[str, ...]  # attributes that change at once, in this order
    neutral: Values  # one of them, the last, with a value that is neither; may be empty
    moving: tuple[str, ...]  # numbers that move
    width: float  # sum of the gaps between these numbers

    @classmethod
    def between(cls, scenario: Scenario, probe: Probe) -> _Path:
        start = dict(probe.target.released)
        end = dict(probe.partner.released)
        heom = scenario.private_heom
        differing = [name for name in start if not _is_same(start[name], end[name])]
        moving = [
            name
            for name in differing
            if name in heom.numeric and start[name] is not None and end[name] is not None
        ]
        flipped = [name for name in differing if name not in moving]
        neutral: dict[str, Any] = {}
        for name in flipped:
            other = [
                value
                for value in scenario.outsiders[name].dropna().unique().tolist()
                if name in heom.categorical and value not in (start[name], end[name])
            ]
            if other:
                neutral = {name: other[0]}
                flipped.append(flipped.pop(flipped.index(name)))  # the last one
                break
        width = sum(abs(end[name] - start[name]) / heom.ranges[name] for name in moving)
        return cls(
            start=start,
            end=end,
            flipped=tuple(flipped),
            neutral=neutral,
            moving=tuple(moving),
            width=width,
        )

    @property
    def n_steps(self) -> int:
        """Position of P'; P has 0."""
        return self._n_levels * self._n_pieces + 1

    @property
    def _n_levels(self) -> int:
        per_category = 2 if self.neutral else 1
        return per_category * len(self.flipped) + 1

    @property
    def _n_pieces(self) -> int:
        return _PIECES if self.width else 1

    def point(self, step: int) -> dict[str, Any]:
        """Return the private values at a step."""
        if step == 0:
            return self.start
        if step == self.n_steps:
            return self.end
        level, number_gap = self._place(step)
        values = dict(self.start)
        n_flipped = level // 2 if self.neutral else level
        for name in self.flipped[:n_flipped]:
            values[name] = self.end[name]
        if self.neutral and level % 2:
            values.update(self.neutral)
        if self.width:
            share = (1 - number_gap / self.width) / 2
            for name in self.moving:
                values[name] = self.start[name] + share * (self.end[name] - self.start[name])
        return values

    def gap(self, step: int) -> float:
        """Return d(x, P') - d(x, P) at a step, with d the sum of HEOM gaps."""
        if step == 0:
            return len(self.flipped) + self.width
        if step == self.n_steps:
            return -len(self.flipped) - self.width
        level, number_gap = self._place(step)
        per_level = 1 if self.neutral else 2
        return len(self.flipped) - per_level * level + number_gap

    def _place(self, step: int) -> tuple[int, float]:
        """Return the level of a step between the ends, and the part of the gap by numbers."""
        level, piece = divmod(step - 1, self._n_pieces)
        most = min(self.width, _HALF_STEP)
        if self._n_pieces == 1:
            return level, 0.0
        return level, most * (1 - 2 * piece / (self._n_pieces - 1))


def _best_fit(
    scenario: Scenario,
    inside: Rows,
    others: Rows,
    places: Sequence[Values],
    measurements: Sequence[Measurement],
) -> Rows:
    """Return who inside the target's region fits most measurements, with somebody of the others."""
    if not measurements or not len(others):
        return inside
    heom = scenario.quasi_heom
    codes = heom.encode(scenario.people)
    n_columns = len(scenario.quasi_identifiers)
    asked = heom.encode(pd.DataFrame(places))
    own = n_columns * heom.distances(asked, codes.take(inside))  # (n_measurements, n_inside)
    other = n_columns * heom.distances(asked, codes.take(others))  # (n_measurements, n_others)
    farther = own[:, :, None] - other[:, None, :]
    low = np.array([each.low for each in measurements])[:, None, None]
    high = np.array([each.high for each in measurements])[:, None, None]
    fits = (farther >= low - _TOLERANCE) & (farther <= high + _TOLERANCE)
    most = fits.sum(axis=0).max(axis=1)  # (n_inside,)
    named: Rows = inside[most == most.max()]
    return named
