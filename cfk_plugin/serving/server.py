"""`cfk serve`: protection in front of an explainer that is registered already, or of a protected model."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cfk_plugin.commands.files import load_model
from cfk_plugin.commands.inputs import label_among
from cfk_plugin.data.model import OPPOSITE, LabelModel
from cfk_plugin.errors import CFKError, InputError, ModelError, quiet
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.serving.app import Limits, make_app
from cfk_plugin.serving.assembly import desk_of, opened
from cfk_plugin.serving.body import Answer
from cfk_plugin.serving.constants import show_no_traces
from cfk_plugin.serving.example import made_up
from cfk_plugin.serving.inner import load_inner
from cfk_plugin.serving.pyfunc import answer_of_model

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.data.population import Population


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
    show_no_traces()
    app = make_app(answer_of(job, console), limits)
    console.print(f"protected explanations at http://{host}:{port}/invocations", highlight=False, soft_wrap=True)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            log_level="warning",
            access_log=False,
            server_header=False,
            http=type("Connection", (_Connection,), {"limits": limits}),
            ws="none",
            lifespan="off",
            h11_max_incomplete_event_size=_LONGEST_HEADERS,
            timeout_graceful_shutdown=_LAST_SECONDS,
        )
    )
    for told in (signal.SIGINT, signal.SIGTERM):  # uvicorn hands them on when it has ended; to end well, not to die
        signal.signal(told, server.handle_exit)
    server.run()
    return 0 if server.started else 2


_LONGEST_HEADERS = 16_384  # bytes
_LAST_SECONDS = 5  # that requests have left when the server is told to end


class _Connection(H11Protocol):
    """A connection that is dropped if it sends no request in time, or takes no answer, or is one too many.

    The web server has a deadline for what comes after a request, and none for a first byte, for headers that are sent
    one by one, or for answers that nobody reads: such clients would take every connection there is.
    """

    limits: ClassVar[Limits]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.limits.seconds, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _watch(self) -> None:
        """Give a client that is not being answered its time to send a request; it is given once."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.reading, self.transport.abort)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def answer_of(job: Job, console: Console) -> Answer:
    """Return what answers requests; `Desk.answer` of the protected model, or of one that is put together here.

    Raises
    ------
    InputError
        If options lack or clash, the explainer cannot be loaded, or the model does not have the outcome.
    CFKError
        See `desk_of`.
    """
    if job.bundle is None and job.model is None:
        return _registered(job)
    if job.bundle is None or job.model is None or job.desired is None:
        raise InputError(
            "an explainer needs --bundle (from KAnonymizer.seal), --model and --desired; a model of "
            "log_protected_model needs none of them"
        )
    population, policy = opened(job.bundle)
    model = load_model(job.model)
    desired = _outcome(job.desired, model, population, console)
    desk = desk_of(
        population,
        policy if job.k is None else replace(policy, k=job.k),
        _explainer(job.explainer),
        most=job.most,
        model=model,
        desired=desired,
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
    except ModelError as error:
        failure = str(error)
    raise InputError(f"{location}: {failure}")


def _outcome(text: str, model: Any, population: Population, console: Console) -> Any:
    """Return the label that is meant.

    The model's classes say which there are; without any, what it answers to made-up rows may. Where neither does, the
    label is guessed from its spelling, and the console says that it could not be checked.

    Raises
    ------
    InputError
        If the model does not have it, or answers with text where it is a number, or the other way round.
    """
    if text == OPPOSITE:
        return text
    if (classes := _classes(model)) is not None:
        return label_among(classes, text)
    guess, tried = _read(text), _tried(model, population)
    with suppress(InputError):
        return label_among(tried, text)
    if tried and not any(isinstance(label, str) == isinstance(guess, str) for label in tried):
        return label_among(tried, text)  # which says what there is
    console.print(
        f"warning: --desired {text}: no made-up row has this outcome, so it could not be checked that the model has "
        "it; if it has not, every explanation is withheld",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return guess


_TRIED = 200


def _classes(model: Any) -> list[Any] | None:
    """Return the classes that a model, or the one inside of a model of MLflow, says it has; None where it does not."""
    try:
        with quiet("{}", CFKError):
            inside = model.get_raw_model() if hasattr(model, "get_raw_model") else model
            found = np.asarray(getattr(inside, "classes_", getattr(model, "classes_", None)))
            return found.tolist() if found.ndim == 1 else None
    except CFKError:
        return None


def _tried(model: Any, population: Population) -> list[Any]:
    """Return what a model answers to made-up rows; nothing where there are none, or it does not take them."""
    rows = made_up(population, _TRIED)
    try:
        return [] if rows is None else pd.unique(LabelModel(model, population.schema.features)(rows)).tolist()
    except ModelError:
        return []


def _read(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
