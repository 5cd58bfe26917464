"""What is guessed of an attribute: one of its frequent categories, or a range of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked.sample import Rows
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.data.region import to_text
from cfk_plugin.data.values import is_numeric, to_numbers
from cfk_plugin.errors import InputError

MOST = 10
"""Most categories that are guessed, from the most frequent down; who has another one is never guessed right."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Values:
    """The values that an attacker guesses among. Holds values of rows: host side only.

    Attributes
    ----------
    examples : sequence of object
        One value of each, as it stands in the table: the median of a range.
    categories : tuple of str or None
        Of a category column, from the most frequent down.
    edges : float array
        Of a number column, between its ranges.
    """

    examples: tuple[Any, ...]
    categories: tuple[str, ...] | None
    edges: Floats

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Values({len(self.examples)})"

    def codes(self, column: pd.Series) -> Rows:
        """Return which of the values each person has; -1: another one, -2: none."""
        missing = column.isna().to_numpy()
        if self.categories is not None:
            texts = pd.Index([to_text(value) for value in column])
            found = pd.Index(self.categories).get_indexer(texts)
        else:
            numbers, bad = to_numbers(column)
            missing = missing | bad
            found = np.searchsorted(self.edges, np.where(missing, 0.0, numbers), side="right")
        return np.where(missing, -2, found).astype(np.int64)


def values_of(known: pd.Series, edges: Sequence[float] | None = None) -> Values:
    """Return what is guessed, learnt from people whom the attacker knows.

    Parameters
    ----------
    known : Series
    edges : sequence of float, optional
        Between ranges of a number, ascending; a range begins with its edge. Default: terciles.

    Raises
    ------
    InputError
        If there are fewer than two values to choose from, or a range is empty, or edges are given for categories.
    """
    if not is_numeric(known):
        if edges is not None:
            raise InputError(f"column {known.name!r} holds categories, which have no edges")
        return _categories(known)
    numbers, bad = to_numbers(known)
    usable = ~bad & ~np.isnan(numbers)
    present, numbers = known[usable], numbers[usable]
    at = np.unique(np.asarray(edges, dtype=np.float64)) if edges is not None else _terciles(numbers)
    where = np.searchsorted(at, numbers, side="right")
    counts = np.bincount(where, minlength=len(at) + 1)
    if len(counts) < 2 or not counts.all():
        raise InputError(
            f"column {known.name!r}: {int((counts > 0).sum())} of {len(counts)} ranges have people; "
            "guessing needs two ranges or more, all with people: give other edges"
        )
    return Values(tuple(_median(present[where == code]) for code in range(len(counts))), None, at)


def _terciles(numbers: Floats) -> Floats:
    if not len(numbers):
        return np.empty(0)
    found = np.unique(np.quantile(numbers, [1 / 3, 2 / 3]))
    return np.asarray(found[found > numbers.min()], dtype=np.float64)  # nobody is below the lowest number


def _categories(known: pd.Series) -> Values:
    present = known.dropna()
    texts = pd.Series([to_text(value) for value in present], dtype=object)
    counts = texts.value_counts()
    frequent = sorted(counts.index, key=lambda text: (-counts[text], text))[:MOST]
    if len(frequent) < 2:
        raise InputError(f"column {known.name!r} has fewer than two values; there is nothing to guess")
    example = dict(zip(reversed(texts.tolist()), reversed(present.tolist()), strict=True))
    return Values(tuple(example[text] for text in frequent), tuple(frequent), np.empty(0))


def _median(column: pd.Series) -> Any:
    return column.iloc[int(np.argsort(to_numbers(column)[0], kind="stable")[(len(column) - 1) // 2])]
