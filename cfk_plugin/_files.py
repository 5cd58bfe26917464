"""Read and write the files of the command line.

Errors name the file and the fault, and do not quote the content.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.progress import Progress

from cfk_plugin.data.formats import schemas
from cfk_plugin.data.model import LabelModel, thresholded
from cfk_plugin.data.outcome import OPPOSITE, desired_of_text
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import spellings, to_number
from cfk_plugin.data.schema import Attribute, Schema
from cfk_plugin.data.values import is_numeric, load_pyarrow
from cfk_plugin.errors import (
    CFKError,
    InputError,
    MisreadColumnWarning,
    ModelError,
    PolicyError,
    SchemaError,
    check_place,
    did_you_mean,
    kinds_of,
    listed,
    nameable,
    quiet,
    warn,
    whole_file,
)
from cfk_plugin.tracking.run import check_store

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.hookspecs import Progress as Callback
    from cfk_plugin.release.explanations import Explanations

TABLE_SCHEMA_VERSION = 1
"""Version of the format of schema files; the files do not contain it."""
POLICY_VERSION = 1
"""Version of the format of policy files; the files do not contain it."""

_PARQUET = (".parquet", ".pq")
_PICKLES = (".joblib", ".pkl", ".pickle")


_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}


def read_table(path: Path, codes: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from a CSV or Parquet file.

    Parameters
    ----------
    path : Path
        Its ending names the format.
    codes : collection of str
        Columns of CSV that may be codes, and are read as text if a number would lose characters:
        "01250" is not 1250.

    Warns
    -----
    MisreadColumnWarning
        If a word of a CSV file, such as NA, is read as a missing value.
    """
    _check_exists(path)
    endings = [suffix.lower() for suffix in path.suffixes[-2:]]  # two, for .csv.gz
    if not {".csv", *_PARQUET}.intersection(endings):
        fault = f"ends in {path.suffix}" if path.suffix else "has no ending"
        raise InputError(
            f"{path}: a table must be .csv or .parquet, and this {fault}; write it as one of these"
        )
    if path.suffix.lower() in _PARQUET:
        load_pyarrow()
        with quiet(f"{path}: not a readable Parquet table", InputError):
            return pd.read_parquet(path)
    _check_header(path)
    message = f"{path}: not a readable CSV table; is a row longer than the header?"
    with _reading(path, message), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        table = pd.read_csv(path, index_col=False)
    names = [name for name in table if name in codes or table[name].isna().any()]
    with _reading(path, message):
        texts = pd.read_csv(path, index_col=False, usecols=names, dtype=str, keep_default_na=False)
    _warn_of_words(path, texts, table)
    for name in set(names).intersection(codes):
        present = texts[name].mask(table[name].isna())
        if is_numeric(table[name]) and not _are_plain_numbers(present):
            table[name] = present
    return table


def _check_header(path: Path) -> None:
    """Raise `InputError` if pandas would accept the header of a CSV file but misread it."""
    options: dict[str, Any] = {"header": None, "dtype": str, "keep_default_na": False}
    with _reading(path, f"{path}: not a readable CSV table"):
        names = pd.read_csv(path, nrows=1, index_col=False, **options).iloc[0]
    if names.str.contains("\0").any():
        raise InputError(_not_utf8(path))
    # pandas would rename a duplicate column, and would shift all columns by one if the rows have a
    # column more than the header.
    if (names == "").any():
        raise InputError(
            f"{path}: a column has no name; name it, or write the table without its row numbers"
        )
    if names.duplicated().any():
        raise InputError(f"{path}: two columns have the same name; rename or drop one")
    header = str(names[0])
    separators = [separator for separator in _SEPARATORS if separator in header]
    if len(names) > 1 or not separators:
        return
    if separators == [" "] and not _has_columns_between_spaces(path):
        return
    raise InputError(
        f"{path}: the header has {_SEPARATORS[separators[0]]} between the columns; write the table"
        " with commas, and numbers with a decimal point"
    )


def _has_columns_between_spaces(path: Path) -> bool:
    """Return False if the header is the name of one column, in several words."""
    widths = []
    for n_skipped in (0, 1):
        with suppress(pd.errors.EmptyDataError):
            row = pd.read_csv(path, sep=r"\s+", header=None, skiprows=n_skipped, nrows=1, dtype=str)
            widths.append(row.shape[1])
    return len(widths) == 2 and widths[0] == widths[1] > 1


def _not_utf8(path: Path) -> str:
    return f'{path}: not UTF-8; save it as "CSV UTF-8"'


@contextmanager
def _reading(path: Path, message: str) -> Iterator[None]:
    """Raise `InputError` with a message if the body cannot read a CSV file."""
    try:
        with quiet(message, InputError):
            yield
    except InputError as error:
        if isinstance(error.__cause__, UnicodeError):
            raise InputError(_not_utf8(path)) from None
        raise


def _warn_of_words(path: Path, texts: pd.DataFrame, table: pd.DataFrame) -> None:
    """Warn if words in a CSV file are read as missing values.

    The warning may quote the words: they are pandas' own list, not values of rows.
    """
    words = texts.where(table[texts.columns].isna(), "")
    names = [name for name in texts if (words[name] != "").any()]
    if names:
        missing_words = {word for name in names for word in words[name].unique()} - {""}
        text = (
            f"{path}: {', '.join(sorted(missing_words))} in column {listed(names)} is read as a"
            " missing value; if it is a value, write another word"
        )
        warn(text, MisreadColumnWarning)


def _are_plain_numbers(texts: pd.Series) -> bool:
    """Return True if every text is the usual spelling of a number: 12 or 12.0, but not 012."""
    return all(text in spellings(to_number(text)) for text in texts.dropna().unique())


def code_columns(path: Path) -> set[str]:
    """Return the columns that may be codes according to a schema file; see `read_table`."""
    content = read_json(path)
    with quiet(f"{path}: a setting has the wrong form", SchemaError):
        columns = content.get("columns") or {}
        declared = {"hierarchy", "categories"}
        return {
            *(content.get("nominal") or ()),
            *(content.get("identifiers") or ()),
            *(content.get("ordinal") or ()),
            *(name for name, settings in columns.items() if declared.intersection(settings)),
            str(content.get("subject")),
        }


def code_columns_of_release(content: Mapping[str, Any]) -> set[str]:
    """Return the columns that may be codes according to the content of a file of explanations.

    Its form must have been checked.
    """
    regions = [entry.get("region", {}) for entry in content["explanations"]]
    parts = [part for region in regions for part in region.items()]
    return {name for name, part in parts if part["kind"] == "set"}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    _check_exists(path)
    content, fault = None, "no object at the top"
    try:
        content = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:  # its own text quotes the file
        fault = f"line {error.lineno}, column {error.colno}"
    except (OSError, ValueError, RecursionError) as error:
        fault = type(error).__name__
    # raised outside the handlers: the exception that they caught may quote the file, and would be
    # the context of this error
    if not isinstance(content, dict):
        raise InputError(f"{path}: not valid JSON ({fault})")
    return content


def read_rows(train: Path, schema: Path) -> tuple[pd.DataFrame, Schema]:
    """Read training rows and their schema file; the schema says which columns of CSV are text."""
    rows = read_table(train, code_columns(schema))
    return rows, read_schema(schema, rows)


def read_schema(path: Path, train: pd.DataFrame) -> Schema:
    """Read a schema file, which has the arguments of `Schema.from_frame` as JSON."""
    content = read_json(path)
    properties = schemas()[f"table-schema-{TABLE_SCHEMA_VERSION}"]["properties"]
    _check_keys(str(path), content, properties)
    columns = content.get("columns") or {}
    if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
        raise SchemaError(
            f'{path}: columns must be an object, column to its settings, such as {{"age":'
            ' {"bounds": [18, 100]}}'
        )
    column_properties = properties["columns"]["additionalProperties"]["properties"]
    for name, settings in columns.items():
        _check_keys(f"{path}: column {name!r}", settings, column_properties)
    content["columns"] = {name: Attribute(**settings) for name, settings in columns.items()}
    if "quasi_identifiers" not in content:
        raise SchemaError(f"{path}: quasi_identifiers is missing; list the publicly known columns")
    try:
        with quiet("a setting has the wrong form", SchemaError, let=CFKError):
            return Schema.from_frame(train, **content)
    except CFKError as error:
        raise SchemaError(f"{path}: {error}") from None


def _check_keys(place: str, settings: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
    """Raise `SchemaError` if settings have a key that is not one of the properties."""
    unknown = [name for name in settings if name not in properties]
    if unknown:
        raise SchemaError(
            f"{place}: unknown key {', '.join(unknown)}; known are {', '.join(properties)}"
            f"{did_you_mean(unknown, properties)}"
        )


def read_policy(path: Path | None, changes: Mapping[str, Any]) -> PrivacyPolicy:
    """Read a policy file, and replace its settings with `changes` that are not None.

    Without a file, the other settings are the defaults.
    """
    settings = read_json(path) if path is not None else {}
    options = {name: value for name, value in changes.items() if value is not None}
    properties = schemas()[f"policy-{POLICY_VERSION}"]["properties"]
    unknown = [name for name in settings if name not in properties]
    if unknown:
        raise PolicyError(
            f"{path}: unknown setting {', '.join(unknown)}; known are {', '.join(properties)}"
            f"{did_you_mean(unknown, properties)}"
        )
    return PrivacyPolicy(**{**settings, **options})


def load_model(location: str, threshold: float | None = None) -> Any:
    """Load a model from an MLflow URI, an MLflow folder, or a file of joblib, pickle, ONNX or
    XGBoost (``.ubj``).

    Loading a pickle runs the code in it: load only files that you trust.
    """
    return thresholded(_loaded(location), threshold)


def _loaded(location: str) -> Any:
    """Return the model of `load_model` before a threshold is applied."""
    path = Path(location)
    if ":/" in location or path.is_dir():
        import mlflow

        from cfk_plugin.serving.loaded import load_from_mlflow

        if location.startswith("models:/"):
            check_store(mlflow.get_registry_uri())
        elif location.startswith("runs:/"):
            check_store(mlflow.get_tracking_uri())
        with quiet(f"{location}: MLflow cannot load this model", ModelError, let=CFKError):
            return load_from_mlflow(location)
    _check_exists(path)
    with quiet(
        f"{path}: the model cannot be loaded ({{}}); give a file that this version of its library"
        " wrote",
        ModelError,
    ):
        match path.suffix.lower():
            case ".onnx":
                return importlib.import_module("onnxruntime").InferenceSession(str(path))
            case ".ubj":
                return importlib.import_module("xgboost").Booster(model_file=str(path))
            case ending if ending in _PICKLES:
                model = importlib.import_module("joblib").load(path)
            case _:
                model = None
    if model is None:
        endings = " or ".join([*_PICKLES, ".onnx", ".ubj"])
        raise ModelError(f"{path}: not a model; give a {endings} file, or an MLflow model URI")
    if not hasattr(model, "predict") and not callable(model):
        raise ModelError(f"{path}: contains a {type(model).__name__}, which has no predict method")
    return model


def check_output(
    path: Path | None, title: str = "output", endings: Sequence[str] = (".csv", ".parquet", ".json")
) -> None:
    """Raise `InputError` if an output file has a wrong ending or no folder, before any work."""
    if path is not None:
        check_place(path, endings, title)
        if path.suffix.lower() in _PARQUET:
            load_pyarrow()


def check_report(path: Path | None) -> None:
    check_output(path, "report", (".json",))


def write_report(path: Path, text: str) -> None:
    """Write a text with the same line ends on every system."""
    with whole_file(path) as draft:
        draft.write_bytes(text.encode("utf-8"))


def write_released(
    path: Path, explanations: Explanations, queries: pd.DataFrame | None = None
) -> None:
    """Write explanations and their sentences as CSV, Parquet or JSON, by the file's ending."""
    if path.suffix.lower() == ".json":
        write_report(path, explanations.to_json_with_sentences(queries))
    else:
        table = explanations.to_frame(text=True)
        table.insert(2, "sentence", explanations.text(queries))
        write_table(path, table)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as Parquet or CSV, by the file's ending."""
    is_parquet = path.suffix.lower() in _PARQUET
    if is_parquet:
        load_pyarrow()
    with whole_file(path) as draft:
        if is_parquet:
            table.to_parquet(draft, index=False)
        else:
            table.to_csv(draft, index=False)


def load_function(name: str) -> Callable[..., Any]:
    """Import a function by its name ``module:function``, also from the working folder.

    Importing a module runs its code: name only modules that you trust.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"{name}: give a function as module:function")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    # the import runs code of the module, whose errors may quote rows
    with quiet(f"{name}: cannot be imported", InputError):
        imported = importlib.import_module(module)
        value = getattr(imported, attribute, None)
    if value is None:
        raise InputError(f"{name}: cannot be imported (the module has no {attribute})")
    if not callable(value):
        raise InputError(f"{name}: is not a function")
    function: Callable[..., Any] = value
    return function


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such file")


@dataclass(frozen=True, slots=True)
class CommandInputs:
    """Raw counterfactuals, with the policy, population and model that protect them."""

    policy: PrivacyPolicy
    population: Population
    model: Any
    desired: Any
    raw: pd.DataFrame
    factuals: pd.DataFrame | None


def wanted(text: str, model: Any, features: pd.DataFrame) -> Any:
    """Return the model's label that is spelled like the text, or ``"opposite"``."""
    labels: Any = getattr(model, "classes_", None)
    if labels is None:
        labels = np.unique(LabelModel(model, list(features.columns))(features))
    return goal_among(labels, text)


def goal_among(labels: Sequence[Any], text: str) -> Any:
    """Return the label that is spelled like the text, or ``"opposite"``.

    The error may list the labels: they belong to the model, not to a row.
    """

    def unknown(spelled: str) -> Any:
        raise InputError(
            f"--desired {spelled}: the model has no such outcome; its classes are"
            f" {kinds_of(labels)}{did_you_mean([spelled], [*nameable(labels), OPPOSITE])}"
        )

    return desired_of_text(text, labels, unknown)


@contextmanager
def progress_bar(title: str, console: Console) -> Iterator[Callback]:
    """Yield a progress callback, which draws a bar if the console is a terminal."""
    if not console.is_terminal:  # Rich before 15 would print an empty line
        yield lambda done, total: None  # noqa: ARG005 - the form of a callback
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield update
