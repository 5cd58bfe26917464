"""A table as codes: rows with the same ones, the people behind rows, and what identifies the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.domain import Domain
from cfk_plugin.errors import PopulationError
from cfk_plugin.schema import Schema


def subjects_of(frame: pd.DataFrame, schema: Schema) -> NDArray[np.int64] | None:
    """Return a number per row that says whose it is; None where every row is a person of their own."""
    if schema.subject is None:
        return None
    codes, _ = pd.factorize(frame[schema.subject], use_na_sentinel=True)
    if (codes < 0).any():
        raise PopulationError(f"subject key {schema.subject!r} has missing values; every row needs its person")
    return np.asarray(codes, dtype=np.int64)


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


def identity_of(schema: Schema, domains: Mapping[str, Domain], codes: NDArray[np.int32]) -> list[bytes]:
    """Return bytes that are the same for the same rows, in whatever order, and the same schema.

    Parameters
    ----------
    schema : Schema
    domains : mapping
        Feature to its domain.
    codes : int32 array, shape (n_rows, n_features)
    """
    attributes = repr([(a.name, a.role, a.kind, a.weight) for a in schema.attributes])
    values = ["\x1f".join(map(str, domain.values)) for domain in domains.values()]
    rows: NDArray[np.uint64] = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T:
        rows = rows * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64)
    return [*(text.encode() for text in (attributes, *values)), np.sort(rows).tobytes()]
