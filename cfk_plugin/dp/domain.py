"""The public domain: what is known of every feature without looking at a row, with codes for it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types
from sklearn.base import BaseEstimator, TransformerMixin

from cfk_plugin.data.codes import Column
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import dates_of, is_missing, spellings, to_number, to_text
from cfk_plugin.data.rounding import DAY, multiples, resolution_of_dates, steps_within
from cfk_plugin.data.schema import Schema, SchemaAttribute, type_of_values
from cfk_plugin.data.tables import table_of
from cfk_plugin.data.values import conform, to_numbers
from cfk_plugin.errors import InputError, PrivacyLeakWarning, SchemaError
from cfk_plugin.metrics.heom import hashes_of

_BINS = 16  # for a numeric feature with only bounds declared
_PRECISION = 1e-9  # least distance between fractional numbers, as a share of their range
_VALUES = 20  # whole numbers with at most this many values have a bin for each


@dataclass(frozen=True, eq=False)
class PublicColumn:
    """One feature: its declared values or bins as codes 0 .. size-1; a missing value, if declared,
    is the last.
    """

    attribute: SchemaAttribute

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def is_numeric(self) -> bool:
        return self.attribute.kind == "numeric"

    @property
    def is_date(self) -> bool:
        """Whether its numbers are seconds, as bounds or bins are declared as dates."""
        return self.is_numeric and str(self.attribute.dtype).startswith("datetime64")

    @property
    def is_whole(self) -> bool:
        return self.is_date or (self.is_numeric and self.attribute.dtype == "int64")

    @property
    def step(self) -> float:
        """What whole values are multiples of: 1, or a day in seconds."""
        return DAY if self.attribute.dtype == "datetime64[D]" else 1.0

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Edges of the bins: as declared, else one value each for few whole numbers, else 16 of
        equal width.
        """
        if self.attribute.bins is not None:
            return np.array(self.attribute.bins)
        low, high = self.attribute.bounds or (0.0, 0.0)
        if self.is_whole and high - low < _VALUES * self.finest:
            return np.append(np.arange(low, high + self.finest, self.finest), high)
        return np.linspace(low, high, _BINS + 1)

    @cached_property
    def values(self) -> tuple[Any, ...]:
        return tuple(self.attribute.categories or self.attribute.declared_values or ())

    @cached_property
    def groups(self) -> list[NDArray[np.int32]]:
        """Groups of codes by a declared hierarchy, finest first; a missing value is a group of its
        own.
        """
        tree, found = self.attribute.hierarchy, []
        node = np.arange(self.listed, dtype=np.int32)
        while tree is not None and (node := tree.parent[node]).min() < node.max():
            found.append(np.append(node, np.full(self.size - self.listed, -1, dtype=np.int32)))
        return found

    @property
    def listed(self) -> int:
        return len(self.edges) - 1 if self.is_numeric else len(self.values)

    @property
    def size(self) -> int:
        return self.listed + self.attribute.nullable

    @property
    def width(self) -> float:
        """Declared range of a numeric feature; 1 if it is a single number."""
        return float(self.edges[-1] - self.edges[0]) or 1.0

    def codes(self, column: pd.Series) -> NDArray[np.int32]:
        """Return codes, -1 for a value that is not declared; numbers outside of the bounds are
        clipped.
        """
        missing = self.listed if self.attribute.nullable else -1
        if not self.is_numeric:
            return _each(column, lambda v: missing if is_missing(v) else self._code_of(v), np.int32)
        return self.bins_of(numbers_of(column))

    def _code_of(self, value: Any) -> int:
        """Return the code of a category in any spelling; -1 if it is not declared."""
        with suppress(Exception):  # whatever else is in a table is not declared
            for text in spellings(value):
                if text in self._code_of_text:
                    return self._code_of_text[text]
        return -1

    @cached_property
    def _code_of_text(self) -> dict[str, int]:
        code_of_text: dict[str, int] = {}
        for code, value in enumerate(self.values):
            code_of_text |= dict.fromkeys(spellings(value), code)
        return code_of_text

    def conform(self, column: pd.Series) -> pd.Series:
        """Return values in their declared type; the column itself if one is not declared."""
        if self.is_numeric:
            numbers = numbers_of(column)
            if np.isinf(numbers).any():
                return column
            return self.to_dtype(pd.Series(numbers, index=column.index))
        codes = self.codes(column)
        return column if (codes < 0).any() else pd.Series(self.pick(codes), index=column.index)

    def bins_of(self, numbers: NDArray[np.float64]) -> NDArray[np.int32]:
        found = np.searchsorted(self.edges[1:-1], numbers, side="right").astype(np.int32)
        if not np.isfinite(numbers).all():
            found[np.isinf(numbers)] = -1
            found[np.isnan(numbers)] = self.listed if self.attribute.nullable else -1
        return found

    @cached_property
    def finest(self) -> float:
        """The least distance between numbers; dates are as fine as their bounds or bins."""
        ends = np.array(self.attribute.bins or self.attribute.bounds or (0.0, 0.0))
        if self.is_date:
            return max(self.step, resolution_of_dates(ends))
        return self.step if self.is_whole else (float(ends[-1] - ends[0]) or 1.0) * _PRECISION

    @cached_property
    def steps(self) -> NDArray[np.float64]:
        """What drawn numbers of each bin are multiples of, so that they are round."""
        return steps_within(np.diff(self.edges), self.finest, are_dates=self.is_date)

    def draw(self, codes: NDArray[np.int32], random: np.random.Generator) -> pd.Series:
        """Return a value for each code: a round number drawn uniformly from its bin, or the
        declared value.
        """
        missing = codes >= self.listed
        if not self.is_numeric:
            return pd.Series(self.pick(np.where(missing, self.listed, codes)))
        at = np.where(missing, 0, codes)
        steps = self.steps[at]
        low = self.edges[at] / steps
        high = self.edges[at + 1] / steps
        first = np.ceil(low)
        last = np.where(at == self.listed - 1, np.floor(high), np.ceil(high) - 1)
        counts = np.floor(first + random.random(len(at)) * (np.maximum(last - first, 0) + 1))
        numbers = multiples(counts, steps)
        if not self.is_whole:  # a bin may be a single number, which is not round
            numbers = np.clip(numbers, self.edges[at], self.edges[at + 1])
        return self.to_dtype(pd.Series(numbers).mask(pd.Series(missing)))

    def rounded(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.rint(numbers / self.step) * self.step if self.is_whole else numbers

    def restore(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> Any:
        """Return an array of values in their declared type, numbers as they are."""
        if self.is_date:
            return self.to_dtype(pd.Series(numbers)).array
        if self.is_numeric:
            return numbers.astype(self._number)
        return self.pick(codes)

    def pick(self, at: NDArray[np.integer[Any]]) -> Any:
        """Return an array of declared values by position (missing after the last), in their
        declared type.
        """
        if self.attribute.dtype == "category":
            places = np.where(at < self.listed, at, -1).astype(np.int64)
            return pd.Categorical.from_codes(places, pd.Index(self.values))
        return self.pool.take(at)

    @cached_property
    def pool(self) -> Any:
        """Every declared value once, in its declared type, and a missing one last if that is
        declared.
        """
        dtype, values = self.attribute.dtype, pd.Series(list(self.values))
        values = values if dtype is None else conform(values, dtype)
        return (pd.Series([*values.tolist(), None]) if self.attribute.nullable else values).array

    @cached_property
    def tokens(self) -> dict[int, int]:
        """The code of each declared value, and of a missing one, by its hash in `Heom`."""
        return dict(
            zip(hashes_of([*map(to_text, self.values)]).tolist(), range(self.size), strict=False)
        )

    @cached_property
    def _number(self) -> Any:
        return "int64" if self.is_whole and not self.attribute.nullable else "float64"

    def to_dtype(self, drawn: pd.Series) -> pd.Series:
        """Return numbers in their declared type, dates from seconds; whole ones with gaps are
        float64.
        """
        if not self.is_date:
            return drawn.astype(self._number)
        stamps = pd.Series(dates_of(drawn.fillna(0).to_numpy())).mask(drawn.isna())
        zone = getattr(types.pandas_dtype(self.attribute.dtype), "tz", None)
        return stamps if zone is None else stamps.dt.tz_localize("UTC").dt.tz_convert(zone)


@dataclass(frozen=True, eq=False)
class PublicDomain:
    """The public domain of all features, in the schema's order."""

    columns: tuple[PublicColumn, ...]
    # columns whose domain was read from rows: if any, nothing is guaranteed
    inferred: tuple[str, ...] = ()

    @classmethod
    def of(cls, population: Population, *, with_target: bool = False) -> PublicDomain:
        """Take what a population's schema declares; no row is looked at.

        Parameters
        ----------
        population : Population
        with_target : bool
            Whether the label column belongs to it.

        Raises
        ------
        SchemaError
            If a domain is not declared. The message names the columns and what to declare.
        """
        schema, names = population.schema, list(population.schema.features)
        if with_target:
            if schema.target is None or schema.target not in population.frame:
                text = (
                    "a surrogate learns from the label column; name it with `target=` and keep it"
                    " in the table"
                )
                raise SchemaError(text)
            names.append(schema.target)
        require_declared(schema, names)
        inferred = tuple(
            n for n in names if {"bounds", "categories", "levels"} & {*schema[n].learned}
        )
        return cls(tuple(PublicColumn(schema[name]) for name in names), inferred)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(column.size for column in self.columns)

    @cached_property
    def features(self) -> tuple[PublicColumn, ...]:
        return tuple(column for column in self.columns if column.attribute.role != "target")

    def codes(self, frame: pd.DataFrame) -> NDArray[np.int32]:
        """Return the codes of rows, shape (n_rows, n_features); -1 for what is not declared."""
        return np.column_stack(
            [column.codes(frame[column.name]) for column in self.columns]
        ).astype(np.int32)

    def codes_to_count(self, population: Population, rows_per_person: int) -> NDArray[np.int32]:
        """Return the codes of the rows that count: at most `rows_per_person` of a person, with
        declared values.
        """
        codes = self.codes(population.rows(population.limited_rows(rows_per_person)))
        return codes[(codes >= 0).all(axis=1)]

    def outside(self, frame: pd.DataFrame) -> dict[str, int]:
        """Count, per column, rows with a value that is not declared.

        For the data holder, as no noise is added.
        """
        counts = (self.codes(frame) < 0).sum(axis=0)
        return {name: int(count) for name, count in zip(self.names, counts, strict=True) if count}

    def conform(self, queries: pd.DataFrame, dtypes: pd.Series) -> pd.DataFrame:
        """Return the features of queries in the dtypes of rows of the domain."""
        others = [c for c in self.features if queries[c.name].dtype != dtypes[c.name]]
        return queries.assign(**{c.name: c.conform(queries[c.name]) for c in others})

    def draw(self, codes: NDArray[np.int32], random: np.random.Generator) -> pd.DataFrame:
        """Return rows with these codes, in the dtypes that the model takes."""
        drawn = {
            column.name: column.draw(codes[:, j], random) for j, column in enumerate(self.columns)
        }
        return pd.DataFrame(drawn)

    def table(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> pd.DataFrame:
        """Return the features of rows with these codes, and with numbers as they are; both by
        column of the domain.
        """
        columns, n = dict[str, Any](), len(codes)
        # a look-up takes as long for all columns of a type as for one
        for pool, of, starts in self._pools:
            taken = pool.take((codes.T[of] + starts).ravel())
            columns |= {self.features[j].name: taken[i * n : (i + 1) * n] for i, j in enumerate(of)}
        for j, column in enumerate(self.features):
            if column.name not in columns:
                columns[column.name] = column.restore(codes[:, j], numbers[:, j])
        return table_of({column.name: columns[column.name] for column in self.features})

    @cached_property
    def _pools(self) -> list[tuple[Any, list[int], NDArray[np.int64]]]:
        """The values of all features of a type, whose these are, and where those of each begin."""
        by_type: dict[Any, list[int]] = {}
        for j, column in enumerate(self.features):
            if not column.is_numeric and column.attribute.dtype != "category":
                by_type.setdefault(column.pool.dtype, []).append(j)
        found = []
        for of in by_type.values():
            pools = [pd.Series(self.features[j].pool) for j in of]
            # in one piece, unlike concat's
            values = pd.Series(pd.concat(pools).tolist(), dtype=pools[0].dtype)
            found.append((values.array, of, np.cumsum([0, *map(len, pools)])[:-1, None]))
        return found


def require_declared(schema: Schema, names: Sequence[str]) -> None:
    """Refuse a schema that does not declare the public domain of some columns."""
    if lacking := [(name, lack) for name in names if (lack := schema[name].undeclared)]:
        raise SchemaError(
            "differential privacy needs public domains, declared and not read from the rows: "
            + "; ".join(f"{name!r} lacks {lack}" for name, lack in lacking)
            + '. Declare them with columns={"COLUMN": Attribute(bounds=...)} and nullable=[...], or'
            " call infer_domains, which leaks"
        )


def infer_domains(
    frame: pd.DataFrame, schema: Schema, columns: Sequence[str] | None = None
) -> Schema:
    """Fill in from the rows what a schema does not declare.

    This leaks: use it only to try things out.

    A column's rarest value becomes visible in its domain whatever epsilon is, so nothing is
    guaranteed for what is fitted with such a schema, and its certificate says so.

    Parameters
    ----------
    frame : DataFrame of the training rows
    schema : Schema
    columns : sequence of str, optional
        Features to infer. Default: all that lack a domain.

    Returns
    -------
    Schema, with bounds and categories as they are in the table, marked as learned

    Warns
    -----
    PrivacyLeakWarning
        Always, with the names of the columns.
    """
    wanted = [
        n for n in schema.features if schema[n].undeclared and (columns is None or n in columns)
    ]
    if wanted:
        warnings.warn(
            f"domains of {', '.join(wanted)} are read from the rows: nothing is guaranteed for what"
            " is fitted on them",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    filled = [_fill(a, frame[a.name]) if a.name in wanted else a for a in schema.attributes]
    return replace(schema, attributes=tuple(filled))


def numbers_of(column: pd.Series) -> NDArray[np.float64]:
    """Return values as numbers, dates as seconds: NaN if missing, infinite if not a number."""
    if types.is_complex_dtype(column.dtype):  # one complex number makes the column complex
        values = column.to_numpy()
        return np.where(values.imag == 0, values.real, np.inf)
    if types.is_numeric_dtype(column.dtype) or types.is_datetime64_any_dtype(column.dtype):
        return to_numbers(column)[0]
    return _each(column, _number_of, np.float64)


def _each(column: pd.Series, read: Callable[[Any], Any], dtype: type[Any]) -> NDArray[Any]:
    if column.dtype == object:  # among objects, pandas would treat True as 1 and 1.0
        return np.array([read(value) for value in column], dtype=dtype)
    at, distinct = pd.factorize(column)
    return np.array([*(read(value) for value in distinct), read(None)], dtype=dtype)[at]


def _number_of(value: Any) -> float:
    """Return a number, or a date as seconds; NaN for a missing value, infinity for what is
    neither.
    """
    if is_missing(value):
        return math.nan
    number = to_number(value)
    return math.inf if math.isnan(number) else number


def _fill(attribute: SchemaAttribute, column: pd.Series) -> SchemaAttribute:
    if attribute.kind == "numeric" and attribute.bounds is None and attribute.bins is None:
        numbers = Column.read(column, attribute)
        is_date = numbers.kind == "date"
        bounds = float(numbers.values[0]), float(numbers.values[-1])
        kind = (
            str(column.dtype) if is_date and types.is_datetime64_any_dtype(column.dtype) else None
        )
        kind = "datetime64[us]" if is_date and kind is None else kind
        kind = "int64" if types.is_integer_dtype(column.dtype) else kind
        return replace(attribute, bounds=bounds, learned=("bounds", "nullable"), dtype=kind)
    if attribute.kind == "nominal" and attribute.categories is None:
        values = Column.read(column, attribute).values.tolist()
        originals = [value for value in values if value is not None]
        plain = tuple(v if isinstance(v, (str, int, float, bool)) else str(v) for v in originals)
        kind = (
            "category" if isinstance(column.dtype, pd.CategoricalDtype) else type_of_values(plain)
        )
        return replace(attribute, categories=plain, learned=("categories", "nullable"), dtype=kind)
    return replace(attribute, learned=("levels", "nullable"))


class PublicEncoder(TransformerMixin, BaseEstimator):
    """Encode rows as numbers in [0, 1] by the declarations of their columns; a scikit-learn
    transformer.

    A number is scaled by its bounds, and clipped to them; a category or level is a one-hot vector.
    A missing value, if declared, has an input of its own, and a missing number is 0 beside it.
    `fit` learns nothing.

    Parameters
    ----------
    domain : PublicDomain

    Examples
    --------
    >>> from cfk_plugin import Attribute, Population, Schema
    >>> rows = pd.DataFrame({"age": [20, 60], "city": ["A", "B"]})
    >>> schema = Schema.from_frame(
    ...     rows,
    ...     quasi_identifiers=["age"],
    ...     columns={
    ...         "age": Attribute(bounds=(0, 100)),
    ...         "city": Attribute(categories=["A", "B"]),
    ...     },
    ...     nullable=[],
    ... )
    >>> encoder = PublicEncoder(PublicDomain.of(Population.from_frame(rows, schema)))
    >>> encoder.transform(rows).tolist()
    [[0.2, 1.0, 0.0], [0.6, 0.0, 1.0]]
    """

    def __init__(self, domain: PublicDomain) -> None:
        self.domain = domain

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"PublicEncoder({len(self.domain.columns)} columns, {self.n_inputs} inputs)"

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        return np.array(self.domain.names, dtype=object)

    @property
    def n_inputs(self) -> int:
        return sum(map(_width, self.domain.columns))

    @property
    def layout(self) -> tuple[tuple[Any, ...], ...]:
        """How each column is encoded: encoders with the same layout give the same numbers."""
        return tuple(
            (c.name, c.is_numeric, c.size, (*c.edges[[0, -1]],) if c.is_numeric else c.values)
            for c in self.domain.columns
        )

    def fit(self, X: pd.DataFrame, y: Any = None) -> PublicEncoder:  # noqa: ARG002 - scikit-learn's signature
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Encode rows with every column of the domain; others are ignored.

        Raises
        ------
        InputError
            If columns are missing or hold values that are not declared; it names them.
        """
        if not isinstance(X, pd.DataFrame):
            raise InputError(f"the encoder takes a pandas DataFrame; got {type(X).__name__}")
        if lost := [name for name in self.domain.names if name not in X.columns]:
            raise InputError(f"the table lacks the features {', '.join(lost)}")
        codes = self.domain.codes(X)
        if undeclared := [
            name for j, name in enumerate(self.domain.names) if bool((codes[:, j] < 0).any())
        ]:
            raise InputError(
                f"columns {', '.join(undeclared)} hold values that the schema does not declare: add"
                " them to its categories, levels or nullable, or remove the rows"
            )
        parts = [_encode(c, X[c.name], codes[:, j]) for j, c in enumerate(self.domain.columns)]
        return np.column_stack(parts)

    def decode(self, encoded: NDArray[np.float64]) -> pd.DataFrame:
        """Return the rows nearest to encoded ones, in the dtypes that the model takes.

        The largest input of a category wins, the first one on a tie; a number is missing if its
        input for that is above one half; whole numbers and dates are rounded.
        """
        starts = list(accumulate(map(_width, self.domain.columns), initial=0))
        parts = zip(self.domain.columns, pairwise(starts), strict=True)
        return pd.DataFrame(
            {c.name: _decode(c, encoded[:, start:stop]) for c, (start, stop) in parts}
        )


def _width(column: PublicColumn) -> int:
    return 1 + column.attribute.nullable if column.is_numeric else column.size


def _encode(
    column: PublicColumn, values: pd.Series, codes: NDArray[np.int32]
) -> NDArray[np.float64]:
    if not column.is_numeric:
        return np.eye(column.size)[codes]
    missing = codes >= column.listed
    scaled = (
        np.where(missing, column.edges[0], numbers_of(values)) - column.edges[0]
    ) / column.width
    clipped = np.clip(scaled, 0, 1)
    return np.column_stack([clipped, missing]) if column.attribute.nullable else clipped[:, None]


def _decode(column: PublicColumn, encoded: NDArray[np.float64]) -> pd.Series:
    if not column.is_numeric:
        return pd.Series(column.pick(encoded.argmax(axis=1)))
    numbers = np.clip(
        column.edges[0] + encoded[:, 0] * column.width, column.edges[0], column.edges[-1]
    )
    if column.is_whole:
        first = np.ceil(column.edges[0] / column.step) * column.step
        last = np.floor(column.edges[-1] / column.step) * column.step
        numbers = np.clip(column.rounded(numbers), first, last)
    drawn = pd.Series(numbers)
    return column.to_dtype(drawn.mask(encoded[:, 1] > 0.5) if column.attribute.nullable else drawn)
