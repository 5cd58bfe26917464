"""Explanation linkage: look up who fits the quasi-identifiers of an explanation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.releases import Mask, Rows
from cfk_plugin.audit.result import AuditResult, crowd_figures, rate
from cfk_plugin.audit.setting import Setting

SCENARIO = (
    "Knows the quasi-identifiers of everybody in the training table, receives an explanation, looks up who fits it "
    "and names one of them at random."
)


def linkage(setting: Setting) -> AuditResult:
    """Attack raw and protected explanations by looking up who fits them.

    The prosecutor knows that the person is in the training table and looks there. The journalist does not, and
    looks in the anonymizer's reference population, if it has one.

    Parameters
    ----------
    setting : Setting

    Returns
    -------
    AuditResult
        `main`: chance to name the right person from a protected explanation, 1 / people who fit, over releases that
        are somebody's. `baseline`: the same guess without the explanation, 1 / people. `control`: the look-up among
        people of the holdout, who cannot be right; a hit is a person who carries the released values by coincidence.
        Figures: ``raw_success``, ``raw_singled_out`` (share with exactly one match), ``raw_native`` (share that are
        training rows), ``success``, ``singled_out``, ``values_right`` (chance that the person named carries the
        released values: to compare with the control), ``k_...`` over releases, ``released``; with a reference
        population ``journalist_success``, ``journalist_singled_out`` and both with ``raw_`` in front.

    Notes
    -----
    Success is an expected probability in [0, 1]; lower is better. It assumes that everybody who fits is equally
    likely; the other attacks do not.

    References
    ----------
    Goethals, Sörensen, Martens (2023), section 2: prosecutor and journalist scenario.
    """
    releases, population = setting.releases, setting.population
    chance = releases.found(releases.everybody())
    fits, right = _raw_matches(setting)
    raw_chance = np.where(right, 1.0 / np.maximum(fits, 1), 0.0)
    named = releases.coincidence(setting.crowd, setting.places, releases.everybody())
    figures = {
        "raw_success": _mean(raw_chance),
        "raw_singled_out": _mean(fits == 1),
        "raw_native": _mean(right),
        "success": _mean(chance),
        "singled_out": _mean(releases.sizes == 1),
        "values_right": _mean(named),
        "released": float(len(releases)),
        **crowd_figures(releases.sizes, setting.k, "k"),
        **_journalist(setting, right),
    }
    control = None
    if setting.outsiders is not None:
        places = releases.places(setting.outsiders)
        left: list[Mask] = [np.ones(len(rows), dtype=bool) for rows in places.rows]
        control = rate(releases.coincidence(setting.outsiders, places, left), setting.seed)
    without = np.full(len(chance), 1.0 / population.n_people)
    return AuditResult(
        "linkage",
        SCENARIO,
        rate(chance, setting.seed),
        rate(without, setting.seed),
        control,
        figures,
        setting.seed,
        len(releases),
    )


def _raw_matches(setting: Setting) -> tuple[Rows, Mask]:
    """Return how many people have a raw counterfactual's quasi-identifiers, and whether it is a row of theirs."""
    population, crowd = setting.population, setting.crowd
    places = [population.schema.features.index(name) for name in population.schema.quasi_identifiers]
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
    counts = np.array([reference.count(r.region) for r in releases if len(r.targets)], dtype=np.int64)
    there = [reference.domains[name].encode(reference.column(name))[0] for name in quasi]
    asked = [reference.domains[name].encode(setting.raw[name])[0] for name in quasi]
    raw = []
    for i in range(len(setting.raw)):
        same = np.logical_and.reduce([own == codes[i] for own, codes in zip(there, asked, strict=True)])
        raw.append(reference.people(np.flatnonzero(same)))
    matched = np.array(raw, dtype=np.int64)
    return {
        "raw_journalist_success": _mean(np.where(right & (matched > 0), 1.0 / np.maximum(matched, 1), 0.0)),
        "raw_journalist_singled_out": _mean(matched == 1),
        "journalist_success": _mean(1.0 / np.maximum(counts, 1)),
        "journalist_singled_out": _mean(counts == 1),
    }


def _mean(values: NDArray[np.float64] | Mask) -> float:
    return float(values.mean()) if len(values) else float("nan")
