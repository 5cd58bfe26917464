"""cfk audit: attack what an anonymizer releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import app, command, console
from cfk_plugin.cli.options import Desired, Guarantee, K, Method, Model, Schema

audit = typer.Typer(help="Attack what an anonymizer releases, before somebody else does.", no_args_is_help=True)
app.add_typer(audit, name="audit")


@command(
    "linkage",
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --holdout test.csv -o audit.json\n"
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --attacks linkage,model_filter --track",
    audit,
)
def audit_linkage(
    train: Annotated[Path, typer.Argument(help="Training rows, CSV or Parquet.")],
    counterfactuals: Annotated[Path, typer.Argument(help="Raw counterfactuals, CSV or Parquet.")],
    schema: Schema,
    model: Model,
    desired: Desired = "opposite",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")] = None,
    factuals: Annotated[Path | None, typer.Option(help="The instance behind each counterfactual.")] = None,
    holdout: Annotated[Path | None, typer.Option(help="People who are not in the training rows: the control.")] = None,
    k: K = None,
    guarantee: Guarantee = None,
    method: Method = "auto",
    policy: Annotated[Path | None, typer.Option(help="JSON with the settings of a policy; options win.")] = None,
    attacks: Annotated[str | None, typer.Option(help="Names with commas between; all without it.")] = None,
    limit: Annotated[int, typer.Option(help="Most counterfactuals attacked; more are sampled.", min=1)] = 100,
    simulations: Annotated[int, typer.Option(help="Runs per candidate of a randomised method.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
    track: Annotated[bool, typer.Option("--track", help="Log to MLflow.")] = False,
    experiment: Annotated[str | None, typer.Option(help="MLflow experiment; implies --track.")] = None,
) -> int:
    """Link what would be released to people: look-ups, rerunning the algorithm, asking the model, and more.

    Exit code 0 when the guarantee's promise holds, 1 when an attack leaves fewer people, 3 when that was not tested.
    """
    from cfk_plugin.commands import audit as work

    job = work.Job(
        train=train,
        schema=schema,
        model=model,
        counterfactuals=counterfactuals,
        factuals=factuals,
        holdout=holdout,
        desired=desired,
        policy=policy,
        changes={"k": k, "guarantee": guarantee},
        method=method,
        attacks=attacks,
        limit=limit,
        simulations=simulations,
        seed=seed,
        output=output,
        experiment=experiment,
        track=track,
    )
    return work.run(job, console(), console(stderr=True))
