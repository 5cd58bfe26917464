"""The frame of every command: options that several share, one line per error, exit codes, and where
text goes.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import metadata
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast, get_type_hints

import typer
from typer.core import TyperGroup

from cfk_plugin.errors import (
    CFKError,
    InputError,
    did_you_mean,
    shows_errors,
)

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin._files import CommandInputs
    from cfk_plugin.data.population import Population
    from cfk_plugin.release.anonymizer import KAnonymizer

SchemaFile = Annotated[
    Path,
    typer.Option(
        "--schema",
        "-s",
        help="JSON with quasi_identifiers, sensitive, target, ...; cfk schema writes one.",
    ),
]
OptionalSchemaFile = Annotated[
    Path | None, typer.Option("--schema", "-s", help="The schema that goes with the rows.")
]
Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="joblib or pickle file that you trust, .onnx, .ubj, or an MLflow URI."
    ),
]
Desired = Annotated[
    str,
    typer.Option(
        "--desired",
        "-d",
        help="The outcome wanted: a label, several as a,b, a range 50..80, 'opposite'.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(help="For a model that returns probabilities: the least one for outcome 1."),
]
Objective = Annotated[
    str | None,
    typer.Option(help="pureness or ncp.", show_default="the policy's, pureness"),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k", help="Least number of people behind an explanation.", show_default="the policy's, 10"
    ),
]
Train = Annotated[Path, typer.Argument(help="Training rows, CSV or Parquet.")]
Policy = Annotated[
    Path | None,
    typer.Option(
        help="JSON with the settings of a policy; options win.", show_default="PrivacyPolicy()"
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")
]
Released = Annotated[
    Path | None,
    typer.Option("--output", "-o", help=".json, .csv or .parquet. Default: JSON on stdout."),
]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.", min=0)]
Track = Annotated[bool, typer.Option("--track", help="Log to MLflow.")]
Experiment = Annotated[str | None, typer.Option(help="MLflow experiment; implies --track.")]


EXIT = {"pass": 0, "fail": 1, "review": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawInputs:
    """What every command on raw counterfactuals takes, in this order."""

    train: Train
    counterfactuals: Annotated[Path, typer.Argument(help="Raw counterfactuals, CSV or Parquet.")]
    schema: SchemaFile
    model: Model
    desired: Desired = "opposite"
    threshold: Threshold = None
    factuals: Annotated[
        Path | None,
        typer.Option(help="The instance behind each counterfactual; a catalogue needs it."),
    ] = None
    k: K = None
    guarantee: Annotated[
        str | None,
        typer.Option(help="catalogue or lookup.", show_default="the policy's, catalogue"),
    ] = None
    method: Annotated[
        str,
        typer.Option(help="auto; for a lookup guarantee exact, grasp, mondrian, or a plugin's."),
    ] = "auto"
    policy: Policy = None
    objective: Objective = None
    min_pureness: Annotated[
        float | None,
        typer.Option(help="Withhold what is less pure.", show_default="the guarantee's"),
    ] = None
    max_ncp: Annotated[float | None, typer.Option(help="Withhold what loses more information.")] = (
        None
    )

    def read(self) -> CommandInputs:
        """Read all of it; options win over the policy's file."""
        import cfk_plugin._files as files
        from cfk_plugin.data.population import Population

        # What is quick to check comes before what takes long to read.
        changes = ("k", "guarantee", "objective", "min_pureness", "max_ncp")
        rules = files.read_policy(self.policy, {name: getattr(self, name) for name in changes})
        if self.factuals is None and rules.guarantee == "catalogue":
            raise InputError(
                "a catalogue answers the person whom a counterfactual explains; give --factuals,"
                " the instance behind each counterfactual, or --guarantee lookup"
            )
        codes = files.code_columns(self.schema)
        rows = files.read_table(self.train, codes)
        roles = files.read_schema(self.schema, rows)
        restricted = [each.name for each in roles.attributes if each.is_restricted]
        if restricted and self.factuals is None:
            raise InputError(
                f"the schema says how {', '.join(restricted)} may change; give --factuals, the"
                " instance behind each counterfactual"
            )
        model = files.load_model(self.model, self.threshold)
        goal = files.wanted(self.desired, model, rows[list(roles.features)])
        raw = files.read_table(self.counterfactuals, codes)
        factuals = None if self.factuals is None else files.read_table(self.factuals, codes)
        if factuals is not None and len(factuals) != len(raw):
            raise InputError(
                f"--factuals: {len(factuals)} rows for {len(raw)} counterfactuals; give one each"
            )
        population = Population.from_frame(rows, roles)
        return files.CommandInputs(rules, population, model, goal, raw, factuals)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueInputs:
    """What every command that makes a catalogue takes, in this order."""

    train: Train
    schema: SchemaFile
    model: Model
    desired: Desired = "opposite"
    threshold: Threshold = None
    k: K = None
    policy: Policy = None

    def fit(self) -> tuple[KAnonymizer, Population]:
        """Read all of it and make the catalogue; options win over the policy's file."""
        import cfk_plugin._files as files
        from cfk_plugin.data.population import Population
        from cfk_plugin.release.anonymizer import KAnonymizer

        rules = files.read_policy(self.policy, {"k": self.k, "guarantee": "catalogue"})
        rows, schema = files.read_rows(self.train, self.schema)
        model = files.load_model(self.model, self.threshold)
        outcome = files.wanted(self.desired, model, rows[list(schema.features)])
        population = Population.from_frame(rows, schema)
        anonymizer = KAnonymizer(policy=rules)
        anonymizer.fit(population, model, outcome)
        return anonymizer, population


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPlace:
    output: Output = None
    track: Track = False
    experiment: Experiment = None

    def keep(self, report: Any) -> None:
        """Write and log a report, if asked to."""
        from cfk_plugin._files import write_report

        if self.output is not None:
            write_report(self.output, report.to_json(indent=1))
        if self.track or self.experiment:
            say(f"logged to MLflow run {report.log(experiment=self.experiment)}", stderr=True)


class IgnoresClosedPipe:
    """A text stream whose output goes nowhere once its reader is gone, as after ``cfk ... | head``.

    The command goes on, so that its exit code says what it found.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._ignoring_closed_pipe():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._ignoring_closed_pipe():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _ignoring_closed_pipe(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def ignoring_closed_pipes() -> Iterator[None]:
    """Ignore that the reader of standard output, or of errors, has gone."""
    output, errors = IgnoresClosedPipe(sys.stdout), IgnoresClosedPipe(sys.stderr)
    with redirect_stdout(cast("TextIO", output)), redirect_stderr(cast("TextIO", errors)):
        try:
            yield
        finally:
            output.flush()
            errors.flush()


class OneLineErrors(TyperGroup):
    def main(self, *args: Any, **extra: Any) -> Any:
        with ignoring_closed_pipes():
            return self._main(*args, **extra)

    def _main(self, *args: Any, **extra: Any) -> Any:
        run = functools.partial(super().main, *args)
        if not extra.pop("standalone_mode", True):
            return run(standalone_mode=False, **extra)
        try:
            code = run(standalone_mode=False, **extra)
        except typer.Abort:  # Ctrl-C outside of a command
            code = 2
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            # nothing was asked: typer shows the help
            if type(error).__name__ == "NoArgsIsHelpError":
                return run(**extra)
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context is not None else ""
            typer.echo(f"cfk: {' '.join(error.format_message().split())}{hint}", err=True)
            code = 2
        sys.exit(code)


app = typer.Typer(
    cls=OneLineErrors,
    help=(
        "Privacy for counterfactual explanations: protect them, verify them, see what is at"
        " stake.\n\nExit codes: 0 pass, 1 fail, 2 usage or error, 3 review."
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they print local variables, which hold training rows
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cfk-plugin {metadata.version('cfk-plugin')}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def command(
    name: str,
    examples: str,
    group: typer.Typer = app,
    *,
    kept: str = "nothing was written",
) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Register a command: an error, or Ctrl-C (after which `kept` says what exists), is one line
    and exit code 2.
    """

    def register(function: Callable[..., int]) -> Callable[..., None]:
        flat, groups = _flat(function)

        @functools.wraps(function)
        def guarded(**given: Any) -> None:
            try:
                for place, kind in groups.items():
                    given[place] = kind(
                        **{each.name: given.pop(each.name) for each in fields(kind)}
                    )
                with warnings_in_a_line():
                    code = function(**given)
            except CFKError as error:
                _fail(str(error), error)
            except KeyboardInterrupt as error:
                _fail(f"stopped; {kept}", error)
            except BaseException as error:  # noqa: BLE001 - its text and its traceback may quote training rows
                _fail(f"unexpected {type(error).__name__}; CFK_DEBUG=1 shows where", error)
            raise typer.Exit(code)

        guarded.__signature__ = Signature(flat)  # type: ignore[attr-defined]
        guarded.__annotations__ = {each.name: each.annotation for each in flat}
        epilog = "[bold]Examples[/]\n\n" + "\n\n".join(examples.strip().splitlines())
        told = "\n\n".join(
            " ".join(each.split()) for each in (function.__doc__ or "").split("\n\n")
        )
        group.command(name, help=told, epilog=epilog)(guarded)
        return guarded

    return register


def _flat(function: Callable[..., int]) -> tuple[list[Parameter], dict[str, Any]]:
    """Return the parameters of a command, each dataclass replaced by its fields, and the
    dataclasses.
    """
    found, groups, hints = (
        list[Parameter](),
        dict[str, Any](),
        get_type_hints(function, include_extras=True),
    )
    for each in signature(function).parameters.values():
        if not is_dataclass(kind := hints[each.name]):
            found.append(each.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
            continue
        groups[each.name], own = kind, get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            default = Parameter.empty if field.default is MISSING else field.default
            found.append(
                Parameter(
                    field.name, Parameter.KEYWORD_ONLY, default=default, annotation=own[field.name]
                )
            )
    return found, groups


@contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Print warnings of ours as a line each, without the place in the code that Python shows."""
    shown: set[str] = set()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_in_a_line(
            message: Warning | str, category: type[Warning], *place: Any, **more: Any
        ) -> None:
            if category.__module__ != CFKError.__module__:
                show(message, category, *place, **more)
                return
            text = str(message)
            if text not in shown:
                shown.add(text)
                say(f"warning: {text}", stderr=True)

        warnings.showwarning = show_in_a_line
        yield


def _fail(message: str, error: BaseException) -> None:
    if shows_errors():
        raise error
    typer.echo(f"cfk: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


def console(*, stderr: bool = False) -> Console:
    """Return where text goes; lines have 100 characters in a pipe."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, width=100, highlight=False)


def say(text: str, *, stderr: bool = False, markup: bool = False) -> None:
    """Print a line as it is, or with rich's `markup`."""
    console(stderr=stderr).print(text, markup=markup, soft_wrap=True)


def show(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, stderr: bool = False, **style: Any
) -> None:
    """Print a table, with cells as they are."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, **style)
    for row in rows:
        table.add_row(*map(Text, row))
    console(stderr=stderr).print(table)


def names(option: str, text: str | None, known: Iterable[str]) -> list[str]:
    """Read names separated by commas, each once, all by default; unknown ones are refused before
    anything is read.
    """
    if text is None:
        return list(known)
    chosen = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not chosen:
        raise InputError(f"{option} names nothing: known are {', '.join(known)}")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise InputError(
            f"{option} {', '.join(unknown)}: known are {', '.join(known)}"
            f"{did_you_mean(unknown, known)}"
        )
    return chosen


def numbers(option: str, text: str) -> list[int]:
    """Read whole numbers separated by commas, each once, smallest first."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"{option} takes whole numbers with commas between, as 2,5,10") from None
