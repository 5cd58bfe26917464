"""The books of the accounts: ceilings and spends. Here those of this process; `persisted` has those of a database."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from cfk_plugin.accountant.amounts import Budget
from cfk_plugin.errors import BudgetError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """One spend on record.

    Attributes
    ----------
    epsilon, delta : float
    what : str
        What it was spent on.
    at : str
        When, UTC.
    """

    epsilon: float
    delta: float
    what: str
    at: str

    @property
    def budget(self) -> Budget:
        """The two amounts."""
        return Budget(self.epsilon, self.delta)


def now() -> str:
    """Return the time as UTC text of fixed length."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Books(Protocol):
    """What can be read and written within one transaction."""

    def accounts(self) -> list[str]:
        """Return the names of all accounts."""
        ...

    def lock(self, account: str) -> None:
        """Keep everybody else away from an account until the end of the transaction."""
        ...

    def ceilings(self, account: str) -> list[Budget]:
        """Return the ceilings that an account had, today's at the end; none where it was never opened."""
        ...

    def spends(self, account: str) -> list[Spend]:
        """Return what was spent, the first at the beginning."""
        ...

    def set_ceiling(self, account: str, ceiling: Budget) -> None:
        """Put a ceiling on record."""
        ...

    def record(self, account: str, spend: Spend, token: str) -> None:
        """Put a spend on record."""
        ...

    def has(self, token: str) -> bool:
        """Say whether a spend is on record already: the answer to a commit can get lost."""
        ...


class Store(Protocol):
    """Where books are kept."""

    lasts: bool
    """Whether other processes find them."""

    def read(self, work: Callable[[Books], _T]) -> _T:
        """Return what a function reads; nothing is made."""
        ...

    def change(self, work: Callable[[Books], _T]) -> _T:
        """Return what a function returns that reads and writes, with nobody in between."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


@dataclass(slots=True)
class Blank:
    """Books with nothing in them; kept in memory, they fill."""

    _ceilings: dict[str, list[Budget]] = field(default_factory=dict)
    _spends: dict[str, list[Spend]] = field(default_factory=dict)
    _tokens: set[str] = field(default_factory=set)

    def accounts(self) -> list[str]:
        """See `Books`."""
        return sorted(self._ceilings)

    def lock(self, account: str) -> None:
        """Do nothing: the store lets one in at a time."""

    def ceilings(self, account: str) -> list[Budget]:
        """See `Books`."""
        return list(self._ceilings.get(account, ()))

    def spends(self, account: str) -> list[Spend]:
        """See `Books`."""
        return list(self._spends.get(account, ()))

    def set_ceiling(self, account: str, ceiling: Budget) -> None:
        """See `Books`."""
        self._ceilings.setdefault(account, []).append(ceiling)

    def record(self, account: str, spend: Spend, token: str) -> None:
        """See `Books`."""
        self._spends.setdefault(account, []).append(spend)
        self._tokens.add(token)

    def has(self, token: str) -> bool:
        """See `Books`."""
        return token in self._tokens


class InMemory:
    """Books that end with this process."""

    lasts = False

    def __init__(self) -> None:
        self._books, self._lock, self._process = Blank(), threading.Lock(), os.getpid()

    def read(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`."""
        return self.change(work)

    def change(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`.

        Raises
        ------
        BudgetError
            In a forked process, whose copy would let the same budget be spent once more.
        """
        if os.getpid() != self._process:
            raise BudgetError(
                "the budget is in the memory of another process, and what is spent here would not be counted there; "
                "give BudgetAccountant a ledger= that both use"
            )
        with self._lock:
            return work(self._books)

    def close(self) -> None:
        """Do nothing."""
