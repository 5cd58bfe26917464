"""From evidence to report: compute, judge, hide, say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import InputError
from cfk_plugin.report.assessment import described
from cfk_plugin.report.assessment.audits import attacks
from cfk_plugin.report.assessment.checks import Case, Judgement, judged, verdict
from cfk_plugin.report.assessment.circumstances import circumstances, judged_criteria, uncovered
from cfk_plugin.report.assessment.control import HIDDEN, Control, Figure, Kind
from cfk_plugin.report.assessment.distributions import distributions
from cfk_plugin.report.assessment.figures import figures
from cfk_plugin.report.assessment.groups import groups
from cfk_plugin.report.assessment.pooled import Pooled
from cfk_plugin.report.assessment.shown import shown_attack
from cfk_plugin.report.data import Amount, Check, Edition, Group, Metric, ReportData
from cfk_plugin.report.inputs import HumanInputs, placeholders
from cfk_plugin.report.statements.controls import controls
from cfk_plugin.report.statements.limits import limits
from cfk_plugin.report.statements.named import definitions_of
from cfk_plugin.report.statements.presets import Threshold, thresholds
from cfk_plugin.report.statements.techniques import techniques

if TYPE_CHECKING:
    from cfk_plugin.report.evidence import Evidence

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
    released = described.releases(case.figures, case.pooled, control)
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
        population=described.population(evidence, case.figures, control),
        attributes=described.attributes(evidence, control),
        policy=_policy(case, control, said, preset),
        releases=released,
        checks=checks,
        metrics=metrics,
        distributions=distributions(evidence, pooled, case.attacks, control, floor),
        groups=tuple(_group(group, control) for group in case.groups),
        attacks=ran,
        criteria=judged_criteria({check.id: check.status for check in checks}, said, pooled),
        dp=described.dp(evidence),
        limits=tuple(limits(**said)),
        placeholders=placeholders(case.inputs),
        sign_off=case.inputs.signatures(),
        controls=tuple(dict(control) for control in controls()),
        environment=described.environment(evidence),
        runs=described.runs(evidence, pooled, control),
        certificates=described.certificates(pooled, control),
        changes=None,
        suppressed_cells=tuple(sorted(set(control.hidden))),
        definitions=definitions_of(checks, metrics, ran),
    )


def _policy(case: Case, control: Control, said: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    policy = described.policy(case.pooled, preset, control)
    withheld = len(case.pooled.suppressed) > 0
    asked = [
        {"id": t.id, "value": t.value, "source": t.source} for t in case.thresholds.values() if t.value is not None
    ]
    named = techniques(policy["methods"], said["guarantees"], withheld=withheld)
    return {**policy, "thresholds": asked, "techniques": named}


def _report(case: Case, edition: Edition, command: str, found: str, uncovered: Iterable[str]) -> dict[str, Any]:
    evidence, pooled, inputs = case.evidence, case.pooled, case.inputs
    times = pooled.rows["timestamp"] if "timestamp" in pooled.rows and len(pooled) else None
    first, last = (None, None) if times is None else (described.day(times.min()), described.day(times.max()))
    latest = described.of_milliseconds(max(run.started for run in evidence.runs))
    names = sorted({run.experiment for run in evidence.runs if run.experiment})
    return {
        "id": "",
        "edition": edition,
        "title": f"Privacy report: {inputs.answers.get('system') or ', '.join(names) or 'explanations'}",
        "verdict": found,
        "period": {
            "first": first,
            "last": last,
            "since": described.of_milliseconds(evidence.since),
            "until": described.of_milliseconds(evidence.until),
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
