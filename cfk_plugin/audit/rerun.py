"""Running the algorithm again, as somebody who knows it would: other records, other seeds, other policies."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.setting import Setting
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Region
from cfk_plugin.errors import NominalGuaranteeWarning
from cfk_plugin.release.anonymizer import KAnonymizer

_BLOCK = 2_000  # records mapped at once: what the model said of their grids is kept until a block is done
_RANDOM = {"grasp": True, "exact": False, "mondrian": False}  # what is known of the built-in methods
_SEEDS = 3  # tried to see whether an algorithm draws random numbers; some records come out alike by chance
_OTHER = 1_000_003  # added to seeds of simulations, so that none is the seed of the release


def variant(anonymizer: KAnonymizer, *, seed: int | None = None, policy: PrivacyPolicy | None = None) -> KAnonymizer:
    """Return an anonymizer that differs in the seed or the policy alone, fitted alike."""
    # Not through the constructor: whatever else it was given stays, also what later versions take.
    other = object.__new__(type(anonymizer))
    vars(other).update(vars(anonymizer))
    if seed is not None:
        other.seed = seed
    if policy is not None:
        other.policy = policy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NominalGuaranteeWarning)  # said when the original was fitted
        return other.fit(anonymizer.population_, anonymizer.model_, anonymizer.goal_.desired)


def regions_of(anonymizer: KAnonymizer, records: pd.DataFrame) -> list[Region | None]:
    """Return the region that the algorithm gives to each record; None where it gives none.

    Nothing is released: no plugin is told, and no ledger is asked.
    """
    found: list[Region | None] = []
    for start in range(0, len(records), _BLOCK):
        found += anonymizer.regions_of(records.iloc[start : start + _BLOCK].reset_index(drop=True))
    return found


def is_random(setting: Setting) -> bool:
    """Say whether the algorithm draws random numbers: known of built-in ones, else tried with other seeds."""
    if setting.anonymizer.policy_.guarantee != "nominal":
        return False  # everybody's region is fixed, whatever the seed
    if setting.anonymizer.method_ in _RANDOM:
        return _RANDOM[setting.anonymizer.method_]
    known: dict[object, Any] = setting.memory
    if "random" not in known:
        raw = setting.raw.take(setting.releases.at).reset_index(drop=True)
        usual = regions_of(setting.anonymizer, raw) if len(raw) else []
        known["random"] = len(raw) > 0 and any(
            regions_of(variant(setting.anonymizer, seed=simulation_seed(setting, -turn)), raw) != usual
            for turn in range(_SEEDS)
        )
    return bool(known["random"])


def simulation_seed(setting: Setting, turn: int) -> int:
    """Return a seed that no release was made with."""
    return int(np.random.default_rng([setting.seed, _OTHER, turn + _SEEDS]).integers(1, 2**31 - 1))
