"""The public domain: what may be known of every feature without looking at a row, as codes and back."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.attribute import Attribute
from cfk_plugin.columns import conform, to_numbers, to_text
from cfk_plugin.domain import Domain
from cfk_plugin.errors import PrivacyLeakWarning, SchemaError
from cfk_plugin.population import Population
from cfk_plugin.schema import Schema

_BINS = 16  # of a numeric feature of which only bounds are declared
_VALUES = 20  # whole numbers with at most so many values have a bin for each


@dataclass(frozen=True, eq=False)
class PublicColumn:
    """One feature: its declared values, or bins, as codes 0 .. size-1; a missing value, where declared, is the last.

    Attributes
    ----------
    attribute : Attribute
        What is declared.
    dtype : pandas dtype
        Of the column that the model takes: a type, not a value, taken as public.
    is_date : bool
        Whether numbers are seconds of a date.
    """

    attribute: Attribute
    dtype: Any
    is_date: bool = False

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.attribute.name

    @property
    def is_numeric(self) -> bool:
        """Whether codes are bins of numbers."""
        return self.attribute.kind == "numeric"

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole: by dtype, and dates to the second."""
        return self.is_date or bool(types.is_integer_dtype(self.dtype))

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Edges of the bins: the declared ones, one value each for few whole numbers, else 16 equally wide ones."""
        if self.attribute.bins is not None:
            return np.array(self.attribute.bins)
        low, high = self.attribute.bounds or (0.0, 0.0)
        if self.is_whole and high - low < _VALUES:
            return np.append(np.arange(low, high + 1), high)
        return np.linspace(low, high, _BINS + 1)

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The declared values of a category, ordinal level or leaf."""
        leaves = self.attribute.hierarchy.leaves if self.attribute.hierarchy else None
        return tuple(self.attribute.categories or self.attribute.levels or leaves or ())

    @property
    def listed(self) -> int:
        """Number of bins or values."""
        return len(self.edges) - 1 if self.is_numeric else len(self.values)

    @property
    def size(self) -> int:
        """Number of codes, the one for missing included."""
        return self.listed + self.attribute.nullable

    @property
    def width(self) -> float:
        """Declared range of a numeric feature; 1 where it is a single number."""
        return float(self.edges[-1] - self.edges[0]) or 1.0

    def codes(self, column: pd.Series) -> NDArray[np.int32]:
        """Return codes, -1 for a value that is not declared; numbers outside of the bounds count as the nearest one."""
        found, missing = self._codes_of_numbers(column) if self.is_numeric else self._codes_of_categories(column)
        found[missing] = self.listed if self.attribute.nullable else -1
        return found

    def _codes_of_numbers(self, column: pd.Series) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        numbers, invalid = to_numbers(column)
        clipped = np.clip(np.nan_to_num(numbers), self.edges[0], self.edges[-1])
        found = (np.searchsorted(self.edges, clipped, side="right") - 1).clip(max=self.listed - 1).astype(np.int32)
        found[invalid] = -1
        return found, np.isnan(numbers) & ~invalid

    def _codes_of_categories(self, column: pd.Series) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        known = {to_text(value): code for code, value in enumerate(self.values)}
        at, distinct = pd.factorize(column, use_na_sentinel=True)
        of_distinct = np.array([known.get(to_text(value), -1) for value in distinct] + [-1], dtype=np.int32)
        return of_distinct[at], np.asarray(at < 0)

    def draw(self, codes: NDArray[np.int32], random: np.random.Generator) -> pd.Series:
        """Return a value for each code: a number drawn evenly from its bin, or the declared value."""
        missing = codes >= self.listed
        if not self.is_numeric:
            pool = pd.Series([*self.values, None], dtype=object)
            drawn = pool.take(np.where(missing, self.listed, codes)).reset_index(drop=True)
            return self.typed(drawn)
        at = np.where(missing, 0, codes)
        low, high = self.edges[at], self.edges[at + 1]
        if self.is_whole:
            first, last = np.ceil(low), np.where(at == self.listed - 1, np.floor(high), np.ceil(high) - 1)
            numbers = np.floor(first + random.random(len(at)) * (np.maximum(last - first, 0) + 1))
        else:
            numbers = low + random.random(len(at)) * (high - low)
        return self.typed(pd.Series(numbers).mask(pd.Series(missing)))

    def typed(self, drawn: pd.Series) -> pd.Series:
        """Return values in the dtype that the model takes; numbers of a date are seconds."""
        if self.is_date:
            zone = getattr(self.dtype, "tz", None)
            drawn = pd.to_datetime(drawn, unit="s", utc=zone is not None)
        if isinstance(self.dtype, pd.CategoricalDtype):
            kind = self.dtype.categories.dtype
            return conform(drawn.infer_objects(), kind).astype(
                pd.CategoricalDtype(conform(pd.Series(self.values), kind))
            )
        return conform(drawn.infer_objects(), self.dtype)


@dataclass(frozen=True, eq=False)
class PublicDomain:
    """The public domain of all features.

    Attributes
    ----------
    columns : tuple of PublicColumn
        In the schema's order.
    inferred : tuple of str
        Columns whose domain was read from rows: with any, nothing is guaranteed.
    """

    columns: tuple[PublicColumn, ...]
    inferred: tuple[str, ...] = ()

    @classmethod
    def of(cls, population: Population, *, with_target: bool = False) -> PublicDomain:
        """Take what the schema of a population declares; of the rows, types of columns alone are looked at.

        Parameters
        ----------
        population : Population
        with_target : bool
            Whether the label column belongs to it, too.

        Raises
        ------
        SchemaError
            If a domain is not declared. The message names the columns and what to declare.
        """
        schema, names = population.schema, list(population.schema.features)
        if with_target:
            names.append(_target_of(population))
        require_declared(schema, names)
        inferred = tuple(n for n in names if {"bounds", "categories", "levels"} & {*schema[n].learned})
        dates = [population.domains[n].is_date for n in schema.features] + [False] * with_target
        columns = [PublicColumn(schema[n], population.frame[n].dtype, d) for n, d in zip(names, dates, strict=True)]
        return cls(tuple(columns), inferred)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(column.name for column in self.columns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each feature."""
        return tuple(column.size for column in self.columns)

    def codes(self, frame: pd.DataFrame) -> NDArray[np.int32]:
        """Return the codes of rows, shape (n_rows, n_features); -1 for what is not declared."""
        return np.column_stack([column.codes(frame[column.name]) for column in self.columns]).astype(np.int32)

    def counted(self, population: Population, rows_per_person: int) -> NDArray[np.int32]:
        """Return the codes of the rows that count: at most so many of a person, and of declared values alone.

        Whether a row counts depends on the rows of its own person, whatever the others are: leaving rows out like this
        costs no budget.
        """
        codes = self.codes(population.frame.take(population.limited_rows(rows_per_person)))
        return codes[(codes >= 0).all(axis=1)]

    def outside(self, frame: pd.DataFrame) -> dict[str, int]:
        """Count, per column, rows with a value that is not declared. For the data holder: it is not noised."""
        counts = (self.codes(frame) < 0).sum(axis=0)
        return {name: int(count) for name, count in zip(self.names, counts, strict=True) if count}

    def draw(self, codes: NDArray[np.int32], random: np.random.Generator) -> pd.DataFrame:
        """Return rows with these codes, in the dtypes that the model takes."""
        drawn = {column.name: column.draw(codes[:, j], random) for j, column in enumerate(self.columns)}
        return pd.DataFrame(drawn)


def require_declared(schema: Schema, names: Sequence[str]) -> None:
    """Refuse a schema that does not declare the public domain of some columns.

    Raises
    ------
    SchemaError
        The message names the columns and what to declare.
    """
    if lacking := [(name, lack) for name in names if (lack := _lacking(schema[name]))]:
        raise SchemaError(
            "differential privacy needs public domains, declared and not read from the rows: "
            + "; ".join(f"{name!r} lacks {lack}" for name, lack in lacking)
            + ". Give them to Schema.from_frame, or call infer_domains, which leaks"
        )


def infer_domains(frame: pd.DataFrame, schema: Schema, columns: Sequence[str] | None = None) -> Schema:
    """Fill in from the rows what a schema does not declare. This leaks: use it to try things out.

    The rarest value of a column becomes visible in its domain whatever epsilon is, and an audit sees it at once. What
    is fitted with such a schema certifies that nothing is guaranteed.

    Parameters
    ----------
    frame : DataFrame
        The training rows.
    schema : Schema
    columns : sequence of str, optional
        Features to look at. Default: all that lack a domain.

    Returns
    -------
    Schema
        With bounds and categories as they are in the table, marked as learned.

    Warns
    -----
    PrivacyLeakWarning
        Always, with the names of the columns.
    """
    wanted = [n for n in schema.features if _lacking(schema[n]) and (columns is None or n in columns)]
    if wanted:
        warnings.warn(
            f"domains of {', '.join(wanted)} are read from the rows: nothing is guaranteed for what is fitted on them",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    filled = [_filled(a, frame[a.name]) if a.name in wanted else a for a in schema.attributes]
    return Schema(tuple(filled))


def _target_of(population: Population) -> str:
    """Return the label column, for which categories have to be declared like for any other."""
    name = population.schema.target
    if name is None or name not in population.frame:
        raise SchemaError("a surrogate learns from the label column; name it with `target=` and keep it in the table")
    return name


def _lacking(attribute: Attribute) -> str | None:
    """Return what has to be declared of an attribute, in words; None where all is."""
    lacks = []
    if attribute.kind == "numeric" and attribute.bounds is None and attribute.bins is None:
        lacks.append("bounds or bins")
    if attribute.kind == "nominal" and attribute.categories is None:
        lacks.append("categories")
    if attribute.learned == ("nullable",):
        lacks.append("whether it is in nullable")
    return " and ".join(lacks) or None


def _filled(attribute: Attribute, column: pd.Series) -> Attribute:
    if attribute.kind == "numeric" and attribute.bounds is None and attribute.bins is None:
        values = Domain.of(column, attribute).values
        return replace(attribute, bounds=(float(values[0]), float(values[-1])), learned=("bounds", "nullable"))
    if attribute.kind == "nominal" and attribute.categories is None:
        originals = Domain.of(column, attribute).originals.tolist()
        plain = tuple(v if isinstance(v, (str, int, float, bool)) else str(v) for v in originals)
        return replace(attribute, categories=plain, learned=("categories", "nullable"))
    return replace(attribute, learned=("levels", "nullable"))
