"""Protected models: what is logged or saved comes back, and says what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    load_protected,
    log_protected_model,
    protect,
)
from cfk_plugin.errors import BundleError, InputError, ModelError, PolicyError
from cfk_plugin.serving import save_protected_model
from model_server import K, logged, patients, served

NAME = "patients-explained"
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RANDOM.integers(20, 70, 300),
        "pay": RANDOM.integers(10, 90, 300),
        "town": RANDOM.choice(["Ghent", "Namur"], 300),
    }
)
NUMBERS = ["age", "pay"]
MODEL = LogisticRegression().fit(TABLE[NUMBERS], TABLE["pay"] + RANDOM.normal(0, 8, 300) > 45)
DOMAINS = {
    "age": Attribute(bounds=(18, 90)),
    "pay": Attribute(bounds=(0, 100)),
    "town": Attribute(categories=["Ghent", "Namur"]),
}
POPULATION = Population.from_frame(
    TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age"], columns=DOMAINS, nullable=[])
)
QUERIES = TABLE[~MODEL.predict(TABLE[NUMBERS])].head(10).reset_index(drop=True)
SWITCH = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"


def catalogue(**options: Any) -> KAnonymizer:
    """Fit a catalogue."""
    return KAnonymizer(policy=PrivacyPolicy(k=5)).fit(POPULATION, MODEL, True, **options)


def prototypes() -> DPPrototypes:
    """Fit prototypes with seeded noise."""
    with pytest.warns(match="seeded"):
        return DPPrototypes(rows=500, random_state=0).fit(POPULATION, MODEL, True)


PRIVATE = {
    "a catalogue": catalogue,
    "a threshold": lambda: catalogue(threshold=0.7),
    "later models": lambda: catalogue(
        later=[LogisticRegression(C=0.1).fit(TABLE[NUMBERS], TABLE["pay"] > 45)]
    ),
    "a wrapped explainer": lambda: protect(
        lambda queries: TABLE.head(len(queries)),
        model=MODEL,
        population=POPULATION,
        k=5,
        desired=True,
    ),
    "prototypes": prototypes,
}


@pytest.mark.parametrize("make", PRIVATE.values(), ids=PRIVATE)
def test_folder_gives_the_same_answers(make: Any, tmp_path: Path) -> None:
    """Whatever answers, a folder brings it back without the training table."""
    private = make()
    save_protected_model(private, tmp_path / "model", pip_requirements=[])
    loaded = load_protected(tmp_path / "model")
    expected = json.loads(private.explain(QUERIES).to_json())
    assert json.loads(loaded.explain(QUERIES).to_json()) == expected
    answer = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(QUERIES)
    for entry in answer["explanations"]:
        del entry["sentence"]
    assert answer == expected


def test_loaded_explainer_is_logged_again(mlflow_store: str, tmp_path: Path) -> None:
    """What was loaded can be saved like what was fitted."""
    save_protected_model(catalogue(), tmp_path / "first", pip_requirements=[])
    loaded = load_protected(tmp_path / "first")
    with mlflow.start_run():
        info = log_protected_model(loaded, pip_requirements=[])
    again = load_protected(info.model_uri)
    assert again.explain(QUERIES) == loaded.explain(QUERIES)


# --- the model that is explained --------------------------------------------------------------------

CODE = """
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Threshold(PythonModel):
    def predict(self, context, model_input, params=None):
        return (model_input["pay"] > {pay}).to_numpy()


set_model(Threshold())
"""


def model_from_code(folder: Path, pay: int) -> str:
    """Let MLflow save a model as code, and return its folder."""
    (folder / "threshold.py").write_text(CODE.format(pay=pay))
    path = folder / f"threshold-{pay}"
    mlflow.pyfunc.save_model(
        str(path), python_model=str(folder / "threshold.py"), pip_requirements=[]
    )
    return str(path)


def test_model_of_mlflow_needs_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where MLflow may load no pickle, the model is given by its URI; its pickle is refused."""
    policy = PrivacyPolicy(k=5, margin=0)
    private = KAnonymizer(policy=policy).fit(POPULATION, lambda rows: rows["pay"] > 45, True)
    monkeypatch.setenv(SWITCH, "false")
    with pytest.raises(MlflowException, match=SWITCH):
        save_protected_model(private, tmp_path / "pickled", pip_requirements=[])
    uri = model_from_code(tmp_path, 45)
    save_protected_model(private, tmp_path / "model", model=uri, pip_requirements=[])
    assert not [*(tmp_path / "model").rglob("*.pkl")]
    assert load_protected(tmp_path / "model").explain(QUERIES) == private.explain(QUERIES)


def test_another_model_is_refused(tmp_path: Path) -> None:
    """The catalogue answers only with the model of the fit."""
    policy = PrivacyPolicy(k=5, margin=0)
    private = KAnonymizer(policy=policy).fit(POPULATION, lambda rows: rows["pay"] > 45, True)
    with pytest.raises(ModelError):
        save_protected_model(private, tmp_path / "model", model=model_from_code(tmp_path, 80))


# --- what is refused --------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "a population": (lambda: POPULATION, {}, InputError, "give a ProtectedExplainer"),
    "no fit": (KAnonymizer, {}, NotFittedError, "call fit"),
    "no fit of prototypes": (DPPrototypes, {}, NotFittedError, "call fit"),
    "a lookup": (
        lambda: protect(len, model=MODEL, population=POPULATION, policy=PrivacyPolicy(k=5, guarantee="lookup"), desired=True),
        {},
        PolicyError,
        "needs the training table",
    ),
    "a function as outcome": (
        lambda: KAnonymizer(policy=PrivacyPolicy(k=5)).fit(POPULATION, MODEL, lambda labels: labels == 1),
        {},
        InputError,
        "function",
    ),
    "strict alone": (catalogue, {"strict": True}, InputError, "add track=True"),
    "a model as object": (catalogue, {"model": MODEL}, InputError, "give the URI"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "options", "error", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.LookupGuaranteeWarning")
def test_wrong_call_is_refused(
    make: Any, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    """Nothing is written, and the message says what to do."""
    with pytest.raises(error, match=message):
        save_protected_model(make(), tmp_path / "model", **options)
    assert not (tmp_path / "model").exists()


def test_other_models_are_refused(tmp_path: Path) -> None:
    """A model of another kind, and a catalogue under another key, load nothing."""
    with pytest.raises(InputError, match="not a protected model"):
        load_protected(model_from_code(tmp_path, 45))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFK_KEY", "of the one who saved")
        save_protected_model(catalogue(), tmp_path / "model", pip_requirements=[])
    with pytest.raises(BundleError, match="with a key"):
        load_protected(tmp_path / "model")


# --- what MLflow's users see --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Register one model in a store of its own."""
    folder = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    use(uri)
    experiment = mlflow.create_experiment("registry", artifact_location=(folder / "files").as_uri())
    with mlflow.start_run(experiment_id=experiment):
        return uri, logged(registered_model_name=NAME)


@pytest.fixture
def registry(entry: tuple[str, Any]) -> Iterator[Any]:
    """Return the registered model; its store is the one in use."""
    use(entry[0])
    yield entry[1]
    use(None)


def use(uri: str | None) -> None:
    """Set the store of runs and the registry."""
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)


def folder_of(model_uri: str) -> Path:
    return Path(mlflow.artifacts.download_artifacts(model_uri))


def test_registry_has_the_tags(registry: Any) -> None:
    """The logged model, its version and the registered model say policy and population."""
    client = MlflowClient()
    tags = client.get_model_version(NAME, "1").tags
    assert tags["cfk.k"] == str(K)
    assert tags["cfk.policy_sha256"] == PrivacyPolicy(k=K).sha256
    assert client.get_registered_model(NAME).tags == tags
    assert tags.items() <= client.get_logged_model(registry.model_id).tags.items()
    assert tags == registry.metadata


def test_described_call_works(registry: Any) -> None:
    """The description has a call that can be copied."""
    text = MlflowClient().get_model_version(NAME, "1").description
    code = text.partition("```python\n")[2].partition("\n```")[0]
    answer = eval(code, {"mlflow": mlflow, "queries": served().head(2)})
    assert len(answer["explanations"]) == 2


def test_nothing_of_a_row_is_shown(registry: Any) -> None:
    """No pay of a person is in the registry or in a file; each belongs to one person."""
    client = MlflowClient()
    entry = client.get_model_version(NAME, "1")
    said = f"{entry.description} {entry.tags} {client.get_registered_model(NAME)}"
    pays = [str(pay) for pay in patients()["pay"]]
    for path in folder_of(registry.model_uri).rglob("*"):
        if path.is_file():
            said += path.read_bytes().decode(errors="replace")
    assert not [pay for pay in pays if pay in said]


def test_example_is_answered(registry: Any) -> None:
    """The example that MLflow stores gets an explanation, and is no one's row."""
    folder = folder_of(registry.model_uri)
    request = json.loads((folder / "serving_input_example.json").read_text(encoding="utf-8"))
    example = pd.DataFrame(**request["dataframe_split"])
    (answer,) = mlflow.pyfunc.load_model(registry.model_uri).predict(example)["explanations"]
    assert answer["status"] == "released"
    assert not example.merge(served(), how="inner").size


def test_tracked_model_has_no_example(mlflow_store: str) -> None:
    """MLflow tries an example, and the answer would be recorded as a release."""
    with mlflow.start_run():
        info = logged(track=True)
    assert not (folder_of(info.model_uri) / "input_example.json").exists()


def requirements_in(folder: Path) -> set[str]:
    return set((folder / "requirements.txt").read_text(encoding="utf-8").split())


def test_requirements_have_the_package(tmp_path: Path) -> None:
    """The package and MLflow are added to the user's requirements."""
    save_protected_model(catalogue(), tmp_path / "model", pip_requirements=["scipy<2"])
    (package,) = requirements_in(tmp_path / "model") - {f"mlflow=={version('mlflow')}", "scipy<2"}
    assert (
        package == f"cfk-plugin=={version('cfk-plugin')}"
        or (tmp_path / "model" / package).is_file()
    )
