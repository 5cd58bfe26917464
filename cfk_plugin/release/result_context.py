"""What is known of a call and of its result, besides the explanations themselves."""

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
"""What a file holds: answers to queries, or all entries of a catalogue."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultContext:
    """What the data holder records about a result; nothing in it leads to a training row."""

    # see `cfk_plugin.metrics.provenance`, also for `environment`
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    seconds: float | None = None  # duration of the call, per explanation
    attribute: str | None = None  # name of the attribute that defines groups
    # group of the person of each explanation; empty without an attribute
    groups: tuple[str, ...] = ()
    is_for_people: bool = False  # whether the call has the queries of people
    # findings of detection among an explainer's counterfactuals at fit; see `RunRecord.sample`
    sample: Mapping[str, int] | None = None
    kind: Kind = "answers"
    wording: Wording = field(default_factory=Wording)
    # the caller's label of the query of each explanation; it is in no run and no JSON
    index: pd.Index | None = None

    def of_call(
        self, explanations: Sequence[Explanation], started: float, groups: Groups | None
    ) -> Self:
        """Return the context with the duration of a call, and the group of each explanation.

        `started` is the `time.perf_counter` at which the call began.
        """
        seconds = (time.perf_counter() - started) / max(len(explanations), 1)
        context = replace(self, seconds=seconds)
        return context if groups is None else context.grouped(groups, explanations)

    def grouped(self, groups: Groups, explanations: Sequence[Explanation]) -> Self:
        """Return the context with the group of each explanation."""
        queries = [explanation.query for explanation in explanations]
        return replace(self, attribute=groups.attribute, groups=groups.of_queries(queries))

    def sliced(self, positions: slice) -> Self:
        """Return the context of some of the explanations, which are no longer a catalogue."""
        index = None if self.index is None else self.index[positions]
        return replace(self, groups=self.groups[positions], index=index, kind="answers")
