"""cfk budget, track: inspect and maintain what is kept of every release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import app, command, say, show
from cfk_plugin.errors import counted

budget = typer.Typer(help="Look at a privacy budget, or raise it.", no_args_is_help=True)
app.add_typer(budget, name="budget")

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


@command(
    "track",
    "cfk track cfk-journal.jsonl",
    kept="MLflow has what was sent by now, and counts it once if it is sent again",
)
def track(
    journals: Annotated[
        list[Path], typer.Argument(help="Files with records that MLflow did not take.")
    ],
) -> int:
    """Send the records of journals to MLflow. Records that were sent before add nothing.

    Exit code 0 when MLflow has all of them, otherwise 3.
    """
    from cfk_plugin.tracking.journal import send

    is_complete = True
    for journal in journals:
        delivery = send(journal)
        say(f"MLflow has {counted(delivery.n_delivered, 'record')} of {journal}")
        if delivery.unreadable:
            lines = ", ".join(map(str, delivery.unreadable))
            say(f"lines that cannot be read, as a record was not written to its end: {lines}")
        if delivery.n_waiting:
            problems = "; ".join(dict.fromkeys(delivery.problems.values()))
            say(f"{counted(delivery.n_waiting, 'record')} cannot be sent: {problems}")
        is_complete = is_complete and delivery.is_complete
    return 0 if is_complete else 3
