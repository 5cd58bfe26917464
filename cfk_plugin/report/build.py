"""From evidence to report: compute, judge, hide, say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.errors import InputError
from cfk_plugin.release.results import PrototypeCertificate
from cfk_plugin.report.attacks import attacks, shown_attack
from cfk_plugin.report.checks import Case, Judgement, judged, verdict
from cfk_plugin.report.data import Amount, Check, Edition, Group, Metric, ReportData
from cfk_plugin.report.disclosure import HIDDEN, Control, Figure, Kind
from cfk_plugin.report.figures import Pooled, distributions, figures, groups, latest_population
from cfk_plugin.report.inputs import HumanInputs, Threshold, placeholders, thresholds
from cfk_plugin.report.statements import controls, criteria, definitions_of, limits, not_covered, techniques

if TYPE_CHECKING:
    from cfk_plugin.report.data import Status
    from cfk_plugin.report.figures import Pooled
    from cfk_plugin.report.runs import Evidence


_MOST_CERTIFICATES = 50
_LATENCIES = {"p50": "latency_p50", "p95": "latency_p95", "p99": "latency_p99"}


def day(moment: pd.Timestamp | datetime | None) -> str | None:
    """Write a moment as ISO 8601 in UTC, to the second."""
    return (
        None
        if moment is None or pd.isna(moment)
        else pd.Timestamp(moment).tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def of_milliseconds(value: int | None) -> str | None:
    """Write milliseconds since 1970 as ISO 8601."""
    return None if value is None else day(datetime.fromtimestamp(value / 1000, UTC))


def describe_population(evidence: Evidence, figures: Mapping[str, Figure], control: Control) -> dict[str, Any]:
    """Describe the population before protection, in bands."""
    facts = latest_population(evidence) or {}
    counts = {name: control.amount(_people(facts.get(name)), f"population.{name}") for name in ("people", "rows")}
    shares = {name: control.amount(figures[name], f"population.{name}") for name in ("unique", "below_k")}
    about = {"subject_key": facts.get("subject_key"), "fingerprint": facts.get("fingerprint"), "k": facts.get("k")}
    prints = {run.population.get("fingerprint") for run in evidence.runs if run.population is not None}
    return {**counts, **shares, **about, "populations": len(prints - {None})}


def _people(count: int | str | None) -> Figure:
    """Return a number to be shown in bands; one that the run hides stays hidden."""
    if isinstance(count, str):
        return Figure(value=None, kind="people", band=count)
    return Figure(value=count, kind="people")


def describe_attributes(evidence: Evidence, control: Control) -> tuple[dict[str, Any], ...]:
    """Describe the attributes: roles and kinds as declared, numbers of distinct values in bands."""
    facts = latest_population(evidence) or {}
    return tuple(
        {
            "name": attribute["name"],
            "role": attribute["role"],
            "kind": attribute["kind"],
            "weight": attribute.get("weight"),
            "distinct": control.amount(
                _people(attribute.get("distinct")),
                f"attributes.{attribute['name']}.distinct",
            ),
            "bounds_source": attribute.get("bounds") or "not needed",
        }
        for attribute in facts.get("attributes", ())
    )


def describe_policy(pooled: Pooled, preset: str | None, control: Control) -> dict[str, Any]:
    """Describe the policies in force, and how settings changed in the period."""
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows else pd.Series(dtype="datetime64[ms, UTC]")
    by_policy: dict[str, dict[str, Any]] = {}
    for i, run in enumerate(pooled.runs):
        found = times[(pooled.rows["run"] == i).to_numpy()]
        sha = run.tags.get("cfk.policy_sha256", "")
        one = by_policy.setdefault(sha, {"settings": dict(run.policy or {}), "times": [], "asked": 0})
        one["times"] += [found.min(), found.max()]
        one["asked"] += len(found)
    counts = {sha: int(one["asked"]) for sha, one in by_policy.items()}
    asked = control.counts(counts, "policy.policies", people=False)
    policies = [
        {
            "sha256": sha,
            "settings": one["settings"],
            "first": day(min(one["times"])),
            "last": day(max(one["times"])),
            "asked": asked[sha],
        }
        for sha, one in by_policy.items()
    ]
    policies.sort(key=lambda one: (str(one["first"]), str(one["sha256"])))
    environments = [run.environment for run in pooled.runs if run.environment is not None]
    settings = {name: _of_params(pooled, f"cfk.{name}") for name in ("method", "guarantee", "generator")}
    return {
        "preset": preset,
        "policies": policies,
        "methods": settings["method"],
        "guarantees": settings["guarantee"],
        "generators": settings["generator"],
        "seed": sorted({str(found["seed"]) for found in environments if found.get("seed") is not None}),
        "deviations": _deviations(pooled, policies, settings),
    }


def _of_params(pooled: Pooled, name: str) -> list[str]:
    return sorted({run.params[name] for run in pooled.runs if name in run.params})


def _deviations(pooled: Pooled, policies: list[dict[str, Any]], settings: Mapping[str, list[str]]) -> list[str]:
    """Say what was not the same during the whole period."""
    said = [f"{len(policies)} different policies were in force."] if len(policies) > 1 else []
    said += [
        f"{len(values)} different {name}s: {', '.join(values)}." for name, values in settings.items() if len(values) > 1
    ]
    prints = {run.tags.get("cfk.population_fingerprint") for run in pooled.runs} - {None}
    said += [f"{len(prints)} different populations were protected."] if len(prints) > 1 else []
    return said


def describe_releases(figures: Mapping[str, Figure], pooled: Pooled, control: Control) -> dict[str, Any]:
    """Describe what was asked for, and what became of it."""
    # What adds up to everything that was asked for: with a small one, a second one is hidden.
    parts = ("exact", "generalised", "prototypes", "suppressed")
    counts = {name: int(figures[name].value or 0) for name in parts if figures[name].value is not None}
    found: dict[str, Any] = dict.fromkeys(parts, Amount()) | control.counts(counts, "releases", people=False)
    found["asked"] = control.total(counts, "releases.asked")
    complement = found["suppressed"].band is not None  # of what was asked for
    released = Amount(band=HIDDEN) if complement else Amount(value=figures["released"].value)
    found |= {"released": released, "untracked": control.amount(figures["untracked"], "releases.untracked")}
    control.hides_released = control.external and complement
    reasons = pooled.suppressed["reason"].value_counts() if len(pooled.suppressed) else pd.Series(dtype=int)
    counted = {str(name): int(count) for name, count in sorted(reasons.items(), key=lambda item: str(item[0])) if count}
    found["reasons"] = control.counts(counted, "releases.reasons", people=False)
    latencies = {
        short: control.amount(figures[name], f"releases.latency.{short}") for short, name in _LATENCIES.items()
    }
    return found | {"latency": {} if control.external else latencies}


def describe_runs(evidence: Evidence, pooled: Pooled, control: Control) -> tuple[dict[str, Any], ...]:
    """List the runs; in the external edition none."""
    if control.external:
        return ()
    asked = {run.run_id: int((pooled.rows["run"] == i).sum()) for i, run in enumerate(pooled.runs)}
    return tuple(
        {
            "run": run.run_id,
            "name": run.name,
            "experiment": run.experiment,
            "started": of_milliseconds(run.started),
            "asked": asked.get(run.run_id, 0),
            "verdict": run.tags.get("cfk.verdict", ""),
            "audits": [str(audit.get("kind", "")) for audit in run.audits],
        }
        for run in evidence.runs
    )


def describe_certificates(pooled: Pooled, control: Control) -> tuple[dict[str, Any], ...]:
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


def describe_dp(evidence: Evidence) -> dict[str, Any] | None:
    """Return what is guaranteed of the latest prototypes; None where there are none."""
    found = next((run.prototype for run in reversed(evidence.runs) if run.prototype is not None), None)
    if found is None:
        return None
    stated = {name: value for name, value in found.items() if name != "covers"}
    certificate = PrototypeCertificate(**{**stated, "inferred": tuple(stated.get("inferred", ()))})
    total = certificate.total
    return {
        **certificate.public(),
        "total": None if total is None else list(total),
        "membership_bound": certificate.membership_bound,
        "threat_models": certificate.threat_models,
    }


def describe_environment(evidence: Evidence) -> dict[str, Any]:
    """Return versions of packages and plugins, of the latest run that says them."""
    found = next((run.environment for run in reversed(evidence.runs) if run.environment is not None), None) or {}
    plugins = found.get("plugins") or sorted(
        {run.tags["cfk.plugins"] for run in evidence.runs if "cfk.plugins" in run.tags}
    )
    return {
        "packages": dict(found.get("packages", {})),
        "plugins": list(plugins),
        "python": found.get("python"),
        "ledger": found.get("ledger"),
        "model": found.get("model"),
    }


def circumstances(evidence: Evidence, pooled: Pooled) -> dict[str, Any]:
    """Return what the limits depend on."""
    facts = latest_population(evidence) or {}
    roles = {attribute["name"]: attribute["role"] for attribute in facts.get("attributes", ())}
    known = [(run.environment or {}).get("ledger") for run in pooled.runs]
    certificate = describe_dp(evidence)
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


_NO_METRIC = ("latency_p50", "latency_p95", "latency_p99")  # among the releases


def build(
    evidence: Evidence,
    *,
    inputs: HumanInputs | None = None,
    preset: str | None = None,
    edition: Edition = "internal",
    command: str = "",
    previous: ReportData | None = None,
) -> ReportData:
    """Make a report from what runs hold.

    Parameters
    ----------
    evidence : Evidence
    inputs : HumanInputs, optional
        What people say; without it every question is a placeholder.
    preset : str, optional
        Thresholds with a source: "paper", "cms-11", "ema-0070", "k20". Default: what the policies of the runs ask for.
    edition : {"internal", "external"}
        The external edition has bands in the place of class sizes and small counts, and names no run.
    command : str
        How the report was made; not in the external edition.
    previous : ReportData, optional
        An earlier report of the same edition, to say what changed.

    Returns
    -------
    ReportData
        The same evidence gives the same data.

    Raises
    ------
    InputError
        If there is no run, the preset or edition is unknown, or the earlier report is of the other edition.
    """
    if not evidence.runs:
        raise InputError("a report needs at least one run with explanations or audits")
    if edition not in ("internal", "external"):
        raise InputError(f"edition must be internal or external, got {edition!r}")
    inputs = inputs or HumanInputs()
    case = _case(evidence, inputs, thresholds(preset, inputs))
    control = Control(edition, case.pooled.k)
    # First, as it decides whether anything may tell the number of releases.
    released = describe_releases(case.figures, case.pooled, control)
    checks = tuple(_check(line, control) for line in judged(case))
    said = circumstances(evidence, case.pooled)
    head = _report(case, edition, command, verdict(check.status for check in checks), uncovered(said))
    return _named(_with_changes(_data(case, control, head, released, checks, said, preset), previous))


def _case(evidence: Evidence, inputs: HumanInputs, asked: Mapping[str, Threshold]) -> Case:
    """Compute everything that checks look at."""
    least = asked["k"].value
    pooled = Pooled.of(evidence, None if least is None else int(least))
    return Case(
        evidence=evidence,
        pooled=pooled,
        figures=figures(evidence, pooled),
        inputs=inputs,
        thresholds=asked,
        groups=groups(pooled),
        attacks=attacks(evidence),
        placeholders=len(placeholders(inputs)),
    )


def _data(
    case: Case,
    control: Control,
    head: Mapping[str, Any],
    released: Mapping[str, Any],
    checks: tuple[Check, ...],
    said: Mapping[str, Any],
    preset: str | None,
) -> ReportData:
    """Put together what may be shown."""
    evidence, pooled = case.evidence, case.pooled
    metrics = _metrics(case.figures, released, control)
    ran = tuple(shown_attack(attack, control) for attack in case.attacks)
    floor = case.threshold("pureness", "min_pureness")[0].value
    return ReportData(
        report=head,
        system=case.inputs.system(),
        population=describe_population(evidence, case.figures, control),
        attributes=describe_attributes(evidence, control),
        policy=_policy(case, control, said, preset),
        releases=released,
        checks=checks,
        metrics=metrics,
        distributions=distributions(evidence, pooled, case.attacks, control, floor),
        groups=tuple(_group(group, control) for group in case.groups),
        attacks=ran,
        criteria=judged_criteria({check.id: check.status for check in checks}, said, pooled),
        dp=describe_dp(evidence),
        limits=tuple(limits(**said)),
        placeholders=placeholders(case.inputs),
        sign_off=case.inputs.signatures(),
        controls=tuple(dict(control) for control in controls()),
        environment=describe_environment(evidence),
        runs=describe_runs(evidence, pooled, control),
        certificates=describe_certificates(pooled, control),
        changes=None,
        suppressed_cells=tuple(sorted(set(control.hidden))),
        definitions=definitions_of(checks, metrics, ran),
    )


def _policy(case: Case, control: Control, said: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    policy = describe_policy(case.pooled, preset, control)
    withheld = len(case.pooled.suppressed) > 0
    asked = [
        {"id": t.id, "value": t.value, "source": t.source} for t in case.thresholds.values() if t.value is not None
    ]
    named = techniques(policy["methods"], said["guarantees"], withheld=withheld)
    return {**policy, "thresholds": asked, "techniques": named}


def _report(case: Case, edition: Edition, command: str, found: str, uncovered: Iterable[str]) -> dict[str, Any]:
    evidence, pooled, inputs = case.evidence, case.pooled, case.inputs
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows and len(pooled) else None
    first, last = (None, None) if times is None else (day(times.min()), day(times.max()))
    latest = of_milliseconds(max(run.started for run in evidence.runs))
    names = sorted({run.experiment for run in evidence.runs if run.experiment})
    return {
        "id": "",
        "edition": edition,
        "title": f"Privacy report: {inputs.answers.get('system') or ', '.join(names) or 'explanations'}",
        "verdict": found,
        "period": {
            "first": first,
            "last": last,
            "since": of_milliseconds(evidence.since),
            "until": of_milliseconds(evidence.until),
        },
        "as_of": max(filter(None, (last, latest)), default=None),
        "reason": inputs.reason,
        "command": "" if edition == "external" else command,
        "not_covered": list(uncovered),
    }


def _metrics(found: Mapping[str, Figure], released: Mapping[str, Any], control: Control) -> tuple[Metric, ...]:
    """Return the figures as they may be shown; counts as among the releases, where one may hide another."""
    return tuple(
        Metric(
            id=name,
            amount=released[name] if name in released else control.amount(figure, f"metrics.{name}"),
            section=figure.section,
            method=figure.method,
        )
        for name, figure in found.items()
        if name not in _NO_METRIC
    )


def _check(line: Judgement, control: Control) -> Check:
    return Check(
        id=line.id,
        status=line.status,
        measured=control.amount(line.measured, f"checks.{line.id}"),
        threshold=control.amount(line.threshold, f"checks.{line.id}.threshold"),
        source=line.source,
        section=line.section,
        text=line.text,
        evidence=() if control.external else line.evidence,
    )


def _group(group: Group, control: Control) -> Group:
    """Hide in the external edition what tells class sizes or single explanations; small groups are pooled already."""
    if not control.external or group.metric not in ("k", "suppressed"):
        return group
    place, n = f"groups.{group.attribute}.{group.group}.{group.metric}", int(group.n.value or 0)
    kind: Kind = "class_size" if group.metric == "k" else "share_of_requests"
    mean, rest = (control.amount(Figure(value=of.value, n=n, kind=kind), place) for of in (group.mean, group.rest))
    gap = Amount(band=HIDDEN) if mean.band or rest.band else group.gap
    return replace(group, mean=mean, rest=rest, gap=gap)


def _with_changes(data: ReportData, previous: ReportData | None) -> ReportData:
    if previous is None:
        return data
    from cfk_plugin.report.summaries import compare

    return replace(data, changes=tuple(compare(previous, data)))


def _named(data: ReportData) -> ReportData:
    """Name a report by its content: the same evidence, the same name."""
    digest = hashlib.sha256(data.to_json().encode()).hexdigest()[:16]
    return replace(data, report={**data.report, "id": digest})
