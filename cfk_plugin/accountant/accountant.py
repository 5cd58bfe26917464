"""The accountant as its users see it."""

from __future__ import annotations

import secrets
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from cfk_plugin.accountant import rule
from cfk_plugin.accountant.amounts import Amount, Budget, written
from cfk_plugin.accountant.books import InMemory, Spend, Store
from cfk_plugin.accountant.names import account_name, checked_name, checked_text
from cfk_plugin.errors import BudgetError

if TYPE_CHECKING:
    from cfk_plugin.ledger import Ledger
    from cfk_plugin.population import Population

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
        refusal = self._store.change(lambda books: rule.spend(books, name, self._ceiling, asked, text, token))
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
        refusal = rule.contradiction(name, self._ceiling, ceilings) or rule.excess(name, self._ceiling, spends, asked)
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
        if refusal := rule.contradiction(name, self._ceiling, ceilings):
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
    from cfk_plugin.accountant.persisted import Persisted
    from cfk_plugin.ledger import Ledger

    if isinstance(ledger, Ledger):
        return Persisted(ledger, owned=False)
    if not isinstance(ledger, (str, Path)):
        raise BudgetError(f"ledger must be a Ledger, a SQLite file or a postgresql URL, got {type(ledger).__name__}")
    return Persisted(Ledger(ledger), owned=True)
