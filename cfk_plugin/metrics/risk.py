"""Risk of released regions: re-identification, and what is learned of private and sensitive
attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.display import card, facts, number, share
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import to_number, to_text
from cfk_plugin.data.values import is_numeric, to_numbers
from cfk_plugin.errors import InputError


def k_private(members: pd.DataFrame, released: Mapping[str, Any]) -> int:
    """Return how many rows inside a region carry exactly the released private values.

    |{i in E(r): x_iS = s_r}|. Quasi-identifiers alone are generalised, so no policy bounds this
    number.

    Parameters
    ----------
    members : DataFrame of the rows inside the region
    released : mapping of private attribute to released value

    Returns
    -------
    int; 1 singles somebody out for whoever knows the private values; 0 means that nobody has them
    """
    same = np.ones(len(members), dtype=bool)
    for name, value in released.items():
        if name not in members.columns:
            raise InputError(f"the rows have no column {name!r}")
        column = members[name]
        if pd.isna(value):
            same &= column.isna().to_numpy()
        elif is_numeric(column):
            same &= np.isclose(to_numbers(column)[0], to_number(value), rtol=1e-9, atol=0)
        else:
            same &= (
                column.map(to_text, na_action="ignore").astype(object) == to_text(value)
            ).to_numpy()
    return int(same.sum())


@dataclass(frozen=True, slots=True)
class LDiversity:
    """Diversity of a sensitive attribute inside a region."""

    distinct: int  # values; higher is better
    # number of equally frequent values of the same entropy, in [1, distinct]; higher is better
    entropy: float
    # least c of recursive (c, l)-diversity; infinite with fewer than l values; lower is better
    recursive: float


def l_diversity(values: ArrayLike | pd.Series, l: int = 2) -> LDiversity:  # noqa: E741 - the literature's name
    """Return how diverse the sensitive values inside a region are; a missing value counts as a
    value.

    distinct = |values|; entropy = exp(-sum p ln p); recursive = r_1 / (r_l + ... + r_m). Source:
    Machanavajjhala et al. (2007), l-Diversity.

    Parameters
    ----------
    values : array
        Sensitive values of the people inside.
    l : int
        That of recursive (c, l)-diversity.

    Returns
    -------
    LDiversity
    """
    counts = np.sort(np.bincount(_codes(_series(values))[0]))[::-1].astype(float)
    if not len(counts) or l < 1:
        raise InputError("l_diversity needs at least one value, and l >= 1")
    share = counts / counts.sum()
    rest = counts[l - 1 :].sum()
    return LDiversity(
        distinct=len(counts),
        entropy=float(np.exp(-(share * np.log(share)).sum())),
        recursive=float(counts[0] / rest) if rest else float("inf"),
    )


def t_closeness(
    values: ArrayLike | pd.Series, population_values: ArrayLike | pd.Series, ordered: bool
) -> float:
    """Return the earth mover's distance between the sensitive values inside a region and in the
    population.

    Ordered: sum_i |cumulated difference| / (m - 1) over the m sorted distinct values, an upper
    bound where some are missing. Otherwise: half the sum of the absolute differences. Source: Li,
    Li, Venkatasubramanian (2007), t-Closeness.

    Parameters
    ----------
    values, population_values : array
        Sensitive values of the people inside, and of everybody.
    ordered : bool
        Whether values have an order (numbers, dates, ranks); otherwise all are equally far apart.

    Returns
    -------
    float in [0, 1]; lower is better; 0 means that the region says nothing about the attribute

    Examples
    --------
    >>> t_closeness([3, 4, 5], [3, 4, 5, 6, 7, 8, 9, 10, 11], ordered=True)
    0.375
    """
    return _closeness(*_distributions(values, population_values, ordered), ordered=ordered)


def attribute_disclosure(
    values: ArrayLike | pd.Series, population_values: ArrayLike | pd.Series
) -> float:
    """Return how much more certain an attacker becomes of a sensitive value.

    max_v (share of v in E(r) - share of v in D).

    Parameters
    ----------
    values, population_values : array
        Sensitive values of the people inside the region, and of everybody.

    Returns
    -------
    float in [0, 1]; lower is better; near 1 when everybody inside shares a value that is rare
    outside
    """
    inside, everybody, _ = _distributions(values, population_values, False)
    return float(np.max(inside - everybody))


def _closeness(
    inside: NDArray[np.float64],
    everybody: NDArray[np.float64],
    last_missing: bool,
    *,
    ordered: bool,
) -> float:
    if not ordered:
        return float(np.abs(inside - everybody).sum() / 2)
    moved, mass = 0.0, 1.0
    if last_missing:  # moving the surplus of missing values first gives an upper bound
        here, there = 1 - float(inside[-1]), 1 - float(everybody[-1])
        moved, mass = abs(here - there), min(here, there)
        if mass <= 0:
            return moved
        inside, everybody = inside[:-1] / here, everybody[:-1] / there
    steps = len(inside) - 1
    return moved + mass * (
        float(np.abs(np.cumsum(inside - everybody)).sum() / steps) if steps else 0.0
    )


def _series(values: ArrayLike | pd.Series) -> pd.Series:
    return values if isinstance(values, pd.Series) else pd.Series(np.asarray(values))


def _codes(column: pd.Series, ordered: bool = False) -> tuple[NDArray[np.int64], bool]:
    """Return the number of each value among the distinct ones (missing last), and whether one is
    missing.
    """
    missing = column.isna().to_numpy()
    if is_numeric(column) or ordered:
        numbers, invalid = to_numbers(column)
        if invalid.any():
            raise InputError("ordered values must be numbers, dates or ranks of levels")
        codes = np.unique(numbers[~missing], return_inverse=True)[1]
    else:
        codes = np.asarray(pd.factorize(column[~missing].map(to_text).astype(object))[0])
    out = np.full(len(column), codes.max(initial=-1) + 1, dtype=np.int64)
    out[~missing] = codes
    return out, bool(missing.any())


def _distributions(
    values: ArrayLike | pd.Series, population_values: ArrayLike | pd.Series, ordered: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]:
    """Return the shares of each value inside and in the population, and whether the last value is
    the missing one.
    """
    inside, everybody = _series(values), _series(population_values)
    if not len(inside) or not len(everybody):
        raise InputError(
            "distributions need at least one value inside the region and in the population"
        )
    both = pd.concat([inside.astype(object), everybody.astype(object)], ignore_index=True)
    codes, missing = _codes(both.infer_objects(), ordered)
    size = int(codes.max()) + 1
    here = np.bincount(codes[: len(inside)], minlength=size) / len(inside)
    there = np.bincount(codes[len(inside) :], minlength=size) / len(everybody)
    return here, there, missing


@dataclass(frozen=True, slots=True)
class Risk:
    """Re-identification risk over releases, each in [0, 1]; lower is better.

    NaN without releases.
    """

    highest: float
    mean: float
    at_risk: float  # share of the releases whose risk exceeds the threshold

    def _repr_html_(self) -> str:
        """Return the same in words, for notebooks."""
        at_risk = "–" if isnan(self.at_risk) else share(self.at_risk)
        rows = {
            "highest": number(self.highest),
            "mean": number(self.mean),
            "releases above the threshold": at_risk,
        }
        note = "Risk of a release: the chance to name the right one of the people who fit it."
        return card("Risk of re-identification", facts(rows), note=note)


def prosecutor_risk(class_sizes: Iterable[int], threshold: float = 0.2) -> Risk:
    """Return the risk from an attacker who knows that the target is in the training data.

    risk(r) = 1 / k(r). An attacker who reruns the algorithm or asks the model does better. Source:
    El Emam, Dankar (2008), Protecting privacy using k-anonymity.

    Parameters
    ----------
    class_sizes : iterable of int
        People of the training data inside the region of each release.
    threshold : float
        Risk above which a release counts as at risk.

    Returns
    -------
    Risk
    """
    sizes = np.asarray(list(class_sizes), dtype=float)
    if not len(sizes):
        return Risk(float("nan"), float("nan"), float("nan"))
    if sizes.min() < 1:
        raise InputError("each class needs at least one person")
    risks = 1 / sizes
    return Risk(float(risks.max()), float(risks.mean()), float((risks > threshold).mean()))


def marketer_risk(class_sizes: Iterable[int]) -> float:
    """Return the expected share of releases that an attacker links correctly.

    mean over *releases* of 1 / |E(r)|; other tools average over records or over classes.

    Parameters
    ----------
    class_sizes : iterable of int
        People of the reference population (else of the training data), per region.

    Returns
    -------
    float in [0, 1]; lower is better; NaN without releases
    """
    return prosecutor_risk(class_sizes).mean


@dataclass(frozen=True, slots=True)
class SensitiveFigures:
    """The worst figures over all sensitive attributes; None where there are none, or no rows."""

    diversity: int | None = None  # least number of distinct values
    closeness: float | None = None  # largest `t_closeness`
    disclosure: float | None = None  # largest `attribute_disclosure`

    @classmethod
    def of(cls, population: Population, rows: NDArray[np.int64]) -> SensitiveFigures:
        names = population.schema.sensitive
        if not names:
            return cls()
        diversity, closeness, disclosure = [], [], []
        for name in names:
            everybody = population.column(name)
            ordered = population.schema[name].kind in ("numeric", "ordinal")
            inside = everybody.take(rows)
            diversity.append(l_diversity(inside).distinct)
            shares = _distributions(inside, everybody, ordered)
            closeness.append(_closeness(*shares, ordered=ordered))
            disclosure.append(float(np.max(shares[0] - shares[1])))
        return cls(min(diversity), max(closeness), max(disclosure))
