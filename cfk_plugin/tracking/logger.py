"""Two ways to log: `RunLogger.log`, and `observe` for the explanations that explainers release."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
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
from cfk_plugin.tracking.journal import JOURNAL, append
from cfk_plugin.tracking.record import Loggable, RunRecord
from cfk_plugin.tracking.run import RunTarget, RunWriter, chosen_experiment, current_uri


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
        The model that is explained, for the run's ``environment.json``, for example
        ``models:/credit/3``. Default: the name of its class.
    timeout : float, default 2.0
        Seconds that a tracking server may take to answer.
    strict : bool
        Whether explanations of an explainer are withheld if their record can neither be logged nor
        be written to the journal. Otherwise, the next record counts them as ``cfk.untracked``.
    journal : path
        File for the records of an explainer that MLflow did not take; ``cfk track`` sends them.

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
    ) -> None:
        self.experiment, self.run_name = experiment, run_name
        self.tracking_uri, self.tags, self.model = tracking_uri, dict(tags or {}), model
        self.timeout = timeout
        self.strict = require("strict", strict, bool, "write True or False")
        self.journal = Path(journal).absolute()
        self._given = run_id
        self._name = secrets.token_hex(8)
        self._runs: dict[str, RunWriter] = {}  # by job
        self._latest: RunWriter | None = None
        self._untracked = 0
        self._is_journal_announced = False
        self._is_loss_announced = False

    @property
    def run_id(self) -> str | None:
        """Id of the run that was logged to last; None until a record arrived there."""
        return self._latest.run_id if self._latest is not None else self._given

    def log(self, explanations: Loggable) -> str:
        """Log explanations now: parameters, metrics, tags and the released records; return the
        run's id.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        str

        Raises
        ------
        TrackingError
            If MLflow does not take them, or the run holds explanations made with other settings.
        """
        record = explanations.to_record()
        run = self._place(record)
        run_id = run.write(self._without_repeats(record, run))
        run.introduced = True
        return run_id

    def submit(self, explanations: Loggable) -> bool:
        """Log explanations before they leave; if MLflow does not take them, write them to the
        journal. Never raises.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        bool
            Whether they may be released: True, unless `strict` is set and there is no record.
        """
        untracked = self._untracked
        self._untracked = 0
        n_released = 0
        try:
            with quiet("making its record raised {}", TrackingError, let=CFKError):
                record = replace(explanations.to_record(), untracked=untracked)
                n_released = len(record.released)
                run = self._place(record)
                record = self._without_repeats(record, run)
            self._keep(run, record)
            run.introduced = True
        except CFKError as error:
            self._untracked += untracked
            if not self.strict:
                self._untracked += n_released
            self._announce_loss(error)
            return not self.strict
        return True

    def _keep(self, run: RunWriter, record: RunRecord) -> None:
        """Log a record or, if that fails, write it to the journal."""
        try:
            with quiet("MLflow did not take the records ({})", TrackingError, let=CFKError):
                run.deliver(record)
        except CFKError as error:
            append(self.journal, run.target, record)
            if not self._is_journal_announced:
                self._is_journal_announced = True
                text = f"{error}; `cfk track {self.journal}` sends the records in this file later"
                warn(text, UntrackedWarning)

    def _announce_loss(self, error: CFKError) -> None:
        if self._is_loss_announced:
            return
        self._is_loss_announced = True
        consequence = "with strict=True, they would be withheld"
        if self.strict:
            consequence = "they are withheld"
        warn(f"there is no record of explanations: {error}; {consequence}", UntrackedWarning)

    def _place(self, record: RunRecord) -> RunWriter:
        active = self._given or (
            None if self.experiment or self.run_name else _active_run(self.tracking_uri)
        )
        target = RunTarget(
            run_id=active,
            tracking_uri=self.tracking_uri or current_uri(),
            experiment=self.experiment or chosen_experiment(),
            run_name=self.run_name,
            parent=None if active or self.experiment else _active_run(self.tracking_uri),
            tags=self.tags,
            timeout=self.timeout,
        )
        about = [self._name, os.getpid(), target, record.params, record.policy, record.columns]
        job = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        # A new run is found again by its job if a record that was to begin it is sent later.
        self._latest = self._runs.setdefault(job, RunWriter(target._replace(job=job)))
        return self._latest

    def _without_repeats(self, record: RunRecord, run: RunWriter) -> RunRecord:
        """Return a record that describes population and environment only if the run does not have
        them yet.
        """
        if run.introduced:
            return replace(record, population=None, environment=None)
        known = record.environment
        return (
            record
            if known is None
            else replace(record, environment={**known, "model": self.model or known.get("model")})
        )


Track = bool | str | RunLogger
"""Whether to log; a text is the name of the experiment to log to."""

_loggers: dict[tuple[str | None, bool, Path], RunLogger] = {}  # of this process


def observe(explanations: Loggable, track: Track = False) -> bool:
    """Log explanations if `track` says so; return whether they may leave. Never raises."""
    logger = logger_of(track)
    return logger is None or logger.submit(explanations)


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
    """Return the active run of this thread, without importing MLflow to find out."""
    mlflow = sys.modules.get("mlflow")
    if mlflow is None or not hasattr(mlflow, "active_run"):
        return None
    if tracking_uri is not None and tracking_uri != mlflow.get_tracking_uri():
        return None
    run = mlflow.active_run()
    return str(run.info.run_id) if run is not None else None
