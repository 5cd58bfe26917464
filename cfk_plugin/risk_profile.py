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
    smallest = smallest_classes(cell_of_row, people)
    n = len(smallest)
    return RiskProfile(
        unique=float((smallest == 1).sum() / n),
        below_k=float((smallest < k).sum() / n),
        k=k,
        people=n,
        classes=int(cell_of_row.max()) + 1,
    )


def smallest_classes(cell_of_row: NDArray[np.int64], people: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return for every person how many people the smallest class that they are in has; see `risk_profile`."""
    if people is None:
        return np.asarray(np.bincount(cell_of_row)[cell_of_row], dtype=np.int64)
    classes = int(cell_of_row.max()) + 1
    pairs = np.sort(people * classes + cell_of_row)
    person, cell = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], classes)  # each person once in each class
    first = np.flatnonzero(np.diff(person, prepend=-1))
    return np.asarray(np.minimum.reduceat(np.bincount(cell)[cell], first), dtype=np.int64)
