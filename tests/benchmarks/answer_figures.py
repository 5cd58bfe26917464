"""Figures of a set of answers, for benchmarks of any method: how far they are, and how near they
come to training rows.

The distance of two rows is the sum over features of |x - y| / range for a number, whose range is
the declared one, else that of the training rows, and of 0 or 1 for everything else. Source of the
flipping ratio: Yang, Feng, Zhou, Chen, Hu (2022), Differentially private counterfactuals via
functional mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import Population
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.metrics import Estimate, clopper_pearson
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.intervals import mean_of

BINS = 16
SINGLE = 2.0**-22  # numbers that were once float32 are this close to the original
FRESH = 1000  # people of a holdout who are compared with the training rows

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class AnswerFigures:
    """Means and shares over answers, whether or not they have the desired outcome."""

    flipping_ratio: Estimate  # share of the queries whose answer has the desired outcome
    l1: Estimate  # distance to the query
    features_changed: Estimate  # number of features with another value than the query's
    nn1: Estimate  # distance to the nearest training row with the desired outcome
    # share with a pair of values, numbers as bins, that no training row has together
    unseen_pair: Estimate
    chance: Chance | None  # where a holdout was given


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The same of people in no table who have the desired outcome, and who is singled out."""

    nn1: Estimate
    unseen_pair: Estimate
    # share of the answers whose quasi-identifiers exactly one of equally many people has
    singled_out_train: Estimate
    singled_out_holdout: Estimate


def figures_of(
    queries: pd.DataFrame,
    answers: pd.DataFrame,
    population: Population,
    *,
    model: Any,
    desired: Any,
    answered: NDArray[np.int64] | None = None,
    holdout: pd.DataFrame | None = None,
) -> AnswerFigures:
    """Measure answers of any method; `answered` has the position of the query of each, by default
    row i answers query i. No label "opposite": all queries ask for the same outcome.
    """
    at = np.arange(len(answers)) if answered is None else answered
    asked, given = population.conform(queries), population.conform(answers)
    training, random = _TrainingRows(population), np.random.default_rng(0)
    goal, ask = DesiredOutcome.of(desired), LabelModel(model, population.schema.features)
    flips = np.zeros(len(asked), dtype=bool)
    flips[at] = goal.is_met(ask(given), None)
    wanted = training.codes.take(goal.is_met(ask(population.frame), None))
    rows, own = training.heom.encode(given), training.heom.encode(asked).take(at)
    chance = None
    if holdout is not None:
        outside = population.conform(holdout)
        met = np.flatnonzero(goal.is_met(ask(outside), None))
        if len(met) > FRESH:
            met = np.sort(random.choice(met, FRESH, replace=False))
        fresh, others = training.heom.encode(outside.take(met)), training.heom.encode(outside)
        n = min(len(training.codes), len(others))
        train, apart = (
            codes.take(np.sort(random.choice(len(codes), n, replace=False)))
            for codes in (training.codes, others)
        )
        chance = Chance(
            nn1=mean_of(training.to_nearest(fresh, wanted), random),
            unseen_pair=share_of(training.have_unseen_pair(fresh)),
            singled_out_train=share_of(training.fit_one(rows, train)),
            singled_out_holdout=share_of(training.fit_one(rows, apart)),
        )
    return AnswerFigures(
        flipping_ratio=share_of(flips),
        l1=mean_of(training.heom.parts(rows, own).sum(axis=1), random),
        features_changed=mean_of(training.changed(rows, own).sum(axis=1), random),
        nn1=mean_of(training.to_nearest(rows, wanted), random),
        unseen_pair=share_of(training.have_unseen_pair(rows)),
        chance=chance,
    )


def share_of(hits: Mask) -> Estimate:
    n = len(hits)
    if not n:
        return Estimate(np.nan, 0.0, 1.0, 0)
    return Estimate(float(hits.mean()), *clopper_pearson(int(hits.sum()), n), n)


class _TrainingRows:
    """The rows of a population, and what makes values near (ranges), equal (precision) or similar
    (bins).
    """

    def __init__(self, population: Population) -> None:
        base, domains = Heom.of(population), population.domains
        declared = {
            name: bounds
            for name in base.numeric
            if (bounds := population.schema[name].bounds) is not None
        }
        widths = {name: high - low for name, (low, high) in declared.items()}
        self.heom = Heom(base.numeric, base.categorical, {**base.ranges, **widths})
        self.codes = self.heom.encode(population.frame)
        self._quasi_identifiers = population.schema.quasi_identifiers
        self._edges = [edges_of(domains[name], declared.get(name)) for name in base.numeric]
        self._precision = np.array(
            [0.0 if domains[name].is_date else SINGLE for name in base.numeric]
        )

    def changed(self, a: HeomCodes, b: HeomCodes) -> Mask:
        """Say feature by feature whether row i of `a` has another value than row i of `b`."""
        missing, other = np.isnan(a.numbers), np.isnan(b.numbers)
        far = np.abs(a.numbers - b.numbers) > np.abs(b.numbers) * self._precision
        return np.hstack([np.where(missing | other, missing ^ other, far), a.codes != b.codes])

    def to_nearest(self, rows: HeomCodes, wanted: HeomCodes) -> NDArray[np.float64]:
        features = len(self.heom.numeric) + len(self.heom.categorical)
        return self.heom.nearest(rows, wanted)[1][:, 0] * features

    def fit_one(self, rows: HeomCodes, table: HeomCodes) -> Mask:
        """Say for each row whether exactly one row of a table has its quasi-identifiers."""
        columns: dict[str, NDArray[Any]] = {}
        for name in self._quasi_identifiers:
            if name in self.heom.ranges:
                j = self.heom.numeric.index(name)
                known = table.numbers[:, j]
                snapped = snap(rows.numbers[:, j], known, self._precision[j])
                columns[name] = np.append(snapped, known)
            else:
                j = self.heom.categorical.index(name)
                columns[name] = np.append(rows.codes[:, j], table.codes[:, j])
        groups = pd.DataFrame(columns).groupby([*columns], dropna=False, sort=False)
        keys = np.asarray(groups.ngroup(), dtype=np.int64)
        own, others = keys[: len(rows)], keys[len(rows) :]
        return np.bincount(others, minlength=int(keys.max()) + 1)[own] == 1

    def have_unseen_pair(self, rows: HeomCodes) -> Mask:
        """Say for each row whether two of its values, numbers as bins, occur together in no
        training row.
        """
        cut, both = len(rows), [self._bins(rows), self._bins(self.codes)]
        columns = [
            pd.factorize(np.concatenate(pair))[0].astype(np.int64)
            for pair in zip(*both, strict=True)
        ]
        unseen = np.zeros(cut, dtype=bool)
        for a, b in combinations(columns, 2):
            pair = a * (int(b.max(initial=0)) + 1) + b
            unseen |= ~np.isin(pair[:cut], pair[cut:])
        return unseen

    def _bins(self, rows: HeomCodes) -> list[NDArray[np.uint64]]:
        """Return each feature in coarse form: numbers as bins, missing as a bin of its own,
        categories unchanged.
        """
        binned = []
        for edges, numbers in zip(self._edges, rows.numbers.T, strict=True):
            at = np.searchsorted(edges, numbers, side="right")
            at[numbers == edges[-1]] = len(edges) - 1  # the last bin has both ends
            at[np.isnan(numbers)] = len(edges) + 1
            binned.append(at.astype(np.uint64))
        return [*binned, *rows.codes.T]


def edges_of(domain: Any, bounds: tuple[float, float] | None) -> NDArray[np.float64]:
    """Return the edges of a number's bins: the declared ones, else 16 of equal width."""
    if domain.attribute.bins is not None:
        return np.array(domain.attribute.bins)
    low, high = bounds or (float(domain.values[0]), float(domain.values[-1]))
    if high > low:
        return np.linspace(low, high, BINS + 1)
    return np.array([low, np.nextafter(low, np.inf)])


def snap(
    numbers: NDArray[np.float64], known: NDArray[np.float64], precision: float
) -> NDArray[np.float64]:
    """Return numbers, each replaced by the nearest known one where the two agree to a precision."""
    values = np.unique(known[~np.isnan(known)])
    if not len(values) or not precision:
        return numbers
    right = np.searchsorted(values, numbers).clip(max=len(values) - 1)
    left = (right - 1).clip(min=0)
    is_left = np.abs(values[left] - numbers) < np.abs(values[right] - numbers)
    nearest = np.where(is_left, values[left], values[right])
    return np.where(np.abs(nearest - numbers) <= np.abs(nearest) * precision, nearest, numbers)
