"""From evidence to report: compute, judge, hide, say."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from cfk_plugin.errors import InputError
from cfk_plugin.release.results import PrototypeCertificate
from cfk_plugin.report.amounts import HIDDEN, Amount, Control, Edition, Kind, kind_of
from cfk_plugin.report.attacks import audited, shown_attack
from cfk_plugin.report.checks import JudgedCase, Line, judged, verdict
from cfk_plugin.report.data import (
    CertificateLine,
    CheckResult,
    Column,
    DpStatement,
    Environment,
    Group,
    Metric,
    Policies,
    PolicyInForce,
    PopulationSummary,
    ReleaseCounts,
    ReportData,
    ReportHead,
    RunLine,
    Verdict,
)
from cfk_plugin.report.figures import LATENCIES, distributions, figures, groups, latest_population
from cfk_plugin.report.inputs import Asked, HumanInputs, placeholders, thresholds
from cfk_plugin.report.runs import Evidence, Pooled
from cfk_plugin.report.statements import (
    Circumstances,
    controls,
    criteria,
    definitions_of,
    limits,
    not_covered,
    techniques,
)

_MOST_CERTIFICATES = 50


def build(
    evidence: Evidence,
    *,
    inputs: HumanInputs | None = None,
    preset: str | None = None,
    edition: Edition = "internal",
    command: str = "",
    previous: ReportData | None = None,
) -> ReportData:
    """Make a report from what runs hold; see `PrivacyReport.of_runs`. The same evidence gives the same data."""
    if not evidence.runs:
        raise InputError("a report needs at least one run with explanations or audits")
    if edition not in ("internal", "external"):
        raise InputError(f"edition must be internal or external, got {edition!r}")
    inputs = inputs or HumanInputs()
    case = _case(evidence, inputs, thresholds(preset, inputs))
    control = Control(edition, case.pooled.k)
    # First, as it decides whether anything may tell the number of releases.
    released = _releases(case, control)
    checks = tuple(_check(line, control) for line in judged(case))
    data = _data(case, control, released, checks, preset, command)
    if previous is not None:
        from cfk_plugin.report.summaries import compare

        data = replace(data, changes=compare(previous, data))
    # A report is named by its content: the same evidence, the same name.
    digest = hashlib.sha256(data.to_json().encode()).hexdigest()[:16]
    return replace(data, report={**data.report, "id": digest})


def _case(evidence: Evidence, inputs: HumanInputs, asked: Mapping[str, Asked]) -> JudgedCase:
    """Compute everything that checks look at."""
    least = asked["k"].value
    pooled = Pooled.of(evidence, None if least is None else int(least))
    return JudgedCase(
        evidence=evidence,
        pooled=pooled,
        figures=figures(evidence, pooled),
        inputs=inputs,
        thresholds=asked,
        groups=groups(pooled),
        audited=audited(evidence),
        placeholders=len(placeholders(inputs)),
    )


def _data(
    case: JudgedCase,
    control: Control,
    released: ReleaseCounts,
    checks: tuple[CheckResult, ...],
    preset: str | None,
    command: str,
) -> ReportData:
    """Put together what may be shown."""
    evidence, pooled, dp = case.evidence, case.pooled, _dp(case.evidence)
    said = _circumstances(evidence, pooled, dp)
    metrics = _metrics(case.figures, released, control)
    ran = tuple(shown_attack(attack, control) for attack in case.attacks)
    floor = case.asked("pureness", "min_pureness").value
    return ReportData(
        report=_head(case, control, verdict(check.status for check in checks), not_covered(said), command),
        system=case.inputs.system(),
        population=_population(evidence, case.figures, control),
        attributes=_attributes(evidence, control),
        policy=_policy(case, control, said.guarantees, preset),
        releases=released,
        checks=checks,
        metrics=metrics,
        distributions=distributions(evidence, pooled, case.audited, control, floor),
        groups=tuple(_group(group, control) for group in case.groups),
        attacks=ran,
        criteria=criteria(
            {check.id: check.status for check in checks},
            said.raw_private,
            regions=len(pooled.regions) > 0 or not said.prototypes,
            prototypes=said.prototypes,
        ),
        dp=dp,
        limits=limits(said),
        placeholders=placeholders(case.inputs),
        sign_off=case.inputs.signatures(),
        controls=controls(),
        environment=_environment(evidence),
        runs=_runs(evidence, pooled, control),
        certificates=_certificates(pooled, control),
        changes=None,
        suppressed_cells=tuple(sorted(set(control.hidden))),
        definitions=definitions_of(checks, metrics, ran),
    )


def _circumstances(evidence: Evidence, pooled: Pooled, dp: DpStatement | None) -> Circumstances:
    """Return what the limits depend on: guarantees, ledger, private values, what was released."""
    facts = latest_population(evidence)
    roles = {attribute["name"]: attribute["role"] for attribute in facts.get("attributes", ())}
    known = [(run.environment or {}).get("ledger") for run in pooled.runs]
    stated = [run.params["cfk.guarantee"] for run in pooled.runs if "cfk.guarantee" in run.params]
    policies = [run.policy for run in pooled.runs if run.policy is not None and "k" in run.policy]
    eligible = [p.get("guarantee") == "catalogue" or p.get("anonymity_set") == "eligible" for p in policies]
    return Circumstances(
        guarantees={guarantee.removeprefix("dp-") for guarantee in stated},
        has_ledger=None if None in known or not known else all(kind != "none" for kind in known),
        raw_private=sorted(n for n, role in roles.items() if role in ("sensitive", "other")) if roles else None,
        prototypes=len(pooled.prototypes) > 0 or dp is not None,
        dp_covers=None if dp is None else dp["covers"],
        sensitive_declared="sensitive" in roles.values(),
        subject_key=facts.get("subject_key"),
        eligible=bool(eligible) and all(eligible),
    )


def _head(case: JudgedCase, control: Control, found: Verdict, uncovered: tuple[str, ...], command: str) -> ReportHead:
    evidence, pooled, inputs = case.evidence, case.pooled, case.inputs
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows and len(pooled) else None
    first, last = (None, None) if times is None else (_day(times.min()), _day(times.max()))
    latest = _of_milliseconds(max(run.started for run in evidence.runs))
    names = sorted({run.experiment for run in evidence.runs if run.experiment})
    return {
        "id": "",
        "edition": control.edition,
        "title": f"Privacy report: {inputs.answers.get('system') or ', '.join(names) or 'explanations'}",
        "verdict": found,
        "period": {
            "first": first,
            "last": last,
            "since": _of_milliseconds(evidence.since),
            "until": _of_milliseconds(evidence.until),
        },
        "as_of": max(filter(None, (last, latest)), default=None),
        "reason": inputs.reason,
        "command": "" if control.external else command,
        "not_covered": uncovered,
    }


def _day(moment: pd.Timestamp | datetime | None) -> str | None:
    """Write a moment as ISO 8601 in UTC, to the second."""
    if moment is None or pd.isna(moment):
        return None
    return pd.Timestamp(moment).tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_milliseconds(value: int | None) -> str | None:
    return None if value is None else _day(datetime.fromtimestamp(value / 1000, UTC))


def _population(evidence: Evidence, figures: Mapping[str, Metric], control: Control) -> PopulationSummary:
    """Describe the population before protection, in bands."""
    facts = latest_population(evidence)
    prints = {run.population.get("fingerprint") for run in evidence.runs if run.population is not None}

    def shown(name: str, exact: Amount) -> Amount:
        return control.amount(exact, kind_of(name) if name in figures else "people", f"population.{name}")

    return {
        "people": shown("people", _people(facts.get("people"))),
        "rows": shown("rows", _people(facts.get("rows"))),
        "unique": shown("unique", figures["unique"].amount),
        "below_k": shown("below_k", figures["below_k"].amount),
        "subject_key": facts.get("subject_key"),
        "fingerprint": facts.get("fingerprint"),
        "k": facts.get("k"),
        "populations": len(prints - {None}),
    }


def _people(count: int | str | None) -> Amount:
    """Return a number of people; one that the run hides stays hidden."""
    return Amount(band=count) if isinstance(count, str) else Amount(value=count)


def _attributes(evidence: Evidence, control: Control) -> tuple[Column, ...]:
    """Describe the attributes: roles and kinds as declared, numbers of distinct values in bands."""
    return tuple(
        {
            "name": attribute["name"],
            "role": attribute["role"],
            "kind": attribute["kind"],
            "weight": attribute.get("weight"),
            "distinct": control.amount(
                _people(attribute.get("distinct")), "people", f"attributes.{attribute['name']}.distinct"
            ),
            "bounds_source": attribute.get("bounds") or "not needed",
        }
        for attribute in latest_population(evidence).get("attributes", ())
    )


def _policy(case: JudgedCase, control: Control, guarantees: Collection[str], preset: str | None) -> Policies:
    """Describe the policies in force, and how settings changed in the period."""
    pooled = case.pooled
    environments = [run.environment for run in pooled.runs if run.environment is not None]
    policies = _policies(pooled, control)
    settings = {name: _of_params(pooled, f"cfk.{name}") for name in ("method", "guarantee", "generator")}
    return {
        "preset": preset,
        "policies": policies,
        "methods": settings["method"],
        "guarantees": settings["guarantee"],
        "generators": settings["generator"],
        "seed": tuple(sorted({str(found["seed"]) for found in environments if found.get("seed") is not None})),
        "deviations": _deviations(pooled, len(policies), settings),
        "thresholds": tuple(
            {"id": name, "value": asked.value, "source": asked.source}
            for name, asked in case.thresholds.items()
            if asked.value is not None
        ),
        "techniques": techniques(settings["method"], guarantees, withheld=len(pooled.suppressed) > 0),
    }


def _policies(pooled: Pooled, control: Control) -> tuple[PolicyInForce, ...]:
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows else pd.Series(dtype="datetime64[ms, UTC]")
    by_policy: dict[str, list[int]] = {}
    for i, run in enumerate(pooled.runs):
        by_policy.setdefault(run.tags.get("cfk.policy_sha256", ""), []).append(i)
    of = {sha: times[pooled.rows["run"].isin(places).to_numpy()] for sha, places in by_policy.items()}
    asked = control.counts({sha: len(found) for sha, found in of.items()}, "policy.policies", people=False)
    policies: list[PolicyInForce] = [
        {
            "sha256": sha,
            "settings": dict(pooled.runs[places[0]].policy or {}),
            "first": _day(of[sha].min()),
            "last": _day(of[sha].max()),
            "asked": asked[sha],
        }
        for sha, places in by_policy.items()
    ]
    return tuple(sorted(policies, key=lambda one: (str(one["first"]), one["sha256"])))


def _of_params(pooled: Pooled, name: str) -> tuple[str, ...]:
    return tuple(sorted({run.params[name] for run in pooled.runs if name in run.params}))


def _deviations(pooled: Pooled, policies: int, settings: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Say what was not the same during the whole period."""
    said = [f"{policies} different policies were in force."] if policies > 1 else []
    said += [
        f"{len(values)} different {name}s: {', '.join(values)}." for name, values in settings.items() if len(values) > 1
    ]
    prints = {run.tags.get("cfk.population_fingerprint") for run in pooled.runs} - {None}
    said += [f"{len(prints)} different populations were protected."] if len(prints) > 1 else []
    return tuple(said)


def _releases(case: JudgedCase, control: Control) -> ReleaseCounts:
    """Describe what was asked for, and what became of it."""
    # What adds up to everything that was asked for: with a small one, a second one is hidden.
    parts = {name: case.figure(name).value for name in ("exact", "generalised", "prototypes", "suppressed")}
    counts = {name: int(value) for name, value in parts.items() if value is not None}
    shown = dict.fromkeys(parts, Amount()) | control.counts(counts, "releases", people=False)
    asked = control.total(counts, "releases.asked")
    complement = shown["suppressed"].band is not None  # of what was asked for
    untracked = control.amount(case.figure("untracked"), "requests", "releases.untracked")
    control.hides_released = control.external and complement
    reasons = case.pooled.suppressed["reason"].value_counts() if len(case.pooled.suppressed) else pd.Series(dtype=int)
    counted = {str(name): int(count) for name, count in sorted(reasons.items(), key=lambda item: str(item[0])) if count}
    latency = {} if control.external else {name.removeprefix("latency_"): case.figure(name) for name in LATENCIES}
    return {
        "exact": shown["exact"],
        "generalised": shown["generalised"],
        "prototypes": shown["prototypes"],
        "suppressed": shown["suppressed"],
        "asked": asked,
        "released": Amount(band=HIDDEN) if complement else Amount(value=case.figure("released").value),
        "untracked": untracked,
        "reasons": control.counts(counted, "releases.reasons", people=False),
        "latency": {name: amount if amount.measured else Amount() for name, amount in latency.items()},
    }


def _metrics(found: Mapping[str, Metric], released: Mapping[str, Any], control: Control) -> tuple[Metric, ...]:
    """Return the figures as they may be shown; counts as among the releases, where one may hide another."""
    return tuple(
        replace(
            metric,
            amount=released[name]
            if name in released
            else control.amount(metric.amount, kind_of(name), f"metrics.{name}"),
        )
        for name, metric in found.items()
        if name not in LATENCIES  # among the releases
    )


def _check(line: Line, control: Control) -> CheckResult:
    measured = control.amount(line.check.measured, line.kind, f"checks.{line.check.id}")
    return replace(line.check, measured=measured, evidence=() if control.external else line.check.evidence)


def _group(group: Group, control: Control) -> Group:
    """Hide in the external edition what tells class sizes or single explanations; small groups are pooled already."""
    if not control.external or group.metric not in ("k", "suppressed"):
        return group
    place, n = f"groups.{group.attribute}.{group.group}.{group.metric}", int(group.n.value or 0)
    kind: Kind = "class_size" if group.metric == "k" else "share_of_requests"
    exact = (Amount(value=of.value, n=n) if of.measured else Amount() for of in (group.mean, group.rest))
    mean, rest = (control.amount(amount, kind, place) for amount in exact)
    gap = Amount(band=HIDDEN) if mean.band or rest.band else group.gap
    return replace(group, mean=mean, rest=rest, gap=gap)


def _dp(evidence: Evidence) -> DpStatement | None:
    """Return what is guaranteed of the latest prototypes; None where there are none."""
    found = next((run.prototype for run in reversed(evidence.runs) if run.prototype is not None), None)
    if found is None:
        return None
    stated = {name: value for name, value in found.items() if name != "covers"}
    certificate = PrototypeCertificate(**{**stated, "inferred": tuple(stated.get("inferred", ()))})
    statement: Any = {
        **certificate.public(),
        "total": certificate.total,
        "membership_bound": certificate.membership_bound,
        "threat_models": certificate.threat_models,
    }
    return statement  # type: ignore[no-any-return]


def _environment(evidence: Evidence) -> Environment:
    """Return versions of packages and plugins, of the latest run that says them."""
    found = next((run.environment for run in reversed(evidence.runs) if run.environment is not None), {})
    plugins = {run.tags["cfk.plugins"] for run in evidence.runs if "cfk.plugins" in run.tags}
    return {
        "packages": dict(found.get("packages", {})),
        "plugins": tuple(found.get("plugins") or sorted(plugins)),
        "python": found.get("python"),
        "ledger": found.get("ledger"),
        "model": found.get("model"),
    }


def _runs(evidence: Evidence, pooled: Pooled, control: Control) -> tuple[RunLine, ...]:
    """List the runs; in the external edition none."""
    if control.external:
        return ()
    asked = {run.run_id: int((pooled.rows["run"] == i).sum()) for i, run in enumerate(pooled.runs)}
    return tuple(
        {
            "run": run.run_id,
            "name": run.name,
            "experiment": run.experiment,
            "started": _of_milliseconds(run.started),
            "asked": asked.get(run.run_id, 0),
            "verdict": run.tags.get("cfk.verdict", ""),
            "audits": tuple(str(audit.get("kind", "")) for audit in run.audits),
        }
        for run in evidence.runs
    )


def _certificates(pooled: Pooled, control: Control) -> tuple[CertificateLine, ...]:
    """List the releases with the fewest people and the lowest pureness; in the external edition none."""
    if control.external or not len(pooled.regions):
        return ()
    order = ["k", "pureness_low", "pureness"]
    worst = pooled.regions.sort_values(order, kind="stable").head(_MOST_CERTIFICATES)
    return tuple(
        {
            "id": name,
            "k": Amount(value=int(row["k"])),
            "ncp": Amount(value=float(row["ncp"])),
            "pureness": _with_interval(row),
            "optimality": _optimality(row),
            "status": "released",
        }
        for name, (_, row) in zip(pooled.evidence(worst, len(worst)), worst.iterrows(), strict=True)
    )


def _with_interval(row: pd.Series) -> Amount:
    value, low, high = (float(row[name]) for name in ("pureness", "pureness_low", "pureness_high"))
    return Amount(value=value) if row.get("exact") else Amount(value=value, low=low, high=high)


def _optimality(row: pd.Series) -> str:
    if row.get("optimal"):
        return "proved"
    gap = row.get("gap")
    return "heuristic" if gap is None or pd.isna(gap) else f"gap at most {gap:.3g}"
