"""Amounts of privacy: read from floats, added without rounding, and given back as floats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from cfk_plugin.errors import BudgetError


class Budget(NamedTuple):
    """An ε and a δ.

    Attributes
    ----------
    epsilon, delta : float
    """

    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Write both as they are counted."""
        return f"ε = {written(self.epsilon)}, δ = {written(self.delta)}"


@dataclass(frozen=True, slots=True)
class Amount:
    """An ε and a δ as exact fractions.

    A float stands for the decimal that Python writes for it: 0.1 is one tenth, so that ten fits of 0.1 fit in 1. The
    float itself differs from that decimal by less than 1.2 parts in 10^16. A sum of whatever length is off by no more
    than that share; nothing is rounded on the way, so nothing drifts.
    """

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def of(cls, epsilon: object, delta: object) -> Amount:
        """Read and check what a caller gives.

        Raises
        ------
        BudgetError
            If ε is not finite and above 0, or δ is not in [0, 1).
        """
        first, second = _number("epsilon", epsilon), _number("delta", delta)
        if not (math.isfinite(first) and first > 0):
            raise BudgetError(f"epsilon must be finite and above 0, got {first}")
        if not 0 <= second < 1:
            raise BudgetError(f"delta must be at least 0 and below 1, got {second}")
        return cls(_decimal(first), _decimal(second))

    @classmethod
    def sum(cls, amounts: Iterable[Budget]) -> Amount:
        """Add up; most of many amounts are alike."""
        total = cls(Fraction(0), Fraction(0))
        for amount, times in Counter(amounts).items():
            total += cls(times * _decimal(amount.epsilon), times * _decimal(amount.delta))
        return total

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.epsilon + other.epsilon, self.delta + other.delta)

    def within(self, ceiling: Amount) -> bool:
        """Say whether neither ε nor δ is above a ceiling's."""
        return self.epsilon <= ceiling.epsilon and self.delta <= ceiling.delta

    def left_of(self, ceiling: Amount) -> Budget:
        """Return what a ceiling leaves, rounded down, so that it can be spent; never below 0."""
        epsilon, delta = ceiling.epsilon - self.epsilon, ceiling.delta - self.delta
        return Budget(_float(max(epsilon, Fraction(0)), -math.inf), _float(max(delta, Fraction(0)), -math.inf))

    def rounded_up(self) -> Budget:
        """Return it as floats that are not below it."""
        return Budget(_float(self.epsilon, math.inf), _float(self.delta, math.inf))


def written(value: float) -> str:
    """Write a number as it is counted, whole ones without a fraction."""
    return repr(float(value)).removesuffix(".0")


def _number(name: str, value: Any) -> float:
    try:
        found = None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = None
    # What is no float, such as a third, would be rounded, and maybe down.
    if found is None or (found != value and not math.isnan(found)):
        raise BudgetError(f"{name} must be a number that a float can hold, got {type(value).__name__}")
    return found + 0.0  # no -0.0


def _decimal(value: float) -> Fraction:
    return Fraction(repr(value))


def _float(value: Fraction, towards: float) -> float:
    """Return the float nearest to a fraction whose decimal is on the wanted side of it."""
    found = float(value)
    while (_decimal(found) > value) if towards < 0 else (_decimal(found) < value):
        found = math.nextafter(found, towards)
    return found
