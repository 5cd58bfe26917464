"""What audits in the runs found: attacks in one shape, whichever audit ran them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cfk_plugin.data.policy import sha256_of
from cfk_plugin.report.assessment.families import GUESSES, OF_MODELS, compared, family, whole
from cfk_plugin.report.data import NOT_MEASURED, Amount, Attack

if TYPE_CHECKING:
    from cfk_plugin.report.evidence import Evidence, RunEvidence


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Audited:
    """An attack, exact, and the audit that ran it, as it was logged."""

    attack: Attack
    audit: Mapping[str, Any]


def attacks(evidence: Evidence) -> tuple[Attack, ...]:
    """Return every attack in the runs, by family and name; exact. See `audited`."""
    return tuple(found.attack for found in audited(evidence))


def audited(evidence: Evidence) -> tuple[Audited, ...]:
    """Return the latest result of every attack on each subject, by family and name.

    Of one attack on several subjects that one is judged whose policy is in force; of several such, the one on which the
    attack did best. The others are there for comparison.
    """
    released = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
    latest: dict[tuple[str, str, bool], Audited] = {}
    for run in evidence.runs:
        for audit in run.audits:
            for attack in _of(audit, run.run_id, released):
                key = (attack.id, attack.subject, attack.concerns)
                latest.pop(key, None)  # so that the order is that of the runs
                latest[key] = Audited(attack, audit)
    by_name: dict[str, list[Audited]] = {}
    for found in latest.values():
        by_name.setdefault(whole(found.attack.id), []).append(found)
    return tuple(sorted((each for same in by_name.values() for each in _judged(same)), key=_place))


def _place(found: Audited) -> tuple[bool, str, str, bool, str]:
    attack = found.attack
    return attack.family != "linkage", attack.family, attack.id, not attack.judged, attack.subject


def _judged(same: Sequence[Audited]) -> Iterator[Audited]:
    """Mark on which of several subjects an attack is judged: in doubt the one that speaks against the release."""
    threats = [(found.attack.concerns, _threat(found.attack), i) for i, found in enumerate(same)]
    worst = same[max(threats)[2]].attack
    for found in same:
        attack = found.attack
        judged = (attack.subject, attack.concerns) == (worst.subject, worst.concerns) and attack.id not in GUESSES
        yield found if judged else replace(found, attack=replace(attack, judged=False))


def _threat(attack: Attack) -> float:
    found = compared(attack) if attack.concerns else None
    if found is None:
        return 0.0
    return found.over.high if found.over.high is not None else found.over.value or 0.0


def _of(audit: Mapping[str, Any], run: str, released: Sequence[RunEvidence]) -> Iterator[Attack]:
    kind = str(audit.get("kind", ""))
    for result in audit.get("results", [audit] if "attack" in audit else []):
        name = str(result["attack"])
        of = family(name, kind)
        protected = of not in OF_MODELS or audit.get("policy") is not None
        yield Attack(
            id=name,
            family=of,
            scenario=str(result.get("scenario", "")),
            main=_rate(result.get("main")),
            baseline=_rate(result.get("baseline")),
            control=_rate(result.get("control")),
            figures={key: Amount(value=value) for key, value in sorted(result.get("figures", {}).items())},
            worked=bool(result.get("worked")),
            covers=protected and all(_is_about(audit, other) for other in released),
            run=run,
            subject=str(audit.get("subject") or ""),
            concerns=protected and (not released or any(_has_policy_of(audit, other) for other in released)),
        )


def _is_about(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    """Say whether an audit, as far as it says, was of the policy and population that a run released under."""
    population = audit.get("population")
    return _has_policy_of(audit, run) and (
        population is None or population == run.tags.get("cfk.population_fingerprint")
    )


def _has_policy_of(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    policy = audit.get("policy")
    return policy is None or sha256_of(policy) == run.tags.get("cfk.policy_sha256")


def _rate(found: Mapping[str, Any] | None) -> Amount:
    if found is None or found.get("value") is None:
        return NOT_MEASURED
    return Amount(value=found["value"], low=found.get("low"), high=found.get("high"), n=found.get("n"))
