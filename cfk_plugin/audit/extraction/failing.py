"""Calls into models of others, whose failures may quote rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from cfk_plugin.errors import CFKError, ModelError, quiet

T = TypeVar("T")


def called(what: str, call: Callable[[], T]) -> T:
    """Call and return what comes back, without the warnings on the way.

    Linear algebra gets one thread: matrices are small here, pieces run side by side, and results do not depend on it.

    Parameters
    ----------
    what : str
        What is called, for the message.
    call : callable

    Raises
    ------
    ModelError
        If it fails; with the class of the failure alone.
    CFKError
        As it is: our own messages name no values.
    """
    failed = f"{what} failed ({{}}); try it on the table without an attack"
    with quiet(failed, ModelError, let=CFKError), _threads().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one training among many: not converged, an unknown category
        return call()


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library, so it is made once
