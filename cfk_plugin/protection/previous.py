"""The previous catalogue, and the parts of it that stay when data or model change.

An attacker who compares two catalogues could exclude people who left, or infer the values of
someone who joined. So a catalogue that follows another one obeys these rules:

* A region stays with its bounds as long as at least k of its *first members* are still in the
  table, inside it, and have the outcome under today's model. First members are the people for whom
  the region was made. A person who was missing once does not count again, so the same k people or
  more are always behind a region. Otherwise the region is dropped, with all its entries.
* Newcomers form groups among themselves. A newcomer has the outcome and was never a first member.
  First members of a dropped region form no new group.
* A new region that equals one of the previous catalogue would seem to have stayed. It is widened.
* New private values come only from newcomers, at least 2k of them (`values.LEAST_CROWD`). Either
  at least k newcomers have a new value, or no one has it. The same is true of new combinations.
* Private values of the previous catalogue stay, regardless of who has them today. If a value were
  dropped when one person got it, an attacker would recognise the person.

Keyed digests of subjects (`Handles`) recognise people. Handles of first members are never deleted,
so people who come back are not newcomers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import (
    MISSING,
    Codes,
    Column,
    Floats,
    Ints,
    Mask,
    least_row_each,
)
from cfk_plugin.data.population import Handles
from cfk_plugin.errors import HostOnly, PolicyError
from cfk_plugin.protection.entries import Entries
from cfk_plugin.protection.regions import Regions
from cfk_plugin.protection.values import SharedValues

_GONE = -1  # the region of first members whose region was dropped
_NEARLY_ALL = 0.9  # the share of regions that would have stayed with `Changes.slack`

Numbers = NDArray[np.uint64]


class Changes(NamedTuple):
    """The differences between a catalogue and the previous one.

    Attributes
    ----------
    kept, dropped, new : int
        The numbers of entries in both catalogues, only in the previous one, and only in this one.
    in_no_group : int
        The number of people with the outcome who are in no group: first members of dropped regions,
        and newcomers if they are too few.
    slack : float
        The number of people above k in each group with which nine in ten regions would have stayed,
        if people left at the same rate; inf if no number is enough.
    """

    kept: int
    dropped: int
    new: int
    in_no_group: int
    slack: float

    @classmethod
    def total(cls, changes: Iterable[Changes]) -> Changes:
        """Return the sum over outcomes, and the largest slack."""
        kept, dropped, new, in_no_group, slack = zip(*changes, strict=True)
        return cls(sum(kept), sum(dropped), sum(new), sum(in_no_group), max(slack))


@dataclass(frozen=True, eq=False, repr=False)
class FirstMembers(HostOnly):
    """All people for whom a region was made, in this catalogue or an earlier one.

    Attributes
    ----------
    handles : shape (n_people,), in order
    region : shape (n_people,)
        The number of each person's region; -1 if the region was dropped, if the person left, or if
        the region belongs to another outcome.
    of_key : uint64
        See `Handles`.
    """

    handles: Numbers
    region: Ints
    of_key: np.uint64

    @classmethod
    def of(cls, handles: Numbers, region: Ints, of_key: np.uint64) -> FirstMembers:
        """Return first members in the order of their handles; the first of duplicates counts."""
        distinct, first = np.unique(handles, return_index=True)
        return cls(distinct, region[first], of_key)

    def with_others(self, handles: Numbers) -> FirstMembers:
        """Return these people, and others without a region."""
        no_region = np.full(len(handles), _GONE)
        return FirstMembers.of(
            np.append(self.handles, handles), np.append(self.region, no_region), self.of_key
        )

    @property
    def n_people(self) -> Ints:
        """The number of first members of each region, shape (n_regions,)."""
        return np.bincount(self.region[self.region != _GONE])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays from which `read` makes the same first members."""
        return {"first": np.append(self.handles, self.of_key), "first.region": self.region}

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> FirstMembers | None:
        """Return the first members from the arrays of a catalogue; None if it has none."""
        if "first" not in arrays:
            return None
        return cls(arrays["first"][:-1], arrays["first.region"], arrays["first"][-1])

    def region_of(self, handles: Numbers) -> tuple[Mask, Ints]:
        """Return which people are first members, and their regions, shape (n_people,) each.

        The region is -1 if a person has none.
        """
        place = np.searchsorted(self.handles, handles).clip(max=len(self.handles) - 1)
        is_among = self.handles[place] == handles
        return is_among, np.where(is_among, self.region[place], _GONE)


@dataclass(frozen=True, eq=False, repr=False)
class Previous(HostOnly):
    """The previous catalogue of an outcome, in the codes of today's table.

    Regions, centres and shared values without a code in today's table are left out. Their entries
    stay in the arrays, with the region -1 or with NaN, and count as dropped.

    Attributes
    ----------
    first : FirstMembers
    corners : shape (n_corners, n_quasi)
        Combinations whose hulls are the regions.
    region_of_corner : shape (n_corners,)
    region_of_entry : shape (n_entries,)
    values : shape (n_entries, n_private)
    centres : shape (n_centres, n_private)
    offered : set of bytes
        The centres that were offered to regions. They are offered again, before others. Otherwise
        an entry could be dropped only because there are other regions or centres.
    shared : list of arrays, shape (n_values,) each
        The shared values of each private column.
    spans : list of float
        The span of each private column.
    margin : float
    """

    first: FirstMembers
    corners: Floats
    region_of_corner: Ints
    region_of_entry: Ints
    values: Floats
    centres: Floats
    offered: frozenset[bytes]
    shared: list[Floats]
    spans: list[float]
    margin: float

    @classmethod
    def of(
        cls,
        codes_then: Codes,
        arrays: Mapping[str, NDArray[Any]],
        margin: float,
        codes: Codes,
        handles: Handles,
    ) -> Previous:
        """Translate the arrays of a catalogue (`Catalogue.lasting`) into the codes of a table.

        Raises
        ------
        PolicyError
            If they have no handles, or handles of another key.
        """
        first = FirstMembers.read(arrays)
        if first is None:
            raise PolicyError(_NO_HANDLES)
        if first.of_key != handles.of_key:
            raise PolicyError(
                "the previous catalogue was made with another key; set CFK_KEY to that key"
            )
        quasi = _column_pairs(codes_then, codes_then.quasi, codes, codes.quasi)
        private = _column_pairs(codes_then, codes_then.private, codes, codes.private)
        region_of_corner = arrays["region_of_corner"]
        corners = _translated(quasi, arrays["corners"])
        without_code = region_of_corner[np.isnan(corners).any(axis=1)]
        has_codes = ~np.isin(region_of_corner, without_code)
        numbers = np.unique(region_of_corner[has_codes])
        number_of = np.full(region_of_corner.max(initial=0) + 2, _GONE)  # the last is for _GONE
        number_of[numbers] = np.arange(len(numbers))
        values = _translated(private, arrays["entries.values"])
        centres = _translated(private, arrays["centres"])
        shared = []
        for i, (then, now) in enumerate(private):
            codes_of_column = _translated([(then, now)], arrays[f"shared.{i}"][:-1, None])[:, 0]
            shared.append(np.unique(codes_of_column[~np.isnan(codes_of_column)]))
        return cls(
            replace(first, region=number_of[first.region]),
            corners[has_codes],
            number_of[region_of_corner[has_codes]],
            number_of[arrays["entries.region"]],
            values,
            centres[~np.isnan(centres).any(axis=1)],
            frozenset(row.tobytes() for row in centres[arrays["centres.was_offered"]]),
            shared,
            [float(arrays[f"shared.{i}"][-1]) for i in range(len(private))],
            margin,
        )

    @classmethod
    def nothing(cls, codes: Codes, first: FirstMembers) -> Previous:
        """Return the previous catalogue of an outcome that had none."""
        no_regions = np.empty(0, dtype=np.int64)
        n_private = len(codes.private)
        no_values = np.empty((0, n_private))
        return cls(
            first=first,
            corners=np.empty((0, len(codes.quasi))),
            region_of_corner=no_regions,
            region_of_entry=no_regions,
            values=no_values,
            centres=no_values,
            offered=frozenset(),
            shared=[np.empty(0)] * n_private,
            spans=[0.0] * n_private,
            margin=inf,
        )

    def stayed(
        self,
        rows: Floats,
        person: Ints,
        sure: Ints,
        handles: Numbers,
        k: int,
        codes: Codes,
        is_diverse: Callable[[Ints], bool],
    ) -> Stayed:
        """Return the regions that stay in today's table, and the newcomers there.

        Parameters
        ----------
        rows : shape (n_rows, n_features)
        person : shape (n_rows,)
            The number of each row's person.
        sure : shape (n_sure,)
            The positions of the rows with the outcome.
        handles : shape (n_rows,)
        k : int
        codes : Codes
        is_diverse : callable
            Takes positions of one row of each person, and returns whether these people satisfy l
            and t.
        """
        corners = codes.rows_of(self.corners, np.full(len(codes.private), MISSING))
        regions = Regions.of_groups(codes, corners, self.region_of_corner)
        is_first, region_of_row = self.first.region_of(handles[sure])
        members = []
        order = np.argsort(region_of_row, kind="stable")
        start = np.searchsorted(region_of_row[order], np.arange(len(regions) + 1))
        for region in range(len(regions)):
            candidates = sure[order[start[region] : start[region + 1]]]
            inside = candidates[regions.contains(rows[candidates], region)]
            members.append(least_row_each(person, inside, rows))
        is_kept = [len(people) >= k and is_diverse(people) for people in members]
        n_members = np.array([len(people) for people in members])
        return Stayed(
            newcomers=least_row_each(person, sure[~is_first], rows),
            regions=regions,
            corners=corners,
            region_of_corner=self.region_of_corner,
            is_kept=np.array(is_kept, dtype=bool),
            members=list(compress(members, is_kept)),
            slack=_slack(self.first.n_people, n_members, k),
        )

    def was_offered(self, centres: Floats) -> Mask:
        """Return which centres, shape (n_centres, n_private), were offered; shape (n_centres,)."""
        return np.array([row.tobytes() in self.offered for row in centres], dtype=bool)

    def joined(self, shared: Sequence[SharedValues]) -> list[SharedValues]:
        """Return the shared values of each private column, joined with further ones."""
        return [
            SharedValues(new.column, np.union1d(values, new.values), span or new.span)
            for values, span, new in zip(self.shared, self.spans, shared, strict=True)
        ]

    def changes(
        self, region_now: Ints, entries: Entries, in_no_group: int, slack: float
    ) -> Changes:
        """Compare entries with the previous ones; see `Changes`.

        `region_now`, shape (n_regions,), is today's number of each previous region; -1 if it was
        dropped.
        """
        then = _pairs(np.append(region_now, _GONE)[self.region_of_entry], self.values)
        now = _pairs(entries.region, entries.values)
        n_kept = len(then & now)
        return Changes(n_kept, len(self.values) - n_kept, len(now) - n_kept, in_no_group, slack)


@dataclass(frozen=True, eq=False, repr=False)
class PreviousOutcomes(HostOnly):
    """The previous catalogues of all outcomes.

    Attributes
    ----------
    by_label : mapping of label to Previous
        The label is None for a named outcome.
    nothing : Previous
        For an outcome that had no catalogue.
    """

    by_label: Mapping[Any, Previous]
    nothing: Previous

    @classmethod
    def of(
        cls,
        codes_then: Codes,
        parts: Sequence[tuple[Any, float, Mapping[str, NDArray[Any]]]],
        codes: Codes,
        handles: Handles,
    ) -> PreviousOutcomes:
        """Return the catalogues from their labels, margins and arrays; see `Previous.of`.

        The first members of one outcome are not newcomers for any other outcome.
        """
        by_label = {
            label: Previous.of(codes_then, arrays, margin, codes, handles)
            for label, margin, arrays in parts
        }
        all_handles = np.concatenate([previous.first.handles for previous in by_label.values()])
        by_label = {
            label: replace(previous, first=previous.first.with_others(all_handles))
            for label, previous in by_label.items()
        }
        no_one = FirstMembers(all_handles[:0], np.empty(0, dtype=np.int64), handles.of_key)
        return cls(by_label, Previous.nothing(codes, no_one.with_others(all_handles)))

    def of_label(self, label: Any) -> Previous:
        return self.by_label.get(label, self.nothing)

    def changes(self, changes_of_label: Mapping[Any, Changes]) -> Changes:
        """Return the sum of all changes; a label without a catalogue today drops its entries."""
        drops = [
            Changes(0, len(previous.values), 0, 0, inf)
            for label, previous in self.by_label.items()
            if label not in changes_of_label
        ]
        return Changes.total([*changes_of_label.values(), *drops])


def _pairs(region: Ints, values: Floats) -> set[tuple[int, bytes]]:
    """Return entries as a set of pairs; the arguments have the shapes (n,) and (n, n_private)."""
    return {(number, row.tobytes()) for number, row in zip(region.tolist(), values, strict=True)}


def _slack(n_first: Ints, n_left: Ints, k: int) -> float:
    """Return `Changes.slack` for regions with `n_first` first members, of whom `n_left` are left.

    Both have the shape (n_regions,).
    """
    pairs = zip(n_first.tolist(), n_left.tolist(), strict=True)
    slacks = sorted(_slack_of(first, left, k) for first, left in pairs)
    if not slacks:
        return 0
    return max(slacks[ceil(_NEARLY_ALL * len(slacks)) - 1], 0)


def _slack_of(n_first: int, n_left: int, k: int) -> float:
    """Return the number of people above k that a region would have needed; inf if none is left."""
    return ceil(k * n_first / n_left) - k if n_left else inf


_NO_HANDLES = (
    "the previous catalogue does not recognise its people: it was fitted without CFK_KEY or"
    " without subject= in the schema, or it is that of a logged model; give the file that save()"
    " wrote with the key"
)


def _column_pairs(
    then: Codes, columns_then: Ints, now: Codes, columns_now: Ints
) -> list[tuple[Column, Column]]:
    """Return pairs of the same column in two tables."""
    pairs = zip(columns_then.tolist(), columns_now.tolist(), strict=True)
    return [(then.columns[i], now.columns[j]) for i, j in pairs]


def _translated(columns: Sequence[tuple[Column, Column]], values: Floats) -> Floats:
    """Translate codes of one table to codes of another; NaN for values without a code there.

    Both arrays have the shape (n_rows, n_columns).
    """
    new_values = values.copy()
    for i, (then, now) in enumerate(columns):
        if not then.is_numeric:
            new_values[:, i] = now.encode(then.decode(values[:, i]))
    return new_values


@dataclass(frozen=True, eq=False, repr=False)
class Stayed(HostOnly):
    """The regions of the previous catalogue that stay in today's table, and the newcomers there.

    Attributes
    ----------
    newcomers : shape (n_newcomers,)
        The position of one row of each newcomer.
    regions : Regions
        All regions of the previous catalogue.
    corners : shape (n_corners, n_features)
        Rows whose hulls are the regions.
    region_of_corner : shape (n_corners,)
    is_kept : shape (n_regions,)
        Which regions stay.
    members : list of arrays
        For each region that stays, the position of one row of each first member who is still there.
    slack : float
        See `Changes`.
    """

    newcomers: Ints
    regions: Regions
    corners: Floats
    region_of_corner: Ints
    is_kept: Mask
    members: list[Ints]
    slack: float

    @classmethod
    def nothing(cls, codes: Codes, eligible: Ints) -> Stayed:
        """Return the result without a previous catalogue: all eligible people are newcomers."""
        no_regions = np.empty(0, dtype=np.int64)
        corners = np.empty((0, len(codes.columns)))
        regions = Regions.of_groups(codes, corners, no_regions)
        nowhere = np.empty(0, dtype=bool)
        return cls(eligible, regions, corners, no_regions, nowhere, [], 0)

    def covers(self, rows: Floats) -> Mask:
        """Return which rows, shape (n_rows, n_features), are inside a region that stays."""
        return self.regions.take(self.is_kept).cover(rows)
