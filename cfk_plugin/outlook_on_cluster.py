"""The outlook of cells where the rows are on a cluster: the records that are tried stay there, votes come back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.cluster import Sent, signed, unsigned
from cfk_plugin.goal import Goal
from cfk_plugin.grid import rows_for_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.label_model import LabelModel
    from cfk_plugin.population import Population


def desired_shares(population: Population, model: LabelModel, goal: Goal, most: int) -> NDArray[np.float64]:
    """Return what `cfk_plugin.outlook.desired_shares` does, without a row or a private value leaving the workers.

    The model and the key travel to the workers. From there come counts of predicted outcomes (where any other outcome
    is desired), keyed numbers, and one vote per cell and record.

    Parameters
    ----------
    population : Population
        Its rows are on a cluster.
    model : LabelModel
    goal : Goal
    most : int
        Records that are tried at most.
    """
    wanted = _Wanted(None if goal.is_opposite else goal, _frequent(population, model) if goal.is_opposite else None)
    drawn = _least(population, model, wanted, most)
    if not len(drawn):
        return np.zeros(len(population.cells))
    votes = _votes(population, model, wanted, drawn)
    total = np.zeros(len(population.cells))
    for number in drawn.tolist():
        total += votes[number]
    return total / len(drawn)


class _Wanted:
    """Which labels are desired: those of a goal, or of everybody, where the most frequent label is."""

    def __init__(self, goal: Goal | None, frequent: str | None) -> None:
        self.goal, self.frequent = goal, frequent

    def rows(self, labels: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Say whose private values are tried."""
        return np.ones(len(labels), dtype=bool) if self.goal is None else self.goal.met(labels)

    def cells(self, labels: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Say where the outcome is the desired one."""
        if self.goal is not None:
            return self.goal.met(labels)
        return np.array([str(label) == self.frequent for label in labels.tolist()], dtype=bool)


def _frequent(population: Population, model: LabelModel) -> str:
    """Return the spelling of the most frequent label; of equally frequent ones the first."""

    def count(frame: pd.DataFrame) -> pd.DataFrame:
        found = Counter(map(str, model(frame).astype(object).tolist()))
        return pd.DataFrame({"label": list(found), "people": list(found.values())})

    found = population.map_rows(count, "label string, people long").groupby("label")["people"].sum()
    return str(found.sort_index().idxmax())


def _least(population: Population, model: LabelModel, wanted: _Wanted, most: int) -> NDArray[np.uint64]:
    """Return the least keyed numbers of the records that are tried, ascending; equal records have equal ones."""
    sent = Sent(population.coding, population.order)

    def least(frame: pd.DataFrame) -> pd.DataFrame:
        tried = frame[wanted.rows(model(frame).astype(object))]
        numbers = np.sort(sent.numbers(tried))[:most]
        return pd.DataFrame({"number": signed(numbers)})

    return np.sort(unsigned(population.map_rows(least, "number long")["number"]))[:most]


def _votes(
    population: Population, model: LabelModel, wanted: _Wanted, drawn: NDArray[np.uint64]
) -> dict[int, NDArray[np.bool_]]:
    """Return for each of the records whether each cell has the desired outcome with its private values."""
    sent, cells = Sent(population.coding, population.order), population.cells

    def vote(frame: pd.DataFrame) -> pd.DataFrame:
        numbers, first = np.unique(sent.numbers(frame), return_index=True)
        at = first[np.isin(numbers, drawn)]
        records = frame.iloc[at]
        said = [
            wanted.cells(model(rows_for_cells(sent.coding, records, np.full(len(cells), i), cells)).astype(object))
            for i in range(len(records))
        ]
        packed = [np.packbits(answers).tobytes() for answers in said]
        number = numbers[np.isin(numbers, drawn)]
        return pd.DataFrame({"number": signed(number), "votes": packed})

    found = population.map_rows(vote, "number long, votes binary")
    unpacked = [
        np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=len(cells)).astype(bool) for packed in found["votes"]
    ]
    return dict(zip(unsigned(found["number"]).tolist(), unpacked, strict=True))
