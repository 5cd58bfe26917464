"""How long audits may take, as people write it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfk_plugin.errors import InputError

NAMED: Mapping[str, float] = {"fast": 180.0, "full": 1800.0}
"""Budgets with a name, in seconds."""

_SECONDS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """Read a budget: ``fast``, ``full``, or a number with its unit, ``90s``, ``5m``, ``1.5h``.

    Raises
    ------
    InputError
        If it is none of these, or 0.
    """
    if (known := NAMED.get(text.strip().lower())) is not None:
        return known
    read = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip().lower())
    seconds = float(read[1]) * _SECONDS[read[2]] if read else 0.0
    if seconds <= 0:
        raise InputError(f"a budget is a time such as 90s, 5m or 1h, or {' or '.join(NAMED)}; got {text!r}")
    return seconds


def said(seconds: float) -> str:
    """Write a time for people: ``40 seconds``, ``3 minutes``, ``1.5 hours``."""
    if seconds < 90:
        return f"{max(seconds, 2):.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
