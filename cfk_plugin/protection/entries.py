"""Entries: pairs of a region and private values, and the trials that find them.

`cfk_plugin.protection.catalogue` states the conditions for an entry, and their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.regions import Regions

_SAMPLED = 64  # combinations of a region with which an entry is tried
_CONFIDENCE = 0.9999  # of the lower end of a sampled pureness; high, as many entries are tried
_CENTRES = 32  # centres that are offered before regions without an entry are counted again
_AT_ONCE = 200_000  # rows in one call of the model
_TIE = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Entries(HostOnly):
    """Pairs of a region and private values, sorted by region and values.

    Attributes
    ----------
    region : shape (n_entries,)
    values : shape (n_entries, n_private)
    consistent : shape (n_entries,)
        The number of members of the region who have the outcome with the values.
    pureness : shape (n_entries,)
        The share of the region, or of a sample of it, that has the outcome with the values.
    """

    region: Ints
    values: Floats
    consistent: Ints
    pureness: Floats

    def __len__(self) -> int:
        return len(self.region)

    def _counts(self) -> str:
        return f"{len(self)} entries"

    def take(self, positions: Ints) -> Entries:
        """Return the entries at these positions, in this order."""
        return Entries(
            self.region[positions],
            self.values[positions],
            self.consistent[positions],
            self.pureness[positions],
        )

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """Return the entries of all parts, at least one, sorted by region and values."""
        entries = cls(
            np.concatenate([part.region for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.consistent for part in parts]),
            np.concatenate([part.pureness for part in parts]),
        )
        return entries.take(np.lexsort((*entries.values.T[::-1], entries.region)))

    @cached_property
    def weakest(self) -> dict[int, int]:
        """The position of the entry with the lowest pureness, by region."""
        order = np.lexsort((self.pureness, self.region))
        regions, first = np.unique(self.region[order], return_index=True)
        return dict(zip(regions.tolist(), order[first].tolist(), strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class Trials(HostOnly):
    """Trials of private values with the members of regions and with combinations in the regions.

    Attributes
    ----------
    k : int
        The least number of members who have the outcome with an entry's values.
    least_pureness : float
        The least share of a region that has the outcome with an entry's values.
    regions : shape (n_regions,)
        The numbers of the regions that may have entries.
    cells : shape (n_cells, n_quasi)
        The distinct combinations of members, region by region.
    n_people : shape (n_cells,)
        The number of members in each cell.
    start : shape (n_regions,)
        The position of the first cell of each region.
    samples : list of arrays, shape (n_sampled, n_quasi) each
        Combinations of each region.
    is_sample : shape (n_regions,)
        False if `samples` contains all combinations of the region.
    """

    model: Model
    k: int
    least_pureness: float
    regions: Ints
    cells: Floats
    n_people: Ints
    start: Ints
    samples: list[Floats]
    is_sample: Mask

    @classmethod
    def of(
        cls,
        model: Model,
        regions: Regions,
        members: Sequence[Floats],
        *,
        k: int,
        least_pureness: float,
        max_ncp: float,
        random_of: Callable[[int], np.random.Generator],
    ) -> Trials:
        """Prepare trials in the regions whose NCP is not above `max_ncp`.

        `members` are the quasi-identifiers of each region's members, (n_members, n_quasi) each.
        `random_of` returns the random generator with which a region is sampled.
        """
        numbers = np.flatnonzero(regions.ncp <= max_ncp + _TIE)
        cells = [np.empty((0, len(regions.codes.quasi)))]
        n_people = [np.empty(0, dtype=np.int64)]
        for region in numbers.tolist():
            distinct, counts = np.unique(members[region], axis=0, return_counts=True)
            cells.append(distinct)
            n_people.append(counts)
        sizes = np.array([regions.size(region) for region in numbers.tolist()])
        return cls(
            model=model,
            k=k,
            least_pureness=least_pureness,
            regions=numbers,
            cells=np.concatenate(cells),
            n_people=np.concatenate(n_people),
            start=np.cumsum(list(map(len, cells)))[:-1],
            samples=[
                regions.sample(region, _SAMPLED, random_of(region)) for region in numbers.tolist()
            ],
            is_sample=sizes > _SAMPLED,
        )

    @property
    def n_rows(self) -> int:
        """The largest number of rows about which the model is asked for one centre."""
        return len(self.cells) + sum(map(len, self.samples))

    def offer(self, centres: Floats, n_most: int, n_first: int = 0) -> tuple[Entries, int]:
        """Offer centres to regions until each region has an entry, or `n_most` rows are used up.

        Each centre is offered to all regions, or to none.

        Parameters
        ----------
        centres : shape (n_centres, n_private)
        n_most : int
            The number of rows about which the model may be asked.
        n_first : int
            The number of first centres that are offered in any case, and do not count for `n_most`.

        Returns
        -------
        entries : Entries
        n_offered : int
            The number of centres that were offered.
        """
        n_rows_of_centre = max(self.n_rows, 1)
        most_at_once = min(max(_AT_ONCE // n_rows_of_centre, 1), _CENTRES)
        n_rows_left = n_most
        no_regions = np.empty(0, dtype=np.int64)
        entries = Entries(no_regions, centres[:0], no_regions, np.empty(0))
        start = 0
        while start < len(centres):
            n_centres = min(n_rows_left // n_rows_of_centre, most_at_once)
            if start < n_first:
                n_centres = min(n_first - start, most_at_once)
            elif len(np.unique(entries.region)) == len(self.regions):
                break
            elif n_centres < 1 and (start > 0 or n_most == 0):
                break
            batch = centres[start : start + max(n_centres, 1)]
            admissible, n_rows = self._admissible(batch)
            entries = Entries.joined([entries, admissible])
            n_rows_left -= 0 if start < n_first else n_rows
            start += len(batch)
        return entries, start

    def _admissible(self, centres: Floats) -> tuple[Entries, int]:
        """Return the entries of centres, and the number of rows that the model was asked about."""
        consistent = self._consistent(centres)
        centre, place = np.nonzero(consistent >= self.k)
        values = centres[centre]
        pureness, lowest = self._pureness(place, values)
        entries = Entries(self.regions[place], values, consistent[centre, place], pureness)
        n_in_regions = sum(len(self.samples[i]) for i in place.tolist())
        n_rows = len(centres) * len(self.cells) + n_in_regions
        return entries.take(np.flatnonzero(lowest >= self.least_pureness - _TIE)), n_rows

    def _consistent(self, centres: Floats) -> Ints:
        """Count the members who have the outcome with centres, shape (n_centres, n_regions)."""
        quasi = np.tile(self.cells, (len(centres), 1))
        private = np.repeat(centres, len(self.cells), axis=0)
        sure = self.model.sure(self.model.codes.rows_of(quasi, private))
        people = sure.reshape(len(centres), len(self.cells)) * self.n_people
        return np.add.reduceat(people, self.start, axis=1)

    def _pureness(self, place: Ints, values: Floats) -> tuple[Floats, Floats]:
        """Return the pureness of pairs of a region and values, and its lower end, shape (n,) each.

        `place`, shape (n,), contains positions in `regions`, and `values` has the shape (n,
        n_private). The lower end equals the pureness unless the region is sampled.
        """
        if not len(place):
            return np.empty(0), np.empty(0)
        samples = [self.samples[i] for i in place.tolist()]
        sizes = np.array([len(sample) for sample in samples])
        private = np.repeat(values, sizes, axis=0)
        sure = self.model.sure(self.model.codes.rows_of(np.concatenate(samples), private))
        n_outcomes = np.add.reduceat(sure.astype(np.int64), np.cumsum(sizes) - sizes)
        share = n_outcomes / sizes
        return share, np.where(self.is_sample[place], _lower_end(n_outcomes, sizes), share)


def _lower_end(n_outcomes: Ints, n: Ints) -> Floats:
    """Return the lower ends of Clopper-Pearson intervals, shape (n_intervals,)."""
    tail = (1 - _CONFIDENCE) / 2
    lower = special.betaincinv(np.maximum(n_outcomes, 1), n - n_outcomes + 1, tail)
    return np.where(n_outcomes > 0, lower, 0.0)
