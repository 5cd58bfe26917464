"""Attacks that link explanations to people, and a run of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cfk_plugin.audit.result import AuditReport, AuditResult, checks, crowd_figures, mean, rate
from cfk_plugin.audit.setting import (
    Mask,
    Rows,
    Setting,
)
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.hookspecs import Progress

LINKAGE = (
    "Knows the quasi-identifiers of everybody in the training table, receives an explanation, looks"
    " up who fits it and names one of them at random."
)


def linkage(setting: Setting) -> AuditResult:
    """Attack raw and protected explanations by looking up who fits them.

    The attacker knows that the person is in the training table. Everybody who fits is assumed
    equally likely; other attacks tell them apart. Baseline: a guess without the explanation, 1 /
    people. Figures with ``raw_`` are of raw answers. Source: Goethals, Sörensen, Martens (2023),
    section 2.
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
    population = setting.population
    rows = setting.crowd.coded
    quasi = population.row_codes.quasi
    n_fitting = []
    is_row = []
    for counterfactual in population.row_codes.encode(setting.raw):
        fitting = np.flatnonzero((rows[:, quasi] == counterfactual[quasi]).all(axis=1))
        n_fitting.append(population.people(fitting))
        is_row.append(bool((rows[fitting] == counterfactual).all(axis=1).any()))
    return np.array(n_fitting, dtype=np.int64), np.array(is_row, dtype=bool)


MODEL_FILTER = (
    "Knows the quasi-identifiers of everybody and may ask the model, asks it about everybody inside"
    " the region with the private values received, and strikes out whom it does not give the"
    " desired outcome."
)


def model_filter(setting: Setting) -> AuditResult:
    """Attack a region by asking the model about everybody inside, with the private values that were
    released.

    Source: Goethals, Sörensen, Martens (2023), section 5.4 (pureness): cells without
    the desired outcome cannot be anybody's.
    """
    releases, left = setting.releases, setting.consistent
    chance, counts = releases.found(left), releases.people(left)
    figures = {
        **crowd_figures(counts, setting.k, "k_consistent"),
        "struck_out": float((1 - counts / releases.sizes).mean()) if len(releases) else math.nan,
    }
    control = setting.control(lambda places: places.spread(setting.desired(places, releases)))
    return setting.result("model_filter", MODEL_FILTER, chance, figures, control)


UNIQUENESS = (
    "Knows the private values of everybody in the training table, and names one of those who carry"
    " exactly the released ones, without looking at the region."
)


def uniqueness(setting: Setting) -> AuditResult:
    """Attack released private values by looking up who carries exactly them.

    No region protects against it: private values are not generalised. Control: share of releases
    whose values somebody in the holdout carries, too.
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


ATTACKS: Mapping[str, Callable[[Setting], AuditResult]] = {
    "linkage": linkage,
    "model_filter": model_filter,
    "uniqueness": uniqueness,
}
"""The attacks by name, in the order in which they are run."""


def run_linkage_audit(
    setting: Setting,
    attacks: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
) -> AuditReport:
    """Run attacks that link explanations to people.

    Parameters
    ----------
    setting : Setting
    attacks : sequence of str, optional
        Names of `ATTACKS`. Default: all of them.
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
    told, results = progress or (lambda *_: None), []
    for done, name in enumerate(wanted):
        told(done, len(wanted))
        results.append(ATTACKS[name](setting))
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
