"""DPC as published by Yang et al. (2022), to compare with. Its epsilon is a claim that an audit refutes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.pipeline import Pipeline

from cfk_plugin.data.model import Goal, LabelModel
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import to_text
from cfk_plugin.dp.autoencoder import Autoencoder, Matrix, Perturbation, claimed_sensitivity, train
from cfk_plugin.dp.domain import PublicDomain, PublicEncoder
from cfk_plugin.dp.gradients import Adam, DenseNetwork, check_gradient, read_network
from cfk_plugin.dp.prototypes import explanations_of
from cfk_plugin.errors import HostOnly, InputError, ModelError, NotFittedError, PolicyError, PopulationError
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.release.explanations import Explanations, Request
from cfk_plugin.release.results import PrototypeCertificate, PrototypePolicy

_GIVE = (
    "give a fitted Pipeline of PublicEncoder and MLPClassifier or LogisticRegression, or a function "
    "`gradient(encoded, targets)` that returns log-probabilities and their gradient"
)
_TINY = 1e-12  # where a norm is zero, so is its gradient here
_SPREAD = 0.5  # of the starts of further counterfactuals, in a code whose entries are in [0, 1]

Gradient = Callable[[Matrix, NDArray[Any]], tuple[Matrix, Matrix]]
"""From encoded rows (n, n_inputs) and a target label for each to log-probabilities (n,) and their gradient by the
encoded rows (n, n_inputs)."""


@dataclass(frozen=True, eq=False)
class DenseClassifier:
    """A network with a sigmoid or softmax over its outputs; a `Gradient`."""

    network: DenseNetwork  # a single output is the logit of the second class
    classes: NDArray[Any]

    def __repr__(self) -> str:
        return f"DenseClassifier({len(self.network.weights)} layers, {len(self.classes)} classes)"

    def __call__(self, encoded: Matrix, targets: NDArray[Any]) -> tuple[Matrix, Matrix]:
        at = np.arange(len(encoded))
        target = (targets[:, None] == self.classes).argmax(axis=1)
        outputs = self.network.forward(encoded)
        logits = outputs[-1]
        if logits.shape[1] == 1:
            sign = np.where(target == 1, 1.0, -1.0)[:, None]
            log_probability = log_expit(sign * logits)[:, 0]
            slope = sign * expit(-sign * logits)
        else:
            every = log_softmax(logits, axis=1)
            log_probability, slope = every[at, target], -np.exp(every)
            slope[at, target] += 1
        return log_probability, self.network.backward(outputs, slope)[0]


def read_classifier(model: Any, encoder: PublicEncoder) -> DenseClassifier:
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else []
    if len(steps) != 2 or not isinstance(steps[0], PublicEncoder):
        raise ModelError(f"no gradients are known of a {type(model).__name__}: {_GIVE}")
    first, last = steps
    network = read_network(last, _GIVE)
    if first.layout != encoder.layout:
        raise ModelError("the pipeline's PublicEncoder has another domain than the population's schema declares")
    return DenseClassifier(network, last.classes_)


@dataclass(frozen=True, slots=True, eq=False)
class LatentSearch:
    """Eq. 15 to 18 for n queries, minimised over the perturbations of their prototypes.

    alpha · (-log f(target)) + beta · ‖decoded(prototype + perturbation) - query‖ + gamma · ‖perturbation‖.
    """

    net: Autoencoder
    gradient: Gradient
    prototypes: Matrix  # shape (n, code width); of the target class of each query
    queries: Matrix  # shape (n, n_inputs); encoded
    targets: NDArray[Any]  # shape (n,); labels
    alpha: float = 1.0
    beta: float = 0.5
    gamma: float = 0.1

    def objective(self, delta: Matrix) -> tuple[Matrix, Matrix]:
        found, back = self.net.decode(self.prototypes + delta)
        away = found - self.queries
        distance, length = (np.sqrt((part**2).sum(axis=1)) for part in (away, delta))
        log_probability, slope = self.gradient(found, self.targets)
        value = -self.alpha * log_probability + self.beta * distance + self.gamma * length
        of_found = -self.alpha * slope + self.beta * away / (distance + _TINY)[:, None]
        return value, back(of_found) + self.gamma * delta / (length + _TINY)[:, None]

    def run(self, start: Matrix, steps: int, rate: float) -> Matrix:
        delta = start.copy()
        adam = Adam(delta, rate)
        for _ in range(steps):
            adam.step(self.objective(delta)[1])
        return self.net.decode(self.prototypes + delta)[0]


@dataclass(repr=False, eq=False)
class DPC(HostOnly):
    """Counterfactuals decoded from class prototypes of an autoencoder, as published: **no guarantee**.

    The method of Yang et al. (2022), to be compared with and audited; what it returns is not differentially private.
    Training reads the rows themselves although coefficients of its loss are noisy, and the prototypes (Eq. 14) are
    means of encoded rows without noise: that of a class with one member is this member. One counterfactual is enough
    to tell apart two tables that differ in one row: an audit of a claimed epsilon of 0.025 showed at least 2.41. Nor is
    numpy's noise a basis for privacy.

    Parameters
    ----------
    epsilon : float
        The budget that the paper would claim; infinite for no noise.
    epochs, batch_size, rate : int, int, float
        Of training with Adam; the paper does not give the rate. Without a batch size all rows are one batch, equal ones
        merged, which is fast where many are equal.
    hidden : sequence of int
        Widths of the encoder's layers, mirrored by the decoder; the paper's for mixed tables.
    tied : bool
        Use the net of Eq. 6, with one hidden layer, instead.
    alpha, beta, gamma : float
        Weights of prediction, distance and prototype in the search (Eq. 18); the paper's for mixed tables.
    steps, step : int, float
        Number and size of Adam's steps in the search; the paper does not give them.
    gradient : callable, optional
        For models that are not of scikit-learn: from encoded rows (n, n_inputs) and n target labels to their
        log-probabilities (n,) and the gradient by the rows. ``PublicEncoder(PublicDomain.of(population))`` encodes.
    seed : int, optional

    Attributes
    ----------
    guarantee, sensitivity : str, float
        That there is none; and Eq. 13, as claimed.
    labels_from : str
        After `fit`: whether classes are the target column's or the model's predictions.

    References
    ----------
    Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private Counterfactuals via Functional Mechanism.
    """

    guarantee = "no guarantee; see audit"
    _refusal = (
        PopulationError,
        "a DPC refuses to be pickled: the prototype of a class with one member is that member's row; fit another one",
    )

    epsilon: float = 0.025
    _: KW_ONLY
    epochs: int = 300
    hidden: Sequence[int] = (32, 16)
    tied: bool = False
    batch_size: int | None = 128
    rate: float = 1e-3
    alpha: float = 1.0
    beta: float = 0.5
    gamma: float = 0.1
    steps: int = 150
    step: float = 0.05
    gradient: Gradient | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        batch = 1 if self.batch_size is None else self.batch_size
        self._refuse(
            "must be at least 1", lambda value: value >= 1, epochs=self.epochs, batch_size=batch, steps=self.steps
        )
        self._refuse("must be above 0", lambda value: value > 0, epsilon=self.epsilon, rate=self.rate, step=self.step)
        weights = {"alpha": self.alpha, "beta": self.beta, "gamma": self.gamma}
        self._refuse("must not be negative", lambda value: value >= 0, **weights)
        if min(self.hidden, default=0) < (1 if self.tied else 2):
            raise PolicyError("hidden needs widths of at least 2: of a single unit, normalisation leaves nothing")
        if self.tied and len(self.hidden) != 1:
            raise PolicyError("tied weights are those of Eq. 6: give one hidden layer, such as hidden=(32,)")
        self.hidden = tuple(self.hidden)
        self.sensitivity = claimed_sensitivity(self.hidden)
        self.labels_from = ""
        self._fitted = False  # until all of a fit went well

    @staticmethod
    def _refuse(why: str, fits: Callable[[float], bool], **settings: float) -> None:
        if wrong := [name for name, value in settings.items() if not fits(value)]:
            raise PolicyError(f"{', '.join(wrong)} {why}")

    def __repr__(self) -> str:  # the claim as a claim
        return f"DPC(claimed epsilon={self.epsilon:g}, no guarantee)"

    def fit(self, population: Population, model: Any, desired: Any) -> DPC:
        """Train the autoencoder and average the codes of each class (Algorithm 1).

        Parameters
        ----------
        population : Population
            With rows, and a declared domain of every feature. Classes are those of its target column, as in the paper,
            where it holds one; else the model's predictions.
        model : fitted Pipeline, or any model where `gradient` is given
            Of `PublicEncoder` and scikit-learn's ``MLPClassifier`` or ``LogisticRegression``.
        desired : label or "opposite"
            "opposite": the class with the nearest prototype among those that the query is not predicted to be.

        Returns
        -------
        DPC

        Raises
        ------
        ModelError
            If gradients of the model are not known, or no row is of a class that is desired.
        SchemaError, InputError
            If a domain is not declared; if a row has a value that is not declared.
        PopulationError
            If the population is sealed or on a cluster: rows are needed.
        """
        self._fitted = False
        encoder, features = PublicEncoder(PublicDomain.of(population)), list(population.schema.features)
        self._schema = population.schema
        ask = LabelModel(model, features)
        slope = check_gradient(self.gradient) if self.gradient is not None else read_classifier(model, encoder)
        if callable(desired):
            raise ModelError('DPC needs one class to search in: `desired` must be a label or "opposite"')
        goal = Goal(desired)
        goal.check(ask, None)
        table = population.frame
        rows = encoder.transform(table)
        labels = self._labels(population, table, ask)
        weights, noise, batches, self._starts = np.random.default_rng(self.seed).spawn(4)
        net = Autoencoder(rows.shape[1], self.hidden, weights, tied=self.tied)
        perturbation = Perturbation.draw(rows.shape[1], self.hidden, self.epsilon, noise)
        distinct, counts = rows, np.ones(len(rows))
        if self.batch_size is None:
            found = pd.DataFrame(rows).value_counts(sort=False)  # much faster than numpy's unique where few differ
            distinct, counts = found.index.to_frame().to_numpy(), np.asarray(found, dtype=float)
        train(net, distinct, counts, perturbation, batches, self.epochs, self.batch_size, self.rate)
        self._encoder, self._ask, self._slope, self._goal, self._net = encoder, ask, slope, goal, net
        class_of_row, self._classes = pd.factorize(labels, sort=True)
        codes = net.encode(rows)
        self._prototypes = np.stack([codes[class_of_row == s].mean(axis=0) for s in range(len(self._classes))])
        if not (len(self._classes) > 1 if goal.is_opposite else goal.met(self._classes).any()):
            raise ModelError(f"no row is of a class that is desired, by {self.labels_from}")
        self._fitted = True
        return self

    def explain(
        self, queries: pd.DataFrame, *, track: bool | RunLogger = False, groups: str | None = None
    ) -> Explanations:
        """Answer queries, one entry each: `PrototypeCounterfactual` with a certificate that says "no guarantee".

        Parameters
        ----------
        queries : DataFrame
            With all features.
        track, groups : as of `DPPrototypes.explain`; the verdict of a run is review

        Returns
        -------
        Explanations
            A row at which the model does not decide as desired is withheld (``not_desired``).

        Raises
        ------
        NotFittedError, InputError
            As `generate`.
        """
        call, rows = Request.of(queries, groups), self.generate(queries)
        refused: list[str | None] = ["model_failed"] * len(rows)
        with suppress(ModelError):
            factual = self._ask(queries[list(rows)]).astype(object) if self._goal.is_opposite else None
            met = self._goal.met(self._ask(rows).astype(object), factual)
            refused = [None if found else "not_desired" for found in met.tolist()]
        policy = PrototypePolicy(method="dpc", epsilon=self.epsilon)
        return explanations_of(rows, refused, self._claim(), policy, self._schema, call, track, seed=self.seed)

    def _claim(self) -> PrototypeCertificate:
        """Say what the published method claims: its epsilon is refuted by tests/integration/test_dpc_leak.py."""
        return PrototypeCertificate(
            guarantee="none",
            epsilon=self.epsilon,
            delta=0.0,
            unit="one row, as claimed",
            neighbours="tables that differ in one row, as claimed",
            mechanism="functional mechanism as published; prototypes without noise; where epsilon 0.025 was claimed, "
            "an audit showed at least 2.41",
            model_access="private",
            seeded=self.seed is not None,
            fit=secrets.token_hex(8),
        )

    def generate(self, queries: pd.DataFrame, *, per_query: int = 1) -> pd.DataFrame:
        """Return counterfactual rows (Algorithm 2), each rounded to the nearest row that the schema allows.

        Nothing makes sure that the model decides as desired at them: ask it.

        Parameters
        ----------
        queries : DataFrame
            With all features.
        per_query : int
            Searches per query: from the prototype and, which the paper leaves open, from around it.

        Returns
        -------
        DataFrame, `per_query` rows for each query, in order and in the dtypes of the training table

        Raises
        ------
        NotFittedError
            If `fit` was not called.
        InputError
            If the table is empty, lacks features or holds values that are not declared.
        ModelError
            If the model or `gradient` fails.
        """
        found = self.search(queries, per_query=per_query)
        return self._encoder.decode(found)

    def search(self, queries: pd.DataFrame, *, per_query: int = 1) -> Matrix:
        """Return what the decoder gives, (n, n_inputs) in [0, 1], which `generate` rounds to rows."""
        if not self._fitted:
            raise NotFittedError("call fit before counterfactuals are asked for")
        if per_query < 1:
            raise InputError("per_query must be at least 1")
        encoded = self._encoder.transform(queries)
        if not len(encoded):
            raise InputError("the table of queries has no rows")
        at = self._target(queries, encoded)
        start = np.zeros((len(encoded), per_query, self.hidden[-1]))
        start[:, 1:] = self._starts.normal(0, _SPREAD, start[:, 1:].shape)
        prototypes, goals, wanted = (
            np.repeat(part, per_query, axis=0) for part in (self._prototypes[at], encoded, self._classes[at])
        )
        search = LatentSearch(self._net, self._slope, prototypes, goals, wanted, self.alpha, self.beta, self.gamma)
        return search.run(start.reshape(len(goals), -1), self.steps, self.step)

    def _labels(self, population: Population, table: pd.DataFrame, ask: LabelModel) -> NDArray[Any]:
        """Return the class of each row, y of Eq. 14, in the model's own type of labels."""
        target = population.schema.target
        if target is None or target not in table.columns:
            self.labels_from = "the model's predictions"
            return ask(table)
        self.labels_from = f"the target column {target!r}"
        if ask.classes is None:
            return table[target].to_numpy()
        at, distinct = pd.factorize(table[target])
        known = {to_text(label): label for label in ask.classes}
        if (at < 0).any() or any(to_text(value) not in known for value in distinct):
            raise ModelError(f"the target column {target!r} holds values that are not among the model's classes")
        return np.array([known[to_text(value)] for value in distinct])[at]

    def _target(self, queries: pd.DataFrame, encoded: Matrix) -> NDArray[np.int64]:
        """Return the class whose prototype each query is searched from."""
        if not self._goal.is_opposite:
            return np.repeat(np.flatnonzero(self._goal.met(self._classes)), len(encoded))
        away = np.linalg.norm(self._net.encode(encoded)[:, None] - self._prototypes, axis=2)
        away[self._ask(queries)[:, None] == self._classes] = np.inf
        return np.asarray(away.argmin(axis=1))
