"""cfk audit, and its linkage and epsilon: attack what would be released, before others do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.frame import app, command, console, say, show
from cfk_plugin.errors import InputError, ModelError, quiet

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.audit import AuditReport, AuditResult, EpsilonAudit
    from cfk_plugin.audit.suite import AuditSelection, FinishedAudit
    from cfk_plugin.audit.targets import ExplainerFactory, Sample, Target
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.schema import Schema as Roles

_SUITE = "suite"


class RunsSuiteByDefault(TyperGroup):
    """`cfk audit PEOPLE ...` runs the suite of audits, unless the first word is a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in own:
            self._refuse_other_names(ctx, args[0])
            args = [_SUITE, *args]
        return super().parse_args(ctx, args)

    def _refuse_other_names(self, ctx: Any, word: str) -> None:
        """Refuse a word that can be neither an option nor a table: a subcommand was meant."""
        if word.startswith("-") or Path(word).suffix or Path(word).exists():
            return
        ctx.fail(f"{word!r} is neither a table nor one of {', '.join(sorted(self.commands))}")


audit = typer.Typer(
    cls=RunsSuiteByDefault,
    help=(
        "Attack what would be released, before others do.\n\n"
        "`cfk audit PEOPLE -s SCHEMA -d OUTCOME` runs all audits of explanations: see"
        " `cfk audit suite --help`."
    ),
    no_args_is_help=True,
)
app.add_typer(audit, name="audit")


def _show(
    results: Sequence[AuditResult], figures: Callable[[AuditResult], Sequence[str]], **title: Any
) -> None:
    """Show a table of results, each with the first of `figures` that it has; the report holds all
    of them.
    """
    rows = []
    for result in results:
        main, measured = result.main, not math.isnan(result.main.value)
        known = [
            name for name in figures(result) if not math.isnan(result.figures.get(name, math.nan))
        ]
        others = (
            "–" if r is None or math.isnan(r.value) else f"{r.value:.3f}"
            for r in (result.baseline, result.control)
        )
        name = result.attack + (" *" if measured and not result.worked else "")
        reached = (
            f"{main.value:.3f} ({main.low:.3f}–{main.high:.3f})"
            if measured
            else "nothing to attack"
        )
        rows.append(
            (name, reached, *others, f"{known[0]} {result.figures[known[0]]:.3g}" if known else "")
        )
    show(("attack", "success (95 %)", "baseline", "control", "key figure"), rows, **title)


def _explain(results: Sequence[AuditResult]) -> None:
    if not all(result.worked for result in results):
        say(
            "* no better than the baseline: it did not work here, which is no evidence of"
            " protection"
        )
    say("")
    for attack, scenario in {result.attack: result.scenario for result in results}.items():
        say(f"[bold]{attack}[/]: {scenario}", markup=True)


@command(
    "linkage",
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --holdout test.csv -o"
    " audit.json\ncfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low"
    " --attacks linkage,model_filter --track",
    audit,
)
def audit_linkage(
    given: opt.RawInputs,
    place: opt.ReportPlace,
    holdout: Annotated[
        Path | None, typer.Option(help="People who are not in the training rows: the control.")
    ] = None,
    attacks: Annotated[
        str | None, typer.Option(help="Names, separated by commas. Default: all.")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Most counterfactuals attacked; more are sampled.", min=1)
    ] = 100,
    seed: opt.Seed = 0,
) -> int:
    """Link what would be released to people: by quasi-identifiers, the model or private values.

    Exit code 0 when the guarantee's promise holds, 1 when an attack leaves fewer people, 3 when
    that was not tested.
    """
    from cfk_plugin._files import check_report, code_columns, progress_bar, read_table
    from cfk_plugin.audit import ATTACKS, Setting, run_linkage_audit
    from cfk_plugin.release.anonymizer import KAnonymizer

    check_report(place.output)
    names, case = opt.names("--attacks", attacks, ATTACKS), given.read()
    others = None if holdout is None else read_table(holdout, code_columns(given.schema))
    anonymizer = KAnonymizer(policy=case.policy, method=given.method, random_state=seed)
    anonymizer.fit(case.population, model=case.model, desired=case.desired)
    setting = Setting(anonymizer, case.raw, case.factuals, others, seed=seed, limit=limit)
    with progress_bar("attacking", console(stderr=True)) as told:
        report = run_linkage_audit(setting, names, progress=told)
    place.keep(report)
    _say_checks(report)
    _show(report.results, lambda result: (_KEY[result.attack],))
    _explain(report.results)
    return opt.EXIT[report.verdict]


_KEYS_OF_ALL = ("tpr_at_0_01", "tpr_at_0_1", "gain", "advantage", "k_min", "k_consistent_min")
"""Figures in order of preference: the table shows the first one that a result has."""
_KEY = {
    "linkage": "raw_singled_out",
    "model_filter": "k_consistent_min",
    "uniqueness": "private_matches_one",
}
"""The figure that the table shows, by attack."""


def _say_worst(finished: Sequence[FinishedAudit]) -> None:
    """Show the largest area of all attacks on membership that use explanations, by owner."""
    from cfk_plugin.audit.result import AttackReport

    for each in finished:
        if each.audit == "membership" and isinstance(each.report, AttackReport):
            worst = each.report.worst
            reached = "nothing to attack"
            if worst is not None:
                area = worst.main
                reached = f"AUC {area.value:.3f} ({area.low:.3f}–{area.high:.3f}) by {worst.attack}"
            say(f"membership of {each.owner}, the worst of all that use explanations: {reached}")


def _say_checks(report: AuditReport) -> None:
    """Show the verdict, and what it is about: the numbers that the guarantee promises."""
    say(
        f"[bold]{report.verdict}[/]: {report.released} of {report.asked} released, guarantee "
        f"{report.policy['guarantee']}, k = {report.policy['k']}",
        markup=True,
    )
    for check in report.checks:
        said = "not tested" if check.value is None else f"{check.value:g} people"
        say(f"{check.name}: {said}, promised at least {check.needed}")
    say("")


@command(
    "epsilon",
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --method dp --canary canary.json\ncfk"
    " audit epsilon train.csv -s schema.json --claimed 1 --fit mine:release --canary canary.json -o"
    " report.json\ncfk audit epsilon train.csv -s schema.json --claimed 1 --fit mine:release"
    " --canary many.csv --one-run",
    audit,
)
def audit_epsilon(
    train: opt.Train,
    schema: opt.SchemaFile,
    place: opt.ReportPlace,
    claimed: Annotated[float, typer.Option(help="The epsilon that the function claims.", min=0)],
    method: Annotated[
        str | None, typer.Option(help="dp: the prototypes of this package, at the claimed budget.")
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(help="Or module:function that you trust, from a table to what is released."),
    ] = None,
    canary: Annotated[
        Path | None,
        typer.Option(help="A made-up person: .json (one row, or a list), .csv or .parquet."),
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta that it claims.", min=0)] = 0.0,
    runs: Annotated[
        int, typer.Option(help="Runs with the canary, and the same number without.", min=20)
    ] = 400,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="One run; coins put each canary in or out.")
    ] = False,
    score: Annotated[
        str | None,
        typer.Option(
            help="module:function, from an output to the score (or scores) of the canary."
        ),
    ] = None,
    relation: Annotated[
        str, typer.Option(help="Neighbouring tables: add-remove or replace-one.")
    ] = "add-remove",
    seed: opt.Seed = 0,
) -> int:
    """Bound the epsilon of a function from below, by how well its outputs tell whether somebody was
    in the table.

    Exit code 0 when the claim is not refuted (which proves nothing), 1 when it is, 3 when so few
    runs never could.
    """
    from cfk_plugin._files import (
        check_report,
        code_columns,
        load_function,
        progress_bar,
        read_rows,
    )
    from cfk_plugin.audit import canary_audit, one_run_audit, runs_needed
    from cfk_plugin.dp.audited import measuring

    check_report(place.output)
    rows, roles = read_rows(train, schema)
    identifiers = list(roles.names("identifier"))
    _check_audited(method, fit, score)
    people = _read_canary(canary, code_columns(schema), claimed, delta, one_run).drop(
        columns=identifiers, errors="ignore"
    )
    rows = rows.drop(columns=identifiers)
    if fit is not None:
        audited, judge = load_function(fit), None if score is None else load_function(score)
    else:  # The noised statistics of `DPPrototypes`, which disclose more than any answer.
        audited = measuring(roles, claimed, delta)
        judge = (
            (lambda found: found.scores(people)) if one_run else (lambda found: found.seen(people))
        )
    claim: dict[str, Any] = {
        "claimed": claimed,
        "delta": delta,
        "seed": seed,
        "score": judge,
        "schema": roles,
    }
    if one_run:
        report = one_run_audit(audited, rows, people, **claim)
    else:
        _show_runs(runs, runs_needed(claimed, delta))
        claim |= {"runs": runs, "relation": relation}
        with progress_bar("running", console(stderr=True)) as told:
            report = canary_audit(audited, rows, people, progress=told, **claim)
    place.keep(report)
    _say_bound(report)
    return opt.EXIT[report.verdict]


def _check_audited(method: str | None, fit: str | None, score: str | None) -> None:
    if (method is None) == (fit is None):
        raise InputError("give --fit module:function, or --method (dp), and not both")
    if method not in (None, "dp"):
        raise InputError(f"unknown method {method}; known: dp")
    if method is not None and score is not None:
        raise InputError(
            "--score goes with --fit; a method is judged by all that it asks of the rows"
        )


def _show_runs(n_runs: int, n_needed: int | None) -> None:
    """Show how often the function will run, and whether that can refute the claim."""
    say(f"{2 * n_runs} runs", stderr=True)
    if n_needed is None or n_needed > n_runs:
        say("so few runs cannot refute the claim, however much is given away", stderr=True)


def _read_canary(
    path: Path | None, codes: set[str], claimed: float, delta: float, one_run: bool
) -> pd.DataFrame:
    """Read the canary. The user chooses it: only they know which values are rare together."""
    import pandas as pd

    from cfk_plugin._files import read_table
    from cfk_plugin.audit import canaries_needed

    if path is None:
        many = canaries_needed(claimed, delta)
        few = f"{many or 'many'} made-up people, one row each" if one_run else "one made-up person"
        raise InputError(
            f"--canary is missing: give {few}, with the columns of the training table and values"
            " that are rare together there, inside the declared domains; never a row of the table"
        )
    if path.suffix.lower() != ".json":
        return read_table(path, codes)
    # an error's text quotes the file
    with quiet(f"{path}: not a row, or a list of rows, as JSON ({{}})", InputError):
        content = json.loads(path.read_text(encoding="utf-8"))
        return pd.DataFrame(content if isinstance(content, list) else [content])


def _say_bound(report: EpsilonAudit) -> None:
    say(
        f"epsilon is at least [bold]{report.epsilon_low:.2f}[/] ({report.confidence:.0%}); claimed"
        f" {report.claimed:g}, delta {report.delta:g}; these sizes could show at most"
        f" {report.ceiling:.2f}",
        markup=True,
    )
    rate = report.main
    say(f"guesses right: {rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f}) of {rate.n}")
    if report.tpr is not None and report.fpr is not None:
        say(f"canary found: {report.tpr.value:.3f} with it, {report.fpr.value:.3f} without it")
    say(f"neighbouring tables: {report.relation}")
    say(report.scenario)
    if report.warning is not None:
        say(f"[bold]note[/]: {report.warning}", markup=True)
    say(f"[bold]{report.verdict}[/]: {report.advice}", markup=True)


_AGAINST = ("raw", "exact", "catalogue", "dp", "dp-moved")
_FEW = 20  # more outcomes than this are hardly labels, and are not listed


@command(
    _SUITE,
    "cfk audit people.csv -s schema.json -d yes\ncfk audit people.csv -s schema.json -d yes"
    " --against raw,catalogue,dp --only membership\ncfk audit people.csv -s schema.json -d yes"
    " -m model.joblib --explainer nice -o out.json",
    audit,
)
def audit_suite(
    people: Annotated[
        Path,
        typer.Argument(
            help="People with their outcomes, CSV or Parquet; models are trained on some of them."
        ),
    ],
    schema: opt.SchemaFile,
    place: opt.ReportPlace,
    desired: Annotated[
        str, typer.Option("--desired", "-d", help="The outcome that explanations reach.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Column of the outcomes. Default: the schema's target.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="joblib or pickle file that you trust; trained anew. Default: a forest.",
        ),
    ] = None,
    explainer: Annotated[
        str,
        typer.Option(
            help="Name of a generator (cfk plugins lists them), or module:function that you trust."
        ),
    ] = "nearest",
    against: Annotated[
        str,
        typer.Option(
            help=("Who answers: raw, exact, catalogue, dp, dp-moved; separated by commas.")
        ),
    ] = "raw,catalogue",
    only: Annotated[
        str | None, typer.Option(help="Audits to run, commas between; see the docs. Default: all.")
    ] = None,
    policy: opt.Policy = None,
    k: opt.K = None,
    objective: opt.Objective = None,
    epsilon: Annotated[float, typer.Option(help="Budget of dp and dp-moved.", min=0)] = 1.0,
    seed: opt.Seed = 0,
) -> int:
    """Measure what explanations leak: membership, extraction, attributes and links.

    Models are trained anew on parts of the people: the attacks are on the way of training and
    answering, not on one model. Exit code 0 when everything was measured; the report judges.
    """
    import cfk_plugin._files as files
    from cfk_plugin.audit.suite import AUDITS, Scope, run_audits, select_audits
    from cfk_plugin.audit.targets import Sample, full_depth_forest

    files.check_report(place.output)
    audits = opt.names("--only", only, AUDITS)
    owner_names = opt.names("--against", against, _AGAINST)
    rules = files.read_policy(policy, {"k": k, "objective": objective})
    make_explainer = _explainer_factory(explainer)
    table, roles = files.read_rows(people, schema)
    sample = Sample(table[list(roles.features)], _outcomes(table, roles, target, desired))
    if model is None:
        estimator = full_depth_forest(sample.X)
    else:
        estimator = _estimator(model)
    owners = [
        _owner(name, estimator, make_explainer, roles, rules, epsilon, sample)
        for name in owner_names
    ]
    scope = Scope(quasi_identifiers=roles.quasi_identifiers, explainer=make_explainer)
    selection = select_audits(owners, sample, scope, audits=audits, seed=seed)
    _show_selection(selection)
    finished = []
    with files.progress_bar("attacking", console(stderr=True)) as progress:
        for done in run_audits(selection, progress=progress):
            finished.append(done)
            say(f"{done.audit} of {done.owner}: done", stderr=True)
    if place.output is not None:
        files.write_report(place.output, _report_text(selection, finished))
    if place.track or place.experiment:
        _log(finished, place.experiment or "cfk-audits")
    _show_finished(finished)
    return 0


def _explainer_factory(name: str) -> ExplainerFactory:
    """Return what makes an explainer: a function of the user's, or a generator by name."""
    from cfk_plugin._files import load_function
    from cfk_plugin.plugins import generator

    if ":" in name:
        return load_function(name)
    return generator(name)


def _owner(
    name: str,
    model: Any,
    explainer: ExplainerFactory,
    roles: Roles,
    rules: PrivacyPolicy,
    epsilon: float,
    sample: Sample,
) -> Target:
    """Return the owner for a name of `_AGAINST`; check that it can be trained, but do not."""
    from cfk_plugin.audit.targets import (
        GUARANTEES,
        PrototypeOwner,
        RawOwner,
        measured_schema,
        protected_owner,
    )
    from cfk_plugin.dp.noise import load_opendp

    if name == "raw":
        return RawOwner(name=name, model=model, explainer=explainer)
    if name in GUARANTEES:
        return protected_owner(name, model, explainer, rules, schema=roles)
    owner = PrototypeOwner(
        name=name,
        model=model,
        schema=measured_schema(sample, roles.quasi_identifiers),
        epsilon=epsilon,
        move_towards_query=name == "dp-moved",
    )
    load_opendp()  # raises if it is not installed
    return owner


def _outcomes(
    table: pd.DataFrame, roles: Roles, target: str | None, desired: str
) -> NDArray[np.bool_]:
    from cfk_plugin.data.outcome import DesiredOutcome, desired_of_text

    name = target or roles.target
    if name is None:
        raise InputError(
            'which column holds the true outcomes? Give --target, or "target" in the schema'
        )
    if name not in table or name in roles.features:
        where = "is a feature; outcomes are none" if name in table else "is no column of the table"
        raise InputError(
            f"--target {name}: {where}; declare it as target in the schema, or name another column"
        )
    column = table[name]
    if column.isna().any():
        raise InputError(f"column {name} has people without an outcome; leave them out")
    labels = column.unique().tolist()
    desired_outcome = DesiredOutcome.of(desired_of_text(desired, labels, str))
    found = desired_outcome.is_eligible(column.to_numpy(dtype=object))
    if not found.any() or found.all():
        known = (
            ", ".join(sorted(map(str, labels)))
            if len(labels) <= _FEW
            else f"{len(labels)} outcomes"
        )
        raise InputError(
            f"--desired {desired}: some people must have it and some not; {name} has {known}"
        )
    return found


def _estimator(location: str) -> Any:
    """Load an estimator that can be trained again, without its fit."""
    from cfk_plugin._files import load_model

    model = load_model(location)
    if not all(hasattr(model, method) for method in ("fit", "get_params", "predict_proba")):
        raise ModelError(
            f"{location}: a {type(model).__name__} cannot be trained again; give a scikit-learn"
            " classifier or pipeline with predict_proba, or leave --model out for a random forest"
        )
    return model


def _show_selection(selection: AuditSelection) -> None:
    """Show what will be run, what it can show, and what is left out."""
    from cfk_plugin.audit.suite import TRAINED_ON, describe_left_out, describe_power

    task = selection.selected[0].task
    n_people = len(task.sample)
    n_audits = len(selection.selected)
    first_line = f"{n_audits} audits; models are trained on {task.n_train:,} of {n_people:,} people"
    if task.n_train < TRAINED_ON:
        first_line += f", too few for {TRAINED_ON:,}"
    say(first_line, stderr=True)
    for sentence in describe_left_out(selection.left_out):
        say(f"left out: {sentence}", stderr=True)
    for sentence in describe_power(selection):
        say(f"  {sentence}", stderr=True)


def _report_text(selection: AuditSelection, finished: Sequence[FinishedAudit]) -> str:
    """Return the JSON of all reports, with what was left out."""
    from cfk_plugin.audit.result import SCHEMA_VERSION

    task = selection.selected[0].task
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": "all",
        "people": len(task.sample),
        "left_out": [asdict(each) for each in selection.left_out],
        "reports": [
            {"owner": each.owner, "audit": each.audit, **each.report.to_dict()} for each in finished
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)


def _log(finished: Sequence[FinishedAudit], experiment: str) -> None:
    """Log the audits of each owner to a run of its own: a report judges one service."""
    run_of_owner: dict[str, str] = {}
    for each in finished:
        owner = each.owner
        if owner in run_of_owner:
            each.report.log(run_of_owner[owner])
        else:
            run_id = each.report.log(experiment=experiment, run_name=f"audit of {owner}")
            run_of_owner[owner] = run_id
            say(f"{owner}: logged to MLflow run {run_id}", stderr=True)


def _show_finished(finished: Sequence[FinishedAudit]) -> None:
    """Show a table per owner; a result with "/" is of a single attribute, and only in the file."""
    from rich import box

    results_of_owner: dict[str, list[AuditResult]] = {}
    for each in finished:
        results = [result for result in each.report if "/" not in result.attack]
        results_of_owner.setdefault(each.owner, []).extend(results)
    for owner, results in results_of_owner.items():
        _show(results, lambda _: _KEYS_OF_ALL, title=owner, box=box.SIMPLE_HEAD)
    _say_worst(finished)
    _explain([result for results in results_of_owner.values() for result in results])
