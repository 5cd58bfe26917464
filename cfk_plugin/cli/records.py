"""cfk budget, spool: inspect and maintain what is kept of every release."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfk_plugin.cli.frame import app, command, say, show
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from cfk_plugin.records.outbox import WaitingStream
    from cfk_plugin.records.spool import Spool

budget = typer.Typer(help="Look at a privacy budget, or raise it.", no_args_is_help=True)
spool = typer.Typer(help="Send records that wait for MLflow.", no_args_is_help=True)
app.add_typer(budget, name="budget")
app.add_typer(spool, name="spool")

BudgetFile = Annotated[Path, typer.Argument(help="SQLite file of the budget.")]


@command("show", "cfk budget show budget.db", budget)
def budget_show(path: BudgetFile) -> int:
    """Show a budget: its ceiling, what was spent, what is left, and every spend."""
    from cfk_plugin.dp.budget import read_account
    from cfk_plugin.dp.composition import format_amount

    account = read_account(path)
    if not account.ceilings:
        say("nothing was spent yet")
        return 0
    amounts = {"ceiling": account.ceiling, "spent": account.spent, "left": account.left}
    rows = [
        (name, format_amount(amount.epsilon), format_amount(amount.delta), "", "")
        for name, amount in amounts.items()
    ]
    for spend in account.spends:
        epsilon = format_amount(spend.epsilon)
        rows.append(("fit", epsilon, format_amount(spend.delta), spend.at[:10], spend.what))
    show(("", "ε", "δ", "day", "what"), rows, box=None, pad_edge=False)
    return 0


@command("raise", "cfk budget raise budget.db --epsilon 5", budget)
def budget_raise(
    path: BudgetFile,
    epsilon: Annotated[float | None, typer.Option(help="New ceiling of the sum of all ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="New ceiling of the sum of all δ.")] = None,
) -> int:
    """Raise the ceiling of a budget: people may lose more privacy than promised.

    Earlier ceilings stay on record.
    """
    from cfk_plugin.dp.budget import raise_ceiling

    account = raise_ceiling(path, epsilon, delta)
    say(f"raised from {account.ceilings[-2]} to {account.ceiling}; {account.left} is left")
    return 0


Folder = Annotated[
    Path | None, typer.Option(help="Folder of the spool. Default: CFK_SPOOL, else the user's own.")
]


@command(
    "flush",
    "cfk spool flush\ncfk spool flush --folder /var/lib/cfk/spool",
    spool,
    kept="MLflow has what was delivered by now, and the rest waits",
)
def spool_flush(folder: Folder = None) -> int:
    """Send what ended processes left behind, and show what still waits, since when, and why.

    Exit code 0 when all is delivered, else 3.
    """
    from cfk_plugin.records.shipper import Shipper

    with _existing(folder) as existing:
        return _show_waiting(Shipper(existing).drain())


@contextmanager
def _existing(folder: Path | None) -> Iterator[Spool]:
    from cfk_plugin.records.spool import Spool, SpoolSettings, exists

    settings = SpoolSettings.of(folder)
    if not exists(settings.folder):
        raise InputError(
            f"there is no spool in {settings.folder}; give its folder with --folder, or set"
            " CFK_SPOOL"
        )
    with closing(Spool(settings)) as existing:
        yield existing


def _show_waiting(waiting: Sequence[WaitingStream]) -> int:
    if not waiting:
        say("Nothing waits: MLflow has every record.")
        return 0
    rows = []
    for stream in waiting:
        behind = "–" if stream.oldest is None else _since(time.time() - stream.oldest / 1000)
        problem = stream.problem or "none yet; a process sends it"
        rows.append(
            (stream.mark, f"{stream.n_records:,}", f"{stream.n_bytes / 1000:,.0f}", behind, problem)
        )
    show(("stream", "records", "kB", "behind", "last problem"), rows, box=None)
    return 3


def _since(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(seconds, 0):.0f} s"
