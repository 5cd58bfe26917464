"""What a run says of its population and its environment, for the data holder."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count, takewhile
from types import FunctionType
from typing import Any

import numpy as np

from cfk_plugin.data.domain import Domain, Rows
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Attribute, Schema

SCHEMA_VERSION = 1
FEW = 10
"""A number of people from 1 to this is not written, nor one from which it could be computed with
the others.
"""


def facts_of(population: Population, k: int) -> dict[str, Any]:
    """Return what is known of a population, without any value of an attribute; None where it was
    not sealed.
    """
    n_rows = population.n_rows_here
    return {
        "schema_version": SCHEMA_VERSION,
        "rows": None if n_rows is None else _hidden(n_rows, None),
        "people": _hidden(population.n_people, None),
        "subject_key": population.schema.subject is not None,
        "k": k,
        **_exposure(population.smallest_classes(), k),
        "attributes": [
            _attribute(a, population.domains.get(a.name), bounded=a.role == "quasi-identifier")
            for a in population.schema.attributes
        ],
    }


def _exposure(smallest_classes: Rows, k: int) -> dict[str, Any]:
    """Return how many people share their quasi-identifiers with few; `smallest_classes` has the
    size of each person's smallest class, and is empty if no class is known.
    """
    if not len(smallest_classes):
        return {"unique": None, "below_k": None, "classes": []}
    by_size = np.bincount(smallest_classes, minlength=k + 1)
    people = int(by_size.sum())
    below_k = int(by_size[:k].sum())
    unique = int(by_size[1])
    shown = _hidden(below_k, people)
    # the exact number below k may be shown, so `unique` must not leave few of them
    whole = below_k if shown == below_k else people
    return {"unique": _hidden(unique, whole), "below_k": shown, "classes": _classes(by_size, k)}


def declarations_of(schema: Schema) -> dict[str, Any]:
    """Return what is declared of a table and nothing that was counted: no epsilon covers counts."""
    return {
        "schema_version": SCHEMA_VERSION,
        "attributes": [
            _attribute(a, None, bounded=a.name in schema.features) for a in schema.attributes
        ],
    }


def _attribute(attribute: Attribute, domain: Domain | None, *, bounded: bool) -> dict[str, Any]:
    said = (attribute.bounds, attribute.categories, attribute.levels, attribute.hierarchy)
    source = "declared" if any(setting is not None for setting in said) else "learned"
    return {
        "name": attribute.name,
        "role": attribute.role,
        "kind": attribute.kind,
        "weight": attribute.weight,
        "distinct": None if domain is None or domain.is_open else len(domain.values),
        "bounds": source if bounded else None,
        "learned": list(attribute.learned),
    }


def _hidden(number: int, whole: int | None) -> int | str:
    """Return a number, or a range where it or the rest of `whole` is too small."""
    if 0 < number <= FEW:
        return f"1–{FEW}"
    if number and whole is not None and 0 < whole - number <= FEW:
        return f"{max(whole - FEW, 1)}–{whole - 1}"
    return number


def _classes(by_size: Rows, k: int) -> list[dict[str, Any]]:
    # k, 2k, 5k, 10k, 20k, ...
    steps = (k * step * 10**power for power in count() for step in (1, 2, 5))
    edges = [1, *takewhile(lambda edge: edge < len(by_size), steps)]
    bins = [
        (low, high, int(by_size[low:high].sum()))
        for low, high in zip(edges, [*edges[1:], None], strict=True)
    ]
    return [
        {"from": low, "to": high, "people": _hidden(inside, None)}
        for low, high, inside in _merged(bins)
    ]


_Bin = tuple[int, int | None, int]  # from, to, people


def _merged(bins: Sequence[_Bin]) -> list[_Bin]:
    """Merge bins of few people; the first one, of those below k, stays apart if it and the rest are
    large enough.
    """
    head, *tail = bins
    if 0 < head[2] <= FEW or 0 < sum(each[2] for each in tail) <= FEW:
        return _run_together(bins)  # the number of those below k is hidden then as well
    return [head, *_run_together(tail)]


def _run_together(bins: Sequence[_Bin]) -> list[_Bin]:
    """Merge each bin of few people with those after it, the last one with those before."""
    kept: list[_Bin] = []
    for each in bins:
        kept.append(each)
        if len(kept) > 1 and 0 < kept[-2][2] <= FEW:
            kept[-2:] = [_joined(*kept[-2:])]
    while len(kept) > 1 and 0 < kept[-1][2] <= FEW:
        kept[-2:] = [_joined(*kept[-2:])]
    return kept


def _joined(first: _Bin, last: _Bin) -> _Bin:
    return first[0], last[1], first[2] + last[2]


# Versions and settings, and nothing of machine or user.

_SAME_NAME = ("numpy", "pandas", "scikit-learn", "mlflow", "dice-ml", "NICEx", "opendp")
_PACKAGES = {"cfk_plugin": "cfk-plugin", **{name: name for name in _SAME_NAME}}


def environment_of(
    *,
    plugins: Mapping[str, str] | None = None,
    seed: int | None = None,
    ledger: str = "none",
    model: object = None,
) -> dict[str, Any]:
    """Return versions and settings; `ledger` is the kind of its database; of the model only the
    name is given.
    """
    return {
        "python": platform.python_version(),
        "packages": dict(_versions()),
        "plugins": [f"{name} {release}" for name, release in (plugins or {}).items()],
        "seed": None if seed is None else int(seed),
        "ledger": ledger,
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
