"""Neighbouring tables: with a canary and without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

import numpy as np
import pandas as pd

from cfk_plugin.data.schema import Schema
from cfk_plugin.data.values import conform
from cfk_plugin.errors import InputError

Relation = Literal["add-remove", "replace-one"]
"""Which tables are neighbours: one person more or less, or one person in the place of another."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Worlds:
    """Two tables that differ in one person. Host side only.

    Attributes
    ----------
    inside, outside : DataFrame
        With the canary, and without it.
    relation : {"add-remove", "replace-one"}
    """

    inside: pd.DataFrame
    outside: pd.DataFrame
    relation: Relation

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Worlds({len(self.inside)} rows inside, {len(self.outside)} outside, {self.relation})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold rows."""
        raise InputError("neighbouring tables hold training rows and refuse to be pickled")


def neighbours(
    table: pd.DataFrame,
    canary: pd.DataFrame,
    schema: Schema | None = None,
    relation: Relation = "add-remove",
    seed: int = 0,
) -> Worlds:
    """Return the table with and without a canary.

    Parameters
    ----------
    table : DataFrame
        The training rows.
    canary : DataFrame
        One made-up person: one row, or all rows of a made-up subject.
    schema : Schema, optional
        Names the subject.
    relation : {"add-remove", "replace-one"}
        With "replace-one", a person of the table, chosen by the seed, gives way to the canary.
    seed : int

    Returns
    -------
    Worlds

    Raises
    ------
    InputError
        If the canary does not fit the table or the schema, or is no made-up person.
    """
    if relation not in get_args(Relation):
        raise InputError(f"relation must be one of {', '.join(get_args(Relation))}")
    rows, canary = table.reset_index(drop=True), fitting(table, canary, schema)
    subject = None if schema is None else schema.subject
    if subject is None and len(canary) > 1 and schema is not None:
        raise InputError(f"the canary has {len(canary)} rows, and the schema names no subject whose rows they could be")
    if subject is not None and canary[subject].nunique(dropna=False) > 1:
        raise InputError(f"the canary is one person; column {subject!r} names several")
    outside = rows
    if relation == "replace-one":
        outside = rows.copy()
        chosen = int(np.random.default_rng(seed).integers(len(rows)))
        gone = rows[subject] == rows[subject].iloc[chosen] if subject is not None else rows.index == chosen
        rows = rows[~gone]
    return Worlds(joined(rows, canary), outside, relation)


def joined(table: pd.DataFrame, canaries: pd.DataFrame) -> pd.DataFrame:
    """Return a table with canaries below its rows, in the dtypes that pandas makes of both."""
    return pd.concat([table, canaries], ignore_index=True) if len(canaries) else table.reset_index(drop=True)


def fitting(table: pd.DataFrame, canary: pd.DataFrame, schema: Schema | None) -> pd.DataFrame:
    """Return canaries in the columns of the table, and in its dtypes where every value of theirs survives it.

    Anybody may be in a table: with a missing value, a fraction among whole numbers, a text among numbers, something
    that nobody declared. What pandas makes of the column then is the mechanism's to live with, and the audit's to see.

    Raises
    ------
    InputError
        If columns differ, a subject is one of the table's, or a canary is a row of the table.
    """
    if not len(table) or not len(canary):
        raise InputError("the table and the canary must have at least one row")
    if set(canary.columns) != set(table.columns) or not canary.columns.is_unique:
        odd = sorted(map(str, set(canary.columns) ^ set(table.columns)))
        raise InputError(f"a canary has the columns of the table, each once; check {', '.join(odd) or 'for doubles'}")
    found = pd.DataFrame({name: conform(canary[name], table[name].dtype) for name in table.columns})
    if schema is not None and (lost := [n for n in (*schema.features, *schema.names("subject")) if n not in found]):
        raise InputError(f"the table lacks {', '.join(lost)}, which the schema names")
    _check_made_up(table, found, schema)
    return found.reset_index(drop=True)


def _check_made_up(table: pd.DataFrame, canary: pd.DataFrame, schema: Schema | None) -> None:
    subject = None if schema is None else schema.subject
    if subject is not None and bool(canary[subject].isin(table[subject]).any()):
        raise InputError(f"column {subject!r} of the canary names a subject of the table; make one up")
    names = list(table.columns)
    if schema is not None:
        names = [name for name in (*schema.features, *schema.names("target")) if name in names]
    rows = pd.util.hash_pandas_object(table[names], index=False)
    if bool(pd.util.hash_pandas_object(canary[names], index=False).isin(rows).any()):
        raise InputError("the canary is a row of the table; make one up, of values that are rare together")
