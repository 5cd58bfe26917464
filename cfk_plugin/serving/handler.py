"""Answering requests: check them, ask the protected explainer, report failures by constant texts
alone.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE

from cfk_plugin._protect import protect
from cfk_plugin.data.encoded_table import EncodedTable, encode, take_in_records
from cfk_plugin.data.population import Population
from cfk_plugin.errors import (
    CFKError,
    InputError,
    PolicyError,
    listed,
    quiet,
    serving,
    shows_errors,
)
from cfk_plugin.release.results import Withheld
from cfk_plugin.serving.records import reason_of, record_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.release.explainer import ProtectedExplainer
    from cfk_plugin.release.results import Explanation

_log = logging.getLogger("cfk_plugin")

JSON = "application/json"
MOST_BYTES = 10_000_000

# All texts that a refused request can get; names of columns follow on two of them.
NO_TABLE = "the request holds no table of queries"
TOO_MANY = "the request holds too many queries; send fewer at once"
COLUMNS = "the queries must have every feature of the model's signature, each once"
VALUES = "a query holds a missing, unknown, fractional or otherwise impossible value"
PARAMS = "the only parameters are k and max_changes, whole numbers"
CHANGES = "max_changes must be at least 1"
FLOOR = "k is below the floor of this model"
TOO_LARGE = "k is above the number of people"
FIXED = "k is fixed for this model"
FAILED = "the explanation could not be made"
FAULTS: Mapping[str, str] = {
    "missing_value": "a missing value",
    "invalid_value": "a value of another type",
    "unknown_category": "an unknown category",
    "outside_domain": "a number outside of what is declared",
}
"""What is said of a fault that `EncodedTable.faults` finds in a column."""
FRACTION = "a fraction"
TOO_LARGE_NUMBER = "a number that is too large"
UNREADABLE = (
    "the request cannot be read as queries; send JSON with dataframe_split or dataframe_records"
)
TYPE = "the content type must be application/json"
TOO_LONG = "the request is too long; send fewer queries at once"
NOT_JSON = "the body is not valid JSON"
SHAPE = (
    'the body must be {"dataframe_split": {"columns": [...], "data": [[...]]}} or'
    ' {"dataframe_records": [{...}]}'
)


# And those for the person who starts a server.
ALONE = "the bundle has a catalogue, which answers alone; leave out the explainer"
NO_EXPLAINER = "the bundle has no catalogue; give the explainer that is to be protected"


class RequestError(MlflowException, CFKError):
    """A request that is refused as a whole, in one of the constant texts above; `ours` if the
    server is at fault.
    """

    def __init__(self, message: str, *, ours: bool = False, code: Any = None) -> None:
        self.ours = ours
        super().__init__(
            message, error_code=code or (INTERNAL_ERROR if ours else INVALID_PARAMETER_VALUE)
        )

    @property
    def message(self) -> str:
        """The constant text; MLflow's server would add the request to it."""
        return self._constant

    @message.setter
    def message(self, text: str) -> None:
        self._constant = getattr(self, "_constant", text)


@contextmanager
def refusing(message: str, *, ours: bool = False, code: Any = None) -> Iterator[None]:
    """Refuse a request by a constant text, without context, whatever fails; a `RequestError`
    passes.
    """

    def refusal(failure: str) -> RequestError:  # only the class of what was raised
        _log.warning("a request failed: %s", failure)
        return RequestError(message, ours=ours, code=code)

    # `refusal` is called like a class; the answer goes to somebody who is not the operator
    with quiet("{}", refusal, let=RequestError, is_public=True):  # type: ignore[arg-type]
        yield


def show_no_traces() -> None:
    """Make a serving process log the class of a failure instead of a trace: traces and texts may
    quote rows.

    Nothing passes the boundary of a request. This is for failures outside of one: the web server's
    own log, and threads and finalizers of explainers and models. ``CFK_DEBUG=1`` leaves traces as
    they are.
    """
    if shows_errors() or hasattr(threading.excepthook, "_cfk"):
        return
    make = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = make(*args, **kwargs)
        if made.exc_info:
            kind = made.exc_info[0]
            made.msg, made.args = "a failure was logged: %s", (_name(kind),)
        made.exc_info = made.exc_text = made.stack_info = None
        return made

    def thread(failed: threading.ExceptHookArgs) -> None:
        logging.getLogger("cfk_plugin").warning(
            "a thread of an explainer or a model raised %s", _name(failed.exc_type)
        )

    def finalizer(failed: sys.UnraisableHookArgs) -> None:
        logging.getLogger("cfk_plugin").warning("a finalizer raised %s", _name(failed.exc_type))

    thread._cfk = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(record)
    threading.excepthook, sys.unraisablehook = thread, finalizer


def _name(kind: type[BaseException] | None) -> str:
    name = "an error" if kind is None else kind.__name__
    return name if name.isidentifier() else "an error"


class RequestHandler:
    """Answers requests for explanations.

    Thread-safe; every answer is protected, and no message quotes a row.

    The policy's k is the floor; infeasible answers are always withheld. `make` returns a
    protected explainer for a policy, and `most` queries may be in one request.
    """

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        make: Callable[[PrivacyPolicy], ProtectedExplainer],
        most: int,
    ) -> None:
        policy = replace(policy, on_infeasible="withhold")  # raising would fail the whole request
        self._population, self._policy, self._make, self._most = population, policy, make, most
        self._features, self._private = (
            list(population.schema.features),
            set(population.schema.private),
        )
        domains = [population.domains[name] for name in self._features]
        self._dtypes = [domain.dtype for domain in domains]
        self._numeric = [domain.attribute.kind == "numeric" for domain in domains]
        self._whole = np.array([pd.api.types.is_integer_dtype(dtype) for dtype in self._dtypes])
        self._explainers: dict[int, ProtectedExplainer] = {policy.k: make(policy)}
        self._lock = threading.Lock()

    def answer(
        self, queries: object, params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return one record per counterfactual, see `record_of`, or raise a `RequestError` without
        context.
        """
        with refusing(FAILED, ours=True):
            k = self._k(params or {})
            max_changes = self._max_changes(params or {})
            with refusing(VALUES):  # whatever cannot be read is refused
                encoded = self._read(queries)
            entries = self._entries(encoded, k, max_changes)
            return [self._record(entry, encoded) for entry in entries]

    def _entries(
        self, encoded: EncodedTable, k: int, max_changes: int | None
    ) -> Iterable[Explanation]:
        """Return the protected explainer's answers; if it raises, every query gets a withheld
        one.
        """
        explainer = self._explainer(k)
        try:
            with quiet("{}", CFKError, let=CFKError), serving():
                explanations: Iterable[Explanation] = explainer.explain(
                    encoded.frame, max_changes=max_changes
                )
                return explanations
        except CFKError as failure:
            said = str(failure) if type(failure) is CFKError else type(failure).__name__
            trace = failure if shows_errors() else None
            _log.warning("explanations withheld: %s in the pipeline", said, exc_info=trace)
            of_answer = isinstance(failure, InputError)  # queries were checked already
            reason = "explainer_failed" if of_answer else reason_of(failure)
        return [Withheld(query, reason) for query in range(len(encoded))]

    def _record(self, entry: Explanation, encoded: EncodedTable) -> dict[str, Any]:
        factual = {
            name: self._factual(encoded, j, entry.query) for j, name in enumerate(self._features)
        }
        population = self._population
        return record_of(
            entry, factual, self._features, population.domains, wording=population.schema.wording
        )

    def _factual(self, encoded: EncodedTable, j: int, query: int) -> Any:
        """Return a value of the person who asks in the population's type: a number or date, not
        text of one.
        """
        value = encoded.values[j][query]
        if not self._numeric[j] or type(value) in (int, float) or pd.isna(value):
            return value
        return self._population.domains[self._features[j]].natural(float(encoded.numbers[query, j]))

    def _read(self, queries: object) -> EncodedTable:
        if not isinstance(queries, (pd.DataFrame, list)) or not len(queries):
            raise RequestError(NO_TABLE)
        if len(queries) > self._most:
            raise RequestError(TOO_MANY)
        if isinstance(queries, list) and not all(isinstance(row, dict) for row in queries):
            raise RequestError(NO_TABLE)
        names = list(queries.columns if isinstance(queries, pd.DataFrame) else queries[0])
        missing = [name for name in self._features if name not in names]
        repeated = [name for name in self._features if names.count(name) > 1]
        if missing:
            raise RequestError(f"{COLUMNS}; missing: {listed(missing)}")
        if repeated:
            raise RequestError(f"{COLUMNS}; repeated: {listed(repeated)}")
        if len(set(names)) != len(names):
            raise RequestError(COLUMNS)
        if isinstance(queries, list):
            encoded = take_in_records(queries, self._population.encoder)
        else:
            encoded = encode(queries, self._population.encoder)
        self._check(encoded)
        return encoded

    def _check(self, encoded: EncodedTable) -> None:
        """Refuse values that cannot be, by the name of the column; no value is repeated."""
        for fault in encoded.faults:
            if fault is None:
                continue
            reason, columns = fault
            is_private = set(columns) <= self._private
            if reason != "unknown_category" or not is_private:
                raise _impossible(FAULTS.get(reason), columns)
        numbers = encoded.numbers
        is_fraction = np.isfinite(numbers) & (numbers % 1 != 0) & self._whole
        fractions = np.flatnonzero(is_fraction.any(axis=0)).tolist()
        if fractions:
            raise _impossible(FRACTION, [self._features[j] for j in fractions])
        for j, dtype in enumerate(encoded.frame.dtypes):
            if self._numeric[j] and dtype != self._dtypes[j]:
                raise _impossible(TOO_LARGE_NUMBER, [self._features[j]])

    def _k(self, params: Mapping[str, Any]) -> int:
        """Return the requested k, rounded up to the policy's k times a power of two, as each k
        needs a partition.
        """
        k, floor, most = params.get("k"), self._policy.k, self._population.n_people
        if k is None:
            return floor
        if not _is_whole_number(k):
            raise RequestError(PARAMS)
        if k < floor:
            raise RequestError(FLOOR)
        if k > most:
            raise RequestError(TOO_LARGE)
        if k > floor:
            self._population.require_cells(RequestError(FIXED))
        step = floor
        while step < k:
            step *= 2
        return min(step, most)

    def _max_changes(self, params: Mapping[str, Any]) -> int | None:
        """Return how many changes answers may ask for; None for any number."""
        limit = params.get("max_changes")
        if limit is None:
            return None
        if not _is_whole_number(limit):
            raise RequestError(PARAMS)
        if limit < 1:
            raise RequestError(CHANGES)
        return int(limit)

    def _explainer(self, k: int) -> ProtectedExplainer:
        """Return the explainer for a k; made only once, as its partition must not change."""
        with self._lock:
            if k not in self._explainers:
                try:
                    with quiet("{}", CFKError, let=PolicyError):
                        self._explainers[k] = self._make(replace(self._policy, k=k))
                except PolicyError:
                    raise RequestError(TOO_LARGE) from None
            return self._explainers[k]


def _is_whole_number(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _impossible(fault: str | None, columns: Sequence[str]) -> RequestError:
    """Return the refusal of a value, which names the fault and its columns."""
    if fault is None:
        return RequestError(f"{VALUES}: in column {listed(columns)}")
    return RequestError(f"{VALUES}: {fault} in column {listed(columns)}")


Answer = Callable[..., list[dict[str, Any]]]
"""Answers queries and parameters with records; `RequestHandler.answer`."""

_FORMS = ("dataframe_split", "dataframe_records")
_KEYS = {*_FORMS, "params"}
_LOOKED_AT = 100  # characters


def answer_to(body: bytes | str, answer: Answer) -> bytes:
    """Return the response to a request's body: ``{"predictions": [record, ...]}``; else a
    `RequestError`.
    """
    with refusing(FAILED, ours=True):
        return to_json({"predictions": answer(*read_body(body))})


def to_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def is_table(body: bytes | str) -> bool:
    """Say whether a body looks like one of the forms that `read_body` reads, without parsing it."""
    start = (
        body[:_LOOKED_AT].decode("utf-8", "replace")
        if isinstance(body, bytes)
        else body[:_LOOKED_AT]
    )
    return any(f'"{form}"' in start for form in _FORMS)


def read_body(body: bytes | str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the queries, all with the same keys, and the parameters of a JSON request in MLflow's
    form.
    """
    request = _read(body, SHAPE)
    if set(request) - _KEYS or len(set(request) - {"params"}) != 1:
        raise RequestError(SHAPE)
    params = request.pop("params", None) or {}
    if not isinstance(params, dict):
        raise RequestError(PARAMS)
    ((form, content),) = request.items()
    rows = _records(content) if form == "dataframe_records" else _split(content)
    return _checked(rows), params


def _read(body: bytes | str, otherwise: str = NOT_JSON) -> dict[str, Any]:
    with quiet(NOT_JSON, lambda _: RequestError(NOT_JSON), is_public=True):  # type: ignore[arg-type]
        request = json.loads(body)
    if not isinstance(request, dict):
        raise RequestError(otherwise)
    return request


def _split(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, dict) or set(content) - {"columns", "data", "index"}:
        raise RequestError(SHAPE)
    names, data = content.get("columns"), content.get("data")
    if (
        not isinstance(names, list)
        or not isinstance(data, list)
        or not all(isinstance(name, str) for name in names)
    ):
        raise RequestError(SHAPE)
    if len(set(names)) != len(names) or not all(
        isinstance(row, list) and len(row) == len(names) for row in data
    ):
        raise RequestError(SHAPE)
    return [dict(zip(names, row, strict=True)) for row in data]


def _records(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise RequestError(SHAPE)
    return content


def _checked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows or not rows[0]:
        raise RequestError(NO_TABLE)
    if any(row.keys() != rows[0].keys() for row in rows) or any(
        isinstance(value, (list, dict)) for row in rows for value in row.values()
    ):
        raise RequestError(SHAPE)
    return rows


def opened(bundle: str | Path) -> tuple[Population, PrivacyPolicy]:
    """Open a sealed population and its policy.

    Do this first: loading anything else may run code.
    """
    population = Population.open(bundle)
    if population.policy is None:  # never assumed
        raise PolicyError(
            "the bundle has no policy; write it with KAnonymizer.seal, not with Population.seal"
        )
    return population, population.policy


def handler_for(
    population: Population, floor: PrivacyPolicy, explainer: Any, *, most: int, **options: Any
) -> RequestHandler:
    """Return a handler for an explainer, with options of `protect`; a sealed catalogue needs no
    explainer.
    """
    if explainer is None:
        population.require_sealed_catalogue(InputError(NO_EXPLAINER))
    else:
        population.require_cells(InputError(ALONE))

    def make(policy: PrivacyPolicy) -> ProtectedExplainer:
        return protect(explainer, population=population, policy=policy, **options)

    return RequestHandler(population, floor, make, most)
