"""The signature of a protected model in MLflow, and an example of a query."""

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
    """Return the signature: features, parameters, and the keys of the format `explanations-1`.

    Features may have any type and are optional: otherwise, MLflow would reject a whole request
    because of one row, and would quote the row.
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
    """Return a table with one artificial query, if possible one that has an explanation.

    Each value is drawn independently: private values from those that at least k people share or
    no one has, quasi-identifiers from near the middle of regions. With prototypes, the query is
    one of the differentially private rows.
    """
    if isinstance(anonymizer, DPPrototypes):
        rows = anonymizer.served_.frame.head(_DRAWS)
    else:
        rows = _made_up_rows(anonymizer)
    released = anonymizer.explain(rows).released
    row = released[0].query if released else 0
    return rows.iloc[[row]].reset_index(drop=True)


def _made_up_rows(anonymizer: KAnonymizer) -> pd.DataFrame:
    """Return artificial queries from the regions and shared values of a catalogue.

    Their values have the types of JSON.
    """
    # Seeded, so that a model that is logged again has the same example.
    random = np.random.default_rng(0)
    catalogues = [part.catalogue for part in anonymizer._require_catalogue("an example").parts]
    regions = [
        catalogue.regions.region(i)
        for catalogue in catalogues
        for i in range(len(catalogue.regions))
    ]
    columns = {}
    for j, column in enumerate(anonymizer.codes_.columns):
        if column.is_quasi_identifier:
            numbers = random.integers(len(regions), size=_DRAWS).tolist()
            values = [_middle_of(regions[i][column.name]) for i in numbers]
        else:
            shared = np.concatenate([catalogue.public[j] for catalogue in catalogues])
            values = [column.value(code) for code in random.choice(shared, _DRAWS).tolist()]
        columns[column.name] = [json_value(value) for value in values]
    return pd.DataFrame(columns)


def _middle_of(part: Part) -> Any:
    """Return a value in or near the middle of a region's part."""
    if not isinstance(part, Interval):
        values = sorted((value for value in part if value is not None), key=to_text)
        return values[len(values) // 2] if values else None
    if part.levels is not None:
        return part.levels[len(part.levels) // 2] if part.levels else None
    if not is_number(part.low):
        return part.low
    # Rounded to three digits, so that it is seldom the exact number of a person.
    middle = float(f"{(part.low + part.high) / 2:.3g}")
    return int(middle) if isinstance(part.low, int) else middle
