"""A request's body as a table of queries; whatever it holds, an error says no word of it."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from cfk_plugin.serving.desk import NO_TABLE, PARAMS, RequestError

JSON = "application/json"
NOT_JSON = "the body is not valid JSON"
SHAPE = 'the body must be {"dataframe_split": {"columns": [...], "data": [[...]]}} or {"dataframe_records": [{...}]}'
_KEYS = {"dataframe_split", "dataframe_records", "params"}


def read_body(body: bytes) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the queries and the parameters of a JSON request in MLflow's form.

    Parameters
    ----------
    body : bytes

    Returns
    -------
    queries : DataFrame
    params : dict

    Raises
    ------
    RequestError
        If the body is no JSON or has another form. The message is constant, and the error has no context.
    """
    request = _parsed(body)
    if not isinstance(request, dict) or set(request) - _KEYS or len(set(request) - {"params"}) != 1:
        raise RequestError(SHAPE)
    params = request.pop("params", None) or {}
    if not isinstance(params, dict):
        raise RequestError(PARAMS)
    ((form, content),) = request.items()
    rows = _records(content) if form == "dataframe_records" else _split(content)
    return _table(rows), params


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        pass
    raise RequestError(NOT_JSON)


def _split(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, dict) or set(content) - {"columns", "data", "index"}:
        raise RequestError(SHAPE)
    names, data = content.get("columns"), content.get("data")
    if not isinstance(names, list) or not isinstance(data, list) or not all(isinstance(name, str) for name in names):
        raise RequestError(SHAPE)
    if len(set(names)) != len(names) or not all(isinstance(row, list) and len(row) == len(names) for row in data):
        raise RequestError(SHAPE)
    return [dict(zip(names, row, strict=True)) for row in data]


def _records(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise RequestError(SHAPE)
    return content


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    if not rows or not rows[0]:
        raise RequestError(NO_TABLE)
    if any(set(row) != set(rows[0]) for row in rows) or any(_nested(value) for row in rows for value in row.values()):
        raise RequestError(SHAPE)
    return pd.DataFrame(rows)


def _nested(value: Any) -> bool:
    return isinstance(value, (list, dict))
