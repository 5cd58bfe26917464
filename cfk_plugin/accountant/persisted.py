"""Books in the database of a ledger: one budget for all processes and servers that share it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Table, exists, select
from sqlalchemy.dialects import postgresql, sqlite

from cfk_plugin.accountant.amounts import Amount, Budget
from cfk_plugin.accountant.books import Books, Spend, now
from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger import tables
from cfk_plugin.ledger.chain import Chain
from cfk_plugin.ledger.database import set_limits
from cfk_plugin.ledger.ledger import Ledger

_T = TypeVar("_T")


class Persisted:
    """Books in a ledger's database.

    Parameters
    ----------
    ledger : Ledger
    owned : bool
        Whether to close the ledger with the books.
    """

    lasts = True

    def __init__(self, ledger: Ledger, owned: bool) -> None:
        self._ledger, self._owned = ledger, owned

    def read(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`."""
        return self._ledger.run(lambda chain: work(Kept(chain)), "read")

    def change(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`."""
        return self._ledger.run(lambda chain: work(Kept(chain)), "settle")

    def close(self) -> None:
        """See `Store`."""
        if self._owned:
            self._ledger.close()


class Kept:
    """The books, within a transaction."""

    def __init__(self, chain: Chain) -> None:
        self._chain, self._connection = chain, chain.connection

    def accounts(self) -> list[str]:
        """See `Books`."""
        table = tables.accounts.c
        return list(self._connection.execute(select(table.account).order_by(table.account)).scalars())

    def lock(self, account: str) -> None:
        """See `Books`."""
        on_postgresql = self._connection.dialect.name == "postgresql"
        new = (postgresql.insert if on_postgresql else sqlite.insert)(tables.accounts)
        row = select(tables.accounts).where(tables.accounts.c.account == account)
        # On SQLite, BEGIN IMMEDIATE has locked everything.
        for statement in (new.values(account=account).on_conflict_do_nothing(), row.with_for_update()):
            set_limits(self._connection)
            self._connection.execute(statement)

    def ceilings(self, account: str) -> list[Budget]:
        """See `Books`."""
        return [_budget(row) for row in self._rows(tables.ceilings, account)]

    def spends(self, account: str) -> list[Spend]:
        """See `Books`."""
        rows = [(row, _budget(row)) for row in self._rows(tables.spends, account)]
        return [Spend(epsilon=b.epsilon, delta=b.delta, what=row.what, at=row.at) for row, b in rows]

    def set_ceiling(self, account: str, ceiling: Budget) -> None:
        """See `Books`."""
        self._chain.insert(tables.ceilings, [{"account": account, "at": now(), **_texts(ceiling)}])

    def record(self, account: str, spend: Spend, token: str) -> None:
        """See `Books`."""
        values = {"account": account, "what": spend.what, "at": spend.at, "token": token, **_texts(spend.budget)}
        self._chain.insert(tables.spends, [values])

    def has(self, token: str) -> bool:
        """See `Books`."""
        return bool(self._connection.execute(select(exists().where(tables.spends.c.token == token))).scalar_one())

    def _rows(self, table: Table, account: str) -> list[Any]:
        return sorted(self._chain.rows(table, table.c.account == account), key=lambda row: row.seq)


def _texts(budget: Budget) -> dict[str, str]:
    return {"epsilon": repr(float(budget.epsilon)), "delta": repr(float(budget.delta))}


def _budget(row: Any) -> Budget:
    with contextlib.suppress(ValueError):  # a BudgetError is one
        budget = Budget(float(row.epsilon), float(row.delta))
        Amount.of(*budget)
        return budget
    raise LedgerError("a budget in the ledger has an amount that is none; the database was changed: restore a backup")
