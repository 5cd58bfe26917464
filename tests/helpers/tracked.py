"""Explanations to be logged, and the records that a journal has of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.metrics.provenance import environment_of
from cfk_plugin.release.certificate import EXACT_FIGURES
from cfk_plugin.release.explanations import Explanations, ResultContext
from cfk_plugin.release.results import (
    Certificate,
    GeneralizedCounterfactual,
    RegionRecount,
    Withheld,
)
from cfk_plugin.tracking.record import RunRecord

COLUMNS = ["age", "city", "salary"]
POPULATION = {
    "schema_version": 1,
    "rows": 340,
    "people": 331,
    "fingerprint": "00c0ffee00c0ffee",
    "attributes": [
        {"name": "age", "role": "quasi-identifier", "kind": "numeric"},
        {"name": "city", "role": "quasi-identifier", "kind": "nominal"},
    ],
}
ABOUT = ResultContext(
    POPULATION, {**environment_of(seed=3), "generator": "dice", "model": "forest"}, seconds=0.25
)


def released(
    query: int = 0,
    *,
    advised: Mapping[str, Any] = MappingProxyType({}),
    least: Mapping[str, Any] = MappingProxyType({}),
    **figures: Any,
) -> GeneralizedCounterfactual:
    """Return an explanation; `figures` are of its certificate or of its recount."""
    counts: dict[str, Any] = {
        "k": 5,
        "k_desired": 4,
        "k_consistent": 3,
        "k_private": 1,
        "private_matches": 1,
        "majority": True,
    }
    public: dict[str, Any] = {
        "k": 5,
        "ncp": 0.25,
        "pureness": 1.0,
        "pureness_low": 0.9,
        "pureness_high": 1.0,
        "exact": False,
        "optimal": True,
        "gap": 0.0,
        "method": "exact",
        "guarantee": "lookup",
        "not_stopped": PrivacyPolicy(guarantee="lookup").not_stopped,
        "policy_hash": PrivacyPolicy(guarantee="lookup", k=5).sha256,
        "population": "00c0ffee",
    }
    public |= {name: value for name, value in figures.items() if name in public}
    exact = {name: public[name] for name in EXACT_FIGURES}
    counts |= exact | {name: value for name, value in figures.items() if name not in public}
    region = Region({"age": Interval(24, 27), "city": frozenset({"Antwerp", "Ghent"})})
    return GeneralizedCounterfactual(
        query,
        region,
        {"salary": 60},
        Certificate(**public),
        RegionRecount(**counts),
        advised=advised,
        least=least,
    )


def explanations(
    *entries: Any,
    k: int = 5,
    findings: Any = None,
    about: ResultContext | None = None,
    n_people: int = 0,
    **provenance: str,
) -> Explanations:
    entries = entries or (
        released(0),
        Withheld(1, "infeasible"),
        released(2, k=9, ncp=0.75, pureness=0.5),
    )
    return Explanations(
        entries,
        policy=PrivacyPolicy(guarantee="lookup", k=k),
        columns=COLUMNS,
        findings=findings,
        about=about,
        n_people=n_people,
        provenance={"method": "exact", "generator": "dice", "plugins": "dice 0.1.0"} | provenance,
    )


def measured(*entries: Any, **settings: Any) -> Explanations:
    """Return explanations with all that the data holder knows of them."""
    entries = entries or (
        released(0, ncp_parts=(0.5, 0.0)),
        Withheld(1, "verification_failed", refused_k=3),
        released(2, k=10),
    )
    return explanations(*entries, **{"about": ABOUT, "n_people": 331, **settings})


def journaled(path: Path) -> list[RunRecord]:
    """Return the records in a journal."""
    lines = path.read_text("utf-8").splitlines()
    return [RunRecord(**json.loads(line)["record"]) for line in lines]
