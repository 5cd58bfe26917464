"""What an attacker learns by asking, and a model trained on it: the surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked import Owner, Sample, Service
from cfk_plugin.audit.attacked.sample import Mask, Rows
from cfk_plugin.audit.extraction.architecture import Architecture
from cfk_plugin.audit.extraction.failing import called
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.data.values import conform
from cfk_plugin.errors import ModelError


def train(owner: Owner, people: Sample, seed: int) -> Service:
    """Let the owner train; see `called` for what is raised."""
    return called("the owner's training", lambda: owner.train(people, seed))


def outcomes(service: Service, X: pd.DataFrame) -> Mask:
    """Ask the model whether rows get the desired outcome."""
    found = called("the owner's model", lambda: np.asarray(service.desired(X), dtype=bool).reshape(-1))
    if len(found) != len(X):
        raise ModelError(f"the owner's model gave {len(found)} outcomes for {len(X)} rows; it must give one each")
    return found


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Transfer:
    """Queries in the order in which they are asked, and the replies. Holds rows, in memory alone.

    Attributes
    ----------
    X : DataFrame, shape (n, n_features)
    desired : bool array, shape (n,)
        The model's outcome of each.
    rows : DataFrame, shape (n_answers, n_features)
        The counterfactuals.
    query : int64 array, shape (n_answers,), ascending
        Position of the query that each answers.
    """

    X: pd.DataFrame
    desired: Mask
    rows: pd.DataFrame
    query: Rows

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Transfer({len(self.X)} queries, {len(self.query)} answers)"

    def answers(self, queries: int) -> int:
        """Return how many of the first queries were answered."""
        return int(np.searchsorted(self.query, queries))

    def undesired(self, queries: int) -> int:
        """Return how many of the first queries got the undesired outcome."""
        return int((~self.desired[:queries]).sum())

    def pairs(self, queries: int, *, explained: bool) -> tuple[pd.DataFrame, Mask]:
        """Return what a surrogate is trained on: the first queries with the model's outcomes, and their answers.

        Answers are labelled with the desired outcome: that is what they are given out for.
        """
        X, desired = self.X.iloc[:queries], self.desired[:queries]
        count = self.answers(queries) if explained else 0
        if not count:
            return X, desired
        both = pd.concat([X, self.rows.iloc[:count]], ignore_index=True)
        return both, np.concatenate([desired, np.ones(count, dtype=bool)])


def ask(service: Service, X: pd.DataFrame, explained: int | None = None) -> Transfer:
    """Ask the model about rows, and for counterfactuals of those with the undesired outcome.

    Parameters
    ----------
    service : Service
    X : DataFrame
    explained : int, optional
        Explanations are asked of the first so many rows alone.

    Returns
    -------
    Transfer
        A value that an answer does not give is the query's own: the advice is to leave it as it is. An answer that
        gives none is no answer.
    """
    X = X.reset_index(drop=True)
    desired = outcomes(service, X)
    undesired = np.flatnonzero(~desired[: len(X) if explained is None else explained])
    queries = X.take(undesired)
    if not len(queries):
        return Transfer(X, desired, queries, undesired)
    answers = called("the owner's explainer", lambda: service.explain(queries))
    found = np.asarray(answers.found, dtype=bool).reshape(-1)
    if len(found) != len(queries) or len(answers.rows) != len(queries):
        raise ModelError(f"the owner's explainer gave {len(answers.rows)} answers to {len(queries)} queries")
    rows = answers.rows[list(X.columns)].set_axis(queries.index)
    found = found & rows.notna().any(axis=1).to_numpy()
    filled = {name: _filled(rows[name][found], queries[name][found]) for name in X}
    return Transfer(X, desired, pd.DataFrame(filled).reset_index(drop=True), undesired[found])


def fit(architecture: Architecture, pairs: tuple[pd.DataFrame, Mask], seed: int) -> Surrogate:
    """Train a surrogate.

    Parameters
    ----------
    architecture : callable
    pairs : tuple of DataFrame and bool array
        Rows, and whether each gets the desired outcome.
    seed : int

    Returns
    -------
    Surrogate
        Where all rows have one outcome, that outcome for everybody: most classifiers refuse to be trained on one.
    """
    X, desired = pairs
    if desired.all() or not desired.any():
        return Surrogate(None, bool(desired[0]))
    return Surrogate(called("training the surrogate", lambda: architecture(seed).fit(X, desired)), False)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Surrogate:
    """A copy of the owner's model, as good as it got.

    Attributes
    ----------
    model : classifier or None
        None: everybody gets `always`.
    always : bool
    """

    model: Any
    always: bool

    def __repr__(self) -> str:
        """Name the model's class, never a value."""
        return f"Surrogate({type(self.model).__name__})"

    def desired(self, X: pd.DataFrame) -> Mask:
        """Say of each row whether it gets the desired outcome."""
        if self.model is None:
            return np.full(len(X), self.always)
        return called("the surrogate", lambda: np.asarray(self.model.predict(X), dtype=bool))

    def confidence(self, X: pd.DataFrame) -> Floats:
        """Return the probability of the desired outcome, one per row."""
        if self.model is None:
            return np.full(len(X), float(self.always))
        at = list(self.model.classes_).index(True)
        return called("the surrogate", lambda: np.asarray(self.model.predict_proba(X)[:, at], dtype=np.float64))


def _filled(given: pd.Series, own: pd.Series) -> pd.Series:
    missing = given.isna()
    if not missing.any():
        return conform(given, own.dtype)
    return conform(given.astype(object).where(~missing, own.astype(object)).infer_objects(), own.dtype)
