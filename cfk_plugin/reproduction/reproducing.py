"""The whole experiment: measure, log, summarise, and write page and plots."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfk_plugin.reproduction import explainers
from cfk_plugin.reproduction.experiment import Experiment
from cfk_plugin.reproduction.logged import log
from cfk_plugin.reproduction.outcome import Measurement
from cfk_plugin.reproduction.page.plots import draw
from cfk_plugin.reproduction.page.rendering import render
from cfk_plugin.reproduction.piece import Piece
from cfk_plugin.reproduction.results import Results
from cfk_plugin.reproduction.running import Sources, Told, run
from cfk_plugin.reproduction.studies import STUDIES
from cfk_plugin.reproduction.workspace import Workspace

PAGE, RESULTS, FIGURES = "reproduction.md", "results.json", "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an experiment reads and writes.

    Attributes
    ----------
    output : Path
        Folder of page, plots, results and of what is kept in between.
    data : Path, optional
        Folder of tables; without it OpenML is asked.
    cache : Path, optional
        Where OpenML's answers are kept.
    experiment : str
        Of MLflow.
    tracking_uri : str
    """

    output: Path
    data: Path | None = None
    cache: Path | None = None
    experiment: str = "cfk reproduce"
    tracking_uri: str

    @property
    def kept(self) -> Path:
        """Where outcomes are kept, so that a run that was stopped goes on."""
        return self.output / "kept"


def reproduce(
    experiment: Experiment, place: Place, *, command: str, jobs: int = 1, told: Told = lambda _: None
) -> Results:
    """Run an experiment, or what is left of it, and write what came out.

    The output folder then holds ``reproduction.md``, ``results.json`` and ``figures/``; MLflow holds one run per table
    and method. Nothing in any of them is a value of a row.

    Parameters
    ----------
    experiment : Experiment
    place : Place
    command : str
        The command line that asks for the same, as the page says it.
    jobs : int
        Tables at the same time.
    told : callable
        Called with each `running.Event`.

    Returns
    -------
    Results

    Raises
    ------
    InputError
        If a table cannot be had, or the explainer is not installed.
    TrackingError
        If MLflow does not take the runs; what was measured is kept.
    """
    sources = Sources(
        data=place.data,
        cache=place.cache,
        workspace=place.kept,
        seed=experiment.seed,
        grid=experiment.grid,
        explainer=explainers.choose(experiment.explainer),
        limit=experiment.limit,
        effective=experiment.effective,
    )
    outcomes = run(sources, experiment.pieces(), jobs=jobs, told=told)
    runs = log(outcomes, Workspace(place.kept), experiment=place.experiment, tracking_uri=place.tracking_uri)
    results = summarise(experiment, outcomes, runs, command)
    write(results, place.output)
    return results


def summarise(
    experiment: Experiment, outcomes: Mapping[str, Measurement], runs: Mapping[str, str], command: str
) -> Results:
    """Return what the outcomes of an experiment say, each with the id of its run.

    Parameters
    ----------
    experiment : Experiment
    outcomes, runs : mapping
        Key of a piece to what it gave, and to its run.
    command : str
    """
    settings = {outcome.setting.table: outcome.setting for outcome in outcomes.values()}

    def of(pieces: Iterable[Piece]) -> dict[str, Measurement]:
        keys = [piece.key(settings[piece.table]) for piece in pieces]
        return {key: outcomes[key] for key in keys}

    def rows(name: str) -> list[dict[str, Any]]:
        found = STUDIES[name].rows(of(experiment.study(name)))
        return [{**row, "run_id": runs.get(row["piece"])} for row in found]

    main = of(experiment.main())
    return Results.of(
        main.values(),
        command=command,
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        studies=[{"name": name, "rows": found} for name in experiment.studies if (found := rows(name))],
        runs={(o.setting.table, o.method, o.k): runs[key] for key, o in main.items() if key in runs},
    )


def write(results: Results, output: Path) -> None:
    """Write page, plots and results into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    draw(results, output / FIGURES)
    (output / RESULTS).write_text(results.to_json(), encoding="utf-8")
    (output / PAGE).write_text(render(results), encoding="utf-8")
