"""Whose budget it is: a name that the operator gives, and that nothing of a table decides."""

from __future__ import annotations

import re
from typing import Any

from cfk_plugin.errors import BudgetError

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_LONGEST = 200

OWN = "this accountant"
"""Account of an accountant in memory that was given no scope: one for everything that is spent through it."""


def account_name(account: Any, scope: str | None, lasts: bool) -> str:
    """Return the name of the account.

    Parameters
    ----------
    account : Population, str or None
        A population, like None, stands for the scope: a fingerprint is computed from the exact table, and an account of
        that name, or what was spent from it, would tell whether two tables are the same.
    scope : str or None
        Name that stands for whatever population is given.
    lasts : bool
        Whether the books are those of others, too.

    Raises
    ------
    BudgetError
        If nobody says whose budget it is, or the name is none.
    """
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
    """Return a name that somebody chose.

    Raises
    ------
    BudgetError
        If it is no short text in one line, or one like a fingerprint.
    """
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
