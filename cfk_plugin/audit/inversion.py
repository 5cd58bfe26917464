"""Inversion: run the algorithm for everybody inside a region, and strike out whom it maps elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.releases import Crowd, Mask, Places
from cfk_plugin.audit.rerun import is_random, regions_of, simulation_seed, variant
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.region import Region
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import clopper_pearson

Rerun = Literal["own", "released"]
SCENARIOS: dict[str, str] = {
    "own": "Knows the full record of everybody in the training table and the algorithm with its settings, runs it on "
    "every record, and strikes out whom it maps to another region than the one received.",
    "released": "Knows the quasi-identifiers of everybody and the algorithm with its settings, runs it on everybody "
    "inside the region with the private values received, and strikes out whom it maps to another region.",
}


def inversion(
    setting: Setting, rerun: Rerun = "own", *, everybody: bool | None = None, simulations: int = 20
) -> AuditResult:
    """Attack a region by running the algorithm again for everybody who may be behind it.

    Parameters
    ----------
    setting : Setting
    rerun : {"own", "released"}
        Which private values the algorithm is run with: everybody's own (the attacker knows everything but who it
        is), or the released ones for everybody inside.
    everybody : bool, optional
        With "own": whether every person of the population is mapped, for the figures on everybody, or only those
        inside the attacked regions, which is enough for the attack. Default: everybody where the policy's guarantee
        fixes a partition, as the guarantee is about everybody; else those inside, as each takes a search.
    simulations : int
        Runs with fresh seeds per candidate, where the algorithm draws random numbers and its seed is secret.

    Returns
    -------
    AuditResult
        `main`: chance to name the right person among those who are left, 1 / k_effective. `baseline`: naming anybody
        in the region, 1 / k. `control`: the same among people of the holdout; a hit is a person who carries the
        released values by coincidence (deterministic algorithms only). Figures: ``k_effective_...`` over releases,
        ``success``, ``random`` (1 when simulated). With "own" also ``k_releasable_...``: the same without people whose
        own prediction is not the desired one. They can never be released, which full records and the model tell; with
        a policy that counts eligible people alone, k_effective leaves them out already. Where everybody is mapped
        also ``everyone_k_effective_...``, the same count for every person of the population and not for releases
        alone, ``everyone_success``, ``everyone_mapped`` (share of the people who get a region at all), and, for one
        fixed desired outcome, ``desired_k_effective_...``, the count among people with the desired prediction, for
        those people. Simulated: ``k_effective_low_...`` (from the upper end of the 95 % interval of each posterior),
        ``simulations``.

    Notes
    -----
    Deterministic: k_effective(R) = number of people r in R that the algorithm maps to R. Randomised: with p_j the
    probability that it maps j to R, k_effective = sum_j p_j / p_true, the inverse of the attacker's posterior on the
    right person; for a deterministic map that is the count. p_j is estimated from c_j hits in the simulations, and
    the posterior is (c_true + 1/k) / (sum c + 1): the prior is one hit spread evenly over the k people inside. Its
    interval is Clopper-Pearson's of c_true among sum c hits; given their sum, counts of rare hits are binomial, and
    counts of frequent ones vary less, so it is exact or too wide. Higher k_effective is better.

    References
    ----------
    Kalnis, Ghinita, Mouratidis, Papadias (2007): reciprocity makes k_effective >= k for everybody.
    """
    if rerun not in SCENARIOS:
        raise InputError(f"rerun must be one of {', '.join(SCENARIOS)}")
    if is_random(setting):
        return _simulated(setting, rerun, simulations)
    releases = setting.releases
    if everybody is None:
        everybody = setting.anonymizer.policy_.guarantee != "nominal"
    left = survivors(setting, rerun, everybody=everybody)
    chance = releases.found(left)
    figures = {
        **crowd_figures(releases.people(left), setting.k, "k_effective"),
        "success": float(chance.mean()) if len(chance) else float("nan"),
        "random": 0.0,
        **(_also_known(setting, left) if rerun == "own" else {}),
        **(_of_everyone(setting) if everybody and rerun == "own" else {}),
    }
    control = None
    if setting.outsiders is not None:
        places = releases.places(setting.outsiders)
        outside = _same_region(setting, setting.outsiders, places, rerun)
        control = rate(releases.coincidence(setting.outsiders, places, outside), setting.seed)
    return AuditResult(
        f"inversion_{rerun}",
        SCENARIOS[rerun],
        rate(chance, setting.seed),
        rate(releases.found(releases.everybody()), setting.seed),
        control,
        figures,
        setting.seed,
        len(releases),
    )


def survivors(setting: Setting, rerun: Rerun, *, everybody: bool = False) -> list[Mask]:
    """Return who inside each region is mapped to it, for a deterministic algorithm; found out once.

    Where only eligible people count, who has another outcome is struck out with rerun="own".
    """
    key = ("inversion", rerun)
    if key not in setting.memory:
        if everybody and rerun == "own":
            regions = everybodys_regions(setting)
            left = [np.array([regions[row] == r.region for row in r.rows], dtype=bool) for r in setting.releases]
        else:
            left = _same_region(setting, setting.crowd, setting.places, rerun)
        if rerun == "own" and setting.anonymizer.policy_.counts_eligible:
            left = [a & b for a, b in zip(left, _releasable(setting), strict=True)]
        setting.memory[key] = left
    found: list[Mask] = setting.memory[key]
    return found


def _also_known(setting: Setting, left: list[Mask]) -> dict[str, float]:
    """Count who is left when people whose own prediction is not the desired one are struck out, too."""
    both = [a & b for a, b in zip(left, _releasable(setting), strict=True)]
    return crowd_figures(setting.releases.people(both), setting.k, "k_releasable")


def _releasable(setting: Setting) -> list[Mask]:
    """Say of everybody inside each region whether their own record is predicted the desired outcome."""
    labels, at = setting.row_labels, [np.full(len(r.rows), r.at) for r in setting.releases]
    return [setting.judge(labels[r.rows], which) for r, which in zip(setting.releases, at, strict=True)]


def _of_everyone(setting: Setting) -> dict[str, float]:
    """Count for every person of the population, and not for releases alone, who gets the same region."""
    regions = everybodys_regions(setting)
    known = {region: i for i, region in enumerate(dict.fromkeys(r for r in regions if r is not None))}
    group = np.array([-1 if region is None else known[region] for region in regions], dtype=np.int64)
    fixed = not setting.anonymizer.goal_.is_opposite
    desired = np.zeros(len(group), dtype=bool)
    if fixed:
        desired = setting.judge(setting.row_labels, np.zeros(len(group), dtype=np.int64))
        if setting.anonymizer.policy_.counts_eligible:
            group[~desired] = -1
    everyone = _per_person(setting, group, np.arange(len(group)))
    figures = {
        **crowd_figures(everyone, setting.k, "everyone_k_effective"),
        "everyone_success": float((1.0 / everyone).mean()) if len(everyone) else float("nan"),
        "everyone_mapped": setting.population.people(np.flatnonzero(group >= 0)) / setting.population.n_people,
    }
    if fixed:
        figures |= crowd_figures(_per_person(setting, group, np.flatnonzero(desired)), setting.k, "desired_k_effective")
    return figures


def everybodys_regions(setting: Setting) -> list[Region | None]:
    """Return the region that the algorithm gives to every training row, found out once."""
    if "everybody" not in setting.memory:
        setting.memory["everybody"] = regions_of(setting.anonymizer, setting.population.frame)
    found: list[Region | None] = setting.memory["everybody"]
    return found


def _per_person(setting: Setting, group: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for every row of some that has a group, the distinct people among them with the same group."""
    rows = rows[group[rows] >= 0]
    order = rows[np.argsort(group[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    counts = [np.full(len(part), setting.population.people(part)) for part in np.split(order, cuts) if len(part)]
    return np.concatenate([np.empty(0, dtype=np.int64), *counts])


def _same_region(setting: Setting, crowd: Crowd, places: Places, rerun: Rerun) -> list[Mask]:
    """Say of every candidate whether the algorithm maps their record to the region that they are in."""
    targets, records, spread = _records(setting, crowd, places, rerun)
    found = regions_of(setting.anonymizer, records)
    return spread(np.array([region == target for region, target in zip(found, targets, strict=True)], dtype=bool))


def _records(
    setting: Setting, crowd: Crowd, places: Places, rerun: Rerun
) -> tuple[list[Region], pd.DataFrame, Callable[[NDArray[Any]], list[NDArray[Any]]]]:
    """Return the records to run, the region each should come out with, and how answers go back to rows."""
    releases = setting.releases
    if rerun == "released":
        return [releases[i].region for i in places.which], places.questions(releases.private), places.spread
    rows = np.concatenate([np.empty(0, dtype=np.int64), *places.rows])
    cuts = np.cumsum([len(inside) for inside in places.rows])[:-1]
    targets = [r.region for r, inside in zip(releases, places.rows, strict=True) for _ in inside]
    return targets, crowd.people.rows(rows), lambda answers: np.split(answers, cuts)


def _simulated(setting: Setting, rerun: Rerun, simulations: int) -> AuditResult:
    releases = setting.releases
    targets, records, spread = _records(setting, setting.crowd, setting.places, rerun)
    hits = np.zeros(len(records), dtype=np.int64)
    for turn in range(simulations):
        other = variant(setting.anonymizer, seed=simulation_seed(setting, turn + 1))
        found = regions_of(other, records)
        hits += np.array([region == target for region, target in zip(found, targets, strict=True)], dtype=np.int64)
    posterior, high = _posteriors(setting, spread(hits))
    figures = {
        **crowd_figures(_inverse(posterior), setting.k, "k_effective"),
        **crowd_figures(_inverse(high), setting.k, "k_effective_low"),
        "success": float(posterior.mean()) if len(posterior) else float("nan"),
        "random": 1.0,
        "simulations": float(simulations),
    }
    return AuditResult(
        f"inversion_{rerun}",
        SCENARIOS[rerun],
        rate(posterior, setting.seed),
        rate(releases.found(releases.everybody()), setting.seed),
        None,
        figures,
        setting.seed,
        len(releases),
    )


def _posteriors(setting: Setting, hits: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, per release that is somebody's, the posterior on the right row and the upper end of its interval."""
    middle, high = [], []
    for release, counts in zip(setting.releases, hits, strict=True):
        if not len(release.targets):
            continue
        right = np.flatnonzero(np.isin(release.rows, release.targets))[:1]
        own, total = int(counts[right].sum()), int(counts.sum())
        middle.append((own + 1.0 / len(counts)) / (total + 1.0))
        high.append(clopper_pearson(own, total).high)
    return np.array(middle), np.array(high)


def _inverse(posterior: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / posterior)
