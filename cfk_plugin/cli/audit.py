"""cfk audit: attack what an anonymizer releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfk_plugin.cli.frame import app, command, console
from cfk_plugin.cli.options import (
    Counterfactuals,
    Desired,
    Experiment,
    Factuals,
    Guarantee,
    K,
    Method,
    Model,
    Policy,
    SchemaFile,
    Track,
    Train,
)
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from cfk_plugin.audit import AuditReport, AuditResult, EpsilonAudit, Rate
    from cfk_plugin.data.schema import Schema as Roles

audit = typer.Typer(help="Attack what would be released, before others do; see what it costs.", no_args_is_help=True)
app.add_typer(audit, name="audit")


@command(
    "linkage",
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --holdout test.csv -o audit.json\n"
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --attacks linkage,model_filter --track",
    audit,
)
def audit_linkage(
    train: Train,
    counterfactuals: Counterfactuals,
    schema: SchemaFile,
    model: Model,
    desired: Desired = "opposite",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")] = None,
    factuals: Factuals = None,
    holdout: Annotated[Path | None, typer.Option(help="People who are not in the training rows: the control.")] = None,
    k: K = None,
    guarantee: Guarantee = None,
    method: Method = "auto",
    policy: Policy = None,
    attacks: Annotated[str | None, typer.Option(help="Names with commas between; all without it.")] = None,
    limit: Annotated[int, typer.Option(help="Most counterfactuals attacked; more are sampled.", min=1)] = 100,
    simulations: Annotated[int, typer.Option(help="Runs per candidate of a randomised method.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
    track: Track = False,
    experiment: Experiment = None,
) -> int:
    """Link what would be released to people: look-ups, rerunning the algorithm, asking the model, and more.

    Exit code 0 when the guarantee's promise holds, 1 when an attack leaves fewer people, 3 when that was not tested.
    """
    from cfk_plugin._files import check_report, progress_bar, read_inputs, read_table
    from cfk_plugin.audit import Setting, run_linkage_audit
    from cfk_plugin.release.anonymizer import KAnonymizer

    check_report(output)
    names = _attacks(attacks)
    case = read_inputs(train, counterfactuals, schema, model, desired, factuals, policy, k=k, guarantee=guarantee)
    others = None if holdout is None else read_table(holdout)
    anonymizer = KAnonymizer(policy=case.policy, method=method, seed=seed)
    anonymizer.fit(case.population, model=case.model, desired=case.desired)
    setting = Setting(anonymizer, case.raw, case.factuals, others, seed=seed, limit=limit)
    with progress_bar("attacking", console(stderr=True)) as told:
        report = run_linkage_audit(setting, names, simulations=simulations, progress=told)
    keep(report, output, track, experiment)
    _show_attacks(report, console())
    return EXIT[report.verdict]


def _attacks(text: str | None) -> list[str] | None:
    """Return the names asked for; unknown ones are refused before anything is read."""
    from cfk_plugin.audit import ATTACKS

    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ATTACKS]:
        raise InputError(f"unknown attack {', '.join(unknown)}; known: {', '.join(ATTACKS)}")
    if not names:
        raise InputError(f"no attack was named; known: {', '.join(ATTACKS)}")
    return names


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


def _show_attacks(report: AuditReport, out: Console) -> None:
    from rich.table import Table

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


@command(
    "epsilon",
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --method dp --canary canary.json\n"
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --fit mine:release --canary canary.json -o report.json\n"
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --fit mine:release --canary many.csv --one-run",
    audit,
)
def audit_epsilon(
    train: Train,
    schema: SchemaFile,
    claimed: Annotated[float, typer.Option(help="The epsilon that the function promises.", min=0)],
    method: Annotated[
        str | None, typer.Option(help="dp: the prototypes of this package, at the claimed budget.")
    ] = None,
    fit: Annotated[
        str | None, typer.Option(help="Or module:function that you trust, from a table to what is released.")
    ] = None,
    canary: Annotated[
        Path | None, typer.Option(help="A made-up person: .json (one row, or a list), .csv or .parquet.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta that it promises.", min=0)] = 0.0,
    runs: Annotated[int, typer.Option(help="Runs with the canary, and as many without.", min=20)] = 400,
    one_run: Annotated[bool, typer.Option("--one-run", help="One run, many canaries in or out by coins.")] = False,
    score: Annotated[
        str | None, typer.Option(help="module:function, from an output to a number or numbers that give it away.")
    ] = None,
    relation: Annotated[str, typer.Option(help="Neighbouring tables: add-remove or replace-one.")] = "add-remove",
    jobs: Annotated[int, typer.Option(help="Runs at the same time; -1 on all cores.")] = 1,
    backend: Annotated[str, typer.Option(help="auto, processes or threads; see the docs.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn here.", min=0)] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")] = None,
    track: Track = False,
    experiment: Experiment = None,
) -> int:
    """Bound the epsilon of a function from below, by how well its outputs tell whether somebody was in the table.

    Exit code 0 when the claim is not refuted (which proves nothing), 1 when it is, 3 when so few runs never could.
    """
    from cfk_plugin._files import check_report, progress_bar, read_schema, read_table
    from cfk_plugin.audit import canary_audit, one_run_audit, runs_needed
    from cfk_plugin.audit.epsilon import Jobs, neighbours, seconds_needed

    check_report(output)
    rows = read_table(train)
    roles = read_schema(schema, rows)
    identifiers = list(roles.names("identifier"))
    people = _read_canary(canary, claimed, delta, one_run).drop(columns=identifiers, errors="ignore")
    rows = rows.drop(columns=identifiers)
    audited, judge = _audited(method, fit, score, roles, people, claimed=claimed, delta=delta, one_run=one_run)
    options: dict[str, Any] = {"claimed": claimed, "delta": delta, "seed": seed, "score": judge, "schema": roles}
    if one_run:
        report = one_run_audit(audited, rows, people, **options)
    else:
        err = console(stderr=True)
        worlds = neighbours(rows, people, roles, relation, seed)  # type: ignore[arg-type]  # checked there
        Jobs(jobs, backend, seed)  # type: ignore[arg-type]  # refuses wrong settings before anything runs
        needed, seconds = runs_needed(claimed, delta), seconds_needed(audited, worlds, runs, n_jobs=jobs)
        said = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        err.print(f"{2 * runs} runs, about {said}", highlight=False)
        if needed is None or needed > runs:
            err.print("so few runs cannot refute the claim, however much is given away", highlight=False)
        options |= {"runs": runs, "relation": relation, "n_jobs": jobs, "backend": backend}
        with progress_bar("running", err) as told:
            report = canary_audit(audited, rows, people, progress=told, **options)
    keep(report, output, track, experiment)
    _show_epsilon(report, console())
    return EXIT[report.verdict]


def _audited(
    method: str | None,
    fit: str | None,
    score: str | None,
    roles: Roles,
    canary: pd.DataFrame,
    *,
    claimed: float,
    delta: float,
    one_run: bool,
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return what is audited, and how its outputs are judged: a function of the user's, or a method of ours."""
    from cfk_plugin._files import load_function
    from cfk_plugin.dp.audited import Measurements, measuring

    if (method is None) == (fit is None):
        raise InputError("give --fit module:function, or --method (dp), and not both")
    if fit is not None:
        return load_function(fit), None if score is None else load_function(score)
    if method != "dp":
        raise InputError(f"unknown method {method}; known: dp")
    if score is not None:
        raise InputError("--score goes with --fit; a method is judged by all that it asks of the rows")

    def judge(found: Measurements) -> Any:
        return found.scores(canary) if one_run else found.seen(canary)

    # The noised questions of `DPPrototypes`: whoever sees them sees more than any answer.
    return measuring(roles, claimed, delta), judge


def _read_canary(path: Path | None, claimed: float, delta: float, one_run: bool) -> pd.DataFrame:
    """Read the canary; a made-up person is the user's to choose, as only they know which values are rare together."""
    import json

    import pandas as pd

    from cfk_plugin._files import read_table
    from cfk_plugin.audit import canaries_needed

    if path is None:
        many = canaries_needed(claimed, delta)
        few = f"{many or 'many'} made-up people, one row each" if one_run else "one made-up person"
        raise InputError(
            f"--canary is missing: give {few}, with the columns of the training table and values that are rare "
            "together there, inside the declared domains; never a row of the table"
        )
    if path.suffix.lower() != ".json":
        return read_table(path)
    failure = ""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return pd.DataFrame(content if isinstance(content, list) else [content])
    except Exception as error:  # noqa: BLE001 - its text quotes the file
        failure = type(error).__name__
    raise InputError(f"{path}: not a row, or a list of rows, as JSON ({failure})")


def _show_epsilon(report: EpsilonAudit, out: Console) -> None:
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


EXIT = {"pass": 0, "fail": 1, "review": 3}


def keep(report: Any, output: Path | None, track: bool, experiment: str | None) -> None:
    """Write a report, and log it, where that was asked for."""
    from cfk_plugin._files import write_report

    if output is not None:
        write_report(output, report.to_json(indent=1))
    if track or experiment:
        run_id = report.log(experiment=experiment)
        console(stderr=True).print(f"logged to MLflow run {run_id}", highlight=False)
