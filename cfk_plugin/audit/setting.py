"""What is attacked: an anonymizer, the counterfactuals it protects, and what the attacks may use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.releases import Crowd, Mask, Places, Releases, Rows
from cfk_plugin.audit.result import check_seed
from cfk_plugin.data.intake import require_features
from cfk_plugin.data.population import Population
from cfk_plugin.errors import InputError, NotFittedError
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations

_BLOCK = 50_000  # rows that a model is given at once


@dataclass(frozen=True, repr=False, eq=False)
class Setting:
    """An anonymizer under attack. Host side only: it holds rows, and refuses to be pickled.

    Nothing is released before the first attack; all attacks look at the same releases.

    Parameters
    ----------
    anonymizer : KAnonymizer
        Fitted. Attacks release through it: it must have no ledger, and no plugin that counts releases for real.
    counterfactuals : DataFrame, shape (n, n_features or more)
        Raw counterfactuals, as an explainer returned them.
    queries : DataFrame, optional
        The instance behind each counterfactual; needed for ``desired="opposite"``.
    holdout : DataFrame, optional
        People who are not in the training table, with every feature: the control of the attacks.
    seed : int
        Of everything that is drawn.
    limit : int
        Most counterfactuals attacked; more are sampled, without replacement.

    Raises
    ------
    NotFittedError
        If the anonymizer was not fitted.
    InputError
        If a table lacks features, queries and counterfactuals differ in number, or the anonymizer has a ledger.
    """

    anonymizer: KAnonymizer
    counterfactuals: pd.DataFrame
    queries: pd.DataFrame | None = None
    holdout: pd.DataFrame | None = None
    seed: int = 0
    limit: int = 100

    def __post_init__(self) -> None:
        """Check tables and settings before anything is asked of the model."""
        if not hasattr(self.anonymizer, "population_"):
            raise NotFittedError("call fit(population, model=..., desired=...) on the anonymizer first")
        if self.anonymizer.ledger is not None:
            raise InputError("an audit would put its releases on record; give it an anonymizer without a ledger")
        check_seed(self.seed)
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or self.limit < 1:
            raise InputError("limit must be a whole number of at least 1")
        require_features(self.counterfactuals, self.population.schema.features, "counterfactuals")
        if self.queries is not None:
            require_features(self.queries, self.population.schema.features, "queries")
            if len(self.queries) != len(self.counterfactuals):
                raise InputError(
                    f"{len(self.queries)} queries for {len(self.counterfactuals)} counterfactuals; give one each"
                )
        if self.holdout is not None:
            require_features(self.holdout, self.population.schema.features, "holdout")

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Setting({self.anonymizer!r}, {min(len(self.counterfactuals), self.limit)} counterfactuals)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold rows."""
        raise InputError("an audit holds training rows and refuses to be pickled; keep its report")

    @property
    def population(self) -> Population:
        """The training rows."""
        return self.anonymizer.population_

    @property
    def k(self) -> int:
        """The policy's k."""
        return self.anonymizer.policy_.k

    @cached_property
    def raw(self) -> pd.DataFrame:
        """The counterfactuals attacked, features alone."""
        return self._sampled(self.counterfactuals)

    @cached_property
    def factuals(self) -> pd.DataFrame | None:
        """The instances behind them."""
        return None if self.queries is None else self._sampled(self.queries)

    @cached_property
    def explanations(self) -> Explanations:
        """What the anonymizer releases for them."""
        return self.anonymizer.transform(self.raw, self.factuals)

    @cached_property
    def crowd(self) -> Crowd:
        """The people of the training table."""
        return Crowd(self.population, self.population)

    @cached_property
    def outsiders(self) -> Crowd | None:
        """The people of the holdout."""
        if self.holdout is None:
            return None
        return Crowd(Population.from_frame(self.holdout, self.population.schema), self.population)

    @cached_property
    def releases(self) -> Releases:
        """The released ones among `explanations`."""
        return Releases(list(self.explanations), self.raw, self.crowd)

    @cached_property
    def places(self) -> Places:
        """Who is inside the released regions, by distinct quasi-identifiers."""
        return self.releases.places()

    @cached_property
    def consistent(self) -> list[Mask]:
        """Per release and row inside: whether own quasi-identifiers with the released values are desired."""
        return self.places.spread(self.desired(self.places, self.releases))

    @cached_property
    def memory(self) -> dict[object, Any]:
        """What one attack found out and another needs as well."""
        return {}

    @cached_property
    def row_labels(self) -> NDArray[Any]:
        """The model's label of every training row."""
        return self.labels(self.population.conform(self.population.frame))

    def labels(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels, asked block by block."""
        model = self.anonymizer.model_
        parts = [model(frame.iloc[at : at + _BLOCK]).astype(object) for at in range(0, len(frame), _BLOCK)]
        return np.concatenate([np.empty(0, dtype=object), *parts])

    def desired(self, places: Places, releases: Releases) -> Mask:
        """Say of every place whether the released values would be desired there."""
        if not len(places):
            return np.zeros(0, dtype=bool)
        return self.judge(self.labels(places.questions(releases.private)), releases.at[places.which])

    def judge(self, labels: NDArray[Any], at: Rows) -> Mask:
        """Say of labels whether they are what the counterfactuals at these positions are after."""
        return np.asarray(self._judge(labels, at), dtype=bool)

    @cached_property
    def _judge(self) -> Any:
        goal = self.anonymizer.goal_
        if not goal.is_opposite:
            return goal.judge(None, np.empty(0, dtype=object))
        factual = None if self.factuals is None else self.anonymizer.factual_labels(self.factuals)
        own = self.labels(self.population.conform(self.raw)) if factual is None else np.empty(0, dtype=object)
        return goal.judge(factual, own)

    def _sampled(self, frame: pd.DataFrame) -> pd.DataFrame:
        features = frame[list(self.population.schema.features)].reset_index(drop=True)
        if len(features) <= self.limit:
            return features
        chosen = np.random.default_rng(self.seed).choice(len(features), self.limit, replace=False)
        return features.take(np.sort(chosen)).reset_index(drop=True)
