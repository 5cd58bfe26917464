"""Branch and bound over hulls that hold the anchor.

At each node the candidates are ordered by the cost of the hull with each of them alone; the cheapest is
included, searched, then excluded. A hull is visited once: what an excluded cell belongs to was seen before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from cfk_plugin.protection.axes import Floats, Ints, longer
from cfk_plugin.protection.compiled import inner, jit
from cfk_plugin.protection.hull import SET, Hull, Local, engulfs, extend, first_hull, joined, retract

if TYPE_CHECKING:
    from numpy.typing import NDArray

Singles: TypeAlias = "NDArray[np.float32]"


# Lower bounds: what any completion of a partial region must cost.
#
# A region that still needs weight must contain cells that carry it, and costs at least as much as the dearest
# of the cheapest that do. Cells tried before are excluded from later branches; an excluded cell, like a
# forbidden one, is a *blocker*: a candidate whose hull with the current region contains a blocker can never be
# used below, because regions only grow, so it leaves the candidates before the bound is taken.

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


@inner
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
        # The hull holds the anchor: no forbidden cell inside it is farther from the anchor than it costs. The two
        # sums are rounded apart from each other.
        if total >= limit or p.near[b - p.cells] > cost + TOLERANCE:
            break
        if engulfs(p, hull, d, i, b):
            total += penalty
    return total


@inner
def _fill(p: Local, hull: Hull, s: Stack, d: int, rows: Ints, source: Floats, penalty: float, limit: float) -> int:
    """Take the candidates of frame ``d`` from ``rows``; returns their weight, absorbs those inside."""
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
    """Keep the blockers that can matter at frame ``d``: in reach, and not implied by another one."""
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
    """First frame of a search for regions that cost less than ``cap``, with ``nodes`` spent already."""
    depth, room = min(need, 32) + 1, 4 * len(p.weight) + 64
    hull = first_hull(p, depth)
    item, seen, block = (np.empty(room, np.int64) for _ in range(3))
    first, last, following, block_first, block_last, held = (np.zeros(depth, np.int64) for _ in range(6))
    chosen, counter, cost = np.full(depth, -1, np.int64), np.zeros(4, np.int64), np.full(1, cap)
    s = Stack(
        item, np.empty(room), seen, block, first, last, following, block_first, block_last, held, chosen, counter, cost
    )
    counter[DEPTH], counter[NODES] = -1, nodes
    _open(p, hull, s, 0, np.arange(len(p.weight)), np.zeros(p.cells), need, penalty)
    return hull, s


@jit
def _open(p: Local, hull: Hull, s: Stack, d: int, rows: Ints, free: Floats, need: int, penalty: float) -> None:
    """Fill the first frame; ``rows`` counts all rows, and ``free`` is what a cell costs before: nothing.

    ``d`` is 0: as a literal in here it would have all that it is given to compiled twice.
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
    """Copy the first items, without the seconds that it takes to compile what says that shapes differ."""
    for t in range(count):
        to[t] = source[t]


@jit
def explore(
    p: Local, hull: Hull, s: Stack, need: int, penalty: float, nodes: int, until_found: bool, best: Ints
) -> int:
    """Continue a search until it is done, has spent ``nodes`` in all, or (if asked) found a region.

    Returns a status; on FULL or SHALLOW nothing was lost and the caller provides more room. ``best`` takes
    the cells that span the best region.
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
        elif s.last[d] + rest > s.item.size or 2 * s.block_last[d] - s.block_first[d] + 2 > s.block.size:
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
        if until_found and s.counter[BEST_WEIGHT] > 0:
            status = PAUSED
            break
    s.counter[DEPTH] = d
    return status


def roomier(hull: Hull, s: Stack, best: Ints) -> tuple[Hull, Stack, Ints]:
    def twice(a: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([a, np.zeros_like(a)])

    per_frame = ("first", "last", "next", "block_first", "block_last", "held", "chosen")
    lists = ("item", "key", "seen", "block")
    per_hull = ("low", "high", "size", "gap", "added")
    deeper = hull._replace(**{name: twice(getattr(hull, name)) for name in per_hull})
    larger = s._replace(**{name: twice(getattr(s, name)) for name in per_frame + lists})
    return deeper, larger, twice(best)


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


# Nearest rows: a tree over all attributes of the training rows, for distances that add up over attributes.


class RowTree(NamedTuple):
    """A k-d tree over rows: node ``t`` holds rows ``start[t]:stop[t]``; its children are ``child[t]`` and the next.

    Columns are numbers between 0 and 1, infinite where missing, and then codes of categories.
    """

    start: Ints
    stop: Ints
    child: Ints
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    rows: NDArray[np.float32]


@inner
def _away(low: Any, high: Any, t: int, place: Floats, numbers: int, limit: float) -> float:
    """Least distance of a place to a box, or any number above the limit; a row is a box as well."""
    total = 0.0
    for j in range(place.size):
        below, above, x = low[t, j], high[t, j], place[j]
        if j >= numbers:
            total += 0.0 if below <= x <= above else 1.0
        elif x == np.inf:
            total += 0.0 if above == np.inf else 1.0
        elif above == np.inf:
            total += min(max(below - x, 0.0), 1.0)
        else:
            total += max(below - x, x - above, 0.0)
        if total > limit:
            return total
    return total


@inner
def _insert(best: Floats, away: float) -> None:
    """Put a number among the least ones, where it belongs to them."""
    at = best.size
    while at > 0 and best[at - 1] > away:
        if at < best.size:
            best[at] = best[at - 1]
        at -= 1
    if at < best.size:
        best[at] = away


@jit
def nearest_rows(
    tree: RowTree, place: Floats, numbers: int, k: int, slack: float, exclude_same: bool
) -> tuple[Ints, Floats, float]:
    """Find all rows that can be among the k nearest, where distances are right within the slack.

    Returns rows, their distances, and the limit above which it turned out that they cannot.
    """
    best, found, apart, size = np.full(k, np.inf), np.empty(64, np.int64), np.empty(64), 0
    todo, bound, top = np.empty(256, np.int64), np.empty(256), 1
    todo[0], bound[0] = 0, 0.0
    while top > 0:
        top -= 1
        t, limit = todo[top], best[k - 1] + slack
        if bound[top] > limit:
            continue
        if tree.child[t] >= 0:
            a = tree.child[t]
            b, near = a + 1, _away(tree.low, tree.high, a, place, numbers, limit)
            far = _away(tree.low, tree.high, b, place, numbers, limit)
            if far < near:
                a, b, near, far = b, a, far, near
            if top + 2 > todo.size:
                todo, bound = longer(todo), longer(bound)
            todo[top], bound[top], todo[top + 1], bound[top + 1] = b, far, a, near
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            away = _away(tree.rows, tree.rows, i, place, numbers, best[k - 1] + slack)
            if away > best[k - 1] + slack:
                continue
            if size == found.size:
                found, apart = longer(found), longer(apart)
            found[size], apart[size] = i, away
            size += 1
            if away > slack or not exclude_same:
                _insert(best, away)
    return found[:size], apart[:size], best[k - 1] + slack


# Nearest rows of many features: where a tree would tell few rows apart, all are scanned in single precision.

_AT_ONCE = 4096  # rows whose sums stay in a core's cache


@inner
def _add_apart(total: Singles, row: Singles, x: Any, from_missing: Any) -> None:
    for i in range(total.size):
        away = abs(row[i] - x)
        total[i] += from_missing if np.isnan(away) else away


@inner
def _add_present(total: Singles, row: Singles) -> None:
    for i in range(total.size):
        total[i] += np.float32(not np.isnan(row[i]))


@inner
def _add_other(total: Singles, row: Singles, x: Any) -> None:
    for i in range(total.size):
        total[i] += np.float32(row[i] != x)


@inner
def _within(total: Singles, limit: Any, at: Ints) -> int:
    """Note which numbers are not above the limit, and return how many; blocks without any are passed quickly."""
    few = np.int32(0)
    for i in range(total.size):
        few += np.int32(total[i] <= limit)
    found = 0
    for i in range(total.size if few else 0):
        if total[i] <= limit:
            at[found] = i
            found += 1
    return found


@jit
def scan_rows(
    rows: Singles, cost: Singles, places: Singles, from_missing: Singles, numbers: int, slack: Floats, rounding: float
) -> tuple[Ints, Ints]:
    """Find all rows that can be nearest to some places, where sums are right within the slack and their rounding.

    `rows` has a line for each feature: numbers, NaN where missing, then codes. A number at ``places[i, j]`` is
    ``from_missing[i, j]`` away from a missing one; the cost of a row is added. Returns place and row of each pair,
    and of some that cannot.
    """
    best, total, at = np.empty(len(places)), np.empty(_AT_ONCE, np.float32), np.empty(_AT_ONCE, np.int64)
    who, found, size = np.empty(256, np.int64), np.empty(256, np.int64), 0
    for start in range(0, cost.size, _AT_ONCE):
        stop = min(start + _AT_ONCE, cost.size)
        near = total[: stop - start]
        for i in range(len(places)):
            near[:] = cost[start:stop]
            for j in range(len(rows)):
                row, x = rows[j, start:stop], places[i, j]
                if j >= numbers:
                    _add_other(near, row, x)
                elif np.isnan(x):
                    _add_present(near, row)
                else:
                    _add_apart(near, row, x, from_missing[i, j])
            if start == 0:
                best[i] = near.min()
            limit = np.float32(best[i] + abs(best[i]) * rounding + slack[i])
            few = _within(near, limit, at)
            for r in at[:few]:
                if size == who.size:
                    who, found = longer(who), longer(found)
                who[size], found[size] = i, start + r
                best[i] = min(best[i], near[r])
                size += 1
    return who[:size], found[:size]
