"""Copies of a plugin's proposals, made of the population's values before anything uses them.

Only exact types are accepted, and each attribute is read once: an object of a subclass could return
one value to the verification and another to the release.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import date
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Codes, Column
from cfk_plugin.data.region import Interval, Part, Region, to_number, to_text
from cfk_plugin.errors import PluginError, quiet
from cfk_plugin.hookspecs import Proposal

_log = logging.getLogger("cfk_plugin")


def rebuild(proposal: Proposal, codes: Codes) -> Proposal | None:
    """Return a copy of a proposal made of the population's values; None if it is malformed."""
    try:
        with quiet("a proposed region is malformed", PluginError):
            region = proposal.region
            gap = proposal.gap
            return Proposal(
                region=_rebuilt_region(region, codes),
                optimal=proposal.optimal is True,
                gap=_rebuilt_gap(gap),
            )
    except PluginError as error:
        _log.debug("%s", error)
        return None


def _rebuilt_gap(gap: Any) -> float | None:
    return None if gap is None else float(gap)


def _rebuilt_region(region: Any, codes: Codes) -> Region | None:
    """Return a copy of a region, or None for None; raise if it is malformed."""
    if region is None:
        return None
    columns = [column for column in codes.columns if column.is_quasi_identifier]
    if (
        type(region) is not Region
        or type(region.parts) is not dict
        or len(region.parts) != len(columns)
    ):
        raise TypeError("not a Region over the quasi-identifiers")
    parts = region.parts.copy()
    return Region({column.name: rebuilt_part(parts[column.name], column) for column in columns})


def rebuilt_part(part: Part, column: Column) -> Part:
    """Return a copy of a region's part made of the column's values; raise if it is malformed."""
    if not column.is_line:
        return _rebuilt_set(part, column)
    if type(part) is not Interval:
        raise TypeError("not an Interval")
    may_be_missing = part.missing is True and column.has_missing
    levels = part.levels
    if column.kind == "ordinal":
        return _rebuilt_levels(levels, may_be_missing, column)
    if levels is not None:
        raise TypeError("levels belong to ordinal attributes")
    low = part.low
    high = part.high
    if low is None and high is None:
        return Interval(None, None, may_be_missing)
    return Interval(
        column.value(_finite_number(low)), column.value(_finite_number(high)), may_be_missing
    )


def _rebuilt_set(part: Any, column: Column) -> frozenset[Any]:
    if type(part) is not frozenset:
        raise TypeError("not a frozenset")
    values = {column.value(code) for code in _codes(column, part - {None})}
    if None in part and column.has_missing:
        values.add(None)
    return frozenset(values)


def _rebuilt_levels(levels: Any, may_be_missing: bool, column: Column) -> Interval:
    if type(levels) is not tuple:
        raise TypeError("not a tuple of levels")
    codes = _codes(column, levels)
    if not codes:
        return Interval(None, None, may_be_missing, ())
    first = int(codes[0])
    last = int(codes[-1])
    if codes != [float(code) for code in range(first, first + len(codes))]:
        raise TypeError("levels must be neighbours")
    rebuilt_levels = tuple(to_text(level) for level in column.values[first : last + 1])
    return Interval(rebuilt_levels[0], rebuilt_levels[-1], may_be_missing, rebuilt_levels)


def _codes(column: Column, values: Iterable[Any]) -> list[float]:
    """Return the codes of categories or levels; raise if one is not in the population."""
    codes = column.encode(pd.Series([*values], dtype=object))
    if np.isnan(codes).any():
        raise TypeError("a value is not in the population")
    return [float(code) for code in codes]


def _finite_number(value: Any) -> float:
    """Return a bound of a range as a number; raise if it is not a finite number or a date."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, date)):
        raise TypeError("not a number or date")
    number = to_number(value)
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number
