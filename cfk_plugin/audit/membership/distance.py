"""How far a counterfactual lies from the person who asked, as an attacker measures it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attacked.sample import plain
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom

Floats = NDArray[np.float64]
Distance = Callable[[pd.DataFrame, pd.DataFrame], Floats]
"""From people and their counterfactuals, row by row, to distances of at least 0; it can be pickled."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class HeomSum:
    """Sum over features of HEOM's parts, with ranges of a table that the attacker has. Host side only.

    A number differs by |x - y| / range (0 where the range is 0), a category by 0 or 1, as in `Heom`.
    """

    heom: Heom

    @classmethod
    def fit(cls, pool: pd.DataFrame) -> HeomSum:
        """Take kinds of columns and ranges from a table."""
        return cls(Heom.fit(pool))

    def __call__(self, a: pd.DataFrame, b: pd.DataFrame) -> Floats:
        """Return the distance of each row of `a` to the row of `b` at its place."""
        return np.asarray(self.heom.parts(a, b).sum(axis=1))

    def __repr__(self) -> str:
        """Show no range; they are the data's."""
        return "HeomSum()"


def l1(a: pd.DataFrame, b: pd.DataFrame) -> Floats:
    """Return the sum of absolute differences, row by row, of tables of numbers.

    Raises
    ------
    InputError
        If a column holds no numbers.
    """
    if not plain(a):
        raise InputError('distance="l1" is for tables of numbers alone; leave it out for mixed ones')
    return np.asarray(np.abs(_numbers(a) - _numbers(b)).sum(axis=1))


def choose_distance(distance: Literal["heom", "l1"] | Distance | None, pool: pd.DataFrame) -> tuple[str, Distance]:
    """Return a distance and its name.

    Parameters
    ----------
    distance : {"heom", "l1"} or callable, optional
        Default: "heom".
    pool : DataFrame
        People of the attacker: the ranges of "heom".

    Raises
    ------
    InputError
        If there is no such distance.
    """
    if distance is None or distance == "heom":
        return "heom", HeomSum.fit(pool)
    if distance == "l1":
        return "l1", l1
    if not callable(distance):
        raise InputError('distance must be "heom", "l1" or a callable from two tables to an array')
    return str(getattr(distance, "__qualname__", type(distance).__qualname__)), distance


def _numbers(table: pd.DataFrame) -> Floats:
    return table.to_numpy(dtype=np.float64, na_value=np.nan)
