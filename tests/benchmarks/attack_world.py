"""What attacks work on: people of a table, the product, and services that protect less.

Imports only plain libraries and the public interface of the package.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy import stats

from cfk_plugin import Explanations, Interval, KAnonymizer, Population, PrivacyPolicy, Region
from public_tables import LEAVES, forest, read, schema_of, split

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Values = Mapping[str, Any]

_TIE = 1e-9  # distances and scores that differ by less are equal
_MOST_ROWS = 2000  # of a table


# --- answers, regions and distances


@dataclass(frozen=True)
class Answer:
    """What a recipient sees of an answer, or a reader of a published entry."""

    query: int
    region: Region
    values: Values  # private values
    k: int  # people inside, as certified

    def new_values(self, query: Values) -> dict[str, Any]:
        """Return the private values that are not the query's own."""
        return {
            name: value for name, value in self.values.items() if not is_same(value, query[name])
        }


def answers_of(explanations: Explanations) -> list[Answer]:
    """Return the answers that were not withheld."""
    return [
        Answer(entry.query, entry.region, dict(entry.released), entry.certificate.k)
        for entry in explanations.released
    ]


def is_same(a: Any, b: Any) -> bool:
    """Return whether two values are equal or both missing."""
    if pd.isna(a) or pd.isna(b):
        return bool(pd.isna(a) and pd.isna(b))
    return bool(a == b)


def inside(region: Region, rows: pd.DataFrame) -> Mask:
    """Return which rows fit a region, shape (n_rows,)."""
    is_inside = np.ones(len(rows), dtype=bool)
    for name, part in region.items():
        column = Region({name: part})
        codes, distinct = pd.factorize(rows[name].astype(object), use_na_sentinel=False)
        fits = np.array([column.contains({name: value}) for value in distinct], dtype=bool)
        is_inside &= fits[codes]
    return is_inside


def hull(rows: pd.DataFrame) -> Region:
    """Return the smallest region that contains all rows."""
    parts: dict[str, Any] = {}
    for name, column in rows.items():
        values = column.dropna()
        has_missing = len(values) < len(column)
        if is_numeric_dtype(column) and len(values):
            parts[name] = Interval(values.min().item(), values.max().item(), has_missing)
        else:
            parts[name] = frozenset([*values, None] if has_missing else values)
    return Region(parts)


class Distances:
    """Distances over some columns: numbers by their share of a range, categories by equality.

    The range of a number is that from its 5 % to its 95 % quantile; a gap is at most 1.
    """

    def __init__(self, people: pd.DataFrame, columns: Sequence[str]) -> None:
        self._widths: dict[str, float | None] = dict.fromkeys(columns)
        for name in columns:
            if is_numeric_dtype(people[name]):
                low, high = people[name].quantile([0.05, 0.95])
                self._widths[name] = float(high - low or np.ptp(people[name].dropna()) or 1.0)

    def between(
        self, left: pd.DataFrame, right: pd.DataFrame, columns: Iterable[str] | None = None
    ) -> Floats:
        """Return the sum of the gaps of each pair of rows, shape (n_left, n_right)."""
        total = np.zeros((len(left), len(right)))
        for name in self._widths if columns is None else columns:
            width = self._widths[name]
            if width is None:
                both = pd.concat([left[name], right[name]]).astype(object)
                codes = pd.factorize(both, use_na_sentinel=False)[0]
                total += codes[: len(left), None] != codes[None, len(left) :]
            else:
                a = left[name].to_numpy(dtype=float)[:, None]
                b = right[name].to_numpy(dtype=float)[None, :]
                gaps = np.minimum(np.abs(a - b) / width, 1.0)
                total += np.where(np.isnan(gaps), np.isnan(a) != np.isnan(b), gaps)
        return total


# --- services


class CatalogueService:
    """The product with its default settings."""

    def __init__(self, world: World, desired: Any) -> None:
        population = Population.from_frame(world.people, world.schema)
        self._anonymizer = KAnonymizer(policy=PrivacyPolicy(k=world.k))
        self._anonymizer.fit(population, world.model, desired)

    @cached_property
    def published(self) -> list[Answer]:
        return answers_of(self._anonymizer.published())

    def explain(self, queries: pd.DataFrame) -> list[Answer]:
        if queries.empty:
            return []
        return answers_of(self._anonymizer.explain(queries.reset_index(drop=True)))


class RowService:
    """An explainer that returns rows of people, hardly protected: for controls.

    An answer is made of the person with the outcome who is nearest to the query. It contains their
    private values, and the hull of the quasi-identifiers of the `crowd` people who are nearest to
    them by quasi-identifiers, with any outcome. With a crowd of one, the answer is the row.
    """

    def __init__(self, world: World, crowd: int) -> None:
        self._world = world
        self._crowd = crowd
        self._sources = np.flatnonzero(world.has_outcome)
        quasi = world.people[world.quasi_identifiers]
        distances = world.distances.between(quasi.iloc[self._sources], quasi, quasi)
        distances[np.arange(len(self._sources)), self._sources] = -1.0  # themselves first
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :crowd]
        self._regions = [hull(quasi.iloc[rows]) for rows in nearest]

    @cached_property
    def published(self) -> list[Answer]:
        """One entry per person with the outcome."""
        return [self._answer(i, i) for i in range(len(self._sources))]

    def explain(self, queries: pd.DataFrame) -> list[Answer]:
        distances = self._world.distances.between(queries, self._world.people.iloc[self._sources])
        return [self._answer(i, source) for i, source in enumerate(distances.argmin(axis=1))]

    def _answer(self, query: int, source: int) -> Answer:
        row = self._world.people.iloc[self._sources[source]]
        values = row[self._world.private].to_dict()
        return Answer(query, self._regions[source], values, self._crowd)


Service = CatalogueService | RowService


# --- the world of one table


@dataclass(frozen=True, eq=False)
class World:
    """People in a training table, people outside of it, and the model that decides about both."""

    name: str
    k: int
    people: pd.DataFrame
    labels: pd.Series[Any]  # of the people, as the model was trained with
    outsiders: pd.DataFrame
    quasi_identifiers: list[str]
    model: Any
    limits: dict[str, Any]  # with which the forest was trained
    desired: Any
    seed: int

    @classmethod
    def load(cls, name: str, data: Path, k: int, seed: int) -> World:
        frame, about = read(name, data)
        if len(frame) > _MOST_ROWS:
            frame = frame.sample(_MOST_ROWS, random_state=0).reset_index(drop=True)
        train, test = split(frame, 0.6, seed)
        features = about["features"]
        labels = train[about["target"]]
        limits = {"max_leaf_nodes": LEAVES[name]}
        return cls(
            name=name,
            k=k,
            people=train[features],
            labels=labels,
            outsiders=test[features],
            quasi_identifiers=about["quasi_identifiers"],
            model=forest(train[features], labels, seed, **limits),
            limits=limits,
            desired=about["desired_outcome"],
            seed=seed,
        )

    @cached_property
    def schema(self) -> Any:
        about = {"features": list(self.people), "quasi_identifiers": self.quasi_identifiers}
        return schema_of(self.people, about)

    @cached_property
    def everyone(self) -> pd.DataFrame:
        """The people in the table, and those outside of it."""
        return pd.concat([self.people, self.outsiders], ignore_index=True)

    @cached_property
    def private(self) -> list[str]:
        return [name for name in self.people if name not in self.quasi_identifiers]

    @cached_property
    def distances(self) -> Distances:
        return Distances(self.people, list(self.people))

    @cached_property
    def has_outcome(self) -> Mask:
        """Who in the table gets the desired outcome from the model, shape (n_people,)."""
        return self.is_desired(self.people)

    @cached_property
    def refused(self) -> pd.DataFrame:
        """People outside of the table who do not get the desired outcome."""
        return self.outsiders[~self.is_desired(self.outsiders)].reset_index(drop=True)

    @cached_property
    def protected(self) -> CatalogueService:
        return CatalogueService(self, self.desired)

    @cached_property
    def weak(self) -> RowService:
        """Someone's own private values in a region with k people."""
        return RowService(self, self.k)

    @cached_property
    def raw(self) -> RowService:
        """Rows without protection."""
        return RowService(self, 1)

    def is_desired(self, rows: pd.DataFrame) -> Mask:
        if rows.empty:
            return np.zeros(0, dtype=bool)
        return np.asarray(self.model.predict(rows)) == self.desired

    def candidates(self, region: Region) -> Rows:
        """Return the people inside a region who have the desired outcome."""
        return np.flatnonzero(inside(region, self.people) & self.has_outcome)

    def rows(self, quasi: pd.DataFrame, private: pd.DataFrame) -> pd.DataFrame:
        """Return rows with quasi-identifiers of one table and private values of another.

        Both have one row per result, in the same order.
        """
        columns = {}
        for name, column in self.people.items():
            table = quasi if name in self.quasi_identifiers else private
            columns[name] = typed(table[name].reset_index(drop=True), column)
        return pd.DataFrame(columns)

    def points(self, records: Sequence[Values]) -> pd.DataFrame:
        """Return private values as a table with the types of the people's."""
        table = pd.DataFrame([dict(record) for record in records])
        return pd.DataFrame({name: typed(table[name], self.people[name]) for name in table})

    def nearest(self, people: Rows, values: Values) -> Rows:
        """Return the people whose private values are nearest to these; several if they tie.

        Without values, everyone is equally near.
        """
        if not len(people) or not values:
            return people
        rows = self.people.iloc[people]
        distance = self.distances.between(rows, self.points([values]), values)[:, 0]
        return people[distance <= distance.min() + _TIE]


def typed(values: pd.Series[Any], column: pd.Series[Any]) -> pd.Series[Any]:
    """Return values as numbers if a column has numbers, and otherwise in the column's type."""
    if is_numeric_dtype(column):
        return pd.to_numeric(values)
    return values.astype(column.dtype)


# --- figures


@dataclass(frozen=True, eq=False)
class Attempts:
    """How an attack did, attempt by attempt.

    Of a chance, a value is the chance to be right. Of an area under the curve (AUC), a value is the
    share of the wrong candidates that the right one outranks; ties count half.
    """

    values: Floats
    guessing: Floats  # the same for an attacker who guesses
    # Of an AUC that compares two groups: the share of members that outrank each of the others.
    others: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Attempts:
        """Collect attempts, each with a value and what guessing gives."""
        table = np.array([*pairs], dtype=float).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    @classmethod
    def groups(cls, members: Floats, others: Floats) -> Attempts:
        """Compare the scores of members with those of others; larger means a member."""
        is_above = outranks(members, others)
        return cls(is_above.mean(axis=1), np.full(len(members), 0.5), is_above.mean(axis=0))

    @classmethod
    def pooled(cls, parts: Sequence[Attempts]) -> Attempts:
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.guessing for part in parts]),
            np.concatenate([part.others for part in parts]),
        )

    @property
    def n(self) -> int:
        return len(self.values) + len(self.others)

    @property
    def interval(self) -> tuple[float, float, float]:
        """The mean and both ends of its 95 % interval, as if attempts were independent.

        Both groups of an AUC add to its variance (DeLong, DeLong and Clarke-Pearson, 1988). NaN
        without attempts.
        """
        if not len(self.values):
            return math.nan, math.nan, math.nan
        mean = float(self.values.mean())
        if len(self.values) == 1:
            return mean, math.nan, math.nan
        variance = self.values.var(ddof=1) / len(self.values)
        if len(self.others) > 1:
            variance += self.others.var(ddof=1) / len(self.others)
        half = float(stats.t.ppf(0.975, len(self.values) - 1) * math.sqrt(variance))
        return mean, max(mean - half, 0.0), min(mean + half, 1.0)


def outranks(right: Floats, wrong: Floats) -> Floats:
    """Return 1 where a right score is larger than a wrong one and 0.5 where they tie, by pair."""
    gaps = right[:, None] - wrong[None, :]
    return (gaps > _TIE) + 0.5 * (np.abs(gaps) <= _TIE)


def rank(scores: Floats, right: int) -> float:
    """Return the share of the other scores that the right one outranks."""
    return float(outranks(scores[[right]], np.delete(scores, right)).mean())


def chance(named: Rows, right: Rows) -> float:
    """Return the chance that two people, one drawn from each of two groups, are the same person.

    The first are those whom the attacker names. The second are several if it cannot be told which of
    them is the right one.
    """
    n_both = len(np.intersect1d(named, right))
    return n_both / (len(named) * len(right)) if n_both else 0.0


def best(people: Rows, scores: Floats) -> Rows:
    """Return the people with the highest score; several if they tie."""
    return people[scores >= scores.max() - _TIE]
