"""Where MLflow may load no pickle, a protected model loads none either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from cfk_plugin import Population, PrivacyPolicy, Schema, log_protected_model
from cfk_plugin.errors import InputError
from cfk_plugin.serving.pyfunc import load_inner

SWITCH = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
TABLE = pd.DataFrame(
    {
        "age": np.random.default_rng(0).integers(20, 70, 200),
        "pay": np.random.default_rng(1).integers(10, 90, 200),
    }
)
MODEL = LogisticRegression().fit(TABLE, TABLE["pay"] > 40)
QUERIES = TABLE[TABLE["pay"] <= 40].head(5)


def nearest(rows: pd.DataFrame) -> pd.DataFrame:
    return TABLE[TABLE["pay"] > 40].head(len(rows))


def logged(explainer: Any, model: Any, guarantee: str) -> str:
    """Log a protected model; return its URI."""
    population = Population.from_frame(TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age"]))
    with mlflow.start_run():
        found = log_protected_model(
            explainer,
            model=model,
            desired=True,
            population=population,
            policy=PrivacyPolicy(k=5, guarantee=guarantee),
            requirements=[],
        )
    return str(found.model_uri)


def statuses(uri: str) -> set[str]:
    return set(pd.DataFrame(mlflow.pyfunc.load_model(uri).predict(QUERIES))["status"])


@pytest.mark.usefixtures("mlflow_store")
def test_a_pickle_is_refused_where_mlflow_may_load_none(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = logged(nearest, MODEL, "lookup")
    assert statuses(uri) == {"released"}
    monkeypatch.setenv(SWITCH, "false")
    with pytest.raises(Exception, match=f"logged as a pickle.*{SWITCH}"):
        mlflow.pyfunc.load_model(uri)


CODE = """
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Threshold(PythonModel):
    def predict(self, context, model_input, params=None):
        return (model_input["pay"] > 40).to_numpy()


set_model(Threshold())
"""


@pytest.mark.usefixtures("mlflow_store")
def test_without_a_pickle_a_catalogue_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is logged as code, a catalogue needs no explainer, and ours comes as code."""
    monkeypatch.setenv(SWITCH, "false")
    (tmp_path / "threshold.py").write_text(CODE)
    with mlflow.start_run():
        model = mlflow.pyfunc.log_model(
            name="model", python_model=str(tmp_path / "threshold.py"), pip_requirements=[]
        )
    assert statuses(logged(None, model.model_uri, "catalogue")) == {"released"}


EXPLAINER = """
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Raise(PythonModel):
    def predict(self, context, model_input, params=None):
        return model_input.assign(pay=model_input["pay"] + 30)


set_model(Raise())
"""


@pytest.mark.usefixtures("mlflow_store")
def test_explainer_and_model_are_logged_from_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "false")
    (tmp_path / "threshold.py").write_text(CODE)
    (tmp_path / "raise_pay.py").write_text(EXPLAINER)
    uri = logged(str(tmp_path / "raise_pay.py"), str(tmp_path / "threshold.py"), "lookup")
    assert "released" in statuses(uri)
    folder = Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(tmp_path / "there")))
    assert not [*folder.rglob("*.pkl")]
    with pytest.raises(InputError, match="no such file"):
        logged(str(tmp_path / "none.py"), MODEL, "lookup")


def test_what_a_pickle_would_run_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "false")
    (tmp_path / "model.pkl").write_bytes(b"cos\nabort\n(tR.")
    with pytest.raises(Exception, match="model: it was logged as a pickle"):
        load_inner(str(tmp_path / "model.pkl"))
