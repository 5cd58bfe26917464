"""What was asked and what was answered, checked and in the population's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.columns import to_numbers
from cfk_plugin.errors import InputError
from cfk_plugin.intake import require_features

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from cfk_plugin.population import Population


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Served:
    """Queries and their counterfactuals. Host side only.

    Attributes
    ----------
    queries : DataFrame
        Every query, answered or not, in the population's columns and dtypes.
    counterfactuals : DataFrame
        Likewise.
    answered : int64 array
        Position of the query of each counterfactual.
    """

    queries: pd.DataFrame
    counterfactuals: pd.DataFrame
    answered: NDArray[np.int64]

    @classmethod
    def read(
        cls, queries: pd.DataFrame, counterfactuals: pd.DataFrame, answered: ArrayLike | None, population: Population
    ) -> Served:
        """Check both tables and which counterfactual answers which query."""
        asked = conformed(queries, population, "queries")
        if isinstance(counterfactuals, pd.DataFrame) and not len(counterfactuals):
            given = asked.head(0)  # a method that never answered has no columns either
        else:
            given = conformed(counterfactuals, population, "counterfactuals")
        return cls(asked, given, _positions(answered, len(given), len(asked)))


def conformed(frame: pd.DataFrame, population: Population, what: str) -> pd.DataFrame:
    """Return the features of a table in the population's columns and dtypes.

    Raises
    ------
    InputError
        If it is no table with every feature, or a numeric feature holds something else than finite numbers.
    """
    table = require_features(frame, population.schema.features, what)
    numeric = [name for name in population.schema.features if population.schema[name].kind == "numeric"]
    if wrong := [name for name in numeric if to_numbers(table[name])[1].any()]:
        raise InputError(
            f"{what}: {', '.join(wrong)} must hold finite numbers; give one row of values per counterfactual, and for "
            "a region a row that stands for it"
        )
    return population.conform(table)


def _positions(answered: ArrayLike | None, given: int, asked: int) -> NDArray[np.int64]:
    if answered is None:
        if given not in (0, asked):
            raise InputError(
                f"there are {given} counterfactuals for {asked} queries; say with answered= which queries they answer"
            )
        return np.arange(given)
    at = np.asarray(answered)
    if at.ndim != 1 or len(at) != given or (at.dtype.kind not in "iu" and given):
        raise InputError(f"answered must be {given} whole numbers: the position of the query of each counterfactual")
    if given and (at.min() < 0 or at.max() >= asked):
        raise InputError(f"answered must be positions of queries, from 0 to {asked - 1}")
    if len(np.unique(at)) != given:
        raise InputError(
            "a query has several counterfactuals; keep one of each, so that all methods are measured alike"
        )
    return at.astype(np.int64)
