"""Declared bins of a numeric private attribute: which one a number falls into, and what is released of it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from cfk_plugin.domain import Domain
from cfk_plugin.region import Interval


def of(domain: Domain, number: float) -> int | None:
    """Return which of the declared bins a number falls into; None for none, and where none are declared."""
    edges = domain.attribute.bins
    if edges is None or not edges[0] <= number <= edges[-1]:
        return None
    return min(bisect_right(edges, number), len(edges) - 1) - 1


def part(domain: Domain, at: int) -> Interval:
    """Return a declared bin as it is released; of its ends, only the last bin has the upper one."""
    edges = domain.attribute.bins or ()
    return Interval(domain.natural(edges[at]), domain.natural(edges[at + 1]))


def codes(domain: Domain, at: int) -> tuple[int, int]:
    """Return the first code inside a declared bin, and the first one after it."""
    edges = domain.attribute.bins or ()
    is_last = at + 2 == len(edges)
    first = np.searchsorted(domain.values, edges[at], side="left")
    return int(first), int(np.searchsorted(domain.values, edges[at + 1], side="right" if is_last else "left"))
