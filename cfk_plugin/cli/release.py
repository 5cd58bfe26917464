"""cfk demo, protect, verify, plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import command, console
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


@command("demo", "cfk demo\ncfk demo --k 5 --patients 40 --folder /tmp/cfk")
def demo(
    k: Annotated[int, typer.Option("--k", help="Least number of people behind an explanation.")] = 10,
    patients: Annotated[int, typer.Option(help="Patients to explain.", min=1)] = 20,
    folder: Annotated[Path, typer.Option(help="Where the MLflow store is written.")] = Path(),
) -> int:
    """Protect the explanations of real patients, before and after, and log them to MLflow."""
    from cfk_plugin.demo import run

    return run(k=k, patients=patients, folder=folder, console=console())


@command(
    "protect",
    "cfk protect train.csv cf.csv -s schema.json -m model.joblib --desired low -o released.json\n"
    "cfk protect train.parquet cf.csv -s schema.json -m models:/credit/3 --k 5 --track -o released.csv",
)
def protect(
    train: Train,
    counterfactuals: Counterfactuals,
    schema: Schema,
    model: Model,
    desired: Desired = "opposite",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=".json, .csv or .parquet; JSON on stdout without it."),
    ] = None,
    factuals: Factuals = None,
    k: K = None,
    guarantee: Guarantee = None,
    method: Method = "auto",
    policy: Policy = None,
    objective: Annotated[str | None, typer.Option(help="pureness, ncp or weighted.")] = None,
    min_pureness: Annotated[float | None, typer.Option(help="Withhold what is less pure.")] = None,
    max_ncp: Annotated[float | None, typer.Option(help="Withhold what loses more information.")] = None,
    ledger: Annotated[str | None, typer.Option(help="Ledger of releases: SQLite file or postgresql URL.")] = None,
    track: Track = False,
    experiment: Experiment = None,
) -> int:
    """Turn raw counterfactuals into k-anonymous explanations.

    Exit code 0 when all are released, 3 when some are withheld, 1 when all are.
    """
    from cfk_plugin.commands import protect as work
    from cfk_plugin.commands.inputs import Inputs

    changes = {"k": k, "guarantee": guarantee, "objective": objective, "min_pureness": min_pureness, "max_ncp": max_ncp}
    inputs = Inputs(train, schema, model, counterfactuals, factuals, desired, policy, changes, method)
    job = work.Job(inputs=inputs, output=output, ledger=ledger, experiment=experiment, track=track)
    return work.run(job, console(), console(stderr=True))


@command(
    "verify",
    "cfk verify released.json train.csv -s schema.json\ncfk verify released.json train.csv -s schema.json --k 20",
)
def verify(
    released: Annotated[Path, typer.Argument(help="Released explanations, JSON.")],
    train: Annotated[Path, typer.Argument(help="The people to count, CSV or Parquet.")],
    schema: Schema,
    k: K = None,
) -> int:
    """Recount released explanations against a population, from the regions alone.

    Exit code 0 when every region holds k people, 1 when one does not, 3 when nothing was released or a
    certificate says something else than the recount. Without --k, the k of the file's own policy is asked for.
    """
    from cfk_plugin.commands import verify as work

    return work.run(released, train, schema, k, console())


@command("plugins", "cfk plugins\nCFK_DISABLE_PLUGINS=nice cfk plugins")
def plugins() -> int:
    """List installed plugins, their versions and what they add."""
    from cfk_plugin.commands import plugins as work

    return work.run(console())
