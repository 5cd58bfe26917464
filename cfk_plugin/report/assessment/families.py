"""Families of attacks: how they are told apart, and what each must be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cfk_plugin.report.data import Amount, Attack

OF_MODELS = ("membership", "extraction", "attribute_inference")
"""Families whose audits attack an explainer as a whole: with a policy where it is protected, without one where not."""

WITHOUT_EXPLANATIONS = frozenset({"membership_loss", "membership_loss_lrt"})
"""Attacks that look at the model alone. No protection of explanations stops them."""

GUESSES = frozenset({"membership_random"})
"""What is listed beside attacks and is none."""

_BEGINNINGS = ("epsilon", *OF_MODELS)
_COIN = Amount(value=0.5)
_SAME = 1e-6
_DIFFERENCES = {"extraction": "gain", "attribute_inference": "advantage"}
"""Figures that are the difference itself, with an interval that knows both of its sides were of the same people."""


class Compared(NamedTuple):
    """How much better an attack did than it would without what it is about.

    Attributes
    ----------
    with_what : str
        ``control``, ``baseline`` or ``chance``.
    over : Amount
        Main minus that; the interval is the attack's.
    """

    with_what: str
    over: Amount


def family(name: str, kind: str) -> str:
    """Return the family of an attack, from the beginning of its name, else from the kind of its audit."""
    for text in (name, kind):
        for beginning in _BEGINNINGS:
            if text.startswith(beginning):
                return beginning
    return "linkage"


def compared(attack: Attack) -> Compared | None:
    """Compare an attack with what it would reach anyway; None where one of both was not measured.

    A copy of a model agrees with it without any explanation: what counts is the gain over queries alone. Who tells
    members from others has a coin to beat; a control is compared with where it is clearly no coin, as it is when the
    two groups differ by more than training. All other attacks are compared with their control, the same attack on
    people who were not trained on, and without one with the same guess without the explanation.
    """
    with_what, reference = _reference(attack)
    main = attack.main
    if main.value is None or reference.value is None:
        return None
    value, name = reference.value, _DIFFERENCES.get(attack.family, "")
    told = [attack.figures.get(f"{name}{end}") for end in ("", "_low", "_high")]
    middle, *ends = [None if amount is None else amount.value for amount in told]
    if middle is not None and None not in ends and abs(middle - (main.value - value)) < _SAME:
        return Compared(with_what, Amount(value=middle, low=ends[0], high=ends[1], n=main.n))
    low, high = (None if end is None else end - value for end in (main.low, main.high))
    return Compared(with_what, Amount(value=main.value - value, low=low, high=high, n=main.n))


def whole(name: str) -> str:
    """Return the attack of which a result is a part: what stands before the name of an attribute."""
    return name.partition("/")[0]


def fell_short(attack: Attack) -> bool:
    """Say whether an attack did worse than the guess without it.

    Looking people up names one of k whatever happens, so that any shortfall shows a broken attack. Elsewhere chance
    alone puts half of the attacks that find nothing below their baseline: the whole interval must be there.
    """
    at_best = attack.main.value if attack.family == "linkage" else attack.main.high
    baseline = attack.baseline.value
    return at_best is not None and baseline is not None and at_best < baseline


def _reference(attack: Attack) -> tuple[str, Amount]:
    if attack.family == "extraction":
        return "baseline", attack.baseline
    control = attack.control
    if attack.family == "membership" and (control.low or 0.0) <= 0.5 <= (1.0 if control.high is None else control.high):
        return "chance", _COIN  # the control's own noise would only add to the attack's
    return ("control", control) if control.value is not None else ("baseline", attack.baseline)


def few_alarms(figures: Mapping[str, Amount]) -> bool:
    """Say whether some members are picked out at a rate of false alarms of 1 % or less, beyond chance.

    The area under the curve may be near 0.5 all the same: it is about everybody, and this is about a few.
    """
    for rate in ("0_01", "0_001"):
        found, alarms = (figures.get(f"tpr_at_{rate}_{end}") for end in ("low", "fpr_high"))
        if found is None or alarms is None or found.value is None or alarms.value is None:
            continue
        if found.value > alarms.value:
            return True
    return False
