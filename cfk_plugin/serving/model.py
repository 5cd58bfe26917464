"""Protected models: MLflow logs, saves, loads and serves them, and every answer is protected."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel

from cfk_plugin._protect import no_explainer
from cfk_plugin.data.model import LabelModel, Thresholded, thresholded
from cfk_plugin.data.population import configured_key
from cfk_plugin.dp.prototypes import DPPrototypes
from cfk_plugin.errors import BundleError, CFKError, InputError, PolicyError, quiet, require
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.explainer import ProtectedExplainer
from cfk_plugin.serving.description import description_of, tags_of
from cfk_plugin.serving.loaded import load_from_mlflow, save_object
from cfk_plugin.serving.requests import answer_request
from cfk_plugin.serving.signature import example_of, signature_of
from cfk_plugin.serving.wheel import is_from_index, pinned, write_wheel
from cfk_plugin.tracking.logger import RunLogger, Track
from cfk_plugin.tracking.run import check_store

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

_MOST = 1_000
# Names of the artifacts. The models are folders in MLflow's format.
_CATALOGUE, _PROTOTYPES, _MODEL, _LATER, _WHEEL = (
    "catalogue",
    "prototypes",
    "model",
    "later-{}",
    "wheel",
)
_NOTE = "mlflow.note.content"
"""Tag whose value MLflow shows as the description of a logged model."""

Protector = KAnonymizer | DPPrototypes


class ProtectedModel(PythonModel):
    """The protected model that MLflow loads and serves.

    Attributes
    ----------
    explainer : ProtectedExplainer
        Answers the queries; set when MLflow loads the model.
    """

    # Without this attribute of MLflow, every import warns that `predict` has no type hints.
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        """Load the explainer from the artifacts; MLflow calls it."""
        with quiet(
            "the protected model cannot be loaded ({})", BundleError, let=CFKError, is_public=True
        ):
            self.explainer, self._most = load_artifacts(context.artifacts)

    # Without type hints, because MLflow would read them as a signature and enforce it.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Return the answers to a table of queries; see `requests.answer_request`."""
        return answer_request(self.explainer, model_input, params, self._most)


def log_protected_model(
    private: ProtectedExplainer | KAnonymizer | DPPrototypes,
    *,
    name: str = "protected",
    registered_model_name: str | None = None,
    model: str | None = None,
    most: int = _MOST,
    track: bool = False,
    strict: bool = False,
    pip_requirements: Sequence[str] | None = None,
    code_paths: Sequence[str] = (),
) -> ModelInfo:
    """Log an MLflow model whose answers are protected explanations.

    The logged model contains the file of the catalogue (`Catalogue.save`) or the prototypes, and
    the explained model. It contains no training row; of each quasi-identifier, it contains the list
    of values. A wrapped explainer is not logged, because the catalogue or the prototypes answer.

    Parameters
    ----------
    private : ProtectedExplainer, KAnonymizer or DPPrototypes
        Fitted. A `KAnonymizer` needs ``guarantee="catalogue"``.
    name : str
        The name of the logged model.
    registered_model_name : str, optional
        A name in the registry, under which the model is registered too.
    model : str, optional
        URI of the explained model in MLflow; it must be the model of the fit. By default, MLflow
        pickles the model of the fit.
    most : int
        The largest number of queries in a request.
    track : bool
        Whether the server records explanations. It writes each record to a file
        ``cfk-journal-*.jsonl`` in its working folder before the answer leaves, and a thread sends
        the record to the tracking server of the environment (``MLFLOW_TRACKING_URI``,
        ``MLFLOW_EXPERIMENT_NAME``).
    strict : bool
        Whether the server withholds explanations whose record cannot be written to this file.
    pip_requirements : sequence of str, optional
        Requirements of the model, in addition to this package and MLflow. By default, MLflow loads
        the logged model in another process, and pins the packages that it imports.
    code_paths : sequence of str
        Files and folders with code that the model needs.

    Returns
    -------
    mlflow.models.model.ModelInfo

    Raises
    ------
    PolicyError
        If there is no catalogue, as with ``guarantee="lookup"``.
    ModelError
        If the model at the URI is not the model of the fit.
    InputError
        If `private` has another type, `desired` is a function, or `strict` is set without `track`.
    NotFittedError
        If `private` is not fitted.
    TrackingError
        If the store is a database, like MLflow's default, and only mlflow-skinny is installed.

    Notes
    -----
    If this package was not installed from an index, the artifacts include its wheel, so that the
    model can be served in an empty environment.
    """
    check_store(mlflow.get_tracking_uri())
    anonymizer = _protector_of(private)
    settings = _settings(model, most, track=track, strict=strict)
    tags = tags_of(anonymizer)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        _ignore_missing_example()
        logged: ModelInfo = mlflow.pyfunc.log_model(
            name=name,
            registered_model_name=registered_model_name,
            tags=tags,
            **_content(anonymizer, model, settings, pip_requirements, code_paths, Path(folder)),
        )
    _describe(logged, anonymizer, registered_model_name)
    return logged


def save_protected_model(
    private: ProtectedExplainer | KAnonymizer | DPPrototypes,
    path: str | Path,
    *,
    model: str | None = None,
    most: int = _MOST,
    track: bool = False,
    strict: bool = False,
    pip_requirements: Sequence[str] | None = None,
    code_paths: Sequence[str] = (),
) -> None:
    """Save the model of `log_protected_model` to a folder.

    Parameters
    ----------
    path : str or Path
        A folder that does not exist or is empty. The other parameters are those of
        `log_protected_model`.
    """
    anonymizer = _protector_of(private)
    settings = _settings(model, most, track=track, strict=strict)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        _ignore_missing_example()
        mlflow.pyfunc.save_model(
            path=str(path),
            **_content(anonymizer, model, settings, pip_requirements, code_paths, Path(folder)),
        )


def load_protected(uri: str | Path) -> ProtectedExplainer:
    """Load a model of `log_protected_model` or `save_protected_model`.

    It gives the same answers as before, and needs no training table. Loading runs the code of the
    explained model.

    Parameters
    ----------
    uri : str or Path
        URI of a logged model, or the path of its folder.

    Returns
    -------
    ProtectedExplainer

    Raises
    ------
    InputError
        If it is not a protected model.
    BundleError
        If its catalogue has been changed, or needs another ``CFK_KEY``.
    ModelError
        If the explained model cannot be loaded, or is not the model of the fit.
    """
    loaded = mlflow.pyfunc.load_model(str(uri))
    try:
        protected_model = loaded.unwrap_python_model()
    except MlflowException:  # a model of another flavour
        protected_model = None
    if not isinstance(protected_model, ProtectedModel):
        raise InputError(f"{uri}: not a protected model; log one with log_protected_model")
    return protected_model.explainer


# Writing


def _protector_of(private: Any) -> Protector:
    """Return the fitted anonymizer or prototypes; raise if they need the training table."""
    anonymizer = private.anonymizer if isinstance(private, ProtectedExplainer) else private
    if isinstance(anonymizer, DPPrototypes):
        return anonymizer._fitted()
    anonymizer = require(
        "private", anonymizer, KAnonymizer, "give a ProtectedExplainer, KAnonymizer or DPPrototypes"
    )
    anonymizer._check_fitted()
    if anonymizer.catalogue_ is None:
        raise PolicyError(
            "the lookup guarantee needs the training table, which is not logged; fit with"
            ' PrivacyPolicy(guarantee="catalogue")'
        )
    return anonymizer


def _settings(model: str | None, most: int, *, track: bool, strict: bool) -> dict[str, Any]:
    """Return the settings of the call that the server needs."""
    if strict and not track:
        raise InputError("strict=True withholds results that cannot be logged; add track=True")
    if model is not None:
        require("model", model, str, "give the URI of a logged model, or leave it out")
    is_logged = model is not None and model.startswith("models:/")
    return {
        "most": most,
        "track": track,
        "strict": strict,
        "model": model if is_logged else None,  # a path would disclose names of this machine
    }


def _content(
    anonymizer: Protector,
    model: str | None,
    settings: Mapping[str, Any],
    pip_requirements: Sequence[str] | None,
    code_paths: Sequence[str],
    folder: Path,
) -> dict[str, Any]:
    """Write all files of a protected model, and return MLflow's arguments for saving it."""
    artifacts = _write(anonymizer, model, settings, folder)
    load_artifacts(artifacts)  # raises if a server could not load the model
    package = pinned()
    if not is_from_index():
        wheel = write_wheel(folder)
        artifacts[_WHEEL] = str(wheel)
        package = f"artifacts/{wheel.name}"  # MLflow installs in the folder of the model
    content = {
        "python_model": str(Path(__file__).with_name("from_code.py")),
        "artifacts": artifacts,
        "signature": signature_of(anonymizer),
        # MLflow calls `predict` with an example, which would be recorded as a release
        "input_example": None if settings["track"] else example_of(anonymizer),
        "code_paths": list(code_paths) or None,
        "metadata": tags_of(anonymizer),
    }
    if pip_requirements is None:
        pip_requirements = _inferred_requirements(content, folder)
    requirements = [package, f"mlflow=={mlflow.__version__}", *pip_requirements]
    return {**content, "pip_requirements": list(dict.fromkeys(requirements))}


def _inferred_requirements(content: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the requirements that MLflow infers from a model's imports, without this package.

    If no index has this version of the package, pip fails although the wheel is named too.
    """
    path = str(folder / "inferred")
    mlflow.pyfunc.save_model(path=path, pip_requirements=[], **content)
    requirements: list[str] = mlflow.models.infer_pip_requirements(  # type: ignore[no-untyped-call]
        path, "python_function", fallback=[]
    )
    return [requirement for requirement in requirements if requirement != pinned()]


def _write(
    anonymizer: Protector, model: str | None, settings: Mapping[str, Any], folder: Path
) -> dict[str, str]:
    """Write the catalogue or the prototypes, and the models, to a folder.

    Returns the paths of the artifacts by name.
    """
    artifacts = {}
    model_of_fit = anonymizer.model_.model
    has_threshold = model is not None and isinstance(model_of_fit, Thresholded)
    settings = {**settings, "threshold": model_of_fit.threshold if has_threshold else None}
    later: Sequence[LabelModel] = ()
    if isinstance(anonymizer, DPPrototypes):
        # The pickle contains no accountant, and the model is another artifact.
        prototypes = copy.copy(anonymizer)
        del prototypes.model_
        artifacts[_PROTOTYPES] = save_object((prototypes, settings), folder / _PROTOTYPES)
    else:
        catalogue = anonymizer._require_catalogue("log_protected_model")
        later = anonymizer.later_
        artifacts[_CATALOGUE] = str(folder / "catalogue.cfk")
        catalogue.save(artifacts[_CATALOGUE], notes=settings, handles=False)
    artifacts[_MODEL] = save_object(model_of_fit, folder / _MODEL) if model is None else model
    for i, later_model in enumerate(later):
        name = _LATER.format(i)
        artifacts[name] = save_object(later_model.model, folder / name)
    return artifacts


def _ignore_missing_example() -> None:
    """Suppress MLflow's advice to add an example: a user might store a person's row."""
    warnings.filterwarnings("ignore", message=".*An input example was not provided")


def _describe(logged: ModelInfo, anonymizer: Protector, registered: str | None) -> None:
    """Set the description and the tags of the logged model and of its entry in the registry."""
    client = MlflowClient()
    text = description_of(anonymizer, f"models:/{logged.model_id}")
    client.set_logged_model_tags(logged.model_id, {_NOTE: text})
    if registered is None:
        return
    number = str(logged.registered_model_version)
    text = description_of(anonymizer, f"models:/{registered}/{number}")
    client.update_model_version(registered, number, text)
    for key, value in tags_of(anonymizer).items():
        client.set_model_version_tag(registered, number, key, value)
        client.set_registered_model_tag(registered, key, value)


# Reading


def load_artifacts(artifacts: Mapping[str, str]) -> tuple[ProtectedExplainer, int]:
    """Return the explainer of a logged model, and the largest number of queries in a request.

    The explained model is loaded, which runs code, only after the catalogue's file was verified.
    """
    anonymizer: Protector
    if _PROTOTYPES in artifacts:
        prototypes, settings = load_from_mlflow(artifacts[_PROTOTYPES])
        model = thresholded(load_from_mlflow(artifacts[_MODEL]), settings["threshold"])
        prototypes.model_ = LabelModel(model, prototypes.features_, prototypes.goal_)
        anonymizer = prototypes
    else:
        file = CatalogueFile.read(artifacts[_CATALOGUE], configured_key(None))
        settings = file.facts["notes"]
        model = thresholded(load_from_mlflow(artifacts[_MODEL]), settings["threshold"])
        names = [_LATER.format(i) for i in range(file.facts["n_later"])]
        later = [load_from_mlflow(artifacts[name]) for name in names]
        catalogue = Catalogue.of_file(file, model, later)
        anonymizer = KAnonymizer.of_catalogue(catalogue, model)
    track: Track = False
    if settings["track"]:
        track = RunLogger(
            run_name="served",
            model=settings["model"],
            strict=bool(settings["strict"]),
            in_server=True,
        )
    return explainer_of(anonymizer, track), int(settings["most"])


def explainer_of(anonymizer: Protector, track: Track = False) -> ProtectedExplainer:
    """Return a protected explainer that answers from a catalogue or prototypes only."""
    schema = anonymizer.schema_
    context = AdaptContext(tuple(schema.features), schema.target)
    source = load_plugins(()).adapt(no_explainer, context)
    return ProtectedExplainer(no_explainer, source, anonymizer, track, is_asked=False)
