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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import (
    MISSING,
    Codes,
    Floats,
    Ints,
    Mask,
    mixed,
    one_row_each,
    people_with,
)
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.errors import HostOnly, ModelError, PolicyError
from cfk_plugin.protection.diversity import Diversity, merge
from cfk_plugin.protection.entries import Entries, Trials
from cfk_plugin.protection.groups import cover, divide
from cfk_plugin.protection.regions import Regions, Space
from cfk_plugin.protection.values import ColumnPeople, SharedValues, crowd_centres

_log = logging.getLogger("cfk_plugin")

_LIKELY_WEIGHT = 0.3  # in groups, of how often the outcome is likely, next to an NCP of 1
_LIKELY_RECORDS = 8  # people whose private values are tried for it
_LIKELY_ROWS = 400_000  # that the model is asked about for it, at most
_AT_ONCE = 200_000  # rows in one call of the model
_MOST_LISTED = 200  # regions whose required combinations stay in memory
_ROUNDING = 1e-9  # of leads, as in `Model.sure`

_Number = TypeVar("_Number", np.float64, np.int64)

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
    centres : shape (n_centres, n_private); all private values that were offered to regions
    shared : list of SharedValues, one for each private column in the order of ``codes.private``
    spans : shape (n_features,); the differences that count as 1 in distances. Those of private
        columns are not the extreme values of single people
    """

    model: Model
    settings: Settings
    regions: Regions
    members: list[Ints]
    entries: Entries
    centres: Floats
    shared: list[SharedValues]
    spans: Floats
    # of each large region, the sets of combinations that the model is asked about
    _sets: Mapping[int, Sequence[Options]]
    # by region, positions of required combinations among `_candidates`
    _required: dict[int, Ints] = field(default_factory=dict)
    _listed: dict[int, Floats] = field(default_factory=dict)

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

        Raises
        ------
        PolicyError
            If the people with the outcome form no group with k, l and t.
        """
        eligible = one_row_each(person, np.flatnonzero(model.sure(rows)))
        if len(eligible) < settings.k:
            raise PolicyError(_no_group(settings))
        training = _Training(codes, rows, person, eligible, model, settings)
        groups = _groups(training, random)
        quasi_of_members = [rows[np.ix_(members, codes.quasi)] for members in groups.members]
        shared, centres = _centres(training)
        max_ncp = 1.0 if settings.max_ncp is None else settings.max_ncp
        trials = Trials.of(
            model,
            groups.regions,
            quasi_of_members,
            k=settings.k,
            least_pureness=settings.least_pureness,
            max_ncp=max_ncp,
            random=random,
        )
        entries = trials.offer(_in_keyed_order(centres, key, random), len(rows))
        _log_groups_without(groups, entries)
        spans = codes.spans.copy()
        spans[codes.private] = [values.span for values in shared]
        return cls(
            model,
            settings,
            groups.regions,
            groups.members,
            entries,
            centres,
            shared,
            spans,
            _sets_of_large_regions(groups, quasi_of_members, settings, random),
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
        corners, region_of_corner = self._all_corners()
        required = [self._required[region] for region in with_entries.tolist()]
        arrays = {
            "corners": corners,
            "region_of_corner": region_of_corner,
            "entries.region": self.entries.region,
            "entries.values": self.entries.values,
            "entries.pureness": self.entries.pureness,
            "entries.has_outcome": self._has_outcome(),
            "centres": self.centres,
            "spans": self.spans,
            "sets": _listed_sets(self._sets),
            "required": np.concatenate([np.empty(0, dtype=np.int64), *required]),
            "required.region": np.repeat(with_entries, [len(some) for some in required]),
        }
        for i, shared in enumerate(self.shared):
            arrays[f"shared.{i}"] = np.append(shared.values, shared.span)
        return facts, arrays

    def _all_corners(self) -> tuple[Floats, Ints]:
        """Return combinations whose hulls are the regions, and the region of each."""
        corners = [_corners(self.regions, region) for region in range(len(self.regions))]
        return np.concatenate(corners), np.repeat(np.arange(len(corners)), list(map(len, corners)))

    def _has_outcome(self) -> Mask:
        """Return whether entries have the outcome at the first corner of their region."""
        return self.model.sure(self._first_rows())

    def _first_rows(self) -> Floats:
        """Return each entry at the first corner of its region, shape (n_entries, n_features)."""
        corners, region_of_corner = self._all_corners()
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
            shared,
            arrays["spans"],
            _sets_of_list(arrays["sets"]),
            dict(zip(regions.tolist(), required, strict=True)),
        )
        is_same = np.array_equal(catalogue._has_outcome(), arrays["entries.has_outcome"])
        if not is_same or model.checked(catalogue._first_rows()) is not model:
            raise ModelError(
                "the model, or the outcome that is desired, is not the one that the catalogue was"
                " saved with; save a catalogue for this one"
            )
        return catalogue


def _corners(regions: Regions, region: int) -> Floats:
    """Return combinations whose hull is a region, shape (n_corners, n_quasi)."""
    columns = [regions.codes.columns[j] for j in regions.codes.quasi.tolist()]
    options = [
        _ends(part.options(region)) if column.is_line else part.options(region)
        for column, part in zip(columns, regions.parts, strict=True)
    ]
    n_corners = max(map(len, options))
    return np.column_stack([np.resize(values, n_corners) for values in options])


def _ends(values: Floats) -> Floats:
    """Return the least and largest of some values, and `MISSING` if it is one."""
    numbers = values[values != MISSING]
    return np.unique(np.concatenate([numbers[:1], numbers[-1:], values.min(keepdims=True)]))


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


@dataclass(frozen=True, eq=False, repr=False)
class _Groups(HostOnly):
    """Groups of people, in the order of their regions.

    Attributes
    ----------
    members : of each group, one row of each person with the outcome, as positions, (n_members,)
    others : of each group, quasi-identifiers of all other people in its hull, (n_others, n_quasi)
    """

    regions: Regions
    members: list[Ints]
    others: list[Floats]


def _groups(training: _Training, random: np.random.Generator) -> _Groups:
    """Divide the people with the outcome into groups; everyone else joins the nearest group."""
    codes = training.codes
    rows = training.rows
    space = Space(codes)
    points = space.points(training.members)
    group = _divided(training, points, space.caps, random)
    person = training.person
    others = np.setdiff1d(np.arange(len(rows)), training.eligible)
    with_outcome = person[training.model.has_outcome(rows)]
    joined, wider = cover(
        points,
        group,
        space.points(rows[others]),
        ~np.isin(person[others], with_outcome),
        person[np.append(training.eligible, others)],
        space.caps,
        training.settings.k,
    )
    inside = np.concatenate([training.eligible, others, others[wider[:, 1]]])
    group_inside = np.concatenate([group, joined, wider[:, 0]])
    rank = _rank(Regions.of_groups(codes, rows[inside], group_inside))
    quasi = rows[:, codes.quasi]
    not_members = np.concatenate([others, others[wider[:, 1]]])
    group_of_others = np.concatenate([joined, wider[:, 0]])
    is_other = ~np.isin(person[not_members], person[training.eligible])
    n_groups = int(rank.max()) + 1
    return _Groups(
        Regions.of_groups(codes, rows[inside], rank[group_inside]),
        _by_group(training.eligible, rank[group], n_groups),
        _by_group(quasi[not_members[is_other]], rank[group_of_others[is_other]], n_groups),
    )


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
    texts = [json.dumps(regions.region(i).to_dict(), sort_keys=True) for i in range(len(regions))]
    keys = list(zip(ncp, texts, strict=True))
    place = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys])


def _by_group(rows: NDArray[_Number], group: Ints, n_groups: int) -> list[NDArray[_Number]]:
    """Return the rows, or their positions, of each group."""
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(1, n_groups))
    return np.split(rows[order], start)


def _centres(training: _Training) -> tuple[list[SharedValues], Floats]:
    """Return what may be shared of each private column, and centres of crowds, (n, n_private)."""
    codes = training.codes
    k = training.settings.k
    members = training.members
    if not len(codes.private):
        return [], np.empty((1, 0))
    shared = []
    for j in codes.private.tolist():
        people = ColumnPeople.of(training.rows[:, j], training.person)
        shared.append(SharedValues.of(codes.columns[j], people, members[:, j], k))
    combinations, n_people = people_with(training.rows[:, codes.private], training.person)
    people_of = {
        row.tobytes(): count for row, count in zip(combinations, n_people.tolist(), strict=True)
    }
    return shared, crowd_centres(members[:, codes.private], shared, people_of, k)


def _in_keyed_order(centres: Floats, key: bytes, random: np.random.Generator) -> Floats:
    """Return centres in an order that nobody without the key can foresee.

    If it followed from the training table, an attacker could infer who is in it from the pairs of
    regions and private values that were still tried.
    """
    if not key:
        return centres[random.permutation(len(centres))]
    digests = [hmac.digest(key, b"centre" + row.tobytes(), "sha256") for row in centres]
    return centres[sorted(range(len(centres)), key=digests.__getitem__)]


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
    groups: _Groups,
    quasi_of_members: Sequence[Floats],
    settings: Settings,
    random: np.random.Generator,
) -> dict[int, list[Options]]:
    """Return sets of combinations at which answers of large regions are checked.

    The people of a set are members of the region, and as many others of its group, so that members
    cannot be recognised. A set has all combinations of its people's values, so it does not reveal
    which values belong together. All members are in a set.
    """
    sets = {}
    for region in range(len(groups.regions)):
        if groups.regions.size(region) <= settings.most_combinations:
            continue
        members = quasi_of_members[region]
        others = random.permutation(groups.others[region])[: len(members)]
        people = np.unique(np.concatenate([members, others]), axis=0)
        options = _hidden(people, settings)
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
