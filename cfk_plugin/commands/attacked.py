"""What commands that attack a way of training and answering are given, and how it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin._files import load_function, load_model, read_policy, read_schema, read_table
from cfk_plugin.audit.planning import Scope
from cfk_plugin.audit.targets import (
    ProtectedOwner,
    PrototypeOwner,
    RawOwner,
    Sample,
    Target,
    full_depth_forest,
    measured_schema,
)
from cfk_plugin.errors import InputError, ModelError
from cfk_plugin.plugins import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.schema import Schema

_FEW = 20  # more outcomes than these are hardly labels, and are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Files and settings that say who is attacked."""

    people: Path
    schema: Path
    desired: str
    target: str | None
    model: str | None
    explainer: str
    against: str
    policy: Path | None
    k: int | None
    epsilon: float

    def read(self) -> Case:
        """Read everything; names and settings are checked before any file."""
        names = chosen(self.against)
        rules = read_policy(self.policy, {"k": self.k})
        explainer = load_function(self.explainer) if ":" in self.explainer else generator(self.explainer)
        table = read_table(self.people)
        schema = read_schema(self.schema, table)
        features = list(schema.features)
        sample = Sample(table[features], self._outcomes(table, schema))
        model = full_depth_forest(sample.X) if self.model is None else estimator(self.model)
        way = _Way(model, explainer, schema, rules, self.epsilon, sample)
        owners = tuple(_OWNERS[name](name, way) for name in names)
        sensitive = schema.names("sensitive")
        scope = Scope(schema.quasi_identifiers, explainer, sensitive[0] if sensitive else None)
        return Case(sample, owners, scope)

    def fingerprint(self) -> str:
        """Return a hash of everything that an owner depends on beside the people: settings, and contents of files."""
        files = [self.schema, *([self.policy] if self.policy else []), *([Path(self.model)] if self.model else [])]
        found = hashlib.sha256(repr(replace(self, people=Path(), against="")).encode())
        for path in files:
            found.update(path.read_bytes() if path.is_file() else b"")
        return found.hexdigest()[:16]

    def _outcomes(self, table: pd.DataFrame, schema: Schema) -> NDArray[np.bool_]:
        name = self.target or schema.target
        if name is None:
            raise InputError('which column holds the true outcomes? Give --target, or "target" in the schema')
        if name not in table or name in schema.features:
            where = "is a feature; outcomes are none" if name in table else "is no column of the table"
            raise InputError(f"--target {name}: {where}; declare it as target in the schema, or name another column")
        column = table[name]
        if column.isna().any():
            raise InputError(f"column {name} has people without an outcome; leave them out")
        found = column.astype(str) == self.desired
        if not found.any() or found.all():
            labels = sorted(map(str, column.unique()))
            known = ", ".join(labels) if len(labels) <= _FEW else f"{len(labels)} outcomes"
            raise InputError(f"--desired {self.desired}: some people must have it and some not; {name} has {known}")
        return found.to_numpy()


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """What was read. Host side only."""

    sample: Sample
    owners: tuple[Target, ...]
    scope: Scope


@dataclass(frozen=True, slots=True, repr=False)
class _Way:
    """What all owners share."""

    model: Any
    explainer: Any
    schema: Schema
    rules: PrivacyPolicy
    epsilon: float
    sample: Sample

    def protected(self, name: str, guarantee: str) -> ProtectedOwner:
        explainer = None if guarantee == "catalogue" else self.explainer
        rules = replace(self.rules, guarantee=guarantee)  # type: ignore[arg-type]  # one of the table below
        return ProtectedOwner(name, self.model, explainer, schema=self.schema, rules=rules)

    def prototypes(self, name: str, *, revert: bool = False) -> PrototypeOwner:
        domains = measured_schema(self.sample, self.schema.quasi_identifiers)
        return PrototypeOwner(name, self.model, domains, self.epsilon, revert=revert)


_OWNERS: Mapping[str, Callable[[str, _Way], Target]] = {
    "raw": lambda name, way: RawOwner(name, way.model, way.explainer),
    "exact": lambda name, way: way.protected(name, "nominal"),
    "reciprocal": lambda name, way: way.protected(name, "reciprocal"),
    "catalogue": lambda name, way: way.protected(name, "catalogue"),
    "dp": lambda name, way: way.prototypes(name),
    "dp-reverted": lambda name, way: way.prototypes(name, revert=True),
}


def chosen(text: str) -> list[str]:
    """Return the names of who is attacked, each once."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in _OWNERS] or (not names and ["nothing"]):
        raise InputError(f"--against {', '.join(unknown)}: known are {', '.join(_OWNERS)}")
    return names


def estimator(location: str) -> Any:
    """Load an estimator that can be trained again; what it was fitted on is forgotten."""
    model = load_model(location)
    if not all(hasattr(model, method) for method in ("fit", "get_params", "predict_proba")):
        raise ModelError(
            f"{location}: a {type(model).__name__} cannot be trained again; give a scikit-learn classifier or pipeline "
            "with predict_proba, or leave --model out for a random forest"
        )
    return model
