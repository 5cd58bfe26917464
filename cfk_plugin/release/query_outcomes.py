"""Queries that already have the outcome that a call names, and need no change to get it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import EncodedTable, valid_rows
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.errors import HostOnly


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReadableQueries(HostOnly):
    """The queries that the model can be asked about, each once."""

    rows: EncodedTable  # n_queries rows
    at: Rows  # shape (n_readable,); rows of the call whose query can be read
    row_of: Rows  # shape (n_readable,); for each of these, the position of its query in `rows`
    n_asked: int  # number of rows of the call

    @classmethod
    def build(
        cls, queries: EncodedTable, query_of_row: Rows, *, with_unknown: bool = False
    ) -> ReadableQueries:
        """Choose among `queries`, whose row i belongs to query number ``query_of_row[i]``.

        With `with_unknown`, queries with a category that the population lacks are among them. Not
        every model can be asked about these.
        """
        positions = valid_rows(queries)
        if with_unknown:
            positions = np.union1d(positions, with_unknown_category(queries))
        _, first, row_of = np.unique(
            query_of_row[positions], return_index=True, return_inverse=True
        )
        return cls(queries.take(positions[first]), positions, row_of, len(query_of_row))

    def with_outcome(self, goal: DesiredOutcome, labels: Labels) -> Mask:
        """Return a mask of shape (n_asked,): whether the query has the outcome already.

        `labels` are the model's at `rows`. It is False where a query cannot be read.
        """
        has_outcome = np.zeros(self.n_asked, dtype=bool)
        if len(self.at):
            has_outcome[self.at] = goal.is_met(labels)[self.row_of]
        return has_outcome


def with_unknown_category(queries: EncodedTable) -> Rows:
    """Return the positions of queries whose first fault is a category that the population lacks.

    They have no invalid or missing value, so a model may be able to read them. A number may be
    outside of the domain as well.
    """
    is_unknown = [fault is not None and fault[0] == "unknown_category" for fault in queries.faults]
    return np.flatnonzero(is_unknown)
