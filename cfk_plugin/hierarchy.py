"""Generalisation hierarchies: a tree over the values of a categorical attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.columns import to_text
from cfk_plugin.errors import SchemaError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hierarchy:
    """A tree whose leaves are the values of an attribute; a region generalises to one of its nodes.

    Leaves are numbered in depth-first order, so that the leaves under a node are a range of numbers.
    Build it with `Hierarchy.of`.

    Attributes
    ----------
    leaves : tuple of str
        The values, in depth-first order.
    labels : tuple of str
        One label per node; the first ``len(leaves)`` nodes are the leaves themselves.
    low, high : int arrays, shape (nodes,)
        First and last leaf under each node.
    parent : int array, shape (nodes,)
        Parent of each node; -1 at the root.
    """

    leaves: tuple[str, ...]
    labels: tuple[str, ...]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    parent: NDArray[np.int32]

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Hierarchy({len(self.leaves)} values, {len(self.labels)} nodes)"

    def _key(self) -> tuple[tuple[str, ...], tuple[str, ...], bytes]:
        return self.leaves, self.labels, self.parent.tobytes()

    @classmethod
    def of(cls, table: Hierarchy | pd.DataFrame | Mapping[Any, Sequence[Any]]) -> Hierarchy:
        """Read a table from value to its ancestors, nearest ancestor first (the layout that ARX uses).

        Parameters
        ----------
        table : DataFrame or mapping
            A frame whose first column holds the values and whose other columns hold the ancestors, level by
            level; or a mapping ``{value: [parent, grandparent, ...]}``. All rows have the same depth. A root
            ``*`` is added when the last level has more than one label.

        Returns
        -------
        Hierarchy

        Raises
        ------
        SchemaError
            If rows differ in depth, a value occurs twice, or a label has two parents.

        Examples
        --------
        >>> cities = Hierarchy.of({"Antwerp": ["Flanders"], "Ghent": ["Flanders"], "Namur": ["Wallonia"]})
        >>> cities.labels[cities.cover(["Antwerp", "Ghent"])]
        'Flanders'
        """
        if isinstance(table, Hierarchy):
            return table
        if isinstance(table, pd.DataFrame):
            rows = [tuple(to_text(v) for v in row) for row in table.itertuples(index=False, name=None)]
        else:
            rows = [(to_text(v), *(to_text(a) for a in ancestors)) for v, ancestors in table.items()]
        if not rows or len({len(row) for row in rows}) != 1:
            raise SchemaError("a hierarchy needs at least one value and the same number of levels for each")
        if len({row[0] for row in rows}) != len(rows):
            raise SchemaError("a hierarchy lists a value twice; give each value one row")
        if len({row[-1] for row in rows}) > 1 or len(rows[0]) == 1:
            rows = [(*row, "*") for row in rows]
        return cls._from_paths(sorted(rows, key=lambda row: row[::-1]))

    @classmethod
    def _from_paths(cls, rows: list[tuple[str, ...]]) -> Hierarchy:
        depth = len(rows[0])
        labels = [row[0] for row in rows]
        low = list(range(len(rows)))
        high = list(range(len(rows)))
        parent = [-1] * len(rows)
        below = list(range(len(rows)))  # node of each row on the level below
        for level in range(1, depth):
            seen: dict[str, int] = {}
            for i, row in enumerate(rows):
                node = seen.setdefault(row[level], len(labels))
                if node == len(labels):
                    labels.append(row[level])
                    low.append(i)
                    high.append(i)
                    parent.append(-1)
                if high[node] < i - 1 or parent[below[i]] not in (-1, node):
                    raise SchemaError("a hierarchy label has two parents; make labels unique per branch")
                high[node] = i
                parent[below[i]] = node
                below[i] = node
        as_array = [np.asarray(x, dtype=np.int32) for x in (low, high, parent)]
        return cls(tuple(row[0] for row in rows), tuple(labels), *as_array)

    def cover(self, values: Sequence[str]) -> int:
        """Return the lowest node that holds all the given values."""
        position = {leaf: i for i, leaf in enumerate(self.leaves)}
        at = [position[v] for v in values]
        node = at[0]
        while self.low[node] > min(at) or self.high[node] < max(at):
            node = int(self.parent[node])
        return node

    def values_under(self, node: int) -> tuple[str, ...]:
        """Return the values below a node."""
        return self.leaves[self.low[node] : self.high[node] + 1]
