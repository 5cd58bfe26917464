"""How the amounts of a report are written."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Literal

from cfk_plugin.report.data import Amount, CheckResult, Status

Unit = Literal["count", "share", "number", "seconds"]

_NAMES: dict[Unit, str] = {
    "share": (
        "unique below_k withheld_rate native_rate near_native_rate native_qi_rate at_risk_009"
        " at_risk_020 flips true_rate cm optimal_rate"
    ),
    "count": (
        "asked released exact generalised prototypes withheld untracked"
        " native_leak k_min k_worst_min k_p05 k_median k_desired_min"
        " k_desired_median k_consistent_min k_effective_min k_private_min private_matches_min"
        " refused_k verification cdm l_min l_diversity records"
        " human_inputs schema_declared"
    ),
    "seconds": "latency_p50 latency_p95 latency_p99",
}
_UNIT_OF = {name: unit for unit, names in _NAMES.items() for name in names.split()}


def unit_of(name: str) -> Unit:
    """Return the unit of a figure or a check, by its id."""
    return _UNIT_OF.get(name, "number")


NOT_MEASURED_TEXT = "not measured"
_DIGITS = 3  # significant ones
_TINY = Decimal("0.0001")  # below, readers would have to count zeros
_UNITS = {"count": "", "share": " %", "number": "", "seconds": " s"}


def shown(amount: Amount, kind: Unit = "number") -> str:
    """Write an amount as ``0.93 (0.88–0.97)``, with its interval rounded outwards."""
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
    if amount.low is None and amount.high is None:
        return ""
    if amount.high is None:
        return f"at least {_number(amount.low, kind, ROUND_FLOOR)}"
    if amount.low is None:
        return f"at most {_number(amount.high, kind, ROUND_CEILING)}"
    low = _number(amount.low, kind, ROUND_FLOOR)
    high = _number(amount.high, kind, ROUND_CEILING)
    is_negative = "−" in low + high
    return f"{low} to {high}" if is_negative else f"{low}–{high}"


def _number(value: float | None, kind: Unit, rounding: str) -> str:
    if value is None or not math.isfinite(value):
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


STATUS_TEXTS: dict[Status, str] = {
    "pass": "pass",
    "review": "review",
    "fail": "fail",
    "not_measured": NOT_MEASURED_TEXT,
}
"""How a status is written."""


def amounts_of(check: CheckResult) -> tuple[str, str]:
    """Write what a check measured, and its threshold; a dash if there is none."""
    unit = unit_of(check.id)
    measured = shown(check.measured, unit) if check.measured.measured else "–"
    threshold = shown(check.threshold, unit) if check.threshold.measured else "–"
    return measured, threshold
