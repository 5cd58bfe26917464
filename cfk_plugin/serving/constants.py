"""Errors whose text is constant, whatever a server does with them; and a log that shows no traces."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any

from mlflow.exceptions import MlflowException

from cfk_plugin.errors import CFKError

UNREADABLE = "the request cannot be read as queries; send JSON with dataframe_split or dataframe_records"
TYPE = "the content type must be application/json"


class ConstantError(MlflowException, CFKError):
    """An error whose text stays as it is: MLflow's server would put the request into it."""

    @property
    def message(self) -> str:
        """The constant text."""
        return self._constant

    @message.setter
    def message(self, text: str) -> None:
        self._constant = getattr(self, "_constant", text)


def show_no_traces() -> None:
    """Have a process that serves log the class of a failure where a trace would be: traces and texts may quote rows.

    The boundary of a request lets nothing through. This is for what never comes to it: the web server's own log, and
    threads and finalizers of explainers and models. ``CFK_DEBUG=1`` leaves traces as they are.
    """
    if os.environ.get("CFK_DEBUG") or hasattr(threading.excepthook, "_cfk"):
        return
    make = logging.getLogRecordFactory()

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = make(*args, **kwargs)
        if made.exc_info:
            kind = made.exc_info[0]
            made.msg, made.args = "a failure was logged: %s", (_name(kind),)
        made.exc_info = made.exc_text = made.stack_info = None
        return made

    def thread(failed: threading.ExceptHookArgs) -> None:
        logging.getLogger("cfk_plugin").warning("a thread of an explainer or a model raised %s", _name(failed.exc_type))

    def finalizer(failed: sys.UnraisableHookArgs) -> None:
        logging.getLogger("cfk_plugin").warning("a finalizer raised %s", _name(failed.exc_type))

    thread._cfk = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(record)
    threading.excepthook, sys.unraisablehook = thread, finalizer


def _name(kind: type[BaseException] | None) -> str:
    name = "an error" if kind is None else kind.__name__
    return name if name.isidentifier() else "an error"
