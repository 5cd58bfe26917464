"""The recount on Spark: one job that looks at all rows for a catalogue of a sample.

The people of the sample are people of the whole table. So at least k of them are behind every
region and entry, and at least k have the private values that k people of the sample have. Three
things may be false of the whole table, and need all rows:

* Regions cover everyone. A row outside of all regions widens the one that grows least by it.
* No one has a private value that no one in the sample has.
* No one has a whole combination of private values that no one in the sample has.

Workers get the columns of the training table, the regions and these values, but neither the model
nor the rows of the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.codes import MISSING, Codes, Floats, Ints, distinct_rows
from cfk_plugin.data.region import to_text
from cfk_plugin.data.spark import PERSON, SparkTable, functions, quietly
from cfk_plugin.errors import CFKError, HostOnly, PopulationError, quiet
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.protection.groups import nearest_groups
from cfk_plugin.protection.regions import Regions, Space

_AT_ONCE = 500_000  # rows that a worker looks at together
_FORM = "kind int, place long, person string, corner array<double>"
_FAILED = -2
_CORNER = -1
# every other kind is the number of a private column, or of whole combinations after these


class RowCounts(NamedTuple):
    """What all rows say about a catalogue.

    Attributes
    ----------
    of_values : of each private column, how many people have each value, (n_values,)
    of_combinations : shape (n_combinations,)
    corners : shape (n_corners, n_quasi)
        Hulls of the rows outside of all regions that join the same one.
    region_of_corner : shape (n_corners,); the region that they join
    """

    of_values: list[Ints]
    of_combinations: Ints
    corners: Floats
    region_of_corner: Ints


@dataclass(frozen=True, eq=False, repr=False)
class SparkRecount(HostOnly):
    """Counts people in all rows of a Spark table.

    Attributes
    ----------
    table : SparkTable
    codes : Codes
        They cover the whole table.
    """

    table: SparkTable
    codes: Codes

    def count(
        self,
        regions: Regions,
        others: Regions,
        values: Sequence[Floats],
        combinations: Floats,
    ) -> RowCounts:
        """Count, in one job, the people with private values, and find rows outside of regions.

        Parameters
        ----------
        regions : Regions
            A row outside of all regions joins one of these.
        others : Regions
            They cover rows as well, but none joins them.
        values : of each private column, shape (n_values,) each, in order
        combinations : shape (n_combinations, n_private), distinct

        Raises
        ------
        PopulationError
            If a worker cannot read some rows, or Spark fails.
        """
        sql = functions()
        corners, region_of_corner = regions.corners()
        other_corners, number_of_other = others.corners()
        file = CatalogueFile.of_table(self.table.schema, self.codes, {})
        arrays = {
            **file.arrays,
            "corners": np.concatenate([corners, other_corners]),
            "region_of_corner": np.append(region_of_corner, len(regions) + number_of_other),
            "combinations": combinations,
            **{f"values.{i}": of_column for i, of_column in enumerate(values)},
        }
        for i, j in enumerate(self.codes.private.tolist()):
            if self.codes.columns[j].is_numeric:  # equal but for noise is equal; see `Column`
                numbers = [arrays[f"column.{j}"], values[i], combinations[:, i]]
                arrays[f"column.{j}"] = _present(np.concatenate(numbers))
        job = _Job(file.facts, arrays, n_joined=len(regions))
        rows = self.table.rows.mapInPandas(job, _FORM)
        n_people = sql.count_distinct(PERSON).alias("n_people")
        with quiet("Spark cannot count the table ({})", PopulationError):
            counts = rows.groupBy("kind", "place", "corner").agg(n_people).toPandas()
        if (counts["kind"] == _FAILED).any():
            raise PopulationError(
                "a worker cannot read some rows of the table; look for values that are not finite"
                " numbers, and install this package on the workers"
            )
        hulls = counts[counts["kind"] == _CORNER]
        return RowCounts(
            [_n_people(counts, i, len(of_column)) for i, of_column in enumerate(values)],
            _n_people(counts, len(values), len(combinations)),
            np.array(hulls["corner"].tolist()).reshape(-1, len(self.codes.quasi)),
            hulls["place"].to_numpy(),
        )


def _present(numbers: Floats) -> Floats:
    """Return distinct numbers in order, without missing ones."""
    return np.unique(numbers[numbers != MISSING])


def _n_people(counts: pd.DataFrame, kind: int, n_places: int) -> Ints:
    """Return how many people there are at each place of a kind, shape (n_places,)."""
    of_kind = counts[counts["kind"] == kind]
    n_people = np.zeros(n_places, dtype=np.int64)
    n_people[of_kind["place"].to_numpy()] = of_kind["n_people"].to_numpy()
    return n_people


@dataclass(frozen=True, repr=False)
class _Job:
    """What a worker needs to look at rows.

    Attributes
    ----------
    facts, arrays : mappings
        Those of a `CatalogueFile` with all values of the columns, and what is looked for.
    n_joined : int
        Rows join one of so many regions; the others follow.
    """

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    n_joined: int

    def __call__(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield what some rows say, on a worker: one row for each match, and for each corner.

        Whatever fails gives a row that says so. Spark would write an exception, with its text, to
        its logs.
        """
        try:
            for rows in _joined(quietly(batches)):
                with quiet("{}", CFKError):
                    results = self._results(rows)
                yield results
        except CFKError:
            yield _result(_FAILED, np.zeros(1, dtype=np.int64))

    @cached_property
    def _codes(self) -> Codes:
        return CatalogueFile(self.facts, self.arrays).codes

    @cached_property
    def _regions(self) -> Regions:
        corners = self._rows_at(self.arrays["corners"])
        return Regions.of_groups(self._codes, corners, self.arrays["region_of_corner"])

    def _rows_at(self, quasi: Floats) -> Floats:
        """Return rows with some quasi-identifiers, (n_rows, n_quasi), and no private values."""
        return self._codes.rows_of(quasi, np.full(len(self._codes.private), MISSING))

    def _results(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return what some rows say; the columns of `frame` are those of `SparkTable.rows`."""
        codes = self._codes
        rows = codes.encode(frame.drop(columns=PERSON).set_axis(codes.names, axis=1))
        if np.isnan(rows).any():
            raise PopulationError("rows have values without a code")
        matches = self._matches(rows[:, codes.private], frame[PERSON])
        return pd.concat([*matches, self._corners(rows)])

    def _matches(self, private: Floats, person: pd.Series) -> list[pd.DataFrame]:
        """Return who has the values, and the combinations, that are looked for.

        `private` has the shape (n_rows, n_private), `person` (n_rows,).
        """
        combinations = self.arrays["combinations"]
        matches = []
        is_possible = np.ones(len(private), dtype=bool)
        for i, column in enumerate(private.T):
            place, rows = _places(self.arrays[f"values.{i}"][:, None], column[:, None])
            matches.append(_result(i, place, person.take(rows).tolist()))
            is_possible &= np.isin(column, combinations[:, i])
        possible = np.flatnonzero(is_possible)
        place, rows = _places(combinations, private[possible])
        persons = person.take(possible[rows]).tolist()
        return [*matches, _result(private.shape[1], place, persons)]

    def _corners(self, rows: Floats) -> pd.DataFrame:
        """Return hulls of the rows, (n_rows, n_features), that are outside of all regions."""
        codes = self._codes
        outside = rows[~self._regions.cover(rows)]
        cells, _ = distinct_rows(outside[:, codes.quasi])
        if not len(cells):
            return _result(_CORNER, np.empty(0, dtype=np.int64))
        space = Space(codes)
        is_joined = self.arrays["region_of_corner"] < self.n_joined
        joined = nearest_groups(
            space.points(self._rows_at(self.arrays["corners"][is_joined])),
            self.arrays["region_of_corner"][is_joined],
            space.points(self._rows_at(cells)),
            space.caps,
        )
        widened, group = np.unique(joined, return_inverse=True)
        corners, place = Regions.of_groups(codes, self._rows_at(cells), group).corners()
        return _result(_CORNER, widened[place], corners=corners.tolist())


def _places(values: Floats, rows: Floats) -> tuple[Ints, Ints]:
    """Return which rows are among some values: the place of each in these, and the row.

    `values` has the shape (n_values, n_columns), and `rows` (n_rows, n_columns).
    """
    if not len(values) or not len(rows):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    distinct, number = distinct_rows(np.concatenate([values, rows]))
    place_of_number = np.full(len(distinct), -1)
    place_of_number[number[: len(values)]] = np.arange(len(values))
    place = place_of_number[number[len(values) :]]
    is_among = place >= 0
    return place[is_among], np.flatnonzero(is_among)


def _result(
    kind: int,
    place: Ints,
    persons: list[Any] | None = None,
    corners: list[Any] | None = None,
) -> pd.DataFrame:
    """Return rows in the form of a job's results."""
    nothing: list[Any] = [None] * len(place)
    return pd.DataFrame(
        {
            "kind": np.full(len(place), kind, dtype=np.int32),
            "place": place,
            PERSON: pd.Series(persons or nothing, dtype=object).map(to_text, na_action="ignore"),
            "corner": pd.Series(corners or nothing, dtype=object),
        }
    )


def _joined(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield larger batches: a worker then looks at each region less often."""
    parts: list[pd.DataFrame] = []
    n_rows = 0
    for batch in batches:
        parts.append(batch)
        n_rows += len(batch)
        if n_rows >= _AT_ONCE:
            yield pd.concat(parts, ignore_index=True)
            parts = []
            n_rows = 0
    if parts:
        yield pd.concat(parts, ignore_index=True)
