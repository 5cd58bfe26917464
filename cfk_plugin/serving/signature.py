"""Signature and input example of a protected model: types without enforcement, and queries that nobody is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property

from cfk_plugin.errors import InputError
from cfk_plugin.intake import require_features
from cfk_plugin.matching import RowMatcher

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.population import Population


def signature_of(population: Population, k: int) -> ModelSignature:
    """Return what goes in and out.

    Features are of any type and may be absent: MLflow's own check would put the request into its message, and lets
    30.5 pass for a whole number. `Desk` checks instead.
    """
    anything = AnyType()  # type: ignore[no-untyped-call]
    inputs = Schema([ColSpec(anything, name, required=False) for name in population.schema.features])
    text, number, whole = DataType.string, DataType.double, DataType.long
    feature = Object(
        [
            Property("name", text),
            Property("kind", text),
            Property("low", number, required=False),
            Property("high", number, required=False),
            Property("values", Array(text)),
            Property("missing", DataType.boolean),
        ]
    )
    outputs = Schema(
        [
            ColSpec(whole, "query"),
            ColSpec(text, "status"),
            ColSpec(text, "reason", required=False),
            ColSpec(text, "sentence"),
            ColSpec(whole, "k", required=False),
            ColSpec(number, "ncp", required=False),
            ColSpec(number, "pureness", required=False),
            ColSpec(Array(feature), "features"),
        ]
    )
    return ModelSignature(inputs, outputs, ParamSchema([ParamSpec("k", DataType.long, k)]))


def refuse_training_rows(example: pd.DataFrame, population: Population) -> None:
    """Refuse an input example that is somebody: it is stored with the model, where everybody sees it.

    Raises
    ------
    InputError
        If it lacks features, or a row of it has the quasi-identifiers of a training row.
    """
    found = RowMatcher(population).native(require_features(example, population, "the input example"))
    if any(flags.any() for flags in found):
        raise InputError("the input example has the quasi-identifiers of a training row; make one up")
