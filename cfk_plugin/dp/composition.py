"""What several differentially private spends cost together: exact sums, and Rényi divergence.

A float stands for the decimal that Python writes for it: 0.1 is one tenth, so that ten fits of 0.1
fit in 1. It differs from that decimal by less than 1.2 parts in 10^16, and so does a sum of any
length, because decimals are added exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from cfk_plugin.errors import BudgetError

_ROUNDING = 1 + 1e-9  # a loss that is computed in floats is rounded up by this factor


class Budget(NamedTuple):
    """An amount of privacy loss: epsilon and delta."""

    epsilon: float
    delta: float

    @classmethod
    def read(cls, epsilon: object, delta: object) -> Budget:
        """Return a budget that a caller gave; raise `BudgetError` if it is none."""
        budget = cls(_as_float("epsilon", epsilon), _as_float("delta", delta))
        if not (math.isfinite(budget.epsilon) and budget.epsilon > 0):
            raise BudgetError(f"epsilon must be finite and above 0, got {budget.epsilon}")
        if not 0 <= budget.delta < 1:
            raise BudgetError(f"delta must be at least 0 and below 1, got {budget.delta}")
        return budget

    def within(self, ceiling: Budget) -> bool:
        return self.epsilon <= ceiling.epsilon and self.delta <= ceiling.delta

    def __str__(self) -> str:
        return f"ε = {format_amount(self.epsilon)}, δ = {format_amount(self.delta)}"


def format_amount(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _as_float(name: str, value: Any) -> float:
    not_a_number = BudgetError(
        f"{name} must be a number that a float can hold, got {type(value).__name__}"
    )
    if isinstance(value, (bool, str, bytes)):
        raise not_a_number
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise not_a_number from None
    # A number that is not a float, such as a third, could be rounded down.
    if number != value and not math.isnan(number):
        raise not_a_number
    return number + 0.0  # makes 0.0 of -0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """One spend, as it is on record."""

    epsilon: float
    delta: float
    rho: float | None = None  # its zero-concentrated loss, if the mechanism gave it
    what: str = ""
    at: str = ""  # UTC

    @classmethod
    def read(cls, epsilon: object, delta: object, rho: object = None, what: str = "") -> Spend:
        """Return a spend that a caller asked for; raise `BudgetError` if it is none."""
        budget = Budget.read(epsilon, delta)
        if rho is not None:
            rho = _as_float("rho", rho)
            if not (0 < rho < math.inf and budget.delta):
                raise BudgetError("rho must be a finite number above 0, and needs a delta above 0")
        return cls(epsilon=budget.epsilon, delta=budget.delta, rho=rho, what=what)

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, self.delta)


class RenyiOrder(NamedTuple):
    """An order of Rényi differential privacy, at which the losses of several spends add up.

    A spend that is rho-zero-concentrated loses ``alpha * rho`` at the order alpha, and a spend with
    a pure epsilon loses at most epsilon.

    Spends that lose at most `max_loss` together are (epsilon, delta)-differentially private,
    however each was chosen after looking at earlier ones, because the order is fixed before the
    first of them that has a delta (Feldman, Zrnic 2021). Zero-concentrated losses alone could be
    added without an order, with the same result, since the order is the best for them.
    """

    alpha: float
    max_loss: float
    conversion: float  # what converting a loss to an epsilon adds (Canonne, Kamath, Steinke 2020)

    @classmethod
    @cache
    def of(cls, ceiling: Budget) -> RenyiOrder | None:
        """Return the order at which the largest rho is within a ceiling; None if its delta is 0."""
        if not ceiling.delta:
            return None
        alpha = 1 + np.geomspace(1e-3, 1e6, 20_000)
        log_term = (math.log(ceiling.delta) + np.log(alpha)) / (alpha - 1)
        conversion = np.log1p(-1 / alpha) - log_term
        best = np.argmax((ceiling.epsilon - conversion) / alpha)
        return cls.at(float(alpha[best]), ceiling)

    @classmethod
    def at(cls, alpha: float, ceiling: Budget) -> RenyiOrder:
        """Return an order with what a ceiling allows there: nothing if its delta is 0."""
        if not ceiling.delta:
            return cls(alpha, max_loss=-math.inf, conversion=math.inf)
        log_term = (math.log(ceiling.delta) + math.log(alpha)) / (alpha - 1)
        conversion = math.log1p(-1 / alpha) - log_term
        return cls(alpha, max_loss=ceiling.epsilon - conversion, conversion=conversion)

    @classmethod
    def decided_by(cls, spends: Sequence[Spend], ceiling: Budget) -> float | None:
        """Return alpha of the order at which an account counts; None if it counts by sums.

        `spends` ends with the first one that has a delta, and `ceiling` is the one that was in
        force when that spend went on record. They decide for good: the account counts at the order
        of the ceiling if that spend has a rho, and all of them are within the ceiling at the order.

        Before the decision all losses are pure. They add up alike in both ways and at every order,
        so results that were seen may influence it. Were it still open later, or did a later ceiling
        decide anew, somebody could let results decide it, and lose more than the ceiling's delta.

        A later ceiling changes only the loss that is allowed at this order (see `at`): a lower one
        allows less, and a raised one more. Losses at different orders could not be added, so alpha
        stays what it was.
        """
        order = cls.of(ceiling)
        if order is not None and order.allows(spends):
            return order.alpha
        return None

    def loss(self, spends: Sequence[Spend]) -> float:
        """Return what spends lose together at this order; infinite for a delta without a rho."""
        losses = []
        for spend in spends:
            if spend.rho is not None:
                losses.append(self.alpha * spend.rho)
            else:
                losses.append(math.inf if spend.delta else spend.epsilon)
        return math.fsum(losses)

    def allows(self, spends: Sequence[Spend]) -> bool:
        """Return True if spends are within the ceiling whose order this is."""
        return self.loss(spends) * _ROUNDING <= self.max_loss

    def cost(self, spends: Sequence[Spend], ceiling: Budget) -> Budget:
        """Return what spends cost together, rounded up; `ceiling` is the one of this order."""
        added = added_cost(spends)
        epsilon = self.loss(spends) + self.conversion
        if math.isinf(epsilon):  # the ceiling's delta is 0, or a spend with a delta told no rho
            return added
        if epsilon >= added.epsilon and added.delta <= ceiling.delta:
            return added
        # Six digits are shown. The factor is more than they round down.
        epsilon = max(float(f"{epsilon * (1 + 1e-5):.6g}"), 0.0)
        if self.allows(spends):
            epsilon = min(epsilon, ceiling.epsilon)
        return Budget(epsilon, ceiling.delta)

    def remainder(self, spends: Sequence[Spend]) -> Budget:
        """Return what is left to a next spend without a delta, so that it can be spent."""
        epsilon = self.max_loss / _ROUNDING - self.loss(spends)
        while epsilon > 0 and not self.allows([*spends, Spend(epsilon=epsilon, delta=0.0)]):
            epsilon -= math.ulp(self.max_loss)  # that much may be lost to rounding
        return Budget(max(epsilon, 0.0), 0.0)


def largest_rho(epsilon: float, delta: float) -> float | None:
    """Return the largest zero-concentrated loss that is within a budget; None if delta is 0."""
    order = RenyiOrder.of(Budget.read(epsilon, delta))
    return None if order is None else order.max_loss / order.alpha


def sums_are_within(spends: Sequence[Spend], ceiling: Budget) -> bool:
    """Return True if the sums of all epsilons and of all deltas are within a ceiling."""
    sums = _sums(spends)
    return sums.epsilon <= _decimal(ceiling.epsilon) and sums.delta <= _decimal(ceiling.delta)


def added_cost(spends: Sequence[Spend]) -> Budget:
    """Return the sums of all epsilons and of all deltas, rounded up."""
    sums = _sums(spends)
    return Budget(_rounded_up(sums.epsilon), _rounded_up(sums.delta))


def added_remainder(spends: Sequence[Spend], ceiling: Budget) -> Budget:
    """Return what a ceiling leaves beside the sums, rounded down, so that it can be spent.

    It is never below 0.
    """
    sums = _sums(spends)
    return Budget(
        _rounded_down(max(_decimal(ceiling.epsilon) - sums.epsilon, Fraction(0))),
        _rounded_down(max(_decimal(ceiling.delta) - sums.delta, Fraction(0))),
    )


class _Sums(NamedTuple):
    epsilon: Fraction
    delta: Fraction


def _sums(spends: Sequence[Spend]) -> _Sums:
    return _Sums(
        epsilon=sum((_decimal(spend.epsilon) for spend in spends), Fraction(0)),
        delta=sum((_decimal(spend.delta) for spend in spends), Fraction(0)),
    )


def _decimal(value: float) -> Fraction:
    return Fraction(repr(value))


def _rounded_up(value: Fraction) -> float:
    """Return the float next to a fraction whose decimal is not below it."""
    rounded = float(value)
    while _decimal(rounded) < value:
        rounded = math.nextafter(rounded, math.inf)
    return rounded


def _rounded_down(value: Fraction) -> float:
    """Return the float next to a fraction whose decimal is not above it."""
    rounded = float(value)
    while _decimal(rounded) > value:
        rounded = math.nextafter(rounded, -math.inf)
    return rounded
