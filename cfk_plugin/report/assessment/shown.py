"""Attacks as an edition may show them."""

from __future__ import annotations

from dataclasses import replace

from cfk_plugin.report.assessment.control import HIDDEN, Control, Figure
from cfk_plugin.report.assessment.families import OF_MODELS
from cfk_plugin.report.data import Amount, Attack

_OF_FEW = ("tpr_at_", "few_")
"""Beginnings of figures that are shares of few people, however many were attacked."""


def shown_attack(attack: Attack, control: Control) -> Attack:
    """Hide in the external edition whom an attack found, and of how many: it says what the attack reached alone."""
    if not control.external:
        return attack
    place = f"attacks.{attack.id}"
    figures = {name: _figure(name, amount, attack, control, place) for name, amount in attack.figures.items()}
    main, baseline, compared = (_rate(rate, attack, control) for rate in (attack.main, attack.baseline, attack.control))
    return replace(attack, main=main, baseline=baseline, control=compared, figures=figures, run="")


def _rate(amount: Amount, attack: Attack, control: Control) -> Amount:
    if attack.family in OF_MODELS and amount.value is not None:
        return control.amount(Figure(value=amount.value, low=amount.low, high=amount.high, kind="rate"), "")
    few = amount.n is not None and 0 < amount.n < 11
    return replace(amount, n=None) if few else amount


def _figure(name: str, amount: Amount, attack: Attack, control: Control, place: str) -> Amount:
    if amount.value is None:
        return amount
    where = f"{place}.{name}"
    if attack.family not in OF_MODELS:
        return control.amount(Figure(value=amount.value, kind="class_size"), where) if "k_" in name else amount
    if name.startswith(_OF_FEW):
        control.hidden.append(where)
        return Amount(band=HIDDEN)
    counts = amount.value > 1 and float(amount.value).is_integer()
    return control.amount(Figure(value=amount.value, kind="people" if counts else "rate"), where)
