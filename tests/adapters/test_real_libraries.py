"""Adapters for other libraries with the real ones behind them, where they are installed: they do
not fit beside ours.

Each needs an environment of its own; docs/how-to/wrap-an-explainer.md says which.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cfk_adapters import shapes
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.testing import check_adapter
from other_libraries import functions

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries of other years on newer ones
FEATURES = ["age", "income", "debt"]


def applicants(n: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "income": np.round(random.normal(50, 15, n), 1),
            "debt": random.integers(0, 40, n),
        }
    )


ROWS = applicants(300)
OUTCOMES = (ROWS["age"] / 70 + ROWS["income"] / 60 - ROWS["debt"] / 80 > 1.3).astype(int).to_numpy()
MODEL = make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS.to_numpy(), OUTCOMES)
QUERIES = ROWS[MODEL.predict(ROWS.to_numpy()) == 0].head(3)
TWO = QUERIES.head(2)


def score(rows: Any) -> Any:
    return MODEL.predict_proba(np.asarray(rows, dtype=float))


def checked(explainer: Any, queries: pd.DataFrame = QUERIES, **options: Any) -> Any:
    """Keep the contract, be protected, and return what the explainer's own method gives,
    protected.
    """
    batch = check_adapter(explainer, queries, FEATURES, plugins=[shapes], **options)
    population = Population.from_frame(
        ROWS, Schema.from_frame(ROWS, quasi_identifiers=["age", "debt"])
    )
    policy = PrivacyPolicy(k=5, guarantee="reciprocal", min_pureness=0)
    private = protect(
        explainer, model=lambda rows: MODEL.predict(rows.to_numpy()), population=population, policy=policy,
        desired=1, plugins=[shapes],
    )  # fmt: skip
    options.pop("arguments", None)
    answers = private.explain(queries, **options)
    flips = (MODEL.predict(batch.frame.to_numpy()) == 1).sum() if len(batch.frame) else 0
    print(
        f"{private!r}: {len(queries)} queries, {len(batch.frame)} answers, {flips} flip, {answers.summary()}"
    )
    assert answers.released, answers.summary()
    return private


@pytest.fixture
def alibi() -> Any:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    library = pytest.importorskip(
        "alibi.explainers", reason="needs alibi and TensorFlow, which need numpy < 2"
    )
    pytest.importorskip("tensorflow").compat.v1.disable_eager_execution()
    return library


LOW, HIGH = (ROWS.agg(how).to_numpy(dtype=np.float32)[None] for how in ("min", "max"))


def test_alibi_proto(alibi: Any) -> None:
    explainer = alibi.CounterfactualProto(
        score,
        shape=(1, 3),
        use_kdtree=True,
        theta=10.0,
        feature_range=(LOW, HIGH),
        max_iterations=100,
        c_steps=2,
    )
    explainer.fit(ROWS.to_numpy(dtype=np.float32))
    one = TWO.head(1).to_numpy(dtype=np.float32)
    private = checked(
        explainer, TWO, arguments={"explain": ([one], {"target_class": [1]})}, target_class=[1]
    )
    answer = private.explain(one, target_class=[1])
    assert type(answer).__name__ == "Explanation"
    assert answer.cf is None or (answer.cf["class"] == 1 and answer.cf["X"].shape == (1, 3))


def test_alibi_counterfactual(alibi: Any) -> None:
    explainer = alibi.Counterfactual(
        score, shape=(1, 3), target_class=1, target_proba=0.6, tol=0.1, max_iter=60, max_lam_steps=3,
        feature_range=(LOW, HIGH), learning_rate_init=1.0,
    )  # fmt: skip
    one = TWO.head(1).to_numpy(dtype=np.float32)
    private = checked(explainer, TWO, arguments={"explain": ([one], {})})
    answer = private.explain(one)
    assert type(answer).__name__ == "Explanation"
    assert answer.all == []


def test_alibi_pertinent_negatives(alibi: Any) -> None:
    rich = ROWS[
        (MODEL.predict(ROWS.to_numpy()) == 0) & (ROWS["income"] > ROWS["income"].median() + 5)
    ].head(2)
    explainer = alibi.CEM(
        score, "PN", shape=(1, 3), feature_range=(LOW, HIGH), max_iterations=200, c_steps=3, c_init=100.0,
        learning_rate_init=0.5,
    )  # fmt: skip
    explainer.fit(ROWS.to_numpy(dtype=np.float32), no_info_type="median")
    one = rich.head(1).to_numpy(dtype=np.float32)
    private = checked(explainer, rich, arguments={"explain": ([one], {})})
    answer = private.explain(one)
    assert answer.PN is None or answer.PN_pred == 1
    with pytest.raises(AssertionError, match="keeps the outcome"):
        checked(alibi.CEM(score, "PP", shape=(1, 3), feature_range=(LOW, HIGH)))


def test_alibi_reinforcement() -> None:
    alibi = pytest.importorskip(
        "alibi.explainers", reason="needs alibi and TensorFlow, which need numpy < 2"
    )
    if not pytest.importorskip("tensorflow").executing_eagerly():
        pytest.skip("alibi's other explainers have switched TensorFlow over: run this test alone")
    from alibi.explainers.backends.cfrl_tabular import get_he_preprocessor
    from alibi.models.tensorflow.autoencoder import HeAE
    from alibi.models.tensorflow.cfrl_models import ADULTDecoder, ADULTEncoder

    jobs = ["clerk", "nurse", "smith"]
    coded = ROWS.assign(job=np.arange(len(ROWS)) % 3).to_numpy(dtype=float)
    preprocessor, inverse = get_he_preprocessor(
        coded, [*FEATURES, "job"], {3: jobs}, {"age": int, "debt": int}
    )
    autoencoder = HeAE(encoder=ADULTEncoder(16, 4), decoder=ADULTDecoder(16, [3, 3]))
    explainer = alibi.CounterfactualRLTabular(
        predictor=lambda rows: score(rows[:, :3]), encoder=autoencoder.encoder, decoder=autoencoder.decoder,
        encoder_preprocessor=preprocessor, decoder_inv_preprocessor=inverse, coeff_sparsity=0.5, coeff_consistency=0.5,
        feature_names=[*FEATURES, "job"], category_map={3: jobs}, immutable_features=["job"],
        train_steps=300, batch_size=64, latent_dim=4,
        backend="tensorflow", ranges={},
    )  # fmt: skip
    explainer.fit(coded)
    queries = TWO.assign(job=["clerk", "smith"])
    own = {"explain": ([coded[:2]], {"Y_t": np.array([1]), "C": []})}
    batch = check_adapter(
        explainer, queries, list(queries), plugins=[shapes], arguments=own, target_class=1, C=[]
    )
    print(f"CounterfactualRLTabular: {len(batch.frame)} of 2 found")
    assert set(batch.frame["job"]) <= set(jobs)
    assert batch.constraints == {"features_to_vary": FEATURES}


def test_omnixai() -> None:
    library = pytest.importorskip(
        "omnixai.explainers.tabular", reason="needs omnixai, which needs numpy < 1.24"
    )
    from omnixai.data.tabular import Tabular

    table = Tabular(ROWS.assign(label=OUTCOMES), target_column="label")

    def scored(rows: Any) -> Any:
        return score(rows.to_pd()[FEATURES])

    for kind in (library.MACEExplainer, library.KNNCounterfactualExplainer):
        private = checked(
            kind(training_data=table, predict_function=scored),
            QUERIES,
            y=[1, 1, 1],
            max_number_examples=2,
        )
        answer = private.explain(Tabular(QUERIES), y=[1, 1, 1], max_number_examples=2)
        assert type(answer).__name__ == "CFExplanation"
        assert len(answer.explanations) == 3
        assert {label for each in answer.explanations if each["counterfactual"] is not None
                for label in each["counterfactual"]["label"]} <= {1}  # fmt: skip


# CARLA needs Python 3.7, so what it has is asked in a process of that: rows go there and back as
# CSV.
THERE = """
import io, os, pickle, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # it prints
import pandas as pd
from carla import MLModelCatalog
from carla.data.catalog import CsvCatalog
from carla.recourse_methods import GrowingSpheres

data = CsvCatalog(sys.argv[1], categorical=["job"], continuous=["age", "income", "debt"], immutables=[], target="y")
model = MLModelCatalog(data, "linear", backend="pytorch", load_online=False)
model.train(learning_rate=0.01, epochs=20, batch_size=32, force_train=True)
has = {"transform": data.transform, "inverse_transform": data.inverse_transform}
has["predict"] = lambda rows: pd.DataFrame({"y": model.predict(data.transform(rows)).round().ravel()})
has["get_counterfactuals"] = GrowingSpheres(model).get_counterfactuals
while True:
    name, rows = pickle.load(sys.stdin.buffer)
    rows = pd.read_csv(io.StringIO(rows), index_col=0)
    pickle.dump(has[name](rows).to_csv(), out, 2)
    out.flush()
"""


def test_carla(tmp_path: Path) -> None:
    if not (python := os.environ.get("CARLA_PYTHON")):
        pytest.skip("needs CARLA_PYTHON, a Python 3.7 with carla-recourse")
    table = ROWS.assign(job=np.where(ROWS["debt"] % 2, "clerk", "nurse"))
    table.assign(y=OUTCOMES).to_csv(tmp_path / "train.csv", index=False)
    command = [python, "-W", "ignore", "-c", THERE, str(tmp_path / "train.csv")]
    there = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": ""},
    )  # fmt: skip

    def asked(name: str, rows: pd.DataFrame) -> pd.DataFrame:
        assert there.stdin is not None
        assert there.stdout is not None
        pickle.dump((name, rows.to_csv()), there.stdin, 2)
        there.stdin.flush()
        return pd.read_csv(io.StringIO(pickle.load(there.stdout)), index_col=0)

    transform, inverse, recourse = (
        partial(asked, name) for name in ("transform", "inverse_transform", "get_counterfactuals")
    )
    catalog = SimpleNamespace(target="y", transform=transform, inverse_transform=inverse)
    method = SimpleNamespace(get_counterfactuals=recourse)
    explainer = functions()["ask_carla"](method, catalog)
    with there:
        outcomes = asked("predict", table)["y"].to_numpy()
        queries = table[outcomes == 0].head(3)
        batch = check_adapter(explainer, queries, list(table))
        population = Population.from_frame(
            table, Schema.from_frame(table, quasi_identifiers=["age", "job"])
        )
        private = protect(
            explainer, model=lambda rows: asked("predict", rows)["y"].to_numpy(), population=population,
            policy=PrivacyPolicy(k=5, guarantee="reciprocal", min_pureness=0), desired=1,
        )  # fmt: skip
        answers = private.explain(queries)
        there.kill()
    print(f"GrowingSpheres: {len(batch.frame)} of 3 found, {answers.summary()}")
    assert set(batch.frame["job"]) <= {"clerk", "nurse"}
    assert answers.released


def test_cfnow() -> None:
    library = pytest.importorskip("cfnow", reason="needs cfnow")
    frozen = partial(
        library.find_tabular, model_predict_proba=score, limit_seconds=5, cf_strategy="greedy"
    )
    checked(functions()["ask_cfnow"](frozen), QUERIES)


def test_fat_forensics() -> None:
    library = pytest.importorskip(
        "fatf.transparency.predictions.counterfactuals", reason="needs fat-forensics"
    )
    explainer = library.CounterfactualExplainer(
        predictive_function=lambda rows: MODEL.predict(rows),  # noqa: PLW0108 - it counts arguments
        dataset=ROWS.to_numpy(), default_numerical_step_size=3,
        counterfactual_feature_indices=[1, 2], categorical_indices=[], numerical_indices=[0, 1, 2],
    )  # fmt: skip
    checked(functions()["ask_fat_forensics"](explainer), QUERIES)


def test_protodash() -> None:
    library = pytest.importorskip(
        "aix360.algorithms.protodash", reason="needs aix360 and its solvers"
    )
    checked(
        functions()["ask_protodash"](library.ProtodashExplainer(), ROWS[OUTCOMES == 1]), QUERIES
    )


def test_attributions_are_refused() -> None:
    library = pytest.importorskip("shap", reason="needs shap")
    with pytest.raises(AssertionError, match="returns no counterfactuals"):
        check_adapter(
            library.Explainer(score, ROWS.to_numpy()), QUERIES, FEATURES, plugins=[shapes]
        )
