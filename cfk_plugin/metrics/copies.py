"""Copies: which rows equal a row of a table, and which fit one person alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cfk_plugin.heom import HeomCodes
    from cfk_plugin.metrics.feature_space import FeatureSpace


def is_copy(rows: HeomCodes, table: HeomCodes, space: FeatureSpace) -> NDArray[np.bool_]:
    """Say of each row whether it equals a row of a table on every feature."""
    own, others = space.keys(rows, table, [*space.heom.numeric, *space.heom.categorical])
    return np.isin(own, others)


def fits_one(
    rows: HeomCodes,
    table: HeomCodes,
    names: Sequence[str],
    space: FeatureSpace,
    people: Callable[[NDArray[np.int64]], int] = len,
) -> NDArray[np.bool_]:
    """Say of each row whether exactly one person of a table has its values of some features.

    Parameters
    ----------
    rows, table : HeomCodes
    names : sequence of str
        The features, mostly the quasi-identifiers.
    space : FeatureSpace
    people : callable
        From positions of the table to the number of people behind them. Default: each row is a person.
    """
    own, others = space.keys(rows, table, names)
    wanted, at = np.unique(own, return_inverse=True)
    order = np.argsort(others, kind="stable")
    first, last = (np.searchsorted(others[order], wanted, side=side) for side in ("left", "right"))
    alone = [people(order[i:j]) == 1 for i, j in zip(first.tolist(), last.tolist(), strict=True)]
    return np.array(alone, dtype=np.bool_)[at.reshape(-1)]
