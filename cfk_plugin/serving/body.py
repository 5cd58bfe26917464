"""A request's body as a table of queries; whatever it holds, an error says no word of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.serving.desk import FAILED, NO_TABLE, PARAMS, RequestError

_log = logging.getLogger("cfk_plugin")

Answer = Callable[..., list[dict[str, Any]]]
"""What answers queries and parameters with records; `Desk.answer`."""

JSON = "application/json"
MOST_BYTES = 10_000_000
TOO_LONG = "the request is too long; send fewer queries at once"
NOT_JSON = "the body is not valid JSON"
SHAPE = 'the body must be {"dataframe_split": {"columns": [...], "data": [[...]]}} or {"dataframe_records": [{...}]}'
_FORMS = ("dataframe_split", "dataframe_records")
_KEYS = {*_FORMS, "params"}
_LOOKED_AT = 100  # characters


def answer_to(body: bytes | str, answer: Answer) -> bytes:
    """Return what is sent back for a request's body: ``{"predictions": [record, ...]}``.

    Raises
    ------
    RequestError
        Whatever fails, and however. It has no context, and of what failed the log has the class.
    """
    try:
        with quiet("{}", CFKError, let=RequestError):
            records = answer(*read_body(body))
            return to_json({"predictions": records})
    except RequestError:
        raise
    except CFKError as failure:
        _log.warning("a request failed: %s", failure)
    raise RequestError(FAILED, ours=True)


def to_json(content: Any) -> bytes:
    """Return content as JSON, as both servers send it."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def is_table(body: bytes | str) -> bool:
    """Say whether a body seems to be in one of the forms that `read_body` reads, without reading it."""
    start = body[:_LOOKED_AT].decode("utf-8", "replace") if isinstance(body, bytes) else body[:_LOOKED_AT]
    return any(f'"{form}"' in start for form in _FORMS)


def read_body(body: bytes | str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the queries and the parameters of a JSON request in MLflow's form.

    Parameters
    ----------
    body : bytes or str

    Returns
    -------
    queries : list of dict
        All with the same keys.
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
    return _checked(rows), params


def _parsed(body: bytes | str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        pass
    raise RequestError(NOT_JSON)  # out here, so that it carries no context


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


def _checked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows or not rows[0]:
        raise RequestError(NO_TABLE)
    if any(row.keys() != rows[0].keys() for row in rows) or any(_nested(v) for row in rows for v in row.values()):
        raise RequestError(SHAPE)
    return rows


def _nested(value: Any) -> bool:
    return isinstance(value, (list, dict))
