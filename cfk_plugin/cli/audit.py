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

audit = typer.Typer(help="Attack what an anonymizer releases, before somebody else does.", no_args_is_help=True)
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
