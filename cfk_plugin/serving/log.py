"""Logging an explainer as a protected model: what serves it gives out protected explanations alone."""

from __future__ import annotations

import json
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import mlflow

from cfk_plugin.anonymizer import KAnonymizer
from cfk_plugin.errors import InputError
from cfk_plugin.serving.signature import refuse_training_rows, signature_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from mlflow.models.model import ModelInfo

    from cfk_plugin.policy import PrivacyPolicy
    from cfk_plugin.population import Population

MOST = 1_000


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
    input_example: pd.DataFrame | None = None,
) -> ModelInfo:
    """Log an explainer to MLflow so that whatever serves it gives out protected explanations alone.

    The logged model holds a sealed population (`KAnonymizer.seal`), the policy in it, the explainer and the model. It
    protects whoever is explained against receivers of explanations. It does not protect against who can read the
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
        What the explainer and the model need to be loaded, beside `cfk-plugin`.
    input_example : DataFrame, optional
        Made-up queries, which are stored with the model.

    Returns
    -------
    mlflow.models.model.ModelInfo

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
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        artifacts = {
            "population": str(Path(folder) / "population.cfk"),
            "settings": str(Path(folder) / "settings.json"),
            "explainer": _artifact(explainer, Path(folder) / "explainer.pkl"),
            "model": _artifact(model, Path(folder) / "model.pkl"),
        }
        anonymizer.seal(artifacts["population"])
        settings = {"desired": desired.item() if hasattr(desired, "item") else desired, "most": most, "ledger": ledger}
        settings["track"] = track
        Path(artifacts["settings"]).write_text(json.dumps(settings), encoding="utf-8")
        # MLflow asks for an example; whoever protects people should not be talked into storing one of them.
        # It asks for type hints as well, which it would enforce with the request in its message.
        warnings.filterwarnings("ignore", message=".*An input example was not provided")
        logged: ModelInfo = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(Path(__file__).with_name("from_code.py")),
            artifacts=artifacts,
            signature=signature_of(population, anonymizer.policy_.k),
            input_example=input_example,
            pip_requirements=[f"cfk-plugin=={version('cfk-plugin')}", *requirements],
            registered_model_name=registered_model_name,
            metadata={
                "cfk.policy_sha256": anonymizer.policy_.sha256,
                "cfk.population_fingerprint": population.fingerprint,
            },
        )
    return logged


def _artifact(thing: Any, path: Path) -> str:
    """Return where an artifact comes from: the URI that was given, or a file that is written."""
    if isinstance(thing, str):
        return thing
    path.write_bytes(cloudpickle.dumps(thing))
    return str(path)
