"""What a run says of its population and its environment, for the data holder."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count, takewhile
from types import FunctionType
from typing import Any

import numpy as np

from cfk_plugin.data.codes import Column, Ints
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema, SchemaAttribute

SCHEMA_VERSION = 1


def facts_of(population: Population, k: int) -> dict[str, Any]:
    """Return exact counts of a population, for the data holder, without a value of an attribute."""
    column_of = {column.name: column for column in population.row_codes.columns}
    return {
        "schema_version": SCHEMA_VERSION,
        "rows": population.n_rows,
        "people": population.n_people,
        "fingerprint": population.fingerprint,
        "subject_key": population.schema.subject is not None,
        "k": k,
        **_exposure(population.smallest_classes(), k),
        "attributes": [
            _attribute(a, column_of.get(a.name), bounded=a.role == "quasi-identifier")
            for a in population.schema.attributes
        ],
    }


def _exposure(smallest_classes: Ints, k: int) -> dict[str, Any]:
    """Return how many people share their quasi-identifiers with few others.

    `smallest_classes` has the size of each person's smallest class.
    """
    by_size = np.bincount(smallest_classes, minlength=k + 1)
    return {
        "unique": int(by_size[1]),
        "below_k": int(by_size[:k].sum()),
        "classes": _classes(by_size, k),
    }


def _classes(by_size: Ints, k: int) -> list[dict[str, Any]]:
    """Return the people whose class has 1 to k, k to 2k, 2k to 5k, 5k to 10k, ... people."""
    steps = (k * step * 10**power for power in count() for step in (1, 2, 5))
    edges = [1, *takewhile(lambda edge: edge < len(by_size), steps)]
    return [
        {"from": low, "to": high, "people": int(by_size[low:high].sum())}
        for low, high in zip(edges, [*edges[1:], None], strict=True)
    ]


def declarations_of(schema: Schema) -> dict[str, Any]:
    """Return what is declared of a table and nothing that was counted: no epsilon covers counts."""
    return {
        "schema_version": SCHEMA_VERSION,
        "attributes": [
            _attribute(a, None, bounded=a.name in schema.features) for a in schema.attributes
        ],
    }


def _attribute(
    attribute: SchemaAttribute, column: Column | None, *, bounded: bool
) -> dict[str, Any]:
    said = (attribute.bounds, attribute.categories, attribute.levels, attribute.hierarchy)
    source = "declared" if any(setting is not None for setting in said) else "learned"
    return {
        "name": attribute.name,
        "role": attribute.role,
        "kind": attribute.kind,
        "weight": attribute.weight,
        "distinct": None if column is None else column.n_distinct,
        "bounds": source if bounded else None,
        "learned": list(attribute.learned),
    }


# Versions and settings, and nothing of machine or user.

_SAME_NAME = ("numpy", "pandas", "scikit-learn", "mlflow", "dice-ml", "NICEx", "opendp")
_PACKAGES = {"cfk_plugin": "cfk-plugin", **{name: name for name in _SAME_NAME}}


def environment_of(
    *,
    plugins: Mapping[str, str] | None = None,
    seed: int | None = None,
    model: object = None,
) -> dict[str, Any]:
    """Return versions and settings; of the model only the name is given."""
    return {
        "python": platform.python_version(),
        "packages": dict(_versions()),
        "plugins": [f"{name} {release}" for name, release in (plugins or {}).items()],
        "seed": None if seed is None else int(seed),
        "model": None if model is None else _name_of(model),
    }


def _name_of(model: object) -> str:
    """Return the name of a function, else of the class; for a pipeline also that of its last
    step.
    """
    steps = getattr(model, "steps", None)
    last = (
        steps[-1][-1]
        if isinstance(steps, list) and steps and isinstance(steps[-1], tuple)
        else None
    )
    name = model.__name__ if isinstance(model, FunctionType) else type(model).__name__
    return f"{name} of {type(last).__name__}" if last is not None else name


@cache
def _versions() -> Mapping[str, str]:
    found = {}
    for name, distribution in _PACKAGES.items():
        with suppress(PackageNotFoundError):
            found[name] = version(distribution)
    return found
