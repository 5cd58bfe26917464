"""The catalogue: regions with private values, fixed before the first query.

People with the outcome are divided into groups of at least k, and every other person joins a group.
The region of a group generalises the quasi-identifiers of all its people, so an attacker learns no
outcome from the fact that a person is inside or outside. An entry is a region with private values
that satisfy three conditions:

* At least k members also have the outcome with these private values. Members are the people of the
  group with the outcome. An attacker who knows all quasi-identifiers and asks the model is left
  with k people whose private values these could be.
* Either at least k people have all of these private values, or no one has. The same is true of each
  value.
* A large enough share of the region has the outcome with these values (pureness).

Private values are offered to all regions or to none, in an order that an attacker cannot foresee.
Otherwise k - 1 colluders could infer the k-th person's values from the pairs of regions and values.

Answers replace private values of an entry with the query's own. After that, at least k people must
still have the outcome. It is not enough to check the members' combinations, because a refusal would
then disclose where in the region members are. So the model is asked about every combination of the
region at which its weakest entry has the outcome (`Catalogue.required`).

The catalogue does not hide who is in the training table.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import (
    MISSING,
    Codes,
    Floats,
    Ints,
    Mask,
    distinct_rows,
    least_row_each,
    mixed,
    people_with,
)
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.data.population import Handles
from cfk_plugin.errors import HostOnly, ModelError, PolicyError
from cfk_plugin.protection.diversity import Diversity, merge
from cfk_plugin.protection.entries import Entries, Trials
from cfk_plugin.protection.groups import cover, divide
from cfk_plugin.protection.previous import Changes, FirstMembers, Previous, Stayed
from cfk_plugin.protection.regions import Regions, Space, box_ncp
from cfk_plugin.protection.spark import SparkRecount
from cfk_plugin.protection.values import (
    LEAST_CROWD,
    ColumnPeople,
    SharedValues,
    crowd_centres,
    raise_if_not_shared,
    shared_count,
)

_log = logging.getLogger("cfk_plugin")

_LIKELY_WEIGHT = 0.3  # weight of the likelihood of the outcome in groups, next to an NCP of 1
_LIKELY_RECORDS = 8  # people with whose private values the likelihood is estimated
_LIKELY_ROWS = 400_000  # the most rows for this in calls of the model
_AT_ONCE = 200_000  # rows in one call of the model
_MOST_LISTED = 200  # regions whose required combinations stay in memory
_ROWS_PER_ROW = 10  # for each training row, rows about which the model is asked for entries
_LEAST_ROWS = 10_000  # rows about which it may always be asked
_ROUNDING = 1e-9  # of leads, as in `Model.sure`

Options = list[Floats]
"""Codes of each quasi-identifier, shape (n_values,) each, which are combined with each other."""


@dataclass(frozen=True)
class Settings:
    """The conditions that a catalogue satisfies, and parameters of its construction.

    Attributes
    ----------
    k : int
        The least number of people that an attacker is left with.
    least_pureness : float
        The least share of an entry's region that has the outcome. For a sample, it is the lower end
        of the confidence interval.
    l : int, optional
        The least number of distinct values of each sensitive column among a region's members.
    t : float, optional
        The largest distance between the distributions of a sensitive column among a region's
        members and in the training table.
    max_ncp : float, optional
        The largest NCP of a region with entries.
    change_cost : float
        The cost of one changed value in distances, in addition to its difference in shares of the
        span.
    most_combinations : int
        The largest number of combinations of a region at which a moved answer is checked.
    n_rounds : int, optional
        The number of rounds of local search; None lets `divide` choose it.
    """

    k: int = 10
    least_pureness: float = 0.5
    l: int | None = None  # noqa: E741 - its name in the literature
    t: float | None = None
    max_ncp: float | None = None
    change_cost: float = 0.1
    most_combinations: int = 10_000
    n_rounds: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(HostOnly):
    """Regions with their entries, and the values and distances that the search for answers needs.

    A catalogue belongs to the data holder: its `repr` shows only counts, and it cannot be pickled.
    `KAnonymizer.published` returns the release.

    Attributes
    ----------
    model : Model
        With the margin that entries satisfy.
    settings : Settings
    regions : Regions
        In the order of their NCP.
    members : list of arrays, shape (n_members,) each
        For each region, one row of each person of the group who has the outcome, as positions in
        the training table. Empty if the catalogue comes from a file.
    entries : Entries
    centres : shape (n_centres, n_private)
        Private values that answers may have.
    was_offered : shape (n_centres,)
        Which centres were offered to regions.
    shared : list of SharedValues
        One for each private column, in the order of ``codes.private``.
    spans : shape (n_features,)
        The differences that count as 1 in distances. Those of private columns do not depend on the
        extreme values of single people.
    first : FirstMembers, optional
        None without a key, or without a subject in the schema.
    changes : Changes, optional
        The differences from the previous catalogue, if there is one.
    """

    model: Model
    settings: Settings
    regions: Regions
    members: list[Ints]
    entries: Entries
    centres: Floats
    was_offered: Mask
    shared: list[SharedValues]
    spans: Floats
    # for each large region, the sets of combinations that the model is asked about
    _sets: Mapping[int, Sequence[Options]]
    # for each region, the positions of required combinations among `_candidates`
    _required: dict[int, Ints] = field(default_factory=dict)
    _listed: dict[int, Floats] = field(default_factory=dict)
    first: FirstMembers | None = None
    changes: Changes | None = None

    @classmethod
    def build(
        cls,
        codes: Codes,
        rows: Floats,
        person: Ints,
        model: Model,
        settings: Settings,
        random: np.random.Generator,
        key: bytes = b"",
        handles: Handles | None = None,
        previous: Previous | None = None,
        recount: SparkRecount | None = None,
    ) -> Catalogue:
        """Build the catalogue of a training table.

        Parameters
        ----------
        codes : Codes
        rows : shape (n_rows, n_features)
            The encoded training table.
        person : shape (n_rows,)
            The number of each row's person.
        model : Model
            With the margin that answers need.
        settings : Settings
        random : numpy Generator
        key : bytes
            Decides the order in which private values are offered. Without a key, `random` does.
        handles : Handles, optional
        previous : Previous, optional
            It needs handles.
        recount : SparkRecount, optional
            Pass it if the training table is a sample. It reads all rows, so that regions can be
            widened to cover them, and private values of few people dropped.

        Returns
        -------
        Catalogue

        Raises
        ------
        PolicyError
            If the people with the outcome form no group with k, l and t, or if there is a previous
            catalogue but no handles.
        """
        sure = np.flatnonzero(model.sure(rows))
        eligible = least_row_each(person, sure, rows)
        if not len(eligible):
            raise PolicyError(_NO_ONE)
        if len(eligible) < settings.k:
            raise PolicyError(_no_group(settings))
        training = _Training(codes, rows, person, eligible, model, settings)
        stayed = Stayed.nothing(codes, eligible)
        if previous is not None:
            if handles is None:
                raise PolicyError(
                    "a previous catalogue needs handles, which recognise its people; set CFK_KEY,"
                    " and name the subject in the schema"
                )
            stayed = previous.stayed(
                rows, person, sure, handles.of_row, settings.k, codes, training.is_diverse
            )
        newcomers = replace(training, eligible=stayed.newcomers)
        new = _new_groups(newcomers, stayed, random)
        shared, centres = _centres(newcomers, previous)
        if recount is not None and len(new.members):
            newcomers, new, shared, centres = _of_all_rows(
                recount, newcomers, stayed, new, shared, centres, previous
            )
        centres = centres[codes.obey_private_rules(centres)]
        groups = _groups(newcomers, stayed, new)
        quasi_of_members = [rows[np.ix_(members, codes.quasi)] for members in groups.members]
        max_ncp = 1.0 if settings.max_ncp is None else settings.max_ncp
        key_of_regions = b"" if handles is None else key
        random_of = _random_of_region(groups.regions, key_of_regions, random)
        trials = Trials.of(
            model,
            groups.regions,
            quasi_of_members,
            k=settings.k,
            least_pureness=settings.least_pureness,
            max_ncp=max_ncp,
            random_of=random_of,
        )
        order = _keyed_order(centres, key, random)
        n_first = 0
        n_most = max(_ROWS_PER_ROW * len(rows), _LEAST_ROWS)
        if previous is not None:
            is_old = previous.was_offered(centres[order])
            order = np.append(order[is_old], order[~is_old])
            n_first = int(is_old.sum())
            n_most = _ROWS_PER_ROW * len(groups.newcomers)
        entries, n_offered = trials.offer(centres[order], n_most, n_first)
        was_offered = np.zeros(len(centres), dtype=bool)
        was_offered[order[:n_offered]] = True
        _log_groups_without(groups, entries)
        changes = None
        if previous is not None:
            in_no_group = len(eligible) - len(np.unique(person[np.concatenate(groups.members)]))
            changes = previous.changes(groups.of_previous, entries, in_no_group, stayed.slack)
        spans = codes.spans.copy()
        spans[codes.private] = [values.span for values in shared]
        first = None
        if handles is not None:
            first = _first_members(groups, handles, previous)
        return cls(
            model,
            settings,
            groups.regions,
            groups.members,
            entries,
            centres,
            was_offered,
            shared,
            spans,
            _sets_of_large_regions(training, groups, random_of),
            first=first,
            changes=changes,
        )

    @property
    def codes(self) -> Codes:
        return self.regions.codes

    def _counts(self) -> str:
        return f"{len(self.entries)} entries, {len(self.regions)} regions"

    def required(self, regions: Ints) -> dict[int, Floats]:
        """Return the combinations at which moved answers of regions must have the outcome.

        These are the combinations at which the region's weakest entry has the outcome with the
        margin. So all members who have the outcome with this entry also have it with the answer.
        The most doubtful combinations come first. The model is asked once about each region.

        Parameters
        ----------
        regions : shape (n,)
            Numbers of regions.

        Returns
        -------
        dict of region to array, shape (n_required, n_quasi)
            The array is empty if the region has no entry, or too many combinations. Its answers
            must not be moved then.
        """
        numbers = np.unique(regions).tolist()
        self._ask_about([region for region in numbers if region not in self._required])
        return {region: self._combinations(region) for region in numbers}

    def _combinations(self, region: int) -> Floats:
        """Return the required combinations of a region, after `_ask_about`."""
        if region in self._listed:
            return self._listed[region]
        combinations = self._candidates(region)[self._required[region]]
        if len(self._listed) < _MOST_LISTED:
            self._listed[region] = combinations
        return combinations

    def _candidates(self, region: int) -> Floats:
        """Return the combinations of a region that the model is asked about, (n, n_quasi).

        In a large region these are the combinations of its sets, otherwise all.
        """
        if self.regions.size(region) <= self.settings.most_combinations:
            return self.regions.combinations(region)
        grids = [mixed(options) for options in self._sets.get(region, ())]
        return np.concatenate([np.empty((0, len(self.codes.quasi))), *grids])

    def _ask_about(self, regions: Sequence[int]) -> None:
        """Ask the model which combinations of regions are required, in few large calls."""
        weakest = self.entries.weakest
        questions: list[tuple[int, Floats]] = []
        n_rows = 0
        for region in regions:
            if region not in weakest:
                self._required[region] = np.empty(0, dtype=np.int64)
                continue
            combinations = self._candidates(region)
            private = self.entries.values[weakest[region]]
            questions.append((region, self.codes.rows_of(combinations, private)))
            n_rows += len(combinations)
            if n_rows > _AT_ONCE:
                self._ask(questions)
                questions = []
                n_rows = 0
        self._ask(questions)

    def _ask(self, questions: Sequence[tuple[int, Floats]]) -> None:
        """Ask the model about the rows of regions, and remember which of them are required."""
        if not questions:
            return
        leads = self.model.leads(np.concatenate([rows for _, rows in questions]))
        ends = np.cumsum([len(rows) for _, rows in questions])[:-1]
        for (region, _), lead in zip(questions, np.split(leads, ends), strict=True):
            order = np.argsort(lead, kind="stable")
            self._required[region] = order[lead[order] >= self.model.margin - _ROUNDING]

    # The content of a catalogue's file

    @property
    def public(self) -> dict[int, Floats]:
        """The shared codes of each private column, by position of the column."""
        values = [shared.values for shared in self.shared]
        return dict(zip(self.codes.private.tolist(), values, strict=True))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return facts and arrays from which `of_content` makes the same catalogue.

        They contain no row of the training table, but belong to the data holder: among the
        combinations of large regions, up to one in k is a person's. The model is asked about all
        regions first, so that another process need not do it.
        """
        with_entries = np.unique(self.entries.region)
        self._ask_about([r for r in with_entries.tolist() if r not in self._required])
        facts = {"settings": asdict(self.settings), "margin": self.model.margin}
        required = [self._required[region] for region in with_entries.tolist()]
        arrays = {
            **self.lasting,
            "entries.pureness": self.entries.pureness,
            "entries.has_outcome": self._has_outcome(),
            "spans": self.spans,
            "sets": _listed_sets(self._sets),
            "required": np.concatenate([np.empty(0, dtype=np.int64), *required]),
            "required.region": np.repeat(with_entries, list(map(len, required))),
        }
        return facts, arrays

    @property
    def lasting(self) -> dict[str, NDArray[Any]]:
        """The arrays of the content that the next catalogue needs; see `Previous`."""
        corners, region_of_corner = self.regions.corners()
        arrays = {
            "corners": corners,
            "region_of_corner": region_of_corner,
            "entries.region": self.entries.region,
            "entries.values": self.entries.values,
            "centres": self.centres,
            "centres.was_offered": self.was_offered,
        }
        for i, shared in enumerate(self.shared):
            arrays[f"shared.{i}"] = np.append(shared.values, shared.span)
        return arrays if self.first is None else arrays | self.first.arrays()

    def _has_outcome(self) -> Mask:
        """Return which entries have the outcome at the first corner of their region.

        With this, `of_content` recognises the model and the outcome.
        """
        return self.model.sure(self._first_rows())

    def _first_rows(self) -> Floats:
        """Return each entry at the first corner of its region, shape (n_entries, n_features)."""
        corners, region_of_corner = self.regions.corners()
        first = corners[np.searchsorted(region_of_corner, self.entries.region)]
        return self.codes.rows_of(first, self.entries.values)

    @classmethod
    def of_content(
        cls, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], model: Model
    ) -> Catalogue:
        """Return the catalogue from its `content`.

        Parameters
        ----------
        facts, arrays : mappings
        model : Model
            It takes the codes of the file. Its margin is replaced with that of the content.

        Raises
        ------
        ModelError
            If the model, or the outcome, is not the one of the saved catalogue.
        """
        settings = Settings(**facts["settings"])
        model = model.with_margin(facts["margin"])
        codes = model.codes
        rows = codes.rows_of(arrays["corners"], np.full(len(codes.private), MISSING))
        n_entries = len(arrays["entries.region"])
        entries = Entries(
            arrays["entries.region"],
            arrays["entries.values"],
            np.full(n_entries, settings.k),  # a lower bound
            arrays["entries.pureness"],
        )
        shared = [
            SharedValues(codes.columns[j], arrays[f"shared.{i}"][:-1], arrays[f"shared.{i}"][-1])
            for i, j in enumerate(codes.private.tolist())
        ]
        regions, start = np.unique(arrays["required.region"], return_index=True)
        required = _runs(arrays["required"], start)
        catalogue = cls(
            model,
            settings,
            Regions.of_groups(codes, rows, arrays["region_of_corner"]),
            [],
            entries,
            arrays["centres"],
            arrays["centres.was_offered"],
            shared,
            arrays["spans"],
            _sets_of_list(arrays["sets"]),
            dict(zip(regions.tolist(), required, strict=True)),
            first=FirstMembers.read(arrays),
        )
        is_same = np.array_equal(catalogue._has_outcome(), arrays["entries.has_outcome"])
        if not is_same or model.checked(catalogue._first_rows()) is not model:
            raise ModelError(
                "the model or the desired outcome differs from that of the saved catalogue; pass"
                " the same ones, or fit and save a new catalogue"
            )
        return catalogue


def _runs(values: NDArray[Any], start: Ints) -> list[NDArray[Any]]:
    """Split values into the runs that begin at `start`; return an empty list if there is none."""
    return np.split(values, start[1:]) if len(start) > 0 else []


def _listed_sets(sets: Mapping[int, Sequence[Options]]) -> Floats:
    """Return sets of options as rows of region, set, column and value, shape (n, 4)."""
    parts = [np.empty((0, 4))]
    for region, sets_of_region in sets.items():
        for number, options in enumerate(sets_of_region):
            for column, values in enumerate(options):
                place = np.tile([region, number, column], (len(values), 1))
                parts.append(np.column_stack([place, values]))
    return np.concatenate(parts)


def _sets_of_list(listed: Floats) -> dict[int, list[Options]]:
    """Return the sets of options from the result of `_listed_sets`."""
    places, start = np.unique(listed[:, :3], axis=0, return_index=True)
    values = _runs(listed[:, 3], start)
    sets: dict[int, list[Options]] = {}
    for (region, number, _), options in zip(places.astype(int).tolist(), values, strict=True):
        sets_of_region = sets.setdefault(region, [])
        if number == len(sets_of_region):
            sets_of_region.append([])
        sets_of_region[number].append(options)
    return sets


# Building a catalogue


@dataclass(frozen=True, eq=False, repr=False)
class _Training(HostOnly):
    """The training table of a catalogue.

    Attributes
    ----------
    rows : shape (n_rows, n_features)
    person : shape (n_rows,)
    eligible : shape (n_people,)
        The position of one row of each person who has the outcome with the margin.
    """

    codes: Codes
    rows: Floats
    person: Ints
    eligible: Ints
    model: Model
    settings: Settings

    @property
    def members(self) -> Floats:
        """The rows of people with the outcome, shape (n_people, n_features)."""
        return self.rows[self.eligible]

    def is_diverse(self, people: Ints) -> bool:
        """Return whether people, positions of shape (n_people,), satisfy l and t as a group."""
        settings = self.settings
        diversity = Diversity.of(self.codes, self.rows, people, settings.l, settings.t)
        return diversity.is_trivial or diversity.has_group(np.ones(len(people), dtype=bool))


@dataclass(frozen=True, eq=False, repr=False)
class _Groups(HostOnly):
    """Groups of people, in the order of their regions.

    Attributes
    ----------
    members : list of arrays, shape (n_members,) each
        For each group, the position of one row of each person with the outcome.
    of_previous : shape (n_previous,)
        For each region of the previous catalogue its number here; -1 if it did not stay.
    newcomers : shape (n_newcomers,)
        The position of one row of each newcomer in a group, even if the group's region was left
        out.
    """

    regions: Regions
    members: list[Ints]
    of_previous: Ints
    newcomers: Ints


class _NewGroups(NamedTuple):
    """Groups of newcomers.

    Attributes
    ----------
    members : shape (n_members,)
        The position of one row of each newcomer.
    group : shape (n_members,)
    others : shape (n_others,)
        The positions of further rows in the hulls of groups.
    group_of_others : shape (n_others,)
    """

    members: Ints
    group: Ints
    others: Ints
    group_of_others: Ints

    def with_others(self, rows: Ints, group: Ints) -> _NewGroups:
        """Return the groups with further rows, shape (n,), in their hulls."""
        others = np.append(self.others, rows)
        return self._replace(others=others, group_of_others=np.append(self.group_of_others, group))


def _groups(newcomers: _Training, stayed: Stayed, new: _NewGroups) -> _Groups:
    """Return the groups that stay and the groups of newcomers, in the order of their regions.

    If a new region equals a previous one, an attacker would think that it stayed. So it is widened,
    or left out if every person is already inside.
    """
    codes = newcomers.codes
    rows = newcomers.rows
    n_previous = len(stayed.is_kept)
    while True:
        all_rows = np.concatenate([stayed.corners, rows[new.members], rows[new.others]])
        group_of_new = n_previous + np.append(new.group, new.group_of_others)
        group = np.append(stayed.region_of_corner, group_of_new)
        regions = Regions.of_groups(codes, all_rows, group)
        rank = _rank(regions)
        is_repeated = np.isin(rank, rank[:n_previous])
        repeated = n_previous + np.flatnonzero(is_repeated[n_previous:])
        widened, nearest = _nearest_outside(rows, regions, repeated)
        if not len(widened):
            break
        new = new.with_others(nearest, widened - n_previous)
    is_chosen = np.append(stayed.is_kept, ~is_repeated[n_previous:])
    if not is_chosen.any():
        raise PolicyError(_NOTHING_STAYED + _no_group(newcomers.settings))
    place = np.where(is_chosen, np.searchsorted(np.unique(rank[is_chosen]), rank), -1)
    place_of_row = place[group]
    is_row = place_of_row >= 0
    regions = Regions.of_groups(codes, all_rows[is_row], place_of_row[is_row])
    place_of_kept = place[:n_previous][stayed.is_kept]
    members = np.concatenate([*stayed.members, new.members])
    place_of_member = np.append(
        np.repeat(place_of_kept, list(map(len, stayed.members))),
        place[n_previous + new.group],
    )
    return _Groups(
        regions,
        _by_group(members, place_of_member, len(regions)),
        place[:n_previous],
        new.members,
    )


def _nearest_outside(rows: Floats, regions: Regions, numbers: Ints) -> tuple[Ints, Ints]:
    """Return regions, shape (n,), and the row outside of each that widens it least, shape (n,).

    The regions are those in `numbers` that do not contain all rows.
    """
    widened = []
    nearest = []
    if len(numbers):
        space = Space(regions.codes)
        _, first = np.unique(rows[:, regions.codes.quasi], axis=0, return_index=True)
        points = space.points(rows[first])
    for number in numbers.tolist():
        is_inside = regions.contains(rows[first], number)
        if is_inside.all():
            continue
        low = np.minimum(points[is_inside].min(axis=0), points)
        high = np.maximum(points[is_inside].max(axis=0), points)
        ncp = np.where(is_inside, np.inf, box_ncp(low, high, space.caps))
        widened.append(number)
        nearest.append(first[ncp.argmin()])
    return np.array(widened, dtype=np.int64), np.array(nearest, dtype=np.int64)


def _new_groups(newcomers: _Training, stayed: Stayed, random: np.random.Generator) -> _NewGroups:
    """Divide newcomers into groups. Other people outside of all kept regions join the nearest."""
    codes = newcomers.codes
    rows = newcomers.rows
    if len(newcomers.eligible) < newcomers.settings.k:
        no_rows = np.empty(0, dtype=np.int64)
        return _NewGroups(no_rows, no_rows, no_rows, no_rows)
    space = Space(codes)
    points = space.points(newcomers.members)
    group = _divided(newcomers, points, space.caps, random)
    person = newcomers.person
    others = np.setdiff1d(np.arange(len(rows)), newcomers.eligible)
    is_covered = stayed.covers(rows[others])
    others = np.append(others[~is_covered], others[is_covered])
    with_outcome = person[newcomers.model.has_outcome(rows)]
    group_of_others, wider = cover(
        points,
        group,
        space.points(rows[others]),
        ~np.isin(person[others], with_outcome),
        person[np.append(newcomers.eligible, others)],
        space.caps,
        newcomers.settings.k,
        n_joining=int((~is_covered).sum()),
    )
    return _NewGroups(
        newcomers.eligible,
        group,
        np.append(others[: len(group_of_others)], others[wider[:, 1]]),
        np.append(group_of_others, wider[:, 0]),
    )


def _of_all_rows(
    recount: SparkRecount,
    newcomers: _Training,
    stayed: Stayed,
    new: _NewGroups,
    shared: list[SharedValues],
    centres: Floats,
    previous: Previous | None,
) -> tuple[_Training, _NewGroups, list[SharedValues], Floats]:
    """Adapt the groups and shared values of a sample to all rows of the table.

    Members, and shared values that people of the sample have, stay: the sample bounds the number of
    people from below. Rows outside of all regions widen the nearest new region; the corners of
    their hulls are appended to the training rows. A value or a whole combination that no one in the
    sample has is dropped if one to k - 1 people of the table have it. With a previous catalogue,
    its values stay, and new ones are dropped if any person has them; see
    `cfk_plugin.protection.previous`.
    """
    codes = newcomers.codes
    rows = newcomers.rows
    k = newcomers.settings.k
    private = rows[:, codes.private]
    of_previous = [np.empty(0)] * len(shared) if previous is None else previous.shared
    unseen = [
        np.setdiff1d(values.values, np.append(column, previous_values))
        for values, column, previous_values in zip(shared, private.T, of_previous, strict=True)
    ]
    combinations = private if previous is None else np.concatenate([private, previous.centres])
    is_unseen = ~_are_among(centres, combinations)
    in_groups = np.append(new.members, new.others)
    regions = Regions.of_groups(codes, rows[in_groups], np.append(new.group, new.group_of_others))
    counts = recount.count(regions, stayed.regions.take(stayed.is_kept), unseen, centres[is_unseen])
    n_enough = k if previous is None else inf
    dropped = [
        values[_is_of_few(n_people, n_enough)]
        for values, n_people in zip(unseen, counts.of_values, strict=True)
    ]
    shared = [values.without(few) for values, few in zip(shared, dropped, strict=True)]
    raise_if_not_shared(shared, k)
    is_kept = np.ones(len(centres), dtype=bool)
    is_kept[is_unseen] = ~_is_of_few(counts.of_combinations, n_enough)
    for i, few in enumerate(dropped):
        is_kept &= ~np.isin(centres[:, i], few)
    corners = codes.rows_of(counts.corners, np.full(len(codes.private), MISSING))
    places = len(rows) + np.arange(len(corners))
    return (
        replace(newcomers, rows=np.concatenate([rows, corners])),
        new.with_others(places, counts.region_of_corner),
        shared,
        centres[is_kept],
    )


def _is_of_few(n_people: Ints, n_enough: float) -> Mask:
    """Return which counts are at least 1, but below `n_enough`."""
    return (n_people > 0) & (n_people < n_enough)


def _are_among(rows: Floats, others: Floats) -> Mask:
    """Return which rows, shape (n_rows, n_columns), equal one of the others; shape (n_rows,)."""
    _, place = distinct_rows(np.concatenate([rows, others]))
    return np.isin(place[: len(rows)], place[len(rows) :])


def _divided(
    training: _Training, points: Floats, caps: Floats, random: np.random.Generator
) -> Ints:
    """Divide the people with the outcome into groups; return the group of each, shape (n_people,).

    People of a group have a similar likelihood of the outcome, so that many regions are pure.
    """
    settings = training.settings
    likely = _likely(training, random)
    group = divide(
        np.column_stack([points, _LIKELY_WEIGHT * likely]),
        settings.k,
        np.append(caps, _LIKELY_WEIGHT),
        settings.n_rounds,
        random,
    )
    diversity = Diversity.of(
        training.codes, training.rows, training.eligible, settings.l, settings.t
    )
    if diversity.is_trivial:
        return group
    merged = merge(group, points, caps, diversity)
    if merged is None:
        raise PolicyError(_no_group(settings))
    return merged


def _likely(training: _Training, random: np.random.Generator) -> Floats:
    """Return the likelihood of the outcome at each person's quasi-identifiers, shape (n_people,).

    This is the share of sampled people whose private values have the outcome there.
    """
    codes = training.codes
    members = training.members
    cells, cell = np.unique(members[:, codes.quasi], axis=0, return_inverse=True)
    n_most = max(1, min(_LIKELY_RECORDS, _LIKELY_ROWS // len(cells)))
    n_records = min(n_most, len(members))
    records = members[random.choice(len(members), n_records, replace=False)]
    quasi = np.tile(cells, (n_records, 1))
    private = np.repeat(records[:, codes.private], len(cells), axis=0)
    is_outcome = training.model.sure(codes.rows_of(quasi, private))
    likely: Floats = is_outcome.reshape(n_records, len(cells)).mean(axis=0)
    return likely[cell.reshape(-1)]


def _rank(regions: Regions) -> Ints:
    """Return the rank of each region by NCP, shape (n_regions,); equal regions have the same rank.

    An attacker cannot tell groups with equal regions apart. The values of regions decide ties, so
    the order discloses nothing about the order of the table.
    """
    ncp = np.round(regions.ncp, 12).tolist()
    texts = [_text(regions, i) for i in range(len(regions))]
    keys = list(zip(ncp, texts, strict=True))
    place = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys])


def _text(regions: Regions, region: int) -> str:
    """Return a text that is equal for equal regions."""
    return json.dumps(regions.region(region).to_dict(), sort_keys=True)


def _by_group(rows: Ints, group: Ints, n_groups: int) -> list[Ints]:
    """Return the rows of each group as one array per group."""
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(n_groups + 1))
    return [rows[order[start[i] : start[i + 1]]] for i in range(n_groups)]


def _centres(newcomers: _Training, previous: Previous | None) -> tuple[list[SharedValues], Floats]:
    """Return the shared values of each private column, and centres of crowds, (n, n_private).

    Those of the previous catalogue stay. Newcomers add some, unless they are too few.
    """
    codes = newcomers.codes
    k = newcomers.settings.k
    members = newcomers.members
    columns = [codes.columns[j] for j in codes.private.tolist()]
    if not columns:
        return [], np.empty((1, 0))
    if previous is not None and len(members) < LEAST_CROWD * k:
        of_columns = zip(columns, previous.shared, previous.spans, strict=True)
        return [SharedValues(*of_column) for of_column in of_columns], previous.centres
    private = newcomers.rows[:, codes.private]
    person = newcomers.person
    counts = [ColumnPeople.of(values, person) for values in private.T]
    people_of = _people_of(private, person)
    if previous is not None:
        is_new = np.isin(person, person[newcomers.eligible])
        counts = [
            people.with_newcomers(ColumnPeople.of(values, person[is_new]), k)
            for people, values in zip(counts, private[is_new].T, strict=True)
        ]
        of_newcomers = _people_of(private[is_new], person[is_new])
        n_newcomers = np.array([of_newcomers.get(values, 0) for values in people_of])
        n_people = shared_count(np.array([*people_of.values()]), n_newcomers, k)
        people_of = dict(zip(people_of, n_people.tolist(), strict=True))
    shared = [
        SharedValues.of(column, people, values, k)
        for column, people, values in zip(columns, counts, members[:, codes.private].T, strict=True)
    ]
    if previous is None:
        return shared, crowd_centres(members[:, codes.private], shared, people_of, k)
    shared = previous.joined(shared)
    new = crowd_centres(members[:, codes.private], shared, people_of, k)
    return shared, np.unique(np.concatenate([previous.centres, new]), axis=0)


def _people_of(values: Floats, person: Ints) -> dict[bytes, int]:
    """Return the number of people with each row of values, (n_rows, n_columns), by its bytes."""
    rows, n_people = people_with(values, person)
    return {row.tobytes(): n for row, n in zip(rows, n_people.tolist(), strict=True)}


def _keyed_order(centres: Floats, key: bytes, random: np.random.Generator) -> Ints:
    """Return an order of centres that no one can foresee without the key, shape (n_centres,).

    If it followed from the training table, an attacker could infer who is in the table from the
    pairs of regions and private values that were offered before the last one.
    """
    if not key:
        return random.permutation(len(centres))
    digests = [hmac.digest(key, b"centre" + row.tobytes(), "sha256") for row in centres]
    order = sorted(range(len(centres)), key=digests.__getitem__)
    return np.array(order, dtype=np.int64)


def _random_of_region(
    regions: Regions, key: bytes, random: np.random.Generator
) -> Callable[[int], np.random.Generator]:
    """Return a function from the number of a region to its random generator.

    With a key, an equal region gets the same random numbers in the next catalogue.
    """
    if not key:
        return lambda _: random

    def random_of(region: int) -> np.random.Generator:
        digest = hmac.digest(key, b"region" + _text(regions, region).encode(), "sha256")
        return np.random.default_rng(int.from_bytes(digest))

    return random_of


def _first_members(groups: _Groups, handles: Handles, previous: Previous | None) -> FirstMembers:
    """Return the first members of regions, in this catalogue or before it."""
    members = np.concatenate(groups.members)
    region = np.repeat(np.arange(len(groups.members)), list(map(len, groups.members)))
    first = FirstMembers.of(handles.of_row[members], region, handles.of_key)
    first = first.with_others(handles.of_row[groups.newcomers])
    return first if previous is None else first.with_others(previous.first.handles)


def _log_groups_without(groups: _Groups, entries: Entries) -> None:
    """Log the number of people in groups without an entry; as a warning if most people are."""
    n_members = np.array([len(members) for members in groups.members])
    has_entry = np.isin(np.arange(len(n_members)), entries.region)
    n_without = int(n_members[~has_entry].sum())
    if n_without == 0:
        return
    is_most = n_without > n_members.sum() / 2
    level = logging.WARNING if is_most else logging.INFO
    _log.log(
        level,
        "%d of %d people with the desired outcome are in groups without an entry: for every offered"
        " private value, the model refuses too much of the region. Answers come from the other"
        " groups, and may be further from the query. To get more entries, lower k or min_pureness,"
        " or use fewer quasi-identifiers",
        n_without,
        n_members.sum(),
    )


# Combinations at which moved answers are checked


def _sets_of_large_regions(
    training: _Training, groups: _Groups, random_of: Callable[[int], np.random.Generator]
) -> dict[int, list[Options]]:
    """Return, for each large region, the sets of combinations at which answers are checked.

    A set is made from members of the region and as many other people inside, so that members cannot
    be recognised. It contains all combinations of their values, so that it does not disclose which
    values belong together. Each member is in one set.
    """
    rows = training.rows
    person = training.person
    sets = {}
    for region, members in enumerate(groups.members):
        if groups.regions.size(region) <= training.settings.most_combinations:
            continue
        inside = np.flatnonzero(groups.regions.contains(rows, region))
        others = inside[~np.isin(person[inside], person[members])]
        others = random_of(region).permutation(others)[: len(members)]
        quasi = rows[np.ix_(np.append(members, others), training.codes.quasi)]
        options = _hidden(np.unique(quasi, axis=0), training.settings)
        if options:
            sets[region] = options
    return sets


def _hidden(people: Floats, settings: Settings) -> list[Options]:
    """Divide people into as few sets as `most_combinations` permits, and return their options.

    The list is empty if more than one in k combinations of a set would be a person's. `people` has
    the shape (n_people, n_quasi).
    """
    n_sets = 1
    while n_sets <= len(people):
        parts = np.array_split(people, n_sets)
        sets = [[np.unique(column) for column in part.T] for part in parts]
        sizes = np.array([_n_combinations(options) for options in sets])
        if sizes.sum() <= settings.most_combinations:
            n_people = np.array([len(part) for part in parts])
            are_hidden = bool((n_people * settings.k <= sizes).all())
            return sets if are_hidden else []
        n_sets *= 2
    return []


def _n_combinations(options: Options) -> float:
    return float(np.prod([len(values) for values in options], dtype=np.float64))


_NOTHING_STAYED = (
    "no region of the previous catalogue has k first members who are still in the table and have"
    " the outcome, and there are too few newcomers; fit without previous=, which is a separate"
    " release. The reason: "
)


_NO_ONE = (
    "the model gives the desired outcome, with the margin, to no one in the table; check the"
    " spelling and the type of the outcome ('Yes' is not 'yes', and 1 is not '1'), or lower margin"
)


def _no_group(settings: Settings) -> str:
    """Return the error message if no group of people satisfies the settings."""
    limits = [
        f"{name} = {limit}"
        for name, limit in (("k", settings.k), ("l", settings.l), ("t", settings.t))
        if limit is not None
    ]
    return (
        f"the people with the desired outcome form no group with {' and '.join(limits)}, so"
        " there is no catalogue; lower k, l or margin, raise t, or ask for another outcome"
    )
