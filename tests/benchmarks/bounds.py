"""How near answers could come: beside the catalogue's own, the nearest that its regions could be
given with.

Run it from the repository's root: ``python tests/benchmarks/bounds.py --data FOLDER [--tables
german,informs] [--k 10]
[--limit 200] [--values 32] [--key 0]``. Distances are sums beside those of the nearest unlike row,
as `answers.py` has them. Regions are tried with the query's own private values but for at most two,
which may be any of the table's (of a number so many, evenly spread), if the model gives the outcome
at the region's nearest point and at all combinations that the group must keep: the answer's own
region, and any of the catalogue. *Nobody protected* tries the quasi-identifiers of every training
row with the outcome, and asks for nothing but the outcome. The answers themselves count as tried.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.data.region import Region
from cfk_plugin.frontier import nearest_points
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.metrics.information import ncp
from printing import DATA, arguments, heading, line
from tables import Case, case

_AT_ONCE = 1 << 12  # rows in one call of the model
_FIRST = 16  # combinations that are tried before all of them


class Place(NamedTuple):
    region: Region

    def parts(self) -> Region:
        return self.region


class Changes(NamedTuple):
    """The query's private values but for at most two: other values, which pairs of them, and how
    far away.
    """

    values: list[tuple[str, Any]]
    pairs: np.ndarray  # positions among the values; -1 for none
    away: np.ndarray

    @classmethod
    def of(cls, table: Case, query: dict[str, Any], most: int) -> Changes:
        values, gaps = list[tuple[str, Any]](), list[float]()
        for name in table.population.schema.private:
            known, domain = (
                np.sort(table.population.frame[name].dropna().unique()),
                table.population.domains[name],
            )
            if domain.is_numeric:
                known = known[np.unique(np.linspace(0, len(known) - 1, most).round().astype(int))]
            for value in known[known != query[name]].tolist():
                values.append((name, value))
                gaps.append(abs(value - query[name]) / domain.width if domain.is_numeric else 1.0)
        of, count = np.array([name for name, _ in values]), len(values)
        two = np.argwhere(np.triu(of[:, None] != of))
        pairs = np.concatenate(
            [[[-1, -1]], np.column_stack([np.arange(count), np.full(count, -1)]), two]
        )
        return cls(values, pairs, np.nan_to_num([*gaps, 0.0], nan=1.0)[pairs].sum(axis=1))

    def made(self, rows: pd.DataFrame, at: np.ndarray) -> pd.DataFrame:
        columns = {name: rows[name].to_numpy(copy=True) for name in rows}
        for which in self.pairs[at].T:
            for value in np.unique(which[which >= 0]):
                name, new = self.values[value]
                columns[name][which == value] = new
        return pd.DataFrame(columns)


def least(
    points: pd.DataFrame,
    away: np.ndarray,
    changes: Changes,
    limit: float,
    may: Callable[..., np.ndarray],
) -> tuple[float, int]:
    """Return how far the nearest is that may be given, and its place; the limit and -1 if none is
    nearer than that.
    """
    total = away[:, None] + changes.away
    place, change = np.nonzero(total < limit - 1e-9)
    order = np.argsort(total[place, change], kind="stable")
    for start in range(0, len(order), _AT_ONCE):
        at = order[start : start + _AT_ONCE]
        if (found := may(changes.made(points.take(place[at]), change[at]), place[at])).any():
            first = at[found.argmax()]
            return float(total[place[first], change[first]]), int(place[first])
    return limit, -1


def bounds(table: Case, k: int, most: int) -> str:
    population, features, kinds = (
        table.population,
        list(table.population.schema.features),
        table.population.frame.dtypes,
    )
    quasi, heom = list(population.schema.quasi_identifiers), Heom.of(population)
    policy = PrivacyPolicy(k=k, private_values="exact")
    anonymizer = KAnonymizer(policy=policy).fit(population, table.model, table.desired)
    catalogue: Any = anonymizer.guarantee_.catalogue
    groups = np.flatnonzero(~catalogue.is_wide(catalogue.weakest))
    places = [
        Place(catalogue.partition.regions[group]) for group in catalogue.group_of_region[groups]
    ]
    held = [catalogue.required_combinations.of(group) for group in groups.tolist()]

    def is_desired(rows: pd.DataFrame, place: np.ndarray | None = None) -> np.ndarray:
        return np.asarray(table.model.predict(rows[features].astype(kinds)) == table.desired)

    def holds(rows: pd.DataFrame, place: np.ndarray) -> np.ndarray:
        """Say which may be given; none after the first."""
        found = is_desired(rows)
        for i in np.flatnonzero(found):
            cells, row = held[place[i]], rows.iloc[[i]]
            first = cells[np.unique(np.linspace(0, len(cells) - 1, _FIRST).astype(int))]
            if all(is_desired(with_cells(row, some)).all() for some in (first, cells)):
                return np.arange(len(rows)) == i
        return np.zeros(len(rows), dtype=bool)

    def with_cells(row: pd.DataFrame, cells: np.ndarray) -> pd.DataFrame:
        values = {
            n: population.domains[n].restore_array(codes)
            for n, codes in zip(quasi, cells.T, strict=True)
        }
        return row.take(np.zeros(len(cells), dtype=int)).assign(**values)

    def apart(row: pd.DataFrame, points: pd.DataFrame) -> np.ndarray:
        return heom.parts(row.take(np.zeros(len(points), dtype=int)), points).sum(axis=1)

    train = population.frame
    people = train.loc[is_desired(train), quasi].drop_duplicates()
    entries, asked, found = (
        anonymizer.explain(table.queries).generalized,
        table.queries[features],
        [],
    )
    for entry in entries:
        row, query = asked.iloc[[entry.query]], asked.iloc[entry.query].to_dict()
        raw, own = (
            apart(row, table.counterfactuals[features].iloc[[entry.query]])[0],
            nearest_points([entry], [query], population),
        )
        limit, changes = apart(row, own[features].astype(kinds))[0], Changes.of(table, query, most)
        points = nearest_points(places, [query] * len(places), population)[features].astype(kinds)
        away, is_own = (
            apart(row, points),
            np.array([place.region == entry.region for place in places]),
        )
        theirs = row.take(np.zeros(len(people), dtype=int)).assign(
            **{name: people[name].array for name in quasi}
        )
        kept, _ = least(points, np.where(is_own, away, np.inf), changes, limit, holds)
        nearest, which = least(points, away, changes, limit, holds)
        alone, _ = least(theirs, apart(row, theirs), changes, limit, is_desired)
        loss = (
            entry.certificate.ncp,
            ncp(entry.region if which < 0 else places[which].region, population),
        )
        found.append((raw, limit, kept, nearest, alone, *loss))
    total = np.sum(found, axis=0)
    cells = [f"{value / total[0]:.3f}" for value in total[1:5]]
    return line(
        table.name,
        k,
        len(found),
        *cells,
        *(f"{100 * value / len(found):.1f}" for value in total[5:]),
    )


def main() -> None:
    options = arguments(
        __doc__, data=DATA, tables=["german", "informs"], k=[10], limit=200, values=32, key=0
    )
    warnings.simplefilter("ignore")
    head = (
        "table",
        "k",
        "answered",
        "answers",
        "own region",
        "any region",
        "nobody protected",
        "NCP %",
        "of any region",
    )
    print(heading(*head), flush=True)
    for name in options.tables:
        table = case(name, options.data, options.limit, key=bytes([options.key]) * 32)
        for k in options.k:
            print(bounds(table, k, options.values), flush=True)


if __name__ == "__main__":
    main()
