"""Proposals of a plugin, copied into the population's own values before anything uses them.

Only exact types are read, and each attribute once: an object of a subclass could differ between
verification and release.
"""

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


def rebuild(proposal: Proposal, population: Population) -> Proposal | None:
    """Return a copy of a proposal made of the population's own values; None if it is malformed."""
    try:
        with quiet("a proposed region is malformed", PluginError):
            region = proposal.region
            gap = proposal.gap
            return Proposal(
                region=_rebuilt_region(region, population),
                optimal=proposal.optimal is True,
                gap=_rebuilt_gap(gap),
            )
    except PluginError as error:
        _log.debug("%s", error)
        return None


def _rebuilt_gap(gap: Any) -> float | None:
    return None if gap is None else float(gap)


def _rebuilt_region(region: Any, population: Population) -> Region | None:
    if region is None:
        return None
    names = population.schema.quasi_identifiers
    if (
        type(region) is not Region
        or type(region.parts) is not dict
        or len(region.parts) != len(names)
    ):
        raise TypeError("not a Region over the quasi-identifiers")
    parts = region.parts.copy()
    return Region({name: _rebuilt_part(parts[name], population.domains[name]) for name in names})


def _rebuilt_part(part: Part, domain: Domain) -> Part:
    if not domain.is_interval:
        return _rebuilt_set(part, domain)
    if type(part) is not Interval:
        raise TypeError("not an Interval")
    may_be_missing = part.missing is True and domain.has_missing
    levels = part.levels
    if domain.attribute.kind == "ordinal":
        return _rebuilt_levels(levels, may_be_missing, domain)
    if levels is not None:
        raise TypeError("levels belong to ordinal attributes")
    low = part.low
    high = part.high
    if low is None and high is None:
        return Interval(None, None, may_be_missing)
    return Interval(
        domain.natural(_finite_number(low)), domain.natural(_finite_number(high)), may_be_missing
    )


def _rebuilt_set(part: Any, domain: Domain) -> frozenset[Any]:
    if type(part) is not frozenset:
        raise TypeError("not a frozenset")
    codes = [domain.code(value) for value in part if value is not None]
    if UNKNOWN in codes:
        raise TypeError("a value that the population does not have")
    values = {domain.value(code) for code in codes}
    if None in part and domain.has_missing:
        values.add(None)
    return frozenset(values)


def _rebuilt_levels(levels: Any, may_be_missing: bool, domain: Domain) -> Interval:
    if type(levels) is not tuple:
        raise TypeError("not a tuple of levels")
    codes = [domain.code(level) for level in levels]
    if not codes:
        return Interval(None, None, may_be_missing, ())
    first = codes[0]
    last = codes[-1]
    if UNKNOWN in codes or codes != list(range(first, first + len(codes))):
        raise TypeError("levels must be neighbours")
    own_levels = tuple(domain.values[first : last + 1].tolist())
    return Interval(own_levels[0], own_levels[-1], may_be_missing, own_levels)


def _finite_number(value: Any) -> float:
    """Return a bound of a range as a number; refuse what is no number or date."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, date)):
        raise TypeError("not a number or date")
    number = to_number(value)
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number
