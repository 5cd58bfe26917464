"""A table as codes: rows with the same ones, the people behind rows, and what identifies the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.columns import to_text
from cfk_plugin.domain import Domain
from cfk_plugin.errors import PopulationError
from cfk_plugin.schema import Schema


def require_columns(found: Sequence[object], schema: Schema) -> None:
    """Refuse a table of which columns are missing or doubled.

    Raises
    ------
    PopulationError
    """
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
    """Return coded records in an order that follows from their values, whatever the order of rows and columns.

    Parameters
    ----------
    codes : int32 array, shape (n, n_features)
    schema : Schema
    *before : arrays, shape (n,)
        What decides before the values do, the first first.
    """
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
    """Return bytes that are the same for the same rows and the same schema, in whatever order of rows and columns.

    Parameters
    ----------
    schema : Schema
    domains : mapping
        Feature to its domain.
    codes : int32 array, shape (n_rows, n_features)
    """
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
