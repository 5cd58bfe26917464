"""The partial dependence of the desired outcome on the quasi-identifiers.

Groups are kept similar in it: a region over equivalence classes with similar values is likely to be
pure, whatever private values it is released with.
"""

from __future__ import annotations

import numpy as np

from cfk_plugin.data.combinations import rows_for_cells
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import in_order
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
