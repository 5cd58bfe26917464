"""`cfk budget`: the accounts of a ledger, and raising a ceiling."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from cfk_plugin.records import budget as accountant
from cfk_plugin.records.budget import format_amount
from cfk_plugin.records.ledger import Ledger

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.records.budget import Account


def show(url: str, key_file: Path | None, as_json: bool, console: Console) -> int:
    """Print the accounts of a ledger; return the exit code."""
    with Ledger(url, key_file=key_file) as ledger:
        known = accountant.accounts(ledger)
    if as_json:
        console.file.write(json.dumps({"accounts": [_plain(account) for account in known]}, indent=1) + "\n")
    elif not known:
        console.print("no budget was used in this ledger", highlight=False)
    else:
        console.print(_table(known))
    return 0


def raise_ceiling(
    url: str, key_file: Path | None, account: str, epsilon: float | None, delta: float | None, console: Console
) -> int:
    """Raise the ceiling of an account; return the exit code."""
    with Ledger(url, key_file=key_file) as ledger:
        now = accountant.raise_ceiling(ledger, account, epsilon, delta)
    line = f"raised from {now.ceilings[-2]} to {now.ceiling}; {now.left} is left"
    console.print(line, highlight=False, soft_wrap=True)
    return 0


def _table(known: list[Account]) -> Table:
    table = Table("account", "", "ceiling", "spent", "left", "fits", "last", box=None, pad_edge=False)
    for account in known:
        last = account.spends[-1].at[:10] if account.spends else "–"
        for at, symbol in enumerate("εδ"):
            amounts = (account.ceiling[at], account.spent[at], account.left[at])
            whose = (escape(account.name), symbol) if at == 0 else ("", symbol)
            table.add_row(*whose, *map(format_amount, amounts), *((str(len(account.spends)), last) if at == 0 else ()))
    return table


def _plain(account: Account) -> dict[str, Any]:
    return {
        "account": account.name,
        "ceiling": account.ceiling._asdict(),
        "spent": account.spent._asdict(),
        "left": account.left._asdict(),
        "fits": len(account.spends),
        "last": account.spends[-1].at if account.spends else None,
        "ceilings": [ceiling._asdict() for ceiling in account.ceilings],
        "spends": [asdict(spend) for spend in account.spends],
    }
