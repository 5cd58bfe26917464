"""From values to places: the ends of an axis, its ticks, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_DIGITS = 3  # significant ones


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear axis from `low` to `high`, which is larger."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float], *, low: float | None = None, high: float | None = None) -> Scale:
        """Return the axis that shows all finite values; an end that is given moves where a value lies beyond it."""
        shown = [value for value in (*values, low, high) if value is not None and math.isfinite(value)]
        bottom, top = min(shown, default=0.0), max(shown, default=1.0)
        return cls(bottom, top if top > bottom else bottom + 1.0)

    def rounded(self) -> Scale:
        """Return the axis with its high end at a tick."""
        step = _round_step((self.high - self.low) / 4)
        return Scale(self.low, self.low + step * math.ceil((self.high - self.low) / step - 1e-9))

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def ticks(self) -> list[float]:
        """Return three to six round numbers on the axis."""
        step = _round_step((self.high - self.low) / 4)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic axis from `low` to `high`, which is larger; both above 0."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> LogScale:
        """Return the axis that shows all finite values above 0."""
        shown = [value for value in values if value > 0 and math.isfinite(value)]
        bottom, top = min(shown, default=0.1), max(shown, default=1.0)
        return cls(bottom if top > bottom else top / 10, top)

    def at(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        if value <= self.low:
            return 0.0
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """Return the powers of ten on the axis; its two ends where there are fewer than two."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        powers = [float(f"1e{power}") for power in range(first, last + 1)]
        return powers if len(powers) > 1 else [self.low, self.high]


Axis = Scale | LogScale


def written(value: float) -> str:
    """Write a number with three significant digits; what is short of 1 is not written as 1."""
    if not math.isfinite(value):
        return "not measured"
    decimals = 0 if value == 0 else min(9, max(0, _DIGITS - 1 - math.floor(math.log10(abs(value)))))
    text = f"{abs(value):,.{decimals}f}"
    if abs(value) < 1 <= float(text.replace(",", "")):
        text = "0." + "9" * decimals
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"−{text}" if value < 0 else text


def named(line: tuple[str, float]) -> str:
    """Write what a line in a chart is, with its place unless the name says it."""
    name, value = line
    return name if written(value) in name else f"{name}: {written(value)}"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
