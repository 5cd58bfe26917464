"""What runs hold, as it was logged: exact, and for the code that makes a report alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunEvidence:
    """One run. What it does not hold is None, or a column that is not there.

    Attributes
    ----------
    run_id, name, experiment : str
    started : int
        Milliseconds since 1970.
    params, tags : mapping of str to str
    metrics : mapping of str to float
        Last values.
    policy, population, environment, frontier : mapping, optional
        ``cfk/policy.json``, ``cfk/population.json``, ``cfk/environment.json``, ``cfk/frontier.json``.
    rows : DataFrame, optional
        One row per explanation in the period, in the order of the run: of ``cfk/explanations`` the columns ``step``,
        ``timestamp``, ``status``, ``reason``, ``k``, ``ncp``, ``pureness``, ``pureness_low``, ``pureness_high``,
        ``exact``, ``optimal``, ``gap``, ``method``, ``guarantee``, ``policy_hash``, ``population``, ``epsilon``,
        ``delta``; of ``cfk/recount`` whatever is there, joined row by row.
    prototype : mapping, optional
        The certificate that the run's prototypes share.
    audits : sequence of mapping
        ``cfk/audit*.json``.
    """

    run_id: str
    name: str = ""
    experiment: str = ""
    started: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    frontier: Mapping[str, Any] | None = None
    rows: pd.DataFrame | None = None
    prototype: Mapping[str, Any] | None = None
    audits: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """Everything that a report is made from.

    Attributes
    ----------
    runs : sequence of RunEvidence
        Those with explanations and those with audits, oldest first.
    since, until : int, optional
        The period asked for, milliseconds since 1970; `until` is not in it.
    uncounted : mapping of str to int
        Explanations in the period that are in files of a run and that its summary does not count, by run id: they
        are on their way, or the attempt to log them broke off. They are not in the runs' rows.
    """

    runs: Sequence[RunEvidence]
    since: int | None = None
    until: int | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)
