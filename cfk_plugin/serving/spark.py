"""Answering a Spark table of queries in place: each worker opens one sealed file and keeps it."""

from __future__ import annotations

import gc
import hashlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import most_changes, rules_of
from cfk_plugin.data.encoded_table import whole_number
from cfk_plugin.data.population import Population, configured_key
from cfk_plugin.errors import (
    BundleError,
    CFKError,
    InputError,
    ModelError,
    PopulationError,
    quiet,
    serving,
)
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import Withheld
from cfk_plugin.serving.records import FEATURE, RECORD, Known, reason_of, record_of

if TYPE_CHECKING:
    from cfk_plugin.data.schema import Schema

_log = logging.getLogger("cfk_plugin")

_WRITTEN = tuple(name for name in RECORD if name != "query")  # rows of Spark have no position
_OPENED: dict[str, KAnonymizer] = {}  # what this worker has opened, of the latest job only


def explain_spark(
    df: Any,
    anonymizer: KAnonymizer | str | Path,
    *,
    model: Any = None,
    desired: Any = None,
    keep: Sequence[str] = (),
    answers: int = 1,
    features_to_vary: str | Sequence[str] = "all",
    permitted_range: Mapping[str, Sequence[Any]] | None = None,
    max_changes: int | None = None,
    key: bytes | None = None,
) -> Any:
    """Answer a Spark table of queries from a catalogue.

    Every query gets the records that `KAnonymizer.explain` releases for it on one machine: the
    catalogue is sealed and sent with the job, once to each worker. It protects as `explain` does.
    An attacker who can read the workers' memory or disks sees the entries and the model, but
    nobody's quasi-identifiers.

    Whatever fails on a worker (model, opening the file) gives withheld records with a reason.
    Nothing is raised there, as Spark sends exceptions with their text to the driver and its logs.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        One row per query; must have every feature of the schema.
    anonymizer : KAnonymizer or path
        A fitted one with a catalogue, or the file that one was sealed to.
    model : str or object, optional
        URI of a model of MLflow, which each worker loads, or the model itself, which is pickled
        (cloudpickle). Default: what the anonymizer was fitted with; a file has none.
    desired : label, "opposite" or callable, optional
        Default: as `model`.
    keep : sequence of str
        Columns that stay beside the record, such as an id, as rows of Spark have no order. They
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
        ``missing``. It is lazy: computed whenever it is read.

    Raises
    ------
    InputError
        If columns are missing or clash, or the anonymizer cannot be sent: it has plugins, or a
        model that cannot be pickled.
    CFKError
        If the catalogue cannot be sealed or opened, or model and outcome do not fit it; see
        `KAnonymizer.fit` and `KAnonymizer.explain`.
    """
    if not hasattr(df, "mapInPandas"):
        raise InputError(
            f"df must be a Spark DataFrame, got {type(df).__name__}; use KAnonymizer.explain"
        )
    constraints = {
        "answers": answers,
        "features_to_vary": features_to_vary,
        "permitted_range": permitted_range,
        "max_changes": max_changes,
    }
    job = _job(anonymizer, model, desired, configured_key(key), constraints)
    schema = Population.open(io.BytesIO(job.bundle), key=job.key).schema
    names = _columns(df, schema, keep)
    job = replace(job, n_features=len(schema.features))

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
    """What a worker needs: the sealed catalogue, and how to fit an anonymizer on it."""

    bundle: bytes
    key: bytes
    fitting: bytes  # model, desired outcome and options of `KAnonymizer`, pickled
    constraints: Mapping[str, Any]  # arguments of `KAnonymizer.explain`
    n_features: int = 0

    @cached_property
    def digest(self) -> str:
        """The identity by which workers recognize what they have opened."""
        return hashlib.sha256(hashlib.sha256(self.bundle).digest() + self.fitting).hexdigest()

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Answer some queries, on a worker; if anything fails, all of them are withheld."""
        kept = batch.iloc[:, self.n_features :]
        kept = kept.take(np.repeat(np.arange(len(batch)), self.constraints["answers"]))
        try:
            with quiet("{}", CFKError, let=CFKError), _uncollected(), serving():
                records = self._records(batch)
        except CFKError as error:  # names columns at most
            _log.warning("explanations withheld on a worker: %s", error)
            entry = Withheld(0, reason_of(error))
            records = [record_of(entry, None, (), {})] * len(kept)
        table = pd.DataFrame(
            {name: pd.Series([r[name] for r in records], dtype=object) for name in _WRITTEN}
        )
        return pd.concat([kept.reset_index(drop=True), table], axis=1)

    def _records(self, batch: pd.DataFrame) -> list[dict[str, Any]]:
        if not len(batch):
            return []
        anonymizer = self._opened()
        population = anonymizer.population_
        schema = population.schema
        queries = batch.iloc[:, : self.n_features]
        people: Sequence[Any] = population.conform(queries).to_dict("records")
        known = Known()
        return [
            record_of(
                entry,
                people[entry.query],
                schema.features,
                population.domains,
                known,
                schema.wording,
            )
            for entry in anonymizer.explain(queries, **self.constraints)
        ]

    def _opened(self) -> KAnonymizer:
        if self.digest not in _OPENED:
            _OPENED.clear()
            _OPENED[self.digest] = self.open()
        return _OPENED[self.digest]

    def open(self) -> KAnonymizer:
        population = Population.open(io.BytesIO(self.bundle), key=self.key)
        if population.policy is None:
            raise InputError("the file has no policy; seal a fitted KAnonymizer")
        model, desired, options, later = _unpickled(self.fitting)
        anonymizer = KAnonymizer(policy=population.policy, **options)
        with warnings.catch_warnings(action="ignore"):  # the driver has been warned
            return anonymizer.fit(population, model, desired, later=later)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch garbage collection off: records have no cycles, and looking for them takes a third of
    the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _job(
    anonymizer: KAnonymizer | str | Path,
    model: Any,
    desired: Any,
    key: bytes,
    constraints: Mapping[str, Any],
) -> _Job:
    if isinstance(anonymizer, (str, Path)):
        if model is None or desired is None:
            raise InputError(
                "a sealed file has no model and no desired outcome; give model= and desired="
            )
        with quiet("the bundle cannot be read: {}; check the path", BundleError):
            bundle = Path(anonymizer).read_bytes()
        job = _Job(bundle, key, _pickled(model, desired, {}, ()), constraints)
        _check_constraints(job.open(), constraints)  # raises here whatever can be refused
        return job
    if not isinstance(anonymizer, KAnonymizer):
        raise InputError(
            f"anonymizer must be a fitted KAnonymizer or a path, got {type(anonymizer).__name__}"
        )
    if len(anonymizer.plugins):
        raise InputError(
            "plugins that are given as objects are not sent to workers; install them there"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.cfk"
        anonymizer.seal(path)
        bundle = path.read_bytes()
    _check_constraints(anonymizer, constraints)
    judge = anonymizer.model_ if model is None else model
    wanted = anonymizer.goal_.desired if desired is None else desired
    options = {
        "method": anonymizer.method,
        "change_cost": anonymizer.change_cost,
        "rounding": anonymizer.rounding,
        "seed": anonymizer.seed,
    }
    return _Job(bundle, key, _pickled(judge, wanted, options, anonymizer.later_), constraints)


def _check_constraints(anonymizer: KAnonymizer, constraints: Mapping[str, Any]) -> None:
    """Refuse, on the driver, constraints that no worker could satisfy."""
    whole_number("answers", constraints["answers"])
    most_changes(constraints["max_changes"])
    rules_of(
        anonymizer.population_.encoder,
        constraints["features_to_vary"],
        constraints["permitted_range"],
    )


def _pickled(*fitting: Any) -> bytes:
    with quiet(
        "model or desired outcome cannot be pickled ({}); give the URI of a model of MLflow",
        InputError,
    ):
        return bytes(cloudpickle.dumps(fitting))


def _unpickled(fitting: bytes) -> tuple[Any, ...]:
    """Return what was pickled, with the model loaded if it is a URI."""
    with quiet("a worker cannot load the model ({}); install there what it needs", ModelError):
        model, *rest = cloudpickle.loads(fitting)
        if isinstance(model, str):
            from cfk_plugin.serving.loaded import load_from_mlflow

            model = load_from_mlflow(model)
        return (model, *rest)


def _columns(df: Any, schema: Schema, keep: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are read: features, and those to keep."""
    wanted = [
        *schema.features,
        *keep,
    ]
    if lost := [name for name in wanted if df.columns.count(name) != 1]:
        raise InputError(f"columns that df does not have, or has twice: {lost}")
    if known := [name for name in keep if name in {a.name for a in schema.attributes}]:
        raise InputError(
            f"keep= names columns of the schema, which would leave as they are: {known}"
        )
    if clash := [name for name in keep if name in _WRITTEN or list(keep).count(name) > 1]:
        raise InputError(
            f"keep= names columns that the record has, or twice the same: {clash}; rename them"
        )
    return tuple(wanted)


def _form(df: Any, keep: Sequence[str]) -> Any:
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
    record = [types.StructField(name, kinds[RECORD[name].removesuffix("?")]) for name in _WRITTEN]
    return types.StructType([*(df.schema[name] for name in keep), *record])
