"""A table as codes: records and rows in a population's terms, and what identifies the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.columns import conform, conform_values, ordered, select, table_of, to_text, values_of
from cfk_plugin.data.domain import Domain, keyed_order, tokens_of
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import HostOnly, PopulationError

# A table as codes: rows with the same ones, the people behind rows, and what identifies the whole.


def require_columns(found: Sequence[object], schema: Schema) -> None:
    """Refuse a table of which columns are missing or doubled."""
    needed = [a.name for a in schema.attributes if a.role not in ("identifier", "target")]
    if len(set(found)) != len(found):
        raise PopulationError("the table has duplicate columns")
    if lost := [name for name in needed if name not in found]:
        raise PopulationError(f"missing columns: {lost}")


def subjects_of(frame: pd.DataFrame, schema: Schema) -> NDArray[np.int64] | None:
    """Return a number per row that says whose it is, -1 where nobody does; None where each is a person of their own."""
    if schema.subject is None:
        return None
    keys = frame[schema.subject]
    # Of one type, different keys stay apart; among objects, pandas would take True for 1, and for 1.0.
    keys = keys.map(to_text, na_action="ignore") if keys.dtype == object else keys
    return np.asarray(pd.factorize(keys, use_na_sentinel=True)[0], dtype=np.int64)


def collapse(columns: list[NDArray[Any]], sizes: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the distinct rows of a code table and, for each row, which of them it is."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for codes, size in zip(columns, sizes, strict=True):
        if span > np.iinfo(np.int64).max // (size + 1):  # renumber before the mixed-radix key overflows
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max()) + 1
        key = key * size + codes
        span *= size
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    cells = np.column_stack([codes[first] for codes in columns]).astype(np.int32)
    return cells, inverse.astype(np.int64)


def counted_once(cell_of_row: NDArray[np.int64], subjects: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return the rows at which people are counted: each at one row of the first of their cells."""
    if subjects is None:
        return np.arange(len(cell_of_row))
    line = np.argsort(cell_of_row, kind="stable")
    return line[np.unique(subjects[line], return_index=True)[1]]


def in_order(codes: NDArray[np.int32], schema: Schema, *before: NDArray[Any]) -> NDArray[np.int64]:
    """Return coded records in an order that follows from their values, whatever the order of rows and columns."""
    if before:
        line = np.lexsort(before[::-1])
        tied = np.all([np.diff(key[line]) == 0 for key in before], axis=0)
        if not (codes[line[1:]] != codes[line[:-1]])[tied].any():  # as good as always, and much faster
            return line
    return np.lexsort((*codes.T[list(schema.canonical)], *before[::-1]))


def index_rows(codes: NDArray[np.int32]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return sorted hashes of rows of codes, and the row that each belongs to: what `find_rows` searches."""
    keys = _hash(codes)
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def find_rows(
    codes: NDArray[np.int32], wanted: NDArray[np.int32], index: tuple[NDArray[np.uint64], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return where each of the wanted rows is among distinct rows of codes; -1 where it is not."""
    keys, order = index
    at = order[np.searchsorted(keys, _hash(wanted)).clip(max=len(keys) - 1)]
    return np.where((codes[at] == wanted).all(axis=1), at, -1).astype(np.int64)


def identity_of_counts(
    schema: Schema, domains: Mapping[str, Domain], cells: NDArray[np.int32], people: NDArray[np.int64]
) -> list[bytes]:
    """Return bytes that are the same for the same schema, quasi-identifiers and numbers of people who have them."""
    quasi = {name: domains[name] for name in schema.quasi_identifiers}
    counts = [np.ascontiguousarray(cells, dtype="<i4"), np.ascontiguousarray(people, dtype="<i8")]
    return [*_declared(schema, quasi), *(array.tobytes() for array in counts)]


def identity_of_rows(schema: Schema, domains: Mapping[str, Domain], codes: NDArray[np.int32]) -> list[bytes]:
    """Return bytes that are the same for the same rows and the same schema, in whatever order of rows and columns."""
    rows: NDArray[np.uint64] = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T[list(schema.canonical)]:
        rows = rows * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64)
    return [*_declared(schema, domains), np.sort(rows).tobytes()]


def _declared(schema: Schema, domains: Mapping[str, Domain]) -> list[bytes]:
    attributes = repr(sorted((a.name, a.role, a.kind, a.weight) for a in schema.attributes))
    values = ["\x1f".join(map(str, domains[name].values)) for name in sorted(domains)]
    return [text.encode() for text in (attributes, *values)]


def _hash(codes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Mix codes into 64 bits; equal rows alike, different ones almost surely not."""
    key = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


# Coding: records as codes and numbers in a population's terms. It knows domains and no row.


class Reading(NamedTuple):
    """A table in a population's terms.

    ``codes`` and ``numbers`` are arrays of shape (n, n_features); see `Domain.encode`. ``settled`` says of each feature
    whether its values are spelled as the population spells them.
    """

    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    settled: NDArray[np.bool_]


FEW = 32
"""Rows up to which a loop over values is faster than pandas' machinery."""


@dataclass(frozen=True, eq=False, repr=False)
class Coding(HostOnly):
    """Reads tables by the domains of a population."""

    schema: Schema
    domains: Mapping[str, Domain]  # Feature to `Domain`

    _refusal = PopulationError, "a {} holds values of rows and refuses to be pickled"

    def _counts(self) -> str:
        return f"{len(self.domains)} features"

    def encode(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes and numbers of every feature of a table, each of shape (n, n_features); see `Domain.encode`."""
        return self.read(frame)[:2]

    def read(self, frame: pd.DataFrame) -> Reading:
        """Return codes and numbers of every feature of a table, and which columns `conform` need not touch."""
        if len(frame) <= FEW:
            return self._read_values(values_of(ordered(frame, self.schema.features)))
        coded = [self.domains[name].encode(frame[name]) for name in self.schema.features]
        codes, numbers = (np.column_stack(parts) for parts in zip(*coded, strict=True))
        return Reading(codes, numbers, np.zeros(len(coded), dtype=bool))

    def read_records(self, records: Sequence[Mapping[str, Any]]) -> tuple[pd.DataFrame, Reading, list[list[Any]]]:
        """Return a few records of plain values as a conformed table, its reading, and its values."""
        values = {name: [record[name] for record in records] for name in self.schema.features}
        codes, numbers, settled = self._read_values(list(values.values()))
        table = {
            name: self.domains[name].restored(codes[:, j])
            if (codes[:, j] >= 0).all()
            else conform_values(column, self.domains[name].dtype)
            for j, (name, column) in enumerate(values.items())
        }
        kinds = [{int} if self.domains[name].attribute.kind == "numeric" else {str, int} for name in values]
        plain = [  # numbers and dates as text are what they were read as
            column if is_so and {type(value) for value in column} <= known else list(array)
            for column, array, is_so, known in zip(
                values.values(), table.values(), settled.tolist(), kinds, strict=True
            )
        ]
        return table_of(table), Reading(codes, numbers, np.ones(len(values), dtype=bool)), plain

    def _read_values(self, values: list[list[Any]]) -> Reading:
        domains = [self.domains[name] for name in self.schema.features]
        coded = [domain.encode_values(column) for domain, column in zip(domains, values, strict=True)]
        settled = [d.restores(column, codes) for d, column, (codes, _) in zip(domains, values, coded, strict=True)]
        codes, numbers = (np.column_stack(parts) for parts in zip(*coded, strict=True))
        return Reading(codes, numbers, np.array(settled))

    def quasi(self, frame: pd.DataFrame) -> list[NDArray[np.int32]]:
        """Return the codes of each quasi-identifier of a table."""
        return [self.domains[name].encode(frame[name])[0] for name in self.schema.quasi_identifiers]

    def collapse(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the cells of a table that the domains were learned from, and the cell of each row."""
        return collapse(self.quasi(frame), [self.domains[name].size for name in self.schema.quasi_identifiers])

    def conform(self, frame: pd.DataFrame, reading: Reading | None = None) -> pd.DataFrame:
        """Return a table in the training table's order, dtypes and spelling, where values survive it."""
        codes, _, settled = self.read(frame) if reading is None else reading
        names = self.schema.features
        table = select(frame, names)
        dtypes = [self.domains[name].dtype for name in names]
        is_right = settled & np.array([own == dtype for own, dtype in zip(table.dtypes, dtypes, strict=True)])
        if is_right.all():
            return table
        columns: dict[str, Any] = {}
        for j, name in enumerate(names):
            if not is_right[j] and (codes[:, j] >= 0).all():
                columns[name] = self.domains[name].restored(codes[:, j])
            else:
                columns[name] = table[name].array if is_right[j] else conform(table[name], dtypes[j]).array
        return table_of(columns)


@dataclass(frozen=True, eq=False, repr=False)
class KeyedOrder(HostOnly):
    """Lines records up by numbers that need the key to compute."""

    coding: Coding
    key: bytes

    _refusal = PopulationError, "a {} holds the key and refuses to be pickled"

    def _counts(self) -> str:
        return f"{len(self.coding.domains)} features"

    def __call__(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return the keyed number of each record, coded (`Coding.encode`)."""
        schema, domains = self.coding.schema, self.coding.domains
        tokens = [tokens_of(domains[schema.features[j]], codes[:, j], numbers[:, j]) for j in schema.canonical]
        return keyed_order(self.key, np.column_stack(tokens))

    def of(self, frame: pd.DataFrame) -> NDArray[np.uint64]:
        """Return the keyed number of each record of a table."""
        return self(*self.coding.encode(frame))


# The rows behind the cells of a population: in memory, or not there at all.


class Rows(Protocol):
    """What a population asks of its rows. Where they are not in memory, each person stands for one row."""

    cell_of_row: NDArray[np.int64]  # shape (n_rows,); cell of each row
    # shape (n_rows,); number of the person of each row; None where each row is a person
    subjects: NDArray[np.int64] | None
    in_memory: bool  # Whether `table` is there
    are_told_apart: bool  # Whether `numbers` are there: whether the people of a cell can be divided

    @property
    def table(self) -> pd.DataFrame:
        """The rows themselves, without a copy."""
        ...

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed numbers of some rows."""
        ...

    def map(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:
        """Return what a function makes of the rows, where they are; `columns` are its names and Spark types."""
        ...


class RowsInMemory(HostOnly):
    """The rows of a table."""

    _refusal = PopulationError, "{} holds training rows and refuses to be pickled"
    in_memory = are_told_apart = True

    def __init__(self, table: pd.DataFrame, cell_of_row: NDArray[np.int64], subjects: NDArray[np.int64] | None) -> None:
        self.table, self.cell_of_row, self.subjects = table, cell_of_row, subjects

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed numbers of some rows."""
        return order.of(self.table.take(at))

    def map(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:  # noqa: ARG002
        """Return what a function makes of the rows."""
        return work(self.table)


class NoRows(HostOnly):
    """The people of a sealed population: counted, and no more is known of them."""

    _refusal = PopulationError, "{} holds cells of people and refuses to be pickled"
    in_memory = are_told_apart = False
    subjects: NDArray[np.int64] | None = None
    _advice = "a sealed population has no rows; use the population that it was sealed from"

    def __init__(self, cell_people: NDArray[np.int64]) -> None:
        self.cell_of_row = np.repeat(np.arange(len(cell_people)), cell_people)

    @property
    def table(self) -> pd.DataFrame:
        """Refuse."""
        raise PopulationError(self._advice)

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:  # noqa: ARG002
        """Refuse."""
        raise PopulationError(self._advice)

    def map(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:  # noqa: ARG002
        """Refuse."""
        raise PopulationError(self._advice)
