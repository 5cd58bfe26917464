"""What audits in the runs found: attacks in one shape, whichever audit ran them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cfk_plugin.policy import sha256_of
from cfk_plugin.report.data import NOT_MEASURED, Amount, Attack

if TYPE_CHECKING:
    from cfk_plugin.report.evidence import Evidence, RunEvidence

_FAMILIES: Mapping[str, str] = {
    "epsilon": "epsilon",
    "epsilon_one_run": "epsilon",
    "membership": "membership",
    "extraction": "extraction",
    "attribute_inference": "attribute_inference",
}
"""Beginnings of the names of audits and attacks that are not about linkage."""


def attacks(evidence: Evidence) -> tuple[Attack, ...]:
    """Return the latest result of every attack in the runs, by family and name; exact."""
    released = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
    latest: dict[str, Attack] = {}
    for run in evidence.runs:
        for audit in run.audits:
            covers = all(_is_about(audit, other) for other in released)
            for attack in _of(audit, run.run_id, covers=covers):
                latest[attack.id] = attack
    return tuple(sorted(latest.values(), key=lambda a: (a.family != "linkage", a.family, a.id)))


def _is_about(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    """Say whether an audit, as far as it says, was of the policy and population that a run released under."""
    policy, population = audit.get("policy"), audit.get("population")
    if policy is not None and sha256_of(policy) != run.tags.get("cfk.policy_sha256"):
        return False
    return population is None or population == run.tags.get("cfk.population_fingerprint")


def _of(audit: Mapping[str, Any], run: str, *, covers: bool) -> Iterator[Attack]:
    kind = str(audit.get("kind", ""))
    for result in audit.get("results", [audit] if "attack" in audit else []):
        name = str(result["attack"])
        yield Attack(
            id=name,
            family=_family(name, kind),
            scenario=str(result.get("scenario", "")),
            main=_rate(result.get("main")),
            baseline=_rate(result.get("baseline")),
            control=_rate(result.get("control")),
            figures={key: Amount(value=value) for key, value in sorted(result.get("figures", {}).items())},
            worked=bool(result.get("worked")),
            covers=covers,
            run=run,
        )


def _family(name: str, kind: str) -> str:
    for text in (name, kind):
        for beginning, family in _FAMILIES.items():
            if text.startswith(beginning):
                return family
    return "linkage"


def _rate(found: Mapping[str, Any] | None) -> Amount:
    if found is None or found.get("value") is None:
        return NOT_MEASURED
    return Amount(value=found["value"], low=found.get("low"), high=found.get("high"), n=found.get("n"))
