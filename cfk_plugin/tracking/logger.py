"""Log explanations: `RunLogger.log` on request, and `observe` before explanations are released."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from cfk_plugin.errors import (
    CFKError,
    InputError,
    TrackingError,
    UntrackedWarning,
    quiet,
    require,
    warn,
)
from cfk_plugin.tracking.journal import JOURNAL, Sender, append
from cfk_plugin.tracking.record import Loggable, RunRecord
from cfk_plugin.tracking.run import RunTarget, RunWriter, absolute_uri, chosen_experiment
from cfk_plugin.tracking.tally import Tally

_log = logging.getLogger("cfk_plugin")
_are_released: ContextVar[bool] = ContextVar("are_released", default=True)


@contextmanager
def evaluating() -> Iterator[None]:
    """Do not log explanations in the body, because it does not release them."""
    token = _are_released.set(False)
    try:
        yield
    finally:
        _are_released.reset(token)


class RunLogger:
    """Logs explanations to one MLflow run.

    It is the run with `run_id`, or the active run, or a new run. With `experiment` or `run_name`,
    it is a new run.

    Parameters
    ----------
    run_id : str, optional
        An existing run.
    experiment : str, optional
        The experiment of a new run, which is created if necessary.
    tracking_uri : str, optional
        The MLflow store; by default MLflow's own setting, which is ``sqlite:///mlflow.db``.
    run_name : str, optional
        The name of a new run, which is nested in the active run if there is one.
    tags : mapping, optional
        Further tags of the run.
    model : str, optional
        URI of the explained model in MLflow, for example ``models:/credit/3``. Metrics are linked
        to it. By default MLflow's active model, if there is one.
    timeout : float, default 2.0
        Seconds to wait for a tracking server.
    strict : bool
        Whether to withhold an explainer's explanations if their record can be written neither to
        MLflow nor to the journal. Otherwise, the next record counts them as ``cfk.untracked``.
    journal : path
        File for an explainer's records that MLflow does not accept; ``cfk track`` sends them later.
    in_server : bool
        Whether an explainer's records go to a journal of this process, from which a thread sends
        them, so that no answer waits for MLflow. The file has the name of `journal` with a random
        suffix.

    Examples
    --------
    >>> logger = RunLogger(experiment="credit", run_name="release 7")
    >>> logger.run_id is None  # until something is logged
    True
    """

    def __init__(
        self,
        run_id: str | None = None,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        *,
        model: str | None = None,
        timeout: float = 2.0,
        strict: bool = False,
        journal: str | Path = JOURNAL,
        in_server: bool = False,
    ) -> None:
        self.experiment = experiment
        self.run_name = run_name
        self.tracking_uri = tracking_uri
        self.tags = dict(tags or {})
        self.model = model
        self.timeout = timeout
        self.strict = require("strict", strict, bool, "write True or False")
        self.journal = Path(journal).absolute()
        self.in_server = in_server
        self._chosen_run = run_id
        self._jobs: dict[Place, _Job] = {}
        self._latest: _Job | None = None
        self._senders: dict[int, Sender] = {}  # by process, as a server may fork
        self._announced: set[str] = set()

    @property
    def run_id(self) -> str | None:
        """The id of the run with the latest record; None before a record has reached MLflow."""
        return self._chosen_run if self._latest is None else self._latest.writer.run_id

    def log(self, explanations: Loggable) -> str:
        """Log the parameters, metrics, tags and the table of explanations.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        str
            The id of the run that contains them. If the chosen or active run has explanations of
            another process or with other settings, it is a child of that run.

        Raises
        ------
        TrackingError
            If MLflow does not accept them.
        """
        record = explanations.to_record()
        job = self._job(record)
        with job.lock:
            tally = job.tally.plus(record)
            run_id = job.write(self._placed(record, job, tally))
            job.tally = tally
        return run_id

    def submit(self, explanations: Loggable) -> bool:
        """Record explanations before their release, in MLflow or in the journal. Never raises.

        The record goes to the journal in a server, or if MLflow does not accept it.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        bool
            Whether the explanations may be released: False only if `strict` and there is no record.
        """
        try:
            with quiet("making its record raised {}", TrackingError, let=CFKError):
                record = explanations.to_record()
                job = self._job(record)
        except CFKError as error:
            self._announce_loss(error)
            return not self.strict
        with job.lock:
            try:
                with quiet("making its record raised {}", TrackingError, let=CFKError):
                    self._store(record, job)
            except CFKError as error:
                if not self.strict:
                    job.tally = job.tally.without_record(len(record.released))
                self._announce_loss(error)
                return not self.strict
        return True

    def _store(self, record: RunRecord, job: _Job) -> None:
        """Log a record or write it to the journal; raise a `CFKError` if both fail."""
        tally = job.tally.plus(record)
        record = self._placed(record, job, tally)
        if self.in_server:
            self._sender().append(job.writer.target, record)
            job.is_introduced = True
        else:
            try:
                with quiet("MLflow did not accept the records ({})", TrackingError, let=CFKError):
                    job.write(record)
            except CFKError as error:
                append(self.journal, job.writer.target, record)
                text = f"{error}; `cfk track {self.journal}` sends the records in this file later"
                self._announce("journal", text)
        job.tally = tally

    def _sender(self) -> Sender:
        """Return the sender with the journal of this process."""
        process = os.getpid()
        if process not in self._senders:
            stem = f"{self.journal.stem}-{secrets.token_hex(4)}"
            self._senders.setdefault(process, Sender(self.journal.with_stem(stem)))
        return self._senders[process]

    def _announce_loss(self, error: CFKError) -> None:
        consequence = "with strict=True, they would be withheld"
        if self.strict:
            consequence = "they are withheld"
        self._announce("loss", f"there is no record of explanations: {error}; {consequence}")

    def _announce(self, event: str, text: str) -> None:
        """Warn at the first event of its kind."""
        if event in self._announced:
            return
        self._announced.add(event)
        try:
            warn(text, UntrackedWarning)
        except UntrackedWarning:  # if warnings are errors, the caller must still get the result
            _log.warning("%s", text)

    def _placed(self, record: RunRecord, job: _Job, tally: Tally) -> RunRecord:
        """Return the record with its position in the run, and the figures of the run up to it.

        Only the first record of a run describes the population.
        """
        environment = record.environment
        if environment is not None:
            environment = {**environment, "model": self.model or environment.get("model")}
        return replace(
            record,
            population=None if job.is_introduced else record.population,
            environment=None if job.is_introduced else environment,
            tags={**self.tags, **record.tags},
            number=job.tally.n_records,
            first_step=job.tally.counts.get("asked", 0),
            figures=tally.figures,
            verdict=tally.verdict,
        )

    def _job(self, record: RunRecord) -> _Job:
        """Return the job for this process, the place to log to, and the settings of a record."""
        run_id = self._chosen_run
        parent = None
        if run_id is None and not self.experiment:
            active = _active_run(self.tracking_uri)
            run_id, parent = (None, active) if self.run_name else (active, None)
        uri = absolute_uri(self.tracking_uri)
        experiment = self.experiment or chosen_experiment()
        settings = json.dumps([record.params, record.policy, record.columns], sort_keys=True)
        # A new run belongs to its logger. All loggers of a process share an existing run.
        jobs = self._jobs if run_id is None else _jobs_of_runs
        place = (os.getpid(), settings, uri, run_id or f"{experiment} {parent}")
        job = jobs.get(place)
        if job is None:
            target = RunTarget(
                job=secrets.token_hex(8),
                run_id=run_id,
                tracking_uri=uri,
                timeout=self.timeout,
                model=self.model or _active_model(),
                links_figures=not self.in_server,
                experiment=experiment,
                run_name=self.run_name,
                parent=parent,
                tags=_tags_of_run(self.tags),
            )
            job = jobs.setdefault(place, _Job(RunWriter(target), place))
        self._latest = job
        return job


Place = tuple[int, str, str, str]
"""The process, the settings, the address of the store, and the run or a new run's experiment."""


@dataclass(slots=True, eq=False)
class _Job:
    """The records of one process with one setting: they are numbered and go to one run."""

    writer: RunWriter
    place: Place
    tally: Tally = field(default_factory=Tally)
    is_introduced: bool = False  # whether a record has brought population and environment
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, record: RunRecord) -> str:
        """Log a record, and return the run's id, by which other loggers find the job."""
        run_id = self.writer.write([record])
        self.is_introduced = True
        _jobs_of_runs.setdefault((*self.place[:3], run_id), self)
        return run_id


_jobs_of_runs: dict[Place, _Job] = {}


Track = bool | str | RunLogger
"""Whether to log, or the name of the experiment to log to, or a logger."""

_loggers: dict[tuple[str | None, bool, Path], RunLogger] = {}  # of this process


def observe(explanations: Loggable, track: Track = False) -> bool:
    """Log explanations unless `track` is False; return whether they may be released."""
    logger = logger_of(track)
    return logger is None or not _are_released.get() or logger.submit(explanations)


def logger_of(
    track: Track, *, strict: bool = False, journal: str | Path = JOURNAL
) -> RunLogger | None:
    """Return the logger that `track` names, or None for False.

    The process has one logger for True, and one for each experiment. Every call must get the same
    logger, because it counts the explanations without a record for the next record.
    """
    if track is False:
        return None
    if isinstance(track, RunLogger):
        if strict and not track.strict:
            raise InputError("a RunLogger has its own setting; write RunLogger(..., strict=True)")
        return track
    if track is not True and not (isinstance(track, str) and track):
        raise InputError(
            "track must be True, False or the name of an MLflow experiment; got"
            f" {'an empty text' if track == '' else type(track).__name__}"
        )
    experiment = None if track is True else track
    logger = RunLogger(experiment=experiment, strict=strict, journal=journal)
    return _loggers.setdefault((experiment, strict, logger.journal), logger)


def _active_run(tracking_uri: str | None) -> str | None:
    """Return the id of this thread's active run, or None if it is in another store."""
    import mlflow

    if tracking_uri is not None and tracking_uri != mlflow.get_tracking_uri():
        return None
    run = mlflow.active_run()
    return str(run.info.run_id) if run is not None else None


def _active_model() -> str | None:
    """Return the URI of MLflow's active model, or None."""
    import mlflow

    model_id = mlflow.get_active_model_id()
    return None if model_id is None else f"models:/{model_id}"


def _tags_of_run(tags: Mapping[str, str]) -> dict[str, str]:
    """Return these tags with MLflow's own tags of a run, such as its user and source."""
    from mlflow.tracking.context.registry import resolve_tags

    return {name: str(value) for name, value in resolve_tags(tags).items()}
