"""What is logged of one set of explanations: plain values that may leave, and counts for the data
holder.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cfk_plugin.tracking.tables import (
    EXPLANATION_COLUMNS,
    PROTOTYPE_COLUMNS,
    RECOUNT_COLUMNS,
    TRUE,
    feature_column,
    ncp_column,
)

SCHEMA_VERSION = 1
"""Version of the names and the layout of a run; tag ``cfk.schema_version``."""


FLOOR = "cfk.least_pureness"
"""Parameter of a run of regions: the pureness below which nothing was released."""


_HOUR = 3_600_000  # milliseconds


def rough_time() -> int:
    """Return a random moment of the clock hour before this one, in milliseconds since 1970.

    The exact time would tell a reader of runs who asked, if they know when a person did. All times
    of an hour are drawn alike, so that neighbours do not narrow each other. They are random rather
    than rounded, because a run knows by them which attempt to send its records has succeeded.
    """
    now = time.time_ns() // 1_000_000
    return now // _HOUR * _HOUR - 1 - secrets.randbelow(_HOUR)


class Loggable(Protocol):
    def to_record(self) -> RunRecord: ...


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class RunRecord:
    """Explanations as logged.

    They wait in journals as JSON: a change of the fields needs another `JOURNAL_VERSION`.
    """

    # random; never derived from a row
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    created: int = field(default_factory=rough_time)  # milliseconds since 1970
    params: dict[str, str]  # of the run; records with others belong to another run
    tags: dict[str, str]  # of the run, except the verdict
    policy: dict[str, Any]
    columns: list[str]  # features, in order
    rows: list[dict[str, Any]]  # one per entry, of what may leave; see `rows_of_explanations`
    found: dict[str, int]  # how many detection examined, and how many have each finding
    epsilon_spent: float | None = None  # so far; None without a budget or a guarantee
    untracked: int = 0  # counterfactuals given out before this without a record
    recount: list[dict[str, Any]]  # one per entry, for the data holder alone; see `rows_of_recount`
    # attributes with an NCP of their own
    quasi_identifiers: list[str] = field(default_factory=list)
    people: int = 0  # in the population, where that may be logged; else 0
    # logged once per run; see `cfk_plugin.metrics.provenance`
    population: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    # of a published catalogue without all of its entries: how many there are, and its rules
    # As `found`, of counterfactuals that an explainer gave for a few people at fit; None where it
    # was not asked. Every record of a fit has the same.
    sample: dict[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def k(self) -> int:
        return int(self.policy["k"])

    @property
    def of_prototypes(self) -> bool:
        return "k" not in self.policy

    @property
    def released(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["status"] == "released"]

    @property
    def generalized(self) -> list[dict[str, Any]]:
        """Rows of the regions that were released."""
        return [] if self.of_prototypes else self.released

    @property
    def prototypes(self) -> list[dict[str, Any]]:
        return self.released if self.of_prototypes else []


def rows_of_explanations(records: Sequence[RunRecord], first_step: int = 0) -> list[dict[str, Any]]:
    """Return one row per entry, holding only what may leave.

    The columns are `EXPLANATION_COLUMNS`, one text column ``feature.<name>`` per feature, and for
    prototypes `PROTOTYPE_COLUMNS`. ``timestamp`` is in milliseconds since 1970; ``region``,
    ``released``, ``prototype`` and ``certificate`` are JSON.
    """
    names = list(EXPLANATION_COLUMNS)
    names += [feature_column(feature) for feature in records[0].columns]
    if records[0].of_prototypes:
        names += PROTOTYPE_COLUMNS
    rows = [{**row, "timestamp": record.created} for record in records for row in record.rows]
    return _in_steps(rows, first_step, names)


def rows_of_recount(records: Sequence[RunRecord], first_step: int = 0) -> list[dict[str, Any]]:
    """Return the data holder's additions to each row of `rows_of_explanations`, in its order."""
    attributes = dict.fromkeys(name for record in records for name in record.quasi_identifiers)
    rows = [row for record in records for row in record.recount]
    names = [*RECOUNT_COLUMNS, *(ncp_column(attribute) for attribute in attributes)]
    if any(TRUE in row for row in rows):
        names.append(TRUE)
    return _in_steps(rows, first_step, names)


def _in_steps(
    rows: Sequence[dict[str, Any]], first_step: int, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return numbered rows with these columns and no other; what a row lacks is None."""
    numbered = ({**row, "step": step} for step, row in enumerate(rows, start=first_step))
    return [{name: row.get(name) for name in names} for row in numbered]
