"""Attacks on one person that audits do not have: who is in the table, and who owns a number.

Each attack takes a `Scenario`, which is what the data holder needs to judge the attacker's guesses,
and a `Service`, which is what an attacker can reach; see `cfk_plugin.audit.scenario`, and for the
attacks that audits have, `cfk_plugin.audit.steering`. Host side only: a scenario holds rows.
Results are counts and shares.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import GeneralizedCounterfactual, Region
from cfk_plugin.audit.membership import nearness_scores
from cfk_plugin.audit.result import measure_roc
from cfk_plugin.audit.scenario import NamingResult, Scenario, Service, mean_of
from cfk_plugin.audit.spoiling import spoil
from cfk_plugin.audit.steering import not_of_query
from cfk_plugin.data.region import part_contains

_SPOILED = 5  # queries for each person whose record has the outcome

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


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


def members_and_others(scenario: Scenario, limit: int, rng: np.random.Generator) -> People:
    """Draw at most `limit` people with the desired outcome from the table, and others."""
    inside = scenario.people[scenario.has_outcome]
    outside = scenario.outsiders[scenario.is_desired(scenario.outsiders)]
    return People(members=_drawn(inside, limit, rng), others=_drawn(outside, limit, rng))


def _drawn(rows: pd.DataFrame, limit: int, rng: np.random.Generator) -> pd.DataFrame:
    chosen = np.sort(rng.permutation(len(rows))[:limit])
    return rows.take(chosen).reset_index(drop=True)


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
    people = members_and_others(scenario, limit, rng)
    values = pd.DataFrame([entry.released for entry in service.published])
    scores = nearness_scores(scenario.private_heom, people.everybody, values)
    return _without_queries(people, scores, service.published)


def known_numbers_membership(
    scenario: Scenario, service: Service, limit: int, rng: np.random.Generator
) -> MembershipResult:
    """Guess who is in the table from exact numbers that the published entries hold.

    The attacker knows the private numbers of a person who has the desired outcome, and looks for
    each of them among the published entries. Each one that occurs there counts by how rare it is
    among other people of the same source, whom the attacker knows and who are not judged. Without
    private numbers in the table there is nothing to know, and the area is NaN.
    """
    people = members_and_others(scenario, limit, rng)
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


# --- membership from the field `moved`

Moves = Callable[[pd.DataFrame, Sequence[GeneralizedCounterfactual]], Sequence[int]]
"""From queries and answers, whose `query` numbers them, to how many values an answer says it moved.
"""


def public_moves(_: pd.DataFrame, answers: Sequence[GeneralizedCounterfactual]) -> list[int]:
    """Count the attributes that the public form of each answer names as the query's own."""
    return [len(answer.to_dict().get("unchanged", ())) for answer in answers]


def moves_from(start: Callable[[pd.DataFrame], pd.DataFrame]) -> Moves:
    """Count private values of an answer that differ from those that its search began with.

    This is what an earlier definition of `moved` disclosed. It compares the answer with a row that
    the recipient does not see, so it says how far this row is from the query. `start` returns
    this row for each query: the counterfactual of the explainer.
    """

    def count(queries: pd.DataFrame, answers: Sequence[GeneralizedCounterfactual]) -> list[int]:
        begun = start(queries).reset_index(drop=True)
        return [len(not_of_query(answer, begun)) for answer in answers]

    return count


def moves_membership(
    scenario: Scenario, service: Service, moves: Moves, limit: int, rng: np.random.Generator
) -> MembershipResult:
    """Guess who is in the table from how many private values an answer says it moved.

    The attacker knows the whole record of a person who has the desired outcome, and sends it as the
    query, spoiled in five ways with which the model refuses it. If the person is in the table, an
    answer that begins with the nearest row mostly begins with the person's own row, and little is
    left to move. The score is the mean over the five answers. The attacker may read it either way,
    so the area is that of the better direction. People whose record could not be spoiled are left
    out; people without an answer get the median score.
    """
    people = members_and_others(scenario, limit, rng)
    queries, of_person = _spoiled_queries(scenario, people.everybody, rng)
    answers = service.explain(queries).generalized
    moved = pd.Series(
        np.asarray(moves(queries, answers), dtype=np.float64),
        index=of_person[[answer.query for answer in answers]],
    )
    everybody = np.arange(len(people.everybody))
    score = moved.groupby(level=0).mean()
    scores = score.reindex(everybody).fillna(score.median() if len(score) else 0.0).to_numpy()
    is_asked = np.isin(everybody, of_person)
    n_members = len(people.members)
    asked = People(
        members=people.members[is_asked[:n_members]], others=people.others[is_asked[n_members:]]
    )
    area = asked.area(-scores[is_asked])
    return MembershipResult(
        auc=max(area, 1 - area),
        lookup=asked.area(regions_holding(asked.everybody, service.published)),
        n_members=len(asked.members),
        n_others=len(asked.others),
        n_queries=len(queries),
        n_answered=len(answers),
    )


def _spoiled_queries(
    scenario: Scenario, people: pd.DataFrame, rng: np.random.Generator
) -> tuple[pd.DataFrame, Rows]:
    """Return several queries for each person that the model refuses, and whom each is about."""
    repeated = np.repeat(np.arange(len(people)), _SPOILED)
    rows, is_spoiled = spoil(
        scenario.population,
        people.take(repeated).reset_index(drop=True),
        lambda rows, _: scenario.is_desired(rows),
        rng,
    )
    return rows[is_spoiled].reset_index(drop=True), repeated[is_spoiled]


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
            lookups.append(mean_of(alone))
    return NamingResult(
        chances=np.array(chances, dtype=np.float64),
        lookups=np.array(lookups, dtype=np.float64),
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
