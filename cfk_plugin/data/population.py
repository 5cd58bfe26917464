"""The population: the training rows, coded and collapsed to equivalence classes, and how exposed its people are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.coding import (
    Coding,
    KeyedOrder,
    NoRows,
    Reading,
    Rows,
    RowsInMemory,
    counted_once,
    identity_of_counts,
    identity_of_rows,
    require_columns,
    subjects_of,
)
from cfk_plugin.data.domain import Domain, configured_key, key_of_this_process, keyed_digest
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Region
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.sealing import Counts, Sealed, read_bundle, write_bundle
from cfk_plugin.errors import HostOnly, PopulationError, quiet

# How exposed a population is before any protection: people whom nobody, or hardly anybody, is like.


@dataclass(frozen=True, slots=True)
class RiskProfile:
    """How exposed a population is before any protection."""

    unique: float  # Share of the people whose combination of quasi-identifiers nobody else has (Table 5 of the paper)
    below_k: float  # Share of the people in an equivalence class of fewer than k people
    k: int  # The k asked for
    people: int  # Number of people
    classes: int  # Number of equivalence classes


def risk_profile(cell_of_row: NDArray[np.int64], people: NDArray[np.int64] | None, k: int) -> RiskProfile:
    """Return how many people are unique and how many are in a class of fewer than k; see `Population.risk_profile`."""
    smallest = smallest_classes(cell_of_row, people)
    n = len(smallest)
    return RiskProfile(
        unique=float((smallest == 1).sum() / n),
        below_k=float((smallest < k).sum() / n),
        k=k,
        people=n,
        classes=int(cell_of_row.max()) + 1,
    )


def smallest_classes(cell_of_row: NDArray[np.int64], people: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return for every person how many people the smallest class that they are in has."""
    if people is None:
        return np.asarray(np.bincount(cell_of_row)[cell_of_row], dtype=np.int64)
    classes = int(cell_of_row.max()) + 1
    pairs = np.sort(people * classes + cell_of_row)
    person, cell = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], classes)  # each person once in each class
    first = np.flatnonzero(np.diff(person, prepend=-1))
    return np.asarray(np.minimum.reduceat(np.bincount(cell)[cell], first), dtype=np.int64)


# People in cells: who has which combination of quasi-identifiers, and how many are in a region.


class People(HostOnly):
    """The counting of a population; where the rows are makes no difference to it. Read-only once it is made."""

    def __init__(self, coding: Coding, cells: NDArray[np.int32], cell_people: NDArray[np.int64], rows: Rows) -> None:
        self.schema, self.coding, self.cells, self.cell_people = coding.schema, coding, cells, cell_people
        self.domains: Mapping[str, Domain] = MappingProxyType(dict(coding.domains))
        self._rows = rows
        arrays: list[NDArray[Any]] = [cells, cell_people, rows.cell_of_row]
        for domain in self.domains.values():
            arrays += [domain.values, domain.originals]
        for array in arrays:
            array.setflags(write=False)

    @property
    def n_rows(self) -> int:
        """Number of training rows; of people, where there are no rows."""
        return len(self._rows.cell_of_row)

    @property
    def has_rows(self) -> bool:
        """Whether training rows are in this process; a sealed population has counts alone."""
        return self._rows.in_memory

    @property
    def is_sealed(self) -> bool:
        """Whether nothing is known of people but their numbers, so that no partition can be made."""
        return not self._rows.are_told_apart

    @property
    def has_several_rows(self) -> bool:
        """Whether a person may have several rows: where the schema has a subject key, and the rows are here."""
        return self._rows.subjects is not None

    @property
    def n_people(self) -> int:
        """Number of distinct people (of rows, without a subject key)."""
        return int(self.cell_people.sum())

    @property
    def frame(self) -> pd.DataFrame:
        """Return a copy of the training rows. Host code only; nothing of it may be released or logged."""
        return self._rows.table.copy()

    def rows(self, at: NDArray[np.int64]) -> pd.DataFrame:
        """Return a copy of some of the training rows. Host code only, as `frame`."""
        return self._rows.table.take(at)

    def column(self, name: str) -> pd.Series:
        """Return a copy of one column. Host code only, as `frame`."""
        return self._rows.table[name].copy()

    def map_rows(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:
        """Return what a function makes of rows that are on a cluster, there; see `RowsOnCluster.map`."""
        return self._rows.map(work, columns)

    def members(self, region: Region) -> NDArray[np.int64]:
        """Return the positions of the rows inside a region."""
        cells = np.flatnonzero(self.cells_inside(region))
        order, start = self._rows_by_cell
        if not len(cells):
            return np.empty(0, dtype=np.int64)
        return np.sort(np.concatenate([order[start[c] : start[c + 1]] for c in cells]))

    def count(self, region: Region) -> int:
        """Return the number of distinct people inside a region."""
        if self._rows.subjects is None:
            return int(self.cell_people[self.cells_inside(region)].sum())
        return self.people(self.members(region))

    def people(self, rows: NDArray[np.int64]) -> int:
        """Return the number of distinct people behind rows."""
        subjects = self._rows.subjects
        return len(rows) if subjects is None else len(np.unique(subjects[rows]))

    def first_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, of some rows, the places where a person occurs for the first time."""
        subjects = self._rows.subjects
        return np.arange(len(rows)) if subjects is None else np.unique(subjects[rows], return_index=True)[1]

    def limited_rows(self, most: int) -> NDArray[np.int64]:
        """Return the rows in order, at most so many of each person: their first ones, whoever else is there.

        Rows of nobody, whose subject key is missing, are not among them.
        """
        subjects = self._rows.subjects
        if subjects is None:
            return np.arange(len(self._rows.table))
        rows = np.flatnonzero(subjects >= 0)
        return rows[pd.Series(subjects[rows]).groupby(subjects[rows]).cumcount().to_numpy() < most]

    @property
    def counted_rows(self) -> NDArray[np.int64]:
        """The rows at which people are counted in `cell_people`: one of each."""
        return counted_once(self._rows.cell_of_row, self._rows.subjects)

    def cells_inside(self, region: Region) -> NDArray[np.bool_]:
        """Say of every cell whether it is inside a region."""
        inside = np.ones(len(self.cells), dtype=bool)
        for j, name in enumerate(self.schema.quasi_identifiers):
            inside &= self.domains[name].inside(region[name])[self.cells[:, j]]
        return inside

    def cell_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cell of each row."""
        return self._rows.cell_of_row[rows]

    def encode(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes and numbers of every feature of a table, each of shape (n, n_features); see `Domain.encode`."""
        return self.coding.encode(frame)

    def read(self, frame: pd.DataFrame) -> Reading:
        """Return codes and numbers of a table, and what `conform` needs; see `Coding.read`."""
        return self.coding.read(frame)

    def conform(self, frame: pd.DataFrame, reading: Reading | None = None) -> pd.DataFrame:
        """Return the features of a table as the training table has them; see `Coding.conform`."""
        return self.coding.conform(frame, reading)

    def risk_profile(self, k: int = 10) -> RiskProfile:
        """Return how many people are unique and how many are in a class of fewer than k."""
        return risk_profile(self._rows.cell_of_row, self._rows.subjects, k)

    def smallest_classes(self) -> NDArray[np.int64]:
        """Return for every person how many people are in the smallest class that they are in."""
        return smallest_classes(self._rows.cell_of_row, self._rows.subjects)

    @cached_property
    def _rows_by_cell(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self._rows.cell_of_row, kind="stable")
        start = np.searchsorted(self._rows.cell_of_row[order], np.arange(len(self.cells) + 1))
        return order, start


# The population: the training rows, coded and collapsed to equivalence classes.

_NO_ROWS = "a population needs a pandas DataFrame with at least one row"
_NOTHING = Sealed(MappingProxyType({}), MappingProxyType({}))


class Population(People):
    """Training rows as the crowd to hide in. Build it with `Population.from_frame`.

    It holds training rows, so it stays with the data holder: its `repr` shows counts alone and it refuses to be
    pickled. Distinct combinations of quasi-identifiers are called *cells*; everything is counted over cells.

    Attributes
    ----------
    schema : Schema
    domains : mapping
        Feature to `Domain`.
    cells : int32 array, shape (n_cells, n_quasi_identifiers)
        Codes of the distinct combinations, in the order of ``schema.quasi_identifiers``.
    cell_people : int64 array, shape (n_cells,)
        Additive people count of a cell: rows, or, with a subject key, people counted at the first of their cells only.
    """

    def __init__(
        self,
        coding: Coding,
        cells: NDArray[np.int32],
        cell_people: NDArray[np.int64],
        rows: Rows,
        key: bytes,
        sealed: Sealed = _NOTHING,
    ) -> None:
        super().__init__(coding, cells, cell_people, rows)
        self._key, self.sealed = key, sealed
        self._built = True

    _refusal = PopulationError, "a Population holds training rows and refuses to be pickled; rebuild it instead"

    def _counts(self) -> str:
        return f"{self.n_people} people, {self.n_rows} rows, {len(self.cells)} cells"

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, schema: Schema, *, key: bytes | None = None) -> Population:
        """Code and collapse a table of training rows.

        Parameters
        ----------
        frame : DataFrame
            One row per training row; must have every feature and the subject key of the schema.
        schema : Schema
        key : bytes, optional
            Key of the fingerprint and of the order in which people are given to other groups (HMAC). Default: the
            environment variable ``CFK_KEY``. Without a key, fingerprints are comparable within this process only, and
            the order follows from the table itself, so that it is the same in every process.

        Returns
        -------
        Population

        Raises
        ------
        PopulationError
            If columns are missing, or hold values that the schema does not allow. Where the schema declares the domain
            of every feature, such a value is no error here: what counts people refuses the population then, and
            differential privacy leaves the row out, as a refusal would tell of the one person who has the value.
        """
        if not isinstance(frame, pd.DataFrame) or (frame.empty and not schema.is_public):
            raise PopulationError(_NO_ROWS)
        require_columns(list(frame.columns), schema)
        kept = [c for c in (*schema.features, *schema.names("target")) if c in frame.columns]
        table, subjects = frame[kept].reset_index(drop=True), subjects_of(frame, schema)
        if not schema.is_public:
            return cls._counted(table, schema, subjects, configured_key(key))
        try:
            with quiet("the table holds values that cannot be counted ({})", PopulationError, let=PopulationError):
                return cls._counted(table, schema, subjects, configured_key(key))
        except PopulationError as error:
            refusal = str(error)
        return _Uncounted(schema, table, subjects, configured_key(key), refusal)

    @classmethod
    def _counted(
        cls, table: pd.DataFrame, schema: Schema, subjects: NDArray[np.int64] | None, key: bytes
    ) -> Population:
        if table.empty:
            raise PopulationError(_NO_ROWS)
        if subjects is not None and (subjects < 0).any():
            raise PopulationError(f"subject key {schema.subject!r} has missing values; every row needs its person")
        coding = Coding(schema, {name: Domain.of(table[name], schema[name]) for name in schema.features})
        cells, cell_of_row = coding.collapse(table)
        counted = cell_of_row[counted_once(cell_of_row, subjects)]
        cell_people = np.bincount(counted, minlength=len(cells)).astype(np.int64)
        return cls(coding, cells, cell_people, RowsInMemory(table, cell_of_row, subjects), key)

    @classmethod
    def from_parquet(cls, path: str | Path, schema: Schema, *, key: bytes | None = None) -> Population:
        """Read the columns that the schema names from a Parquet file, then do as `from_frame`."""
        columns = [a.name for a in schema.attributes if a.role != "identifier"]
        return cls.from_frame(pd.read_parquet(path, columns=columns), schema, key=key)

    @classmethod
    def from_spark(cls, df: Any, schema: Schema, *, key: bytes | None = None) -> Population:
        """Count a table where it is, on a Spark cluster; its rows stay there.

        What reaches this process: the distinct combinations of quasi-identifiers with their numbers of people,
        whether a private column has missing values, and, where a partition divides the people of one combination, a
        keyed number of 64 bits for each of them. Two passes over the table, one more for such numbers: cache it.

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            One row per training row; must have every feature and the subject key of the schema. It is read again when
            an anonymizer is fitted, and must be the same then.
        schema : Schema
        key : bytes, optional
            Needed here; default: the environment variable ``CFK_KEY``. It travels to the workers with the job.

        Returns
        -------
        Population
            Counts, cells and groups are those of `from_frame` with the same key. With a subject key, people are
            counted at one of their rows, so that numbers of people are lower bounds. It has no rows (``has_rows`` is
            False): nothing can be asked of it that is judged by private values.

        Raises
        ------
        PopulationError
            If columns are missing, hold values that the schema does not allow, there is no key, or the job fails.
        MissingDependencyError
            If PySpark is not installed.
        """
        from cfk_plugin.data.cluster import RowsOnCluster, counted

        found = configured_key(key)
        if not found:
            raise PopulationError(
                "from_spark needs a key: who of a crowded combination is in which group follows from it, and not from "
                "a table that nobody holds; give key=, or set CFK_KEY"
            )
        table = counted(df, schema)
        return cls(table.coding, table.cells, table.people, RowsOnCluster(df, table), found)

    def seal(
        self,
        path: str | Path,
        *,
        facts: Mapping[str, Any] = _NOTHING.facts,
        arrays: Mapping[str, NDArray[Any]] = _NOTHING.arrays,
    ) -> None:
        """Write what is needed to protect explanations elsewhere, and nothing else, to one file.

        The file has the schema, the distinct combinations of quasi-identifiers with their numbers of people, and the
        fingerprint: no row, no value of a private attribute, no pickle. Whoever has it knows the quasi-identifiers
        of everybody, as the adversary of every guarantee does, so keep it where your servers are.
        `KAnonymizer.seal` adds policy and partition.

        Parameters
        ----------
        path : str or Path
        facts, arrays : mappings
            What else is sealed: plain values, and arrays of numbers.

        Raises
        ------
        BundleError
            If the file cannot be written.
        """
        key = None if self._key else self._order_key
        counts = Counts(self.schema, self.domains, self.cells, self.cell_people, self.fingerprint, key)
        own, numbers = counts.to_plain()
        write_bundle(path, {**facts, "population": own}, {**arrays, **numbers}, self._key)

    @classmethod
    def open(cls, path: str | Path | IO[bytes], *, key: bytes | None = None) -> Population:
        """Open a sealed population: it counts as the original does and has no rows.

        Parameters
        ----------
        path : str, Path or binary file
        key : bytes, optional
            The key that it was sealed with. Default: the environment variable ``CFK_KEY``.

        Raises
        ------
        BundleError
            If it is no bundle, was changed after it was sealed, needs another key or a newer version.
        """
        found = configured_key(key)
        facts, arrays = read_bundle(path, found)
        counts = Counts.from_plain(facts["population"], arrays)
        coding = Coding(counts.schema, counts.domains)
        others = {name: fact for name, fact in facts.items() if name != "population"}  # that one lists values
        sealed = Sealed(MappingProxyType(others), MappingProxyType(arrays))
        self = cls(coding, counts.cells, counts.people, NoRows(counts.people), found, sealed)
        self.__dict__["fingerprint"] = counts.fingerprint
        if counts.order_key is not None:
            self.__dict__["_order_key"] = counts.order_key
        return self

    @property
    def policy(self) -> PrivacyPolicy | None:
        """The policy that was sealed with the population; None where none was."""
        settings = self.sealed.facts.get("policy")
        return None if settings is None else PrivacyPolicy(**settings)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse changes: what was counted for one explanation must hold for the next."""
        if hasattr(self, "_built"):
            raise AttributeError("a Population cannot be changed; build another one")
        super().__setattr__(name, value)

    @property
    def has_key(self) -> bool:
        """Whether a secret key is behind the fingerprint, so that it is the same in every process that has the key."""
        return bool(self._key)

    @cached_property
    def fingerprint(self) -> str:
        """Keyed identity of what is counted (HMAC-SHA256, 16 hex digits): schema, cells, and the people of each.

        Equal for the same table in whatever order of rows and columns, read from wherever, with the same key. Private
        values are not in it.
        """
        identity = identity_of_counts(self.schema, self.domains, self.cells, self.cell_people)
        return keyed_digest(self._key or key_of_this_process(), identity).hex()[:16]

    def keyed_order(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return a number per record that needs the key to compute, else this very table; the same in every process.

        Parameters
        ----------
        codes, numbers : arrays, shape (n, n_features)
            The records, coded (`encode`).
        """
        return self.order(codes, numbers)

    def keyed_numbers(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed number (`keyed_order`) of rows, wherever they are."""
        return self._rows.numbers(self.order, rows)

    @cached_property
    def order(self) -> KeyedOrder:
        """What `keyed_order` computes with; it has the key."""
        return KeyedOrder(self.coding, self._order_key)

    @cached_property
    def _order_key(self) -> bytes:
        """Key of the order within cells; without a secret one, that of the table, which a sealed population brings."""
        if self._key:
            return self._key
        codes = self.encode(self._rows.table)[0]
        return keyed_digest(b"", identity_of_rows(self.schema, self.domains, codes))


class _UncountedRows(RowsInMemory):
    """Rows with a value that no cell has."""

    def __init__(self, table: pd.DataFrame, subjects: NDArray[np.int64] | None, refusal: str) -> None:
        self.table, self.subjects, self._reason = table, subjects, refusal

    @property
    def cell_of_row(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Refuse."""
        raise PopulationError(self._reason)


class _Uncounted(Population):
    """A population with a value that its schema does not declare: it has rows, and whatever counts them is refused."""

    def __init__(
        self, schema: Schema, table: pd.DataFrame, subjects: NDArray[np.int64] | None, key: bytes, refusal: str
    ) -> None:
        rows = _UncountedRows(table, subjects, refusal)
        self.__dict__.update(schema=schema, _rows=rows, _key=key, sealed=_NOTHING, _built=True)

    def __getattr__(self, name: str) -> Any:
        """Refuse what follows from counting."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__["_rows"].cell_of_row

    def __repr__(self) -> str:
        """Name it as what it is to its users."""
        return "Population(not counted)"
