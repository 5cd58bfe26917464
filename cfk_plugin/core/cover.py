"""Groups that cover everyone, also people without the outcome.

If only people with the outcome were in groups, an attacker who knows all quasi-identifiers could
read outcomes off regions: a person who fits no region was refused, and if exactly k people fit a
region, all of them have the outcome.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from cfk_plugin.core.codes import Floats, Ints, Mask
from cfk_plugin.core.regions import box_ncp

_NEAR = 32  # groups, or people, among which the nearest are looked for
_REFUSED = 0.2  # least share of refused people beside a region's people with the outcome
_AT_ONCE = 1 << 22  # coordinates that are worked on at once
_TIE = 1e-12


class Cover(NamedTuple):
    """Where the people go who are in no group yet.

    Attributes
    ----------
    group : shape (n_others,); the group that each of them joins
    extra : shape (n_extra, 2); groups, and others who are in their hulls without joining them
    """

    group: Ints
    extra: Ints


def cover(
    points: Floats, group: Ints, others: Floats, is_refused: Mask, caps: Floats, k: int
) -> Cover:
    """Let everyone else join the group whose hull grows least.

    A region with fewer than 2 k people inside, and few refused ones, would show nearly who has the
    outcome. Its hull is widened by the nearest refused people.

    Parameters
    ----------
    points : shape (n_points, n_dimensions)
        Of the people in groups, in coordinates in which NCP is the sum of the sides of a box.
    group : shape (n_points,)
        Every number from 0 to the largest occurs.
    others : shape (n_others, n_dimensions)
    is_refused : shape (n_others,)
        Which of them do not have the outcome.
    caps : shape (n_dimensions,)
        The most that each side of a box counts.
    k : int
    """
    low, high = _hulls(points, group)
    distinct, place = np.unique(others, axis=0, return_inverse=True)
    joined = _nearest_groups(distinct, low, high, caps)[place.reshape(-1)]
    n_members = np.bincount(group)
    n_refused = np.bincount(joined[is_refused], minlength=len(low))
    n_needed = np.ceil(_REFUSED * n_members).astype(np.int64) - n_refused
    small = _small_groups(points, group, others, joined, 2 * k)
    refused = np.flatnonzero(is_refused)
    extra = [np.empty((0, 2), dtype=np.int64)]
    if len(refused) > 0:
        tree = cKDTree(others[refused])
        for number in small[n_needed[small] > 0].tolist():
            n_near = min(_NEAR + 2 * int(n_needed[number]), len(refused))
            near = tree.query((low[number] + high[number]) / 2, np.arange(1, n_near + 1), p=1)[1]
            candidates = refused[near]
            candidates = candidates[joined[candidates] != number]
            wide_low = np.minimum(others[candidates], low[number])
            wide_high = np.maximum(others[candidates], high[number])
            order = np.argsort(box_ncp(wide_low, wide_high, caps), kind="stable")
            nearest = candidates[order[: n_needed[number]]]
            extra.append(np.column_stack([np.full(len(nearest), number), nearest]))
    return Cover(joined, np.concatenate(extra))


def _small_groups(points: Floats, group: Ints, others: Floats, joined: Ints, n_people: int) -> Ints:
    """Return the groups whose hulls have fewer than so many people inside, (n_small,)."""
    both = np.concatenate([points, others])
    group_of_both = np.concatenate([group, joined])
    low, high = _hulls(both, group_of_both)
    everyone, counts = np.unique(both, axis=0, return_counts=True)  # in order of the first column
    small = []
    for number in np.flatnonzero(np.bincount(group_of_both) < n_people).tolist():
        first = np.searchsorted(everyone[:, 0], low[number, 0] - _TIE)
        end = np.searchsorted(everyone[:, 0], high[number, 0] + _TIE)
        near = everyone[first:end]
        is_inside = (near >= low[number] - _TIE) & (near <= high[number] + _TIE)
        if counts[first:end][is_inside.all(axis=1)].sum() < n_people:
            small.append(number)
    return np.array(small, dtype=np.int64)


def _hulls(points: Floats, group: Ints) -> tuple[Floats, Floats]:
    """Return both ends of the hull of each group, shape (n_groups, n_dimensions) each."""
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(int(group.max()) + 1))
    sorted_points = points[order]
    return np.minimum.reduceat(sorted_points, start), np.maximum.reduceat(sorted_points, start)


def _nearest_groups(points: Floats, low: Floats, high: Floats, caps: Floats) -> Ints:
    """Return the group whose hull grows least by each point; of ties, the smallest hull.

    Only groups whose middle is near are looked at if there are many. The shape is (n_points,).
    """
    if not len(points):
        return np.empty(0, dtype=np.int64)
    n_near = min(_NEAR, len(low))
    near = np.tile(np.arange(len(low)), (len(points), 1))
    if n_near < len(low):
        near = cKDTree((low + high) / 2).query(points, n_near, p=1)[1]
    cost = box_ncp(low, high, caps)
    nearest = np.empty(len(points), dtype=np.int64)
    n_at_once = max(_AT_ONCE // (n_near * points.shape[1]), 1)
    for first in range(0, len(points), n_at_once):
        some = slice(first, first + n_at_once)
        groups = near[some]
        point = points[some][:, None]  # an axis for the groups
        wider = box_ncp(np.minimum(point, low[groups]), np.maximum(point, high[groups]), caps)
        growth = np.round(wider - cost[groups], 12)
        best = np.lexsort((cost[groups], growth), axis=1)[:, 0]
        nearest[some] = groups[np.arange(len(groups)), best]
    return nearest
