"""The studies of the paper, and three of our own: what has to be measured for each, and the rows that come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from cfk_plugin.reproduction.measure import Piece
from cfk_plugin.reproduction.prepare import Measurement
from cfk_plugin.reproduction.studies import candidates, fairness, frontier, parameters, plausibility, weights


class Study(Protocol):
    """A module of this package."""

    def pieces(self, tables: Sequence[str], *, asked_of_grasp: int | None = ...) -> list[Piece]:
        """Return what has to be measured on some tables; nothing where the study is of none of them.

        Parameters
        ----------
        tables : sequence of str
        asked_of_grasp : int, optional
            Most explanations of the method that is slow; all without it.
        """
        ...

    def rows(self, outcomes: Mapping[str, Measurement]) -> list[dict[str, Any]]:
        """Return flat rows with the same columns each.

        Parameters
        ----------
        outcomes : mapping
            `Piece.key` to outcome, of pieces of this study; not all have to be there.

        Returns
        -------
        list of dict
            Shares in [0, 1], 95 % bootstrap intervals, None where there is nothing to average or too little for an
            interval. ``piece`` is the key.
        """
        ...


STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        "parameters": parameters,
        "fairness": fairness,
        "plausibility": plausibility,
        "frontier": frontier,
        "candidates": candidates,
        "weights": weights,
    }
)
"""By name: Figure 4, Figure 5, Table 8, what every k costs, choosing between several counterfactuals, and weights."""
