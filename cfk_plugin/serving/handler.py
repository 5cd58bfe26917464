"""Answer requests: check the queries, call the protected explainer, report failures with constant
texts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE

from cfk_plugin.data.encoded_table import EncodedTable, encode
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

# The texts of refusals. Two of them are followed by names of columns.
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

    The policy's k is the floor. `make` returns a protected explainer for a policy, and `most`
    queries may be in one request.
    """

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        make: Callable[[PrivacyPolicy], ProtectedExplainer],
        most: int,
    ) -> None:
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
            name = str(failure) if type(failure) is CFKError else type(failure).__name__
            trace = failure if shows_errors() else None
            _log.warning("explanations withheld: %s in the pipeline", name, exc_info=trace)
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
        if not isinstance(queries, pd.DataFrame) or not len(queries):
            raise RequestError(NO_TABLE)
        if len(queries) > self._most:
            raise RequestError(TOO_MANY)
        names = list(queries.columns)
        missing = [name for name in self._features if name not in names]
        repeated = [name for name in self._features if names.count(name) > 1]
        if missing:
            raise RequestError(f"{COLUMNS}; missing: {listed(missing)}")
        if repeated:
            raise RequestError(f"{COLUMNS}; repeated: {listed(repeated)}")
        if len(set(names)) != len(names):
            raise RequestError(COLUMNS)
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
