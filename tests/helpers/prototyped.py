"""Prototypes to be released, as differentially private protectors make them."""

from __future__ import annotations

from typing import Any

from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import (
    PrototypeCertificate,
    PrototypeCounterfactual,
    PrototypePolicy,
    Withheld,
)

COLUMNS = ["age", "city", "salary"]
FINGERPRINT = "00c0ffee"


def policy(**settings: Any) -> PrototypePolicy:
    return PrototypePolicy(**{"method": "dp", "epsilon": 1.0, "model_access": "public", **settings})


def certificate(**fields: Any) -> PrototypeCertificate:
    said: dict[str, Any] = {
        "guarantee": "pure",
        "epsilon": 1.0,
        "delta": 0.0,
        "unit": "one person",
        "neighbours": "tables that differ by one person, added or removed",
        "mechanism": "discrete Laplace, OpenDP 0.16.0",
        "model_access": "public",
        "fit": "9f2c9f2c9f2c9f2c",
    }
    return PrototypeCertificate(**{**said, **fields})


def prototype(
    query: int = 0, *, of: PrototypeCertificate | None = None, **values: Any
) -> PrototypeCounterfactual:
    row = {"age": 31, "city": "Ghent", "salary": 52.5, **values}
    return PrototypeCounterfactual(query, row, of or certificate())


def prototypes(
    *entries: Any, under: PrototypePolicy | None = None, **provenance: str
) -> Explanations:
    """Return a result; its provenance names a population, as a careless caller might."""
    entries = entries or (
        prototype(0),
        Withheld(1, "none_found"),
        prototype(2, age=44, city=None),
    )
    told = {
        "method": "dp",
        "generator": "dp",
        "epsilon": "1",
        "epsilon_spent": "1.0",
        "population": FINGERPRINT,
    }
    return Explanations(
        entries, policy=under or policy(), columns=COLUMNS, provenance={**told, **provenance}
    )


def unproven(*entries: Any) -> Explanations:
    """Return a result of which nothing is guaranteed."""
    claimed = certificate(guarantee="none", mechanism="seeded noise of the same size", seeded=True)
    return prototypes(*(entries or [prototype(0, of=claimed)]))
