"""What may be spent: basic composition under a ceiling. All of it runs within one transaction of the books."""

from __future__ import annotations

from collections.abc import Sequence

from cfk_plugin.accountant.amounts import Amount, Budget
from cfk_plugin.accountant.books import Books, Spend, now


def spend(books: Books, account: str, own: Budget, asked: Budget, what: str, token: str) -> str | None:
    """Put a spend on record if it fits; return why not otherwise.

    The ceiling of an accountant is put on record even if nothing can be spent under it: it was lowered to stop spends.

    Parameters
    ----------
    books : Books
    account : str
    own : Budget
        The ceiling of the accountant that asks.
    asked : Budget
    what : str
    token : str
        Names this spend, so that a second try of the same one is none.
    """
    books.lock(account)
    if books.has(token):
        return None
    ceilings = books.ceilings(account)
    if refusal := contradiction(account, own, ceilings):
        return refusal
    if not ceilings or own != ceilings[-1]:
        books.set_ceiling(account, own)
    if refusal := excess(account, own, books.spends(account), asked):
        return refusal
    books.record(account, Spend(epsilon=asked.epsilon, delta=asked.delta, what=what, at=now()), token)
    return None


def contradiction(account: str, own: Budget, ceilings: Sequence[Budget]) -> str | None:
    """Say so if an accountant's ceiling is above the one on record; a lower one takes its place."""
    if not ceilings or Amount.of(*own).within(Amount.of(*ceilings[-1])):
        return None
    return (
        f"the ceiling of {account} on record is {ceilings[-1]}, and this accountant's is higher: {own}; give it the "
        f"one on record, or raise that with cfk budget raise LEDGER --account {account}"
    )


def excess(account: str, ceiling: Budget, spends: Sequence[Spend], asked: Budget) -> str | None:
    """Say so if what was asked for does not fit under the ceiling any more."""
    spent = Amount.sum(s.budget for s in spends)
    if (spent + Amount.of(*asked)).within(Amount.of(*ceiling)):
        return None
    left = spent.left_of(Amount.of(*ceiling))
    return (
        f"the budget of {account} has {left} left of {ceiling}, and {asked} was asked for; nothing was spent. Ask "
        "for no more than is left, or use what was fitted before, which costs nothing"
    )


def raise_ceiling(books: Books, account: str, epsilon: float | None, delta: float | None) -> str | None:
    """Put a higher ceiling on record; return why not otherwise.

    Parameters
    ----------
    books : Books
    account : str
    epsilon, delta : float, optional
        Default: as it is.
    """
    books.lock(account)
    old = books.ceilings(account)[-1]
    new = Budget(old.epsilon if epsilon is None else epsilon, old.delta if delta is None else delta)
    if Amount.of(*new).within(Amount.of(*old)) or not Amount.of(*old).within(Amount.of(*new)):
        return f"{new} does not raise the ceiling of {account}, {old}; an accountant with a lower ceiling lowers it"
    books.set_ceiling(account, new)
    return None
