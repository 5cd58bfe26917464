"""Utility: what counterfactuals are worth to those who get them, measured alike for every method that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.columns import to_numbers
from cfk_plugin.data.intake import require_features
from cfk_plugin.data.model import Goal, LabelModel
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import FeatureSpace
from cfk_plugin.metrics.intervals import Estimate, mean_of, share_of
from cfk_plugin.metrics.plausibility import Support, fits_one, is_copy, support_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from cfk_plugin.data.population import Population
    from cfk_plugin.metrics.heom import HeomCodes
    from cfk_plugin.metrics.plausibility import Reference


# What was asked and what was answered, checked and in the population's terms.


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Served:
    """Queries and their counterfactuals. Host side only."""

    queries: pd.DataFrame  # Every query, answered or not, in the population's columns and dtypes
    counterfactuals: pd.DataFrame  # Likewise
    answered: NDArray[np.int64]  # Position of the query of each counterfactual

    @classmethod
    def read(
        cls, queries: pd.DataFrame, counterfactuals: pd.DataFrame, answered: ArrayLike | None, population: Population
    ) -> Served:
        """Check both tables and which counterfactual answers which query."""
        asked = conformed(queries, population, "queries")
        if isinstance(counterfactuals, pd.DataFrame) and not len(counterfactuals):
            given = asked.head(0)  # a method that never answered has no columns either
        else:
            given = conformed(counterfactuals, population, "counterfactuals")
        return cls(asked, given, _positions(answered, len(given), len(asked)))


def conformed(frame: pd.DataFrame, population: Population, what: str) -> pd.DataFrame:
    """Return the features of a table in the population's columns and dtypes."""
    table = require_features(frame, population.schema.features, what)
    numeric = [name for name in population.schema.features if population.schema[name].kind == "numeric"]
    if wrong := [name for name in numeric if to_numbers(table[name])[1].any()]:
        raise InputError(
            f"{what}: {', '.join(wrong)} must hold finite numbers; give one row of values per counterfactual, and for "
            "a region a row that stands for it"
        )
    return population.conform(table)


def _positions(answered: ArrayLike | None, given: int, asked: int) -> NDArray[np.int64]:
    if answered is None:
        if given not in (0, asked):
            raise InputError(
                f"there are {given} counterfactuals for {asked} queries; say with answered= which queries they answer"
            )
        return np.arange(given)
    at = np.asarray(answered)
    if at.ndim != 1 or len(at) != given or (at.dtype.kind not in "iu" and given):
        raise InputError(f"answered must be {given} whole numbers: the position of the query of each counterfactual")
    if given and (at.min() < 0 or at.max() >= asked):
        raise InputError(f"answered must be positions of queries, from 0 to {asked - 1}")
    if len(np.unique(at)) != given:
        raise InputError(
            "a query has several counterfactuals; keep one of each, so that all methods are measured alike"
        )
    return at.astype(np.int64)


# Which outcomes are wanted: at the answers, and among the rows that answers are held against.


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wanted:
    """The model's labels, judged. Host side only."""

    goal: Goal
    model: LabelModel
    served: Served
    own: NDArray[Any]  # Label of every training row
    factual: NDArray[Any]  # Label of every query; empty unless the goal depends on it
    flipped: NDArray[np.bool_]  # Whether each counterfactual has the desired outcome

    @classmethod
    def ask(cls, goal: Goal, model: LabelModel, served: Served, train: pd.DataFrame) -> Wanted:
        """Ask the model for all labels that are needed."""
        goal.check(model, None)
        own = model(train)
        factual = model(served.queries) if goal.is_opposite else own[:0]
        flipped = np.zeros(0, dtype=bool)
        if len(served.counterfactuals):
            labels = model(served.counterfactuals)
            flipped = goal.met(labels, factual[served.answered] if goal.is_opposite else None)
        return cls(goal, model, served, own, factual, flipped)

    def references(self) -> Reference:
        """Return, for the answers, the training rows with an outcome that their query is after."""
        at = self.served.answered
        if not self.goal.is_opposite:
            return [(np.ones(len(at), dtype=bool), self.goal.met(self.own))]
        return [(self.factual[at] == label, self.own != label) for label in pd.unique(self.factual)]

    def fresh(self, outside: pd.DataFrame, most: int, random: np.random.Generator) -> tuple[pd.DataFrame, Reference]:
        """Return rows of a holdout with an outcome that some query is after, and what to hold them against.

        That is the training rows with a wanted outcome; where it depends on the query, those of the same outcome.
        """
        labels = self.model(outside)
        if self.goal.is_opposite:
            good = np.any([labels != label for label in pd.unique(self.factual)], axis=0)
        else:
            good = self.goal.met(labels)
        at = np.flatnonzero(good)
        if len(at) > most:
            at = np.sort(random.choice(at, most, replace=False))
        if not self.goal.is_opposite:
            return outside.take(at), [(np.ones(len(at), dtype=bool), self.goal.met(self.own))]
        return outside.take(at), [(labels[at] == label, self.own == label) for label in pd.unique(labels[at])]


# What chance gives: the figures of people who are not in the training rows.

_FRESH = 1000  # rows that are held against the training rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What chance gives, measured on a holdout.

    Attributes
    ----------
    fresh : Support
        Of at most 1,000 holdout rows with the desired outcome, in the place of counterfactuals.
    copies_train, copies_holdout : Estimate
        Share of the counterfactuals that equal one of `rows` training rows, and one of `rows` holdout rows.
    singled_out_train, singled_out_holdout : Estimate
        Share with the quasi-identifiers of exactly one of `rows` training rows, and of exactly one of `rows` holdout
        rows.
    rows : int
        Rows drawn from either table for these four: all of the shorter one.
    """

    fresh: Support
    copies_train: Estimate
    copies_holdout: Estimate
    singled_out_train: Estimate
    singled_out_holdout: Estimate
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.to_dict() if isinstance(v, Support | Estimate) else v for k, v in content.items()}


def chance_of(
    outside: pd.DataFrame,
    rows: HeomCodes,
    table: HeomCodes,
    wanted: Wanted,
    population: Population,
    space: FeatureSpace,
    random: np.random.Generator,
) -> Chance:
    """Measure holdout rows as if they were counterfactuals, and hold counterfactuals against holdout rows.

    Against equally many rows of either table: a longer one has more rows to be equal to.
    """
    chosen, reference = wanted.fresh(outside, _FRESH, random)
    fresh = support_of(space.heom.encode(chosen), table, reference, population, space, random)
    others, quasi = space.heom.encode(outside), population.schema.quasi_identifiers
    n = min(len(table), len(others))
    train, holdout = (_draw(codes, n, random) for codes in (table, others))
    return Chance(
        fresh=fresh,
        copies_train=share_of(is_copy(rows, train, space)),
        copies_holdout=share_of(is_copy(rows, holdout, space)),
        singled_out_train=share_of(fits_one(rows, train, quasi, space)),
        singled_out_holdout=share_of(fits_one(rows, holdout, quasi, space)),
        rows=n,
    )


def _draw(codes: HeomCodes, n: int, random: np.random.Generator) -> HeomCodes:
    return codes if n == len(codes) else codes.take(np.sort(random.choice(len(codes), n, replace=False)))


# Utility: what counterfactuals are worth to those who get them, measured alike for every method that made them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Utility:
    """Figures of a set of counterfactuals, whatever made them. Means are over the answered queries.

    Counts, means and shares alone: nothing in it is a value of a row. Figures of copies and of people who are singled
    out say something of training rows all the same and are for the data holder. None of the figures is a guarantee.

    Attributes
    ----------
    flipping_ratio : Estimate
        Share of all queries with a counterfactual that has the desired outcome; higher is better.
    l1, euclidean : Estimate
        Distance to the query: sum, and root of the sum of squares, over features; lower is better.
    features_changed : Estimate
        Number of features with another value than the query's; lower is better.
    nn1, nn5 : Estimate
        L1 distance to the nearest training row with the desired outcome, and its mean to the 5 nearest.
    unseen_pair : Estimate
        Share with two values that no training row has together; lower is better.
    copies : Estimate
        Share that equal a training row; lower is better.
    singled_out : Estimate
        Share whose quasi-identifiers exactly one person of the training rows has; lower is better.
    chance : Chance or None
        What chance gives, where a holdout was given.
    queries, training_rows, desired_rows : int
        Queries asked; training rows; those of them that have an outcome which a query is after.
    ranges : mapping
        Numeric feature to ``"declared"`` or ``"population"``: where the range of its distance comes from.
    """

    flipping_ratio: Estimate
    l1: Estimate
    euclidean: Estimate
    features_changed: Estimate
    nn1: Estimate
    nn5: Estimate
    unseen_pair: Estimate
    copies: Estimate
    singled_out: Estimate
    chance: Chance | None
    queries: int
    training_rows: int
    desired_rows: int
    ranges: Mapping[str, str]

    @property
    def answered(self) -> int:
        """Number of queries with a counterfactual."""
        return self.l1.n

    @property
    def above_chance(self) -> dict[str, bool | None]:
        """Whether there are more copies, and more people singled out, than chance gives; None without a holdout.

        True where the interval among training rows lies above that among equally many holdout rows. False is no
        evidence of protection.
        """
        found = self.chance
        if found is None:
            return {"copies": None, "singled_out": None}
        return {
            "copies": _is_above(found.copies_train, found.copies_holdout),
            "singled_out": _is_above(found.singled_out_train, found.singled_out_holdout),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        content = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return content | {"answered": self.answered, "above_chance": self.above_chance}


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
    """Measure counterfactuals of any method: how often they flip, how far they are, how well the data supports them.

    Parameters
    ----------
    queries : DataFrame
        Every query asked, with every feature of the schema.
    counterfactuals : DataFrame
        At most one row per query: raw, of a differentially private method, or a row that stands for a region.
    population : Population
        Of the training rows, with its rows.
    model : estimator or callable
        From rows in the training table's columns and dtypes to labels.
    desired : label or callable or "opposite"
        As of `KAnonymizer.fit`; ``"opposite"`` is any label but the query's own.
    answered : int array, optional
        Position of the query of each counterfactual, where not all queries have one. Default: row i answers query i.
    holdout : DataFrame, optional
        People who are not in the training rows: says what chance gives.
    random_state : int or Generator, optional
        Seed of the bootstrap and of the rows drawn from the holdout.

    Returns
    -------
    Utility
        Means and nearest rows are of all answers, whether or not they flip.

    Raises
    ------
    InputError
        If a table lacks a feature or holds what is no number, or `answered` does not fit.
    ModelError
        If the model fails or does not know the desired label.
    PopulationError
        If the population has no rows here.

    Notes
    -----
    Intervals take queries as independent draws: answers that share a row make them too narrow. Formulas are in
    ``docs/reference/metrics.md``.

    References
    ----------
    Yang, Feng, Zhou, Chen, Hu (2022), Differentially private counterfactuals via functional mechanism, equations 20
    and 21.
    """
    served = Served.read(queries, counterfactuals, answered, population)
    outside = None if holdout is None else conformed(holdout, population, "holdout")
    train, space, random = population.frame, FeatureSpace.of(population), np.random.default_rng(random_state)
    wanted = Wanted.ask(Goal(desired), LabelModel(model, population.schema.features), served, train)
    table, rows = space.heom.encode(train), space.heom.encode(served.counterfactuals)
    asked = space.heom.encode(served.queries).take(served.answered)
    parts = space.heom.parts(rows, asked)
    flips = np.zeros(len(served.queries), dtype=bool)
    flips[served.answered] = wanted.flipped
    support = support_of(rows, table, wanted.references(), population, space, random)
    return Utility(
        flipping_ratio=share_of(flips),
        l1=mean_of(parts.sum(axis=1), random),
        euclidean=mean_of(np.sqrt(np.square(parts).sum(axis=1)), random),
        features_changed=mean_of(space.changed(rows, asked).sum(axis=1), random),
        nn1=support.nn1,
        nn5=support.nn5,
        unseen_pair=support.unseen_pair,
        copies=share_of(is_copy(rows, table, space)),
        singled_out=support.singled_out,
        chance=None if outside is None else chance_of(outside, rows, table, wanted, population, space, random),
        queries=len(flips),
        training_rows=len(table),
        desired_rows=int(np.any([mask for _, mask in wanted.references()], axis=0).sum()),
        ranges=MappingProxyType(
            {name: "declared" if name in space.declared else "population" for name in space.heom.numeric}
        ),
    )


def _is_above(found: Estimate, chance: Estimate) -> bool | None:
    return found.low > chance.high if found.n and chance.n else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return value.to_dict() if isinstance(value, Estimate | Chance) else value
