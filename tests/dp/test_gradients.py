"""Backpropagation written by hand against numerical gradients: autoencoder, perturbed loss, search, and the model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from cfk_plugin import Population, Schema
from cfk_plugin.dp import PublicDomain, PublicEncoder
from cfk_plugin.dp.dpc import (
    Autoencoder,
    LatentSearch,
    Perturbation,
    claimed_sensitivity,
    loss_and_gradients,
    read_classifier,
    train,
)
from cfk_plugin.dp.gradients import Adam

NETS = [((6, 3), False), ((5,), False), ((4,), True)]


def numerical(value: Callable[[], float], at: NDArray[np.float64], step: float = 1e-6) -> NDArray[np.float64]:
    """Return central differences by every entry of an array, which is changed in place and put back."""
    found, flat = np.empty(at.size), at.reshape(-1)
    for i in range(at.size):
        kept = flat[i]
        flat[i] = kept + step
        above = value()
        flat[i] = kept - step
        found[i] = (above - value()) / (2 * step)
        flat[i] = kept
    return found.reshape(at.shape)


@pytest.mark.parametrize(("hidden", "tied"), NETS)
def test_training_follows_the_gradient_of_the_perturbed_loss(hidden: tuple[int, ...], tied: bool) -> None:
    random = np.random.default_rng(0)
    net = Autoencoder(7, hidden, random, tied=tied)
    net.parameters += random.normal(0, 0.3, net.parameters.shape)
    x, counts = random.random((9, 7)), random.integers(1, 5, 9).astype(float)
    noise = Perturbation.draw(7, hidden, 0.5, random)
    found = loss_and_gradients(net, x, counts, noise, counts.sum())[1]
    expected = numerical(lambda: loss_and_gradients(net, x, counts, noise, counts.sum())[0], net.parameters)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_the_perturbed_loss_is_the_documented_one() -> None:
    random = np.random.default_rng(1)
    net, x = Autoencoder(4, (3,), random), random.random((6, 4))
    noise = Perturbation(np.array([1.0, 2, 3, 4]), np.triu(random.normal(0, 3, (4, 4))))
    out = net.reconstruct(x)[0]
    products = [noise.quadratic[p, q] * (out[:, p] * out[:, q]).mean() for p in range(4) for q in range(p, 4)]
    expected = ((x - out) ** 2).sum(axis=1).mean() + (noise.linear @ out.mean(axis=0) + sum(products)) / 6
    assert loss_and_gradients(net, x, np.ones(6), noise, 6.0)[0] == pytest.approx(expected)


def test_the_net_of_the_sixth_equation() -> None:
    net, x = Autoencoder(4, (3,), np.random.default_rng(2), tied=True), np.random.default_rng(3).random((5, 4))
    weights = net.parameters.reshape(4, 3)
    hidden = 1 / (1 + np.exp(-x @ weights))
    np.testing.assert_allclose(net.encode(x), hidden)
    np.testing.assert_allclose(net.reconstruct(x)[0], 1 / (1 + np.exp(-hidden @ weights.T)))


def test_the_published_net_mirrors_its_encoder() -> None:
    net = Autoencoder(24, (32, 16), np.random.default_rng(0))
    sizes = [(24, 32), (32, 16), (16, 32), (32, 24)]
    assert net.parameters.size == sum(n_in * n_out + n_out for n_in, n_out in sizes)
    x = np.random.default_rng(1).random((3, 24))
    assert net.encode(x).shape == (3, 16)
    # The inputs of a hidden layer are normalised, so neither their place nor their scale matters to the code.
    np.testing.assert_allclose(net.encode(5 * x - 2), net.encode(x), atol=1e-3)


def test_sensitivity_and_noise_are_those_claimed() -> None:
    assert claimed_sensitivity((32, 16)) == 132
    drawn = [Perturbation.draw(500, (32, 16), 0.75, np.random.default_rng(seed)) for seed in range(20)]
    every = np.triu_indices(500)
    linear, quadratic = np.concatenate([d.linear for d in drawn]), np.concatenate([d.quadratic[every] for d in drawn])
    for part, rel in ((linear, 0.05), (quadratic, 0.01)):  # a Laplace variable of scale b has a mean size of b
        assert np.abs(part).mean() == pytest.approx(132 / 0.75, rel=rel)
        assert part.mean() == pytest.approx(0, abs=10)
        assert part.all()
    assert not np.tril(drawn[0].quadratic, -1).any()  # a product has one coefficient, whatever the order
    assert not Perturbation.draw(3, (2,), np.inf, np.random.default_rng(0)).linear.any()


def test_counted_rows_train_as_repeated_ones() -> None:
    random = np.random.default_rng(0)
    distinct, counts = random.random((5, 4)), np.array([1.0, 7, 2, 1, 4])
    nets = [Autoencoder(4, (3,), np.random.default_rng(1)) for _ in range(2)]
    noise = Perturbation.draw(4, (3,), 1.0, random)
    repeated = np.repeat(distinct, counts.astype(int), axis=0)
    common = {"random": np.random.default_rng(2), "epochs": 50, "batch_size": None, "rate": 0.02}
    train(nets[0], distinct, counts, noise, **common)
    train(nets[1], repeated, np.ones(len(repeated)), noise, **common)
    np.testing.assert_allclose(nets[0].parameters, nets[1].parameters, atol=1e-8)


def test_training_without_noise_learns_to_reconstruct() -> None:
    random = np.random.default_rng(0)
    rows = np.eye(4)[random.integers(0, 4, 256)]
    net = Autoencoder(4, (8, 3), random)
    before = ((net.reconstruct(rows)[0] - rows) ** 2).mean()
    train(net, rows, np.ones(256), Perturbation.draw(4, (8, 3), np.inf, random), random=random, epochs=150, rate=0.02)
    assert ((net.reconstruct(rows)[0] - rows) ** 2).mean() < 0.01 < before


def test_adam_takes_its_first_steps_as_its_authors_define_them() -> None:
    at = np.array([1.0, -2.0])
    adam = Adam(at, 0.1)
    adam.step(np.array([3.0, -0.5]))
    np.testing.assert_allclose(at, [0.9, -1.9])  # a first step has the size of the rate, whatever the gradient's
    adam.step(np.array([0.0, 0.0]))
    mean, square = 0.9 * 0.1 * 3 / (1 - 0.9**2), 0.999 * 0.001 * 9 / (1 - 0.999**2)
    np.testing.assert_allclose(at[0], 0.9 - 0.1 * mean / np.sqrt(square), rtol=1e-6)


def search(alpha: float = 1.0, beta: float = 0.5, gamma: float = 0.1) -> LatentSearch:
    random = np.random.default_rng(4)
    net = Autoencoder(6, (5, 3), random)
    net.parameters += random.normal(0, 0.5, net.parameters.shape)
    slope = random.normal(0, 1, 6)

    def gradient(encoded: NDArray[np.float64], targets: NDArray[np.int64]) -> tuple[NDArray[np.float64], ...]:
        return targets * (encoded @ slope), targets[:, None] * slope

    queries, prototypes = random.random((8, 6)), net.encode(random.random((8, 6)))
    return LatentSearch(net, gradient, prototypes, queries, random.choice([-1, 1], 8), alpha, beta, gamma)


def test_the_search_follows_the_gradient_of_its_objective() -> None:
    task, delta = search(), np.random.default_rng(5).normal(0, 0.3, (8, 3))
    expected = numerical(lambda: float(task.objective(delta)[0].sum()), delta)
    np.testing.assert_allclose(task.objective(delta)[1], expected, rtol=1e-5, atol=1e-8)


def test_the_objective_is_that_of_equation_18() -> None:
    task, delta = search(), np.random.default_rng(5).normal(0, 0.3, (8, 3))
    found = task.net.decode(task.prototypes + delta)[0]
    away, length = np.linalg.norm(found - task.queries, axis=1), np.linalg.norm(delta, axis=1)
    expected = -task.gradient(found, task.targets)[0] + 0.5 * away + 0.1 * length
    np.testing.assert_allclose(task.objective(delta)[0], expected)


def test_the_search_finds_a_query_that_the_decoder_can_reach() -> None:
    # Only the distance counts, so the minimum is known: the query itself.
    task = search(alpha=0, gamma=0)
    reachable = task.net.decode(task.prototypes + np.random.default_rng(6).normal(0, 0.2, (8, 3)))[0]
    task.queries[:] = reachable
    np.testing.assert_allclose(task.run(np.zeros((8, 3)), steps=800, rate=0.01), reachable, atol=0.02)


def test_the_search_stays_at_the_prototype_where_nothing_else_counts() -> None:
    task = search(alpha=0, beta=0)
    np.testing.assert_allclose(task.run(np.zeros((8, 3)), 20, 0.1), task.net.decode(task.prototypes)[0])


def test_the_objective_falls() -> None:
    task = search()
    values = []
    for steps in (0, 10, 40, 160):
        found = task.run(np.zeros((8, 3)), steps, 0.02)
        away = np.linalg.norm(found - task.queries, axis=1)
        values.append(float((-task.gradient(found, task.targets)[0] + 0.5 * away).sum()))
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] - 0.5


def fitted(model: object, classes: list[object], n: int = 120) -> tuple[PublicEncoder, object, pd.DataFrame]:
    random = np.random.default_rng(7)
    rows = pd.DataFrame({"a": random.random(n), "b": random.random(n), "c": random.choice(["x", "y"], n)})
    bounds = {"a": (0, 1), "b": (0, 1)}
    schema = Schema.from_frame(rows, quasi_identifiers=["a"], bounds=bounds, categories={"c": ["x", "y"]}, nullable=[])
    encoder = PublicEncoder(PublicDomain.of(Population.from_frame(rows, schema)))
    labels = np.array(classes)[(rows["a"] * 2.99 if len(classes) > 2 else rows["a"] + rows["b"]).astype(int)]
    return encoder, make_pipeline(encoder, model).fit(rows, labels), rows


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("classes", [["no", "yes"], [0, 1, 2]], ids=["binary", "three classes"])
@pytest.mark.parametrize("kind", ["identity", "logistic", "tanh", "relu", "regression"])
def test_gradients_of_models_are_those_of_their_log_probabilities(kind: str, classes: list[object]) -> None:
    network = MLPClassifier((7, 5), activation=kind, max_iter=30, random_state=0)
    encoder, pipeline, _ = fitted(LogisticRegression() if kind == "regression" else network, classes)
    read, random = read_classifier(pipeline, encoder), np.random.default_rng(8)
    points, targets = random.random((10, 4)), np.array(classes)[random.integers(0, len(classes), 10)]
    of_model = pipeline.steps[1][1].predict_proba(points)
    column = [list(pipeline.classes_).index(target) for target in targets]
    log_probability, slope = read(points, targets)
    np.testing.assert_allclose(log_probability, np.log(of_model[np.arange(10), column]), atol=1e-9)
    np.testing.assert_allclose(slope, numerical(lambda: float(read(points, targets)[0].sum()), points), atol=1e-6)
