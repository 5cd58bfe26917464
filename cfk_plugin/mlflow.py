"""What users of MLflow look for, to be imported as a whole: `log_protected_model` serves."""

from cfk_plugin.serving import log_protected_model

__all__ = ["log_protected_model"]
