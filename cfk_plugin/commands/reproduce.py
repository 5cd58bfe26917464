"""`cfk reproduce`: the published experiments again, with progress, and where everything is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.measure import METHODS
from cfk_plugin.reproduction.results import OURS, PAPER, THEIRS
from cfk_plugin.reproduction.run import FIGURES, PAGE, Event, Experiment, Forecast, OnEvent, Place, reproduce
from cfk_plugin.reproduction.studies import STUDIES
from cfk_plugin.reproduction.tables import NAMES

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.reproduction.results import Results

_NONE = "none"
_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk reproduce --help``."""

    data: Path | None
    output: Path
    tables: str | None
    methods: str | None
    ks: str
    studies: str | None
    limit: int
    grasp_limit: int
    effective: int
    grid: str
    explainer: str
    seed: int
    jobs: int
    cache: Path | None
    experiment: str
    tracking_uri: str | None


def run(job: Job, out: Console, err: Console) -> int:
    """Measure, log, write, show; return 0, or 3 where the purest regions are worse than the paper's or than GRASP's."""
    experiment = _experiment(job)
    _check_folder(job.output)
    place = Place(
        output=job.output,
        data=job.data,
        cache=job.cache,
        experiment=job.experiment,
        tracking_uri=job.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or _own_store(job.output),
    )
    try:
        with _progress(experiment, job.jobs, err) as told:
            results = reproduce(experiment, place, command=_command(job), jobs=job.jobs, told=told)
    except KeyboardInterrupt:
        raise InputError(f"stopped; the same command goes on where it was, from {place.kept}") from None
    _show(results, out)
    err.print(f"page: {job.output / PAGE}, plots: {job.output / FIGURES}", highlight=False)
    err.print(f"runs: experiment {place.experiment!r} in {place.tracking_uri}", highlight=False)
    judged = [v for v in results.verdicts if v.method == OURS[0] and v.against in (PAPER, THEIRS) and v.is_measured]
    return 0 if all(verdict.is_reached for verdict in judged) else 3


def _experiment(job: Job) -> Experiment:
    return Experiment(
        tables=_names(job.tables, NAMES),
        methods=_names(job.methods, tuple(METHODS)),
        ks=_numbers(job.ks),
        studies=() if job.studies == _NONE else _names(job.studies, tuple(STUDIES)),
        limit=job.limit,
        grasp_limit=job.grasp_limit,
        effective=job.effective,
        grid=job.grid,
        explainer=job.explainer,
        seed=job.seed,
    )


def _names(text: str | None, every: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return every
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise InputError("--k takes whole numbers with commas between, as 5,10,20") from None


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; --output takes a folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder}: the folder above it does not exist")


def _own_store(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    return f"sqlite:///{(folder / 'mlflow.db').absolute()}"


def _command(job: Job) -> str:
    """Return the command that asks for the same figures, whatever folders and processes."""
    usual = Experiment()
    parts = ["cfk reproduce --data FOLDER"] if job.data is not None else ["cfk reproduce"]
    named = {
        "tables": job.tables,
        "methods": job.methods,
        "k": job.ks if _numbers(job.ks) != usual.ks else None,
        "studies": job.studies,
        "limit": job.limit if job.limit != usual.limit else None,
        "grasp-limit": job.grasp_limit if job.grasp_limit != usual.grasp_limit else None,
        "effective": job.effective if job.effective != usual.effective else None,
        "grid": job.grid if job.grid != usual.grid else None,
        "explainer": job.explainer if job.explainer != usual.explainer else None,
        "seed": job.seed if job.seed != usual.seed else None,
    }
    return " ".join([*parts, *(f"--{name} {value}" for name, value in named.items() if value is not None)])


@contextmanager
def _progress(experiment: Experiment, jobs: int, err: Console) -> Iterator[OnEvent]:
    """Show how far the work is and how long it will still take; without a terminal, a line per table."""
    asked = experiment.jobs()
    forecast = Forecast(asked, experiment.limit, jobs)
    left = {name: sum(one.table == name for one in asked) for name in experiment.tables}
    bar = Progress(
        TextColumn("measuring"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=err,
        disable=not err.is_terminal,
    )
    task = bar.add_task("", total=len(asked), left="tuning forests")

    def told(event: Event) -> None:
        forecast.done(event)
        bar.update(task, advance=1, left=f"about {_spoken(forecast.left)} left")
        table = event.job.table
        left[table] -= 1
        if not left[table] and not err.is_terminal:
            err.print(f"{table} is measured; about {_spoken(forecast.left)} left", highlight=False)

    with bar:
        yield told


def _spoken(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < _HOUR else f"{seconds / _HOUR:.1f} h"


def _show(results: Results, out: Console) -> None:
    table = Table("table", "k", "method", "n", "NCP %", "pureness %", "proven %", "s each")
    for found in results.aggregates:
        figures = [found.ncp, found.pureness, found.proven]
        percent = ["–" if figure is None else f"{100 * figure:.2f}" for figure in figures]
        seconds = "–" if found.seconds is None else f"{found.seconds:.3f}"
        table.add_row(found.table, str(found.k), found.method, str(found.n), *percent, seconds)
    out.print(table)
