"""An owner who protects what the explainer finds: regions of k people."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from cfk_plugin._protect import protect
from cfk_plugin.audit.attacked import reading
from cfk_plugin.audit.attacked.models import seeded
from cfk_plugin.audit.attacked.raw import ExplainerFactory
from cfk_plugin.audit.attacked.sample import Sample
from cfk_plugin.audit.attacked.service import Answers, Service
from cfk_plugin.audit.attacked.trained import DESIRED, Trained, fitted
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, NominalGuaranteeWarning
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explanations import Explanations


@dataclass(frozen=True, slots=True, repr=False)
class ProtectedOwner:
    """Trains a model and answers with what `protect` releases; or from the catalogue, without an explainer.

    Parameters
    ----------
    name : str
    model : scikit-learn classifier or pipeline
        Not fitted; takes a DataFrame; cloned and seeded for every training.
    explainer : ExplainerFactory, optional
        None: queries are answered from the catalogue, which needs ``guarantee="catalogue"``.
    quasi_identifiers : tuple of str
        Kinds and domains of all columns are then read from each training table, as `Schema.from_frame` does.
    schema : Schema, optional
        One for all trainings, in the place of `quasi_identifiers`.
    rules : PrivacyPolicy
    method : str
        See `KAnonymizer`.
    """

    name: str
    model: Any
    explainer: ExplainerFactory | None
    quasi_identifiers: tuple[str, ...] = ()
    schema: Schema | None = None
    rules: PrivacyPolicy = field(default_factory=PrivacyPolicy)
    method: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what no training could make up for."""
        if (self.schema is None) == (not self.quasi_identifiers):
            raise InputError(f"owner {self.name!r}: give quasi_identifiers or a schema, one of both")
        if self.explainer is None and self.rules.guarantee != "catalogue":
            raise InputError(f'owner {self.name!r}: answers without an explainer need guarantee="catalogue"')

    def __repr__(self) -> str:
        """Name the owner."""
        return f"ProtectedOwner({self.name!r})"

    @property
    def policy(self) -> Mapping[str, Any]:
        """Settings of the policy, for reports."""
        return self.rules.to_dict()

    def architecture(self, seed: int) -> Any:
        """Return the kind of model that is trained; see `KnownArchitecture`."""
        return seeded(self.model, seed)

    def train(self, people: Sample, seed: int) -> Service:
        """Train on these people and return what can be asked.

        Raises
        ------
        InputError, ModelError
            As `fitted`.
        CFKError
            If people, policy and explainer do not fit together; see `protect`.
        """
        model = fitted(self.model, people, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NominalGuaranteeWarning)  # for who releases; here it is measured
            explain = self._explain(model, people, seed)

        def answer(queries: pd.DataFrame) -> Answers:
            return reading.released(explain(queries.reset_index(drop=True)), queries)

        return Trained(model, answer)

    def _explain(self, model: Any, people: Sample, seed: int) -> Callable[[pd.DataFrame], Explanations]:
        schema = self.schema or Schema.from_frame(people.X, quasi_identifiers=self.quasi_identifiers)
        population = Population.from_frame(people.X, schema)
        if self.explainer is None:
            anonymizer = KAnonymizer(policy=self.rules, method=self.method, seed=seed)
            return anonymizer.fit(population, model=model, desired=DESIRED).explain
        explainer = self.explainer(people.X, people.y, model, DESIRED, seed)
        settings: dict[str, Any] = {"policy": self.rules, "method": self.method, "seed": seed}
        private = protect(explainer, model=model, population=population, desired=DESIRED, **settings)
        return private.explain
