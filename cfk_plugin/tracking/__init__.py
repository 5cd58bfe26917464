"""Tracking: what was released and at what risk, logged to MLflow. Fails open and never delays an explanation.

`RunLogger.log` logs now and says when it cannot. `track` and ``protect(..., track=True)`` hand records to a
thread; what cannot be delivered is kept in a local folder. MLflow is imported when something is logged, not
before.
"""

from cfk_plugin.tracking.logger import RunLogger, logger_of, may_observe, observe, observe_when, track
from cfk_plugin.tracking.record import Loggable, Record
from cfk_plugin.tracking.settings import SpoolSettings, spool_folder

__all__ = [
    "Loggable",
    "Record",
    "RunLogger",
    "SpoolSettings",
    "logger_of",
    "may_observe",
    "observe",
    "observe_when",
    "spool_folder",
    "track",
]
