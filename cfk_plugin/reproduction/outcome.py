"""What one method gave on one table: figures of each explanation, and what they were obtained with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Figure = tuple[float | None, ...]
"""One number per explanation; None where it was not measured, or nothing was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that decides what is explained: equal settings give equal models and counterfactuals.

    Attributes
    ----------
    table : str
    table_sha256 : str
        Digest of rows and roles, see `Table.sha256`.
    source : str
        Where the table is from.
    seed : int
        Of the split, the folds and the forest.
    grid : {"small", "paper"}
    explainer : {"nice", "nearest"}
        Real NICE without optimisation, or the built-in nearest unlike neighbour with the same distance.
    limit : int
        Most instances that are explained.
    versions : mapping
        Library to version.
    """

    table: str
    table_sha256: str
    source: str
    seed: int
    grid: str
    explainer: str
    limit: int
    versions: Mapping[str, str]

    @property
    def key(self) -> str:
        """Digest of all that decides; how the source is told does not."""
        return _digest({name: value for name, value in asdict(self).items() if name != "source"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a setting led to.

    Attributes
    ----------
    n_estimators, max_leaf_nodes : int, int or None
        What cross-validation chose.
    scores : mapping
        ``"n_estimators,max_leaf_nodes"`` to mean accuracy over the folds.
    accuracy : float
        Of the chosen forest on the test rows.
    rows_train, rows_test : int
    unique, below_10 : float
        Share of all rows that are alone with their quasi-identifiers; in equivalence classes of fewer than 10.
    explained : int
        Instances that were explained.
    unanswered : int
        Undesired instances to which the explainer found nothing; they are left out.
    seconds : float
        To split, tune, fit and explain.
    """

    n_estimators: int
    max_leaf_nodes: int | None
    scores: Mapping[str, float]
    accuracy: float
    rows_train: int
    rows_test: int
    unique: float
    below_10: float
    explained: int
    unanswered: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one method gave. Figures of explanations alone: no value of a row.

    Attributes
    ----------
    setting : Setting
    scene : Scene
    method : str
        One of `methods.METHODS`.
    k : int
        0 for what has none.
    options : mapping
        Settings of the method that are not its usual ones, for example ``{"alpha": 40}``.
    asked : int
        Explanations asked for: the first so many of the setting's.
    fit_seconds : float
        To bind model and population: what is done once, such as a partition of everybody.
    seconds, model_seconds : float
        Of the call that protects, all explanations asked for at once, verification included; the model's predict in it.
    model_calls : int
        Calls of predict.
    figures : mapping
        ``ncp``, ``pureness`` (exact, or of 10,000 drawn combinations), ``k``, ``k_desired``, ``k_consistent``,
        ``k_effective``, ``proven`` (0 or 1), ``agrees`` (1 where the majority of the class is predicted the desired
        outcome, so that CM counts no penalty): one number per explanation asked for, None where nothing was released.
        Where asked for also ``nearest`` and ``nearest_5``: mean HEOM distance, summed over features as NICE does, from
        100 drawn combinations of the region to the nearest training row and to the five nearest; ``distance``: HEOM,
        a mean over features, from the instance that is explained to the counterfactual that was chosen for it.
    groups : tuple of str
        For each explanation ``"minority"``, ``"majority"`` or ``"other"``, by the sensitive attribute of the
        counterfactual instance.
    groups_asking : tuple of str
        The same of the person who asks.
    """

    setting: Setting
    scene: Scene
    method: str
    k: int
    options: Mapping[str, Any]
    asked: int
    fit_seconds: float
    seconds: float
    model_seconds: float
    model_calls: int
    figures: Mapping[str, Figure]
    groups: tuple[str, ...]
    groups_asking: tuple[str, ...]

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        """Read what `to_json` wrote."""
        found = json.loads(text)
        found["setting"], found["scene"] = Setting(**found["setting"]), Scene(**found["scene"])
        found["figures"] = {name: tuple(values) for name, values in found["figures"].items()}
        return cls(**{**found, "groups": tuple(found["groups"]), "groups_asking": tuple(found["groups_asking"])})


def _digest(of: object) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
