"""What happens if something fails on the way to explanations: all are withheld, with a reason."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.errors import CFKError, ModelError, PluginError, quiet
from cfk_plugin.release.results import Explanation, Withheld

_log = logging.getLogger("cfk_plugin")


def failing_closed() -> AbstractContextManager[None]:
    """Turn any failure on the way to explanations into an error that quotes no value.

    The caller withholds all explanations of a call because of it.
    """
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def withheld(query: NDArray[np.int64], error: CFKError) -> list[Explanation]:
    """Withhold all explanations of a call because of an error."""
    is_of_model = isinstance(error, ModelError)  # a plugin may have raised it, with any text
    text = "ModelError in the pipeline" if is_of_model else error
    _log.warning("explanations withheld: %s", text)
    reason = "model_failed" if is_of_model else "protector_failed"
    return [Withheld(number, reason) for number in query.tolist()]
