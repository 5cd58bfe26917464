"""Branch and bound over hulls that hold the anchor, and the problem around it.

Every cell near the anchor becomes one row. A hierarchy turns into an interval, because every hull
that holds the anchor is an ancestor of its leaf, and the ancestors form a chain ordered by cost. At
each node the candidates are ordered by the cost of the hull with each of them alone; the cheapest
is included, searched, then excluded. A hull is visited once: what an excluded cell belongs to was
seen before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.axes import (
    NOMINAL,
    TREE,
    AxisArrays,
    CellTree,
    Codes,
    Floats,
    Ints,
    tree_cost,
)
from cfk_plugin.protection.compiled import inner, jit

# The problem around one anchor, and the tests a search makes on hulls.

WIDE = 16
RANGE, SET, GAP = 0, 1, 2  # how an axis behaves here; GAP is a RANGE where "missing" (NaN) occurs


class Local(NamedTuple):
    """Rows of one search: first the cells that may join, then the forbidden ones.

    ``place`` is the coordinate on RANGE and GAP axes, ``code`` the global code on SET axes;
    ``unit`` is the cost of one value of a SET axis and ``most`` the cost of a whole axis. ``near``
    is the cost of the hull of the anchor and each forbidden cell, ascending. Row -1 is the anchor.
    """

    mode: NDArray[np.int8]
    most: Floats
    unit: Floats
    wide: NDArray[np.bool_]
    place: Floats
    code: Ints
    weight: Ints
    near: Floats
    cells: int
    codes: int


class Hull(NamedTuple):
    """The hull at each depth of a search; ``member`` marks the values of SET axes at the current
    depth.

    ``low > high`` on a GAP axis: the hull holds no number there.
    """

    low: Floats
    high: Floats
    size: Ints
    gap: NDArray[np.bool_]
    added: Ints
    member: NDArray[np.bool_]
    slot: Ints


def localize(
    tree: CellTree,
    axes: AxisArrays,
    anchor: Codes,
    place: Floats,
    rows: Ints,
    banned: Codes,
    near: Floats,
) -> Local:
    """Lay out the cells ``rows`` of the index, the forbidden cells and, last, the anchor."""
    q, n = len(anchor), len(rows)
    total = n + len(banned) + 1
    mode, unit, wide = np.zeros(q, np.int8), np.zeros(q), np.zeros(q, np.bool_)
    x, code, weight = (
        np.zeros((total, q)),
        np.zeros((total, q), np.int64),
        np.zeros(total, np.int64),
    )
    p = Local(mode, axes.weight, unit, wide, x, code, weight, near, n, int(axes.offset[q]))
    _write(p, tree, axes, anchor, place, rows, banned)
    return p


@jit
def _write(
    p: Local,
    tree: CellTree,
    axes: AxisArrays,
    anchor: Codes,
    place: Floats,
    rows: Ints,
    banned: Codes,
) -> None:
    mode, unit, wide, x, code, n, total = (
        p.mode,
        p.unit,
        p.wide,
        p.place,
        p.code,
        p.cells,
        p.weight.size,
    )
    for j in range(anchor.size):
        kind, base, missing = axes.kind[j], axes.offset[j], axes.missing[j]
        if kind == NOMINAL:
            mode[j], unit[j] = SET, axes.weight[j] / axes.card[j]
            wide[j] = axes.card[j] >= WIDE
        for i in range(total):
            c = (
                tree.codes[rows[i], j]
                if i < n
                else (banned[i - n, j] if i < total - 1 else anchor[j])
            )
            if kind == NOMINAL:
                code[i, j] = base + c
            elif kind == TREE:
                x[i, j] = tree_cost(axes, j, anchor[j], c)
            elif missing >= 0 and c == missing:
                mode[j], x[i, j] = GAP, np.nan
            else:
                x[i, j] = axes.position[base + c] if c >= 0 else place[j]
    for i in range(n):
        p.weight[i] = tree.weight[rows[i]]


def first_hull(p: Local, depth: int) -> Hull:
    """Room for hulls down to ``depth``; depth 0 holds the anchor alone."""
    q, v, is_set = len(p.mode), p.place[-1], p.mode == SET
    low, high, gap = np.zeros((depth, q)), np.zeros((depth, q)), np.zeros((depth, q), np.bool_)
    added, member = np.full((depth, q), -1, np.int64), np.zeros(p.codes, np.bool_)
    member[p.code[-1, is_set]] = True
    gap[0] = ~is_set & np.isnan(v)
    low[0] = np.where(is_set, 0.0, np.where(gap[0], np.inf, v))
    high[0] = np.where(is_set, 0.0, np.where(gap[0], -np.inf, v))
    return Hull(low, high, np.ones((depth, q), np.int64), gap, added, member, np.full(p.codes, -1))


@inner
def joined(p: Local, hull: Hull, d: int, i: int, limit: float) -> tuple[float, bool]:
    """Cost of the hull at depth ``d`` once row ``i`` joins (or a number >= limit), and whether it
    is inside.

    The sum runs over the axes in the same order everywhere, so equal hulls have equal floats and a
    larger hull never costs less: comparisons need no tolerance.
    """
    cost, inside = 0.0, True
    for j in range(p.mode.size):
        mode = p.mode[j]
        if mode == SET:
            size = hull.size[d, j]
            if not hull.member[p.code[i, j]]:
                size += 1
                inside = False
            if size > 1:
                cost += p.unit[j] * size
        else:
            v, low, high = p.place[i, j], hull.low[d, j], hull.high[d, j]
            gap = hull.gap[d, j]
            if mode == GAP and np.isnan(v):
                inside = inside and gap
                gap = True
            if v < low:
                low = v
                inside = False
            if v > high:
                high = v
                inside = False
            if low <= high:
                cost += p.most[j] if gap else min(high - low, p.most[j])
        if cost >= limit:
            return cost, False
    return cost, inside


@inner
def engulfs(p: Local, hull: Hull, d: int, i: int, b: int) -> bool:
    """Whether the hull at depth ``d``, once row ``i`` joins, contains row ``b``."""
    for j in range(p.mode.size):
        mode = p.mode[j]
        if mode == SET:
            if p.code[b, j] != p.code[i, j] and not hull.member[p.code[b, j]]:
                return False
            continue
        v, w = p.place[b, j], p.place[i, j]
        if mode == GAP and np.isnan(v):
            if not (np.isnan(w) or hull.gap[d, j]):
                return False
        elif (v < hull.low[d, j] and not w <= v) or (v > hull.high[d, j] and not w >= v):
            return False
    return True


@inner
def extend(p: Local, hull: Hull, d: int, i: int) -> None:
    """Make depth ``d + 1`` the hull of depth ``d`` and row ``i``."""
    e = d + 1
    for j in range(p.mode.size):
        low, high, size, gap = hull.low[d, j], hull.high[d, j], hull.size[d, j], hull.gap[d, j]
        hull.added[e, j] = -1
        if p.mode[j] == SET:
            c = p.code[i, j]
            if not hull.member[c]:
                hull.member[c] = True
                hull.added[e, j] = c
                size += 1
        elif np.isnan(p.place[i, j]):
            gap = True
        else:
            low, high = min(low, p.place[i, j]), max(high, p.place[i, j])
        hull.low[e, j], hull.high[e, j], hull.size[e, j], hull.gap[e, j] = low, high, size, gap


@inner
def retract(p: Local, hull: Hull, d: int) -> None:
    """Leave depth ``d``: take back the values that it added to SET axes."""
    for j in range(p.mode.size):
        if hull.added[d, j] >= 0:
            hull.member[hull.added[d, j]] = False


@jit
def headcount(p: Local, hull: Hull, span: int) -> int:
    """Weight of the rows after the first ``span`` that lie in the hull of these."""
    for d in range(span):
        extend(p, hull, d, d)
    held = 0
    for i in range(span, p.cells):
        if joined(p, hull, span, i, np.inf)[1]:
            held += p.weight[i]
    return held


# Lower bounds: what any completion of a partial region must cost.
#
# A region that still needs weight must contain cells that carry it, and costs at least as much as
# the dearest of the cheapest that do. Cells tried before are excluded from later branches; an
# excluded cell, like a forbidden one, is a *blocker*: a candidate whose hull with the current
# region contains a blocker can never be used below, because regions only grow, so it leaves the
# candidates before the bound is taken.

# Two costs closer than this are one optimum in exact arithmetic; searching between them proves
# nothing new.
TOLERANCE = 1e-12


class Stack(NamedTuple):
    """Where a search stands: one frame per depth, lists of all frames end to end.

    Frame ``d`` owns ``item[first[d]:last[d]]`` (candidates by cost ``key``, -1 once dead; ``seen``
    counts the blockers compared) and ``block[block_first[d]:block_last[d]]``; ``next`` is the next
    to try.
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


@inner
def _bound(p: Local, hull: Hull, s: Stack, d: int, need: int, limit: float) -> float:
    """Least cost of a completion from the candidates left; buries those that a blocker rules
    out.
    """
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


@inner
def _top(sums: Ints, used: int, count: int, need: int) -> int:
    """Sum of the ``count`` largest of the first ``used`` sums, as far as ``need``."""
    if count == 0:
        return 0
    if count == 1:
        most = 0
        for v in range(used):
            most = max(most, sums[v])
        return most
    tally = np.empty(need + 1, np.int64)
    for w in range(need + 1):
        tally[w] = 0
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


@inner
def _dispersed(  # noqa: C901 - a kernel
    p: Local, hull: Hull, s: Stack, d: int, j: int, need: int, limit: float
) -> bool:
    """Whether the weight is spread over too many values of SET axis ``j`` for any completion below
    ``limit``.

    With ``c`` new values the axis costs so much that only candidates cheap enough on the other axes
    remain, and the weight gained is at most that of the ``c`` heaviest new values plus what has a
    value of the hull. If this is too little for every ``c`` there is no completion. Many values of
    equal small weight, which the bound by single candidates cannot tell apart, are settled here.
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
        for v in range(used):
            sums[v] = 0
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


@inner
def hopeless(p: Local, hull: Hull, s: Stack, d: int, need: int, limit: float) -> bool:
    """Whether no completion from the candidates left costs less than ``limit``."""
    settled = _bound(p, hull, s, d, need, limit) >= limit
    for j in range(p.mode.size):
        if not settled and p.mode[j] == SET and p.wide[j]:
            settled = _dispersed(p, hull, s, d, j, need, limit)
    return settled


DONE, PAUSED, FULL, SHALLOW = 0, 1, 2, 3
DEPTH, NODES, BEST_WEIGHT, BEST_SIZE = 0, 1, 2, 3


@inner
def _fine(p: Local, hull: Hull, d: int, i: int, penalty: float, cost: float, limit: float) -> float:
    """Cost of a hull plus the penalty of every forbidden cell inside, or any number >= limit."""
    total = cost
    for b in range(p.cells, p.weight.size - 1):
        # The hull holds the anchor: no forbidden cell inside it is farther from the anchor than it
        # costs. The two sums are rounded apart from each other.
        if total >= limit or p.near[b - p.cells] > cost + TOLERANCE:
            break
        if engulfs(p, hull, d, i, b):
            total += penalty
    return total


@inner
def _fill(
    p: Local, hull: Hull, s: Stack, d: int, rows: Ints, source: Floats, penalty: float, limit: float
) -> int:
    """Take the candidates of frame ``d`` from ``rows``; returns their weight, absorbs those
    inside.
    """
    at, weight, fined = s.first[d], 0, 0.0 < penalty < np.inf
    for r in range(rows.size):
        i = rows[r]
        if i < 0 or source[r] >= limit:
            continue
        cost, inside = joined(p, hull, d, i, limit)
        if fined and not inside:
            cost = _fine(p, hull, d, i, penalty, cost, limit)
        if inside:
            s.held[d] += p.weight[i]
        elif cost < limit:
            s.item[at], s.key[at] = i, cost
            weight += p.weight[i]
            at += 1
    s.last[d], s.next[d] = at, s.first[d]
    return weight


@inner
def _sort(s: Stack, d: int) -> None:
    a, b = s.first[d], s.last[d]
    item, key = s.item[a:b].copy(), s.key[a:b].copy()
    order = np.argsort(key, kind="mergesort")
    for t in range(b - a):
        s.item[a + t], s.key[a + t] = item[order[t]], key[order[t]]
        s.seen[a + t] = s.block_first[d]


@inner
def _block(p: Local, hull: Hull, s: Stack, d: int, rows: Ints, limit: float) -> None:
    """Keep the blockers that can matter at frame ``d``: in reach, and not implied by another
    one.
    """
    at = s.block_first[d]
    for r in range(rows.size):
        b = rows[r]
        if joined(p, hull, d, b, limit)[0] >= limit:
            continue
        implied = False
        for t in range(s.block_first[d], at):
            if engulfs(p, hull, d, b, s.block[t]):
                implied = True
                break
        if not implied:
            s.block[at] = b
            at += 1
    s.block_last[d] = at


def begin(p: Local, need: int, cap: float, penalty: float, nodes: int) -> tuple[Hull, Stack]:
    """First frame of a search for regions that cost less than ``cap``, with ``nodes`` spent
    already.
    """
    depth, room = min(need, 32) + 1, 4 * len(p.weight) + 64
    item, seen, block = (np.empty(room, np.int64) for _ in range(3))
    frames = (np.zeros(depth, np.int64) for _ in range(6))
    chosen, counter, cost = np.full(depth, -1, np.int64), np.zeros(4, np.int64), np.full(1, cap)
    hull, s = (
        first_hull(p, depth),
        Stack._make((item, np.empty(room), seen, block, *frames, chosen, counter, cost)),
    )
    counter[DEPTH], counter[NODES] = -1, nodes
    _open(p, hull, s, 0, np.arange(len(p.weight)), np.zeros(p.cells), need, penalty)
    return hull, s


@jit
def _open(
    p: Local, hull: Hull, s: Stack, d: int, rows: Ints, free: Floats, need: int, penalty: float
) -> None:
    """Fill the first frame; ``rows`` are all rows, and ``free`` is the cost of each cell so far: 0.

    ``d`` is 0; as a literal here, everything it is passed to would be compiled twice.
    """
    anchor, cap = p.weight.size - 1, s.cost[0]
    base = joined(p, hull, d, anchor, np.inf)[0]
    if 0.0 < penalty < np.inf:
        base = _fine(p, hull, d, anchor, penalty, base, np.inf)
    if penalty == np.inf:
        for b in range(p.cells, anchor):
            if joined(p, hull, d, b, np.inf)[1]:
                return
    if base >= cap:
        return
    weight = _fill(p, hull, s, d, rows[: p.cells], free, penalty, cap)
    if s.held[d] >= need:
        s.cost[0], s.counter[BEST_WEIGHT] = base, s.held[d]
    elif s.held[d] + weight >= need:
        if penalty == np.inf:
            _block(p, hull, s, d, rows[p.cells : anchor], cap)
        _sort(s, d)
        s.counter[DEPTH] = d


@inner
def _copy(source: Ints, count: int, to: Ints) -> None:
    """Copy the first items.

    A slice would add seconds of compiling the error for different shapes.
    """
    for t in range(count):
        to[t] = source[t]


@jit
def explore(  # noqa: C901 - a kernel
    p: Local, hull: Hull, s: Stack, need: int, penalty: float, nodes: int, once: bool, best: Ints
) -> int:
    """Continue a search until it is done, has spent ``nodes`` in all, or (if asked) found a region.

    Returns a status; on FULL or SHALLOW nothing was lost and the caller provides more room.
    ``best`` takes the cells that span the best region.
    """
    d = s.counter[DEPTH]
    status = DONE
    while d >= 0:
        limit = s.cost[0] - TOLERANCE
        if s.chosen[d] >= 0:  # its branch is finished: from now on it is excluded
            s.block[s.block_last[d]] = s.chosen[d]
            s.block_last[d] += 1
            s.chosen[d] = -1
        if hopeless(p, hull, s, d, need - s.held[d], limit):
            retract(p, hull, d)
            d -= 1
            continue
        e, rest = d + 1, s.last[d] - s.next[d]
        status = DONE
        if s.counter[NODES] >= nodes:
            status = PAUSED
        elif e >= s.held.size:
            status = SHALLOW
        elif (
            s.last[d] + rest > s.item.size
            or 2 * s.block_last[d] - s.block_first[d] + 2 > s.block.size
        ):
            status = FULL
        if status != DONE:
            break
        s.counter[NODES] += 1
        while s.item[s.next[d]] < 0:
            s.next[d] += 1
        at = s.next[d]
        i, cost = s.item[at], s.key[at]
        s.next[d], s.chosen[d] = at + 1, i
        extend(p, hull, d, i)
        s.first[e], s.held[e], s.chosen[e] = s.last[d], s.held[d] + p.weight[i], -1
        rows, keys = s.item[at + 1 : s.last[d]], s.key[at + 1 : s.last[d]]
        weight = _fill(p, hull, s, e, rows, keys, penalty, limit)
        if s.held[e] >= need:
            s.cost[0], s.counter[BEST_WEIGHT], s.counter[BEST_SIZE] = cost, s.held[e], e
            _copy(s.chosen, e, best)
        elif s.held[e] + weight >= need:
            s.block_first[e] = s.block_last[d] + 1
            _block(p, hull, s, e, s.block[s.block_first[d] : s.block_last[d]], limit)
            _sort(s, e)
            d = e
            continue
        retract(p, hull, e)
        if once and s.counter[BEST_WEIGHT] > 0:
            status = PAUSED
            break
    s.counter[DEPTH] = d
    return status


def roomier(hull: Hull, s: Stack, best: Ints) -> tuple[Hull, Stack, Ints]:
    def twice(a: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([a, np.zeros_like(a)])

    deeper = {
        name: twice(a) for name, a in hull._asdict().items() if name not in ("member", "slot")
    }
    larger = {name: twice(a) for name, a in s._asdict().items() if name not in ("counter", "cost")}
    return hull._replace(**deeper), s._replace(**larger), twice(best)


@jit
def open_bound(p: Local, s: Stack, need: int) -> float:
    """Smallest cost that an unexplored part of the search could still reach."""
    least = float(s.cost[0])
    for d in range(s.counter[DEPTH] + 1):
        weight = 0
        for t in range(s.next[d], s.last[d]):
            if s.item[t] >= 0:
                weight += p.weight[s.item[t]]
                if weight >= need - s.held[d]:
                    least = min(least, float(s.key[t]))
                    break
    return least
