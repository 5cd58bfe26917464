"""Recount released regions against a population: everything that the file and the table alone can show."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.commands.form import Finding
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivateValues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.commands.released import Released
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population

CELLS, SAMPLES = 10_000, 2_000
"""Up to so many combinations are asked one by one for pureness, and so many of more."""
NEAR = 1e-9
"""Figures this close are equal: a table that was written as text has lost the last bits."""


def recount(found: Released, population: Population, policy: PrivacyPolicy, k: int | None) -> Iterator[Finding]:
    """Yield what a region does not hold, or its certificate states otherwise; without `k`, that of the policy holds."""
    certificate, where = found.certificate, found.where
    if (people := population.people(found.rows)) < (k or policy.k):
        yield Finding(where, f"{people} people, fewer than {'k' if k is None else k}")
    if certificate["k"] != people:
        yield Finding(where, f"{people} people, and the certificate says something else", fails=False)
    if abs(certificate["ncp"] - (loss := ncp(found.region, population))) > NEAR:
        yield Finding(where, f"ncp is {loss:.6g}, and the certificate says something else", fails=False)
    if not _may_be_pureness(found, population):
        yield Finding(where, "pureness is no share of the region's combinations, or its interval is none of it")
    if policy.rare_values == "withhold":
        values = PrivateValues(population)
        for j, name in enumerate(population.schema.private):
            if name in found.entry["released"] and values.people(j, _span(found, name)) < policy.k:
                yield Finding(where, f"releases {name}, which fewer than k people have")
    if policy.guarantee == "nominal":  # under the others those count who are mapped to the region
        yield from undiverse(found, population, policy, found.rows)


def undiverse(
    found: Released, population: Population, policy: PrivacyPolicy, rows: NDArray[np.int64]
) -> Iterator[Finding]:
    """Yield which of the policy's rules on private values are broken among the people of some rows."""
    figures = SensitiveFigures.of(population, rows)
    if policy.l is not None and figures.diversity is not None and figures.diversity < policy.l:
        yield Finding(found.where, "fewer than l sensitive values")
    if policy.t is not None and figures.closeness is not None and figures.closeness > policy.t + NEAR:
        yield Finding(found.where, "sensitive values are farther than t from everybody's")
    if policy.alpha is None or not len(rows):
        return
    values, inside = PrivateValues(population), population.people(rows)
    for j, name in enumerate(population.schema.private):
        if name not in found.entry["released"]:
            continue
        domain, span = population.domains[name], _span(found, name)
        if name in found.exact and domain.attribute.kind == "numeric":
            span = values.close(j, span[0], float(domain.encode_values([found.exact[name]])[1][0]))
        share, everywhere = values.people(j, span, rows) / inside, values.people(j, span) / population.n_people
        if share > policy.alpha and share > policy.min_lift * everywhere:
            yield Finding(found.where, f"more people share what is released of {name} than alpha allows")


def sizes(found: Released, population: Population) -> set[int]:
    """Return how many combinations may have been counted; `CELLS` + 1 stands for all that are more."""
    possible = {1}
    for n, most in _axes(found, population):
        possible = {min(size * m, CELLS + 1) for size in possible for m in {n, most}}
    return possible


def largest(found: Released, population: Population) -> int:
    """Return the most combinations that may have been counted."""
    return prod(most for _, most in _axes(found, population))


def _axes(found: Released, population: Population) -> list[tuple[int, int]]:
    """Return how many values of the table each attribute stands for, and how many there may have been.

    A number of the counterfactual's own that no row has is one more, unless it is released. Entries of a catalogue are
    rows.
    """
    axes = [(int(population.domains[name].inside(part).sum()), name) for name, part in found.region.items()]
    if len(found.exact) < len(population.schema.private):
        axes += [(len(axis), name) for name, axis in found.axes.items()]
    from_rows = found.certificate["guarantee"] == "catalogue"
    numeric = {name for name, domain in population.domains.items() if domain.attribute.kind == "numeric"}
    return [(n, n if from_rows or name in found.exact or name not in numeric else n + 1) for n, name in axes]


def _span(found: Released, name: str) -> tuple[int, int]:
    """Return the codes of what is released of a private attribute; none for a number that no row has."""
    axis = found.axes[name]
    return (int(axis[0]), int(axis[-1]) + 1) if len(axis) and axis[0] >= 0 else (0, 0)


def _may_be_pureness(found: Released, population: Population) -> bool:
    said, possible = found.certificate, sizes(found, population)
    if said["exact"]:
        return any(0 < size <= CELLS and _is_share(said["pureness"], size) for size in possible)
    if max(possible) <= CELLS or not _is_share(said["pureness"], SAMPLES):
        return False
    low, high = clopper_pearson(round(said["pureness"] * SAMPLES), SAMPLES)
    return bool(abs(said["pureness_low"] - low) <= NEAR and abs(said["pureness_high"] - high) <= NEAR)


def _is_share(share: float, of: int) -> bool:
    return bool(abs(share * of - round(share * of)) <= NEAR * of)
