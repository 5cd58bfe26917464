"""Logging a catalogue as a protected model: whatever serves it gives out only protected
explanations.
"""

from __future__ import annotations

import tempfile
import warnings
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property
from pandas.api import types

from cfk_plugin.data.encoded_table import require_features
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.errors import InputError
from cfk_plugin.records.stores import check_store
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.detection import Detector
from cfk_plugin.serving.card import Card
from cfk_plugin.serving.loaded import PICKLE, load_from_mlflow
from cfk_plugin.serving.records import FEATURE, RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from mlflow.models.model import ModelInfo

    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population


MOST = 1_000
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

    The logged model holds a sealed catalogue with its policy and the settings of this call
    (`KAnonymizer.seal`), and the model that is explained. It has no row, and quasi-identifiers only
    value by value: answers begin at the query, and need only the model.

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
        Whether the server logs explanations before it answers, to the tracking server of its
        environment (``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``). Records that this does
        not take are in the file ``cfk-journal.jsonl`` of the server's working folder.
    strict : bool
        Whether the server withholds explanations that are neither logged nor in this file.
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
        If policy, population and model do not fit together, or the policy cannot be sealed, as one
        without a catalogue.
    TrackingError
        If the store is a database, as MLflow's default is, and only mlflow-skinny is installed.
    InputError
        If `desired` is a function, or an example has the quasi-identifiers of a training row.
    """
    check_store(mlflow.get_tracking_uri())
    if strict and not track:
        raise InputError("strict=True withholds what is not recorded; add track=True")
    settings: dict[str, Any] = {
        "desired": DesiredOutcome.of(desired).to_json(),
        "threshold": threshold,
        "most": most,
    }
    if input_example is not None:
        refuse_training_rows(input_example, population)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        model = _saved_from_code(model, Path(folder) / "model", code_paths)
        asked = load_from_mlflow(model) if isinstance(model, str) else model
        anonymizer = KAnonymizer(policy=policy).fit(
            population, model=asked, desired=desired, threshold=threshold
        )
        if input_example is None and not track:
            input_example = example_of(population, anonymizer.policy_.k)
        card = Card(population, anonymizer.policy_, anonymizer.goal_.desired, most)
        artifacts = {
            "model": _saved(model, Path(folder) / "model"),
            "catalogue": str(Path(folder) / "catalogue.cfk"),
        }
        # a path tells too much
        named = model if isinstance(model, str) and model.startswith("models:/") else None
        settings |= {"track": track, "strict": strict, "model": named}
        anonymizer.seal(artifacts["catalogue"], settings=settings)
        # MLflow asks for an example; nobody should be led to store a person's row.
        warnings.filterwarnings("ignore", message=".*An input example was not provided")
        logged: ModelInfo = mlflow.pyfunc.log_model(
            name=name,
            python_model=str(Path(__file__).with_name("from_code.py")),
            artifacts=artifacts,
            signature=signature_of(population),
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


def signature_of(population: Population) -> ModelSignature:
    """Return the signature: any type, all features optional, as MLflow's own check would quote the
    request.
    """
    anything = AnyType()  # type: ignore[no-untyped-call]
    inputs = Schema(
        [ColSpec(anything, name, required=False) for name in population.schema.features]
    )
    kinds: dict[str, Any] = {
        "text": DataType.string,
        "number": DataType.double,
        "whole": DataType.long,
        "flag": DataType.boolean,
        "texts": Array(DataType.string),
    }

    def kind(declared: str) -> tuple[Any, bool]:
        return kinds[declared.removesuffix("?")], not declared.endswith("?")

    feature = [
        Property(name, kind(said)[0], required=kind(said)[1]) for name, said in FEATURE.items()
    ]
    kinds["features"] = Array(Object(feature))
    outputs = Schema(
        [ColSpec(kind(said)[0], name, required=kind(said)[1]) for name, said in RECORD.items()]
    )
    params = [ParamSpec("max_changes", DataType.long, None)]
    return ModelSignature(inputs, outputs, ParamSchema(params))


def refuse_training_rows(example: pd.DataFrame, population: Population) -> None:
    """Refuse an input example that is a person in the table: it is stored with the model, for all
    to see.
    """
    coded = population.encode(
        require_features(example, population.schema.features, "the input example")
    )
    if any(flags.any() for flags in Detector(population).equal_rows(*coded)):
        raise InputError(
            "the input example has the quasi-identifiers of a training row; make one up"
        )


_TRIES = 200


def example_of(population: Population, k: int) -> pd.DataFrame | None:
    """Return one made-up query, or None where that would need a single person's values.

    Each value is drawn by itself: from those that the schema declares or, for a quasi-identifier,
    that at least k people have. A combination of quasi-identifiers that a training row has is drawn
    again.
    """
    if (choices := _choices(population, k)) is None:
        return None
    # Seeded: the same population gives the same example, so logging a model twice discloses nothing
    # more.
    draws, detector = _draws(choices, population, _TRIES), Detector(population)
    for at in range(_TRIES):
        one = draws.iloc[[at]].reset_index(drop=True)
        # One by one, as rounding is judged over all rows of a table.
        if not detector.equal_rows(*population.encode(one))[1].any():
            return one
    return None


def _choices(
    population: Population, k: int, otherwise: Callable[[Domain], list[Any]] = lambda _: []
) -> dict[str, list[Any]] | None:
    """Return values to draw from for every feature: declared ones, or those of k people; None if
    one has none.
    """
    choices = {}
    for name, domain in population.domains.items():
        values = _declared(domain)
        if values is None:
            is_counted = name in population.counted_attributes
            values = _common(population, name, k) if is_counted else otherwise(domain)
        if not values:
            return None
        choices[name] = values
    return choices


def _draws(choices: dict[str, list[Any]], population: Population, n: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    columns = {
        name: [values[i] for i in random.integers(len(values), size=n)]
        for name, values in choices.items()
    }
    return population.conform(pd.DataFrame(columns))


def _declared(domain: Domain) -> list[Any] | None:
    """Return values that the schema declares: quarters of a range, middles of bins."""
    attribute = domain.attribute
    if attribute.bins is not None:
        edges = np.asarray(attribute.bins)
        return _numbers(domain, (edges[:-1] + edges[1:]) / 2)
    if attribute.bounds is not None:
        low, high = attribute.bounds
        return _numbers(domain, np.linspace(low, high, 5))
    if types.is_bool_dtype(domain.dtype):
        return [False, True]
    declared = attribute.levels or (attribute.hierarchy.leaves if attribute.hierarchy else None)
    if declared is None:
        return None
    codes = [domain.code(text) for text in declared]
    return [
        text if domain.is_open else domain.originals[code]
        for text, code in zip(declared, codes, strict=True)
    ]


def _numbers(domain: Domain, numbers: Any) -> list[Any]:
    """Return numbers as the column would show them; whole ones for whole numbers."""
    whole = types.is_integer_dtype(domain.dtype)
    return [domain.natural(float(round(number)) if whole else float(number)) for number in numbers]


def _common(population: Population, name: str, k: int) -> list[Any]:
    """Return the values of a quasi-identifier that at least k people have."""
    at, domain = population.schema.quasi_identifiers.index(name), population.domains[name]
    people = np.bincount(
        population.cells[:, at], weights=population.cell_people, minlength=domain.size
    )
    return [
        domain.value(code)
        for code in np.flatnonzero(people >= k).tolist()
        if code != domain.missing_code
    ]
