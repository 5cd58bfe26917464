"""The command line `cfk`. Exit codes: 0 pass, 1 fail, 2 usage or error, 3 review."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cfk_plugin.errors import CFKError

if TYPE_CHECKING:
    from rich.console import Console


class _Group(TyperGroup):
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
        except typer.Abort:
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
    cls=_Group,
    help="Privacy for counterfactual explanations: protect them, verify them, see what is at stake.\n\n"
    "Exit codes: 0 pass, 1 fail, 2 usage or error, 3 review.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # They print local variables, and those hold training rows.
    context_settings={"help_option_names": ["-h", "--help"]},
)

audit = typer.Typer(help="Attack what an anonymizer releases, before somebody else does.", no_args_is_help=True)
app.add_typer(audit, name="audit")
ledger = typer.Typer(help="Look at a ledger of releases, or erase records from it.", no_args_is_help=True)
app.add_typer(ledger, name="ledger")

Schema = Annotated[
    Path,
    typer.Option("--schema", "-s", help="JSON with quasi_identifiers, sensitive, target, ...; see the docs."),
]
Model = Annotated[str, typer.Option("--model", "-m", help="joblib or pickle file that you trust, or an MLflow URI.")]
Desired = Annotated[str, typer.Option("--desired", "-d", help="The outcome wanted, or 'opposite'.")]
LedgerUrl = Annotated[str, typer.Argument(metavar="URL", envvar="CFK_LEDGER", help="SQLite file or postgresql URL.")]
LedgerRows = Annotated[Path, typer.Option("--output", "-o", help="Where the rows go, .csv or .jsonl.")]
KeyFile = Annotated[Path | None, typer.Option(help="Key of the ledger; else CFK_LEDGER_KEY, else URL.key.")]
Guarantee = Annotated[str | None, typer.Option(help="reciprocal, catalogue or nominal.")]
Method = Annotated[str, typer.Option(help="auto; for a nominal guarantee exact, grasp, mondrian, or a plugin's.")]
K = Annotated[int | None, typer.Option("--k", help="Least number of people behind an explanation.")]


def _command(name: str, examples: str, group: typer.Typer = app) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Register a command that returns its exit code; an error becomes one line and exit code 2."""

    def register(function: Callable[..., int]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                code = function(*args, **kwargs)
            except CFKError as error:
                _fail(str(error), error)
            except Exception as error:  # noqa: BLE001 - its text and its traceback may quote training rows
                _fail(f"unexpected {type(error).__name__}; CFK_DEBUG=1 shows where", error)
            raise typer.Exit(code)

        epilog = "[bold]Examples[/]\n\n" + "\n\n".join(examples.strip().splitlines())
        group.command(name, epilog=epilog)(guarded)
        return guarded

    return register


def _fail(message: str, error: Exception) -> None:
    if os.environ.get("CFK_DEBUG"):
        raise error
    typer.echo(f"cfk: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


@_command("demo", "cfk demo\ncfk demo --k 5 --patients 40 --folder /tmp/cfk")
def demo(
    k: Annotated[int, typer.Option("--k", help="Least number of people behind an explanation.")] = 10,
    patients: Annotated[int, typer.Option(help="Patients to explain.", min=1)] = 20,
    folder: Annotated[Path, typer.Option(help="Where the MLflow store is written.")] = Path(),
) -> int:
    """Protect the explanations of real patients, before and after, and log them to MLflow."""
    from cfk_plugin.demo import run

    return run(k=k, patients=patients, folder=folder, console=_console())


@_command(
    "protect",
    "cfk protect train.csv cf.csv -s schema.json -m model.joblib --desired low -o released.json\n"
    "cfk protect train.parquet cf.csv -s schema.json -m models:/credit/3 --k 5 --track -o released.csv",
)
def protect(
    train: Annotated[Path, typer.Argument(help="Training rows, CSV or Parquet.")],
    counterfactuals: Annotated[Path, typer.Argument(help="Raw counterfactuals, CSV or Parquet.")],
    schema: Schema,
    model: Model,
    desired: Desired = "opposite",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=".json, .csv or .parquet; JSON on stdout without it."),
    ] = None,
    factuals: Annotated[Path | None, typer.Option(help="The instance behind each counterfactual.")] = None,
    k: K = None,
    guarantee: Guarantee = None,
    method: Method = "auto",
    policy: Annotated[Path | None, typer.Option(help="JSON with the settings of a policy; options win.")] = None,
    objective: Annotated[str | None, typer.Option(help="pureness, ncp or weighted.")] = None,
    min_pureness: Annotated[float | None, typer.Option(help="Withhold what is less pure.")] = None,
    max_ncp: Annotated[float | None, typer.Option(help="Withhold what loses more information.")] = None,
    ledger: Annotated[str | None, typer.Option(help="Ledger of releases: SQLite file or postgresql URL.")] = None,
    track: Annotated[bool, typer.Option("--track", help="Log to MLflow.")] = False,
    experiment: Annotated[str | None, typer.Option(help="MLflow experiment; implies --track.")] = None,
) -> int:
    """Turn raw counterfactuals into k-anonymous explanations.

    Exit code 0 when all are released, 3 when some are withheld, 1 when all are.
    """
    from cfk_plugin.commands import protect as command

    changes = {"k": k, "guarantee": guarantee, "objective": objective, "min_pureness": min_pureness, "max_ncp": max_ncp}
    job = command.Job(
        train=train,
        schema=schema,
        model=model,
        counterfactuals=counterfactuals,
        factuals=factuals,
        desired=desired,
        policy=policy,
        changes=changes,
        method=method,
        output=output,
        ledger=ledger,
        experiment=experiment,
        track=track,
    )
    return command.run(job, _console(), _console(stderr=True))


@_command(
    "verify",
    "cfk verify released.json train.csv -s schema.json\ncfk verify released.json train.csv -s schema.json --k 20",
)
def verify(
    released: Annotated[Path, typer.Argument(help="Released explanations, JSON.")],
    train: Annotated[Path, typer.Argument(help="The people to count, CSV or Parquet.")],
    schema: Schema,
    k: K = None,
) -> int:
    """Recount released explanations against a population, from the regions alone.

    Exit code 0 when every region holds k people, 1 when one does not, 3 when nothing was released or a
    certificate says something else than the recount. Without --k, the k of the file's own policy is asked for.
    """
    from cfk_plugin.commands import verify as command

    return command.run(released, train, schema, k, _console())


@_command(
    "linkage",
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --holdout test.csv -o audit.json\n"
    "cfk audit linkage train.csv cf.csv -s schema.json -m model.joblib -d low --attacks linkage,model_filter --track",
    audit,
)
def audit_linkage(
    train: Annotated[Path, typer.Argument(help="Training rows, CSV or Parquet.")],
    counterfactuals: Annotated[Path, typer.Argument(help="Raw counterfactuals, CSV or Parquet.")],
    schema: Schema,
    model: Model,
    desired: Desired = "opposite",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the report goes, .json.")] = None,
    factuals: Annotated[Path | None, typer.Option(help="The instance behind each counterfactual.")] = None,
    holdout: Annotated[Path | None, typer.Option(help="People who are not in the training rows: the control.")] = None,
    k: K = None,
    guarantee: Guarantee = None,
    method: Method = "auto",
    policy: Annotated[Path | None, typer.Option(help="JSON with the settings of a policy; options win.")] = None,
    attacks: Annotated[str | None, typer.Option(help="Names with commas between; all without it.")] = None,
    limit: Annotated[int, typer.Option(help="Most counterfactuals attacked; more are sampled.", min=1)] = 100,
    simulations: Annotated[int, typer.Option(help="Runs per candidate of a randomised method.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
    track: Annotated[bool, typer.Option("--track", help="Log to MLflow.")] = False,
    experiment: Annotated[str | None, typer.Option(help="MLflow experiment; implies --track.")] = None,
) -> int:
    """Link what would be released to people: look-ups, rerunning the algorithm, asking the model, and more.

    Exit code 0 when the guarantee's promise holds, 1 when an attack leaves fewer people, 3 when that was not tested.
    """
    from cfk_plugin.commands import audit as command

    job = command.Job(
        train=train,
        schema=schema,
        model=model,
        counterfactuals=counterfactuals,
        factuals=factuals,
        holdout=holdout,
        desired=desired,
        policy=policy,
        changes={"k": k, "guarantee": guarantee},
        method=method,
        attacks=attacks,
        limit=limit,
        simulations=simulations,
        seed=seed,
        output=output,
        experiment=experiment,
        track=track,
    )
    return command.run(job, _console(), _console(stderr=True))


@_command("plugins", "cfk plugins\nCFK_DISABLE_PLUGINS=nice cfk plugins")
def plugins() -> int:
    """List installed plugins, their versions and what they add."""
    from cfk_plugin.commands import plugins as command

    return command.run(_console())


@_command("status", "cfk ledger status ledger.db", ledger)
def ledger_status(url: LedgerUrl, key_file: KeyFile = None) -> int:
    """Show how many records and releases a ledger holds."""
    from cfk_plugin.commands import ledger as command

    return command.status(url, key_file, _console())


@_command("export", "cfk ledger export ledger.db -o audit.csv", ledger)
def ledger_export(url: LedgerUrl, output: LedgerRows, key_file: KeyFile = None) -> int:
    """Write what was released, when and how often: handles, hashes, counts and times, no value."""
    from cfk_plugin.commands import ledger as command

    return command.export(url, key_file, output, _console(stderr=True))


@_command("forget", "cfk ledger forget ledger.db -s schema.json --rows person.csv --train train.csv", ledger)
def ledger_forget(
    url: LedgerUrl,
    schema: Schema,
    rows: Annotated[Path, typer.Option(help="Rows that are to be forgotten, as in the training table.")],
    train: Annotated[Path | None, typer.Option(help="Training rows: their columns and types are then used.")] = None,
    key_file: KeyFile = None,
) -> int:
    """Erase records from a ledger; what is on record for others stays."""
    from cfk_plugin.commands import ledger as command

    return command.forget(url, key_file, schema, rows, train, _console(), _console(stderr=True))


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=100)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
