"""Amounts: a number, what an edition may show of it, and how it is written.

A report is a release, too: disclosure control is here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from math import floor, log10
from typing import Annotated, Any, Literal

from pydantic import ValidatorFunctionWrapHandler, WrapValidator

Edition = Literal["internal", "external"]


def _as_it_is(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    check(value)
    return value


Number = Annotated[float, WrapValidator(_as_it_is)]
"""A finite number; a whole one stays whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number, exact or as an edition may show it.

    `value` is None where it was not measured, and where only a `band` is shown in its place, such as ``1–10``; `low`
    and `high` are the ends of its interval, and `n` is what it is over, where that may be shown.
    """

    value: Number | None = None
    low: Number | None = None
    high: Number | None = None
    n: int | None = None
    band: str | None = None

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return self.value is not None or self.band is not None

    def without_few(self) -> Amount:
        """Return it without what it is over where that is a few."""
        return replace(self, n=None) if self.n is not None and 0 < self.n < LEAST else self


NOT_MEASURED = Amount()


LEAST = 11
"""Smallest count of people that is shown; 0 is shown as well."""
FEW, MANY, HIDDEN = "1–10", "all but 1–10", "hidden"
ENOUGH_FOR_QUANTILES = 50


Kind = Literal[
    "class_size", "class_sum", "risk", "people", "requests", "share_of_people", "share_of_requests", "rate", "plain"
]
"""What an amount counts, which decides how it may be shown."""
Unit = Literal["count", "share", "number", "seconds"]
"""How an amount is written."""

_FIGURES: Mapping[tuple[Kind, Unit], str] = {
    ("share_of_people", "share"): "unique below_k",
    ("requests", "count"): "asked released exact generalised prototypes suppressed untracked ledger_again "
    "ledger_refused native_leak",
    ("share_of_requests", "share"): "suppressed_rate native_rate near_native_rate native_qi_rate at_risk_009 "
    "at_risk_020 flips cm optimal_rate",
    ("class_size", "count"): "k_min k_p05 k_median k_desired_min k_desired_median k_consistent_min k_effective_min "
    "k_private_min private_matches_min k_intersection_min k_intersection refused_k verification",
    ("class_size", "number"): "k_mean",
    ("class_sum", "count"): "cdm",
    ("class_sum", "number"): "cdm_per_release",
    ("risk", "number"): "prosecutor_risk_max prosecutor_risk_mean journalist_risk_max marketer_risk",
    ("plain", "count"): "l_min l_diversity records human_inputs schema_declared",
    ("plain", "seconds"): "latency_p50 latency_p95 latency_p99",
}
"""Figures and checks that are more than a plain number."""
_FIGURE_OF = {name: sort for sort, names in _FIGURES.items() for name in names.split()}


def kind_of(name: str) -> Kind:
    """Say what a figure or check counts, from its id."""
    return _FIGURE_OF[name][0] if name in _FIGURE_OF else "plain"


def unit_of(name: str) -> Unit:
    """Say how a figure or check is written, from its id."""
    return _FIGURE_OF[name][1] if name in _FIGURE_OF else "number"


@dataclass(slots=True)
class Control:
    """Turns exact amounts into what an edition may show."""

    edition: Edition
    k: int | None = None  # the least that was asked for: classes are shown in bands of it in the external edition
    hidden: list[str] = field(default_factory=list)  # places at which something is
    # Where the number of released explanations is hidden, nothing may tell it: no number that a figure is over, no
    # interval and no share with many digits.
    hides_released: bool = False

    @property
    def external(self) -> bool:
        """Whether the report leaves the house."""
        return self.edition == "external"

    def amount(self, exact: Amount, kind: Kind, place: str) -> Amount:
        """Return what may be shown of an amount that counts a kind of thing; `place` is noted where that is not all."""
        if not exact.measured:
            return NOT_MEASURED
        band = exact.band or self._band(exact, kind)
        if band is not None:
            self.hidden.append(place)
            return Amount(band=band)
        # Of people only a band is known, and a share with all its digits would tell their number.
        value = exact.value or 0
        if kind == "share_of_people":
            return Amount(value=round(value, 3))
        if kind == "rate" and self.external:
            low, high = (None if end is None else round(end, 3) for end in (exact.low, exact.high))
            return Amount(value=round(value, 3), low=low, high=high)
        if kind == "share_of_requests" and self.hides_released:
            return Amount(value=round(value, 2))
        return replace(exact, n=None) if self.hides_released else exact.without_few() if self.external else exact

    def counts(self, counts: Mapping[str, int], place: str, *, people: bool) -> dict[str, Amount]:
        """Return what may be shown of counts whose total is known: with one small cell, a second one is hidden.

        Counts of other than people of the population are hidden in the external edition alone.
        """
        if not (people or self.external):
            return {name: Amount(value=count) for name, count in counts.items()}
        shown = {name: Amount(band=FEW) if 0 < n < LEAST else Amount(value=n) for name, n in counts.items()}
        small = [n for n in counts.values() if 0 < n < LEAST]
        others = sorted((n, name) for name, n in counts.items() if n >= LEAST)
        large: list[int] = []
        while small and not _ambiguous(small, large) and others:
            n, name = others.pop(0)
            large.append(n)
            shown[name] = Amount(band=HIDDEN)
        self.hidden += [f"{place}.{name}" for name, amount in shown.items() if amount.band]
        return shown

    def total(self, counts: Mapping[str, int], place: str) -> Amount:
        """Return what may be shown of the sum of counts of explanations: not what would tell a single one of them."""
        found = sum(counts.values())
        small = [n for n in counts.values() if 0 < n < LEAST]
        if self.external and small and not _ambiguous(small, [n for n in counts.values() if n >= LEAST]):
            self.hidden.append(place)
            return Amount(band=HIDDEN)
        return self.amount(Amount(value=found), "requests", place)

    def class_band(self, people: float) -> str:
        """Return the band that a number of people in a region lies in."""
        k = self.k or LEAST
        if people < k:
            return f"under {k:,}"
        for low, high in ((k, 2 * k), (2 * k, 5 * k)):
            if people < high:
                return f"{low:,}–{high - 1:,}"
        return f"{5 * k:,} or more"

    def _band(self, exact: Amount, kind: Kind) -> str | None:
        value = float(exact.value or 0)
        if kind == "people":
            return population_band(value)
        if kind == "share_of_people" or (kind == "share_of_requests" and self.external):
            return share_band(value, exact.n, "people" if kind == "share_of_people" else "explanations")
        if not self.external:
            return None
        if kind == "requests":
            return FEW if 0 < value < LEAST else None
        if kind == "class_size":
            return self.class_band(value)
        if kind == "risk":
            return _risk_band(value, self.k or LEAST)
        return HIDDEN if kind == "class_sum" else None


def population_band(people: float) -> str | None:
    """Return the leading digit of a number of people as a band; 0 may be shown."""
    if people == 0:
        return None
    if people < LEAST:
        return FEW
    step = 10 ** floor(log10(people))
    low = max(int(people // step) * step, LEAST)
    return f"{low:,}–{(int(people // step) + 1) * step - 1:,}"


def share_band(share: float, n: int | None, of: str) -> str | None:
    """Return a band in place of a share whose numerator or complement is 1 to 10, None where it may be shown.

    Without a number to judge by, nothing is shown.
    """
    if n is None:
        return HIDDEN
    part = round(share * n)
    if 0 < part < LEAST:
        return f"{FEW} {of}"
    return f"{MANY} {of}" if 0 < n - part < LEAST else None


def _ambiguous(small: Sequence[int], large: Sequence[int]) -> bool:
    """Say whether a hidden small count could be another one, for who knows the sum of all that is hidden.

    Known of each: the small ones are 1 to 10, the others 11 or more.
    """
    total, others = sum(small) + sum(large), len(small) - 1
    least = 1 if large else max(1, total - (LEAST - 1) * others)
    most = min(LEAST - 1, total - others - LEAST * len(large))
    return most > least


def _risk_band(risk: float, k: int) -> str:
    if risk > 1 / k:
        return f"above {1 / k:.2g}"
    for people in (5 * k, 2 * k, k):
        if risk <= 1 / people:
            return f"at most {1 / people:.2g}"
    return HIDDEN


# --- in words ---

NOT_MEASURED_TEXT = "not measured"
_DIGITS = 3  # significant ones
_TINY = Decimal("0.0001")  # below, zeros would have to be counted
_UNITS = {"count": "", "share": " %", "number": "", "seconds": " s"}


def shown(amount: Amount, kind: Unit = "number") -> str:
    """Write an amount: its band where only that may be shown, or as ``0.93 (0.88–0.97)``, or that it was not measured.

    A count is written out to the last digit, with thousands separators; a share as percent; everything but a whole
    count with three significant digits. An interval is rounded outwards, so that it never looks narrower than it is,
    and what is short of 1 is never written as 1. What the amount is over (`n`) is not in the text.
    """
    if amount.band is not None:
        return amount.band
    if amount.value is None or not math.isfinite(amount.value):
        return NOT_MEASURED_TEXT
    unit = _UNITS[kind]
    value = _number(amount.value, kind, ROUND_HALF_EVEN)
    interval = _interval(amount, kind)
    return f"{value}{unit} ({interval}{unit})" if interval else f"{value}{unit}"


def _interval(amount: Amount, kind: Unit) -> str:
    if amount.low == amount.high == amount.value:
        return ""  # nothing was estimated
    low = None if amount.low is None else _number(amount.low, kind, ROUND_FLOOR)
    high = None if amount.high is None else _number(amount.high, kind, ROUND_CEILING)
    if low is None or high is None:
        return f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"


def _number(value: float, kind: Unit, rounding: str) -> str:
    if not math.isfinite(value):
        return "unbounded"
    exact = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(int(value))
    whole = kind == "count" and exact == exact.to_integral_value()
    rounded = exact if whole else _rounded(exact, rounding)
    return _written(rounded * 100 if kind == "share" else rounded)


def _rounded(exact: Decimal, rounding: str) -> Decimal:
    if not exact:
        return exact
    step = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    rounded = exact.quantize(step, rounding=rounding)
    if rounding == ROUND_HALF_EVEN and abs(exact) < 1 <= abs(rounded):
        rounded = exact.quantize(step, rounding=ROUND_FLOOR if exact > 0 else ROUND_CEILING)
    return rounded


def _written(number: Decimal) -> str:
    sign, size = "−" if number < 0 else "", abs(number)
    if 0 < size < _TINY:
        mantissa, _, power = f"{size.normalize():e}".partition("e")
        return f"{sign}{mantissa}e{int(power)}"
    text = f"{size:,f}"
    return sign + (text.rstrip("0").rstrip(".") if "." in text else text)
