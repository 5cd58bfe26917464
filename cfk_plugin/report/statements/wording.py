"""Words that a report must not use, and the sentence for the person who receives an explanation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

FORBIDDEN: Mapping[str, str] = MappingProxyType(
    {
        "anonymous": r"(?<!\bk-)\banonymous\b",  # "k-anonymous with respect to ..." says of whom
        "anonymised": r"\banonymi[sz]ed\b",
        "safe": r"\bsafe\b",
        "compliant": r"\bcompliant\b",
        "GDPR-proof": r"\bGDPR[ -]proof\b",
        "guaranteed privacy": r"\bguaranteed\s+privacy\b",
        "zero risk": r"\bzero[ -]risk\b",
        "cannot be re-identified": r"\bcan(not|\snot|['’]t)\s+be\s+re-?identified\b",
        "differentially private": r"\bdifferentially[ -]private\b",
        "optimal": r"\boptimal\b",
    }
)
"""Word to the pattern that finds it. Each is a promise that no figure of a report supports."""


def forbidden(text: str, allowed: Iterable[str] = ()) -> list[str]:
    """Return the words of a text that a report must not use.

    Parameters
    ----------
    text : str
    allowed : iterable of str
        Keys of `FORBIDDEN` that are supported here: "differentially private" where the guarantee is stated in full,
        unseeded and covers the model; "optimal" where the exact solver proved it.

    Returns
    -------
    list of str
        Empty where there is none.

    Examples
    --------
    >>> forbidden("k-anonymous, so these rows are anonymous and safe")
    ['anonymous', 'safe']
    """
    kept = set(allowed)
    return [word for word, pattern in FORBIDDEN.items() if word not in kept and re.search(pattern, text, re.I)]


def receiver_sentence(share: float | None = None, whom: str = "customer") -> str:
    """Return what may be told to the person who receives an explanation with ranges.

    Parameters
    ----------
    share : float in [0, 1], optional
        Pureness of the explanation, or its mean over a report; rounded down.
    whom : str
        What a person of the training data is called.

    Returns
    -------
    str
    """
    told = f"The values are given as ranges so that they do not describe another {whom}"
    if share is None:
        return f"{told}."
    if share == 1:
        return f"{told}; all combinations inside these ranges lead to the other decision."
    percent = math.floor(100 * share + 1e-9)
    return f"{told}; about {percent} % of combinations inside these ranges lead to the other decision."
