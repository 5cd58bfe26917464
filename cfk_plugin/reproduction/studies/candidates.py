"""What it is worth to choose between several counterfactuals of a query, nearest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfk_plugin.reproduction.measure import Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.studies.means import mean, released

METHOD = "exact-pureness"
K = 10
CANDIDATES = (1, 5, 20)


def pieces(tables: Sequence[str], *, asked_of_grasp: int | None = None) -> list[Piece]:  # noqa: ARG001 - as in others
    """Return what has to be measured: every number of candidates on every table. GRASP is not in it."""
    return [
        Piece(table=table, method=METHOD, k=K, options={"candidates": m}, kind="candidates")
        for table in tables
        for m in CANDIDATES
    ]


def rows(outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row per table and number of candidates; distance is a mean over features, in [0, 1]."""
    return [
        {
            "piece": key,
            "table": outcome.setting.table,
            "k": outcome.k,
            "m": outcome.options["candidates"],
            **mean(outcome, "distance"),
            **mean(outcome, "ncp"),
            **mean(outcome, "pureness"),
            "k_mean": mean(outcome, "k")["k"],
            "n": len(released(outcome, "ncp")),
        }
        for key, outcome in outcomes.items()
    ]
