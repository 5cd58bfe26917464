"""The attacks of the threat model: what the attacker knows and does, and how often it works.

Every attack has one shape. `main` attacks the product with its default settings; each attempt has a
value and what guessing gives. `control` is the same attack where it must work (rows that are
hardly protected) or where it cannot (another truth), whichever says more.

The *person behind an answer* is the one inside its region with the desired outcome whose private
values are nearest to those that the answer has and the query has not. Answers of a control are made
of that person's row. If answers are made of no one's row, this person is arbitrary, and the chance
to name them is that of a look-up among the people inside with the outcome.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from attack_world import (
    Answer,
    Attempts,
    CatalogueService,
    Floats,
    Mask,
    Rows,
    Service,
    World,
    answers_of,
    best,
    chance,
    inside,
    outranks,
    rank,
)
from cfk_plugin import (
    Attribute,
    Catalogue,
    Explanations,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
)
from public_tables import forest

Random = np.random.Generator
Pairs = Iterator[tuple[float, float]]
"""A value and what guessing gives, attempt by attempt."""
Targets = Sequence[tuple[Answer, pd.DataFrame]]
"""Answers that are attacked, each with its query as one row."""


class Attack(ABC):
    """One attack; it gets a world and random numbers."""

    name: ClassVar[str]
    measure: ClassVar[Literal["chance", "auc"]] = "chance"
    most: ClassVar[Literal["1/k"] | float | None] = None  # what the promise allows

    def limit(self, k: int) -> float | None:
        return 1 / k if self.most == "1/k" else self.most

    @abstractmethod
    def main(self, world: World, rng: Random) -> Attempts:
        """Attack the product."""

    @abstractmethod
    def control(self, world: World, rng: Random) -> Attempts:
        """Attack something that shows what the figure of the product is worth."""


class ServiceAttack(Attack):
    """An attack on what a service releases. Control: a service that protects less."""

    most = "1/k"
    control_service: ClassVar[Literal["weak", "raw"]] = "weak"

    @abstractmethod
    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        """Attack a service."""

    def main(self, world: World, rng: Random) -> Attempts:
        return Attempts.of(self.attempts(world, world.protected, rng))

    def control(self, world: World, rng: Random) -> Attempts:
        return Attempts.of(self.attempts(world, getattr(world, self.control_service), rng))


# --- look at answers


class LookUp(ServiceAttack):
    """The attacker knows everyone's quasi-identifiers, and names someone who fits an answer.

    The chance is 1 / people inside the region. Guessing: anyone in the table.
    """

    name = "look-up"
    control_service = "raw"
    n_queries = 100

    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        for answer in service.explain(world.refused.head(self.n_queries)):
            yield 1 / inside(answer.region, world.people).sum(), 1 / len(world.people)


class OutcomeKnown(ServiceAttack):
    """The attacker also knows what the model said about everyone in the table.

    The chance is 1 / people inside who have the desired outcome. Guessing: a look-up.
    """

    name = "outcome-known"
    n_queries = 100

    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        for answer in service.explain(world.refused.head(self.n_queries)):
            n_inside = inside(answer.region, world.people).sum()
            n_left = len(self.people_left(world, answer))
            yield 1 / max(n_left, 1), 1 / n_inside

    def people_left(self, world: World, answer: Answer) -> Rows:
        return world.candidates(answer.region)


class ModelAsked(OutcomeKnown):
    """The attacker also asks the model about everyone inside with the private values released.

    Left are the people with the outcome who would also have it with these values.
    """

    name = "model-asked"

    def people_left(self, world: World, answer: Answer) -> Rows:
        people = world.candidates(answer.region)
        values = world.points([answer.values] * len(people))
        return people[world.is_desired(world.rows(world.people.iloc[people], values))]


# --- ask in the name of others


class AskAsCandidates(ServiceAttack):
    """The attacker asks as each person inside a region, and counts how often the region comes back.

    Queries have the person's quasi-identifiers and private values that are the same for all people.
    The attacker names the person for whom the region comes back most often. Right is the person
    behind the answer.
    """

    n_targets = 20

    @abstractmethod
    def private_values(
        self, world: World, target: Answer, query: pd.DataFrame, rng: Random
    ) -> pd.DataFrame:
        """Return the private values to ask with."""

    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        answers = targets(world, service, self.n_targets, rng)
        tables = []
        for target, query in answers:
            candidates = world.candidates(target.region)
            private = self.private_values(world, target, query, rng)
            quasi = world.people.iloc[np.repeat(candidates, len(private))]
            tables.append(world.rows(quasi, pd.concat([private] * len(candidates))))
        replies = gets_region(world, service, tables, answers)
        for (target, query), is_back in zip(answers, replies, strict=True):
            candidates = world.candidates(target.region)
            counts = (is_back == 1).reshape(len(candidates), -1).sum(axis=1)
            named = best(candidates, counts)
            yield chance(named, behind(world, target, query)), 1 / len(candidates)


class Rerun(AskAsCandidates):
    """The attacker has code, catalogue and model, and runs them for everyone with the same query.

    See `AskAsCandidates`; the private values are those of the original query.
    """

    name = "rerun"

    def private_values(
        self, world: World, target: Answer, query: pd.DataFrame, rng: Random
    ) -> pd.DataFrame:
        return query


class Inversion(AskAsCandidates):
    """The attacker asks whose row can have produced an answer.

    See `AskAsCandidates`; the private values are those released, of which few are a stranger's. An
    explainer that returns the nearest row gives back the row that the query was made from.
    """

    name = "inversion"
    shares: ClassVar[Floats] = np.linspace(0.05, 0.3, 6)

    def private_values(
        self, world: World, target: Answer, query: pd.DataFrame, rng: Random
    ) -> pd.DataFrame:
        return mixtures(world, target, self.shares, rng)


class Steering(Inversion):
    """The attacker asks as many queries as needed to find out who is behind an answer.

    As `Inversion`, with more private values, up to all of which are a stranger's. As the person
    behind the answer, its region comes back from farthest away.
    """

    name = "steering"
    n_targets = 8
    shares = np.linspace(0.05, 0.95, 24)


class Posing(ServiceAttack):
    """The attacker asks in the name of a person in the table who has the desired outcome.

    The query has the victim's quasi-identifiers and a stranger's private values, so that the
    nearest row is the victim's. If the region of the answer contains the victim, the attacker takes
    the victim for the person behind the answer, and its private values for the victim's.
    """

    name = "posing"
    n_victims = 100
    n_draws = 20  # of a stranger with whose private values the model refuses the query

    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        victims = rng.permutation(np.flatnonzero(world.has_outcome))[: self.n_victims]
        posed = []
        for _ in range(self.n_draws):
            strangers = world.outsiders.iloc[rng.integers(0, len(world.outsiders), len(victims))]
            rows = world.rows(world.people.iloc[victims], strangers)
            is_refused = ~world.is_desired(rows)
            posed.append(rows.assign(victim=victims)[is_refused])
            victims = victims[~is_refused]
            if not len(victims):
                break
        queries = pd.concat(posed, ignore_index=True)
        of_query = queries.pop("victim").to_numpy()
        for answer in service.explain(queries):
            victim = of_query[[answer.query]]
            candidates = world.candidates(answer.region)
            if victim[0] in candidates:
                person = behind(world, answer, queries.iloc[[answer.query]])
                yield chance(person, victim), 1 / len(candidates)


class Trilateration(ServiceAttack):
    """The attacker locates the person behind an answer by asking from many places.

    Places are mixtures of people's quasi-identifiers. All queries have the same private values, on
    the way from those released to a stranger's, with which about half of the places get the region
    of the answer. The nearer a place is to the person, the more often it does. The attacker names
    the person inside with the outcome whose distances to the places, by quasi-identifiers, best
    separate places that get the region from others. Right is the person behind the answer.
    """

    name = "trilateration"
    n_targets = 12
    n_places = 60
    n_probes = 8  # places to try each of several private values from
    shares: ClassVar[Floats] = np.linspace(0.1, 0.9, 6)

    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        answers = targets(world, service, self.n_targets, rng)
        places = [self.places(world, target, rng) for target, _ in answers]
        private = self.private_values(world, service, answers, places, rng)
        tables = [
            world.rows(quasi, pd.concat([values] * len(quasi)))
            for quasi, values in zip(places, private, strict=True)
        ]
        replies = gets_region(world, service, tables, answers)
        for (target, query), quasi, is_back in zip(answers, places, replies, strict=True):
            candidates = world.candidates(target.region)
            named = best(candidates, self.fits(world, candidates, quasi, is_back))
            yield chance(named, behind(world, target, query)), 1 / len(candidates)

    def fits(self, world: World, candidates: Rows, places: pd.DataFrame, is_back: Floats) -> Floats:
        """Return how well distances to each candidate separate the places, shape (n_candidates,)."""
        if not (is_back == 1).any() or not (is_back == 0).any():
            return np.zeros(len(candidates))
        people = world.people.iloc[candidates]
        distances = world.distances.between(people, places, world.quasi_identifiers)
        return np.array(
            [outranks(row[is_back == 0], row[is_back == 1]).mean() for row in distances]
        )

    def places(self, world: World, target: Answer, rng: Random) -> pd.DataFrame:
        """Return mixtures of the quasi-identifiers of candidates, and of anyone in the table."""
        candidates = world.candidates(target.region)
        columns = {}
        for name in world.quasi_identifiers:
            near = rng.choice(candidates, self.n_places)
            far = rng.integers(0, len(world.people), self.n_places)
            people = np.where(rng.random(self.n_places) < 0.7, near, far)
            columns[name] = world.people[name].iloc[people].reset_index(drop=True)
        return pd.DataFrame(columns)

    def private_values(
        self,
        world: World,
        service: Service,
        answers: Targets,
        places: Sequence[pd.DataFrame],
        rng: Random,
    ) -> list[pd.DataFrame]:
        """Return private values for each target with which about half of the places get its region.

        Each table has one row.
        """
        private = [mixtures(world, target, self.shares, rng) for target, _ in answers]
        tables = []
        for quasi, mixed in zip(places, private, strict=True):
            probes = pd.concat([quasi.head(self.n_probes)] * len(mixed))
            of_probe = np.repeat(np.arange(len(mixed)), self.n_probes)
            tables.append(world.rows(probes, mixed.iloc[of_probe]))
        undecided = []
        for mixed, reply in zip(private, gets_region(world, service, tables, answers), strict=True):
            is_back = reply.reshape(len(mixed), -1)
            n_less = np.minimum((is_back == 1).sum(axis=1), (is_back == 0).sum(axis=1))
            undecided.append(mixed.iloc[[n_less.argmax()]])
        return undecided


def targets(world: World, service: Service, n: int, rng: Random) -> Targets:
    """Return answers to people outside of the table, each with its query as one row."""
    queries = world.refused.iloc[rng.permutation(len(world.refused))[:n]].reset_index(drop=True)
    return [(answer, queries.iloc[[answer.query]]) for answer in service.explain(queries)]


def behind(world: World, answer: Answer, query: pd.DataFrame) -> Rows:
    """Return the person behind an answer to a query of one row; several if they are as near."""
    new_values = answer.new_values(query.iloc[0].to_dict())
    return world.nearest(world.candidates(answer.region), new_values)


def mixtures(world: World, target: Answer, shares: Floats, rng: Random) -> pd.DataFrame:
    """Return an answer's private values, with a share of them replaced by those of a stranger."""
    strangers = world.refused.iloc[rng.integers(0, len(world.refused), len(shares))]
    strangers = strangers[world.private].reset_index(drop=True)
    values = world.points([target.values] * len(shares))[world.private]
    is_replaced = rng.random(values.shape) < shares[:, None]
    return values.mask(is_replaced, strangers)


def gets_region(
    world: World, service: Service, tables: Sequence[pd.DataFrame], answers: Targets
) -> list[Floats]:
    """Return for each answer which queries of its table get its region, as 1 or 0.

    NaN where there is no reply; rows that have the desired outcome are not asked. All queries are
    asked in one batch, as a call costs more than a query.
    """
    sizes = [len(table) for table in tables]
    rows = pd.concat(tables, ignore_index=True)
    of_row = np.repeat(np.arange(len(answers)), sizes)
    asked = np.flatnonzero(~world.is_desired(rows))
    is_back = np.full(len(rows), np.nan)
    for reply in service.explain(rows.iloc[asked]):
        row = asked[reply.query]
        target, _ = answers[of_row[row]]
        is_back[row] = reply.region == target.region
    return np.split(is_back, np.cumsum(sizes)[:-1])


# --- read the published catalogue


class Membership(Attack):
    """The attacker knows a person's private values, and asks whether the person is in the table.

    The nearer the person is to a published entry, the likelier a member. Members and other people
    all have the desired outcome. Control: entries that are the members' rows.
    """

    name = "membership"
    measure = "auc"
    most = 0.6

    def main(self, world: World, rng: Random) -> Attempts:
        return self.attempts(world, world.protected)

    def control(self, world: World, rng: Random) -> Attempts:
        return self.attempts(world, world.raw)

    def attempts(self, world: World, service: Service) -> Attempts:
        entries = world.points([entry.values for entry in service.published]).drop_duplicates()
        members = world.people[world.has_outcome]
        others = world.outsiders[world.is_desired(world.outsiders)]
        of_members = -world.distances.between(members, entries, world.private).min(axis=1)
        of_others = -world.distances.between(others, entries, world.private).min(axis=1)
        return Attempts.groups(of_members, of_others)


class NumberOwner(ServiceAttack):
    """The attacker takes a number in the published catalogue for one person's.

    The regions that a private number is published with vote for the people inside with the outcome,
    and the attacker names one of those with the most votes. The attempt is right if the number
    belongs to one person in the table, and to the person named. Guessing: anyone in the table.
    """

    name = "number-owner"
    control_service = "raw"

    def attempts(self, world: World, service: Service, rng: Random) -> Pairs:
        for name in filter(lambda name: is_numeric_dtype(world.people[name]), world.private):
            regions: dict[Any, set[Region]] = {}
            for entry in service.published:
                regions.setdefault(entry.values[name], set()).add(entry.region)
            for value, places in regions.items():
                owners = np.flatnonzero(world.people[name] == value)
                if len(owners) == 1:
                    yield chance(self.most_voted(world, places), owners), 1 / len(world.people)
                else:
                    yield 0.0, 0.0

    def most_voted(self, world: World, regions: set[Region]) -> Rows:
        votes = np.zeros(len(world.people))
        for region in regions:
            votes[world.candidates(region)] += 1
        return best(np.arange(len(votes)), votes)


# --- put rows into the table


class SybilRank(Attack):
    """The attacker put k - 1 rows with the victim's quasi-identifiers into the table.

    The victim and these rows have a region of their own. The attacker has the published catalogue
    and 20 private records, one of which is the victim's, and ranks the records by how much nearer
    they are to the entries of that region than to all entries. Control: the victim's row in the
    table has a stranger's private values, and the attacker looks for the victim's.
    """

    name = "sybil-rank"
    measure = "auc"
    most = 0.6

    def main(self, world: World, rng: Random) -> Attempts:
        return Attempts.of(self.attempt(scores) for scores in sybil_scores(world, False))

    def control(self, world: World, rng: Random) -> Attempts:
        return Attempts.of(self.attempt(scores) for scores in sybil_scores(world, True))

    def attempt(self, scores: Floats) -> tuple[float, float]:
        return rank(scores, 0), 0.5


class SybilName(SybilRank):
    """As `SybilRank`, but the attacker names the record with the highest score."""

    name = "sybil-name"
    measure = "chance"
    most = None

    def attempt(self, scores: Floats) -> tuple[float, float]:
        named = best(np.arange(len(scores)), scores)
        return chance(named, np.array([0])), 1 / len(scores)


_SYBIL_FITS = 3  # with up to 12 victims each
_RECORDS = 20  # one is the victim's
_SURE = 0.65  # the model's probability of the outcome for a victim and for the other records


@cache
def sybil_scores(world: World, is_swapped: bool) -> list[Floats]:
    """Return the scores of some records for each victim, whose own record is the first."""
    scores = []
    index = list(world.model.classes_).index(world.desired)
    probability = world.model.predict_proba(world.people)[:, index]
    for turn in range(_SYBIL_FITS):
        rng = np.random.default_rng([world.seed, turn])
        sure = rng.permutation(np.flatnonzero(probability >= _SURE))
        is_first = ~world.people[world.quasi_identifiers].iloc[sure].duplicated().to_numpy()
        victims = sure[is_first][: min(12, len(world.people) // 30)]
        strangers = rng.permutation(np.setdiff1d(sure, victims))
        private_of = np.arange(len(world.people))
        if is_swapped:
            private_of[victims] = strangers[: len(victims)]
        attacked = with_sybils(world, private_of, victims, int(probability.argmax()))
        records = [
            [victim, *rng.choice(strangers[len(victims) :], _RECORDS - 1)] for victim in victims
        ]
        scores += [
            sybil_score(attacked, victim, world.people.iloc[rows])
            for victim, rows in zip(victims, records, strict=True)
        ]
    return scores


def with_sybils(world: World, private_of: Rows, victims: Rows, sybil: int) -> World:
    """Return a world in which everyone has someone's private values, and victims have colluders.

    Each victim has k - 1 colluders, with the victim's quasi-identifiers and private values that the
    model likes best.
    """
    quasi_of = np.concatenate([np.arange(len(world.people)), np.repeat(victims, world.k - 1)])
    n_sybils = len(quasi_of) - len(private_of)
    private_of = np.concatenate([private_of, np.full(n_sybils, sybil)])
    people = world.rows(world.people.iloc[quasi_of], world.people.iloc[private_of])
    labels = pd.concat([world.labels, pd.Series([world.desired] * n_sybils)], ignore_index=True)
    model = forest(people, labels, world.seed, **world.limits)
    return replace(world, people=people, labels=labels, model=model)


def sybil_score(world: World, victim: int, records: pd.DataFrame) -> Floats:
    """Return how much nearer records are to the entries of the victim's region than to all.

    Of the regions that contain the victim, it is the one with the fewest people. Without a region,
    all records have the same score.
    """
    published = world.protected.published
    row = world.people.iloc[[victim]]
    regions = [region for region in {entry.region for entry in published} if inside(region, row)[0]]
    if not regions:
        return np.zeros(len(records))
    sizes = [inside(region, world.people).sum() for region in regions]
    smallest = regions[int(np.argmin(sizes))]
    is_theirs = np.array([entry.region == smallest for entry in published])
    entries = world.points([entry.values for entry in published])
    distances = world.distances.between(records, entries, world.private)
    return np.asarray(distances.mean(axis=1) - distances[:, is_theirs].mean(axis=1))


# --- compare two catalogues


_KEY = b"a key of the data holder"
_SHARES = (0.1, 0.25, 0.5)  # of the people who are replaced
_ID = 1_000_000  # added to the number of a person who is outside of the table


def refit(world: World, people: pd.DataFrame, previous: Catalogue | None) -> KAnonymizer:
    """Fit a catalogue of some people after a `previous` one; the index says who they are."""
    categories = [*world.people.select_dtypes(exclude="number")]
    rows = people.assign(person=people.index).reset_index(drop=True)
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=world.quasi_identifiers,
        nominal=categories,
        subject="person",
        columns={
            name: Attribute(categories=sorted(world.everyone[name].dropna().unique()))
            for name in categories
        },
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=world.k))
    population = Population.from_frame(rows, schema, key=_KEY)
    return anonymizer.fit(population, world.model, world.desired, previous=previous)


def facts_of(published: Explanations) -> dict[Region, frozenset[str]]:
    """Return what is published of each region, without exact counts of people."""
    facts: dict[Region, set[str]] = {}
    for entry in published.released:
        ncp = f"{entry.certificate.ncp:.2f}"
        pureness = f"{entry.certificate.pureness:.2f}"
        fact = f"{dict(entry.released)} {ncp} {pureness}"
        facts.setdefault(entry.region, set()).add(fact)
    return {region: frozenset(of_region) for region, of_region in facts.items()}


class JoinerDesired(Attack):
    """One person joins between two published catalogues, with the same model.

    The attacker has both catalogues and the quasi-identifiers of 16 people of whom one joined, and
    ranks them by the number of regions that speak for them: regions about which the catalogues
    differ and that contain the person, or do not differ and do not contain the person. Control: two
    catalogues with the same regions, and exact counts of the people inside.
    """

    name = "joiner-desired"
    measure = "auc"
    most = 0.6
    has_outcome = True
    n_candidates = 16

    def main(self, world: World, rng: Random) -> Attempts:
        candidates = self.candidates(world)
        first = refit(world, world.people, None)
        before = facts_of(first.published())
        values = []
        for joiner in range(len(candidates)):
            people = pd.concat([world.people, candidates.iloc[[joiner]].rename(lambda i: i + _ID)])
            after = facts_of(refit(world, people, first.catalogue_).published())
            values.append(rank(joiner_scores(before, after, candidates), joiner))
        return Attempts.of((value, 0.5) for value in values)

    def control(self, world: World, rng: Random) -> Attempts:
        candidates = self.candidates(world)
        regions = {entry.region for entry in world.protected.published}
        before = {region: int(inside(region, world.people).sum()) for region in regions}
        values = []
        for joiner in range(len(candidates)):
            row = candidates.iloc[[joiner]]
            after = {region: before[region] + int(inside(region, row)[0]) for region in regions}
            values.append(rank(joiner_scores(before, after, candidates), joiner))
        return Attempts.of((value, 0.5) for value in values)

    def candidates(self, world: World) -> pd.DataFrame:
        """Return people outside of the table whose values the schema has."""
        is_candidate = world.is_desired(world.outsiders) == self.has_outcome
        for name, column in world.people.items():
            is_candidate &= world.outsiders[name].isin(column).to_numpy()
        return world.outsiders[is_candidate].head(self.n_candidates)


class JoinerRefused(JoinerDesired):
    """As `JoinerDesired`, for people who do not get the desired outcome."""

    name = "joiner-refused"
    has_outcome = False


def joiner_scores(
    before: Mapping[Region, Any], after: Mapping[Region, Any], candidates: pd.DataFrame
) -> Floats:
    """Return how many regions speak for each candidate, from what is said of them."""
    scores = np.zeros(len(candidates))
    for region in before.keys() | after.keys():
        is_changed = before.get(region) != after.get(region)
        scores += inside(region, candidates) == is_changed
    return scores


@dataclass(frozen=True, eq=False)
class Turnover:
    """Two published catalogues, between which a share of the people was replaced.

    Attributes
    ----------
    added, dropped : entries only of the second, and only of the first catalogue
    values : private values of both
    new_values, old_values : private values of the second catalogue only, and those of the first
    joined, left : people with the outcome; only rows whose values the schema has
    world : World
        With the people of today, and the outsiders who have not joined.
    regions : those of the second catalogue
    """

    added: list[Answer]
    dropped: list[Answer]
    values: pd.DataFrame
    new_values: pd.DataFrame
    old_values: pd.DataFrame
    joined: pd.DataFrame
    left: pd.DataFrame
    world: World
    regions: set[Region]


@cache
def turnover(world: World, share: float) -> Turnover:
    """Replace a share of a world's people by outsiders, and fit again with the same model."""
    rng = np.random.default_rng(world.seed)
    n = round(share * len(world.people))
    is_leaving = np.zeros(len(world.people), dtype=bool)
    is_leaving[rng.permutation(len(world.people))[:n]] = True
    is_joining = np.zeros(len(world.outsiders), dtype=bool)
    is_joining[rng.permutation(len(world.outsiders))[:n]] = True
    joining = world.outsiders[is_joining]
    first = refit(world, world.people, None)
    people = pd.concat([world.people[~is_leaving], joining.rename(lambda i: i + _ID)])
    second = refit(world, people, first.catalogue_)
    before = {(entry.region, str(entry.values)): entry for entry in answers_of(first.published())}
    after = {(entry.region, str(entry.values)): entry for entry in answers_of(second.published())}
    old_values = {str(entry.values): entry.values for entry in before.values()}
    values = {str(entry.values): entry.values for entry in after.values()}
    return Turnover(
        added=[after[key] for key in after.keys() - before.keys()],
        dropped=[before[key] for key in before.keys() - after.keys()],
        values=world.points([*(old_values | values).values()]),
        new_values=world.points([values[text] for text in values.keys() - old_values.keys()]),
        old_values=world.points([*old_values.values()]),
        joined=joining[world.is_desired(joining)],
        left=world.people[is_leaving & world.has_outcome],
        world=replace(
            world,
            people=people.reset_index(drop=True),
            outsiders=world.outsiders[~is_joining].reset_index(drop=True),
        ),
        regions={entry.region for entry in after.values()},
    )


class TurnoverJoined(Attack):
    """The attacker looks for the private values of someone who joined in what is new.

    Of 10, 25 and 50 % of the people, each is replaced by another one. The attacker has both published
    catalogues, the quasi-identifiers of someone with the outcome who joined, and 20 private records,
    one of which is this person's. The attacker ranks them by how much nearer they are to new entries
    of regions that contain the person than to all entries. Control: the person has not joined.
    """

    name = "turnover-joined"
    measure = "auc"
    most = 0.6
    n_people = 40  # for each share

    def main(self, world: World, rng: Random) -> Attempts:
        return Attempts.of(self.pairs(world, rng, is_control=False))

    def control(self, world: World, rng: Random) -> Attempts:
        return Attempts.of(self.pairs(world, rng, is_control=True))

    def people_of(self, change: Turnover) -> pd.DataFrame:
        return change.joined

    def entries_of(self, change: Turnover) -> list[Answer]:
        return change.added

    def pairs(self, world: World, rng: Random, *, is_control: bool) -> Pairs:
        for share in _SHARES:
            change = turnover(world, share)
            others = change.world.outsiders
            others = others[world.is_desired(others)]
            people = others if is_control else self.people_of(change)
            people = people.iloc[rng.permutation(len(people))[: self.n_people]]
            values_of_region: dict[Region, list[Any]] = {}
            for entry in self.entries_of(change):
                values_of_region.setdefault(entry.region, []).append(entry.values)
            is_inside = {region: inside(region, people) for region in values_of_region}
            for i in range(len(people)):
                strangers = others.iloc[rng.integers(0, len(others), _RECORDS - 1)]
                records = pd.concat([people.iloc[[i]], strangers], ignore_index=True)
                theirs = [
                    values
                    for region, of_region in values_of_region.items()
                    for values in of_region
                    if is_inside[region][i]
                ]
                yield rank(turnover_scores(world, change, theirs, records), 0), 0.5


class TurnoverLeft(TurnoverJoined):
    """As `TurnoverJoined`, for people who left, and the entries that were dropped.

    Control: people who were never there.
    """

    name = "turnover-left"

    def people_of(self, change: Turnover) -> pd.DataFrame:
        return change.left

    def entries_of(self, change: Turnover) -> list[Answer]:
        return change.dropped


class TurnoverWho(Attack):
    """The attacker asks which people joined, from their private values.

    The catalogues are those of `TurnoverJoined`. The nearer a person is to private values that are
    new, and the farther from the others, the likelier has the person joined. Other people have not
    joined; all have the outcome. Control: the new values are those of the people who joined.
    """

    name = "turnover-who"
    measure = "auc"
    most = 0.6

    def main(self, world: World, rng: Random) -> Attempts:
        return self.attempts(world, is_control=False)

    def control(self, world: World, rng: Random) -> Attempts:
        return self.attempts(world, is_control=True)

    def attempts(self, world: World, *, is_control: bool) -> Attempts:
        parts = []
        for share in _SHARES:
            change = turnover(world, share)
            others = change.world.outsiders
            others = others[world.is_desired(others)]
            new = change.joined if is_control else change.new_values
            of_joined = nearer(world, change.joined, new, change.old_values)
            of_others = nearer(world, others, new, change.old_values)
            parts.append(Attempts.groups(of_joined, of_others))
        return Attempts.pooled(parts)


def nearer(world: World, people: pd.DataFrame, new: pd.DataFrame, old: pd.DataFrame) -> Floats:
    """Return how much nearer people are to new private values than to old ones, (n_people,)."""
    if not len(new):
        return np.zeros(len(people))
    to_new = world.distances.between(people, new, world.private).min(axis=1)
    to_old = world.distances.between(people, old, world.private).min(axis=1)
    return np.asarray(to_old - to_new)


def turnover_scores(
    world: World,
    change: Turnover,
    theirs: Sequence[Any],
    records: pd.DataFrame,
) -> Floats:
    """Return how much nearer records are to private values of a person's regions than to all."""
    if not theirs:
        return np.zeros(len(records))
    points = world.points(theirs).drop_duplicates()
    to_theirs = world.distances.between(records, points, world.private)
    to_all = world.distances.between(records, change.values, world.private)
    return np.asarray(to_all.mean(axis=1) - to_theirs.mean(axis=1))


# --- read outcomes off regions


class OutcomeShare(Attack):
    """The attacker reads from regions who certainly has an outcome.

    The attacker has the published catalogues of all outcomes and everyone's quasi-identifiers. At
    least k people inside a region have its outcome: if k are inside, all of them. Each end of a
    range and each value of a set belongs to one of these people: someone who is alone with it has
    the outcome. The figure is the share of people in the table whose outcome is certain and right.
    Guessing gives no certainty. Control: entries that are rows of people with the outcome.
    """

    name = "outcome-share"

    def main(self, world: World, rng: Random) -> Attempts:
        labels = world.model.predict(world.people)
        return Attempts.of(
            (right, 0.0) for right in certain_outcomes(world, world.people) == labels
        )

    def control(self, world: World, rng: Random) -> Attempts:
        is_certain = np.zeros(len(world.people), dtype=bool)
        for entry in world.raw.published:
            is_certain |= is_certainly_behind(entry.region, world.people, 1, world.people)
        return Attempts.of((right, 0.0) for right in is_certain & world.has_outcome)


class OutcomeCertain(Attack):
    """As `OutcomeShare`: how often the attacker is right about people whose outcome is certain.

    Guessing: the attacker's own model of the outcome by quasi-identifiers, trained on people outside
    of the table, about the same people. Control: people outside of the table who would be certain if
    they were in it.
    """

    name = "outcome-certain"

    def main(self, world: World, rng: Random) -> Attempts:
        return self.attempts(world, world.people)

    def control(self, world: World, rng: Random) -> Attempts:
        return self.attempts(world, world.outsiders)

    def attempts(self, world: World, rows: pd.DataFrame) -> Attempts:
        outcomes = certain_outcomes(world, rows)
        is_certain = pd.notna(outcomes)
        labels = world.model.predict(rows)
        is_right = (outcomes == labels)[is_certain]
        is_guess_right = (own_predictions(world, rows) == labels)[is_certain]
        return Attempts.of(zip(is_right, is_guess_right, strict=True))


class OutsideRegions(OutcomeCertain):
    """The attacker takes people who are in no published region for refused.

    Guessing and control are as in `OutcomeCertain`, for the people who are in no region.
    """

    name = "outside-regions"

    def attempts(self, world: World, rows: pd.DataFrame) -> Attempts:
        return self.judged(world, {entry.region for entry in world.protected.published}, rows)

    def judged(self, world: World, regions: set[Region], rows: pd.DataFrame) -> Attempts:
        is_outside = np.ones(len(rows), dtype=bool)
        for region in regions:
            is_outside &= ~inside(region, rows)
        is_refused = ~world.is_desired(rows)
        is_guess_right = (own_predictions(world, rows) != world.desired) == is_refused
        return Attempts.of(zip(is_refused[is_outside], is_guess_right[is_outside], strict=True))


class OutsideAfterRefit(OutsideRegions):
    """As `OutsideRegions`, after 10, 25 and 50 % of the people were replaced."""

    name = "outside-after-refit"

    def main(self, world: World, rng: Random) -> Attempts:
        changes = [turnover(world, share) for share in _SHARES]
        return Attempts.pooled(
            [self.judged(some.world, some.regions, some.world.people) for some in changes]
        )

    def control(self, world: World, rng: Random) -> Attempts:
        changes = [turnover(world, share) for share in _SHARES]
        return Attempts.pooled(
            [self.judged(some.world, some.regions, some.world.outsiders) for some in changes]
        )


def certain_outcomes(world: World, rows: pd.DataFrame) -> NDArray[Any]:
    """Return the outcome of each row that regions tell for certain, or None, shape (n_rows,)."""
    outcomes = np.full(len(rows), None, dtype=object)
    for outcome in np.unique(world.model.predict(world.people)):
        is_desired = outcome == world.desired
        service = world.protected if is_desired else service_for(world, outcome)
        for region in {entry.region for entry in service.published}:
            outcomes[is_certainly_behind(region, world.people, world.k, rows)] = outcome
    return outcomes


@cache
def service_for(world: World, outcome: Any) -> CatalogueService:
    return CatalogueService(world, outcome)


def is_certainly_behind(region: Region, people: pd.DataFrame, k: int, rows: pd.DataFrame) -> Mask:
    """Return which rows must be among the k people in a table that a region was made of."""
    members = people[inside(region, people)]
    is_inside = inside(region, rows)
    if len(members) == k:
        return is_inside
    is_alone = np.zeros(len(rows), dtype=bool)
    for name, part in region.items():
        borders = [part.low, part.high] if isinstance(part, Interval) else part
        n_of_value = members[name].value_counts()
        values = [value for value in borders if n_of_value.get(value, 0) == 1]
        is_alone |= rows[name].isin(values).to_numpy()
    return is_inside & is_alone


def own_predictions(world: World, rows: pd.DataFrame) -> NDArray[Any]:
    """Return the outcomes that the attacker predicts from quasi-identifiers."""
    return np.asarray(own_model(world).predict(rows[world.quasi_identifiers]))


@cache
def own_model(world: World) -> Any:
    outcomes = pd.Series(world.model.predict(world.outsiders))
    quasi = world.outsiders[world.quasi_identifiers]
    return forest(quasi, outcomes, world.seed, min_samples_leaf=10)


ATTACKS: Sequence[Attack] = (
    LookUp(),
    Rerun(),
    OutcomeKnown(),
    ModelAsked(),
    Posing(),
    Trilateration(),
    Steering(),
    Inversion(),
    Membership(),
    NumberOwner(),
    SybilRank(),
    SybilName(),
    JoinerDesired(),
    JoinerRefused(),
    TurnoverJoined(),
    TurnoverLeft(),
    TurnoverWho(),
    OutcomeShare(),
    OutcomeCertain(),
    OutsideRegions(),
    OutsideAfterRefit(),
)
