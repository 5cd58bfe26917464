"""The releases under attack, and the people who may be behind each of them. Host side only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import InputError
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Crowd:
    """People who may be behind a release, in the terms of the population: the training rows, or a holdout.

    Parameters
    ----------
    people : Population
        The rows.
    population : Population
        The training population, whose codes are used.
    """

    def __init__(self, people: Population, population: Population) -> None:
        self.people, self.population = people, population

    def __repr__(self) -> str:
        """Show counts."""
        return f"Crowd({self.people!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold rows."""
        raise InputError("an audit holds training rows and refuses to be pickled; keep its report")

    @cached_property
    def coded(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Codes and numbers of every feature of every row, see `Population.encode`."""
        return self.population.encode(self.people.frame)

    def carriers(self, rows: Rows, released: Mapping[str, Any]) -> Mask:
        """Say which rows carry what is released of the private attributes: the values, or one in a released bin."""
        same, schema = np.ones(len(rows), dtype=bool), self.population.schema
        for name, value in released.items():
            codes, domain = self.coded[0][rows, schema.features.index(name)], self.population.domains[name]
            if isinstance(value, Interval):
                same &= domain.inside(value)[codes] & (codes >= 0)
            else:
                own = domain.encode(pd.Series([value], dtype=object))[0][0]
                same &= (codes == own) & (own >= 0)  # below 0: a value that no training row has
        return same


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Release:
    """One released explanation, and what only the data holder knows of it.

    Attributes
    ----------
    at : int
        Position among the counterfactuals attacked.
    entry : GeneralizedCounterfactual
        What was released.
    rows : int array
        Training rows inside the region.
    k : int
        Distinct people among them.
    targets : int array
        Rows of the people whose private values were released: those that the counterfactual equals, else all inside
        who carry the released values. Empty for a synthetic counterfactual.
    """

    at: int
    entry: GeneralizedCounterfactual
    rows: Rows
    k: int
    targets: Rows

    @property
    def region(self) -> Region:
        """The released region."""
        return self.entry.region


class Releases:
    """Released explanations of one pass, with the private values of all of them in one table.

    Parameters
    ----------
    entries : sequence of entries
        One per counterfactual; suppressed ones are passed over.
    raw : DataFrame
        The counterfactuals.
    crowd : Crowd
        The training rows.
    """

    def __init__(self, entries: Sequence[Entry], raw: pd.DataFrame, crowd: Crowd) -> None:
        self.crowd, population = crowd, crowd.population
        kept = [(at, e) for at, e in enumerate(entries) if isinstance(e, GeneralizedCounterfactual)]
        self.private = _private_values([entry for _, entry in kept], raw.take([at for at, _ in kept]), population)
        self._quasi = [population.schema.features.index(name) for name in population.schema.quasi_identifiers]
        own = population.encode(raw)[0]
        self._items = tuple(self._read(at, entry, own[at]) for at, entry in kept)

    def _read(self, at: int, entry: GeneralizedCounterfactual, own: NDArray[np.int32]) -> Release:
        population = self.crowd.population
        rows = population.members(entry.region)
        targets = rows[self.crowd.carriers(rows, entry.released)]
        codes = self.crowd.coded[0][targets]
        for columns in (list(range(codes.shape[1])), self._quasi):  # the row itself, else who shares its place
            same = targets[(codes[:, columns] == own[columns]).all(axis=1)]
            if len(same):
                targets = same
                break
        return Release(at, entry, rows, population.people(rows), targets)

    def __len__(self) -> int:
        """Return the number of releases."""
        return len(self._items)

    def __getitem__(self, i: int) -> Release:
        """Return one release."""
        return self._items[i]

    def __iter__(self) -> Iterator[Release]:
        """Iterate over the releases."""
        return iter(self._items)

    def __repr__(self) -> str:
        """Show counts."""
        return f"Releases({len(self)} released)"

    @property
    def at(self) -> Rows:
        """Position of each release among the counterfactuals."""
        return np.array([r.at for r in self._items], dtype=np.int64)

    @property
    def sizes(self) -> Rows:
        """People inside each region."""
        return np.array([r.k for r in self._items], dtype=np.int64)

    def places(self, crowd: Crowd | None = None) -> Places:
        """Return the distinct quasi-identifier combinations of the people inside each region."""
        chosen = self.crowd if crowd is None else crowd
        same = chosen is self.crowd
        return Places(chosen, tuple(r.rows if same else chosen.people.members(r.region) for r in self._items))

    def found(self, survivors: Sequence[Mask]) -> NDArray[np.float64]:
        """Return the chance to name the right person when guessing among the rows that survive.

        Parameters
        ----------
        survivors : sequence of bool array
            Per release, over its rows.

        Returns
        -------
        float array
            1 / people left where the right one is among them, else 0; releases that are nobody's are left out.
        """
        chances = []
        for release, left in zip(self._items, survivors, strict=True):
            if len(release.targets):
                rows = release.rows[left]
                hit = np.isin(release.targets, rows).any()
                chances.append(1.0 / self.crowd.people.people(rows) if hit else 0.0)
        return np.array(chances)

    def coincidence(self, crowd: Crowd, places: Places, survivors: Sequence[Mask]) -> NDArray[np.float64]:
        """Return the chance that somebody picked among survivors outside of the table carries the released values.

        Releases whose values nobody of the table carries are left out, as in `found`.
        """
        chances = []
        for release, inside, left in zip(self._items, places.rows, survivors, strict=True):
            if len(release.targets):
                rows = inside[left]
                chances.append(float(crowd.carriers(rows, release.entry.released).mean()) if len(rows) else 0.0)
        return np.array(chances)

    def people(self, survivors: Sequence[Mask]) -> Rows:
        """Return how many distinct people survive, per release."""
        pairs = zip(self._items, survivors, strict=True)
        return np.array([self.crowd.people.people(r.rows[left]) for r, left in pairs], dtype=np.int64)

    def everybody(self) -> list[Mask]:
        """Return survivors when nobody is struck out."""
        return [np.ones(len(r.rows), dtype=bool) for r in self._items]


class Places:
    """The distinct quasi-identifier combinations (places) of the people inside each of several regions.

    People of one place are alike for everything that is asked with their quasi-identifiers and released private
    values, so it is asked once per place.

    Attributes
    ----------
    rows : tuple of int array
        Rows inside, per region.
    which : int array
        Region that each place belongs to.
    first : int array
        A row of each place.
    """

    def __init__(self, crowd: Crowd, rows: Sequence[Rows]) -> None:
        self.crowd, self.rows = crowd, tuple(rows)
        which, first, self._spread, count = [], [], [], 0
        for i, inside in enumerate(self.rows):
            _, at, inverse = np.unique(crowd.people.cell_of(inside), return_index=True, return_inverse=True)
            which.append(np.full(len(at), i))
            first.append(inside[at])
            self._spread.append(inverse + count)
            count += len(at)
        self.which = np.concatenate([np.empty(0, np.int64), *which]).astype(np.int64)
        self.first = np.concatenate([np.empty(0, np.int64), *first]).astype(np.int64)

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self.which)

    def questions(self, private: pd.DataFrame) -> pd.DataFrame:
        """Return one row per place: its quasi-identifiers with the released private values of its region."""
        population = self.crowd.population
        if not len(self):
            return population.rows(np.empty(0, dtype=np.int64))[list(population.schema.features)]
        quasi = self.crowd.people.rows(self.first)[list(population.schema.quasi_identifiers)].reset_index(drop=True)
        rest = private[list(population.schema.private)].take(self.which).reset_index(drop=True)
        return population.conform(pd.concat([quasi, rest], axis=1)[list(population.schema.features)])

    def spread(self, answers: NDArray[Any]) -> list[NDArray[Any]]:
        """Return answers per place as answers per row, region by region."""
        return [answers[places] for places in self._spread]


def _private_values(
    entries: Sequence[GeneralizedCounterfactual], raw: pd.DataFrame, population: Population
) -> pd.DataFrame:
    """Return the released private values in the training table's dtypes, beside the raw quasi-identifiers.

    Where only a bin was released, or nothing, the counterfactual's own value stands in: an attacker who guessed it.
    """
    frame = raw[list(population.schema.features)].reset_index(drop=True).astype(object)
    for name in population.schema.private:
        own = frame[name].tolist()
        told = [entry.released.get(name, value) for entry, value in zip(entries, own, strict=True)]
        values = [_stand_in(part, value) for part, value in zip(told, own, strict=True)]
        frame[name] = pd.Series(values, dtype=object, index=frame.index)
    return population.conform(frame)


def _stand_in(part: Any, own: Any) -> Any:
    if not isinstance(part, Interval):
        return part
    return own if own in part else part.low
