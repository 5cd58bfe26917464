"""Boxes around a counterfactual, as local searches change them: a mask per quasi-identifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.region import Region
from cfk_plugin.hookspecs import ProtectionRequest
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.regions import part_of_codes

Box: TypeAlias = list[Mask]
"""For each quasi-identifier, a mask of shape (n_codes + 1,) of the codes inside.

The last place stands for the counterfactual's own number, if the population does not have it.
"""


class BoxSpace:
    """All boxes around one counterfactual: people inside, their cost, small changes.

    Attributes
    ----------
    cells : shape (n_classes, n_quasi_identifiers); codes of each equivalence class
    people : shape (n_classes,)
    own_codes : for each quasi-identifier, the counterfactual's place in a mask
    """

    def __init__(self, request: ProtectionRequest, i: int) -> None:
        population = request.population
        names = population.schema.quasi_identifiers
        self.domains = [population.domains[name] for name in names]
        self.cells = population.cells
        self.people = population.cell_people
        self._numbers = request.numbers[i]
        self.own_codes = [
            int(code) if code >= 0 else domain.size
            for code, domain in zip(request.codes[i], self.domains, strict=True)
        ]
        self._positions = [self._positions_of_codes(j) for j in range(len(self.domains))]

    def point(self) -> Box:
        """Return the box of the counterfactual alone."""
        box = [np.zeros(domain.size + 1, dtype=bool) for domain in self.domains]
        for mask, code in zip(box, self.own_codes, strict=True):
            mask[code] = True
        return box

    def box_of(self, region: Region) -> Box:
        """Return the box of the counterfactual and all values of a region."""
        box = self.point()
        for domain, mask in zip(self.domains, box, strict=True):
            mask[: domain.size] |= domain.inside(region[domain.attribute.name])
        return box

    def region(self, box: Box) -> Region:
        """Return the smallest region that holds a box."""
        parts = {}
        for j, (domain, mask) in enumerate(zip(self.domains, box, strict=True)):
            own_number = float(self._numbers[j]) if mask[domain.size] else None
            codes = np.flatnonzero(mask[: domain.size]).astype(np.int32)
            parts[domain.attribute.name] = part_of_codes(domain, codes, own_number)
        return Region(parts)

    def join(self, j: int, mask: Mask, code: int) -> Mask:
        """Return a part with one more value: a range is filled, a set grows to a hierarchy node."""
        domain = self.domains[j]
        joined = mask.copy()
        joined[code] = True
        if domain.is_interval:
            low, high = self._span(j, joined)
            positions = self._positions[j][: len(domain.values)]
            joined[: len(positions)] = (positions >= low) & (positions <= high)
        elif domain.attribute.hierarchy is not None:
            codes = np.flatnonzero(joined[: domain.size]).astype(np.int32)
            joined[: domain.size] = domain.inside(part_of_codes(domain, codes))
        return joined

    def distances(self, box: Box) -> Floats:
        """Return the HEOM distance of every class to a box, shape (n_classes,); 0 inside."""
        total = np.zeros(len(self.cells))
        for j, domain in enumerate(self.domains):
            distance_of_code = (~box[j][: domain.size]).astype(float)
            if domain.is_interval:
                low, high = self._span(j, box[j])
                positions = self._positions[j][: len(domain.values)]
                if low <= high:
                    outside = np.maximum(low - positions, positions - high)
                    distance_of_code[: len(positions)] = np.maximum(0, outside)
            total += distance_of_code[self.cells[:, j]]
        return total

    def count(self, box: Box) -> int:
        """Return the number of people in a box."""
        is_inside = np.ones(len(self.cells), dtype=bool)
        for j, mask in enumerate(box):
            is_inside &= mask[self.cells[:, j]]
        return int(self.people[is_inside].sum())

    def ncp(self, box: Box) -> float:
        """Return the NCP of a box; as in `metrics.ncp`, but for masks."""
        total = 0.0
        for j, (domain, mask) in enumerate(zip(self.domains, box, strict=True)):
            if domain.is_interval:
                low, high = self._span(j, mask)
                share = max(high - low, 0.0)
                if low <= high and domain.has_missing and mask[domain.missing_code]:
                    share = 1.0
            else:
                n_values = int(mask.sum())
                share = n_values / domain.size if n_values > 1 else 0.0
            total += domain.attribute.weight * min(share, 1.0)
        return total

    def small_changes(self, box: Box) -> Iterator[Box]:
        """Yield boxes with a value added to a single value, or removed from a list."""
        for j in range(len(self.domains)):
            codes = np.flatnonzero(box[j])
            if len(codes) == 1:
                for code in self._addable(j, int(codes[0])):
                    yield [*box[:j], self.join(j, box[j], code), *box[j + 1 :]]
                continue
            for code in self._removable(j, codes):
                if code != self.own_codes[j]:
                    mask = box[j].copy()
                    mask[code] = False
                    yield [*box[:j], mask, *box[j + 1 :]]

    def _removable(self, j: int, codes: Ints) -> list[int]:
        """Return the codes that may be removed from a list of several.

        These are the ends of a range and its missing value, any category, and no leaf of a node.
        """
        domain = self.domains[j]
        if domain.attribute.hierarchy is not None:
            return []
        if not domain.is_interval:
            return [int(code) for code in codes]
        positions = self._positions[j][codes]
        is_missing = np.isnan(positions)
        if is_missing.all():
            return []
        lowest = int(codes[np.nanargmin(positions)])
        highest = int(codes[np.nanargmax(positions)])
        return sorted({lowest, highest, *codes[is_missing].tolist()})

    def _addable(self, j: int, single: int) -> list[int]:
        """Return the codes that may be added to one: its neighbours, or any other category."""
        domain = self.domains[j]
        if not domain.is_interval:
            return [code for code in range(domain.size) if code != single]
        positions = self._positions[j][: len(domain.values)]
        lower_codes = np.flatnonzero(positions < self._positions[j][single])
        higher_codes = np.flatnonzero(positions > self._positions[j][single])
        return [*lower_codes[-1:].tolist(), *higher_codes[:1].tolist()]

    def _span(self, j: int, mask: Mask) -> tuple[float, float]:
        """Return the first and last position inside; inf and -inf if there is none."""
        positions = self._positions[j][mask]
        numbers = positions[~np.isnan(positions)]
        if len(numbers) == 0:
            return np.inf, -np.inf
        return float(numbers.min()), float(numbers.max())

    def _positions_of_codes(self, j: int) -> Floats:
        """Return the position of every code, shape (n_codes + 1,).

        NaN for "missing" and for categories. The counterfactual's own number is last.
        """
        domain = self.domains[j]
        positions = np.full(domain.size + 1, np.nan)
        if domain.is_interval:
            positions[: len(domain.values)] = domain.positions
            if self.own_codes[j] == domain.size:
                positions[-1] = domain.place(self._numbers[j : j + 1])[0]
        return positions
