"""Between regions and codes: the smallest region with some codes, and the codes of a region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.schema import Hierarchy
from cfk_plugin.protection.axes import Codes, Floats, Ints


def region_of(population: Population, cells: Codes, own_numbers: Floats | None = None) -> Region:
    """Return the smallest region that holds some combinations.

    Parameters
    ----------
    cells : shape (n, n_quasi_identifiers); a code of -1 stands for the counterfactual's own number
    own_numbers : shape (n_quasi_identifiers,); numbers of the counterfactual, if there is one
    """
    parts: dict[str, Part] = {}
    for j, name in enumerate(population.schema.quasi_identifiers):
        codes = np.unique(cells[:, j])
        own_number = None
        if own_numbers is not None and codes[0] < 0:
            own_number = float(own_numbers[j])
        parts[name] = part_of_codes(population.domains[name], codes[codes >= 0], own_number)
    return Region(parts)


def ends_of_region(population: Population, region: Region) -> list[Codes]:
    """Return, for each quasi-identifier, codes whose smallest region is the given one.

    These are the ends of a range, with "missing" if the range has it, and all codes of a set.
    """
    ends_of_parts = []
    for name in population.schema.quasi_identifiers:
        domain = population.domains[name]
        codes = np.flatnonzero(domain.inside(region[name]))
        ends = codes
        if domain.is_interval:
            is_value = codes < len(domain.values)
            values = codes[is_value]
            ends = np.concatenate([values[:1], values[-1:], codes[~is_value]])
        ends_of_parts.append(np.unique(ends.astype(np.int32)))
    return ends_of_parts


def side_by_side(
    codes_of_regions: Sequence[Sequence[Codes]], no_codes: Codes
) -> tuple[Codes, Ints]:
    """Return codes of several regions in one table, and the region that each line belongs to.

    Parameters
    ----------
    codes_of_regions : for each region, codes of each quasi-identifier; these are repeated to be of
        one length
    no_codes : shape (0, n_quasi_identifiers); the table if there is no region

    Returns
    -------
    table : shape (n_lines, n_quasi_identifiers); all lines of a region together, in the given order
    region_of_line : shape (n_lines,)
    """
    tables = []
    for codes_of_axes in codes_of_regions:
        n_lines = max(map(len, codes_of_axes))
        tables.append(np.column_stack([np.resize(codes, n_lines) for codes in codes_of_axes]))
    n_lines_of_region = [len(table) for table in tables]
    region_of_line = np.repeat(np.arange(len(codes_of_regions)), n_lines_of_region)
    return np.concatenate([no_codes, *tables], dtype=np.int32), region_of_line


def part_of_codes(domain: Domain, codes: Codes, own_number: float | None = None) -> Part:
    """Return the smallest part that covers codes of one attribute.

    If given, it also covers the number `own_number`, which no row of the population has.
    """
    has_missing = bool(domain.has_missing and (codes == domain.missing_code).any())
    present = codes
    if domain.has_missing:
        present = codes[codes != domain.missing_code]
    if domain.attribute.kind == "numeric":
        return _range_of_numbers(domain, present, own_number, has_missing)
    if domain.attribute.kind == "ordinal":
        return _range_of_levels(domain, present, has_missing)
    if domain.attribute.hierarchy is not None:
        return _leaves_of_node(domain, domain.attribute.hierarchy, present, has_missing)
    return frozenset(domain.value(int(code)) for code in codes)


def _is_free(domain: Domain) -> bool:
    """Return True if generalising costs nothing: then a part covers all values.

    The search relies on this.
    """
    return domain.attribute.weight == 0


def _range_of_numbers(
    domain: Domain, present: Codes, own_number: float | None, has_missing: bool
) -> Interval:
    """Return the range from the least to the largest of some codes and the own number."""
    if own_number is None and not len(present):
        return Interval(None, None, has_missing)
    positions = domain.scaled[present]
    if own_number is not None:
        own_position = domain.place(np.array([own_number])) * domain.attribute.weight
        positions = np.append(positions, own_position)
    # The search relies on it that values at the same position are free: with a weight or a range of
    # 0, these are all values.
    first = np.searchsorted(domain.scaled, positions.min())
    end = np.searchsorted(domain.scaled, positions.max(), "right")
    inside = domain.values[first:end]
    numbers = []
    if len(inside):
        numbers = [float(inside[0]), float(inside[-1])]
    if own_number is not None:
        numbers.append(own_number)
    return Interval(domain.natural(min(numbers)), domain.natural(max(numbers)), has_missing)


def _range_of_levels(domain: Domain, present: Codes, has_missing: bool) -> Interval:
    """Return the range of levels of an ordinal attribute that covers some codes."""
    if not len(present):
        return Interval(None, None, True, ())
    low = int(present.min())
    high = int(present.max())
    if _is_free(domain):
        low = 0
        high = len(domain.values) - 1
    levels = tuple(domain.values[low : high + 1])
    return Interval(levels[0], levels[-1], has_missing, levels)


def _leaves_of_node(
    domain: Domain, hierarchy: Hierarchy, present: Codes, has_missing: bool
) -> frozenset[Any]:
    """Return the leaves of the lowest node that covers some codes.

    A missing value is beside the root, so only all values together cover it and another one.
    """
    if _is_free(domain):
        present = np.arange(len(domain.values), dtype=np.int32)
        has_missing = domain.has_missing
    if not len(present):
        return frozenset({None})
    if has_missing:
        return frozenset([*domain.originals, None])
    node = hierarchy.cover([hierarchy.leaves[int(code)] for code in present])
    return frozenset(domain.originals[hierarchy.low[node] : hierarchy.high[node] + 1])
