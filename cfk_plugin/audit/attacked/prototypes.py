"""An owner who answers with differentially private rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cfk_plugin.audit.attacked import reading
from cfk_plugin.audit.attacked.models import seeded
from cfk_plugin.audit.attacked.sample import Sample
from cfk_plugin.audit.attacked.service import Answers, Service
from cfk_plugin.audit.attacked.trained import DESIRED, Trained, fitted
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.dp.domain import infer_domains
from cfk_plugin.dp.prototypes import DPPrototypes, policy_of
from cfk_plugin.errors import PrivacyLeakWarning


@dataclass(frozen=True, slots=True, repr=False)
class PrototypeOwner:
    """Trains a model and answers with rows of a differentially private model of the people (`DPPrototypes`).

    The model itself is trained without any noise: epsilon covers the rows, not which of them the model accepts.

    Parameters
    ----------
    name : str
    model : scikit-learn classifier or pipeline
        Not fitted; takes a DataFrame; cloned and seeded for every training.
    schema : Schema
        Declares the public domain of every feature; `measured_schema` reads one from a sample, to measure with.
    epsilon, delta : float
        Budget of each training.
    revert : bool
        Whether rows are moved towards the query, as far as the model allows. It leaks.
    rows : int
        Number of rows that are drawn.
    repeatable : bool
        Noise by the training's seed, for tests: the owner is then a function of people and seed, and nothing is
        guaranteed. Otherwise the noise is the operating system's, as where it is served.
    """

    name: str
    model: Any
    schema: Schema
    epsilon: float = 1.0
    delta: float = 0.0
    revert: bool = False
    rows: int = 60_000
    repeatable: bool = False

    def __repr__(self) -> str:
        """Name the owner."""
        return f"PrototypeOwner({self.name!r}, epsilon={self.epsilon!r})"

    @property
    def policy(self) -> Mapping[str, Any]:
        """Settings that the guarantee depends on, for reports."""
        return policy_of(self._prototypes(0)).to_dict()

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
            If people, schema and settings do not fit together; see `DPPrototypes.fit`.
        """
        model = fitted(self.model, people, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # for who releases; here it is measured
            population = Population.from_frame(people.X, self.schema)
            prototypes = self._prototypes(seed).fit(population, model=model, desired=DESIRED)

        def answer(queries: pd.DataFrame) -> Answers:
            return reading.released(prototypes.explain(queries.reset_index(drop=True)), queries)

        return Trained(model, answer)

    def _prototypes(self, seed: int) -> DPPrototypes:
        noise = seed if self.repeatable else None
        return DPPrototypes(self.epsilon, delta=self.delta, rows=self.rows, revert=self.revert, seed=noise)


def measured_schema(people: Sample, quasi_identifiers: Sequence[str]) -> Schema:
    """Read public domains from a whole sample, for measuring alone.

    All tables of an attack are drawn from the sample, so that domains are the same whoever is trained on. But they are
    read from rows: what is fitted with this schema certifies that nothing is guaranteed. Declare domains instead where
    there is something to release.

    Parameters
    ----------
    people : Sample
    quasi_identifiers : sequence of str

    Returns
    -------
    Schema
        With bounds and categories marked as learned.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # the certificates say so
        return infer_domains(people.X, Schema.from_frame(people.X, quasi_identifiers=quasi_identifiers))
