"""Inversion: run the algorithm again for each candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.result import AuditResult, crowd_figures, mean
from cfk_plugin.audit.setting import (
    DistinctRecords,
    Mask,
    Setting,
    regions_of,
    simulation_seed,
    variant,
)
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import Region
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import clopper_pearson

Rerun = Literal["own", "released"]
SCENARIOS: dict[str, str] = {
    "own": (
        "Knows the full record of everybody in the training table and the algorithm with its"
        " settings, runs it on every record, and strikes out whom it maps to another region than"
        " the one received."
    ),
    "released": (
        "Knows the quasi-identifiers of everybody and the algorithm with its settings, runs it on"
        " everybody inside the region with the private values received, and strikes out whom it"
        " maps to another region."
    ),
}


def inversion(
    setting: Setting, rerun: Rerun = "own", *, everybody: bool | None = None, simulations: int = 20
) -> AuditResult:
    """Attack a region by rerunning the algorithm for everybody who may be behind it.

    Parameters
    ----------
    setting : Setting
    rerun : {"own", "released"}
        Which private values the algorithm is run with: everybody's own, or the released ones for
        everybody inside.
    everybody : bool, optional
        With "own": whether every person of the population is mapped, or only those inside, who are
        enough for the attack. Default: everybody if the policy's guarantee is about everybody;
        otherwise each takes a search.
    simulations : int
        Runs with fresh seeds per candidate, if the algorithm draws random numbers and its seed is
        secret.

    Returns
    -------
    AuditResult
        Success is 1 / k_effective; there is no control where runs are simulated.

    Notes
    -----
    Deterministic: k_effective is the number of people inside whom the algorithm maps to the region.
    Randomised: the inverse of the attacker's posterior for the right person, (c_true + 1/k) / (sum
    c + 1) for c_j hits in the simulations; the prior is one hit spread over the k people inside.
    Its interval is Clopper-Pearson's of c_true among sum c hits, exact or too wide. Source: Kalnis,
    Ghinita, Mouratidis, Papadias (2007): reciprocity makes k_effective >= k for everybody.
    """
    if rerun not in SCENARIOS:
        raise InputError(f"rerun must be one of {', '.join(SCENARIOS)}")
    if setting.is_random:
        return _simulated(setting, rerun, simulations)
    releases = setting.releases
    if everybody is None:
        everybody = promise_of(setting.anonymizer.policy_.guarantee).has_fixed_regions
    left = survivors(setting, rerun, everybody=everybody)
    chance = releases.found(left)
    figures = {
        **crowd_figures(releases.people(left), setting.k, "k_effective"),
        "success": mean(chance),
        "random": 0.0,
    }
    if rerun == "own":  # also strike out people whose own prediction is not the desired one
        both = [a & b for a, b in zip(left, _releasable(setting), strict=True)]
        figures |= crowd_figures(releases.people(both), setting.k, "k_releasable")
        figures |= _of_everyone(setting) if everybody else {}
    control = setting.control(lambda places: _same_region(setting, places, rerun))
    return setting.result(f"inversion_{rerun}", SCENARIOS[rerun], chance, figures, control)


def survivors(setting: Setting, rerun: Rerun, *, everybody: bool = False) -> list[Mask]:
    """Return who inside each region a deterministic algorithm maps to it; computed once."""
    if rerun not in setting.survivors:
        if everybody and rerun == "own":
            regions = setting.regions
            left = [
                np.array([regions[row] == r.region for row in r.rows], dtype=bool)
                for r in setting.releases
            ]
        else:
            left = _same_region(setting, setting.places, rerun)
        if rerun == "own" and setting.anonymizer.policy_.counts_eligible:
            left = [a & b for a, b in zip(left, _releasable(setting), strict=True)]
        setting.survivors[rerun] = left
    return setting.survivors[rerun]


def _releasable(setting: Setting) -> list[Mask]:
    """Say for everybody inside each region whether their own record is predicted the desired
    outcome.
    """
    labels, at = setting.row_labels, [np.full(len(r.rows), r.at) for r in setting.releases]
    return [
        setting.judge(labels[r.rows], which) for r, which in zip(setting.releases, at, strict=True)
    ]


def _of_everyone(setting: Setting) -> dict[str, float]:
    """Count who gets the same region, for every person of the population, not just for releases."""
    regions = setting.regions
    known = {
        region: i for i, region in enumerate(dict.fromkeys(r for r in regions if r is not None))
    }
    group = np.array(
        [-1 if region is None else known[region] for region in regions], dtype=np.int64
    )
    is_common = not setting.anonymizer.goal_.needs_factual_labels
    desired = np.zeros(len(group), dtype=bool)
    if is_common:
        desired = setting.judge(setting.row_labels, np.zeros(len(group), dtype=np.int64))
        if setting.anonymizer.policy_.counts_eligible:
            group[~desired] = -1
    everyone = _per_person(setting, group, np.arange(len(group)))
    figures = {
        **crowd_figures(everyone, setting.k, "everyone_k_effective"),
        "everyone_success": mean(1.0 / everyone),
        "everyone_mapped": (
            setting.population.people(np.flatnonzero(group >= 0)) / setting.population.n_people
        ),
    }
    if is_common:
        figures |= crowd_figures(
            _per_person(setting, group, np.flatnonzero(desired)), setting.k, "desired_k_effective"
        )
    return figures


def _per_person(
    setting: Setting, group: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return, for every row with a group, the number of distinct people with the same group."""
    rows = rows[group[rows] >= 0]
    order = rows[np.argsort(group[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    counts = [
        np.full(len(part), setting.population.people(part))
        for part in np.split(order, cuts)
        if len(part)
    ]
    return np.concatenate([np.empty(0, dtype=np.int64), *counts])


def _same_region(setting: Setting, places: DistinctRecords, rerun: Rerun) -> list[Mask]:
    """Say for every candidate whether the algorithm maps their record to the region that they are
    in.
    """
    targets, records, spread = _records(setting, places, rerun)
    found = regions_of(setting.anonymizer, records)
    return spread(
        np.array(
            [region == target for region, target in zip(found, targets, strict=True)], dtype=bool
        )
    )


def _records(
    setting: Setting, places: DistinctRecords, rerun: Rerun
) -> tuple[list[Region], pd.DataFrame, Callable[[NDArray[Any]], list[NDArray[Any]]]]:
    """Return the records to run, the region that each should get, and a function from answers to
    rows.
    """
    releases = setting.releases
    if rerun == "released":
        return (
            [releases[i].region for i in places.which],
            places.questions(releases.private),
            places.spread,
        )
    rows = np.concatenate([np.empty(0, dtype=np.int64), *places.rows])
    cuts = np.cumsum([len(inside) for inside in places.rows])[:-1]
    targets = [r.region for r, inside in zip(releases, places.rows, strict=True) for _ in inside]
    return (
        targets,
        places.crowd.people.rows(rows),
        lambda answers: np.split(answers, cuts)[: len(releases)],
    )


def _simulated(setting: Setting, rerun: Rerun, simulations: int) -> AuditResult:
    targets, records, spread = _records(setting, setting.places, rerun)
    hits = np.zeros(len(records), dtype=np.int64)
    for turn in range(simulations):
        other = variant(setting.anonymizer, seed=simulation_seed(setting, turn + 1))
        found = regions_of(other, records)
        hits += np.array(
            [region == target for region, target in zip(found, targets, strict=True)],
            dtype=np.int64,
        )
    posterior, high = _posteriors(setting, spread(hits))
    figures = {
        **crowd_figures(1.0 / posterior, setting.k, "k_effective"),
        **crowd_figures(1.0 / high, setting.k, "k_effective_low"),
        "success": mean(posterior),
        "random": 1.0,
        "simulations": float(simulations),
    }
    return setting.result(f"inversion_{rerun}", SCENARIOS[rerun], posterior, figures)


def _posteriors(
    setting: Setting, hits: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, per release that is somebody's, the posterior of the right row and the upper end of
    its interval.
    """
    middle, high = [], []
    for release, counts in zip(setting.releases, hits, strict=True):
        if not len(release.targets):
            continue
        right = np.flatnonzero(np.isin(release.rows, release.targets))[:1]
        own, total = int(counts[right].sum()), int(counts.sum())
        middle.append((own + 1.0 / len(counts)) / (total + 1.0))
        high.append(clopper_pearson(own, total).high)
    return np.array(middle), np.array(high)
