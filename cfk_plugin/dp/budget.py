"""The accountant of differential privacy: what fits may spend together, and what they have spent.

A budget is one table, in memory or in a SQLite file that several processes share. Its rows are
ceilings and spends in the order in which they were written; none is ever changed or removed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from cfk_plugin.dp.composition import (
    Budget,
    RenyiOrder,
    Spend,
    added_cost,
    added_remainder,
    format_amount,
    sums_are_within,
)
from cfk_plugin.errors import BudgetError, HostOnly, quiet

_TABLE = """
CREATE TABLE IF NOT EXISTS cfk_budget (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('ceiling', 'spend')),
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    rho REAL,
    what TEXT NOT NULL,
    at TEXT NOT NULL
)"""
_WRITE = "INSERT INTO cfk_budget (kind, epsilon, delta, rho, what, at) VALUES (?, ?, ?, ?, ?, ?)"
_READ = "SELECT kind, epsilon, delta, rho, what, at FROM cfk_budget ORDER BY number"
_BUSY_SECONDS = 60.0  # how long a transaction waits for those of other processes
_MAX_LENGTH = 200  # of the text that describes a spend

_entered: ContextVar[tuple[BudgetAccountant, ...]] = ContextVar(
    "cfk_budget_accountants", default=()
)
_open: list[BudgetAccountant] = []  # of all threads
_open_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Account:
    """All ceilings and spends of one budget, the current ceiling last."""

    ceilings: tuple[Budget, ...] = ()
    spends: tuple[Spend, ...] = ()
    alpha: float | None = None  # Rényi order at which spends are counted; None: they are added

    @property
    def ceiling(self) -> Budget:
        return self.ceilings[-1]

    @property
    def order(self) -> RenyiOrder | None:
        """The order at which spends are counted, with what the ceiling allows there."""
        return None if self.alpha is None else RenyiOrder.at(self.alpha, self.ceiling)

    @property
    def spent(self) -> Budget:
        """What all spends cost together, rounded up."""
        if self.order is None:
            return added_cost(self.spends)
        return self.order.cost(self.spends, self.ceiling)

    @property
    def left(self) -> Budget:
        """What the ceiling leaves to a next spend, rounded down.

        At an order, that is what it leaves to a spend without a delta.
        """
        if self.order is None:
            return added_remainder(self.spends, self.ceiling)
        return self.order.remainder(self.spends)

    @property
    def is_exceeded(self) -> bool:
        """Whether the spends are more than the ceiling allows."""
        if self.order is None:
            return not sums_are_within(self.spends, self.ceiling)
        return not self.order.allows(self.spends)

    def under(self, ceiling: Budget) -> Account:
        """Return the account with another ceiling."""
        return replace(self, ceilings=(*self.ceilings, ceiling))

    def after(self, spend: Spend) -> Account:
        """Return the account with a further spend; the first with a delta decides the order."""
        spends = (*self.spends, spend)
        alpha = self.alpha
        if spend.delta and not any(earlier.delta for earlier in self.spends):
            alpha = RenyiOrder.decided_by(spends, self.ceiling)
        return replace(self, spends=spends, alpha=alpha)

    def check_ceiling(self, ceiling: Budget) -> None:
        """Raise `BudgetError` if an accountant's ceiling is above the one on record."""
        if self.ceilings and not ceiling.within(self.ceiling):
            raise BudgetError(
                f"the ceiling on record is {self.ceiling}, and this accountant's is higher:"
                f" {ceiling}; give it the one on record, or raise that with cfk budget raise FILE"
            )

    def refusal(self, spend: Spend) -> BudgetError | None:
        """Return the error of a further spend that would exceed the ceiling; None if it fits."""
        if not self.after(spend).is_exceeded:
            return None
        message = (
            f"the budget has {self.left} left of {self.ceiling}, and the fit needs {spend.budget};"
            " nothing was spent. Use at most what is left, or use an earlier fit, which costs"
            " nothing"
        )
        if self.order is not None:
            message += (
                ". The budget counts at an order of Rényi privacy: a fit without a δ may use what"
                " is left, and a fit with a δ needs its ρ"
            )
        return BudgetError(message)


class _Book:
    """The table of a budget; each reading and each writing is one transaction."""

    def __init__(self, path: str | Path | None) -> None:
        self._path = None if path is None else Path(path).absolute()
        self._memory: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()
        if self._path is None:
            self._memory = sqlite3.connect(
                ":memory:", check_same_thread=False, isolation_level=None
            )
            weakref.finalize(self, self._memory.close)

    def create(self) -> None:
        """Create the file and its table; existing ones stay as they are."""
        with self._transaction("rwc") as connection:
            connection.execute(_TABLE)

    def read(self) -> Account:
        """Return the budget as it is on record."""
        with self._transaction() as connection:
            return _account_of(connection)

    @contextmanager
    def changing(self) -> Iterator[tuple[sqlite3.Connection, Account]]:
        """Yield a connection and the account; nobody else writes before the block ends."""
        with self._transaction() as connection:
            yield connection, _account_of(connection)

    @contextmanager
    def _transaction(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """Yield a connection whose writes all go on record, or none if the block raises."""
        if self._memory is not None and self._process != os.getpid():
            raise BudgetError(
                "the budget is in the memory of another process, which would not count what is"
                " spent here; give BudgetAccountant a path= that both use"
            )
        message = f"{self._path or 'the budget in memory'}: cannot be read or written ({{}})"
        with quiet(message, BudgetError, let=BudgetError), self._lock:
            connection = self._memory or self._connect(mode)
            try:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    yield connection
            finally:
                if connection is not self._memory:
                    connection.close()

    def _connect(self, mode: str) -> sqlite3.Connection:
        """Connect to the file; unless it is to be created, a missing one is an error.

        A new file in the place of a lost one would let everything be spent again.
        """
        name = f"file:{quote(str(self._path))}?mode={mode}"
        return sqlite3.connect(name, timeout=_BUSY_SECONDS, uri=True, isolation_level=None)


def _account_of(connection: sqlite3.Connection) -> Account:
    """Return the account that the rows of a table tell."""
    account = Account()
    for kind, epsilon, delta, rho, what, at in connection.execute(_READ):
        if kind == "ceiling":
            account = account.under(Budget.read(epsilon, delta))
        else:
            spend = Spend.read(epsilon, delta, rho, what)
            account = account.after(replace(spend, at=at))
    return account


def _write_ceiling(connection: sqlite3.Connection, ceiling: Budget) -> None:
    connection.execute(_WRITE, ("ceiling", ceiling.epsilon, ceiling.delta, None, "", _now()))


def _write_spend(connection: sqlite3.Connection, spend: Spend) -> None:
    row = ("spend", spend.epsilon, spend.delta, spend.rho, spend.what, _now())
    connection.execute(_WRITE, row)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class BudgetAccountant(HostOnly):
    """A ceiling on the privacy that the people of a table lose in total.

    It adds up what fits cost, and refuses a fit that would exceed the ceiling before any row is
    read. Give it to a mechanism, use it in a ``with`` block, or make it the default of the process
    with `set_default`.

    Parameters
    ----------
    epsilon, delta : float
        Ceilings of Σε (finite, above 0) and of Σδ (at least 0, below 1).
    path : str or path, optional
        SQLite file with the budget; it is created if it does not exist. Use one file for the same
        people in all versions of their table. Several processes of one machine may share it.
        Default: in memory, until the accountant ends.

    Raises
    ------
    BudgetError
        If ε or δ is invalid, or the file cannot be used.

    Notes
    -----
    Fits with (ε₁, δ₁), …, (εₙ, δₙ) are (Σε, Σδ)-differentially private together, also if one was
    chosen after looking at others. Fits with Gaussian noise cost less, so more of them fit (see the
    page "Keep a budget"). All fits have to use one definition of neighbouring tables. The first
    spend puts the ceiling on record. A later accountant with a lower ceiling lowers it for all; a
    higher one needs ``cfk budget raise``. A copy is the same accountant.

    Examples
    --------
    >>> with BudgetAccountant(epsilon=1.0) as accountant:
    ...     BudgetAccountant.default() is accountant
    True
    >>> accountant.spend(0.25, what="first fit")
    >>> accountant.remaining()
    Budget(epsilon=0.75, delta=0.0)
    """

    _of_process: ClassVar[BudgetAccountant | None] = None

    def __init__(
        self, epsilon: float, delta: float = 0.0, *, path: str | Path | None = None
    ) -> None:
        self._ceiling = Budget.read(epsilon, delta)
        if not (path is None or isinstance(path, (str, Path))):
            raise BudgetError(f"path must be the name of a file, got {type(path).__name__}")
        self._book = _Book(path)
        self._book.create()

    @property
    def epsilon(self) -> float:
        """Ceiling of ε."""
        return self._ceiling.epsilon

    @property
    def delta(self) -> float:
        """Ceiling of Σδ."""
        return self._ceiling.delta

    def spend(
        self, epsilon: float, delta: float = 0.0, *, what: str, rho: float | None = None
    ) -> None:
        """Put a spend on record, before any row is read; it is never given back.

        A fit that fails afterwards has still spent: nobody can tell how much of the data it
        disclosed.

        Parameters
        ----------
        epsilon, delta : float
            As for the ceiling. Rows drawn with a seed are not differentially private at any ε, so
            are not a spend.
        what : str
            What it is spent on; goes on record, so it must contain no value of a row.
        rho : float, optional
            For a mechanism with a `delta` that is rho-zCDP, as Gaussian noise is: such spends cost
            less together than their sum.

        Raises
        ------
        BudgetError
            If it does not fit, the accountant's ceiling is above the one on record, or the file
            fails; do not go on.
        """
        _check_text(what)
        spend = Spend.read(epsilon, delta, rho, what)
        with self._book.changing() as (connection, on_record):
            account = on_record
            account.check_ceiling(self._ceiling)
            # A lower ceiling goes on record even if the spend does not fit: it stops spends.
            if not account.ceilings or self._ceiling != account.ceiling:
                _write_ceiling(connection, self._ceiling)
                account = account.under(self._ceiling)
            refusal = account.refusal(spend)
            if refusal is None:
                _write_spend(connection, spend)
        if refusal is not None:
            raise refusal

    def remaining(self) -> Budget:
        """Return what is left under this accountant's ceiling, rounded down.

        Raises
        ------
        BudgetError
            If the accountant's ceiling is above the one on record.
        """
        account = self._book.read()
        account.check_ceiling(self._ceiling)
        return account.under(self._ceiling).left

    def spent(self) -> Budget:
        """Return what was spent in total, rounded up."""
        return self._book.read().spent

    def spends(self) -> list[Spend]:
        """Return every spend, oldest first."""
        return list(self._book.read().spends)

    @staticmethod
    def set_default(accountant: BudgetAccountant | None) -> None:
        """Make an accountant the default of this process, in all its threads; None removes it."""
        if not (accountant is None or isinstance(accountant, BudgetAccountant)):
            raise BudgetError(
                f"the default must be a BudgetAccountant or None, got {type(accountant).__name__}"
            )
        BudgetAccountant._of_process = accountant

    @staticmethod
    def default() -> BudgetAccountant | None:
        """Return the accountant of the innermost ``with``, else that of this process, else None.

        A thread that has entered no block uses the one block open in the process.

        Raises
        ------
        BudgetError
            If that is ambiguous: several blocks are open, or the default of the process is another.
        """
        entered = _entered.get()
        if entered:
            return entered[-1]
        with _open_lock:
            in_force = {id(accountant): accountant for accountant in _open}
            of_process = BudgetAccountant._of_process
        if of_process is not None:
            in_force[id(of_process)] = of_process
        if len(in_force) > 1:
            raise BudgetError(
                "several accountants are in force in this process, and this thread has entered none"
                " of them; give the mechanism its accountant="
            )
        return next(iter(in_force.values()), None)

    @staticmethod
    def is_any_in_force() -> bool:
        """Return True if there is a default, or a block is open anywhere in this process."""
        return bool(_open or _entered.get() or BudgetAccountant._of_process)

    def __enter__(self) -> BudgetAccountant:
        """Become the default inside the block.

        An accountant outside does not see what is spent inside.
        """
        _entered.set((*_entered.get(), self))
        with _open_lock:
            _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block."""
        outwards = list(reversed(_entered.get()))
        with suppress(ValueError):  # left in a context other than the one it was entered in
            outwards.remove(self)
        _entered.set(tuple(reversed(outwards)))
        with _open_lock, suppress(ValueError):
            _open.remove(self)

    def __copy__(self) -> BudgetAccountant:
        """Return itself: a copy with a budget of its own would let the same be spent twice."""
        return self

    def __deepcopy__(self, _: object) -> BudgetAccountant:
        """Return itself, so that an estimator and its clone spend from one budget."""
        return self

    def _counts(self) -> str:
        return f"epsilon={format_amount(self.epsilon)}, delta={format_amount(self.delta)}"


def read_account(path: Path) -> Account:
    """Return the budget in a file, which has to exist."""
    return _existing(path).read()


def raise_ceiling(path: Path, epsilon: float | None, delta: float | None) -> Account:
    """Raise the ceiling of the budget in a file: its people lose more privacy than promised.

    Earlier ceilings stay on record.
    """
    with _existing(path).changing() as (connection, account):
        if not account.ceilings:
            raise BudgetError(f"{path}: nothing was spent yet; give the accountant its ceiling")
        old = account.ceiling
        new = Budget.read(
            old.epsilon if epsilon is None else epsilon, old.delta if delta is None else delta
        )
        if new.within(old) or not old.within(new):
            raise BudgetError(
                f"{new} does not raise the ceiling, {old}; an accountant with a lower ceiling"
                " lowers it"
            )
        _write_ceiling(connection, new)
    return account.under(new)


def _existing(path: Path) -> _Book:
    if not path.is_file():
        raise BudgetError(f"{path}: no such file; BudgetAccountant(..., path=) creates a budget")
    return _Book(path)


def _check_text(what: Any) -> None:
    """Raise `BudgetError` unless the description of a spend is one short line."""
    if isinstance(what, str) and what.strip() and what.isprintable() and len(what) <= _MAX_LENGTH:
        return
    raise BudgetError(
        f"what a budget is spent on must be a text in one line with 1 to {_MAX_LENGTH} characters"
    )
