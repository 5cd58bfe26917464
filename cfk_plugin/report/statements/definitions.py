"""What every figure, check, attack and chart of a report is, and what it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cfk_plugin.errors import InputError
from cfk_plugin.report.data import Definition
from cfk_plugin.report.statements.texts import load

GROUPS: Mapping[str, Mapping[str, Definition]] = MappingProxyType(
    {
        title: MappingProxyType({name: Definition(**parts) for name, parts in entries.items()})
        for title, entries in load("definitions").items()
    }
)
"""Heading to its definitions, in the order of the reference page."""

DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {name: found for entries in GROUPS.values() for name, found in entries.items()}
)
"""Id to definition. A figure and the check of the same id, such as ``k_min``, share one."""


def definition(name: str) -> Definition:
    """Return what a figure, check, attack or chart is.

    Parameters
    ----------
    name : str
        Its id.

    Returns
    -------
    Definition

    Raises
    ------
    InputError
        If it is not defined: nothing may be reported that is not.
    """
    if name not in DEFINITIONS:
        raise InputError(f"{name!r} is not defined; add it to texts/definitions.yaml, with what it does not say")
    return DEFINITIONS[name]
