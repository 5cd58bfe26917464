"""Support by the training rows: how near they are, which value pairs they lack, and whom a row fits alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.metrics.copies import fits_one
from cfk_plugin.metrics.estimate import Estimate, mean_of, share_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.heom import HeomCodes
    from cfk_plugin.metrics.feature_space import FeatureSpace
    from cfk_plugin.population import Population

Reference = Iterable[tuple["NDArray[np.bool_]", "NDArray[np.bool_]"]]
"""Which rows (a mask) are held against which rows of a table (a mask); no row twice."""


@dataclass(frozen=True, slots=True)
class Support:
    """How a set of rows, served or fresh, stands to the training rows.

    Attributes
    ----------
    nn1, nn5 : Estimate
        L1 distance to the nearest training row with the desired outcome, and its mean to the 5 nearest.
    unseen_pair : Estimate
        Share with two values that no training row has together.
    singled_out : Estimate
        Share whose quasi-identifiers exactly one person of the training rows has.
    """

    nn1: Estimate
    nn5: Estimate
    unseen_pair: Estimate
    singled_out: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {field.name: getattr(self, field.name).to_dict() for field in fields(self)}


def support_of(
    rows: HeomCodes,
    table: HeomCodes,
    reference: Reference,
    population: Population,
    space: FeatureSpace,
    random: np.random.Generator,
) -> Support:
    """Measure rows against all training rows; the nearest ones among those that `reference` names."""
    one, five = nearest_wanted(rows, table, reference, space)
    return Support(
        mean_of(one, random),
        mean_of(five, random),
        share_of(has_unseen_pair(rows, table, space)),
        share_of(fits_one(rows, table, population.schema.quasi_identifiers, space, population.people)),
    )


def nearest_wanted(
    rows: HeomCodes, table: HeomCodes, reference: Reference, space: FeatureSpace
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the L1 distance of each row to the nearest, and its mean to the 5 nearest, of the rows it is held against.

    NaN where there are none; all of them where there are fewer than 5.
    """
    one, five = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    features = len(space.heom.numeric) + len(space.heom.categorical)
    for asked, wanted in reference:
        if not asked.any() or not wanted.any():
            continue
        found = space.heom.nearest(rows.take(asked), table.take(wanted), k=min(5, int(wanted.sum())))[1] * features
        one[asked], five[asked] = found[:, 0], found.mean(axis=1)
    return one, five


def has_unseen_pair(rows: HeomCodes, table: HeomCodes, space: FeatureSpace) -> NDArray[np.bool_]:
    """Say of each row whether two of its values, numbers as bins, occur together in no row of a table."""
    cut = len(rows)
    columns = [
        pd.factorize(np.concatenate(pair))[0].astype(np.int64)
        for pair in zip(space.bins(rows), space.bins(table), strict=True)
    ]
    unseen = np.zeros(cut, dtype=bool)
    for a, b in combinations(columns, 2):
        both = a * (int(b.max(initial=0)) + 1) + b
        unseen |= ~np.isin(both[:cut], both[cut:])
    return unseen
