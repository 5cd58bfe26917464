"""The frame of every command: options that several share, one line per error, exit codes, and where text goes."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cfk_plugin.errors import CFKError

if TYPE_CHECKING:
    from rich.console import Console

SchemaFile = Annotated[
    Path,
    typer.Option("--schema", "-s", help="JSON with quasi_identifiers, sensitive, target, ...; see the docs."),
]
Model = Annotated[str, typer.Option("--model", "-m", help="joblib or pickle file that you trust, or an MLflow URI.")]
Desired = Annotated[str, typer.Option("--desired", "-d", help="The outcome wanted, or 'opposite'.")]
LedgerUrl = Annotated[str, typer.Argument(metavar="URL", envvar="CFK_LEDGER", help="SQLite file or postgresql URL.")]
KeyFile = Annotated[Path | None, typer.Option(help="Key of the ledger; else CFK_LEDGER_KEY, else URL.key.")]
Guarantee = Annotated[
    str | None, typer.Option(help="catalogue, reciprocal or nominal.", show_default="the policy's, catalogue")
]
Method = Annotated[str, typer.Option(help="auto; for a nominal guarantee exact, grasp, mondrian, or a plugin's.")]
Objective = Annotated[
    str | None, typer.Option(help="pureness, ncp or weighted.", show_default="the policy's, pureness")
]
MinPureness = Annotated[float | None, typer.Option(help="Withhold what is less pure.", show_default="the guarantee's")]
MaxNcp = Annotated[float | None, typer.Option(help="Withhold what loses more information.")]
Effort = Annotated[str, typer.Option(help="For --rerun: fast, balanced or thorough, as for the release.")]
K = Annotated[
    int | None,
    typer.Option("--k", help="Least number of people behind an explanation.", show_default="the policy's, 10"),
]
Train = Annotated[Path, typer.Argument(help="Training rows, CSV or Parquet.")]
Counterfactuals = Annotated[Path, typer.Argument(help="Raw counterfactuals, CSV or Parquet.")]
Factuals = Annotated[Path | None, typer.Option(help="The instance behind each counterfactual.")]
Policy = Annotated[
    Path | None,
    typer.Option(help="JSON with the settings of a policy; options win.", show_default="PrivacyPolicy()"),
]
Ledger = Annotated[str | None, typer.Option(help="Ledger of releases: SQLite file or postgresql URL.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)]
Track = Annotated[bool, typer.Option("--track", help="Log to MLflow.")]
Experiment = Annotated[str | None, typer.Option(help="MLflow experiment; implies --track.")]


class OneLineErrors(TyperGroup):
    """Says what is wrong with the usage in one line, as with every other error."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that was asked for."""
        run = functools.partial(super().main, args, prog_name, complete_var, windows_expand_args=windows_expand_args)
        if not standalone_mode:
            return run(standalone_mode=False, **extra)
        try:
            code = run(standalone_mode=False, **extra)
        except typer.Abort:  # Ctrl-C outside of a command
            code = 2
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":  # nothing was asked: typer shows the help
                return run(**extra)
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context is not None else ""
            typer.echo(f"cfk: {' '.join(error.format_message().split())}{hint}", err=True)
            code = 2
        sys.exit(code)


app = typer.Typer(
    cls=OneLineErrors,
    help="Privacy for counterfactual explanations: protect them, verify them, see what is at stake.\n\n"
    "Exit codes: 0 pass, 1 fail, 2 usage or error, 3 review.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # They print local variables, and those hold training rows.
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cfk-plugin {metadata.version('cfk-plugin')}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
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
    """Register a command that returns its exit code; an error becomes one line and exit code 2, and so does Ctrl-C.

    `kept` says what is there when the command was stopped.
    """

    def register(function: Callable[..., int]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                code = function(*args, **kwargs)
            except CFKError as error:
                _fail(str(error), error)
            except KeyboardInterrupt as error:
                _fail(f"stopped; {kept}", error)
            except BaseException as error:  # noqa: BLE001 - its text and its traceback may quote training rows
                _fail(f"unexpected {type(error).__name__}; CFK_DEBUG=1 shows where", error)
            raise typer.Exit(code)

        epilog = "[bold]Examples[/]\n\n" + "\n\n".join(examples.strip().splitlines())
        group.command(name, epilog=epilog)(guarded)
        return guarded

    return register


def _fail(message: str, error: BaseException) -> None:
    if os.environ.get("CFK_DEBUG"):
        raise error
    typer.echo(f"cfk: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


def console(*, stderr: bool = False) -> Console:
    """Return where text goes; a pipe gets lines of 100 characters."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, width=100, highlight=False)
