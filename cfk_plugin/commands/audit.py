"""`cfk audit linkage`: attack what would be released for a table of counterfactuals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cfk_plugin.audit import ATTACKS, AuditReport, AuditResult, Rate, Setting, run_linkage_audit
from cfk_plugin.commands.files import check_report, read_table, write_report
from cfk_plugin.commands.inputs import Inputs
from cfk_plugin.commands.protect import progress_bar
from cfk_plugin.errors import InputError
from cfk_plugin.release.anonymizer import KAnonymizer

if TYPE_CHECKING:
    from rich.console import Console

_EXIT = {"pass": 0, "fail": 1, "review": 3}
_KEY: Mapping[str, str] = {
    "linkage": "raw_singled_out",
    "inversion_own": "k_effective_min",
    "inversion_released": "k_effective_min",
    "model_filter": "k_consistent_min",
    "steering": "k_steered_min",
    "intersection": "k_after_10_min",
    "homogeneity": "flagged",
    "uniqueness": "private_matches_one",
    "downcoding": "border_lift",
}
"""The figure of each attack that the table shows; the report holds all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk audit linkage --help``."""

    inputs: Inputs
    holdout: Path | None
    attacks: str | None
    limit: int
    simulations: int
    seed: int
    output: Path | None
    experiment: str | None
    track: bool


def run(job: Job, out: Console, err: Console) -> int:
    """Attack, show, write and log; return 0 when the guarantee holds, 1 when not, 3 when that was not tested."""
    check_report(job.output)
    attacks = _attacks(job.attacks)
    case = job.inputs.read()
    holdout = None if job.holdout is None else read_table(job.holdout)
    anonymizer = KAnonymizer(policy=case.policy, method=job.inputs.method, seed=job.seed)
    anonymizer.fit(case.population, model=case.model, desired=case.desired)
    setting = Setting(anonymizer, case.raw, case.factuals, holdout, seed=job.seed, limit=job.limit)
    with progress_bar("attacking", err) as told:
        report = run_linkage_audit(setting, attacks, simulations=job.simulations, progress=told)
    if job.output is not None:
        write_report(job.output, report.to_json(indent=1))
    if job.track or job.experiment:
        run_id = report.log(experiment=job.experiment)
        err.print(f"logged to MLflow run {run_id}", highlight=False)
    _show(report, out)
    return _EXIT[report.verdict]


def _show(report: AuditReport, out: Console) -> None:
    table = Table("attack", "success (95 %)", "baseline", "control", "key figure")
    for result in report:
        mark = "" if result.worked else " *"
        control = "–" if result.control is None else _share(result.control.value)
        table.add_row(result.attack + mark, _rate(result.main), _share(result.baseline.value), control, _key(result))
    out.print(table)
    if not all(result.worked for result in report):
        out.print("* no better than the baseline: it did not work here, which is no evidence of protection")
    out.print()
    for result in report:
        out.print(f"[bold]{result.attack}[/]: {result.scenario}", highlight=False)
    out.print()
    for check in report.checks:
        said = "not tested" if check.value is None else f"{check.value:g} people"
        out.print(f"{check.name}: {said}, promised at least {check.needed}", highlight=False)
    out.print(
        f"[bold]{report.verdict}[/]: {report.released} of {report.asked} released, guarantee "
        f"{report.policy['guarantee']}, k = {report.policy['k']}",
        highlight=False,
    )


def _key(result: AuditResult) -> str:
    name = _KEY[result.attack]
    value = result.figures.get(name, float("nan"))
    return f"{name} {'–' if math.isnan(value) else format(value, '.3g')}"


def _rate(rate: Rate) -> str:
    return f"{_share(rate.value)} ({_share(rate.low)} to {_share(rate.high)})"


def _share(value: float) -> str:
    return f"{value:.3f}"


def _attacks(text: str | None) -> list[str] | None:
    """Return the names asked for; unknown ones are refused before anything is read."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ATTACKS]:
        raise InputError(f"unknown attack {', '.join(unknown)}; known: {', '.join(ATTACKS)}")
    if not names:
        raise InputError(f"no attack was named; known: {', '.join(ATTACKS)}")
    return names
