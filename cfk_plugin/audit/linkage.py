"""Attacks that link what is released to people, and a run of all linkage attacks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.inversion import inversion, survivors
from cfk_plugin.audit.result import AuditReport, AuditResult, checks, crowd_figures, mean, rate
from cfk_plugin.audit.setting import (
    CandidatePeople,
    DistinctRecords,
    Mask,
    Release,
    Releases,
    Rows,
    Setting,
    simulation_seed,
    variant,
)
from cfk_plugin.audit.steering import POSED, TRILATERATED, Ask, steering
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.policy import Objective, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.hookspecs import Progress
from cfk_plugin.release.explanations import Explanations

LINKAGE = (
    "Knows the quasi-identifiers of everybody in the training table, receives an explanation, looks"
    " up who fits it and names one of them at random."
)


def linkage(setting: Setting) -> AuditResult:
    """Attack raw and protected explanations by looking up who fits them.

    The prosecutor knows that the person is in the training table and looks there. The journalist
    does not, and looks in the anonymizer's reference population, if it has one. Everybody who fits
    is assumed equally likely; other attacks tell them apart. Baseline: a guess without the
    explanation, 1 / people. Figures with ``raw_`` are of raw answers. Source: Goethals, Sörensen,
    Martens (2023), section 2.
    """
    releases, population = setting.releases, setting.population
    chance = releases.found(releases.everybody())
    fits, right = _raw_matches(setting)
    raw_chance = np.where(right, 1.0 / np.maximum(fits, 1), 0.0)
    named = releases.coincidence(setting.places, releases.everybody())
    figures = {
        "raw_success": mean(raw_chance),
        "raw_singled_out": mean(fits == 1),
        "raw_native": mean(right),
        "success": mean(chance),
        "singled_out": mean(releases.sizes == 1),
        "values_right": mean(named),
        "released": float(len(releases)),
        **crowd_figures(releases.sizes, setting.k, "k"),
        **_journalist(setting, right),
    }
    control = setting.control(
        lambda places: [np.ones(len(rows), dtype=bool) for rows in places.rows]
    )
    without = np.full(len(chance), 1.0 / population.n_people)
    return setting.result("linkage", LINKAGE, chance, figures, control, baseline=without)


def _raw_matches(setting: Setting) -> tuple[Rows, Mask]:
    """Return how many people have a raw counterfactual's quasi-identifiers, and whether it is one
    of their rows.
    """
    population, crowd = setting.population, setting.crowd
    places = [
        population.schema.features.index(name) for name in population.schema.quasi_identifiers
    ]
    codes = population.encode(setting.raw)[0]
    fits, right = [], []
    for own in codes:
        cell = np.flatnonzero((crowd.coded[0][:, places] == own[places]).all(axis=1))
        fits.append(population.people(cell))
        right.append(bool((crowd.coded[0][cell] == own).all(axis=1).any()))
    return np.array(fits, dtype=np.int64), np.array(right, dtype=bool)


def _journalist(setting: Setting, right: Mask) -> dict[str, float]:
    """Return the same figures for matching against the reference population."""
    reference = setting.anonymizer.reference
    if reference is None:
        return {}
    releases, quasi = setting.releases, list(setting.population.schema.quasi_identifiers)
    counts = np.array(
        [reference.count(r.region) for r in releases if len(r.targets)], dtype=np.int64
    )
    there = [reference.domains[name].encode(reference.column(name))[0] for name in quasi]
    asked = [reference.domains[name].encode(setting.raw[name])[0] for name in quasi]
    raw = []
    for i in range(len(setting.raw)):
        same = np.logical_and.reduce(
            [own == codes[i] for own, codes in zip(there, asked, strict=True)]
        )
        raw.append(reference.people(np.flatnonzero(same)))
    matched = np.array(raw, dtype=np.int64)
    return {
        "raw_journalist_success": mean(
            np.where(right & (matched > 0), 1.0 / np.maximum(matched, 1), 0.0)
        ),
        "raw_journalist_singled_out": mean(matched == 1),
        "journalist_success": mean(1.0 / np.maximum(counts, 1)),
        "journalist_singled_out": mean(counts == 1),
    }


MODEL_FILTER = (
    "Knows the quasi-identifiers of everybody and may ask the model, asks it about everybody inside"
    " the region with the private values received, and strikes out whom it does not give the"
    " desired outcome."
)


def model_filter(setting: Setting) -> AuditResult:
    """Attack a region by asking the model about everybody inside, with the private values that were
    released.

    Where only a bin was released, the counterfactual's own value is used, as if the attacker had
    guessed it. Where the algorithm is deterministic, the filter is also combined with running it
    again. Source: Goethals, Sörensen, Martens (2023), section 5.4 (pureness): cells without the
    desired outcome cannot be anybody's.
    """
    releases, left = setting.releases, setting.consistent
    chance, counts = releases.found(left), releases.people(left)
    figures = {
        **crowd_figures(counts, setting.k, "k_consistent"),
        "struck_out": float((1 - counts / releases.sizes).mean()) if len(releases) else math.nan,
    }
    # strike out by both: rerunning with the released private values, and the model
    if not setting.is_random:
        both = [a & b for a, b in zip(left, survivors(setting, "released"), strict=True)]
        figures |= crowd_figures(releases.people(both), setting.k, "k_both")
        figures["both_success"] = mean(releases.found(both))
    control = setting.control(lambda places: places.spread(setting.desired(places, releases)))
    return setting.result("model_filter", MODEL_FILTER, chance, figures, control)


HOMOGENEITY = (
    "Knows that a person is inside the region and in the training table, and guesses that they have"
    " the private value that was released."
)
UNIQUENESS = (
    "Knows the private values of everybody in the training table, and names one of those who carry"
    " exactly the released ones, without looking at the region."
)
_NEAR = 0.05  # of a number's range: nearly as good as knowing it
_SHARE, _LIFT = 0.8, 1.5


def homogeneity(setting: Setting, *, share: float = _SHARE, lift: float = _LIFT) -> AuditResult:
    """Attack everybody inside a region by guessing the released value for each private attribute.

    A release is flagged for an attribute when more than `share` of the people inside hold the
    released value, and more than `lift` times its share of the whole population. A number counts as
    the released one within 5 % of its range, a value in a released bin as released. Baseline: the
    share of the whole population; control: the share of the holdout inside, if there is any.
    Source: Wong, Li, Fu, Wang (2006), (alpha, k)-anonymity.
    """
    inside: dict[str, list[float]] = {name: [] for name in setting.population.schema.private}
    anywhere: dict[str, list[float]] = {name: [] for name in inside}
    main, base, control = [], [], []
    places = None if setting.outsiders is None else setting.releases.places(setting.outsiders)
    for i, release in enumerate(setting.releases):
        names = list(release.values)
        holds = [_holds(setting.crowd, release, name) for name in names]
        for name, mask in zip(names, holds, strict=True):
            inside[name].append(float(mask[release.rows].mean()))
            anywhere[name].append(float(mask.mean()))
        if names:
            main.append(np.mean([inside[name][-1] for name in names]))
            base.append(np.mean([anywhere[name][-1] for name in names]))
        if names and places is not None and len(places.rows[i]):
            rows, crowd = places.rows[i], places.crowd
            control.append(
                np.mean([float(_holds(crowd, release, name)[rows].mean()) for name in names])
            )
    figures = _homogeneity_figures(inside, anywhere, share, lift)
    held = None if places is None else rate(control, setting.seed)
    return setting.result("homogeneity", HOMOGENEITY, main, figures, held, baseline=base)


def uniqueness(setting: Setting) -> AuditResult:
    """Attack released private values by looking up who carries exactly them.

    No region protects against it: private values are not generalised, unless the policy releases
    bins or withholds rare values. Control: share of releases whose values somebody in the holdout
    carries, too.
    """
    releases, population = setting.releases, setting.population
    everyone = np.arange(population.n_rows)
    carriers = [np.flatnonzero(setting.crowd.carriers(everyone, r.values)) for r in releases]
    anywhere = np.array([population.people(rows) for rows in carriers], dtype=np.int64)
    within: list[Mask] = [setting.crowd.carriers(r.rows, r.values) for r in releases]
    attacked = [people for people, r in zip(anywhere, releases, strict=True) if len(r.targets)]
    # Where nobody has the released values, the attacker finds nobody.
    chance = np.array([1.0 / people if people else 0.0 for people in attacked])
    helped = releases.found(within)
    figures = {
        **crowd_figures(anywhere, setting.k, "private_matches"),
        **crowd_figures(releases.people(within), setting.k, "k_private"),
        "private_success": mean(chance),
        "region_success": mean(helped),
    }
    control = None
    if setting.outsiders is not None:
        rows = np.arange(setting.outsiders.people.n_rows)
        hits = [
            bool(setting.outsiders.carriers(rows, r.values).any())
            for r in releases
            if len(r.targets)
        ]
        control = rate(np.array(hits, dtype=float), setting.seed)
    anybody = np.full(len(chance), 1.0 / population.n_people)
    return setting.result("uniqueness", UNIQUENESS, chance, figures, control, baseline=anybody)


def _holds(crowd: CandidatePeople, release: Release, name: str) -> Mask:
    """Say for every row of a crowd whether it holds the released value of an attribute, or
    nearly.
    """
    population: Population = crowd.population
    domain, at = population.domains[name], population.schema.features.index(name)
    codes, numbers = crowd.coded[0][:, at], crowd.coded[1][:, at]
    value = release.values[name]
    if isinstance(value, Interval):
        return np.asarray(domain.inside(value)[codes] & (codes >= 0))
    own, number = (part[0] for part in domain.encode(pd.Series([value], dtype=object)))
    if domain.attribute.kind == "numeric" and not np.isnan(number):
        reach = _NEAR * float(np.ptp(domain.values)) if len(domain.values) else 0.0
        return np.asarray(np.abs(numbers - float(number)) <= reach * (1 + 1e-9))
    return np.asarray((codes == own) & (own >= 0))


def _homogeneity_figures(
    inside: dict[str, list[float]], anywhere: dict[str, list[float]], share: float, lift: float
) -> dict[str, float]:
    figures: dict[str, float] = {"flagged": math.nan, "lift": math.nan}
    flags, lifts = [], []
    for name, values in inside.items():
        if values:
            here = np.array(values)
            lifts.append(here / np.maximum(anywhere[name], 1e-12))
            flags.append((here > share) & (lifts[-1] > lift))
            figures[f"share/{name}"] = mean(here)
            figures[f"lift/{name}"] = mean(lifts[-1])
            figures[f"flagged/{name}"] = mean(flags[-1])
    if flags:
        figures |= {"flagged": mean(np.concatenate(flags)), "lift": mean(np.concatenate(lifts))}
    return figures


DOWNCODING = (
    "Knows the quasi-identifiers of everybody and that regions are hulls, finds who inside is the"
    " only one with the value of a border and so must belong to the group, and names one of those."
)


def downcoding(setting: Setting) -> AuditResult:
    """Attack a region by its borders: somebody is behind each end of a range and each value of a
    set.

    A person is forced when they are the only one inside with the lowest or highest value of a
    range, a value of a set, or a missing value: without them the hull would be smaller. For a fixed
    group that reveals members, but not which of them was released. If a border forces nobody, the
    guess is among everybody inside. Source: Cohen (2022), Attacks on Deidentification's Defenses,
    USENIX Security: downcoding of hierarchical minimal releases.
    """
    releases = setting.releases
    forced = [forced_people(setting.crowd, release, release.rows) for release in releases]
    left = [_or_everybody(mask) for mask in forced]
    chance = releases.found(left)
    counts = np.array(
        [setting.population.people(r.rows[m]) for r, m in zip(releases, forced, strict=True)]
    )
    figures = {
        **crowd_figures(counts, setting.k, "forced"),
        "has_forced": mean(counts > 0),
        **_borders(releases, counts, forced),
        **_against_inversion(setting, chance),
    }

    def forced_outside(places: DistinctRecords) -> list[Mask]:
        pairs = zip(releases, places.rows, strict=True)
        return [
            _or_everybody(forced_people(places.crowd, release, rows)) for release, rows in pairs
        ]

    return setting.result(
        "downcoding", DOWNCODING, chance, figures, setting.control(forced_outside)
    )


def _or_everybody(forced: Mask) -> Mask:
    return forced if forced.any() else np.ones(len(forced), dtype=bool)


def forced_people(crowd: CandidatePeople, release: Release, rows: Rows) -> Mask:
    """Say who of the people inside a region is alone on one of its borders."""
    population: Population = crowd.population
    forced = np.zeros(len(rows), dtype=bool)
    for name, part in release.region.items():
        codes = crowd.coded[0][rows, population.schema.features.index(name)]
        for code in border_codes(population.domains[name], part):
            there = np.flatnonzero(codes == code)
            if len(there) and crowd.people.people(rows[there]) == 1:
                forced[there] = True
    return forced


def border_codes(domain: Domain, part: Part) -> list[int]:
    """Return the border codes of a part, each of which somebody must have; none for a single
    value.
    """
    inside = np.flatnonzero(domain.inside(part)).tolist()
    if len(inside) < 2:
        return []
    if not isinstance(part, Interval):
        return inside
    line = [code for code in inside if code < len(domain.values)]
    ends = {line[0], line[-1]} if line else set()
    return sorted(ends | {code for code in inside if code >= len(domain.values)})


def _borders(releases: Releases, counts: Rows, forced: list[Mask]) -> dict[str, float]:
    """Say how often the right person is forced, over releases that are somebody's and force
    somebody.
    """
    rows = [
        (r, mask, n)
        for r, mask, n in zip(releases, forced, counts, strict=True)
        if len(r.targets) and mask.any()
    ]
    right = mean([np.isin(r.targets, r.rows[mask]).any() for r, mask, _ in rows])
    return {"right_forced": right, "border_lift": right / mean([n / r.k for r, _, n in rows])}


def _against_inversion(setting: Setting, chance: np.ndarray) -> dict[str, float]:
    """Compare with guessing among those the algorithm maps to the region; empty if it is
    randomised.
    """
    if setting.is_random:
        return {}
    mapped = setting.releases.found(survivors(setting, "own"))
    if not len(mapped):
        return {}
    return {
        "k_effective_success": float(mapped.mean()),
        "beats_k_effective": float((chance > mapped + 1e-9).mean()),
    }


Again = Callable[[pd.DataFrame, int], Explanations]
INTERSECTION = (
    "Knows the quasi-identifiers of everybody, receives the same record several times, recognises"
    " it by its private values, and keeps whoever is inside all of its regions."
)
_OBJECTIVES: tuple[Objective, ...] = ("pureness", "ncp")


def intersection(
    setting: Setting, release: Again | None = None, *, times: Sequence[int] = (1, 2, 5, 10)
) -> AuditResult:
    """Attack regions by intersecting all those released for one record.

    Parameters
    ----------
    setting : Setting
    release : callable, optional
        From a table of counterfactuals and the turn (0, 1, ...) to what is released for them in
        this turn. To attack an anonymizer with a ledger, give a function that asks it. Default:
        `again`.
    times : sequence of int
        Numbers of releases after which people are counted; the last one is attacked.

    Returns
    -------
    AuditResult
        Baseline: the same after the first release. A withheld turn adds nothing, nor one with
        other private values, which is not recognised.
    """
    wanted = sorted(set(times))
    if not wanted or wanted[0] < 1:
        raise InputError("times must hold whole numbers of at least 1")
    repeat = release if release is not None else again(setting)
    first = setting.releases_of(repeat(setting.raw, 0))
    left = first.everybody()
    outside = None if setting.outsiders is None else first.places(setting.outsiders)
    beyond: list[Mask] = (
        [] if outside is None else [np.ones(len(rows), dtype=bool) for rows in outside.rows]
    )
    after: dict[int, list[Mask]] = {1: [mask.copy() for mask in left]}
    seen = np.ones(len(first))
    for turn in range(1, wanted[-1]):
        entries = {each.at: each for each in setting.releases_of(repeat(setting.raw, turn))}
        for i, one in enumerate(first):
            other = entries.get(one.at)
            if other is None or other.values != one.values:
                continue
            seen[i] += 1
            left[i] &= np.isin(one.rows, other.rows)
            if outside is not None:
                beyond[i] &= np.isin(outside.rows[i], outside.crowd.people.members(other.region))
        after[turn + 1] = [mask.copy() for mask in left]
    figures = {"released": mean(seen)}
    for t in wanted:
        figures |= crowd_figures(first.people(after[t]), setting.k, f"k_after_{t}")
    control = None
    if outside is not None:
        control = rate(first.coincidence(outside, beyond), setting.seed)
    main, base = rate(first.found(left), setting.seed), rate(first.found(after[1]), setting.seed)
    return AuditResult(
        "intersection", INTERSECTION, main, base, control, figures, setting.seed, len(first)
    )


def again(setting: Setting) -> Again:
    """Return a function that releases anew in every turn: with a fresh seed, or under a policy that
    is never weaker.
    """
    random = setting.is_random

    def release(counterfactuals: pd.DataFrame, turn: int) -> Explanations:
        if turn == 0:
            return setting.explanations
        if random:
            other = variant(setting.anonymizer, seed=simulation_seed(setting, turn))
        else:
            other = variant(
                setting.anonymizer,
                policy=policy_of(setting.anonymizer.policy_, turn, setting.population.n_people),
            )
        return other.transform(counterfactuals, setting.factuals)

    return release


def policy_of(policy: PrivacyPolicy, turn: int, people: int) -> PrivacyPolicy:
    """Return the policy of a turn: objectives take turns, and k grows with every round, up to the
    number of people.
    """
    start = _OBJECTIVES.index(policy.objective)
    k = policy.k + (turn // len(_OBJECTIVES)) * max(1, policy.k // 5)
    return replace(
        policy, objective=_OBJECTIVES[(start + turn) % len(_OBJECTIVES)], k=min(k, people)
    )


ATTACKS: Mapping[str, Callable[..., AuditResult]] = {
    "linkage": linkage,
    "inversion_own": functools.partial(inversion, rerun="own"),
    "inversion_released": functools.partial(inversion, rerun="released"),
    "model_filter": model_filter,
    "steering": steering,
    "intersection": intersection,
    "homogeneity": homogeneity,
    "uniqueness": uniqueness,
    "downcoding": downcoding,
}
"""The attacks by name, in the order in which they are run."""


def run_linkage_audit(
    setting: Setting,
    attacks: Sequence[str] | None = None,
    *,
    ask: Ask | None = None,
    release: Again | None = None,
    simulations: int = 20,
    posed: int = POSED,
    trilaterated: int = TRILATERATED,
    progress: Progress | None = None,
) -> AuditReport:
    """Run attacks that link explanations to people.

    Parameters
    ----------
    setting : Setting
    attacks : sequence of str, optional
        Names of `ATTACKS`. Default: all of them.
    ask, release : callable, optional
        The functions that `steering` asks and `intersection` releases by.
    simulations : int
        Runs per candidate for inverting a randomised algorithm.
    posed, trilaterated : int
        Most people that `steering` poses as, and entries of a catalogue whose owner it seeks.
    progress : callable, optional
        Called with (done, total) attacks.

    Returns
    -------
    AuditReport
    """
    wanted = list(ATTACKS) if attacks is None else list(dict.fromkeys(attacks))
    if unknown := [name for name in wanted if name not in ATTACKS]:
        raise InputError(
            f"unknown attack {', '.join(map(str, unknown))}; known: {', '.join(ATTACKS)}"
            f"{did_you_mean(unknown, ATTACKS)}"
        )
    options: Mapping[str, dict[str, Any]] = {
        "inversion_own": {"simulations": simulations},
        "inversion_released": {"simulations": simulations},
        "steering": {"ask": ask, "posed": posed, "trilaterated": trilaterated},
        "intersection": {"release": release},
    }
    told, results = progress or (lambda *_: None), []
    for done, name in enumerate(wanted):
        told(done, len(wanted))
        results.append(ATTACKS[name](setting, **options.get(name, {})))
    told(len(wanted), len(wanted))
    policy = setting.anonymizer.policy_
    return AuditReport(
        tuple(results),
        checks(policy, {result.attack: result for result in results}),
        policy.to_dict(),
        setting.anonymizer.method_,
        setting.population.fingerprint,
        len(setting.raw),
        len(setting.releases),
        setting.seed,
    )
