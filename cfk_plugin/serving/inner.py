"""What is behind a server: explainers and models as they were logged, loaded for their predictions alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from mlflow.pyfunc import load_model

from cfk_plugin.errors import ModelError, quiet

if TYPE_CHECKING:
    from collections.abc import Callable

PICKLE = ".pkl"
"""Ending of the file of an object that was given as such."""


def load_inner(location: str) -> Any:
    """Load an explainer or a model: a pickled object, or a model of MLflow as a function of a table.

    Parameters
    ----------
    location : str
        File, folder or URI. Loading runs code in it.

    Raises
    ------
    ModelError
        If it cannot be loaded. The message has the class of what was raised: its text may quote what was pickled.
    """
    with quiet("an explainer or a model cannot be loaded ({}); install what it needs", ModelError):
        if location.endswith(PICKLE):
            return cloudpickle.loads(Path(location).read_bytes())
        predict: Callable[..., Any] = load_model(location).predict

    def ask(rows: Any) -> Any:
        return predict(rows)

    return ask
