"""Regions that a protector proposes, copied into the population's own values."""

from __future__ import annotations

import logging
from datetime import date
from math import isfinite
from typing import Any

import numpy as np

from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import PluginError, quiet
from cfk_plugin.hookspecs import Proposal

_log = logging.getLogger("cfk_plugin")


# Only exact types are read, each once: a subclass could differ between verification and release.


def rebuild(proposal: Proposal, population: Population) -> Proposal | None:
    """Return a copy of a proposal made of the population's own values; None if it is malformed."""
    try:
        with quiet("a proposed region is malformed", PluginError):
            region, gap = proposal.region, proposal.gap
            own = None if region is None else _own_region(region, population)
            return Proposal(own, proposal.optimal is True, None if gap is None else float(gap))
    except PluginError as error:
        _log.debug("%s", error)
        return None


def _own_region(region: Region, population: Population) -> Region:
    names = population.schema.quasi_identifiers
    if (
        type(region) is not Region
        or type(region.parts) is not dict
        or len(region.parts) != len(names)
    ):
        raise TypeError("not a Region over the quasi-identifiers")
    parts = region.parts.copy()
    return Region({name: _own_part(parts[name], population.domains[name]) for name in names})


def _own_part(part: Part, domain: Domain) -> Part:
    if not domain.is_interval:
        if type(part) is not frozenset:
            raise TypeError("not a frozenset")
        codes = [domain.code(value) for value in part if value is not None]
        if UNKNOWN in codes:
            raise TypeError("a value that the population does not have")
        own = {domain.value(code) for code in codes}
        return frozenset(own | {None} if None in part and domain.has_missing else own)
    if type(part) is not Interval:
        raise TypeError("not an Interval")
    low, high, levels = part.low, part.high, part.levels
    missing = part.missing is True and domain.has_missing
    if domain.attribute.kind == "ordinal":
        return _own_levels(levels, missing, domain)
    if levels is not None:
        raise TypeError("levels belong to ordinal attributes")
    if low is None and high is None:
        return Interval(None, None, missing)
    return Interval(domain.natural(_end(low)), domain.natural(_end(high)), missing)


def _own_levels(levels: Any, missing: bool, domain: Domain) -> Interval:
    if type(levels) is not tuple:
        raise TypeError("not a tuple of levels")
    codes = [domain.code(level) for level in levels]
    if not codes:
        return Interval(None, None, missing, ())
    if UNKNOWN in codes or codes != list(range(codes[0], codes[0] + len(codes))):
        raise TypeError("levels must be neighbours")
    own = tuple(domain.values[codes[0] : codes[-1] + 1].tolist())
    return Interval(own[0], own[-1], missing, own)


def _end(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, date)):
        raise TypeError("not a number or date")
    number = to_number(value)
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number
