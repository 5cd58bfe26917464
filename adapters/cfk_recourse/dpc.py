"""DPC as published by Yang et al. (2022), for comparison.

Its epsilon is a claim that an audit refutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.population import Population, check_population
from cfk_plugin.data.region import to_text
from cfk_plugin.dp.domain import PublicDomain, PublicEncoder
from cfk_plugin.errors import (
    HostOnly,
    InputError,
    ModelError,
    PolicyError,
)
from cfk_recourse.gradients import Adam, Layer, Matrix, check_gradient, propagate, read_network

_GIVE = (
    "give a fitted Pipeline of PublicEncoder and MLPClassifier or LogisticRegression, or a function"
    " `gradient(encoded, targets)` that returns log-probabilities and their gradient"
)
_TINY = 1e-12  # where a norm is zero, so is its gradient here
_SPREAD = 0.5  # of the starting points of further counterfactuals; entries of a code are in [0, 1]

Gradient = Callable[[Matrix, NDArray[Any]], tuple[Matrix, Matrix]]
"""From encoded rows (n, n_inputs) and a target label for each to log-probabilities (n,) and their
gradient by the encoded rows (n, n_inputs)."""


def read_classifier(model: Any, encoder: PublicEncoder) -> Gradient:
    """Return the gradient of a pipeline whose last step has one sigmoid or softmax over its
    outputs.
    """
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else []
    if len(steps) != 2 or not isinstance(steps[0], PublicEncoder):
        raise ModelError(f"no gradients are known of a {type(model).__name__}: {_GIVE}")
    network, classes = read_network(steps[1], _GIVE), steps[1].classes_
    if steps[0].layout != encoder.layout:
        raise ModelError(
            "the pipeline's PublicEncoder has another domain than the population's schema declares"
        )

    def gradient(encoded: Matrix, targets: NDArray[Any]) -> tuple[Matrix, Matrix]:
        at = np.arange(len(encoded))
        target = (targets[:, None] == classes).argmax(axis=1)
        outputs, backward = propagate(network, encoded)
        if outputs.shape[1] == 1:  # the logit of the second class
            sign = np.where(target == 1, 1.0, -1.0)[:, None]
            return log_expit(sign * outputs)[:, 0], backward(sign * expit(-sign * outputs))[0]
        every = log_softmax(outputs, axis=1)
        slope = -np.exp(every)
        slope[at, target] += 1
        return every[at, target], backward(slope)[0]

    return gradient


class Autoencoder:
    """The net of Yang et al. (2022, 5.1.1); `tied`: of Eq.

    6, one layer, transposed to decode, not normalized.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        random: np.random.Generator,
        *,
        tied: bool = False,
    ):
        sizes = list(pairwise([n_inputs, *hidden, *reversed(hidden[:-1]), n_inputs]))
        drawn = [
            _draw_weights(*size, random, with_offset=not tied)
            for size in (sizes[:1] if tied else sizes)
        ]
        self.parameters: Matrix = np.concatenate([block.ravel() for block in drawn])
        parts = np.split(self.parameters, np.cumsum([block.size for block in drawn])[:-1])
        views = [part.reshape(block.shape) for part, block in zip(parts, drawn, strict=True)]
        if tied:
            layers = [Layer(weights, None, "sigmoid") for weights in (views[0], views[0].T)]
        else:
            layers = [
                Layer(view[:-1], view[-1], "sigmoid", normalized=view is not views[-1])
                for view in views
            ]
        self._tied, self._layers, self._depth = tied, layers, len(hidden)

    def __repr__(self) -> str:
        return f"Autoencoder({self.parameters.size} parameters)"

    def encode(self, x: Matrix) -> Matrix:
        """Return the codes of encoded rows."""
        return propagate(self._layers[: self._depth], x)[0]

    def decode(self, code: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Decode codes; also return what turns a gradient of the result into that of the codes."""
        outputs, backward = propagate(self._layers[self._depth :], code)
        return outputs, lambda gradient: backward(gradient)[0]

    def reconstruct(self, x: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Return reconstructions, and what turns a gradient of them into that of `parameters`."""
        outputs, backward = propagate(self._layers, x)

        def of_parameters(gradient: Matrix) -> Matrix:
            of_layers = backward(gradient)[1]
            of_weights = [inputs.T @ of_sums for inputs, of_sums in of_layers]
            if self._tied:
                return np.asarray(of_weights[0] + of_weights[1].T).ravel()
            of_offsets = [of_sums.sum(axis=0) for _, of_sums in of_layers]
            return np.concatenate(
                [part.ravel() for both in zip(of_weights, of_offsets, strict=True) for part in both]
            )

        return outputs, of_parameters


def _draw_weights(
    n_in: int, n_out: int, random: np.random.Generator, *, with_offset: bool
) -> Matrix:
    """Draw weights, with the offset as last row (initially zero)."""
    limit = np.sqrt(6 / (n_in + n_out))
    weights = random.uniform(-limit, limit, (n_in, n_out))
    return np.vstack([weights, np.zeros(n_out)]) if with_offset else weights


# The functional mechanism of Yang et al. (2022, 4.1) protects nobody: the basis of the noisy
# coefficients is the network's own output at each row, and the sensitivity of Eq. 13 counts hidden
# units where the sum is over inputs. Only this module may use NumPy's noise.


def claimed_sensitivity(hidden: Sequence[int]) -> float:
    """Return Eq. 13, 4 (K + 1), with K the largest number of units of a hidden layer (5.1.1)."""
    return 4.0 * (max(hidden) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Perturbation:
    """Noise on the coefficients of the loss (Eq. 11), drawn once before training.

    The reconstruction loss of N rows is a polynomial of degree 2 in the outputs x̂ (Eq. 8 and 12).
    Algorithm 1 perturbs the coefficient of each x̂_p and each product x̂_p x̂_q, p <= q. They are
    of the whole table, so the training loss is mean ‖x - x̂‖² + mean (linear · x̂ + x̂ᵀ quadratic
    x̂) / N, without the constant, which has no gradient.
    """

    linear: Matrix  # shape (n_inputs,)
    # shape (n_inputs, n_inputs); upper triangular, so that each product counts once
    quadratic: Matrix

    @classmethod
    def draw(
        cls, n_inputs: int, hidden: Sequence[int], epsilon: float, random: np.random.Generator
    ) -> Perturbation:
        """Draw noise of scale 4 (K + 1) / epsilon; none for an infinite epsilon."""
        scale = claimed_sensitivity(hidden) / epsilon
        quadratic = np.zeros((n_inputs, n_inputs))
        quadratic[np.triu_indices(n_inputs)] = random.laplace(
            0, scale, n_inputs * (n_inputs + 1) // 2
        )
        return cls(random.laplace(0, scale, n_inputs), quadratic)


def loss_and_gradients(
    net: Autoencoder, x: Matrix, counts: Matrix, perturbation: Perturbation, n: float
) -> tuple[float, Matrix]:
    """Return the perturbed loss of a batch, and its gradient by the net's parameters."""
    share = (counts / counts.sum())[:, None]
    outputs, of_parameters = net.reconstruct(x)
    linear, quadratic = perturbation.linear / n, perturbation.quadratic / n
    loss = share * ((x - outputs) ** 2 + outputs * (linear + outputs @ quadratic))
    slope = 2 * (outputs - x) + linear + outputs @ (quadratic + quadratic.T)
    return float(loss.sum()), of_parameters(share * slope)


def train(
    net: Autoencoder,
    rows: Matrix,
    counts: Matrix,
    perturbation: Perturbation,
    random: np.random.Generator,
    epochs: int = 300,
    batch_size: int | None = 128,
    rate: float = 1e-3,
) -> None:
    """Train a net in place (Algorithm 1); row i stands for ``counts[i]`` rows.

    No batch size: one batch.
    """
    n, size = float(counts.sum()), batch_size or len(rows)
    adam = Adam(net.parameters, rate)
    for _ in range(epochs):
        order = random.permutation(len(rows))
        for start in range(0, len(rows), size):
            batch = order[start : start + size]
            adam.step(loss_and_gradients(net, rows[batch], counts[batch], perturbation, n)[1])


@dataclass(frozen=True, slots=True, eq=False)
class LatentSearch:
    """Eq. 15 to 18 for n queries, minimised over the perturbations of their prototypes.

    alpha · (-log f(target)) + beta · ‖decoded(prototype + perturbation) - query‖ + gamma ·
    ‖perturbation‖.
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
        """Return the objective of each query, shape (n,), and its gradient by `delta`."""
        found, back = self.net.decode(self.prototypes + delta)
        away = found - self.queries
        distance, length = (np.sqrt((part**2).sum(axis=1)) for part in (away, delta))
        log_probability, slope = self.gradient(found, self.targets)
        value = -self.alpha * log_probability + self.beta * distance + self.gamma * length
        of_found = -self.alpha * slope + self.beta * away / (distance + _TINY)[:, None]
        return value, back(of_found) + self.gamma * delta / (length + _TINY)[:, None]

    def run(self, start: Matrix, steps: int, rate: float) -> Matrix:
        """Return what is decoded after so many steps of Adam from `start`."""
        delta = start.copy()
        adam = Adam(delta, rate)
        for _ in range(steps):
            adam.step(self.objective(delta)[1])
        return self.net.decode(self.prototypes + delta)[0]


@dataclass(repr=False, eq=False)
class DPC(HostOnly):
    """Counterfactuals decoded from class prototypes, as published: **no guarantee**.

    The prototypes are those of an autoencoder.

    Its answers are not differentially private: training reads the rows themselves, although
    coefficients of its loss are noisy, and the prototypes (Eq. 14) are means of encoded rows
    without noise. One counterfactual is enough to tell apart two tables that differ in one row. See
    the page "Methods of the papers".

    Source: Yang, Feng, Zhou, Chen, Hu (2022), Differentially Private Counterfactuals via Functional
    Mechanism.

    Parameters
    ----------
    epsilon : float
        The budget that the paper would claim; infinite for no noise.
    epochs, batch_size, rate : int, int, float
        For training with Adam; the paper does not give the rate. Without a batch size, all rows are
        one batch.
    hidden : sequence of int
        Widths of the encoder's layers, mirrored by the decoder. Default: the paper's for mixed
        tables.
    tied : bool
        Whether to use the net of Eq. 6, with one hidden layer, instead.
    alpha, beta, gamma : float
        Weights of prediction, distance and prototype in the search (Eq. 18). Default: the paper's
        for mixed tables.
    steps, step : int, float
        Number and size of Adam's steps in the search; the paper does not give them.
    gradient : callable, optional
        For models outside of scikit-learn: from encoded rows (n, n_inputs) and n target labels to
        their log-probabilities (n,) and the gradient by the rows.
    seed : int, optional

    Attributes
    ----------
    guarantee, sensitivity : str, float
        The statement that there is none; and Eq. 13, as claimed.
    labels_from : str
        After `fit`: whether classes are the target column's or the model's predictions.
    """

    guarantee = "no guarantee; see audit"

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
        limits: dict[str, tuple[Callable[[Any], bool], tuple[str, ...]]] = {
            "must be at least 1": (
                lambda value: value is None or value >= 1,
                ("epochs", "batch_size", "steps"),
            ),
            "must be above 0": (lambda value: value > 0, ("epsilon", "rate", "step")),
            "must not be negative": (lambda value: value >= 0, ("alpha", "beta", "gamma")),
        }
        for why, (fits, names) in limits.items():
            if wrong := [name for name in names if not fits(getattr(self, name))]:
                raise PolicyError(f"{', '.join(wrong)} {why}")
        if min(self.hidden, default=0) < (1 if self.tied else 2):
            raise PolicyError(
                "hidden needs widths of at least 2: of a single unit, normalisation leaves nothing"
            )
        if self.tied and len(self.hidden) != 1:
            raise PolicyError(
                "tied weights are those of Eq. 6: give one hidden layer, such as hidden=(32,)"
            )
        self.hidden = tuple(self.hidden)
        self.sensitivity = claimed_sensitivity(self.hidden)
        self.labels_from = ""
        self._fitted = False  # until a fit is complete

    def __repr__(self) -> str:  # calls the claim a claim
        return f"DPC(claimed epsilon={self.epsilon:g}, no guarantee)"

    def fit(self, population: Population, model: Any, desired: Any) -> DPC:
        """Train the autoencoder and average the codes of each class (Algorithm 1).

        Parameters
        ----------
        population : Population
            With rows, and a declared domain of every feature. Classes are those of its target
            column, as in the paper, if there is one; else the model's predictions.
        model : fitted Pipeline, or any model if `gradient` is given
            Of `PublicEncoder` and scikit-learn's ``MLPClassifier`` or ``LogisticRegression``.
        desired : label, set of labels or "opposite"
            Among several classes, the one with the nearest prototype is taken; "opposite" allows
            all but the query's predicted class.

        Returns
        -------
        DPC

        Raises
        ------
        ModelError
            If the model's gradients are unknown, or no row has a desired class.
        SchemaError, InputError
            If a domain is not declared; if a row has a value that is not declared.
        PopulationError
            If the population is sealed or on a cluster, as rows are needed.
        """
        self._fitted = False
        check_population(population)
        encoder, features = (
            PublicEncoder(PublicDomain.of(population)),
            list(population.schema.features),
        )
        ask = LabelModel(model, features)
        slope = (
            check_gradient(self.gradient)
            if self.gradient is not None
            else read_classifier(model, encoder)
        )
        goal = DesiredOutcome.of(desired)
        if goal.takes_fractions:
            raise ModelError(
                "DPC needs classes to search in: `desired` must be a label, a set of labels or"
                ' "opposite"'
            )
        goal.check(ask.classes, None)
        table = population.frame
        rows = encoder.transform(table)
        labels = self._labels(population, table, ask)
        weights, noise, batches, self._starts = np.random.default_rng(self.seed).spawn(4)
        net = Autoencoder(rows.shape[1], self.hidden, weights, tied=self.tied)
        perturbation = Perturbation.draw(rows.shape[1], self.hidden, self.epsilon, noise)
        distinct, counts = rows, np.ones(len(rows))
        if self.batch_size is None:
            # much faster than NumPy's unique if few rows differ
            found = pd.DataFrame(rows).value_counts(sort=False)
            distinct, counts = found.index.to_frame().to_numpy(), np.asarray(found, dtype=float)
        train(net, distinct, counts, perturbation, batches, self.epochs, self.batch_size, self.rate)
        self._encoder, self._ask, self._slope, self._goal, self._net = (
            encoder,
            ask,
            slope,
            goal,
            net,
        )
        class_of_row, self._classes = pd.factorize(labels, sort=True)
        codes = net.encode(rows)
        self._prototypes = np.stack(
            [codes[class_of_row == s].mean(axis=0) for s in range(len(self._classes))]
        )
        if not goal.is_possible(self._classes):
            raise ModelError(f"no row is of a class that is desired, by {self.labels_from}")
        self._fitted = True
        return self

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return one counterfactual per query.

        A row has missing values alone if the model does not give the counterfactual a desired
        outcome. Columns with missing values may change their dtype.

        Parameters
        ----------
        X : DataFrame, shape (n, n_features or more)
            Queries with all features.

        Returns
        -------
        DataFrame, shape (n, n_features)
            In the index of the queries.

        Raises
        ------
        NotFittedError, InputError, ModelError
            As `generate`.
        """
        rows = self.generate(X)
        factual_labels = self._goal.labels_if_needed(
            lambda: self._ask(X[list(rows)]).astype(object)
        )
        is_met = self._goal.is_met(self._ask(rows).astype(object), factual_labels)
        return rows.where(pd.Series(is_met, index=rows.index), axis=0).set_axis(X.index, axis=0)

    def generate(self, queries: pd.DataFrame, *, per_query: int = 1) -> pd.DataFrame:
        """Return counterfactual rows (Algorithm 2), each rounded to the nearest row that the schema
        allows.

        They need not have the desired outcome: ask the model.

        Parameters
        ----------
        queries : DataFrame
            With all features.
        per_query : int
            Searches per query: from the prototype and, as the paper leaves open, from around it.

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
        """Return the decoder's outputs, (n, n_inputs) in [0, 1], which `generate` rounds to
        rows.
        """
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
            np.repeat(part, per_query, axis=0)
            for part in (self._prototypes[at], encoded, self._classes[at])
        )
        search = LatentSearch(
            self._net, self._slope, prototypes, goals, wanted, self.alpha, self.beta, self.gamma
        )
        return search.run(start.reshape(len(goals), -1), self.steps, self.step)

    def _labels(self, population: Population, table: pd.DataFrame, ask: LabelModel) -> NDArray[Any]:
        """Return the class of each row, y of Eq. 14, in the model's type of labels."""
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
            raise ModelError(
                f"the target column {target!r} holds values that are not among the model's classes"
            )
        return np.array([known[to_text(value)] for value in distinct])[at]

    def _target(self, queries: pd.DataFrame, encoded: Matrix) -> NDArray[np.int64]:
        """Return the class from whose prototype each query's search starts."""
        factual_labels = self._goal.labels_if_needed(lambda: self._ask(queries))
        if factual_labels is None:
            factual_labels = np.empty(len(encoded), dtype=object)
        is_desired = self._goal.is_met_by_query(self._classes, factual_labels)
        away = np.linalg.norm(self._net.encode(encoded)[:, None] - self._prototypes, axis=2)
        away[~is_desired] = np.inf
        return np.asarray(away.argmin(axis=1))
