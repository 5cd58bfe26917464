"""Encoding: a table of counterfactuals or queries is selected, checked, coded and conformed, each
once.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import accumulate, repeat
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Codes, Domain, Numbers
from cfk_plugin.data.region import natural
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import DATES, MISSING, NUMBERS, as_pandas, conform, conform_values
from cfk_plugin.errors import HostOnly, InputError, rename_hint

COPIES_EAGERLY = int(pd.__version__.split(".")[0]) < 3  # pandas 3 copies on write
FEW = 32
"""Rows up to which a loop over values is faster than pandas' machinery."""

LARGEST = 1e300
"""Largest number that is accepted: the difference of any two is finite, and it can be written as
text.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Counterfactual:
    """One raw counterfactual. Host side only: its `repr` shows no value.

    Attributes
    ----------
    query : int
        Position of the query it answers.
    values : mapping of feature to value
    """

    query: int
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Counterfactual(query={self.query}, {len(self.values)} values withheld)"


def require_features(frame: object, features: Sequence[str], table_name: str) -> pd.DataFrame:
    """Return a table that has every feature once, as pandas, or raise what is wrong with its
    columns.
    """
    if not isinstance(frame, pd.DataFrame) and not isinstance(
        frame := as_pandas(frame), pd.DataFrame
    ):
        raise InputError(
            f"{table_name} must be a table (pandas, polars or pyarrow), got"
            f" {type(frame).__name__}; give a row each and a column per feature, such as"
            " pd.DataFrame(rows, columns=population.schema.features); one row of a table is"
            " table.iloc[[0]]"
        )
    if frame.empty:
        raise InputError(f"{table_name} must have at least one row and one column")
    names = frame.columns.tolist()
    if not frame.columns.is_unique:
        doubled = [name for name in features if names.count(name) > 1]
        raise InputError(
            f"{table_name}: duplicate columns {doubled or 'outside the schema'}; keep one of each"
        )
    if not set(features).issubset(names):
        missing_features = [name for name in features if name not in names]
        hint = rename_hint(missing_features, names, features)
        raise InputError(
            f"{table_name}: missing columns {missing_features}{hint}; every feature of the schema"
            " is needed"
        )
    return frame


def require_person(factual: object, features: Iterable[str]) -> None:
    """Raise what is wrong with one person's values, by feature."""
    if not isinstance(factual, (Mapping, pd.Series)):
        raise InputError(
            "factual must be one person's values, a mapping or a Series by feature, got"
            f" {type(factual).__name__}; give one row of the queries, such as"
            " queries.iloc[entry.query]"
        )
    if missing_features := [name for name in features if name not in factual]:
        raise InputError(
            f"factual: missing features {missing_features}; give the person's value of each"
        )


def whole_number(name: str, value: object, least: int = 1) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def as_table(
    counterfactuals: object, features: Sequence[str]
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return counterfactuals as a table, and the query that each one answers."""
    if isinstance(counterfactuals, Sequence) and all(
        isinstance(c, Counterfactual) for c in counterfactuals
    ):
        frame = pd.DataFrame([dict(c.values) for c in counterfactuals])
        query = np.array([c.query for c in counterfactuals], dtype=np.int64)
        return require_features(frame, features, "counterfactuals"), query
    frame = require_features(counterfactuals, features, "counterfactuals")
    return frame, np.arange(len(frame))


def select(frame: pd.DataFrame, names: Sequence[str], *, renumber: bool = True) -> pd.DataFrame:
    """Return columns in order, rows numbered from 0; the table itself if it is like that
    already.
    """
    if not frame.columns.is_(_header(tuple(names))) and frame.columns.tolist() != list(names):
        frame = frame[list(names)]
    index = frame.index
    if not renumber or (isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1):
        return frame
    return frame.reset_index(drop=True)


def one_row(frame: pd.DataFrame, position: int) -> pd.DataFrame:
    """Return a row as a table of its own, numbered 0; it is cut out, as pandas takes longer to pick
    rows.
    """
    row = frame.iloc[position : position + 1].copy(deep=COPIES_EAGERLY)
    row.index = pd.RangeIndex(1)
    return row


def divided(array: NDArray[Any], sizes: Iterable[int]) -> list[NDArray[Any]]:
    """Return an array in pieces of these sizes."""
    ends = [*accumulate(sizes)]
    return [*map(array.__getitem__, map(slice, [0, *ends], ends))]


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    # pandas 3 would make text of an array of objects; it leaves a Series as it is.
    arrays = (pd.Series(a, dtype=object) if _holds_objects(a) else a for a in columns.values())
    frame = pd.DataFrame(dict(enumerate(arrays)), copy=False)
    frame.columns = _header(tuple(columns)).view()
    return frame


def _holds_objects(array: Any) -> bool:
    return (
        isinstance(array, (np.ndarray, pd.arrays.NumpyExtensionArray)) and array.dtype == "object"
    )


@lru_cache
def _header(names: tuple[str, ...]) -> pd.Index:
    """Return names of columns, which take longer to make than the table."""
    return pd.Index(names)


@dataclass(frozen=True, eq=False, repr=False)
class Encoder(HostOnly):
    """Reads tables by the domains of a population; it knows no row."""

    schema: Schema
    domains: Mapping[str, Domain]

    def __post_init__(self) -> None:
        object.__setattr__(self, "domains", MappingProxyType(dict(self.domains)))

    def _counts(self) -> str:
        return f"{len(self.domains)} features"

    @cached_property
    def columns(self) -> list[Domain]:
        return [self.domains[name] for name in self.schema.features]

    @cached_property
    def limits(self) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """Per feature: lowest and highest number allowed, and whether all values are known."""
        bounds = [domain.attribute.bounds or (-np.inf, np.inf) for domain in self.columns]
        low, high = np.array(bounds, dtype=np.float64).T
        return (
            low,
            high,
            np.array([not (domain.is_numeric or domain.is_open) for domain in self.columns]),
        )

    def encode(self, frame: pd.DataFrame) -> tuple[Codes, Numbers]:
        """Return codes and numbers of every feature, each of shape (n, n_features); see
        `Domain.encode`.
        """
        encoded = self.read(frame)
        return encoded.codes, encoded.numbers

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the features in the training table's order, dtypes and spelling, where values
        survive it.
        """
        return self.read(frame).frame

    def read(self, frame: pd.DataFrame, odd: NDArray[np.bool_] | None = None) -> EncodedTable:
        """Code a table; `odd` says which values cannot be read or written."""
        if len(frame) <= FEW:
            values = select(frame, self.schema.features, renumber=False).to_numpy(dtype=object)
            return self.read_values(values.T.tolist())
        raw = select(frame, self.schema.features)
        codes = np.empty(raw.shape, dtype=np.int32, order="F")
        numbers = np.empty(raw.shape, order="F")
        for j, domain in enumerate(self.columns):
            codes[:, j], numbers[:, j] = domain.encode(raw.iloc[:, j])
        return EncodedTable(self, raw, codes, numbers, odd)

    def read_values(self, values: list[list[Any]], *, checked: bool = False) -> EncodedTable:
        """Like `read`, for a few rows, given feature by feature; if `checked`, what is not plain is
        marked as odd.
        """
        shape = len(values[0]), len(values)
        codes = np.empty(shape, np.int32, "F")
        numbers = np.empty(shape, order="F")
        odd = None
        for j, domain in enumerate(self.columns):
            if checked and not all(map(_is_plain, values[j], repeat(domain))):
                odd = np.zeros(shape, dtype=bool) if odd is None else odd
                odd[:, j] = [not _is_plain(value, domain) for value in values[j]]
                values[j] = [
                    None if bad else value for value, bad in zip(values[j], odd[:, j], strict=True)
                ]
            codes[:, j], numbers[:, j] = domain.encode_values(values[j])
        return EncodedTable(self, values, codes, numbers, odd)

    def keyed_order(self, key: bytes, codes: Codes, numbers: Numbers) -> NDArray[np.uint64]:
        """Return 64 bits of HMAC-SHA256 per record: the order of people within a cell."""
        tokens = np.empty(codes.shape, dtype="<u8")
        for place, j in enumerate(self.schema.canonical):
            tokens[:, place] = self.columns[j].tokens(codes[:, j], numbers[:, j])
        digests = b"".join(hmac.digest(key, row.tobytes(), "sha256")[:8] for row in tokens)
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, eq=False, repr=False)
class EncodedTable(HostOnly):
    """A table in the population's terms. Host side only."""

    encoder: Encoder
    # the features as they came; a few rows' values, feature by feature
    raw: pd.DataFrame | list[list[Any]]
    codes: Codes  # shape (n, n_features); -1 for a number that no training row has
    numbers: Numbers  # NaN for categories
    # which values cannot be read or written; None where all can
    odd: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The features in the training table's order and dtypes, where values survive it."""
        return table_of(
            {name: self.column(j) for j, name in enumerate(self.encoder.schema.features)}
        )

    def column(self, j: int, positions: NDArray[np.int64] | slice = slice(None)) -> Any:
        """Return an array of one feature, as in `frame`, at some positions."""
        domain = self.encoder.columns[j]
        codes = self.codes[:, j]
        raw = self.raw
        if (codes >= 0).all():
            return domain.restore_array(codes[positions])
        if isinstance(raw, list):
            return conform_values(raw[j], domain.dtype)[positions]
        return conform(raw.iloc[:, j], domain.dtype).array[positions]

    @cached_property
    def values(self) -> list[list[Any]]:
        """What `frame` holds, feature by feature."""
        if not isinstance(self.raw, list):
            return [self.frame[name].tolist() for name in self.frame]
        values = [*self.raw]
        for j, domain in enumerate(self.encoder.columns):
            if not domain.restores(values[j], self.codes[:, j]):
                values[j] = self.column(j).tolist()
        return values

    @cached_property
    def private(self) -> list[dict[str, Any]]:
        """Private values of each row, as plain Python shows them."""
        private_values: list[dict[str, Any]] = [{} for _ in self.codes]
        for name, values in zip(self.encoder.schema.features, self.values, strict=True):
            if name in self.encoder.schema.private:
                for row, value in zip(private_values, values, strict=True):
                    row[name] = natural(value)
        return private_values

    def same_private(self, other: EncodedTable) -> NDArray[np.bool_]:
        """Say which private values of each row are those of the same row of `other`.

        The result has the shape (n, n_private). Two missing values are the same, and so are two
        categories that no training row has.
        """
        schema = self.encoder.schema
        same = np.empty((len(self), len(schema.private)), dtype=bool)
        for i, name in enumerate(schema.private):
            j = schema.features.index(name)
            domain = self.encoder.columns[j]
            if domain.is_numeric:
                own_numbers = domain.numbers_of(self.codes[:, j], self.numbers[:, j])
                other_numbers = domain.numbers_of(other.codes[:, j], other.numbers[:, j])
                is_missing_in_both = np.isnan(own_numbers) & np.isnan(other_numbers)
                same[:, i] = (own_numbers == other_numbers) | is_missing_in_both
            else:
                same[:, i] = self.codes[:, j] == other.codes[:, j]
        return same

    @cached_property
    def quasi_identifiers(self) -> tuple[Codes, Numbers]:
        positions = self.encoder.schema.quasi_positions
        return self.codes[:, positions], self.numbers[:, positions]

    @cached_property
    def faults(self) -> tuple[tuple[str, tuple[str, ...]] | None, ...]:
        """Per counterfactual, the first reason not to release it, with the columns at fault; or
        None.
        """
        low, high, listed = self.encoder.limits
        odd = np.zeros(self.codes.shape, dtype=bool) if self.odd is None else self.odd
        with np.errstate(invalid="ignore"):
            flags_of_reason = {
                "invalid_value": (self.codes == INVALID) | odd | (np.abs(self.numbers) > LARGEST),
                "missing_value": self.codes == UNEXPECTED_MISSING,
                "unknown_category": (self.codes == UNKNOWN) & listed,
                "outside_domain": (self.numbers < low) | (self.numbers > high),
            }
        faults: list[tuple[str, tuple[str, ...]] | None] = [None] * len(self)
        for reason, flags in reversed(flags_of_reason.items()):
            for i in np.flatnonzero(flags.any(axis=1)).tolist():
                names = [self.encoder.schema.features[j] for j in np.flatnonzero(flags[i])]
                faults[i] = (reason, tuple(names))
        return tuple(faults)

    def take(self, positions: NDArray[np.int64]) -> EncodedTable:
        """Return some of the counterfactuals, in better dtypes where only the others prevented
        them.
        """
        if np.array_equal(positions, np.arange(len(self))):
            return self
        odd = None if self.odd is None else self.odd[positions]
        if isinstance(raw := self.raw, list):
            raw = [[column[i] for i in positions.tolist()] for column in raw]
        else:
            raw = raw.take(positions).reset_index(drop=True)
        return EncodedTable(self.encoder, raw, self.codes[positions], self.numbers[positions], odd)

    def joined(self, other: EncodedTable) -> EncodedTable:
        raw = [[*a, *b] for a, b in zip(self.values, other.values, strict=True)]
        codes = np.vstack([self.codes, other.codes])
        numbers = np.vstack([self.numbers, other.numbers])
        return EncodedTable(self.encoder, raw, codes, numbers)


def valid_rows(*intakes: EncodedTable | None) -> NDArray[np.int64]:
    """Return positions that are without a fault in all of the tables."""
    faults = zip(*(encoded.faults for encoded in intakes if encoded is not None), strict=True)
    return np.flatnonzero(~np.array([*map(any, faults)], dtype=bool))


def encode(frame: pd.DataFrame, encoder: Encoder) -> EncodedTable:
    """Check and code counterfactuals; identifiers, label and unknown columns are dropped."""
    if len(frame) <= FEW:
        # faster than by column
        values = select(frame, encoder.schema.features, renumber=False).to_numpy(dtype=object)
        return encoder.read_values(values.T.tolist(), checked=True)
    raw = select(frame, encoder.schema.features)
    odd = np.zeros(raw.shape, dtype=bool)
    for j, (domain, dtype) in enumerate(zip(encoder.columns, raw.dtypes.tolist(), strict=True)):
        if _needs_look(dtype, domain):
            odd[:, j] = [not _is_plain(value, domain) for value in raw.iloc[:, j]]
    if odd.any():
        columns = {}
        for j, name in enumerate(raw.columns):
            column = raw[name]
            if odd[:, j].any():
                column = column.astype(object).mask(odd[:, j], None)
            columns[name] = column
        raw = pd.DataFrame(columns)
    return encoder.read(raw, odd)


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def _needs_look(dtype: Any, domain: Domain) -> bool:
    """Say whether a column of this dtype may hold what is not plain; in a column of numbers,
    `faults` finds it.
    """
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        return domain.is_numeric  # all of it can be encoded
    if types.is_datetime64_any_dtype(dtype):
        return domain.is_numeric and not domain.is_date
    kind = dtype.kind if isinstance(dtype, np.dtype) else "O"
    return kind not in "biuf" or domain.is_date or (kind == "f" and not domain.is_numeric)


def _is_plain(value: Any, domain: Domain) -> bool:
    """Say whether a value is missing, or has a type that its attribute allows and that can be
    written.
    """
    kind = type(value)
    if kind in MISSING:
        return True
    if kind is str or kind is np.str_:
        return _is_readable(value, domain)
    if kind in NUMBERS:
        return not domain.is_date and not abs(value) > LARGEST  # a missing one is not larger either
    if kind is Decimal:
        return not domain.is_date and (
            value.is_qnan() or (value.is_finite() and abs(value) <= LARGEST)
        )
    return kind in DATES and (domain.is_date or not domain.is_numeric)


def _is_readable(text: str, domain: Domain) -> bool:
    """Say whether a text is what its attribute needs: a date, a number, or whatever can be
    encoded.
    """
    try:
        if not domain.is_numeric:
            return text.isascii() or bool(text.encode())
        return (
            bool(_DATE.match(text))
            if domain.is_date
            else "_" not in text and abs(float(text)) <= LARGEST
        )
    except ValueError:  # lone surrogates cannot be encoded
        return False
