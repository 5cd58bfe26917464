"""Recourse methods: what all of them keep, tables as arrays and back, and what each promises of its
own.
"""

from __future__ import annotations

import heapq
from math import inf, log1p
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.errors import AdapterError
from cfk_plugin.metrics.heom import Heom
from cfk_recourse.c_chvae import CChvae
from cfk_recourse.cadex import Cadex
from cfk_recourse.encoding import Encoding
from cfk_recourse.face import Face
from cfk_recourse.gradients import propagate
from cfk_recourse.growing_spheres import GrowingSpheres
from cfk_recourse.revise import Revise
from cfk_recourse.scfe import Scfe
from cfk_recourse.shells import l1_shell
from cfk_recourse.slopes import Vectors
from cfk_recourse.vae import Latent, Vae
from loan_table import CANARY, Linear, loans, model_of_loans, numbers, regression

METHODS: list[type[Any]] = [Scfe, GrowingSpheres, Face, CChvae, Cadex, Revise]
TRAIN = loans(160)
MODEL = model_of_loans(TRAIN)
QUERIES = loans(18, seed=1)


QUICK: dict[type[Any], dict[str, Any]] = {
    GrowingSpheres: {"samples": 60},
    CChvae: {"samples": 40, "steps": 100},
}
QUICK[Revise] = {"train_steps": 200, "steps": 100}


@pytest.fixture(params=METHODS, ids=lambda method: method.__name__)
def explainer(request: pytest.FixtureRequest) -> Any:
    return request.param(TRAIN, MODEL, desired="yes", **QUICK.get(request.param, {}))


def refused(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[MODEL.predict(rows) == "no"]


def test_answers_are_accepted_rows(explainer: Any) -> None:
    """They have the dtypes, the categories and the ranges of the training rows."""
    queries = refused(QUERIES)
    answers = explainer.explain(queries)
    assert answers.index.equals(queries.index)
    assert (answers.dtypes == TRAIN.dtypes).all()
    assert (MODEL.predict(answers) == "yes").all()
    n_rows = len(answers.merge(TRAIN.drop_duplicates(), how="inner"))
    assert n_rows == (len(answers) if type(explainer) is Face else 0)  # which answers with rows
    assert answers["age"].between(TRAIN["age"].min(), TRAIN["age"].max()).all()
    assert set(answers["job"].dropna()) <= set(TRAIN["job"].dropna())
    assert set(answers["children"]) <= {0, 1, 2, 3}


def test_some_queries_have_no_answer(explainer: Any) -> None:
    """Those that have the outcome already, and those without a number."""
    queries = QUERIES.astype({"age": "Int64"})
    lacking = refused(QUERIES).index[0]
    queries.loc[lacking, "age"] = pd.NA
    everybody = QUERIES.assign(age=queries["age"])
    model = explainer._model
    explainer._model = lambda rows: model.predict(
        rows.assign(age=rows["age"].fillna(18).astype("int64"))
    )
    answers = explainer.explain(everybody)
    found = ~answers.isna().all(axis=1)
    assert not found[lacking]
    assert found.drop(lacking).tolist() == (MODEL.predict(QUERIES.drop(lacking)) == "no").tolist()


def test_other_columns_are_left_out(explainer: Any) -> None:
    """In any order of the columns."""
    labelled = TRAIN.assign(granted=MODEL.predict(TRAIN))
    again = type(explainer)(
        labelled, MODEL, "yes", list(TRAIN.columns), **QUICK.get(type(explainer), {})
    )
    queries = refused(QUERIES).head(6)
    expected = explainer.explain(queries)
    pd.testing.assert_frame_equal(
        again.explain(queries[list(TRAIN.columns)[::-1]].assign(extra=1)), expected
    )


def test_exceptions_quote_nothing(explainer: Any) -> None:
    """They name columns; what a model raises may contain rows."""
    with pytest.raises(AdapterError, match="queries have no column age, job"):
        explainer.explain(QUERIES.drop(columns=["age", "job"]))
    with pytest.raises(AdapterError, match="training rows have no column zip"):
        type(explainer)(TRAIN, MODEL, features=["age", "zip"])

    def quoting(rows: pd.DataFrame) -> None:
        raise ValueError(f"cannot take {rows.to_dict()}")

    explainer._model = quoting
    with pytest.raises(AdapterError, match="the model raised ValueError on 18 rows") as caught:
        explainer.explain(QUERIES)
    assert CANARY not in str(caught.value)
    explainer._model = lambda rows: ["no"]
    with pytest.raises(AdapterError, match="1 labels for 18 rows"):
        explainer.explain(QUERIES)


@pytest.mark.parametrize("method", METHODS)
def test_tables_may_have_only_categories(method: type[Any]) -> None:
    """There need not be a number."""
    train = TRAIN[["job", "owner"]]
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(train, train["owner"])
    answers = method(train, model, **QUICK.get(method, {})).explain(train.head(6))
    assert (answers["owner"] != train["owner"].head(6)).all()


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (Face, {"neighbours": 0}, "neighbours must be at least 1"),
        (Face, {"confidence": 2.0}, "neighbours must be at least 1"),
        (GrowingSpheres, {"samples": 0}, "samples must be at least 1"),
        (GrowingSpheres, {"growth": 1.0}, "samples must be at least 1"),
        (Cadex, {"changes": 0}, "changes and steps must be at least 1"),
        (Cadex, {"rate": 0.0}, "changes and steps must be at least 1"),
        (Revise, {"rounds": 0}, "must be at least 1, rates and weight above 0"),
        (Revise, {"weight": 0.0}, "must be at least 1, rates and weight above 0"),
        (CChvae, {"steps": 0}, "must be at least 1 and rate above 0"),
        (CChvae, {"rate": 0.0}, "must be at least 1 and rate above 0"),
        (Scfe, {"norm": "l0"}, "must be"),
        (Scfe, {"weight": 0.0}, "must be"),
        (Scfe, {"steps": 0}, "must be"),
    ],
)
def test_settings_are_checked(method: type[Any], settings: dict[str, Any], message: str) -> None:
    """The error names them."""
    with pytest.raises(AdapterError, match=message):
        method(numbers(9, 2), regression(np.ones(2)), **settings)


# --- tables as arrays, and back -------------------------------------------------------------------


def test_decode_returns_the_rows() -> None:
    """Missing categories and dtypes included."""
    rows = loans().astype({"children": "Int64", "income": "float32"})
    encoding = Encoding(rows)
    points = encoding.encode(rows)
    pd.testing.assert_frame_equal(encoding.decode(points), rows)
    assert encoding.numeric == ["age", "income", "children"]
    assert encoding.categorical == ["job", "owner", "region"]
    assert (encoding.sizes, encoding.whole.tolist()) == ([4, 2, 2], [True, False, True])


def test_other_categories_are_not_learned() -> None:
    """A query keeps a category that no training row has."""
    rows, other = loans(), loans(3).assign(job=["pilot", None, "smith"])
    known = Encoding(rows[rows["region"] == "north"]).knowing(other.assign(region="south"))
    back = known.decode(known.encode(other.assign(region="south")))
    assert back["job"].fillna("none").tolist() == ["pilot", "none", "smith"]
    assert back["region"].tolist() == ["south"] * 3
    assert known.sizes == [4, 2, 1]


def test_distance_counts_ranges() -> None:
    """A category counts 1, in l1 and in l2."""
    rows = pd.DataFrame({"age": [20.0, 60.0, 30.0], "city": ["a", "b", "a"]})
    encoding = Encoding(rows)
    points = encoding.encode(rows)
    first = points.take(np.zeros(3, dtype=int))
    np.testing.assert_allclose(encoding.distance(points, first), [0, 2, 0.25])
    np.testing.assert_allclose(encoding.distance(points, first, "l2"), [0, np.sqrt(2), 0.25])


def test_settled_numbers_fit_the_dtype() -> None:
    """Whole numbers stay whole, and all may stay within the ranges."""
    rows = pd.DataFrame(
        {"age": [20, 60], "pay": np.array([0.1, 0.9], dtype="float32"), "debt": [0.5, 1.0]}
    )
    encoding = Encoding(rows)
    own = np.array([[20.0, 0.5, 7.5], [19.5, 0.5, 0.6]])
    moved = own + np.array([[3.4, 0.0001, 9.0], [0.0, 1.0, -9.0]])
    inside = encoding.settled(moved, own, encoding.bounds(own, within_ranges=True))
    np.testing.assert_allclose(inside, [[23, 0.5001, 7.5], [19.5, 0.9, 0.5]], atol=1e-6)
    assert (inside[:, 1] == inside[:, 1].astype("float32")).all()
    free = encoding.settled(moved, own, encoding.bounds(own, within_ranges=False))
    np.testing.assert_allclose(free, [[23, 0.5001, 16.5], [19.5, 1.5, -8.4]], atol=1e-6)
    assert not encoding.is_fine
    assert Encoding(rows[["debt"]]).is_fine


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            pd.DataFrame({"age": [1.0, np.nan], "pay": [1, 2]}),
            "missing or infinite numbers.*impute column age$",
        ),
        (pd.DataFrame({"age": [1.0, np.inf]}), "column age"),
        (pd.DataFrame({"born": pd.to_datetime(["2001-01-01"])}), "columns born hold dates"),
        (pd.DataFrame({"age": []}), "at least one training row"),
    ],
)
def test_unsuitable_rows_are_refused(rows: pd.DataFrame, message: str) -> None:
    """Missing numbers, dates, and a table without rows."""
    with pytest.raises(AdapterError, match=message):
        Encoding(rows)


# --- FACE -----------------------------------------------------------------------------------------


def by_definition(
    train: pd.DataFrame, query: pd.DataFrame, goals: np.ndarray, neighbours: int
) -> tuple[int, float]:
    """Return the goal at the end of the cheapest path and its cost, from the distances alone."""
    heom = Heom.fit(train)
    apart, n = heom.distances(train, train), len(train)
    np.fill_diagonal(apart, inf)
    joined = [sorted(range(n), key=lambda j: apart[i, j])[:neighbours] for i in range(n)]
    unit = float(np.median([apart[i, j] for i in range(n) for j in joined[i]]))

    def cost(d: float) -> float:
        return d * log1p(d / unit)

    ways: dict[int, dict[int, float]] = {i: {} for i in range(n)}
    for i in range(n):
        for j in joined[i]:
            ways[i][j] = ways[j][i] = cost(apart[i, j])
    away = heom.distances(query, train)[0]
    best = dict.fromkeys(range(n), inf)
    queue = [(cost(away[j]), j) for j in np.argsort(away, kind="stable")[:neighbours]]
    heapq.heapify(queue)
    while queue:
        so_far, i = heapq.heappop(queue)
        if so_far >= best[i]:
            continue
        best[i] = so_far
        if goals[i]:
            return i, so_far
        for j, more in ways[i].items():
            heapq.heappush(queue, (so_far + more, int(j)))
    return -1, inf


@pytest.mark.parametrize("neighbours", [1, 2, 4])
def test_face_ends_the_cheapest_path(neighbours: int) -> None:
    """Paths are compared with those of the definition."""
    train, model = numbers(60, 2, seed=2), Linear(np.array([1.0, 1.0]), -0.8)
    queries = numbers(40, 2, seed=3)
    queries = queries[model.predict(queries) == 0]
    answers = Face(train, model, neighbours=neighbours).explain(queries)
    goals = model.predict(train) == 1
    expected = [
        by_definition(train, queries.iloc[[i]], goals, neighbours)[0] for i in range(len(queries))
    ]
    rows = train.reindex(expected).set_axis(queries.index)
    pd.testing.assert_frame_equal(answers, rows)
    nearest = Heom.fit(train).nearest(queries, train[goals])[0][:, 0]
    straight = train[goals].iloc[nearest].to_numpy()
    assert (answers.to_numpy() != straight).any()  # a path is not the way to the nearest


def test_dense_detour_beats_a_leap() -> None:
    """FACE goes where rows are; the nearest row is across a gap."""
    # Fifteen steps of 1 lead round to (0, 15); (0, 4.9) is nearer, across a gap.
    path = [
        (0.0, 0.0),
        *((x, y) for y, x in zip(np.arange(0, 15), np.r_[1:8, 8:0:-1], strict=True)),
        (0.0, 15.0),
    ]
    train = pd.DataFrame([*path, (-9.0, 4.9), (-9.0, 5.9)], columns=["x", "y"])

    def model(rows: pd.DataFrame) -> np.ndarray:
        return ((rows["y"] > 14.5) | (rows["x"] < -8)).to_numpy()

    query = pd.DataFrame({"x": [-1.0], "y": [0.0]})
    assert Face(train, model, neighbours=2).explain(query)["y"].tolist() == [15.0]
    assert NearestUnlikeNeighbour(train, model).explain(query)["y"].tolist() == [4.9]


def test_face_is_confident_enough() -> None:
    """And its answers have near neighbours."""
    train = loans()
    model = model_of_loans(train)
    queries = train[model.predict(train) == "no"].head(60)
    plain, sure = (
        Face(train, model, neighbours=20, confidence=c).explain(queries) for c in (None, 0.9)
    )
    assert model.predict_proba(plain)[:, 1].min() < 0.7
    assert model.predict_proba(sure)[:, 1].min() >= 0.9
    heom = Heom.fit(train)
    radius = heom.nearest(train, train, k=20, exclude_same=True)[1][:, -1]
    crowded = Face(train, model, neighbours=20, dense=0.2).explain(queries)
    own = heom.nearest(crowded, train, k=20, exclude_same=True)[1][:, -1]
    assert own.max() <= np.quantile(radius, 0.2) + 1e-12
    with pytest.raises(AdapterError, match="needs a model with predict_proba"):
        Face(train, model.predict, confidence=0.9).explain(queries)


def test_face_needs_a_path() -> None:
    """Or a row with the outcome."""
    train = pd.DataFrame({"x": [0.0, 1.0, 2.0, 50.0, 51.0, 52.0]})
    explainer = Face(train, lambda rows: rows["x"] > 10, neighbours=2)
    assert explainer.explain(pd.DataFrame({"x": [0.5]})).isna().all(axis=None)
    assert Face(train, lambda rows: rows["x"] > 99).explain(train).isna().all(axis=None)
    assert Face(train[:1], lambda rows: rows["x"] > 99).explain(train).isna().all(axis=None)


# --- Growing Spheres ------------------------------------------------------------------------------


def test_shell_is_filled_evenly() -> None:
    """By volume, and in all directions."""
    random = np.random.default_rng(0)
    drawn = l1_shell(np.array([0.0, 2.0]), np.array([1.0, 3.0]), 4000, 3, random)
    radius = np.abs(drawn).sum(axis=1)
    for part, low, high in ((radius[:4000], 0, 1), (radius[4000:], 2, 3)):
        assert low <= part.min() <= part.max() <= high
        halfway = ((low**3 + high**3) / 2) ** (1 / 3)  # half of the volume is inside of it
        assert (part < halfway).mean() == pytest.approx(0.5, abs=0.03)
    assert np.abs(drawn[:4000].mean(axis=0)).max() < 0.02
    # Even on the simplex: the largest of three shares is 11/18 of them on average.
    shares = np.abs(drawn) / radius[:, None]
    assert shares.max(axis=1).mean() == pytest.approx(11 / 18, abs=0.01)


@pytest.mark.parametrize("within_ranges", [True, False])
def test_spheres_end_near_the_boundary(within_ranges: bool) -> None:
    """Of a linear model the distance is known."""
    train, weights = numbers(300, 2), np.array([1.0, -2.0])
    model = Linear(weights, -0.3)
    queries = train[model.predict(train) == 0].head(40)
    explainer = GrowingSpheres(train, model, within_ranges=within_ranges)
    answers = explainer.explain(queries)
    assert (model.predict(answers) == 1).all()
    scale = explainer.encoding.scale
    exact = -(queries.to_numpy() @ weights - 0.3) / np.abs(weights * scale).max()
    found = (np.abs(answers - queries) / scale).sum(axis=1)
    assert (found / exact).between(1, 1.25).all()
    assert (found / exact).mean() < 1.05


def test_nearer_category_wins() -> None:
    """Over a change of a number."""
    # Twenty years of fifty, or another city: 0.4 against 1. Shells go on after the first draw of
    # another city.
    train = pd.DataFrame({"age": [20.0, 70.0] * 10, "city": ["a", "b"] * 10})
    queries = pd.DataFrame({"age": [30.0] * 20, "city": ["a"] * 20})
    answers = GrowingSpheres(
        train, lambda rows: (rows["age"] >= 50) | (rows["city"] == "b")
    ).explain(queries)
    assert (answers["city"] == "a").all()
    assert answers["age"].between(50, 53).all()
    cities = GrowingSpheres(train, lambda rows: rows["city"] == "b").explain(queries)
    assert (cities["city"] == "b").all()
    assert (cities["age"] - 30).abs().max() < 5


def test_sparse_answers_change_little() -> None:
    """Nothing more can be put back."""
    train, model = (
        numbers(200, 6).assign(city="a", kind="b"),
        Linear(np.array([2.0, -1.0, 0, 0, 0, 0]), -1.0),
    )
    train.loc[::2, "city"] = "b"

    def predict(rows: pd.DataFrame) -> np.ndarray:
        return np.maximum(model.predict(rows[train.columns[:6]]), rows["city"] == "c").astype(int)

    queries = train[predict(train) == 0].head(25)
    full, sparse = (
        GrowingSpheres(train, predict, sparse=sparse).explain(queries) for sparse in (False, True)
    )
    changed = (sparse != queries).to_numpy()
    assert (predict(sparse) == 1).all()
    assert (full != queries).to_numpy()[:, :6].all()
    # the model does not look at them, or not at what there is to choose
    assert not changed[:, 2:].any()
    for name in ["x0", "x1"]:  # nothing more can be put back
        back = predict(sparse.assign(**{name: queries[name]}))
        assert (back[sparse[name] != queries[name]] == 0).all()


@pytest.mark.parametrize("settings", [{}, {"within_ranges": False, "limit": 0.5}])
def test_spheres_stop_at_the_limit(settings: dict[str, Any]) -> None:
    """Beyond it, or beyond the ranges of the training rows, there is no answer."""
    train = numbers(100, 2)
    explainer = GrowingSpheres(train, Linear(np.array([1.0, 1.0]), -50.0), **settings)
    assert explainer.explain(train).isna().all(axis=None)


# --- C-CHVAE --------------------------------------------------------------------------------------


def along_a_line(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Two numbers that are opposite, a whole one and a category that follow them, and one that does
    not.
    """
    random = np.random.default_rng(seed)
    z = random.normal(size=n)
    return pd.DataFrame(
        {
            "a": z + 0.1 * random.normal(size=n),
            "b": -z + 0.1 * random.normal(size=n),
            "c": np.round(20 + 5 * z),
            "d": np.where(z > 0, "above", "below"),
            "e": random.choice(list("xyz"), n),
        }
    )


def rows_as_vectors(random: np.random.Generator, n: int) -> np.ndarray:
    one_hot = [np.eye(size)[random.integers(0, size, n)] for size in (2, 4)]
    one_hot[1][0] = 0  # a category that no training row has
    return np.hstack([random.normal(size=(n, 3)), *one_hot])


def test_gradient_is_of_evidence_bound() -> None:
    """Compared with differences."""
    random = np.random.default_rng(0)
    vae, x = Vae(3, [2, 4], latent=2, hidden=5, random=random), rows_as_vectors(random, 7)
    vae.parameters += random.normal(0, 0.3, vae.parameters.shape)
    noise = random.normal(size=(7, 2))
    found, expected = vae.loss_and_gradient(x, noise)[1], np.empty(vae.parameters.size)
    for i in range(vae.parameters.size):
        kept, sides = vae.parameters[i], []
        for step in (1e-6, -1e-6):
            vae.parameters[i] = kept + step
            sides.append(vae.loss_and_gradient(x, noise)[0])
        vae.parameters[i] = kept
        expected[i] = (sides[0] - sides[1]) / 2e-6
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_loss_is_negative_evidence_bound() -> None:
    """Written down from its definition."""
    random = np.random.default_rng(1)
    vae, x = Vae(3, [2], latent=2, hidden=5, random=random), rows_as_vectors(random, 6)[:, :5]
    code, noise = vae.encode(x), np.zeros((6, 2))
    out, coded = vae.decode(code)[0], propagate(vae._encoder, x)[0]
    errors = ((x - out)[:, :3] ** 2).sum(axis=1) / (2 * 0.5**2)
    chances = -np.log((out[:, 3:] * x[:, 3:]).sum(axis=1))
    divergence = 0.5 * (np.exp(coded[:, 2:]) + code**2 - 1 - coded[:, 2:]).sum(axis=1)
    assert vae.loss_and_gradient(x, noise)[0] == pytest.approx(
        (errors + chances + divergence).mean()
    )
    np.testing.assert_allclose(out[:, 3:].sum(axis=1), 1)


def test_c_chvae_answers_near_rows() -> None:
    """Columns that the model does not look at follow the others."""
    train = along_a_line()

    def model(rows: pd.DataFrame) -> np.ndarray:
        return (rows["a"] > 0.7).to_numpy()

    queries = train[train["a"] < 0].head(60)
    answers = CChvae(train, model, samples=100, steps=800).explain(queries)
    assert model(answers).all()
    # The model looks at `a` alone; the other columns follow it, as they do in the training rows.
    assert (answers["a"] + answers["b"]).abs().mean() < 0.2
    assert (answers["c"] - 20 - 5 * answers["a"]).abs().mean() < 1.5
    assert (answers["d"] == "above").mean() > 0.9
    assert (answers["c"] % 1 == 0).all()
    assert set(answers["e"]) <= set("xyz")
    assert not answers.merge(train, how="left", indicator=True)["_merge"].eq("both").any()


# --- CADEX and REVISE -----------------------------------------------------------------------------


def changed(answers: pd.DataFrame, queries: pd.DataFrame) -> pd.Series:
    same = (answers == queries) | (answers.isna() & queries.isna())
    return (~same).sum(axis=1)


def test_cadex_changes_few_features() -> None:
    """One where that is enough, and twice as many where it is not."""
    train = numbers(60, 4)
    model = LogisticRegression().fit(train, (train.sum(axis=1) > 0).astype(int))
    queries = train[model.predict(train) == 0]
    once = Cadex(train, model, desired=1).explain(queries)
    change, found = changed(once, queries), once.notna().all(axis=1)
    assert found.all()
    assert set(change) <= {1, 2, 3, 4}
    assert (change == 1).any()
    # for these the steepest alone does not suffice, whatever it is
    for index in change.index[change > 1]:
        steepest = np.abs(model.coef_[0] * np.ptp(train.to_numpy(), axis=0)).argmax()
        tried = queries.loc[[index]].copy()
        tried.iloc[0, steepest] = train.iloc[:, steepest].agg(
            "max" if model.coef_[0, steepest] > 0 else "min"
        )
        assert model.predict(tried) == [0]
    assert changed(Cadex(train, model, desired=1, changes=4).explain(queries), queries).max() == 4


def test_gradients_pass_the_decoder() -> None:
    """Compared with differences."""
    encoding = Encoding(TRAIN)
    points = encoding.encode(TRAIN)
    latent = Latent(encoding, points, 0, latent=3, hidden=5, steps=20, batch=32, rate=0.01)
    codes = latent.encode(Vectors(encoding).of(points.take(slice(4))))
    decoded, backward = latent.decode(codes)
    by_vectors = np.random.default_rng(0).normal(size=decoded.shape)
    found, step = backward(by_vectors), 1e-6
    for j in range(3):
        moved = codes + step * np.eye(3)[j]
        expected = ((latent.decode(moved)[0] - decoded) * by_vectors).sum(axis=1) / step
        np.testing.assert_allclose(found[:, j], expected, rtol=1e-3, atol=1e-3)
