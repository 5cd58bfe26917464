"""Singling out, linkability and inference: what the report has to say of each, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cfk_plugin.report.data import Status
from cfk_plugin.report.statements.texts import load

_BY_K = "singling out"  # the one criterion that a number of people speaks of
_FAMILIES = ("attack_membership", "attack_extraction", "attack_attribute_inference")  # each of several attacks
_BY_VALUES = ("singling out", "inference")  # what private values that are released as they are stand against


def criteria(
    statuses: Mapping[str, Status],
    *,
    raw_private: Sequence[str] | None,
    regions: bool = True,
    prototypes: bool = False,
) -> tuple[Mapping[str, str], ...]:
    """Return the table of the three criteria of the Article 29 Working Party's Opinion 05/2014.

    k people in a region speak of singling out alone: linkability and inference pass by attacks and by limits on what
    people of a region share, never by k. What is not measured is never a pass.

    Parameters
    ----------
    statuses : mapping of str to Status
        Check to its status; a check that is not there was not measured.
    raw_private : sequence of str or None
        Private attributes that are released as they are; None where that is not known. Both keep singling out and
        inference from passing.
    regions, prototypes : bool
        What was released.

    Returns
    -------
    tuple of mapping
        ``criterion``, ``evidence`` (ids of checks), ``status``, ``text``.
    """
    told = load("criteria")
    exposed = ""
    if regions and (raw_private is None or raw_private):
        exposed = told["raw_unknown" if raw_private is None else "raw"]
    return tuple(_row(each, statuses, exposed, regions, prototypes) for each in told["criteria"])


def _row(
    told: Mapping[str, Any], statuses: Mapping[str, Status], exposed: str, regions: bool, prototypes: bool
) -> Mapping[str, str]:
    texts, name = load("criteria"), told["name"]
    asked = dict.fromkeys(told["regions"] * regions + told["prototypes"] * prototypes)
    needed = dict.fromkeys(check for each in asked for check in _of_family(each, statuses))
    needed |= dict.fromkeys(check for check in told["if_run"] if check in statuses)
    status = _together([statuses.get(check, "not_measured") for check in needed])
    concerned = bool(exposed) and name in _BY_VALUES
    parts = [told["asks"]]
    if concerned and status == "pass":
        status = "review"
    else:
        parts.append(texts["statuses"][status])
    parts += [texts["k_alone"]] * (regions and name != _BY_K)
    parts += [exposed] * concerned
    return MappingProxyType(
        {"criterion": name, "evidence": ", ".join(needed), "status": status, "text": " ".join(parts)}
    )


def _of_family(check: str, statuses: Mapping[str, Status]) -> list[str]:
    """Return the checks that a name stands for: those of all attacks of a family, or itself."""
    attacks = [name for name in statuses if name.startswith(f"{check}_")] if check in _FAMILIES else []
    return [*([check] if check in statuses or not attacks else []), *attacks]


def _together(found: Sequence[Status]) -> Status:
    if "fail" in found:
        return "fail"
    if not found or set(found) == {"not_measured"}:
        return "not_measured"
    return "pass" if set(found) == {"pass"} else "review"
