"""The population: the training rows, coded and collapsed to equivalence classes, and how exposed
its people are.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.codes import Codes as RowCodes
from cfk_plugin.data.display import card, doing, facts, share, table
from cfk_plugin.data.domain import Codes, Domain, Numbers, Rows
from cfk_plugin.data.encoded_table import Encoder, whole_number
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Region, to_text
from cfk_plugin.data.rows import NoRows, RowsHere, collapse, one_row_each
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.sealing import (
    BundleContent,
    from_plain,
    read_bundle,
    to_plain,
    write_bundle,
)
from cfk_plugin.data.values import as_pandas, load_pyarrow, unreadable
from cfk_plugin.errors import (
    HostOnly,
    InputError,
    PopulationError,
    quiet,
    rename_hint,
    require,
)


def check_columns(columns: list[str], schema: Schema) -> None:
    if len(set(columns)) != len(columns):
        raise PopulationError("the table has duplicate columns")
    needed = [a.name for a in schema.attributes if a.role not in ("identifier", "target")]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise PopulationError(
            f"missing columns: {missing}{rename_hint(missing, columns, needed)}; the table needs"
            " all that the schema names"
        )


def configured_key(key: bytes | None) -> bytes:
    """Return the key, else that of the environment variable ``CFK_KEY``; empty when there is
    none.
    """
    if key is not None and not isinstance(key, bytes):
        raise InputError(
            f"key must be bytes, got {type(key).__name__}; encode a text with .encode()"
        )
    return key or os.environ.get("CFK_KEY", "").encode()


@dataclass(frozen=True, slots=True)
class RiskProfile:
    """How exposed a population is before any protection."""

    # share of the people whose quasi-identifiers nobody else has (Table 5 of the paper)
    unique: float
    below_k: float  # share of the people in a class of fewer than k
    k: int
    people: int
    classes: int

    def _repr_html_(self) -> str:
        """Return the same in words, for notebooks."""
        rows = {
            "people": f"{self.people:,}",
            "different combinations of quasi-identifiers": f"{self.classes:,}",
            "alone with theirs": share(self.unique),
            f"with fewer than {self.k - 1} others": share(self.below_k),
        }
        return card(
            f"Risk before protection, k = {self.k}",
            facts(rows),
            note=(
                f"Shares of the people. Whoever knows the quasi-identifiers of somebody with fewer"
                f" than {self.k - 1} others finds fewer than {self.k} people."
            ),
        )


_NO_CELLS = (
    "a sealed catalogue does not say who is where; ask the population that it was sealed from"
)
_SHOWN_K = 5, 10, 20
_NO_ROWS = "a population needs a table (pandas, polars or pyarrow) with at least one row"
# where there is no key, fingerprints are comparable within this process
_PROCESS_KEY = secrets.token_bytes(32)


class Population(HostOnly):
    """Training rows as the crowd to hide in. Build it with `Population.from_frame`.

    It holds training rows, so it stays with the data holder: its `repr` shows counts alone, and it
    refuses to be pickled. Distinct combinations of quasi-identifiers are called *cells*; everything
    is counted over cells.
    """

    schema: Schema
    encoder: Encoder
    domains: Mapping[str, Domain]  # by feature
    # of the distinct combinations, shape (n_cells, n_quasi_identifiers), as in
    # `schema.quasi_identifiers`
    cells: Codes
    # shape (n_cells,); rows of each cell; with a subject key, people, each counted at the first of
    # their cells only
    cell_people: Rows
    n_rows: int  # training rows
    n_people: int  # distinct people; rows, without a subject key
    # whether training rows are in this process; behind a sealed catalogue there are none
    has_rows: bool
    # whether a person may have several rows: with a subject key, where the rows are here
    has_several_rows: bool
    policy: PrivacyPolicy | None = None  # the one that was sealed with the catalogue
    # what else was sealed with it; None unless it was opened from a bundle. Only numbers of people
    # are known then, so that no partition can be made
    sealed: BundleContent | None = None
    _rows: RowsHere | NoRows
    _cell_of_row: Rows
    _key: bytes

    def __init__(
        self,
        encoder: Encoder,
        cells: Codes,
        cell_people: Rows,
        rows: RowsHere | NoRows,
        key: bytes,
        *,
        n_people: int | None = None,
        policy: PrivacyPolicy | None = None,
        sealed: BundleContent | None = None,
    ) -> None:
        for array in (cells, cell_people, rows.cell_of_row):
            array.setflags(write=False)
        for domain in encoder.columns:
            domain.values.setflags(write=False)
            domain.originals.setflags(write=False)
        self.encoder = encoder
        self.schema = encoder.schema
        self.domains = encoder.domains
        self.cells = cells
        self.cell_people = cell_people
        self.n_people = int(cell_people.sum()) if n_people is None else n_people
        self.n_rows = len(rows)
        self.has_rows = isinstance(rows, RowsHere)
        self.has_several_rows = rows.subjects is not None
        self.policy = policy
        self.sealed = sealed
        self._rows = rows
        self._cell_of_row = rows.cell_of_row
        self._key = key
        self._is_complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if "_is_complete" in vars(self):
            raise AttributeError("a Population cannot be changed; build another one")
        super().__setattr__(name, value)

    def _counts(self) -> str:
        return f"{self.n_people} people, {self.n_rows} rows, {len(self.cells)} cells"

    def _repr_html_(self) -> str:
        """Return counts, and whole percent of the people."""
        n_rows = "not here"
        if self.n_rows_here is not None:
            n_rows = f"{self.n_rows_here:,}"
        sizes = {"people": f"{self.n_people:,}", "rows": n_rows}
        if self.has_rows:
            risks = {k: self.risk_profile(k) for k in _SHOWN_K}
            sizes["different combinations of quasi-identifiers"] = f"{len(self.cells):,}"
            sizes["alone with theirs"] = share(risks[_SHOWN_K[0]].unique)
            for k, risk in risks.items():
                sizes[f"with fewer than {k - 1} others"] = share(risk.below_k)
        features = [a for a in self.schema.attributes if a.name in self.schema.features]
        columns = table(("column", "role", "kind"), [(a.name, a.role, a.kind) for a in features])
        return card(
            "Population",
            facts(sizes),
            columns,
            note="Shares are of the people, before any protection.",
        )

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, schema: Schema, *, key: bytes | None = None
    ) -> Population:
        """Code and collapse a table of training rows.

        Parameters
        ----------
        frame : DataFrame of the training rows, with every feature and the subject key of the schema
        schema : Schema
        key : bytes, optional
            Key (HMAC) of the fingerprint, and of the order in which the people of a large
            equivalence class are divided among groups; default: the environment variable
            ``CFK_KEY``. Without a key, fingerprints are comparable within this process only, and
            the order follows from the table itself, the same in every process.

        Returns
        -------
        Population
            Identifiers are dropped. Equal quasi-identifiers are counted as one equivalence class.

        Raises
        ------
        PopulationError
            If columns are missing, or hold values that the schema does not allow.

        Notes
        -----
        If the schema declares the domain of every feature (``Schema.is_public``), a value that it
        does not allow raises no error here: the error would disclose that some person has such a
        value. Differential privacy leaves that person's row out. Whatever counts people raises the
        error when it is first used. A subject key that cannot be read is an error at once: it is
        no feature.
        """
        _check_schema(schema)
        frame = as_pandas(frame)
        if not isinstance(frame, pd.DataFrame) or (frame.empty and not schema.is_public):
            raise PopulationError(_NO_ROWS)
        check_columns(list(frame.columns), schema)
        columns = [c for c in (*schema.features, *schema.names("target")) if c in frame.columns]
        table = frame[columns].reset_index(drop=True)
        key = configured_key(key)
        subjects = _subjects_of(frame, schema)
        if not schema.is_public:
            with doing("reading the table"):
                return cls._counted(table, schema, subjects, key)
        try:
            with quiet(
                "the table holds values that cannot be counted ({})",
                PopulationError,
                let=PopulationError,
            ):
                return cls._counted(table, schema, subjects, key)
        except PopulationError as error:
            refusal = str(error)
        no_cells = np.empty(0, dtype=np.int64)
        return _UncountedPopulation(schema, RowsHere(table, no_cells, subjects), key, refusal)

    @classmethod
    def _counted(
        cls,
        table: pd.DataFrame,
        schema: Schema,
        subjects: Rows | None,
        key: bytes,
    ) -> Population:
        """Count the people of each equivalence class of a table.

        `subjects` are those of `_subjects_of`.
        """
        if table.empty:
            raise PopulationError(_NO_ROWS)
        if subjects is not None and (subjects < 0).any():
            raise PopulationError(
                f"subject key {schema.subject!r} has missing values; every row needs its person"
            )
        domains = {name: Domain.of(table[name], schema[name]) for name in schema.features}
        encoder = Encoder(schema, domains)
        cells, cell_of_row = collapse(encoder, table)
        counted_cells = cell_of_row[one_row_each(cell_of_row, subjects)]
        people = np.bincount(counted_cells, minlength=len(cells)).astype(np.int64)
        rows = RowsHere(table, cell_of_row, subjects)
        return cls(encoder, cells, people, rows, key)

    @classmethod
    def from_parquet(
        cls, path: str | Path, schema: Schema, *, key: bytes | None = None
    ) -> Population:
        """Like `from_frame`, with the columns of a Parquet file that the schema names."""
        _check_schema(schema)
        load_pyarrow()
        columns = [a.name for a in schema.attributes if a.role != "identifier"]
        return cls.from_frame(pd.read_parquet(path, columns=columns), schema, key=key)

    def seal(
        self,
        path: str | Path,
        *,
        facts: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        entries: Mapping[str, Domain],
    ) -> None:
        """Write what a catalogue needs to answer elsewhere, and nothing else, to one file.

        It has the schema, the number of people, and the fingerprint: no row, no combination of
        quasi-identifiers, and of private values only those of entries. `KAnonymizer.seal` adds
        policy and catalogue.

        Parameters
        ----------
        path : str or Path
        facts, arrays : mappings of what else is sealed, plain values and arrays of numbers
        entries : mapping of private attribute to Domain
            What the catalogue's entries have.

        Raises
        ------
        BundleError
            If the file cannot be written.
        """
        plain_population = to_plain(
            self.schema,
            {**self.domains, **entries},
            (*self.schema.quasi_identifiers, *entries),
        )
        plain_population["fingerprint"] = self.fingerprint
        plain_population["n_people"] = self.n_people
        write_bundle(path, {**facts, "population": plain_population}, arrays, self._key)

    @classmethod
    def open(cls, path: str | Path | IO[bytes], *, key: bytes | None = None) -> Population:
        """Open the population of a sealed catalogue, which has no rows.

        Parameters
        ----------
        path : str, Path or binary file
        key : bytes, optional
            The key that it was sealed with; default: the environment variable ``CFK_KEY``.

        Raises
        ------
        BundleError
            If it is no bundle, was changed after it was sealed, or needs another key or a newer
            version.
        """
        key = configured_key(key)
        facts, arrays = read_bundle(path, key)
        plain_population = facts.pop("population")
        settings = facts.pop("policy", None)
        policy = None if settings is None else PrivacyPolicy(**settings)
        schema, domains = from_plain(plain_population)
        return cls(
            Encoder(schema, domains),
            np.empty((0, len(schema.quasi_identifiers)), dtype=np.int32),
            np.empty(0, dtype=np.int64),
            NoRows(plain_population["fingerprint"]),
            key,
            n_people=plain_population["n_people"],
            policy=policy,
            sealed=BundleContent(arrays, facts),
        )

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """What `KAnonymizer.seal` was given to be sealed along; None where nothing was."""
        if self.sealed is None:
            return None
        settings: Mapping[str, Any] | None = self.sealed.facts.get("settings")
        return settings

    @property
    def key(self) -> bytes:
        """The secret key; empty if there is none."""
        return self._key

    @property
    def has_key(self) -> bool:
        """Whether a secret key is behind the fingerprint, which is then the same wherever the key
        is.
        """
        return bool(self._key)

    # What is refused where rows or cells are not known

    def require_rows(self, refusal: Exception) -> None:
        """Raise the refusal unless training rows are in this process."""
        if not self.has_rows:
            raise refusal

    @property
    def n_rows_here(self) -> int | None:
        """Number of training rows in this process; None where they are elsewhere."""
        return self.n_rows if self.has_rows else None

    @property
    def counted_attributes(self) -> tuple[str, ...]:
        """Names of the attributes of which it is known how many people have each value."""
        return self.schema.quasi_identifiers if self.has_rows else ()

    # Rows: host code only, never released or logged

    @property
    def frame(self) -> pd.DataFrame:
        """Return a copy of the training rows."""
        return self._rows.table.copy()

    def rows(self, positions: Rows) -> pd.DataFrame:
        """Return a copy of some of the training rows."""
        return self._rows.table.take(positions)

    def column(self, name: str) -> pd.Series:
        """Return a copy of one column."""
        return self._rows.table[name].copy()

    def rows_to_try(self, most: int) -> pd.DataFrame | None:
        """Return a copy of the first rows, on which a model can be tried; None without rows."""
        if not self.has_rows:
            return None
        return self.frame.head(most)

    @cached_property
    def row_codes(self) -> RowCodes:
        """The encoder of rows."""
        return RowCodes.read(self._rows.table, self.schema)

    @cached_property
    def coded_rows(self) -> Numbers:
        """The training rows as a matrix, shape (n_rows, n_features); see `row_codes`."""
        rows = self.row_codes.encode(self._rows.table)
        rows.setflags(write=False)
        return rows

    @cached_property
    def person_of_row(self) -> Rows:
        """The number of each row's person, shape (n_rows,)."""
        subjects = self._rows.subjects
        return np.arange(self.n_rows) if subjects is None else subjects

    @cached_property
    def codes(self) -> Codes:
        """Codes of every feature of every row, shape (n_rows, n_features), stored by column."""
        codes = np.empty((self.n_rows, len(self.schema.features)), dtype=np.int32, order="F")
        codes[:, self.schema.quasi_positions] = self.cells[self._cell_of_row]
        for j, name in enumerate(self.schema.features):
            if name in self.schema.private:
                codes[:, j] = self.domains[name].encode(self._rows.table[name])[0]
        codes.setflags(write=False)
        return codes

    # Who is where

    def cells_inside(self, region: Region) -> NDArray[np.bool_]:
        """Return a mask of shape (n_cells,): which cells are inside a region."""
        self.require_rows(PopulationError(_NO_CELLS))
        inside = np.ones(len(self.cells), dtype=bool)
        for j, name in enumerate(self.schema.quasi_identifiers):
            inside &= self.domains[name].inside(region.parts[name])[self.cells[:, j]]
        return inside

    def members(self, region: Region) -> Rows:
        """Return the positions of the rows inside a region."""
        cells = np.flatnonzero(self.cells_inside(region))
        order, start = self._rows_by_cell
        sizes = start[cells + 1] - start[cells]
        first_of_cell = sizes.cumsum() - sizes  # where the rows of each cell begin in the result
        places = np.arange(sizes.sum()) + np.repeat(start[cells] - first_of_cell, sizes)
        return np.sort(order[places])

    @cached_property
    def _rows_by_cell(self) -> tuple[Rows, Rows]:
        """The rows in the order of their cells, shape (n_rows,), and where each cell begins in
        them, shape (n_cells + 1,).
        """
        order = np.argsort(self._cell_of_row, kind="stable")
        start = np.searchsorted(self._cell_of_row[order], np.arange(len(self.cells) + 1))
        return order, start

    def count(self, region: Region) -> int:
        """Return the number of distinct people inside a region."""
        if self._rows.subjects is None:
            return int(self.cell_people[self.cells_inside(region)].sum())
        return self.people(self.members(region))

    def people(self, rows: Rows) -> int:
        """Return the number of distinct people behind rows."""
        subjects = self._rows.subjects
        if subjects is None:
            return len(rows)
        return len(np.unique(subjects[rows]))

    def people_of(self, rows: Rows, flags: NDArray[np.bool_]) -> list[int]:
        """Count `people` in several selections of some rows; ``flags`` has shape (n_selections,
        n_rows).
        """
        if self._rows.subjects is None:
            return list(flags.sum(axis=1).tolist())
        return [self.people(rows[is_selected]) for is_selected in flags]

    def people_by_class(
        self, classes: NDArray[np.integer[Any]], n_classes: int, *, rows: Rows | None = None
    ) -> Rows:
        """Count the people in each of some classes of rows; shape (n_classes,).

        `classes` has the class, from 0, of every row, or of the given ones. A person with several
        rows counts once in each class.
        """
        subjects = self._rows.subjects
        if subjects is None:
            return np.bincount(classes, minlength=n_classes)
        if rows is not None:
            subjects = subjects[rows]
        pairs = np.unique(np.column_stack([classes, subjects]), axis=0)
        return np.bincount(pairs[:, 0], minlength=n_classes)

    def cell_of(self, rows: Rows) -> Rows:
        """Return the cell of each row."""
        return self._cell_of_row[rows]

    def first_rows(self, rows: Rows) -> Rows:
        """Return, of some rows, the places where a person occurs for the first time."""
        subjects = self._rows.subjects
        if subjects is None:
            return np.arange(len(rows))
        _, first = np.unique(subjects[rows], return_index=True)
        return first

    def limited_rows(self, most: int) -> Rows:
        """Return the first rows of each person, at most so many, in the order of the table.

        Without a subject key all rows are returned, as each is another person's.
        """
        subjects = self._rows.subjects
        if subjects is None:
            return np.arange(len(self._rows.table))
        rows = np.flatnonzero(subjects >= 0)
        person = subjects[rows]
        n_earlier = pd.Series(person).groupby(person).cumcount().to_numpy()
        return rows[n_earlier < most]

    def smallest_classes(self) -> Rows:
        """Return, for every person, the number of people in the smallest class that they are in."""
        cell_of_row = self._cell_of_row
        subjects = self._rows.subjects
        if subjects is None:
            return np.asarray(np.bincount(cell_of_row)[cell_of_row], dtype=np.int64)
        pairs = np.sort(subjects * len(self.cells) + cell_of_row)
        # each person counts once in each of their cells
        distinct_pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        person, cell = np.divmod(distinct_pairs, len(self.cells))
        first_of_person = np.flatnonzero(np.diff(person, prepend=-1))
        people_of_cell = np.bincount(cell)
        smallest = np.minimum.reduceat(people_of_cell[cell], first_of_person)
        return np.asarray(smallest, dtype=np.int64)

    def risk_profile(self, k: int = 10) -> RiskProfile:
        """Return the share of people who are unique, and the share in a class of fewer than k."""
        self.require_rows(PopulationError(_NO_CELLS))
        smallest = self.smallest_classes()
        k = whole_number("k", k)
        return RiskProfile(
            unique=float(np.mean(smallest == 1)),
            below_k=float(np.mean(smallest < k)),
            k=k,
            people=len(smallest),
            classes=int(self._cell_of_row.max()) + 1,
        )

    @cached_property
    def sizes(self) -> Rows:
        return np.array(
            [self.domains[name].size for name in self.schema.quasi_identifiers], dtype=np.int64
        )

    # Records in the population's terms

    def encode(self, frame: pd.DataFrame) -> tuple[Codes, Numbers]:
        """Return codes and numbers of every feature of a table; see `Encoder.encode`."""
        return self.encoder.encode(frame)

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the features of a table as the training table has them; see `Encoder.conform`."""
        return self.encoder.conform(frame)

    def keyed_order(self, codes: Codes, numbers: Numbers) -> NDArray[np.uint64]:
        """Return a number per coded record, which follows from the key, or without one from this
        table.
        """
        return self.encoder.keyed_order(self._order_key, codes, numbers)

    def keyed_numbers(self, rows: Rows) -> NDArray[np.uint64]:
        """Return `keyed_order` of rows; shape (n,)."""
        return self.keyed_order(*self.encode(self.rows(rows)))

    @cached_property
    def fingerprint(self) -> str:
        """Keyed identity of what is counted (schema, cells, people of each), for any order of rows
        and columns.
        """
        if isinstance(self._rows, NoRows):
            return self._rows.fingerprint
        counts = self.cells.astype("<i4").tobytes() + self.cell_people.astype("<i8").tobytes()
        declared = self._declarations(self.schema.quasi_identifiers)
        return hmac.digest(self._key or _PROCESS_KEY, declared + counts, "sha256").hex()[:16]

    @cached_property
    def _order_key(self) -> bytes:
        """The secret key, else one that follows from the table."""
        if self._key:
            return self._key
        rows: NDArray[np.uint64] = np.zeros(self.n_rows, dtype=np.uint64)
        for column in self.codes.T[list(self.schema.canonical)]:
            rows = rows * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64)
        return hmac.digest(
            b"", self._declarations(self.domains) + np.sort(rows).tobytes(), "sha256"
        )

    def _declarations(self, names: Any) -> bytes:
        attributes = repr(
            sorted((a.name, a.role, a.kind, a.weight) for a in self.schema.attributes)
        )
        values = ["\x1f".join(map(str, self.domains[name].values)) for name in sorted(names)]
        return "".join([attributes, *values]).encode()


class _UncountedPopulation(Population):
    """A table that holds a value which its schema does not declare, so that it cannot be counted.

    Differential privacy reads its rows and leaves that row out. Whatever counts people is refused,
    and only when it is asked: a refusal at once would disclose that somebody has such a value.
    """

    def __init__(self, schema: Schema, rows: RowsHere, key: bytes, refusal: str) -> None:
        self.schema = schema
        self.has_rows = True
        self._rows = rows
        self._key = key
        self._refusal_to_count = refusal
        self._is_complete = True

    def __repr__(self) -> str:
        return "Population(not counted)"

    def _repr_html_(self) -> str:
        return card("Population", repr(self))

    def __getattr__(self, name: str) -> Any:
        """Refuse every attribute that is not set above, as it follows from counts."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise PopulationError(self._refusal_to_count)


def check_population(value: object, name: str = "population") -> None:
    require(name, value, Population, "make one with Population.from_frame(train, schema)")


def _check_schema(schema: object) -> None:
    instead = "declare one with Schema.from_frame(train, quasi_identifiers=[...])"
    require("schema", schema, Schema, instead, PopulationError)


def _subjects_of(frame: pd.DataFrame, schema: Schema) -> Rows | None:
    """Return the number of each row's person, -1 for nobody; None if each row is a person."""
    if schema.subject is None:
        return None
    keys = frame[schema.subject]
    unreadable_type = unreadable(keys, Hashable)
    if unreadable_type:
        raise PopulationError(
            f"subject key {schema.subject!r} holds {unreadable_type}; give each person one text or"
            " number"
        )
    if keys.dtype == object:
        # As texts, different keys stay apart; of objects, pandas would take True for 1, and for
        # 1.0.
        keys = keys.map(to_text, na_action="ignore")
    numbers, _ = pd.factorize(keys, use_na_sentinel=True)
    return np.asarray(numbers, dtype=np.int64)
