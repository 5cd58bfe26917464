"""Information loss: what a generalised explanation no longer says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from cfk_plugin.data.columns import to_number, to_text
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from cfk_plugin.data.population import Population
    from cfk_plugin.data.schema import Schema


def ncp(region: Region, population: Population) -> float:
    """Return the normalised certainty penalty of a region.

    Computed from the region that is released, not from the rows inside: those may span less.

    Parameters
    ----------
    region : Region
        Must have a part for every quasi-identifier of the schema.
    population : Population
        Its domains are the denominators; its schema has the weights.

    Returns
    -------
    float
        In [0, 1]; lower is better; 0 means that nothing was generalised.

    Raises
    ------
    InputError
        If the region lacks a quasi-identifier or has an unfit part.

    Notes
    -----
    NCP = sum_j w_j NCP_j with sum_j w_j = 1. It does not say whether the advice is right (`pureness`) nor how
    many people are inside.

    References
    ----------
    Goethals, Sörensen, Martens (2023), equations 1-3; Ghinita et al. (2007).
    """
    return weighted(ncp_by_attribute(region, population), population.schema)


def weighted(parts: Mapping[str, float], schema: Schema) -> float:
    """Return the weighted sum of the penalties of all quasi-identifiers: NCP."""
    return float(sum(schema[name].weight * loss for name, loss in parts.items()))


def ncp_by_attribute(region: Region, population: Population) -> dict[str, float]:
    """Return the unweighted penalty of each quasi-identifier.

    Parameters
    ----------
    region : Region
    population : Population

    Returns
    -------
    dict
        Quasi-identifier to a number in [0, 1]; lower is better.

    Notes
    -----
    Numeric: (high - low) / range of the population, 0 when that is 0, at most 1. Ordinal: the same on ranks
    over the declared levels. Nominal: 0 for one value, else |R| / |A|. Hierarchy: 0 for one value, else
    leaves of the lowest node that covers the values / all leaves. Missing together with values costs 1 for
    ranges and hierarchies; for nominal attributes it counts as one more value.
    """
    schema = population.schema
    if lost := [name for name in schema.quasi_identifiers if name not in region]:
        raise InputError(f"the region has no part for {', '.join(lost)}")
    return {name: _penalty(region[name], population.domains[name]) for name in schema.quasi_identifiers}


def discernibility(
    class_sizes: Iterable[int],
    n_suppressed: int = 0,
    n_people: int = 0,
    *,
    form: Literal["release", "squared"] = "release",
) -> float:
    """Return the discernibility penalty C_DM.

    Parameters
    ----------
    class_sizes : iterable of int
        People inside the region of each release; for ``form="squared"`` the size of each equivalence class of
        a table.
    n_suppressed : int
        Number of explanations (for "squared": rows) that were suppressed.
    n_people : int
        Size of the population, the penalty of each suppressed one.
    form : {"release", "squared"}
        Per release, sum |E| + n · suppressed; or the published form over a whole table, sum |E|² + n ·
        suppressed. Both give every tuple the size of its class.

    Returns
    -------
    float
        Lower is better; one release of k people costs k. A sum: compare only sets of the same size.

    Notes
    -----
    It does not say how far the generalised values are from the original ones.

    References
    ----------
    Bayardo, Agrawal (2005); Goethals, Sörensen, Martens (2023), section 4.
    """
    sizes = np.asarray(list(class_sizes), dtype=float)
    if n_suppressed < 0 or (len(sizes) and sizes.min() < 0):
        raise InputError("class sizes and n_suppressed must be >= 0")
    if n_suppressed and n_people < 1:
        raise InputError("n_people must be given when something was suppressed")
    if form not in ("release", "squared"):
        raise InputError("form must be 'release' or 'squared'")
    return float((sizes**2 if form == "squared" else sizes).sum() + n_suppressed * n_people)


def classification_metric(labels: Sequence[Hashable], class_labels: Sequence[Iterable[Hashable]]) -> float:
    """Return the classification metric CM: how often a release disagrees with the majority of its class.

    Parameters
    ----------
    labels : sequence
        Class of each release (the desired class of a counterfactual).
    class_labels : sequence of iterables
        For each release the predicted classes of the rows in its equivalence class.

    Returns
    -------
    float
        In [0, 1]; lower is better; NaN without releases.

    Notes
    -----
    CM = sum_r [label_r not among the most frequent labels of E(r)] / N; a tie is no penalty. It looks at rows
    that exist and their own private values, so it does not say whether the advice holds: see `pureness`.

    References
    ----------
    Iyengar (2002); Goethals, Sörensen, Martens (2023), section 4.
    """
    if len(labels) != len(class_labels):
        raise InputError("classification_metric needs the labels of one class per release")
    penalties = [not _agrees(a, b) for a, b in zip(labels, class_labels, strict=True)]
    return float(np.mean(penalties)) if penalties else float("nan")


def _agrees(label: Hashable, others: Iterable[Hashable]) -> bool:
    counts = pd.Series(list(others), dtype=object).value_counts()
    if not len(counts):
        raise InputError("an equivalence class has no rows")
    return label in counts.index[counts == counts.max()]


def _penalty(part: Part, domain: Domain) -> float:
    name, kind = domain.attribute.name, domain.attribute.kind
    if isinstance(part, Interval) != domain.is_interval:
        raise InputError(f"the region's part for {name!r} does not fit a {kind} attribute")
    if isinstance(part, Interval):
        if part.low is None:
            return 0.0
        if part.missing:
            return 1.0
        return _width(part, domain)
    if len(part) == 1:
        return 0.0
    if domain.attribute.hierarchy is not None:
        return _leaves(part, domain)
    return min(len(part) / max(domain.size, 1), 1.0)


def _width(part: Interval, domain: Domain) -> float:
    if domain.attribute.kind == "ordinal":
        ranks = [_rank(end, domain) for end in (part.low, part.high)]
        line = np.array([0.0, len(domain.values) - 1.0])
    else:
        ranks, line = [_number(end, domain) for end in (part.low, part.high)], domain.values
    low, high = ranks
    if high < low:
        raise InputError(f"the region's range for {domain.attribute.name!r} ends before it starts")
    whole = float(line[-1] - line[0]) if len(line) else 0.0
    return min((high - low) / whole, 1.0) if whole > 0 else 0.0


def _rank(end: Any, domain: Domain) -> float:
    place = np.flatnonzero(domain.values == to_text(end))
    if not len(place):
        raise InputError(f"the region's range for {domain.attribute.name!r} ends at an undeclared level")
    return float(place[0])


def _number(end: Any, domain: Domain) -> float:
    number = to_number(end)
    if not np.isfinite(number):
        raise InputError(f"the region's range for {domain.attribute.name!r} does not end at a number")
    return number


def _leaves(part: frozenset[Any], domain: Domain) -> float:
    hierarchy = domain.attribute.hierarchy
    values = [to_text(v) for v in part if v is not None]
    if hierarchy is None or None in part:
        return 1.0
    if not set(values) <= set(hierarchy.leaves):
        raise InputError(f"the region's set for {domain.attribute.name!r} has values that its hierarchy does not list")
    node = hierarchy.cover(values)
    return float(hierarchy.high[node] - hierarchy.low[node] + 1) / domain.size
