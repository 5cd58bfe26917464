"""The accounts of a ledger, for whoever is answerable for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cfk_plugin.accountant import rule
from cfk_plugin.accountant.amounts import Amount, Budget
from cfk_plugin.accountant.books import Books, Spend
from cfk_plugin.errors import BudgetError
from cfk_plugin.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Account:
    """An account as it is on record.

    Attributes
    ----------
    name : str
        A scope, or another name that was given.
    ceilings : sequence of Budget
        All that it had, today's at the end.
    spends : sequence of Spend
        The first at the beginning.
    """

    name: str
    ceilings: Sequence[Budget]
    spends: Sequence[Spend]

    @property
    def ceiling(self) -> Budget:
        """Today's ceiling."""
        return self.ceilings[-1]

    @property
    def spent(self) -> Budget:
        """Sum of the spends, rounded up."""
        return Amount.sum(s.budget for s in self.spends).rounded_up()

    @property
    def left(self) -> Budget:
        """What may still be spent, rounded down."""
        return Amount.sum(s.budget for s in self.spends).left_of(Amount.of(*self.ceiling))


def accounts(ledger: Ledger) -> list[Account]:
    """Return all accounts of a ledger, by name; nothing is made where there are none.

    Raises
    ------
    LedgerError
        If the ledger's database fails.
    """
    from cfk_plugin.accountant.persisted import Persisted

    def read(books: Books) -> list[Account]:
        return [Account(name, books.ceilings(name), books.spends(name)) for name in books.accounts()]

    return Persisted(ledger, owned=False).read(read)


def raise_ceiling(ledger: Ledger, account: str, epsilon: float | None = None, delta: float | None = None) -> Account:
    """Raise the ceiling of an account, and return the account.

    The people of the population then lose more than was promised before. All ceilings stay on record.

    Parameters
    ----------
    ledger : Ledger
    account : str
        A scope, or another name that was given.
    epsilon, delta : float, optional
        The new ceiling; default: as it is.

    Raises
    ------
    BudgetError
        If there is no such account, ε or δ is none, or the ceiling would not be higher.
    """
    from cfk_plugin.accountant.persisted import Persisted

    if account not in {known.name for known in accounts(ledger)}:
        raise BudgetError("no budget of that name is on record; `cfk budget show` lists those that are")
    Amount.of(1.0 if epsilon is None else epsilon, 0.0 if delta is None else delta)
    refusal = Persisted(ledger, owned=False).change(lambda books: rule.raise_ceiling(books, account, epsilon, delta))
    if refusal:
        raise BudgetError(refusal)
    return next(known for known in accounts(ledger) if known.name == account)
