"""Differences between groups of those who asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.metrics.groups import POOLED, GroupGap, group_gap
from cfk_plugin.report.assessment.control import LEAST
from cfk_plugin.report.data import Amount, Group

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.report.assessment.pooled import Pooled

_METRICS = ("k", "ncp", "pureness", "suppressed")
_MOST_RESAMPLED = 2_000
_NORMAL_95 = 1.959964
_DIGITS = 9  # what is beyond is rounding of the sums


def groups(pooled: Pooled) -> tuple[Group, ...]:
    """Compare every metric between each group and the rest; groups of fewer than 11 are pooled.

    Parameters
    ----------
    pooled : Pooled

    Returns
    -------
    tuple of Group
        Exact; by attribute, metric and group. Intervals are percentile bootstraps over explanations, and normal
        approximations from 2,000 explanations on; they are not corrected for looking at several.
    """
    if "group" not in pooled.rows:
        return ()
    return tuple(found for attribute, rows in _by_attribute(pooled) for found in _of_attribute(attribute, rows))


def _by_attribute(pooled: Pooled) -> Iterator[tuple[str, pd.DataFrame]]:
    names = pd.Series([run.params.get("cfk.groups", "") for run in pooled.runs])
    grouped = pooled.rows[pooled.rows["group"].notna().to_numpy()]
    of_row = names.reindex(grouped["run"].to_numpy()).to_numpy()
    for name in sorted(set(of_row)):
        yield str(name) or "group", grouped[of_row == name]


def _of_attribute(attribute: str, rows: pd.DataFrame) -> Iterator[Group]:
    labels = rows["group"].astype(str).to_numpy()
    for metric in _METRICS:
        if metric == "suppressed":
            values = np.asarray(rows["status"] == "suppressed", dtype=np.float64)
        elif metric in rows:
            values = rows[metric].to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            continue
        for gap in _gaps(values, labels):
            yield Group(
                attribute=attribute,
                group=gap.group,
                metric=metric,
                n=Amount(value=gap.n),
                mean=_amount(gap.mean),
                rest=_amount(gap.rest),
                gap=_amount(gap.gap, gap.low, gap.high),
            )


def _gaps(values: NDArray[np.float64], labels: NDArray[np.object_]) -> tuple[GroupGap, ...]:
    if len(values) <= _MOST_RESAMPLED:
        return group_gap(values, labels, min_size=LEAST)
    known = ~np.isnan(values)
    values, labels = values[known], labels[known]
    names, counts = np.unique(labels, return_counts=True)
    large = names[counts >= LEAST]
    pooled = ~np.isin(labels, large)
    found = [(str(name), labels == name) for name in large]
    found += [(POOLED, pooled)] if pooled.sum() >= LEAST else []
    return tuple(_gap(name, values[inside], values[~inside]) for name, inside in found)


def _gap(name: str, here: NDArray[np.float64], rest: NDArray[np.float64]) -> GroupGap:
    """Compare two large samples."""
    nan = float("nan")
    if not len(rest):
        return GroupGap(name, len(here), float(here.mean()), nan, nan, nan, nan)
    gap = float(here.mean() - rest.mean())
    half = _NORMAL_95 * float(np.sqrt(here.var() / len(here) + rest.var() / len(rest)))
    return GroupGap(name, len(here), float(here.mean()), float(rest.mean()), gap, gap - half, gap + half)


def _amount(value: float, low: float | None = None, high: float | None = None) -> Amount:
    known = [None if end is None or np.isnan(end) else round(end, _DIGITS) for end in (value, low, high)]
    return Amount(value=known[0], low=known[1], high=known[2])
