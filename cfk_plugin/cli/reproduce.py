"""cfk reproduce: the published experiments again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import command, console


@command(
    "reproduce",
    "cfk reproduce --data tables -o reproduction\n"
    "cfk reproduce --data tables --tables heart,cmc --methods grasp,exact-pureness --studies none\n"
    "cfk reproduce --tables adult,german --grid paper --jobs 2",
    kept="the same command goes on from what is in the folder",
)
def reproduce(
    data: Annotated[Path | None, typer.Option(help="Folder with NAME.csv.gz and NAME.json; else OpenML.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results, page and plots.")] = Path(
        "reproduction"
    ),
    tables: Annotated[str | None, typer.Option(help="Names with commas between; all without it.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names with commas between; all without it.")] = None,
    ks: Annotated[str, typer.Option("--k", help="Numbers with commas between.")] = "5,10,20",
    studies: Annotated[str | None, typer.Option(help="Names with commas between, or none; all without it.")] = None,
    limit: Annotated[int, typer.Option(help="Most explanations of a table; the paper: 1000.", min=1)] = 100,
    grasp_limit: Annotated[int, typer.Option(help="Most of them by GRASP, which is slow.", min=1)] = 100,
    effective: Annotated[int, typer.Option(help="Of how many k_effective is measured.", min=0)] = 20,
    grid: Annotated[str, typer.Option(help="Forests that are tried: small, or the paper's.")] = "small",
    explainer: Annotated[str, typer.Option(help="nice, nearest, or auto: NICE where it is installed.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of split, folds and forest.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Tables at the same time.", min=1)] = 1,
    cache: Annotated[Path | None, typer.Option(help="Where tables from OpenML are kept.")] = None,
    experiment: Annotated[str, typer.Option(help="MLflow experiment.")] = "cfk reproduce",
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow store; else the environment's, else OUTPUT.")] = None,
) -> int:
    """Run the experiments of Goethals, Sörensen and Martens (2023), our solvers beside their method.

    A run that was stopped continues where it was when the same command is given again. Exit code 0 when the purest
    regions are nowhere worse than the paper's figures and than its method on the same models, 3 when they are.
    """
    from cfk_plugin.commands import reproduce as work

    job = work.Job(
        data=data,
        output=output,
        tables=tables,
        methods=methods,
        ks=ks,
        studies=studies,
        limit=limit,
        grasp_limit=grasp_limit,
        effective=effective,
        grid=grid,
        explainer=explainer,
        seed=seed,
        jobs=jobs,
        cache=cache,
        experiment=experiment,
        tracking_uri=tracking_uri,
    )
    return work.run(job, console(), console(stderr=True))
