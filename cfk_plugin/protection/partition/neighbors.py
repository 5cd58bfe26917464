"""The nearest rows and equivalence classes, bit for bit those that `Heom.nearest` finds.

Of many rows, a tree finds those that can be among the nearest, in single precision and with some
slack. Only these are then compared exactly.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import CodeIndex, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.heom import TIE, Heom, HeomCodes, smallest
from cfk_plugin.protection.axes import Axis, AxisArrays, Codes, Floats, Ints
from cfk_plugin.protection.class_index import ClassIndex
from cfk_plugin.protection.partition.neighbor_kernels import RowTree, Singles, nearest_rows

_COMPARED = 1 << 14  # most rows that are all compared
_PAIRS_AT_ONCE = 1 << 18  # pairs of rows that are compared at once


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
        _, cell_tree, order = ClassIndex.build(self._codes, people, AxisArrays.of(axes))
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


class NearestClasses(HostOnly):
    """Finds for every record the nearest of some equivalence classes; of equally near ones the
    first.
    """

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
        classes = self._index.find(codes)
        strangers = np.flatnonzero(classes < 0)
        if len(strangers):
            nearest, _ = self._cells.nearest(self._comparable(codes[strangers], numbers[strangers]))
            # a number may be infinitely far away in floats
            classes[strangers] = nearest[:, 0].clip(min=0)
        return classes

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
