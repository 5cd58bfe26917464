"""Tables of the published experiments, from a folder or from OpenML, one at a time."""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from importlib.resources import files
from math import nan
from numbers import Real
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.error import HTTPError, URLError

import pandas as pd
import yaml

from cfk_plugin.errors import InputError

NAMES = ("adult", "cmc", "german", "heart", "hospital", "informs")
"""Tables of the paper, in the order in which it prints them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """Rows and what each column is for. Host side only: its `repr` shows counts.

    Attributes
    ----------
    name : str
        One of `NAMES`.
    frame : DataFrame
        The features and the target. Columns that are no numbers hold text; missing values are missing.
    features, quasi_identifiers : tuple of str
        Columns to model with; those of them that are publicly known.
    sensitive : str
        The column whose rarest category is the minority group; a column of `frame`.
    target : str
        The column to predict.
    desired : hashable
        The value of the target that a counterfactual is to reach.
    source : str
        Where the rows are from, in one line, as a reader may look it up.
    """

    name: str
    frame: pd.DataFrame
    features: tuple[str, ...]
    quasi_identifiers: tuple[str, ...]
    sensitive: str
    target: str
    desired: Hashable
    source: str

    def __post_init__(self) -> None:
        """Check that the columns are there and the desired outcome occurs."""
        wanted = {*self.features, self.sensitive, self.target}
        if lost := sorted(wanted - set(self.frame.columns)):
            raise InputError(f"{self.name}: the table lacks the column {', '.join(lost)}")
        if strange := sorted(set(self.quasi_identifiers) - set(self.features)):
            raise InputError(f"{self.name}: quasi-identifiers that are no features: {', '.join(strange)}")
        if not (self.frame[self.target] == self.desired).any():
            raise InputError(f"{self.name}: no row of {self.target} has the desired outcome; check the description")

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Table({self.name}, {len(self.frame)} rows, {len(self.features)} features)"

    @property
    def sha256(self) -> str:
        """Digest of rows and roles: the same for whoever has the same table."""
        roles = repr((self.features, self.quasi_identifiers, self.sensitive, self.target, self.desired))
        return hashlib.sha256((roles + self.frame.to_csv(index=False)).encode()).hexdigest()


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


_WAY_OUT = "give a folder that has the tables: --data FOLDER"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """One entry of ``openml.yaml``, which says what its parts mean."""

    data_id: str
    quasi_identifiers: Sequence[str]
    sensitive: str
    target: str
    desired: str
    columns: Mapping[str, Mapping[str, Any]]


def require_copies(names: Sequence[str]) -> None:
    """Refuse tables that OpenML has no copy of, before anything is loaded.

    Parameters
    ----------
    names : sequence of str

    Raises
    ------
    InputError
        If there is one of which no copy is known.
    """
    if lost := [name for name in names if name not in _copies()]:
        raise InputError(f"OpenML has {', '.join(_copies())}, but no copy of {', '.join(lost)}; {_WAY_OUT}")


def fetch_table(name: str, cache: Path | None = None) -> Table:
    """Load a table from OpenML, or from scikit-learn's cache where it was loaded before.

    Columns and categories get the names that they have in a folder, so that results compare; rows are OpenML's, in its
    order.

    Parameters
    ----------
    name : {"adult", "cmc", "german", "heart"}
    cache : Path, optional
        Folder in which scikit-learn keeps what it loads. Default: scikit-learn's own, ``~/scikit_learn_data`` or what
        the environment variable ``SCIKIT_LEARN_DATA`` says.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If OpenML has no copy, cannot be reached, or its copy is not the one that is known here: a column or a category
        is missing or new. The message names columns, never a value.
    """
    require_copies((name,))
    copy = _copies()[name]
    found, details = _fetched(name, copy, cache)
    theirs = {ours: str(column.get("number") or column["text"]) for ours, column in copy.columns.items()}
    if lost := [column for column in theirs.values() if column not in found.columns]:
        raise InputError(f"{name}: {_changed(copy)}: it lacks the column {', '.join(lost)}; {_WAY_OUT}")
    told = {}
    for ours, column in copy.columns.items():
        try:
            told[ours] = _told(found[theirs[ours]], column)
        except (ValueError, TypeError, KeyError):
            what = "something that is no number" if "number" in column else "a category that it did not have"
            raise InputError(f"{name}: {_changed(copy)}: its column {theirs[ours]} holds {what}; {_WAY_OUT}") from None
    return Table(
        name=name,
        frame=pd.DataFrame(told),
        features=tuple(ours for ours in copy.columns if ours != copy.target),
        quasi_identifiers=tuple(copy.quasi_identifiers),
        sensitive=copy.sensitive,
        target=copy.target,
        desired=copy.desired,
        source=f"OpenML data set {copy.data_id} ({details}), https://www.openml.org/d/{copy.data_id}",
    )


@once
def _copies() -> Mapping[str, _Copy]:
    # The base loader leaves `yes`, `no` and numbers the text that stands there.
    text = (files(__package__) / "openml.yaml").read_text("utf-8")
    return {name: _Copy(**entry) for name, entry in yaml.BaseLoader(text).get_single_data().items()}


def _fetched(name: str, copy: _Copy, cache: Path | None) -> tuple[pd.DataFrame, str]:
    """Return OpenML's table as it is there, and its name, version and terms."""
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            # It tries again some times; when none works, one error says so.
            warnings.filterwarnings("ignore", message="A network error occurred")
            home = None if cache is None else str(cache)
            # The faster parser stops at categories that pandas takes for numbers, of which cmc is full.
            bunch = fetch_openml(data_id=int(copy.data_id), data_home=home, as_frame=True, parser="liac-arff")
    except Exception as error:  # noqa: BLE001 - network, disk and parser fail in many ways, with the same way out
        what = f"OpenML's data set {copy.data_id} could not be loaded ({_reason(error)})"
        raise InputError(f"{name}: {what}; check the connection, or {_WAY_OUT}") from None
    about = bunch.details
    told = (about.get("name"), f"version {about.get('version')}", f"licence: {about.get('licence') or 'not told'}")
    return bunch.frame, ", ".join(" ".join(str(part).split()) for part in told)


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"HTTP status {error.code}"
    # Other messages may quote what was read.
    return str(error.reason) if isinstance(error, URLError) else type(error).__name__


def _told(column: pd.Series[Any], told: Mapping[str, Any]) -> pd.Series[Any]:
    """Return a column in our words: numbers, whole ones as integers, or text."""
    if "number" in told:
        numbers = pd.to_numeric(column.astype(object)).astype(float)
        whole = bool((numbers % 1 == 0).all())
        return numbers.astype("int64") if whole else numbers
    words = {value: _word(value, told.get("spelled")) for value in column.dropna().unique()}
    return pd.Series([words.get(value, nan) for value in column], index=column.index)


def _word(value: Any, spelled: Mapping[str, str] | None) -> str:
    # Depending on its header, codes of categories arrive as text or as numbers.
    text = f"{float(value):g}" if isinstance(value, Real) else str(value)
    return text if spelled is None else spelled[text]


def _changed(copy: _Copy) -> str:
    return f"OpenML's data set {copy.data_id} is not the one that is known"


def load(names: Sequence[str], data: Path | None = None, cache: Path | None = None) -> Iterator[Table]:
    """Return the tables in turn; each is loaded when it is asked for, and none is kept.

    What can be checked without rows is checked at once: a name that is not there fails before hours of work.

    Parameters
    ----------
    names : sequence of str
    data : Path, optional
        Folder with ``NAME.csv.gz`` and ``NAME.json`` of each table. Default: OpenML, which has no copy of hospital
        and informs.
    cache : Path, optional
        Where scikit-learn keeps what it loads from OpenML, see `openml.fetch_table`.

    Returns
    -------
    iterator of Table
        In the order of `names`.

    Raises
    ------
    InputError
        At once, or when a table's turn comes, if it cannot be had.
    """
    if data is None:
        require_copies(names)
        return (fetch_table(name, cache) for name in names)
    for name in names:
        describe(name, data)
    return (read_table(name, data) for name in names)
