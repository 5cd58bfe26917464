"""Answers as an attacker reads them: one instance per query, of a region the one nearest to the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked.sample import Mask, plain
from cfk_plugin.audit.attacked.service import Answers
from cfk_plugin.data.intake import select
from cfk_plugin.data.region import Interval, Part, part_contains, sorted_values, to_text
from cfk_plugin.data.values import conform, to_number
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import CounterfactualBatch
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Suppressed


def raw(batch: CounterfactualBatch, queries: pd.DataFrame) -> Answers:
    """Read what an explainer found, as it is.

    Parameters
    ----------
    batch : CounterfactualBatch
        Of one counterfactual asked per query.
    queries : DataFrame, shape (n_queries, n_features)

    Returns
    -------
    Answers
        May be training rows.

    Raises
    ------
    InputError
        If the explainer gave several counterfactuals to a query, or skipped one without saying that it found none.
    """
    if not np.array_equal(np.sort(batch.query), np.arange(len(queries))):
        raise InputError(_one_each(len(batch.query), len(queries)))
    row_of = np.full(len(queries), -1)
    row_of[batch.query[batch.slot]] = np.arange(len(batch.frame))
    given = select(batch.frame, list(queries.columns), renumber=False)
    given = given.reindex(row_of)  # -1 is in no index: missing values
    if plain(given) and (given.dtypes == queries.dtypes).all():  # thousands of columns are not read one by one
        return Answers(given.set_axis(queries.index), row_of >= 0)
    return _answers({name: given[name].tolist() for name in queries}, row_of >= 0, queries)


def released(explanations: Explanations, queries: pd.DataFrame) -> Answers:
    """Read what a protected explainer released; of a region the instance nearest to the query.

    Of a range the query's own number, else the nearer end. Of a set of categories, or of ranks, the query's own one,
    else the first: categories in the order of their text, ranks from the lowest. Of a query without a value, a missing
    one where the region holds it, else the lower end or first category. Private values as they are released; of a bin
    the number nearest to the query's, its ends included. Of an attribute that is withheld, or that explanations say
    nothing of, the query's own value: an attacker reads nothing there, so that it counts for no distance.

    Parameters
    ----------
    explanations : Explanations
        One entry per query, in order.
    queries : DataFrame, shape (n_queries, n_features)

    Returns
    -------
    Answers

    Raises
    ------
    InputError
        If there are several entries, or none, for a query.
    """
    if [entry.query for entry in explanations] != list(range(len(queries))):
        raise InputError(_one_each(len(explanations), len(queries)))
    parts = [None if isinstance(entry, Suppressed) else entry.parts() for entry in explanations]
    found = np.array([part is not None for part in parts], dtype=bool)
    rows = {
        name: [None if said is None else _read(said, name, own) for said, own in zip(parts, queries[name], strict=True)]
        for name in queries
    }
    return _answers(rows, found, queries, explanations)


def nearest_inside(part: Part, value: Any) -> Any:
    """Return the value inside one part of a region that is nearest to a value: itself where it is inside.

    Parameters
    ----------
    part : Interval or frozenset
    value : object
        Of a query; may be missing.

    Returns
    -------
    object
        None for a missing value. See `released` for which one is taken of several that are equally near.
    """
    if not isinstance(part, Interval):
        return value if part_contains(part, value) else sorted_values(part)[0]
    if part.low is None or (part.missing and pd.isna(value)):
        return None
    if part.levels is not None:
        return value if not pd.isna(value) and to_text(value) in part.levels else part.levels[0]
    if pd.isna(value):
        return part.low
    number = to_number(value)
    if number < to_number(part.low):
        return part.low
    return part.high if number > to_number(part.high) else value


def _read(said: Mapping[str, Part], name: Any, own: Any) -> Any:
    return nearest_inside(said[name], own) if name in said else own


def _answers(
    values: Mapping[Any, list[Any]], found: Mask, queries: pd.DataFrame, explanations: Explanations | None = None
) -> Answers:
    """Put values side by side in the queries' own dtypes, as far as those can hold a missing value."""
    rows = pd.DataFrame({name: _typed(values[name], queries[name].dtype) for name in queries})
    return Answers(rows.set_axis(queries.index), found, explanations)


def _typed(values: list[Any], dtype: Any) -> pd.Series:
    column = pd.Series(values, dtype=object)
    return conform(column.dropna().infer_objects(), dtype).reindex(column.index)


def _one_each(given: int, asked: int) -> str:
    return f"{given} counterfactuals for {asked} queries; attacks read one per query, so ask the explainer for one each"
