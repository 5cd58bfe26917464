"""The partial dependence of the desired outcome on the quasi-identifiers.

Groups are kept similar in it: a region over equivalence classes with similar values is likely to be
pure, whatever private values it is released with.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.combinations import rows_for_cells
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import RecordReader, in_order, signed, unsigned
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.protection.axes import Floats, Ints

_MAX_RECORDS = 8  # records whose private values are tried in every class
_MAX_ROWS = 400_000  # rows that the model is asked about, but at least one record in every class


def partial_dependence(rows: TrainingLabels, goal: DesiredOutcome) -> Floats:
    """Return how often sampled private values get the desired outcome in each equivalence class.

    A few training records with the desired outcome are drawn by their keyed numbers, so that the
    order of the table does not matter. Their private values are tried in every class. If any other
    outcome than the factual's is desired, records are drawn from all, and the most frequent
    prediction stands for the desired outcome.

    Returns
    -------
    shape (n_classes,)
        The share of the drawn records that get the desired outcome in each class of the
        population; 0 if no record can be drawn.
    """
    population = rows.population
    n_classes = len(population.cells)
    max_records = max(1, min(_MAX_RECORDS, _MAX_ROWS // n_classes))
    if not population.has_rows:
        return _partial_dependence_on_cluster(population, rows.model, goal, max_records)
    labels = rows.labels(np.arange(population.n_rows))
    candidates = np.flatnonzero(goal.is_eligible(labels))
    if not len(candidates):
        return np.zeros(n_classes)
    goal = goal.independent_of_query(labels)
    records = population.rows(_drawn_rows(population, candidates, max_records))
    n_records = len(records)
    n_desired = np.zeros(n_classes)
    for i in range(n_records):
        frame = rows_for_cells(population.encoder, records, np.full(n_classes, i), population.cells)
        predictions = rows.predictions(frame)
        n_desired += goal.is_met(predictions.labels) & predictions.is_sure
    return n_desired / n_records


def _drawn_rows(population: Population, candidates: Ints, max_records: int) -> Ints:
    """Return the rows with the least keyed numbers among the candidates, at most `max_records`.

    Where numbers are equal, the records' values decide.
    """
    n_records = min(max_records, len(candidates))
    numbers = population.keyed_numbers(candidates)
    is_least = numbers <= np.partition(numbers, n_records - 1)[n_records - 1]
    rows_with_least = candidates[is_least]
    order = in_order(population.codes[rows_with_least], population.schema, numbers[is_least])
    drawn_rows: Ints = rows_with_least[order[:n_records]]
    return drawn_rows


def _partial_dependence_on_cluster(
    population: Population, model: LabelModel, goal: DesiredOutcome, max_records: int
) -> Floats:
    """Do the same as `partial_dependence` on the workers of a cluster.

    The workers get the model and the key. They send back counts, keyed numbers and votes, but no
    row.
    """
    cells = population.cells
    frequent = _most_frequent(population, model) if goal.needs_factual_labels else None

    def is_desired(labels: NDArray[np.object_]) -> Mask:
        if frequent is None:
            return goal.is_met(labels)
        return np.array([str(label) == frequent for label in labels.tolist()], dtype=bool)

    def least_numbers(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        candidates = frame
        if frequent is None:
            candidates = frame[is_desired(model(frame).astype(object))]
        return pd.DataFrame({"number": signed(np.sort(reader.numbers(candidates))[:max_records])})

    number_table = population.map_rows(least_numbers, "number long")
    drawn_numbers = np.sort(unsigned(number_table["number"]))[:max_records]

    def vote(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        """Return, for each drawn record of a part of the table, one bit per class."""
        numbers, first = np.unique(reader.numbers(frame), return_index=True)
        is_drawn = np.isin(numbers, drawn_numbers)
        records = frame.iloc[first[is_drawn]]
        votes = []
        for i in range(len(records)):
            rows = rows_for_cells(reader.encoder, records, np.full(len(cells), i), cells)
            votes.append(np.packbits(is_desired(model(rows).astype(object))).tobytes())
        return pd.DataFrame({"number": signed(numbers[is_drawn]), "votes": votes})

    if not len(drawn_numbers):
        return np.zeros(len(cells))
    votes = population.map_rows(vote, "number long, votes binary")
    votes_of_number = dict(zip(unsigned(votes["number"]).tolist(), votes["votes"], strict=True))
    n_desired = np.zeros(len(cells))
    for number in drawn_numbers.tolist():  # as often as drawn: equal records have equal numbers
        packed = np.frombuffer(votes_of_number[number], dtype=np.uint8)
        n_desired += np.unpackbits(packed, count=len(cells))
    return n_desired / len(drawn_numbers)


def _most_frequent(population: Population, model: LabelModel) -> str:
    """Return the spelling of the most frequent label, the first on a tie."""

    def count_labels(frame: pd.DataFrame, _: RecordReader) -> pd.DataFrame:
        counts = Counter(map(str, model(frame).astype(object).tolist()))
        return pd.DataFrame({"label": list(counts), "people": list(counts.values())})

    counted = population.map_rows(count_labels, "label string, people long")
    people = counted.groupby("label")["people"].sum()
    return str(people.sort_index().idxmax())
