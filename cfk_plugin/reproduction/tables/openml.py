"""Tables from OpenML through scikit-learn, told in the words of the published experiments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from importlib.resources import files
from math import nan
from numbers import Real
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pandas as pd
import yaml

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.tables.table import Table

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
