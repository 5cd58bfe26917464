"""Accounts of privacy budgets: their ceilings and spends, as a ledger keeps them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cfk_plugin.errors import BudgetError
from cfk_plugin.records.composition import (
    Budget,
    RenyiOrder,
    Spend,
    added_cost,
    added_remainder,
    sums_are_within,
)

if TYPE_CHECKING:
    from cfk_plugin.records.chain import Chain, Row
    from cfk_plugin.records.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Account:
    """All ceilings and spends of one account."""

    name: str  # a scope, or another name that was given
    ceilings: list[Budget]  # all that it ever had, the current one last
    spends: list[Spend]
    alpha: float | None = None  # order of the first spend with a delta, if it decided for one

    @classmethod
    def read(cls, chain: Chain, name: str) -> Account:
        """Return an account as it is on record; one that is not has neither ceiling nor spend."""
        ceilings = chain.rows(chain.ceilings, chain.ceilings.c.account == name)
        rows = chain.rows(chain.spends, chain.spends.c.account == name)
        spends = [_spend(row) for row in rows]
        alpha = None
        deciding = next((at for at, spend in enumerate(spends) if spend.delta), None)
        if deciding is not None:
            # Entries of the chain are numbered in the order in which they were written.
            written = rows[deciding]["seq"]
            in_force = [_budget(row) for row in ceilings if row["seq"] < written]
            alpha = RenyiOrder.decided_by(spends[: deciding + 1], in_force[-1])
        return cls(name, [_budget(row) for row in ceilings], spends, alpha)

    @property
    def ceiling(self) -> Budget:
        return self.ceilings[-1]

    @property
    def order(self) -> RenyiOrder | None:
        """The order at which it counts, with what its ceiling allows there; None for sums."""
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
        """Return the account as it would be under another ceiling."""
        return replace(self, ceilings=[*self.ceilings, ceiling])

    def after(self, spend: Spend) -> Account:
        """Return the account as it would be after a further spend."""
        spends = [*self.spends, spend]
        alpha = self.alpha
        if spend.delta and not any(earlier.delta for earlier in self.spends):
            alpha = RenyiOrder.decided_by(spends, self.ceiling)
        return replace(self, spends=spends, alpha=alpha)

    def check_ceiling(self, ceiling: Budget) -> None:
        """Refuse an accountant's ceiling that is above the one on record.

        A lower one takes the place of that on record.
        """
        if self.ceilings and not ceiling.within(self.ceiling):
            raise BudgetError(
                f"the ceiling of {self.name} on record is {self.ceiling}, and this accountant's is"
                f" higher: {ceiling}; give it the one on record, or raise that with cfk budget"
                f" raise LEDGER --account {self.name}"
            )

    def refusal(self, spend: Spend) -> BudgetError | None:
        """Return the error of a further spend that would exceed the ceiling; None if it fits."""
        if not self.after(spend).is_exceeded:
            return None
        message = (
            f"the budget of {self.name} has {self.left} left of {self.ceiling}, and {spend.budget}"
            " was asked for; nothing was spent. Ask for no more than is left, or use what was"
            " fitted before, which costs nothing"
        )
        if self.order is not None:
            message += (
                ". The account counts at an order of Rényi privacy: what is left is left to a fit"
                " without a δ, and a fit with a δ has to tell its ρ"
            )
        return BudgetError(message)


def _budget(row: Row) -> Budget:
    return Budget.read(float(row["epsilon"]), float(row["delta"]))


def _spend(row: Row) -> Spend:
    rho = None if row["rho"] is None else float(row["rho"])
    spend = Spend.read(float(row["epsilon"]), float(row["delta"]), rho, row["what"])
    return replace(spend, at=row["at"])


def row_of_ceiling(name: str, ceiling: Budget) -> Row:
    """Return what goes on record of the ceiling of an account."""
    # As text: a database might round numbers.
    return {"account": name, "epsilon": repr(ceiling.epsilon), "delta": repr(ceiling.delta)}


def row_of_spend(name: str, spend: Spend) -> Row:
    """Return what goes on record of a spend from an account, without a token."""
    rho = None if spend.rho is None else repr(spend.rho)
    return {**row_of_ceiling(name, spend.budget), "rho": rho, "what": spend.what}


def accounts(ledger: Ledger) -> list[Account]:
    """Return all accounts of a ledger, by name; makes none."""

    def read_all(chain: Chain) -> list[Account]:
        return [Account.read(chain, name) for name in chain.names(chain.accounts)]

    return ledger.run(read_all, "read")


def raise_ceiling(
    ledger: Ledger, account: str, epsilon: float | None = None, delta: float | None = None
) -> Account:
    """Raise the ceiling of an account: its people lose more privacy than promised.

    All ceilings stay on record.
    """

    def change(chain: Chain) -> Account:
        if account not in chain.names(chain.accounts):
            raise BudgetError(
                "no budget of that name is on record; `cfk budget show` lists those that are"
            )
        chain.lock(chain.accounts, [account])
        old = Account.read(chain, account).ceiling
        new = old
        if epsilon is not None:
            new = Budget.read(epsilon, new.delta)
        if delta is not None:
            new = Budget.read(new.epsilon, delta)
        if new.within(old) or not old.within(new):
            raise BudgetError(
                f"{new} does not raise the ceiling of {account}, {old}; an accountant with a lower"
                " ceiling lowers it"
            )
        chain.write(chain.ceilings, [row_of_ceiling(account, new)])
        return Account.read(chain, account)

    return ledger.run(change, "settle")


# Whose budget it is: a name that the operator gives, and that does not depend on the table.

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_MAX_LENGTH = 200


def normalized_name(name: object) -> str:
    """Return the name of an account in the spelling under which it is on record."""
    if not isinstance(name, str):
        raise BudgetError(f"an account is a Population or a name, got {type(name).__name__}")
    check_text("the name of an account", name)
    # Another spelling of a name must not open another account, with a budget of its own.
    normalized = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    if _FINGERPRINT.fullmatch(normalized):
        raise BudgetError(
            "the name looks like a fingerprint, which follows from the exact table and is another"
            " one for the same people tomorrow; give a name of your own"
        )
    return normalized


def check_text(subject: str, text: object) -> None:
    """Raise `BudgetError` unless the text that describes the subject is one short line."""
    if isinstance(text, str) and text.strip() and text.isprintable() and len(text) <= _MAX_LENGTH:
        return
    raise BudgetError(f"{subject} must be a text in one line with 1 to {_MAX_LENGTH} characters")
