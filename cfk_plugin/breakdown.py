"""Figures of a set of explanations, broken down: by attribute, by how many people fit, and by group of who asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.counterfactual import Entry, GeneralizedCounterfactual, Suppressed
from cfk_plugin.errors import InputError
from cfk_plugin.explanations import Explanations
from cfk_plugin.metrics import GroupGap, group_gap, ncp_by_attribute
from cfk_plugin.prototype import PrototypePolicy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cfk_plugin.population import Population


def class_sizes_of(explanations: Explanations | Sequence[int]) -> list[int]:
    """Return the number of people who fit each released region.

    Raises
    ------
    InputError
        If the explanations are prototypes, which no people fit, or a size is below 1.
    """
    if isinstance(explanations, Explanations):
        _refuse_prototypes(explanations)
        return [entry.certificate.k for entry in explanations.generalized]
    sizes = [int(size) for size in explanations]
    if sizes and min(sizes) < 1:
        raise InputError("each class needs at least one person")
    return sizes


def risk_by_group_size(explanations: Explanations | Sequence[int]) -> pd.DataFrame:
    """Return how many explanations were released with how many people, and the risk that goes with it.

    For the data holder: exact sizes of regions that differ by one say something of a single person.

    Parameters
    ----------
    explanations : Explanations or sequence of int
        Explanations, or the number of people who fit each released region.

    Returns
    -------
    DataFrame
        One row per size, smallest first: ``people``, ``releases``, ``share_up_to`` (share of the releases that have
        this size or a smaller one), ``prosecutor_risk`` (1 / people). Empty when nothing was released.

    Raises
    ------
    InputError
        If the explanations are prototypes, or a size is below 1.
    """
    people, releases = np.unique(class_sizes_of(explanations), return_counts=True)
    return pd.DataFrame(
        {
            "people": people.astype(np.int64),
            "releases": releases.astype(np.int64),
            "share_up_to": releases.cumsum() / max(releases.sum(), 1),
            "prosecutor_risk": 1 / people.astype(float),
        }
    )


def ncp_table(explanations: Explanations, population: Population) -> pd.DataFrame:
    """Return what each quasi-identifier loses by being generalised.

    Parameters
    ----------
    explanations : Explanations
    population : Population
        The one that they were made with; sealed or not.

    Returns
    -------
    DataFrame
        One row per quasi-identifier, the one that loses most first: ``attribute``, ``weight``, ``ncp_mean``,
        ``ncp_p95`` (over the released explanations, unweighted, in [0, 1]), ``exact`` (share of the releases in which
        it is not generalised). The weighted sum of ``ncp_mean`` is the mean NCP. Missing when nothing was released.

    Raises
    ------
    InputError
        If the explanations are prototypes.
    """
    _refuse_prototypes(explanations)
    names = population.schema.quasi_identifiers
    losses = [ncp_by_attribute(entry.region, population) for entry in explanations.generalized]
    table = pd.DataFrame(losses, columns=list(names), dtype=float)
    found = pd.DataFrame(
        {
            "attribute": names,
            "weight": [population.schema[name].weight for name in names],
            "ncp_mean": table.mean().to_numpy(),
            "ncp_p95": table.quantile(0.95).to_numpy(),
            "exact": (table == 0).mean().to_numpy(),
        }
    )
    return found.sort_values("ncp_mean", ascending=False, kind="stable", ignore_index=True)


def group_gaps(
    explanations: Explanations,
    groups: ArrayLike | pd.Series,
    metrics: Sequence[str] = ("k", "ncp", "pureness", "suppressed"),
    *,
    random_state: int = 0,
) -> dict[str, tuple[GroupGap, ...]]:
    """Return for each metric by how much every group of those who asked differs from everybody else.

    For the data holder. See `cfk_plugin.metrics.group_gap`: groups of fewer than 11 are pooled.

    Parameters
    ----------
    explanations : Explanations
    groups : array, shape (n_explanations,)
        Group of who asked, one per entry; missing is a group of its own.
    metrics : sequence of {"k", "ncp", "pureness", "suppressed"}
        A withheld entry has none of the first three, and 1 for the last.
    random_state : int
        Seed of the intervals.

    Returns
    -------
    dict of str to tuple of GroupGap
        Metric to its differences, for `cfk_plugin.plots.plot_groups`.

    Raises
    ------
    InputError
        If the explanations are prototypes, a metric is unknown, or the groups are not one per entry.
    """
    _refuse_prototypes(explanations)
    if unknown := [name for name in metrics if name not in _METRICS]:
        raise InputError(f"unknown metric {', '.join(unknown)}; known: {', '.join(_METRICS)}")
    values = {name: [_METRICS[name](entry) for entry in explanations] for name in metrics}
    return {name: group_gap(found, groups, random_state=random_state) for name, found in values.items()}


def _of_certificate(name: str, entry: Entry) -> float:
    return float(getattr(entry.certificate, name)) if isinstance(entry, GeneralizedCounterfactual) else math.nan


_METRICS: Mapping[str, Callable[[Entry], float]] = {
    **{name: partial(_of_certificate, name) for name in ("k", "ncp", "pureness")},
    "suppressed": lambda entry: float(isinstance(entry, Suppressed)),
}


def _refuse_prototypes(explanations: Explanations) -> None:
    if isinstance(explanations.policy, PrototypePolicy):
        raise InputError(
            "prototypes stand for nobody: there are no people to count and nothing is generalised; "
            "see epsilon and delta in summary()"
        )
