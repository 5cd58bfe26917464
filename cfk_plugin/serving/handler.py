"""Answer requests: check the queries, ask the catalogue, report failures with constant texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE

from cfk_plugin.data.codes import Column, FaultReason, Floats
from cfk_plugin.errors import (
    CFKError,
    PolicyError,
    listed,
    quiet,
    serving,
    shows_errors,
)
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.records import reason_of, records_of
from cfk_plugin.release.results import Withheld
from cfk_plugin.tracking.logger import Track

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cfk_plugin.release.results import Explanation

_log = logging.getLogger("cfk_plugin")

# The texts of refusals. Two of them are followed by names of columns.
NO_TABLE = "the request holds no table of queries"
TOO_MANY = "the request holds too many queries; send fewer at once"
COLUMNS = "the queries must have every feature of the model's signature, each once"
VALUES = "a query holds a missing, unknown, fractional or otherwise impossible value"
PARAMS = "the only parameter is max_changes, a whole number"
CHANGES = "max_changes must be at least 1"
FAILED = "the explanation could not be made"
FAULTS: Mapping[FaultReason, str] = {
    "missing_value": "a missing value",
    "invalid_value": "a value of another type",
    "unknown_category": "an unknown category",
    "outside_domain": "a number outside of what is declared",
}
"""The text for each fault of `Codes.faults`."""
FRACTION = "a fraction"
TOO_LARGE_NUMBER = "a number that is too large"


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


@contextmanager
def refusing(message: str, *, ours: bool = False) -> Iterator[None]:
    """Refuse a request with a constant text and no context after any failure; a `RequestError`
    passes.
    """

    def refusal(failure: str) -> RequestError:
        _log.warning("a request failed: %s", failure)  # only the class of the exception
        return RequestError(message, ours=ours)

    # `refusal` is called like a class. The requester is not the operator, hence `is_public`.
    with quiet("{}", refusal, let=RequestError, is_public=True):  # type: ignore[arg-type]
        yield


class RequestHandler:
    """Answers requests for explanations.

    Thread-safe; every answer is protected, and no message quotes a row.

    Parameters
    ----------
    anonymizer : KAnonymizer
        Fitted, or loaded from a file, with a catalogue.
    most : int
        Queries that one request may hold.
    track : bool, str or RunLogger
        Whether, and where, explanations are logged.
    """

    def __init__(self, anonymizer: KAnonymizer, most: int, track: Track = False) -> None:
        if anonymizer.catalogue_ is None:
            raise PolicyError("requests are answered from a catalogue, and there is none")
        self._anonymizer = anonymizer
        self._codes = anonymizer.catalogue_.codes
        self._most = most
        self._track = track

    def answer(
        self, queries: object, params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return one record per query, see `record_of`, or raise a `RequestError` without
        context.
        """
        with refusing(FAILED, ours=True):
            max_changes = _max_changes(params or {})
            with refusing(VALUES):  # whatever cannot be read is refused
                frame = self._features(queries)
                rows = self._codes.encode(frame)
                self._check(frame, rows)
            entries = self._entries(frame, max_changes)
            return records_of(entries, rows, self._codes, self._anonymizer.schema_)

    def _entries(self, frame: pd.DataFrame, max_changes: int | None) -> Iterable[Explanation]:
        """Return the answers; if the anonymizer raises, every query gets a withheld one."""
        try:
            with quiet("{}", CFKError, let=CFKError), serving():
                return self._anonymizer.explain(frame, max_changes=max_changes, track=self._track)
        except CFKError as failure:
            name = str(failure) if type(failure) is CFKError else type(failure).__name__
            trace = failure if shows_errors() else None
            _log.warning("explanations withheld: %s in the pipeline", name, exc_info=trace)
            reason = reason_of(failure)
        return [Withheld(query, reason) for query in range(len(frame))]

    def _features(self, queries: object) -> pd.DataFrame:
        """Return the features of a table of queries."""
        if not isinstance(queries, pd.DataFrame) or not len(queries):
            raise RequestError(NO_TABLE)
        if len(queries) > self._most:
            raise RequestError(TOO_MANY)
        features = self._codes.names
        names = list(queries.columns)
        missing = [name for name in features if name not in names]
        repeated = [name for name in features if names.count(name) > 1]
        if missing:
            raise RequestError(f"{COLUMNS}; missing: {listed(missing)}")
        if repeated:
            raise RequestError(f"{COLUMNS}; repeated: {listed(repeated)}")
        if len(set(names)) != len(names):
            raise RequestError(COLUMNS)
        return queries[features].reset_index(drop=True)

    def _check(self, frame: pd.DataFrame, rows: Floats) -> None:
        """Refuse impossible values, by the names of the columns; no value is repeated."""
        private = self._anonymizer.schema_.private
        for fault in self._codes.faults(frame, rows):
            if fault is None:
                continue
            is_private = set(fault.columns) <= set(private)
            if fault.reason != "unknown_category" or not is_private:
                raise _impossible(FAULTS[fault.reason], fault.columns)
        for column, numbers in zip(self._codes.columns, rows.T, strict=True):
            if column.is_numeric:
                _check_numbers(column, numbers)


def _check_numbers(column: Column, numbers: Floats) -> None:
    """Refuse numbers that the training column could not contain; shape (n_queries,)."""
    is_whole = pd.api.types.is_integer_dtype(column.dtype)
    if is_whole and np.any(numbers % 1):
        raise _impossible(FRACTION, [column.name])
    if column.decode(numbers).dtype != column.dtype:
        raise _impossible(TOO_LARGE_NUMBER, [column.name])


def _max_changes(params: Mapping[str, Any]) -> int | None:
    """Return how many changes answers may ask for; None for any number."""
    if params.keys() - {"max_changes"}:
        raise RequestError(PARAMS)
    limit = params.get("max_changes")
    if limit is None:
        return None
    if not isinstance(limit, (int, np.integer)) or isinstance(limit, bool):
        raise RequestError(PARAMS)
    if limit < 1:
        raise RequestError(CHANGES)
    return int(limit)


def _impossible(fault: str, columns: Sequence[str]) -> RequestError:
    """Return the refusal of a value, which names the fault and its columns."""
    return RequestError(f"{VALUES}: {fault} in column {listed(columns)}")
