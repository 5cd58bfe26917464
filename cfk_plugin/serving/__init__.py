"""Serving: an explainer behind MLflow's model server whose answers are protected before anything leaves."""

from cfk_plugin.serving.log import log_protected_model

__all__ = ["log_protected_model"]
