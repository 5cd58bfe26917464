"""SCFE: the closed form on linear models, gradients against differences, and models it can read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, OneHotEncoder, StandardScaler

from cfk_plugin.errors import AdapterError, ModelError
from cfk_recourse.linear import least_l1_move, least_l2_move
from cfk_recourse.scfe import Scfe
from cfk_recourse.slopes import Vectors, slope_of
from loan_table import CANARY, loans, model_of_loans, network_of_loans, numbers, regression

WEIGHTS = np.array([1.0, -2.0, 0.5])


def away(explainer: Scfe, answers: pd.DataFrame, queries: pd.DataFrame) -> np.ndarray:
    return (answers - queries).to_numpy() / explainer.encoding.scale


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_linear_distance_is_closed_form(norm: str) -> None:
    """The least move in l1 is along one column, in l2 along the weights."""
    train, model = numbers(200, 3), regression(WEIGHTS, -0.4)
    queries = train[model.predict(train) == 0].head(60)
    explainer = Scfe(train, model, norm=norm, within_ranges=False)
    moves = away(explainer, explainer.explain(queries), queries)
    missing, units = -(queries.to_numpy() @ WEIGHTS - 0.4), WEIGHTS * explainer.encoding.scale
    if norm == "l1":
        np.testing.assert_allclose(
            np.abs(moves).sum(axis=1), missing / np.abs(units).max(), rtol=1e-3, atol=1e-5
        )
        assert ((moves != 0).sum(axis=1) == 1).all()
    else:
        np.testing.assert_allclose(
            np.sqrt((moves**2).sum(axis=1)),
            missing / np.sqrt((units**2).sum()),
            rtol=1e-3,
            atol=1e-5,
        )


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_descent_is_near_closed_form(norm: str) -> None:
    """Other models are answered by descent."""
    train, model = numbers(200, 3), regression(WEIGHTS, -0.4)
    queries = train[model.predict(train) == 0].head(60)
    found = []
    for exact in (True, False):
        explainer = Scfe(train, model, norm=norm, exact_linear=exact)
        moves = away(explainer, explainer.explain(queries), queries)
        found.append(np.abs(moves).sum(axis=1) if norm == "l1" else np.sqrt((moves**2).sum(axis=1)))
    ratio = found[1] / found[0]
    assert ratio.min() > 0.99  # the closed form goes a millionth of a logit past the boundary
    assert ratio.mean() < 1.05


def test_least_move_equals_linear_program() -> None:
    """Each entry of a move has a bound."""
    random = np.random.default_rng(0)
    gradient, room = random.normal(size=(20, 6)), random.random((20, 6))
    gradient[:, 2] = 0
    missing = 0.6 * (np.abs(gradient) * room).sum(axis=1)
    found = least_l1_move(missing, gradient, room)
    np.testing.assert_allclose((found * gradient).sum(axis=1), missing)
    for i in range(20):
        steep, bounds = np.abs(gradient[i]), [(0, free) for free in room[i]]
        program = linprog(np.ones(6), A_ub=-steep[None], b_ub=[-missing[i]], bounds=bounds)
        assert np.abs(found[i]).sum() == pytest.approx(program.fun)
    short = least_l2_move(missing, gradient, room)
    np.testing.assert_allclose((short * gradient).sum(axis=1), missing)
    assert (np.abs(short) <= room + 1e-12).all()
    assert ((short**2).sum(axis=1) <= (found**2).sum(axis=1) + 1e-12).all()
    # Where no bound holds it back, a move is along the gradient: its entries are one multiple of
    # it.
    inside = np.where(
        (np.abs(short) < room - 1e-9) & (gradient != 0),
        short / np.where(gradient == 0, 1, gradient),
        0,
    )
    for row in inside:
        assert np.ptp(row[row != 0]) < 1e-9 or len(row[row != 0]) == 0


PREPARED = [
    lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    lambda: make_pipeline(
        MinMaxScaler(), MLPClassifier((7, 5), activation="tanh", max_iter=5, random_state=0)
    ),
    lambda: make_pipeline(
        StandardScaler(), PCA(2), MLPClassifier((6,), activation="logistic", max_iter=5)
    ),
    lambda: MLPClassifier((6,), max_iter=5, random_state=0),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("make", PREPARED)
def test_slopes_equal_differences(make: object, classes: int) -> None:
    """The margin is that of the desired class over the best other one."""
    train = numbers(120, 4)
    model = make().fit(
        train, np.digitize(train["x0"] + train["x1"] ** 2, [0.5, 1.5][: classes - 1])
    )  # type: ignore[operator]
    explainer = Scfe(train, model, desired=1)
    points = explainer.encoding.encode(train.head(9))
    vectors, desired = Vectors(explainer.encoding), np.tile(np.arange(classes) == 1, (9, 1))
    x, slope = (
        vectors.of(points),
        slope_of(model, explainer.encoding, explainer.encoding.encode(train)),
    )
    margin, gradient = slope(x, desired)
    logits = np.log(model.predict_proba(train.head(9)))
    np.testing.assert_allclose(
        margin, logits[:, 1] - np.delete(logits, 1, axis=1).max(axis=1), atol=1e-6
    )
    for j in range(4):
        step = 1e-6 * np.eye(4)[j]
        difference = (slope(x + step, desired)[0] - slope(x - step, desired)[0]) / 2e-6
        np.testing.assert_allclose(gradient[:, j], difference, atol=1e-5)


@pytest.mark.parametrize("make", [model_of_loans, network_of_loans])
def test_pipelines_that_encode_are_read(make: object) -> None:
    """Mixed tables are encoded inside of the model."""
    train = loans()
    model = make(train)  # type: ignore[operator]
    explainer = Scfe(train, model)
    points = explainer.encoding.encode(train)
    margin = slope_of(model, explainer.encoding, points)(
        Vectors(explainer.encoding).of(points), np.tile([False, True], (len(train), 1))
    )[0]
    logits = np.log(model.predict_proba(train))
    np.testing.assert_allclose(margin, logits[:, 1] - logits[:, 0], atol=1e-6)
    queries = train[model.predict(train) == "no"].head(20)
    answers = explainer.explain(queries)
    assert (model.predict(answers) == "yes").all()
    assert (answers.dtypes == train.dtypes).all()
    near = explainer.encoding.distance(
        explainer.encoding.encode(answers), explainer.encoding.encode(queries)
    )
    assert near.mean() < 0.8  # of six: half of the boundary's l1 distance is far below one category


def test_goal_may_be_a_function() -> None:
    """Or the opposite of one of several classes, or a class that there is not."""
    train = numbers(150, 3)
    labels = np.array(["a", "b", "c"])[np.digitize(train["x0"], [-0.5, 0.5])]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train, labels)
    own = model.predict(train)
    other = Scfe(train, model).explain(train)
    assert (model.predict(other) != own).all()
    either = Scfe(train, model, desired=lambda found: np.isin(found, ["a", "b"])).explain(train)
    assert either[own != "c"].isna().all(axis=None)  # they have it already
    assert np.isin(model.predict(either[own == "c"]), ["a", "b"]).all()
    assert Scfe(train, model, desired="d").explain(train).isna().all(axis=None)


def test_user_may_give_the_gradient() -> None:
    """Of any model, by the encoded rows."""
    train = loans()
    model = model_of_loans(train)
    reading = Scfe(train, model)
    slope = slope_of(model, reading.encoding, reading.encoding.encode(train))
    seen = []

    def gradient(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append(vectors.shape[1])
        return slope(vectors, np.tile([False, True], (len(vectors), 1)))

    queries = train[model.predict(train) == "no"].head(5)
    by_hand = Scfe(train, model.predict, desired="yes", gradient=gradient).explain(queries)
    pd.testing.assert_frame_equal(by_hand, reading.explain(queries))
    assert set(seen) == {len(Vectors(reading.encoding).inputs)} == {11}


def test_failing_gradient_is_not_quoted() -> None:
    """Its text may contain rows; its arrays have shapes."""

    def broken(vectors: np.ndarray) -> None:
        raise ValueError(CANARY)

    train = numbers(20, 2)
    model = regression(np.ones(2))
    with pytest.raises(ModelError, match="raised ValueError") as caught:
        Scfe(train, model, desired=1, gradient=broken).explain(train)  # type: ignore[arg-type]
    assert CANARY not in str(caught.value)
    with pytest.raises(ModelError, match="must return arrays of shapes"):
        Scfe(train, model, desired=1, gradient=lambda rows: (rows[:, 0], rows[:, 0])).explain(train)
    with pytest.raises(AdapterError, match="knows one desired outcome"):
        Scfe(train, model, gradient=lambda rows: (rows[:, 0], rows))


def test_models_without_gradients_are_refused() -> None:
    """The error says which model, or which part of a pipeline."""
    train, mixed = numbers(40, 2), loans(40)
    labels = (train["x0"] > 0).astype(int)
    fitted = LogisticRegression().fit(train, labels)
    refused = {
        "known of a RandomForestClassifier": RandomForestClassifier(2).fit(train, labels),
        "known of a method": fitted.predict,
        "LogisticRegression is not fitted": LogisticRegression(),
        "not affine": make_pipeline(
            KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), fitted
        ),
        "takes 2 inputs and would get 3": fitted,
    }
    refused["not affine"].steps[0][1].fit(train)
    for message, model in refused.items():
        with pytest.raises(AdapterError, match=message):
            Scfe(numbers(40, 3) if "would get 3" in message else train, model)
    with pytest.raises(AdapterError, match="columns job, owner, region hold categories"):
        Scfe(mixed, fitted)
    encoder = OneHotEncoder().fit(mixed[["job"]].query("job != @CANARY"))
    with pytest.raises(AdapterError, match="raised ValueError on rows") as caught:
        Scfe(mixed[["job"]], make_pipeline(encoder, fitted))
    assert CANARY not in str(caught.value)
