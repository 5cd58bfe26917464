"""What a user declares of one column, and how it becomes the arguments of `Schema.from_frame`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

import pandas as pd

from cfk_plugin.errors import SchemaError, did_you_mean

Role = Literal["identifier", "subject", "quasi-identifier", "sensitive", "other", "target"]
Change = Literal["any", "increase", "decrease", "never"]
DeclaredKind = Literal["nominal", "integer"]


class ColumnDeclaration(TypedDict, total=False):
    """What is declared of one column, for `columns=` of `Schema.from_frame`.

    Every key may be left out. A plain dict with these keys will do.
    """

    role: Role  # default: "other"
    # "nominal": numbers that are codes of categories; "integer": whole numbers. Other kinds follow
    # from `levels`, `hierarchy` and the dtype.
    kind: DeclaredKind
    levels: Sequence[Any]  # of an ordinal column, in order
    hierarchy: Any  # a `Hierarchy`, or what `Hierarchy.of` reads
    categories: Sequence[Any] | pd.CategoricalDtype  # values of a nominal column
    bounds: tuple[Any, Any]  # lowest and highest value of a numeric column
    bins: Sequence[Any]  # edges of the public bins of a numeric column
    weight: float  # relative weight of a quasi-identifier in NCP
    change: Change  # what a person can change; default: "any"
    never_advise: Sequence[Any]  # values that no explanation tells a person to change to
    title: str  # the words for the column in a sentence
    unit: str
    phrases: str | Mapping[Any, str]  # words for its values


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "role": get_args(Role),
    "kind": get_args(DeclaredKind),
    "change": get_args(Change),
}
"""The keys of `ColumnDeclaration` that name one of several things."""

_MAPPING_OF_KEY: Mapping[str, str] = {
    "levels": "ordinal",
    "hierarchy": "hierarchies",
    "categories": "categories",
    "bounds": "bounds",
    "bins": "bins",
    "weight": "weights",
    "never_advise": "never_advise",
    "title": "titles",
    "unit": "units",
    "phrases": "phrases",
}
"""The argument that is a mapping of column to the same value."""

_LIST_OF_CHOICE: Mapping[tuple[str, str], str] = {
    ("role", "quasi-identifier"): "quasi_identifiers",
    ("role", "sensitive"): "sensitive",
    ("role", "identifier"): "identifiers",
    ("kind", "nominal"): "nominal",
    ("kind", "integer"): "whole",
    ("change", "never"): "immutable",
}
"""The argument that is a list of the columns with a choice."""

_NAME_OF_CHOICE: Mapping[tuple[str, str], str] = {
    ("role", "subject"): "subject",
    ("role", "target"): "target",
}
"""The argument that is the name of the one column with a choice."""


def with_columns(
    columns: Mapping[str, ColumnDeclaration],
    arguments: Mapping[str, Any],
    table_columns: Iterable[str],
) -> dict[str, Any]:
    """Return the arguments of `Schema.from_frame` with the declarations of `columns` added to them.

    Parameters
    ----------
    columns : mapping of column to its declaration
    arguments : mapping
        The arguments that speak of single columns, by name.
    table_columns : iterable of str
        The columns of the table.

    Raises
    ------
    SchemaError
        If a declaration cannot be read, or a column is declared in `arguments` as well.
    """
    _check_columns(columns, table_columns)
    _check_declared_once(columns, arguments)
    all_arguments = dict(arguments)
    for name, column in columns.items():
        for key, value in column.items():
            choice = (key, str(value))
            if choice in _NAME_OF_CHOICE:
                label = _NAME_OF_CHOICE[choice]
                if all_arguments[label]:
                    raise SchemaError(
                        f"columns {all_arguments[label]!r} and {name!r} both have the role"
                        f" {value!r}; give it to one of them"
                    )
                all_arguments[label] = name
            elif choice in _LIST_OF_CHOICE:
                label = _LIST_OF_CHOICE[choice]
                all_arguments[label] = _extended_list(all_arguments[label], name)
            elif key == "change" and value != "any":
                all_arguments["monotone"] = _extended_mapping(
                    all_arguments["monotone"], name, value
                )
            elif key in _MAPPING_OF_KEY:
                label = _MAPPING_OF_KEY[key]
                all_arguments[label] = _extended_mapping(all_arguments[label], name, value)
    return all_arguments


def _check_columns(columns: object, table_columns: Iterable[str]) -> None:
    """Refuse declarations that cannot be read; messages name columns and declared words only."""
    if not isinstance(columns, Mapping):
        raise SchemaError(
            'columns must be a mapping, column to what is declared of it, such as {"age": {"role":'
            f' "quasi-identifier"}}}}; got {type(columns).__name__}'
        )
    names = list(table_columns)
    unknown = [str(name) for name in columns if name not in names]
    if unknown:
        raise SchemaError(
            f"columns: unknown column {', '.join(unknown)}; the table has {names}"
            f"{did_you_mean(unknown, names)}"
        )
    for name, column in columns.items():
        if not isinstance(column, Mapping):
            raise SchemaError(
                f"column {name!r}: write what is declared of it as a mapping, such as"
                f' {{"role": "quasi-identifier"}}; got {type(column).__name__}'
            )
        keys = tuple(ColumnDeclaration.__annotations__)
        unknown = [str(key) for key in column if key not in keys]
        if unknown:
            raise SchemaError(
                f"column {name!r}: unknown key {', '.join(unknown)}; known are {', '.join(keys)}"
                f"{did_you_mean(unknown, keys)}"
            )
        for key, choices in _CHOICES.items():
            if key in column and column[key] not in choices:
                raise SchemaError(
                    f"column {name!r}: {key} is one of {', '.join(choices)}; got {column[key]!r}"
                    f"{did_you_mean([column[key]], choices)}{_ADVICE_OF_KEY.get(key, '')}"
                )


_ADVICE_OF_KEY: Mapping[str, str] = {
    "kind": ". Leave kind out of any other column: it follows from levels, hierarchy and the dtype",
}


def _check_declared_once(
    columns: Mapping[str, ColumnDeclaration], arguments: Mapping[str, Any]
) -> None:
    for label, value in arguments.items():
        if label in _NAME_OF_CHOICE.values():
            declared = [value]
        elif isinstance(value, Iterable) and not isinstance(value, str):
            declared = list(value)
        else:
            declared = []  # nothing, or a value that `Schema.from_frame` refuses
        for name in declared:
            if name in columns:
                raise SchemaError(
                    f"column {name!r} is declared in columns and in {label}; move what {label} says"
                    " of it into columns"
                )


def _extended_list(names: Any, name: str) -> Any:
    """Return the names and one more; what is not a list of names is left to be refused."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return names
    return [*names, name]


def _extended_mapping(by_name: Any, name: str, value: Any) -> Any:
    """Return the mapping with one more column; what is not a mapping is left to be refused."""
    if by_name is None:
        return {name: value}
    if not isinstance(by_name, Mapping):
        return by_name
    return {**by_name, name: value}
