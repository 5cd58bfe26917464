"""The object that `protect` returns: it has the explainer's methods, and returns only protected
explanations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import pandas as pd

from cfk_plugin.data.call_rules import most_changes
from cfk_plugin.data.display import card, facts
from cfk_plugin.data.values import as_pandas
from cfk_plugin.errors import (
    AdapterError,
    HostOnly,
    NotForwardedError,
    quiet,
)
from cfk_plugin.hookspecs import CounterfactualSource, Progress
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.wrapped_explainer import Prototypes, WrappedExplainer, wrap_explainer
from cfk_plugin.tracking.logger import Track


class ProtectedExplainer(HostOnly):
    """An explainer whose answers are protected. `protect` makes it.

    `explain` returns `Explanations`. The explainer's own methods that return counterfactuals have
    the same names and result types here, and their results are rebuilt from protected explanations.
    Attributes that the adapter lists in ``forwarded`` are passed on unchanged. Any other name
    raises `NotForwardedError`.

    Code in the same process can reach the explainer and the training rows: give recipients the
    results, not this object. It cannot be pickled or copied, because a copy would contain the
    training rows.
    """

    def __init__(
        self,
        explainer: Any,
        source: CounterfactualSource,
        anonymizer: KAnonymizer | Prototypes,
        track: Track = False,
        groups: str | None = None,
        *,
        is_asked: bool = True,
    ) -> None:
        self._wrapped = wrap_explainer(
            explainer,
            source,
            anonymizer,
            track=track,
            groups=groups,
            is_asked=is_asked,
        )

    @property
    def anonymizer(self) -> KAnonymizer | Prototypes:
        """The fitted `KAnonymizer` or `DPPrototypes` that protects the answers."""
        protector: KAnonymizer | Prototypes = self._wrapped.anonymizer
        return protector

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
    def explain(
        self,
        queries: Any,
        *,
        max_changes: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Any:
        """Explain queries with protected counterfactuals.

        Parameters
        ----------
        queries : DataFrame, shape (n_queries, n_features)
            Instances to explain, in their original units. Queries of another type are passed to the
            explainer's own ``explain``, if it has one; the protected result then has the
            explainer's result type.
        max_changes : int, optional
            The largest number of features that an answer may ask to change; see
            `KAnonymizer.explain`. The explainer's own methods accept it too. It is not passed to
            the explainer.
        progress : callable, optional
            Called with the numbers (done, total) of answers.
        **options
            Options of the explainer. ``features_to_vary`` and ``permitted_range`` (see
            `KAnonymizer.explain`) bind every released explanation, even if the explainer ignores
            them. If the catalogue answers, ``answers`` is the number of answers per query.

        Returns
        -------
        Explanations
            One explanation, released or withheld, for each answer of each query, in the order of
            the queries.

        Raises
        ------
        InputError
            If `queries` is not a table with every feature, or lacks the column of groups; if a
            constraint does not name a feature, is empty, or is outside the declared range; or if
            `max_changes` is not a whole number of at least 1.
        AdapterError
            If the explainer raises (its text is not repeated, because it may quote rows), or if its
            answer cannot be read or does not belong to the queries.
        """
        wrapped = self._wrapped
        queries = as_pandas(queries)
        limit = most_changes(max_changes)
        if wrapped.is_for_own_explain(queries):
            return wrapped.call("explain", (queries,), options, limit, progress)
        return wrapped.explain(queries, options, max_changes=limit, progress=progress)

    def __call__(self, queries: Any, **options: Any) -> Any:
        """Call `explain`, so that a protected function can be called like the function."""
        return self.explain(queries, **options)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the explainer with protected results, or a forwarded attribute."""
        wrapped = self._wrapped
        if name in wrapped.methods():
            return _protected_method(wrapped, name)
        if name in wrapped.forwarded():
            return _forwarded_attribute(wrapped, name)
        raise NotForwardedError(
            f"{name!r} of {wrapped.name} is not passed on, because it may contain training rows;"
            f" this protected explainer has {wrapped.public_names}. Use your unprotected explainer"
            " for it, or add the name to the adapter: to `methods` if it returns counterfactuals,"
            " or to `forwarded` if it contains no value of a row; see"
            " docs/how-to/write-an-adapter.md"
        )

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *self._wrapped.methods(), *self._wrapped.forwarded()})

    def _repr_html_(self) -> str:
        wrapped = self._wrapped
        promises = [] if wrapped.policy is None else [f"{wrapped.policy.promise}."]
        rows = {"in the place of": wrapped.name, "has": wrapped.public_names, "by": wrapped.rule}
        return card(
            "Protected explainer",
            "What leaves it is protected, or withheld.",
            *promises,
            facts(rows),
        )

    def _counts(self) -> str:
        return f"{self._wrapped.name}, {self._wrapped.rule}"


def _protected_method(wrapped: WrappedExplainer, name: str) -> Callable[..., Any]:
    """Return a function that calls one of the explainer's methods and protects its result."""

    def method(*args: Any, max_changes: int | None = None, **named: Any) -> Any:
        return wrapped.call(name, args, named, most_changes(max_changes))

    method.__name__ = name
    method.__doc__ = f"{name} of the explainer, with protected counterfactuals."
    return method


def _forwarded_attribute(wrapped: WrappedExplainer, name: str) -> Any:
    """Return an attribute of the explainer, or a function that calls it if it is a method."""
    with quiet(f"{name} of the explainer cannot be read", NotForwardedError):
        value = getattr(wrapped.explainer, name)
    if not callable(value):
        return value

    def method(*args: Any, **named: Any) -> Any:
        with quiet(f"{name} of the explainer failed", AdapterError):
            return value(*args, **named)

    method.__name__ = name
    return method
