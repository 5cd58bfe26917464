"""The schema: what each column of the training table is to privacy, and how it generalises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from typing import Any

import pandas as pd

from cfk_plugin.attribute import Attribute, attribute_of
from cfk_plugin.errors import SchemaError
from cfk_plugin.roles import Role, known, roles_of


@dataclass(frozen=True)
class Schema:
    """Roles and kinds of all columns of a training table. Build it with `Schema.from_frame`.

    There are two orders of columns. `features` has the table's: models, explainers and results are given their columns
    in it. Whatever orders, numbers or hashes records takes columns by name (`quasi_identifiers`, `private`,
    `sensitive`, `canonical`), so that the same people are in the same groups whatever order their table has.

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
        total = fsum(a.weight for a in quasi)  # exact, so that the order of columns does not show in the last bit
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
        categories: Mapping[str, Sequence[Any]] | None = None,
        nullable: Sequence[str] | None = None,
        whole: Sequence[str] = (),
    ) -> Schema:
        """Declare the roles; kinds that are not declared follow from the dtypes.

        Numbers and dates are numeric, the rest is nominal. Where `nullable` is given, too, columns with `bounds`,
        `bins` or `whole` are numeric whatever their dtype.

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
            Numeric feature to the edges of its public bins: declared, never computed from the rows.
        categories : mapping, optional
            Nominal column to all values that it may have; only differential privacy needs it. A
            ``pandas.CategoricalDtype``, for a model that takes a column of that type.
        nullable : sequence of str, optional
            Columns that may have missing values. Default: those that have one here, which is read from the rows.
        whole : sequence of str
            Numeric columns of whole numbers, for differential privacy: it takes others for fractional, whatever their
            dtype, which one person's value can change for everybody.

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
        ordinal, hierarchies, weights = dict(ordinal or {}), dict(hierarchies or {}), dict(weights or {})
        bounds, bins, categories = dict(bounds or {}), dict(bins or {}), dict(categories or {})
        for label, names in (("ordinal", ordinal), ("nominal", nominal), ("hierarchies", hierarchies)):
            known(frame, names, label)
        for label, given in (("bounds", bounds), ("bins", bins), ("categories", categories)):
            known(frame, given, label)
        known(frame, nullable or (), "nullable")
        known(frame, whole, "whole")
        if unknown := [name for name in weights if roles.get(name) != "quasi-identifier"]:
            raise SchemaError(f"weights are for quasi-identifiers; not one: {', '.join(unknown)}")
        total = fsum(weights.get(q, 1.0) for q in quasi_identifiers)
        if (quasi_identifiers and total <= 0) or any(w < 0 for w in weights.values()):
            raise SchemaError("weights must be >= 0 and have a positive sum")
        return cls(
            tuple(
                attribute_of(
                    frame[name],
                    role,
                    weights.get(name, 1.0) / total if role == "quasi-identifier" else 0.0,
                    ordinal.get(name),
                    hierarchies.get(name),
                    name in nominal or name in categories,
                    bounds.get(name),
                    bins.get(name),
                    categories.get(name),
                    None if nullable is None else name in nullable,
                    name in whole,
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
        """Names of the quasi-identifiers, in alphabetical order."""
        return tuple(sorted(self.names("quasi-identifier")))

    @cached_property
    def private(self) -> tuple[str, ...]:
        """Names of the private attributes that are released as they are, in alphabetical order: sensitive and other."""
        return tuple(sorted(self.names("sensitive", "other")))

    @cached_property
    def sensitive(self) -> tuple[str, ...]:
        """Names of the sensitive attributes, in alphabetical order."""
        return tuple(sorted(self.names("sensitive")))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that a counterfactual has, in table order: quasi-identifiers and private attributes."""
        return self.names("quasi-identifier", "sensitive", "other")

    @cached_property
    def canonical(self) -> tuple[int, ...]:
        """Positions of the features in alphabetical order: that of everything that orders or hashes records."""
        return tuple(sorted(range(len(self.features)), key=self.features.__getitem__))

    @property
    def is_public(self) -> bool:
        """Whether the domain of every feature is declared, so that no row has to be looked at to know it."""
        return all(self[name].lacks is None for name in self.features)

    @property
    def subject(self) -> str | None:
        """Name of the subject key, if any."""
        return next(iter(self.names("subject")), None)

    @property
    def target(self) -> str | None:
        """Name of the label column, if any."""
        return next(iter(self.names("target")), None)
