"""The accountant of differential privacy: what may be spent on a population, and what has been."""

from __future__ import annotations

import math
import os
import re
import secrets
import threading
import unicodedata
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cfk_plugin.errors import BudgetError, HostOnly

if TYPE_CHECKING:
    from cfk_plugin.data.population import Population
    from cfk_plugin.records.chain import Chain, Row
    from cfk_plugin.records.database import Mode
    from cfk_plugin.records.ledger import Ledger

# A float stands for the decimal that Python writes for it: 0.1 is one tenth, so that ten fits of
# 0.1 fit in 1. It differs from that decimal by less than 1.2 parts in 10^16, and so does a sum of
# any length, as decimals are added exactly.


_UP = 1 + 1e-9  # what is computed, not added exactly, is rounded up by this factor


class Budget(NamedTuple):
    epsilon: float
    delta: float

    @classmethod
    def read(cls, epsilon: object, delta: object) -> Budget:
        budget = cls(_number("epsilon", epsilon), _number("delta", delta))
        if not (math.isfinite(budget.epsilon) and budget.epsilon > 0):
            raise BudgetError(f"epsilon must be finite and above 0, got {budget.epsilon}")
        if not 0 <= budget.delta < 1:
            raise BudgetError(f"delta must be at least 0 and below 1, got {budget.delta}")
        return budget

    def within(self, ceiling: Budget) -> bool:
        return self.epsilon <= ceiling.epsilon and self.delta <= ceiling.delta

    def __str__(self) -> str:
        return f"ε = {format_amount(self.epsilon)}, δ = {format_amount(self.delta)}"


def format_amount(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _number(name: str, value: Any) -> float:
    try:
        found = None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    # What is not a float, such as a third, could be rounded down.
    if found is None or (found != value and not math.isnan(found)):
        raise BudgetError(
            f"{name} must be a number that a float can hold, got {type(value).__name__}"
        )
    return found + 0.0  # no -0.0


def _decimals(budget: Budget) -> tuple[Fraction, Fraction]:
    return Fraction(repr(budget.epsilon)), Fraction(repr(budget.delta))


def _round(value: Fraction, towards: float) -> float:
    """Return the float nearest to a fraction whose decimal is on the side `towards`."""
    found = float(value)
    while (Fraction(repr(found)) > value) if towards < 0 else (Fraction(repr(found)) < value):
        found = math.nextafter(found, towards)
    return found


class Order(NamedTuple):
    """An order of Rényi differential privacy at which losses add up: rho adds ``alpha * rho``, pure
    epsilon itself.

    Spends within `most` are (epsilon, delta)-differentially private, however each was chosen after
    looking at earlier ones (Feldman, Zrnic 2021, who fix the order first); `rest` is what
    converting adds (Canonne, Kamath, Steinke 2020).
    """

    alpha: float
    most: float
    rest: float

    @property
    def rho(self) -> float:
        """The largest zero-concentrated loss that is within (epsilon, delta)."""
        return self.most / self.alpha

    @classmethod
    @cache
    def of(cls, budget: Budget) -> Order | None:
        """Return the order at which the largest rho is within a budget; None where its delta is
        0.
        """
        if not budget.delta:
            return None
        alpha = 1 + np.geomspace(1e-3, 1e6, 20_000)
        rest = np.log1p(-1 / alpha) - (math.log(budget.delta) + np.log(alpha)) / (alpha - 1)
        best = int(((budget.epsilon - rest) / alpha).argmax())
        return cls(float(alpha[best]), budget.epsilon - float(rest[best]), float(rest[best]))


_RHO = re.compile(r"; rho = (\d[\d.e+-]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    epsilon: float
    delta: float
    what: str
    at: str  # UTC

    @property
    def rho(self) -> float | None:
        """Its zero-concentrated loss, where the mechanism gave it."""
        found = _RHO.search(self.what)
        return None if found is None else float(found[1])


@dataclass(frozen=True, slots=True)
class Account:
    name: str  # a scope, or another name that was given
    ceilings: list[Budget]  # all that it ever had, the current one last
    spends: list[Spend]

    @property
    def ceiling(self) -> Budget:
        return self.ceilings[-1]

    @property
    def spent(self) -> Budget:
        """What all spends cost together, rounded up: their sum, or less where they are
        concentrated.
        """
        total = Budget(*(_round(value, math.inf) for value in self._total()))
        order, used = self._concentrated(self.ceiling) if self.ceilings else (None, 0.0)
        if order is None or (
            used + order.rest >= total.epsilon and total.delta <= self.ceiling.delta
        ):
            return total
        return Budget(float(f"{(used + order.rest) * (1 + 1e-5):.6g}"), self.ceiling.delta)

    @property
    def left(self) -> Budget:
        return self.left_of(self.ceiling)

    def left_of(self, ceiling: Budget) -> Budget:
        """Return what a ceiling leaves to a next spend: never below 0, and rounded down, so that it
        can be spent.
        """
        left = (most - value for value, most in zip(self._total(), _decimals(ceiling), strict=True))
        found = Budget(*(_round(max(value, Fraction(0)), -math.inf) for value in left))
        order, used = self._concentrated(ceiling)
        pure = 0.0 if order is None else order.most / _UP - used
        return found if pure <= found.epsilon else Budget(pure, 0.0)

    def after(self, asked: Budget, what: str = "", rho: float | None = None) -> Account:
        """Return the account as it would be after a further spend."""
        what = what if rho is None else f"{what}; rho = {float(rho)!r}"
        return replace(self, spends=[*self.spends, Spend(**asked._asdict(), what=what, at="")])

    def is_within(self, ceiling: Budget) -> bool:
        """Say whether the spends are within a ceiling: their sum, or their loss at the ceiling's
        order.
        """
        order, used = self._concentrated(ceiling)
        added = all(
            value <= most for value, most in zip(self._total(), _decimals(ceiling), strict=True)
        )
        return added or (order is not None and used * _UP <= order.most)

    def check_ceiling(self, ceiling: Budget) -> None:
        """Refuse an accountant's ceiling that is above the one on record; a lower one takes its
        place.
        """
        if self.ceilings and not ceiling.within(self.ceiling):
            raise BudgetError(
                f"the ceiling of {self.name} on record is {self.ceiling}, and this accountant's is"
                f" higher: {ceiling}; give it the one on record, or raise that with cfk budget"
                f" raise LEDGER --account {self.name}"
            )

    def excess(
        self, ceiling: Budget, asked: Budget, rho: float | None = None
    ) -> BudgetError | None:
        if self.after(asked, rho=rho).is_within(ceiling):
            return None
        return BudgetError(
            f"the budget of {self.name} has {self.left_of(ceiling)} left of {ceiling}, and {asked}"
            " was asked for; nothing was spent. Ask for no more than is left, or use what was"
            " fitted before, which costs nothing"
        )

    def _concentrated(self, ceiling: Budget) -> tuple[Order | None, float]:
        """Return the order of a ceiling and the loss there; no order where no spend has a rho."""
        order, rhos = Order.of(ceiling), [spend.rho for spend in self.spends]
        if (
            order is None
            or not any(rhos)
            or any(s.delta and not rho for s, rho in zip(self.spends, rhos, strict=True))
        ):
            return None, 0.0
        used = math.fsum(
            order.alpha * r if r else s.epsilon for s, r in zip(self.spends, rhos, strict=True)
        )
        return order, used

    def _total(self) -> tuple[Fraction, Fraction]:
        epsilon = delta = Fraction(0)
        for budget, times in Counter(
            Budget(spend.epsilon, spend.delta) for spend in self.spends
        ).items():
            first, second = _decimals(budget)
            epsilon, delta = epsilon + times * first, delta + times * second
        return epsilon, delta


def _read_account(chain: Chain, name: str) -> Account:
    had, found = (
        chain.rows(table, table.c.account == name) for table in (chain.ceilings, chain.spends)
    )
    spends = [Spend(**_budget(row)._asdict(), what=row["what"], at=row["at"]) for row in found]
    return Account(name, [_budget(row) for row in had], spends)


def _budget(row: Row) -> Budget:
    return Budget.read(float(row["epsilon"]), float(row["delta"]))


def _row(name: str, budget: Budget) -> Row:
    return {"account": name, "epsilon": repr(budget.epsilon), "delta": repr(budget.delta)}


def accounts(ledger: Ledger) -> list[Account]:
    """Return all accounts of a ledger, by name; makes none."""
    return ledger.run(
        lambda chain: [_read_account(chain, name) for name in chain.names(chain.accounts)], "read"
    )


def raise_ceiling(
    ledger: Ledger, account: str, epsilon: float | None = None, delta: float | None = None
) -> Account:
    """Raise the ceiling of an account: its people lose more privacy than promised.

    All ceilings stay on record.
    """
    asked = Budget.read(1.0 if epsilon is None else epsilon, 0.0 if delta is None else delta)

    def change(chain: Chain) -> Account:
        if account not in chain.names(chain.accounts):
            raise BudgetError(
                "no budget of that name is on record; `cfk budget show` lists those that are"
            )
        chain.lock(chain.accounts, [account])
        old = _read_account(chain, account).ceiling
        new = Budget(
            old.epsilon if epsilon is None else asked.epsilon,
            old.delta if delta is None else asked.delta,
        )
        if new.within(old) or not old.within(new):
            lowers = "an accountant with a lower ceiling lowers it"
            raise BudgetError(f"{new} does not raise the ceiling of {account}, {old}; {lowers}")
        chain.write(chain.ceilings, [_row(account, new)])
        return _read_account(chain, account)

    return ledger.run(change, "settle")


# Whose budget it is: a name that the operator gives, and that does not depend on the table.

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_LONGEST = 200
_OWN = "this accountant"  # in memory without a scope: one account for everything


def _check_name(name: object) -> str:
    if not isinstance(name, str):
        raise BudgetError(f"an account is a Population or a name, got {type(name).__name__}")
    if _FINGERPRINT.fullmatch(name):
        raise BudgetError(
            "the name looks like a fingerprint, which follows from the exact table and is another"
            " one for the same people tomorrow; give a name of your own"
        )
    checked = _check_text("the name of an account", name)
    # Another spelling of a name must not open another account, with a budget of its own.
    return " ".join(unicodedata.normalize("NFKC", checked).casefold().split())


def _check_text(what: str, text: object) -> str:
    if (
        not isinstance(text, str)
        or not text.strip()
        or not text.isprintable()
        or len(text) > _LONGEST
    ):
        raise BudgetError(f"{what} must be a text in one line with 1 to {_LONGEST} characters")
    return text


_T = TypeVar("_T")
_entered: ContextVar[tuple[BudgetAccountant, ...]] = ContextVar(
    "cfk_budget_accountants", default=()
)
_open: list[BudgetAccountant] = []  # of all threads
_lock = threading.Lock()


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
    page "Keep a privacy budget"). They have to agree on what neighboring tables are. The first
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
        self._scope = None if scope is None else _check_name(scope)
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
            return _OWN if self._scope is None else self._scope
        name = _check_name(account)
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
            spends cost less together than their sum. It goes on record behind `what`.

        Raises
        ------
        BudgetError
            If it does not fit, or the accountant's ceiling is above the one on record; nothing was
            spent.
        LedgerError
            If the ledger's database fails; do not go on. The spend may be on record, if only the
            answer got lost.
        """
        name, asked = self.account(account), Budget.read(epsilon, delta)
        text, token = _check_text("what a budget is spent on", what), secrets.token_hex(16)
        if _RHO.search(text) or (
            rho is not None and not (delta and 0 < _number("rho", rho) < math.inf)
        ):
            raise BudgetError(
                "rho is a finite number above 0, beside a delta above 0, and not in the text; give"
                " rho="
            )

        def change(chain: Chain) -> BudgetError | None:
            chain.lock(chain.accounts, [name])
            if chain.rows(chain.spends, chain.spends.c.token == token):
                return None  # recorded by the previous try, whose answer was lost
            known = _read_account(chain, name)
            known.check_ceiling(self._ceiling)
            # Even if nothing can be spent under it: it was lowered to stop spends.
            if not known.ceilings or self._ceiling != known.ceiling:
                chain.write(chain.ceilings, [_row(name, self._ceiling)])
            refusal = known.excess(self._ceiling, asked, rho)
            if refusal is None:
                said = known.after(asked, text, rho).spends[-1].what
                chain.write(chain.spends, [{**_row(name, asked), "what": said, "token": token}])
            return refusal

        if refusal := self._run(change, "settle"):
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
        asked = Budget.read(epsilon, delta)
        if refusal := self._allowed(account).excess(self._ceiling, asked, rho):
            raise refusal

    def remaining(self, account: Population | str | None = None) -> Budget:
        """Return what is left under this accountant's ceiling, rounded down.

        Raises
        ------
        BudgetError
            If the accountant's ceiling is above the one on record.
        """
        return self._allowed(account).left_of(self._ceiling)

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
        if entered := _entered.get():
            return entered[-1]
        with _lock:
            found = {
                id(each): each
                for each in (*_open, BudgetAccountant._of_process)
                if each is not None
            }
        if len(found) > 1:
            raise BudgetError(
                "several accountants are in force in this process, and this thread has entered none"
                " of them; give the mechanism its accountant="
            )
        return next(iter(found.values()), None)

    @staticmethod
    def is_any_in_force() -> bool:
        """Say whether there is a default, or a block is open anywhere in this process."""
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
        with _lock:
            _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block; a ledger stays open."""
        outwards = list(reversed(_entered.get()))
        with suppress(ValueError):  # left in a context other than the one it was entered in
            outwards.remove(self)
        _entered.set(tuple(reversed(outwards)))
        with _lock, suppress(ValueError):
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
        return self._run(lambda chain: _read_account(chain, name), "read")

    def _allowed(self, account: Population | str | None) -> Account:
        """Return an account whose ceiling is not below the accountant's."""
        known = self._known(account)
        known.check_ceiling(self._ceiling)
        return known


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
