"""Books in the database of a ledger: one budget for all processes and servers that share it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, exists, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from cfk_plugin.accountant import tables
from cfk_plugin.accountant.amounts import Amount, Budget
from cfk_plugin.accountant.books import Blank, Books, Spend, now
from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger.ledger import Ledger
from cfk_plugin.ledger.tables import meta

_T = TypeVar("_T")
_VERSION = "budgets"  # in the ledger's table of facts, once there are tables of budgets


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
        return self._ledger.database.run(lambda c: work(Kept(c) if there(c) else Blank()), "read")

    def change(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`. The tables are made when they are first needed."""
        if not self._ledger.database.run(there, "read"):
            self._ledger.database.run(_make, "exclusive")
        return self._ledger.database.run(lambda c: work(Kept(c)), "settle")

    def close(self) -> None:
        """See `Store`."""
        if self._owned:
            self._ledger.close()


class Kept:
    """The books, within a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def accounts(self) -> list[str]:
        """See `Books`."""
        table = tables.accounts.c
        return list(self._connection.execute(select(table.account).order_by(table.account)).scalars())

    def lock(self, account: str) -> None:
        """See `Books`."""
        on_postgresql = self._connection.dialect.name == "postgresql"
        new = (postgresql.insert if on_postgresql else sqlite.insert)(tables.accounts)
        self._connection.execute(new.values(account=account).on_conflict_do_nothing())
        if on_postgresql:  # on SQLite, BEGIN IMMEDIATE has locked everything
            row = select(tables.accounts).where(tables.accounts.c.account == account)
            self._connection.execute(row.with_for_update())

    def ceilings(self, account: str) -> list[Budget]:
        """See `Books`."""
        return [_budget(row) for row in self._rows(tables.ceilings, account)]

    def spends(self, account: str) -> list[Spend]:
        """See `Books`."""
        rows = [(row, _budget(row)) for row in self._rows(tables.spends, account)]
        return [Spend(epsilon=b.epsilon, delta=b.delta, what=row.what, at=row.at) for row, b in rows]

    def set_ceiling(self, account: str, ceiling: Budget) -> None:
        """See `Books`."""
        self._connection.execute(insert(tables.ceilings).values(account=account, at=now(), **_texts(ceiling)))

    def record(self, account: str, spend: Spend, token: str) -> None:
        """See `Books`."""
        values = {"account": account, "what": spend.what, "at": spend.at, "token": token, **_texts(spend.budget)}
        self._connection.execute(insert(tables.spends).values(values))

    def has(self, token: str) -> bool:
        """See `Books`."""
        return bool(self._connection.execute(select(exists().where(tables.spends.c.token == token))).scalar_one())

    def _rows(self, table: Table, account: str) -> Any:
        return self._connection.execute(select(table).where(table.c.account == account).order_by(table.c.id)).all()


def there(connection: Connection) -> bool:
    """Return whether a ledger has tables of budgets, and that this version can read them.

    Raises
    ------
    LedgerError
        If they are of another version.
    """
    version = connection.execute(select(meta.c.value).where(meta.c.name == _VERSION)).scalar_one_or_none()
    if version is None:
        return False
    if version != str(tables.VERSION):
        shown = version if version.isdecimal() else "unknown"
        raise LedgerError(
            f"the ledger's tables of budgets have version {shown}, this cfk_plugin reads version {tables.VERSION}; "
            "install the version of cfk_plugin that wrote them, or a later one"
        )
    return True


def _make(connection: Connection) -> None:
    """Make the tables, unless somebody else was faster."""
    if not there(connection):
        tables.create_all(connection)
        connection.execute(insert(meta).values(name=_VERSION, value=str(tables.VERSION)))


def _texts(budget: Budget) -> dict[str, str]:
    return {"epsilon": repr(float(budget.epsilon)), "delta": repr(float(budget.delta))}


def _budget(row: Any) -> Budget:
    with contextlib.suppress(ValueError):  # a BudgetError is one
        budget = Budget(float(row.epsilon), float(row.delta))
        Amount.of(*budget)
        return budget
    raise LedgerError("a budget in the ledger has an amount that is none; the database was changed: restore a backup")
