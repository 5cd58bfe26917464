"""DPC: it flips, it repeats itself by seed, it promises nothing; and its gradients, written by
hand, are right.
"""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from cfk_plugin import Attribute, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.dp import PublicDomain, PublicEncoder
from cfk_plugin.errors import (
    CFKError,
    InputError,
    ModelError,
    PolicyError,
    SchemaError,
)
from cfk_recourse.dpc import (
    DPC,
    Autoencoder,
    LatentSearch,
    Perturbation,
    claimed_sensitivity,
    loss_and_gradients,
    read_classifier,
)
from cfk_recourse.gradients import Adam

FAST: dict[str, Any] = {"epochs": 100, "batch_size": None, "rate": 0.02, "seed": 0}
FEATURES = ["age", "pay", "city"]
CANARY = "canary-7319"


def table(n: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "pay": random.random(n),
            "city": random.choice(list("AB"), n),
        }
    )
    return rows.assign(
        loan=np.where(rows["pay"] + 0.3 * (rows["city"] == "A") > 0.7, "granted", "denied")
    )


ROWS = table()
DENIED = ROWS[ROWS["loan"] == "denied"]


def population(
    rows: pd.DataFrame = ROWS,
    target: str | None = "loan",
    age: tuple[float, float] = (18, 90),
) -> Population:
    kept = rows if target else rows[FEATURES]
    schema = Schema.from_frame(
        kept,
        quasi_identifiers=["age"],
        target=target,
        columns={
            "age": Attribute(bounds=age, whole=True),
            "pay": Attribute(bounds=(0, 1)),
            "city": Attribute(categories=["A", "B"]),
        },
        nullable=[],
    )
    return Population.from_frame(kept, schema)


PEOPLE = population()
ENCODER = PublicEncoder(PublicDomain.of(PEOPLE))


@pytest.fixture(scope="module")
def model() -> Pipeline:
    network = MLPClassifier((8,), activation="tanh", solver="lbfgs", max_iter=300, random_state=0)
    return make_pipeline(ENCODER, network).fit(ROWS[FEATURES], ROWS["loan"])


@pytest.fixture(scope="module")
def queries(model: Pipeline) -> pd.DataFrame:
    return ROWS.loc[model.predict(ROWS[FEATURES]) == "denied", FEATURES].head(20)


@pytest.fixture(scope="module")
def exact(model: Pipeline) -> DPC:
    return DPC(np.inf, **FAST).fit(PEOPLE, model, "granted")


@pytest.fixture(scope="module")
def published(model: Pipeline) -> DPC:
    return DPC(0.025, **FAST).fit(PEOPLE, model, "granted")


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("desired", "shape"),
    [
        ("granted", {}),
        ("opposite", {}),
        ("granted", {"hidden": (6,)}),
        ("granted", {"batch_size": 64, "epochs": 40}),
    ],
    ids=str,
)
def test_counterfactuals_flip_the_outcome(
    model: Pipeline, queries: pd.DataFrame, desired: str, shape: Any
) -> None:
    """Also with one layer, and with batches."""
    method = DPC(np.inf, **{**FAST, **shape}).fit(PEOPLE, model, desired)
    found = method.generate(queries)
    assert found.dtypes.to_dict() == queries.dtypes.to_dict()
    assert len(found) == len(queries)
    assert not ENCODER.domain.outside(found)
    assert (model.predict(found) == "granted").mean() > 0.9


def test_seed_repeats_the_search(model: Pipeline, queries: pd.DataFrame, exact: DPC) -> None:
    """Epsilon scales the noise."""

    def search(epsilon: float, seed: int | None = 0) -> NDArray[np.float64]:
        return DPC(epsilon, **{**FAST, "seed": seed}).fit(PEOPLE, model, "granted").search(queries)

    once, other, unseeded = search(0.5), search(0.5, 2), search(0.5, None)
    np.testing.assert_array_equal(once, search(0.5))
    assert not np.allclose(once, other)
    assert not np.allclose(once, unseeded)
    none = exact.search(queries)
    np.testing.assert_allclose(none, search(1e9), atol=0.05)  # the search magnifies the last digits
    assert np.abs(none - once).max() > 0.1


def test_classes_are_those_of_target(model: Pipeline, queries: pd.DataFrame, exact: DPC) -> None:
    """Without a target column they are predictions."""
    swapped = ROWS.assign(loan=np.where(ROWS["loan"] == "denied", "granted", "denied"))
    other = DPC(np.inf, **FAST).fit(population(swapped), model, "granted")
    predicted = DPC(np.inf, **FAST).fit(population(target=None), model, "granted")
    assert exact.labels_from == "the target column 'loan'"
    assert predicted.labels_from == "the model's predictions"
    assert not np.allclose(exact.search(queries), other.search(queries), atol=1e-3)
    # few rows are predicted otherwise
    assert np.allclose(exact.search(queries), predicted.search(queries), atol=0.2)


@pytest.mark.parametrize(
    ("desired", "met"),
    [("opposite", "mid"), ({"mid", "high"}, "mid"), ({"high", "low"}, "low"), ({"high"}, "high")],
)
def test_nearest_prototype_is_taken(desired: Any, met: str) -> None:
    """Of several outcomes that are desired."""
    rows = ROWS.assign(
        loan=pd.cut(ROWS["pay"], [-1, 0.33, 0.66, 1], labels=["low", "mid", "high"]).astype(str)
    )
    model = make_pipeline(ENCODER, LogisticRegression(C=1000.0)).fit(rows[FEATURES], rows["loan"])
    method = DPC(1e9, **{**FAST, "epochs": 300}).fit(population(rows), model, desired)
    low = rows.loc[model.predict(rows[FEATURES]) == "low", FEATURES].head(20)
    answers = method.explain(low).dropna()
    assert len(answers) > 18
    assert (model.predict(answers) == met).all()


def rich(rows: pd.DataFrame) -> Any:
    return rows["pay"] > 0.7


def test_gradients_may_be_a_function(queries: pd.DataFrame) -> None:
    """Of any model."""

    def gradient(encoded: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert set(targets) == {True}
        logit = 8 * (encoded[:, 1] - 0.7)
        slope = np.zeros_like(encoded)
        slope[:, 1] = 8 / (1 + np.exp(logit))
        return -np.log1p(np.exp(-logit)), slope

    method = DPC(np.inf, **FAST, gradient=gradient).fit(population(target=None), rich, True)
    assert rich(method.generate(queries)).mean() > 0.9


# --- no guarantee, and no value -------------------------------------------------------------------


def test_refused_answers_are_missing(model: Pipeline, published: DPC) -> None:
    """The model decides otherwise there."""
    denied = DENIED.head(20)[FEATURES].set_index(pd.RangeIndex(100, 120))
    rows = published.generate(denied)
    met = model.predict(rows) == "granted"
    answers = published.explain(denied)
    assert answers.index.tolist() == denied.index.tolist()
    assert answers.notna().all(axis=1).tolist() == met.tolist()
    assert answers[met].to_numpy().tolist() == rows[met].to_numpy().tolist()


def test_dpc_can_be_protected(model: Pipeline, queries: pd.DataFrame) -> None:
    """Like any explainer."""
    method = DPC(1e6, **FAST).fit(PEOPLE, model, "granted")  # so little noise that answers flip
    private = protect(
        method,
        model=model,
        population=PEOPLE,
        desired="granted",
        policy=PrivacyPolicy(k=3, guarantee="lookup"),
    )
    assert private.explain(queries).released


def test_dpc_shows_no_value(model: Pipeline, queries: pd.DataFrame, published: DPC) -> None:
    """It refuses to be pickled or copied."""
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InputError, match="refuses to be pickled"):
            attempt(published)
    shown = [
        repr(published),
        repr(published._net),
        repr(published._encoder),
        repr(published._slope),
    ]
    for column, value in (("city", CANARY), ("loan", CANARY), ("pay", np.inf)):
        rows = ROWS.assign(**{column: ROWS[column].where(ROWS.index != 3, value)})
        with pytest.raises(CFKError, match=column) as caught:
            DPC(**FAST).fit(population(rows), model, "granted")
        shown.append(str(caught.value))
    with pytest.raises(InputError) as refused:
        published.generate(queries.assign(city=CANARY))
    assert not any(CANARY in text for text in [*shown, str(refused.value)])


def _raise(encoded: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    raise ValueError(f"{CANARY} {encoded[0]}")


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (_raise, "raised ValueError on 3 rows"),
        (
            lambda encoded, targets: (np.zeros(len(encoded)), np.zeros(2)),
            "must return arrays of shapes",
        ),
        (lambda encoded, targets: (np.full(len(encoded), np.nan), encoded), "not finite"),
    ],
    ids=["raises", "shapes", "nan"],
)
def test_wrong_gradients_are_not_quoted(gradient: Any, message: str) -> None:
    """The error says what a function must return."""
    method = DPC(**FAST, gradient=gradient).fit(population(target=None), rich, True)
    with pytest.raises(ModelError, match=message) as caught:
        method.generate(ROWS[FEATURES].head(3))
    assert CANARY not in str(caught.value)


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": float("nan")},
        {"epochs": 0},
        {"batch_size": 0},
        {"hidden": ()},
        {"hidden": (4, 1)},
        {"beta": -0.1},
        {"rate": -1},
        {"tied": True},
        {"alpha": float("nan")},
    ],
    ids=str,
)
def test_settings_out_of_range_are_named(settings: dict[str, Any]) -> None:
    """The error begins with the setting."""
    with pytest.raises(PolicyError, match=next(iter(settings))):
        DPC(**settings)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_unsuitable_models_are_refused(
    model: Pipeline,
) -> None:
    """Without known gradients, or with a goal that cannot be searched for."""
    x, y = ROWS[FEATURES], ROWS["loan"]
    numbers = ENCODER.transform(x)
    other = PublicEncoder(PublicDomain.of(population(age=(0, 99))))
    several = MLPClassifier((2,), max_iter=5).fit(
        numbers, np.column_stack([y == "granted", x["age"] > 40])
    )
    models = {
        "gradients are known of a LogisticRegression: give a fitted Pipeline": LogisticRegression().fit(
            numbers, y
        ),
        "gradients are known of a RandomForestClassifier": make_pipeline(
            ENCODER, RandomForestClassifier(2)
        ).fit(x, y),
        "gradients are known of a OneVsRestClassifier": make_pipeline(
            ENCODER, OneVsRestClassifier(LogisticRegression())
        ).fit(x, y),
        "LogisticRegression is not fitted": make_pipeline(ENCODER, LogisticRegression()),
        "has another domain": make_pipeline(other, LogisticRegression()).fit(x, y),
        "one sigmoid or softmax": Pipeline([("encode", ENCODER), ("net", several)]),
    }
    for message, wrong in models.items():
        with pytest.raises(ModelError, match=re.escape(message)):
            DPC(**FAST).fit(PEOPLE, wrong, "granted")
    for goal, message in (
        ("Granted", "one of the model's classes"),
        (lambda label: label == "g", "must be a label"),
    ):
        with pytest.raises(ModelError, match=message):
            DPC(**FAST).fit(PEOPLE, model, goal)
    for desired in ("granted", "opposite"):
        with pytest.raises(
            ModelError, match="no row is of a class that is desired, by the target column 'loan'"
        ):
            DPC(**FAST).fit(population(DENIED), model, desired)


def test_wrong_queries_are_refused(
    model: Pipeline, queries: pd.DataFrame, published: DPC, tmp_path: Any
) -> None:
    """And populations whose domain is not declared."""
    undeclared = Population.from_frame(
        ROWS, Schema.from_frame(ROWS, quasi_identifiers=["age"], target="loan")
    )
    with pytest.raises(SchemaError, match="'pay' lacks bounds or bins"):
        DPC(**FAST).fit(undeclared, model, "granted")
    for asked, options, message in (
        (queries.head(0), {}, "no rows"),
        (queries.drop(columns="pay"), {}, "lacks the features pay"),
        (queries, {"per_query": 0}, "at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            published.generate(asked, **options)


# --- gradients ------------------------------------------------------------------------------------


def numerical(
    value: Callable[[], float], at: NDArray[np.float64], step: float = 1e-6
) -> NDArray[np.float64]:
    """Return central differences by every entry of an array, which is changed in place and put
    back.
    """
    found, flat = np.empty(at.size), at.reshape(-1)
    for i in range(at.size):
        kept = flat[i]
        flat[i] = kept + step
        above = value()
        flat[i] = kept - step
        found[i] = (above - value()) / (2 * step)
        flat[i] = kept
    return found.reshape(at.shape)


@pytest.mark.parametrize(("hidden", "tied"), [((6, 3), False), ((5,), False), ((4,), True)])
def test_training_follows_its_gradient(hidden: tuple[int, ...], tied: bool) -> None:
    """Compared with differences; counted rows are repeated ones."""
    random = np.random.default_rng(0)
    net = Autoencoder(7, hidden, random, tied=tied)
    net.parameters += random.normal(0, 0.3, net.parameters.shape)
    x, counts = random.random((9, 7)), random.integers(1, 5, 9).astype(float)
    noise = Perturbation.draw(7, hidden, 0.5, random)
    loss, found = loss_and_gradients(net, x, counts, noise, counts.sum())
    expected = numerical(
        lambda: loss_and_gradients(net, x, counts, noise, counts.sum())[0], net.parameters
    )
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    x = np.repeat(x, counts.astype(int), axis=0)  # counted rows are repeated ones
    out = net.reconstruct(x)[0]
    products = [
        noise.quadratic[p, q] * (out[:, p] * out[:, q]).mean()
        for p in range(7)
        for q in range(p, 7)
    ]
    noised = (noise.linear @ out.mean(axis=0) + sum(products)) / len(x)
    assert loss == pytest.approx(((x - out) ** 2).sum(axis=1).mean() + noised)


def test_nets_are_those_of_paper() -> None:
    """Tied, and with normalised hidden layers."""
    random = np.random.default_rng(3)
    tied, x = Autoencoder(4, (3,), random, tied=True), random.random((5, 4))
    weights = tied.parameters.reshape(4, 3)
    hidden = 1 / (1 + np.exp(-x @ weights))
    np.testing.assert_allclose(tied.encode(x), hidden)
    np.testing.assert_allclose(tied.reconstruct(x)[0], 1 / (1 + np.exp(-hidden @ weights.T)))
    net, x = Autoencoder(24, (32, 16), random), random.random((3, 24))
    sizes = [(24, 32), (32, 16), (16, 32), (32, 24)]
    assert net.parameters.size == sum(n_in * n_out + n_out for n_in, n_out in sizes)
    assert net.encode(x).shape == (3, 16)
    # The inputs of a hidden layer are normalised, so neither their place nor their scale matters to
    # the code.
    np.testing.assert_allclose(net.encode(5 * x - 2), net.encode(x), atol=1e-3)


def test_noise_is_as_claimed() -> None:
    """It has the scale of the claimed sensitivity."""
    assert claimed_sensitivity((32, 16)) == 132
    drawn = [
        Perturbation.draw(500, (32, 16), 0.75, np.random.default_rng(seed)) for seed in range(10)
    ]
    every = np.triu_indices(500)
    linear, quadratic = (
        np.concatenate([d.linear for d in drawn]),
        np.concatenate([d.quadratic[every] for d in drawn]),
    )
    # a Laplace variable of scale b has a mean size of b
    for part, rel in ((linear, 0.07), (quadratic, 0.01)):
        assert np.abs(part).mean() == pytest.approx(132 / 0.75, rel=rel)
        assert part.mean() == pytest.approx(0, abs=14)
        assert part.all()
    # a product has one coefficient, whatever the order
    assert not np.tril(drawn[0].quadratic, -1).any()
    assert not Perturbation.draw(3, (2,), np.inf, np.random.default_rng(0)).linear.any()


def test_adam_follows_its_authors() -> None:
    """In its first two steps."""
    at = np.array([1.0, -2.0])
    adam = Adam(at, 0.1)
    adam.step(np.array([3.0, -0.5]))
    # a first step has the size of the rate, whatever the gradient's
    np.testing.assert_allclose(at, [0.9, -1.9])
    adam.step(np.array([0.0, 0.0]))
    mean, square = 0.9 * 0.1 * 3 / (1 - 0.9**2), 0.999 * 0.001 * 9 / (1 - 0.999**2)
    np.testing.assert_allclose(at[0], 0.9 - 0.1 * mean / np.sqrt(square), rtol=1e-6)


def search(alpha: float = 1.0, beta: float = 0.5, gamma: float = 0.1) -> LatentSearch:
    random = np.random.default_rng(4)
    net = Autoencoder(6, (5, 3), random)
    net.parameters += random.normal(0, 0.5, net.parameters.shape)
    slope = random.normal(0, 1, 6)

    def gradient(
        encoded: NDArray[np.float64], targets: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], ...]:
        return targets * (encoded @ slope), targets[:, None] * slope

    queries, prototypes = random.random((8, 6)), net.encode(random.random((8, 6)))
    return LatentSearch(
        net, gradient, prototypes, queries, random.choice([-1, 1], 8), alpha, beta, gamma
    )


def test_search_follows_equation_18() -> None:
    """Its gradient is compared with differences."""
    task, delta = search(), np.random.default_rng(5).normal(0, 0.3, (8, 3))
    values, found = task.objective(delta)
    expected = numerical(lambda: float(task.objective(delta)[0].sum()), delta)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
    decoded = task.net.decode(task.prototypes + delta)[0]
    away, length = np.linalg.norm(decoded - task.queries, axis=1), np.linalg.norm(delta, axis=1)
    np.testing.assert_allclose(
        values, -task.gradient(decoded, task.targets)[0] + 0.5 * away + 0.1 * length
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        ("identity", ["no", "yes"]),
        ("logistic", [0, 1, 2]),
        ("tanh", ["no", "yes"]),
        ("relu", [0, 1, 2]),
        ("regression", ["no", "yes"]),
        ("regression", [0, 1, 2]),
    ],
)
def test_gradients_equal_log_probabilities(kind: str, classes: list[object]) -> None:
    """Of networks and regressions, of two and three classes."""
    network = MLPClassifier((7, 5), activation=kind, max_iter=30, random_state=0)
    labels = np.array(classes)[(ROWS["pay"] * (len(classes) - 0.01)).astype(int)]
    pipeline = make_pipeline(ENCODER, LogisticRegression() if kind == "regression" else network)
    pipeline.fit(ROWS[FEATURES], labels)
    read, random = read_classifier(pipeline, ENCODER), np.random.default_rng(8)
    points, targets = (
        random.random((10, 4)),
        np.array(classes)[random.integers(0, len(classes), 10)],
    )
    of_model = pipeline.steps[1][1].predict_proba(points)
    column = [list(pipeline.classes_).index(target) for target in targets]
    log_probability, slope = read(points, targets)
    np.testing.assert_allclose(log_probability, np.log(of_model[np.arange(10), column]), atol=1e-9)
    np.testing.assert_allclose(
        slope, numerical(lambda: float(read(points, targets)[0].sum()), points), atol=1e-6
    )
