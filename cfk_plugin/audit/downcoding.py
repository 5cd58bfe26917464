"""Downcoding: a region is the hull of its group, so somebody of the group sits on each of its borders."""

from __future__ import annotations

import numpy as np

from cfk_plugin.audit.inversion import survivors
from cfk_plugin.audit.releases import Crowd, Mask, Places, Release, Rows
from cfk_plugin.audit.rerun import is_random
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part

SCENARIO = (
    "Knows the quasi-identifiers of everybody and that regions are hulls, finds who inside is the only one with the "
    "value of a border and so must belong to the group, and names one of those."
)


def downcoding(setting: Setting) -> AuditResult:
    """Attack a region by its borders: each end of a range, and each value of a set, is there because of somebody.

    Parameters
    ----------
    setting : Setting

    Returns
    -------
    AuditResult
        `main`: chance to name the right person when guessing among the people whom a border forces to be in the
        group; among everybody inside where it forces nobody. `baseline`: naming anybody in the region, 1 / k.
        `control`: the same among people of the holdout; a hit is a person who carries the released values by
        coincidence. Figures: ``forced_...`` (people forced) over releases, ``has_forced`` (share of regions that
        force somebody), ``right_forced`` (share of the right people who are forced, where somebody is),
        ``border_lift`` (that share over the share of all people inside who are forced; above 1: right people are on
        borders more often than others), ``k_effective_success`` (mean of 1 / k_effective: what guessing among whom the
        algorithm maps to the region gives), ``beats_k_effective`` (share of releases on which this guess does better).

    Notes
    -----
    A person is forced when they are the only one inside with the lowest or highest value of a range attribute, a value
    of a set, or a missing value: a hull without them would be smaller. For a region made around one counterfactual the
    argument holds for everybody whom the region needs, and says little of which of them the counterfactual is; for
    a fixed group it reveals members and not which of them was released. Success is in [0, 1]; lower is better.

    References
    ----------
    Cohen (2022), Attacks on Deidentification's Defenses, USENIX Security: downcoding of hierarchical minimal releases.
    """
    releases = setting.releases
    forced = [forced_people(setting.crowd, release, release.rows) for release in releases]
    left: list[Mask] = [mask if mask.any() else np.ones(len(mask), dtype=bool) for mask in forced]
    chance = releases.found(left)
    counts = np.array([setting.population.people(r.rows[m]) for r, m in zip(releases, forced, strict=True)])
    figures = {
        **crowd_figures(counts, setting.k, "forced"),
        "has_forced": float((counts > 0).mean()) if len(counts) else float("nan"),
        **_borders(releases.sizes, counts, [_is_forced(r, m) for r, m in zip(releases, forced, strict=True)]),
        **_against_inversion(setting, chance),
    }
    control = None
    if setting.outsiders is not None:
        places: Places = releases.places(setting.outsiders)
        outside = [
            mask if mask.any() else np.ones(len(mask), dtype=bool)
            for mask in (
                forced_people(setting.outsiders, release, rows)
                for release, rows in zip(releases, places.rows, strict=True)
            )
        ]
        control = rate(releases.coincidence(setting.outsiders, places, outside), setting.seed)
    return AuditResult(
        "downcoding",
        SCENARIO,
        rate(chance, setting.seed),
        rate(releases.found(releases.everybody()), setting.seed),
        control,
        figures,
        setting.seed,
        len(releases),
    )


def forced_people(crowd: Crowd, release: Release, rows: Rows) -> Mask:
    """Say of the people inside a region who of them is alone on one of its borders."""
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
    """Return the codes that a part would not reach without somebody who has them; none for a single value."""
    inside = np.flatnonzero(domain.inside(part)).tolist()
    if len(inside) < 2:
        return []
    if not isinstance(part, Interval):
        return inside
    line = [code for code in inside if code < len(domain.values)]
    ends = {line[0], line[-1]} if line else set()
    return sorted(ends | {code for code in inside if code >= len(domain.values)})


def _is_forced(release: Release, forced: Mask) -> bool | None:
    """Say whether the right person is forced; None where there is none, or nobody is."""
    if not len(release.targets) or not forced.any():
        return None
    return bool(np.isin(release.targets, release.rows[forced]).any())


def _borders(sizes: Rows, counts: Rows, hits: list[bool | None]) -> dict[str, float]:
    at = np.array([i for i, hit in enumerate(hits) if hit is not None], dtype=np.int64)
    if not len(at):
        return {"right_forced": float("nan"), "border_lift": float("nan")}
    right = float(np.mean([bool(hits[i]) for i in at]))
    return {"right_forced": right, "border_lift": right / float((counts[at] / sizes[at]).mean())}


def _against_inversion(setting: Setting, chance: np.ndarray) -> dict[str, float]:
    """Compare with guessing among whom the algorithm maps to the region; nothing where it is randomised."""
    if is_random(setting):
        return {}
    mapped = setting.releases.found(survivors(setting, "own"))
    if not len(mapped):
        return {}
    return {
        "k_effective_success": float(mapped.mean()),
        "beats_k_effective": float((chance > mapped + 1e-9).mean()),
    }
