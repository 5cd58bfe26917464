"""An explainer whose answers are replaced by prototypes: it is not asked any more, as what it finds tells of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pandas as pd

from cfk_plugin.errors import AdapterError, InputError
from cfk_plugin.explainer import KEPT, ProtectedExplainer
from cfk_plugin.explanations import Explanations
from cfk_plugin.protection.base import Progress
from cfk_plugin.source import CounterfactualSource
from cfk_plugin.tracking import RunLogger


class Prototypes(Protocol):
    """What answers in the explainer's place, fitted: `DPPrototypes`."""

    def explain(
        self, queries: pd.DataFrame, *, track: bool | RunLogger = False, groups: str | None = None
    ) -> Explanations:
        """Answer queries, one entry each."""
        ...


class ReplacedExplainer(ProtectedExplainer):
    """Stands in for an explainer, with answers that do not depend on what the explainer finds.

    Which counterfactuals an explainer finds, and how many, depends on training rows without any noise, so differential
    privacy leaves no use for them: `explain` answers from prototypes, and the explainer's own methods are refused.
    So is all else that it has, whatever its adapter forwards: what is no row may still depend on rows.
    """

    __slots__ = ()

    def __init__(
        self,
        explainer: Any,
        source: CounterfactualSource,
        prototypes: Prototypes,
        track: bool | RunLogger = False,
        groups: str | None = None,
    ) -> None:
        # They stand where the anonymizer stands, of which only the repr is used then.
        super().__init__(explainer, source, prototypes, track, groups)  # type: ignore[arg-type]

    def explain(self, queries: Any, *, progress: Progress | None = None, **options: Any) -> Explanations:  # noqa: ARG002
        """Answer queries with prototypes, one each.

        Parameters
        ----------
        queries : DataFrame, shape (n, n_features)
        progress : callable, optional
            Not called: answers come at once.
        **options
            The explainer's own have no meaning here and are refused.

        Returns
        -------
        Explanations

        Raises
        ------
        InputError
            If `queries` is no table with every feature, lacks the column of groups, or options are given.
        """
        if options:
            raise InputError(f"prototypes answer each query once; leave out {', '.join(options)}")
        kept = KEPT[self]
        prototypes: Any = kept.anonymizer
        answers: Explanations = prototypes.explain(queries, track=kept.track, groups=kept.groups)
        return answers

    def _forwarded_names(self) -> tuple[str, ...]:
        return ()

    def _protected_method(self, name: str) -> Callable[..., Any]:
        def refused(*_: Any, **__: Any) -> Any:
            raise AdapterError(
                f"what {name} finds depends on training rows, and prototypes must not depend on it; use explain()"
            )

        refused.__name__ = name
        return refused
