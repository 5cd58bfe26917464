"""The three implementations of a `ProtectedExplainer`.

Either the explainer is asked and its counterfactuals are protected, or a catalogue answers in its
place, or differentially private prototypes do.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol

import numpy as np
import pandas as pd

from cfk_plugin.adapting import (
    AnswerRequest,
    CounterfactualBatch,
    ExplainerError,
    NoneFoundError,
    constraints_of,
    without_constraints,
)
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import require_features, select
from cfk_plugin.errors import (
    AdapterError,
    CFKError,
    HostOnly,
    IgnoredOptionWarning,
    InputError,
    quiet,
)
from cfk_plugin.hookspecs import (
    AnsweringSource,
    CounterfactualSource,
    Progress,
    depends_on_rows,
)
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.request import Groups, Request
from cfk_plugin.tracking.logger import Track


class Prototypes(Protocol):
    """A fitted `DPPrototypes`, which answers in place of an explainer."""

    schema_: Schema

    def explain(
        self, queries: pd.DataFrame, *, track: Track = False, groups: str | None = None
    ) -> Explanations: ...


def wrap_explainer(
    explainer: Any,
    source: CounterfactualSource,
    anonymizer: KAnonymizer | Prototypes,
    *,
    track: Track,
    groups: str | None,
    is_asked: bool,
) -> WrappedExplainer:
    """Return the implementation for an explainer and its anonymizer.

    If `is_asked`, the explainer is called. Otherwise `anonymizer` answers: a `KAnonymizer` with a
    catalogue, or fitted prototypes.
    """
    kind: type[WrappedExplainer]
    if is_asked:
        kind = AskedExplainer
    elif isinstance(anonymizer, KAnonymizer):
        kind = CatalogueInPlace
    else:
        kind = PrototypesInPlace
    return kind(explainer, source, anonymizer, track=track, groups=groups)


@dataclass(eq=False, repr=False)
class WrappedExplainer(HostOnly, ABC):
    """An explainer, its adapter, and the anonymizer or prototypes that protect its answers.

    Attributes
    ----------
    explainer : object
        The user's explainer.
    source : CounterfactualSource
        The source that the adapter made for the explainer.
    anonymizer : KAnonymizer or Prototypes
    track : bool, str or RunLogger
        Whether, and where, results are logged.
    groups : str, optional
        The column that divides applicants into groups in the logged runs.
    name : str
        The explainer's name.
    """

    explainer: Any
    source: CounterfactualSource
    anonymizer: Any
    track: Track
    groups: str | None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = str(self.source.name)

    @abstractmethod
    def explain(
        self,
        queries: Any,
        options: dict[str, Any],
        *,
        max_changes: int | None,
        progress: Progress | None,
    ) -> Any:
        """Answer queries that the explainer's own ``explain`` does not take, such as a table."""

    @abstractmethod
    def call(
        self,
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        max_changes: int | None,
        progress: Progress | None = None,
    ) -> Any:
        """Answer a call of one of `methods`, in the explainer's own result type."""

    def methods(self) -> Mapping[str, Any]:
        """Return the explainer's methods that return counterfactuals, by name."""
        with quiet("reading the adapter's `methods` failed", AdapterError):
            return dict(self.source.methods)

    def forwarded(self) -> tuple[str, ...]:
        """Return the names of the explainer's attributes that are passed on unchanged."""
        with quiet("reading the adapter's `forwarded` failed", AdapterError):
            return tuple(getattr(self.source, "forwarded", ()))

    @property
    def public_names(self) -> str:
        """The names that a user finds on the protected explainer, separated by commas."""
        names = {"explain", *self.methods(), *self.forwarded()}
        return ", ".join(sorted(name for name in names if not name.startswith("_")))

    @property
    def policy(self) -> PrivacyPolicy | None:
        """The policy; prototypes have none."""
        policy = getattr(self.anonymizer, "policy_", None)
        return policy if isinstance(policy, PrivacyPolicy) else None

    @property
    def rule(self) -> str:
        """A short text for the `repr`: k and the guarantee, or the settings of the prototypes."""
        policy = self.policy
        if policy is None:
            return repr(self.anonymizer)
        return f"k = {policy.k}, {policy.guarantee}"

    def is_for_own_explain(self, queries: Any) -> bool:
        """Return True if queries are not a table, and the explainer has its own ``explain``."""
        return not isinstance(queries, pd.DataFrame) and "explain" in self.methods()


class AskedExplainer(WrappedExplainer):
    """An explainer that is asked for counterfactuals, which are then protected."""

    def explain(
        self,
        queries: Any,
        options: dict[str, Any],
        *,
        max_changes: int | None,
        progress: Progress | None,
    ) -> Any:
        started = time.perf_counter()
        features = self.anonymizer.schema_.features
        frame = require_features(queries, features, "queries")
        self._check_constraints(options)
        groups = Groups.read(queries, self.groups)
        # The explainer gets a copy, because it may change its queries.
        copied_queries = select(frame, features, renumber=False).copy(deep=True)
        with quiet("the adapter raised {}", ExplainerError, let=CFKError):
            batch = self.source.generate(copied_queries, **options)
        request = self._request(batch, queries, options, max_changes, progress, started)
        return self._answer(replace(request, groups=groups))

    def call(
        self,
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        max_changes: int | None,
        progress: Progress | None = None,
    ) -> Any:
        """Call one of `methods`, and rebuild its result from the released explanations."""
        started = time.perf_counter()
        self._check_constraints(named)
        try:
            with quiet("the adapter raised {}", ExplainerError, let=CFKError):
                batch, native, queries = self.source.methods[name](*args, **named)
        except NoneFoundError as error:
            raise error.native from None
        request = self._request(batch, queries, named, max_changes, progress, started)
        groups = Groups.read(queries, self.groups)
        return self._restore(name, native, self._answer(replace(request, groups=groups)))

    def _check_constraints(self, options: Mapping[str, Any]) -> None:
        """Raise if constraints are invalid, before the explainer is called."""
        self.anonymizer.rules(**constraints_of(options))

    def _request(
        self,
        batch: Any,
        queries: Any,
        options: Mapping[str, Any],
        max_changes: int | None,
        progress: Progress | None,
        started: float,
    ) -> Request:
        """Return the request for one explanation in each slot of a batch."""
        if not isinstance(batch, CounterfactualBatch):
            raise AdapterError(
                f"an adapter returned {type(batch).__name__} instead of a CounterfactualBatch"
            )
        if len(batch.query) and not 0 <= batch.query.min() <= batch.query.max() < len(queries):
            raise AdapterError("an adapter's batch names a query that is not in the call")
        frame = batch.frame
        if len(frame):
            require_features(frame, self.anonymizer.schema_.features, "the explainer's answer")
        else:
            frame = frame.reindex(columns=list(self.anonymizer.schema_.features))
        # Constraints that the adapter read, also from the explainer's settings, have precedence.
        constraints = {**constraints_of(options), **batch.constraints}
        return Request(
            numbers=np.arange(len(queries)),
            queries=self.anonymizer.rows(queries),
            query_of_slot=batch.query,
            counterfactuals=self.anonymizer.rows(frame),
            slot_of_counterfactual=batch.slot,
            goal=self.anonymizer.goal_of_call(batch.desired),
            rules=self.anonymizer.rules(**constraints, max_changes=max_changes),
            codes=self.anonymizer.codes_,
            progress=progress,
            started=started,
        )

    def _answer(self, request: Request) -> Explanations:
        explanations: Explanations = self.anonymizer.answer(
            request,
            self.name,
            instance_based=self.source.instance_based,
            depends_on_no_row=depends_on_rows(self.source) == "no",
            track=self.track,
        )
        return explanations

    def _restore(self, name: str, native: Any, explanations: Explanations) -> Any:
        """Rebuild a method's result from the released explanations."""
        with quiet(
            f"the adapter cannot rebuild the result of {name}; use explain()",
            AdapterError,
            let=CFKError,
        ):
            restored = self.source.restore(native, explanations)
        if restored is native and native is not None:
            raise AdapterError(
                f"the adapter returned the unprotected result of {name} instead of rebuilding it"
            )
        return restored


class CatalogueInPlace(WrappedExplainer):
    """An explainer that is not asked: a catalogue answers in its place."""

    def explain(
        self,
        queries: Any,
        options: dict[str, Any],
        *,
        max_changes: int | None,
        progress: Progress | None,
    ) -> Any:
        n_answers = options.pop("answers", None)
        request = AnswerRequest(queries=queries, constraints=constraints_of(options))
        explainer_options = without_constraints(options)
        if explainer_options:
            if not isinstance(self.source, AnsweringSource):
                raise InputError(
                    f"{self.name} is not asked, and its adapter does not read its options; leave"
                    f" out {', '.join(explainer_options)}"
                )
            request = self._read_request("generate", (queries,), options)
        if n_answers is not None:
            request = replace(request, n_answers=n_answers)
        # The caller's table, because the adapter's table may lack the column of groups.
        return self._answer(replace(request, queries=queries), max_changes, progress)

    def call(
        self,
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        max_changes: int | None,
        progress: Progress | None = None,
    ) -> Any:
        """Answer one of `methods` from the catalogue, in the explainer's own result type."""
        source = self._answering_source(name)
        request = self._read_request(name, args, named)
        explanations = self._answer(request, max_changes, progress)
        with quiet(f"the adapter cannot build the result of {name}", AdapterError, let=CFKError):
            return source.build(name, request, explanations)

    def _answering_source(self, name: str) -> AnsweringSource:
        """Return the source, or raise if it cannot answer without calling the explainer."""
        if isinstance(self.source, AnsweringSource):
            return self.source
        raise _no_own_method_error(name)

    def _read_request(
        self, name: str, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> AnswerRequest:
        """Read a call, and warn of options that have no effect without the explainer's search."""
        source = self._answering_source(name)
        with quiet(
            f"the adapter cannot read a call of {name}: it raised {{}}", AdapterError, let=CFKError
        ):
            request = source.read_request(name, args, named)
        if request.ignored:
            warnings.warn(
                f"{', '.join(request.ignored)}: has no effect, because the catalogue answers"
                f" without the search of {self.name}",
                IgnoredOptionWarning,
                # The user's line is above this function, `explain` or `call`, and the method of
                # the protected explainer.
                stacklevel=4,
            )
        return request

    def _answer(
        self, request: AnswerRequest, max_changes: int | None, progress: Progress | None
    ) -> Explanations:
        explanations: Explanations = self.anonymizer.explain(
            request.queries,
            answers=request.n_answers,
            desired=request.desired,
            **request.constraints,
            max_changes=max_changes,
            progress=progress,
            track=self.track,
            groups=self.groups,
        )
        return explanations


class PrototypesInPlace(WrappedExplainer):
    """An explainer that is not asked: differentially private prototypes answer in its place."""

    def forwarded(self) -> tuple[str, ...]:
        """Return no name: with prototypes, no attribute of the explainer is passed on."""
        return ()

    def is_for_own_explain(self, queries: Any) -> bool:  # noqa: ARG002 - the explainer is not asked
        """Return False: prototypes answer all queries."""
        return False

    def explain(
        self,
        queries: Any,
        options: dict[str, Any],
        *,
        max_changes: int | None,
        progress: Progress | None,  # noqa: ARG002 - prototypes are ready: there is nothing to wait for
    ) -> Explanations:
        """Answer a table of queries; raise if the call has an option."""
        names = sorted(options)
        if max_changes is not None:
            names.append("max_changes")
        if names:
            raise InputError(
                f"queries are answered without the explainer; leave out {', '.join(names)}"
            )
        explanations: Explanations = self.anonymizer.explain(
            queries, track=self.track, groups=self.groups
        )
        return explanations

    def call(
        self,
        name: str,
        args: tuple[Any, ...],  # noqa: ARG002 - always raises
        named: dict[str, Any],  # noqa: ARG002
        max_changes: int | None,  # noqa: ARG002
        progress: Progress | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Raise: a prototype cannot have the explainer's own result type."""
        raise _no_own_method_error(name)


def _no_own_method_error(name: str) -> AdapterError:
    """Return the error for a call of a method that only the explainer could answer."""
    return AdapterError(
        f"{name} needs the explainer, which is not asked here; use explain() with a DataFrame"
    )
