"""The studies of the paper next to its main tables, and what every k costs: one row per figure.

Shares are in [0, 1]. Intervals are 95 % bootstrap intervals; their ends are None where too few
explanations were measured. Each row is plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.metrics.intervals import bootstrap, difference_of_means, mean_of
from reproduction.measure import Distances, Measurement
from reproduction.prepare import SEED
from reproduction.results import StudyRow

FEWEST = 5
"""The least number of explanations for an interval: resamples of fewer are too alike."""

PARAMETERS: Mapping[str, Sequence[int]] = {
    "k": (5, 10, 15, 20, 25, 30),
    "alpha": (5, 10, 20, 40, 80),
    "iterations": (1, 2, 3, 5, 8),
}
"""The values of each parameter in Figure 4 of the paper."""

USUAL: Mapping[str, int] = {"k": 10, "alpha": 20, "iterations": 3}
"""The values of the other parameters meanwhile."""

FRONTIER_KS = (2, 3, 5, 10, 15, 20, 30, 50)


def mean_with_interval(name: str, values: NDArray[np.float64]) -> StudyRow:
    """Return the mean of a figure and the ends of its interval, in three columns."""
    estimate = mean_of(values, np.random.default_rng(SEED)).to_dict()
    columns = {name: estimate["value"], f"{name}_low": None, f"{name}_high": None}
    if len(values) >= FEWEST:
        columns[f"{name}_low"] = estimate["low"]
        columns[f"{name}_high"] = estimate["high"]
    return columns


def difference_with_interval(first: NDArray[np.float64], second: NDArray[np.float64]) -> StudyRow:
    """Return the difference of two means and the ends of its interval, in three columns."""
    columns: StudyRow = {"difference": None, "difference_low": None, "difference_high": None}
    if len(first) > 0 and len(second) > 0:
        columns["difference"] = difference_of_means(first, second)
    if len(first) >= FEWEST and len(second) >= FEWEST:
        interval = bootstrap(first, second, statistic=difference_of_means, random_state=SEED)
        columns["difference_low"] = interval.low
        columns["difference_high"] = interval.high
    return columns


def parameter_row(parameter: str, value: int, measurement: Measurement) -> StudyRow:
    """Return what one value of a parameter of GRASP does: a point of Figure 4 of the paper."""
    return {
        "table": measurement.table,
        "parameter": parameter,
        "value": value,
        "method": measurement.method,
        **mean_with_interval("ncp", measurement.known("ncp")),
        **mean_with_interval("pureness", measurement.known("pureness")),
        "seconds": measurement.seconds / measurement.n,
        "n": measurement.n_released,
    }


def fairness_rows(measurement: Measurement) -> Iterator[StudyRow]:
    """Yield the means of minority and majority: Figure 5 of the paper.

    There is one row per metric, grouping and group. The difference, minority minus majority, is in
    the rows of both. The paper compares the groups of the people behind the counterfactuals; here
    the people who ask are compared, too.
    """
    groupings = {"counterfactual": measurement.groups, "asking": measurement.groups_asking}
    for grouping, group_of_row in groupings.items():
        for metric in ("ncp", "pureness"):
            values = measurement.figures[metric].to_numpy()
            is_known = ~np.isnan(values)
            of_group = {
                group: values[is_known & (np.array(group_of_row) == group)]
                for group in ("minority", "majority")
            }
            difference = difference_with_interval(of_group["minority"], of_group["majority"])
            for group, group_values in of_group.items():
                yield {
                    "table": measurement.table,
                    "k": measurement.k,
                    "method": measurement.method,
                    "by": grouping,
                    "group": group,
                    "metric": metric,
                    **mean_with_interval("mean", group_values),
                    "n": len(group_values),
                    **difference,
                }


def plausibility_row(distances: Distances) -> StudyRow:
    """Return how near explanations are to the training rows: a column of Table 8 of the paper."""
    return {
        "table": distances.table,
        "method": distances.method,
        "k": distances.k,
        **mean_with_interval("nearest", distances.nearest),
        **mean_with_interval("nearest_5", distances.nearest_5),
        "n": len(distances.nearest),
    }


def frontier_row(measurement: Measurement) -> StudyRow:
    """Return what one k costs in NCP and pureness."""
    return {
        "table": measurement.table,
        "k": measurement.k,
        "method": measurement.method,
        **mean_with_interval("ncp", measurement.known("ncp")),
        **mean_with_interval("pureness", measurement.known("pureness")),
        "released": measurement.n_released / measurement.n,
        "n": measurement.n_released,
    }
