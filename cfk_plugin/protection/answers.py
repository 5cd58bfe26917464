"""Which entry of a catalogue answers a query, or takes the place of a counterfactual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.intake import Intake, table_of
from cfk_plugin.data.model import Mask
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue

_BLOCK = 1 << 22  # distances held at once
_TIE = 1e-9
_TRIED = 16  # entries that are looked at in one go, from near to far


def answer(catalogue: Catalogue, queries: Intake, open_to: Mask) -> Ints:
    """Return the entry nearest to each query, of those that are true for who asks; -1 where there is none.

    True is an entry at whose region's point nearest to the query, and with its private values, the model gives the
    desired outcome. Queries, entries and model decide, and nothing else does.
    """
    found, step = np.full(len(queries), -1, dtype=np.int64), max(_BLOCK // max(len(catalogue), 1), 1)
    for start in range(0, len(queries) if len(catalogue) else 0, step):
        waiting = np.arange(start, min(start + step, len(queries)))
        away = catalogue.distances(queries, waiting, open_to)
        near = np.argsort(np.round(away / _TIE), axis=1, kind="stable")
        for first in range(0, len(catalogue), _TRIED):
            entry = near[waiting - start, first : first + _TRIED]
            at, place = np.nonzero(np.isfinite(np.take_along_axis(away[waiting - start], entry, axis=1)))
            if not len(at):
                break
            query, some = waiting[at], entry[at, place]
            true = catalogue.is_desired(_points(catalogue, queries, query, some), some)
            query, first_true = np.unique(query[true], return_index=True)
            found[query] = some[true][first_true]
            waiting = waiting[found[waiting] < 0]
    return found


def nearest(catalogue: Catalogue, counterfactuals: Intake, open_to: Mask) -> Ints:
    """Return the entry nearest to each counterfactual; -1 where none has its outcome."""
    found, step = np.full(len(counterfactuals), -1, dtype=np.int64), max(_BLOCK // max(len(catalogue), 1), 1)
    for start in range(0, len(counterfactuals) if len(catalogue) else 0, step):
        at = np.arange(start, min(start + step, len(counterfactuals)))
        away = catalogue.distances(counterfactuals, at, open_to)
        least = away.min(axis=1)
        found[at] = np.where(np.isfinite(least), np.argmax(away <= least[:, None] + _TIE, axis=1), -1)
    return found


def _points(catalogue: Catalogue, queries: Intake, query: Ints, entry: Ints) -> pd.DataFrame:
    """Return the point of each entry's region that is nearest to its query, with the entry's private values."""
    population, rows = catalogue.partition.population, catalogue.rows[entry]
    group, of = np.unique(catalogue.partition.group_of_row[rows], return_inverse=True)
    offered, (codes, numbers) = population.rows(rows), queries.quasi_identifiers
    columns: dict[str, Any] = {name: offered[name].array for name in population.schema.private}
    for j, name in enumerate(population.schema.quasi_identifiers):
        domain, own = population.domains[name], queries.frame[name].take(query)
        inside = np.array([domain.inside(catalogue.partition.regions[g][name]) for g in group.tolist()])
        near, is_own = _nearest_inside(domain, inside, of, codes[query, j], numbers[query, j])
        columns[name] = _either(domain.restore(near), own, is_own)
    return table_of({name: columns[name] for name in population.schema.features})


def _either(values: pd.Series, others: pd.Series, is_other: Mask) -> Any:
    if not is_other.any():
        return values.array
    both = pd.concat([values, others], ignore_index=True).array
    return both.take(np.arange(len(values)) + len(values) * is_other)


def _nearest_inside(domain: Domain, inside: Mask, of: Ints, codes: Codes, numbers: Floats) -> tuple[Codes, Mask]:
    """Return the code nearest to each value inside of its part, and where a number that no row has is inside itself.

    ``inside[of[i]]`` says of every code whether it is inside the part of value i. Of what is equally far the first is
    taken.
    """
    count = len(domain.values)
    known, is_own = (codes >= 0) & (codes < count), np.zeros(len(codes), dtype=bool)
    near = np.argmax(inside, axis=1)[of]
    if domain.is_interval and count:
        values = inside[:, :count]
        low, high = np.argmax(values, axis=1)[of], count - 1 - np.argmax(values[:, ::-1], axis=1)[of]
        ranged = np.asarray(values.any(axis=1))[of]
        if domain.is_numeric:
            number = np.where(known, domain.values[np.where(known, codes, 0)], numbers)
            is_own = ranged & ~known & (domain.values[low] <= number) & (number <= domain.values[high])
            near = np.where(ranged & (number > domain.values[high]), high, near)
        else:
            near = np.where(ranged & known, np.clip(codes, low, high), near)
    is_inside = (codes >= 0) & inside[of, np.where(codes >= 0, codes, 0)]
    return np.where(is_inside, codes, near).astype(np.int32), is_own
