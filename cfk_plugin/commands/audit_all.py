"""`cfk audit all`: attack ways of training and answering, at sizes that fit the time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from cfk_plugin._files import check_report, progress_bar, write_report
from cfk_plugin.audit.planning import (
    AUDITS,
    AuditTask,
    Plan,
    Report,
    can_detect,
    format_duration,
    plan,
    run_planned,
    seconds_of,
)
from cfk_plugin.audit.targets import Kept
from cfk_plugin.commands.attacked import Case, Inputs
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.audit.result import AuditResult, Rate

SCHEMA_VERSION = 1
"""Version of the layout of the file that the command writes."""

_SHOWN: tuple[str, ...] = ("tpr_at_0_01", "tpr_at_0_1", "gain", "advantage", "k_min", "k_consistent_min")
"""Figures of which the table shows the first that a result has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk audit all --help``."""

    inputs: Inputs
    budget: str
    only: str | None
    jobs: int
    seed: int
    keep: Path | None
    output: Path | None
    experiment: str | None
    track: bool


def run(job: Job, out: Console, err: Console) -> int:
    """Plan, say what that can show, attack, write and log; return 0 when everything was measured."""
    check_report(job.output)
    seconds, audits = seconds_of(job.budget), _audits(job.only)
    case = job.inputs.read()
    wanted = [name for name in audits if name != "attribute_surrogate" or case.scope.attribute is not None]
    planned = plan(case.owners, case.sample, case.scope, seconds, audits=wanted, n_jobs=job.jobs, seed=job.seed)
    _say(planned, case, wanted, err)
    found: list[tuple[str, str, Report]] = []
    # Kept results know their owners by name alone: other settings have a folder of their own.
    kept = None if job.keep is None else Kept(job.keep / job.inputs.fingerprint())
    with progress_bar("attacking", err) as told:
        options: dict[str, Any] = {"seed": job.seed, "n_jobs": job.jobs, "kept": kept, "progress": told}
        for owner, audit, report in run_planned(case.owners, case.sample, case.scope, planned, **options):
            found.append((owner, audit, report))
            err.print(f"{audit} of {owner}: done", highlight=False)
    if job.output is not None:
        write_report(job.output, _text(job, planned, found))
    if job.track or job.experiment:
        _log(job, found, err)
    _show(found, out)
    return 0


def _say(planned: Plan, case: Case, audits: Sequence[str], err: Console) -> None:
    """Say before it starts how long it takes, what it will show and what it will not."""
    err.print(
        f"{len(planned.seconds)} audits, about {format_duration(planned.total)}; "
        f"models are trained on {planned.people} of {len(case.sample)} people",
        highlight=False,
    )
    for few, why in ((True, "people are too few"), (False, "the budget is too small")):
        names = [
            f"{name} of {owner}" + ("" if few else f" ({format_duration(needed)})")
            for (owner, name), needed in planned.left_out.items()
            if math.isnan(needed) == few
        ]
        if names:
            err.print(f"left out, as {why}: {', '.join(names)}", highlight=False)
    audits = [name for name in audits if any(audit == name for _, audit in planned.seconds)]
    task = AuditTask(case.owners[0], case.sample, planned.sizes, case.scope)
    for name in audits:
        err.print(f"  {name}: {can_detect(name, task)}", highlight=False)


def _audits(text: str | None) -> list[str]:
    """Return the names asked for; unknown ones are refused before anything is read."""
    if text is None:
        return list(AUDITS)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or (unknown := [name for name in names if name not in AUDITS]):
        raise InputError(f"--only {', '.join(unknown) if names else 'names nothing'}: known are {', '.join(AUDITS)}")
    return [name for name in AUDITS if name in names]


def _text(job: Job, planned: Plan, found: Sequence[tuple[str, str, Report]]) -> str:
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": "all",
        "budget": job.budget,
        "seconds_expected": planned.total,
        "sizes": planned.sizes._asdict() | {"people": planned.people},
        "reports": [{"owner": owner, "audit": audit, **report.to_dict()} for owner, audit, report in found],
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)


def _log(job: Job, found: Sequence[tuple[str, str, Report]], err: Console) -> None:
    """Log each owner's audits to a run of its own: a report judges one service."""
    runs: dict[str, str] = {}
    for owner, _, report in found:
        if owner not in runs:
            runs[owner] = report.log(experiment=job.experiment or "cfk-audits", run_name=f"audit of {owner}")
            err.print(f"{owner}: logged to MLflow run {runs[owner]}", highlight=False)
        else:
            report.log(runs[owner])


def _show(found: Sequence[tuple[str, str, Report]], out: Console) -> None:
    scenarios: dict[str, str] = {}
    for who in dict.fromkeys(owner for owner, _, _ in found):
        table = Table("attack", "success (95 %)", "baseline", "control", "key figure", title=who, box=box.SIMPLE_HEAD)
        for result in (result for owner, _, report in found if owner == who for result in report):
            if "/" in result.attack:  # of a single attribute; the file has them
                continue
            mark = "" if result.worked or math.isnan(result.main.value) else " *"
            control = "–" if result.control is None else _share(result.control.value)
            table.add_row(
                result.attack + mark, _rate(result.main), _share(result.baseline.value), control, _key(result)
            )
            scenarios.setdefault(result.attack, result.scenario)
        out.print(table)
    out.print(
        "* no better than the baseline: it did not work here, which is no evidence of protection", highlight=False
    )
    out.print()
    for name, scenario in scenarios.items():
        out.print(f"[bold]{name}[/]: {scenario}", highlight=False)


def _key(result: AuditResult) -> str:
    name = next((name for name in _SHOWN if not math.isnan(result.figures.get(name, math.nan))), None)
    return "" if name is None else f"{name} {result.figures[name]:.2g}"


def _rate(rate: Rate) -> str:
    if math.isnan(rate.value):
        return "nothing to attack"
    return f"{_share(rate.value)} ({_share(rate.low)}–{_share(rate.high)})"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
