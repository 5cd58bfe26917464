"""What commands on raw counterfactuals are given, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.commands.files import load_model, read_policy, read_schema, read_table
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.population import Population
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.data.policy import PrivacyPolicy

_FEW = 20  # more outcomes than these are hardly labels, and are not shown


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files and settings that say what is protected, and how."""

    train: Path
    schema: Path
    model: str
    counterfactuals: Path
    factuals: Path | None
    desired: str
    policy: Path | None
    changes: Mapping[str, Any]
    method: str

    def read(self) -> Case:
        """Read everything."""
        policy = read_policy(self.policy, self.changes)
        train, raw = read_table(self.train), read_table(self.counterfactuals)
        factuals = None if self.factuals is None else read_table(self.factuals)
        schema = read_schema(self.schema, train)
        population, model = Population.from_frame(train, schema), load_model(self.model)
        desired = wanted(self.desired, model, train[list(schema.features)])
        return Case(policy, population, model, desired, raw, factuals)


@dataclass(frozen=True, slots=True)
class Case:
    """What was read."""

    policy: PrivacyPolicy
    population: Population
    model: Any
    desired: Any
    raw: pd.DataFrame
    factuals: pd.DataFrame | None


def wanted(text: str, model: Any, features: pd.DataFrame) -> Any:
    """Turn the outcome's name into the model's own label; ``opposite`` stays as it is."""
    if text == "opposite":
        return text
    labels: Any = getattr(model, "classes_", None)
    if labels is None:
        labels = np.unique(LabelModel(model, list(features.columns))(features))
    return label_among(labels, text)


def label_among(labels: Sequence[Any], text: str) -> Any:
    """Return the label that is spelled like this; labels are the model's, so a message may list them.

    Raises
    ------
    InputError
        If there is none.
    """
    for label in labels:
        if str(label) == text or (_number(text) is not None and _number(label) == _number(text)):
            return label
    known = f"it has {', '.join(map(str, labels))}" if len(labels) <= _FEW else f"it has {len(labels)} others"
    raise InputError(f"--desired {text}: the model has no such outcome; {known}")


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
