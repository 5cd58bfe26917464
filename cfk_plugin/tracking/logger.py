"""Three ways to log: `RunLogger.log` now, `track` for a block, `observe` for what explainers release."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from cfk_plugin.tracking.background import Job, shipper
from cfk_plugin.tracking.record import Loggable, Record
from cfk_plugin.tracking.run import Run

_log = logging.getLogger(__name__)


class RunLogger:
    """Logs explanations to one MLflow run: the given one, else the active one, else a new one.

    Parameters
    ----------
    run_id : str, optional
        A run that exists.
    experiment : str, optional
        Name of the experiment of a new run, created when there is none; asks for a new run. Default: MLflow's
        own setting.
    tracking_uri : str, optional
        Default: MLflow's own setting, which is ``sqlite:///mlflow.db``.
    run_name : str, optional
        Name of a new run; asks for a new run, nested in the active one if there is one.
    tags : mapping, optional
        Further tags of a new run.
    timeout : float, default 2.0
        Seconds that a tracking server may take to say that it is there.
    spool : path, optional
        Where undelivered records go. Default: `spool_folder`.

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
        timeout: float = 2.0,
        spool: str | Path | None = None,
    ) -> None:
        self.experiment, self.run_name = experiment, run_name
        self.tracking_uri, self.tags = tracking_uri, dict(tags or {})
        self.timeout, self.spool = timeout, Path(spool) if spool is not None else None
        self._given = run_id
        self._runs: dict[str, Run] = {}
        self._own: Run | None = None
        self._latest: Run | None = None

    @property
    def run_id(self) -> str | None:
        """Id of the run that was logged to last; None before a record arrived there."""
        return self._latest.run_id if self._latest is not None else self._given

    def log(self, explanations: Loggable) -> str:
        """Log explanations now: parameters, metrics, tags and the released records.

        Parameters
        ----------
        explanations : Explanations

        Returns
        -------
        str
            Id of the run.

        Raises
        ------
        TrackingError
            If MLflow does not take them, or the run holds explanations made with other settings. The
            explanations are not affected; logging them again is safe.
        """
        run = self._run()
        run_id = run.write([Record(explanations)])
        if run is self._own:
            run.finish()
        return run_id

    def submit(self, explanations: Loggable) -> None:
        """Hand explanations to the tracking thread and return at once. Never raises.

        Records that MLflow does not take are kept in the spool folder and sent again while the process runs.
        """
        try:
            shipper().submit(Job(self._run(), Record(explanations), self.spool))
        except Exception as error:  # noqa: BLE001 - tracking must not stop an explanation
            _log.error("an explanation was not tracked (%s)", type(error).__name__)

    def flush(self, seconds: float = 30.0) -> bool:
        """Wait until everything submitted is in MLflow; return whether it is."""
        return shipper().flush(seconds)

    def finish(self) -> None:
        """Mark a run of this logger's own as finished, once its records are delivered. Does not wait."""
        if self._own is not None:
            shipper().submit(Job(self._own))

    def _run(self) -> Run:
        active = self._given or (None if self.experiment or self.run_name else _active_run(self.tracking_uri))
        if active is not None:
            self._latest = self._runs.setdefault(
                active, Run(active, self.tracking_uri, tags=self.tags, timeout=self.timeout)
            )
        else:
            self._own = self._own or self._new_run()
            self._latest = self._own
        return self._latest

    def _new_run(self) -> Run:
        parent = _active_run(self.tracking_uri) if self.experiment is None else None
        return Run(None, self.tracking_uri, self.experiment, self.run_name, parent, self.tags, self.timeout)


_current: ContextVar[RunLogger | None] = ContextVar("cfk_tracking", default=None)
_default: list[RunLogger] = []


@contextmanager
def track(logger: RunLogger | None = None, **options: object) -> Iterator[RunLogger]:
    """Log every explanation that protected explainers release inside the block, in the background.

    The end of the block does not wait for MLflow: call ``flush()`` on the logger before reading the run.

    Parameters
    ----------
    logger : RunLogger, optional
        Default: a new one.
    **options
        Settings of the new `RunLogger`.

    Yields
    ------
    RunLogger

    Examples
    --------
    >>> with track(experiment="credit") as logger:
    ...     pass  # private.explain(X)
    """
    logger = logger or RunLogger(**options)  # type: ignore[arg-type]
    token = _current.set(logger)
    try:
        yield logger
    finally:
        _current.reset(token)
        logger.finish()


def observe(explanations: Loggable, track: bool | RunLogger = False) -> None:
    """Log explanations in the background if anybody asked for it. Never raises, never waits.

    Parameters
    ----------
    explanations : Explanations
    track : bool or RunLogger
        What the explainer was told: True means the active run, or one run of this process. Inside a block of
        `track` the block's logger is used, whatever this says.
    """
    logger = _current.get() or (track if isinstance(track, RunLogger) else None)
    if logger is None and track:
        if not _default:
            _default.append(RunLogger())
            shipper()  # its own work at exit is registered first, so that it is done last
            atexit.register(_default[0].finish)
        logger = _default[0]
    if logger is not None:
        logger.submit(explanations)


def _active_run(tracking_uri: str | None) -> str | None:
    """Return the active run of this thread, without importing MLflow for the question."""
    mlflow = sys.modules.get("mlflow")
    if mlflow is None or not hasattr(mlflow, "active_run"):
        return None
    if tracking_uri is not None and tracking_uri != mlflow.get_tracking_uri():
        return None
    run = mlflow.active_run()
    return str(run.info.run_id) if run is not None else None
