"""`cfk protect`: a table of counterfactuals in, released explanations out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress

from cfk_plugin.commands.files import (
    check_output,
    write_output,
)
from cfk_plugin.commands.inputs import Inputs
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import SUPPRESSION_REASONS

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.hookspecs import Progress as Told
    from cfk_plugin.release.explanations import Explanations


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk protect --help``."""

    inputs: Inputs
    output: Path | None
    ledger: str | None
    experiment: str | None
    track: bool


def run(job: Job, out: Console, err: Console) -> int:
    """Protect, write and log; return 0 when all is released, 3 when some, 1 when nothing is."""
    from cfk_plugin.records.ledger import Ledger  # brings the library of databases

    check_output(job.output)
    case = job.inputs.read()
    with Ledger(job.ledger) if job.ledger else nullcontext() as ledger:
        anonymizer = KAnonymizer(policy=case.policy, method=job.inputs.method, ledger=ledger)
        anonymizer.fit(case.population, model=case.model, desired=case.desired)
        with progress_bar("protecting", err) as told:
            explanations = anonymizer.transform(case.raw, case.factuals, progress=told)
    if job.output is not None:
        write_output(job.output, explanations.to_frame(), explanations.to_json(indent=1))
    else:
        out.file.write(explanations.to_json(indent=1) + "\n")
    if job.track or job.experiment:
        run_id = explanations.log(experiment=job.experiment)
        err.print(f"logged to MLflow run {run_id}", highlight=False)
    _say(explanations, job.output, err)
    return 0 if not explanations.suppressed else 3 if explanations.released else 1


@contextmanager
def progress_bar(what: str, console: Console) -> Iterator[Told]:
    """Yield a progress callback; it draws a bar on a terminal and nothing elsewhere."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield told


def _say(explanations: Explanations, output: Path | None, err: Console) -> None:
    summary = explanations.summary()
    where = f" in {output}" if output is not None else ""
    err.print(f"{summary['released']} released, {summary['suppressed']} withheld{where}", highlight=False)
    for reason, count in summary["reasons"].items():
        err.print(f"  {count} withheld: {SUPPRESSION_REASONS[reason]}", highlight=False)
    if summary["released"]:
        err.print(
            f"  smallest region {summary['k_min']:.0f} people, information loss {summary['ncp_mean']:.3f}, "
            f"pureness {summary['pureness_mean']:.1%}",
            highlight=False,
        )
