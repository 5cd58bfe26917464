"""What users of MLflow look for: `autolog` observes, `log_protected_model` serves. Import it as a whole.

``import cfk_plugin.mlflow`` leaves the name ``mlflow`` to MLflow.
"""

from cfk_plugin.serving import log_protected_model
from cfk_plugin.serving.autolog import autolog

__all__ = ["autolog", "log_protected_model"]
