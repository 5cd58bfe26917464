"""What an edition may show of amounts, attacks and curves, and how; the report is a release,
too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from itertools import groupby
from math import ceil, floor, log10
from typing import Any, Literal, NamedTuple

from cfk_plugin.audit.result import BOUNDS, GUESSES
from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.report.data import (
    LEAST,
    NOT_MEASURED,
    OF_MODELS,
    Amount,
    Attack,
    Distribution,
    Edition,
)

FEW, MANY, HIDDEN = "1–10", "all but 1–10", "hidden"
ENOUGH_FOR_QUANTILES = 50


Kind = Literal[
    "class_size",
    "class_sum",
    "risk",
    "people",
    "requests",
    "share_of_people",
    "share_of_requests",
    "mean",
    "smallest",
    "largest",
    "rate",
    "chance",
    "plain",
]
"""What an amount counts, which decides how it may be shown; a chance is that of an attack on
explanations. A mean is over explanations, and the smallest and the largest are of a single one.
"""
Unit = Literal["count", "share", "number", "seconds"]
"""How an amount is written."""

_FIGURES: Mapping[tuple[Kind, Unit], str] = {
    ("share_of_people", "share"): "unique below_k",
    (
        "requests",
        "count",
    ): "asked released exact generalised prototypes withheld untracked ledger_again "
    "ledger_refused native_leak",
    (
        "share_of_requests",
        "share",
    ): "withheld_rate native_rate near_native_rate native_qi_rate at_risk_009 "
    "at_risk_020 flips true_rate cm optimal_rate",
    (
        "class_size",
        "count",
    ): "k_min k_worst_min k_p05 k_median k_desired_min k_desired_median k_consistent_min "
    "k_effective_min k_private_min private_matches_min k_intersection_min k_intersection "
    "refused_k verification",
    ("class_size", "number"): "k_mean",
    ("class_sum", "count"): "cdm",
    ("class_sum", "number"): "cdm_per_release",
    (
        "risk",
        "number",
    ): "prosecutor_risk_max prosecutor_risk_mean journalist_risk_max marketer_risk",
    ("mean", "number"): "ncp_mean ncp pureness_mean pureness_low",
    ("smallest", "number"): "pureness_min pureness",
    (
        "largest",
        "number",
    ): "ncp_p95 t_max t_closeness attribute_disclosure_max attribute_disclosure",
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
class DisclosureControl:
    """Turns exact amounts into what an edition may show."""

    edition: Edition
    # the smallest k asked for; the external edition shows class sizes in bands of it
    k: int | None = None
    hidden: list[str] = field(default_factory=list)  # places where something is hidden
    # Where the number of released explanations is hidden, nothing may reveal it: no number of
    # cases, no interval, no share with many digits.
    hides_released: bool = False

    @property
    def external(self) -> bool:
        """Whether this is the edition that leaves the house."""
        return self.edition == "external"

    def moment(self, time: str | None) -> str | None:
        """Return a time in ISO 8601 as it may be shown: externally the day alone."""
        return time if time is None or not self.external else time[:_DAY]

    def amount(self, exact: Amount, kind: Kind, place: str) -> Amount:
        """Return what may be shown of an amount of this kind; `place` is recorded if something is
        hidden.
        """
        if not exact.measured:
            return NOT_MEASURED
        band = exact.band or self._band(exact, kind)
        if band is not None:
            self.hidden.append(place)
            return Amount(band=band)
        # Of people only a band is shown, and a share with all its digits would reveal their number.
        value = exact.value or 0
        if kind == "share_of_people":
            return Amount(value=round(value, 3))
        if not self.external:
            return exact
        if kind == "rate":
            low, high = (None if end is None else round(end, 3) for end in (exact.low, exact.high))
            return Amount(value=round(value, 3), low=low, high=high)
        if kind == "chance" and self.hides_released:
            return Amount(value=round(value, 2))
        if kind in _OF_EXPLANATIONS:
            return self._of_explanations(exact, kind)
        return replace(exact, n=None) if self.hides_released else exact.without_few()

    def _of_explanations(self, exact: Amount, kind: Kind) -> Amount:
        """Return an amount so rough that adding or removing one explanation hardly shows."""
        value = exact.value or 0
        if kind == "requests":
            return Amount(value=in_steps(int(value)))
        if kind in ("smallest", "largest"):
            towards = floor if kind == "smallest" else ceil
            return Amount(value=_to_grid(value, _GRID_OF_ONE, towards))
        rough = as_supported(exact)
        if self.hides_released:
            return Amount(value=rough.value)
        return replace(rough, n=in_steps(exact.n or 0) or None)

    def counts(
        self, counts: Mapping[str, int], place: str, *, people: bool, beside_sum: bool = False
    ) -> dict[str, Amount]:
        """Return counts as they may be shown: with a small one a second is hidden, or all if their
        sum is shown.
        """
        if not (people or self.external):
            return {name: Amount(value=count) for name, count in counts.items()}
        shown = {
            name: Amount(band=FEW) if 0 < n < LEAST else Amount(value=n)
            for name, n in counts.items()
        }
        if not people:
            shown = {
                name: Amount(value=in_steps(n)) if n >= LEAST else shown[name]
                for name, n in counts.items()
            }
        small = [n for n in counts.values() if 0 < n < LEAST]
        if beside_sum and small:
            shown = dict.fromkeys(counts, Amount(band=HIDDEN))
        others = sorted((n, name) for name, n in counts.items() if n >= LEAST and not beside_sum)
        large: list[int] = []
        while small and not _ambiguous(small, large) and others:
            n, name = others.pop(0)
            large.append(n)
            shown[name] = Amount(band=HIDDEN)
        self.hidden += [f"{place}.{name}" for name, amount in shown.items() if amount.band]
        return shown

    def total(self, counts: Mapping[str, int], place: str) -> Amount:
        """Return what may be shown of the sum of counts: nothing that would reveal a single one of
        them.
        """
        found = sum(counts.values())
        small = [n for n in counts.values() if 0 < n < LEAST]
        if (
            self.external
            and small
            and not _ambiguous(small, [n for n in counts.values() if n >= LEAST])
        ):
            self.hidden.append(place)
            return Amount(band=FEW if found < LEAST else HIDDEN)
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
            return share_band(
                value, exact.n, "people" if kind == "share_of_people" else "explanations"
            )
        if not self.external:
            return None
        if kind == "requests":
            return FEW if 0 < value < LEAST else None
        if kind == "class_size":
            return self.class_band(value)
        # its interval would tell of how many
        if kind in ("rate", "chance") and 0 < (exact.n or LEAST) < LEAST:
            return HIDDEN if kind == "rate" else _risk_band(value, self.k or LEAST)
        if kind == "risk":
            return _risk_band(value, self.k or LEAST)
        return HIDDEN if kind == "class_sum" else None


_OF_EXPLANATIONS: Sequence[Kind] = (
    "requests",
    "share_of_requests",
    "mean",
    "smallest",
    "largest",
)
"""Kinds of amounts that the external edition shows only roughly."""
_DAY = len("2026-01-31")
_GRID_OF_ONE = 0.05  # for a figure that is a single explanation's
_FINE_BELOW = 1_000


def in_steps(count: int) -> int:
    """Round a number of explanations down: to a multiple of 11, from 1,000 on to two digits."""
    if count < _FINE_BELOW:
        return count // LEAST * LEAST
    step: int = 10 ** (floor(log10(count)) - 1)
    return count // step * step


def as_supported(exact: Amount) -> Amount:
    """Round a mean in [0, 1] to what its number of explanations supports.

    The step is 1, 2 or 5 times a power of ten: the smallest that is neither below half the width of
    the mean's interval, nor below what a single explanation can change, 1 / n. Ends of the interval
    are rounded outwards.
    """
    if exact.value is None:
        return exact
    half = 0.0 if exact.low is None or exact.high is None else (exact.high - exact.low) / 2
    step = _nice_step(max(half, 1 / exact.n if exact.n else 0.01))
    low = None if exact.low is None else _to_grid(exact.low, step, floor)
    high = None if exact.high is None else _to_grid(exact.high, step, ceil)
    return Amount(value=_to_grid(exact.value, step, round), low=low, high=high)


def _nice_step(least: float) -> float:
    power: float = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - _EQUAL))


def _to_grid(value: float, step: float, towards: Callable[[float], int]) -> float:
    """Round to a multiple of a step; what is within [0, 1] stays there."""
    rounded = round(towards(round(value / step, 9)) * step, 9)
    return min(max(rounded, 0.0), 1.0) if 0 <= value <= 1 else rounded


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
    """Return a band for a share of 1 to 10 cases, or of all but 1 to 10; None if it may be
    shown.
    """
    if n is None:
        return HIDDEN
    part = round(share * n)
    if 0 < part < LEAST:
        return f"{FEW} {of}"
    return f"{MANY} {of}" if 0 < n - part < LEAST else None


def _ambiguous(small: Sequence[int], large: Sequence[int]) -> bool:
    """Say whether a hidden small count stays ambiguous if the sum of all hidden counts is known."""
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
_TINY = Decimal("0.0001")  # below, readers would have to count zeros
_UNITS = {"count": "", "share": " %", "number": "", "seconds": " s"}


def shown(amount: Amount, kind: Unit = "number") -> str:
    """Write an amount: its band, ``0.93 (0.88–0.97)`` rounded outwards but never up to 1, or "not
    measured".
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
        return (
            f"at least {low}" if low is not None else f"at most {high}" if high is not None else ""
        )
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


# --- attacks and their curves ---

_OF_FEW = ("tpr_at_", "few_")
"""Prefixes of figures that are shares of few people, however many were attacked."""


def shown_attack(attack: Attack, control: DisclosureControl) -> Attack:
    """Hide in the external edition how many people an attack found, and of how many: only its rate
    is shown.
    """
    if not control.external:
        return attack
    place = f"attacks.{attack.id}"
    figures = {
        name: _shown_figure(name, amount, attack, control, place)
        for name, amount in attack.figures.items()
    }
    kind: Kind = "rate" if attack.family in OF_MODELS else "chance"
    known = [replace(rate, n=attack.main.n) if _of_few(attack) else rate for rate in attack.rates]
    rates = [control.amount(rate, kind, f"{place}.rates") for rate in known]
    return replace(
        attack, main=rates[0], baseline=rates[1], control=rates[2], figures=figures, run=""
    )


def _shown_figure(
    name: str, amount: Amount, attack: Attack, control: DisclosureControl, place: str
) -> Amount:
    if amount.value is None:
        return amount
    where, alone = f"{place}.{name}", Amount(value=amount.value)
    if attack.family not in OF_MODELS and "k_" in name:
        return control.amount(alone, "class_size", where)
    is_count = name == "released" and control.hides_released
    if _of_few(attack) or is_count or (attack.family in OF_MODELS and name.startswith(_OF_FEW)):
        control.hidden.append(where)
        return Amount(band=HIDDEN)
    if attack.family not in OF_MODELS:
        return control.amount(alone, "chance", where)
    counts = amount.value > 1 and float(amount.value).is_integer()
    return control.amount(alone, "people" if counts else "rate", where)


def _of_few(attack: Attack) -> bool:
    return 0 < (attack.main.n or LEAST) < LEAST


# false positive rates given in numbers; a chart has ten per power of ten
_TOLD = (0.1, 0.01, 0.001)
_MOST = 4  # curves per chart
_GRID = [float(f"{10 ** (power / 10):.3g}") for power in range(-40, 1)]
_EQUAL = 1e-12


class Audited(NamedTuple):
    """An attack, not yet disclosed, and the audit that ran it, as it was logged."""

    attack: Attack
    audit: Mapping[str, Any]


class _Roc(NamedTuple):
    """The exact curve of one attack, and what is claimed, over `_GRID`."""

    attack: Attack
    fpr: Sequence[float]
    tpr: Sequence[float]
    bounds: tuple[tuple[str, tuple[float, ...]], ...]

    @property
    def least(self) -> float:
        """The smallest observable rate of false alarms."""
        others = self.people("others")
        return 1 / others if others else next((rate for rate in self.fpr if rate > 0), 1.0)

    def people(self, name: str) -> int | None:
        found = self.attack.figure(name)
        return round(found) if found else None

    def at(self, rate: float) -> Amount:
        """Return the share of members found at a rate, with its interval if the attack has one."""
        name = f"tpr_at_{rate:g}".replace(".", "_")
        if name not in self.attack.figures:
            return Amount(value=float(roc_height(self.fpr, self.tpr, rate)))
        value, low, high = (self.attack.figure(f"{name}{end}") for end in ("", "_low", "_high"))
        return NOT_MEASURED if value is None else Amount(value=value, low=low, high=high)


def roc_curves(found: Sequence[Audited], control: DisclosureControl) -> tuple[Distribution, ...]:
    """Return the curves of judged attacks as ``roc``, ``roc-2``, …; externally in steps of 11
    people, without few.
    """
    curves = sorted(
        (roc for each in found if (roc := _roc(each)) is not None), key=lambda roc: not roc.bounds
    )
    alike = [list(group) for _, group in groupby(curves, key=lambda roc: roc.bounds)]
    charts = [same[i : i + _MOST] for same in alike for i in range(0, len(same), _MOST)]
    names = ["roc", *(f"roc-{i + 2}" for i in range(len(charts)))]
    drawn = (
        _distribution(name, chart, control) for name, chart in zip(names, charts, strict=False)
    )
    return tuple(distribution for distribution in drawn if distribution is not None)


def _roc(found: Audited) -> _Roc | None:
    attack, curves = found.attack, found.audit.get("curves") or {}
    curve = curves.get(attack.id)
    if curve is None or not attack.judged or attack.id in GUESSES or not curve["fpr"]:
        return None
    known = [(name, curves[name]) for name in BOUNDS if name in curves]
    bounds = tuple(
        (name, tuple(roc_height(of["fpr"], of["tpr"], _GRID).tolist())) for name, of in known
    )
    return _Roc(attack, curve["fpr"], curve["tpr"], bounds)


def _distribution(
    name: str, curves: Sequence[_Roc], control: DisclosureControl
) -> Distribution | None:
    least = min(curve.least for curve in curves)
    rates = {
        rate: [_shown(curve, rate, control) for curve in curves]
        for rate in _GRID
        if rate >= least - _EQUAL
    }
    hidden = {
        roc.attack.id
        for amounts in rates.values()
        for roc, a in zip(curves, amounts, strict=True)
        if a.band
    }
    control.hidden += [f"distributions.{name}.{attack}" for attack in sorted(hidden)]
    drawn = [
        rate
        for rate, amounts in rates.items()
        if rate < 1 and any(a.value is not None for a in amounts)
    ]
    if not drawn:
        return None
    at = [(i, rate) for i, rate in enumerate(_GRID) if rate >= drawn[0] or rate in _TOLD]
    nothing = [NOT_MEASURED] * len(curves)
    series = {
        roc.attack.id: tuple(rates.get(rate, nothing)[j] for _, rate in at)
        for j, roc in enumerate(curves)
    }
    bounds = {of: tuple(Amount(value=values[i]) for i, _ in at) for of, values in curves[0].bounds}
    note = "Rates of few people are left out, and the others are rounded to steps of 11 people."
    return Distribution(
        id=name,
        section=9,
        labels=tuple(f"{rate:g}" for _, rate in at),
        series={**series, **bounds},
        note=note if control.external else "",
    )


def _shown(curve: _Roc, rate: float, control: DisclosureControl) -> Amount:
    """Return the share of members found at a rate of false alarms, as far as the edition may show
    it.
    """
    if rate < curve.least - _EQUAL:
        return NOT_MEASURED
    told, members, others = curve.at(rate), curve.people("members"), curve.people("others")
    if not control.external or told.value is None:
        return told
    if not members or not others:
        return Amount(band=HIDDEN)
    band = share_band(rate, others, "people") or share_band(told.value, members, "people")
    if band is not None and rate < 1:
        return Amount(band=band)
    # Without its interval, whose ends would reveal the count.
    steps = round(told.value * members / LEAST)
    return Amount(value=min(1.0, round(steps * LEAST / members, 3)) if rate < 1 else 1.0)
