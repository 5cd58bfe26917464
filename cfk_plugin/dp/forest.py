"""A forest-structured model of a table, measured with noise: pairs of dependent columns, and their
counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.dp.noise import Counts, Marginal, PrivateRows

# public groups of a column's codes; each merges groups of the level before
Groups = Sequence[NDArray[np.int32]]

PEOPLE, SINGLE, CHOICE = 0.03, 0.35, 0.1
"""Shares of the budget: number of rows, counts of single columns, choice of pairs; the rest is for
counting pairs.
"""

_CLEAR = 0.03  # share of the rows: most noise on a choice's scores, else fewer pairs are chosen
# share of the noise on a pair's cells that counts against it, as shrinking keeps clear counts
_FILLED = 0.2
_RARE = 0.005  # share of the rows; rarer codes are merged in pairs
# pseudo-count of a cell, in standard deviations of noise, or its expected count if that is less
_DOUBT = 0.3
_FLOOR = 1e-3  # pseudo-count per value where nothing is known


def shares(columns: int) -> list[float]:
    """Return the budget shares of the first questions of `Forest.measure`."""
    return [PEOPLE, 1 - PEOPLE] if columns > 1 else [1.0]


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Two columns that were counted together: ``counts[i, j]`` for merged codes."""

    first: int
    second: int
    counts: Counts

    def toward(self, column: int) -> tuple[int, Counts]:
        return (self.first, self.counts) if column == self.second else (self.second, self.counts.T)


class Likelihood(NamedTuple):
    """Log-probabilities of codes given those of a parent column, the columns' tables end to end."""

    parents: NDArray[np.int64]  # -1: none
    flat: Counts
    first: NDArray[np.int64]  # where a column's table begins
    stride: NDArray[np.int64]  # codes of the column; 0 without a parent

    def of(self, codes: NDArray[np.int32]) -> Counts:
        """Return the log-probability of each row, summed over columns."""
        return np.asarray(
            self.flat[self.first + codes[:, self.parents] * self.stride + codes].sum(axis=1)
        )

    def gains(self, codes: NDArray[np.int32], others: NDArray[np.int32]) -> Counts:
        """Return how much likelier each row would be with one other code, for each column.

        Parameters
        ----------
        codes : int array, shape (n_rows, n_columns)
        others : int array, shape (n_rows, n_columns)
            The other code in each column.

        Returns
        -------
        float array, shape (n_rows, n_columns)
            Differences of log-probabilities: column j changes only in column j.
        """
        starts = self.first + codes[:, self.parents] * self.stride
        gains = self.flat[starts + others] - self.flat[starts + codes]
        # The probabilities of a column's children change, too.
        children = np.flatnonzero(self.parents >= 0)
        parents = self.parents[children]
        strides = self.stride[children]
        starts = self.first[children] + codes[:, children]
        after = self.flat[starts + others[:, parents] * strides]
        before = self.flat[starts + codes[:, parents] * strides]
        is_parent = parents[:, None] == np.arange(codes.shape[1])
        return np.asarray(gains + (after - before) @ is_parent)


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Noised counts of single columns and of some pairs without cycles.

    Everything here is computed from them.
    """

    people: float  # noised number of rows
    single: tuple[Counts, ...]  # counts of each column's codes
    merged: tuple[NDArray[np.int32], ...]  # what each code counts as in pairs; rare ones are merged
    edges: tuple[Edge, ...] = ()

    @classmethod
    def measure(
        cls, rows: PrivateRows, sizes: Sequence[int], groups: Sequence[Groups] | None = None
    ) -> Forest:
        """Ask the rows for their number, single columns, as many dependent pairs as can be told,
        and their counts.

        If no pair can be told, only single columns; if none is chosen, these are counted once more.
        """
        own = tuple(np.arange(size, dtype=np.int32) for size in sizes)
        singles, share, turns = (
            [Marginal([j], [codes]) for j, codes in enumerate(own)],
            shares(len(sizes))[-1],
            0,
        )
        rest = share - SINGLE - CHOICE
        if len(sizes) > 1:
            (number,) = rows.counts([Marginal([], [])])
            turns = sum(
                rows.choice_scale(CHOICE / k) <= _CLEAR * float(number)
                for k in range(1, len(sizes))
            )
        if turns:
            share = SINGLE
            rows.divide([share, *[CHOICE / turns] * turns, rest])
        noised, scale = rows.counts(singles), rows.scale(len(sizes), share)
        alone = cls.of_singles(own, noised, rows.deviation(scale))
        if not turns:
            return alone
        expected = rows.magnitude(rows.scale(turns, rest))
        least = max(expected, _RARE * alone.people)
        rare = zip(alone.single, groups or [()] * len(sizes), strict=True)
        merging = replace(
            alone, merged=tuple(_merge_rare(counts, least, of) for counts, of in rare)
        )
        if chosen := merging.choose_pairs(rows, _FILLED * expected, turns):
            return merging.with_pairs(rows, chosen, rest)
        other = rows.scale(len(sizes), rest)
        weight = other**2 / (scale**2 + other**2)  # combines two measurements by their precision
        noised = [
            weight * a + (1 - weight) * b for a, b in zip(noised, rows.counts(singles), strict=True)
        ]
        return cls.of_singles(own, noised, rows.deviation(scale * math.sqrt(weight)))

    @classmethod
    def of_singles(
        cls, own: tuple[NDArray[np.int32], ...], noised: Sequence[Counts], deviation: float
    ) -> Forest:
        people = _people(noised)
        even = [np.full(len(counts), people / len(counts)) for counts in noised]
        return cls(people, tuple(_shrink(noised, even, deviation)), own)

    def with_pairs(
        self, rows: PrivateRows, chosen: Sequence[tuple[int, int]], share: float
    ) -> Forest:
        counted = rows.counts([self.pair(*pair) for pair in chosen])
        deviation = rows.deviation(rows.scale(len(chosen), share))
        shrunk = _shrink(counted, [self.independent(*pair) for pair in chosen], deviation)
        return replace(
            self,
            edges=tuple(Edge(*pair, counts) for pair, counts in zip(chosen, shrunk, strict=True)),
        )

    def pair(self, a: int, b: int) -> Marginal:
        return Marginal([a, b], [self.merged[a], self.merged[b]])

    def independent(self, a: int, b: int) -> Counts:
        """Return the expected counts of a pair of independent columns."""
        first, second = (np.bincount(self.merged[j], weights=self.single[j]) for j in (a, b))
        return np.asarray(np.outer(first, second) / self.people)

    def choose_pairs(self, rows: PrivateRows, expected: float, turns: int) -> list[tuple[int, int]]:
        """Return the pairs to count: in each turn the one farthest from independence, beyond noise,
        or none.

        A pair's score is the L1 distance of its counts to the product of its single columns, less
        that of as many rows of independent columns and a share of the noise expected per cell; no
        pair has score 0. A row changes a score by at most 1, as what is taken off is computed from
        noised counts.
        """
        part_of = list(range(len(self.single)))
        chosen: list[tuple[int, int]] = []
        tables = {(a, b): self.pair(a, b) for a, b in combinations(part_of, 2)}
        references = {pair: self.independent(*pair) for pair in tables}
        by_chance = {
            pair: np.minimum(np.sqrt(2 / np.pi * of), 2 * of).sum()
            for pair, of in references.items()
        }
        known: dict[tuple[int, int], float] = {}

        for _ in range(turns):
            open_pairs = [(a, b) for a, b in tables if part_of[a] != part_of[b]]

            def scores(
                codes: NDArray[np.int32], pairs: list[tuple[int, int]] = open_pairs
            ) -> list[float]:
                for pair in pairs:
                    if pair not in known:
                        gap = np.abs(tables[pair].count(codes) - references[pair]).sum()
                        known[pair] = float(gap - by_chance[pair] - expected * tables[pair].cells)
                return [*(known[pair] for pair in pairs), 0.0]

            best = rows.best(scores)
            if best < len(open_pairs):
                a, b = open_pairs[best]
                chosen.append((a, b))
                part_of = [part_of[a] if part == part_of[b] else part for part in part_of]
        return chosen

    def sample(self, n: int, random: np.random.Generator) -> NDArray[np.int32]:
        """Draw codes of rows."""
        groups = np.zeros((n, len(self.single)), dtype=np.int32)
        codes = np.zeros_like(groups)
        for parent, column, conditional in self._walk():
            given = np.zeros(n, dtype=np.int32) if parent is None else groups[:, parent]
            groups[:, column] = _draw(conditional, given, random)
        for column, merged in enumerate(self.merged):
            codes[:, column] = _draw(
                _within(self.single[column], merged), groups[:, column], random
            )
        return codes

    def likelihood(self) -> Likelihood:
        """Return the log-probabilities of codes as look-up tables."""
        parents, tables = np.full(len(self.single), -1), [np.empty((0, 0))] * len(self.single)
        for parent, column, conditional in self._walk():
            merged = self.merged[column]
            alone = np.log(_within(self.single[column], merged)[merged, np.arange(len(merged))])
            given = np.zeros(1, dtype=np.int32) if parent is None else self.merged[parent]
            parents[column] = -1 if parent is None else parent
            tables[column] = np.log(conditional)[np.ix_(given, merged)] + alone
        starts = np.cumsum([0, *(table.size for table in tables)])[:-1]
        strides = np.where(parents < 0, 0, [table.shape[1] for table in tables])
        return Likelihood(
            parents, np.concatenate([table.ravel() for table in tables]), starts, strides
        )

    def _walk(self) -> list[tuple[int | None, int, Counts]]:
        """Return columns after their parents, each with its probabilities for each code of the
        parent.
        """
        out: list[tuple[int | None, int, Counts]] = []
        seen: set[int] = set()
        degree = np.bincount(
            [c for e in self.edges for c in (e.first, e.second)], minlength=len(self.single)
        )
        for root in np.argsort(-degree, kind="stable").tolist():
            if root in seen:
                continue
            seen.add(root)
            out.append((None, root, self._marginal(root)[None, :]))
            waiting = [root]
            while waiting:
                at = waiting.pop()
                for other, counts in (
                    edge.toward(at) for edge in self.edges if at in (edge.first, edge.second)
                ):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
                        raised = counts.T + _FLOOR * self._marginal(other)
                        out.append((at, other, raised / raised.sum(axis=1, keepdims=True)))
        return out

    def _marginal(self, column: int) -> Counts:
        """Return the probabilities of a column's merged codes, from its own counts and those of its
        pairs.
        """
        found = [np.bincount(self.merged[column], weights=self.single[column])]
        found += [
            e.toward(column)[1].sum(axis=0) for e in self.edges if column in (e.first, e.second)
        ]
        raised = np.mean(found, axis=0) + _FLOOR
        return np.asarray(raised / raised.sum())


def _people(noised: Sequence[Counts]) -> float:
    """Return the number of rows that fits the tables best; those with fewer cells have less
    noise.
    """
    weights = [1 / counts.size for counts in noised]
    return max(1.0, float(np.average([counts.sum() for counts in noised], weights=weights)))


def _merge_rare(counts: Counts, least: float, groups: Groups = ()) -> NDArray[np.int32]:
    """Return new codes: codes with at least `least` rows keep their own, others share one with
    similar ones.

    Rare ones share a code within their group; if that is still rare, within the group above, or all
    together.
    """
    merged, everyone = np.arange(len(counts)), np.zeros(len(counts), dtype=np.int32)
    for group in (*groups, everyone):
        rare = np.flatnonzero(
            np.bincount(merged, weights=counts, minlength=len(counts))[merged] < least
        )
        _, first, of = np.unique(group[rare], return_index=True, return_inverse=True)
        merged[rare] = rare[first[of]]
    return np.unique(merged, return_inverse=True)[1].astype(np.int32)


def _shrink(noised: Sequence[Counts], bases: Sequence[Counts], deviation: float) -> list[Counts]:
    """Shrink noised counts towards `bases`, as far as noise explains the difference, and make them
    valid counts.

    The positive-part rule of James and Stein gives the share of a difference that is kept. A result
    of 0 or less may have been as much as noise hides.
    """
    found = []
    for counts, base in zip(noised, bases, strict=True):
        gap, total = counts - base, float(base.sum())
        lost = deviation**2 * max(gap.size - 2, 1) / max(float((gap**2).sum()), 1e-12)
        kept = _on_simplex(base + max(0.0, 1 - lost) * gap, total)
        kept += _DOUBT * deviation * base / (base + deviation)
        found.append(kept * (total / kept.sum()))
    return found


def _on_simplex(counts: Counts, total: float) -> Counts:
    """Return the nearest counts that are not negative and add up to a total (Held, Wolfe, Crowder
    1974).
    """
    flat = counts.ravel()
    high = np.sort(flat)[::-1]
    excess = (np.cumsum(high) - total) / np.arange(1, len(high) + 1)
    last = np.flatnonzero(high > excess)[-1]
    return np.asarray(np.maximum(counts - excess[last], 0.0))


def _within(counts: Counts, merged: NDArray[np.int32]) -> Counts:
    """Return each code's probability within its merged code."""
    members = np.zeros((int(merged.max()) + 1, len(counts)))
    members[merged, np.arange(len(counts))] = counts + _FLOOR
    return np.asarray(members / members.sum(axis=1, keepdims=True))


def _draw(
    probabilities: Counts, given: NDArray[np.int32], random: np.random.Generator
) -> NDArray[np.int32]:
    lines, size = probabilities.shape
    ends = np.cumsum(probabilities, axis=1)
    ends[:, -1] = 1.0
    # lines joined end to end: one search for all rows
    line_of_all = (ends + np.arange(lines)[:, None]).ravel()
    found = (
        np.searchsorted(line_of_all, random.random(len(given)) + given, side="right") - given * size
    )
    return np.asarray(found.clip(0, size - 1), dtype=np.int32)
