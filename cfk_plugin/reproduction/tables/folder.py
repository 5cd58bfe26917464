"""Tables from a folder: ``NAME.csv.gz`` with the rows, ``NAME.json`` that says what each column is for."""

from __future__ import annotations

import json
import zlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import pandas as pd

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.tables.table import Table

_TYPES = ("numeric", "categorical", "ordinal")
_UNREADABLE = (OSError, EOFError, zlib.error, ValueError)


@dataclass(frozen=True, slots=True)
class Description:
    """What a folder says of a table, checked against the header of its rows.

    Attributes
    ----------
    name : str
    rows : Path
        The file that holds them.
    types : mapping
        Column that is read to ``"numeric"``, ``"categorical"`` or ``"ordinal"``: the features, the sensitive attribute
        where it is none of them, the target.
    features, quasi_identifiers : tuple of str
    sensitive, target : str
    desired : hashable
    source : str
        Where the rows are from, in one line.
    """

    name: str
    rows: Path
    types: Mapping[str, str]
    features: tuple[str, ...]
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    target: str
    desired: Hashable
    source: str


def read_table(name: str, folder: Path) -> Table:
    """Read a table and its description.

    Columns that are no numbers are read as text, ordinal ones as well: like the paper, the experiments treat them as
    categories. Empty fields are missing values.

    Parameters
    ----------
    name : str
    folder : Path
        With ``NAME.csv.gz`` and ``NAME.json``.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If the table is not there, its description lacks something, or the rows do not fit it. The message names file
        and column, never a value.
    """
    about = describe(name, folder)
    text = {column: str for column, kind in about.types.items() if kind != "numeric"}
    try:
        frame = pd.read_csv(about.rows, dtype=text)
    except _UNREADABLE as error:
        raise _unreadable(about.rows, error) from None
    if not isinstance(frame.index, pd.RangeIndex):  # pandas then takes the first fields for names of the rows.
        raise InputError(f"{about.rows}: rows have more fields than the header; write one name for each")
    for column in about.types:
        if column not in text and not pd.api.types.is_numeric_dtype(frame[column]):
            raise InputError(f"{about.rows}: column {column} is described as numeric and holds other things as well")
    if frame[about.target].isna().any():
        raise InputError(f"{about.rows}: the target, column {about.target}, has missing values; leave such rows out")
    return Table(
        name=name,
        frame=frame[list(about.types)],
        features=about.features,
        quasi_identifiers=about.quasi_identifiers,
        sensitive=about.sensitive,
        target=about.target,
        desired=about.desired,
        source=about.source,
    )


def describe(name: str, folder: Path) -> Description:
    """Read what a folder says of a table; of the rows nothing but their header is read.

    Parameters
    ----------
    name : str
    folder : Path

    Returns
    -------
    Description

    Raises
    ------
    InputError
        As `read_table`.
    """
    names = _names_in(folder)
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "there is none at all"
        raise InputError(f"{folder} has no table {name} ({name}.csv.gz and {name}.json): {there}")
    path, rows = folder / f"{name}.json", folder / f"{name}.csv.gz"
    about = _object(path)
    features, quasi_identifiers = _names(about, "features", path), _names(about, "quasi_identifiers", path)
    sensitive, target = _text(about, "sensitive_attribute", path), _text(about, "target", path)
    described = _types(about, path)
    columns = dict.fromkeys((*features, sensitive, target))
    if lost := [column for column in columns if column not in described]:
        raise InputError(f"{path}: 'columns' does not describe {', '.join(lost)}")
    if lost := sorted(set(columns) - _header(rows)):
        raise InputError(f"{rows} lacks columns that {path.name} asks for: {', '.join(lost)}")
    desired = _value(about, "desired_outcome", path)
    source = _value(about, "source", path)
    if not isinstance(source, dict):
        raise InputError(f"{path}: 'source' is no object with 'original'")
    return Description(
        name=name,
        rows=rows,
        types={column: described[column] for column in columns},
        features=features,
        quasi_identifiers=quasi_identifiers,
        sensitive=sensitive,
        target=target,
        desired=desired if described[target] == "numeric" else str(desired),
        source=_short(_text(source, "original", path), 210),
    )


def _short(text: str, width: int) -> str:
    return shorten(text, width, placeholder=" ...", break_on_hyphens=False)


def _names_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the one that holds NAME.csv.gz and NAME.json of each table")
    return sorted(path.stem for path in folder.glob("*.json") if path.with_suffix(".csv.gz").is_file())


def _object(path: Path) -> Mapping[str, Any]:
    try:
        about = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({type(error).__name__})") from None
    if not isinstance(about, dict):
        raise InputError(f"{path} holds no JSON object")
    return about


def _value(about: Mapping[str, Any], key: str, path: Path) -> Any:
    if about.get(key) is None:
        raise InputError(f"{path} lacks the key '{key}'")
    return about[key]


def _text(about: Mapping[str, Any], key: str, path: Path) -> str:
    found = _value(about, key, path)
    if not isinstance(found, str):
        raise InputError(f"{path}: '{key}' is no text")
    return found


def _names(about: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    found = _value(about, key, path)
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise InputError(f"{path}: '{key}' is no list of column names")
    return tuple(found)


def _types(about: Mapping[str, Any], path: Path) -> dict[str, str]:
    columns = _value(about, "columns", path)
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise InputError(f"{path}: 'columns' is no list of objects with 'name' and 'type'")
    types = {_text(column, "name", path): _text(column, "type", path) for column in columns}
    if strange := [name for name, kind in types.items() if kind not in _TYPES]:
        raise InputError(f"{path}: the type of {', '.join(strange)} is none of {', '.join(_TYPES)}")
    return types


def _header(rows: Path) -> set[str]:
    try:
        return set(pd.read_csv(rows, nrows=0).columns)
    except _UNREADABLE as error:
        raise _unreadable(rows, error) from None


def _unreadable(rows: Path, error: Exception) -> InputError:
    # Messages of pandas may quote a field.
    return InputError(f"{rows} cannot be read as a gzipped CSV file with one header line ({type(error).__name__})")
