"""A run's figures as the file ``cfk/summary.json``, from which the run is continued.

The file is written before the metrics that make its records count. So it holds two states: the
figures with these records, and those before them. Which one holds, the run's metrics say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cfk_plugin.data.formats import faults
from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.record import SCHEMA_VERSION

Figures = Mapping[str, int | float | None]
"""Figures by name; None for what is not known."""

SUMMARY = "summary"
"""Name of the file, without folder and suffix."""
SUMMARY_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a run with the records that were sent last, and without them."""

    figures: Figures
    earlier: Figures  # empty before the first records

    @classmethod
    def from_document(cls, document: Any, where: str) -> Summary:
        """Read a file's content; raise `TrackingError` if it is not what its JSON Schema says."""
        wrong = faults(document, f"run-{SCHEMA_VERSION}#/$defs/summary")
        if wrong:
            raise TrackingError(f"{where}: it is damaged: {wrong[0]}")
        return cls(figures=document["figures"], earlier=document["earlier"])

    def to_json(self) -> str:
        content = {
            "schema_version": SUMMARY_VERSION,
            "figures": dict(self.figures),
            "earlier": dict(self.earlier),
        }
        return json.dumps(content, indent=1, sort_keys=True, allow_nan=False)

    def at(self, asked: float, untracked: float) -> Figures | None:
        """Return the state with these two counts; None if neither has them.

        Records without an explanation change `untracked` alone.
        """
        for state in (self.figures, self.earlier):
            if (state.get("asked"), state.get("untracked")) == (asked, untracked):
                return state
        return None
