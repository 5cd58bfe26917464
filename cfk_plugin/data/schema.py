"""The schema: for each column of the training table its role in privacy, its kind of values, and
how regions generalise it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import fsum, inf, isfinite
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.display import card, table
from cfk_plugin.data.misreadings import warn_of_misreadings
from cfk_plugin.data.personal import personal_columns
from cfk_plugin.data.region import is_missing, natural, spellings, to_number, to_text
from cfk_plugin.data.relations import checked
from cfk_plugin.data.values import (
    as_pandas,
    is_numeric,
    unreadable,
    why_inexact,
)
from cfk_plugin.data.wording import Language, Unit, Wording
from cfk_plugin.errors import SchemaError, counted, did_you_mean

Role = Literal["identifier", "subject", "quasi-identifier", "sensitive", "other", "target"]
Change = Literal["any", "increase", "decrease", "never"]
Kind = Literal["numeric", "ordinal", "nominal", "hierarchical"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hierarchy:
    """A tree over the values of an attribute. Regions generalise a value to a node of the tree.

    Build it with `Hierarchy.of`.

    Attributes
    ----------
    leaves : tuple of str
        The values, depth-first, so that the leaves under a node are a range of positions.
    titles : tuple of str
        The label of each node. The first ``len(leaves)`` nodes are the leaves themselves.
    low, high : array, shape (n_nodes,)
        The positions of the first and the last leaf under each node.
    parent : array, shape (n_nodes,)
        The parent of each node; -1 for the root.
    """

    leaves: tuple[str, ...]
    titles: tuple[str, ...]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    parent: NDArray[np.int32]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return self.titles == other.titles and self.parent.tobytes() == other.parent.tobytes()

    def __hash__(self) -> int:
        return hash((self.titles, self.parent.tobytes()))

    def __repr__(self) -> str:
        return f"Hierarchy({len(self.leaves)} values, {len(self.titles)} nodes)"

    @classmethod
    def of(cls, table: Hierarchy | pd.DataFrame | Mapping[Any, Sequence[Any]]) -> Hierarchy:
        """Build a hierarchy from a table of values and their ancestors, the layout of ARX.

        Parameters
        ----------
        table : DataFrame or mapping
            A table with the values in the first column and their ancestors in the others, nearest
            first; or ``{value: [parent, grandparent, ...]}``. All rows must have the same depth. If
            the last level has more than one label, a root ``*`` is added.

        Returns
        -------
        Hierarchy

        Raises
        ------
        SchemaError
            If rows differ in depth, a value occurs twice, or a label has two parents.

        Examples
        --------
        >>> cities = Hierarchy.of(
        ...     {"Antwerp": ["Flanders"], "Ghent": ["Flanders"], "Namur": ["Wallonia"]}
        ... )
        >>> cities.titles[cities.cover(["Antwerp", "Ghent"])]
        'Flanders'
        """
        if isinstance(table, Hierarchy):
            return table
        rows = _values_with_ancestors(table)
        if not rows or len({len(row) for row in rows}) != 1:
            raise SchemaError(
                "a hierarchy needs at least one value and the same number of levels for each; add"
                " the missing ancestors"
            )
        if len({row[0] for row in rows}) != len(rows):
            raise SchemaError("a hierarchy contains a value twice; give each value one row")
        if len({row[-1] for row in rows}) > 1 or len(rows[0]) == 1:
            rows = [(*row, "*") for row in rows]
        rows.sort(key=lambda row: row[::-1])
        # The path from a node to the root identifies the node: its first and its last leaf.
        low: dict[tuple[str, ...], int] = {}
        high: dict[tuple[str, ...], int] = {}
        for level in range(len(rows[0])):
            for i, row in enumerate(rows):
                low.setdefault(row[level:], i)
                high[row[level:]] = i
        if len({(len(path), path[0]) for path in low}) != len(low):
            raise SchemaError("a hierarchy label has two parents; make labels unique per branch")
        node_of_path = {path: node for node, path in enumerate(low)}
        parent = [node_of_path.get(path[1:], -1) for path in low]
        return cls(
            leaves=tuple(row[0] for row in rows),
            titles=tuple(path[0] for path in low),
            low=np.array([*low.values()], dtype=np.int32),
            high=np.array([*high.values()], dtype=np.int32),
            parent=np.array(parent, dtype=np.int32),
        )

    def cover(self, values: Sequence[str]) -> int:
        """Return the position in `titles` of the lowest node above all these values."""
        position = {leaf: i for i, leaf in enumerate(self.leaves)}
        places = [position[value] for value in values]
        first = min(places)
        last = max(places)
        node = places[0]
        while self.low[node] > first or self.high[node] < last:
            node = int(self.parent[node])
        return node


def _values_with_ancestors(table: Any) -> list[tuple[str, ...]]:
    """Return each value of a hierarchy, followed by its ancestors, nearest first."""
    table = as_pandas(table)
    if isinstance(table, pd.DataFrame):
        return [tuple(map(to_text, row)) for row in table.itertuples(index=False, name=None)]
    if isinstance(table, Mapping):
        return [(to_text(value), *map(to_text, ancestors)) for value, ancestors in table.items()]
    raise SchemaError(
        "a hierarchy is a table or a mapping from each value to its ancestors; got"
        f" {type(table).__name__}"
    )


_FEATURES: tuple[Role, ...] = ("quasi-identifier", "sensitive", "other")


ONE_VALUE = (
    "a cell is one number, date or text: convert it, make columns of its parts, or leave the"
    " column out"
)


def _names(frame: pd.DataFrame, names: Any, label: str) -> tuple[str, ...]:
    """Return column names as a tuple; raise a SchemaError if the table lacks one of them."""
    if isinstance(names, str):
        raise SchemaError(
            f"{label} columns must be a list of names, not one string; write [{names!r}]"
        )
    if not isinstance(names, Iterable):
        raise SchemaError(f"{label} columns must be a list of names, got {type(names).__name__}")
    listed_names = tuple(names)
    is_column = [isinstance(name, str) and name in frame.columns for name in listed_names]
    unknown = [str(name) for name, ok in zip(listed_names, is_column, strict=True) if not ok]
    if unknown:
        raise SchemaError(
            f"{label}: unknown column {', '.join(unknown)}; the table has {list(frame.columns)}"
            f"{did_you_mean(unknown, frame.columns)}"
        )
    return listed_names


def _mapping(settings: Any, label: str, form: str) -> dict[Any, Any]:
    """Return a mapping or a Series as a dict; an empty dict for None."""
    if settings is None:
        return {}
    if not isinstance(settings, (Mapping, pd.Series)):
        raise SchemaError(f"{label} must be a mapping, {form}; got {type(settings).__name__}")
    return dict(settings.items())


def _by_name(frame: pd.DataFrame, settings: Any, label: str, form: str) -> dict[str, Any]:
    """Return settings by column as a dict; raise a SchemaError if the table lacks a column."""
    setting_of_name = _mapping(settings, label, f"column to {form}")
    _names(frame, setting_of_name, label)
    return setting_of_name


def _check_columns(columns: Mapping[str, Attribute], roles: Mapping[str, Role]) -> None:
    """Raise a SchemaError if `columns` has settings that are not used or not an Attribute."""
    for name, declared in columns.items():
        if roles[name] in ("identifier", "subject"):
            raise SchemaError(
                f"column {name!r} is {roles[name]}, so its values are not used; leave it out of"
                " columns"
            )
        if not isinstance(declared, Attribute):
            raise SchemaError(
                f"column {name!r}: write its settings as cfk_plugin.Attribute(...), such as"
                f" Attribute(bounds=(0, 10)); got {type(declared).__name__}"
            )


def _how_to_make_a_table(argument: object) -> str:
    """Return a hint for an error message about an argument that is not a table."""
    if isinstance(argument, (str, PurePath)):
        return "; read the file first, as with pd.read_csv(path)"
    if isinstance(argument, np.ndarray):
        return "; write pd.DataFrame(array, columns=[...])"
    return ""


def _check_table(frame: object) -> None:
    """Raise a SchemaError unless `frame` has rows and columns with distinct names."""
    if not isinstance(frame, pd.DataFrame) or frame.empty:
        description = "an empty one" if isinstance(frame, pd.DataFrame) else type(frame).__name__
        raise SchemaError(
            "a schema needs a table (pandas, polars or pyarrow) with at least one row and one"
            f" column; got {description}{_how_to_make_a_table(frame)}"
        )
    if not frame.columns.is_unique:
        raise SchemaError("the table has two columns of the same name; rename one")
    if not all(isinstance(c, str) for c in frame.columns):
        raise SchemaError(
            "column names must be strings; rename them, as with table.rename(columns=str)"
        )


def _roles_of(frame: pd.DataFrame, names_of_role: Mapping[Role, Iterable[str]]) -> dict[str, Role]:
    """Return the role of each column; raise a SchemaError if a column has two."""
    roles: dict[str, Role] = {}
    for role, names in names_of_role.items():
        for name in _names(frame, names, role):
            if name in roles:
                raise SchemaError(f"column {name!r} is {roles[name]} and {role}; give it one role")
            roles[name] = role
    return {name: roles.get(name, "other") for name in frame.columns}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Attribute:
    """Rare settings of one column, for ``columns=`` of `Schema.from_frame`.

    Attributes
    ----------
    hierarchy : Hierarchy, DataFrame or mapping, optional
        A `Hierarchy`, or a table that `Hierarchy.of` reads.
    weight : float, optional
        The relative weight of a quasi-identifier in NCP; default 1. The schema scales all weights
        to a sum of 1.
    bounds : pair of numbers or dates, optional
        The lowest and the highest value of a numeric column.
    bins : sequence of numbers or dates, optional
        The edges of public bins of a numeric feature. Differential privacy uses them, because edges
        that are computed from the rows would disclose rows.
    categories : sequence or pandas.CategoricalDtype, optional
        All values that a nominal column may have; for differential privacy.
    whole : bool
        For differential privacy: whether a numeric column has only whole numbers, or a column of
        dates only days. The dtype of the table is not used, because one person's value can change
        it.
    phrases : str or mapping of value to words, optional
        Words for the values in sentences, which need no title: a text with ``{}`` for the value,
        such as ``"{} open {loan|loans}"``, or ``{"A14": "no current account"}``.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [24, 27], "city": ["Antwerp", "Namur"]})
    >>> schema = Schema.from_frame(
    ...     frame,
    ...     quasi_identifiers=["age", "city"],
    ...     columns={
    ...         "age": Attribute(bounds=(18, 100), weight=3),
    ...         "city": Attribute(hierarchy={"Antwerp": ["Flanders"], "Namur": ["Wallonia"]}),
    ...     },
    ... )
    >>> schema["age"].bounds, schema["age"].weight, schema["city"].kind
    ((18.0, 100.0), 0.75, 'hierarchical')
    """

    hierarchy: Hierarchy | pd.DataFrame | Mapping[Any, Sequence[Any]] | None = None
    weight: float | None = None
    bounds: Sequence[Any] | None = None
    bins: Sequence[Any] | None = None
    categories: Sequence[Any] | pd.CategoricalDtype | None = None
    whole: bool = False
    phrases: str | Mapping[Any, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaAttribute:
    """One column of a `Schema`: its role in privacy, its kind of values, and its rules.

    Attributes
    ----------
    name : str
    role : {"identifier", "subject", "quasi-identifier", "sensitive", "other", "target"}
        Identifiers and the subject key are never released. Quasi-identifiers are generalised.
        Sensitive and other attributes are private; l-diversity and t-closeness check the sensitive
        ones.
    kind : {"numeric", "ordinal", "nominal", "hierarchical"}
        Regions generalise numbers, dates and levels to ranges, nominal values to sets, and
        hierarchical values to nodes of the hierarchy.
    weight : float
        The share of this quasi-identifier in NCP; all shares add up to 1.
    levels : tuple of str, optional
        The levels of an ordinal attribute, in order.
    hierarchy : Hierarchy, optional
    bounds : tuple of float, optional
        The declared lowest and highest number. A counterfactual outside is not released.
    nullable : bool
        Whether values may be missing.
    bins : tuple of float, optional
        The strictly increasing edges of public bins of a numeric feature; dates in seconds. A bin
        includes its lower edge, and the last bin both edges.
    categories : tuple of str, int, float or bool, optional
        The declared values of a nominal attribute, spelled as in the table.
    learned : tuple of str
        The settings that come from the rows; differential privacy does not accept them.
    dtype : str, optional
        The declared type of differentially private rows, such as ``"int64"`` or
        ``"datetime64[us]"``; it never comes from the table. None makes numbers fractional.
    change : {"any", "increase", "decrease", "never"}
        The changes that are possible for a person. An explanation with another change is not
        released.
    never_advised : tuple of str or None
        The values, as text, to which no explanation asks a person to change; None is a missing
        value.
    cost : float
        The factor of a change of this feature in the distance of an answer.
    """

    name: str
    role: Role = "other"
    kind: Kind = "nominal"
    weight: float = 0.0
    levels: tuple[str, ...] | None = None
    hierarchy: Hierarchy | None = None
    bounds: tuple[float, ...] | None = None
    nullable: bool = False
    bins: tuple[float, ...] | None = None
    categories: tuple[Any, ...] | None = None
    learned: tuple[str, ...] = ()
    dtype: str | None = None
    change: Change = "any"
    never_advised: tuple[str | None, ...] = ()
    cost: float = 1.0

    def __post_init__(self) -> None:
        levels = self.levels
        bounds = self.bounds
        bins = self.bins
        categories = self.categories
        is_number = self.kind == "numeric"
        is_tree = self.kind == "hierarchical"
        rules = {
            "ordinal attributes need levels, and no others have levels": (
                (self.kind == "ordinal") == (levels is not None)
            ),
            "ordinal levels must be distinct and not empty": (
                levels is None or 0 < len(levels) == len({*levels})
            ),
            "only hierarchical attributes can have a hierarchy": (
                is_tree == (self.hierarchy is not None)
            ),
            "bounds are (low, high) of a numeric attribute": (
                bounds is None or (is_number and len(bounds) == 2 and bounds[0] <= bounds[1])
            ),
            "weight must be a finite number >= 0": 0 <= self.weight < inf,
            "only quasi-identifiers can have a weight": (
                self.weight == 0 or self.role == "quasi-identifier"
            ),
            "only numeric features can have bins": (
                bins is None or (is_number and self.role in _FEATURES)
            ),
            "bins are at least 2 numbers (or dates), strictly increasing": (
                bins is None
                or (
                    len(bins) >= 2
                    and all(map(isfinite, bins))
                    and all(a < b for a, b in pairwise(bins))
                )
            ),
            "only nominal attributes can have categories; list levels in ordinal": (
                categories is None or self.kind == "nominal"
            ),
            "categories must be at least one text, number or boolean": (
                categories is None
                or (
                    len(categories) > 0
                    and all(isinstance(value, (str, int, float, bool)) for value in categories)
                )
            ),
            "categories must be distinct; 1 and 1.0 are two spellings of one": (
                categories is None
                or len({to_text(value) for value in categories}) == len(categories)
            ),
            "change must be any, increase, decrease or never": self.change in get_args(Change),
            "only features can be immutable or monotone": (
                self.change == "any" or self.role in _FEATURES
            ),
            "monotone attributes are numeric or ordinal; list the levels of others in ordinal": (
                self.change in ("any", "never") or self.kind in ("numeric", "ordinal")
            ),
            "cost must be a finite number > 0": 0 < self.cost < inf,
            "only features can have a cost": self.cost == 1 or self.role in _FEATURES,
            "only features can be in never_advise": (
                not self.never_advised or self.role in _FEATURES
            ),
            "never_advise can contain None, a missing value, but no number or date: limit these"
            " with bounds, or with permitted_range in a call": (
                not is_number or {*self.never_advised} <= {None}
            ),
        }
        for rule, is_obeyed in rules.items():
            if not is_obeyed:
                raise SchemaError(f"column {self.name!r}: {rule}")

    @property
    def undeclared(self) -> str | None:
        """The settings that make the domain of a feature public and are not declared, in words.

        It is None if the domain is public: no row has to be read to know it. See
        `Schema.is_public`.
        """
        settings = []
        if self.kind == "numeric" and self.bounds is None and self.bins is None:
            settings.append("bounds or bins")
        if self.kind == "nominal" and self.categories is None:
            settings.append("categories")
        # "nullable" is the only setting that can come from the rows.
        if self.learned == ("nullable",):
            settings.append("whether it is in nullable")
        if not settings:
            return None
        return " and ".join(settings)

    @property
    def is_restricted(self) -> bool:
        """Whether some changes are forbidden in explanations."""
        return self.change != "any" or len(self.never_advised) > 0

    @property
    def declared_values(self) -> tuple[str, ...] | None:
        """The levels, or the leaves of the hierarchy; None for other kinds."""
        return self.hierarchy.leaves if self.hierarchy is not None else self.levels


def _attribute_of(
    column: pd.Series,
    role: Role,
    declared: Attribute,
    *,
    levels: Any,
    is_nominal: bool,
    nullable: Sequence[str] | None,
    change: Change,
    never_advised: tuple[str | None, ...],
    cost: Any,
) -> SchemaAttribute:
    """Return the attribute of a column. Settings that are not declared come from its rows.

    If `nullable` is declared, the rows are not read: one person's value must not change the
    attribute.
    """
    name = str(column.name)
    may_read_rows = nullable is None
    if may_read_rows and role != "identifier":
        _check_dtype(column)
        wrong_type = unreadable(column)
        if wrong_type:
            raise SchemaError(f"column {name!r} has cells of type {wrong_type}; {ONE_VALUE}")
    if role in ("identifier", "subject"):
        return SchemaAttribute(
            name=name, role=role, change=change, never_advised=never_advised, cost=cost
        )
    is_declared = is_nominal or declared.categories is not None or declared.hierarchy is not None
    if levels is None and may_read_rows and not is_declared and _is_ordered(column):
        levels = column.dtype
    kind = _kind_of(column, declared, levels, is_nominal=is_nominal, may_read_rows=may_read_rows)
    if declared.whole and kind != "numeric":
        raise SchemaError(
            f"column {name!r}: whole=True is only for numeric columns; this one is {kind}"
        )
    if role == "quasi-identifier" and may_read_rows and bool(column.isna().all()):
        raise SchemaError(f"quasi-identifier {name!r} has no value at all; drop it from the schema")
    weight = declared.weight
    if weight is None:
        weight = 1.0 if role == "quasi-identifier" else 0.0
    if not isinstance(weight, (int, float, np.number)):
        raise SchemaError(f"column {name!r}: weight must be a number, got {type(weight).__name__}")
    is_nullable = bool(column.isna().any()) if nullable is None else name in nullable
    learned = ("nullable",) if may_read_rows else ()
    attribute = SchemaAttribute(
        name=name,
        role=role,
        kind=kind,
        weight=float(weight),
        levels=_levels(name, levels),
        hierarchy=_hierarchy(name, declared.hierarchy),
        bounds=_numbers(name, declared.bounds, "bounds"),
        nullable=is_nullable,
        bins=_numbers(name, declared.bins, "bins"),
        categories=_listed(name, declared.categories, "categories"),
        learned=learned,
        dtype=_type_of(kind, declared, levels),
        change=change,
        never_advised=never_advised,
        cost=cost,
    )
    return _with_never_advised(attribute, column, may_read_rows=may_read_rows)


def _kind_of(
    column: pd.Series, declared: Attribute, levels: Any, *, is_nominal: bool, may_read_rows: bool
) -> Kind:
    """Return the kind of a column: the declared one, or the kind that follows from its dtype."""
    if levels is not None:
        return "ordinal"
    if declared.hierarchy is not None:
        return "hierarchical"
    is_nominal = is_nominal or declared.categories is not None
    if not is_nominal:
        has_numbers = declared.whole or declared.bounds is not None or declared.bins is not None
        if is_numeric(column):
            return "numeric"
        if has_numbers and not may_read_rows:
            return "numeric"
    return "nominal"


def _is_ordered(column: pd.Series) -> bool:
    """Return True for a column of pandas' ordered categories."""
    return isinstance(column.dtype, pd.CategoricalDtype) and bool(column.dtype.ordered)


_CONVERTED_BY: Mapping[str, str] = {
    "Sparse": "column.sparse.to_dense()",
    "timedelta": "column.dt.total_seconds()",
    "duration": "column.dt.total_seconds()",
    "period": "column.dt.to_timestamp()",
    "interval": "column.astype(str)",
    "decimal": "column.astype('float64')",
    "dictionary": "column.astype('category')",
    "complex": "column.map(abs)",
}
"""How to convert a dtype that codes cannot restore for the model, by the start of its name."""

_CATEGORIES_CONVERTED_BY: Mapping[str, str] = {
    "interval": "column.cat.rename_categories(str)",
    "datetime64": "column.astype(column.cat.categories.dtype)",
}


def _check_dtype(column: pd.Series) -> None:
    """Raise a SchemaError if the dtype of a column cannot be read, or restored from its name."""
    dtype: Any = column.dtype
    remedies = _CONVERTED_BY
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
        remedies = _CATEGORIES_CONVERTED_BY
    for beginning, remedy in remedies.items():
        if str(dtype).startswith(beginning):
            raise SchemaError(
                f"column {str(column.name)!r} has dtype {dtype}, which cannot be read; convert it"
                f" with {remedy}"
            )


def _type_of(kind: Kind, declared: Attribute, levels: Any) -> str | None:
    """Return the declared type of an attribute; None if it is not declared."""
    if kind == "numeric":
        ends = declared.bins if declared.bounds is None else declared.bounds
        return _type_of_numbers(ends, declared.whole)
    values = declared.categories if levels is None else levels
    return type_of_values(values)


def _with_never_advised(
    attribute: SchemaAttribute, column: pd.Series, *, may_read_rows: bool
) -> SchemaAttribute:
    """Return an attribute whose `never_advised` are checked, and spelled as in the table.

    They must be among the attribute's values, and not be all of them. The values are the declared
    ones or, if there are none, those of the rows of `column`; if the rows may not be read, nothing
    is checked. Messages name no value that is only in a row.
    """
    if not attribute.never_advised or attribute.kind == "numeric":
        return attribute
    declared = attribute.declared_values
    if attribute.categories is not None:
        declared = tuple(map(to_text, attribute.categories))
    possible_values = declared
    if possible_values is None and may_read_rows:
        possible_values = tuple(map(to_text, column.dropna().unique()))
    if possible_values is None:
        return attribute
    value_of_text = {text: value for value in possible_values for text in spellings(value)}
    texts = [None if t is None else value_of_text.get(t, t) for t in attribute.never_advised]
    values = [text for text in texts if text is not None]
    unknown = [text for text in values if text not in possible_values]
    place = f"column {attribute.name!r}: never_advise"
    if unknown and declared is not None:
        raise SchemaError(
            f"{place} names {', '.join(unknown)}, which is not declared"
            f"{did_you_mean(unknown, declared)}"
        )
    if unknown:
        raise SchemaError(
            f"{place} names {', '.join(unknown)}, which no row has; check the spelling, or declare"
            " all values in categories"
        )
    if set(possible_values) <= set(values):
        raise SchemaError(
            f"{place} names every value, so no change is left; write"
            f' immutable=["{attribute.name}"] instead'
        )
    return replace(attribute, never_advised=tuple(texts))


def _changes_of(immutable: Sequence[str], monotone: Mapping[str, Any]) -> dict[str, Change]:
    """Return the possible change by column; raise a SchemaError if the settings disagree."""
    names_in_both = [name for name in immutable if name in monotone]
    if names_in_both:
        raise SchemaError(
            f"immutable and monotone: {', '.join(names_in_both)}; a column that never changes has"
            " no direction, so leave it out of one"
        )
    directions = ("increase", "decrease")
    wrong = [name for name, way in monotone.items() if way not in directions]
    if wrong:
        hint = did_you_mean([monotone[name] for name in wrong], directions)
        raise SchemaError(
            f'monotone must be "increase" or "decrease"; it is neither for {", ".join(wrong)}{hint}'
        )
    return {**dict.fromkeys(immutable, "never"), **monotone}


def _never_advised_of(
    never_advise: Mapping[str, Iterable[Any]], immutable: Sequence[str]
) -> dict[str, tuple[str | None, ...]]:
    """Return `never_advise` by column, in the form of `SchemaAttribute.never_advised`."""
    names_in_both = [name for name in immutable if name in never_advise]
    if names_in_both:
        raise SchemaError(
            f"immutable and never_advise: {', '.join(names_in_both)}; a column that never changes"
            " needs no never_advise, so leave it out there"
        )
    never_advised = {}
    for name, values in never_advise.items():
        listed = _listed(name, values, "never_advise") or ()
        texts = [None if is_missing(value) else to_text(value) for value in listed]
        never_advised[name] = tuple(dict.fromkeys(texts))
    return never_advised


def _costs_of(cost: Mapping[str, Any]) -> dict[str, float]:
    """Return the cost of a change by column; raise a SchemaError if one is not a number."""
    for name, number in cost.items():
        if not isinstance(number, (int, float, np.number)):
            raise SchemaError(
                f"column {name!r}: cost must be a number, got {type(number).__name__}"
            )
    return {name: float(number) for name, number in cost.items()}


def _listed(name: str, values: Any, setting: str) -> tuple[Any, ...] | None:
    """Return declared values as a tuple, or None; raise a SchemaError if they are not a list."""
    if values is None:
        return None
    if isinstance(values, pd.CategoricalDtype):
        values = values.categories
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        raise SchemaError(
            f"column {name!r}: {setting} must be a list of values, got {type(values).__name__}"
        )
    return tuple(map(natural, values))


def _levels(name: str, values: Any) -> tuple[str, ...] | None:
    levels = _listed(name, values, "ordinal")
    return None if levels is None else tuple(map(to_text, levels))


def _hierarchy(name: str, table: Any) -> Hierarchy | None:
    if table is None:
        return None
    try:
        return Hierarchy.of(table)
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def _numbers(name: str, values: Any, setting: str) -> tuple[float, ...] | None:
    """Return declared numbers, or dates in seconds; raise a SchemaError if one is not exact."""
    values = _listed(name, values, setting)
    if values is None:
        return None
    for value in values:
        problem = why_inexact(pd.Series([value], dtype=object))
        if problem:
            raise SchemaError(f"column {name!r}: its {setting} have {problem}")
    return tuple(map(to_number, values))


def _type_of_numbers(ends: Sequence[Any] | None, is_whole: bool) -> str | None:
    """Return the type of numbers or dates with these bounds or edges of bins."""
    ends = [] if ends is None else list(ends)
    if len(ends) == 0 or isinstance(ends[0], (int, float, np.number)):
        return "int64" if is_whole else None
    # if they are not dates either, the check of bounds and bins raises the error
    with suppress(ValueError, TypeError):
        zone = pd.Timestamp(ends[0]).tz
        unit = "D" if is_whole else "us"
        return f"datetime64[{unit}]" if zone is None else f"datetime64[us, {zone}]"
    return None


def type_of_values(values: Iterable[Any] | pd.CategoricalDtype | None) -> str | None:
    """Return the dtype of these categories or levels; None if they are texts or mixed."""
    if isinstance(values, pd.CategoricalDtype):
        return "category"
    listed_values = [] if values is None else [*values]
    kind_of_values = types.infer_dtype(listed_values, skipna=False)
    return {
        "boolean": "bool",
        "integer": "int64",
        "floating": "float64",
        "mixed-integer-float": "float64",
    }.get(kind_of_values)


_CHANGES_SHOWN: Mapping[Change, str] = {
    "any": "yes",
    "never": "no",
    "increase": "upwards only",
    "decrease": "downwards only",
}


def _change_shown(attribute: SchemaAttribute) -> str:
    """Return in words which changes of an attribute are possible, without its values."""
    words = _CHANGES_SHOWN[attribute.change]
    if not attribute.never_advised:
        return words
    return f"{words}, but never to {counted(len(attribute.never_advised), 'value')}"


def _domain_shown(attribute: SchemaAttribute) -> str:
    """Return in words how the domain of an attribute is declared, without its values."""
    if attribute.role not in _FEATURES:
        return "–"
    if attribute.hierarchy is not None:
        return f"declared: hierarchy of {len(attribute.hierarchy.leaves)}"
    for listed, name in ((attribute.levels, "levels"), (attribute.categories, "categories")):
        if listed is not None:
            return f"declared: {len(listed)} {name}"
    if attribute.bins is not None:
        return f"declared: {len(attribute.bins) - 1} bins"
    if attribute.bounds is not None:
        return "declared: bounds"
    # Only quasi-identifiers bound regions, so only their ranges can disclose rows.
    return "read from the rows" if attribute.role == "quasi-identifier" else "not declared"


@dataclass(frozen=True)
class Schema:
    """The roles and kinds of all columns of a training table. Build it with `Schema.from_frame`.

    `features` has the order of the table, in which models, explainers and results get the columns.
    `quasi_identifiers`, `private` and `sensitive` are in alphabetical order, so that groups do not
    depend on the order of the table.

    Attributes
    ----------
    attributes : tuple of SchemaAttribute
        In the order of the table's columns.
    wording : Wording
        The words for answers.
    rules : tuple of str
        Relations between features that every answer must obey.
    """

    attributes: tuple[SchemaAttribute, ...]
    wording: Wording = field(default_factory=Wording)
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [a.name for a in self.attributes]
        if len(set(names)) != len(names):
            raise SchemaError("two attributes have the same name; rename one")
        quasi = [a for a in self.attributes if a.role == "quasi-identifier"]
        if not quasi:
            raise SchemaError(
                "a schema needs at least one quasi-identifier; list the columns that an attacker"
                " may know in quasi_identifiers"
            )
        # fsum is exact, so the order of columns does not change the last bit
        total = fsum(a.weight for a in quasi)
        if total <= 0:
            raise SchemaError(
                "the weights of the quasi-identifiers must have a positive sum; give one of them a"
                " weight above 0"
            )
        if abs(total - 1) > 1e-9:
            scaled = {a.name: replace(a, weight=a.weight / total) for a in quasi}
            attributes = tuple(scaled.get(a.name, a) for a in self.attributes)
            object.__setattr__(self, "attributes", attributes)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        quasi_identifiers: Iterable[str] = (),
        sensitive: Iterable[str] = (),
        identifiers: Iterable[str] = (),
        subject: str | None = None,
        target: str | None = None,
        ordinal: Mapping[str, Iterable[Any]] | None = None,
        nominal: Iterable[str] = (),
        nullable: Iterable[str] | None = None,
        immutable: Iterable[str] = (),
        monotone: Mapping[str, Literal["increase", "decrease"]] | None = None,
        never_advise: Mapping[str, Iterable[Any]] | None = None,
        cost: Mapping[str, float] | None = None,
        rules: Iterable[str] = (),
        titles: Mapping[str, str] | None = None,
        units: Mapping[str, str | Unit] | None = None,
        outcomes: Mapping[Any, str] | None = None,
        language: str | Path | Mapping[str, Any] = "en",
        columns: Mapping[str, Attribute] | None = None,
    ) -> Schema:
        """Declare the roles of columns. Kinds that are not declared follow from the dtypes.

        Columns of numbers and dates, and of ISO texts such as 2024-12-31, are numeric; all others
        are nominal. If `nullable` is declared, columns with bounds, bins or ``whole=True`` are also
        numeric, regardless of their dtype. See the page "Describe your data and your model".

        Parameters
        ----------
        frame : DataFrame (pandas, polars or pyarrow)
            The training rows. It may contain the target and identifiers.
        quasi_identifiers : sequence of str
            Columns that an attacker may know of a person, such as age. They are generalised.
        sensitive : sequence of str
            Private columns for which a policy may require diversity inside a region.
        identifiers : sequence of str
            Columns such as names and account numbers, which are never used or released.
        subject : str, optional
            The column with the key of the person to whom a row belongs. k then counts people
            instead of rows.
        target : str, optional
            The column with the label, if `frame` has one.
        ordinal : mapping of column to its levels in order
        nominal : sequence of str
            Columns of numbers that are codes of categories, such as a postal code.
        nullable : sequence of str, optional
            Columns that may have missing values. The default is the columns with a missing value in
            `frame`, which discloses something about its rows.
        immutable : sequence of str
            Features that a person cannot change, such as a birthplace. Explanations do not change
            them.
        monotone : mapping of numeric or ordinal feature to "increase" or "decrease"
            Features that change in only one direction, such as age.
        never_advise : mapping of feature to a list of values
            Values to which no explanation asks a person to change, such as ``{"savings":
            ["unknown"]}``; None means a missing value. A person with the value may keep it. For
            numbers and dates, only None is possible: bounds, and ``permitted_range`` in a call,
            limit these.
        cost : mapping of feature to a number
            The cost of a change of the feature; the default is 1. With ``{"profession": 5}`` a
            change of profession counts five times, so answers avoid it if there is another way.
        rules : sequence of str
            Relations between features that every answer must obey, such as ``"years_employed <= age
            - 15"`` or ``"if owns_home then rent == 0"``. A rule does not apply to a row that lacks
            one of its numbers. All training rows have to obey the rules.
        titles : mapping of column to words
            The words for a column in a sentence: ``{"term": "a loan term"}``.
        units : mapping of column to str or Unit
            The unit of a column in a sentence: ``"month"``, ``"USD"``, ``"percent"``, or another
            text such as ``"mmHg"``. ``Unit("EUR", scale=0.01)`` writes a column of cents in euros.
        outcomes : mapping of label to words
            The meaning of a model's label for a person: ``{1: "your loan would be approved"}``. The
            key ``"*"`` is for all other outcomes.
        language : str, path or mapping
            ``"en"``, ``"de"``, or your own file; see the page "Put answers into words".
        columns : mapping of column to `Attribute`
            Rare settings: hierarchies, weights, bounds, bins, categories, whole numbers and
            phrases. ``{"age": Attribute(bounds=(18, 100), whole=True)}``.

        Returns
        -------
        Schema

        Warns
        -----
        MisreadColumnWarning
            If a column of text probably contains numbers or dates, and neither its kind nor
            `nullable` is declared.

        Raises
        ------
        SchemaError
            If a column is unknown, duplicated, in two roles, or of a type that cannot be used; if a
            monotone column is neither numeric nor ordinal; if a value of `never_advise` is unknown;
            if a rule cannot be read.

        Examples
        --------
        >>> frame = pd.DataFrame(
        ...     {"age": [24, 27], "city": ["Antwerp", "Ghent"], "salary": [60, 80]}
        ... )
        >>> schema = Schema.from_frame(
        ...     frame, quasi_identifiers=["age", "city"], sensitive=["salary"]
        ... )
        >>> schema["age"].kind, schema["city"].kind, schema["age"].weight
        ('numeric', 'nominal', 0.5)
        """
        frame = as_pandas(frame)
        _check_table(frame)
        subjects = [] if subject is None else [subject]
        targets = [] if target is None else [target]
        roles = _roles_of(
            frame,
            {
                "quasi-identifier": quasi_identifiers,
                "sensitive": sensitive,
                "identifier": identifiers,
                "subject": subjects,
                "target": targets,
            },
        )
        immutable = _names(frame, immutable, "immutable")
        nominal = _names(frame, nominal, "nominal")
        nullable = None if nullable is None else _names(frame, nullable, "nullable")
        ordinal = _by_name(frame, ordinal, "ordinal", "its levels in order")
        columns = _by_name(frame, columns, "columns", "its Attribute")
        monotone = _by_name(frame, monotone, "monotone", '"increase" or "decrease"')
        form = 'a list of values, such as {"savings": ["unknown"]}'
        never_advise = _by_name(frame, never_advise, "never_advise", form)
        costs = _costs_of(_by_name(frame, cost, "cost", "a number"))
        _check_columns(columns, roles)
        changes = _changes_of(immutable, monotone)
        never_advised = _never_advised_of(never_advise, immutable)
        wording = Wording(
            language=Language.of(language),
            titles=_by_name(frame, titles, "titles", "its words"),
            units=_by_name(frame, units, "units", "its unit"),
            outcomes=_mapping(outcomes, "outcomes", "label to a text"),
            phrases={n: a.phrases for n, a in columns.items() if a.phrases is not None},
        )
        attributes = [
            _attribute_of(
                frame[name],
                role,
                columns.get(name, Attribute()),
                levels=ordinal.get(name),
                is_nominal=name in nominal,
                nullable=nullable,
                change=changes.get(name, "any"),
                never_advised=never_advised.get(name, ()),
                cost=costs.get(name, 1.0),
            )
            for name, role in roles.items()
        ]
        schema = cls(tuple(attributes), wording)
        schema = replace(schema, rules=checked(rules, schema.features))
        if nullable is None:
            # if `nullable` is declared, the rows must not be read
            nominal_features = [schema[n] for n in schema.features if schema[n].kind == "nominal"]
            undeclared = [a.name for a in nominal_features if a.categories is None]
            warn_of_misreadings(frame, [n for n in undeclared if n not in nominal])
        return schema

    def __getitem__(self, name: str) -> SchemaAttribute:
        if name not in self._by_name:
            raise SchemaError(
                f"column {name!r} is not in the schema{did_you_mean([name], self._by_name)}"
            )
        return self._by_name[name]

    def __repr__(self) -> str:
        names_of_role = {role: ", ".join(self.names(role)) for role in get_args(Role)}
        roles = [f"{role}: {names}" for role, names in names_of_role.items() if names]
        return f"Schema({'; '.join(roles)})"

    def _repr_html_(self) -> str:
        """Return the settings of each column for notebooks, without its values."""
        rows = [
            (
                attribute.name,
                attribute.role,
                attribute.kind,
                _change_shown(attribute),
                _domain_shown(attribute),
            )
            for attribute in self.attributes
        ]
        return card(
            f"Schema of {len(rows)} columns",
            table(("column", "role", "kind", "a person can change it", "its values"), rows),
            note=(
                "Quasi-identifiers are generalised. Identifiers, the subject key and the target are"
                " never released. A range that is read from the rows can disclose one person's"
                " value: declare bounds or categories."
            ),
        )

    @cached_property
    def _by_name(self) -> dict[str, SchemaAttribute]:
        return {attribute.name: attribute for attribute in self.attributes}

    def names(self, *roles: Role) -> tuple[str, ...]:
        """Return the names of the columns with one of these roles, in the order of the table."""
        return tuple(a.name for a in self.attributes if a.role in roles)

    @cached_property
    def quasi_identifiers(self) -> tuple[str, ...]:
        """The names of the quasi-identifiers, in alphabetical order."""
        return tuple(sorted(self.names("quasi-identifier")))

    @cached_property
    def private(self) -> tuple[str, ...]:
        """The names of the sensitive and other attributes, in alphabetical order."""
        return tuple(sorted(self.names("sensitive", "other")))

    @cached_property
    def nobody_chooses(self) -> frozenset[str]:
        """The immutable columns, and the columns whose names describe who a person is, such as age.

        Sentences do not count these as choices of the person.
        """
        immutable = {a.name for a in self.attributes if a.change == "never"}
        return frozenset({*immutable, *personal_columns(self.features)})

    @cached_property
    def never_advised(self) -> Mapping[str, frozenset[str | None]]:
        """The values that explanations never ask for, by column; None is a missing value."""
        return {a.name: frozenset(a.never_advised) for a in self.attributes if a.never_advised}

    @cached_property
    def sensitive(self) -> tuple[str, ...]:
        """The names of the sensitive attributes, in alphabetical order."""
        return tuple(sorted(self.names("sensitive")))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of quasi-identifiers and private attributes, in the order of the table.

        These are the columns of a counterfactual.
        """
        return self.names(*_FEATURES)

    @cached_property
    def is_public(self) -> bool:
        """Whether the domain of every feature is declared, so that it discloses nothing of rows."""
        return all(self[name].undeclared is None for name in self.features)

    @cached_property
    def subject(self) -> str | None:
        """The name of the subject key; None if there is none."""
        return next(iter(self.names("subject")), None)

    @cached_property
    def target(self) -> str | None:
        """The name of the label column; None if there is none."""
        return next(iter(self.names("target")), None)
