"""The record of a call: its explanations as rows of a table, and the settings of the run.

It contains no row of the training table. Of the applicant's values, it contains only the label of
their group, if the caller names a column of groups.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["whole numbers", "times", "numbers", "flags", "text"]
"""The type of a column.

Times are milliseconds since 1970. Whole numbers and times are never null; whole numbers that may be
null, such as k, are "numbers".
"""
Figures = Mapping[str, int | float | None]
"""Figures by name; None if a figure is unknown."""

SCHEMA_VERSION = 1
"""Version of the names and the layout of a run; tag ``cfk.schema_version``."""
FLOOR = "cfk.least_pureness"
"""Parameter of a run of regions: the least pureness of a released explanation."""
PER_EXPLANATION = ("k", "ncp", "pureness")
"""Columns that are also metrics with one value per explanation."""

EXPLANATION_COLUMNS: Mapping[str, Kind | None] = {
    "step": "whole numbers",
    "timestamp": "times",
    "query": None,
    "status": "text",
    "reason": "text",
    "k": "numbers",
    "ncp": "numbers",
    "pureness": "numbers",
    "pureness_low": "numbers",
    "pureness_high": "numbers",
    "exact": "flags",
    "optimal": "flags",
    "gap": "numbers",
    "method": "text",
    "guarantee": "text",
    "policy_hash": "text",
    "population": "text",
    "region": None,
    "released": None,
}
"""Columns that recipients may see; None for a column that reports do not read."""
PROTOTYPE_COLUMNS: Mapping[str, Kind | None] = {
    "epsilon": "numbers",
    "delta": "numbers",
    "prototype": None,
    "certificate": "text",
}
"""Further columns of prototypes."""
RECOUNT_COLUMNS: Mapping[str, Kind] = {
    "k_worst": "numbers",
    "k_desired": "numbers",
    "k_consistent": "numbers",
    "k_effective": "numbers",
    "k_private": "numbers",
    "private_matches": "numbers",
    "l": "numbers",
    "t": "numbers",
    "disclosure": "numbers",
    "majority": "flags",
    "finding": "text",
    "refused_k": "numbers",
    "seconds": "numbers",
    "group": "text",
    "true": "flags",
}
"""Columns with exact counts, for the data holder only."""
_NCP_PREFIX = "ncp."
_KINDS = {**EXPLANATION_COLUMNS, **PROTOTYPE_COLUMNS, **RECOUNT_COLUMNS}
_HOUR = 3_600_000  # milliseconds


def kind_of(column: str) -> Kind | None:
    """Return the type of a column of the table; None if reports do not read the column."""
    return "numbers" if column.startswith(_NCP_PREFIX) else _KINDS.get(column)


def rough_time() -> int:
    """Return a random moment of the previous clock hour, in milliseconds since 1970.

    If a reader of runs knows when a person asked, the exact time would identify the person's
    explanation. All times of an hour are drawn from the same hour, so that the times of other
    explanations do not narrow it.
    """
    now = time.time_ns() // 1_000_000
    return now // _HOUR * _HOUR - 1 - secrets.randbelow(_HOUR)


class Loggable(Protocol):
    def to_record(self) -> RunRecord: ...


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class RunRecord:
    """The explanations of a call, with everything that a run logs about them.

    Journals store records as JSON: if you change the fields, change `JOURNAL_VERSION`.
    """

    created: int = field(default_factory=rough_time)  # milliseconds since 1970
    params: dict[str, str]  # parameters of the run; other parameters need another run
    tags: dict[str, str]  # tags of the run, except the verdict
    policy: dict[str, Any]
    columns: list[str]  # features, in order
    quasi_identifiers: list[str]  # columns with an NCP
    rows: list[dict[str, Any]]  # one per explanation; see `table`
    # number of raw counterfactuals that were compared with training rows ("examined"), and of
    # those with each `NativeStatus`
    n_of_finding: dict[str, int]
    # the same for counterfactuals of a sample of people at the fit
    sample: dict[str, int] | None = None
    epsilon_spent: float | None = None  # so far; None without a budget or a guarantee
    # logged once per run; see `cfk_plugin.metrics.provenance`
    population: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    number: int = 0  # position of the record in its run
    first_step: int = 0  # position of its first explanation in the run
    figures: Figures = field(default_factory=dict)  # of the run, up to this record
    verdict: str = ""  # of the run, up to this record

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def of_prototypes(self) -> bool:
        return "k" not in self.policy

    @property
    def released(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["status"] == "released"]

    def table(self) -> dict[str, list[Any]]:
        """Return a table with one row per explanation, in the layout of `mlflow.log_table`.

        It has the columns of this module, ``ncp.NAME`` for each quasi-identifier, and
        ``feature.NAME`` with the value of each feature as text. ``region``, ``released``,
        ``prototype`` and ``certificate`` are JSON.
        """
        columns = ["step", "status", "reason", *PER_EXPLANATION]  # readers look for these first
        columns += [f"feature.{name}" for name in self.columns]
        columns += [*EXPLANATION_COLUMNS, *(PROTOTYPE_COLUMNS if self.of_prototypes else ())]
        columns += [*RECOUNT_COLUMNS, *(_NCP_PREFIX + name for name in self.quasi_identifiers)]
        columns = list(dict.fromkeys(columns))
        data = []
        for step, row in enumerate(self.rows, start=self.first_step):
            numbered = {**row, "step": step, "timestamp": self.created}
            data.append([numbered.get(column) for column in columns])
        return {"columns": columns, "data": data}
