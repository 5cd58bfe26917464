"""Signature and input example of a protected model: types without enforcement, and queries that nobody is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property

from cfk_plugin.data.intake import require_features
from cfk_plugin.errors import InputError
from cfk_plugin.release.detection import Detector
from cfk_plugin.serving.records import FEATURE, RECORD

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.data.population import Population


def signature_of(population: Population, k: int) -> ModelSignature:
    """Return what goes in and out.

    Features are of any type and may be absent: MLflow's own check would put the request into its message, and lets
    30.5 pass for a whole number. `Desk` checks instead.
    """
    anything = AnyType()  # type: ignore[no-untyped-call]
    inputs = Schema([ColSpec(anything, name, required=False) for name in population.schema.features])
    kinds: dict[str, Any] = {
        "text": DataType.string,
        "number": DataType.double,
        "whole": DataType.long,
        "flag": DataType.boolean,
        "texts": Array(DataType.string),
    }

    def kind(declared: str) -> tuple[Any, bool]:
        return kinds[declared.removesuffix("?")], not declared.endswith("?")

    feature = [Property(name, kind(said)[0], required=kind(said)[1]) for name, said in FEATURE.items()]
    kinds["features"] = Array(Object(feature))
    outputs = Schema([ColSpec(kind(said)[0], name, required=kind(said)[1]) for name, said in RECORD.items()])
    return ModelSignature(inputs, outputs, ParamSchema([ParamSpec("k", DataType.long, k)]))


def refuse_training_rows(example: pd.DataFrame, population: Population) -> None:
    """Refuse an input example that is somebody: it is stored with the model, where everybody sees it.

    Raises
    ------
    InputError
        If it lacks features, or a row of it has the quasi-identifiers of a training row.
    """
    coded = population.encode(require_features(example, population.schema.features, "the input example"))
    if any(flags.any() for flags in Detector(population).equal_rows(*coded)):
        raise InputError("the input example has the quasi-identifiers of a training row; make one up")
