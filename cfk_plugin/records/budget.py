"""The accountant: how much differential privacy may be spent on a population, and what was spent."""

from __future__ import annotations

import math
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeVar

from cfk_plugin.errors import BudgetError
from cfk_plugin.records.ledger import Ledger

if TYPE_CHECKING:
    from cfk_plugin.data.population import Population


# Amounts of privacy: read from floats, added without rounding, and given back as floats.


class Budget(NamedTuple):
    """An ε and a δ."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Write both as they are counted."""
        return f"ε = {written(self.epsilon)}, δ = {written(self.delta)}"


@dataclass(frozen=True, slots=True)
class Amount:
    """An ε and a δ as exact fractions.

    A float stands for the decimal that Python writes for it: 0.1 is one tenth, so that ten fits of 0.1 fit in 1. The
    float itself differs from that decimal by less than 1.2 parts in 10^16. A sum of whatever length is off by no more
    than that share; nothing is rounded on the way, so nothing drifts.
    """

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def of(cls, epsilon: object, delta: object) -> Amount:
        """Read and check what a caller gives."""
        first, second = _number("epsilon", epsilon), _number("delta", delta)
        if not (math.isfinite(first) and first > 0):
            raise BudgetError(f"epsilon must be finite and above 0, got {first}")
        if not 0 <= second < 1:
            raise BudgetError(f"delta must be at least 0 and below 1, got {second}")
        return cls(_decimal(first), _decimal(second))

    @classmethod
    def sum(cls, amounts: Iterable[Budget]) -> Amount:
        """Add up; most of many amounts are alike."""
        total = cls(Fraction(0), Fraction(0))
        for amount, times in Counter(amounts).items():
            total += cls(times * _decimal(amount.epsilon), times * _decimal(amount.delta))
        return total

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.epsilon + other.epsilon, self.delta + other.delta)

    def within(self, ceiling: Amount) -> bool:
        """Say whether neither ε nor δ is above a ceiling's."""
        return self.epsilon <= ceiling.epsilon and self.delta <= ceiling.delta

    def left_of(self, ceiling: Amount) -> Budget:
        """Return what a ceiling leaves, rounded down, so that it can be spent; never below 0."""
        epsilon, delta = ceiling.epsilon - self.epsilon, ceiling.delta - self.delta
        return Budget(_float(max(epsilon, Fraction(0)), -math.inf), _float(max(delta, Fraction(0)), -math.inf))

    def rounded_up(self) -> Budget:
        """Return it as floats that are not below it."""
        return Budget(_float(self.epsilon, math.inf), _float(self.delta, math.inf))


def written(value: float) -> str:
    """Write a number as it is counted, whole ones without a fraction."""
    return repr(float(value)).removesuffix(".0")


def _number(name: str, value: Any) -> float:
    try:
        found = None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    # What is no float, such as a third, would be rounded, and maybe down.
    if found is None or (found != value and not math.isnan(found)):
        raise BudgetError(f"{name} must be a number that a float can hold, got {type(value).__name__}")
    return found + 0.0  # no -0.0


def _decimal(value: float) -> Fraction:
    return Fraction(repr(value))


def _float(value: Fraction, towards: float) -> float:
    """Return the float nearest to a fraction whose decimal is on the wanted side of it."""
    found = float(value)
    while (_decimal(found) > value) if towards < 0 else (_decimal(found) < value):
        found = math.nextafter(found, towards)
    return found


# The books of the accounts: ceilings and spends. Here those of this process; `Persisted` has those of a database.

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """One spend on record."""

    epsilon: float
    delta: float
    what: str  # What it was spent on
    at: str  # When, UTC

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
        """See `Store`."""
        if os.getpid() != self._process:
            raise BudgetError(
                "the budget is in the memory of another process, and what is spent here would not be counted there; "
                "give BudgetAccountant a ledger= that both use"
            )
        with self._lock:
            return work(self._books)

    def close(self) -> None:
        """Do nothing."""


# Whose budget it is: a name that the operator gives, and that nothing of a table decides.

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_LONGEST = 200

OWN = "this accountant"
"""Account of an accountant in memory that was given no scope: one for everything that is spent through it."""


def account_name(account: Any, scope: str | None, lasts: bool) -> str:
    """Return the name of the account."""
    if account is None or hasattr(type(account), "fingerprint"):
        if scope is None and lasts:
            raise BudgetError(
                "whose budget? a ledger keeps those of many; give BudgetAccountant a scope=, a name for the people who "
                "are in the table and in every later version of it"
            )
        return OWN if scope is None else scope
    if scope is not None and account != scope:
        raise BudgetError("this accountant has a scope, and only one account: give the population, or nothing")
    return checked_name(account)


def checked_name(name: object) -> str:
    """Return a name that somebody chose."""
    if not isinstance(name, str):
        raise BudgetError(f"an account is a Population or a name, got {type(name).__name__}")
    if _FINGERPRINT.fullmatch(name):
        raise BudgetError(
            "the name looks like a fingerprint, which follows from the exact table and is another one for the same "
            "people tomorrow; give a name of your own"
        )
    return checked_text("the name of an account", name)


def checked_text(what: str, text: object) -> str:
    """Return a text that goes on record."""
    if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > _LONGEST:
        raise BudgetError(f"{what} must be a text in one line with 1 to {_LONGEST} characters")
    return text


# What may be spent: basic composition under a ceiling. All of it runs within one transaction of the books.


def spend(books: Books, account: str, own: Budget, asked: Budget, what: str, token: str) -> str | None:
    """Put a spend on record if it fits; return why not otherwise.

    The ceiling of an accountant is put on record even if nothing can be spent under it: it was lowered to stop spends.
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


def raise_ceiling_in(books: Books, account: str, epsilon: float | None, delta: float | None) -> str | None:
    """Put a higher ceiling on record; return why not otherwise."""
    books.lock(account)
    old = books.ceilings(account)[-1]
    new = Budget(old.epsilon if epsilon is None else epsilon, old.delta if delta is None else delta)
    if Amount.of(*new).within(Amount.of(*old)) or not Amount.of(*old).within(Amount.of(*new)):
        return f"{new} does not raise the ceiling of {account}, {old}; an accountant with a lower ceiling lowers it"
    books.set_ceiling(account, new)
    return None


# The accountant as its users see it.

_entered: ContextVar[tuple[BudgetAccountant, ...]] = ContextVar("cfk_budget_accountants", default=())
_open: list[BudgetAccountant] = []  # of all threads
_lock = threading.Lock()


class BudgetAccountant:
    """A ceiling on the differential privacy that the people of a population lose in total.

    Everything that is fitted on a population under differential privacy spends some ε and δ; what the same person loses
    to several fits adds up. An accountant adds up and refuses what goes above the ceiling, before any row is read. It
    protects against nothing that is not spent through it: explanations that are k-anonymous, figures and plots of the
    data holder, models trained without differential privacy, and fits that count on another account.

    Give it to a mechanism; or make it the default of this process with `set_default`; or of a block with ``with``.

    Parameters
    ----------
    epsilon : float
        Ceiling of Σε, finite and above 0.
    delta : float
        Ceiling of Σδ, at least 0 and below 1.
    ledger : Ledger, str or path, optional
        Where ceilings and spends are kept: the database of a ledger, as `Ledger` takes it. Default: in the memory of
        this process, where they end with it.
    scope : str, optional
        Name of the account, for whatever population is given: of the people, and not of one version of their table, as
        people who are in several versions lose to all. A ledger needs one. Default: everything that is spent through
        an accountant in memory counts on one account, whatever the population. Nothing of a table decides on which
        account a fit counts: that would tell whether two tables are the same.

    Raises
    ------
    BudgetError
        If ε, δ or the scope is none.
    LedgerError
        If the ledger cannot be opened.

    Notes
    -----
    Basic composition: fits with (ε₁, δ₁), …, (εₙ, δₙ) are (Σε, Σδ)-differentially private together, also where a fit,
    or its ε, was chosen after looking at earlier ones. That is an upper bound; tighter ones, such as for fits with
    Gaussian noise, are not used. What counts as a neighbouring table, and how many rows a person may have, is up to
    the mechanism; add up only what agrees in that.

    The account's ceiling is put on record by the first accountant that spends from it. One with a lower ceiling lowers
    it for all; one with a higher ceiling is refused until ``cfk budget raise`` has raised it.

    A copy is the same accountant, and pickling is refused.

    Examples
    --------
    >>> with BudgetAccountant(epsilon=1.0, scope="patients") as accountant:
    ...     BudgetAccountant.default() is accountant
    True
    >>> accountant.spend(None, 0.25, what="first fit")
    >>> accountant.remaining()
    Budget(epsilon=0.75, delta=0.0)
    """

    _of_process: ClassVar[BudgetAccountant | None] = None

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        ledger: Ledger | str | Path | None = None,
        scope: str | None = None,
    ) -> None:
        Amount.of(epsilon, delta)
        self._ceiling = Budget(float(epsilon), float(delta))
        self._scope = None if scope is None else checked_name(scope)
        self._store = _store(ledger)

    @property
    def epsilon(self) -> float:
        """Ceiling of Σε."""
        return self._ceiling.epsilon

    @property
    def delta(self) -> float:
        """Ceiling of Σδ."""
        return self._ceiling.delta

    def account(self, account: Population | str | None = None) -> str:
        """Return the name under which spends go on record.

        Parameters
        ----------
        account : Population or str, optional
            A population, which counts on the account of the scope, or the name of an account. With a scope no other
            name than that scope.

        Raises
        ------
        BudgetError
            If budgets are kept in a ledger and there is neither a scope nor a name, or the name is a fingerprint.
        """
        return account_name(account, self._scope, self._store.lasts)

    def spend(self, account: Population | str | None, epsilon: float, delta: float = 0.0, *, what: str) -> None:
        """Put a spend on record, before any row is read; it is never given back.

        Checking and recording are one transaction for all threads and processes that share the books. What fails
        after it has spent: nobody can tell how much of the data it has shown.

        Parameters
        ----------
        account : Population, str or None
            See `account`.
        epsilon, delta : float
            As for the ceiling. Rows drawn with a seed are not differentially private at any ε, and no spend.
        what : str
            What it is spent on; goes on record, so no value of a row may be in it.

        Raises
        ------
        BudgetError
            If it does not fit, or the accountant's ceiling is above the one on record; nothing was spent.
        LedgerError
            If the ledger's database fails; do not go on. The spend may be on record, if only the answer got lost.
        """
        name, asked = self.account(account), _asked(epsilon, delta)
        text, token = checked_text("what a budget is spent on", what), secrets.token_hex(16)
        refusal = self._store.change(lambda books: spend(books, name, self._ceiling, asked, text, token))
        if refusal:
            raise BudgetError(refusal)

    def check(self, account: Population | str | None, epsilon: float, delta: float = 0.0) -> None:
        """Raise what `spend` would raise now, without spending. Somebody else may spend before you do.

        Raises
        ------
        BudgetError
            As of `spend`.
        """
        name, asked = self.account(account), _asked(epsilon, delta)
        ceilings, spends = self._store.read(lambda books: (books.ceilings(name), books.spends(name)))
        refusal = contradiction(name, self._ceiling, ceilings) or excess(name, self._ceiling, spends, asked)
        if refusal:
            raise BudgetError(refusal)

    def remaining(self, account: Population | str | None = None) -> Budget:
        """Return what is left under this accountant's ceiling, rounded down, so that it can be spent.

        Raises
        ------
        BudgetError
            If the accountant's ceiling is above the one on record.
        """
        name = self.account(account)
        ceilings, spends = self._store.read(lambda books: (books.ceilings(name), books.spends(name)))
        if refusal := contradiction(name, self._ceiling, ceilings):
            raise BudgetError(refusal)
        return Amount.sum(s.budget for s in spends).left_of(Amount.of(*self._ceiling))

    def spent(self, account: Population | str | None = None) -> Budget:
        """Return what was spent in total, rounded up."""
        return Amount.sum(s.budget for s in self.spends(account)).rounded_up()

    def spends(self, account: Population | str | None = None) -> list[Spend]:
        """Return what was spent, one by one, the first at the beginning."""
        name = self.account(account)
        return self._store.read(lambda books: books.spends(name))

    @staticmethod
    def set_default(accountant: BudgetAccountant | None) -> None:
        """Make an accountant the default of this process, in all its threads; None takes it away."""
        if not (accountant is None or isinstance(accountant, BudgetAccountant)):
            raise BudgetError(f"the default must be a BudgetAccountant or None, got {type(accountant).__name__}")
        BudgetAccountant._of_process = accountant

    @staticmethod
    def default() -> BudgetAccountant | None:
        """Return the accountant of the innermost ``with``, else that of this process, else None.

        A thread does not know which block it was started in. So, in one that has entered none itself, the accountant of
        any block that is open in the process is in force.

        Raises
        ------
        BudgetError
            If that is not a single one: other accountants are open, too, or the default of the process is another.
        """
        if entered := _entered.get():
            return entered[-1]
        with _lock:
            found = {id(each): each for each in (*_open, BudgetAccountant._of_process) if each is not None}
        if len(found) > 1:
            raise BudgetError(
                "several accountants are in force in this process, and this thread has entered none of them; give the "
                "mechanism its accountant="
            )
        return next(iter(found.values()), None)

    @staticmethod
    def is_any_in_force() -> bool:
        """Say whether there is a default, or a block is open anywhere in this process."""
        return bool(_open or _entered.get() or BudgetAccountant._of_process)

    def close(self) -> None:
        """Close the ledger, if it was opened here."""
        self._store.close()

    def __enter__(self) -> BudgetAccountant:
        """Become the default of the block. An accountant outside of it does not see what is spent inside."""
        _entered.set((*_entered.get(), self))
        with _lock:
            _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block; a ledger stays open."""
        entered = list(_entered.get())
        _forget(entered, self)
        _entered.set(tuple(entered))
        with _lock:
            _forget(_open, self)

    def __repr__(self) -> str:
        """Show the ceiling alone."""
        return f"BudgetAccountant(epsilon={written(self.epsilon)}, delta={written(self.delta)})"

    def __copy__(self) -> BudgetAccountant:
        """Return itself: a copy with books of its own would let the same budget be spent again."""
        return self

    def __deepcopy__(self, _: object) -> BudgetAccountant:
        """Return itself, so that an estimator and its clone spend from one account."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy could not see what the original spends."""
        raise BudgetError(
            "a BudgetAccountant refuses to be pickled, as spends here and there would not see each other; open one "
            "with the same ledger= in the process that spends"
        )


def _forget(entered: list[BudgetAccountant], one: BudgetAccountant) -> None:
    """Take an accountant off a list, where it was put last."""
    for at in range(len(entered) - 1, -1, -1):
        if entered[at] is one:
            del entered[at]
            return


def _asked(epsilon: float, delta: float) -> Budget:
    Amount.of(epsilon, delta)
    return Budget(float(epsilon), float(delta))


def _store(ledger: Ledger | str | Path | None) -> Store:
    if ledger is None:
        return InMemory()
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.records.ledger_rows import Persisted

    if isinstance(ledger, Ledger):
        return Persisted(ledger, owned=False)
    if not isinstance(ledger, (str, Path)):
        raise BudgetError(f"ledger must be a Ledger, a SQLite file or a postgresql URL, got {type(ledger).__name__}")
    return Persisted(Ledger(ledger), owned=True)


# The accounts of a ledger, for whoever is answerable for them.


@dataclass(frozen=True, slots=True)
class Account:
    """An account as it is on record."""

    name: str  # A scope, or another name that was given
    ceilings: Sequence[Budget]  # All that it had, today's at the end
    spends: Sequence[Spend]  # The first at the beginning

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
    from cfk_plugin.records.ledger_rows import Persisted

    def read(books: Books) -> list[Account]:
        return [Account(name, books.ceilings(name), books.spends(name)) for name in books.accounts()]

    return Persisted(ledger, owned=False).read(read)


def raise_ceiling(ledger: Ledger, account: str, epsilon: float | None = None, delta: float | None = None) -> Account:
    """Raise the ceiling of an account, and return the account.

    The people of the population then lose more than was promised before. All ceilings stay on record.
    """
    from cfk_plugin.records.ledger_rows import Persisted

    if account not in {known.name for known in accounts(ledger)}:
        raise BudgetError("no budget of that name is on record; `cfk budget show` lists those that are")
    Amount.of(1.0 if epsilon is None else epsilon, 0.0 if delta is None else delta)
    refusal = Persisted(ledger, owned=False).change(lambda books: raise_ceiling_in(books, account, epsilon, delta))
    if refusal:
        raise BudgetError(refusal)
    return next(known for known in accounts(ledger) if known.name == account)
