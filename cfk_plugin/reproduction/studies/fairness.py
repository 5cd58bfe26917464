"""Whether the minority pays more for its privacy: section 6.3 of the paper, its Figure 5.

The paper compares the groups of the people who are hidden: of the counterfactual instances. Beside it stand the groups
of the people who ask, who get the explanation that was made vague.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.reproduction.measure import Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.studies.means import difference, spread

METHODS = ("exact-pureness", "grasp")
KS = (5, 10, 20)
_METRICS = ("ncp", "pureness")


def pieces(tables: Sequence[str], *, asked_of_grasp: int | None = None) -> list[Piece]:
    """Return what has to be measured: nothing but what is measured for the paper's main tables, at each of their k."""
    return [
        Piece(table=table, method=method, k=k, asked=asked_of_grasp if method == "grasp" else None)
        for table in tables
        for method in METHODS
        for k in KS
    ]


def rows(outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row per method, k, metric, way to group and group.

    Difference is minority minus majority, the same in both rows.
    """
    return [row for key, outcome in outcomes.items() for row in _of(key, outcome)]


def _of(key: str, outcome: Measurement) -> Iterator[dict[str, Any]]:
    seed = outcome.setting.seed
    for by, groups in (("counterfactual", outcome.groups), ("asking", outcome.groups_asking)):
        for metric in _METRICS:
            values = {group: _of_group(outcome, metric, groups, group) for group in ("minority", "majority")}
            between, lowest, highest = difference(values["minority"], values["majority"], seed)
            for group, some in values.items():
                value, low, high = spread(some, seed)
                yield {
                    "piece": key,
                    "table": outcome.setting.table,
                    "k": outcome.k,
                    "method": outcome.method,
                    "by": by,
                    "group": group,
                    "metric": metric,
                    "mean": value,
                    "low": low,
                    "high": high,
                    "n": len(some),
                    "difference": between,
                    "difference_low": lowest,
                    "difference_high": highest,
                }


def _of_group(outcome: Measurement, metric: str, groups: Sequence[str], group: str) -> NDArray[np.float64]:
    figures = zip(outcome.figures[metric], groups, strict=True)
    return np.array([value for value, its in figures if its == group and value is not None], dtype=np.float64)
