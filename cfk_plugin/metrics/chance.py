"""What chance gives: the figures of people who are not in the training rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.metrics.copies import fits_one, is_copy
from cfk_plugin.metrics.estimate import Estimate, share_of
from cfk_plugin.metrics.support import Support, support_of

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.heom import HeomCodes
    from cfk_plugin.metrics.feature_space import FeatureSpace
    from cfk_plugin.metrics.wanted import Wanted
    from cfk_plugin.population import Population

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
