"""Rounds numbers and dates so that people can read them.

Steps are 1, 2 and 5 times a power of ten, and numbers of seconds, minutes, hours and days.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAY = 86_400.0
"""A day in seconds."""

_MINUTE = 60.0
_HOUR = 3600.0
_STEPS_BELOW_AN_HOUR = np.array([1.0, 2.0, 5.0, 10.0, 20.0, 30.0])
_STEPS_BELOW_A_DAY = np.concatenate(
    [
        _STEPS_BELOW_AN_HOUR,
        _STEPS_BELOW_AN_HOUR * _MINUTE,
        np.array([1.0, 2.0, 3.0, 6.0, 12.0]) * _HOUR,
    ]
)
_ROUNDING = 0.05  # the largest step, as a share of a change or of a range
_TIE = 1e-9


def resolution_of_dates(seconds: Floats) -> float:
    """Return the longest unit whose multiples all dates are: a day, hour, minute or second.

    The unit is in seconds. Dates with fractions of a second also have the unit of a second.
    """
    for step in (DAY, _HOUR, _MINUTE):
        if not np.any(seconds % step):
            return step
    return 1.0


def steps_within(sizes: Floats, finest: float, *, are_dates: bool = False) -> Floats:
    """Return the largest step that is at most 5 % of each size, but at least `finest`.

    Parameters
    ----------
    sizes : array of any shape
        Changes or ranges; in seconds for dates.
    finest : float
        For dates, the result of `resolution_of_dates`.
    are_dates : bool
    """
    limits = np.maximum(np.abs(sizes) * _ROUNDING, finest)
    if not are_dates:
        return _decimal_steps(limits)
    steps = _STEPS_BELOW_A_DAY[min(finest, _STEPS_BELOW_A_DAY[-1]) <= _STEPS_BELOW_A_DAY]
    position = np.searchsorted(steps, limits, side="right") - 1
    days = DAY * _decimal_steps(np.maximum(limits / DAY, 1.0))
    below: Floats = steps[position.clip(min=0)]
    return np.where(limits >= DAY, days, below)


def _decimal_steps(limits: Floats) -> Floats:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most each limit."""
    power = 10.0 ** np.floor(np.log10(limits) + _TIE)
    mantissa = limits / power
    digit = np.where(mantissa >= 5 - _TIE, 5.0, np.where(mantissa >= 2 - _TIE, 2.0, 1.0))
    return power * digit


def multiples(counts: Floats, steps: Floats) -> Floats:
    """Return counts times steps without rounding errors: 0.6 and not 0.6000000000000001."""
    n_decimals = np.maximum(-np.floor(np.log10(steps) + _TIE), 0.0)
    scale = 10.0**n_decimals
    numbers: Floats = np.rint(counts * steps * scale) / scale
    return numbers


def round_outwards(
    factual: Floats, changes: Floats, finest: float, *, are_dates: bool = False
) -> Floats:
    """Return `factual + changes`, rounded to a multiple of a step, away from `factual`.

    `steps_within` chooses the step for each change. The arrays are broadcast together.
    """
    steps = steps_within(changes, finest, are_dates=are_dates)
    counts = (factual + changes) / steps
    counts = np.where(changes > 0, np.ceil(counts - _TIE), np.floor(counts + _TIE))
    return multiples(counts, steps)
