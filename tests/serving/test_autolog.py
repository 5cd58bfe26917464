"""`autolog` observes: real DiCE, real NICE, a real MLflow store.

It counts what leaves, and does not stop it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.utils.autologging_utils import disable_autologging
from sklearn.tree import DecisionTreeClassifier

import cfk_plugin.mlflow
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.hookspecs import RawMethod
from cfk_plugin.records.spool import shipper
from cfk_plugin.serving.autolog import CALLS, GIVEN_OUT

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
nice = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")

POLICY = PrivacyPolicy(guarantee="reciprocal", k=5)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """People whose pay occurs nowhere else: 1,000,003 and on."""
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {"age": random.integers(20, 60, 80), "pay": 1_000_003 + 7_919 * np.arange(80)}
    )


@pytest.fixture(scope="module")
def labels(rows: pd.DataFrame) -> pd.Series:
    return (rows["pay"] > 1_300_000).astype(int)


@pytest.fixture(scope="module")
def model(rows: pd.DataFrame, labels: pd.Series) -> Any:
    return DecisionTreeClassifier(max_depth=2, random_state=0).fit(
        rows.to_numpy(float, copy=True), labels
    )


@pytest.fixture(scope="module")
def predict(model: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda table: model.predict(np.asarray(table, dtype=float))


@pytest.fixture(scope="module")
def population(rows: pd.DataFrame) -> Population:
    return Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age"]))


@pytest.fixture
def dice(rows: pd.DataFrame, labels: pd.Series) -> Any:
    fitted = DecisionTreeClassifier(max_depth=2, random_state=0).fit(rows, labels)
    data = dice_ml.Data(
        dataframe=rows.assign(good=labels), continuous_features=["age", "pay"], outcome_name="good"
    )
    return dice_ml.Dice(data, dice_ml.Model(model=fitted, backend="sklearn"), method="kdtree")


@pytest.fixture
def nice_explainer(rows: pd.DataFrame, labels: pd.Series, model: Any) -> Any:
    array = rows.to_numpy(float, copy=True)
    return nice.NICE(
        model.predict_proba, array, cat_feat=[], y_train=labels.to_numpy(), optimization="none"
    )


@pytest.fixture
def queries(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.head(2)


@pytest.fixture(autouse=True)
def _off_afterwards(mlflow_store: str) -> Iterator[None]:
    yield
    cfk_plugin.mlflow.autolog(disable=True)


def ask_dice(explainer: Any, queries: pd.DataFrame, n: int = 3) -> Any:
    with contextlib.redirect_stderr(io.StringIO()):  # DiCE's progress bar
        return explainer.generate_counterfactuals(queries, total_CFs=n, desired_class=1)


def counted(run: Any) -> dict[str, float]:
    found = mlflow.get_run(run.info.run_id).data.metrics
    return {name: found[name] for name in (CALLS, GIVEN_OUT) if name in found}


def one_row(queries: pd.DataFrame, i: int = 0) -> Any:
    return queries.iloc[[i]].to_numpy(float, copy=True)


def test_raw_counterfactuals_are_counted_and_still_leave_and_no_value_is_logged(
    dice: Any,
    nice_explainer: Any,
    queries: pd.DataFrame,
    rows: pd.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cfk_plugin.mlflow.autolog()
    with caplog.at_level(logging.DEBUG), mlflow.start_run() as run:
        found = ask_dice(dice, queries)
        ask_dice(dice, queries.head(1), 1)
    assert counted(run) == {CALLS: 2, GIVEN_OUT: 7}
    given = pd.concat([examples.final_cfs_df for examples in found.cf_examples_list])
    # somebody's: observation does not protect
    assert set(given["pay"].astype(int)) <= set(rows["pay"])
    with caplog.at_level(logging.DEBUG), mlflow.start_run() as run:
        raw = [nice_explainer.explain(one_row(queries, i)) for i in range(2)]
    assert counted(run) == {CALLS: 2, GIVEN_OUT: 2}
    assert {int(row[0][1]) for row in raw} <= set(rows["pay"])
    secrets = [str(pay).encode() for pay in rows["pay"]]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "mlflow.db" for path in files)
    assert not [
        path.name for path in files if any(secret in path.read_bytes() for secret in secrets)
    ]
    assert not any(secret.decode() in caplog.text for secret in secrets)


def test_importances_count_the_counterfactuals_that_they_bring(
    dice: Any, rows: pd.DataFrame
) -> None:
    cfk_plugin.mlflow.autolog()
    with mlflow.start_run() as run, contextlib.redirect_stderr(io.StringIO()):
        dice.local_feature_importance(rows.head(1), total_CFs=10)
    assert counted(run) == {CALLS: 1, GIVEN_OUT: 10}


def test_a_call_that_finds_nothing_is_a_call_and_raises_as_before(
    dice: Any, queries: pd.DataFrame
) -> None:
    cfk_plugin.mlflow.autolog()
    with mlflow.start_run() as run, pytest.raises(Exception, match="Desired class not present"):
        dice.generate_counterfactuals(queries, total_CFs=1, desired_class=7)
    assert counted(run) == {CALLS: 1, GIVEN_OUT: 0}


@pytest.mark.parametrize("kind", ["dice", "nice"])
def test_calls_that_protection_makes_are_not_counted(
    kind: str,
    request: pytest.FixtureRequest,
    predict: Any,
    population: Population,
    queries: pd.DataFrame,
    capfd: pytest.CaptureFixture[str],
) -> None:
    explainer = request.getfixturevalue({"dice": "dice", "nice": "nice_explainer"}[kind])
    cfk_plugin.mlflow.autolog()
    private = protect(explainer, model=predict, population=population, policy=POLICY, desired=1)
    with mlflow.start_run() as run:
        released = private.explain(queries)
        if kind == "dice":
            private.generate_counterfactuals(queries, total_CFs=1, desired_class=1)
        else:
            private.explain(queries.to_numpy(float, copy=True))
        assert shipper().flush(60)
    assert counted(run) == {}
    assert "%|" not in capfd.readouterr().err  # the progress bar of DiCE
    found = mlflow.get_run(run.info.run_id).data.metrics
    # and what was released is logged, without track=True
    assert found["cfk.asked"] == 2 * len(released)
    assert found["cfk.released"] == 2 * len(released.released) > 0


def test_without_a_run_nothing_is_counted_and_no_run_is_made(
    nice_explainer: Any, queries: pd.DataFrame
) -> None:
    cfk_plugin.mlflow.autolog()
    nice_explainer.explain(one_row(queries))
    assert mlflow.search_runs(output_format="list") == []


def test_it_can_be_switched_off_and_on_again(nice_explainer: Any, queries: pd.DataFrame) -> None:
    row = one_row(queries)
    original = nice.NICE.explain
    with mlflow.start_run() as run:
        for _ in range(2):
            cfk_plugin.mlflow.autolog()
            nice_explainer.explain(row)
            cfk_plugin.mlflow.autolog(disable=True)
            nice_explainer.explain(row)
            assert nice.NICE.explain is original
        cfk_plugin.mlflow.autolog()
        cfk_plugin.mlflow.autolog()  # twice is once
        nice_explainer.explain(row)
        with disable_autologging():
            nice_explainer.explain(row)
    assert counted(run) == {CALLS: 3, GIVEN_OUT: 3}


@pytest.mark.parametrize("settings", [{"disable": True}, {"exclusive": True}])
def test_settings_hold_for_what_is_released_too(
    settings: dict[str, bool],
    predict: Any,
    population: Population,
    nice_explainer: Any,
    queries: pd.DataFrame,
) -> None:
    cfk_plugin.mlflow.autolog(**settings)
    private = protect(
        nice_explainer, model=predict, population=population, policy=POLICY, desired=1
    )
    with mlflow.start_run() as run:
        private.explain(queries)
        nice_explainer.explain(one_row(queries))
        assert shipper().flush(60)
    assert mlflow.get_run(run.info.run_id).data.metrics == {}


def test_counting_goes_on_where_another_process_stopped(
    nice_explainer: Any, queries: pd.DataFrame
) -> None:
    with mlflow.start_run() as run:
        mlflow.log_metrics({CALLS: 4, GIVEN_OUT: 9}, step=4)
        cfk_plugin.mlflow.autolog()
        nice_explainer.explain(one_row(queries))
    assert counted(run) == {CALLS: 5, GIVEN_OUT: 10}


@pytest.mark.parametrize("silent", [True, False])
def test_a_store_that_is_down_costs_no_explanation(
    silent: bool, nice_explainer: Any, queries: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    cfk_plugin.mlflow.autolog(silent=silent)
    with mlflow.start_run():
        here = mlflow.get_tracking_uri()
        # the port of the discard service: nobody answers
        mlflow.set_tracking_uri("http://127.0.0.1:9")
        with caplog.at_level(logging.WARNING, "cfk_plugin"):
            found = nice_explainer.explain(one_row(queries))
        mlflow.set_tracking_uri(here)
    assert found is not None
    assert ("was not logged (StoreDownError)" in caplog.text) != silent


@pytest.mark.parametrize("kind", [ValueError, type("PanicException", (BaseException,), {})])
def test_an_answer_that_cannot_be_counted_is_a_call(
    kind: Any,
    nice_explainer: Any,
    queries: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def count(found: Any) -> int:
        raise kind(f"what is {found}?")

    method = RawMethod("nice", "NICE", "explain", count)
    monkeypatch.setattr("cfk_plugin.plugins.PluginManager.raw_methods", lambda _: [method])
    cfk_plugin.mlflow.autolog()
    with mlflow.start_run() as run, caplog.at_level(logging.DEBUG):
        assert nice_explainer.explain(one_row(queries)) is not None
    assert counted(run) == {CALLS: 1, GIVEN_OUT: 0}
    assert f"could not be counted ({kind.__name__})" in caplog.text
    assert "what is" not in caplog.text


@pytest.mark.slow
def test_a_library_that_is_imported_later_is_observed(tmp_path: Path, mlflow_store: str) -> None:
    code = """
import sys
import cfk_plugin.mlflow, mlflow, numpy as np
cfk_plugin.mlflow.autolog()
assert not {"nice", "dice_ml"} & set(sys.modules), "observing imports nothing"
import nice
X = np.arange(40.0).reshape(20, 2)
y = (X[:, 0] > 20).astype(int)
explainer = nice.NICE(lambda rows: np.eye(2)[(rows[:, 0] > 20).astype(int)], X, cat_feat=[], y_train=y)
with mlflow.start_run() as run:
    explainer.explain(X[:1])
print(mlflow.get_run(run.info.run_id).data.metrics)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "'cfk.unprotected': 1.0" in done.stdout
    assert "'cfk.unprotected_calls': 1.0" in done.stdout
