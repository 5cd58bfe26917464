"""If anything fails while explanations are made, all of them are withheld with a reason."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from cfk_plugin.errors import CFKError, ModelError, PluginError, quiet

_log = logging.getLogger("cfk_plugin")


def failing_closed() -> AbstractContextManager[None]:
    """Replace every exception of the body with a `CFKError` that quotes no value.

    The caller catches it and withholds all explanations.
    """
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def reason_of(error: CFKError) -> str:
    """Return the reason for withholding explanations after an error."""
    return "model_failed" if isinstance(error, ModelError) else "protector_failed"


def log_failure(error: CFKError) -> None:
    """Log an error of `failing_closed`."""
    # a plugin may have raised the ModelError, with any text
    text = "ModelError in the pipeline" if isinstance(error, ModelError) else error
    _log.warning("explanations withheld: %s", text)
