"""Who trains and answers, as attacks see it: an owner makes a service of a training table, and people ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attacked.sample import Mask, Sample

if TYPE_CHECKING:
    from cfk_plugin.release.explanations import Explanations

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Answers:
    """What a service answered to a table of queries. Host side only: raw answers may be training rows.

    Attributes
    ----------
    rows : DataFrame, shape (n_queries, n_features)
        One instance per query, as an attacker reads the answer: a raw counterfactual as it is; of a region the
        instance nearest to the query, with the released values. Every value of an answer that was not given is
        missing. Columns and index are those of the queries.
    found : bool array, shape (n_queries,)
        Whether there was an answer.
    explanations : Explanations, optional
        What a protected explainer released, where one was asked.
    """

    rows: pd.DataFrame
    found: Mask
    explanations: Explanations | None = None

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Answers({int(self.found.sum())} of {len(self.found)})"


class Service(Protocol):
    """A model with an explainer in front of it, as somebody sees it who may ask it."""

    def confidence(self, X: pd.DataFrame) -> Floats:
        """Return the model's probability of the desired outcome, one per row, in [0, 1]."""
        ...

    def desired(self, X: pd.DataFrame) -> Mask:
        """Say of each row whether the model gives it the desired outcome."""
        ...

    def explain(self, X: pd.DataFrame) -> Answers:
        """Answer queries that the model does not give the desired outcome."""
        ...


class Owner(Protocol):
    """Somebody who trains a model on people and explains it: the whole way from a table to answers.

    Attacks train again, on other people, to learn what answers look like without somebody: so an owner must be a
    function of people and seed alone. It can be pickled where it is to run in several processes.
    """

    @property
    def name(self) -> str:
        """Short, for tables: ``nice``, ``reciprocal``, ``dp``. Also an attribute, which nobody needs to change."""
        ...

    def train(self, people: Sample, seed: int) -> Service:
        """Train on these people and return what can be asked."""
        ...


@runtime_checkable
class KnownArchitecture(Protocol):
    """An owner who can say what kind of model it trains; optional. Attackers who copy models may know as much."""

    def architecture(self, seed: int) -> Any:
        """Return a new classifier of the kind that is trained, with its settings, that knows nothing of anybody.

        It follows scikit-learn (``fit``, ``predict``, ``predict_proba``, ``classes_``) and takes a DataFrame with the
        columns and dtypes of the people.
        """
        ...
