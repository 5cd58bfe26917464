"""The short part of a catalogue: few entries that serve refused people nearly as well as all.

Costs are arrays of shape (n_people, n_entries): the distance of each refused person to each entry,
infinite where the entry is no answer for that person. Entries are in the catalogue's order, which
decides ties.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cfk_plugin.protection.answers.points import TIE
from cfk_plugin.protection.axes import Floats, Ints

UNREACHED = 25.0
"""Added to the largest cost for a person whom no chosen entry reaches."""


def short_part(costs: Floats, within: float) -> Ints:
    """Return the entries of the short part in the catalogue's order; shape (n_chosen,).

    The part reaches all people whom the whole catalogue reaches, and their mean cost is at most
    ``1 + within`` times as high as with the whole catalogue. Entries are added greedily until both
    hold. Then those are dropped without which both still hold.

    Parameters
    ----------
    costs : array, shape (n_people, n_entries)
        At least one is finite.
    within : float
        Share by which the mean cost may grow.
    """
    costs = _of_reached_people(costs)
    limit = (1 + within) * mean_cost(costs)
    entries = list[int]()
    for entry in greedy_order(costs):
        entries.append(entry)
        if _serves(costs[:, entries], limit):
            break
    return np.array(sorted(_without_unneeded(costs, entries, limit)), dtype=np.int64)


def greedy_order(costs: Floats) -> Iterator[int]:
    """Yield every entry once: each time the one that lowers the mean cost the most.

    A person whom no entry reaches yet costs `UNREACHED` more than the largest cost.
    """
    counted = _with_unreached(_of_reached_people(costs))
    n_people, n_entries = counted.shape
    cost_so_far = np.full(n_people, counted.max(initial=0.0))
    is_left = np.ones(n_entries, dtype=bool)
    for _ in range(n_entries):
        totals = np.minimum(cost_so_far[:, None], counted).sum(axis=0)
        totals[~is_left] = np.inf
        entry = int(np.argmin(np.round(totals / TIE)))
        is_left[entry] = False
        cost_so_far = np.minimum(cost_so_far, counted[:, entry])
        yield entry


def mean_cost(costs: Floats) -> float:
    """Return the mean cost of the people whom entries reach; each takes the nearest entry."""
    return float(_of_reached_people(costs).min(axis=1).mean())


def share_reached(costs: Floats) -> float:
    """Return the share of people whom at least one entry reaches."""
    return float(np.isfinite(costs).any(axis=1).mean())


def _without_unneeded(costs: Floats, entries: list[int], limit: float) -> list[int]:
    """Drop entries one by one until none can be spared; each time the one that is missed the least.

    An entry is never dropped if a person would then be reached by none. Of equally unneeded entries
    the last one in the catalogue's order is dropped.
    """
    entries = sorted(entries, reverse=True)
    while len(entries) > 1:
        remaining = costs[:, entries]  # (n_people, n_entries)
        # infinite where a person would be left without an entry
        mean_without = [
            np.delete(remaining, i, axis=1).min(axis=1).mean() for i in range(len(entries))
        ]
        least_missed = int(np.argmin(np.round(np.array(mean_without) / TIE)))
        if mean_without[least_missed] > limit + TIE:
            break
        del entries[least_missed]
    return entries


def _serves(costs: Floats, limit: float) -> bool:
    """Return True if some entries reach all people, and the mean cost is within a limit."""
    nearest = costs.min(axis=1)
    return bool(np.isfinite(nearest).all() and nearest.mean() <= limit + TIE)


def _of_reached_people(costs: Floats) -> Floats:
    return costs[np.isfinite(costs).any(axis=1)]


def _with_unreached(costs: Floats) -> Floats:
    """Replace infinite costs by a finite one that is larger than all others."""
    is_finite = np.isfinite(costs)
    largest = costs.max(initial=0.0, where=is_finite)
    return np.where(is_finite, costs, largest + UNREACHED)
