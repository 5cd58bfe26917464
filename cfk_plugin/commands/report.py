"""`cfk report`: the privacy report of logged runs, what changed between two, and the form for what people say."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text

from cfk_plugin._files import progress_bar
from cfk_plugin.errors import InputError
from cfk_plugin.report.delivery import check_place, describe_model_version, write_whole
from cfk_plugin.report.document import STATUS_TEXTS, kind_of, shown
from cfk_plugin.report.privacy_report import SUFFIXES, PrivacyReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from cfk_plugin.report.data import Check, Edition

_EXIT = {"pass": 0, "fail": 1, "review": 3}
_MODEL = "models:/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk report --help``."""

    runs: tuple[str, ...]
    experiment: str | None
    since: str | None
    until: str | None
    tracking_uri: str | None
    outputs: tuple[Path, ...]
    pdf: Path | None
    edition: str
    preset: str | None
    inputs: Path | None
    previous: Path | None
    address: str | None
    print: bool
    log: bool
    card: Path | None
    model: str | None
    compare: tuple[str, str] | None
    template: Path | None


def run(job: Job, out: Console, err: Console) -> int:
    """Do the one thing that was asked for; return 0 pass, 1 fail, 3 review."""
    given = {
        "--run": job.runs,
        "--experiment": job.experiment,
        "--compare": job.compare,
        "--template": job.template,
    }
    chosen = [name for name, value in given.items() if value]
    if len(chosen) != 1:
        found = f"got {' and '.join(chosen)}" if chosen else "got none"
        raise InputError(f"give one of {', '.join(given)}; {found}")
    if job.template is not None:
        _refuse(job, "--template", "template")
        return _template(job.template, err)
    return _report(job, out, err) if job.compare is None else _compare(job, job.compare, out)


def _report(job: Job, out: Console, err: Console) -> int:
    places, model = _places(job), _model(job.model)
    source = (
        partial(PrivacyReport.of_runs, job.runs)
        if job.experiment is None
        else partial(PrivacyReport.of_experiment, job.experiment)
    )
    with progress_bar("reading runs", err) as told:
        report = source(
            since=job.since,
            until=job.until,
            edition=cast("Edition", job.edition),
            preset=job.preset,
            inputs=job.inputs,
            previous=job.previous,
            tracking_uri=job.tracking_uri,
            progress=told,
        )
    for place in places:
        report.save(place, print_edition=job.print, address=job.address)
    _deliver(report, job, model, err)
    _show(report, out)
    return _EXIT[report.verdict]


def _places(job: Job) -> list[Path]:
    """Return where the report goes; a place that cannot be written is refused before any run is read."""
    if job.address is not None and not job.address.startswith(("http://", "https://")):
        raise InputError(f"--address {job.address}: must begin with http:// or https://")
    for place in job.outputs:
        check_place(place, SUFFIXES)
    if job.pdf is not None:
        check_place(job.pdf, (".pdf",))
    if job.card is not None:
        check_place(job.card, (".md",))
    places = [*job.outputs, *((job.pdf,) if job.pdf is not None else ())]
    wanted = [place.resolve() for place in (*places, *((job.card,) if job.card is not None else ()))]
    if len(set(wanted)) < len(wanted):
        raise InputError("two outputs have the same name; give each its own")
    return places


def _model(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, _, version = text.removeprefix(_MODEL).rpartition("/")
    if not name or not version.isdecimal():
        raise InputError(f"--model {text}: give name and number of a registered version, as in loans/3")
    return name, version


def _deliver(report: PrivacyReport, job: Job, model: tuple[str, str] | None, err: Console) -> None:
    """Log the report, and put the card where it belongs."""
    where = ""
    if job.log:
        with redirect_stdout(sys.stderr):  # MLflow prints addresses
            run_id = report.log()
        err.print(f"logged to MLflow run {run_id}", highlight=False)
        # The external edition names no run.
        where = f"artifact cfk/report.html of MLflow run {run_id}" if job.edition == "internal" else ""
    if job.card is not None:
        write_whole(job.card, report.model_card(where=where))
    if model is not None:
        describe_model_version(*model, report.model_card(where=where), job.tracking_uri)
        err.print(f"described version {model[1]} of model {model[0]}", highlight=False, markup=False)


def _show(report: PrivacyReport, out: Console) -> None:
    """Print the verdict, a line per check, and what is wrong with those that fail."""
    out.print(Text.assemble("verdict: ", (report.verdict, "bold"), f" ({report.data.report['edition']} edition)"))
    for line in _aligned([("status", "check", "measured", "asked"), *map(_cells, report.data.checks)]):
        out.print(Text(line), soft_wrap=True)
    for check in report.data.checks:
        if check.status == "fail":
            out.print(Text(f"{check.id}: {check.text}"), soft_wrap=True)
    if report.data.placeholders:
        out.print(Text(f"{len(report.data.placeholders)} questions are open: see cfk report --template inputs.yaml"))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield one line per row, whatever the width of the terminal: a check that is cut off was not read."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(check: Check) -> tuple[str, ...]:
    kind = kind_of(check.id)
    asked = shown(check.threshold, kind) if check.threshold.measured else "–"
    return STATUS_TEXTS[check.status], check.id, shown(check.measured, kind), asked


def _compare(job: Job, sources: tuple[str, str], out: Console) -> int:
    from cfk_plugin.report.summaries import render_comparison

    _refuse(job, "--compare", "outputs", "tracking_uri", "compare")
    for place in job.outputs:
        check_place(place, (".md",))
    before, after = (PrivacyReport.read(source, tracking_uri=job.tracking_uri) for source in sources)
    changes, text = after.compare(before), render_comparison(before.data, after.data)
    for place in job.outputs:
        write_whole(place, text)
    for change in changes:
        out.print(Text(f"{change['what']}: {change['before']} → {change['after']}"), soft_wrap=True)
    if not changes:
        out.print(f"nothing that a report compares changed; verdict: {after.verdict}")
        return 0
    return 1 if _got_worse(before, after) else 3


def _got_worse(before: PrivacyReport, after: PrivacyReport) -> bool:
    failed = {check.id for check in before.data.checks if check.status == "fail"}
    return any(check.status == "fail" and check.id not in failed for check in after.data.checks)


def _template(path: Path, err: Console) -> int:
    from cfk_plugin.report.inputs import template

    check_place(path, (".yaml", ".yml"))
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(template())
    except FileExistsError:
        raise InputError(f"{path}: is there already, and may hold answers; give another name") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or type(error).__name__})") from error
    err.print(Text(f"{path}: fill it in, and give it with --inputs"))
    return 0


def _refuse(job: Job, mode: str, *used: str) -> None:
    """Refuse options that mean nothing here: whoever gives them expects something of them."""
    plain: dict[str, Any] = {"edition": "internal"}
    names = {"outputs": "output", "runs": "run"}
    for name in (field.name for field in fields(job)):
        value = getattr(job, name)
        if name not in used and value and value != plain.get(name):
            raise InputError(f"--{names.get(name, name).replace('_', '-')} says nothing with {mode}; leave it out")
