"""cfk serve: protected explanations over HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.frame import command, console, say
from cfk_plugin.errors import CFKError, InputError, ModelError, check_extra, quiet

if TYPE_CHECKING:
    from cfk_plugin.data.population import Population
    from cfk_plugin.serving.handler import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    explainer: Annotated[
        str | None,
        typer.Argument(
            help=(
                "MLflow URI: an explainer, or a model of log_protected_model; none with a"
                " catalogue."
            )
        ),
    ] = None
    bundle: Annotated[
        Path | None, typer.Option(help="Sealed population with its policy (KAnonymizer.seal).")
    ] = None
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model that is explained.")
    ] = None
    desired: Annotated[
        str | None, typer.Option("--desired", "-d", help="The outcome wanted, as for protect.")
    ] = None
    threshold: opt.Threshold = None
    k: opt.K = None
    ledger: Annotated[
        str | None, typer.Option(help="Ledger of releases: SQLite file or postgresql URL.")
    ] = None
    track: opt.Track = False
    experiment: opt.Experiment = None
    most: Annotated[int, typer.Option(help="Queries that one request may hold.", min=1)] = 1000

    def answer(self) -> Answer:
        from cfk_plugin._files import load_model
        from cfk_plugin.records.ledger import Ledger
        from cfk_plugin.records.logger import RunLogger
        from cfk_plugin.serving.handler import handler_for, opened
        from cfk_plugin.serving.pyfunc import answer_of_model, load_inner

        if self.explainer is not None and self.bundle is None and self.model is None:
            answer = answer_of_model(load_model(self.explainer))
            if answer is None:
                raise InputError(
                    "this is no model of log_protected_model; to protect an explainer give --bundle"
                    " and --model"
                )
            given = {
                "--desired": self.desired,
                "--threshold": self.threshold,
                "--k": self.k,
                "--ledger": self.ledger,
                "--track": self.track or self.experiment,
            }
            if names := [name for name, value in given.items() if value]:
                raise InputError(
                    f"a protected model brings its own settings; leave out {', '.join(names)}"
                )
            return answer
        if self.bundle is None or self.model is None or self.desired is None:
            raise InputError(
                "an explainer needs --bundle (from KAnonymizer.seal), --model and --desired; a"
                " model of log_protected_model needs none of them, and a bundle with a catalogue no"
                " explainer"
            )
        population, policy = opened(self.bundle)
        asked = load_model(self.model, self.threshold)
        outcome = _outcome(self.desired, asked, population)
        try:
            inner = None if self.explainer is None else load_inner(self.explainer)
        except ModelError as error:
            raise InputError(f"{self.explainer}: {error}") from None
        return handler_for(
            population,
            policy if self.k is None else replace(policy, k=self.k),
            inner,
            most=self.most,
            model=asked,
            desired=outcome,
            ledger=Ledger(self.ledger) if self.ledger else None,
            track=(
                RunLogger(experiment=self.experiment, run_name="served")
                if self.track or self.experiment
                else False
            ),
        ).answer


_SERVING_NEEDS = "cfk serve needs starlette, uvicorn and prometheus-client"


@command(
    "serve",
    "cfk serve models:/patients-explained/1\ncfk serve models:/explainer/3 --bundle population.cfk"
    " --model models:/credit/7 --desired 1 --port 5001\ncfk serve --bundle catalogue.cfk --model"
    " models:/credit/7 --desired 1 --host 0.0.0.0 --tokens tokens.txt",
)
def serve(
    who: Answering,
    tokens: Annotated[
        Path | None, typer.Option(help="File of bearer tokens, one per line; reread on change.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), for https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Ask clients for a certificate that these sign (PEM).")
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Let others ask without saying who they are.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others need --tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=1, max=65535)] = 5001,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which a request is answered with 504.", min=0.1)
    ] = 60,
    read_timeout: Annotated[
        float, typer.Option(help="Seconds that a client has to send a request.", min=0.1)
    ] = 10,
    threads: Annotated[int, typer.Option(help="Requests worked on at the same time.", min=1)] = 16,
) -> int:
    """Answer queries over HTTP with protected explanations, in front of a registered explainer or
    from a catalogue.

    POST /invocations takes dataframe_split or dataframe_records, as MLflow's server does. /ready
    and /metrics are for orchestrators and monitors.
    """
    check_extra("starlette", "serve", _SERVING_NEEDS)
    check_extra("uvicorn", "serve", _SERVING_NEEDS)
    check_extra("prometheus_client", "serve", _SERVING_NEEDS)
    from cfk_plugin.serving.access import Tokens, check_reach
    from cfk_plugin.serving.handler import show_no_traces
    from cfk_plugin.serving.server import Limits, make_app, run

    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    show_no_traces()
    check_reach(host, asks_who=bool(tokens or client_ca), open_to_all=open_to_all)
    tls = _tls(tls_cert, tls_key, client_ca)
    holders = None if tokens is None else Tokens(tokens)
    limits = Limits(seconds=timeout, threads=threads, reading=read_timeout)
    app = make_app(who.answer(), limits, tokens=holders)
    return run(app, host, port, limits, console(stderr=True), **tls)


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> dict[str, Any]:
    import ssl

    if cert is None and (key or client_ca):
        raise InputError("--tls-key and --client-ca need --tls-cert")
    if cert is None:
        return {}
    try:  # here, where the error is one line
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        raise InputError(
            f"--tls-cert, --tls-key or --client-ca cannot be read ({type(error).__name__}); give"
            " PEM files, the key without a passphrase"
        ) from None
    told: dict[str, Any] = {"ssl_certfile": cert, "ssl_keyfile": key}
    return told | (
        {"ssl_ca_certs": str(client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED} if client_ca else {}
    )


@command("warm-up", "cfk warm-up\nNUMBA_CACHE_DIR=/opt/kernels cfk warm-up")
def warm_up() -> int:
    """Compile what protection needs, once for this machine or image, so that the first request need
    not wait.

    Exit code 1 if the compiled code cannot be kept, as no folder is writable.
    """
    from cfk_plugin._protect import warm_up

    folders = warm_up()
    for folder in sorted(filter(None, folders)):
        say(f"compiled kernels are kept in {folder}")
    return 1 if None in folders else 0


def _outcome(text: str, model: Any, population: Population) -> Any:
    """Read the outcome by the model's classes, else its answers to made-up rows, else as it is,
    with a warning.
    """
    from cfk_plugin._files import goal_among
    from cfk_plugin.data.outcome import OPPOSITE, desired_of_text

    if text == OPPOSITE:
        return text
    if (classes := _classes(model)) is not None:
        return goal_among(classes, text)
    tried = _tried(model, population)

    def guessed(spelled: str) -> Any:
        guess = _read(spelled)
        if tried and not any(isinstance(label, str) == isinstance(guess, str) for label in tried):
            return goal_among(tried, spelled)  # raises, naming the known outcomes
        say(
            f"warning: --desired {spelled}: no made-up row has this outcome, so it could not be"
            " checked that the model has it; if it has not, every explanation is withheld",
            stderr=True,
        )
        return guess

    return desired_of_text(text, tried, guessed)


_TRIED = 200


def _classes(model: Any) -> list[Any] | None:
    """Return the classes that a model, or the one inside a model of MLflow, declares; None if it
    has none.
    """
    import numpy as np

    try:
        with quiet("{}", CFKError):
            inside = model.get_raw_model() if hasattr(model, "get_raw_model") else model
            found = np.asarray(getattr(inside, "classes_", getattr(model, "classes_", None)))
            return found.tolist() if found.ndim == 1 else None
    except CFKError:
        return None


def _tried(model: Any, population: Population) -> list[Any]:
    """Return a model's answers to made-up rows; none if there are no such rows, or it does not
    accept them.
    """
    import pandas as pd

    from cfk_plugin.data.model import LabelModel
    from cfk_plugin.serving.log import made_up

    rows = made_up(population, _TRIED)
    try:
        return (
            []
            if rows is None
            else pd.unique(LabelModel(model, population.schema.features)(rows)).tolist()
        )
    except ModelError:
        return []


def _read(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
