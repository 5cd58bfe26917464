"""Steering: ask as a recipient may ask, with queries that were made up to find one person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin._protect import protect
from cfk_plugin.audit.result import AuditResult, crowd_figures, mean
from cfk_plugin.audit.scenario import (
    NamingResult,
    Scenario,
    Service,
    is_same,
    plain_values,
)
from cfk_plugin.audit.setting import Mask, Rows, Setting
from cfk_plugin.audit.spoiling import spoil
from cfk_plugin.audit.trilateration import trilaterate
from cfk_plugin.data.encoded_table import whole_number
from cfk_plugin.data.promises import promise_of
from cfk_plugin.errors import refitting
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import GeneralizedCounterfactual

Ask = Callable[[pd.DataFrame], Explanations]
SCENARIOS = MappingProxyType(
    {
        "candidates": (
            "Knows the model and the quasi-identifiers of everybody and may ask for explanations,"
            " asks as each candidate inside the region with the private values received, spoiled"
            " until the outcome is not the desired one, and strikes out whose answer does not hold"
            " the same private values."
        ),
        "pose": (
            "Knows the model, everybody's quasi-identifiers and predicted outcomes, and may ask"
            " for explanations, asks as a person with the private values of somebody else that the"
            " model refuses, and takes the answer for the person's own record if its region holds"
            " the person."
        ),
        "trilaterate": (
            "Knows the model, everybody's quasi-identifiers and predicted outcomes, and may ask"
            " for explanations, observes where the region of answers switches between those of two"
            " published entries, and names the person inside whose distance fits."
        ),
    }
)
"""The attacks by name, and what the attacker knows and does."""

POSED = 300
"""Most people to pose as, by default."""

TRILATERATED = 5
"""Most published entries whose owner is trilaterated, by default."""

_PLACES = 16  # quasi-identifiers to measure from, for each of them
_DRAWS = 20  # times that an attacker tries to make a query that the model refuses
_SAME = 1e-9  # differences of chances below this are rounding


def steering(
    setting: Setting,
    ask: Ask | None = None,
    *,
    posed: int = POSED,
    trilaterated: int = TRILATERATED,
) -> AuditResult:
    """Attack people by steering queries, as somebody may who receives explanations.

    Three attacks: strike out candidates inside a region, by asking as each of them; pose as a
    person (`pose_as_victims`); and trilaterate by regions (`trilaterate`). The result is that of
    the attack with the largest chance to name the right person, of those that do better than to
    look up; where none does, of the one with the most attempts. `figures` has all three. There is
    no control: somebody who is not in the table cannot be an answer that is a row of it.

    Parameters
    ----------
    setting : Setting
        Private values to pose with are those of its holdout, else of other people in the table.
    ask : callable, optional
        From a table of queries to what is released for them, `Explanations` whose ``query`` numbers
        rows from 0, such as ``ProtectedExplainer.explain``. Default: `nearest_row`.
    posed : int
        Largest number of people to pose as, with one query each.
    trilaterated : int
        Largest number of published entries whose owner is sought, with a few hundred queries each;
        0 for none. Only a catalogue that was fitted for one fixed outcome is trilaterated.

    Returns
    -------
    AuditResult
        Main: chance of naming the right person, mean over the attempts of the worst attack.
        Baseline: the same for somebody who only looks up the region.
    """
    whole_number("posed", posed, 0)
    whole_number("trilaterated", trilaterated, 0)
    explain = nearest_row(setting.anonymizer) if ask is None else ask
    scenario = _scenario(setting)
    struck = _ask_as_candidates(setting, explain)
    published = _published(setting.anonymizer) if trilaterated else ()
    service = Service(explain=explain, published=published)
    attacks = {
        "candidates": struck.naming,
        "pose": pose_as_victims(scenario, service, posed, _random(setting, 2)),
        "trilaterate": trilaterate(scenario, service, trilaterated, _PLACES, _random(setting, 3)),
    }
    figures = dict(struck.figures)
    for name, naming in attacks.items():
        figures[f"{name}_success"] = naming.chance
        figures[f"{name}_lookup"] = naming.lookup
        figures[f"{name}_attempts"] = float(naming.n_attempts)
        figures[f"{name}_answered"] = naming.answered
    figures["queries"] = float(sum(naming.n_queries for naming in attacks.values()))
    worst = _worst(attacks)
    return setting.result(
        "steering",
        SCENARIOS[worst],
        attacks[worst].chances,
        figures,
        baseline=attacks[worst].lookups,
        n_attempts=attacks[worst].n_attempts,
    )


def _worst(attacks: Mapping[str, NamingResult]) -> str:
    """Return the attack that speaks most against the service.

    An attack that names nobody better than a look-up says little after few attempts. So it stands
    for the others only if it had the most.
    """
    better = [name for name, naming in attacks.items() if naming.chance > naming.lookup + _SAME]
    if better:
        return max(better, key=lambda name: attacks[name].chance)
    return max(attacks, key=lambda name: attacks[name].n_attempts)


def nearest_row(anonymizer: KAnonymizer) -> Ask:
    """Return what a recipient calls: `protect` around an explainer that returns training rows.

    The explainer answers with the nearest row that has the desired outcome, as instance-based ones
    do. Policy, method and goal are those of the anonymizer, and everything else is as `protect` has
    it by default: so with a catalogue the explainer is not asked.
    """
    settings = KAnonymizer(  # without the ledger, as nothing is released
        policy=anonymizer.policy_,
        method=anonymizer.method,
        plugins=anonymizer.plugins,
        reference=anonymizer.reference,
        effort=anonymizer.effort,
        change_cost=anonymizer.change_cost,
        rounding=anonymizer.rounding,
        seed=anonymizer.seed,
    )
    with refitting():
        protected = protect(
            _nearest_of(anonymizer),
            model=anonymizer.model_,
            population=anonymizer.population_,
            desired=anonymizer.goal_.desired,
            method=settings,
            sample_explainer=0,
        )
    answered: Ask = protected.explain
    return answered


def _nearest_of(anonymizer: KAnonymizer) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return an explainer that answers with the nearest training row of the desired outcome."""
    population = anonymizer.population_
    goal = anonymizer.goal_
    heom = Heom.of(population)
    codes = heom.encode(population.frame)
    labels = anonymizer.model_(population.conform(population.frame)).astype(object)

    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        own = goal.labels_if_needed(
            lambda: anonymizer.model_(population.conform(queries)).astype(object)
        )
        if own is None:
            own = np.zeros(len(queries), dtype=object)  # a common outcome is the same for any label
        rows = np.zeros(len(queries), dtype=np.int64)
        for label in pd.unique(own):
            factual = np.full(len(labels), label, dtype=object)
            wanted = np.flatnonzero(goal.is_met(labels, factual))
            if len(wanted):
                alike = np.flatnonzero(own == label)
                nearest, _ = heom.nearest(queries.take(alike), codes.take(wanted))
                rows[alike] = wanted[nearest[:, 0]]
        return population.rows(rows)[list(population.schema.features)].set_axis(queries.index)

    return explain


def _scenario(setting: Setting) -> Scenario:
    """Return what the attacks are judged by.

    Where counterfactuals reach any outcome but the query's own, people have the one that most of
    the setting's counterfactuals have.
    """
    anonymizer = setting.anonymizer
    labels = anonymizer.goal_.labels_if_needed(
        lambda: setting.labels(setting.population.conform(setting.raw))
    )
    desired = anonymizer.goal_.common_desired
    if labels is not None:
        desired = pd.Series(labels).mode().iloc[0]
    outsiders = setting.population.frame if setting.holdout is None else setting.holdout
    return Scenario(
        population=setting.population,
        model=anonymizer.model_,
        desired=desired,
        outsiders=outsiders[list(setting.population.schema.features)].reset_index(drop=True),
    )


def _published(anonymizer: KAnonymizer) -> tuple[GeneralizedCounterfactual, ...]:
    """Return the published entries; none without a catalogue of one fixed outcome."""
    goal = anonymizer.goal_
    promise = promise_of(anonymizer.policy_.guarantee)
    if not promise.can_be_published or goal.needs_factual_labels:
        return ()
    return anonymizer.published().generalized


def _random(setting: Setting, turn: int) -> np.random.Generator:
    return np.random.default_rng([setting.seed, turn])


# --- pose as the victim


def pose_as_victims(
    scenario: Scenario, service: Service, n_victims: int, rng: np.random.Generator
) -> NamingResult:
    """Ask in the name of a victim, and guess that the answer is made of the victim's own row.

    The attacker knows the quasi-identifiers of a victim who is in the table and has the desired
    outcome. One query has the victim's quasi-identifiers and the private values of somebody else
    with which the model refuses it. An explainer that returns the nearest row then returns the
    victim's. If the region of the answer holds the victim, the attacker guesses that the private
    values in it, apart from those of the query, are the victim's.

    The row behind an answer is the row inside its region, with the outcome, that is nearest to
    these private values. Several that are equally near share the chance. So an answer that has
    nothing but the query's own private values is worth exactly a look-up. Where answers are made of
    nobody's row, who is nearest is a guess among those inside, and a chance at the level of a
    look-up is the expected result.

    Parameters
    ----------
    scenario : Scenario
        Private values to pose with are those of its outsiders.
    service : Service
    n_victims : int
        Most people to pose as.
    rng : numpy.random.Generator

    Returns
    -------
    NamingResult
        One attempt for each answer whose region holds the victim.
    """
    victims = rng.permutation(np.flatnonzero(scenario.has_outcome))[:n_victims]
    posed = refused_as(scenario, victims, rng)
    answers = service.explain(posed.queries).generalized if len(posed.queries) else ()
    chances = []
    lookups = []
    for answer in answers:
        victim = posed.victims[[answer.query]]
        inside = scenario.people_inside(answer.region)
        if not np.isin(victim, inside).any():
            continue
        behind = scenario.nearest_people(inside, not_of_query(answer, posed.queries))
        chances.append(scenario.chance(behind, victim))
        lookups.append(scenario.chance(inside, victim))
    return NamingResult(
        chances=np.array(chances, dtype=np.float64),
        lookups=np.array(lookups, dtype=np.float64),
        n_queries=len(posed.queries),
        n_answered=len(answers),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Posed:
    """Queries in the name of victims, one each. Host side only."""

    queries: pd.DataFrame
    victims: Rows  # shape (n_queries,); rows of the table


def refused_as(scenario: Scenario, victims: Rows, rng: np.random.Generator) -> Posed:
    """Return a query with each victim's quasi-identifiers that the model refuses.

    Private values are those of one outsider per query, drawn until the model refuses; victims for
    whom it never does are left out.
    """
    queries = scenario.people.head(0)
    answered = np.empty(0, dtype=np.int64)
    waiting = victims
    for _ in range(_DRAWS):
        if not len(waiting):
            break
        donors = rng.integers(0, len(scenario.outsiders), len(waiting))
        rows = scenario.outsiders[scenario.features].take(donors).reset_index(drop=True)
        of_victims = scenario.people[scenario.quasi_identifiers].take(waiting)
        rows[scenario.quasi_identifiers] = of_victims.to_numpy(dtype=object)
        rows = scenario.population.conform(rows)
        is_refused = ~scenario.is_desired(rows)
        refused = rows[is_refused]
        queries = pd.concat([queries, refused], ignore_index=True) if len(queries) else refused
        answered = np.concatenate([answered, waiting[is_refused]])
        waiting = waiting[~is_refused]
    return Posed(queries=queries.reset_index(drop=True), victims=answered)


def not_of_query(answer: GeneralizedCounterfactual, queries: pd.DataFrame) -> dict[str, Any]:
    """Return the private values of an answer that are not those of its query; bins are left out."""
    query = queries.iloc[answer.query]
    return {
        name: value
        for name, value in plain_values(answer).items()
        if not is_same(value, query[name])
    }


# --- strike out candidates


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Struck:
    """What is left of the people inside each region, after asking as each of them."""

    naming: NamingResult
    figures: dict[str, float]


def _ask_as_candidates(setting: Setting, ask: Ask) -> Struck:
    """Strike out people inside a region whose answer does not hold the private values received.

    One query per candidate: own quasi-identifiers with the released private values, of which as few
    as possible are replaced until the outcome is no longer the desired one; of those found, the
    nearest by HEOM.
    """
    releases = setting.releases
    places = setting.places
    questions = places.questions(releases.private)
    at_release = releases.at[places.which]

    def is_desired(rows: pd.DataFrame, which: Rows) -> Mask:
        return setting.judge(setting.labels(rows), at_release[which])

    queries, is_spoiled = spoil(setting.population, questions, is_desired, _random(setting, 1))
    is_left = np.ones(len(places), dtype=bool)
    n_answered = 0
    if is_spoiled.any():
        at = np.flatnonzero(is_spoiled)
        is_left[at] = False
        answers = ask(queries.take(at).reset_index(drop=True)).generalized
        n_answered = len(answers)
        for answer in answers:
            place = at[answer.query]
            values = releases[int(places.which[place])].values
            is_left[place] |= values.items() <= dict(answer.released).items()
    left: list[Mask] = places.spread(is_left)
    chances = releases.found(left)
    naming = NamingResult(
        chances=chances,
        lookups=releases.found(releases.everybody()),
        n_queries=int(is_spoiled.sum()),
        n_answered=n_answered,
    )
    people = releases.people(left)
    has_somebody = people > 0
    figures = {
        # A release of which everybody was struck out, the right person too, says nothing of
        # anybody. Counted as 0 people, it would look worse than one of which a person is left.
        **crowd_figures(people[has_somebody], setting.k, "k_steered"),
        "nobody_left": mean(~has_somebody),
        "right_survives": mean(chances > 0),
        "not_spoiled": 1 - mean(is_spoiled),
    }
    return Struck(naming=naming, figures=figures)
