"""A protected explainer: it is called as the explainer is, and everything that it returns is
protected.
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
    """Stands in for an explainer: its methods that return counterfactuals return protected ones.

    Made by `protect`.

    `explain` returns `Explanations`. The explainer's own methods that return counterfactuals keep
    their names and result types; the result is rebuilt and holds no training row. The attributes
    that the adapter names in ``forwarded`` are passed on unchanged; all other names raise
    `NotForwardedError`. Code in the same process can reach the explainer: give recipients results,
    not this object. A protected explainer refuses to be pickled and copied, because a copy would
    hold the training rows.
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
        """What protects the answers: the fitted `KAnonymizer` or `DPPrototypes`."""
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
        """Explain queries; every counterfactual that is returned is protected.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features)
            Instances to explain, in the raw feature space. Queries of any other type are given to
            the explainer's own ``explain``, if it has one; the result has its own result type, and
            is protected.
        max_changes : int, optional
            How many features an answer may ask to change; see `KAnonymizer.explain`. The argument
            is not passed to the explainer. The explainer's own methods accept it as well.
        progress : callable, optional
            Called with (done, total) while protecting.
        **options
            Passed to the explainer. ``features_to_vary`` and ``permitted_range`` (see
            `KAnonymizer.explain`) are enforced on every released explanation, whatever the
            explainer does with them.

        Returns
        -------
        Explanations
            One explanation per counterfactual asked for, in the order of the queries.

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
        """Like `explain`, for explainers that are functions."""
        return self.explain(queries, **options)

    def __getattr__(self, name: str) -> Any:
        """Return the protected form of a method that returns counterfactuals, or an attribute that
        the adapter forwards.
        """
        wrapped = self._wrapped
        if name in wrapped.methods():
            return _protected_method(wrapped, name)
        if name in wrapped.forwarded():
            return _forwarded_attribute(wrapped, name)
        raise NotForwardedError(
            f"{name!r} of {wrapped.name} is not passed on, as it may give out training rows;"
            f" this protected explainer has {wrapped.public_names}. Ask the explainer itself where"
            " you hold it. To add the name, let the adapter map it in `methods` if it returns"
            " counterfactuals, or name it in `forwarded` if nothing of a row is in it: see"
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
    """Return one of the explainer's methods that return counterfactuals, protected."""

    def method(*args: Any, max_changes: int | None = None, **named: Any) -> Any:
        return wrapped.call(name, args, named, most_changes(max_changes))

    method.__name__ = name
    method.__doc__ = (
        f"{name} of the explainer; what it returns is protected and holds no training row."
    )
    return method


def _forwarded_attribute(wrapped: WrappedExplainer, name: str) -> Any:
    """Return an attribute of the explainer; a method is returned as a function that calls it."""
    with quiet(f"{name} of the explainer cannot be read", NotForwardedError):
        value = getattr(wrapped.explainer, name)
    if not callable(value):
        return value

    def method(*args: Any, **named: Any) -> Any:
        with quiet(f"{name} of the explainer failed", AdapterError):
            return value(*args, **named)

    method.__name__ = name
    return method
