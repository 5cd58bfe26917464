"""Between values and codes: what compiled search needs of a population, and regions from what it returns."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.domain import Domain
from cfk_plugin.hierarchy import Hierarchy
from cfk_plugin.population import Population
from cfk_plugin.protection._axes import Axes, Axis
from cfk_plugin.protection._index import CellIndex
from cfk_plugin.region import Interval, Part, Region

Codes = NDArray[np.int32]
_INDEXES: WeakKeyDictionary[Population, CellIndex] = WeakKeyDictionary()


def index_of(population: Population) -> CellIndex:
    """Return the spatial index over the population's cells; built once per population."""
    if population not in _INDEXES:
        axes = Axes.build([_axis(population.domains[q]) for q in population.schema.quasi_identifiers])
        _INDEXES[population] = CellIndex.build(population.cells, population.cell_people, axes)
    return _INDEXES[population]


def anchor_positions(population: Population, codes: Codes, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where counterfactuals stand on the scaled line of each range attribute, off-grid ones included."""
    positions = np.zeros(codes.shape)
    for j, name in enumerate(population.schema.quasi_identifiers):
        domain = population.domains[name]
        if not domain.is_interval:
            continue
        on_grid = (codes[:, j] >= 0) & (codes[:, j] != domain.missing_code)
        positions[on_grid, j] = domain.positions[codes[on_grid, j]]
        off_grid = codes[:, j] < 0
        if off_grid.any():  # numbers only: a level that the population does not have is no level
            positions[off_grid, j] = domain.place(numbers[off_grid, j])
        positions[:, j] *= domain.attribute.weight
    return positions


def hull(population: Population, anchor: Codes, numbers: NDArray[np.float64], cells: Codes) -> Region:
    """Return the smallest region that holds a counterfactual and some cells.

    Parameters
    ----------
    population : Population
    anchor : int32 array, shape (n_quasi_identifiers,)
        Codes of the counterfactual, -1 off the grid.
    numbers : float64 array, shape (n_quasi_identifiers,)
        Its numbers.
    cells : int32 array, shape (n, n_quasi_identifiers)
        Codes of the cells.
    """
    parts: dict[str, Part] = {}
    for j, name in enumerate(population.schema.quasi_identifiers):
        inside = np.append(cells[:, j], anchor[j]) if anchor[j] >= 0 else cells[:, j]
        own = None if anchor[j] >= 0 else float(numbers[j])
        parts[name] = part_of(population.domains[name], np.unique(inside), own)
    return Region(parts)


def part_of(domain: Domain, codes: Codes, own: float | None = None) -> Part:
    """Return the part of a region that covers codes of one attribute and, off the grid, an own number."""
    missing = bool(domain.has_missing and (codes == domain.missing_code).any())
    present = codes[codes != domain.missing_code] if domain.has_missing else codes
    if domain.attribute.kind == "numeric":
        return _range(domain, present, own, missing)
    free = domain.attribute.weight == 0  # generalising costs nothing here, and the search counts on it
    if domain.attribute.kind == "ordinal":
        if not len(present):
            return Interval(None, None, True, ())
        low, high = (0, len(domain.values) - 1) if free else (int(present.min()), int(present.max()))
        levels = tuple(domain.values[low : high + 1])
        return Interval(levels[0], levels[-1], missing, levels)
    if domain.attribute.hierarchy is not None:
        if free:
            present, missing = np.arange(len(domain.values)), domain.has_missing
        return _node(domain, domain.attribute.hierarchy, present, missing)
    return frozenset(domain.value(int(code)) for code in codes)


def _range(domain: Domain, present: Codes, own: float | None, missing: bool) -> Interval:
    if own is None and not len(present):
        return Interval(None, None, True)
    places = domain.scaled[present]
    if own is not None:
        places = np.append(places, domain.place(np.array([own])) * domain.attribute.weight)
    # Whatever is at the same place costs nothing, and the search counts on it: all, where the weight or the range is 0.
    first, last = np.searchsorted(domain.scaled, places.min()), np.searchsorted(domain.scaled, places.max(), "right")
    inside = domain.values[first:last]
    ends = [*map(float, inside[[0, -1]] if len(inside) else ()), *(() if own is None else (own,))]
    return Interval(domain.natural(min(ends)), domain.natural(max(ends)), missing)


def _node(domain: Domain, hierarchy: Hierarchy, present: Codes, missing: bool) -> frozenset[Any]:
    if not len(present):
        return frozenset({None})
    if missing:  # a missing value stands beside the root, so that both together are everything
        return frozenset([*domain.originals, None])
    node = hierarchy.cover([hierarchy.leaves[int(code)] for code in present])
    return frozenset(domain.originals[hierarchy.low[node] : hierarchy.high[node] + 1])


def _axis(domain: Domain) -> Axis:
    attribute = domain.attribute
    if domain.is_interval:
        return Axis.interval(domain.scaled, attribute.weight, missing=domain.has_missing)
    if attribute.hierarchy is None:
        return Axis.nominal(domain.size, attribute.weight)
    tree = attribute.hierarchy
    low, high, parent = tree.low, tree.high, tree.parent
    if domain.has_missing:  # one more leaf, under a root above the declared one
        last, root = len(tree.leaves), len(low)
        above = np.where(parent < 0, root, parent)
        low = np.append(low, [0, last])
        high = np.append(high, [last, last])
        parent = np.append(above, [-1, root])
    return Axis.tree(low, high, parent, attribute.weight)
