"""The code that MLflow runs to load a protected model, which therefore needs no pickle."""

from mlflow.models import set_model

from cfk_plugin.serving.model import ProtectedModel

set_model(ProtectedModel())
