"""Logging a catalogue as a protected model: whatever serves it gives out only protected
explanations.
"""

from __future__ import annotations

import tempfile
import warnings
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import AnyType, Array, Object, Property
from pandas.api.types import is_bool_dtype, is_integer_dtype

from cfk_plugin.data.codes import Column, Floats, Mask, people_with
from cfk_plugin.data.policy import policy_or
from cfk_plugin.data.tables import require_features
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.records import FEATURE, RECORD
from cfk_plugin.serving.card import Card
from cfk_plugin.serving.loaded import PICKLE, load_from_mlflow
from cfk_plugin.tracking.run import check_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from mlflow.models.model import ModelInfo

    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population
    from cfk_plugin.release.catalogue import Catalogue

MOST = 1_000
_DRAWS = 200
MLFLOW_NOTE = "mlflow.note.content"
"""Tag whose value MLflow shows as a description; logged models have no description of their own."""


def log_protected_model(
    *,
    model: Any,
    population: Population,
    desired: Any = "opposite",
    threshold: float | None = None,
    policy: PrivacyPolicy | None = None,
    name: str = "protected",
    registered_model_name: str | None = None,
    most: int = MOST,
    track: bool = False,
    strict: bool = False,
    requirements: Sequence[str] | None = None,
    code_paths: Sequence[str] = (),
    input_example: pd.DataFrame | None = None,
) -> ModelInfo:
    """Log a catalogue to MLflow so that whatever serves it gives out only protected explanations.

    The logged model contains the file of a catalogue (`Catalogue.save`) with the settings of this
    call, and the model that is explained. It has no row, and quasi-identifiers only value by value:
    answers begin at the query, and need only the model.

    Parameters
    ----------
    model : str or object
        The model that is explained, whose ``predict`` returns labels: the URI of a logged model, a
        Python file, or the model itself, which is pickled.
    population : Population
        The training rows, among whom explanations hide.
    desired : label, set of labels, (low, high) or "opposite"
        The outcome that counterfactuals reach; see `KAnonymizer.fit`.
    threshold : float, optional
        For a model that returns probabilities; see `KAnonymizer.fit`.
    policy : PrivacyPolicy, optional
        Default: ``PrivacyPolicy()``. Its guarantee must be "catalogue".
    name : str
        Name of the logged model.
    registered_model_name : str, optional
        Also register it.
    most : int
        Queries that one request may hold.
    track : bool
        Whether the server records explanations before it answers, in a file
        ``cfk-journal-*.jsonl`` of its working folder. A thread sends the records to the tracking
        server of its environment (``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``).
    strict : bool
        Whether the server withholds explanations that it cannot record.
    requirements : sequence of str, optional
        pip requirements of the model, in addition to this package and MLflow.
        Default: MLflow loads the logged model in another process and notes what it imports.
    code_paths : sequence of str
        Files and folders of your own code that the model is made of, to be logged along.
    input_example : DataFrame, optional
        Made-up queries, which are stored with the model. MLflow tries them once. Default: one made
        of values that the schema declares or many people share
        (`cfk_plugin.serving.log.example_of`), if that is possible; none with `track`,
        which would record the answer as a release.

    Raises
    ------
    CFKError
        If policy, population and model do not fit together, or the policy has no catalogue.
    TrackingError
        If the store is a database, as MLflow's default is, and only mlflow-skinny is installed.
    InputError
        If `desired` is a function, or an example has the quasi-identifiers of a training row.
    """
    check_store(mlflow.get_tracking_uri())
    if strict and not track:
        raise InputError("strict=True withholds what is not recorded; add track=True")
    if policy_or(policy).guarantee != "catalogue":
        raise PolicyError(
            'a protected model needs a catalogue: log it with PrivacyPolicy(guarantee="catalogue")'
        )
    if input_example is not None:
        refuse_training_rows(input_example, population)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        model = _saved_from_code(model, Path(folder) / "model", code_paths)
        loaded = load_from_mlflow(model) if isinstance(model, str) else model
        anonymizer = KAnonymizer(policy=policy).fit(
            population, model=loaded, desired=desired, threshold=threshold
        )
        if input_example is None and not track:
            input_example = example_of(population, anonymizer.policy_.k)
        card = Card(population, anonymizer.policy_, anonymizer.goal_.desired, most)
        artifacts = {
            "model": _saved(model, Path(folder) / "model"),
            "catalogue": str(Path(folder) / "catalogue.cfk"),
        }
        has_uri = isinstance(model, str) and model.startswith("models:/")
        settings = {
            "threshold": threshold,
            "most": most,
            "track": track,
            "strict": strict,
            "model": model if has_uri else None,  # a path tells too much
        }
        cast("Catalogue", anonymizer.catalogue_).save(
            artifacts["catalogue"], notes=settings, handles=False
        )
        # MLflow asks for an example; no one should be led to store a person's row.
        warnings.filterwarnings("ignore", message=".*An input example was not provided")
        logged: ModelInfo = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(Path(__file__).with_name("from_code.py")),
            artifacts=artifacts,
            signature=signature_of(population.schema.features),
            input_example=input_example,
            code_paths=list(code_paths) or None,
            registered_model_name=registered_model_name,
            tags=card.tags,
            metadata=card.tags,
            **_requirements_of_mlflow(requirements),
        )
    _describe(logged, card, name, registered_model_name)
    return logged


def _saved_from_code(thing: Any, folder: Path, code_paths: Sequence[str]) -> Any:
    """Save a Python file as a model of MLflow, and return its folder; return all else as it is."""
    if not isinstance(thing, str | PathLike) or not str(thing).endswith(".py"):
        return thing
    code = Path(thing)
    if not code.is_file():
        raise InputError(f"{code}: no such file; give a Python file that calls set_model")
    mlflow.pyfunc.save_model(
        path=str(folder),
        python_model=str(code),
        pip_requirements=[],  # those of the protected model count
        code_paths=list(code_paths) or None,
    )
    return str(folder)


def _saved(thing: Any, path: Path) -> str:
    """Pickle a model to a file, and return its path; return a URI as it is."""
    if isinstance(thing, str):
        return thing
    file = path.with_suffix(PICKLE)
    file.write_bytes(cloudpickle.dumps(thing))
    return str(file)


def _requirements_of_mlflow(requirements: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the arguments of `mlflow.pyfunc.log_model` that are about requirements.

    MLflow does not find this package by itself if it is installed from a checkout.
    """
    package = f"cfk-plugin=={version('cfk-plugin')}"
    if requirements is None:
        return {"extra_pip_requirements": [package]}
    return {"pip_requirements": [package, f"mlflow=={mlflow.__version__}", *requirements]}


def _describe(logged: ModelInfo, card: Card, name: str, registered: str | None) -> None:
    """Put the card where people look: the logged model's description and README, and the
    registry.
    """
    client = MlflowClient()
    text = card.text(name, f"models:/{logged.model_id}")
    client.set_logged_model_tags(logged.model_id, {MLFLOW_NOTE: text})
    with tempfile.TemporaryDirectory() as folder:
        readme = Path(folder) / "README.md"
        readme.write_text(text, encoding="utf-8")
        client.log_model_artifact(logged.model_id, str(readme))
    if registered is not None:
        number = str(logged.registered_model_version)
        client.update_model_version(
            registered, number, card.text(registered, f"models:/{registered}/{number}")
        )
        for key, value in card.tags.items():
            client.set_model_version_tag(registered, number, key, value)
            client.set_registered_model_tag(registered, key, value)


def signature_of(features: Sequence[str]) -> ModelSignature:
    """Return the signature: any type, all features optional, as MLflow's own check would quote the
    request.
    """
    anything = AnyType()  # type: ignore[no-untyped-call]
    inputs = Schema([ColSpec(anything, name, required=False) for name in features])
    types: dict[str, Any] = {
        "text": DataType.string,
        "number": DataType.double,
        "whole": DataType.long,
        "flag": DataType.boolean,
        "texts": Array(DataType.string),
    }
    properties = [
        Property(name, types[kind.removesuffix("?")], required=not kind.endswith("?"))
        for name, kind in FEATURE.items()
    ]
    types["features"] = Array(Object(properties))
    columns: list[ColSpec | TensorSpec] = [
        ColSpec(types[kind.removesuffix("?")], name, required=not kind.endswith("?"))
        for name, kind in RECORD.items()
    ]
    params = [ParamSpec("max_changes", DataType.long, None)]
    return ModelSignature(inputs, Schema(columns), ParamSchema(params))


# Input examples


def refuse_training_rows(example: pd.DataFrame, population: Population) -> None:
    """Refuse an input example with the quasi-identifiers of a training row: it is stored with the
    model.
    """
    features = population.schema.features
    rows = population.row_codes.encode(require_features(example, features, "the input example"))
    if _equals_a_person(rows, population).any():
        raise InputError(
            "the input example has the quasi-identifiers of a training row; make one up"
        )


def example_of(population: Population, k: int) -> pd.DataFrame | None:
    """Return one made-up query, or None if that would need a single person's values.

    Each value is drawn by itself: from those that the schema declares or, for a quasi-identifier,
    that at least k people have. A combination of quasi-identifiers that a training row has is drawn
    again.
    """
    codes = population.row_codes
    options = [_options(population, j, k) for j in range(len(codes.columns))]
    if not all(len(values) for values in options):
        return None
    # Seeded: logging a model twice shows the same example, and discloses nothing more.
    random = np.random.default_rng(0)
    draws = codes.decode(np.column_stack([random.choice(values, _DRAWS) for values in options]))
    is_of_person = _equals_a_person(codes.encode(draws), population)
    if is_of_person.all():
        return None
    return draws.iloc[[int(is_of_person.argmin())]].reset_index(drop=True)


def _equals_a_person(rows: Floats, population: Population) -> Mask:
    """Return which encoded rows have all quasi-identifiers of a training row, shape (n_rows,)."""
    quasi = population.row_codes.quasi
    combinations = set(map(tuple, population.coded_rows[:, quasi].tolist()))
    return np.array([tuple(row) in combinations for row in rows[:, quasi].tolist()], dtype=bool)


def _options(population: Population, j: int, k: int) -> Floats:
    """Return the codes that an example may have in a column, shape (n_options,): declared ones, or
    those of k people.
    """
    column = population.row_codes.columns[j]
    attribute = column.attribute
    if attribute.bins is not None:
        edges = np.asarray(attribute.bins)
        return _possible(column, (edges[:-1] + edges[1:]) / 2)
    if attribute.bounds is not None:
        low, high = attribute.bounds
        return _possible(column, np.linspace(low, high, 5))
    values, n_people = people_with(population.coded_rows[:, [j]], population.person_of_row)
    codes: Floats = values[:, 0]
    is_present: Mask = np.array(
        [column.value(code) is not None for code in codes.tolist()], dtype=bool
    )
    if attribute.declared_values is not None:
        is_declared = np.array([value is not None for value in column.values], dtype=bool)
        return np.asarray(column.places[is_declared])
    if is_bool_dtype(column.dtype):
        return np.asarray(codes[is_present])
    if not column.is_quasi_identifier:
        return np.empty(0)
    return np.asarray(codes[is_present & (n_people >= k)])


def _possible(column: Column, numbers: Floats) -> Floats:
    """Return numbers as a column can have them: whole ones for whole numbers."""
    return np.round(numbers) if is_integer_dtype(column.dtype) else numbers
