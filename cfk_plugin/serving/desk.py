"""The desk of a server: checks a request, asks the protected explainer, and answers in one uniform form."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.intake import Intake, take_in, take_in_records
from cfk_plugin.errors import CFKError, InputError, PolicyError, quiet
from cfk_plugin.release.results import Suppressed
from cfk_plugin.serving.records import reason_of, record_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population
    from cfk_plugin.release.explainer import ProtectedExplainer
    from cfk_plugin.release.results import Entry

_log = logging.getLogger("cfk_plugin")

NO_TABLE = "the request holds no table of queries"
TOO_MANY = "the request holds too many queries; send fewer at once"
COLUMNS = "the queries must have every feature of the model's signature, each once"
VALUES = "a query holds a missing, unknown, fractional or otherwise impossible value"
PARAMS = "the only parameter is k, a whole number"
FLOOR = "k is below the floor of this model"
TOO_LARGE = "k is above the number of people"
FAILED = "the explanation could not be made"


class RequestError(CFKError):
    """A request that is refused as a whole: one of the constant texts above, and whose fault it is.

    Parameters
    ----------
    message : str
    ours : bool
        Whether the server is at fault.
    """

    def __init__(self, message: str, *, ours: bool = False) -> None:
        super().__init__(message)
        self.message, self.ours = message, ours


class Desk:
    """Answers requests for explanations. Thread-safe; every answer is protected, and no text quotes a row.

    Parameters
    ----------
    population : Population
        Sealed or not.
    policy : PrivacyPolicy
        Its k is the floor. What is infeasible is suppressed, whatever it says.
    make : callable
        Returns a protected explainer for a policy.
    most : int
        Queries of one request.
    """

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        make: Callable[[PrivacyPolicy], ProtectedExplainer],
        most: int,
    ) -> None:
        policy = replace(policy, on_infeasible="suppress")  # raised here, it would cost a whole request its answers
        self._population, self._policy, self._make, self._most = population, policy, make, most
        self._features, self._private = list(population.schema.features), set(population.schema.private)
        domains = [population.domains[name] for name in self._features]
        self._dtypes = [domain.dtype for domain in domains]
        self._numeric = [domain.attribute.kind == "numeric" for domain in domains]
        self._whole = np.array([pd.api.types.is_integer_dtype(dtype) for dtype in self._dtypes])
        self._explainers: dict[int, ProtectedExplainer] = {policy.k: make(policy)}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Show settings alone."""
        return f"Desk(k >= {self._policy.k})"

    def answer(self, queries: object, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return one record per counterfactual.

        Parameters
        ----------
        queries : DataFrame, or list of dict
            Instances to explain: a table, or records of plain values that all have the same keys.
        params : mapping, optional
            ``k``, at least the policy's.

        Returns
        -------
        list of dict
            See `record_of`.

        Raises
        ------
        RequestError
            If the request is refused. It has no context: nothing of what failed can be read from it.
        """
        try:
            with quiet("{}", CFKError, let=RequestError):
                k, intake = self._k(params or {}), self._checked(queries)
                return [self._record(entry, intake) for entry in self._entries(intake, k)]
        except RequestError:
            raise
        except CFKError as failure:  # its text is the class of what was raised, and no more
            _log.warning("a request failed: %s", failure)
        raise RequestError(FAILED, ours=True)  # raised out here, so that it carries no context

    def _entries(self, intake: Intake, k: int) -> Iterable[Entry]:
        """Return what the protected explainer answers; whatever it raises, every query is answered, and withheld."""
        explainer = self._explainer(k)
        try:
            with quiet("{}", CFKError, let=CFKError):
                explanations: Iterable[Entry] = explainer.explain(intake.frame)
                return explanations
        except CFKError as failure:
            said = str(failure) if type(failure) is CFKError else type(failure).__name__
            _log.warning("explanations withheld: %s in the pipeline", said)
            of_answer = isinstance(failure, InputError)  # queries have been checked
            reason = "explainer_failed" if of_answer else reason_of(failure)
        return [Suppressed(query, reason) for query in range(len(intake))]

    def _record(self, entry: Entry, intake: Intake) -> dict[str, Any]:
        factual = {name: self._factual(intake, j, entry.query) for j, name in enumerate(self._features)}
        return record_of(entry, factual, self._features, self._population.domains)

    def _factual(self, intake: Intake, j: int, query: int) -> Any:
        """Return a value of the person who asks as the population has them: a number or a date, not text of one."""
        value = intake.values[j][query]
        if not self._numeric[j] or type(value) in (int, float) or pd.isna(value):
            return value
        return self._population.domains[self._features[j]].natural(float(intake.numbers[query, j]))

    def _checked(self, queries: object) -> Intake:
        """Return queries with every feature and possible values; what cannot be read is refused, however it fails."""
        try:
            with quiet("{}", CFKError, let=RequestError):
                return self._read(queries)
        except RequestError:
            raise
        except CFKError as failure:
            _log.warning("a request could not be read: %s", failure)
        raise RequestError(VALUES)

    def _read(self, queries: object) -> Intake:
        if not isinstance(queries, (pd.DataFrame, list)) or not len(queries):
            raise RequestError(NO_TABLE)
        if len(queries) > self._most:
            raise RequestError(TOO_MANY)
        if isinstance(queries, list) and not all(isinstance(row, dict) for row in queries):
            raise RequestError(NO_TABLE)
        names = list(queries.columns if isinstance(queries, pd.DataFrame) else queries[0])
        if len(set(names)) != len(names) or not set(self._features) <= set(names):
            raise RequestError(COLUMNS)
        if isinstance(queries, list):
            intake = take_in_records(queries, self._population.encoder)
        else:
            intake = take_in(queries, self._population.encoder)
        private = self._private
        if any(f is not None and not (f[0] == "unknown_category" and set(f[1]) <= private) for f in intake.faults):
            raise RequestError(VALUES)
        numbers = intake.numbers[:, self._whole]
        if bool((np.isfinite(numbers) & (numbers % 1 != 0)).any()):
            raise RequestError(VALUES)
        dtypes = zip(intake.frame.dtypes, self._dtypes, self._numeric, strict=True)
        if any(is_numeric and own != dtype for own, dtype, is_numeric in dtypes):  # too large for it, or too early
            raise RequestError(VALUES)
        return intake

    def _k(self, params: Mapping[str, Any]) -> int:
        """Return the k that is protected with: what is asked, rounded up to the policy's times a power of two.

        Whoever asks for every k in turn would otherwise make the server build as many partitions.
        """
        k, floor, most = params.get("k"), self._policy.k, self._population.n_people
        if k is None:
            return floor
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
            raise RequestError(PARAMS)
        if k < floor:
            raise RequestError(FLOOR)
        if k > most:
            raise RequestError(TOO_LARGE)
        step = floor
        while step < k:
            step *= 2
        return min(step, most)

    def _explainer(self, k: int) -> ProtectedExplainer:
        """Return the explainer for a k; it is made once, as its partition must not change."""
        with self._lock:
            if k not in self._explainers:
                try:
                    with quiet("{}", CFKError, let=PolicyError):
                        self._explainers[k] = self._make(replace(self._policy, k=k))
                except PolicyError:
                    raise RequestError(TOO_LARGE) from None
            return self._explainers[k]
