"""Answer a Spark table of queries on Spark's workers, for `KAnonymizer.explain`.

Every query gets the same records as on one machine. The job sends the catalogue's file, its key and
the pickled model to each worker. The key is in the job and not in Spark's configuration, which
Spark displays. An attacker who can read the workers' memory or disks sees the catalogue, with all
values of each quasi-identifier, and the model.

The result has the columns of ``keep``, then ``status``, ``reason``, ``sentence``, ``k``, ``ncp``,
``pureness``, and ``features``, an array of ``name``, ``kind``, ``low``, ``high``, ``values``,
``missing``, ``advised``. It is lazy: Spark computes it each time it is read.

If the model or the file fails on a worker, its records are withheld with a reason. The job fails
only if rows cannot be read, such as a date that pandas does not support. No error quotes a value,
because Spark sends its text to the driver and to logs.
"""

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

from cfk_plugin.data.spark import plain_columns, quietly
from cfk_plugin.errors import (
    CFKError,
    InputError,
    ModelError,
    PolicyError,
    PopulationError,
    class_name,
    quiet,
    serving,
)
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.release.fail_closed import reason_of
from cfk_plugin.release.records import FEATURE, RECORD, record_of, records_of
from cfk_plugin.release.results import Withheld

if TYPE_CHECKING:
    from cfk_plugin.data.schema import Schema
    from cfk_plugin.data.wording import Wording

_log = logging.getLogger("cfk_plugin")

_COLUMNS = tuple(name for name in RECORD if name != "query")  # Spark's rows have no position
_LOADED: dict[str, KAnonymizer] = {}  # the anonymizer of the latest job on a worker, by its digest


def explained(
    anonymizer: KAnonymizer, df: Any, constraints: Mapping[str, Any], keep: Sequence[str]
) -> Any:
    """Return the lazy table of records for a Spark table of queries.

    Parameters
    ----------
    anonymizer : KAnonymizer
        Fitted with a catalogue.
    df : pyspark.sql.DataFrame
        One row per query, with every feature of the schema.
    constraints : mapping
        Arguments of `KAnonymizer.explain`; the result has ``answers`` rows per query.
    keep : sequence of str
        Columns to copy to the result. They are not protected, so columns of the schema are
        rejected.

    Returns
    -------
    pyspark.sql.DataFrame

    Raises
    ------
    InputError
        If columns are missing or clash, a constraint is invalid, or the anonymizer cannot be sent
        because it has plugin objects, or a model that cannot be pickled.
    """
    catalogue = _catalogue_of(anonymizer)
    if len(anonymizer.plugins):
        raise InputError("plugins that are objects cannot be sent to workers; install them there")
    anonymizer.rules(
        *(constraints[name] for name in ("features_to_vary", "permitted_range", "max_changes"))
    )  # raises if they are invalid
    names = _columns(df, catalogue.schema, keep)
    job = _Job(
        file=_content(catalogue),
        key=catalogue.key,
        models=_pickled(anonymizer.model_, anonymizer.later_),
        constraints=constraints,
        n_features=len(catalogue.schema.features),
        wording=catalogue.schema.wording,
    )

    def answer_batches(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in quietly(batches):
            with quiet("{} on a worker", PopulationError, let=CFKError, is_public=True):
                batch.columns = pd.Index(names)
                records = job(batch)
            yield records

    return plain_columns(df, names).mapInPandas(answer_batches, _form(df, keep))


@dataclass(frozen=True, repr=False)
class _Job:
    """The job that a worker runs on batches of queries.

    Attributes
    ----------
    file : bytes
        The content of the catalogue's file.
    key : bytes
        The key of the file.
    models : bytes
        The pickled model and later models.
    constraints : mapping
        Arguments of `KAnonymizer.explain`.
    n_features : int
        The number of columns that are features; the columns to copy are behind them.
    wording : Wording
        The wording of withheld records if the catalogue cannot be loaded.
    """

    file: bytes
    key: bytes
    models: bytes
    constraints: Mapping[str, Any]
    n_features: int
    wording: Wording

    @cached_property
    def digest(self) -> str:
        """A digest of the file and the models, by which a worker finds what it has loaded."""
        return hashlib.sha256(hashlib.sha256(self.file).digest() + self.models).hexdigest()

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return the records of a batch of queries; if anything fails, all are withheld."""
        copied_columns = batch.iloc[:, self.n_features :].take(
            np.repeat(np.arange(len(batch)), self.constraints["answers"])
        )
        try:
            with quiet("{}", CFKError, let=CFKError), serving():
                records = self._records(batch.iloc[:, : self.n_features])
        except CFKError as error:
            # only the text of our own error: a model may have raised any other, with any text
            name = str(error) if type(error) is CFKError else class_name(error)
            _log.warning("explanations withheld on a worker: %s", name)
            entry = Withheld(0, reason_of(error))
            records = [record_of(entry, None, (), self.wording)] * len(copied_columns)
        table = pd.DataFrame(
            {name: pd.Series([r[name] for r in records], dtype=object) for name in _COLUMNS}
        )
        return pd.concat([copied_columns.reset_index(drop=True), table], axis=1)

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
    if anonymizer.catalogue_ is None:
        raise PolicyError(
            'Spark tables are answered from a catalogue; fit with guarantee="catalogue"'
        )
    return anonymizer.catalogue_


def _content(catalogue: Catalogue) -> bytes:
    """Return the content of a catalogue's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.cfk"
        catalogue.save(path, key=catalogue.key, handles=False)
        return path.read_bytes()


def _pickled(*models: Any) -> bytes:
    with quiet("the model cannot be pickled ({}), so workers cannot use it", InputError):
        return bytes(cloudpickle.dumps(models))


def _unpickled(models: bytes) -> tuple[Any, ...]:
    with quiet("a worker cannot load the model ({}); install its libraries there", ModelError):
        model, later = cloudpickle.loads(models)
        return model, later


def _columns(df: Any, schema: Schema, keep: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to read: the features, and the columns to copy.

    Names are compared without case, because Spark reads "age" and "Age" as the same column.
    """
    names = (*schema.features, *keep)
    columns = [name.lower() for name in df.columns]
    if missing := [n for n in names if n not in df.columns or columns.count(n.lower()) != 1]:
        raise InputError(
            f"df lacks these columns, or has them twice if case is ignored: {missing}; add or"
            " rename them"
        )
    of_schema = {attribute.name.lower() for attribute in schema.attributes}
    if unprotected := [name for name in keep if name.lower() in of_schema]:
        raise InputError(
            f"keep= names columns of the schema, which would not be protected: {unprotected};"
            " leave them out"
        )
    if clash := [name for name in keep if name.lower() in _COLUMNS or list(keep).count(name) > 1]:
        raise InputError(
            f"keep= names columns of the record, or a column twice: {clash}; rename them"
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
