"""What users of MLflow look for, to be imported as a whole: `autolog` observes,
`log_protected_model` serves.
"""

from cfk_plugin.serving import log_protected_model
from cfk_plugin.serving.autolog import autolog

__all__ = ["autolog", "log_protected_model"]
