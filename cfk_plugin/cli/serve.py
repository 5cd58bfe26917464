"""cfk serve: protected explanations over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import command, console
from cfk_plugin.cli.options import Experiment, K, Track


@command(
    "serve",
    "cfk serve models:/patients-explained/1\n"
    "cfk serve models:/explainer/3 --bundle population.cfk --model models:/credit/7 --desired 1 --port 5001",
)
def serve(
    explainer: Annotated[str, typer.Argument(help="MLflow URI: an explainer, or a model of log_protected_model.")],
    bundle: Annotated[Path | None, typer.Option(help="Sealed population with its policy (KAnonymizer.seal).")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model that is explained.")] = None,
    desired: Annotated[str | None, typer.Option("--desired", "-d", help="The outcome wanted, or 'opposite'.")] = None,
    k: K = None,
    ledger: Annotated[str | None, typer.Option(help="Ledger of releases: SQLite file or postgresql URL.")] = None,
    track: Track = False,
    experiment: Experiment = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=1, max=65535)] = 5001,
    timeout: Annotated[float, typer.Option(help="Seconds after which a request is answered with 504.", min=0.1)] = 60,
    read_timeout: Annotated[float, typer.Option(help="Seconds to send a request in.", min=0.1)] = 10,
    threads: Annotated[int, typer.Option(help="Requests that are worked on at the same time.", min=1)] = 16,
    most: Annotated[int, typer.Option(help="Queries that one request may hold.", min=1)] = 1000,
) -> int:
    """Answer queries over HTTP with protected explanations, in front of a registered explainer.

    POST /invocations takes what MLflow's server takes as dataframe_split or dataframe_records.
    """
    from cfk_plugin.serving.server import Limits, run

    return run(
        explainer,
        host,
        port,
        Limits(timeout, threads, read_timeout),
        console(stderr=True),
        bundle=bundle,
        model=model,
        desired=desired,
        k=k,
        ledger=ledger,
        track=track,
        experiment=experiment,
        most=most,
    )
