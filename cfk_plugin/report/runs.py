"""Reading runs: what MLflow holds of them, from a local store and from a tracking server alike."""

from __future__ import annotations

import contextvars
import itertools
import json
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pandas as pd

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.hookspecs import Progress
from cfk_plugin.records.record import SCHEMA_VERSION
from cfk_plugin.records.run import StoreDownError, client_of, kind_of, tracking_errors

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunEvidence:
    """One run. What it does not hold is None, or a column that is not there.

    Attributes
    ----------
    run_id, name, experiment : str
    started : int
        Milliseconds since 1970.
    params, tags : mapping of str to str
    metrics : mapping of str to float
        Last values.
    policy, population, environment, frontier : mapping, optional
        ``cfk/policy.json``, ``cfk/population.json``, ``cfk/environment.json``, ``cfk/frontier.json``.
    rows : DataFrame, optional
        One row per explanation in the period, in the order of the run: of ``cfk/explanations`` the columns ``step``,
        ``timestamp``, ``status``, ``reason``, ``k``, ``ncp``, ``pureness``, ``pureness_low``, ``pureness_high``,
        ``exact``, ``optimal``, ``gap``, ``method``, ``guarantee``, ``policy_hash``, ``population``, ``epsilon``,
        ``delta``; of ``cfk/recount`` whatever is there, joined row by row.
    prototype : mapping, optional
        The certificate that the run's prototypes share.
    audits : sequence of mapping
        ``cfk/audit*.json``.
    """

    run_id: str
    name: str = ""
    experiment: str = ""
    started: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    frontier: Mapping[str, Any] | None = None
    rows: pd.DataFrame | None = None
    prototype: Mapping[str, Any] | None = None
    audits: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evidence:
    """Everything that a report is made from.

    Attributes
    ----------
    runs : sequence of RunEvidence
        Those with explanations and those with audits, oldest first.
    since, until : int, optional
        The period asked for, milliseconds since 1970; `until` is not in it.
    uncounted : mapping of str to int
        Explanations in the period that are in files of a run and that its summary does not count, by run id: they
        are on their way, or the attempt to log them broke off. They are not in the runs' rows.
    """

    runs: Sequence[RunEvidence]
    since: int | None = None
    until: int | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)


Moment = datetime | date | str
"""A point in time, or a day; text is ISO 8601. Without a time zone it is UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Period:
    """Moments from `since` up to, and without, `until`: milliseconds since 1970; None leaves an end open."""

    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, since: Moment | None, until: Moment | None) -> Period:
        """Read a period as people say it: ``until`` a day means up to its end.

        Parameters
        ----------
        since : datetime, date or str, optional
            First moment; a day starts at midnight.
        until : datetime, date or str, optional
            First moment that is left out; of a day, the midnight that ends it.

        Raises
        ------
        InputError
            If it is no time, or the period is empty.
        """
        first = None if since is None else _milliseconds("since", since)[0]
        last = None if until is None else sum(_milliseconds("until", until))
        if first is not None and last is not None and first >= last:
            raise InputError("the period is empty: since must be before until")
        return cls(first, last)

    def holds(self, moment: int) -> bool:
        """Say whether a moment, in milliseconds since 1970, is in the period."""
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)

    def __str__(self) -> str:
        """Return it in words, with what was made of a day."""
        words = [] if self.since is None else [f"from {moment_text(self.since)}"]
        words += [] if self.until is None else [f"until before {moment_text(self.until)}"]
        return " ".join(words) or "any time"


def moment_text(moment: int) -> str:
    """Return milliseconds since 1970 as text, in UTC."""
    return (_EPOCH + timedelta(milliseconds=moment)).strftime("%Y-%m-%d %H:%M UTC")


def _milliseconds(name: str, moment: object) -> tuple[int, int]:
    """Return when a moment starts, and how long it is: a day, or nothing."""
    found = _parsed(moment) if isinstance(moment, str) else moment
    if not isinstance(found, date):  # a datetime is one, too
        raise InputError(
            f"{name} must be a day such as 2026-10-31 or a time such as 2026-10-31T12:00+01:00, in ISO 8601"
        )
    whole_day = not isinstance(found, datetime)
    time = found if isinstance(found, datetime) else datetime(found.year, found.month, found.day)  # noqa: DTZ001
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    # Rounded up: what is logged has whole milliseconds, and those before the moment must stay out.
    return -((_EPOCH - time) // timedelta(milliseconds=1)), _DAY if whole_day else 0


def _parsed(text: str) -> date | None:
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    return None


PATIENCE = 60.0
"""Seconds without any answer after which a store is given up. MLflow itself goes on for a quarter of an hour."""

_THREADS = 4  # a tracking server answers no faster when asked by more
_FAREWELL = 2.0  # seconds that they get to finish with their files when nobody waits any more
_AHEAD = 16  # answers that may wait to be fetched, so that memory is bounded

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Workers:
    """A few threads for questions to a store; to be used in a ``with`` statement.

    They are daemons: one that hangs in a question nobody waits for any more does not keep the process alive, as those
    of `concurrent.futures` would.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name="cfk-report", daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        """Return the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let every thread end after what it does now, and wait a moment for it."""
        self._over.set()
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(_FAREWELL / _THREADS)

    def call(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return what a function returns.

        Raises
        ------
        StoreDownError
            If there is no answer within `PATIENCE` seconds.
        """
        return _answer(self._submit(function, *arguments))

    def map(self, function: Callable[[Asked], Answer], items: Iterable[Asked]) -> Iterator[Answer]:
        """Yield what a function returns for each item, in their order, while the next ones are under way.

        Raises
        ------
        StoreDownError
            If there is no answer within `PATIENCE` seconds.
        """
        under_way: deque[Future[Answer]] = deque()
        try:
            for item in items:
                under_way.append(self._submit(function, item))
                if len(under_way) > _AHEAD:
                    yield _answer(under_way.popleft())
            while under_way:
                yield _answer(under_way.popleft())
        finally:
            for future in under_way:
                future.cancel()

    def _submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        future: Future[Answer] = Future()
        context = contextvars.copy_context()  # MLflow keeps its workspace there

        def task() -> None:
            if self._over.is_set() or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(function, *arguments))
            except BaseException as error:  # noqa: BLE001 - raised again by whoever asked
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _answer(future: Future[Answer]) -> Answer:
    try:
        return future.result(PATIENCE)
    except TimeoutError:
        if future.done():  # the question's own
            raise
        raise StoreDownError(
            f"the MLflow store did not answer for {PATIENCE:g} seconds; try again when it does"
        ) from None


_VERSIONS = (None, 1)  # of a JSON file; the older ones do not say
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifacts:
    """What a run holds in files. Errors name the run and the file, never what is in it.

    Attributes
    ----------
    run_id : str
    folder : Path
        Where files are kept while they are read.
    """

    run_id: str
    folder: Path
    _repository: ArtifactRepository = field(repr=False)

    @classmethod
    def of(cls, run: Run, tracking_uri: str, folder: Path) -> Artifacts:
        """Open the files of a run.

        Raises
        ------
        TrackingError
            If MLflow cannot read where they are.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tracking_errors(f"run {run.info.run_id}: its artifacts cannot be opened"):
            repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=tracking_uri)
        return cls(run.info.run_id, folder, repository)

    def where(self, path: str) -> str:
        """Name a file in a message."""
        return f"run {self.run_id}, {path}"

    def names(self, path: str) -> list[str]:
        """Return the names of what is in a folder, sorted; nothing if there is no such folder.

        Raises
        ------
        TrackingError
            If the store cannot be read.
        """
        with tracking_errors(f"{self.where(path)}: it cannot be listed"):
            found = self._repository.list_artifacts(path)
        return sorted(Path(info.path).name for info in found)

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        """Give a copy of a file for as long as it is read.

        Raises
        ------
        TrackingError
            If it cannot be fetched.
        """
        copy = self.folder / f"{next(_numbers)}{Path(path).suffix}"
        try:
            # What every repository implements: `download_artifacts` asks twice, and draws a progress bar per file.
            self._repository._download_file(path, str(copy))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise TrackingError(
                f"{self.where(path)}: it cannot be fetched ({kind_of(error)}); check that the artifact store "
                "answers, still has it, and lets this machine read it"
            ) from error
        try:
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def document(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object.

        Raises
        ------
        TrackingError
            If it cannot be fetched, is no JSON object, or was written in a layout that is not known.
        """
        with self.local(path) as copy:
            try:
                content = json.loads(copy.read_bytes())
            except (ValueError, RecursionError):
                raise TrackingError(f"{self.where(path)}: it is damaged: no JSON") from None
        if not isinstance(content, dict):
            raise TrackingError(f"{self.where(path)}: it is damaged: expected a JSON object")
        if (version := content.get("schema_version")) not in _VERSIONS:
            said = version if isinstance(version, int) else "none that is a number"
            raise TrackingError(
                f"{self.where(path)}: schema_version is {said}, expected {_VERSIONS[-1]}; a newer cfk_plugin wrote it"
            )
        return content


ASKED = "cfk.asked"
"""Metric of a run that holds explanations: how many it counts."""

_AUDITS = ("cfk.audit", "cfk.audit.epsilon.verdict", "cfk.audit.epsilon_one_run.verdict", "cfk.frontier")  # tags
_FILTERS = (f"metrics.`{ASKED}` > 0", *(f"tags.`{tag}` LIKE '%'" for tag in _AUDITS))  # MLflow knows no "or"
_ID = "id:"
_NAMED = 5  # experiments that a message lists
_PAGE = 1000
_UNREADABLE = "the MLflow store cannot be read"
_TIMEOUT = 5.0  # seconds that a server may take to say that it is there
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def opened(tracking_uri: str | None) -> MlflowClient:
    """Return a client of a store; without an address, of the one that MLflow is set to.

    Raises
    ------
    TrackingError
        If it does not answer, or its address is none.
    """
    with tracking_errors("the MLflow store cannot be opened; check the tracking URI"):
        return client_of(tracking_uri, _TIMEOUT)


def run_named(client: MlflowClient, run_id: str) -> Run:
    """Return a run.

    Raises
    ------
    InputError
        If there is none of this id, or it was deleted.
    TrackingError
        If the store cannot be read.
    """
    try:
        run = client.get_run(run_id)
    except Exception as error:
        if getattr(error, "error_code", None) in _UNKNOWN:
            raise InputError(
                f"there is no run {run_id}; check the id, and that the tracking URI is its store's"
            ) from None
        raise TrackingError(f"{_UNREADABLE} ({kind_of(error)})") from error
    if run.info.lifecycle_stage != "active":
        raise InputError(f"run {run_id} was deleted; restore it with `mlflow runs restore`, or leave it out")
    return run


def experiment_named(client: MlflowClient, name: str) -> Experiment:
    """Return an experiment by its name or, with ``id:`` before it, its id.

    Raises
    ------
    InputError
        If there is none, or it was deleted.
    TrackingError
        If the store cannot be read.
    """
    try:
        by_id = name.startswith(_ID)
        found = client.get_experiment(name.removeprefix(_ID)) if by_id else client.get_experiment_by_name(name)
    except Exception as error:
        if getattr(error, "error_code", None) not in _UNKNOWN:
            raise TrackingError(f"{_UNREADABLE} ({kind_of(error)})") from error
        found = None
    if found is None:
        raise InputError(f"there is no experiment {name!r} in this store; {_experiments(client)}")
    if found.lifecycle_stage != "active":
        raise InputError(f"experiment {name!r} was deleted; restore it with `mlflow experiments restore`")
    return found


def names_of_experiments(client: MlflowClient, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of experiments by their ids.

    Raises
    ------
    TrackingError
        If the store cannot be read.
    """
    with tracking_errors(_UNREADABLE):
        return {id_: str(client.get_experiment(id_).name) for id_ in sorted(set(ids))}


def runs_in(client: MlflowClient, experiment_id: str) -> list[Run]:
    """Return the runs of an experiment that say they hold explanations or an audit; not deleted ones.

    Raises
    ------
    TrackingError
        If the store cannot be read.
    """
    found: dict[str, Run] = {}
    with tracking_errors(_UNREADABLE):
        for condition in _FILTERS:
            page, token = None, ""
            while page is None or token:
                page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token or None)
                found |= {run.info.run_id: run for run in page}
                token = page.token
    return list(found.values())


def summaries_of(client: MlflowClient, run_id: str) -> set[tuple[int, int]]:
    """Return the time of each summary of a run, milliseconds since 1970, and how many explanations it counts.

    Raises
    ------
    TrackingError
        If the store cannot be read.
    """
    with tracking_errors(_UNREADABLE):
        return {(metric.timestamp, metric.step) for metric in client.get_metric_history(run_id, ASKED)}


def _experiments(client: MlflowClient) -> str:
    """Say which experiments there are; a few names, as a store may have thousands."""
    with tracking_errors(_UNREADABLE):
        names = [experiment.name for experiment in client.search_experiments(max_results=_NAMED + 1)]
    more = " and others" if len(names) > _NAMED else ""
    return f"it has {', '.join(repr(name) for name in names[:_NAMED])}{more}" if names else "it has none"


CERTIFICATE = "certificate"
"""Column with the certificate of prototypes as JSON."""

_KINDS = {
    "step": "whole numbers",
    "timestamp": "times",
    **dict.fromkeys(("status", "reason"), "text"),
    **dict.fromkeys(("k", "ncp", "pureness", "pureness_low", "pureness_high"), "numbers"),
    **dict.fromkeys(("exact", "optimal"), "flags"),
    "gap": "numbers",
    **dict.fromkeys(("method", "guarantee", "policy_hash", "population"), "text"),
    **dict.fromkeys(("epsilon", "delta"), "numbers"),
    CERTIFICATE: "text",
}
"""Columns that are read of explanations, in order, and what they hold; of a recount everything else is read."""

_NEEDED = ("step", "timestamp", "status")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shard:
    """One file of explanations, with its recount.

    Attributes
    ----------
    name : str
    first, rows : int
        Number of the first explanation in the run, and how many there are.
    last : int
        When the last one was made, milliseconds since 1970.
    span : (int, int)
        When the earliest and the latest one were made.
    table : pyarrow.Table
        Those in the period.
    """

    name: str
    first: int
    rows: int
    last: int
    span: tuple[int, int]
    table: pa.Table

    @property
    def end(self) -> int:
        """Number of the explanation after the last one."""
        return self.first + self.rows


def read_shard(name: str, own: Path, recount: Path | None, where: str, period: Period) -> Shard | None:
    """Read a file of explanations and, where there is one, the file with their recount; None if it has no rows.

    Parameters
    ----------
    name : str
        Of the file in the run.
    own, recount : Path
        Local copies.
    where : str
        What messages call the file.
    period : Period

    Raises
    ------
    TrackingError
        If a file is damaged, lacks what it must have, or the two do not have the same rows.
    """
    import pyarrow as pa

    found = _read(own, where, drop=False)
    if lost := [column for column in _NEEDED if column not in found]:
        raise TrackingError(f"{where}: it lacks {', '.join(lost)}")
    rows = len(found["step"])
    if recount is not None:
        found |= _of_same_rows(_read(recount, f"{where} (recount)", drop=True), found["step"], where)
    if not rows:
        return None
    steps, times = (_whole(found[column], column, where) for column in ("step", "timestamp"))
    if not np.array_equal(steps, np.arange(steps[0], steps[0] + rows)):
        raise TrackingError(f"{where}: it is damaged: step does not count its rows")
    inside = np.ones(len(times), bool)
    inside &= times >= period.since if period.since is not None else True
    inside &= times < period.until if period.until is not None else True
    table = pa.table(found)
    table = table if inside.all() else table.filter(pa.array(inside))
    return Shard(name, int(steps[0]), rows, int(times[-1]), (int(times.min()), int(times.max())), table)


def frame_of(shards: Sequence[Shard], where: str) -> pd.DataFrame:
    """Return the rows of files as one frame: numbers as float64, flags as nullable booleans, text as categories.

    Columns that a file lacks are null in its rows; categories are sorted.

    Raises
    ------
    TrackingError
        If a column does not hold the same everywhere.
    """
    import pyarrow as pa

    try:
        table = pa.concat_tables([shard.table for shard in shards], promote_options="default")
    except pa.ArrowException:
        raise TrackingError(f"{where}: a column is of one type in some files and of another in others") from None
    kept = [name for name in _KINDS if name in table.column_names]
    table = table.select(kept + [name for name in table.column_names if name not in _KINDS]).unify_dictionaries()
    frame: pd.DataFrame = table.to_pandas(
        types_mapper={pa.bool_(): pd.BooleanDtype()}.get, split_blocks=True, self_destruct=True
    )
    for name in frame.select_dtypes("category"):
        used = frame[name].cat.remove_unused_categories()
        frame[name] = used.cat.reorder_categories(sorted(used.cat.categories))
    return frame


def _read(path: Path, where: str, *, drop: bool) -> dict[str, pa.ChunkedArray]:
    """Read the columns of explanations or, with `drop`, those that only a recount has and `step`, in few types."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            names = [name for name in there if ((name in _KINDS) is not drop or name == "step") and name != "query"]
            found = file.read(columns=names, use_threads=False)
    except Exception:  # noqa: BLE001 - whatever a damaged file raises may quote it
        raise TrackingError(f"{where}: it is damaged: no Parquet file") from None
    columns = {name: _plain(name, found.column(name), where) for name in names}
    return {name: column for name, column in columns.items() if column is not None}


def _of_same_rows(recount: dict[str, pa.ChunkedArray], steps: pa.ChunkedArray, where: str) -> dict[str, Any]:
    """Return the columns of a recount; its own numbering, where it has one, only shows that it is of these rows."""
    if others := [len(column) for column in recount.values() if len(column) != len(steps)]:
        raise TrackingError(f"{where}: it has {len(steps)} rows, and its recount {others[0]}")
    if not recount.pop("step", steps).equals(steps):
        raise TrackingError(f"{where}: its recount is of explanations with other numbers")
    return recount


def _plain(name: str, column: pa.ChunkedArray, where: str) -> pa.ChunkedArray | None:
    """Return a column in the one type for what it holds; None if it holds nothing and has no type."""
    import pyarrow as pa

    types: Mapping[str, Any] = {
        "whole numbers": pa.int64(),
        "times": pa.timestamp("ms", tz="UTC"),
        "numbers": pa.float64(),
        "flags": pa.bool_(),
        "text": pa.dictionary(pa.int32(), pa.string()),
    }
    found = _kind(column.type)
    if found == "nothing":
        return None
    expected = _KINDS.get(name, found)
    if expected not in types or found != expected.removeprefix("whole "):
        raise TrackingError(f"{where}: column {name} holds {found}, expected {_KINDS.get(name, 'numbers or text')}")
    try:
        return column if column.type == types[expected] else column.cast(types[expected])
    except pa.ArrowException:
        raise TrackingError(f"{where}: it is damaged: column {name} does not hold {expected}") from None


def _kind(type_: pa.DataType) -> str:
    import pyarrow.types as is_

    if is_.is_null(type_):
        return "nothing"
    if is_.is_boolean(type_):
        return "flags"
    if is_.is_timestamp(type_):
        return "times"
    if is_.is_integer(type_) or is_.is_floating(type_):
        return "numbers"
    text = type_.value_type if is_.is_dictionary(type_) else type_
    return "text" if is_.is_string(text) or is_.is_large_string(text) else "something else"


def _whole(column: pa.ChunkedArray, name: str, where: str) -> NDArray[np.int64]:
    """Return steps, or times in milliseconds."""
    import pyarrow as pa

    if column.null_count:
        raise TrackingError(f"{where}: it is damaged: a row has no {name}")
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)


def counted(
    shards: Sequence[Shard], asked: int, where: str, history: Callable[[], set[tuple[int, int]]]
) -> tuple[list[Shard], list[Shard]]:
    """Return the files that count, in the order of the run, and the others.

    Files are logged first and the summary that counts them last. Where it did not come to that, their explanations
    may have been logged once more in their place; and some may have been logged since the summary was read.

    Parameters
    ----------
    shards : sequence of Shard
    asked : int
        Explanations that the run counts.
    where : str
        What messages call the files.
    history : callable
        Gives time and place of every summary; asked only where files are in each other's way.

    Raises
    ------
    TrackingError
        If explanations that the run counts are in no file.
    """
    kept: list[Shard] = []
    summaries: set[tuple[int, int]] | None = None
    start = 0
    by_start: dict[int, list[Shard]] = {}
    for shard in sorted(shards, key=lambda shard: shard.name):
        by_start.setdefault(shard.first, []).append(shard)
    while start < asked:
        here = by_start.get(start, [])
        if len(here) > 1:
            summaries = history() if summaries is None else summaries
            here = [shard for shard in here if (shard.last, shard.end) in summaries]
        if not here or here[0].end > asked:
            raise TrackingError(
                f"{where}: the run counts {asked} explanations, and there is no file with number {start}; check that "
                "no file was deleted, and that this machine sees the disk where artifacts are kept"
            )
        kept.append(here[0])
        start = here[0].end
    chosen = {id(shard) for shard in kept}
    return kept, [shard for shard in shards if id(shard) not in chosen]


EXPLANATIONS, RECOUNT = "cfk/explanations", "cfk/recount"
"""Folders of a run: its rows, and what verification found of each; files of one name have the same rows."""

DOCUMENTS = ("policy", "population", "environment", "frontier")
"""JSON files of a run, ``cfk/<name>.json``."""

_REPORT = "cfk.report"  # tag


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Held:
    """A run, and the names of its files of rows.

    Attributes
    ----------
    run : mlflow.entities.Run
    artifacts : Artifacts
    documents : mapping of str to mapping
        Those of `DOCUMENTS` that it has.
    audits : sequence of mapping
        ``cfk/audit*.json``, by name.
    parts : sequence of str
        Files of explanations, by name.
    recounted : frozenset of str
        Files that have a recount.
    """

    run: Run
    artifacts: Artifacts
    documents: Mapping[str, Mapping[str, Any]]
    audits: Sequence[Mapping[str, Any]]
    parts: Sequence[str]
    recounted: frozenset[str]

    @property
    def asked(self) -> int:
        """Explanations that the run counts. A run that holds a report alone may repeat the figure of another."""
        repeated = _REPORT in self.run.data.tags and not self.parts
        return 0 if repeated else int(self.run.data.metrics.get(ASKED, 0))

    @property
    def empty(self) -> bool:
        """Whether it holds neither explanations nor audits; a frontier is one of what protection costs."""
        return not (self.asked or self.parts or self.audited)

    @property
    def audited(self) -> bool:
        """Whether it holds what an audit found."""
        return bool(self.audits) or "frontier" in self.documents

    def shard(self, name: str, period: Period) -> Shard | None:
        """Read a file of explanations with its recount; None if it has no rows.

        Raises
        ------
        TrackingError
            If one of them cannot be fetched or is damaged.
        """
        where = self.artifacts.where(f"{EXPLANATIONS}/{name}")
        with self.artifacts.local(f"{EXPLANATIONS}/{name}") as rows:
            if name not in self.recounted:
                return read_shard(name, rows, None, where, period)
            with self.artifacts.local(f"{RECOUNT}/{name}") as recount:
                return read_shard(name, rows, recount, where, period)


def look(folder: Path, tracking_uri: str, run: Run) -> Held:
    """Read everything of a run but its rows; `folder` is for copies of files.

    Raises
    ------
    TrackingError
        If a file cannot be fetched or is damaged, or a newer version logged the run.
    """
    version = run.data.tags.get("cfk.schema_version", str(SCHEMA_VERSION))
    if version != str(SCHEMA_VERSION):
        said = version if version.isdecimal() else "no number"
        raise TrackingError(
            f"run {run.info.run_id}: tag cfk.schema_version is {said}, expected {SCHEMA_VERSION}; "
            "a newer cfk_plugin logged it"
        )
    artifacts = Artifacts.of(run, tracking_uri, folder)
    there = artifacts.names("cfk")
    audits = [name for name in there if name.startswith("audit") and name.endswith(".json")]
    return Held(
        run,
        artifacts,
        {name: artifacts.document(f"cfk/{name}.json") for name in DOCUMENTS if f"{name}.json" in there},
        tuple(artifacts.document(f"cfk/{name}") for name in audits),
        _parts(artifacts, EXPLANATIONS, there),
        frozenset(_parts(artifacts, RECOUNT, there)),
    )


def _parts(artifacts: Artifacts, path: str, there: Sequence[str]) -> list[str]:
    if Path(path).name not in there:
        return []
    return [name for name in artifacts.names(path) if name.startswith("part-") and name.endswith(".parquet")]


def read_runs(
    run_ids: Sequence[str] | str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read runs by their ids.

    Parameters
    ----------
    run_ids : sequence of str, or str
    tracking_uri : str, optional
        Default: MLflow's own setting.
    since, until : datetime, date or str, optional
        The period: explanations of that time, and audits whose run started in it; runs without any are left out.
        Text is ISO 8601; without a time zone it is UTC. `until` is the first moment that is left out; a day,
        as in ``until="2026-10-31"``, is in the period up to its end.
    progress : callable, optional
        Called with (done, total) runs.

    Returns
    -------
    Evidence
        Oldest run first. The same store gives the same evidence.

    Raises
    ------
    InputError
        If there is no such run, it was deleted, or it holds neither explanations nor an audit; if the period is none;
        if there is nothing in it.
    TrackingError
        If the store does not answer, or what it holds is damaged, incomplete, or of a newer version. Messages
        name runs and artifacts, never what is in them.
    """
    wanted = [run_ids] if isinstance(run_ids, str) else list(dict.fromkeys(run_ids))
    if not wanted:
        raise InputError("there is no run to read: give the id of at least one")
    period = Period.of(since, until)
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as folder, Workers() as workers:
        client = workers.call(opened, tracking_uri)
        runs = list(workers.map(partial(run_named, client), wanted))
        return _Reading(client, workers, Path(folder), period, progress).evidence(runs, f"{len(runs)} runs", named=True)


def read_experiment(
    name: str,
    *,
    tracking_uri: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Read all runs of an experiment that hold explanations or audits; reports and deleted runs are left out.

    Parameters
    ----------
    name : str
        Name or, with ``id:`` before it, id.
    tracking_uri, since, until, progress
        As for `read_runs`.

    Returns
    -------
    Evidence
        Oldest run first. The same store gives the same evidence.

    Raises
    ------
    InputError
        If there is no such experiment, it was deleted, the period is none, or there is nothing in it.
    TrackingError
        As for `read_runs`.
    """
    period = Period.of(since, until)
    with tempfile.TemporaryDirectory(prefix="cfk-report-") as folder, Workers() as workers:
        client = workers.call(opened, tracking_uri)
        experiment = workers.call(experiment_named, client, name)
        runs = workers.call(runs_in, client, experiment.experiment_id)
        return _Reading(client, workers, Path(folder), period, progress).evidence(
            runs, f"experiment {name!r}", named=False
        )


@dataclass(slots=True)
class _Reading:
    client: MlflowClient
    workers: Workers
    folder: Path
    period: Period
    progress: Progress | None
    spans: list[tuple[int, int]] = field(default_factory=list)  # of what was found, in the period or not
    uncounted: dict[str, int] = field(default_factory=dict)

    def evidence(self, runs: Iterable[Run], searched: str, *, named: bool) -> Evidence:
        """Read runs; those that were `named` must hold something."""
        runs = sorted(runs, key=lambda run: (run.info.start_time or 0, run.info.run_id))
        held = list(self.workers.map(partial(look, self.folder, self.client.tracking_uri), runs))
        if named and (nothing := [one.run.info.run_id for one in held if one.empty]):
            raise InputError(
                f"run {', '.join(nothing)} holds neither explanations nor an audit; log some with track=True, "
                "Explanations.log or AuditReport.log, or leave it out"
            )
        held = [one for one in held if not one.empty]
        experiments = {one.run.info.experiment_id for one in held}
        names = self.workers.call(names_of_experiments, self.client, experiments)
        found = [one for one in self._runs(held, names) if one is not None]
        if not found:
            raise InputError(f"nothing to report on in {searched}: {self._explained(len(held))}")
        return Evidence(runs=found, since=self.period.since, until=self.period.until, uncounted=self.uncounted)

    def _runs(self, held: Sequence[Held], names: Mapping[str, str]) -> Iterator[RunEvidence | None]:
        """Yield run by run, while files of the next ones are read."""
        files = [(place, part) for place, one in enumerate(held) for part in one.parts]
        shards = self.workers.map(lambda file: (file[0], held[file[0]].shard(file[1], self.period)), files)
        by_run = groupby(shards, key=lambda found: found[0])
        of = next(by_run, None)
        for place, one in enumerate(held):
            if self.progress is not None:
                self.progress(place, len(held))
            mine: list[Shard] = []
            if of is not None and of[0] == place:
                mine = [shard for _, shard in of[1] if shard is not None]
                of = next(by_run, None)
            yield self._run(one, mine, names[one.run.info.experiment_id])
        if self.progress is not None:
            self.progress(len(held), len(held))

    def _run(self, held: Held, shards: Sequence[Shard], experiment: str) -> RunEvidence | None:
        run, where = held.run, held.artifacts.where(EXPLANATIONS)
        kept, others = counted(
            shards, held.asked, where, lambda: self.workers.call(summaries_of, self.client, run.info.run_id)
        )
        self.spans += [shard.span for shard in kept]
        if left := sum(shard.table.num_rows for shard in others):
            self.uncounted[run.info.run_id] = left
        rows = frame_of(kept, where) if any(shard.table.num_rows for shard in kept) else None
        started = int(run.info.start_time or 0)
        self.spans += [(started, started)] if held.audited else []
        audited = held.audited and self.period.holds(started)
        if rows is None and not audited:
            return None
        return RunEvidence(
            run_id=run.info.run_id,
            name=run.info.run_name or "",
            experiment=experiment,
            started=started,
            params=dict(sorted(run.data.params.items())),
            tags=dict(sorted(run.data.tags.items())),
            metrics=dict(sorted(run.data.metrics.items())),
            **{name: held.documents.get(name) for name in DOCUMENTS},
            prototype=_prototype(rows, where),
            rows=rows,
            audits=held.audits if audited else (),
        )

    def _explained(self, runs: int) -> str:
        """Say what was searched, and what to do."""
        if not self.spans and self.uncounted:
            return (
                f"its {sum(self.uncounted.values())} explanations are in files that no summary counts yet; try again "
                "when all are logged (cfk spool status)"
            )
        if not self.spans:
            return (
                "it has no run with explanations or audits; log explanations with track=True or Explanations.log, "
                "audits with AuditReport.log"
            )
        first, last = min(low for low, _ in self.spans), max(high for _, high in self.spans)
        return (
            f"its {runs} runs with explanations or audits have none {self.period}, but from {moment_text(first)} to "
            f"{moment_text(last)}; choose another period"
        )


def _prototype(rows: pd.DataFrame | None, where: str) -> Mapping[str, Any] | None:
    """Take the certificates out of the rows, and return the first."""
    if rows is None or CERTIFICATE not in rows:
        return None
    certificates = rows.pop(CERTIFICATE).dropna()
    if certificates.empty:
        return None
    try:
        content = json.loads(certificates.iloc[0])
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise TrackingError(f"{where}: column {CERTIFICATE} is damaged: expected JSON objects")
    return content
