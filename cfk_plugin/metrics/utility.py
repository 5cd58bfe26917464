"""Utility: what counterfactuals are worth to those who get them, measured in the same way for every
method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.intake import require_features
from cfk_plugin.data.model import Goal, LabelModel
from cfk_plugin.data.population import Population
from cfk_plugin.data.values import to_numbers
from cfk_plugin.errors import HostOnly, InputError
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.intervals import Estimate, Figures, mean_of, share_of

_BINS = 16
_SINGLE = 2.0**-22  # numbers that were once float32 are this close to the original
_FRESH = 1000  # rows of a holdout that are compared with the training rows

Mask = NDArray[np.bool_]
Reference = Sequence[tuple[Mask, Mask]]
"""Which rows (a mask) are compared with which training rows (a mask); no row twice."""


@dataclass(frozen=True, slots=True)
class Support(Figures):
    """How near a set of rows, served or fresh, is to the training rows. Lower is better."""

    nn1: Estimate  # L1 distance to the nearest training row with the desired outcome
    nn5: Estimate  # mean of it to the 5 nearest
    unseen_pair: Estimate  # share with a pair of values that no training row has together
    # share whose quasi-identifiers exactly one person of the training rows has
    singled_out: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance(Figures):
    """What is due to chance alone, measured on a holdout."""

    # of at most 1,000 holdout rows with the desired outcome, in the place of counterfactuals
    fresh: Support
    copies_train: Estimate  # share that equal one of `rows` training rows
    copies_holdout: Estimate  # share that equal one of `rows` holdout rows
    # share with the quasi-identifiers of exactly one of those training rows
    singled_out_train: Estimate
    singled_out_holdout: Estimate
    rows: int  # drawn from either table: all of the shorter one


@dataclass(frozen=True, slots=True, kw_only=True)
class Utility(Figures):
    """Figures of a set of counterfactuals, for the data holder: no guarantee.

    Means are over the answered queries.
    """

    # share of all queries with a counterfactual of the desired outcome; higher is better
    flipping_ratio: Estimate
    l1: Estimate  # distance to the query, summed over features; lower is better, as of all below
    euclidean: Estimate  # root of the sum of squares
    features_changed: Estimate  # number of features with another value than the query's
    nn1: Estimate  # this and the next two: see `Support`
    nn5: Estimate
    unseen_pair: Estimate
    copies: Estimate  # share that equal a training row
    singled_out: Estimate  # see `Support`
    chance: Chance | None  # what chance gives, where a holdout was given
    queries: int  # asked
    training_rows: int
    desired_rows: int  # training rows with an outcome that some query asks for
    # numeric feature to the source of its distance's range: "declared" or "population"
    ranges: Mapping[str, str]

    @property
    def answered(self) -> int:
        """Number of queries with a counterfactual."""
        return self.l1.n

    @property
    def above_chance(self) -> dict[str, bool | None]:
        """Whether more are copies, or singled out, than by chance; None without a holdout.

        False proves nothing.
        """
        found = self.chance
        if found is None:
            return {"copies": None, "singled_out": None}
        return {
            "copies": _is_above(found.copies_train, found.copies_holdout),
            "singled_out": _is_above(found.singled_out_train, found.singled_out_holdout),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; what could not be measured is None."""
        return Figures.to_dict(self) | {
            "answered": self.answered,
            "above_chance": self.above_chance,
        }


def utility(
    queries: pd.DataFrame,
    counterfactuals: pd.DataFrame,
    population: Population,
    *,
    model: Any,
    desired: Any,
    answered: ArrayLike | None = None,
    holdout: pd.DataFrame | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> Utility:
    """Measure counterfactuals of any method: how often they flip, how far they are, how well the
    data supports them.

    Formulas: ``docs/reference/metrics.md``. Intervals take queries as independent: too narrow if
    answers share a row. Source: Yang, Feng, Zhou, Chen, Hu (2022), Differentially private
    counterfactuals via functional mechanism.

    Parameters
    ----------
    queries : DataFrame of every query asked, with every feature of the schema
    counterfactuals : DataFrame
        At most one row per query: raw, of a differentially private method, or a row that stands for
        a region.
    population : Population of the training rows, with its rows
    model : estimator or callable
        From rows in the training table's columns and dtypes to labels.
    desired : label, callable or "opposite"
        As of `KAnonymizer.fit`; "opposite" is any label but the query's own.
    answered : int array, optional
        Position of the query of each counterfactual; default: row i answers query i.
    holdout : DataFrame, optional
        People who are not in the training rows; says what chance gives.
    random_state : int or Generator, optional

    Returns
    -------
    Utility
        Means and nearest rows are of all answers, whether or not they flip.

    Raises
    ------
    InputError
        If a table lacks a feature or has non-numeric values where numbers are needed, or `answered`
        does not fit.
    ModelError
        If the model fails or does not know the desired label.
    PopulationError
        If the population has no rows here.
    """
    asked = _conform(queries, population, "queries")
    served = asked.head(0)  # a method that never answered has no columns either
    if not isinstance(counterfactuals, pd.DataFrame) or len(counterfactuals):
        served = _conform(counterfactuals, population, "counterfactuals")
    at = _positions(answered, len(served), len(asked))
    outside = None if holdout is None else _conform(holdout, population, "holdout")
    training, random = _TrainingRows(population), np.random.default_rng(random_state)
    outcomes = _Outcomes(
        Goal(desired), LabelModel(model, population.schema.features), asked, population.frame
    )
    flips = np.zeros(len(asked), dtype=bool)
    flips[at] = outcomes.flipped(served, at)
    rows, own, reference = (
        training.heom.encode(served),
        training.heom.encode(asked).take(at),
        outcomes.reference(at),
    )
    parts, support = training.heom.parts(rows, own), training.support(rows, reference, random)
    return Utility(
        flipping_ratio=share_of(flips),
        l1=mean_of(parts.sum(axis=1), random),
        euclidean=mean_of(np.sqrt(np.square(parts).sum(axis=1)), random),
        features_changed=mean_of(training.changed(rows, own).sum(axis=1), random),
        nn1=support.nn1,
        nn5=support.nn5,
        unseen_pair=support.unseen_pair,
        copies=share_of(training.are_copies(rows, training.codes)),
        singled_out=support.singled_out,
        chance=None if outside is None else _chance(rows, outside, training, outcomes, random),
        queries=len(flips),
        training_rows=len(training.codes),
        desired_rows=int(np.any([mask for _, mask in reference], axis=0).sum()),
        ranges=MappingProxyType(training.ranges),
    )


def _conform(frame: pd.DataFrame, population: Population, what: str) -> pd.DataFrame:
    table = require_features(frame, population.schema.features, what)
    numeric = [
        name for name in population.schema.features if population.schema[name].kind == "numeric"
    ]
    if wrong := [name for name in numeric if to_numbers(table[name])[1].any()]:
        raise InputError(
            f"{what}: {', '.join(wrong)} must hold finite numbers; give one row of values per"
            " counterfactual, and for a region a row that stands for it"
        )
    return population.conform(table)


def _positions(answered: ArrayLike | None, given: int, asked: int) -> NDArray[np.int64]:
    if answered is None:
        if given not in (0, asked):
            raise InputError(
                f"there are {given} counterfactuals for {asked} queries; say with answered= which"
                " queries they answer"
            )
        return np.arange(given)
    at = np.asarray(answered)
    if at.ndim != 1 or len(at) != given or (at.dtype.kind not in "iu" and given):
        raise InputError(
            f"answered must be {given} whole numbers: the position of the query of each"
            " counterfactual"
        )
    if given and (at.min() < 0 or at.max() >= asked):
        raise InputError(f"answered must be positions of queries, from 0 to {asked - 1}")
    if len(np.unique(at)) != given:
        raise InputError(
            "a query has several counterfactuals; keep one of each, so that all methods are"
            " measured alike"
        )
    return at.astype(np.int64)


class _Outcomes(HostOnly):
    """The model's labels, judged: who has a desired outcome, and which rows answers are compared
    with.
    """

    def __init__(
        self, goal: Goal, model: LabelModel, queries: pd.DataFrame, train: pd.DataFrame
    ) -> None:
        goal.check(model.classes, None)
        self._goal, self._model = goal, model
        self._own = model(train)
        # other goals do not depend on who asks
        self._factual = model(queries) if goal.is_opposite else None

    def flipped(self, served: pd.DataFrame, at: NDArray[np.int64]) -> Mask:
        if not len(served):
            return np.zeros(0, dtype=bool)
        return self._goal.met(
            self._model(served), None if self._factual is None else self._factual[at]
        )

    def reference(self, at: NDArray[np.int64]) -> Reference:
        """Return, for answers, the training rows with an outcome that their query asks for."""
        if self._factual is None:
            return [(np.ones(len(at), dtype=bool), self._goal.met(self._own))]
        return [
            (self._factual[at] == label, self._own != label) for label in pd.unique(self._factual)
        ]

    def fresh(
        self, outside: pd.DataFrame, random: np.random.Generator
    ) -> tuple[pd.DataFrame, Reference]:
        """Return holdout rows with an outcome that some query asks for, and the training rows to
        compare them with.
        """
        labels = self._model(outside)
        if self._factual is None:
            good = self._goal.met(labels)
        else:
            good = np.any([labels != label for label in pd.unique(self._factual)], axis=0)
        at = np.flatnonzero(good)
        if len(at) > _FRESH:
            at = np.sort(random.choice(at, _FRESH, replace=False))
        if self._factual is None:
            return outside.take(at), self.reference(at)
        return outside.take(at), [
            (labels[at] == label, self._own == label) for label in pd.unique(labels[at])
        ]


class _TrainingRows(HostOnly):
    """The rows of a population, and what makes values near (ranges), equal (precision) or similar
    (bins).
    """

    def __init__(self, population: Population) -> None:
        self._population = population
        base, domains, schema = Heom.of(population), population.domains, population.schema
        declared = {
            name: bounds for name in base.numeric if (bounds := schema[name].bounds) is not None
        }
        self.ranges = {
            name: "declared" if name in declared else "population" for name in base.numeric
        }
        widths = {name: high - low for name, (low, high) in declared.items()}
        self.heom = Heom(base.numeric, base.categorical, {**base.ranges, **widths})
        self.codes = self.heom.encode(population.frame)
        self._edges = [_edges(domains[name], declared.get(name)) for name in base.numeric]
        self._precision = np.array(
            [0.0 if domains[name].is_date else _SINGLE for name in base.numeric]
        )

    def changed(self, a: HeomCodes, b: HeomCodes) -> Mask:
        """Say feature by feature whether row i of `a` has another value than row i of `b`."""
        missing, other = np.isnan(a.numbers), np.isnan(b.numbers)
        with np.errstate(invalid="ignore"):
            far = np.abs(a.numbers - b.numbers) > np.abs(b.numbers) * self._precision
        return np.hstack([np.where(missing | other, missing ^ other, far), a.codes != b.codes])

    def support(
        self, rows: HeomCodes, reference: Reference, random: np.random.Generator
    ) -> Support:
        """Compare rows with all training rows; the nearest ones are among those in `reference`."""
        one, five = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        features = len(self.heom.numeric) + len(self.heom.categorical)
        for asked, wanted in reference:
            if asked.any() and wanted.any():
                few = rows.take(asked), self.codes.take(wanted)
                found = self.heom.nearest(*few, k=min(5, int(wanted.sum())))[1] * features
                one[asked], five[asked] = found[:, 0], found.mean(axis=1)
        return Support(
            mean_of(one, random),
            mean_of(five, random),
            share_of(self._have_unseen_pair(rows)),
            share_of(self.fit_one(rows, self.codes, self._population.people)),
        )

    def are_copies(self, rows: HeomCodes, table: HeomCodes) -> Mask:
        return np.isin(*self._keys(rows, table, [*self.heom.numeric, *self.heom.categorical]))

    def fit_one(
        self, rows: HeomCodes, table: HeomCodes, people: Callable[[NDArray[np.int64]], int] = len
    ) -> Mask:
        """Say for each row whether exactly one person of a table has its quasi-identifiers."""
        own, others = self._keys(rows, table, self._population.schema.quasi_identifiers)
        wanted, at = np.unique(own, return_inverse=True)
        order = np.argsort(others, kind="stable")
        first, last = (
            np.searchsorted(others[order], wanted, side=side) for side in ("left", "right")
        )
        alone = [
            people(order[i:j]) == 1 for i, j in zip(first.tolist(), last.tolist(), strict=True)
        ]
        return np.array(alone, dtype=np.bool_)[at.reshape(-1)]

    def _have_unseen_pair(self, rows: HeomCodes) -> Mask:
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

    def _keys(
        self, rows: HeomCodes, table: HeomCodes, names: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return a number per row of either table; equal where these features agree in single
        precision.
        """
        columns: dict[str, NDArray[Any]] = {}
        for name in names:
            if name in self.heom.ranges:
                j = self.heom.numeric.index(name)
                known = table.numbers[:, j]
                columns[name] = np.append(
                    _snap(rows.numbers[:, j], known, self._precision[j]), known
                )
            else:
                j = self.heom.categorical.index(name)
                columns[name] = np.append(rows.codes[:, j], table.codes[:, j])
        groups = pd.DataFrame(columns).groupby([*columns], dropna=False, sort=False)
        keys: NDArray[np.int64] = np.asarray(groups.ngroup(), dtype=np.int64)
        return keys[: len(rows)], keys[len(rows) :]


def _edges(domain: Domain, bounds: tuple[float, float] | None) -> NDArray[np.float64]:
    """Return the edges of a number's bins: the declared ones, else 16 of equal width over the
    range.
    """
    if domain.attribute.bins is not None:
        return np.array(domain.attribute.bins)
    low, high = bounds or (
        (float(domain.values[0]), float(domain.values[-1])) if len(domain.values) else (0.0, 0.0)
    )
    return (
        np.linspace(low, high, _BINS + 1)
        if high > low
        else np.array([low, np.nextafter(low, np.inf)])
    )


def _snap(
    numbers: NDArray[np.float64], known: NDArray[np.float64], precision: float
) -> NDArray[np.float64]:
    """Return numbers, each replaced by the nearest known one where the two agree to a precision."""
    values = np.unique(known[~np.isnan(known)])
    if not len(values) or not precision:
        return numbers
    right = np.searchsorted(values, numbers).clip(max=len(values) - 1)
    left = (right - 1).clip(min=0)
    nearest = np.where(
        np.abs(values[left] - numbers) < np.abs(values[right] - numbers),
        values[left],
        values[right],
    )
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(nearest - numbers) <= np.abs(nearest) * precision, nearest, numbers)


def _chance(
    rows: HeomCodes,
    outside: pd.DataFrame,
    training: _TrainingRows,
    outcomes: _Outcomes,
    random: np.random.Generator,
) -> Chance:
    """Measure holdout rows as if they were counterfactuals, against equally many rows of either
    table.
    """
    chosen, reference = outcomes.fresh(outside, random)
    fresh = training.support(training.heom.encode(chosen), reference, random)
    others = training.heom.encode(outside)
    n = min(len(training.codes), len(others))
    train, holdout = (
        (
            codes
            if n == len(codes)
            else codes.take(np.sort(random.choice(len(codes), n, replace=False)))
        )
        for codes in (training.codes, others)
    )
    return Chance(
        fresh=fresh,
        copies_train=share_of(training.are_copies(rows, train)),
        copies_holdout=share_of(training.are_copies(rows, holdout)),
        singled_out_train=share_of(training.fit_one(rows, train)),
        singled_out_holdout=share_of(training.fit_one(rows, holdout)),
        rows=n,
    )


def _is_above(found: Estimate, chance: Estimate) -> bool | None:
    return found.low > chance.high if found.n and chance.n else None
