"""How exposed a population is before any protection: people whom nobody, or hardly anybody, is like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RiskProfile:
    """How exposed a population is before any protection.

    Attributes
    ----------
    unique : float
        Share of the people whose combination of quasi-identifiers nobody else has (Table 5 of the paper).
    below_k : float
        Share of the people in an equivalence class of fewer than k people.
    k : int
        The k asked for.
    people : int
        Number of people.
    classes : int
        Number of equivalence classes.
    """

    unique: float
    below_k: float
    k: int
    people: int
    classes: int


def risk_profile(cell_of_row: NDArray[np.int64], people: NDArray[np.int64] | None, k: int) -> RiskProfile:
    """Return how many people are unique and how many are in a class of fewer than k; see `Population.risk_profile`.

    Parameters
    ----------
    cell_of_row : int64 array, shape (n_rows,)
        Equivalence class of each row.
    people : int64 array, shape (n_rows,), optional
        Person of each row; without it each row is a person.
    k : int
    """
    if people is None:
        cell, person = cell_of_row, np.arange(len(cell_of_row))
    else:
        cell, person = np.unique(np.column_stack([cell_of_row, people]), axis=0).T
    classes = int(cell.max()) + 1
    size = np.bincount(cell, minlength=classes)
    smallest = np.full(int(person.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, person, size[cell])
    n = len(smallest)
    return RiskProfile(
        unique=float((smallest == 1).sum() / n),
        below_k=float((smallest < k).sum() / n),
        k=k,
        people=n,
        classes=classes,
    )
