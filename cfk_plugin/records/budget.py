"""The accountant of differential privacy: what may be spent on a population, and what has been."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cfk_plugin.errors import BudgetError, HostOnly
from cfk_plugin.records.account import (
    Account,
    check_text,
    normalized_name,
    row_of_ceiling,
    row_of_spend,
)
from cfk_plugin.records.composition import Budget, Spend, format_amount

if TYPE_CHECKING:
    from cfk_plugin.data.population import Population
    from cfk_plugin.records.chain import Chain
    from cfk_plugin.records.database import Mode
    from cfk_plugin.records.ledger import Ledger

_WITHOUT_SCOPE = "this accountant"  # in memory without a scope: one account for everything
_T = TypeVar("_T")
_entered: ContextVar[tuple[BudgetAccountant, ...]] = ContextVar(
    "cfk_budget_accountants", default=()
)
_open: list[BudgetAccountant] = []  # of all threads
_open_lock = threading.Lock()


class BudgetAccountant(HostOnly):
    """A ceiling on the privacy that the people of a population lose in total.

    It adds up what fits cost, and refuses what would exceed the ceiling before any row is read.
    Give it to a mechanism, use it in a ``with`` block, or make it the default of the process with
    `set_default`.

    Parameters
    ----------
    epsilon, delta : float
        Ceilings of Σε (finite, above 0) and of Σδ (at least 0, below 1).
    ledger : Ledger, str or path, optional
        Where ceilings and spends are kept, as `Ledger` takes it. Default: in memory, until the
        accountant ends.
    scope : str, optional
        Name of the account: of the people, not of one version of their table. Upper case and blanks
        make no difference. A ledger needs a scope; in memory, everything counts on one account if
        none is given.

    Raises
    ------
    BudgetError
        If ε, δ or the scope is invalid.
    LedgerError
        If the ledger cannot be opened.

    Notes
    -----
    Fits with (ε₁, δ₁), …, (εₙ, δₙ) are (Σε, Σδ)-differentially private together, also where one was
    chosen after looking at others; fits with Gaussian noise cost less, so more of them fit (see the
    page "Keep a ledger and a budget"). They have to agree on what neighboring tables are. The first
    spend puts the ceiling on record; a later accountant with a lower one lowers it for all, a
    higher one needs ``cfk budget raise``. A copy is the same accountant.

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
    _refusal = (
        BudgetError,
        (
            "a BudgetAccountant refuses to be pickled: copies would not see each other's spends;"
            " give each the ledger="
        ),
    )

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        ledger: Ledger | str | Path | None = None,
        scope: str | None = None,
    ) -> None:
        self._ceiling = Budget.read(epsilon, delta)
        self._scope = None if scope is None else normalized_name(scope)
        self._process = os.getpid() if ledger is None else None
        self._ledger, self._owns = _open_ledger(ledger)
        if ledger is None:
            weakref.finalize(self, self._ledger.close)

    @property
    def epsilon(self) -> float:
        """Ceiling of ε."""
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
            A population, which counts on the account of the scope, or a name; with a scope, only
            that name.

        Raises
        ------
        BudgetError
            If budgets are kept in a ledger and there is neither a scope nor a name, or the name is
            a fingerprint.
        """
        if account is None or hasattr(type(account), "fingerprint"):
            if self._scope is None and self._process is None:
                raise BudgetError(
                    "whose budget? a ledger keeps those of many; give BudgetAccountant a scope=, a"
                    " name for the people who are in the table and in every later version of it"
                )
            return _WITHOUT_SCOPE if self._scope is None else self._scope
        name = normalized_name(account)
        if self._scope is not None and name != self._scope:
            raise BudgetError(
                "this accountant has a scope, and only one account: give the population, or nothing"
            )
        return name

    def spend(
        self,
        account: Population | str | None,
        epsilon: float,
        delta: float = 0.0,
        *,
        what: str,
        rho: float | None = None,
    ) -> None:
        """Put a spend on record, before any row is read; it is never given back.

        A fit that fails afterwards has still spent: nobody can tell how much of the data it
        disclosed.

        Parameters
        ----------
        account : Population, str or None
            See `account`.
        epsilon, delta : float
            As for the ceiling. Rows drawn with a seed are not differentially private at any ε, so
            are not a spend.
        what : str
            What it is spent on; goes on record, so it must hold no value of a row.
        rho : float, optional
            Where `delta` is above 0 and the mechanism is rho-zCDP, as Gaussian noise is: such
            spends cost less together than their sum.

        Raises
        ------
        BudgetError
            If it does not fit, or the accountant's ceiling is above the one on record; nothing was
            spent.
        LedgerError
            If the ledger's database fails; do not go on. The spend may be on record, if only the
            answer got lost.
        """
        name = self.account(account)
        check_text("what a budget is spent on", what)
        spend = Spend.read(epsilon, delta, rho, what)
        token = secrets.token_hex(16)

        def change(chain: Chain) -> BudgetError | None:
            chain.lock(chain.accounts, [name])
            if chain.rows(chain.spends, chain.spends.c.token == token):
                return None  # recorded by the previous try, whose answer was lost
            known = Account.read(chain, name)
            known.check_ceiling(self._ceiling)
            # Even if nothing can be spent under it: it was lowered to stop spends.
            if not known.ceilings or self._ceiling != known.ceiling:
                chain.write(chain.ceilings, [row_of_ceiling(name, self._ceiling)])
            refusal = known.under(self._ceiling).refusal(spend)
            if refusal is None:
                chain.write(chain.spends, [{**row_of_spend(name, spend), "token": token}])
            return refusal

        refusal = self._run(change, "settle")
        if refusal is not None:
            raise refusal

    def check(
        self,
        account: Population | str | None,
        epsilon: float,
        delta: float = 0.0,
        *,
        rho: float | None = None,
    ) -> None:
        """Raise what `spend` would raise now, without spending; others may spend in between.

        Raises
        ------
        BudgetError
            As of `spend`.
        """
        spend = Spend.read(epsilon, delta, rho)
        refusal = self._allowed(account).refusal(spend)
        if refusal is not None:
            raise refusal

    def remaining(self, account: Population | str | None = None) -> Budget:
        """Return what is left under this accountant's ceiling, rounded down.

        Raises
        ------
        BudgetError
            If the accountant's ceiling is above the one on record.
        """
        return self._allowed(account).left

    def spent(self, account: Population | str | None = None) -> Budget:
        """Return what was spent in total, rounded up."""
        return self._known(account).spent

    def spends(self, account: Population | str | None = None) -> list[Spend]:
        """Return every spend, oldest first."""
        return self._known(account).spends

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

    def close(self) -> None:
        """Close the ledger, if it was opened here."""
        if self._owns:
            self._ledger.close()

    def __enter__(self) -> BudgetAccountant:
        """Become the default inside the block.

        An accountant outside does not see what is spent inside.
        """
        _entered.set((*_entered.get(), self))
        with _open_lock:
            _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block; a ledger stays open."""
        outwards = list(reversed(_entered.get()))
        with suppress(ValueError):  # left in a context other than the one it was entered in
            outwards.remove(self)
        _entered.set(tuple(reversed(outwards)))
        with _open_lock, suppress(ValueError):
            _open.remove(self)

    def __copy__(self) -> BudgetAccountant:
        """Return itself: a copy with accounts of its own would let the same budget be spent
        twice.
        """
        return self

    def __deepcopy__(self, _: object) -> BudgetAccountant:
        """Return itself, so that an estimator and its clone spend from one account."""
        return self

    def _counts(self) -> str:
        return f"epsilon={format_amount(self.epsilon)}, delta={format_amount(self.delta)}"

    def _run(self, work: Callable[[Chain], _T], mode: Mode) -> _T:
        if self._process not in (None, os.getpid()):
            raise BudgetError(
                "the budget is in the memory of another process, and what is spent here would not"
                " be counted there; give BudgetAccountant a ledger= that both use"
            )
        return self._ledger.run(work, mode)

    def _known(self, account: Population | str | None) -> Account:
        name = self.account(account)
        return self._run(lambda chain: Account.read(chain, name), "read")

    def _allowed(self, account: Population | str | None) -> Account:
        """Return an account under the accountant's ceiling; it may not be above that on record."""
        known = self._known(account)
        known.check_ceiling(self._ceiling)
        return known.under(self._ceiling)


def _open_ledger(ledger: Any) -> tuple[Ledger, bool]:
    """Return the ledger with the accounts, and whether the accountant has to close it."""
    from cfk_plugin.records.database import MEMORY
    from cfk_plugin.records.ledger import Ledger

    if isinstance(ledger, Ledger):
        return ledger, False
    if ledger is None:  # kept after `close`, until the accountant ends
        return Ledger(MEMORY, key=secrets.token_bytes(32), timeout=3_600, create=True), False
    if not isinstance(ledger, (str, Path)):
        raise BudgetError(
            "ledger must be a Ledger, a SQLite file or a postgresql URL, got"
            f" {type(ledger).__name__}"
        )
    return Ledger(ledger), True
