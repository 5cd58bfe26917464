"""A fixed partition as numbers: how equivalence classes are divided, without a row; and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.nearest_cells import NearestCells
from cfk_plugin.partition import Classes, Partition
from cfk_plugin.protection.merging import GroupHulls
from cfk_plugin.protection.regions import hull, index_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cfk_plugin.population import Population
    from cfk_plugin.region import Region

_SIDES = "partition.sides"


def partition_to_arrays(partition: Partition) -> dict[str, NDArray[Any]]:
    """Return what another process needs to look groups up: for each side its classes, and the people of each part."""
    population = partition.population
    counted = np.zeros(population.n_rows, dtype=np.int64)
    counted[population.counted_rows] = 1
    arrays: dict[str, NDArray[Any]] = {_SIDES: partition.side_of_group}
    for side, classes in partition.divided.items():
        of_part = np.repeat(classes.cell, np.diff(classes.start))
        rows = np.flatnonzero(np.isin(partition.group_of_row, classes.group))
        people = _people_of_parts(
            of_part, classes.group, population.cell_of(rows), partition.group_of_row[rows], counted[rows]
        )
        for name, array in {**classes._asdict(), "people": people}.items():
            if name != "nearest":
                arrays[f"partition.{side}.{name}"] = array
    return arrays


def partition_from_arrays(population: Population, arrays: Mapping[str, NDArray[Any]]) -> Partition | None:
    """Return the partition of `partition_to_arrays` on a population without rows; None where none was sealed."""
    if _SIDES not in arrays:
        return None
    sides = arrays[_SIDES]
    divided: dict[int, Classes] = {}
    group_of_row = np.full(population.n_rows, -1, dtype=np.int64)
    next_row = np.concatenate([[0], np.cumsum(population.cell_people)[:-1]])
    for side in np.unique(sides).tolist():
        cell, start, group, last, people = (
            arrays[f"partition.{side}.{name}"] for name in ("cell", "start", "group", "last", "people")
        )
        divided[side] = Classes(NearestCells(population, population.cells[cell]), cell, start, group, last)
        for at, number, to in zip(
            np.repeat(cell, np.diff(start)).tolist(), people.tolist(), group.tolist(), strict=True
        ):
            group_of_row[next_row[at] : next_row[at] + number] = to
            next_row[at] += number
    return Partition(population, _regions(population, divided, len(sides)), group_of_row, sides, divided)


def coarser(partition: Partition, k: int) -> Partition:
    """Return a partition into groups of at least k people whose groups are unions of the given ones.

    Distinct values of a union are no fewer than a group's, and its distance from everybody is no larger than the
    largest of its groups: l and t hold as they did. Regions only grow: whoever sees a record with both its regions has
    the smaller one, and no more than that.
    """
    population = partition.population
    count = len(partition.regions)
    members = _cells_of_groups(partition.divided, count)
    people = np.bincount(partition.group_of_row[partition.group_of_row >= 0], minlength=count)
    hulls = GroupHulls(index_of(population).axes, population.cells, members, people)
    hulls.merge_while(lambda group, _: bool(hulls.people[group] < k), partition.side_of_group)
    kept, into = np.unique(hulls.into, return_inverse=True)
    enough = hulls.people[kept] >= k
    number = np.where(enough, np.cumsum(enough) - 1, -1)[into]
    divided = {side: c._replace(group=number[c.group]) for side, c in partition.divided.items()}
    group_of_row = np.where(partition.group_of_row >= 0, number[partition.group_of_row], -1)
    sides = partition.side_of_group[kept][enough]
    return Partition(population, _regions(population, divided, len(sides)), group_of_row, sides, divided)


def _people_of_parts(
    of_part: NDArray[np.int64],
    group: NDArray[np.int64],
    cell_of_row: NDArray[np.int64],
    group_of_row: NDArray[np.int64],
    counted: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the people of each part; where a class has two parts of one group, the first has those of both."""
    span = int(group.max()) + 1
    keys, first = np.unique(of_part * span + group, return_index=True)
    people = np.zeros(len(group), dtype=np.int64)
    at = first[np.searchsorted(keys, cell_of_row * span + group_of_row)]
    np.add.at(people, at, counted)
    return people


def _cells_of_groups(divided: Mapping[int, Classes], count: int) -> list[NDArray[np.int64]]:
    cells = np.concatenate([np.repeat(c.cell, np.diff(c.start)) for c in divided.values()])
    group = np.concatenate([c.group for c in divided.values()])
    order = np.argsort(group[group >= 0], kind="stable")
    cells, group = cells[group >= 0][order], group[group >= 0][order]
    parts = np.split(cells, np.searchsorted(group, np.arange(1, count)))
    return [np.unique(part) for part in parts]


def _regions(population: Population, divided: Mapping[int, Classes], count: int) -> tuple[Region, ...]:
    codes = [population.cells[cells] for cells in _cells_of_groups(divided, count)] if count else []
    return tuple(hull(population, c[0], np.zeros(c.shape[1]), c) for c in codes)
