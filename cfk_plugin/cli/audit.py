"""cfk audit: attack what an anonymizer releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    Schema,
    Track,
    Train,
)

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
    schema: Schema,
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
    from cfk_plugin.commands import audit as work
    from cfk_plugin.commands.inputs import Inputs

    changes = {"k": k, "guarantee": guarantee}
    job = work.Job(
        inputs=Inputs(train, schema, model, counterfactuals, factuals, desired, policy, changes, method),
        holdout=holdout,
        attacks=attacks,
        limit=limit,
        simulations=simulations,
        seed=seed,
        output=output,
        experiment=experiment,
        track=track,
    )
    return work.run(job, console(), console(stderr=True))


@command(
    "utility",
    "cfk audit utility train.csv queries.csv cf.csv -s schema.json -m model.joblib -d low --holdout test.csv",
    audit,
)
def audit_utility(
    train: Train,
    queries: Annotated[Path, typer.Argument(help="Every query asked, CSV or Parquet.")],
    counterfactuals: Annotated[
        Path, typer.Argument(help="One row per query, or with a column 'query': its position, from 0.")
    ],
    schema: Schema,
    model: Model,
    desired: Desired = "opposite",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")] = None,
    holdout: Annotated[Path | None, typer.Option(help="People who are not in the training rows: chance.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
) -> int:
    """Measure counterfactuals of any method: do they flip, how far are they, does the data support them, are they rows.

    Exit code 0, or 3 when no query was answered: the figures are no promise that could fail.
    """
    from cfk_plugin.commands import utility as work

    job = work.Job(
        train=train,
        queries=queries,
        counterfactuals=counterfactuals,
        schema=schema,
        model=model,
        desired=desired,
        holdout=holdout,
        output=output,
        seed=seed,
    )
    return work.run(job, console())


@command(
    "frontier",
    "cfk audit frontier train.csv cf.csv -s schema.json -m model.joblib -d low --plot frontier.png\n"
    "cfk audit frontier train.csv cf.csv -s schema.json -m model.joblib -d low --ks 2,5,10,20 -o frontier.json --track",
    audit,
)
def audit_frontier(
    train: Train,
    counterfactuals: Counterfactuals,
    schema: Schema,
    model: Model,
    desired: Desired = "opposite",
    ks: Annotated[str | None, typer.Option(help="The k to try, with commas between; 2 to 30 without it.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the figures go, .json.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Where the plot goes, .png, .svg or .pdf.")] = None,
    factuals: Factuals = None,
    k: Annotated[int | None, typer.Option("--k", help="The k in use: a line in the plot.")] = None,
    guarantee: Guarantee = None,
    method: Method = "auto",
    policy: Policy = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with no protection and with Mondrian over the whole table.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
    track: Track = False,
    experiment: Experiment = None,
) -> int:
    """Measure what every k would cost: information loss, pureness and what is withheld, on the same counterfactuals.

    Nothing is released. Exit code 0, or 3 when nothing could be at any k.
    """
    from cfk_plugin.commands import audit_frontier as work
    from cfk_plugin.commands.inputs import Inputs

    changes = {"k": k, "guarantee": guarantee}
    job = work.Job(
        inputs=Inputs(train, schema, model, counterfactuals, factuals, desired, policy, changes, method),
        ks=ks,
        compare=compare,
        seed=seed,
        output=output,
        plot=plot,
        experiment=experiment,
        track=track,
    )
    return work.run(job, console(), console(stderr=True))


@command(
    "epsilon",
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --method dp --canary canary.json\n"
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --fit mine:release --canary canary.json -o report.json\n"
    "cfk audit epsilon train.csv -s schema.json --claimed 1 --fit mine:release --canary many.csv --one-run",
    audit,
)
def audit_epsilon(
    train: Train,
    schema: Schema,
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
    from cfk_plugin.commands import audit_epsilon as work

    job = work.Job(
        train=train,
        schema=schema,
        claimed=claimed,
        method=method,
        fit=fit,
        canary=canary,
        delta=delta,
        runs=runs,
        one_run=one_run,
        score=score,
        relation=relation,
        jobs=jobs,
        backend=backend,
        seed=seed,
        output=output,
        experiment=experiment,
        track=track,
    )
    return work.run(job, console(), console(stderr=True))
