"""Roles: what each column of a table is to privacy, given once and by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import pandas as pd

from cfk_plugin.errors import SchemaError

Role = Literal["identifier", "subject", "quasi-identifier", "sensitive", "other", "target"]


def known(frame: pd.DataFrame, names: Iterable[str], label: str) -> None:
    """Refuse names that are no columns of the table; `label` says which setting they come from."""
    if unknown := [str(name) for name in names if name not in frame.columns]:
        raise SchemaError(f"{label}: unknown column {', '.join(unknown)}; the table has {list(frame.columns)}")


def roles_of(
    frame: pd.DataFrame,
    quasi_identifiers: Sequence[str],
    sensitive: Sequence[str],
    identifiers: Sequence[str],
    subject: str | None,
    target: str | None,
) -> dict[str, Role]:
    """Return the role of every column, in table order.

    Raises
    ------
    SchemaError
        If the table is none, its columns cannot be told apart, or a column is unknown or given two roles.
    """
    if not isinstance(frame, pd.DataFrame) or frame.empty:
        raise SchemaError("a schema needs a pandas DataFrame with at least one row and one column")
    if not frame.columns.is_unique:
        raise SchemaError("the table has two columns of the same name; rename one")
    if not all(isinstance(c, str) for c in frame.columns):
        raise SchemaError("column names must be strings")
    given: list[tuple[Role, Sequence[str]]] = [
        ("quasi-identifier", quasi_identifiers),
        ("sensitive", sensitive),
        ("identifier", identifiers),
        ("subject", [subject] if subject else []),
        ("target", [target] if target else []),
    ]
    roles: dict[str, Role] = {}
    for role, names in given:
        if isinstance(names, str):
            raise SchemaError(f"{role} columns must be a list of names, not one string")
        known(frame, names, role)
        for name in names:
            if name in roles:
                raise SchemaError(f"column {name!r} is {roles[name]} and {role}; give it one role")
            roles[name] = role
    return {name: roles.get(name, "other") for name in frame.columns}
