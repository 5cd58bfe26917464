"""How tables and methods are called in plots and on the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cfk_plugin.reproduction.measure import METHODS
from cfk_plugin.reproduction.tables import NAMES

_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "cf-k": "CF-K",
        "nice-none": "NICE (none)",
        "nice-sparsity": "NICE (sparsity)",
        "nice-proximity": "NICE (proximity)",
        "nice-plausibility": "NICE (plausibility)",
    }
)
_ORDER = (*_OTHERS, *METHODS)


def label(method: str) -> str:
    """Return what a method is called."""
    return METHODS[method].label if method in METHODS else _OTHERS.get(method, method)


def in_order(tables: Iterable[str]) -> list[str]:
    """Return table names once each, as the paper orders them; others at the end."""
    names = dict.fromkeys(tables)
    return sorted(names, key=lambda name: (NAMES.index(name) if name in NAMES else len(NAMES), name))


def methods_in_order(methods: Iterable[str]) -> list[str]:
    """Return method names once each, as they are shown; others at the end."""
    names = dict.fromkeys(methods)
    return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def main_k(ks: Iterable[int]) -> int | None:
    """Return the k that is shown where only one is: the paper's 10, or else the middle one; None without any."""
    known = sorted(set(ks))
    return 10 if 10 in known else known[len(known) // 2] if known else None
