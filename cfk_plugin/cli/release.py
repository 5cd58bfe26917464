"""cfk demo, protect, verify, sign, plugins."""

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
    "cfk verify released.json train.csv -s schema.json --desired low\n"
    "cfk verify released.json train.csv -s schema.json --key release.key.pub\n"
    "cfk verify released.json train.csv -s schema.json -m model.joblib --desired low --rerun\n"
    "cfk verify released.json --key release.key.pub",
)
def verify(
    released: Annotated[Path, typer.Argument(help="Released explanations, JSON.")],
    train: Annotated[Path | None, typer.Argument(help="The people to count, CSV or Parquet.")] = None,
    schema: Annotated[Path | None, typer.Option("--schema", "-s", help="As it was for the release.")] = None,
    key: Annotated[Path | None, typer.Option(help="Public key of whoever signed; what is not signed fails.")] = None,
    signature: Annotated[Path | None, typer.Option(help="Default: RELEASED.sig.")] = None,
    policy: Annotated[Path | None, typer.Option(help="JSON with the policy that it must have been made under.")] = None,
    k: K = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="As for protect; pureness is asked again.")] = None,
    desired: Desired = "opposite",
    rerun: Annotated[bool, typer.Option("--rerun", help="Build the guarantee's regions again, and compare.")] = False,
) -> int:
    """Check released explanations: form, signature, people, values, and what the certificates say.

    Exit code 0 when nothing is wrong, 1 when the file must not be relied on, 3 when a person has to look: nothing was
    released, the table is another one, or prototypes, which cannot be counted. What was not checked is said.
    """
    from cfk_plugin.commands import verify as work

    job = work.Job(
        released=released,
        train=train,
        schema=schema,
        key=key,
        signature=signature,
        policy=policy,
        k=k,
        model=model,
        desired=desired,
        rerun=rerun,
    )
    return work.run(job, console())


@command("sign", "cfk sign --new-key release.key\ncfk sign released.json --key release.key")
def sign(
    path: Annotated[Path | None, typer.Argument(metavar="FILE", help="What is signed, byte by byte.")] = None,
    key: Annotated[Path | None, typer.Option(help="Your private key.")] = None,
    new_key: Annotated[Path | None, typer.Option(help="Make a private key here, and a public one beside it.")] = None,
) -> int:
    """Sign a file with Ed25519, for cfk verify --key; the signature is FILE.sig.

    CFK_SIGN_PASSPHRASE encrypts and opens the private key.
    """
    from cfk_plugin.commands import sign as work

    return work.run(path, key, new_key, console())


@command("plugins", "cfk plugins\nCFK_DISABLE_PLUGINS=nice cfk plugins")
def plugins() -> int:
    """List installed plugins, their versions and what they add."""
    from cfk_plugin.commands import plugins as work

    return work.run(console())
