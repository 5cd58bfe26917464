"""Two ways to log: `RunLogger.log` at once, and `observe` for what explainers release."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cfk_plugin.errors import CFKError, InputError, TrackingError, quiet
from cfk_plugin.records.record import Loggable, RunRecord
from cfk_plugin.records.run import RunTarget, RunWriter, chosen_experiment, current_uri
from cfk_plugin.records.shipper import Shipper, shipper

_log = logging.getLogger(__name__)
_BYTES = 4_096  # that an explanation's record may need


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
    spool : path, optional
        Folder for records that wait to be logged in the background; see
        `docs/how-to/log-to-mlflow.md`.

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
        spool: str | Path | None = None,
    ) -> None:
        self.experiment, self.run_name = experiment, run_name
        self.tracking_uri, self.tags, self.model = tracking_uri, dict(tags or {}), model
        self.timeout, self.spool = timeout, Path(spool) if spool is not None else None
        self._given = run_id
        self._name = secrets.token_hex(8)
        self._runs: dict[str, RunWriter] = {}  # by stream
        self._latest: RunWriter | None = None
        self._untracked = 0

    @property
    def run_id(self) -> str | None:
        """Id of the run that was logged to last; None until a record arrived there."""
        return self._latest.run_id if self._latest is not None else self._given

    def check(self, count: int = 0) -> None:
        """Raise a `CFKError` if `count` records cannot be kept: a setting is wrong, or the spool is
        full or broken.
        """
        self._shipper.spool.check(count * _BYTES)

    def may_keep(self, count: int) -> bool:
        """Say whether records of `count` explanations could be kept now, so that these may leave;
        see `submit`.
        """
        try:
            self.check(count)
        except CFKError as error:
            _log.error("explanations would not be recorded: %s", error)
            return self._releases_unrecorded(0)
        return True

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
        run_id = run.write([self._without_repeats(record, run)])
        run.introduced = True
        run.finish()
        return run_id

    def submit(self, explanations: Loggable) -> bool:
        """Keep a record on local disk, from where a thread sends it to MLflow; waits for no server.

        Never raises.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        bool
            Whether they may be given out: with a record, or under ``CFK_SPOOL_FULL=release``
            (counted in the next one).
        """
        count = 0
        try:
            with quiet("making its record raised {}", TrackingError, let=CFKError):
                record = replace(explanations.to_record(), untracked=self._untracked)
                count = len(record.released)
                run = self._place(record)
                self._shipper.submit(run, self._without_repeats(record, run))
            run.introduced = True
            self._untracked = 0
        except CFKError as error:
            _log.error("an explanation was not recorded: %s", error)
            return self._releases_unrecorded(count)
        return True

    def flush(self, seconds: float = 30.0) -> bool:
        """Wait until everything submitted is in MLflow; return whether it is."""
        return self._shipper.flush(seconds)

    def finish(self) -> None:
        """Mark runs of this logger's own as finished, once their records are delivered.

        Does not wait.
        """
        try:
            if self._runs:
                self._shipper.finish(list(self._runs))
        except CFKError as error:
            _log.warning("%s", error)

    @property
    def _shipper(self) -> Shipper:
        return shipper(self.spool)

    def _releases_unrecorded(self, count: int) -> bool:
        try:
            releases = self._shipper.spool.settings.on_full == "release"
        except CFKError:
            return False
        self._untracked += count if releases else 0
        return releases

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
        stream = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        # A new run is found again by its mark if the process ends right after creating it.
        self._latest = self._runs.setdefault(stream, RunWriter(target, stream))
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

_loggers: dict[str | None, RunLogger] = {}  # of this process; None logs where MLflow is set to


def observe(explanations: Loggable, track: Track = False) -> bool:
    """Log explanations in the background if asked to; say whether they may leave. Never raises."""
    logger = logger_of(track)
    return logger is None or logger.submit(explanations)


def logger_of(track: Track) -> RunLogger | None:
    """Return the logger that `track` asks for; None for False.

    True is one logger for the process, a text one for each experiment. It has to be the same one in
    every call: it counts what was given out without a record, for the next record to say.
    """
    if track is False:
        return None
    if isinstance(track, RunLogger):
        return track
    if track is not True and not (isinstance(track, str) and track):
        raise InputError(
            "track must be True, False or the name of an MLflow experiment; got"
            f" {'an empty text' if track == '' else type(track).__name__}"
        )
    experiment = None if track is True else track
    if experiment not in _loggers:
        _loggers[experiment] = RunLogger(experiment=experiment)
    return _loggers[experiment]


def _active_run(tracking_uri: str | None) -> str | None:
    """Return the active run of this thread, without importing MLflow to find out."""
    mlflow = sys.modules.get("mlflow")
    if mlflow is None or not hasattr(mlflow, "active_run"):
        return None
    if tracking_uri is not None and tracking_uri != mlflow.get_tracking_uri():
        return None
    run = mlflow.active_run()
    return str(run.info.run_id) if run is not None else None
