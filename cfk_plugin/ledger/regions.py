"""Regions as text: one form to store, that reads back as an equal region, and one to compare."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger.keys import Key
from cfk_plugin.region import Interval, Part, Region, natural, part_from_dict

_UNREADABLE = "a region in the ledger cannot be read; restore the database from a backup"


def encode(region: Region) -> str:
    """Return a region as JSON: its released form, with what JSON has no type for marked (dates, decimals).

    Raises
    ------
    LedgerError
        If the region would not read back as an equal one.
    """
    text = json.dumps({name: _part(part, _stored) for name, part in region.items()}, ensure_ascii=True)
    if decode(text) != region:
        raise LedgerError("a region holds values that the ledger cannot keep; use numbers, dates, texts or booleans")
    return text


def decode(text: str) -> Region:
    """Read back what `encode` wrote."""
    try:
        return Region({name: part_from_dict(_restored(part)) for name, part in json.loads(text).items()})
    except Exception as error:  # noqa: BLE001 - its text may quote the region
        failure = type(error).__name__
    raise LedgerError(f"{_UNREADABLE} ({failure})")


def identity(region: Region) -> str:
    """Return a text that two regions share exactly if they are equal; 3, 3.0 and True are equal in Python."""
    parts = {name: _part(part, _compared) for name, part in region.items()}
    for part in parts.values():
        if part["kind"] == "set":
            part["values"].sort(key=json.dumps)
    return json.dumps(parts, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def region_digest(key: Key, region: Region) -> str:
    """Return the keyed hash of a region; equal regions have the same, and nobody can try regions without the key."""
    return key.digest("region", identity(region))


def _part(part: Part, write: Callable[[Any], Any]) -> dict[str, Any]:
    if isinstance(part, Interval):
        out: dict[str, Any] = {"kind": "interval", "low": write(part.low), "high": write(part.high)}
        if part.levels is not None:
            out["levels"] = [str(level) for level in part.levels]
        return {**out, "missing": True} if part.missing else out
    values = [write(value) for value in part]
    return {"kind": "set", "values": sorted(values, key=json.dumps)}


def _stored(value: Any) -> Any:
    plain = natural(pd.Timestamp(value) if isinstance(value, np.datetime64) else value)
    if plain is None or isinstance(plain, (bool, int)):
        return plain
    if isinstance(plain, str):
        return str(plain)
    if isinstance(plain, float) and math.isfinite(plain):
        return plain
    if isinstance(plain, datetime):
        return {"time": pd.Timestamp(plain).isoformat()}
    if isinstance(plain, date):
        return {"date": plain.isoformat()}
    if isinstance(plain, Decimal) and plain.is_finite():
        return {"decimal": str(plain)}
    raise LedgerError(
        f"a region holds values of type {type(plain).__name__}, which the ledger cannot keep; "
        "use numbers, dates, texts or booleans"
    )


def _compared(value: Any) -> Any:
    stored = _stored(value)
    if isinstance(stored, dict) and "time" in stored:
        moment = pd.Timestamp(stored["time"])
        return {"time": (moment if moment.tz is None else moment.tz_convert("UTC")).isoformat()}
    number = Decimal(stored["decimal"]) if isinstance(stored, dict) and "decimal" in stored else stored
    if isinstance(number, (bool, int, float, Decimal)):
        if number == int(number):
            return int(number)
        return float(number) if number == float(number) else {"decimal": str(number.normalize())}  # type: ignore[union-attr]
    return stored


def _restored(part: dict[str, Any]) -> dict[str, Any]:
    out = dict(part)
    if out["kind"] == "set":
        out["values"] = [_value(v) for v in out["values"]]
    else:
        out["low"], out["high"] = _value(out["low"]), _value(out["high"])
    return out


def _value(stored: Any) -> Any:
    if not isinstance(stored, dict):
        return stored
    ((kind, text),) = stored.items()
    readers: dict[str, Callable[[str], Any]] = {
        "time": pd.Timestamp,
        "date": date.fromisoformat,
        "decimal": Decimal,
    }
    return readers[kind](text)
