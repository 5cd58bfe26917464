"""Serving: an explainer behind MLflow's model server whose answers are protected before anything
leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfk_plugin.serving.log import log_protected_model as log_protected_model

__all__ = ["log_protected_model"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that Spark workers need no MLflow."""
    if name != "log_protected_model":
        raise AttributeError(f"module 'cfk_plugin.serving' has no attribute {name!r}")
    from cfk_plugin.serving.log import log_protected_model

    return log_protected_model
