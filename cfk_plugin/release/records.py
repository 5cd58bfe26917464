"""One flat record per explanation, for served models and Spark.

Spark needs the same keys and types in each record, so withheld explanations have them too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Codes, Floats
from cfk_plugin.data.region import Interval, Part, json_value
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.release.results import Explanation, PrototypeCounterfactual, Released, Withheld

_log = logging.getLogger("cfk_plugin")
_STRICT = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

FEATURE: Mapping[str, str] = MappingProxyType(
    {
        "name": "text",
        "kind": "text",
        "low": "number?",
        "high": "number?",
        "values": "texts",
        "missing": "flag",
        "advised": "text?",
    }
)
"""Keys of one feature and their types; ``?`` marks a value that may be None."""

RECORD: Mapping[str, str] = MappingProxyType(
    {
        "query": "whole",
        "status": "text",
        "reason": "text?",
        "sentence": "text?",
        "k": "whole?",
        "ncp": "number?",
        "pureness": "number?",
        "features": "features",
    }
)
"""Keys of a record and their types; ``features`` is a list of `FEATURE`."""


def records_of(
    entries: Iterable[Explanation], rows: Floats, codes: Codes, schema: Schema
) -> list[dict[str, Any]]:
    """Return the record of each explanation.

    Parameters
    ----------
    entries : iterable of Explanation
    rows : shape (n_queries, n_features)
        The codes of the queries.
    codes : Codes
    schema : Schema
    """
    return [
        record_of(entry, _person(rows[entry.query], codes), schema.features, schema.wording)
        for entry in entries
    ]


def _person(row: Floats, codes: Codes) -> dict[str, Any]:
    """Return a query's values by feature, as Python objects; None if a value is missing."""
    return {
        column.name: None if np.isnan(code) else column.value(code)
        for column, code in zip(codes.columns, row.tolist(), strict=True)
    }


def record_of(
    entry: Explanation,
    factual: Mapping[str, Any] | None,
    names: Sequence[str],
    wording: Wording | None = None,
) -> dict[str, Any]:
    """Return the record of one explanation, with values that JSON can contain.

    If the explanation cannot be written as JSON, the record is that of a withheld one.

    Parameters
    ----------
    entry : Explanation
    factual : mapping of feature to value, optional
        The query, for the sentence; without it, the sentence is None.
    names : sequence of str
        The features, in the order of the record.
    wording : Wording, optional
        By default, the wording of the explanation.
    """
    try:
        with quiet("{}", CFKError):
            record = _record(entry, factual, names, wording)
            _STRICT.encode(record).encode()  # raises if JSON or UTF-8 cannot contain a value
            return record
    except CFKError as failure:  # its message is only the class of the exception
        _log.warning("an explanation is withheld because it cannot be written: %s", failure)
    return _record(Withheld(entry.query, "protector_failed"), None, (), wording)


def _record(
    entry: Explanation,
    factual: Mapping[str, Any] | None,
    names: Sequence[str],
    wording: Wording | None,
) -> dict[str, Any]:
    record: dict[str, Any] = dict.fromkeys(RECORD)
    record |= {"query": entry.query, "status": entry.status, "features": []}
    if isinstance(entry, Withheld):
        return record | {"reason": entry.reason, "sentence": entry.text(wording=wording)}
    if factual is not None:
        record["sentence"] = entry.text(factual, wording)
    for name in ("k", "ncp", "pureness"):
        record[name] = getattr(entry.certificate, name, None)
    parts = entry.parts()
    advised = _advised(entry)
    record["features"] = [_feature(name, parts[name], advised.get(name)) for name in names]
    return record


def _advised(entry: Released) -> Mapping[str, Any]:
    """Return the values that an explanation advises, by feature."""
    if isinstance(entry, PrototypeCounterfactual):
        return entry.values
    return {**entry.advised, **entry.released}


def _feature(name: str, part: Part, advised: Any) -> dict[str, Any]:
    """Return the entry of one feature in a record, with the keys of `FEATURE`."""
    feature: dict[str, Any] = {
        "name": name,
        "kind": "set",
        "low": None,
        "high": None,
        "values": [],
        "missing": False,
        "advised": None if advised is None else _text(advised),
    }
    if not isinstance(part, Interval):
        values = sorted(_text(value) for value in part if not pd.isna(value))
        return feature | {"values": values, "missing": None in part}
    feature |= {"kind": "number", "missing": part.missing}
    if part.levels is not None:
        ends = [*part.levels[:1], *part.levels[-1:]]  # empty if only missing values are inside
        return feature | {"kind": "rank", "values": ends}
    if isinstance(part.low, (date, np.datetime64)):
        return feature | {"kind": "date", "values": [_text(part.low), _text(part.high)]}
    if part.low is not None:
        feature |= {"low": float(part.low), "high": float(part.high)}
    return feature


def _text(value: Any) -> str:
    """Return a value as text, with dates in ISO 8601."""
    return str(json_value(value))
