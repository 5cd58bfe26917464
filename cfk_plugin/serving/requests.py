"""Answer requests to a protected model; failures are reported with constant texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE

from cfk_plugin.data.call_rules import most_changes
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.wording import Wording, shipped_languages
from cfk_plugin.errors import CFKError, InputError, listed, quiet, serving
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explainer import ProtectedExplainer

_log = logging.getLogger("cfk_plugin")

# The constant texts of errors. Names of columns are added to one of them.
NO_TABLE = "the request contains no table of queries"
TOO_MANY = "the request contains too many queries; send fewer in a request"
COLUMNS = "the queries must have every feature of the model's signature once"
CHANGES = "max_changes must be a whole number of at least 1"
LANGUAGE = f"language must be one of {', '.join(shipped_languages())}"
FAILED = "the explanation could not be made"


class RequestError(MlflowException, CFKError):
    """The error of a whole request, with one of the constant texts above.

    MLflow's server answers it with the status 400, or 500 if `ours`: the request is not at fault.
    It is an exception of MLflow, because the server shows a stack trace for any other exception.
    """

    def __init__(self, message: str, *, ours: bool = False) -> None:
        super().__init__(message, error_code=INTERNAL_ERROR if ours else INVALID_PARAMETER_VALUE)

    @property
    def message(self) -> str:
        """The constant text. Later assignments are ignored: MLflow's server adds the queries."""
        return self._constant

    @message.setter
    def message(self, text: str) -> None:
        self._constant = getattr(self, "_constant", text)


def answer_request(
    explainer: ProtectedExplainer,
    queries: object,
    params: Mapping[str, Any] | None,
    most: int,
) -> dict[str, Any]:
    """Answer the queries of a request.

    Parameters
    ----------
    explainer : ProtectedExplainer
    queries : object
        The table of queries in the request, or any other object, which is rejected.
    params : mapping, optional
        ``language`` and ``max_changes``.
    most : int
        The largest number of queries in a request.

    Returns
    -------
    dict
        The content of `Explanations.to_json`, with a sentence for each explanation. If a query
        cannot be answered, only its explanation is withheld.

    Raises
    ------
    RequestError
        If the whole request is invalid or fails. It has no context, and no value of a row.
    """
    with _constant_errors():
        params = params or {}
        schema = explainer.anonymizer.schema_
        wording = _wording(schema, params)
        limit = _max_changes(params)
        frame = _features(queries, schema, most)
        with serving():
            explanations = explainer.explain(frame, max_changes=limit)
        if isinstance(explainer.anonymizer, KAnonymizer):
            frame = explainer.anonymizer.codes_.conform(frame)  # so that sentences format dates
        content: dict[str, Any] = json.loads(explanations.to_json_with_sentences(frame, wording))
        return content


@contextmanager
def _constant_errors() -> Iterator[None]:
    """Turn any exception into a `RequestError` with a constant text and no context."""

    def error_of(failure: str) -> RequestError:
        _log.warning("a request failed: %s", failure)  # only the class of the exception
        return RequestError(FAILED, ours=True)

    # `quiet` calls `error_of` like a class. `is_public`, because the requester sees the error.
    with quiet("{}", error_of, let=RequestError, is_public=True):  # type: ignore[arg-type]
        yield


def _features(queries: object, schema: Schema, most: int) -> pd.DataFrame:
    """Return the features of a table of queries, in the schema's order; raise if it is invalid."""
    if not isinstance(queries, pd.DataFrame) or not len(queries):
        raise RequestError(NO_TABLE)
    if len(queries) > most:
        raise RequestError(TOO_MANY)
    names = list(queries.columns)
    faulty = [name for name in schema.features if names.count(name) != 1]
    if faulty:
        raise RequestError(f"{COLUMNS}; missing or duplicate: {listed(faulty)}")
    frame = queries[list(schema.features)].reset_index(drop=True)
    return frame.map(_unicode)


def _unicode(value: Any) -> Any:
    """Replace lone surrogates in a text: JSON requests can contain them, but answers cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


def _wording(schema: Schema, params: Mapping[str, Any]) -> Wording:
    """Return the schema's wording in the language that the request names."""
    language = params.get("language")
    if language is None:
        return schema.wording
    # only a shipped language, because the server would read the file at a path
    if language not in shipped_languages():
        raise RequestError(LANGUAGE)
    return replace(schema.wording, language=language)


def _max_changes(params: Mapping[str, Any]) -> int | None:
    """Return the largest number of changes in an answer; None for any number."""
    try:
        return most_changes(params.get("max_changes"))
    except InputError:
        raise RequestError(CHANGES) from None
