"""How amounts are written: the one place that turns numbers of a report into text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Literal

from cfk_plugin.report.amount import Amount
from cfk_plugin.report.data import Status

Kind = Literal["count", "share", "number", "seconds"]

NOT_MEASURED_TEXT = "not measured"
STATUS_TEXTS: Mapping[Status, str] = {
    "pass": "pass",
    "review": "review",
    "fail": "fail",
    "not_measured": NOT_MEASURED_TEXT,
}
"""How a status is written, everywhere."""

_COUNTS = frozenset(
    {
        "asked",
        "released",
        "exact",
        "generalised",
        "prototypes",
        "suppressed",
        "untracked",
        "ledger_again",
        "ledger_refused",
        "refused_k",
        "cdm",
        "k_min",
        "k_p05",
        "k_median",
        "k_desired_min",
        "k_desired_median",
        "k_consistent_min",
        "k_effective_min",
        "k_private_min",
        "private_matches_min",
        "k_intersection_min",
        "k_intersection",
        "l_min",
        "l_diversity",
        "native_leak",
        "verification",
        "records",
        "human_inputs",
        "schema_declared",
    }
)
_SHARES = frozenset(
    {
        "suppressed_rate",
        "native_rate",
        "near_native_rate",
        "native_qi_rate",
        "unique",
        "below_k",
        "at_risk_009",
        "at_risk_020",
        "flips",
        "cm",
        "optimal_rate",
    }
)
_DIGITS = 3  # significant ones
_TINY = Decimal("0.0001")  # below, zeros would have to be counted
_UNITS = {"count": "", "share": " %", "number": "", "seconds": " s"}


def shown(amount: Amount, kind: Kind = "number") -> str:
    """Write an amount.

    Parameters
    ----------
    amount : Amount
    kind : {"count", "share", "number", "seconds"}
        A count is written out to the last digit, with thousands separators; a share as percent; everything but a
        whole count with three significant digits.

    Returns
    -------
    str
        ``0.93 (0.88–0.97)`` with an interval, the band where only that may be shown, or ``not measured``. An interval
        is rounded outwards, so that it never looks narrower than it is, and what is short of 1 is never written as 1.
        What the amount is over (`n`) is not in the text.
    """
    if amount.band is not None:
        return amount.band
    if amount.value is None or not math.isfinite(amount.value):
        return NOT_MEASURED_TEXT
    unit = _UNITS[kind]
    value = _number(amount.value, kind, ROUND_HALF_EVEN)
    interval = _interval(amount, kind)
    return f"{value}{unit} ({interval}{unit})" if interval else f"{value}{unit}"


def kind_of(name: str) -> Kind:
    """Say how a figure or check is written, from its id."""
    if name in _COUNTS:
        return "count"
    if name in _SHARES:
        return "share"
    return "seconds" if name.startswith("latency") else "number"


def _interval(amount: Amount, kind: Kind) -> str:
    if amount.low == amount.high == amount.value:
        return ""  # nothing was estimated
    low = None if amount.low is None else _number(amount.low, kind, ROUND_FLOOR)
    high = None if amount.high is None else _number(amount.high, kind, ROUND_CEILING)
    if low is None or high is None:
        return f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""
    return f"{low} to {high}" if "−" in low + high else f"{low}–{high}"


def _number(value: float, kind: Kind, rounding: str) -> str:
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
