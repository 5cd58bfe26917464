"""Facts about a call and its result that runs log in addition to the explanations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import pandas as pd

from cfk_plugin.data.wording import Wording
from cfk_plugin.release.request import Groups
from cfk_plugin.release.results import Explanation

Kind = Literal["answers", "catalogue"]
"""The content of a result: answers to queries, or all entries of a catalogue."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultContext:
    """Facts about a result. None of them leads to a training row."""

    # facts about the training table and the software; see `cfk_plugin.metrics.provenance`
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    seconds: float | None = None  # duration of the call per explanation
    attribute: str | None = None  # column that defines the groups of applicants
    groups: tuple[str, ...] = ()  # the group of each explanation; empty without an attribute
    is_for_people: bool = False  # whether the call has queries
    # how often the explainer returned training rows at the fit; see `RunRecord.sample`
    sample: Mapping[str, int] | None = None
    kind: Kind = "answers"
    wording: Wording = field(default_factory=Wording)
    # the caller's label of each explanation's query, which no run and no JSON contains
    index: pd.Index | None = None

    def of_call(
        self, explanations: Sequence[Explanation], started: float, groups: Groups | None
    ) -> Self:
        """Return the context with the duration of a call, and the group of each explanation.

        `started` is `time.perf_counter` when the call began.
        """
        seconds = (time.perf_counter() - started) / max(len(explanations), 1)
        context = replace(self, seconds=seconds)
        return context if groups is None else context.grouped(groups, explanations)

    def grouped(self, groups: Groups, explanations: Sequence[Explanation]) -> Self:
        """Return the context with the group of each explanation."""
        queries = [explanation.query for explanation in explanations]
        return replace(self, attribute=groups.attribute, groups=groups.of_queries(queries))

    def sliced(self, positions: slice) -> Self:
        """Return the context of a slice of the explanations, which is not a whole catalogue."""
        index = None if self.index is None else self.index[positions]
        return replace(self, groups=self.groups[positions], index=index, kind="answers")
