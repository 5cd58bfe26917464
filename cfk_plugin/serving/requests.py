"""Answer requests: take the queries, ask the explainer, report failures with constant texts."""

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

# The texts of refusals. One of them is followed by names of columns.
NO_TABLE = "the request holds no table of queries"
TOO_MANY = "the request holds too many queries; send fewer at once"
COLUMNS = "the queries must have every feature of the model's signature, each once"
CHANGES = "max_changes must be a whole number of at least 1"
LANGUAGE = f"language must be one of {', '.join(shipped_languages())}"
FAILED = "the explanation could not be made"


class RequestError(MlflowException, CFKError):
    """A refusal of a whole request, with one of the constant texts above.

    As an exception of MLflow it gets a status from MLflow's server: 400, or 500 if `ours` says that
    the request is not at fault. The server shows a stack trace for other exceptions.
    """

    def __init__(self, message: str, *, ours: bool = False) -> None:
        super().__init__(message, error_code=INTERNAL_ERROR if ours else INVALID_PARAMETER_VALUE)

    @property
    def message(self) -> str:
        """The constant text. Assignments are ignored: MLflow's server would add the queries."""
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
        What the request has in the place of a table.
    params : mapping, optional
        ``language`` and ``max_changes``.
    most : int
        Queries that one request may have.

    Returns
    -------
    dict
        The content of `Explanations.to_json`, with a sentence for each explanation. A query that
        cannot be answered is withheld, and the others are not.

    Raises
    ------
    RequestError
        If the whole request is refused, or fails. It has no context, and no value of a row.
    """
    with _refusing():
        params = params or {}
        schema = explainer.anonymizer.schema_
        wording = _wording(schema, params)
        limit = _max_changes(params)
        frame = _features(queries, schema, most)
        with serving():
            explanations = explainer.explain(frame, max_changes=limit)
        if isinstance(explainer.anonymizer, KAnonymizer):
            frame = explainer.anonymizer.codes_.conform(frame)  # sentences say dates as dates
        content: dict[str, Any] = json.loads(explanations.to_json_with_sentences(frame, wording))
        return content


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a request with a constant text and no context after any failure."""

    def refusal(failure: str) -> RequestError:
        _log.warning("a request failed: %s", failure)  # only the class of the exception
        return RequestError(FAILED, ours=True)

    # `refusal` is called like a class. The requester is not the operator, hence `is_public`.
    with quiet("{}", refusal, let=RequestError, is_public=True):  # type: ignore[arg-type]
        yield


def _features(queries: object, schema: Schema, most: int) -> pd.DataFrame:
    """Return the features of a table of queries."""
    if not isinstance(queries, pd.DataFrame) or not len(queries):
        raise RequestError(NO_TABLE)
    if len(queries) > most:
        raise RequestError(TOO_MANY)
    names = list(queries.columns)
    faulty = [name for name in schema.features if names.count(name) != 1]
    if faulty:
        raise RequestError(f"{COLUMNS}; missing, or there twice: {listed(faulty)}")
    frame = queries[list(schema.features)].reset_index(drop=True)
    return frame.map(_unicode)


def _unicode(value: Any) -> Any:
    """Return a text without halves of characters, which JSON can say and no answer can contain."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


def _wording(schema: Schema, params: Mapping[str, Any]) -> Wording:
    """Return the words of the answers: the schema's, in the language that the request names."""
    language = params.get("language")
    if language is None:
        return schema.wording
    # only a code: a path would be read
    if language not in shipped_languages():
        raise RequestError(LANGUAGE)
    return replace(schema.wording, language=language)


def _max_changes(params: Mapping[str, Any]) -> int | None:
    """Return how many changes answers may ask for; None for any number."""
    try:
        return most_changes(params.get("max_changes"))
    except InputError:
        raise RequestError(CHANGES) from None
