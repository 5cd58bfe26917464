"""Figures of a set of explanations, broken down: which attribute loses what, and how large the groups are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.errors import InputError
from cfk_plugin.explanations import Explanations
from cfk_plugin.metrics import ncp_by_attribute
from cfk_plugin.prototype import PrototypePolicy

if TYPE_CHECKING:
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


def _refuse_prototypes(explanations: Explanations) -> None:
    if isinstance(explanations.policy, PrototypePolicy):
        raise InputError(
            "prototypes stand for nobody: there are no people to count and nothing is generalised; "
            "see epsilon and delta in summary()"
        )
