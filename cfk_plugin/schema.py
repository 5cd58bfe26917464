"""The schema: what each column of the training table is to privacy, and how it generalises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, Literal

import pandas as pd
from pandas.api import types

from cfk_plugin.columns import is_numeric, to_number, to_text
from cfk_plugin.errors import SchemaError
from cfk_plugin.hierarchy import Hierarchy
from cfk_plugin.roles import Role, known, roles_of

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
        Edges of public bins of a numeric private attribute, strictly increasing (of a date: seconds). A bin has its
        lower edge and not its upper one, the last bin has both.
    nullable : bool
        Whether missing values may occur.
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
        if not 0 <= self.weight < float("inf"):
            raise SchemaError(f"column {self.name!r}: weight must be a finite number >= 0")

    def _check_bins(self, edges: tuple[float, ...]) -> None:
        if self.kind != "numeric" or self.role not in ("sensitive", "other"):
            raise SchemaError(f"column {self.name!r}: bins are for numeric attributes that are released as private")
        if len(edges) < 2 or not all(map(isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
            raise SchemaError(f"column {self.name!r}: bins are at least 2 numbers (or dates), strictly increasing")


@dataclass(frozen=True)
class Schema:
    """Roles and kinds of all columns of a training table. Build it with `Schema.from_frame`.

    Attributes
    ----------
    attributes : tuple of Attribute
        In the order of the table's columns.
    """

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        """Check names and normalise the weights of the quasi-identifiers to a sum of 1."""
        names = [a.name for a in self.attributes]
        if len(set(names)) != len(names):
            raise SchemaError("two attributes have the same name")
        quasi = [a for a in self.attributes if a.role == "quasi-identifier"]
        if not quasi:
            raise SchemaError("a schema needs at least one quasi-identifier; name the publicly known columns")
        total = sum(a.weight for a in quasi)
        if total <= 0:
            raise SchemaError("the weights of the quasi-identifiers must have a positive sum")
        if abs(total - 1) > 1e-9:
            scaled = tuple(replace(a, weight=a.weight / total) if a in quasi else a for a in self.attributes)
            object.__setattr__(self, "attributes", scaled)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        quasi_identifiers: Sequence[str],
        sensitive: Sequence[str] = (),
        identifiers: Sequence[str] = (),
        subject: str | None = None,
        target: str | None = None,
        ordinal: Mapping[str, Sequence[Any]] | None = None,
        nominal: Sequence[str] = (),
        hierarchies: Mapping[str, Any] | None = None,
        weights: Mapping[str, float] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        bins: Mapping[str, Sequence[Any]] | None = None,
    ) -> Schema:
        """Declare the roles; kinds follow from the dtypes (numbers and dates numeric, the rest nominal).

        Parameters
        ----------
        frame : DataFrame
            The training rows, features only or with target and identifiers.
        quasi_identifiers : sequence of str
            Publicly known columns: these are generalised.
        sensitive : sequence of str
            Private columns whose diversity inside a region is checked.
        identifiers : sequence of str
            Names, account numbers: never used and never released.
        subject : str, optional
            Key of the person a row belongs to; k then counts people instead of rows.
        target : str, optional
            The label column, when `frame` has one.
        ordinal : mapping, optional
            Column to its levels in order.
        nominal : sequence of str
            Columns of numbers that are codes of categories (a postal code, say).
        hierarchies : mapping, optional
            Column to a `Hierarchy` or to what `Hierarchy.of` reads.
        weights : mapping, optional
            Quasi-identifier to its relative weight in NCP; 1 where not given. Normalised to a sum of 1.
        bounds : mapping, optional
            Numeric column to its declared (low, high).
        bins : mapping, optional
            Numeric private column to the edges of its public bins: declared, never computed from the rows.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            If a column is unknown, duplicated, given two roles, or of a type that cannot be used.

        Examples
        --------
        >>> frame = pd.DataFrame({"age": [24, 27], "city": ["Antwerp", "Ghent"], "salary": [60, 80]})
        >>> schema = Schema.from_frame(frame, quasi_identifiers=["age", "city"], sensitive=["salary"])
        >>> schema["age"].kind, schema["city"].kind, schema["age"].weight
        ('numeric', 'nominal', 0.5)
        """
        roles = roles_of(frame, quasi_identifiers, sensitive, identifiers, subject, target)
        ordinal, hierarchies = dict(ordinal or {}), dict(hierarchies or {})
        weights, bounds, bins = dict(weights or {}), dict(bounds or {}), dict(bins or {})
        for label, names in (("ordinal", ordinal), ("nominal", nominal), ("hierarchies", hierarchies)):
            known(frame, names, label)
        for label, given in (("bounds", bounds), ("bins", bins)):
            known(frame, given, label)
        if unknown := [name for name in weights if roles.get(name) != "quasi-identifier"]:
            raise SchemaError(f"weights are for quasi-identifiers; not one: {', '.join(unknown)}")
        total = sum(weights.get(q, 1.0) for q in quasi_identifiers)
        if (quasi_identifiers and total <= 0) or any(w < 0 for w in weights.values()):
            raise SchemaError("weights must be >= 0 and have a positive sum")
        return cls(
            tuple(
                _attribute(
                    frame[name],
                    role,
                    weights.get(name, 1.0) / total if role == "quasi-identifier" else 0.0,
                    ordinal.get(name),
                    hierarchies.get(name),
                    name in nominal,
                    bounds.get(name),
                    bins.get(name),
                )
                for name, role in roles.items()
            )
        )

    def __getitem__(self, name: str) -> Attribute:
        """Return an attribute by name."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise SchemaError(f"column {name!r} is not in the schema")

    def names(self, *roles: Role) -> tuple[str, ...]:
        """Return the names of the columns in the given roles, in table order."""
        return tuple(a.name for a in self.attributes if a.role in roles)

    @cached_property
    def quasi_identifiers(self) -> tuple[str, ...]:
        """Names of the quasi-identifiers, in table order."""
        return self.names("quasi-identifier")

    @cached_property
    def private(self) -> tuple[str, ...]:
        """Names of the private attributes that are released as they are: sensitive and other."""
        return self.names("sensitive", "other")

    @cached_property
    def sensitive(self) -> tuple[str, ...]:
        """Names of the sensitive attributes."""
        return self.names("sensitive")

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that a counterfactual has: quasi-identifiers and private attributes."""
        return self.names("quasi-identifier", "sensitive", "other")

    @property
    def subject(self) -> str | None:
        """Name of the subject key, if any."""
        return next(iter(self.names("subject")), None)

    @property
    def target(self) -> str | None:
        """Name of the label column, if any."""
        return next(iter(self.names("target")), None)


def _attribute(
    column: pd.Series,
    role: Role,
    weight: float,
    levels: Sequence[Any] | None,
    hierarchy: Any,
    as_category: bool,
    bounds: tuple[float, float] | None,
    bins: Sequence[Any] | None,
) -> Attribute:
    name = str(column.name)
    if bins is not None and role in ("identifier", "subject", "target"):
        raise SchemaError(f"column {name!r}: bins are for numeric attributes that are released as private")
    if role in ("identifier", "subject"):
        return Attribute(name=name, role=role)
    kind: Kind = "nominal"
    if levels is not None:
        kind = "ordinal"
    elif hierarchy is not None:
        kind = "hierarchical"
    elif not as_category and is_numeric(column):
        kind = "numeric"
    elif types.is_timedelta64_dtype(column.dtype) or types.is_complex_dtype(column.dtype):
        raise SchemaError(f"column {name!r} has dtype {column.dtype}; convert it to numbers, dates or text")
    if role == "quasi-identifier" and bool(column.isna().all()):
        raise SchemaError(f"quasi-identifier {name!r} has no value at all; drop it from the schema")
    return Attribute(
        name=name,
        role=role,
        kind=kind,
        weight=weight,
        levels=tuple(to_text(v) for v in levels) if levels is not None else None,
        hierarchy=Hierarchy.of(hierarchy) if hierarchy is not None else None,
        bounds=(float(bounds[0]), float(bounds[1])) if bounds is not None else None,
        nullable=bool(column.isna().any()),
        bins=_edges(bins) if bins is not None else None,
    )


def _edges(bins: Sequence[Any]) -> tuple[float, ...]:
    """Read the edges of bins; none, which the attribute refuses, where they are no numbers or dates."""
    try:
        return () if isinstance(bins, str) else tuple(to_number(edge) for edge in bins)
    except (TypeError, ValueError):
        return ()
