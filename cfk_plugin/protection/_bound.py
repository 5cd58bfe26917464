"""Lower bounds: what any completion of a partial region must cost.

A region that still needs weight must contain cells that carry it, and costs at least as much as the dearest
of the cheapest that do. Cells tried before are excluded from later branches; an excluded cell, like a
forbidden one, is a *blocker*: a candidate whose hull with the current region contains a blocker can never be
used below, because regions only grow, so it leaves the candidates before the bound is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfk_plugin.protection._axes import Floats, Ints, jit
from cfk_plugin.protection._hull import SET, Hull, Local, engulfs

# Two costs closer than this are one optimum in exact arithmetic; searching between them proves nothing new.
TOLERANCE = 1e-12


class Stack(NamedTuple):
    """Where a search stands: one frame per depth, lists of all frames end to end.

    Frame ``d`` owns ``item[first[d]:last[d]]`` (candidates by cost ``key``, -1 once dead; ``seen`` counts the
    blockers compared) and ``block[block_first[d]:block_last[d]]``; ``next`` is the next to try.
    """

    item: Ints
    key: Floats
    seen: Ints
    block: Ints
    first: Ints
    last: Ints
    next: Ints
    block_first: Ints
    block_last: Ints
    held: Ints
    chosen: Ints
    counter: Ints
    cost: Floats


@jit
def _bound(p: Local, hull: Hull, s: Stack, d: int, need: int, limit: float) -> float:
    """Least cost of a completion from the candidates left; buries those that a blocker rules out."""
    weight = 0
    for t in range(s.next[d], s.last[d]):
        if s.key[t] >= limit:
            return np.inf
        i = s.item[t]
        if i < 0:
            continue
        for b in range(s.seen[t], s.block_last[d]):
            if engulfs(p, hull, d, i, s.block[b]):
                s.item[t] = -1
                break
        s.seen[t] = s.block_last[d]
        if s.item[t] >= 0:
            weight += p.weight[i]
            if weight >= need:
                return float(s.key[t])
    return np.inf


@jit
def _top(sums: Ints, used: int, count: int, need: int) -> int:
    """Sum of the ``count`` largest of the first ``used`` sums, as far as ``need``."""
    if count == 0:
        return 0
    if count == 1:
        return int(np.max(sums[:used]))
    tally = np.zeros(need + 1, np.int64)
    for v in range(used):
        tally[min(sums[v], need)] += 1
    total = 0
    for w in range(need, 0, -1):
        taken = min(tally[w], count)
        total += taken * w
        count -= taken
        if count == 0 or total >= need:
            break
    return total


@jit
def _dispersed(p: Local, hull: Hull, s: Stack, d: int, j: int, need: int, limit: float) -> bool:
    """Whether the weight is spread over too many values of SET axis ``j`` for any completion below ``limit``.

    With ``c`` new values the axis costs so much that only candidates cheap enough on the other axes remain,
    and the weight gained is at most that of the ``c`` heaviest new values plus what has a value of the hull.
    If this is too little for every ``c`` there is no completion. Many values of equal small weight, which the
    bound by single candidates cannot tell apart, are settled here.
    """
    room, size, unit = s.last[d] - s.next[d], hull.size[d, j], p.unit[j]
    now = unit * size if size > 1 else 0.0
    slot, rest, sums = np.empty(room, np.int64), np.empty(room), np.empty(room, np.int64)
    rows, count, used = np.empty(room, np.int64), 0, 0
    for t in range(s.next[d], s.last[d]):
        i = s.item[t]
        if s.key[t] >= limit:
            break
        if i < 0:
            continue
        c = p.code[i, j]
        fresh = not hull.member[c]
        if fresh and hull.slot[c] < 0:
            hull.slot[c] = used
            used += 1
        rows[count] = i
        slot[count] = hull.slot[c] if fresh else -1
        rest[count] = s.key[t] - (unit * (size + 1) if fresh else now)
        count += 1
    for t in range(count):
        hull.slot[p.code[rows[t], j]] = -1
    fewest, possible = 0, False
    while fewest <= min(need, used) and not possible:
        most = fewest if fewest <= 16 else fewest + fewest // 4
        price = unit * (size + fewest) if size + fewest > 1 else 0.0
        gained, any_left = 0, False
        sums[:used] = 0
        for t in range(count):
            if rest[t] + price < limit + TOLERANCE / 64:
                any_left = True
                if slot[t] < 0:
                    gained += p.weight[rows[t]]
                else:
                    sums[slot[t]] += p.weight[rows[t]]
        if not any_left:
            return True
        possible = gained + _top(sums, used, most, need) >= need
        fewest = most + 1
    return not possible


@jit
def hopeless(p: Local, hull: Hull, s: Stack, d: int, need: int, limit: float) -> bool:
    """Whether no completion from the candidates left costs less than ``limit``."""
    settled = _bound(p, hull, s, d, need, limit) >= limit
    for j in range(p.mode.size):
        if not settled and p.mode[j] == SET and p.wide[j]:
            settled = _dispersed(p, hull, s, d, j, need, limit)
    return settled
