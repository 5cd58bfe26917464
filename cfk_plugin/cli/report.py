"""cfk report: the privacy report of logged runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import command, console


@command(
    "report",
    "cfk report --run 3f2c… -o report.html -o report.json\n"
    "cfk report --experiment loans --since 2026-10-01 --until 2026-10-31 --inputs inputs.yaml -o report.html --log\n"
    "cfk report --experiment loans --edition external --preset ema-0070 -o report.html --pdf report.pdf\n"
    "cfk report --template inputs.yaml\n"
    "cfk report --compare september.json october.json",
    kept="files that are written by now stay",
)
def report(
    run: Annotated[list[str] | None, typer.Option(help="Id of a run; may be given several times.")] = None,
    experiment: Annotated[str | None, typer.Option(help="All runs of an experiment: its name, or id:NUMBER.")] = None,
    since: Annotated[str | None, typer.Option(help="First day or moment, as 2026-10-01.")] = None,
    until: Annotated[str | None, typer.Option(help="Last day, or first moment that is left out.")] = None,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow's store; else MLflow's own setting.")] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help=".html, .json, .md, .csv, .xml (JUnit) or .pdf; several times."),
    ] = None,
    pdf: Annotated[Path | None, typer.Option(help="A PDF, printed by a Chromium of this machine.")] = None,
    edition: Annotated[str, typer.Option(help="internal: exact, names runs. external: banded, to be given away.")] = (
        "internal"
    ),
    preset: Annotated[str | None, typer.Option(help="paper, cms-11, ema-0070 or k20; else the policy's own k.")] = None,
    inputs: Annotated[Path | None, typer.Option(help="What people say, a filled-in --template.")] = None,
    previous: Annotated[Path | None, typer.Option(help="An earlier report, .json: what changed since?")] = None,
    address: Annotated[
        str | None, typer.Option(help="Web address of the tracking server: run ids become links to it.")
    ] = None,
    print_edition: Annotated[bool, typer.Option("--print", help="HTML for paper: everything folded is open.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Log the report to MLflow, beside its run.")] = False,
    card: Annotated[Path | None, typer.Option(help="A model card, .md.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME/VERSION", help="Put the card into the description of this model.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="BEFORE AFTER", help="Files, or runs with a report: what changed?")
    ] = None,
    template: Annotated[Path | None, typer.Option(help="Write an inputs.yaml to fill in, and nothing else.")] = None,
) -> int:
    """Show what was released and at what risk, from logged runs alone.

    Exit code 0 when every check passes, 1 when one fails, 3 when one needs a person or was not measured. Of a
    comparison 0 when nothing changed, 1 when a check fails that did not, 3 when something else changed.
    """
    from cfk_plugin.commands import report as work

    job = work.Job(
        runs=tuple(run or ()),
        experiment=experiment,
        since=since,
        until=until,
        tracking_uri=tracking_uri,
        outputs=tuple(output or ()),
        pdf=pdf,
        edition=edition,
        preset=preset,
        inputs=inputs,
        previous=previous,
        address=address,
        print=print_edition,
        log=log,
        card=card,
        model=model,
        compare=compare,
        template=template,
    )
    return work.run(job, console(), console(stderr=True))
