"""A protected explainer: the explainer as before, except that everything it gives out is
protected.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, NoReturn, Protocol, overload
from weakref import WeakKeyDictionary

import pandas as pd

from cfk_plugin.adapting import (
    TEXT_WITHHELD,
    AnswerRequest,
    CounterfactualBatch,
    ExplainerError,
    NoneFoundError,
    constraints_of,
    text_withheld,
    without_constraints,
)
from cfk_plugin.data.constraints import Rules, decided_features, most_changes, rules_of
from cfk_plugin.data.display import advance, card, doing, facts, heard
from cfk_plugin.data.encoded_table import require_features, select
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy, SearchStart
from cfk_plugin.data.values import as_pandas
from cfk_plugin.errors import (
    AdapterError,
    CFKError,
    HostOnly,
    IgnoredOptionWarning,
    InputError,
    NotForwardedError,
    debugging,
    quiet,
    without_frames,
)
from cfk_plugin.hookspecs import (
    AnsweringSource,
    CounterfactualSource,
    NativeStatus,
    Progress,
    depends_on_rows,
)
from cfk_plugin.records.logger import Track, may_observe, observe
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations, Request
from cfk_plugin.release.results import Explanation, Withheld

_log = logging.getLogger("cfk_plugin")


def _raised() -> str:
    return text_withheld("the adapter raised {}")


class Prototypes(Protocol):
    """What answers in place of an explainer, fitted: `DPPrototypes`, or a `KAnonymizer` with a
    catalogue.
    """

    def explain(
        self, queries: pd.DataFrame, *, track: Track = False, groups: str | None = None
    ) -> Explanations: ...


class ProtectedExplainer(HostOnly):
    """Stands in for an explainer: its methods that give out counterfactuals, protected.

    Made by `protect`.

    `explain` returns `Explanations`. The explainer's own methods that return counterfactuals keep
    their names and result types; the result is rebuilt and holds no training row. What the adapter
    names in ``forwarded`` is passed on unchanged; all other names raise `NotForwardedError`. No
    attribute leads to the explainer, but code in the same process can still find it: give callers
    results, not this object. It refuses to be pickled and copied, as the training rows would go
    along.
    """

    __slots__ = ("__weakref__",)  # the explainer is kept in `_WRAPPED`: no attribute may lead to it
    _refusal = InputError, "a protected explainer holds training rows and refuses to be pickled"

    def __init__(
        self,
        explainer: Any,
        source: CounterfactualSource,
        anonymizer: KAnonymizer | Prototypes,
        track: Track = False,
        groups: str | None = None,
        *,
        is_asked: bool = True,
        debug: bool = False,
    ) -> None:
        kind: Any = _Wrapped if is_asked else _Replaced
        _WRAPPED[self] = kind(explainer, source, anonymizer, track, groups, debug)

    @overload
    def explain(
        self,
        queries: pd.DataFrame,
        *,
        max_changes: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Explanations: ...
    @overload
    def explain(
        self,
        queries: Any,
        *,
        max_changes: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Any: ...
    @without_frames
    def explain(
        self,
        queries: Any,
        *,
        max_changes: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Any:
        """Explain queries; the only counterfactuals that leave are protected ones.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features)
            Instances to explain, raw feature space. Anything else is given to the explainer's own
            ``explain``, if it has one, and comes back in its own result type, protected.
        max_changes : int, optional
            How many features an answer may ask to change; see `KAnonymizer.explain`. The explainer
            is not told. Its own methods take the argument as well.
        progress : callable, optional
            Called with (done, total) while protecting.
        **options
            Passed to the explainer. ``features_to_vary`` and ``permitted_range`` (see
            `KAnonymizer.explain`) are enforced on what is released, whatever the explainer does
            with them.

        Returns
        -------
        Explanations
            One entry per counterfactual asked for, in the order of the queries.

        Raises
        ------
        InputError
            If `queries` is not a table with every feature, or lacks the column of groups, or a
            constraint does not name a feature, is empty, or is outside of what is declared, or
            `max_changes` is no whole number from 1 on.
        AdapterError
            If the explainer raises (its text is not repeated, as it may quote rows), its answer
            cannot be read, or it does not belong to the queries.
        """
        wrapped = _WRAPPED[self]
        listening = nullcontext() if progress is None else heard(progress)
        with debugging(wrapped.debug), listening as told:
            return wrapped.explain(queries, told, options, most_changes(max_changes))

    def __call__(self, queries: Any, **options: Any) -> Any:
        """Like `explain`, for explainers that are functions."""
        return self.explain(queries, **options)

    @without_frames
    def __getattr__(self, name: str) -> Any:
        """Return the protected form of a method that gives out counterfactuals, or what the adapter
        forwards.
        """
        wrapped = _WRAPPED[self]
        if name in wrapped.methods():
            # The functions find the explainer through this object, so that pickling one never
            # includes the explainer.
            @without_frames
            def found(*args: Any, max_changes: int | None = None, **named: Any) -> Any:
                with debugging(_WRAPPED[self].debug):
                    return _WRAPPED[self].call(name, args, named, most_changes(max_changes))

            found.__doc__ = (
                f"{name} of the explainer; what it returns is protected and holds no training row."
            )
        elif name in wrapped.forwarded():
            with quiet(f"{name} of the explainer cannot be read", NotForwardedError):
                value = getattr(wrapped.explainer, name)
            if not callable(value):
                return value
            del value

            @without_frames
            def found(*args: Any, **named: Any) -> Any:
                is_debugged = debugging(_WRAPPED[self].debug)
                with is_debugged, quiet(f"{name} of the explainer failed", AdapterError):
                    return getattr(_WRAPPED[self].explainer, name)(*args, **named)

        else:
            raise NotForwardedError(
                f"{name!r} of {wrapped.name} is not passed on, as it may give out training rows;"
                f" this protected explainer has {wrapped.passed}. Ask the explainer itself where"
                " you hold it. To add the name, let the adapter map it in `methods` if it returns"
                " counterfactuals, or name it in `forwarded` if nothing of a row is in it: see"
                " docs/how-to/write-an-adapter.md"
            )
        del wrapped
        found.__name__ = name
        return found

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise NotForwardedError(
            f"{name!r} cannot be set on a protected explainer; set it before you protect it"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise NotForwardedError(f"{name!r} cannot be deleted from a protected explainer")

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *_WRAPPED[self].methods(), *_WRAPPED[self].forwarded()})

    def _repr_html_(self) -> str:
        wrapped = _WRAPPED[self]
        policy = getattr(wrapped.anonymizer, "policy_", None)
        held = (f"{policy.promise}.",) if isinstance(policy, PrivacyPolicy) else ()
        rows = {"in the place of": wrapped.name, "has": wrapped.passed, "by": wrapped.rule}
        return card(
            "Protected explainer", "What leaves it is protected, or withheld.", *held, facts(rows)
        )

    def _counts(self) -> str:
        return f"{_WRAPPED[self].name}, {_WRAPPED[self].rule}"


@dataclass(eq=False, repr=False)
class _Wrapped(HostOnly):
    explainer: Any
    source: CounterfactualSource
    anonymizer: Any
    track: Track
    groups: str | None
    debug: bool

    def __post_init__(self) -> None:
        self.name = str(self.source.name)

    def methods(self) -> Mapping[str, Any]:
        with quiet("the adapter cannot say what it maps", AdapterError):
            return dict(self.source.methods)

    @property
    def passed(self) -> str:
        """List the names that it passes on."""
        return ", ".join(
            sorted(
                n for n in {"explain", *self.methods(), *self.forwarded()} if not n.startswith("_")
            )
        )

    @property
    def rule(self) -> str:
        """Name k and guarantee, or else the protector."""
        policy = getattr(self.anonymizer, "policy_", None)
        if isinstance(policy, PrivacyPolicy):
            return f"k = {policy.k}, {policy.guarantee}"
        return repr(self.anonymizer)

    def forwarded(self) -> tuple[str, ...]:
        with quiet("the adapter cannot say what it forwards", AdapterError):
            return tuple(getattr(self.source, "forwarded", ()))

    def explain(
        self,
        queries: Any,
        progress: Progress | None,
        options: dict[str, Any],
        max_changes: int | None,
    ) -> Any:
        if not isinstance(queries, pd.DataFrame):
            queries = as_pandas(queries)
            if not isinstance(queries, pd.DataFrame) and "explain" in self.methods():
                return self.call("explain", (queries,), options, max_changes)
        features = self.anonymizer.population_.schema.features
        frame = require_features(queries, features, "queries")
        call = Request.of(queries, self.groups)
        asked = select(frame, features, renumber=False).copy(deep=True)
        said = constraints_of(options) if options else {}
        rules = self._rules(said) if said else self.anonymizer.rules_
        constraints = said
        failed: ExplainerError | None = None
        try:
            with quiet(_raised, ExplainerError, let=CFKError):
                batch = self.source.generate(asked, **options)
        except ExplainerError as error:
            failed = error
        if failed is not None:  # raised outside of the handler, so that it has no context
            raise self._refused("explain", options, failed)
        # from the explainer's own settings
        if isinstance(batch, CounterfactualBatch) and batch.constraints != said:
            constraints = {**said, **batch.constraints}
            rules = self._rules(constraints)
        call = replace(call, decided=self._decided(constraints, rules), rules=rules)
        asked = select(frame, features)
        return self._release(batch, asked, call, rules, max_changes, progress)

    def _decided(self, constraints: Mapping[str, Any], rules: Rules) -> frozenset[str]:
        """Return the features of which the schema or a call says how they may change."""
        features = self.anonymizer.population_.schema.features
        return decided_features(features, rules, constraints.get("features_to_vary", "all"))

    def _rules(self, constraints: Mapping[str, Any]) -> Rules:
        """Return what may change in a call; invalid constraints are refused."""
        found: Rules = self.anonymizer.rules_
        return (
            rules_of(self.anonymizer.population_.encoder, **constraints) if constraints else found
        )

    def call(
        self, name: str, args: tuple[Any, ...], named: dict[str, Any], max_changes: int | None
    ) -> Any:
        """Request one of `methods`, and rebuild its result from what is released."""
        nothing: Exception | None = None
        failed: ExplainerError | None = None
        started = Request().started
        said = constraints_of(named)
        self._rules(said)
        try:
            with quiet(_raised, ExplainerError, let=CFKError):
                batch, native, queries = self.source.methods[name](*args, **named)
        except NoneFoundError as error:
            nothing = error.native
        except ExplainerError as error:
            failed = error
        if failed is not None:
            raise self._refused(name, named, failed)
        if nothing is not None:  # raised outside of the handler, so that it has no context
            raise nothing
        constraints = {**said, **batch.constraints}
        rules = self._rules(constraints)
        call = replace(
            Request.of(queries, self.groups),
            started=started,
            decided=self._decided(constraints, rules),
            rules=rules,
        )
        explanations = self._release(batch, queries, call, rules, max_changes)
        with quiet(
            f"the adapter cannot rebuild what {name} returns; use explain()",
            AdapterError,
            let=CFKError,
        ):
            restored = self.source.restore(native, explanations)
        if restored is native and native is not None:
            raise AdapterError(
                f"the adapter gives back what {name} returned instead of rebuilding it"
            )
        return restored

    def _refused(
        self, method: str, options: Mapping[str, Any], failed: ExplainerError
    ) -> ExplainerError:
        """Return the error of a call that the explainer did not answer.

        Its text names the call, and how to make it without protection if a text is withheld.
        """
        place = "" if method == self.name else f" in {method}"
        given = f", called with {', '.join(options)}" if options else ""
        text = f"{self.name} failed{place}{given}: {failed}"
        if text.endswith(TEXT_WITHHELD):
            text += f": {self._own_call(method)}"
        refused = ExplainerError(text)
        refused.__cause__ = failed.__cause__  # None, unless errors are debugged
        refused.is_debugged = failed.is_debugged
        return refused

    def _own_call(self, method: str) -> str:
        """Return the line that calls the explainer itself as `method` does."""
        names = self.methods()
        name = method if method in names else next(iter(names), "__call__")
        if name == "__call__":
            return "explainer(queries)"
        return f"explainer.{name}(queries)"

    def _check(self, batch: CounterfactualBatch, queries: pd.DataFrame) -> None:
        if not isinstance(batch, CounterfactualBatch):
            raise AdapterError(
                f"an adapter returned {type(batch).__name__} instead of a CounterfactualBatch"
            )
        if len(batch.query) and not 0 <= batch.query.min() <= batch.query.max() < len(queries):
            raise AdapterError("an adapter answered queries that were not asked")
        if len(batch.frame):
            features = self.anonymizer.population_.schema.features
            require_features(batch.frame, features, "the explainer's answer")

    def _release(
        self,
        batch: CounterfactualBatch,
        queries: pd.DataFrame,
        call: Request,
        rules: Rules,
        max_changes: int | None,
        progress: Progress | None = None,
    ) -> Explanations:
        self._check(batch, queries)
        goal = self.anonymizer.goal_of_call(batch.desired) or self.anonymizer.goal_
        entries: list[Explanation] = [*map(Withheld, batch.query.tolist(), repeat("none_found"))]
        findings: list[NativeStatus | None] = [None] * len(entries)
        if self.anonymizer.ledger is not None and not may_observe(len(batch.query), self.track):
            withheld: list[Explanation] = [
                Withheld(query, "not_recorded") for query in batch.query.tolist()
            ]
            return self._wrap(withheld, None, call)  # so the ledger does not record it either
        if len(batch.frame):
            query = batch.query[batch.slot]
            depends_on_no_row = depends_on_rows(self.source) == "no"
            pipeline = replace(
                self.anonymizer.pipeline_, goal=goal, depends_on_no_row=depends_on_no_row
            )
            asked = select(queries, self.anonymizer.population_.schema.features).take(query)
            told: dict[str, Any] = {
                "instance_based": self.source.instance_based,
                "progress": progress or advance,
            }
            with doing("protecting counterfactuals") if progress is None else nullcontext():
                done, kinds = pipeline.release(
                    batch.frame,
                    query,
                    factuals=asked,
                    rules=rules,
                    max_changes=max_changes,
                    **told,
                )
            for slot, entry, finding in zip(batch.slot, done, kinds, strict=True):
                entries[slot], findings[slot] = entry, finding
        self._note_already_desired(entries, batch, queries, goal)
        return self._wrap(entries, findings, call)

    def _note_already_desired(
        self,
        entries: list[Explanation],
        batch: CounterfactualBatch,
        queries: pd.DataFrame,
        goal: DesiredOutcome,
    ) -> None:
        """Say so, in place, where no counterfactual was found because nothing needs to change.

        The model is asked only about queries without any counterfactual.
        """
        already = {
            entry.query
            for entry in entries
            if isinstance(entry, Withheld) and entry.reason == ALREADY_DESIRED
        }
        answered = set(batch.query[batch.slot].tolist())
        unanswered = [
            query for query in dict.fromkeys(batch.query.tolist()) if query not in answered
        ]
        if unanswered:
            pipeline = replace(self.anonymizer.pipeline_, goal=goal)
            features = self.anonymizer.population_.schema.features
            has_outcome = pipeline.with_outcome(select(queries, features).take(unanswered))
            already |= {unanswered[i] for i in has_outcome.nonzero()[0].tolist()}
        for slot, entry in enumerate(entries):
            if (
                entry.query in already
                and isinstance(entry, Withheld)
                and entry.reason == "none_found"
            ):
                entries[slot] = Withheld(entry.query, ALREADY_DESIRED)

    def _wrap(
        self, entries: list[Explanation], findings: list[NativeStatus | None] | None, call: Request
    ) -> Explanations:
        record = partial(observe, track=self.track)
        start: SearchStart = "explainer"
        if depends_on_rows(self.source) == "no":
            start = "independent explainer"
        found: Explanations = self.anonymizer.wrap(
            entries, findings, self.name, call, record, start=start
        )
        return found


class _Replaced(_Wrapped):
    """An explainer that is not asked, as prototypes or a catalogue answer in its place."""

    def forwarded(self) -> tuple[str, ...]:
        return super().forwarded() if self._has_catalogue else ()

    @property
    def _has_catalogue(self) -> bool:
        """Whether a catalogue answers; prototypes do otherwise."""
        return isinstance(
            self.anonymizer, KAnonymizer
        )  # `protect` lets only those with one come here

    def explain(
        self,
        queries: Any,
        progress: Progress | None,
        options: dict[str, Any],
        max_changes: int | None,
    ) -> Any:
        if not self._has_catalogue:
            given = sorted(options)
            if max_changes is not None:
                given.append("max_changes")
            if given:
                names = ", ".join(given)
                raise InputError(f"queries are answered without the explainer; leave out {names}")
            return self.anonymizer.explain(queries, track=self.track, groups=self.groups)
        if not isinstance(queries, pd.DataFrame):
            queries = as_pandas(queries)
            if not isinstance(queries, pd.DataFrame) and "explain" in self.methods():
                return self.call("explain", (queries,), options, max_changes)
        n_answers = options.pop("answers", None)
        request = AnswerRequest(queries=queries, constraints=constraints_of(options))
        if unread := without_constraints(options):
            if not isinstance(self.source, AnsweringSource):
                raise InputError(
                    f"{self.name} is not asked, and its adapter does not read its options; leave"
                    f" out {', '.join(unread)}"
                )
            request = self._read("generate", (queries,), options)
        if n_answers is not None:
            request = replace(request, n_answers=n_answers)
        # The table that was given has the column of groups, which the adapter may leave out.
        return self._answer(replace(request, queries=queries), progress, max_changes)

    def call(
        self, name: str, args: tuple[Any, ...], named: dict[str, Any], max_changes: int | None
    ) -> Any:
        """Answer one of `methods` from the catalogue, in the explainer's own result type."""
        source = self._answering_source(name)
        request = self._read(name, args, named)
        explanations = self._answer(request, None, max_changes)
        with quiet(f"the adapter cannot build what {name} returns", AdapterError, let=CFKError):
            return source.build(name, request, explanations)

    def _answering_source(self, name: str) -> AnsweringSource:
        """Return the source, if its methods can be answered without calling the explainer."""
        if self._has_catalogue and isinstance(self.source, AnsweringSource):
            return self.source
        raise AdapterError(
            f"{name} asks the explainer, whose answers are replaced here; use explain() with a"
            " DataFrame"
        )

    def _read(self, name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> AnswerRequest:
        """Read what a call asks for; warn of options that have no effect without the explainer."""
        source = self._answering_source(name)
        with quiet(
            f"the adapter cannot read a call of {name}: it raised {{}}", AdapterError, let=CFKError
        ):
            request = source.read_request(name, args, named)
        if request.ignored:
            warnings.warn(
                f"{', '.join(request.ignored)}: steers only the search of {self.name}, which is not"
                ' used, as answers start at the query; protect with start="explainer" to use it',
                IgnoredOptionWarning,
                stacklevel=5,
            )
        return request

    def _answer(
        self, request: AnswerRequest, progress: Progress | None, max_changes: int | None
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


_WRAPPED: WeakKeyDictionary[ProtectedExplainer, _Wrapped] = WeakKeyDictionary()
"""By object, outside of it, so that no attribute leads to an explainer."""
