"""Logging an explainer as a protected model: what serves it gives out protected explanations alone."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import mlflow
from mlflow import MlflowClient

from cfk_plugin.errors import InputError
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.serving.card import Card
from cfk_plugin.serving.example import example_of
from cfk_plugin.serving.requirements import requirements_of
from cfk_plugin.serving.signature import refuse_training_rows, signature_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from mlflow.models.model import ModelInfo

    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population

MOST = 1_000
MLFLOW_NOTE = "mlflow.note.content"
"""Tag whose value MLflow shows as a description; logged models have no description of their own."""


def log_protected_model(
    explainer: Any,
    *,
    model: Any,
    population: Population,
    desired: Any = "opposite",
    policy: PrivacyPolicy | None = None,
    name: str = "protected",
    registered_model_name: str | None = None,
    most: int = MOST,
    ledger: bool = False,
    track: bool = False,
    requirements: Sequence[str] = (),
    code_paths: Sequence[str] = (),
    input_example: pd.DataFrame | None = None,
) -> ModelInfo:
    """Log an explainer to MLflow so that whatever serves it gives out protected explanations alone.

    The logged model holds a sealed population (`KAnonymizer.seal`), the policy in it, the explainer and the model. It
    protects whoever is explained against receivers of explanations. It does not protect against whoever can read the
    artifact store: an explainer that returns training rows needs them, and brings them along.

    Parameters
    ----------
    explainer : str or object
        URI of a logged model whose ``predict`` returns counterfactuals for a table of queries, or an explainer as for
        `protect`, which is pickled (cloudpickle).
    model : str or object
        URI of the model that is explained, or the model itself. ``predict`` returns labels.
    population : Population
        The training rows that the explainer may return.
    desired : label or "opposite"
        The outcome that counterfactuals reach.
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``. Its k is a floor: requests may ask for more.
    name : str
        Name of the logged model.
    registered_model_name : str, optional
        Also register it.
    most : int
        Queries that one request may hold.
    ledger : bool
        Whether the server needs a ledger: the one that its environment names (``CFK_LEDGER``, ``CFK_LEDGER_KEY``).
        Without it the model cannot be loaded.
    track : bool
        Whether the server logs what it releases, in the background, to the tracking server of its environment
        (``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``); see `SpoolSettings` for what waits meanwhile.
    requirements : sequence of str
        What is needed to load the explainer and the model, where it is not found: what a logged model was logged
        with, and what a pickle names, are pinned in any case. Stands in the place of what was found for a project.
    code_paths : sequence of str
        Files and folders of your own code that the explainer or the model is made of, to be logged along.
    input_example : DataFrame, optional
        Made-up queries, which are stored with the model. MLflow tries them once. Default: one that is made from what
        the schema declares and many people share (`cfk_plugin.serving.example.example_of`), or none; none with a
        ledger or with `track`, which would record the answer as a release.

    Returns
    -------
    mlflow.models.model.ModelInfo

    Warns
    -----
    UserWarning
        If something that is pickled needs a module that no installed distribution has and `code_paths` does not bring,
        or if explainer and model need different versions of a project.

    Raises
    ------
    CFKError
        If policy, population and model do not fit together, or the policy cannot be sealed.
    InputError
        If `desired` is a callable, or an example has the quasi-identifiers of a training row.
    """
    if callable(desired):
        raise InputError("a served model needs a label or 'opposite' as `desired`; a callable cannot be logged")
    if input_example is not None:
        refuse_training_rows(input_example, population)
    asked = mlflow.pyfunc.load_model(model).predict if isinstance(model, str) else model
    anonymizer = KAnonymizer(policy=policy).fit(population, model=asked, desired=desired)
    if input_example is None and not (ledger or track):
        input_example = example_of(population, anonymizer.policy_.k)
    sources = {"explainer": _source(explainer), "model": _source(model)}
    pinned = requirements_of(sources.values(), requirements, code_paths)
    card = Card(population, anonymizer.policy_, desired, most, ledger)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        artifacts = {name: _artifact(source, Path(folder) / f"{name}.pkl") for name, source in sources.items()}
        artifacts["population"] = str(Path(folder) / "population.cfk")
        artifacts["settings"] = str(Path(folder) / "settings.json")
        anonymizer.seal(artifacts["population"])
        label = desired.item() if hasattr(desired, "item") else desired
        named = model if isinstance(model, str) and model.startswith("models:/") else None  # a path would say too much
        settings = {"desired": label, "most": most, "ledger": ledger, "track": track, "model": named}
        Path(artifacts["settings"]).write_text(json.dumps(settings), encoding="utf-8")
        # MLflow asks for an example; whoever protects people should not be talked into storing one of them.
        warnings.filterwarnings("ignore", message=".*An input example was not provided")
        logged: ModelInfo = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(Path(__file__).with_name("from_code.py")),
            artifacts=artifacts,
            signature=signature_of(population, anonymizer.policy_.k),
            input_example=input_example,
            pip_requirements=pinned,
            code_paths=list(code_paths) or None,
            registered_model_name=registered_model_name,
            tags=card.tags,
            metadata=card.tags,
        )
    _describe(logged, card, name, registered_model_name)
    return logged


def _describe(logged: ModelInfo, card: Card, name: str, registered: str | None) -> None:
    """Put the card where people look: the logged model's description and README, and the registry."""
    client = MlflowClient()
    text = card.text(name, f"models:/{logged.model_id}")
    client.set_logged_model_tags(logged.model_id, {MLFLOW_NOTE: text})
    with tempfile.TemporaryDirectory() as folder:
        readme = Path(folder) / "README.md"
        readme.write_text(text, encoding="utf-8")
        client.log_model_artifact(logged.model_id, str(readme))
    if registered is not None:
        number = str(logged.registered_model_version)
        client.update_model_version(registered, number, card.text(registered, f"models:/{registered}/{number}"))
        for key, value in card.tags.items():
            client.set_model_version_tag(registered, number, key, value)
            client.set_registered_model_tag(registered, key, value)


def _source(thing: Any) -> str | bytes:
    """Return where something comes from: the URI that was given, or its pickle."""
    return thing if isinstance(thing, str) else cloudpickle.dumps(thing)


def _artifact(source: str | bytes, path: Path) -> str:
    """Return the URI, or the file that the pickle is written to."""
    if isinstance(source, str):
        return source
    path.write_bytes(source)
    return str(path)
