"""Disclosure control of the report itself: the report is a release, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log10
from typing import Literal

from cfk_plugin.report.data import NOT_MEASURED, Amount, Edition

LEAST = 11
"""Smallest count of people that is shown; 0 is shown as well."""
FEW, MANY, HIDDEN = "1–10", "all but 1–10", "hidden"
ENOUGH_FOR_QUANTILES = 50

Kind = Literal[
    "class_size", "class_sum", "risk", "people", "requests", "share_of_people", "share_of_requests", "rate", "plain"
]


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
        small = exact.n is not None and 0 < exact.n < LEAST
        return replace(exact, n=None) if self.hides_released or (small and self.external) else exact

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
