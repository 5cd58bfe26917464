"""Curves of membership attacks as a report shows them: at fixed rates of false alarms, under disclosure control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.report.assessment.audits import Audited
from cfk_plugin.report.assessment.control import HIDDEN, LEAST, Control, share_band
from cfk_plugin.report.assessment.families import GUESSES
from cfk_plugin.report.data import NOT_MEASURED, Amount, Distribution
from cfk_plugin.report.statements.curves import BOUNDS

AT = (0.1, 0.01, 0.001)
"""False positive rates that are told in numbers; a chart has ten for every power of ten."""
MOST = 4
"""Curves of one chart; more are in further charts."""

_PER_POWER = 10
_FEWEST = 1e-4
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Roc:
    """The curve of one attack, exact."""

    name: str
    fpr: Sequence[float]
    tpr: Sequence[float]
    told: Mapping[float, Amount]  # what the attack says at some rates, with intervals
    members: int | None
    others: int | None
    bounds: tuple[tuple[str, tuple[float, ...]], ...]  # over `_grid()`

    @property
    def least(self) -> float:
        """The smallest rate of false alarms that could be observed."""
        if self.others:
            return 1 / self.others
        return next((rate for rate in self.fpr if rate > 0), 1.0)


def roc_curves(found: Sequence[Audited], control: Control) -> tuple[Distribution, ...]:
    """Return the curves of the attacks that are judged, at most `MOST` in one distribution.

    Parameters
    ----------
    found : sequence of Audited
    control : Control
        The internal edition has the curves. In the external one no rate is told below which, or above which, there are
        1 to 10 people, and what is told goes up in steps of 11 people: a finer curve would tell where single people
        stand. Without the number of people behind it there is no curve at all.

    Returns
    -------
    tuple of Distribution
        ``roc``, ``roc-2``, …; curves that share a chart claim the same.
    """
    curves = sorted((roc for each in found if (roc := _of(each)) is not None), key=lambda roc: not roc.bounds)
    alike = [list(group) for _, group in groupby(curves, key=lambda roc: roc.bounds)]
    charts = [same[i : i + MOST] for same in alike for i in range(0, len(same), MOST)]
    names = ["roc", *(f"roc-{i + 2}" for i in range(len(charts)))]
    drawn = (_distribution(name, chart, control) for name, chart in zip(names, charts, strict=False))
    return tuple(distribution for distribution in drawn if distribution is not None)


def _of(found: Audited) -> _Roc | None:
    attack, audit = found.attack, found.audit
    curves = audit.get("curves") or {}
    curve = curves.get(attack.id)
    if curve is None or not attack.judged or attack.id in GUESSES or not curve["fpr"]:
        return None
    told = {rate: f"tpr_at_{rate:g}".replace(".", "_") for rate in AT}
    sizes = (attack.figures.get(name) for name in ("members", "others"))
    members, others = (None if size is None or not size.value else round(size.value) for size in sizes)
    return _Roc(
        name=attack.id,
        fpr=curve["fpr"],
        tpr=curve["tpr"],
        told={rate: _figure(attack.figures, name) for rate, name in told.items() if name in attack.figures},
        members=members,
        others=others,
        bounds=tuple(
            (name, tuple(roc_height(curves[name]["fpr"], curves[name]["tpr"], _grid()).tolist()))
            for name in BOUNDS
            if name in curves
        ),
    )


def _figure(figures: Mapping[str, Amount], name: str) -> Amount:
    ends = (figures.get(f"{name}_{end}") for end in ("low", "high"))
    low, high = (None if end is None else end.value for end in ends)
    value = figures[name].value
    return NOT_MEASURED if value is None else Amount(value=value, low=low, high=high)


def _grid() -> list[float]:
    """Return the rates of false alarms, ascending."""
    powers = range(round(np.log10(_FEWEST)) * _PER_POWER, 1)
    return [float(f"{10 ** (power / _PER_POWER):.3g}") for power in powers]


def _distribution(name: str, curves: Sequence[_Roc], control: Control) -> Distribution | None:
    least = min(curve.least for curve in curves)
    rates = {rate: [_shown(curve, rate, control) for curve in curves] for rate in _grid() if rate >= least - _EQUAL}
    place = f"distributions.{name}"
    hidden = {curve.name for amounts in rates.values() for curve, a in zip(curves, amounts, strict=True) if a.band}
    control.hidden += [f"{place}.{attack}" for attack in sorted(hidden)]
    drawn = [
        rate for rate, amounts in rates.items() if rate < 1 and any(amount.value is not None for amount in amounts)
    ]
    if not drawn:
        return None
    at = [(i, rate) for i, rate in enumerate(_grid()) if rate >= drawn[0] or rate in AT]
    nothing = [NOT_MEASURED] * len(curves)
    series = {curve.name: tuple(rates.get(rate, nothing)[j] for _, rate in at) for j, curve in enumerate(curves)}
    bounds = {of: tuple(Amount(value=values[i]) for i, _ in at) for of, values in curves[0].bounds}
    note = (
        "Rates of few people are left out, and the others are rounded to steps of 11 people."
        if control.external
        else ""
    )
    labels = tuple(f"{rate:g}" for _, rate in at)
    return Distribution(id=name, section=9, labels=labels, series={**series, **bounds}, note=note)


def _shown(curve: _Roc, rate: float, control: Control) -> Amount:
    """Return how many members are found at a rate of false alarms, as far as the edition may tell."""
    if rate < curve.least - _EQUAL:
        return NOT_MEASURED
    told = curve.told.get(rate, Amount(value=float(roc_height(curve.fpr, curve.tpr, rate))))
    if not control.external or told.value is None:
        return told
    if not curve.members or not curve.others:
        return Amount(band=HIDDEN)
    band = share_band(rate, curve.others, "people") or share_band(told.value, curve.members, "people")
    if band is not None and rate < 1:
        return Amount(band=band)
    # Without its interval, whose ends tell the count.
    steps = round(told.value * curve.members / LEAST)
    return Amount(value=min(1.0, round(steps * LEAST / curve.members, 3)) if rate < 1 else 1.0)
