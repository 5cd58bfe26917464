"""What happens if something fails on the way to explanations: all are withheld, with a reason."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from cfk_plugin.errors import CFKError, ModelError, PluginError, quiet

_log = logging.getLogger("cfk_plugin")


def failing_closed() -> AbstractContextManager[None]:
    """Turn any failure on the way to explanations into an error that quotes no value.

    The caller withholds all explanations of a call because of it.
    """
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def reason_of(error: CFKError) -> str:
    """Return the reason for which an error withholds explanations, and log the error."""
    is_of_model = isinstance(error, ModelError)  # a plugin may have raised it, with any text
    text = "ModelError in the pipeline" if is_of_model else error
    _log.warning("explanations withheld: %s", text)
    return "model_failed" if is_of_model else "protector_failed"
