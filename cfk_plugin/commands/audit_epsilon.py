"""`cfk audit epsilon`: bound the epsilon of a function from below."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.audit import EpsilonAudit, canaries_needed, canary_audit, one_run_audit, runs_needed
from cfk_plugin.audit.epsilon import Jobs, neighbours, seconds_needed
from cfk_plugin.commands.files import check_report, load_function, read_schema, read_table, write_report
from cfk_plugin.commands.protect import progress_bar
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.data.schema import Schema

_EXIT = {"pass": 0, "fail": 1, "review": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk audit epsilon --help``."""

    train: Path
    schema: Path
    claimed: float
    method: str | None
    fit: str | None
    canary: Path | None
    delta: float
    runs: int
    one_run: bool
    score: str | None
    relation: str
    jobs: int
    backend: str
    seed: int
    output: Path | None
    experiment: str | None
    track: bool


def run(job: Job, out: Console, err: Console) -> int:
    """Audit, show, write and log; return 0 when the claim is not refuted, 1 when it is, 3 when it could not be."""
    check_report(job.output)
    table = read_table(job.train)
    schema = read_schema(job.schema, table)
    canary = _canary(job).drop(columns=list(schema.names("identifier")), errors="ignore")
    table = table.drop(columns=list(schema.names("identifier")))
    fit, score = _audited(job, schema, canary)
    claim: dict[str, Any] = {"claimed": job.claimed, "delta": job.delta, "seed": job.seed}
    options: dict[str, Any] = {**claim, "score": score, "schema": schema}
    if job.one_run:
        report = one_run_audit(fit, table, canary, **options)
    else:
        _say_cost(job, fit, table, canary, schema, err)
        options |= {"runs": job.runs, "relation": job.relation, "n_jobs": job.jobs, "backend": job.backend}
        with progress_bar("running", err) as told:
            report = canary_audit(fit, table, canary, progress=told, **options)
    if job.output is not None:
        write_report(job.output, report.to_json(indent=1))
    if job.track or job.experiment:
        run_id = report.log(experiment=job.experiment)
        err.print(f"logged to MLflow run {run_id}", highlight=False)
    _show(report, out)
    return _EXIT[report.verdict]


def _audited(job: Job, schema: Schema, canary: pd.DataFrame) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return what is audited, and how its outputs are judged: a function of the user's, or a method of ours."""
    if (job.method is None) == (job.fit is None):
        raise InputError(f"give --fit module:function, or --method ({', '.join(_METHODS)}), and not both")
    if job.fit is not None:
        return load_function(job.fit), None if job.score is None else load_function(job.score)
    if job.method is None or job.method not in _METHODS:
        raise InputError(f"unknown method {job.method}; known: {', '.join(_METHODS)}")
    if job.score is not None:
        raise InputError("--score goes with --fit; a method is judged by all that it asks of the rows")
    return _METHODS[job.method](job, schema, canary)


def _prototypes(job: Job, schema: Schema, canary: pd.DataFrame) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the noised questions of `DPPrototypes` at the claimed budget; who sees them sees more than any answer."""
    from cfk_plugin.dp.audited import Measurements, measuring

    def score(found: Measurements) -> Any:
        return found.scores(canary) if job.one_run else found.seen(canary)

    return measuring(schema, job.claimed, job.delta), score


_METHODS: Mapping[str, Callable[..., tuple[Callable[..., Any], Callable[..., Any]]]] = {"dp": _prototypes}


def _canary(job: Job) -> pd.DataFrame:
    """Read the canary; a made-up person is the user's to choose, as only they know which values are rare together."""
    if job.canary is None:
        many = canaries_needed(job.claimed, job.delta)
        few = f"{many or 'many'} made-up people, one row each" if job.one_run else "one made-up person"
        raise InputError(
            f"--canary is missing: give {few}, with the columns of the training table and values that are rare "
            "together there, inside the declared domains; never a row of the table"
        )
    if job.canary.suffix.lower() != ".json":
        return read_table(job.canary)
    failure = ""
    try:
        content = json.loads(job.canary.read_text(encoding="utf-8"))
        return pd.DataFrame(content if isinstance(content, list) else [content])
    except Exception as error:  # noqa: BLE001 - its text quotes the file
        failure = type(error).__name__
    raise InputError(f"{job.canary}: not a row, or a list of rows, as JSON ({failure})")


def _say_cost(
    job: Job, fit: Callable[..., Any], table: pd.DataFrame, canary: pd.DataFrame, schema: Schema, err: Console
) -> None:
    worlds = neighbours(table, canary, schema, job.relation, job.seed)  # type: ignore[arg-type]  # checked there
    Jobs(job.jobs, job.backend, job.seed)  # type: ignore[arg-type]  # refuses wrong settings before anything runs
    needed = runs_needed(job.claimed, job.delta)
    seconds = seconds_needed(fit, worlds, job.runs, n_jobs=job.jobs)
    said = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    err.print(f"{2 * job.runs} runs, about {said}", highlight=False)
    if needed is None or needed > job.runs:
        err.print("so few runs cannot refute the claim, however much is given away", highlight=False)


def _show(report: EpsilonAudit, out: Console) -> None:
    out.print(
        f"epsilon is at least [bold]{report.epsilon_low:.2f}[/] ({report.confidence:.0%}); claimed {report.claimed:g}, "
        f"delta {report.delta:g}; these sizes could show at most {report.ceiling:.2f}",
        highlight=False,
    )
    rate = report.main
    out.print(f"guesses right: {rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f}) of {rate.n}", highlight=False)
    if report.tpr is not None and report.fpr is not None:
        out.print(f"canary found: {report.tpr.value:.3f} with it, {report.fpr.value:.3f} without it", highlight=False)
    out.print(f"neighbouring tables: {report.relation}", highlight=False)
    out.print(report.scenario, highlight=False)
    if report.warning is not None:
        out.print(f"[bold]note[/]: {report.warning}", highlight=False)
    out.print(f"[bold]{report.verdict}[/]: {report.advice}", highlight=False)
