"""Tables of the published experiments, from a folder or from OpenML, one at a time."""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from math import nan
from numbers import Real
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.error import HTTPError, URLError

import pandas as pd
import yaml

from cfk_plugin.errors import HostOnly, InputError

NAMES = ("adult", "cmc", "german", "heart", "hospital", "informs")
"""Tables of the paper, in its order."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table(HostOnly):
    """Rows and the roles of columns; non-numeric columns hold text, and missing values stay
    missing.
    """

    name: str
    frame: pd.DataFrame
    features: tuple[str, ...]
    quasi_identifiers: tuple[str, ...]  # publicly known features
    sensitive: str  # its rarest category is the minority group
    target: str  # to predict
    desired: Hashable  # the value of the target that counterfactuals should reach
    source: str  # origin of the rows, in one line for readers

    def __post_init__(self) -> None:
        wanted = {*self.features, self.sensitive, self.target}
        if lost := sorted(wanted - set(self.frame.columns)):
            raise InputError(f"{self.name}: the table lacks the column {', '.join(lost)}")
        if strange := sorted(set(self.quasi_identifiers) - set(self.features)):
            raise InputError(
                f"{self.name}: quasi-identifiers that are no features: {', '.join(strange)}"
            )
        if not (self.frame[self.target] == self.desired).any():
            raise InputError(
                f"{self.name}: no row of {self.target} has the desired outcome; check the"
                " description"
            )

    def _counts(self) -> str:
        return f"{self.name}, {len(self.frame)} rows, {len(self.features)} features"

    @property
    def sha256(self) -> str:
        """Digest of rows and roles: equal for equal tables."""
        roles = repr(
            (self.features, self.quasi_identifiers, self.sensitive, self.target, self.desired)
        )
        return hashlib.sha256((roles + self.frame.to_csv(index=False)).encode()).hexdigest()


_TYPES = ("numeric", "categorical", "ordinal")
_UNREADABLE = (OSError, EOFError, zlib.error, ValueError)


def read_table(name: str, folder: Path) -> Table:
    """Read a table from a folder, non-numbers as text; messages name file and column, never a
    value.
    """
    types, roles = _describe(name, folder)
    rows, target = folder / f"{name}.csv.gz", roles["target"]
    frame = _csv(rows, dtype={column: str for column, kind in types.items() if kind != "numeric"})
    # pandas then reads the first fields as row names
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{rows}: rows have more fields than the header; write one name for each")
    for column, kind in types.items():
        if kind == "numeric" and not pd.api.types.is_numeric_dtype(frame[column]):
            raise InputError(
                f"{rows}: column {column} is described as numeric and holds other things as well"
            )
    if frame[target].isna().any():
        raise InputError(
            f"{rows}: the target, column {target}, has missing values; leave such rows out"
        )
    return Table(name=name, frame=frame[list(types)], **roles)


def _describe(name: str, folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the type of each column to read, and the roles of a `Table`; of the rows, only the
    header is read.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder; give the one that holds NAME.csv.gz and NAME.json of each"
            " table"
        )
    names = sorted(
        path.stem for path in folder.glob("*.json") if path.with_suffix(".csv.gz").is_file()
    )
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "there is none at all"
        raise InputError(f"{folder} has no table {name} ({name}.csv.gz and {name}.json): {there}")
    path, rows = folder / f"{name}.json", folder / f"{name}.csv.gz"
    try:
        about = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({type(error).__name__})") from None
    if not isinstance(about, dict):
        raise InputError(f"{path} holds no JSON object")
    features, quasi_identifiers = (
        tuple(_part(about, n, path, _NAMES)) for n in ("features", "quasi_identifiers")
    )
    sensitive, target = (
        _part(about, name, path, _TEXT) for name in ("sensitive_attribute", "target")
    )
    listed = _part(about, "columns", path, _OBJECTS)
    described = {
        _part(column, "name", path, _TEXT): _part(column, "type", path, _TEXT) for column in listed
    }
    if strange := [column for column, kind in described.items() if kind not in _TYPES]:
        raise InputError(f"{path}: the type of {', '.join(strange)} is none of {', '.join(_TYPES)}")
    columns = dict.fromkeys((*features, sensitive, target))
    if lost := [column for column in columns if column not in described]:
        raise InputError(f"{path}: 'columns' does not describe {', '.join(lost)}")
    if lost := sorted(set(columns) - set(_csv(rows, nrows=0).columns)):
        raise InputError(f"{rows} lacks columns that {path.name} asks for: {', '.join(lost)}")
    desired, source = _part(about, "desired_outcome", path), _part(about, "source", path, _SOURCE)
    return {column: described[column] for column in columns}, {
        "features": features,
        "quasi_identifiers": quasi_identifiers,
        "sensitive": sensitive,
        "target": target,
        "desired": desired if described[target] == "numeric" else str(desired),
        "source": shorten(
            _part(source, "original", path, _TEXT), 210, placeholder=" ...", break_on_hyphens=False
        ),
    }


def _csv(rows: Path, **options: Any) -> pd.DataFrame:
    try:
        frame: pd.DataFrame = pd.read_csv(rows, **options)
    except _UNREADABLE as error:
        # Messages of pandas may quote a field.
        what = f"cannot be read as a gzipped CSV file with one header line ({type(error).__name__})"
        raise InputError(f"{rows} {what}") from None
    return frame


_Form = tuple[Callable[[Any], bool], str]
_TEXT: _Form = (lambda found: isinstance(found, str), "text")
_NAMES: _Form = (
    lambda found: (
        isinstance(found, list) and len(found) > 0 and all(isinstance(name, str) for name in found)
    ),
    "list of column names",
)
_OBJECTS: _Form = (
    lambda found: isinstance(found, list) and all(isinstance(column, dict) for column in found),
    "list of objects with 'name' and 'type'",
)
_SOURCE: _Form = (lambda found: isinstance(found, dict), "object with 'original'")


def _part(about: Mapping[str, Any], key: str, path: Path, form: _Form | None = None) -> Any:
    if (found := about.get(key)) is None:
        raise InputError(f"{path} lacks the key '{key}'")
    if form is not None and not form[0](found):
        raise InputError(f"{path}: '{key}' is no {form[1]}")
    return found


_WAY_OUT = "give a folder that has the tables: --data FOLDER"


def fetch_table(name: str, cache: Path | None = None) -> Table:
    """Load a table from OpenML or scikit-learn's cache, renamed as in a folder of tables; errors
    name columns.
    """
    _require_copies((name,))
    copy = _copies()[name]
    number, columns = copy["data_id"], copy["columns"]
    found, details = _fetched(name, number, cache)
    changed = f"{name}: OpenML's data set {number} is not the one that is known"
    theirs = {ours: str(column.get("number") or column["text"]) for ours, column in columns.items()}
    if lost := [column for column in theirs.values() if column not in found.columns]:
        raise InputError(f"{changed}: it lacks the column {', '.join(lost)}; {_WAY_OUT}")
    renamed = {}
    for ours, column in columns.items():
        try:
            renamed[ours] = _in_our_words(found[theirs[ours]], column)
        except (ValueError, TypeError, KeyError):
            what = (
                "something that is no number"
                if "number" in column
                else "a category that it did not have"
            )
            raise InputError(
                f"{changed}: its column {theirs[ours]} holds {what}; {_WAY_OUT}"
            ) from None
    return Table(
        name=name,
        frame=pd.DataFrame(renamed),
        features=tuple(ours for ours in columns if ours != copy["target"]),
        quasi_identifiers=tuple(copy["quasi_identifiers"]),
        sensitive=copy["sensitive"],
        target=copy["target"],
        desired=copy["desired"],
        source=f"OpenML data set {number} ({details}), https://www.openml.org/d/{number}",
    )


@once
def _copies() -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of ``openml.yaml``, which explains their parts."""
    # The base loader keeps `yes`, `no` and numbers as text.
    text = (Path(__file__).parent / "openml.yaml").read_text("utf-8")
    copies: Mapping[str, Mapping[str, Any]] = yaml.BaseLoader(text).get_single_data()
    return copies


def _require_copies(names: Sequence[str]) -> None:
    if lost := [name for name in names if name not in _copies()]:
        raise InputError(
            f"OpenML has {', '.join(_copies())}, but no copy of {', '.join(lost)}; {_WAY_OUT}"
        )


def _fetched(name: str, number: str, cache: Path | None) -> tuple[pd.DataFrame, str]:
    """Return OpenML's table unchanged, and its name, version and terms."""
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            # It retries several times; if all fail, our error says so.
            warnings.filterwarnings("ignore", message="A network error occurred")
            home = None if cache is None else str(cache)
            # The faster parser fails on categories that pandas reads as numbers, as in cmc.
            bunch = fetch_openml(
                data_id=int(number), data_home=home, as_frame=True, parser="liac-arff"
            )
    except Exception as error:  # noqa: BLE001 - network, disk and parser fail in many ways, with the same way out
        what = f"OpenML's data set {number} could not be loaded ({_reason(error)})"
        raise InputError(f"{name}: {what}; check the connection, or {_WAY_OUT}") from None
    about = bunch.details
    parts = (
        about.get("name"),
        f"version {about.get('version')}",
        f"licence: {about.get('licence') or 'not told'}",
    )
    return bunch.frame, ", ".join(" ".join(str(part).split()) for part in parts)


def _in_our_words(column: pd.Series[Any], entry: Mapping[str, Any]) -> pd.Series[Any]:
    """Return a column as numbers (whole ones as integers), or as text."""
    if "number" in entry:
        numbers = pd.to_numeric(column.astype(object)).astype(float)
        return numbers.astype("int64") if (numbers % 1 == 0).all() else numbers
    spelled = entry.get("spelled")
    words = {}
    for value in column.dropna().unique():
        # Depending on the header, codes of categories arrive as text or as numbers.
        text = f"{float(value):g}" if isinstance(value, Real) else str(value)
        words[value] = text if spelled is None else spelled[text]
    return pd.Series([words.get(value, nan) for value in column], index=column.index)


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"HTTP status {error.code}"
    # Other errors' messages may quote what was read.
    return str(error.reason) if isinstance(error, URLError) else type(error).__name__


def load(
    names: Sequence[str], data: Path | None = None, cache: Path | None = None
) -> Iterator[Table]:
    """Yield the tables in turn; what can be checked without rows is checked first, before hours of
    work.
    """
    if data is None:
        _require_copies(names)
        return (fetch_table(name, cache) for name in names)
    for name in names:
        _describe(name, data)
    return (read_table(name, data) for name in names)
