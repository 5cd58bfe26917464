"""Utility: what counterfactuals are worth to those who get them, measured alike for every method that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.goal import Goal
from cfk_plugin.label_model import LabelModel
from cfk_plugin.metrics.chance import Chance, chance_of
from cfk_plugin.metrics.copies import is_copy
from cfk_plugin.metrics.estimate import Estimate, mean_of, share_of
from cfk_plugin.metrics.feature_space import FeatureSpace
from cfk_plugin.metrics.served import Served, conformed
from cfk_plugin.metrics.support import support_of
from cfk_plugin.metrics.wanted import Wanted

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from cfk_plugin.population import Population


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
