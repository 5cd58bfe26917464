"""The figures that the paper prints, from ``published.toml``: shares in [0, 1], times in seconds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PrintedMethod = Literal["cf-k", "mondrian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedTable:
    """A column of Table 5: the description of a table."""

    rows: int
    unique: float  # share of the rows, as in `TableSummary`
    below_10: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedResult:
    """A column of one of the Tables 6, 7 and 9 to 12: means over explanations."""

    source: str  # which table
    ncp: float
    pureness: float
    seconds: float
    cdm: float
    cdm_per_explanation: float
    cm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedDistance:
    """A column of Table 8: mean distances to the nearest and to the five nearest training rows."""

    method: str
    k: int | None = None  # None for NICE
    nearest: float
    nearest_5: float


_PRINTED: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
)
_IN_PERCENT = ("unique", "below_10", "ncp", "pureness")


def _columns_by_table(rows: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values of each table by name, from lists with one value per table."""
    columns: dict[str, dict[str, Any]] = {}
    for position, table in enumerate(_PRINTED["tables"]):
        columns[table] = {}
        for name, values in rows.items():
            value = values[position]
            if name in _IN_PERCENT:
                value = round(value / 100, 6)  # 0.55 / 100 is not 0.0055 in floating point
            columns[table][name] = value
    return columns


def _results() -> dict[tuple[PrintedMethod, int, str], PrintedResult]:
    results: dict[tuple[PrintedMethod, int, str], PrintedResult] = {}
    for printed in _PRINTED["methods"]:
        rows = {name: values for name, values in printed.items() if isinstance(values, list)}
        for table, column in _columns_by_table(rows).items():
            key = (printed["method"], printed["k"], table)
            results[key] = PrintedResult(source=printed["source"], **column)
    return results


PAPER: str = _PRINTED["paper"]
MACHINE: str = _PRINTED["machine"]

TABLES: Mapping[str, PrintedTable] = {
    table: PrintedTable(**column) for table, column in _columns_by_table(_PRINTED["data"]).items()
}
RESULTS: Mapping[tuple[PrintedMethod, int, str], PrintedResult] = _results()
"""By method, k and table."""

DISTANCES = tuple(PrintedDistance(**column) for column in _PRINTED["plausibility"])
"""Measured only on german."""
