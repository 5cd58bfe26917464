"""Files of the command line, read and written.

Errors name the file and what is wrong, not its content.
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

    from cfk_plugin.hookspecs import Progress as Told
    from cfk_plugin.release.explanations import Explanations

TABLE_SCHEMA_VERSION = 1
"""Version of the files that say what the columns of a table are; the files do not say it."""
POLICY_VERSION = 1
"""Version of the files with a policy; the files do not say it."""

_PARQUET = (".parquet", ".pq")
_PICKLES = (".joblib", ".pkl", ".pickle")


_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}


def read_table(path: Path, codes: Collection[str] = ()) -> pd.DataFrame:
    """Read a table from CSV or Parquet, as the file's ending says.

    Parameters
    ----------
    path : Path
    codes : collection of str
        Columns that stay text in CSV if numbers would be written in another way: 01250, not 1250.

    Warns
    -----
    MisreadColumnWarning
        If a word of a CSV file, such as NA, is read as a missing value.
    """
    _exists(path)
    # also .csv.gz
    if not {".csv", *_PARQUET}.intersection(each.lower() for each in path.suffixes[-2:]):
        found = f"ends in {path.suffix}" if path.suffix else "has no ending"
        raise InputError(
            f"{path}: a table must be .csv or .parquet, and this {found}; write it as one of these"
        )
    if path.suffix.lower() in _PARQUET:
        load_pyarrow()
        with quiet(f"{path}: not a readable Parquet table", InputError):
            return pd.read_parquet(path)
    _check_header(path)
    what = f"{path}: not a readable CSV table; is a row longer than the header?"
    with _reading(path, what), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        table = pd.read_csv(path, index_col=False)
    names = [name for name in table if name in codes or table[name].isna().any()]
    with _reading(path, what):
        texts = pd.read_csv(path, index_col=False, usecols=names, dtype=str, keep_default_na=False)
    _warn_of_words(path, texts, table)
    for name in set(names).intersection(codes):
        present = texts[name].mask(table[name].isna())
        if is_numeric(table[name]) and not _are_plain_numbers(present):
            table[name] = present
    return table


def _check_header(path: Path) -> None:
    """Refuse a header that pandas would read without an error, but not as it is meant."""
    options: dict[str, Any] = {"header": None, "dtype": str, "keep_default_na": False}
    with _reading(path, f"{path}: not a readable CSV table"):
        names = pd.read_csv(path, nrows=1, index_col=False, **options).iloc[0]
    if names.str.contains("\0").any():
        raise InputError(_not_utf8(path))
    # pandas would rename a second column of a name, and shift all by one where rows are longer than
    # the header.
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
def _reading(path: Path, what: str) -> Iterator[None]:
    """Raise an `InputError` if a CSV file cannot be read."""
    try:
        with quiet(what, InputError):
            yield
    except InputError as error:
        if isinstance(error.__cause__, UnicodeError):
            raise InputError(_not_utf8(path)) from None
        raise


def _warn_of_words(path: Path, texts: pd.DataFrame, table: pd.DataFrame) -> None:
    """Warn of words that pandas reads as missing values; they are its own, and no one's values."""
    words = texts.where(table[texts.columns].isna(), "")
    named = [name for name in texts if (words[name] != "").any()]
    if named:
        kinds = {word for name in named for word in words[name].unique()} - {""}
        text = (
            f"{path}: {', '.join(sorted(kinds))} in column {listed(named)} is read as a missing"
            " value; if it is a value, write another word"
        )
        warn(text, MisreadColumnWarning)


def _are_plain_numbers(texts: pd.Series) -> bool:
    """Return True if all texts are how numbers are written: 12 or 12.0, but not 012."""
    return all(text in spellings(to_number(text)) for text in texts.dropna().unique())


def code_columns(path: Path) -> set[str]:
    """Return the columns of a schema file whose values may be codes; see `read_table`."""
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
    """Return the columns whose values may be codes by a file of explanations in the right form."""
    regions = [entry.get("region", {}) for entry in content["explanations"]]
    parts = [part for region in regions for part in region.items()]
    return {name for name, part in parts if part["kind"] == "set"}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    _exists(path)
    content, fault = None, "no object at the top"
    try:
        content = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:  # its own text quotes the file
        fault = f"line {error.lineno}, column {error.colno}"
    except (OSError, ValueError, RecursionError) as error:
        fault = type(error).__name__
    # raised outside of the handlers: what was caught must not be its context
    if not isinstance(content, dict):
        raise InputError(f"{path}: not valid JSON ({fault})")
    return content


def read_rows(train: Path, schema: Path) -> tuple[pd.DataFrame, Schema]:
    """Read training rows and their schema file, which says what columns of CSV are text."""
    rows = read_table(train, code_columns(schema))
    return rows, read_schema(schema, rows)


def read_schema(path: Path, train: pd.DataFrame) -> Schema:
    """Read a schema file: the arguments of `Schema.from_frame` as JSON, an object per column."""
    content = read_json(path)
    known = schemas()[f"table-schema-{TABLE_SCHEMA_VERSION}"]["properties"]
    _check_keys(str(path), content, known)
    columns = content.get("columns") or {}
    if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
        raise SchemaError(
            f'{path}: columns must be an object, column to its settings, such as {{"age":'
            ' {"bounds": [18, 100]}}'
        )
    for name, settings in columns.items():
        known_settings = known["columns"]["additionalProperties"]["properties"]
        _check_keys(f"{path}: column {name!r}", settings, known_settings)
    content["columns"] = {name: Attribute(**settings) for name, settings in columns.items()}
    if "quasi_identifiers" not in content:
        raise SchemaError(f"{path}: quasi_identifiers is missing; list the publicly known columns")
    try:
        with quiet("a setting has the wrong form", SchemaError, let=CFKError):
            return Schema.from_frame(train, **content)
    except CFKError as error:
        raise SchemaError(f"{path}: {error}") from None


def _check_keys(place: str, settings: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise SchemaError(
            f"{place}: unknown key {', '.join(unknown)}; known are {', '.join(known)}"
            f"{did_you_mean(unknown, known)}"
        )


def read_policy(path: Path | None, changes: Mapping[str, Any]) -> PrivacyPolicy:
    """Read a policy file, if there is one, and apply the options that were given."""
    settings = read_json(path) if path is not None else {}
    given = {name: value for name, value in changes.items() if value is not None}
    known = schemas()[f"policy-{POLICY_VERSION}"]["properties"]
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise PolicyError(
            f"{path}: unknown setting {', '.join(unknown)}; known are {', '.join(known)}"
            f"{did_you_mean(unknown, known)}"
        )
    return PrivacyPolicy(**{**settings, **given})


def load_model(location: str, threshold: float | None = None) -> Any:
    """Load a model from an MLflow URI or folder, or a file: of joblib or pickle, ONNX, or XGBoost
    (``.ubj``).

    Loading a pickle runs code in it: give only files that you trust.
    """
    return thresholded(_loaded(location), threshold)


def _loaded(location: str) -> Any:
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
    _exists(path)
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
        known = " or ".join([*_PICKLES, ".onnx", ".ubj"])
        raise ModelError(f"{path}: not a model; give a {known} file, or an MLflow model URI")
    if not hasattr(model, "predict") and not callable(model):
        raise ModelError(f"{path}: holds a {type(model).__name__}, which has no predict method")
    return model


def check_output(
    path: Path | None, what: str = "output", endings: Sequence[str] = (".csv", ".parquet", ".json")
) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    if path is not None:
        check_place(path, endings, what)
        if path.suffix.lower() in _PARQUET:
            load_pyarrow()


def check_report(path: Path | None) -> None:
    check_output(path, "report", (".json",))


def write_report(path: Path, text: str) -> None:
    """Write a text without translating line ends, so that the same report has the same bytes."""
    with whole_file(path) as draft:
        draft.write_bytes(text.encode("utf-8"))


def write_released(
    path: Path, explanations: Explanations, queries: pd.DataFrame | None = None
) -> None:
    """Write explanations with their sentences as CSV, Parquet or JSON, by the file's ending."""
    if path.suffix.lower() == ".json":
        write_report(path, explanations.to_json_with_sentences(queries))
    else:
        table = explanations.to_frame(text=True)
        table.insert(2, "sentence", explanations.text(queries))
        write_table(path, table)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table in the format that the file's ending names: Parquet or CSV."""
    is_parquet = path.suffix.lower() in _PARQUET
    if is_parquet:
        load_pyarrow()
    with whole_file(path) as draft:
        if is_parquet:
            table.to_parquet(draft, index=False)
        else:
            table.to_csv(draft, index=False)


def load_function(name: str) -> Callable[..., Any]:
    """Import ``module:function``, also from the folder that the command runs in.

    Importing a module runs code in it: name only what you trust.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"{name}: give a function as module:function")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    # a module runs its own code, whose errors may quote rows
    with quiet(f"{name}: cannot be imported", InputError):
        imported = importlib.import_module(module)
        found = getattr(imported, attribute, None)
    if found is None:
        raise InputError(f"{name}: cannot be imported (the module has no {attribute})")
    if not callable(found):
        raise InputError(f"{name}: is no function")
    function: Callable[..., Any] = found
    return function


def _exists(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such file")


@dataclass(frozen=True, slots=True)
class CommandInputs:
    """Raw counterfactuals, and what they are protected with."""

    policy: PrivacyPolicy
    population: Population
    model: Any
    desired: Any
    raw: pd.DataFrame
    factuals: pd.DataFrame | None


def wanted(text: str, model: Any, features: pd.DataFrame) -> Any:
    """Turn the outcome's name into the model's own label; ``opposite`` stays as it is."""
    labels: Any = getattr(model, "classes_", None)
    if labels is None:
        labels = np.unique(LabelModel(model, list(features.columns))(features))
    return goal_among(labels, text)


def goal_among(labels: Sequence[Any], text: str) -> Any:
    """Return the label that is spelled like the text.

    Messages may list labels: they are the model's, not a row's.
    """

    def unknown(spelled: str) -> Any:
        raise InputError(
            f"--desired {spelled}: the model has no such outcome; its classes are"
            f" {kinds_of(labels)}{did_you_mean([spelled], [*nameable(labels), OPPOSITE])}"
        )

    return desired_of_text(text, labels, unknown)


@contextmanager
def progress_bar(what: str, console: Console) -> Iterator[Told]:
    """Yield a progress callback; it draws a bar on a terminal and nothing elsewhere."""
    if not console.is_terminal:  # where Rich before 15 prints an empty line
        yield lambda done, total: None  # noqa: ARG005 - the form of a callback
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield told
