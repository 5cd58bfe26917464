"""Information loss: what a generalised explanation no longer says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import fsum, isfinite
from typing import Any, Literal

import numpy as np

from cfk_plugin.data.codes import Column
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region, to_number, to_text
from cfk_plugin.data.schema import Hierarchy, Schema
from cfk_plugin.errors import InputError


def ncp(region: Region, population: Population) -> float:
    """Return the normalised certainty penalty of a region: of what is released, not of the rows
    inside it.

    NCP = sum_j w_j NCP_j with sum_j w_j = 1; NCP_j is in `ncp_by_attribute`. Source: Goethals,
    Sörensen, Martens (2023), equations 1-3; Ghinita et al. (2007).

    Parameters
    ----------
    region : Region
        With a part for every quasi-identifier of the schema.
    population : Population
        Whose domains are the denominators and whose schema has the weights.

    Returns
    -------
    float in [0, 1]; lower is better; 0 means that nothing was generalised

    Raises
    ------
    InputError
        If the region lacks a quasi-identifier or has an unfit part.
    """
    return weigh_losses(ncp_by_attribute(region, population), population.schema)


def weigh_losses(parts: Mapping[str, float], schema: Schema) -> float:
    """Return the weighted sum of penalties, the same for any order of columns."""
    return fsum(schema[name].weight * loss for name, loss in parts.items())


def ncp_by_attribute(region: Region, population: Population) -> dict[str, float]:
    """Return the unweighted penalty of each quasi-identifier.

    (high - low) / range, of numbers or ranks; for sets of several values |R| / |A|, of leaves under
    the lowest node in a hierarchy. Missing together with values costs 1, but for nominal
    attributes, where it is one more value.

    Parameters
    ----------
    region : Region
    population : Population

    Returns
    -------
    dict of quasi-identifier to a number in [0, 1]; lower is better
    """
    losses = {}
    for column in population.row_codes.columns:
        if not column.is_quasi_identifier:
            continue
        if column.name not in region:
            raise InputError(f"the region has no part for {column.name}")
        losses[column.name] = loss_of(region[column.name], column)
    return losses


def loss_of(part: Part, column: Column) -> float:
    """Return the unweighted penalty of one part of a region; see `ncp_by_attribute`."""
    if isinstance(part, Interval) != column.is_line:
        raise InputError(
            f"the region's part for {column.name!r} does not fit a {column.attribute.kind}"
            " attribute"
        )
    if isinstance(part, Interval):
        return _range_loss(part, column)
    if len(part) == 1:
        return 0.0
    if column.attribute.hierarchy is not None:
        return _hierarchy_loss(part, column, column.attribute.hierarchy)
    return min(len(part) / max(len(column.values), 1), 1.0)


def _range_loss(part: Interval, column: Column) -> float:
    """Return the loss of a range; missing values are one value, and with others cost everything."""
    if part.low is None:
        return 0.0
    if part.missing:
        return 1.0
    if column.kind == "ordinal":
        levels = [to_text(level) for level in column.values.tolist()]
        if not {to_text(part.low), to_text(part.high)} <= set(levels):
            raise InputError(f"the region's range for {column.name!r} ends at an undeclared level")
        low = float(levels.index(to_text(part.low)))
        high = float(levels.index(to_text(part.high)))
    else:
        low = to_number(part.low)
        high = to_number(part.high)
        if not (isfinite(low) and isfinite(high)):
            raise InputError(f"the region's range for {column.name!r} does not end at a number")
    if high < low:
        raise InputError(f"the region's range for {column.name!r} ends before it starts")
    if len(column.places) < 2:
        return 0.0
    return min((high - low) / column.span, 1.0)


def _hierarchy_loss(part: frozenset[Any], column: Column, hierarchy: Hierarchy) -> float:
    if None in part:
        return 1.0
    values = [to_text(v) for v in part]
    if not set(values) <= set(hierarchy.leaves):
        raise InputError(
            f"the region's set for {column.name!r} has values that its hierarchy does not list"
        )
    node = hierarchy.cover(values)
    return float(hierarchy.high[node] - hierarchy.low[node] + 1) / len(column.values)


def discernibility(
    class_sizes: Iterable[int],
    n_withheld: int = 0,
    n_people: int = 0,
    *,
    form: Literal["release", "squared"] = "release",
) -> float:
    """Return the discernibility penalty C_DM: every tuple gets the size of its class.

    sum |E| + n · withheld; "squared": sum |E|² + n · withheld. Source: Bayardo, Agrawal (2005);
    Goethals, Sörensen, Martens (2023), section 4.

    Parameters
    ----------
    class_sizes : iterable of int
        People inside the region of each release; for ``form="squared"`` the size of each class of a
        table.
    n_withheld : int
        Number of explanations (for "squared": rows) that were withheld.
    n_people : int
        Size of the population, the penalty of each withheld one.
    form : {"release", "squared"}
        Over releases, or the published form over a whole table.

    Returns
    -------
    float; lower is better. A sum: compare only sets of the same size
    """
    sizes = np.asarray(list(class_sizes), dtype=float)
    if n_withheld < 0 or (len(sizes) and sizes.min() < 0):
        raise InputError("class sizes and n_withheld must be >= 0")
    if n_withheld and n_people < 1:
        raise InputError("n_people must be given when something was withheld")
    if form not in ("release", "squared"):
        raise InputError("form must be 'release' or 'squared'")
    return float((sizes**2 if form == "squared" else sizes).sum() + n_withheld * n_people)


def classification_metric(
    labels: Sequence[Hashable], class_labels: Sequence[Iterable[Hashable]]
) -> float:
    """Return the classification metric CM: how often a release disagrees with the majority of its
    class.

    CM = sum_r [label_r not among the most frequent labels of E(r)] / N; a tie is no penalty.
    Source: Iyengar (2002); Goethals, Sörensen, Martens (2023), section 4.

    Parameters
    ----------
    labels : sequence
        Class of each release (the desired class of a counterfactual).
    class_labels : sequence of iterables
        For each release the predicted classes of the rows in its equivalence class.

    Returns
    -------
    float in [0, 1]; lower is better; NaN without releases
    """
    if len(labels) != len(class_labels):
        raise InputError("classification_metric needs the labels of one class per release")
    penalties = []
    for label, others in zip(labels, class_labels, strict=True):
        counts = Counter(others)
        if not counts:
            raise InputError("an equivalence class has no rows")
        penalties.append(counts[label] < max(counts.values()))
    return float(np.mean(penalties)) if penalties else float("nan")
