"""The catalogue: regions with private values, fixed before the first query.

People with the outcome are divided into groups of at least k, and everyone else joins a group. The
region of a group generalises the quasi-identifiers of all its people, so neither being inside nor
being outside tells an outcome. An entry is a region with private values that satisfy three
conditions:

* At least k members, that is, people of the group with the outcome, have the outcome with these
  private values as well. An attacker who knows all quasi-identifiers, and asks the model, is left
  with k people whose private values these could be.
* At least k people have all of these private values, or no one. The same is true of each value.
* A large enough share of the region has the outcome with them (pureness).

Every private value that is tried is offered to every region, in an order that an attacker cannot
foresee. Otherwise k - 1 colluders could read the k-th person's values from the pairs of regions and
values.

Answers replace private values of an entry by the query's own. They must not thereby leave fewer
than k people who have the outcome. The members' combinations cannot be checked alone, because what
is refused would tell where in the region members are. So the model is asked at every combination of
the region at which its weakest entry has the outcome (`Catalogue.required`).

It is not hidden who is in the training table.
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

_LIKELY_WEIGHT = 0.3  # in groups, of how often the outcome is likely, next to an NCP of 1
_LIKELY_RECORDS = 8  # people whose private values are tried for it
_LIKELY_ROWS = 400_000  # that the model is asked about for it, at most
_AT_ONCE = 200_000  # rows in one call of the model
_MOST_LISTED = 200  # regions whose required combinations stay in memory
_ROWS_PER_ROW = 10  # that the model is asked about for entries, for each training row
_LEAST_ROWS = 10_000  # that it may always be asked about
_ROUNDING = 1e-9  # of leads, as in `Model.sure`

Options = list[Floats]
"""Values of each quasi-identifier, shape (n_values,) each, that are combined with each other."""


@dataclass(frozen=True)
class Settings:
    """What a catalogue is built for.

    Attributes
    ----------
    k : int
        Least number of people that an attacker is left with.
    least_pureness : float
        Least share of an entry's region that has the outcome; of a sample, the lower end of the
        confidence interval.
    l : int, optional
        Least number of distinct values of each sensitive column among the members of a region.
    t : float, optional
        Largest distance between the distributions of a sensitive column among the members of a
        region and in the training table.
    max_ncp : float, optional
        Largest NCP of a region with entries.
    change_cost : float
        What one changed value costs in distances, next to its difference in shares of the span.
    most_combinations : int
        Combinations of a region at which a moved answer is checked, at most.
    n_rounds : int, optional
        How often near groups are divided again; None leaves it to `divide`.
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
    """Regions with their entries, and what answers need of them.

    Attributes
    ----------
    model : Model
        With the margin that entries satisfy.
    settings : Settings
    regions : Regions
        In the order of their NCP.
    members : list of arrays, shape (n_members,) each
        One row of each person of a region's group who has the outcome, as positions in the training
        table. Empty if the catalogue was read from a file.
    entries : Entries
    centres : shape (n_centres, n_private); private values that answers may have
    was_offered : shape (n_centres,); which of them were offered to regions
    shared : list of SharedValues, one for each private column in the order of ``codes.private``
    spans : shape (n_features,); the differences that count as 1 in distances. Those of private
        columns are not the extreme values of single people
    first : FirstMembers, optional
        None without a key, or without a subject in the schema.
    changes : Changes, optional
        How it differs from the previous catalogue, if there is one.
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
    # of each large region, the sets of combinations that the model is asked about
    _sets: Mapping[int, Sequence[Options]]
    # by region, positions of required combinations among `_candidates`
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
        rows : shape (n_rows, n_features); the encoded training table
        person : shape (n_rows,); the number of each row's person
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
            The training table is a sample. This looks at all rows: regions are widened to cover
            them, and private values of few people are dropped.

        Raises
        ------
        PolicyError
            If the people with the outcome form no group with k, l and t, or there are no handles
            for a previous catalogue.
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
                raise PolicyError("a previous catalogue needs handles, which recognise its people")
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

        The region's weakest entry has the outcome with the margin there. All its members who are
        consistent with this entry are consistent with the answer as well. The most doubtful
        combinations come first. The model is asked once about each region.

        Parameters
        ----------
        regions : shape (n,)

        Returns
        -------
        dict of region to array, shape (n_required, n_quasi)
            Empty if the region has no entry, or has too many combinations: then its answers must
            not be moved.
        """
        numbers = np.unique(regions).tolist()
        self._ask_about([region for region in numbers if region not in self._required])
        return {region: self._combinations(region) for region in numbers}

    def _combinations(self, region: int) -> Floats:
        """Return the required combinations of a region that the model was asked about."""
        if region in self._listed:
            return self._listed[region]
        combinations = self._candidates(region)[self._required[region]]
        if len(self._listed) < _MOST_LISTED:
            self._listed[region] = combinations
        return combinations

    def _candidates(self, region: int) -> Floats:
        """Return the combinations of a region that the model is asked about, (n, n_quasi).

        These are all, or in a large region those of its sets.
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
        """Ask the model about rows of some regions, and remember which are required."""
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
        """The codes of private columns that are shared, by position of the column."""
        values = [shared.values for shared in self.shared]
        return dict(zip(self.codes.private.tolist(), values, strict=True))

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return facts and arrays from which `of_content` makes the same catalogue.

        They contain no row of the training table. The model is asked about all regions first, so
        that another process need not do it. The content belongs to the data holder: among the
        combinations of large regions, at most one in k is a person's.
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
            "required.region": np.repeat(with_entries, [len(some) for some in required]),
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
        """Return whether entries have the outcome at the first corner of their region."""
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
        """Return the catalogue of some `content`.

        Parameters
        ----------
        facts, arrays : mappings
        model : Model
            It takes the codes of the file; the margin is that of the content.

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
            np.full(n_entries, settings.k),  # at least so many
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
                "the model, or the outcome that is desired, is not the one that the catalogue was"
                " saved with; save a catalogue for this one"
            )
        return catalogue


def _runs(values: NDArray[Any], start: Ints) -> list[NDArray[Any]]:
    """Return the runs of values that begin at `start`, of which there may be none."""
    return np.split(values, start[1:]) if len(start) > 0 else []


def _listed_sets(sets: Mapping[int, Sequence[Options]]) -> Floats:
    """Return sets of options as a list of region, set, column and value, shape (n, 4)."""
    parts = [np.empty((0, 4))]
    for region, sets_of_region in sets.items():
        for number, options in enumerate(sets_of_region):
            for column, values in enumerate(options):
                place = np.tile([region, number, column], (len(values), 1))
                parts.append(np.column_stack([place, values]))
    return np.concatenate(parts)


def _sets_of_list(listed: Floats) -> dict[int, list[Options]]:
    """Return the sets of options of `_listed_sets`."""
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
    """The training table that a catalogue is built of.

    Attributes
    ----------
    rows : shape (n_rows, n_features)
    person : shape (n_rows,)
    eligible : shape (n_people,); one row of each person who has the outcome with the margin
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
        """Return whether some people, (n_people,), are diverse enough for a group."""
        settings = self.settings
        diversity = Diversity.of(self.codes, self.rows, people, settings.l, settings.t)
        return diversity.is_trivial or diversity.has_group(np.ones(len(people), dtype=bool))


@dataclass(frozen=True, eq=False, repr=False)
class _Groups(HostOnly):
    """Groups of people, in the order of their regions.

    Attributes
    ----------
    members : of each group, one row of each person with the outcome, as positions, (n_members,)
    of_previous : shape (n_previous,)
        The number of each region of the previous catalogue; -1 if it went.
    newcomers : shape (n_newcomers,)
        One row of each newcomer who was in a group, also if its region was left out.
    """

    regions: Regions
    members: list[Ints]
    of_previous: Ints
    newcomers: Ints


class _NewGroups(NamedTuple):
    """Groups of newcomers; all numbers of rows are positions.

    Attributes
    ----------
    members : shape (n_members,); one row of each newcomer
    group : shape (n_members,)
    others : shape (n_others,); further rows in the hulls of groups
    group_of_others : shape (n_others,)
    """

    members: Ints
    group: Ints
    others: Ints
    group_of_others: Ints

    def with_others(self, rows: Ints, group: Ints) -> _NewGroups:
        """Return the groups with further rows in their hulls."""
        others = np.append(self.others, rows)
        return self._replace(others=others, group_of_others=np.append(self.group_of_others, group))


def _groups(newcomers: _Training, stayed: Stayed, new: _NewGroups) -> _Groups:
    """Return the groups that stay, and those of newcomers, in the order of their regions.

    A new region that equals a previous one would seem to have stayed, so it is widened; if everyone
    is inside, it is left out.
    """
    codes = newcomers.codes
    rows = newcomers.rows
    n_previous = len(stayed.is_kept)
    while True:
        everyone = np.concatenate([stayed.corners, rows[new.members], rows[new.others]])
        group_of_new = n_previous + np.append(new.group, new.group_of_others)
        group = np.append(stayed.region_of_corner, group_of_new)
        regions = Regions.of_groups(codes, everyone, group)
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
    regions = Regions.of_groups(codes, everyone[is_row], place_of_row[is_row])
    place_of_kept = place[:n_previous][stayed.is_kept]
    members = np.concatenate([*stayed.members, new.members])
    place_of_member = np.append(
        np.repeat(place_of_kept, [len(some) for some in stayed.members]),
        place[n_previous + new.group],
    )
    return _Groups(
        regions,
        _by_group(members, place_of_member, len(regions)),
        place[:n_previous],
        new.members,
    )


def _nearest_outside(rows: Floats, regions: Regions, numbers: Ints) -> tuple[Ints, Ints]:
    """Return some regions, (n,), and for each the row outside of it that widens it least, (n,).

    A region with all rows inside is not among them.
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
    """Divide newcomers into groups; everyone who is in no region that stays joins the nearest."""
    codes = newcomers.codes
    rows = newcomers.rows
    if len(newcomers.eligible) < newcomers.settings.k:
        nothing = np.empty(0, dtype=np.int64)
        return _NewGroups(nothing, nothing, nothing, nothing)
    space = Space(codes)
    points = space.points(newcomers.members)
    group = _divided(newcomers, points, space.caps, random)
    person = newcomers.person
    others = np.setdiff1d(np.arange(len(rows)), newcomers.eligible)
    is_covered = stayed.covers(rows[others])
    others = np.append(others[~is_covered], others[is_covered])
    with_outcome = person[newcomers.model.has_outcome(rows)]
    joined, wider = cover(
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
        np.append(others[: len(joined)], others[wider[:, 1]]),
        np.append(joined, wider[:, 0]),
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
    """Make true for all rows what was made for a sample of people.

    Members, and shared values that people of the sample have, stay as they are: the sample bounds
    the number of people from below. The rows outside of all regions widen the nearest new one;
    corners of their hulls are appended to the training rows. Values, and whole combinations, that
    no one in the sample has are dropped if one to k - 1 people have them. Those of the previous
    catalogue stay, and after it, new ones are dropped if anyone has them; see
    `cfk_plugin.protection.previous`.
    """
    codes = newcomers.codes
    rows = newcomers.rows
    k = newcomers.settings.k
    private = rows[:, codes.private]
    of_previous = [np.empty(0)] * len(shared) if previous is None else previous.shared
    unseen = [
        np.setdiff1d(values.values, np.append(column, stays))
        for values, column, stays in zip(shared, private.T, of_previous, strict=True)
    ]
    seen = private if previous is None else np.concatenate([private, previous.centres])
    is_unseen = ~_are_among(centres, seen)
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
    """Return which counts are of someone, but of fewer people than `n_enough`."""
    return (n_people > 0) & (n_people < n_enough)


def _are_among(rows: Floats, others: Floats) -> Mask:
    """Return which rows, (n_rows, n_columns), are equal to one of some others, (n_rows,)."""
    _, place = distinct_rows(np.concatenate([rows, others]))
    return np.isin(place[: len(rows)], place[len(rows) :])


def _divided(
    training: _Training, points: Floats, caps: Floats, random: np.random.Generator
) -> Ints:
    """Divide the people with the outcome; return the group of each, shape (n_people,).

    Groups are kept similar in how likely the outcome is, so that many of their regions are pure.
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
    """Return how likely the outcome is at people's quasi-identifiers, shape (n_people,).

    That is the share of some sampled people whose private values have it there.
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
    """Return the place of each region by NCP, shape (n_regions,); the same for equal regions.

    Groups with the same region are one to an attacker. Ties are decided by the values of regions,
    so the order tells nothing about the order of the table.
    """
    ncp = np.round(regions.ncp, 12).tolist()
    texts = [_text(regions, i) for i in range(len(regions))]
    keys = list(zip(ncp, texts, strict=True))
    place = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys])


def _text(regions: Regions, region: int) -> str:
    return json.dumps(regions.region(region).to_dict(), sort_keys=True)


def _by_group(rows: Ints, group: Ints, n_groups: int) -> list[Ints]:
    """Return the positions of rows of each group."""
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(n_groups + 1))
    return [rows[order[start[i] : start[i + 1]]] for i in range(n_groups)]


def _centres(newcomers: _Training, previous: Previous | None) -> tuple[list[SharedValues], Floats]:
    """Return what may be shared of each private column, and centres of crowds, (n, n_private).

    What the previous catalogue has of them stays. Too few newcomers add nothing.
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
    """Return how many people have each row of some values, (n_rows, n_columns), by its bytes."""
    rows, n_people = people_with(values, person)
    return {row.tobytes(): n for row, n in zip(rows, n_people.tolist(), strict=True)}


def _keyed_order(centres: Floats, key: bytes, random: np.random.Generator) -> Ints:
    """Return an order of centres that nobody without the key can foresee, (n_centres,).

    If it followed from the training table, an attacker could infer who is in it from the pairs of
    regions and private values that were still tried.
    """
    if not key:
        return random.permutation(len(centres))
    digests = [hmac.digest(key, b"centre" + row.tobytes(), "sha256") for row in centres]
    order = sorted(range(len(centres)), key=digests.__getitem__)
    return np.array(order, dtype=np.int64)


def _random_of_region(
    regions: Regions, key: bytes, random: np.random.Generator
) -> Callable[[int], np.random.Generator]:
    """Return what gives the random numbers of a region.

    With a key, they are the same in the next catalogue, whatever other regions there are.
    """
    if not key:
        return lambda _: random

    def random_of(region: int) -> np.random.Generator:
        digest = hmac.digest(key, b"region" + _text(regions, region).encode(), "sha256")
        return np.random.default_rng(int.from_bytes(digest))

    return random_of


def _first_members(groups: _Groups, handles: Handles, previous: Previous | None) -> FirstMembers:
    """Return for whom the regions were made, in this catalogue or before it."""
    members = np.concatenate(groups.members)
    region = np.repeat(np.arange(len(groups.members)), [len(some) for some in groups.members])
    first = FirstMembers.of(handles.of_row[members], region, handles.of_key)
    first = first.with_others(handles.of_row[groups.newcomers])
    return first if previous is None else first.with_others(previous.first.handles)


def _log_groups_without(groups: _Groups, entries: Entries) -> None:
    """Log how many people are in groups without an entry; warn if most of them are."""
    n_members = np.array([len(members) for members in groups.members])
    has_entry = np.isin(np.arange(len(n_members)), entries.region)
    n_without = int(n_members[~has_entry].sum())
    if n_without == 0:
        return
    is_most = n_without > n_members.sum() / 2
    level = logging.WARNING if is_most else logging.INFO
    _log.log(
        level,
        "%d of %d people with the desired outcome are in groups without an entry: with all private"
        " values that were tried, the model refuses too much of the region. Answers come from the"
        " other groups, and may be further from the query. A smaller k, fewer quasi-identifiers or"
        " a lower min_pureness leave fewer groups without an entry",
        n_without,
        n_members.sum(),
    )


# Combinations at which moved answers are checked


def _sets_of_large_regions(
    training: _Training, groups: _Groups, random_of: Callable[[int], np.random.Generator]
) -> dict[int, list[Options]]:
    """Return sets of combinations at which answers of large regions are checked.

    The people of a set are members of the region, and as many others inside, so that members cannot
    be recognised. A set has all combinations of its people's values, so it does not reveal which
    values belong together. All members are in a set.
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
    """Return the options of as few sets as possible, whose combinations are not too many.

    Empty if more than one in k combinations of a set would be a person's. `people` has the shape
    (n_people, n_quasi).
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
    "no region of the previous catalogue has k first members who are still there and have the"
    " outcome, and newcomers are too few; fit without previous=, which is a release of its own. In"
    " other words: "
)


_NO_ONE = (
    "the model gives the desired outcome, with the margin, to no one in the table; check how the"
    " outcome is spelled and typed, as 'Yes' is not 'yes' and 1 is not '1', or lower margin"
)


def _no_group(settings: Settings) -> str:
    """Return why there is no catalogue if no group has what the settings ask for."""
    limits = [
        f"{name} = {limit}"
        for name, limit in (("k", settings.k), ("l", settings.l), ("t", settings.t))
        if limit is not None
    ]
    return (
        f"the people with the desired outcome form no group with {' and '.join(limits)}, so"
        " there is no catalogue; lower k, l or margin, raise t, or ask for another outcome"
    )
