"""Homogeneity and uniqueness: what the released private values themselves give away."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.releases import Crowd, Mask, Release
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval

HOMOGENEITY = (
    "Knows that a person is inside the region and in the training table, and guesses that they have the private value "
    "that was released."
)
UNIQUENESS = (
    "Knows the private values of everybody in the training table, and names one of those who carry exactly the "
    "released ones, without looking at the region."
)
_NEAR = 0.05  # of a number's range: as good as knowing it
_SHARE, _LIFT = 0.8, 1.5


def homogeneity(setting: Setting, *, share: float = _SHARE, lift: float = _LIFT) -> AuditResult:
    """Attack everybody inside a region by guessing the released value of each private attribute.

    Parameters
    ----------
    setting : Setting
    share, lift : float
        A release is flagged for an attribute when more than this share of the people inside hold the released value,
        and more than `lift` times the share of the whole population.

    Returns
    -------
    AuditResult
        `main`: share of the people inside who hold the released value, mean over attributes and releases.
        `baseline`: share of the whole population who do. `control`: share of the people of the holdout inside the
        region who do: what anybody learns of a person from the general pattern, in the table or not (releases with
        nobody of the holdout inside are left out). Figures: ``flagged`` (share of releases and attributes),
        ``lift`` (mean of share / base rate), and ``share/<attribute>``, ``lift/<attribute>``,
        ``flagged/<attribute>``.

    Notes
    -----
    A number counts as the released one within 5 % of its range; a value in a released bin counts as released.
    Shares are in [0, 1]; lower is better. t-closeness compares whole distributions, while one value is released.

    References
    ----------
    Wong, Li, Fu, Wang (2006), (alpha, k)-anonymity.
    """
    inside: dict[str, list[float]] = {name: [] for name in setting.population.schema.private}
    anywhere: dict[str, list[float]] = {name: [] for name in inside}
    main, base, control = [], [], []
    places = None if setting.outsiders is None else setting.releases.places(setting.outsiders)
    for i, release in enumerate(setting.releases):
        names = list(release.entry.released)
        holds = [_holds(setting.crowd, release, name) for name in names]
        for name, mask in zip(names, holds, strict=True):
            inside[name].append(float(mask[release.rows].mean()))
            anywhere[name].append(float(mask.mean()))
        if names:
            main.append(np.mean([inside[name][-1] for name in names]))
            base.append(np.mean([anywhere[name][-1] for name in names]))
        if names and places is not None and len(places.rows[i]):
            rows, crowd = places.rows[i], places.crowd
            control.append(np.mean([float(_holds(crowd, release, name)[rows].mean()) for name in names]))
    figures = _homogeneity_figures(inside, anywhere, share, lift)
    return AuditResult(
        "homogeneity",
        HOMOGENEITY,
        rate(main, setting.seed),
        rate(base, setting.seed),
        rate(control, setting.seed) if places is not None else None,
        figures,
        setting.seed,
        len(setting.releases),
    )


def uniqueness(setting: Setting) -> AuditResult:
    """Attack released private values by looking up who carries exactly them.

    Parameters
    ----------
    setting : Setting

    Returns
    -------
    AuditResult
        `main`: chance to name the right person among those of the population who carry the released values.
        `baseline`: the same guess without the explanation, 1 / people. `control`: share of releases whose values
        somebody of the holdout carries, too: a look-up there would name a wrong person. Figures:
        ``private_matches_...`` and ``k_private_...`` (people of the population, and of the region, who carry the
        released values) over releases, ``private_success`` and ``region_success`` (chance to name the right person
        with and without the region's help).

    Notes
    -----
    No region protects against it: quasi-identifiers are generalised, private values are not, unless the policy
    releases them as bins or withholds rare ones. Success is in [0, 1]; lower is better.
    """
    releases, population = setting.releases, setting.population
    everyone = np.arange(population.n_rows)
    carriers = [np.flatnonzero(setting.crowd.carriers(everyone, r.entry.released)) for r in releases]
    anywhere = np.array([population.people(rows) for rows in carriers], dtype=np.int64)
    within: list[Mask] = [setting.crowd.carriers(r.rows, r.entry.released) for r in releases]
    chance = np.array([1.0 / n for n, r in zip(anywhere, releases, strict=True) if len(r.targets)])
    helped = releases.found(within)
    figures = {
        **crowd_figures(anywhere, setting.k, "private_matches"),
        **crowd_figures(releases.people(within), setting.k, "k_private"),
        "private_success": float(chance.mean()) if len(chance) else float("nan"),
        "region_success": float(helped.mean()) if len(helped) else float("nan"),
    }
    control = None
    if setting.outsiders is not None:
        rows = np.arange(setting.outsiders.people.n_rows)
        hits = [bool(setting.outsiders.carriers(rows, r.entry.released).any()) for r in releases if len(r.targets)]
        control = rate(np.array(hits, dtype=float), setting.seed)
    return AuditResult(
        "uniqueness",
        UNIQUENESS,
        rate(chance, setting.seed),
        rate(np.full(len(chance), 1.0 / population.n_people), setting.seed),
        control,
        figures,
        setting.seed,
        len(releases),
    )


def _holds(crowd: Crowd, release: Release, name: str) -> Mask:
    """Say of every row of a crowd whether it holds what was released of an attribute, or nearly so."""
    population: Population = crowd.population
    domain, at = population.domains[name], population.schema.features.index(name)
    codes, numbers = crowd.coded[0][:, at], crowd.coded[1][:, at]
    value = release.entry.released[name]
    if isinstance(value, Interval):
        return np.asarray(domain.inside(value)[codes] & (codes >= 0))
    own, number = (part[0] for part in domain.encode(pd.Series([value], dtype=object)))
    if domain.attribute.kind == "numeric" and not np.isnan(number):
        width = float(np.ptp(domain.values)) if len(domain.values) else 0.0
        return _near(numbers, float(number), _NEAR * width)
    return np.asarray((codes == own) & (own >= 0))


def _near(numbers: NDArray[np.float64], number: float, reach: float) -> Mask:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(numbers - number) <= reach * (1 + 1e-9))


def _homogeneity_figures(
    inside: dict[str, list[float]], anywhere: dict[str, list[float]], share: float, lift: float
) -> dict[str, float]:
    figures: dict[str, float] = {"flagged": float("nan"), "lift": float("nan")}
    flags, lifts = [], []
    for name, values in inside.items():
        if not values:
            continue
        here, there = np.array(values), np.array(anywhere[name])
        lifted = here / np.maximum(there, 1e-12)
        flag = (here > share) & (lifted > lift)
        figures[f"share/{name}"] = float(here.mean())
        figures[f"lift/{name}"] = float(lifted.mean())
        figures[f"flagged/{name}"] = float(flag.mean())
        flags.append(flag)
        lifts.append(lifted)
    if flags:
        figures["flagged"] = float(np.concatenate(flags).mean())
        figures["lift"] = float(np.concatenate(lifts).mean())
    return figures
