"""What lies between least NCP and most pureness: the objective "weighted" with several weights of impurity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfk_plugin.reproduction.measure import Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.results import published
from cfk_plugin.reproduction.studies.means import mean, released

WEIGHTS = (0.02, 0.05, 0.07, 0.1, 0.2)
"""Points of NCP that a point of pureness is worth."""

KS = (5, 10, 20)


def pieces(tables: Sequence[str], *, asked_of_grasp: int | None = None) -> list[Piece]:  # noqa: ARG001 - as in others
    """Return what has to be measured: every weight on every table at the paper's k. GRASP is not in it."""
    return [
        Piece(table=table, method="exact-weighted", k=k, options={"weight": weight})
        for table in tables
        for k in KS
        for weight in WEIGHTS
    ]


def rows(outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row per table, k and weight; `beats` is 1 where both means are better than the paper's, or at 1."""
    return [
        {
            "piece": key,
            "table": outcome.setting.table,
            "k": outcome.k,
            "weight": float(outcome.options["weight"]),
            **mean(outcome, "ncp"),
            **mean(outcome, "pureness"),
            "n": len(released(outcome, "ncp")),
            "beats": _beats(outcome),
        }
        for key, outcome in outcomes.items()
    ]


def _beats(outcome: Measurement) -> int | None:
    printed = published().result("cf-k", outcome.k, outcome.setting.table)
    ncp, pureness = (mean(outcome, figure)[figure] for figure in ("ncp", "pureness"))
    if printed is None or ncp is None or pureness is None:
        return None
    return int(ncp < printed.ncp and (pureness > printed.pureness or pureness == 1))
