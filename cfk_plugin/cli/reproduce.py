"""cfk reproduce: the published experiments again, with progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfk_plugin.cli.frame import command, console, names, numbers, say, show
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from cfk_plugin.reproduction import Experiment, Results
    from cfk_plugin.reproduction.run import OnEvent

_DECIDE = {
    "tables",
    "methods",
    "ks",
    "studies",
    "limit",
    "grasp_limit",
    "effective",
    "grid",
    "explainer",
    "seed",
}


@command(
    "reproduce",
    "cfk reproduce --data tables -o reproduction\n"
    "cfk reproduce --data tables --tables heart,cmc --methods grasp,exact-pureness --studies none\n"
    "cfk reproduce --tables adult,german --grid paper --jobs 2",
    kept="the same command goes on from what is in the folder",
)
def reproduce(
    context: typer.Context,
    data: Annotated[
        Path | None, typer.Option(help="Folder with NAME.csv.gz and NAME.json. Default: OpenML.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of results, page and plots.")
    ] = Path("reproduction"),
    tables: Annotated[
        str | None, typer.Option(help="Names, separated by commas. Default: all.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Names, separated by commas. Default: all.")
    ] = None,
    ks: Annotated[str, typer.Option("--k", help="Numbers, separated by commas.")] = "5,10,20",
    studies: Annotated[
        str | None, typer.Option(help="Names, separated by commas, or none. Default: all.")
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Most explanations per table; the paper has 1000.", min=1)
    ] = 100,
    grasp_limit: Annotated[
        int, typer.Option(help="Most of them by GRASP, which is slow.", min=1)
    ] = 100,
    effective: Annotated[
        int, typer.Option(help="Number of explanations whose k_effective is measured.", min=0)
    ] = 20,
    grid: Annotated[str, typer.Option(help="Forests to try: small, or paper.")] = "small",
    explainer: Annotated[
        str, typer.Option(help="nice, nearest, or auto: NICE where it is installed.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of split, folds and forest.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Tables at the same time.", min=1)] = 1,
    cache: Annotated[Path | None, typer.Option(help="Where tables from OpenML are kept.")] = None,
    experiment: Annotated[str, typer.Option(help="MLflow experiment.")] = "cfk reproduce",
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow store; else the environment's, else OUTPUT.")
    ] = None,
) -> int:
    """Run the experiments of Goethals, Sörensen and Martens (2023), our solvers beside their
    method.

    A run that was stopped continues when the same command is given again. Exit code 0 when the
    purest regions are nowhere worse than the paper's figures and than its method on the same
    models, 3 when they are.
    """
    from cfk_plugin.reproduction import Experiment, Place
    from cfk_plugin.reproduction import reproduce as run
    from cfk_plugin.reproduction.results import OURS, PAPER, THEIRS
    from cfk_plugin.reproduction.run import FIGURES, PAGE

    usual = Experiment()
    asked = Experiment(
        tables=tuple(names("--tables", tables, usual.tables)),
        methods=tuple(names("--methods", methods, usual.methods)),
        ks=tuple(numbers("--k", ks)),
        studies=() if studies == "none" else tuple(names("--studies", studies, usual.studies)),
        grid=grid,
        explainer=explainer,
        limit=limit,
        grasp_limit=grasp_limit,
        effective=effective,
        seed=seed,
    )
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file; --output takes a folder")
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: the folder above it does not exist")
    if not (uri := tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")):
        output.mkdir(exist_ok=True)
        uri = f"sqlite:///{(output / 'mlflow.db').absolute()}"
    place = Place(output=output, data=data, cache=cache, experiment=experiment, tracking_uri=uri)
    command = _command(context, data)
    try:
        with _progress(asked, jobs) as on_event:
            results = run(asked, place, command=command, jobs=jobs, told=on_event)
    except KeyboardInterrupt:
        raise InputError(
            f"stopped; the same command goes on where it was, from {place.kept}"
        ) from None
    _show(results)
    say(f"page: {output / PAGE}, plots: {output / FIGURES}", stderr=True)
    say(f"runs: experiment {experiment!r} in {uri}", stderr=True)
    judged = [
        v
        for v in results.verdicts
        if v.method == OURS[0] and v.against in (PAPER, THEIRS) and v.is_measured
    ]
    return 0 if all(verdict.is_reached for verdict in judged) else 3


def _command(context: typer.Context, data: Path | None) -> str:
    """Return the command that gives the same figures, without folders and numbers of processes."""
    parts = ["cfk reproduce", *(["--data FOLDER"] if data is not None else [])]
    for option in context.command.params:
        value = context.params[str(option.name)]
        if option.name in _DECIDE and value not in (None, option.default):
            parts.append(f"{option.opts[0]} {value}")
    return " ".join(parts)


@contextmanager
def _progress(experiment: Experiment, at_once: int) -> Iterator[OnEvent]:
    """Show progress and the time left; without a terminal, a line per table."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cfk_plugin.data.display import silenced
    from cfk_plugin.reproduction.run import Event, Forecast, format_duration

    err, jobs = console(stderr=True), experiment.jobs()
    forecast = Forecast(jobs, experiment.limit, at_once)
    left = {name: sum(job.table == name for job in jobs) for name in experiment.tables}
    bar = Progress(
        TextColumn("measuring"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=err,
        disable=not err.is_terminal,
    )
    task = bar.add_task("", total=len(jobs), left="tuning forests")

    def on_event(event: Event) -> None:
        forecast.done(event)
        bar.update(task, advance=1, left=f"about {format_duration(forecast.left)} left")
        table = event.job.table
        left[table] -= 1
        if not left[table] and not err.is_terminal:
            err.print(f"{table} is measured; about {format_duration(forecast.left)} left")

    with silenced(), bar:
        yield on_event


def _show(results: Results) -> None:
    rows = []
    for found in results.aggregates:
        figures = [found.ncp, found.pureness, found.proven]
        percent = ["–" if figure is None else f"{100 * figure:.2f}" for figure in figures]
        seconds = "–" if found.seconds is None else f"{found.seconds:.3f}"
        rows.append((found.table, str(found.k), found.method, str(found.n), *percent, seconds))
    show(("table", "k", "method", "n", "NCP %", "pureness %", "proven %", "s each"), rows)
