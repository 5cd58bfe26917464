"""Whether protected counterfactuals stay near the training rows: section 6.4 of the paper, its Table 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfk_plugin.reproduction.measure import NICE, Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.studies.means import mean, released

TABLE = "german"
METHODS = ("grasp", "exact-pureness")
KS = (5, 10, 20)


def pieces(tables: Sequence[str], *, asked_of_grasp: int | None = None) -> list[Piece]:
    """Return what has to be measured: every NICE, and the protected ones at every k."""
    if TABLE not in tables:
        return []
    return [Piece(table=TABLE, method=name, k=0, kind="distances") for name in NICE] + [
        Piece(table=TABLE, method=method, k=k, kind="distances", asked=asked_of_grasp if method == "grasp" else None)
        for method in METHODS
        for k in KS
    ]


def rows(outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row per method and k, which is None for NICE."""
    return [
        {
            "piece": key,
            "table": outcome.setting.table,
            "method": outcome.method,
            "k": None if outcome.method in NICE else outcome.k,
            **mean(outcome, "nearest"),
            **mean(outcome, "nearest_5"),
            "n": len(released(outcome, "nearest")),
            "unit": "sum over features",
        }
        for key, outcome in outcomes.items()
    ]
