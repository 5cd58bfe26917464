"""The six tables of the paper, read from a folder of CSV files."""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cfk_plugin.errors import HostOnly, InputError

DESCRIPTIONS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("tables.toml").read_text(encoding="utf-8")
)
"""The role of each column by table, and where the rows come from; see ``tables.toml``."""

NAMES = tuple(DESCRIPTIONS)
"""The names of the tables, in the order of the paper."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Table(HostOnly):
    """Rows, and the roles of their columns."""

    name: str
    frame: pd.DataFrame  # columns that are no numbers hold text; missing values stay missing
    features: tuple[str, ...]
    quasi_identifiers: tuple[str, ...]  # the features that an adversary knows
    sensitive: str  # its rarest category is the minority group
    target: str  # the column that the model predicts
    desired: str  # the value of the target that counterfactuals should reach
    source: str  # where the rows come from, for readers

    def _counts(self) -> str:
        return f"{self.name}, {len(self.frame)} rows, {len(self.features)} features"


def read_table(name: str, folder: Path) -> Table:
    """Read the table ``NAME.csv.gz`` of a folder.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    folder : Path

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If the file is missing, cannot be read, or does not have the columns that ``tables.toml``
        describes. The message names the file and the column, and never a value.
    """
    description = DESCRIPTIONS[name]
    columns = [*description["features"], description["sensitive"], description["target"]]
    columns = list(dict.fromkeys(columns))  # the sensitive column is usually a feature
    path = folder / f"{name}.csv.gz"
    if not path.is_file():
        raise InputError(f"{path} does not exist; DATA is the folder with the tables of the paper")
    text_columns = [column for column in columns if column not in description["numeric"]]
    frame = _read_csv(path, text_columns)
    missing_columns = [column for column in columns if column not in frame.columns]
    if missing_columns:
        raise InputError(f"{path} lacks the columns {', '.join(missing_columns)}")
    for column in description["numeric"]:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            raise InputError(f"{path}: the column {column} holds values that are not numbers")
    target = description["target"]
    if frame[target].isna().any():
        raise InputError(f"{path}: the target, column {target}, has missing values")
    if not (frame[target] == description["desired"]).any():
        raise InputError(f"{path}: no row has the desired outcome in the column {target}")
    return Table(
        name=name,
        frame=frame[columns],
        features=tuple(description["features"]),
        quasi_identifiers=tuple(description["quasi_identifiers"]),
        sensitive=description["sensitive"],
        target=target,
        desired=description["desired"],
        source=description["source"],
    )


def _read_csv(path: Path, text_columns: list[str]) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=dict.fromkeys(text_columns, str))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        # The messages of pandas may quote a field, so only the type of the error is named.
        raise InputError(f"{path} cannot be read as CSV ({type(error).__name__})") from None
    if not isinstance(frame.index, pd.RangeIndex):
        # pandas takes the first fields for names of rows.
        raise InputError(f"{path}: rows have more fields than the header")
    return frame
