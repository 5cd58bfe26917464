"""The studies of the paper, and three of our own: what to measure for each, and the resulting
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from cfk_plugin.metrics.intervals import bootstrap, difference_of_means, mean_of
from reproduction.measure import NICE, Job, Measurement

KS = (5, 10, 20)
"""The k of the paper's Tables 6, 7 and 9 to 12."""

GERMAN = "german"
"""The table on which the paper tries parameters and measures distances."""

PARAMETERS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"k": (5, 10, 15, 20, 25, 30), "alpha": (5, 10, 20, 40, 80), "iterations": (1, 2, 3, 5, 8)}
)
"""Values of each parameter in the paper's Figure 4; the others stay at the paper's `USUAL` ones."""

USUAL: Mapping[str, int] = MappingProxyType({"k": 10, "alpha": 20, "iterations": 3})

FEWEST = 5
"""Least cases for an interval: resamples of fewer are too alike."""

Columns = dict[str, Any]
Ends = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Study:
    """What to measure, and the resulting rows: shares in [0, 1], 95 % bootstrap intervals, None for
    too few cases.
    """

    # takes tables, and the most explanations by GRASP
    jobs: Callable[[Sequence[str], int], list[Job]]
    columns: Callable[[Measurement], Iterator[Columns]]

    def rows(self, measured: Mapping[str, Measurement]) -> list[Columns]:
        """Return the rows of measurements; column ``piece`` has the `Job.key`."""
        return [
            {"piece": key, "table": found.config.table, **columns}
            for key, found in measured.items()
            for columns in self.columns(found)
        ]


def _means(found: Measurement, *figures: str) -> Columns:
    """Return the mean of each figure over what was released, and its interval, in three columns
    each.
    """
    columns: Columns = {}
    for name in figures:
        value, low, high = _interval(found.known(name), found.config.seed)
        columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return columns


def _interval(values: list[float], seed: int) -> Ends:
    """Return a mean and its interval; None where there are too few cases."""
    ends = mean_of(np.asarray(values), np.random.default_rng(seed)).to_dict()
    return (
        (ends["value"], ends["low"], ends["high"])
        if len(values) >= FEWEST
        else (ends["value"], None, None)
    )


def _difference(first: list[float], second: list[float], seed: int) -> Ends:
    """Return the difference of two means and its interval; None where there are too few cases."""
    if not first or not second:
        return None, None, None
    a, b = np.array(first), np.array(second)
    between = difference_of_means(a, b)
    if min(len(a), len(b)) < FEWEST:
        return between, None, None
    return between, *bootstrap(a, b, statistic=difference_of_means, random_state=seed)


def _released(found: Measurement) -> int:
    return len(found.known("ncp"))


# What k, alpha and iterations do to GRASP on one table: section 5.3.2 of the paper, its Figure 4.


def _parameter_jobs(tables: Sequence[str], of_grasp: int) -> list[Job]:
    """Return GRASP at every value, and the purest region at every k, both for GRASP's
    explanations.
    """
    if GERMAN not in tables:
        return []
    jobs = []
    for name, values in PARAMETERS.items():
        for value in values:
            k = value if name == "k" else USUAL["k"]
            options = {} if name == "k" or value == USUAL[name] else {name: value}
            jobs.append(Job(table=GERMAN, method="grasp", k=k, options=options, asked=of_grasp))
    jobs += [
        Job(table=GERMAN, method="exact-pureness", k=k, asked=of_grasp) for k in PARAMETERS["k"]
    ]
    return [job for place, job in enumerate(jobs) if job not in jobs[:place]]


def _parameter_columns(found: Measurement) -> Iterator[Columns]:
    """Return one row per parameter that it is a value of; GRASP with the usual settings is one of
    all three.
    """
    settings = {**USUAL, **found.options, "k": found.k}
    for name in PARAMETERS if found.method == "grasp" else ("k",):
        if all(settings[other] == USUAL[other] for other in PARAMETERS if other != name):
            yield {
                "parameter": name,
                "value": settings[name],
                "method": found.method,
                **_means(found, "ncp", "pureness"),
                "seconds": found.seconds / found.asked if found.asked else None,
                "n": _released(found),
            }


# Whether the minority pays more for its privacy: section 6.3 of the paper, its Figure 5. The paper
# compares the groups of the people who are hidden, the counterfactual instances; we add the groups
# of the people who ask, who get the generalised explanation.


def _fairness_jobs(tables: Sequence[str], of_grasp: int) -> list[Job]:
    """Return only jobs of the paper's main tables, at each of their k."""
    return [
        Job(table=table, method=method, k=k, asked=asked)
        for table in tables
        for method, asked in (("exact-pureness", None), ("grasp", of_grasp))
        for k in KS
    ]


def _fairness_columns(found: Measurement) -> Iterator[Columns]:
    """Return one row per metric, grouping and group; the difference, minority minus majority, is in
    both rows.
    """
    seed = found.config.seed
    for by, groups in (("counterfactual", found.groups), ("asking", found.groups_asking)):
        for metric in ("ncp", "pureness"):
            figures = [
                (v, group)
                for v, group in zip(found.figures[metric], groups, strict=True)
                if v is not None
            ]
            values = {
                name: [v for v, group in figures if group == name]
                for name in ("minority", "majority")
            }
            between, lowest, highest = _difference(values["minority"], values["majority"], seed)
            for group, some in values.items():
                value, low, high = _interval(some, seed)
                yield {
                    "k": found.k,
                    "method": found.method,
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


# Whether protected counterfactuals stay near the training rows: section 6.4 of the paper, its Table
# 8.


def _plausibility_jobs(tables: Sequence[str], of_grasp: int) -> list[Job]:
    if GERMAN not in tables:
        return []
    return [Job(table=GERMAN, method=name, k=0, kind="distances") for name in NICE] + [
        Job(table=GERMAN, method=method, k=k, kind="distances", asked=asked)
        for method, asked in (("grasp", of_grasp), ("exact-pureness", None))
        for k in KS
    ]


def _plausibility_columns(found: Measurement) -> Iterator[Columns]:
    yield {
        "method": found.method,
        "k": None if found.method in NICE else found.k,
        **_means(found, "nearest", "nearest_5"),
        "n": len(found.known("nearest")),
        "unit": "sum over features",
    }


# What every k costs in NCP and pureness, by the purest regions and by those with the least NCP.


def _frontier_jobs(tables: Sequence[str], _: int) -> list[Job]:
    return [
        Job(table=table, method=method, k=k)
        for table in tables
        for method in ("exact-pureness", "exact-ncp")
        for k in (2, 3, 5, 10, 15, 20, 30, 50)
    ]


def _frontier_columns(found: Measurement) -> Iterator[Columns]:
    yield {
        "k": found.k,
        "method": found.method,
        **_means(found, "ncp", "pureness"),
        "released": _released(found) / found.asked if found.asked else None,
        "n": _released(found),
    }


STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        "parameters": Study(_parameter_jobs, _parameter_columns),
        "fairness": Study(_fairness_jobs, _fairness_columns),
        "plausibility": Study(_plausibility_jobs, _plausibility_columns),
        "frontier": Study(_frontier_jobs, _frontier_columns),
    }
)
"""Studies by name: Figure 4, Figure 5, Table 8, and what every k costs."""
