"""What every k costs in NCP and pureness, by the purest regions and by those with the least NCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfk_plugin.reproduction.measure import Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.studies.means import mean, released

METHODS = ("exact-pureness", "exact-ncp")
KS = (2, 3, 5, 10, 15, 20, 30, 50)


def pieces(tables: Sequence[str], *, asked_of_grasp: int | None = None) -> list[Piece]:  # noqa: ARG001 - as in others
    """Return what has to be measured: both objectives at every k. GRASP is not in it."""
    return [Piece(table=table, method=method, k=k) for table in tables for method in METHODS for k in KS]


def rows(outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row per table, method and k; `released` is the share of the explanations asked for, the n of it."""
    return [
        {
            "piece": key,
            "table": outcome.setting.table,
            "k": outcome.k,
            "method": outcome.method,
            **mean(outcome, "ncp"),
            **mean(outcome, "pureness"),
            "released": len(released(outcome, "ncp")) / outcome.asked if outcome.asked else None,
            "n": len(released(outcome, "ncp")),
        }
        for key, outcome in outcomes.items()
    ]
