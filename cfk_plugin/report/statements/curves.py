"""How charts and plots name the curves of membership attacks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COIN = "a coin"
"""The diagonal."""

BOUNDS: Mapping[str, str] = MappingProxyType(
    {"bound_tight": "most that epsilon admits", "bound_paper": "the same, as published"}
)
"""Curves that are no attacks: what differential privacy admits, where it is claimed."""

_SHORT = {"cfd": "CFD", "cfd_lrt": "CFD-LRT", "loss": "Loss", "loss_lrt": "Loss-LRT"}
_LONGEST = 16


def short(attack: str) -> str:
    """Return the name of an attack as a legend has room for it."""
    rest = attack.removeprefix("membership_")
    return _SHORT.get(rest, rest.replace("_", " "))[:_LONGEST]
