"""cfk report: the privacy report of logged runs."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfk_plugin.cli.frame import EXIT, command, console, say
from cfk_plugin.errors import InputError, check_place

if TYPE_CHECKING:
    from cfk_plugin.report.privacy_report import PrivacyReport


@command(
    "report",
    "cfk report --run 3f2c… -o report.html -o report.json\ncfk report --experiment loans --since"
    " 2026-10-01 --until 2026-10-31 --inputs inputs.json -o report.html --log",
    kept="files that are written by now stay",
)
def report(
    run: Annotated[
        list[str] | None, typer.Option(help="Id of a run; may be given several times.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="All runs of an experiment: its name, or id:NUMBER.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="First day or moment, such as 2026-10-01.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Last day, or the moment before which it ends.")
    ] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow's store. Default: MLflow's own setting.")
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help=".html or .json; may be repeated."),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="People's answers, accepted risks and thresholds, .json.")
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="Log the report to MLflow, beside its run.")
    ] = False,
) -> int:
    """Show what was released and at what risk, from logged runs alone.

    Exit code 0 when every check passes, 1 when one fails, 3 when one needs a person or was not
    measured.
    """
    from cfk_plugin._files import progress_bar
    from cfk_plugin.report.privacy_report import PrivacyReport

    if bool(run) == bool(experiment):
        raise InputError("give one of --run, --experiment")
    places = _places(output or [])
    with progress_bar("reading runs", console(stderr=True)) as told:
        made = (PrivacyReport.of_runs if experiment is None else PrivacyReport.of_experiment)(
            run if experiment is None else experiment,  # type: ignore[arg-type]  # each to its own
            since=since,
            until=until,
            inputs=inputs,
            tracking_uri=tracking_uri,
            progress=told,
        )
    for place in places:
        made.save(place)
    if log:
        with redirect_stdout(sys.stderr):  # MLflow prints addresses
            run_id = made.log()
        say(f"logged to MLflow run {run_id}", stderr=True)
    _show(made)
    return EXIT[made.verdict]


def _places(outputs: list[Path]) -> list[Path]:
    """Return where the report goes; a path that cannot be written is refused before any run is
    read.
    """
    from cfk_plugin.report.privacy_report import SUFFIXES

    for place in outputs:
        check_place(place, SUFFIXES)
    if len({place.resolve() for place in outputs}) < len(outputs):
        raise InputError("two outputs have the same name; give each its own")
    return outputs


def _show(made: PrivacyReport) -> None:
    """Print what the first page says, and one line per check; of failed ones what is wrong."""
    from cfk_plugin.report.amounts import STATUS_TEXTS, amounts_of
    from cfk_plugin.report.first_page import first_page, one_line

    data = made.data
    first = first_page(data)
    say(f"verdict: [bold]{made.verdict}[/]", markup=True)
    say(first.reason)
    if first.for_a_pass:
        say(first.for_a_pass)
    say("")
    for tile in first.tiles:
        say(f"{tile.name}: {tile.figure}")
    say("")
    rows = [("status", "check", "measured", "threshold")]
    rows += [(STATUS_TEXTS[check.status], check.id, *amounts_of(check)) for check in data.checks]
    # Whatever the width of the terminal: a line that is cut off is not read.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say(line.rstrip())
    for check in data.checks:
        if check.status == "fail":
            say(f"{check.id}: {check.text}")
    say("")
    say("next:")
    for place, step in enumerate(first.steps, start=1):
        say(f"{place}. {one_line(step.text)}")
        for line in step.command.splitlines():
            say(f"   {one_line(line)}")
    if first.how_to_copy:
        say(first.how_to_copy)
