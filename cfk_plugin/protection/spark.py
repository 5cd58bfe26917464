"""The recount on Spark: one job that reads all rows for a catalogue of a sample.

The people of the sample are also people of the whole table. So at least k people are behind every
region and entry, and if k people of the sample have private values, at least k people have them.
Three statements can be false for the whole table, and need all rows:

* Regions cover every person. If a row is outside of all regions, the region that grows least by it
  is widened.
* If no one in the sample has a private value, no one has it.
* If no one in the sample has a whole combination of private values, no one has it.

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

_AT_ONCE = 500_000  # rows in one batch of a worker
_FORM = "kind int, place long, person string, corner array<double>"
_FAILED = -2
_CORNER = -1
# any other kind is the number of a private column, or, after these, that of whole combinations


class RowCounts(NamedTuple):
    """The numbers of people in all rows, and the rows outside of regions.

    Attributes
    ----------
    of_values : list of arrays, shape (n_values,) each
        For each private column, the number of people with each value.
    of_combinations : shape (n_combinations,)
        The number of people with each combination.
    corners : shape (n_corners, n_quasi)
        For each region that rows outside join, combinations with the same hull as these rows.
    region_of_corner : shape (n_corners,)
        The region of each corner.
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
        They contain the values of the whole table.
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
            They also cover rows, but rows outside do not join them.
        values : list of arrays, shape (n_values,) each, in order
            The values of each private column to count.
        combinations : shape (n_combinations, n_private), distinct
            The combinations of private values to count.

        Returns
        -------
        RowCounts

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
            # numbers of rows that differ from these only by rounding get the same codes
            if self.codes.columns[j].is_numeric:
                numbers = [arrays[f"column.{j}"], values[i], combinations[:, i]]
                arrays[f"column.{j}"] = _present(np.concatenate(numbers))
        job = _Job(file.facts, arrays, n_joined=len(regions))
        rows = self.table.rows.mapInPandas(job, _FORM)
        n_people = sql.count_distinct(PERSON).alias("n_people")
        with quiet("Spark cannot count the table ({})", PopulationError):
            counts = rows.groupBy("kind", "place", "corner").agg(n_people).toPandas()
        if (counts["kind"] == _FAILED).any():
            raise PopulationError(
                "a worker cannot read some rows of the table; check that all numbers are finite,"
                " and that this package is installed on the workers"
            )
        hulls = counts[counts["kind"] == _CORNER]
        return RowCounts(
            [_n_people(counts, i, len(of_column)) for i, of_column in enumerate(values)],
            _n_people(counts, len(values), len(combinations)),
            np.array(hulls["corner"].tolist()).reshape(-1, len(self.codes.quasi)),
            hulls["place"].to_numpy(),
        )


def _present(numbers: Floats) -> Floats:
    """Return the distinct numbers in order, without `MISSING`."""
    return np.unique(numbers[numbers != MISSING])


def _n_people(counts: pd.DataFrame, kind: int, n_places: int) -> Ints:
    """Return the number of people at each place of one kind of results, shape (n_places,)."""
    of_kind = counts[counts["kind"] == kind]
    n_people = np.zeros(n_places, dtype=np.int64)
    n_people[of_kind["place"].to_numpy()] = of_kind["n_people"].to_numpy()
    return n_people


@dataclass(frozen=True, repr=False)
class _Job:
    """The function of a worker, with its data.

    Attributes
    ----------
    facts, arrays : mappings
        The content of a `CatalogueFile` with all values of the columns, and the regions, values and
        combinations to look for.
    n_joined : int
        Rows may join this number of regions; the others follow.
    """

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    n_joined: int

    def __call__(self, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield results for batches of rows: one for each match, and one for each corner.

        A failure becomes a result, because Spark would log the text of an exception.
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
        """Return rows with these quasi-identifiers, (n_rows, n_quasi), without private values."""
        return self._codes.rows_of(quasi, np.full(len(self._codes.private), MISSING))

    def _results(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the results for a batch with the columns of `SparkTable.rows`."""
        codes = self._codes
        rows = codes.encode(frame.drop(columns=PERSON).set_axis(codes.names, axis=1))
        if np.isnan(rows).any():
            raise PopulationError("rows have values without a code")
        matches = self._matches(rows[:, codes.private], frame[PERSON])
        return pd.concat([*matches, self._corners(rows)])

    def _matches(self, private: Floats, person: pd.Series) -> list[pd.DataFrame]:
        """Return a result for each person with one of the values or combinations to count.

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
        """Return the corners of the rows outside of all regions, by the region that they join.

        `rows` has the shape (n_rows, n_features).
        """
        codes = self._codes
        outside = rows[~self._regions.cover(rows)]
        cells, _ = distinct_rows(outside[:, codes.quasi])
        if not len(cells):
            return _result(_CORNER, np.empty(0, dtype=np.int64))
        space = Space(codes)
        is_joined = self.arrays["region_of_corner"] < self.n_joined
        nearest = nearest_groups(
            space.points(self._rows_at(self.arrays["corners"][is_joined])),
            self.arrays["region_of_corner"][is_joined],
            space.points(self._rows_at(cells)),
            space.caps,
        )
        regions, group = np.unique(nearest, return_inverse=True)
        corners, place = Regions.of_groups(codes, self._rows_at(cells), group).corners()
        return _result(_CORNER, regions[place], corners=corners.tolist())


def _places(values: Floats, rows: Floats) -> tuple[Ints, Ints]:
    """Return matches of rows with values: the position in `values` and the position in `rows`.

    `values` has the shape (n_values, n_columns), `rows` (n_rows, n_columns), and both results
    (n_matches,).
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
    """Return results of one kind as a table with the columns of `_FORM`."""
    no_values: list[Any] = [None] * len(place)
    return pd.DataFrame(
        {
            "kind": np.full(len(place), kind, dtype=np.int32),
            "place": place,
            PERSON: pd.Series(persons or no_values, dtype=object).map(to_text, na_action="ignore"),
            "corner": pd.Series(corners or no_values, dtype=object),
        }
    )


def _joined(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Join batches to larger ones, so that a worker looks at each region less often."""
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
