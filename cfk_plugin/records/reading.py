"""Reading a store of runs: runs, their files and tables, by threads that are never waited for
forever.
"""

from __future__ import annotations

import contextvars
import itertools
import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pandas as pd

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.records.run import ASKED, StoreDownError, client_of, kind_of, tracking_errors
from cfk_plugin.records.tables import (
    Columns,
    in_order,
    kind_in_report,
    nulls,
    public_kind,
    read,
    recount_kind,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from numpy.typing import NDArray


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

# tags
_AUDITS = (
    "cfk.audit",
    "cfk.audit.epsilon.verdict",
    "cfk.audit.epsilon_one_run.verdict",
    "cfk.frontier",
)
# MLflow knows no "or"
_FILTERS = (f"metrics.`{ASKED}` > 0", *(f"tags.`{tag}` LIKE '%'" for tag in _AUDITS))
_ID = "id:"
_NAMED = 5  # experiments that a message lists
_PAGE = 1000
_UNREADABLE = "the MLflow store cannot be read"
_TIMEOUT = 5.0  # seconds that a server may take to say that it is there
_NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # codes of errors


def opened(tracking_uri: str | None) -> MlflowClient:
    """Return a client of a store; without an address, of MLflow's current one."""
    with tracking_errors("the MLflow store cannot be opened; check the tracking URI"):
        return client_of(tracking_uri, _TIMEOUT, makes=False)


def if_there(ask: Callable[[], Answer], failed: str = _UNREADABLE) -> Answer | None:
    """Return what MLflow answers, or None if it does not have what was asked for."""
    with tracking_errors(failed):
        try:
            return ask()
        except Exception as error:
            if getattr(error, "error_code", None) in _NOT_THERE:
                return None
            raise


def ids_of(run_ids: object) -> list[str]:
    wanted = (
        [run_ids]
        if isinstance(run_ids, str)
        else list(run_ids)
        if isinstance(run_ids, Iterable)
        else [run_ids]
    )
    if not all(isinstance(one, str) for one in wanted):
        what = type(run_ids).__name__
        raise InputError(
            f"run_ids must be the id of a run or a list of them, got {what}; Explanations.log"
            " returns one"
        )
    return list(dict.fromkeys(wanted))


def run_named(client: MlflowClient, run_id: str) -> Run:
    run = if_there(lambda: client.get_run(run_id))
    if run is None:
        raise InputError(
            f"there is no run {run_id}; check the id, and that the tracking URI is its store's"
        )
    if run.info.lifecycle_stage != "active":
        raise InputError(
            f"run {run_id} was deleted; restore it with `mlflow runs restore`, or leave it out"
        )
    return run


def experiment_named(client: MlflowClient, name: str) -> Experiment:
    """Return an experiment by its name or, with ``id:`` before it, its id."""
    get = client.get_experiment if name.startswith(_ID) else client.get_experiment_by_name
    found = if_there(lambda: get(name.removeprefix(_ID)))
    if found is None:
        raise InputError(f"there is no experiment {name!r} in this store; {_experiments(client)}")
    if found.lifecycle_stage != "active":
        raise InputError(
            f"experiment {name!r} was deleted; restore it with `mlflow experiments restore`"
        )
    return found


def names_of_experiments(client: MlflowClient, ids: Iterable[str]) -> dict[str, str]:
    with tracking_errors(_UNREADABLE):
        return {id_: str(client.get_experiment(id_).name) for id_ in sorted(set(ids))}


def runs_in(client: MlflowClient, experiment_id: str) -> list[Run]:
    """Return the runs of an experiment that are marked as holding explanations or an audit, without
    deleted ones.
    """
    found: dict[str, Run] = {}
    with tracking_errors(_UNREADABLE):
        for condition in _FILTERS:
            page, token = None, ""
            while page is None or token:
                page = client.search_runs(
                    [experiment_id], condition, max_results=_PAGE, page_token=token or None
                )
                found |= {run.info.run_id: run for run in page}
                token = page.token
    return list(found.values())


def summaries_of(client: MlflowClient, run_id: str) -> set[tuple[int, int]]:
    """Return, for each summary of a run, its time in milliseconds since 1970 and how many
    explanations it counts.
    """
    with tracking_errors(_UNREADABLE):
        return {
            (metric.timestamp, metric.step) for metric in client.get_metric_history(run_id, ASKED)
        }


def _experiments(client: MlflowClient) -> str:
    """Name a few of the experiments; a store may have thousands."""
    with tracking_errors(_UNREADABLE):
        names = [
            experiment.name for experiment in client.search_experiments(max_results=_NAMED + 1)
        ]
    more = " and others" if len(names) > _NAMED else ""
    return (
        f"it has {', '.join(repr(name) for name in names[:_NAMED])}{more}"
        if names
        else "it has none"
    )


Moment = datetime | date | str
"""A point in time, or a day; text is ISO 8601. Without a time zone it is UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Period:
    """Moments from `since` up to but not including `until`, in milliseconds since 1970; None leaves
    an end open.
    """

    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, since: Moment | None, until: Moment | None) -> Period:
        """Read a period as people say it: ``until`` a day includes that day."""
        first = None if since is None else _milliseconds("since", since)[0]
        last = None if until is None else sum(_milliseconds("until", until))
        if first is not None and last is not None and first >= last:
            raise InputError("the period is empty: since must be before until")
        return cls(first, last)

    def holds(self, moment: int) -> bool:
        """Say whether a moment, in milliseconds since 1970, is in the period."""
        return (self.since is None or self.since <= moment) and (
            self.until is None or moment < self.until
        )

    def __str__(self) -> str:
        """Return it in words, with days as the moments they were read as."""
        words = [] if self.since is None else [f"from {moment_text(self.since)}"]
        words += [] if self.until is None else [f"until before {moment_text(self.until)}"]
        return " ".join(words) or "any time"


def moment_text(moment: int) -> str:
    """Return milliseconds since 1970 as text, in UTC."""
    return (_EPOCH + timedelta(milliseconds=moment)).strftime("%Y-%m-%d %H:%M UTC")


def _milliseconds(name: str, moment: object) -> tuple[int, int]:
    """Return when a moment starts and how long it lasts: a day, or 0."""
    found = _parsed(moment) if isinstance(moment, str) else moment
    if not isinstance(found, date):  # a datetime is also a date
        raise InputError(
            f"{name} must be a day such as 2026-10-31 or a time such as 2026-10-31T12:00+01:00, in"
            " ISO 8601"
        )
    whole_day = not isinstance(found, datetime)
    time = found if isinstance(found, datetime) else datetime(found.year, found.month, found.day)  # noqa: DTZ001
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    # Rounded up: logged times are whole milliseconds, and none before the moment may count.
    return -((_EPOCH - time) // timedelta(milliseconds=1)), _DAY if whole_day else 0


def _parsed(text: str) -> date | None:
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            return parse(text)
        except ValueError:
            continue
    return None


PATIENCE = 60.0
"""Seconds without an answer after which we give up on a store.

MLflow itself tries for a quarter of an hour.
"""
_THREADS = 4  # more do not make a tracking server answer faster
_FAREWELL = 2.0  # seconds that they get to close their files when nobody waits any more
_AHEAD = 16  # answers that may wait to be fetched, so that memory is bounded


class Workers:
    """Daemon threads that query a store, for a ``with`` block: one that hangs does not keep the
    process alive.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name="cfk-report", daemon=True)
            for _ in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let every thread finish its current task and end, and wait a moment for it."""
        self._over.set()
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(_FAREWELL / _THREADS)

    def call(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        return _answer(self._submit(function, *arguments))

    def map(self, function: Callable[[Asked], Answer], items: Iterable[Asked]) -> Iterator[Answer]:
        """Yield a function's result for each item, in order, while the next ones are computed."""
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
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
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
        if future.done():  # the function's own error
            raise
        raise StoreDownError(
            f"the MLflow store did not answer for {PATIENCE:g} seconds; try again when it does"
        ) from None


_VERSIONS = (None, 1)  # of a JSON file; the oldest have none
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifacts:
    """What a run holds in files. Errors name the run and the file, never what is in it."""

    run_id: str
    folder: Path
    _repository: ArtifactRepository = field(repr=False)

    @classmethod
    def of(cls, run: Run, tracking_uri: str, folder: Path) -> Artifacts:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tracking_errors(f"run {run.info.run_id}: its artifacts cannot be opened"):
            repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=tracking_uri)
        return cls(run.info.run_id, folder, repository)

    def where(self, path: str) -> str:
        return f"run {self.run_id}, {path}"

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none if there is no such folder."""
        with tracking_errors(f"{self.where(path)}: it cannot be listed"):
            found = self._repository.list_artifacts(path)
        return sorted(Path(info.path).name for info in found)

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        """Yield a local copy of a file, and delete it afterwards."""
        copy = self.folder / f"{next(_numbers)}{Path(path).suffix}"
        try:
            # Every repository implements this; `download_artifacts` asks twice and draws a progress
            # bar per file.
            self._repository._download_file(path, str(copy))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise TrackingError(
                f"{self.where(path)}: it cannot be fetched ({kind_of(error)}); check that the"
                " artifact store answers, still has it, and lets this machine read it"
            ) from error
        try:
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def document(self, path: str) -> Mapping[str, Any]:
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
                f"{self.where(path)}: schema_version is {said}, expected {_VERSIONS[-1]}; a newer"
                " cfk_plugin wrote it"
            )
        return content


CERTIFICATE = "certificate"
"""Column with the certificate of prototypes as JSON."""
_NEEDED = ("step", "timestamp", "status")
_EXPECTED = ("reason", "k", "ncp", "pureness", "pureness_low", "pureness_high")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shard:
    """One file of explanations, with its recount; times are milliseconds since 1970."""

    name: str
    first: int  # number of its first explanation in the run
    rows: int
    last: int  # when the last one was made
    span: tuple[int, int]  # when the earliest and the latest one were made
    columns: Columns  # of those in the period

    @property
    def end(self) -> int:
        """Number of the explanation after the last one."""
        return self.first + self.rows

    @property
    def inside(self) -> int:
        """How many explanations are in the period."""
        return len(self.columns["step"])


def read_shard(
    name: str, own: Path, recount: Path | None, where: str, period: Period
) -> Shard | None:
    """Read a file of explanations and, where there is one, the file with their recount; None if it
    has no rows.
    """
    public = read(own.read_bytes(), public_kind, where)
    if not public:
        return None
    if lost := [column for column in _NEEDED if column not in public]:
        raise TrackingError(f"{where}: it lacks {', '.join(lost)}")
    steps = public["step"]
    times = public["timestamp"]
    if not np.array_equal(steps, np.arange(steps[0], steps[0] + len(steps))):
        raise TrackingError(f"{where}: it is damaged: step does not count its rows")
    columns = dict(public)
    if recount is not None:
        found = read(recount.read_bytes(), recount_kind, f"{where} (recount)")
        columns |= _of_same_rows(found, steps, where)
    is_inside = np.ones(len(times), dtype=bool)
    if period.since is not None:
        is_inside &= times >= period.since
    if period.until is not None:
        is_inside &= times < period.until
    return Shard(
        name=name,
        first=int(steps[0]),
        rows=len(steps),
        last=int(times[-1]),
        span=(int(times.min()), int(times.max())),
        columns={column: values[is_inside] for column, values in columns.items()},
    )


def frame_of(shards: Sequence[Shard]) -> pd.DataFrame:
    """Return the rows of files as one frame; columns that a file lacks are null, and all expected
    ones exist.
    """
    names = [name for shard in shards for name in shard.columns]
    return pd.DataFrame(
        {name: _pooled(name, shards) for name in in_order([*names, *_EXPECTED])}, copy=False
    )


def _pooled(name: str, shards: Sequence[Shard]) -> Any:
    """Return a column of all files, as pandas has it: text as a category, times in UTC."""
    kind = kind_in_report(name)
    columns = [
        shard.columns[name] if name in shard.columns else nulls(kind, shard.inside)
        for shard in shards
    ]
    values = np.concatenate(columns)
    if kind == "text":
        return pd.Categorical(values)
    if kind == "flags":
        return pd.array(values, dtype="boolean")
    if kind == "times":
        return pd.DatetimeIndex(values.astype("datetime64[ms]")).tz_localize("UTC")
    return values


def _of_same_rows(recount: Columns, steps: NDArray[np.int64], where: str) -> Columns:
    """Return the columns of a recount; its own `step`, if it has one, only confirms that it is of
    these rows.
    """
    columns = dict(recount)
    n_rows = len(next(iter(columns.values()), ()))
    if n_rows != len(steps):
        raise TrackingError(f"{where}: it has {len(steps)} rows, and its recount {n_rows}")
    if not np.array_equal(columns.pop("step", steps), steps):
        raise TrackingError(f"{where}: its recount is of explanations with other numbers")
    return columns


def counted(
    shards: Sequence[Shard], asked: int, where: str, history: Callable[[], set[tuple[int, int]]]
) -> tuple[list[Shard], list[Shard]]:
    """Return the files that the summary counts, in order, and the others: of interrupted or later
    attempts.
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
                f"{where}: the run counts {asked} explanations, and there is no file with number"
                f" {start}; check that no file was deleted, and that this machine sees the disk"
                " where artifacts are kept"
            )
        kept.append(here[0])
        start = here[0].end
    chosen = {id(shard) for shard in kept}
    return kept, [shard for shard in shards if id(shard) not in chosen]
