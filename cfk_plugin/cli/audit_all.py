"""cfk audit all: attack a way of training and answering, in the time there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.audit import audit
from cfk_plugin.cli.frame import command, console
from cfk_plugin.cli.options import Experiment, K, Policy, SchemaFile, Track


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
    from cfk_plugin.commands import audit_all as work
    from cfk_plugin.commands.attacked import Inputs

    job = work.Job(
        inputs=Inputs(
            people=people,
            schema=schema,
            desired=desired,
            target=target,
            model=model,
            explainer=explainer,
            against=against,
            policy=policy,
            k=k,
            epsilon=epsilon,
        ),
        budget=budget,
        only=only,
        jobs=jobs,
        seed=seed,
        keep=keep,
        output=output,
        experiment=experiment,
        track=track,
    )
    return work.run(job, console(), console(stderr=True))
