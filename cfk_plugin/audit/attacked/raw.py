"""An owner who gives out counterfactuals as the explainer finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from cfk_plugin.audit.attacked import reading
from cfk_plugin.audit.attacked.models import seeded
from cfk_plugin.audit.attacked.sample import Mask, Sample
from cfk_plugin.audit.attacked.service import Answers, Service
from cfk_plugin.audit.attacked.trained import DESIRED, Trained, fitted
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins


class ExplainerFactory(Protocol):
    """Makes an explainer of what was trained. It can be pickled where attacks run in several processes."""

    def __call__(self, train: pd.DataFrame, labels: Mask, model: Any, desired: Any, seed: int) -> Any:
        """Return anything that `protect` can wrap: an explainer that a plugin knows, or a callable.

        Parameters
        ----------
        train : DataFrame
            Features of the training people.
        labels : bool array
            Their true outcomes.
        model : estimator
            Fitted; its labels are True and False.
        desired : True
        seed : int
        """
        ...


@dataclass(frozen=True, slots=True, repr=False)
class RawOwner:
    """Trains a model and answers with raw counterfactuals: what is leaked without any protection.

    Parameters
    ----------
    name : str
    model : scikit-learn classifier or pipeline
        Not fitted; takes a DataFrame; cloned and seeded for every training.
    explainer : ExplainerFactory
    """

    name: str
    model: Any
    explainer: ExplainerFactory

    def __repr__(self) -> str:
        """Name the owner."""
        return f"RawOwner({self.name!r})"

    @property
    def policy(self) -> Mapping[str, Any] | None:
        """None: nothing is protected."""
        return None

    def architecture(self, seed: int) -> Any:
        """Return the kind of model that is trained; see `KnownArchitecture`."""
        return seeded(self.model, seed)

    def train(self, people: Sample, seed: int) -> Service:
        """Train on these people and return what can be asked.

        Raises
        ------
        InputError, ModelError
            As `fitted`.
        AdapterError
            If no adapter knows the explainer; when asked, if it raises or its answers cannot be read.
        """
        model = fitted(self.model, people, seed)
        explainer = self.explainer(people.X, people.y, model, DESIRED, seed)
        source = load_plugins().adapt(explainer, AdaptContext(tuple(people.X.columns), None))

        def answer(queries: pd.DataFrame) -> Answers:
            return reading.raw(source.generate(queries.reset_index(drop=True)), queries)

        return Trained(model, answer)
