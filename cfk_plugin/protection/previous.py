"""The previous catalogue, and what stays of it when data or model change.

An attacker who compares two catalogues could strike out people who left, or find the values of
someone who joined. So a catalogue that follows another one obeys these rules:

* A region stays, bounds and all, while at least k of its *first members* are still in the table,
  inside it, and have the outcome under today's model. First members are the people for whom the
  region was made. Someone who was once missing does not count again, so the same k people or more
  are behind a region all the time. Otherwise it goes, with all its entries.
* Newcomers form groups among themselves. A newcomer has the outcome and has never been a first
  member. First members of a region that went form no new group.
* No new region equals one of the previous catalogue: it would seem to have stayed. It is widened.
* New private values are made of newcomers only, at least 2k of them (`values.LEAST_CROWD`). At
  least k newcomers have each new value, and all values of a new combination, or no one has.
* Private values of the previous catalogue stay, whoever has them today. If a value went because one
  person came to have it, the person would be recognised.

People are recognised by keyed digests of their subjects (`Handles`). Handles of first members are
never forgotten, so people who come back are not newcomers.
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

_GONE = -1  # the region of first members who have none any more
_NEARLY_ALL = 0.9  # share of regions that would have stayed with `Changes.slack`

Numbers = NDArray[np.uint64]


class Changes(NamedTuple):
    """How a catalogue differs from the previous one.

    Attributes
    ----------
    kept, dropped, new : int
        Entries in both catalogues, only in the previous one, and only in this one.
    in_no_group : int
        People with the outcome who are members of no group: first members of regions that went, and
        newcomers who are too few.
    slack : float
        With so many more people than k in each group, who leave at the same rate, nine in ten
        regions would have stayed; inf if no number is enough.
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
    """Everyone for whom a region was made, in this catalogue or an earlier one.

    Attributes
    ----------
    handles : shape (n_people,), in order
    region : shape (n_people,)
        The number of each person's region; -1 if the region or the person went, or if it is one for
        another outcome.
    of_key : uint64
        See `Handles`.
    """

    handles: Numbers
    region: Ints
    of_key: np.uint64

    @classmethod
    def of(cls, handles: Numbers, region: Ints, of_key: np.uint64) -> FirstMembers:
        """Return first members in the order of their handles; the first mention of each counts."""
        distinct, first = np.unique(handles, return_index=True)
        return cls(distinct, region[first], of_key)

    def with_others(self, handles: Numbers) -> FirstMembers:
        """Return these people, and others who have no region any more."""
        no_region = np.full(len(handles), _GONE)
        return FirstMembers.of(
            np.append(self.handles, handles), np.append(self.region, no_region), self.of_key
        )

    @property
    def n_people(self) -> Ints:
        """How many first members each region has, shape (n_regions,)."""
        return np.bincount(self.region[self.region != _GONE])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what `read` makes the same of."""
        return {"first": np.append(self.handles, self.of_key), "first.region": self.region}

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> FirstMembers | None:
        """Return the first members of the arrays of a catalogue, if they have any."""
        if "first" not in arrays:
            return None
        return cls(arrays["first"][:-1], arrays["first.region"], arrays["first"][-1])

    def region_of(self, handles: Numbers) -> tuple[Mask, Ints]:
        """Return who of some people are among these, and their regions, (n_people,) each."""
        place = np.searchsorted(self.handles, handles).clip(max=len(self.handles) - 1)
        is_among = self.handles[place] == handles
        return is_among, np.where(is_among, self.region[place], _GONE)


@dataclass(frozen=True, eq=False, repr=False)
class Previous(HostOnly):
    """The previous catalogue of an outcome, in the codes of today's table.

    Regions, centres and shared values that today's table has no codes for are left out. An entry
    without them stays, with the region -1 or values that are NaN, and counts as dropped.

    Attributes
    ----------
    first : FirstMembers
    corners : shape (n_corners, n_quasi); their hulls are the regions
    region_of_corner : shape (n_corners,)
    region_of_entry : shape (n_entries,)
    values : shape (n_entries, n_private)
    centres : shape (n_centres, n_private)
    offered : set of centres as bytes
        Those that were offered to regions. They are offered again before others: otherwise an entry
        could go because there are other regions or centres.
    shared : of each private column, the shared values, (n_values,)
    spans : of each private column
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
        quasi = _translations(codes_then, codes_then.quasi, codes, codes.quasi)
        private = _translations(codes_then, codes_then.private, codes, codes.private)
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
        """Return what there was if only other outcomes had a catalogue."""
        nothing = np.empty(0, dtype=np.int64)
        n_private = len(codes.private)
        no_values = np.empty((0, n_private))
        return cls(
            first=first,
            corners=np.empty((0, len(codes.quasi))),
            region_of_corner=nothing,
            region_of_entry=nothing,
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
        """Return which regions stay in a table, and who is new there.

        Parameters
        ----------
        rows : shape (n_rows, n_features)
        person : shape (n_rows,); the number of each row's person
        sure : shape (n_sure,); positions of the rows with the outcome
        handles : shape (n_rows,)
        k : int
        codes : Codes
        is_diverse : callable
            Takes one row of each of some people; returns whether they satisfy l and t.
        """
        corners = codes.rows_of(self.corners, np.full(len(codes.private), MISSING))
        regions = Regions.of_groups(codes, corners, self.region_of_corner)
        is_first, region_of_row = self.first.region_of(handles[sure])
        there = []
        order = np.argsort(region_of_row, kind="stable")
        start = np.searchsorted(region_of_row[order], np.arange(len(regions) + 1))
        for region in range(len(regions)):
            candidates = sure[order[start[region] : start[region + 1]]]
            inside = candidates[regions.contains(rows[candidates], region)]
            there.append(least_row_each(person, inside, rows))
        is_kept = [len(people) >= k and is_diverse(people) for people in there]
        n_there = np.array([len(people) for people in there])
        return Stayed(
            newcomers=least_row_each(person, sure[~is_first], rows),
            regions=regions,
            corners=corners,
            region_of_corner=self.region_of_corner,
            is_kept=np.array(is_kept, dtype=bool),
            members=list(compress(there, is_kept)),
            slack=_slack(self.first.n_people, n_there, k),
        )

    def was_offered(self, centres: Floats) -> Mask:
        """Return which centres, (n_centres, n_private), were offered to regions, (n_centres,)."""
        return np.array([row.tobytes() in self.offered for row in centres], dtype=bool)

    def joined(self, shared: Sequence[SharedValues]) -> list[SharedValues]:
        """Return the shared values of each private column, and further ones."""
        return [
            SharedValues(new.column, np.union1d(values, new.values), span or new.span)
            for values, span, new in zip(self.shared, self.spans, shared, strict=True)
        ]

    def changes(
        self, region_now: Ints, entries: Entries, in_no_group: int, slack: float
    ) -> Changes:
        """Compare entries with the previous ones; see `Changes`.

        `region_now` has today's number of each previous region, (n_regions,), -1 if it went.
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
    by_label : mapping of label, None for a named outcome, to Previous
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
        """Return the catalogues of some labels, margins and arrays; see `Previous.of`.

        The first members of one outcome are newcomers of none.
        """
        by_label = {
            label: Previous.of(codes_then, arrays, margin, codes, handles)
            for label, margin, arrays in parts
        }
        everyone = np.concatenate([previous.first.handles for previous in by_label.values()])
        by_label = {
            label: replace(previous, first=previous.first.with_others(everyone))
            for label, previous in by_label.items()
        }
        nobody = FirstMembers(everyone[:0], np.empty(0, dtype=np.int64), handles.of_key)
        return cls(by_label, Previous.nothing(codes, nobody.with_others(everyone)))

    def of_label(self, label: Any) -> Previous:
        return self.by_label.get(label, self.nothing)

    def changes(self, changes_of_label: Mapping[Any, Changes]) -> Changes:
        """Return all changes, with those of labels that have no catalogue any more."""
        lost = [
            Changes(0, len(previous.values), 0, 0, inf)
            for label, previous in self.by_label.items()
            if label not in changes_of_label
        ]
        return Changes.total([*changes_of_label.values(), *lost])


def _pairs(region: Ints, values: Floats) -> set[tuple[int, bytes]]:
    """Return entries as pairs that can be compared; arguments are (n,) and (n, n_private)."""
    return {(number, row.tobytes()) for number, row in zip(region.tolist(), values, strict=True)}


def _slack(n_first: Ints, n_there: Ints, k: int) -> float:
    """Return `Changes.slack` for the first members of regions, and how many are there, (n,)."""
    pairs = zip(n_first.tolist(), n_there.tolist(), strict=True)
    needed = sorted(_slack_of(first, there, k) for first, there in pairs)
    if not needed:
        return 0
    return max(needed[ceil(_NEARLY_ALL * len(needed)) - 1], 0)


def _slack_of(n_first: int, n_there: int, k: int) -> float:
    """Return how many more people than k a region would have needed; inf if no one is there."""
    return ceil(k * n_first / n_there) - k if n_there else inf


_NO_HANDLES = (
    "the previous catalogue does not say who its people are: it was fitted without CFK_KEY or"
    " without subject= in the schema, or it is that of a logged model; give the file that save()"
    " wrote with the key"
)


def _translations(
    then: Codes, columns_then: Ints, now: Codes, columns_now: Ints
) -> list[tuple[Column, Column]]:
    """Return the same columns of two tables, pair by pair."""
    pairs = zip(columns_then.tolist(), columns_now.tolist(), strict=True)
    return [(then.columns[i], now.columns[j]) for i, j in pairs]


def _translated(columns: Sequence[tuple[Column, Column]], values: Floats) -> Floats:
    """Return codes of columns of one table in codes of another; NaN for values without a code.

    Both arrays have the shape (n_rows, n_columns).
    """
    translated = values.copy()
    for i, (then, now) in enumerate(columns):
        if not then.is_numeric:
            translated[:, i] = now.encode(then.decode(values[:, i]))
    return translated


@dataclass(frozen=True, eq=False, repr=False)
class Stayed(HostOnly):
    """Which regions of the previous catalogue stay in a table, and who is new there.

    Attributes
    ----------
    newcomers : shape (n_newcomers,); one row of each, as positions
    regions : Regions
        Those of the previous catalogue.
    corners : shape (n_corners, n_features); their hulls are the regions
    region_of_corner : shape (n_corners,)
    is_kept : shape (n_regions,)
    members : of each region that is kept, one row of each first member who is still there
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
        """Return what stays without a previous catalogue: everyone is new."""
        nothing = np.empty(0, dtype=np.int64)
        corners = np.empty((0, len(codes.columns)))
        regions = Regions.of_groups(codes, corners, nothing)
        nowhere = np.empty(0, dtype=bool)
        return cls(eligible, regions, corners, nothing, nowhere, [], 0)

    def covers(self, rows: Floats) -> Mask:
        """Return which rows, (n_rows, n_features), are inside a region that is kept, (n_rows,)."""
        return self.regions.take(self.is_kept).cover(rows)
