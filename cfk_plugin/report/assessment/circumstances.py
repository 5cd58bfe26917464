"""What the statements of a report depend on: guarantees, ledger, private values, what was released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cfk_plugin.report.assessment import described
from cfk_plugin.report.assessment.figures import latest_population
from cfk_plugin.report.statements.criteria import criteria
from cfk_plugin.report.statements.limits import not_covered

if TYPE_CHECKING:
    from cfk_plugin.report.assessment.pooled import Pooled
    from cfk_plugin.report.data import Status
    from cfk_plugin.report.evidence import Evidence


def circumstances(evidence: Evidence, pooled: Pooled) -> dict[str, Any]:
    """Return what the limits depend on."""
    facts = latest_population(evidence) or {}
    roles = {attribute["name"]: attribute["role"] for attribute in facts.get("attributes", ())}
    known = [(run.environment or {}).get("ledger") for run in pooled.runs]
    certificate = described.dp(evidence)
    eligible = [_eligible(run.policy) for run in pooled.runs if "k" in (run.policy or {})]
    stated = [run.params["cfk.guarantee"] for run in pooled.runs if "cfk.guarantee" in run.params]
    return {
        "guarantees": {guarantee.removeprefix("dp-") for guarantee in stated},
        "has_ledger": None if None in known or not known else all(kind != "none" for kind in known),
        "raw_private": sorted(n for n, role in roles.items() if role in ("sensitive", "other")) if roles else None,
        "prototypes": len(pooled.prototypes) > 0 or certificate is not None,
        "dp_covers": None if certificate is None else certificate["covers"],
        "sensitive_declared": "sensitive" in roles.values(),
        "subject_key": facts.get("subject_key"),
        "eligible": bool(eligible) and all(eligible),
    }


def _eligible(policy: Mapping[str, Any] | None) -> bool:
    """Say whether only people with the desired predicted outcome counted."""
    settings = policy or {}
    return settings.get("guarantee") == "catalogue" or settings.get("anonymity_set") == "eligible"


def uncovered(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the three sentences on what the verdict does not cover."""
    names = ("guarantees", "has_ledger", "raw_private", "prototypes", "dp_covers", "eligible")
    return not_covered(**{name: said[name] for name in names})


def judged_criteria(
    statuses: Mapping[str, Status], said: Mapping[str, Any], pooled: Pooled
) -> tuple[Mapping[str, str], ...]:
    """Return the table of the three criteria, from the statuses of the checks."""
    regions, prototypes = len(pooled.regions) > 0, bool(said["prototypes"])
    found = criteria(
        statuses, raw_private=said["raw_private"], regions=regions or not prototypes, prototypes=prototypes
    )
    return tuple(dict(row) for row in found)
