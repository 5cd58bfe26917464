"""A plugin with every hook. It writes down each call that it gets, and answers as the docs say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

import cfk_plugin
from cfk_plugin import Interval, Region, hookimpl
from cfk_plugin.adapting import CounterfactualBatch, constraints_of, desired_of
from cfk_plugin.hookspecs import AdaptContext, Proposal, ProtectionRequest, ReleaseRecord

CALLS: list[str] = []
EVERYBODY = Region({"age": Interval(20, 59)})
DIGEST = re.compile(r"[0-9a-f]{16,64}")  # depends on a random key, or on every setting


def note(place: str, **arguments: Any) -> None:
    words = ", ".join(f"{name}={described(value)}" for name, value in arguments.items())
    CALLS.append(f"{place}({words})")


def described(value: Any) -> str:
    """Return what an argument is, in words that are the same in every run."""
    if isinstance(value, pd.DataFrame):
        columns = ", ".join(f"{name} {dtype}" for name, dtype in value.dtypes.items())
        return f"DataFrame[{len(value)} rows: {columns}]"
    if isinstance(value, np.ndarray):
        return f"array[{value.dtype}, {value.shape}]"
    if isinstance(value, (AdaptContext, ReleaseRecord, ProtectionRequest)):
        parts = [f"{each.name}={described(getattr(value, each.name))}" for each in fields(value)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {described(value[name])}' for name in value)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(described, value))}]"
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return "DIGEST"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    kind = type(value)
    is_public = kind.__name__ in cfk_plugin.__all__ or kind.__module__ == __name__
    return kind.__name__ if is_public else "object"


class ToyExplainer:
    """An explainer that gives everybody the same pay."""

    version = "1.2"
    pay = 90

    def find(self, rows: pd.DataFrame, step: int = 1) -> list[dict[str, Any]]:
        return rows.assign(pay=self.pay).to_dict("records")


class ToySource:
    """The explainer as the host sees it."""

    name = "toy"
    instance_based = False
    forwarded = ("version",)

    def __init__(self, explainer: ToyExplainer, context: AdaptContext) -> None:
        self.explainer = explainer
        self.context = context

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        note("generate", queries=queries, **options)
        return self.batch(queries, options)

    @property
    def methods(self) -> Mapping[str, Any]:
        return {"find": self.find}

    def find(self, rows: pd.DataFrame, step: int = 1) -> tuple[CounterfactualBatch, Any, Any]:
        note("methods['find']", rows=rows, step=step)
        return self.batch(rows, {}), self.explainer.find(rows), rows

    def restore(self, native: Any, explanations: Any) -> list[Any]:
        note("restore", native=native, explanations=explanations)
        return [entry.to_dict() for entry in explanations]

    def batch(self, rows: pd.DataFrame, options: Mapping[str, Any]) -> CounterfactualBatch:
        frame = pd.DataFrame(self.explainer.find(rows), columns=list(self.context.features))
        is_found = np.ones(len(frame), dtype=bool)
        goal = desired_of(options)
        return CounterfactualBatch.one_each(frame, is_found, goal, constraints_of(options))


class ToyProtector:
    name = "toy"

    def protect(self, request: ProtectionRequest) -> list[Proposal]:
        note("protect", request=request)
        return [Proposal(EVERYBODY) for _ in range(len(request))]


def make_explainer(
    train: pd.DataFrame, labels: Any, model: Any, desired: Any = "opposite", seed: int = 0
) -> ToyExplainer:
    note("make_explainer", train=train, labels=labels, desired=desired, seed=seed)
    return ToyExplainer()


@hookimpl
def cfk_adapt(explainer: Any, context: AdaptContext) -> ToySource | None:
    note("cfk_adapt", explainer=explainer, context=context)
    return ToySource(explainer, context) if isinstance(explainer, ToyExplainer) else None


@hookimpl
def cfk_register_protectors() -> dict[str, Any]:
    note("cfk_register_protectors")
    return {"toy": ToyProtector}


@hookimpl
def cfk_detect(frame: pd.DataFrame, population: Any) -> list[str | None]:
    note("cfk_detect", frame=frame, population=population)
    return [None] * len(frame)


@hookimpl
def cfk_released(record: ReleaseRecord) -> None:
    note("cfk_released", record=record)
