"""cfk audit all: attack ways of training and answering, at sizes that fit the time."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfk_plugin.cli.audit import audit
from cfk_plugin.cli.frame import command, console
from cfk_plugin.cli.options import Experiment, K, Policy, SchemaFile, Track
from cfk_plugin.errors import InputError, ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.audit.planning import Plan, Report
    from cfk_plugin.audit.result import AuditResult, Rate
    from cfk_plugin.audit.targets import Sample, Target
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.schema import Schema as Roles

    Found = Sequence[tuple[str, str, Report]]

SCHEMA_VERSION = 1
"""Version of the layout of the file that the command writes."""

_GUARANTEES = {"exact": "nominal", "reciprocal": "reciprocal", "catalogue": "catalogue"}
_AGAINST = ("raw", *_GUARANTEES, "dp", "dp-reverted")
_FEW = 20  # more outcomes than these are hardly labels, and are not shown
_SHOWN: tuple[str, ...] = ("tpr_at_0_01", "tpr_at_0_1", "gain", "advantage", "k_min", "k_consistent_min")
"""Figures of which the table shows the first that a result has."""


@command(
    "all",
    "cfk audit all people.csv -s schema.json -d yes --budget 5m\n"
    "cfk audit all people.csv -s schema.json -d yes --against raw,reciprocal,dp --only membership --budget 90s\n"
    "cfk audit all people.csv -s schema.json -d yes -m model.joblib --explainer nice --budget full -o out.json",
    audit,
    kept="with --keep, what was measured stays in its folder, and the same command goes on from there",
)
def audit_all(
    people: Annotated[
        Path, typer.Argument(help="People with their outcomes, CSV or Parquet; some are trained on, others not.")
    ],
    schema: SchemaFile,
    desired: Annotated[str, typer.Option("--desired", "-d", help="The outcome that explanations reach.")],
    target: Annotated[str | None, typer.Option(help="Column of the outcomes. Default: the schema's target.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="joblib or pickle file that you trust; trained anew. Default: a forest."),
    ] = None,
    explainer: Annotated[
        str, typer.Option(help="Name of a generator (cfk plugins lists them), or module:function that you trust.")
    ] = "nearest",
    against: Annotated[
        str, typer.Option(help="Who answers: raw, exact, reciprocal, catalogue, dp, dp-reverted; commas between.")
    ] = "raw,reciprocal",
    budget: Annotated[str, typer.Option(help="fast (3 minutes), full (30), or a time such as 90s, 5m, 1h.")] = "fast",
    only: Annotated[str | None, typer.Option(help="Audits to run, commas between; see the docs. Default: all.")] = None,
    policy: Policy = None,
    k: K = None,
    epsilon: Annotated[float, typer.Option(help="Budget of dp and dp-reverted.", min=0)] = 1.0,
    jobs: Annotated[int, typer.Option(help="Trainings at the same time; -1 on all cores.")] = 1,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
    keep: Annotated[Path | None, typer.Option(help="Folder from which a stopped audit goes on.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the reports go, .json.")] = None,
    track: Track = False,
    experiment: Experiment = None,
) -> int:
    """Measure what explanations leak: membership, extraction, attributes and links, at sizes that fit the time.

    Models are trained anew on parts of the people: attacked is the way of training and answering, not one model. Exit
    code 0 when everything was measured; the report judges.
    """
    from cfk_plugin._files import check_report, load_function, read_policy, read_schema, read_table, write_report
    from cfk_plugin.audit.planning import Scope, plan, seconds_of
    from cfk_plugin.audit.targets import Kept, Sample, full_depth_forest
    from cfk_plugin.plugins import generator

    check_report(output)
    seconds, wanted, who = seconds_of(budget), _audits(only), _who(against)
    rules = read_policy(policy, {"k": k})
    explain = load_function(explainer) if ":" in explainer else generator(explainer)
    table = read_table(people)
    roles = read_schema(schema, table)
    sample = Sample(table[list(roles.features)], _outcomes(table, roles, target, desired))
    trained = full_depth_forest(sample.X) if model is None else _estimator(model)
    targets = tuple(_target(name, trained, explain, roles, rules, epsilon, sample) for name in who)
    sensitive = roles.names("sensitive")
    scope = Scope(roles.quasi_identifiers, explain, sensitive[0] if sensitive else None)
    wanted = [name for name in wanted if name != "attribute_surrogate" or sensitive]
    planned = plan(targets, sample, scope, seconds, audits=wanted, n_jobs=jobs, seed=seed)
    _show_plan(planned, targets, sample, scope, wanted)
    given = {"desired": desired, "target": target, "model": model, "explainer": explainer, "against": ""}
    # Kept results know their targets by name alone: other settings have a folder of their own.
    kept = None if keep is None else Kept(keep / _fingerprint(schema, given, policy, k, epsilon))
    found = _attack(targets, sample, scope, planned, seed=seed, n_jobs=jobs, kept=kept)
    if output is not None:
        write_report(output, _text(budget, planned, found))
    if track or experiment:
        _log(found, experiment or "cfk-audits")
    _show(found)
    return 0


def _attack(targets: Sequence[Target], sample: Sample, scope: Any, planned: Plan, **options: Any) -> Found:
    """Run what was planned; say what is done as it comes."""
    from cfk_plugin._files import progress_bar
    from cfk_plugin.audit.planning import run_planned

    found, err = [], console(stderr=True)
    with progress_bar("attacking", err) as told:
        for who, name, report in run_planned(targets, sample, scope, planned, **options, progress=told):
            found.append((who, name, report))
            err.print(f"{name} of {who}: done", highlight=False)
    return found


def _target(
    name: str, model: Any, explain: Any, roles: Roles, rules: PrivacyPolicy, epsilon: float, sample: Sample
) -> Target:
    """Return one of those who answer."""
    from dataclasses import replace

    from cfk_plugin.audit.targets import ProtectedOwner, PrototypeOwner, RawOwner, measured_schema

    if name == "raw":
        return RawOwner(name, model, explain)
    if name in _GUARANTEES:
        rules = replace(rules, guarantee=_GUARANTEES[name])  # type: ignore[arg-type]  # one of the table
        return ProtectedOwner(name, model, None if name == "catalogue" else explain, schema=roles, rules=rules)
    domains = measured_schema(sample, roles.quasi_identifiers)
    return PrototypeOwner(name, model, domains, epsilon, revert=name == "dp-reverted")


def _who(text: str) -> list[str]:
    """Return the names of who is attacked, each once."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in _AGAINST] or (not names and ["nothing"]):
        raise InputError(f"--against {', '.join(unknown)}: known are {', '.join(_AGAINST)}")
    return names


def _outcomes(table: pd.DataFrame, roles: Roles, target: str | None, desired: str) -> NDArray[np.bool_]:
    """Return who has the desired outcome."""
    name = target or roles.target
    if name is None:
        raise InputError('which column holds the true outcomes? Give --target, or "target" in the schema')
    if name not in table or name in roles.features:
        where = "is a feature; outcomes are none" if name in table else "is no column of the table"
        raise InputError(f"--target {name}: {where}; declare it as target in the schema, or name another column")
    column = table[name]
    if column.isna().any():
        raise InputError(f"column {name} has people without an outcome; leave them out")
    found = column.astype(str) == desired
    if not found.any() or found.all():
        labels = sorted(map(str, column.unique()))
        known = ", ".join(labels) if len(labels) <= _FEW else f"{len(labels)} outcomes"
        raise InputError(f"--desired {desired}: some people must have it and some not; {name} has {known}")
    return found.to_numpy()


def _estimator(location: str) -> Any:
    """Load an estimator that can be trained again; what it was fitted on is forgotten."""
    from cfk_plugin._files import load_model

    model = load_model(location)
    if not all(hasattr(model, method) for method in ("fit", "get_params", "predict_proba")):
        raise ModelError(
            f"{location}: a {type(model).__name__} cannot be trained again; give a scikit-learn classifier or pipeline "
            "with predict_proba, or leave --model out for a random forest"
        )
    return model


def _fingerprint(schema: Path, given: dict[str, str | None], policy: Path | None, k: int | None, epsilon: float) -> str:
    """Return a hash of everything that a target depends on beside the people: settings, and contents of files."""
    settings = {"people": Path(), "schema": schema, **given, "policy": policy, "k": k, "epsilon": epsilon}
    # In this form, so that folders of before are found.
    found = hashlib.sha256(f"Inputs({', '.join(f'{name}={value!r}' for name, value in settings.items())})".encode())
    for path in (schema, policy, given["model"]):
        found.update(Path(path).read_bytes() if path is not None and Path(path).is_file() else b"")
    return found.hexdigest()[:16]


def _show_plan(planned: Plan, targets: Sequence[Target], sample: Sample, scope: Any, audits: Sequence[str]) -> None:
    """Say before it starts how long it takes, what it will show and what it will not."""
    from cfk_plugin.audit.planning import AuditTask, can_detect, format_duration

    err = console(stderr=True)
    err.print(
        f"{len(planned.seconds)} audits, about {format_duration(planned.total)}; "
        f"models are trained on {planned.people} of {len(sample)} people",
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
    task = AuditTask(targets[0], sample, planned.sizes, scope)
    for name in audits:
        err.print(f"  {name}: {can_detect(name, task)}", highlight=False)


def _audits(text: str | None) -> list[str]:
    """Return the names asked for; unknown ones are refused before anything is read."""
    from cfk_plugin.audit.planning import AUDITS

    if text is None:
        return list(AUDITS)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or (unknown := [name for name in names if name not in AUDITS]):
        raise InputError(f"--only {', '.join(unknown) if names else 'names nothing'}: known are {', '.join(AUDITS)}")
    return [name for name in AUDITS if name in names]


def _text(budget: str, planned: Plan, found: Found) -> str:
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": "all",
        "budget": budget,
        "seconds_expected": planned.total,
        "sizes": planned.sizes._asdict() | {"people": planned.people},
        "reports": [{"owner": owner, "audit": audit, **report.to_dict()} for owner, audit, report in found],
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)


def _log(found: Found, experiment: str) -> None:
    """Log each owner's audits to a run of its own: a report judges one service."""
    runs, err = {}, console(stderr=True)
    for owner, _, report in found:
        if owner not in runs:
            runs[owner] = report.log(experiment=experiment, run_name=f"audit of {owner}")
            err.print(f"{owner}: logged to MLflow run {runs[owner]}", highlight=False)
        else:
            report.log(runs[owner])


def _show(found: Found) -> None:
    from rich import box
    from rich.table import Table

    out = console()
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
