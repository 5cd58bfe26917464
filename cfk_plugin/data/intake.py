"""Intake: a table of counterfactuals or queries is selected, checked, coded and conformed, each once."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Codes, Domain, Numbers
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import conform, conform_values
from cfk_plugin.errors import HostOnly, InputError, PopulationError

FEW = 32
"""Rows up to which a loop over values is faster than pandas' machinery."""

LARGEST = 1e300
"""Largest number that is taken: the difference of any two is still one, and its text can be written."""


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


def require_features(frame: object, features: Sequence[str], what: str) -> pd.DataFrame:
    """Return a table that has every feature once, or raise what is wrong with its columns."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{what} must be a pandas DataFrame, got {type(frame).__name__}")
    if frame.empty:
        raise InputError(f"{what} must have at least one row and one column")
    names = frame.columns.tolist()
    if not frame.columns.is_unique:
        doubled = [name for name in features if names.count(name) > 1]
        raise InputError(f"{what}: duplicate columns {doubled or 'outside the schema'}; keep one of each")
    if not set(features).issubset(names):
        lost = [name for name in features if name not in names]
        raise InputError(f"{what}: missing columns {lost}; every feature of the schema is needed")
    return frame


def as_table(counterfactuals: object, features: Sequence[str]) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return counterfactuals as a table, and the query that each one answers."""
    if isinstance(counterfactuals, Sequence) and all(isinstance(c, Counterfactual) for c in counterfactuals):
        frame = pd.DataFrame([dict(c.values) for c in counterfactuals])
        query = np.array([c.query for c in counterfactuals], dtype=np.int64)
        return require_features(frame, features, "counterfactuals"), query
    frame = require_features(counterfactuals, features, "counterfactuals")
    return frame, np.arange(len(frame))


def select(frame: pd.DataFrame, names: Sequence[str], *, renumber: bool = True) -> pd.DataFrame:
    """Return columns in order, rows numbered from 0; the table itself where it is so already."""
    if frame.columns.tolist() != list(names):
        frame = frame[list(names)]
    index = frame.index
    if not renumber or (isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1):
        return frame
    return frame.reset_index(drop=True)


def table_of(columns: Mapping[str, Any]) -> pd.DataFrame:
    # pandas 3 would make text of an array of objects; it leaves a Series as it is.
    objects = {n: pd.Series(a, dtype=object) for n, a in columns.items() if str(a.dtype) == "object"}
    return pd.DataFrame({**columns, **objects}, copy=False)


@dataclass(frozen=True, eq=False, repr=False)
class Encoder(HostOnly):
    """Reads tables by the domains of a population; it knows no row."""

    schema: Schema
    domains: Mapping[str, Domain]

    _refusal = PopulationError, "an {} holds values of rows and refuses to be pickled"

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
        return low, high, np.array([not (domain.is_numeric or domain.is_open) for domain in self.columns])

    def encode(self, frame: pd.DataFrame) -> tuple[Codes, Numbers]:
        """Return codes and numbers of every feature, each of shape (n, n_features); see `Domain.encode`."""
        intake = self.read(frame)
        return intake.codes, intake.numbers

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the features in the training table's order, dtypes and spelling, where values survive it."""
        return self.read(frame).frame

    def read(self, frame: pd.DataFrame, odd: NDArray[np.bool_] | None = None) -> Intake:
        """Code a table; `odd` says which values cannot be read or written."""
        raw = select(frame, self.schema.features)
        few = len(raw) <= FEW
        codes, numbers = np.empty(raw.shape, dtype=np.int32, order="F"), np.empty(raw.shape, order="F")
        settled = np.zeros(raw.shape[1], dtype=bool)
        values = raw.to_numpy(dtype=object).T.tolist() if few else []  # much faster than column by column
        for j, domain in enumerate(self.columns):
            if few:
                codes[:, j], numbers[:, j] = domain.encode_values(values[j])
                settled[j] = domain.restores(values[j], codes[:, j])
            else:
                codes[:, j], numbers[:, j] = domain.encode(raw.iloc[:, j])
        return Intake(self, raw, codes, numbers, settled, odd)

    def read_records(self, records: Sequence[Mapping[str, Any]], odd: NDArray[np.bool_] | None) -> Intake:
        """Do as `read` for a few records of plain values, such as JSON holds."""
        table, plain = {}, []
        shape = (len(records), len(self.columns))
        codes, numbers = np.empty(shape, dtype=np.int32), np.empty(shape)
        for j, (name, domain) in enumerate(zip(self.schema.features, self.columns, strict=True)):
            values = [record[name] for record in records]
            codes[:, j], numbers[:, j] = domain.encode_values(values)
            is_known = bool((codes[:, j] >= 0).all())
            table[name] = domain.restore_array(codes[:, j]) if is_known else conform_values(values, domain.dtype)
            # numbers and dates as text are what they were read as
            taken = {int} if domain.is_numeric else {str, int}
            is_plain = {*map(type, values)} <= taken and domain.restores(values, codes[:, j])
            plain.append(values if is_plain else list(table[name]))
        return Intake(self, table_of(table), codes, numbers, np.ones(shape[1], dtype=bool), odd, plain)

    def keyed_order(self, key: bytes, codes: Codes, numbers: Numbers) -> NDArray[np.uint64]:
        """Return 64 bits of HMAC-SHA256 per record: the order of people within a cell."""
        tokens = np.empty(codes.shape, dtype="<u8")
        for place, j in enumerate(self.schema.canonical):
            tokens[:, place] = self.columns[j].tokens(codes[:, j], numbers[:, j])
        digests = b"".join(hmac.digest(key, row.tobytes(), "sha256")[:8] for row in tokens)
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, eq=False, repr=False)
class Intake(HostOnly):
    """A table in the population's terms. Host side only."""

    encoder: Encoder
    raw: pd.DataFrame  # the features as they came
    codes: Codes  # shape (n, n_features); -1 for a number that no training row has
    numbers: Numbers  # NaN for categories
    settled: NDArray[np.bool_]  # per feature, whether its values are spelled as in the population
    odd: NDArray[np.bool_] | None = None  # which values cannot be read or written
    plain: list[list[Any]] | None = None  # values of `frame`, feature by feature, where known

    def __len__(self) -> int:
        return len(self.raw)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The features in the training table's order and dtypes, where values survive it."""
        encoder, columns = self.encoder, {}
        kinds = zip(self.settled.tolist(), self.raw.dtypes, encoder.columns, strict=True)
        is_right = [is_settled and dtype == domain.dtype for is_settled, dtype, domain in kinds]
        if all(is_right):
            return self.raw
        for j, (name, domain) in enumerate(zip(encoder.schema.features, encoder.columns, strict=True)):
            if is_right[j]:
                columns[name] = self.raw[name].array
            elif (self.codes[:, j] >= 0).all():
                columns[name] = domain.restore_array(self.codes[:, j])
            else:
                columns[name] = conform(self.raw[name], domain.dtype).array
        return table_of(columns)

    @cached_property
    def values(self) -> list[list[Any]]:
        if self.plain is not None:
            return self.plain
        if len(self) <= FEW:
            return self.frame.to_numpy(dtype=object).T.tolist()
        return [self.frame[name].tolist() for name in self.frame]

    @cached_property
    def quasi_identifiers(self) -> tuple[Codes, Numbers]:
        at = self.encoder.schema.quasi_positions
        return self.codes[:, at], self.numbers[:, at]

    @cached_property
    def faults(self) -> tuple[tuple[str, tuple[str, ...]] | None, ...]:
        """Per counterfactual, the first reason not to release it, with the columns at fault; or None."""
        low, high, listed = self.encoder.limits
        odd = np.zeros(self.codes.shape, dtype=bool) if self.odd is None else self.odd
        with np.errstate(invalid="ignore"):
            found = {
                "invalid_value": (self.codes == INVALID) | odd | (np.abs(self.numbers) > LARGEST),
                "missing_value": self.codes == UNEXPECTED_MISSING,
                "unknown_category": (self.codes == UNKNOWN) & listed,
                "outside_domain": (self.numbers < low) | (self.numbers > high),
            }
        faults: list[tuple[str, tuple[str, ...]] | None] = [None] * len(self)
        for reason, flags in reversed(found.items()):
            for i in np.flatnonzero(flags.any(axis=1)).tolist():
                names = [self.encoder.schema.features[j] for j in np.flatnonzero(flags[i])]
                faults[i] = (reason, tuple(names))
        return tuple(faults)

    def take(self, at: NDArray[np.int64]) -> Intake:
        """Return some of the counterfactuals, in better dtypes where only the others prevented them."""
        if np.array_equal(at, np.arange(len(self))):
            return self
        odd = None if self.odd is None else self.odd[at]
        raw = self.raw.take(at).reset_index(drop=True)
        return Intake(self.encoder, raw, self.codes[at], self.numbers[at], self.settled, odd)


def take_in(frame: pd.DataFrame, encoder: Encoder) -> Intake:
    """Check and code counterfactuals; identifiers, label and unknown columns are dropped."""
    raw = select(frame, encoder.schema.features)
    odd = np.zeros(raw.shape, dtype=bool)
    for j, (domain, dtype) in enumerate(zip(encoder.columns, raw.dtypes.tolist(), strict=True)):
        if _needs_look(dtype, domain):
            odd[:, j] = [not _is_plain(value, domain) for value in raw.iloc[:, j]]
    if odd.any():
        columns = {
            name: raw[name].astype(object).mask(odd[:, j], None) if odd[:, j].any() else raw[name]
            for j, name in enumerate(raw.columns)
        }
        raw = pd.DataFrame(columns)
    return encoder.read(raw, odd)


def take_in_records(records: Sequence[Mapping[str, Any]], encoder: Encoder) -> Intake:
    """Do as `take_in` for records of plain values, such as JSON holds; each has every feature."""
    names = encoder.schema.features
    if len(records) > FEW:
        return take_in(pd.DataFrame([{name: record[name] for name in names} for record in records]), encoder)
    columns = [*zip(names, encoder.columns, strict=True)]
    odd = np.array([[not _is_plain(record[name], domain) for name, domain in columns] for record in records])
    if odd.any():
        records = [
            {name: None if bad else record[name] for name, bad in zip(names, flags, strict=True)}
            for record, flags in zip(records, odd.tolist(), strict=True)
        ]
    return encoder.read_records(records, odd)


# Values that can be read and written. A closed list: what an explainer or a request holds may be anything, and what is
# let in here is put on record, written as text and sent as JSON without a further look.

_NUMBERS = {bool, int, float, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQefd")}
_DATES = {date, datetime, pd.Timestamp, np.datetime64}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MISSING = {type(None), type(pd.NA), type(pd.NaT)}


def _needs_look(dtype: Any, domain: Domain) -> bool:
    """Say whether a column of this dtype may hold what is not plain; in one of numbers, `faults` misses nothing."""
    if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        return domain.is_numeric  # all of it can be encoded
    if types.is_datetime64_any_dtype(dtype):
        return domain.is_numeric and not domain.is_date
    kind = dtype.kind if isinstance(dtype, np.dtype) else "O"
    return kind not in "biuf" or domain.is_date or (kind == "f" and not domain.is_numeric)


def _is_plain(value: Any, domain: Domain) -> bool:
    """Say whether a value is missing, or has a type that its attribute allows and that can be written."""
    kind = type(value)
    if kind in _MISSING:
        return True
    if kind is str or kind is np.str_:
        return _is_readable(value, domain)
    if kind in _NUMBERS:
        return not domain.is_date and not abs(value) > LARGEST  # a missing one is not larger either
    if kind is Decimal:
        return not domain.is_date and (value.is_qnan() or (value.is_finite() and abs(value) <= LARGEST))
    return kind in _DATES and (domain.is_date or not domain.is_numeric)


def _is_readable(text: str, domain: Domain) -> bool:
    """Say whether a text is what its attribute needs: a date, a number, or whatever can be encoded."""
    try:
        if not domain.is_numeric:
            return text.isascii() or bool(text.encode())
        return bool(_DATE.match(text)) if domain.is_date else "_" not in text and abs(float(text)) <= LARGEST
    except ValueError:  # lone surrogates cannot be encoded
        return False
