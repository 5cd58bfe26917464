"""Protecting a Spark table of counterfactuals or queries in place: each worker opens one sealed
file and keeps it.
"""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import most_changes, rules_of
from cfk_plugin.data.encoded_table import whole_number
from cfk_plugin.data.population import Population, configured_key
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.rows import select_columns, spread
from cfk_plugin.errors import (
    BundleError,
    CFKError,
    InputError,
    ModelError,
    PolicyError,
    quiet,
    serving,
)
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import Withheld
from cfk_plugin.serving.records import FEATURE, RECORD, Known, reason_of, record_of

if TYPE_CHECKING:
    from cfk_plugin.data.schema import Schema

_log = logging.getLogger("cfk_plugin")

_WRITTEN = tuple(name for name in RECORD if name != "query")  # rows of Spark have no position
_OPENED: dict[str, KAnonymizer] = {}  # what this worker has opened, of the latest job only


def protect_spark(
    df: Any,
    anonymizer: KAnonymizer | str | Path,
    *,
    model: Any = None,
    desired: Any = None,
    keep: Sequence[str] = (),
    factuals: str | None = None,
    ledger: str | None = None,
    ledger_key: bytes | None = None,
    key: bytes | None = None,
) -> Any:
    """Protect a Spark table of counterfactual instances.

    Every row becomes the record that `KAnonymizer.transform` releases for it on one machine: the
    population is sealed (`KAnonymizer.seal`) and sent with its partition, which no worker builds
    again. It protects the people in the population from receivers of the records, not from those
    who can read the workers' memory or disks: the model, the key and everybody's quasi-identifiers
    are there while the job runs.

    Whatever fails on a worker (model, ledger, opening the file) gives withheld records with a
    reason. Nothing is raised there, as Spark sends exceptions with their text to the driver and its
    logs.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        One row per counterfactual; must have every feature of the schema.
    anonymizer : KAnonymizer or path
        A fitted one, or the file that one was sealed to.
    model : str or object, optional
        URI of a model of MLflow, which each worker loads, or the model itself, which is pickled
        (cloudpickle). Default: what the anonymizer was fitted with; a file has none.
    desired : label, "opposite" or callable, optional
        Default: as `model`.
    keep : sequence of str
        Columns that stay beside the record, such as an id, as rows of Spark have no order. They
        leave unchanged, so no column of the schema may be among them.
    factuals : str, optional
        Prefix of the columns that hold the instance that each counterfactual explains: with
        ``"factual_"``, ``factual_age`` beside ``age``. Needed for sentences; with
        ``desired="opposite"`` but without it, the model's outcome at the counterfactual counts as
        the desired one.
    ledger : str, optional
        URL of the ledger that all workers share; a SQLite file only where all of them are on this
        machine.
    ledger_key : bytes, optional
        Default: as `Ledger`, on each worker.
    key : bytes, optional
        The key of the population. Default: the environment variable ``CFK_KEY`` of this process. It
        travels inside the job, not in Spark's configuration, which Spark displays.

    Returns
    -------
    pyspark.sql.DataFrame
        The kept columns, then ``status``, ``reason``, ``sentence`` (null without factuals), ``k``,
        ``ncp``, ``pureness``, and ``features``, an array of ``name``, ``kind``, ``low``, ``high``,
        ``values``, ``missing``. It is lazy: computed whenever it is read.

    Raises
    ------
    InputError
        If columns are missing or clash, or the anonymizer cannot be sent: it has plugins, a ledger,
        or a model that cannot be pickled.
    CFKError
        If the population cannot be sealed or opened, or model and outcome do not fit it; see
        `KAnonymizer.fit`.
    """
    _require_spark(df, "transform")
    job = _job(anonymizer, model, desired, configured_key(key))
    if ledger is not None:
        Ledger(ledger, key=ledger_key).close()  # so that errors are raised here
        job = replace(job, ledger=ledger, ledger_key=ledger_key)
    schema = Population.open(io.BytesIO(job.bundle), key=job.key).schema
    names = _columns(df, schema, keep, factuals)
    job = replace(job, features=len(schema.features), has_factuals=factuals is not None).numbered()
    return spread(select_columns(df, names), names, job, _form(df, keep))


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
    """Answer a Spark table of queries from a catalogue, without an explainer.

    Every query gets the records that `KAnonymizer.explain` releases for it on one machine: the
    catalogue is sealed and sent with the job, once to each worker. It protects as `explain` does.
    Those who can read the workers' memory or disks see the entries and the model, but nobody's
    quasi-identifiers.

    Parameters, result and errors are those of `protect_spark` (with one row of `df` per query, and
    `answers` rows per query in the result, each with its sentence) and those of
    `KAnonymizer.explain`.
    """
    _require_spark(df, "explain")
    asked = {
        "answers": answers,
        "features_to_vary": features_to_vary,
        "permitted_range": permitted_range,
        "max_changes": max_changes,
    }
    job = _job(anonymizer, model, desired, configured_key(key), asked)
    schema = Population.open(io.BytesIO(job.bundle), key=job.key).schema
    names = _columns(df, schema, keep, None)
    job = replace(job, features=len(schema.features)).numbered()
    return spread(select_columns(df, names), names, job, _form(df, keep))


def _require_spark(df: Any, here: str) -> None:
    if not hasattr(df, "mapInPandas"):
        raise InputError(
            f"df must be a Spark DataFrame, got {type(df).__name__}; use KAnonymizer.{here}"
        )


@dataclass(frozen=True, repr=False)
class _Job:
    """What a worker needs: the sealed population, how to fit an anonymizer on it, and what the
    columns are.
    """

    bundle: bytes
    key: bytes
    fitting: bytes  # model, desired outcome and options of `KAnonymizer`, pickled
    ledger: str | None = None
    ledger_key: bytes | None = None
    features: int = 0
    has_factuals: bool = False
    # arguments of `explain`; None to protect counterfactuals
    asked: Mapping[str, Any] | None = None
    digest: str = ""

    def numbered(self) -> _Job:
        """Return the job with an identity, by which workers recognize what they have opened."""
        parts = [self.bundle, self.fitting, repr(self.ledger).encode(), self.ledger_key or b""]
        return replace(
            self,
            digest=hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in parts)).hexdigest(),
        )

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Protect some rows, on a worker; if anything fails, all of them are withheld."""
        kept = batch.iloc[:, self.features * (1 + self.has_factuals) :]
        if self.asked is not None:
            kept = kept.take(np.repeat(np.arange(len(batch)), self.asked["answers"]))
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
        population, n = anonymizer.population_, self.features
        names, domains, known = population.schema.features, population.domains, Known()
        wording = population.schema.wording
        if self.asked is not None:
            asking: Sequence[Any] = population.conform(batch.iloc[:, :n]).to_dict("records")
            answers = anonymizer.explain(batch.iloc[:, :n], **self.asked)
            return [
                record_of(entry, asking[entry.query], names, domains, known, wording)
                for entry in answers
            ]
        facts = (
            batch.iloc[:, n : 2 * n].set_axis(batch.columns[:n], axis=1)
            if self.has_factuals
            else None
        )
        told: Sequence[Any] = [None] * len(batch)
        if facts is not None:
            told = population.conform(facts).to_dict("records")
        entries = anonymizer.transform(batch.iloc[:, :n], facts)
        return [
            record_of(entry, told[i], names, domains, known, wording)
            for i, entry in enumerate(entries)
        ]

    def _opened(self) -> KAnonymizer:
        if self.digest not in _OPENED:
            _OPENED.clear()
            _OPENED[self.digest] = self.open()
        return _OPENED[self.digest]

    def open(self) -> KAnonymizer:
        population = Population.open(io.BytesIO(self.bundle), key=self.key)
        if population.policy is None:
            raise InputError("the file has a population and no policy; seal a fitted KAnonymizer")
        if self.asked is None:
            population.require_cells(PolicyError(_ALONE))
        else:
            population.require_sealed_catalogue(PolicyError(_NONE))
        model, desired, options, later = _unpickled(self.fitting)
        book = None if self.ledger is None else Ledger(self.ledger, key=self.ledger_key)
        anonymizer = KAnonymizer(policy=population.policy, ledger=book, **options)
        with warnings.catch_warnings(action="ignore"):  # the driver has been warned
            return anonymizer.fit(population, model, desired, later=later)


_ALONE = (
    "a sealed catalogue answers queries, and a table of counterfactuals needs who is where; use"
    " explain_spark, or another guarantee"
)
_NONE = (
    'explain_spark needs a catalogue: fit with PrivacyPolicy(guarantee="catalogue"), or use'
    " protect_spark"
)


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
    asked: Mapping[str, Any] | None = None,
) -> _Job:
    if isinstance(anonymizer, (str, Path)):
        if model is None or desired is None:
            raise InputError(
                "a sealed file has no model and no desired outcome; give model= and desired="
            )
        with quiet("the bundle cannot be read: {}; check the path", BundleError):
            bundle = Path(anonymizer).read_bytes()
        job = _Job(bundle, key, _pickled(model, desired, {}, ()), asked=asked)
        _tried(job.open(), asked)  # raises here whatever can be refused
        return job
    if not isinstance(anonymizer, KAnonymizer):
        raise InputError(
            f"anonymizer must be a fitted KAnonymizer or a path, got {type(anonymizer).__name__}"
        )
    if anonymizer.ledger is not None:
        raise InputError(
            "workers open the ledger themselves; give ledger= its URL, to an anonymizer without one"
        )
    if len(anonymizer.plugins):
        raise InputError(
            "plugins that are given as objects are not sent to workers; install them there"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "population.cfk"
        anonymizer.seal(path)
        needs_explainer = promise_of(anonymizer.policy_.guarantee).releases_counterfactuals
        if needs_explainer != (asked is None):
            reason = _ALONE if asked is None else _NONE
            raise PolicyError(reason)
        _tried(anonymizer, asked)
        bundle = path.read_bytes()
    judge = anonymizer.model_ if model is None else model
    wanted = anonymizer.goal_.desired if desired is None else desired
    options = {
        "method": anonymizer.method,
        "change_cost": anonymizer.change_cost,
        "rounding": anonymizer.rounding,
        "seed": anonymizer.seed,
    }
    return _Job(bundle, key, _pickled(judge, wanted, options, anonymizer.later_), asked=asked)


def _tried(anonymizer: KAnonymizer, asked: Mapping[str, Any] | None) -> None:
    """Refuse, on the driver, what no worker could answer."""
    if asked is not None:
        whole_number("answers", asked["answers"])
        most_changes(asked["max_changes"])
        rules_of(
            anonymizer.population_.encoder, asked["features_to_vary"], asked["permitted_range"]
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


def _columns(df: Any, schema: Schema, keep: Sequence[str], factuals: str | None) -> tuple[str, ...]:
    """Return the columns that are read: features, factuals, and those to keep."""
    wanted = [
        *schema.features,
        *(() if factuals is None else (factuals + name for name in schema.features)),
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
