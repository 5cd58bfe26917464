"""Two ways to log: `RunLogger.log`, and `observe` for the explanations that explainers release."""

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
_leaves: ContextVar[bool] = ContextVar("leaves", default=True)


@contextmanager
def evaluating() -> Iterator[None]:
    """Within it, explanations do not leave, and no explainer records them."""
    token = _leaves.set(False)
    try:
        yield
    finally:
        _leaves.reset(token)


class RunLogger:
    """Logs explanations to one MLflow run: the given one, else the active one, else a new one.

    Parameters
    ----------
    run_id : str, optional
        A run that exists.
    experiment : str, optional
        Experiment of a new run, created if need be; asks for a new run. Default: MLflow's own
        setting.
    tracking_uri : str, optional
        Default: MLflow's own setting, which is ``sqlite:///mlflow.db``.
    run_name : str, optional
        Name of a new run; asks for one, nested in the active run if there is one.
    tags : mapping, optional
        Further tags.
    model : str, optional
        URI of the logged model that is explained, for example ``models:/credit/3``: metrics are
        linked to it. Default: MLflow's active model, if there is one.
    timeout : float, default 2.0
        Seconds that a tracking server may take to answer.
    strict : bool
        Whether explanations of an explainer are withheld if their record can neither be logged nor
        be written to the journal. Otherwise, the next record counts them as ``cfk.untracked``.
    journal : path
        File for the records of an explainer that MLflow did not take; ``cfk track`` sends them.
    in_server : bool
        Whether the records of an explainer go to a journal of this process, from which a thread
        sends them, so that no answer waits for MLflow. The name of the file is that of `journal`
        and a random text.

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
        """Id of the run that was logged to last; None until a record arrived there."""
        return self._chosen_run if self._latest is None else self._latest.writer.run_id

    def log(self, explanations: Loggable) -> str:
        """Log explanations now: parameters, metrics, tags and their table; return the run's id.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        str
            The run that they are in. It is a child of the given or active run if that has
            explanations of another process or with other settings.

        Raises
        ------
        TrackingError
            If MLflow does not take them.
        """
        record = explanations.to_record()
        job = self._job(record)
        with job.lock:
            tally = job.tally.plus(record)
            run_id = job.write(self._placed(record, job, tally))
            job.tally = tally
        return run_id

    def submit(self, explanations: Loggable) -> bool:
        """Keep a record of explanations before they leave: in MLflow or, if it does not take the
        record or in a server, in the journal. Never raises.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        bool
            Whether they may be released: True, unless `strict` is set and there is no record.
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
                    self._keep(record, job)
            except CFKError as error:
                if not self.strict:
                    job.tally = job.tally.without_record(len(record.released))
                self._announce_loss(error)
                return not self.strict
        return True

    def _keep(self, record: RunRecord, job: _Job) -> None:
        """Log a record or write it to the journal; raise a `CFKError` if neither succeeds."""
        tally = job.tally.plus(record)
        record = self._placed(record, job, tally)
        if self.in_server:
            self._sender().append(job.writer.target, record)
            job.is_introduced = True
        else:
            try:
                with quiet("MLflow did not take the records ({})", TrackingError, let=CFKError):
                    job.write(record)
            except CFKError as error:
                append(self.journal, job.writer.target, record)
                text = f"{error}; `cfk track {self.journal}` sends the records in this file later"
                self._announce("journal", text)
        job.tally = tally

    def _sender(self) -> Sender:
        """Return the journal of this process: no other process writes to it."""
        process = os.getpid()
        if process not in self._senders:
            own = f"{self.journal.stem}-{secrets.token_hex(4)}"
            self._senders.setdefault(process, Sender(self.journal.with_stem(own)))
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
        except UntrackedWarning:  # warnings are errors, and a record that is kept is not lost
            _log.warning("%s", text)

    def _placed(self, record: RunRecord, job: _Job, tally: Tally) -> RunRecord:
        """Return the record with its place in the run; only the first describes the population."""
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
        """Return the job of a record: this process, the place to log to, and the settings."""
        run_id = self._chosen_run
        parent = None
        if run_id is None and not self.experiment:
            active = _active_run(self.tracking_uri)
            run_id, parent = (None, active) if self.run_name else (active, None)
        uri = absolute_uri(self.tracking_uri)
        experiment = self.experiment or chosen_experiment()
        settings = json.dumps([record.params, record.policy, record.columns], sort_keys=True)
        # A new run belongs to its logger. All loggers of a process share a run that exists.
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
"""A process, settings, the address of a store, and a run or the experiment of a new run."""


@dataclass(slots=True, eq=False)
class _Job:
    """The records of one process with one setting, which are numbered and have one run."""

    writer: RunWriter
    place: Place
    tally: Tally = field(default_factory=Tally)
    is_introduced: bool = False  # population and environment are in the run or on the way
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, record: RunRecord) -> str:
        """Log a record, and return the run's id; other loggers then find the job by it."""
        run_id = self.writer.write([record])
        self.is_introduced = True
        _jobs_of_runs.setdefault((*self.place[:3], run_id), self)
        return run_id


_jobs_of_runs: dict[Place, _Job] = {}


Track = bool | str | RunLogger
"""Whether to log; a text is the name of the experiment to log to."""

_loggers: dict[tuple[str | None, bool, Path], RunLogger] = {}  # of this process


def observe(explanations: Loggable, track: Track = False) -> bool:
    """Log explanations if `track` says so; return whether they may leave."""
    logger = logger_of(track)
    return logger is None or not _leaves.get() or logger.submit(explanations)


def logger_of(
    track: Track, *, strict: bool = False, journal: str | Path = JOURNAL
) -> RunLogger | None:
    """Return the logger that `track` names; None for False.

    True is one logger for the process, a text one for each experiment. It has to be the same one in
    every call: it counts what was given out without a record, for the next record to say.
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
    """Return the active run of this thread, if it is in the store."""
    import mlflow

    if tracking_uri is not None and tracking_uri != mlflow.get_tracking_uri():
        return None
    run = mlflow.active_run()
    return str(run.info.run_id) if run is not None else None


def _active_model() -> str | None:
    """Return the URI of MLflow's active model, if there is one."""
    import mlflow

    model_id = mlflow.get_active_model_id()
    return None if model_id is None else f"models:/{model_id}"


def _tags_of_run(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a new run: those given, and user and source as of any run of MLflow."""
    from mlflow.tracking.context.registry import resolve_tags

    return {name: str(value) for name, value in resolve_tags(tags).items()}
