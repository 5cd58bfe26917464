"""Tracking: what was released and at what risk, logged to MLflow. Fails open and never delays an explanation.

`RunLogger.log` logs now and says when it cannot. `track` and ``protect(..., track=True)`` hand records to a
thread; what cannot be delivered is kept in a local folder. MLflow is imported when something is logged, not
before.
"""

from cfk_plugin.tracking.logger import RunLogger, observe, track
from cfk_plugin.tracking.record import Loggable, Record
from cfk_plugin.tracking.spool import spool_folder

__all__ = ["Loggable", "Record", "RunLogger", "observe", "spool_folder", "track"]
