"""How likely the desired outcome is at each combination of quasi-identifiers, whoever has it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.model import Goal, LabelModel, Mask, RowOracle, rows_for_cells
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import RecordReader, in_order, signed, unsigned
from cfk_plugin.protection.axes import Floats

_RECORDS = 8  # private parts that are tried in every cell
_ASKED = 400_000  # rows that the model is asked for at most, where that leaves one record


def partial_dependence(rows: RowOracle, goal: Goal) -> Floats:
    """Return for each cell the share of some records' private values that get the desired outcome there.

    A region over cells that are alike in it is likely to be pure, whatever private values it is released with. Queries
    play no part. Where any other outcome is desired, the most frequent prediction stands for it.
    """
    population = rows.population
    n_cells = len(population.cells)
    most = max(1, min(_RECORDS, _ASKED // n_cells))
    if not population.has_rows:
        return _on_cluster(population, rows.model, goal, most)
    labels = rows.labels(np.arange(population.n_rows))
    chosen = np.arange(len(labels)) if goal.is_opposite else np.flatnonzero(goal.met(labels))
    if not len(chosen):
        return np.zeros(n_cells)
    if goal.is_opposite:
        frequent = Counter(sorted(labels.tolist(), key=str)).most_common(1)[0][0]
        goal = Goal(lambda answers: np.asarray(answers == frequent, dtype=bool))
    count = min(most, len(chosen))
    number = population.keyed_numbers(chosen)
    least = number <= np.partition(number, count - 1)[count - 1]
    tried = chosen[least]
    line = in_order(population.codes[tried], population.schema, number[least])
    records = population.rows(tried[line[:count]])
    total = np.zeros(n_cells)
    for record in range(count):
        frame = rows_for_cells(population.encoder, records, np.full(n_cells, record), population.cells)
        total += goal.met(rows.ask(frame))
    return total / count


def _on_cluster(population: Population, model: LabelModel, goal: Goal, most: int) -> Floats:
    """Do the same without a row or a private value leaving the workers.

    The model and the key travel to the workers; back come counts of predicted outcomes (where any other outcome is
    desired), keyed numbers, and one vote per cell and record.
    """
    cells = population.cells
    frequent = _most_frequent(population, model) if goal.is_opposite else None

    def is_desired(labels: NDArray[np.object_]) -> Mask:
        if frequent is None:
            return goal.met(labels)
        return np.array([str(label) == frequent for label in labels.tolist()], dtype=bool)

    def least(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        tried = frame if frequent is not None else frame[is_desired(model(frame).astype(object))]
        return pd.DataFrame({"number": signed(np.sort(reader.numbers(tried))[:most])})

    drawn = np.sort(unsigned(population.map_rows(least, "number long")["number"]))[:most]

    def vote(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        numbers, first = np.unique(reader.numbers(frame), return_index=True)
        tried = np.isin(numbers, drawn)
        records = frame.iloc[first[tried]]
        asked = (rows_for_cells(reader.encoder, records, np.full(len(cells), i), cells) for i in range(len(records)))
        packed = [np.packbits(is_desired(model(rows).astype(object))).tobytes() for rows in asked]
        return pd.DataFrame({"number": signed(numbers[tried]), "votes": packed})

    if not len(drawn):
        return np.zeros(len(cells))
    found = population.map_rows(vote, "number long, votes binary")
    votes = dict(zip(unsigned(found["number"]).tolist(), found["votes"], strict=True))
    total = np.zeros(len(cells))
    for number in drawn.tolist():  # as often as it was drawn: equal records have equal numbers
        total += np.unpackbits(np.frombuffer(votes[number], dtype=np.uint8), count=len(cells))
    return total / len(drawn)


def _most_frequent(population: Population, model: LabelModel) -> str:
    """Return the spelling of the most frequent label; of equally frequent ones the first."""

    def count(frame: pd.DataFrame, _: RecordReader) -> pd.DataFrame:
        found = Counter(map(str, model(frame).astype(object).tolist()))
        return pd.DataFrame({"label": list(found), "people": list(found.values())})

    found = population.map_rows(count, "label string, people long").groupby("label")["people"].sum()
    return str(found.sort_index().idxmax())
