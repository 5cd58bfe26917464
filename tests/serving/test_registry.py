"""What a registry says of a protected model: card, tags, requirements and example, read back from a
real one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from cfk_plugin import Attribute, Population, PrivacyPolicy, Schema
from cfk_plugin.serving.card import LONGEST, Card
from model_server import K, accepts, logged, patients, population, served

NAME = "patients-explained"
TAGS = {
    "cfk.policy_sha256",
    "cfk.population_fingerprint",
    "cfk.k",
    "cfk.guarantee",
    "cfk.schema_version",
}
PROMISES = re.compile(
    r"(?<!k-)\banonym|de-identif|\bsafe\b|complian|guaranteed|zero risk|cannot be|GDPR|HIPAA|private by|optimal",
    re.I,
)
"""Words that docs/explanation/threat-model.md has other ones for."""


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Register one model in a store of its own."""
    folder = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    use(uri)
    experiment = mlflow.create_experiment(
        "registry", artifact_location=(folder / "artifacts").as_uri()
    )
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


def test_version_and_model_carry_the_tags(registry: Any) -> None:
    client = MlflowClient()
    found = client.get_model_version(NAME, "1").tags
    policy = PrivacyPolicy(k=K)
    assert set(found) == TAGS
    assert (found["cfk.policy_sha256"], found["cfk.k"]) == (policy.sha256, str(K))
    assert found["cfk.guarantee"] == "catalogue"
    assert client.get_registered_model(NAME).tags == found
    assert found.items() <= client.get_logged_model(registry.model_id).tags.items()
    assert found["cfk.population_fingerprint"] == registry.metadata["cfk.population_fingerprint"]


def test_description_and_readme_are_the_card(registry: Any) -> None:
    client = MlflowClient()
    text = client.get_model_version(NAME, "1").description
    assert text.startswith(f"# {NAME}\n")
    for said in (
        "k-anonymous, k = 5, with respect to the population",
        "60 people",
        "`age`, `town`",
        "`illness`, `pay`",
        "## What it does not protect",
        f"models:/{NAME}/1",
    ):
        assert said in text
    readme = Path(mlflow.artifacts.download_artifacts(registry.model_uri), "README.md").read_text(
        encoding="utf-8"
    )
    assert readme == client.get_logged_model(registry.model_id).tags["mlflow.note.content"]
    assert text.split("## Use")[0].splitlines()[1:] == readme.split("## Use")[0].splitlines()[1:]


def test_the_call_that_the_card_shows_works(registry: Any) -> None:
    text = MlflowClient().get_model_version(NAME, "1").description
    code = re.search(r"```python\n(.*?)\n```", text, re.S)
    assert code
    table = served()
    queries = table[accepts(table) == 0].head(2)
    records = eval(code[1], {"mlflow": mlflow, "queries": queries})
    assert [record["status"] for record in records] == ["released"] * 2


def test_nothing_of_a_row_is_in_registry_or_readme(registry: Any) -> None:
    client = MlflowClient()
    entry, model = client.get_model_version(NAME, "1"), client.get_registered_model(NAME)
    folder = Path(mlflow.artifacts.download_artifacts(registry.model_uri))
    said = f"{entry.description} {entry.tags} {model.tags} {model.description} {(folder / 'README.md').read_text()}"
    assert "SENTINEL" not in said
    assert not [pay for pay in patients()["pay"] if str(pay) in said]
    assert not [town for town in patients()["town"].unique() if town in said]


def requirements_in(model_uri: str) -> set[str]:
    folder = Path(mlflow.artifacts.download_artifacts(model_uri))
    return set((folder / "requirements.txt").read_text(encoding="utf-8").split())


def test_requirements_are_those_of_the_user(mlflow_store: str) -> None:
    with mlflow.start_run():
        info = logged(requirements=["scipy<2"])
    expected = {f"{name}=={version(name)}" for name in ("cfk-plugin", "mlflow")} | {"scipy<2"}
    assert requirements_in(info.model_uri) == expected


@pytest.mark.slow
def test_the_package_and_mlflow_are_required_by_default(mlflow_store: str) -> None:
    with mlflow.start_run():
        info = logged(requirements=None)
    expected = {f"{name}=={version(name)}" for name in ("cfk-plugin", "mlflow")}
    assert expected <= requirements_in(info.model_uri)


def test_code_is_logged_along(registry: Any) -> None:
    folder = Path(mlflow.artifacts.download_artifacts(registry.model_uri))
    assert (folder / "code" / "model_server.py").exists()


def declared() -> Population:
    """People whose columns are all declared."""
    rows = patients()
    schema = Schema.from_frame(
        rows[["age", "town", "pay"]],
        quasi_identifiers=["age", "town"],
        columns={
            "age": Attribute(bounds=(18, 70)),
            "pay": Attribute(bins=[0, 1_000_000, 2_000_000]),
        },
    )
    return Population.from_frame(rows, schema)


def test_without_a_registry_the_logged_model_has_the_card_and_where_all_is_declared_an_example(
    mlflow_store: str, registry: Any
) -> None:
    undeclared = Path(mlflow.artifacts.download_artifacts(registry.model_uri))
    assert not (undeclared / "input_example.json").exists()
    use(mlflow_store)
    with mlflow.start_run():
        info = logged(population=declared())
    folder = Path(mlflow.artifacts.download_artifacts(info.model_uri))
    assert info.model_uri in (folder / "README.md").read_text(encoding="utf-8")
    assert set(MlflowClient().get_logged_model(info.model_id).tags) >= TAGS
    assert MlflowClient().search_registered_models() == []
    request = json.loads((folder / "serving_input_example.json").read_text(encoding="utf-8"))
    made = pd.DataFrame(**request["dataframe_split"])
    rows = patients()
    assert made["pay"].tolist() in ([500_000], [1_500_000])
    assert not ((rows["age"] == made["age"].iat[0]) & (rows["town"] == made["town"].iat[0])).any()
    assert len(mlflow.pyfunc.load_model(info.model_uri).predict(made)) == 1


def test_a_card_is_plain_and_promises_nothing() -> None:
    policy = PrivacyPolicy(k=12, min_pureness=0.9, max_ncp=0.5)
    text = Card(population(), policy, "opposite", 1_000).text(NAME, f"models:/{NAME}/1")
    assert not PROMISES.search(text)
    assert "at least 0.9" in text
    assert "at most 0.5" in text
    assert "can be intersected" in text


def test_a_card_fits_into_a_registry_whatever_the_table() -> None:
    rows = pd.DataFrame(
        np.arange(600).reshape(2, 300),
        columns=[f"a column with a long name {i}" for i in range(300)],
    )
    schema = Schema.from_frame(
        rows, quasi_identifiers=list(rows)[:150], sensitive=list(rows)[150:160]
    )
    policy = PrivacyPolicy(k=2, min_pureness=0.9, max_ncp=0.5, l=2, t=0.3)
    card = Card(Population.from_frame(rows, schema), policy, "an outcome", 1_000)
    text = card.text("n" * 200, f"models:/{'n' * 200}/1")
    assert len(text) <= LONGEST
    assert re.search(r"`a column with a long name 0`, .* and \d+ more", text)


def test_another_process_loads_the_model_from_what_was_logged(
    registry: Any, entry: tuple[str, Any]
) -> None:
    code = f"""
import mlflow, pandas
queries = pandas.DataFrame({{"age": [30], "town": ["Ghent"], "pay": [1], "illness": ["x"]}})
print(len(mlflow.pyfunc.load_model({registry.model_uri!r}).predict(queries)))
"""
    paths = [
        path
        for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if not path.endswith("servers")
    ]
    env = os.environ | {"MLFLOW_TRACKING_URI": entry[0], "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    assert done.stdout.strip() == "1", done.stderr
