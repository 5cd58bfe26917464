"""What audits in the runs found, what each attack is compared with, and what an edition may show of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfk_plugin.data.policy import sha256_of
from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.report.data import NOT_MEASURED, Amount, Attack, Distribution, Family, Status
from cfk_plugin.report.disclosure import HIDDEN, LEAST, Control, share_band
from cfk_plugin.report.statements import BOUNDS

if TYPE_CHECKING:
    from cfk_plugin.report.runs import Evidence, RunEvidence


OF_MODELS: tuple[Family, ...] = ("membership", "extraction", "attribute_inference")
"""Families whose audits attack an explainer as a whole: with a policy where it is protected, without one where not."""

WITHOUT_EXPLANATIONS = frozenset({"membership_loss", "membership_loss_lrt"})
"""Attacks that look at the model alone. No protection of explanations stops them."""

GUESSES = frozenset({"membership_random"})
"""What is listed beside attacks and is none."""

_BEGINNINGS: tuple[Family, ...] = ("epsilon", *OF_MODELS)
_COIN = Amount(value=0.5)
_ACCEPTED = "This is declared as an accepted risk."
_SAME = 1e-6
_DIFFERENCES = {"extraction": "gain", "attribute_inference": "advantage"}
"""Figures that are the difference itself, with an interval that knows both of its sides were of the same people."""


class Compared(NamedTuple):
    """How much better an attack did than it would without what it is about."""

    with_what: str
    over: Amount


def family(name: str, kind: str) -> Family:
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
    middle, *ends = [_value(attack.figures, f"{name}{end}") for end in ("", "_low", "_high")]
    if middle is not None and None not in ends and abs(middle - (main.value - value)) < _SAME:
        return Compared(with_what, Amount(value=middle, low=ends[0], high=ends[1], n=main.n))
    low, high = (None if end is None else end - value for end in (main.low, main.high))
    return Compared(with_what, Amount(value=main.value - value, low=low, high=high, n=main.n))


def whole(name: str) -> str:
    """Return the attack of which a result is a part: what stands before the name of an attribute."""
    return name.partition("/")[0]


def _reference(attack: Attack) -> tuple[str, Amount]:
    if attack.family == "extraction":
        return "baseline", attack.baseline
    control = attack.control
    if attack.family == "membership" and (control.low or 0.0) <= 0.5 <= (1.0 if control.high is None else control.high):
        return "chance", _COIN  # the control's own noise would only add to the attack's
    return ("control", control) if control.value is not None else ("baseline", attack.baseline)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Audited:
    """An attack, exact, and the audit that ran it, as it was logged."""

    attack: Attack
    audit: Mapping[str, Any]


def attacks(evidence: Evidence) -> tuple[Attack, ...]:
    """Return every attack in the runs, by family and name; exact. See `audited`."""
    return tuple(found.attack for found in audited(evidence))


def audited(evidence: Evidence) -> tuple[Audited, ...]:
    """Return the latest result of every attack on each subject, by family and name.

    Of one attack on several subjects that one is judged whose policy is in force; of several such, the one on which the
    attack did best. The others are there for comparison.
    """
    released = [run for run in evidence.runs if run.rows is not None and len(run.rows)]
    latest: dict[tuple[str, str, bool], Audited] = {}
    for run in evidence.runs:
        for audit in run.audits:
            for attack in _attacks_of(audit, run.run_id, released):
                key = (attack.id, attack.subject, attack.concerns)
                latest.pop(key, None)  # so that the order is that of the runs
                latest[key] = Audited(attack, audit)
    by_name: dict[str, list[Audited]] = {}
    for found in latest.values():
        by_name.setdefault(whole(found.attack.id), []).append(found)
    return tuple(sorted((each for same in by_name.values() for each in _judged(same)), key=_place))


def _place(found: Audited) -> tuple[bool, str, str, bool, str]:
    attack = found.attack
    return attack.family != "linkage", attack.family, attack.id, not attack.judged, attack.subject


def _judged(same: Sequence[Audited]) -> Iterator[Audited]:
    """Mark on which of several subjects an attack is judged: in doubt the one that speaks against the release."""
    threats = [(found.attack.concerns, _threat(found.attack), i) for i, found in enumerate(same)]
    worst = same[max(threats)[2]].attack
    for found in same:
        attack = found.attack
        judged = (attack.subject, attack.concerns) == (worst.subject, worst.concerns) and attack.id not in GUESSES
        yield found if judged else replace(found, attack=replace(attack, judged=False))


def _threat(attack: Attack) -> float:
    found = compared(attack) if attack.concerns else None
    if found is None:
        return 0.0
    return found.over.high if found.over.high is not None else found.over.value or 0.0


def _attacks_of(audit: Mapping[str, Any], run: str, released: Sequence[RunEvidence]) -> Iterator[Attack]:
    kind = str(audit.get("kind", ""))
    for result in audit.get("results", [audit] if "attack" in audit else []):
        name = str(result["attack"])
        of = family(name, kind)
        protected = of not in OF_MODELS or audit.get("policy") is not None
        yield Attack(
            id=name,
            family=of,
            scenario=str(result.get("scenario", "")),
            main=_logged(result.get("main")),
            baseline=_logged(result.get("baseline")),
            control=_logged(result.get("control")),
            figures={key: Amount(value=value) for key, value in sorted(result.get("figures", {}).items())},
            worked=bool(result.get("worked")),
            covers=protected and all(_is_about(audit, other) for other in released),
            run=run,
            subject=str(audit.get("subject") or ""),
            concerns=protected and (not released or any(_has_policy_of(audit, other) for other in released)),
        )


def _is_about(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    """Say whether an audit, as far as it says, was of the policy and population that a run released under."""
    population = audit.get("population")
    return _has_policy_of(audit, run) and (
        population is None or population == run.tags.get("cfk.population_fingerprint")
    )


def _has_policy_of(audit: Mapping[str, Any], run: RunEvidence) -> bool:
    policy = audit.get("policy")
    return policy is None or sha256_of(policy) == run.tags.get("cfk.policy_sha256")


def _logged(found: Mapping[str, Any] | None) -> Amount:
    if found is None or found.get("value") is None:
        return NOT_MEASURED
    return Amount(value=found["value"], low=found.get("low"), high=found.get("high"), n=found.get("n"))


# --- what an attack says of the release: by the upper end of its interval, over what it reaches anyway ---


class Judgment(NamedTuple):
    """What a check says of a case; the text names no figure that an edition may hide."""

    status: Status
    text: str
    measured: Amount = NOT_MEASURED
    evidence: tuple[str, ...] = ()


def judged_attack(
    attack: Attack, found: Compared, parts: Sequence[Attack], tolerance: float, accepted: Callable[[str], bool]
) -> Judgment:
    """Judge an attack, and what it found of single attributes; `accepted` says which checks are declared as a risk."""
    if not attack.concerns:
        judgment = Judgment(
            "review",
            "What was attacked is not released: no explanation is under its policy, or it has none. Nothing is known "
            "of what is released.",
        )
    else:
        judgment = _against(attack, found, tolerance, accepted) or _doubt(attack, found, tolerance)
    return judgment if judgment.status == "fail" else _of_parts(parts, tolerance, accepted) or judgment


def _against(attack: Attack, found: Compared, tolerance: float, accepted: Callable[[str], bool]) -> Judgment | None:
    """Return what speaks against the release, if anything does."""
    reached, bound = (_value(attack.figures, name) for name in ("balanced_accuracy_low", "bound_tight"))
    if reached is not None and bound is not None and reached > bound:
        return Judgment("fail", "The attack refutes the epsilon that is claimed: it did better than epsilon admits.")
    if (found.over.value or 0.0) <= tolerance:
        return None
    text = f"The attack does better than the {found.with_what} by more than is tolerated."
    if attack.id in WITHOUT_EXPLANATIONS:
        return Judgment("review", f"{text} It needs no explanation: protect the model, or who may ask it.")
    of_family = attack.family in OF_MODELS and accepted(f"attack_{attack.family}")
    if of_family or accepted(f"attack_{attack.id}"):
        return Judgment("review", f"{text} {_ACCEPTED}")
    return Judgment("fail", text)


def _of_parts(parts: Sequence[Attack], tolerance: float, accepted: Callable[[str], bool]) -> Judgment | None:
    """Return what speaks against the release of some attributes alone.

    There may be many, and chance puts some of them above what is tolerated: only whole intervals count.
    """
    compare = {part.id: compared(part) for part in parts if part.concerns}
    lows = {name: found.over.low for name, found in compare.items() if found is not None}
    above = [name for name, low in lows.items() if low is not None and low > tolerance]
    if not above:
        return None
    names = ", ".join(name.partition("/")[2] for name in above)
    text = f"For single attributes the attack does better by more than is tolerated: {names}."
    if accepted(f"attack_{parts[0].family}"):
        return Judgment("review", f"{text} {_ACCEPTED}")
    return Judgment("fail", text)


def _doubt(attack: Attack, found: Compared, tolerance: float) -> Judgment:
    """Return why the attack is no evidence for the release, else that it is."""
    if found.over.high is None or found.over.high > tolerance:
        text = "The attack may do better than is tolerated: the upper end of its interval is above."
    elif not attack.covers:
        text = (
            "The attack was run on another policy or population than some of the explanations, or nothing tells: "
            "fingerprints of different processes compare only with CFK_KEY. Run it on what is released."
        )
    elif _fell_short(attack):
        text = "The attack did worse than a guess without it: it did not work here, which is no evidence of protection."
    elif _few_alarms(attack.figures):
        text = (
            "On the whole the attack is within what is tolerated, but with few false alarms it picks out more people "
            "of the training data than others. Look at the left of the curve."
        )
    else:
        said = f"In this attack the adversary did not do better than the {found.with_what} by more than is tolerated."
        return Judgment("pass", said)
    return Judgment("review", text)


def _fell_short(attack: Attack) -> bool:
    """Say whether an attack did worse than the guess without it.

    Looking people up names one of k whatever happens, so that any shortfall shows a broken attack. Elsewhere chance
    alone puts half of the attacks that find nothing below their baseline: the whole interval must be there.
    """
    at_best = attack.main.value if attack.family == "linkage" else attack.main.high
    baseline = attack.baseline.value
    return at_best is not None and baseline is not None and at_best < baseline


def _few_alarms(figures: Mapping[str, Amount]) -> bool:
    """Say whether some members are picked out at a rate of false alarms of 1 % or less, beyond chance.

    The area under the curve may be near 0.5 all the same: it is about everybody, and this is about a few.
    """
    for rate in ("0_01", "0_001"):
        found, alarms = (_value(figures, f"tpr_at_{rate}_{end}") for end in ("low", "fpr_high"))
        if found is not None and alarms is not None and found > alarms:
            return True
    return False


def _value(figures: Mapping[str, Amount], name: str) -> float | None:
    return figures[name].value if name in figures else None


_OF_FEW = ("tpr_at_", "few_")
"""Beginnings of figures that are shares of few people, however many were attacked."""


def shown_attack(attack: Attack, control: Control) -> Attack:
    """Hide in the external edition whom an attack found, and of how many: it says what the attack reached alone."""
    if not control.external:
        return attack
    place = f"attacks.{attack.id}"
    figures = {name: _shown_figure(name, amount, attack, control, place) for name, amount in attack.figures.items()}
    main, baseline, compared = (
        _shown_rate(rate, attack, control) for rate in (attack.main, attack.baseline, attack.control)
    )
    return replace(attack, main=main, baseline=baseline, control=compared, figures=figures, run="")


def _shown_rate(amount: Amount, attack: Attack, control: Control) -> Amount:
    if attack.family in OF_MODELS and amount.value is not None:
        return control.amount(amount, "rate", "")
    few = amount.n is not None and 0 < amount.n < LEAST
    return replace(amount, n=None) if few else amount


def _shown_figure(name: str, amount: Amount, attack: Attack, control: Control, place: str) -> Amount:
    if amount.value is None:
        return amount
    where, alone = f"{place}.{name}", Amount(value=amount.value)
    if attack.family not in OF_MODELS:
        return control.amount(alone, "class_size", where) if "k_" in name else amount
    if name.startswith(_OF_FEW):
        control.hidden.append(where)
        return Amount(band=HIDDEN)
    counts = amount.value > 1 and float(amount.value).is_integer()
    return control.amount(alone, "people" if counts else "rate", where)


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
    curves = sorted((roc for each in found if (roc := _roc(each)) is not None), key=lambda roc: not roc.bounds)
    alike = [list(group) for _, group in groupby(curves, key=lambda roc: roc.bounds)]
    charts = [same[i : i + MOST] for same in alike for i in range(0, len(same), MOST)]
    names = ["roc", *(f"roc-{i + 2}" for i in range(len(charts)))]
    drawn = (_distribution(name, chart, control) for name, chart in zip(names, charts, strict=False))
    return tuple(distribution for distribution in drawn if distribution is not None)


def _roc(found: Audited) -> _Roc | None:
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
        told={rate: _told(attack.figures, name) for rate, name in told.items() if name in attack.figures},
        members=members,
        others=others,
        bounds=tuple(
            (name, tuple(roc_height(curves[name]["fpr"], curves[name]["tpr"], _grid()).tolist()))
            for name in BOUNDS
            if name in curves
        ),
    )


def _told(figures: Mapping[str, Amount], name: str) -> Amount:
    low, high = (_value(figures, f"{name}_{end}") for end in ("low", "high"))
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
