"""Counterfactuals on their way through the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.data.policy import Mask
from cfk_plugin.data.training_labels import CombinationOutcomes
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Progress


@dataclass(frozen=True, eq=False, repr=False)
class Candidates(HostOnly):
    """Counterfactuals to protect, and what is needed to judge each."""

    encoded: EncodedTable
    query: Rows  # the query that each answers
    own: Labels  # the model's label at each
    factual: Labels | None  # and at its query, if that decides what is desired
    combination_outcomes: CombinationOutcomes
    eligibility: Rows  # which people may share a group with each; see `EligibilityClasses`
    progress: Progress | None = None
    entries: Rows | None = None  # of a catalogue
    moved: Mask | None = None  # private values that answers did not begin with
    asked: Constraints | None = None  # who asks, and what may change
    # whose private values leave, as a ledger knows them; None: the points' own
    sources: pd.DataFrame | None = None
    # which of these are a record's; None: all
    is_record: Mask | None = None
    # whether counterfactuals, and not queries, led to a catalogue's answers
    starts_at_counterfactual: bool = False

    def __len__(self) -> int:
        return len(self.encoded)

    def take(self, at: Rows) -> Candidates:
        factual, entries = (
            None if each is None else each[at] for each in (self.factual, self.entries)
        )
        moved = None if self.moved is None else self.moved[at]
        kept = (
            self.combination_outcomes.restrict(at),
            self.eligibility[at],
            self.progress,
            entries,
            moved,
        )
        asked, sources = (
            self.asked and self.asked.take(at),
            None if self.sources is None else self.sources.take(at),
        )
        is_record = None if self.is_record is None else self.is_record[at]
        return Candidates(
            self.encoded.take(at),
            self.query[at],
            self.own[at],
            factual,
            *kept,
            asked,
            sources,
            is_record,
            self.starts_at_counterfactual,
        )
