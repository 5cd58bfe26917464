"""The control map: which rule or standard asks for what, and where in the report it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cfk_plugin.report.statements.texts import load

STATUSES = ("in force", "final", "voluntary", "practice", "rescinded", "withdrawn")
"""Words with one of which a status begins."""

VERIFIED = ("text", "secondary sources", "recalled, to be checked by counsel")
"""How an entry was looked up."""


def controls() -> tuple[Mapping[str, str], ...]:
    """Return the control map.

    It says where something is answered, not that a rule is met: that is for people to decide.

    Returns
    -------
    tuple of mapping
        ``control``, ``requires``, ``section`` (numbers of sections, ``"5, 7"``), ``status`` of the rule's text,
        ``verified`` and ``checked_on`` (year and month).
    """
    return tuple(MappingProxyType(_entry(told)) for told in load("controls"))


def _entry(told: Mapping[str, Any]) -> dict[str, str]:
    return {
        "control": told["control"],
        "requires": told["requires"],
        "section": ", ".join(map(str, told["sections"])),
        "status": told["status"],
        "verified": told["verified"],
        "checked_on": told["checked_on"],
    }
