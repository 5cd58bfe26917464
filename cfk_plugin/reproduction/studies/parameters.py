"""What k, alpha and iterations do to GRASP on one table: section 5.3.2 of the paper, its Figure 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cfk_plugin.reproduction.measure import Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.studies.means import mean, released

TABLE = "german"
VALUES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"k": (5, 10, 15, 20, 25, 30), "alpha": (5, 10, 20, 40, 80), "iterations": (1, 2, 3, 5, 8)}
)
"""What is tried of each; the others are the paper's `USUAL` ones."""

USUAL: Mapping[str, int] = MappingProxyType({"k": 10, "alpha": 20, "iterations": 3})


def pieces(tables: Sequence[str], *, asked_of_grasp: int | None = 50) -> list[Piece]:
    """Return what has to be measured: GRASP at every value, and the purest region at every k.

    Both explain the same: what GRASP is asked for.
    """
    if TABLE not in tables:
        return []
    found = [_grasp(name, value, asked_of_grasp) for name, values in VALUES.items() for value in values]
    exact = [Piece(table=TABLE, method="exact-pureness", k=k, asked=asked_of_grasp) for k in VALUES["k"]]
    return [piece for i, piece in enumerate([*found, *exact]) if piece not in found[:i]]


def _grasp(name: str, value: int, asked: int | None) -> Piece:
    usual = value == USUAL[name]
    return Piece(
        table=TABLE,
        method="grasp",
        k=value if name == "k" else USUAL["k"],
        options={} if usual or name == "k" else {name: value},
        asked=asked,
    )


def rows(outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row per parameter and value; GRASP with the usual settings is a value of all three."""
    found = [
        {
            "piece": key,
            "table": outcome.setting.table,
            "parameter": name,
            "value": value,
            "method": outcome.method,
            **mean(outcome, "ncp"),
            **mean(outcome, "pureness"),
            "seconds": outcome.seconds / outcome.asked if outcome.asked else None,
            "n": len(released(outcome, "ncp")),
        }
        for key, outcome in outcomes.items()
        for name, value in _values(outcome)
    ]
    return sorted(found, key=lambda row: (list(VALUES).index(row["parameter"]), row["method"], row["value"]))


def _values(outcome: Measurement) -> Iterator[tuple[str, int]]:
    """Name the parameters of which an outcome shows a value."""
    settings = {**USUAL, **outcome.options, "k": outcome.k}
    for name in VALUES if outcome.method == "grasp" else ("k",):
        if all(settings[other] == USUAL[other] for other in VALUES if other != name):
            yield name, settings[name]
