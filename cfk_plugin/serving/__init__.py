"""Protected explanations behind MLflow's model server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfk_plugin.serving.model import load_protected as load_protected
    from cfk_plugin.serving.model import log_protected_model as log_protected_model
    from cfk_plugin.serving.model import save_protected_model as save_protected_model

__all__ = ["load_protected", "log_protected_model", "save_protected_model"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that Spark workers need no MLflow."""
    if name not in __all__:
        raise AttributeError(f"module 'cfk_plugin.serving' has no attribute {name!r}")
    from cfk_plugin.serving import model

    return getattr(model, name)
