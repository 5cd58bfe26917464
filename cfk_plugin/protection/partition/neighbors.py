"""The nearest rows and equivalence classes, bit for bit those that `Heom.nearest` finds.

A kernel finds the rows that can be among the nearest, in single precision and with some slack: a
tree (`nearest_rows`) if few features distinguish the rows well, and a scan (`scan_rows`) if there
are so many that a tree would exclude few rows. Only the rows found are then compared exactly.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import CodeIndex, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, PopulationError
from cfk_plugin.metrics.heom import TIE, Heom, HeomCodes, smallest
from cfk_plugin.protection.axes import Axis, AxisArrays, Codes, Floats, Ints
from cfk_plugin.protection.class_index import CellIndex, longer
from cfk_plugin.protection.compiled import inner, jit

Singles: TypeAlias = "NDArray[np.float32]"

_COMPARED = 1 << 14  # most rows that are all compared
_PAIRS_AT_ONCE = 1 << 18  # pairs of rows that are compared at once
_ROWS_IN_CACHE = 4096  # rows whose sums stay in a core's cache


# A tree over all attributes of the rows.


class RowTree(NamedTuple):
    """A k-d tree over rows, for distances that are sums over attributes.

    Columns are numbers first, between 0 and 1, and infinite where they are missing. Then come codes
    of categories. The rows are in the tree's order.
    """

    start: Ints  # shape (n_nodes,); node t holds the rows from start[t] to stop[t] - 1
    stop: Ints
    child: Ints  # shape (n_nodes,); the children of node t are child[t] and the next; -1 for a leaf
    low: Singles  # shape (n_nodes, n_columns); the least value of each column in a node
    high: Singles
    rows: Singles  # shape (n_rows, n_columns)


@inner
def _box_distance(
    low: Any, high: Any, t: int, place: Floats, n_numbers: int, limit: float
) -> float:
    """Return the least distance of a place to box t, or any number above the limit if it is above.

    The boxes have the corners `low` and `high`, shape (n_boxes, n_columns); a row is a box, too.
    """
    total = 0.0
    for j in range(place.size):
        below = low[t, j]
        above = high[t, j]
        x = place[j]
        if j >= n_numbers:
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
def _insert(least: Floats, number: float) -> None:
    """Insert a number into a sorted array of the least ones, if it is one of them."""
    at = least.size
    while at > 0 and least[at - 1] > number:
        if at < least.size:
            least[at] = least[at - 1]
        at -= 1
    if at < least.size:
        least[at] = number


@jit
def nearest_rows(
    tree: RowTree, place: Floats, n_numbers: int, k: int, slack: float, exclude_same: bool
) -> tuple[Ints, Floats, float]:
    """Find all rows that can be among the k nearest to a place; see `nearest_rows_in_python`.

    The rows that are returned include those within the limit, which is learned on the way, and
    maybe more. The search visits the nodes of the tree nearest first.

    Parameters
    ----------
    tree
        The rows.
    place : float64, shape (n_columns,)
        A record in the form of the rows.
    n_numbers
        How many of the columns are numbers.
    k
        How many rows are asked for.
    slack
        How much a distance may be wrong.
    exclude_same
        Whether rows within the slack do not count among the k.

    Returns
    -------
    rows : int64, shape (n_found,)
        Numbers of rows in the tree's order.
    distances : float64, shape (n_found,)
        Their distances.
    limit : float
        Rows farther away cannot be among the k nearest.
    """
    least = np.full(k, np.inf)
    rows = np.empty(64, np.int64)
    distances = np.empty(64)
    size = 0
    stack = np.empty(256, np.int64)
    stack_distance = np.empty(256)
    stack[0] = 0
    stack_distance[0] = 0.0
    height = 1
    while height > 0:
        height -= 1
        t = stack[height]
        limit = least[k - 1] + slack
        if stack_distance[height] > limit:
            continue
        if tree.child[t] >= 0:
            near = tree.child[t]
            far = near + 1
            near_distance = _box_distance(tree.low, tree.high, near, place, n_numbers, limit)
            far_distance = _box_distance(tree.low, tree.high, far, place, n_numbers, limit)
            if far_distance < near_distance:
                near, far = far, near
                near_distance, far_distance = far_distance, near_distance
            if height + 2 > stack.size:
                stack = longer(stack)
                stack_distance = longer(stack_distance)
            stack[height] = far
            stack_distance[height] = far_distance
            stack[height + 1] = near
            stack_distance[height + 1] = near_distance
            height += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            limit = least[k - 1] + slack
            distance = _box_distance(tree.rows, tree.rows, i, place, n_numbers, limit)
            if distance > limit:
                continue
            if size == rows.size:
                rows = longer(rows)
                distances = longer(distances)
            rows[size] = i
            distances[size] = distance
            size += 1
            if distance > slack or not exclude_same:
                _insert(least, distance)
    return rows[:size], distances[:size], least[k - 1] + slack


def nearest_rows_in_python(
    rows: Singles, place: Floats, n_numbers: int, k: int, slack: float, exclude_same: bool
) -> tuple[list[int], list[float], float]:
    """Return the rows within the limit of `nearest_rows`, their distances, and the limit."""
    all_distances = []
    for row in rows:
        distance = 0.0
        for j, (value, x) in enumerate(zip(row.tolist(), place.tolist(), strict=True)):
            if j >= n_numbers or np.inf in (value, x):  # a category, or missing
                distance += float(value != x)
            else:
                distance += abs(value - x)
        all_distances.append(distance)
    counted = sorted(d for d in all_distances if d > slack or not exclude_same)
    limit = slack + (counted[k - 1] if len(counted) >= k else np.inf)
    found = [i for i, distance in enumerate(all_distances) if distance <= limit]
    return found, [all_distances[i] for i in found], limit


# A scan of all rows, in single precision, block by block.


@inner
def _add_distances(total: Singles, row: Singles, x: Any, from_missing: Any) -> None:
    """Add the distances of a number to those of some rows, shape (n_rows,), NaN where missing."""
    for i in range(total.size):
        distance = abs(row[i] - x)
        total[i] += from_missing if np.isnan(distance) else distance


@inner
def _add_is_present(total: Singles, row: Singles) -> None:
    """Add the distances of a missing number: 1 to each number, shape (n_rows,)."""
    for i in range(total.size):
        total[i] += np.float32(not np.isnan(row[i]))


@inner
def _add_is_other(total: Singles, row: Singles, x: Any) -> None:
    """Add the distances of a category: 1 to each other one, shape (n_rows,)."""
    for i in range(total.size):
        total[i] += np.float32(row[i] != x)


@inner
def _write_within(total: Singles, limit: Any, positions: Ints) -> int:
    """Write the positions of the numbers that are not above the limit; return how many there are.

    A block without any is skipped quickly.
    """
    n_within = np.int32(0)
    for i in range(total.size):
        n_within += np.int32(total[i] <= limit)
    if n_within == 0:
        return 0
    n_written = 0
    for i in range(total.size):
        if total[i] <= limit:
            positions[n_written] = i
            n_written += 1
    return n_written


@jit
def scan_rows(
    rows: Singles,
    cost: Singles,
    places: Singles,
    from_missing: Singles,
    n_numbers: int,
    slack: Floats,
    rounding: float,
) -> tuple[Ints, Ints]:
    """Find all rows that can be nearest to some places; see `scan_rows_in_python`.

    The limit of a place is learned block by block, so a few more rows may be returned.

    Parameters
    ----------
    rows : float32, shape (n_columns, n_rows)
        Numbers first, NaN where they are missing, then codes of categories.
    cost : float32, shape (n_rows,)
        What is added to the distance to each row.
    places : float32, shape (n_places, n_columns)
        Records in the form of the rows.
    from_missing : float32, shape (n_places, n_numbers)
        The distance of each number of a place to a missing one.
    n_numbers
        How many of the columns are numbers.
    slack : float64, shape (n_places,)
        How much the distances of a place may be wrong.
    rounding
        How much they may be wrong besides, as a share of the least one.

    Returns
    -------
    place, row : int64, shape (n_pairs,)
        The pairs of a place and a row that can be its nearest.
    """
    best = np.empty(len(places))
    buffer = np.empty(_ROWS_IN_CACHE, np.float32)
    positions = np.empty(_ROWS_IN_CACHE, np.int64)
    pair_place = np.empty(256, np.int64)
    pair_row = np.empty(256, np.int64)
    size = 0
    for start in range(0, cost.size, _ROWS_IN_CACHE):
        stop = min(start + _ROWS_IN_CACHE, cost.size)
        total = buffer[: stop - start]
        for i in range(len(places)):
            total[:] = cost[start:stop]
            for j in range(len(rows)):
                row = rows[j, start:stop]
                x = places[i, j]
                if j >= n_numbers:
                    _add_is_other(total, row, x)
                elif np.isnan(x):
                    _add_is_present(total, row)
                else:
                    _add_distances(total, row, x, from_missing[i, j])
            if start == 0:
                best[i] = total.min()
            limit = np.float32(best[i] + abs(best[i]) * rounding + slack[i])
            n_within = _write_within(total, limit, positions)
            for r in positions[:n_within]:
                if size == pair_place.size:
                    pair_place = longer(pair_place)
                    pair_row = longer(pair_row)
                pair_place[size] = i
                pair_row[size] = start + r
                best[i] = min(best[i], total[r])
                size += 1
    return pair_place[:size], pair_row[:size]


def scan_rows_in_python(
    rows: Singles,
    cost: Singles,
    places: Singles,
    from_missing: Singles,
    n_numbers: int,
    slack: Floats,
    rounding: float,
) -> set[tuple[int, int]]:
    """Return the pairs of a place and a row that can be its nearest; `scan_rows` finds them all."""
    pairs = set()
    for i, place in enumerate(places):
        total = cost.copy()  # shape (n_rows,)
        for j, (row, x) in enumerate(zip(rows, place, strict=True)):
            if j >= n_numbers:
                total += row != x
            elif np.isnan(x):
                total += ~np.isnan(row)
            else:
                total += np.where(np.isnan(row), from_missing[i, j], np.abs(row - x))
        best = float(total.min())
        limit = np.float32(best + abs(best) * rounding + slack[i])
        pairs |= {(i, r) for r in np.flatnonzero(total <= limit).tolist()}
    return pairs


# Exact searches with these kernels.


class Neighbors(HostOnly):
    """Rows of codes, and a search for the nearest, with results bit for bit as `Heom.nearest`.

    If there are many rows, a tree finds those that can be nearest, and only these are compared.

    Parameters
    ----------
    heom
        The distance. Its numeric columns come first.
    numeric
        The domain of each numeric column.
    tokens : list of uint64 arrays, shape (n_codes,)
        For each categorical column, the hash in `HeomCodes` of each code.
    codes : shape (n_rows, n_columns)
        The rows.
    """

    def __init__(
        self, heom: Heom, numeric: list[Domain], tokens: list[NDArray[np.uint64]], codes: Codes
    ) -> None:
        self.heom = heom
        self._numeric = numeric
        self._tokens = tokens
        self._codes = codes
        self._numbers = [np.append(domain.values, np.nan) for domain in numeric]  # of each code
        # of each categorical column, its codes in the order of their tokens, and these tokens
        self._code_order = [np.argsort(column) for column in tokens]
        self._sorted_tokens = [np.sort(column) for column in tokens]

    def __len__(self) -> int:
        return len(self._codes)

    def take(self, rows: Ints) -> HeomCodes:
        """Return some rows in the form in which `Heom` compares them."""
        n_numeric = len(self._numeric)
        numbers = np.empty((len(rows), n_numeric), order="F")
        tokens = np.empty((len(rows), len(self._tokens)), dtype=np.uint64, order="F")
        for j, values in enumerate(self._numbers):
            numbers[:, j] = values[self._codes[rows, j]]
        for j, column in enumerate(self._tokens):
            tokens[:, j] = column[self._codes[rows, n_numeric + j]]
        return HeomCodes(numbers, tokens)

    def nearest(
        self, records: HeomCodes, k: int = 1, *, exclude_same: bool = False
    ) -> tuple[Ints, Floats]:
        """Find the k nearest rows of each record, as `Heom.nearest` does among all rows."""
        if len(self) <= _COMPARED:
            return self.heom.nearest(records, self._all, k, exclude_same)
        return self.search(records, k, exclude_same=exclude_same)

    def search(
        self, records: HeomCodes, k: int = 1, *, exclude_same: bool = False
    ) -> tuple[Ints, Floats]:
        """Find the k nearest rows of each record with the tree, however few rows there are.

        Returns
        -------
        index : shape (n_records, k)
            Numbers of rows, the nearest first; -1 where there are fewer than k.
        distance : shape (n_records, k)
            Their distances; infinite where there is no row.
        """
        possible = self._possible(records, k, exclude_same)
        n_possible = np.array([len(rows) for rows in possible], dtype=np.int64)
        rows = np.concatenate([*possible, np.empty(0, dtype=np.int64)])
        record = np.repeat(np.arange(len(possible)), n_possible)
        distances = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS_AT_ONCE):
            pairs = slice(start, start + _PAIRS_AT_ONCE)
            compared = records.take(record[pairs])
            distances[pairs] = self.heom.pairs(compared, self.take(rows[pairs]))
        if exclude_same:
            distances[distances <= TIE] = np.inf
        index = np.full((len(possible), k), -1, dtype=np.int64)
        distance = np.full((len(possible), k), np.inf)
        ends = np.cumsum(n_possible)
        for i, (candidates, end) in enumerate(zip(possible, ends.tolist(), strict=True)):
            of_record = distances[None, end - len(candidates) : end]  # (1, n_candidates)
            order, values = smallest(of_record, min(k, len(candidates)))
            index[i, : order.size] = np.where(order < 0, -1, candidates[order])
            distance[i, : order.size] = values
        return index, distance

    def _possible(self, records: HeomCodes, k: int, exclude_same: bool) -> list[Ints]:
        """Return, for each record, all rows that can be among its k nearest, in order."""
        n_numeric = len(self._numeric)
        order, tree = self._tree
        possible = []
        for place in self._places(records):
            numbers = place[:n_numeric]
            magnitude = float(np.abs(numbers[np.isfinite(numbers)]).sum())
            slack = 1e-6 * len(place) + 1e-12 * magnitude  # rows are kept in single precision
            rows, distances, limit = nearest_rows(tree, place, n_numeric, k, slack, exclude_same)
            possible.append(np.sort(order[rows[distances <= limit]]))
        return possible

    @cached_property
    def _all(self) -> HeomCodes:
        return self.take(np.arange(len(self)))

    @cached_property
    def _tree(self) -> tuple[Ints, RowTree]:
        """The rows in the tree's order, and the tree."""
        axes = [Axis.interval(domain.positions, 1.0, missing=True) for domain in self._numeric]
        axes += [Axis.nominal(len(column), 1.0, card=2) for column in self._tokens]
        people = np.ones(len(self), dtype=np.int64)
        _, cell_tree, order = CellIndex.build(self._codes, people, AxisArrays.of(axes))
        tree = RowTree(
            start=cell_tree.start,
            stop=cell_tree.stop,
            child=cell_tree.child,
            low=self._positions(cell_tree.low),
            high=self._positions(cell_tree.high),
            rows=self._positions(cell_tree.codes),
        )
        return order, tree

    def _positions(self, codes: Codes) -> Singles:
        """Return codes in the form of `RowTree`, shape (n, n_columns)."""
        positions = codes.astype(np.float32)
        for j, domain in enumerate(self._numeric):
            positions[:, j] = np.append(domain.positions, np.inf)[codes[:, j]]
        return positions

    def _places(self, records: HeomCodes) -> Floats:
        """Return records in the form of `RowTree`; -1 for a category that none of its rows has."""
        n_numeric = len(self._numeric)
        places = np.full((len(records), n_numeric + len(self._tokens)), -1.0)
        for j, domain in enumerate(self._numeric):
            numbers = records.numbers[:, j]
            places[:, j] = np.where(np.isnan(numbers), np.inf, domain.place(numbers))
        for j, sorted_tokens in enumerate(self._sorted_tokens):
            tokens = records.codes[:, j]
            position = np.searchsorted(sorted_tokens, tokens).clip(max=len(sorted_tokens) - 1)
            is_known = sorted_tokens[position] == tokens
            codes = self._code_order[j][position[is_known]]
            places[is_known, n_numeric + j] = codes.astype(np.float32)
        return places


class NearestCells(HostOnly):
    """Finds for every record the nearest of some equivalence classes; of equally near ones the
    first.
    """

    _refusal = (
        PopulationError,
        "an index of equivalence classes refuses to be pickled; rebuild it instead",
    )

    def __init__(self, population: Population, cells: Codes) -> None:
        names = population.schema.quasi_identifiers
        self._domains = [population.domains[name] for name in names]
        self._index = CodeIndex(cells)
        self._is_numeric = np.array([domain.is_numeric for domain in self._domains])
        numeric_names = [name for name in names if population.domains[name].is_numeric]
        other_names = [name for name in names if not population.domains[name].is_numeric]
        numeric = [population.domains[name] for name in numeric_names]
        widths = {name: population.domains[name].width for name in numeric_names}
        # The codes of an attribute's values stand for their hashes: here they are compared only
        # with codes of the same attribute.
        tokens = [np.arange(population.domains[name].size, dtype=np.uint64) for name in other_names]
        numbers_first = np.argsort(~self._is_numeric, kind="stable")
        heom = Heom(numeric_names, other_names, widths)
        self._cells = Neighbors(heom, numeric, tokens, cells[:, numbers_first])

    def _counts(self) -> str:
        return f"{len(self._cells)} cells"

    def find(self, codes: Codes, numbers: Floats) -> Ints:
        """Return the class of each record, shape (n,), by its row in the given classes.

        Codes and numbers have shape (n, n_quasi_identifiers).
        """
        found = self._index.find(codes)
        strangers = np.flatnonzero(found < 0)
        if len(strangers):
            nearest, _ = self._cells.nearest(self._comparable(codes[strangers], numbers[strangers]))
            # a number may be infinitely far away in floats
            found[strangers] = nearest[:, 0].clip(min=0)
        return found

    def _comparable(self, codes: Codes, numbers: Floats) -> HeomCodes:
        """Return records in the form in which `Heom` compares them: numbers, and tokens.

        Numeric attributes come as numbers, shape (n, n_numeric). Of the other attributes, the codes
        serve as tokens, shape (n, n_others). A category that no training row has is the code -1. As
        an unsigned token it is a very large number, which equals the token of no class.

        Parameters
        ----------
        codes, numbers : shape (n, n_quasi_identifiers), in the order of the schema
        """
        numeric_columns = [
            self._domains[j].numbers_of(codes[:, j], numbers[:, j])
            for j in np.flatnonzero(self._is_numeric)
        ]
        # Without numeric attributes, the array would have no second dimension.
        numbers_by_row = np.array(numeric_columns).reshape(len(numeric_columns), len(codes)).T
        tokens = np.asfortranarray(codes[:, ~self._is_numeric], np.uint64)
        return HeomCodes(numbers_by_row, tokens)
