"""Boxes: regions as tables of codes, for searches that change a region step by step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.base import Task
from cfk_plugin.protection.regions import part_of
from cfk_plugin.region import Region

Box = list[NDArray[np.bool_]]
"""Per quasi-identifier which codes are inside; one more place at the end for the counterfactual's own value."""


class BoxSpace:
    """All boxes around one counterfactual: counting them, pricing them, changing them a little.

    Parameters
    ----------
    task : Task
    i : int
        Which counterfactual.
    """

    def __init__(self, task: Task, i: int) -> None:
        population = task.population
        self.domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.cells, self.people = population.cells, population.cell_people
        self.numbers = task.numbers[i]
        self.own = [int(c) if c >= 0 else d.size for c, d in zip(task.codes[i], self.domains, strict=True)]
        self.places = [self._places(j) for j in range(len(self.domains))]

    def point(self) -> Box:
        """Return the box that holds the counterfactual alone."""
        box = [np.zeros(domain.size + 1, dtype=bool) for domain in self.domains]
        for table, code in zip(box, self.own, strict=True):
            table[code] = True
        return box

    def of(self, region: Region) -> Box:
        """Return a region as a box."""
        box = self.point()
        for domain, table in zip(self.domains, box, strict=True):
            table[: domain.size] |= domain.inside(region[domain.attribute.name])
        return box

    def join(self, j: int, table: NDArray[np.bool_], code: int) -> NDArray[np.bool_]:
        """Return a part that holds one more value: a range is filled, a node is closed."""
        domain, joined = self.domains[j], table.copy()
        joined[code] = True
        if domain.is_interval:
            n = len(domain.values)
            on_line = np.flatnonzero(joined)
            on_line = on_line[(on_line < n) | (on_line == domain.size)]
            if len(on_line):
                low, high = self.places[j][on_line].min(), self.places[j][on_line].max()
                joined[:n] = (self.places[j][:n] >= low) & (self.places[j][:n] <= high)
        elif domain.attribute.hierarchy is not None:
            inside = np.flatnonzero(joined[: domain.size]).astype(np.int32)
            joined[: domain.size] = domain.inside(part_of(domain, inside))
        return joined

    def distances(self, box: Box) -> NDArray[np.float64]:
        """HEOM distance of every cell to the box, 0 inside."""
        total = np.zeros(len(self.cells))
        for j, domain in enumerate(self.domains):
            gap = (~box[j][: domain.size]).astype(float)
            if domain.is_interval:
                line = self.places[j][: len(domain.values)]
                held = self.places[j][np.flatnonzero(box[j])]
                held = held[~np.isnan(held)]
                if len(held):
                    gap[: len(line)] = np.maximum(0, np.maximum(held.min() - line, line - held.max()))
            total += gap[self.cells[:, j]]
        return total

    def count(self, box: Box) -> int:
        """People inside a box."""
        inside = np.ones(len(self.cells), dtype=bool)
        for j, table in enumerate(box):
            inside &= table[self.cells[:, j]]
        return int(self.people[inside].sum())

    def changes(self, box: Box) -> Iterator[Box]:
        """Yield boxes with a value added to a single value, or removed from a list."""
        for j in range(len(self.domains)):
            inside = np.flatnonzero(box[j])
            if len(inside) == 1:
                for code in self._addable(j, int(inside[0])):
                    yield [*box[:j], self.join(j, box[j], code), *box[j + 1 :]]
                continue
            for code in self._removable(j, inside):
                if code != self.own[j]:
                    table = box[j].copy()
                    table[code] = False
                    yield [*box[:j], table, *box[j + 1 :]]

    def _removable(self, j: int, inside: NDArray[np.int64]) -> list[int]:
        """Codes that may leave a list: the ends of a range, any category, none of a node's leaves."""
        domain = self.domains[j]
        if domain.attribute.hierarchy is not None:
            return []
        if not domain.is_interval:
            return [int(code) for code in inside]
        line = inside[~np.isnan(self.places[j][inside])]
        if not len(line):
            return []
        places = self.places[j][line]
        ends = {int(line[places.argmin()]), int(line[places.argmax()])}
        return sorted(ends | {int(code) for code in inside if code == domain.missing_code})

    def _addable(self, j: int, single: int) -> list[int]:
        domain = self.domains[j]
        if not domain.is_interval:
            return [code for code in range(domain.size) if code != single]
        places = self.places[j][: len(domain.values)]
        below = np.flatnonzero(places < self.places[j][single])
        above = np.flatnonzero(places > self.places[j][single])
        return [*below[-1:].tolist(), *above[:1].tolist()]

    def ncp(self, box: Box) -> float:
        """NCP of a box (paper, equations 1 to 3)."""
        total = 0.0
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            if domain.is_interval:
                held = self.places[j][table]
                share = float(np.nanmax(held) - np.nanmin(held)) if not np.isnan(held).all() else 0.0
                if np.isnan(held).any() and not np.isnan(held).all():
                    share = 1.0
            else:
                size = int(table.sum())
                share = size / domain.size if size > 1 else 0.0
            total += domain.attribute.weight * min(share, 1.0)
        return total

    def region(self, box: Box) -> Region:
        """Turn a box into a region."""
        parts = {}
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            own = float(self.numbers[j]) if table[domain.size] else None
            codes = np.flatnonzero(table[: domain.size]).astype(np.int32)
            parts[domain.attribute.name] = part_of(domain, codes, own)
        return Region(parts)

    def _places(self, j: int) -> NDArray[np.float64]:
        """Place of every code on its line, NaN for missing, the own value last."""
        domain = self.domains[j]
        places = np.full(domain.size + 1, np.nan)
        if domain.is_interval:
            places[: len(domain.values)] = domain.positions
            if self.own[j] == domain.size:
                places[-1] = domain.place(self.numbers[j : j + 1])[0]
        return places
