"""`cfk serve`: protection in front of an explainer that is registered already, or of a protected model."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from cfk_plugin.commands.files import load_model
from cfk_plugin.errors import InputError
from cfk_plugin.ledger import Ledger
from cfk_plugin.serving.app import Limits, make_app
from cfk_plugin.serving.assembly import desk_of, opened
from cfk_plugin.serving.inner import load_inner
from cfk_plugin.serving.pyfunc import answer_of_model
from cfk_plugin.serving.scoring import Answer
from cfk_plugin.tracking import RunLogger

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command was given; see ``cfk serve --help``."""

    explainer: str
    bundle: Path | None
    model: str | None
    desired: str | None
    k: int | None
    ledger: str | None
    track: bool
    experiment: str | None
    most: int


def run(job: Job, host: str, port: int, limits: Limits, console: Console) -> int:
    """Serve until the process is told to end; return the exit code.

    Raises
    ------
    CFKError
        If bundle, model, explainer and policy do not fit together. Nothing listens then.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    app = make_app(answer_of(job), limits)
    console.print(f"protected explanations at http://{host}:{port}/invocations", highlight=False, soft_wrap=True)
    server = uvicorn.Server(uvicorn.Config(app, host, port, log_level="warning", access_log=False, server_header=False))
    server.run()
    return 0 if server.started else 2


def answer_of(job: Job) -> Answer:
    """Return what answers requests; `Desk.answer` of the protected model, or of one that is put together here."""
    if job.bundle is None and job.model is None:
        return _registered(job)
    if job.bundle is None or job.model is None or job.desired is None:
        raise InputError(
            "an explainer needs --bundle (from KAnonymizer.seal), --model and --desired; a model of "
            "log_protected_model needs none of them"
        )
    population, policy = opened(job.bundle)
    model = load_model(job.model)
    desk = desk_of(
        population,
        policy if job.k is None else replace(policy, k=job.k),
        _explainer(job.explainer),
        most=job.most,
        model=model,
        desired=_outcome(job.desired, model),
        ledger=Ledger(job.ledger) if job.ledger else None,
        track=RunLogger(experiment=job.experiment, run_name="served") if job.track or job.experiment else False,
    )
    return desk.answer


def _registered(job: Job) -> Answer:
    given = {"--desired": job.desired, "--k": job.k, "--ledger": job.ledger, "--track": job.track or job.experiment}
    answer = answer_of_model(load_model(job.explainer))
    if answer is None:
        raise InputError("this is no model of log_protected_model; to protect an explainer give --bundle and --model")
    if names := [name for name, value in given.items() if value]:
        raise InputError(f"a protected model brings its own settings; leave out {', '.join(names)}")
    return answer


def _explainer(location: str) -> Any:
    try:
        return load_inner(location)
    except Exception as error:
        raise InputError(f"{location}: the explainer cannot be loaded ({type(error).__name__})") from error


def _outcome(text: str, model: Any) -> Any:
    """Return the label that is meant: the model's own where it says which it has, else a number, else the text."""
    if text == "opposite":
        return text
    for label in getattr(model, "classes_", ()):
        if str(label) == text:
            return label
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
