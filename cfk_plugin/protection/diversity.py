"""l-diversity and t-closeness of groups, which limit what they disclose of sensitive columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.codes import MISSING, Codes, Floats, Ints, Mask
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.regions import box_ncp


@dataclass(frozen=True, eq=False, repr=False)
class Diversity(HostOnly):
    """The conditions for the sensitive values of a group.

    Attributes
    ----------
    sensitive : list of arrays, shape (n_people,) each
        For each sensitive column, the values of the people in groups.
    all_values : list of arrays, shape (n_rows,) each
        For each sensitive column, the values of all rows.
    are_lines : list of bool
        For each sensitive column, whether it is ordered.
    l : int, optional
        The least number of distinct values.
    t : float, optional
        The largest distance (`t_closeness`) from the distribution of all rows.
    """

    sensitive: list[Floats]
    all_values: list[Floats]
    are_lines: list[bool]
    l: int | None  # noqa: E741 - its name in the literature
    t: float | None

    @classmethod
    def of(
        cls,
        codes: Codes,
        rows: Floats,
        people: Ints,
        l: int | None,  # noqa: E741 - its name in the literature
        t: float | None,
    ) -> Diversity:
        """Read the sensitive columns of a table; `people` are positions of rows, (n_people,)."""
        positions = [
            j for j, column in enumerate(codes.columns) if column.attribute.role == "sensitive"
        ]
        return cls(
            sensitive=[rows[people, j] for j in positions],
            all_values=[rows[:, j] for j in positions],
            are_lines=[codes.columns[j].is_line for j in positions],
            l=l,
            t=t,
        )

    @property
    def is_trivial(self) -> bool:
        """Whether every group satisfies the conditions."""
        return (self.l is None and self.t is None) or not self.sensitive

    def has_group(self, is_member: Mask) -> bool:
        """Return whether a group is diverse; `is_member` is a mask of shape (n_people,)."""
        columns = zip(self.sensitive, self.all_values, self.are_lines, strict=True)
        for values, all_values, is_line in columns:
            inside = values[is_member]
            if self.l is not None and len(np.unique(inside)) < self.l:
                return False
            if self.t is not None and t_closeness(inside, all_values, is_line=is_line) > self.t:
                return False
        return True


def merge(group: Ints, points: Floats, caps: Floats, diversity: Diversity) -> Ints | None:
    """Merge each group that is not diverse with the nearest groups.

    Parameters
    ----------
    group : shape (n_people,)
    points : shape (n_people, n_dimensions)
        Coordinates in which NCP is the sum of the sides of a box.
    caps : shape (n_dimensions,)
    diversity : Diversity

    Returns
    -------
    array, shape (n_people,), or None
        The new group of each person; None if all people together are not diverse.
    """
    merged = group.copy()
    for number in range(int(group.max()) + 1):
        while (merged == number).any() and not diversity.has_group(merged == number):
            if (merged == number).all():
                return None
            merged[merged == _nearest(merged, number, points, caps)] = number
    return np.unique(merged, return_inverse=True)[1].reshape(-1)


def _nearest(group: Ints, number: int, points: Floats, caps: Floats) -> int:
    """Return the group whose union with group `number` has the region of least NCP."""
    numbers = np.unique(group)
    numbers = numbers[numbers != number]
    low = np.array([points[group == other].min(axis=0) for other in numbers])
    high = np.array([points[group == other].max(axis=0) for other in numbers])
    members = points[group == number]
    low = np.minimum(low, members.min(axis=0))
    high = np.maximum(high, members.max(axis=0))
    return int(numbers[box_ncp(low, high, caps).argmin()])


def t_closeness(values: Floats, all_values: Floats, *, is_line: bool) -> float:
    """Return the earth mover's distance between two distributions of a column's codes.

    All categories have the same distance. The distance of numbers, dates and levels is that of
    their ranks. The surplus of missing values is moved first, which gives an upper bound. Source:
    Li, Li, Venkatasubramanian (2007), t-Closeness.

    Parameters
    ----------
    values : shape (n,)
        The values of a group, at least one.
    all_values : shape (n_all,)
        The values of all rows.
    is_line : bool
    """
    distinct = np.unique(np.concatenate([values, all_values]))
    inside = _shares(values, distinct)
    overall = _shares(all_values, distinct)
    if not is_line:
        return float(np.abs(inside - overall).sum() / 2)
    surplus = 0.0
    mass = 1.0
    if distinct[0] == MISSING:
        mass_inside = float(1 - inside[0])
        mass_overall = float(1 - overall[0])
        surplus = abs(mass_inside - mass_overall)
        mass = min(mass_inside, mass_overall)
        if mass <= 0:
            return surplus
        inside = inside[1:] / mass_inside
        overall = overall[1:] / mass_overall
    n_steps = max(len(inside) - 1, 1)
    return surplus + mass * float(np.abs(np.cumsum(inside - overall)).sum()) / n_steps


def _shares(values: Floats, distinct: Floats) -> Floats:
    """Return the share of each distinct value, shape (n_distinct,)."""
    counts = np.bincount(np.searchsorted(distinct, values), minlength=len(distinct))
    return np.asarray(counts / len(values))
