"""cfk report: the privacy report of logged runs, and the form for people's answers."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfk_plugin.cli.frame import EXIT, command, console, say
from cfk_plugin.errors import InputError, check_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cfk_plugin.report.privacy_report import PrivacyReport


@command(
    "report",
    "cfk report --run 3f2c… -o report.html -o report.json\ncfk report --experiment loans --since"
    " 2026-10-01 --until 2026-10-31 --inputs inputs.yaml -o report.html --log\ncfk report"
    " --experiment loans --edition external --preset ema-0070 -o report.html\ncfk report"
    " --template inputs.yaml",
    kept="files that are written by now stay",
)
def report(
    context: typer.Context,
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
        typer.Option("--output", "-o", help=".html, .json or .md; may be repeated."),
    ] = None,
    edition: Annotated[
        str, typer.Option(help="internal: exact, names runs. external: banded, to give away.")
    ] = "internal",
    preset: Annotated[
        str | None, typer.Option(help="paper, cms-11, ema-0070 or k20. Default: the policy's k.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="People's answers: a filled-in --template.")
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(help="An earlier report, .json, to show what changed since.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Web address of the tracking server: run ids become links to it."),
    ] = None,
    docs: Annotated[
        str | None, typer.Option(help="Address of the page of definitions, for links from names.")
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="Log the report to MLflow, beside its run.")
    ] = False,
    template: Annotated[
        Path | None, typer.Option(help="Write an inputs.yaml to fill in, and nothing else.")
    ] = None,
) -> int:
    """Show what was released and at what risk, from logged runs alone.

    Exit code 0 when every check passes, 1 when one fails, 3 when one needs a person or was not
    measured.
    """
    from cfk_plugin._files import progress_bar
    from cfk_plugin.report.privacy_report import PrivacyReport

    _require_one({"--run": run, "--experiment": experiment, "--template": template})
    if template is not None:
        _refuse(context)
        return _write_template(template)
    places = _places(output or [], {"--address": address, "--docs": docs})
    with progress_bar("reading runs", console(stderr=True)) as told:
        made = (PrivacyReport.of_runs if experiment is None else PrivacyReport.of_experiment)(
            run if experiment is None else experiment,  # type: ignore[arg-type]  # each to its own
            since=since,
            until=until,
            edition=edition,  # type: ignore[arg-type]  # an unknown one is refused there
            preset=preset,
            inputs=inputs,
            previous=previous,
            tracking_uri=tracking_uri,
            progress=told,
        )
    for place in places:
        made.save(place, address=address, docs=docs)
    if log:
        with redirect_stdout(sys.stderr):  # MLflow prints addresses
            run_id = made.log()
        say(f"logged to MLflow run {run_id}", stderr=True)
    _show(made)
    return EXIT[made.verdict]


def _require_one(modes: Mapping[str, object]) -> None:
    chosen = [name for name, value in modes.items() if value]
    if len(chosen) != 1:
        found = f"got {' and '.join(chosen)}" if chosen else "got none"
        raise InputError(f"give one of {', '.join(modes)}; {found}")


def _places(outputs: list[Path], links: Mapping[str, str | None]) -> list[Path]:
    """Return where the report goes; a path that cannot be written is refused before any run is
    read.
    """
    from cfk_plugin.report.privacy_report import SUFFIXES

    for option, address in links.items():
        if address is not None and not address.startswith(("http://", "https://")):
            raise InputError(f"{option} {address}: must begin with http:// or https://")
    for place in outputs:
        check_place(place, SUFFIXES)
    if len({place.resolve() for place in outputs}) < len(outputs):
        raise InputError("two outputs have the same name; give each its own")
    return outputs


def _show(made: PrivacyReport) -> None:
    """Print what the first page says, and one line per check; of failed ones what is wrong."""
    from cfk_plugin.report.first_page import first_page
    from cfk_plugin.report.render import STATUS_TEXTS, amounts_of, one_line, words

    data = made.data
    first = first_page(data)
    say(f"verdict: [bold]{made.verdict}[/] ({data.report['edition']} edition)", markup=True)
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
        say(f"{place}. {one_line(words(step.text))}")
        for line in step.command.splitlines():
            say(f"   {one_line(line)}")
    if first.how_to_copy:
        say(first.how_to_copy)


def _write_template(path: Path) -> int:
    from cfk_plugin.report.inputs import template

    check_place(path, (".yaml", ".yml"))
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(template())
    except FileExistsError:
        raise InputError(
            f"{path}: is there already, and may hold answers; give another name"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or type(error).__name__})"
        ) from error
    say(f"{path}: fill it in, and give it with --inputs", stderr=True)
    return 0


def _refuse(context: typer.Context) -> None:
    """Refuse options that would be ignored: users who give them expect an effect."""
    for name, value in context.params.items():
        if name != "template" and value and (name, value) != ("edition", "internal"):
            raise InputError(
                f"--{name.replace('_', '-')} says nothing with --template; leave it out"
            )
