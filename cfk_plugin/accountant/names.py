"""Whose budget it is: a name that is the same wherever the same people are meant."""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from cfk_plugin.errors import BudgetError

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
_LONGEST = 200


@runtime_checkable
class Fingerprinted(Protocol):
    """A population, as far as an accountant looks at it."""

    @property
    def fingerprint(self) -> str:
        """Identity of what is counted."""
        ...

    @property
    def has_key(self) -> bool:
        """Whether the fingerprint is the same in every process that has the key."""
        ...


def account_name(account: Fingerprinted | str | None, scope: str | None, lasts: bool) -> str:
    """Return the name of the account.

    Parameters
    ----------
    account : Population, str or None
        None stands for the scope.
    scope : str or None
        Name that stands for whatever population is given.
    lasts : bool
        Whether other processes look for the name.

    Raises
    ------
    BudgetError
        If nobody else would find the name again, or it is none.
    """
    if isinstance(account, Fingerprinted):
        if scope is not None:
            return scope
        if lasts and not account.has_key:
            raise BudgetError(
                "the fingerprint of this population is another one in every process, as there is no key, and so the "
                "budget would start anew in each; set CFK_KEY, build the population with key=, or give "
                "BudgetAccountant a scope="
            )
        return account.fingerprint
    if account is None and scope is None:
        raise BudgetError("whose budget? give the population, or BudgetAccountant a scope=")
    if scope is not None and account not in (None, scope):
        raise BudgetError("this accountant has a scope, and only one account: give the population, or nothing")
    name = scope if account is None else account
    return checked_name(name, lasts)


def checked_name(name: object, lasts: bool = True) -> str:
    """Return a name that somebody chose.

    Raises
    ------
    BudgetError
        If it is no short text in one line; or, where it lasts, one like a fingerprint, of which nobody knows whether
        it was made with a key.
    """
    if not isinstance(name, str):
        raise BudgetError(f"an account is a Population or a name, got {type(name).__name__}")
    if lasts and _FINGERPRINT.fullmatch(name):
        raise BudgetError(
            "the name looks like a fingerprint; give the Population itself, so that it can be seen whether its "
            "fingerprint lasts, or another name"
        )
    return checked_text("the name of an account", name)


def checked_text(what: str, text: object) -> str:
    """Return a text that goes on record."""
    if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > _LONGEST:
        raise BudgetError(f"{what} must be a text in one line with 1 to {_LONGEST} characters")
    return text
