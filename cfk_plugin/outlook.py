"""How likely the desired outcome is at each combination of quasi-identifiers: what groups are kept alike in."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin import outlook_on_cluster
from cfk_plugin.cells import in_order
from cfk_plugin.goal import Goal
from cfk_plugin.grid import rows_for_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.oracle import RowOracle

_RECORDS = 20  # private parts that are tried in every cell
_ASKED = 400_000  # rows that the model is asked for at most, where that leaves one record


def desired_shares(rows: RowOracle, goal: Goal) -> NDArray[np.float64]:
    """Return for each cell the share of some records' private values that get the desired outcome there.

    The partial dependence of the outcome on the quasi-identifiers, at the population's cells. A region over cells that
    are alike in it is likely to be pure, whatever private values it is released with. A function of population and
    model: queries play no part.

    Parameters
    ----------
    rows : RowOracle
    goal : Goal
        For "opposite" the most frequent outcome is taken.

    Returns
    -------
    float64 array, shape (n_cells,)
        In [0, 1].

    References
    ----------
    Friedman: Greedy function approximation: a gradient boosting machine. Annals of Statistics 29 (5), 2001, section
    8.2: partial dependence.
    """
    population = rows.population
    n_cells = len(population.cells)
    if not population.has_rows:
        most = max(1, min(_RECORDS, _ASKED // n_cells))
        return outlook_on_cluster.desired_shares(population, rows.model, goal, most)
    labels = rows.labels(np.arange(population.n_rows))
    if goal.is_opposite:
        frequent = Counter(sorted(labels.tolist(), key=str)).most_common(1)[0][0]
        wanted, chosen = Goal(lambda answers: np.asarray(answers == frequent, dtype=bool)), np.arange(len(labels))
    else:
        wanted, chosen = goal, np.flatnonzero(goal.met(labels))
    if not len(chosen):
        return np.zeros(n_cells)
    count = max(1, min(_RECORDS, _ASKED // n_cells, len(chosen)))
    number = population.keyed_numbers(chosen)
    least = number <= np.partition(number, count - 1)[count - 1]
    records = population.rows(chosen[least])
    drawn = in_order(population.encode(records)[0], population.schema, number[least])
    records = records.take(drawn[:count])
    total = np.zeros(n_cells)
    for record in range(count):
        frame = rows_for_cells(population.coding, records, np.full(n_cells, record), population.cells)
        total += wanted.met(rows.ask(frame))
    return total / count
