"""Answering a Spark table of queries in place: each worker reads the catalogue once."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pandas as pd

from cfk_plugin.data.call_rules import most_changes
from cfk_plugin.data.population import configured_key
from cfk_plugin.data.tables import whole_number
from cfk_plugin.errors import (
    CFKError,
    InputError,
    ModelError,
    PolicyError,
    PopulationError,
    quiet,
    serving,
)
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.results import Withheld
from cfk_plugin.serving.records import FEATURE, RECORD, reason_of, record_of, records_of

if TYPE_CHECKING:
    from cfk_plugin.data.schema import Schema

_log = logging.getLogger("cfk_plugin")

_COLUMNS = tuple(name for name in RECORD if name != "query")  # rows of Spark have no position
_LOADED: dict[str, KAnonymizer] = {}  # on a worker, that of the latest job only


def explain_spark(
    df: Any,
    anonymizer: KAnonymizer,
    *,
    model: Any = None,
    keep: Sequence[str] = (),
    answers: int = 1,
    features_to_vary: str | Sequence[str] = "all",
    permitted_range: Mapping[str, Sequence[Any]] | None = None,
    max_changes: int | None = None,
    key: bytes | None = None,
) -> Any:
    """Answer a Spark table of queries from a catalogue.

    Every query gets the records that `KAnonymizer.explain` releases for it on one machine: the
    file of the catalogue is sent with the job, once to each worker. It protects as `explain` does.
    An attacker who can read the workers' memory or disks sees the catalogue, with all values of
    each quasi-identifier, and the model.

    Any failure on a worker (of the model, or of reading the file) gives withheld records with a
    reason. Nothing is raised there, as Spark sends exceptions with their text to the driver and its
    logs.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        One row per query; must have every feature of the schema.
    anonymizer : KAnonymizer
        Fitted, or loaded from a file, with a catalogue.
    model : str or object, optional
        URI of a model of MLflow, which each worker loads, or the model itself, which is pickled
        (cloudpickle). Default: the model of the anonymizer.
    keep : sequence of str
        Columns that stay next to the record, such as an id, as rows of Spark have no order. They
        leave unchanged, so no column of the schema may be among them.
    answers, features_to_vary, permitted_range, max_changes
        As in `KAnonymizer.explain`; the result has `answers` rows per query.
    key : bytes, optional
        The key of the population. Default: the environment variable ``CFK_KEY`` of this process. It
        travels inside the job, not in Spark's configuration, which Spark displays.

    Returns
    -------
    pyspark.sql.DataFrame
        The kept columns, then ``status``, ``reason``, ``sentence``, ``k``, ``ncp``, ``pureness``,
        and ``features``, an array of ``name``, ``kind``, ``low``, ``high``, ``values``,
        ``missing``, ``advised``. It is lazy: computed whenever it is read.

    Raises
    ------
    InputError
        If columns are missing or clash, a constraint is invalid, or the anonymizer cannot be sent:
        it has plugins, or a model that cannot be pickled.
    PolicyError
        If the anonymizer has no catalogue.
    """
    if not hasattr(df, "mapInPandas"):
        raise InputError(
            f"df must be a Spark DataFrame, got {type(df).__name__}; use KAnonymizer.explain"
        )
    constraints = {
        "answers": whole_number("answers", answers),
        "features_to_vary": features_to_vary,
        "permitted_range": permitted_range,
        "max_changes": most_changes(max_changes),
    }
    catalogue = _catalogue_of(anonymizer)
    anonymizer.rules(features_to_vary, permitted_range, max_changes)  # raises if they are invalid
    names = _columns(df, catalogue.schema, keep)
    key = configured_key(key)
    job = _Job(
        file=_content(catalogue, key),
        key=key,
        models=_pickled(anonymizer.model_ if model is None else model, anonymizer.later_),
        constraints=constraints,
        n_features=len(catalogue.schema.features),
    )

    def answer_batches(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            batch.columns = pd.Index(names)
            # Spark sends what is raised here, text and all, to the driver and its logs.
            with quiet("{} on a worker", PopulationError, let=CFKError):
                records = job(batch)
            yield records

    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    unquoted = (f"c{i}" for i in range(len(names)))  # names that need no quoting
    return df.select(*quoted).toDF(*unquoted).mapInPandas(answer_batches, _form(df, keep))


@dataclass(frozen=True, repr=False)
class _Job:
    """What a worker needs to answer queries.

    Attributes
    ----------
    file : bytes
        The catalogue.
    key : bytes
    models : bytes
        The model, or its URI, and the later models, pickled.
    constraints : mapping
        Arguments of `KAnonymizer.explain`.
    n_features : int
    """

    file: bytes
    key: bytes
    models: bytes
    constraints: Mapping[str, Any]
    n_features: int

    @cached_property
    def digest(self) -> str:
        """The identity by which workers recognise what they have loaded."""
        return hashlib.sha256(hashlib.sha256(self.file).digest() + self.models).hexdigest()

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Answer some queries, on a worker; if anything fails, all of them are withheld."""
        kept = batch.iloc[:, self.n_features :]
        kept = kept.take(np.repeat(np.arange(len(batch)), self.constraints["answers"]))
        try:
            with quiet("{}", CFKError, let=CFKError), serving():
                records = self._records(batch.iloc[:, : self.n_features])
        except CFKError as error:  # names columns at most
            _log.warning("explanations withheld on a worker: %s", error)
            entry = Withheld(0, reason_of(error))
            records = [record_of(entry, None, ())] * len(kept)
        table = pd.DataFrame(
            {name: pd.Series([r[name] for r in records], dtype=object) for name in _COLUMNS}
        )
        return pd.concat([kept.reset_index(drop=True), table], axis=1)

    def _records(self, queries: pd.DataFrame) -> list[dict[str, Any]]:
        if not len(queries):
            return []
        anonymizer = self._loaded()
        entries = anonymizer.explain(queries, **self.constraints)
        codes = _catalogue_of(anonymizer).codes
        return records_of(entries, codes.encode(queries), codes, anonymizer.schema_)

    def _loaded(self) -> KAnonymizer:
        if self.digest not in _LOADED:
            _LOADED.clear()
            _LOADED[self.digest] = self._load()
        return _LOADED[self.digest]

    def _load(self) -> KAnonymizer:
        file = CatalogueFile.read(self.file, self.key)
        model, later = _unpickled(self.models)
        return KAnonymizer.of_catalogue(Catalogue.of_file(file, model, later), model)


def _catalogue_of(anonymizer: KAnonymizer) -> Catalogue:
    """Return the catalogue of an anonymizer that can be sent; raise if it cannot."""
    if not isinstance(anonymizer, KAnonymizer):
        raise InputError(
            f"anonymizer must be a fitted KAnonymizer, got {type(anonymizer).__name__}; open a file"
            " with KAnonymizer.load"
        )
    if len(anonymizer.plugins):
        raise InputError(
            "plugins that are given as objects are not sent to workers; install them there"
        )
    catalogue = anonymizer.catalogue_
    if catalogue is None:
        raise PolicyError(
            'explain_spark needs a catalogue: fit with PrivacyPolicy(guarantee="catalogue")'
        )
    return catalogue


def _content(catalogue: Catalogue, key: bytes) -> bytes:
    """Return the content of a catalogue's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.cfk"
        catalogue.save(path, key=key, handles=False)
        return path.read_bytes()


def _pickled(*models: Any) -> bytes:
    with quiet(
        "the model cannot be pickled ({}); give the URI of a model of MLflow",
        InputError,
    ):
        return bytes(cloudpickle.dumps(models))


def _unpickled(models: bytes) -> tuple[Any, ...]:
    """Return what was pickled, with the model loaded if it is a URI."""
    with quiet("a worker cannot load the model ({}); install there what it needs", ModelError):
        model, later = cloudpickle.loads(models)
        if isinstance(model, str):
            from cfk_plugin.serving.loaded import load_from_mlflow

            model = load_from_mlflow(model)
        return model, later


def _columns(df: Any, schema: Schema, keep: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are read: features, and those to keep."""
    names = (*schema.features, *keep)
    if lost := [name for name in names if df.columns.count(name) != 1]:
        raise InputError(f"columns that df does not have, or has twice: {lost}")
    of_schema = {attribute.name for attribute in schema.attributes}
    if released := [name for name in keep if name in of_schema]:
        raise InputError(
            f"keep= names columns of the schema, which would leave as they are: {released}"
        )
    if clash := [name for name in keep if name in _COLUMNS or list(keep).count(name) > 1]:
        raise InputError(
            f"keep= names columns that the record has, or twice the same: {clash}; rename them"
        )
    return names


def _form(df: Any, keep: Sequence[str]) -> Any:
    """Return the schema of the result."""
    from pyspark.sql import types

    kinds = {
        "text": types.StringType(),
        "number": types.DoubleType(),
        "whole": types.LongType(),
        "flag": types.BooleanType(),
        "texts": types.ArrayType(types.StringType()),
    }
    feature = [
        types.StructField(name, kinds[kind.removesuffix("?")]) for name, kind in FEATURE.items()
    ]
    kinds["features"] = types.ArrayType(types.StructType(feature))
    record = [types.StructField(name, kinds[RECORD[name].removesuffix("?")]) for name in _COLUMNS]
    return types.StructType([*(df.schema[name] for name in keep), *record])
