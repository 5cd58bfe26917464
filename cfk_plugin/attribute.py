"""An attribute: what one column is to privacy, how it generalises, and what is publicly known of its values."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api import types

from cfk_plugin.columns import is_numeric, to_number, to_text, why_inexact
from cfk_plugin.errors import SchemaError
from cfk_plugin.hierarchy import Hierarchy
from cfk_plugin.roles import Role

Kind = Literal["numeric", "ordinal", "nominal", "hierarchical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column: its role in privacy, its kind, and how it may be generalised.

    Attributes
    ----------
    name : str
        Column name.
    role : {"identifier", "subject", "quasi-identifier", "sensitive", "other", "target"}
        Identifiers and the subject key never leave. Quasi-identifiers are generalised. Sensitive attributes are
        checked by l-diversity and t-closeness. Others are private attributes, released as they are.
    kind : {"numeric", "ordinal", "nominal", "hierarchical"}
        Numeric (dates too) and ordinal attributes generalise to ranges, nominal ones to sets, hierarchical ones
        to nodes of their hierarchy.
    weight : float
        Share of this quasi-identifier in NCP; the weights of all quasi-identifiers add up to 1.
    levels : tuple of str, optional
        Levels of an ordinal attribute, in order.
    hierarchy : Hierarchy, optional
        Tree of a hierarchical attribute.
    bounds : tuple of float, optional
        Declared domain of a numeric attribute; a counterfactual outside of it is not released.
    bins : tuple of float, optional
        Edges of public bins of a numeric feature, strictly increasing (of a date: seconds). A bin has its lower edge
        and not its upper one, the last bin has both.
    nullable : bool
        Whether missing values may occur.
    categories : tuple of str, int, float or bool, optional
        Declared domain of a nominal attribute, as its values stand in the table.
    learned : tuple of str
        Settings that were read from the rows instead of being declared; differential privacy refuses them.
    dtype : str, optional
        Type of the values as they are declared, such as ``"int64"`` of whole numbers and ``"datetime64[us]"`` of dates;
        never that of a table. Differentially private rows have it; None leaves numbers fractional.
    """

    name: str
    role: Role = "other"
    kind: Kind = "nominal"
    weight: float = 0.0
    levels: tuple[str, ...] | None = None
    hierarchy: Hierarchy | None = None
    bounds: tuple[float, float] | None = None
    nullable: bool = False
    bins: tuple[float, ...] | None = None
    categories: tuple[Any, ...] | None = None
    learned: tuple[str, ...] = ()
    dtype: str | None = None

    def __post_init__(self) -> None:
        """Check that kind and details belong together."""
        if (self.kind == "ordinal") != (self.levels is not None):
            raise SchemaError(f"column {self.name!r}: levels belong to ordinal attributes, and each needs them")
        if self.levels is not None and (len(set(self.levels)) != len(self.levels) or not self.levels):
            raise SchemaError(f"column {self.name!r}: ordinal levels must be distinct and not empty")
        if (self.kind == "hierarchical") != (self.hierarchy is not None):
            raise SchemaError(f"column {self.name!r}: a hierarchy belongs to hierarchical attributes only")
        if self.bounds is not None and (self.kind != "numeric" or not self.bounds[0] <= self.bounds[1]):
            raise SchemaError(f"column {self.name!r}: bounds are (low, high) of a numeric attribute")
        if self.bins is not None:
            self._check_bins(self.bins)
        if self.categories is not None:
            self._check_categories(self.categories)
        if not 0 <= self.weight < float("inf"):
            raise SchemaError(f"column {self.name!r}: weight must be a finite number >= 0")

    @property
    def lacks(self) -> str | None:
        """What has to be declared of it before its domain is public, in words; None where all is."""
        lacks = []
        if self.kind == "numeric" and self.bounds is None and self.bins is None:
            lacks.append("bounds or bins")
        if self.kind == "nominal" and self.categories is None:
            lacks.append("categories")
        if self.learned == ("nullable",):
            lacks.append("whether it is in nullable")
        return " and ".join(lacks) or None

    def _check_bins(self, edges: tuple[float, ...]) -> None:
        if self.kind != "numeric" or self.role not in ("quasi-identifier", "sensitive", "other"):
            raise SchemaError(f"column {self.name!r}: bins are for numeric features")
        if len(edges) < 2 or not all(map(isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
            raise SchemaError(f"column {self.name!r}: bins are at least 2 numbers (or dates), strictly increasing")

    def _check_categories(self, categories: tuple[Any, ...]) -> None:
        if self.kind != "nominal":
            raise SchemaError(f"column {self.name!r}: categories are of nominal attributes; others declare levels, ...")
        if not categories or not all(isinstance(value, (str, int, float, bool)) for value in categories):
            raise SchemaError(f"column {self.name!r}: categories are texts, numbers or booleans, and at least one")
        if len({to_text(value) for value in categories}) != len(categories):
            raise SchemaError(f"column {self.name!r}: categories must be distinct, however they are spelled")


def attribute_of(
    column: pd.Series,
    role: Role,
    weight: float,
    levels: Sequence[Any] | None,
    hierarchy: Any,
    as_category: bool,
    bounds: tuple[float, float] | None,
    bins: Sequence[Any] | None,
    categories: Sequence[Any] | None,
    nullable: bool | None,
    whole: bool = False,
) -> Attribute:
    """Return the attribute of a column from what is declared of it; only what is not declared is looked up."""
    name = str(column.name)
    if bins is not None and role in ("identifier", "subject", "target"):
        raise SchemaError(f"column {name!r}: bins are for numeric features")
    if role in ("identifier", "subject"):
        return Attribute(name=name, role=role)
    kind: Kind = "nominal"
    if levels is not None:
        kind = "ordinal"
    elif hierarchy is not None:
        kind = "hierarchical"
    elif not as_category and (
        is_numeric(column) or (nullable is not None and (whole or bounds is not None or bins is not None))
    ):
        kind = "numeric"  # where all is declared, no value has a say
    elif not (as_category and nullable is not None) and (column.dtype.kind in "mc"):
        raise SchemaError(f"column {name!r} has dtype {column.dtype}; convert it to numbers, dates or text")
    if whole and kind != "numeric":
        raise SchemaError(f"column {name!r}: whole numbers are of numeric columns; this one is {kind}")
    if role == "quasi-identifier" and nullable is None and bool(column.isna().all()):
        raise SchemaError(f"quasi-identifier {name!r} has no value at all; drop it from the schema")
    listed = levels if levels is not None else categories
    return Attribute(
        name=name,
        role=role,
        kind=kind,
        weight=weight,
        levels=tuple(to_text(v) for v in _listed(levels)) if levels is not None else None,
        hierarchy=Hierarchy.of(hierarchy) if hierarchy is not None else None,
        bounds=(_declared(bounds[0], name), _declared(bounds[1], name)) if bounds is not None else None,
        nullable=bool(column.isna().any()) if nullable is None else nullable,
        bins=_edges(bins, name) if bins is not None else None,
        categories=_listed(categories) if categories is not None else None,
        learned=("nullable",) if nullable is None else (),
        dtype=_type_of_numbers(bins if bounds is None else bounds, whole)
        if kind == "numeric"
        else type_of_values(listed),
    )


def _listed(values: Sequence[Any] | pd.CategoricalDtype) -> tuple[Any, ...]:
    """Return declared values, which a dtype of categories may list."""
    return tuple(values.categories.tolist() if isinstance(values, pd.CategoricalDtype) else values)


def _type_of_numbers(ends: Sequence[Any] | None, whole: bool) -> str | None:
    """Return the dtype of a numeric column whose bounds, or edges of bins, are declared so."""
    ends = list(ends) if np.iterable(ends) else []
    if not ends or isinstance(ends[0], (int, float, np.number)):
        return "int64" if whole else None
    with suppress(ValueError, TypeError):  # what is no date either is refused with the bins themselves
        zone = pd.Timestamp(ends[0]).tz
        return "datetime64[us]" if zone is None else f"datetime64[us, {zone}]"
    return None


def type_of_values(values: Sequence[Any] | pd.CategoricalDtype | None) -> str | None:
    """Return the dtype of a column whose categories or levels are declared so; None where they are texts or mixed."""
    if isinstance(values, pd.CategoricalDtype):
        return "category"
    found = types.infer_dtype(list(values or ()), skipna=False)
    return {"boolean": "bool", "integer": "int64", "floating": "float64", "mixed-integer-float": "float64"}.get(found)


def _declared(value: Any, name: str) -> float:
    """Read a declared number or date; refuse one that would be rounded by that."""
    if why := why_inexact(pd.Series([value], dtype=object)):
        raise SchemaError(f"column {name!r}: its bounds or bins have {why}")
    return to_number(value)


def _edges(bins: Sequence[Any], name: str) -> tuple[float, ...]:
    """Read the edges of bins; none, which the attribute refuses, where they are no numbers or dates."""
    try:
        found = () if isinstance(bins, str) else tuple(to_number(edge) for edge in bins)
    except (TypeError, ValueError):
        return ()
    for edge in bins if found else ():
        _declared(edge, name)
    return found
