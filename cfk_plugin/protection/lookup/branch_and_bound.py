"""Branch and bound over hulls: the cheapest region with an anchor and enough people.

A cheapest region is always the hull of the anchor and some equivalence classes, so the search runs
over hulls. One call of `begin` and some calls of `explore` find what `plain_cheapest` finds by
trying every subset of classes. `lookup.solver` says which classes may join at all.

At each depth there is a hull ``L``, a number of people inside it, and a list of candidates: classes
outside of ``L``, each with a key, the cost of the hull of ``L`` and the candidate. The steps are:

1. *Fill* (`_fill`). Count the candidates that lie inside ``L``. If there are enough people, ``L``
   is the best region so far. Drop the candidates whose key is not below the best cost. Sort the
   others by key.
2. *Block* (`_block`). A *blocker* is a forbidden combination, or a class that an earlier branch
   included and that is therefore excluded here. A candidate whose hull with ``L`` contains a
   blocker is dead: a region that contains a forbidden combination is not wanted, and a region that
   contains an excluded class was searched where that class was included. Hulls only grow, so it
   stays dead. Each hull is thus searched once.
3. *Bound* (`hopeless`). ``L`` needs more people, and every completion of ``L`` contains candidates
   that have them. It costs at least the key of each candidate that it contains. So it costs at
   least the key at which the people of the candidates, in order of their keys, reach the number
   needed (`_completion_bound`). On a SET axis with many values of few people each, a second bound
   counts how many values are needed (`_is_dispersed`).
4. *Branch* (`explore`). Include the cheapest candidate: go to step 1 one depth below. When that is
   searched, exclude it and go to step 3.

With a finite penalty, a forbidden combination does not block: each one inside a region adds the
penalty to its cost. Costs still only grow, so that the bound holds.

The search keeps its state in a `SearchStack`, so that it can pause, and its caller can look at the
clock or give it more room. When it pauses, `open_bound` is a cost below which no unexplored region
lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.compiled import inner, jit
from cfk_plugin.protection.lookup.hulls import (
    SET,
    Hull,
    LocalProblem,
    engulfs,
    extend,
    first_hull,
    joined,
    plain_contains,
    plain_cost,
    retract,
)

# Two costs closer than this are one optimum in exact arithmetic: to search between them proves
# nothing new.
TOLERANCE = 1e-12

# What `explore` returns.
DONE = 0  # nothing is left to search
PAUSED = 1  # the limit of nodes is reached, or a first region is found
FULL = 2  # no room for longer lists
SHALLOW = 3  # no room for a deeper search

# Places in `SearchStack.counter`.
DEPTH = 0  # current depth; -1 when the search is done
NODES = 1  # hulls that were branched on
BEST_WEIGHT = 2  # people of the best region; 0 while there is none
BEST_SIZE = 3  # classes that span it with the anchor

_NOTHING = -1  # in `candidate`: dead; in `chosen`: no branch is open
_FIRST_DEPTHS = 32  # depths that a search has room for at first, beside depth 0


class SearchStack(NamedTuple):
    """Where a search stands: one frame per depth, the lists of all frames end to end.

    Frame ``d`` owns the candidates ``first[d]:last[d]``, of which those before ``next[d]`` were
    branched on, and the blockers ``block_first[d]:block_last[d]``. One more place for a blocker is
    left between two frames, as a frame's chosen candidate becomes its blocker.
    """

    candidate: Ints  # shape (n_room,); row of each candidate, -1 if it is dead
    key: Floats  # shape (n_room,); cost of the hull with the candidate; ascending in a frame
    n_compared: Ints  # shape (n_room,); place up to which blockers were compared with the candidate
    blocker: Ints  # shape (n_room,); rows
    first: Ints  # shape (n_depths,)
    last: Ints  # shape (n_depths,)
    next: Ints  # shape (n_depths,)
    block_first: Ints  # shape (n_depths,)
    block_last: Ints  # shape (n_depths,)
    held: Ints  # shape (n_depths,); people inside the frame's hull
    chosen: Ints  # shape (n_depths,); row whose branch is being searched, else -1
    counter: Ints  # shape (4,); see DEPTH, NODES, BEST_WEIGHT and BEST_SIZE
    best_cost: Floats  # shape (1,); of the best region, or the cap below which one is sought


def plain_cheapest(
    problem: LocalProblem, need: int, cap: float, penalty: float
) -> tuple[float, int]:
    """Return cost and people of the cheapest region below a cap, by trying all subsets of classes.

    If there is none, return the cap and 0. This is what a search computes that begins with `begin`
    and is done, up to `TOLERANCE` and ties. For small problems only.
    """
    best_cost = cap
    best_people = 0
    for size in range(problem.n_classes + 1):
        for rows in combinations(range(problem.n_classes), size):
            inside = [i for i in range(problem.n_classes) if plain_contains(problem, rows, i)]
            people = int(problem.weight[inside].sum())
            cost = plain_fined_cost(problem, rows, penalty)
            if people >= need and cost < best_cost:
                best_cost = cost
                best_people = people
    return best_cost, best_people


def plain_fined_cost(problem: LocalProblem, rows: Sequence[int], penalty: float) -> float:
    """Return the cost of a hull with a penalty for each forbidden combination inside.

    With an infinite penalty, a hull with a forbidden combination costs infinitely much.
    """
    forbidden = range(problem.n_classes, len(problem.weight) - 1)
    n_inside = sum(plain_contains(problem, rows, b) for b in forbidden)
    cost = plain_cost(problem, rows)
    return cost + penalty * n_inside if n_inside else cost


def begin(
    problem: LocalProblem, need: int, cap: float, penalty: float, nodes: int
) -> tuple[Hull, SearchStack]:
    """Return the first frame of a search for regions that cost less than a cap.

    Parameters
    ----------
    need : people that a region must hold, at least 1
    penalty : cost of each forbidden combination inside; with 0 they are ignored, with infinity no
        region may contain one
    nodes : hulls that earlier searches for the same anchor branched on
    """
    n_depths = min(need, _FIRST_DEPTHS) + 1
    n_room = 4 * len(problem.weight) + 64
    hull = first_hull(problem, n_depths)
    stack = SearchStack(
        candidate=np.empty(n_room, np.int64),
        key=np.empty(n_room),
        n_compared=np.empty(n_room, np.int64),
        blocker=np.empty(n_room, np.int64),
        first=np.zeros(n_depths, np.int64),
        last=np.zeros(n_depths, np.int64),
        next=np.zeros(n_depths, np.int64),
        block_first=np.zeros(n_depths, np.int64),
        block_last=np.zeros(n_depths, np.int64),
        held=np.zeros(n_depths, np.int64),
        chosen=np.full(n_depths, _NOTHING, np.int64),
        counter=np.zeros(4, np.int64),
        best_cost=np.full(1, cap),
    )
    stack.counter[DEPTH] = -1
    stack.counter[NODES] = nodes
    rows = np.arange(len(problem.weight))
    _open(problem, hull, stack, 0, rows, np.zeros(problem.n_classes), need, penalty)
    return hull, stack


def roomier(hull: Hull, stack: SearchStack, best: Ints) -> tuple[Hull, SearchStack, Ints]:
    """Return the state of a search with twice the room, for lists and for depths."""

    def twice(array: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([array, np.zeros_like(array)])

    deeper = {
        name: twice(array)
        for name, array in hull._asdict().items()
        if name not in ("member", "slot")
    }
    larger = {
        name: twice(array)
        for name, array in stack._asdict().items()
        if name not in ("counter", "best_cost")
    }
    return hull._replace(**deeper), stack._replace(**larger), twice(best)


@jit
def _open(
    problem: LocalProblem,
    hull: Hull,
    stack: SearchStack,
    depth: int,
    rows: Ints,
    no_costs: Floats,
    need: int,
    penalty: float,
) -> None:
    """Fill the first frame (steps 1 and 2 for the anchor alone), in place.

    Parameters
    ----------
    depth : 0; as a literal here, everything that it is passed to would be compiled twice
    rows : shape (n_rows,); ``0, 1, 2, ...``
    no_costs : shape (n_classes,); zeros, so that no class is dropped unseen
    """
    anchor = problem.weight.size - 1
    cap = stack.best_cost[0]
    base_cost = joined(problem, hull, depth, anchor, np.inf)[0]
    if 0.0 < penalty < np.inf:
        base_cost = _fined(problem, hull, depth, anchor, penalty, base_cost, np.inf)
    if penalty == np.inf:
        for b in range(problem.n_classes, anchor):
            if joined(problem, hull, depth, b, np.inf)[1]:
                return
    if base_cost >= cap:
        return
    classes = rows[: problem.n_classes]
    candidates_weight = _fill(problem, hull, stack, depth, classes, no_costs, penalty, cap)
    if stack.held[depth] >= need:
        stack.best_cost[0] = base_cost
        stack.counter[BEST_WEIGHT] = stack.held[depth]
    elif stack.held[depth] + candidates_weight >= need:
        if penalty == np.inf:
            _block(problem, hull, stack, depth, rows[problem.n_classes : anchor], cap)
        _sort(stack, depth)
        stack.counter[DEPTH] = depth


# Step 1: fill.


@inner
def _fill(
    problem: LocalProblem,
    hull: Hull,
    stack: SearchStack,
    depth: int,
    rows: Ints,
    parent_keys: Floats,
    penalty: float,
    limit: float,
) -> int:
    """Write a frame's candidates in place, unsorted; add the people of rows inside to ``held``.

    Returns the people of the candidates.

    Parameters
    ----------
    rows : shape (n,); candidates of the frame above, -1 if dead
    parent_keys : shape (n,); their keys there; those of `limit` or more are dropped
    """
    end = stack.first[depth]
    weight = 0
    is_fined = 0.0 < penalty < np.inf
    for r in range(rows.size):
        i = rows[r]
        if i < 0 or parent_keys[r] >= limit:
            continue
        cost, is_inside = joined(problem, hull, depth, i, limit)
        if is_fined and not is_inside:
            cost = _fined(problem, hull, depth, i, penalty, cost, limit)
        if is_inside:
            stack.held[depth] += problem.weight[i]
        elif cost < limit:
            stack.candidate[end] = i
            stack.key[end] = cost
            weight += problem.weight[i]
            end += 1
    stack.last[depth] = end
    stack.next[depth] = stack.first[depth]
    return weight


@inner
def _fined(
    problem: LocalProblem,
    hull: Hull,
    depth: int,
    i: int,
    penalty: float,
    cost: float,
    limit: float,
) -> float:
    """Return the cost of a hull, once row ``i`` joins, plus the penalty of each forbidden row.

    If this is `limit` or more, return any number of at least `limit`. Otherwise equals
    `plain_fined_cost`. `cost` is the cost without penalties.
    """
    total = cost
    for b in range(problem.n_classes, problem.weight.size - 1):
        # The hull holds the anchor, so it costs at least as much as the hull of the anchor and a
        # forbidden row inside. The two sums may be rounded differently.
        if total >= limit or problem.forbidden_cost[b - problem.n_classes] > cost + TOLERANCE:
            break
        if engulfs(problem, hull, depth, i, b):
            total += penalty
    return total


@inner
def _sort(stack: SearchStack, depth: int) -> None:
    """Sort a frame's candidates by key, in place; ties keep their order."""
    first = stack.first[depth]
    last = stack.last[depth]
    candidates = stack.candidate[first:last].copy()
    keys = stack.key[first:last].copy()
    order = np.argsort(keys, kind="mergesort")
    for t in range(last - first):
        stack.candidate[first + t] = candidates[order[t]]
        stack.key[first + t] = keys[order[t]]
        stack.n_compared[first + t] = stack.block_first[depth]


# Step 2: block.


@inner
def _block(
    problem: LocalProblem, hull: Hull, stack: SearchStack, depth: int, rows: Ints, limit: float
) -> None:
    """Write a frame's blockers in place, from those of the frame above.

    A blocker is dropped if a hull that contains it costs `limit` or more, or if such a hull always
    contains a blocker that is kept.
    """
    end = stack.block_first[depth]
    for r in range(rows.size):
        b = rows[r]
        if joined(problem, hull, depth, b, limit)[0] >= limit:
            continue
        is_implied = False
        for t in range(stack.block_first[depth], end):
            if engulfs(problem, hull, depth, b, stack.blocker[t]):
                is_implied = True
                break
        if not is_implied:
            stack.blocker[end] = b
            end += 1
    stack.block_last[depth] = end


# Step 3: bound.


@inner
def hopeless(
    problem: LocalProblem, hull: Hull, stack: SearchStack, depth: int, need: int, limit: float
) -> bool:
    """Return True only if no completion from a frame's candidates costs less than `limit`.

    `need` is the number of people that the frame's hull lacks. Buries candidates in place, as
    `_completion_bound` does. True is proven; False says nothing.
    """
    is_settled = _completion_bound(problem, hull, stack, depth, need, limit) >= limit
    for j in range(problem.mode.size):
        if not is_settled and problem.mode[j] == SET and problem.is_wide[j]:
            is_settled = _is_dispersed(problem, hull, stack, depth, j, need, limit)
    return is_settled


@inner
def _completion_bound(
    problem: LocalProblem, hull: Hull, stack: SearchStack, depth: int, need: int, limit: float
) -> float:
    """Return a cost that every completion from a frame's candidates reaches.

    This is the key at which the people of the living candidates reach `need`, and infinite if that
    is `limit` or more. Candidates are buried in place, as far as they are looked at, if a blocker
    rules them out. The first call for a frame equals `plain_completion_bound`.
    """
    weight = 0
    for t in range(stack.next[depth], stack.last[depth]):
        if stack.key[t] >= limit:
            return np.inf
        i = stack.candidate[t]
        if i < 0:
            continue
        for b in range(stack.n_compared[t], stack.block_last[depth]):
            if engulfs(problem, hull, depth, i, stack.blocker[b]):
                stack.candidate[t] = _NOTHING
                break
        stack.n_compared[t] = stack.block_last[depth]
        if stack.candidate[t] >= 0:
            weight += problem.weight[i]
            if weight >= need:
                return float(stack.key[t])
    return np.inf


def plain_completion_bound(
    problem: LocalProblem,
    rows: Sequence[int],
    candidates: Sequence[int],
    blockers: Sequence[int],
    need: int,
    limit: float,
) -> float:
    """Return what `_completion_bound` computes for the hull of the anchor and some rows."""
    living = [
        i
        for i in candidates
        if not any(plain_contains(problem, [*rows, i], blocker) for blocker in blockers)
    ]
    keys = [plain_cost(problem, [*rows, i]) for i in living]
    weight = 0
    for place in np.argsort(keys, kind="stable"):
        weight += int(problem.weight[living[place]])
        if weight >= need:
            return keys[place] if keys[place] < limit else np.inf
    return np.inf


@inner
def _is_dispersed(  # noqa: C901 - a kernel
    problem: LocalProblem,
    hull: Hull,
    stack: SearchStack,
    depth: int,
    j: int,
    need: int,
    limit: float,
) -> bool:
    """Return True only if people are spread over too many values of SET axis ``j``.

    Then no completion costs less than `limit`, because for every number ``c`` of values that a
    completion adds to the axis, too few people can be gained:

    * The axis then costs so much that only those candidates are left that are cheap enough on the
      other axes.
    * Of these, a completion gains at most those whose value is in the hull, and those of the ``c``
      new values with the most people.

    Many values of equal small weight look alike to `_completion_bound`, and are settled here. Up to
    16 new values are tried one by one. Beyond, ``fewest`` to ``most`` values are tried at once: the
    price is that of the fewest, the gain that of the most. Costs a pass over the candidates for
    each trial; leaves ``hull.slot`` as it was.
    """
    room = stack.last[depth] - stack.next[depth]
    size = hull.size[depth, j]
    value_cost = problem.value_cost[j]
    cost_now = 0.0
    if size > 1:
        cost_now = value_cost * size
    # Of each living candidate: its row, its cost on the other axes, and the slot of its value if
    # this is new. One sum of people per slot.
    rows = np.empty(room, np.int64)
    other_cost = np.empty(room)
    slot = np.empty(room, np.int64)
    sums = np.empty(room, np.int64)
    count = 0
    n_slots = 0
    for t in range(stack.next[depth], stack.last[depth]):
        i = stack.candidate[t]
        if stack.key[t] >= limit:
            break
        if i < 0:
            continue
        c = problem.code[i, j]
        rows[count] = i
        if hull.member[c]:
            slot[count] = -1
            other_cost[count] = stack.key[t] - cost_now
        else:
            if hull.slot[c] < 0:
                hull.slot[c] = n_slots
                n_slots += 1
            slot[count] = hull.slot[c]
            other_cost[count] = stack.key[t] - value_cost * (size + 1)
        count += 1
    for t in range(count):
        hull.slot[problem.code[rows[t], j]] = -1
    fewest = 0
    is_possible = False
    while fewest <= min(need, n_slots) and not is_possible:
        most = fewest
        if fewest > 16:
            most = fewest + fewest // 4
        price = 0.0
        if size + fewest > 1:
            price = value_cost * (size + fewest)
        gained = 0
        is_any_left = False
        for v in range(n_slots):
            sums[v] = 0
        for t in range(count):
            # A little more than the limit, as the two differences are rounded.
            if other_cost[t] + price < limit + TOLERANCE / 64:
                is_any_left = True
                if slot[t] < 0:
                    gained += problem.weight[rows[t]]
                else:
                    sums[slot[t]] += problem.weight[rows[t]]
        if not is_any_left:
            return True
        is_possible = gained + sum_of_largest(sums, n_slots, most, need) >= need
        fewest = most + 1
    return not is_possible


@inner
def sum_of_largest(sums: Ints, n_sums: int, count: int, need: int) -> int:
    """Return the sum of the largest `count` of the first `n_sums` sums.

    If this is `need` or more, return any number of at least `need`. Otherwise equals
    `plain_sum_of_largest`.
    """
    if count == 0:
        return 0
    if count == 1:
        largest = 0
        for v in range(n_sums):
            largest = max(largest, sums[v])
        return largest
    # How many sums have each size up to `need`, which is much faster than to sort them.
    tally = np.empty(need + 1, np.int64)
    for w in range(need + 1):
        tally[w] = 0
    for v in range(n_sums):
        tally[min(sums[v], need)] += 1
    total = 0
    for w in range(need, 0, -1):
        n_taken = min(tally[w], count)
        total += n_taken * w
        count -= n_taken
        if count == 0 or total >= need:
            break
    return total


def plain_sum_of_largest(sums: Ints, n_sums: int, count: int) -> int:
    """Return what `sum_of_largest` computes, however large it is."""
    descending = np.sort(sums[:n_sums])[::-1]
    return int(descending[:count].sum())


@jit
def open_bound(problem: LocalProblem, stack: SearchStack, need: int) -> float:
    """Return a cost below which no unexplored region of a paused search lies.

    This is the least, over all frames, of the key at which the people of the candidates left reach
    the number that the frame's hull lacks; or the best cost, if that is less. Equals
    `plain_open_bound`.
    """
    bound = float(stack.best_cost[0])
    for depth in range(stack.counter[DEPTH] + 1):
        weight = 0
        for t in range(stack.next[depth], stack.last[depth]):
            if stack.candidate[t] >= 0:
                weight += problem.weight[stack.candidate[t]]
                if weight >= need - stack.held[depth]:
                    bound = min(bound, float(stack.key[t]))
                    break
    return bound


def plain_open_bound(problem: LocalProblem, stack: SearchStack, need: int) -> float:
    """Return what `open_bound` computes."""
    bounds = [float(stack.best_cost[0])]
    for depth in range(stack.counter[DEPTH] + 1):
        places = np.arange(stack.next[depth], stack.last[depth])
        places = places[stack.candidate[places] >= 0]
        people = np.cumsum(problem.weight[stack.candidate[places]])
        is_enough = people >= need - stack.held[depth]
        bounds.extend(stack.key[places[is_enough]][:1].tolist())
    return min(bounds)


# Step 4: branch.


@jit
def explore(  # noqa: C901 - a kernel
    problem: LocalProblem,
    hull: Hull,
    stack: SearchStack,
    need: int,
    penalty: float,
    most_nodes: int,
    is_once: bool,
    best: Ints,
) -> int:
    """Continue a search, in place; return DONE, PAUSED, FULL or SHALLOW.

    It pauses when it has branched on `most_nodes` hulls in all, or, if `is_once`, when it has found
    a region. On FULL or SHALLOW nothing is lost: the caller provides more room and calls again.

    Parameters
    ----------
    best : shape (n_depths,); takes the rows that span the best region with the anchor
    """
    depth = stack.counter[DEPTH]
    status = DONE
    while depth >= 0:
        limit = stack.best_cost[0] - TOLERANCE
        # Exclude the candidate whose branch is finished.
        if stack.chosen[depth] >= 0:
            stack.blocker[stack.block_last[depth]] = stack.chosen[depth]
            stack.block_last[depth] += 1
            stack.chosen[depth] = _NOTHING
        if hopeless(problem, hull, stack, depth, need - stack.held[depth], limit):
            retract(problem, hull, depth)
            depth -= 1
            continue
        child = depth + 1
        n_left = stack.last[depth] - stack.next[depth]
        n_blockers = stack.block_last[depth] - stack.block_first[depth]
        status = DONE
        if stack.counter[NODES] >= most_nodes:
            status = PAUSED
        elif child >= stack.held.size:
            status = SHALLOW
        elif (
            stack.last[depth] + n_left > stack.candidate.size
            or stack.block_last[depth] + n_blockers + 2 > stack.blocker.size
        ):
            status = FULL
        if status != DONE:
            break
        stack.counter[NODES] += 1
        # Include the cheapest living candidate.
        while stack.candidate[stack.next[depth]] < 0:
            stack.next[depth] += 1
        place = stack.next[depth]
        i = stack.candidate[place]
        cost = stack.key[place]
        stack.next[depth] = place + 1
        stack.chosen[depth] = i
        extend(problem, hull, depth, i)
        stack.first[child] = stack.last[depth]
        stack.held[child] = stack.held[depth] + problem.weight[i]
        stack.chosen[child] = _NOTHING
        rows = stack.candidate[place + 1 : stack.last[depth]]
        keys = stack.key[place + 1 : stack.last[depth]]
        candidates_weight = _fill(problem, hull, stack, child, rows, keys, penalty, limit)
        if stack.held[child] >= need:
            stack.best_cost[0] = cost
            stack.counter[BEST_WEIGHT] = stack.held[child]
            stack.counter[BEST_SIZE] = child
            _copy(stack.chosen, child, best)
        elif stack.held[child] + candidates_weight >= need:
            stack.block_first[child] = stack.block_last[depth] + 1
            blockers = stack.blocker[stack.block_first[depth] : stack.block_last[depth]]
            _block(problem, hull, stack, child, blockers, limit)
            _sort(stack, child)
            depth = child
            continue
        retract(problem, hull, child)
        if is_once and stack.counter[BEST_WEIGHT] > 0:
            status = PAUSED
            break
    stack.counter[DEPTH] = depth
    return status


@inner
def _copy(source: Ints, count: int, target: Ints) -> None:
    """Copy the first items.

    To assign a slice would add seconds of compiling the error for different shapes.
    """
    for t in range(count):
        target[t] = source[t]
