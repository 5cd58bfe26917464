"""What MLflow is told of the requests of a protected model: their signature, and an example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array

from cfk_plugin.data.region import Interval, Part, json_value, to_text
from cfk_plugin.data.wording import is_number
from cfk_plugin.dp.prototypes import DPPrototypes
from cfk_plugin.release.anonymizer import KAnonymizer

_DRAWS = 100


def signature_of(anonymizer: KAnonymizer | DPPrototypes) -> ModelSignature:
    """Return the signature: the features, the parameters, and the keys of `explanations-1`.

    Features have any type and are optional: MLflow's own check would refuse a whole request for one
    row, and quote it.
    """
    anything = AnyType()  # type: ignore[no-untyped-call]
    features = anonymizer.schema_.features
    inputs = Schema([ColSpec(anything, name, required=False) for name in features])
    outputs = Schema(
        [
            ColSpec(DataType.long, "schema_version"),
            ColSpec(DataType.string, "kind"),
            ColSpec(anything, "policy"),
            ColSpec(DataType.double, "least_pureness", required=False),
            ColSpec(Array(DataType.string), "columns"),
            ColSpec(anything, "asked"),
            ColSpec(anything, "explanations"),
        ]
    )
    params = [ParamSpec("language", DataType.string, None)]
    if isinstance(anonymizer, KAnonymizer):
        params.append(ParamSpec("max_changes", DataType.long, None))
    return ModelSignature(inputs, outputs, ParamSchema(params))


def example_of(anonymizer: KAnonymizer | DPPrototypes) -> pd.DataFrame:
    """Return one made-up query, with an explanation if possible.

    Every value is drawn by itself: private ones from those that at least k people have, or no one;
    quasi-identifiers from near the middle of regions. Prototypes are drawn rows as they are.
    """
    if isinstance(anonymizer, DPPrototypes):
        rows = anonymizer.served_.frame.head(_DRAWS)
    else:
        rows = _made_up_rows(anonymizer)
    released = anonymizer.explain(rows).released
    row = released[0].query if released else 0
    return rows.iloc[[row]].reset_index(drop=True)


def _made_up_rows(anonymizer: KAnonymizer) -> pd.DataFrame:
    """Return rows of regions and shared values of a catalogue, as JSON has them."""
    # Seeded: logging a model twice shows the same example.
    random = np.random.default_rng(0)
    catalogues = [part.catalogue for part in anonymizer._require_catalogue("an example").parts]
    regions = [some.regions.region(i) for some in catalogues for i in range(len(some.regions))]
    columns = {}
    for j, column in enumerate(anonymizer.codes_.columns):
        if column.is_quasi_identifier:
            drawn = random.integers(len(regions), size=_DRAWS).tolist()
            values = [_middle_of(regions[i][column.name]) for i in drawn]
        else:
            shared = np.concatenate([some.public[j] for some in catalogues])
            values = [column.value(code) for code in random.choice(shared, _DRAWS).tolist()]
        columns[column.name] = [json_value(value) for value in values]
    return pd.DataFrame(columns)


def _middle_of(part: Part) -> Any:
    """Return a value of a part of a region, or near its middle."""
    if not isinstance(part, Interval):
        values = sorted((value for value in part if value is not None), key=to_text)
        return values[len(values) // 2] if values else None
    if part.levels is not None:
        return part.levels[len(part.levels) // 2] if part.levels else None
    if not is_number(part.low):
        return part.low
    # Three digits are enough for an example, and are seldom one person's number.
    middle = float(f"{(part.low + part.high) / 2:.3g}")
    return int(middle) if isinstance(part.low, int) else middle
