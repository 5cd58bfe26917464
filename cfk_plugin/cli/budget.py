"""cfk budget: what may be spent on each population under differential privacy, and what was."""

from __future__ import annotations

from typing import Annotated

import typer

from cfk_plugin.cli.frame import app, command, console
from cfk_plugin.cli.options import KeyFile, LedgerUrl

budget = typer.Typer(help="Look at privacy budgets in a ledger, or raise one.", no_args_is_help=True)
app.add_typer(budget, name="budget")


@command("show", "cfk budget show ledger.db\ncfk budget show ledger.db --json", budget)
def budget_show(
    url: LedgerUrl,
    key_file: KeyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with every ceiling and every fit.")] = False,
) -> int:
    """Show every account: its ceiling, what was spent, what is left."""
    from cfk_plugin.commands import budget as work

    return work.show(url, key_file, as_json, console())


@command("raise", "cfk budget raise ledger.db --account patients --epsilon 5", budget)
def budget_raise(
    url: LedgerUrl,
    account: Annotated[str, typer.Option(help="Scope, or another name that was given.")],
    epsilon: Annotated[float | None, typer.Option(help="New ceiling of the sum of all ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="New ceiling of the sum of all δ.")] = None,
    key_file: KeyFile = None,
) -> int:
    """Raise the ceiling of an account: people may lose more than was said before. Earlier ceilings stay on record."""
    from cfk_plugin.commands import budget as work

    return work.raise_ceiling(url, key_file, account, epsilon, delta, console())
