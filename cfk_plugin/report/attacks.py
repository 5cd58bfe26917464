"""What audits in the runs found, what each attack is compared with, and what an edition may show of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from cfk_plugin.data.policy import sha256_of
from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.report.amounts import HIDDEN, LEAST, NOT_MEASURED, Amount, Control, share_band
from cfk_plugin.report.data import Attack, Distribution, Family
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
_SAME = 1e-6
_DIFFERENCES = {"extraction": "gain", "attribute_inference": "advantage"}
"""Figures that are the difference itself, with an interval that knows both of its sides were of the same people."""


class Compared(NamedTuple):
    """How much better an attack did than it would without what it is about."""

    with_what: str
    over: Amount


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
    middle, *ends = [attack.figure(f"{name}{end}") for end in ("", "_low", "_high")]
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


class Audited(NamedTuple):
    """An attack, exact, and the audit that ran it, as it was logged."""

    attack: Attack
    audit: Mapping[str, Any]


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
    of_all = (each for same in by_name.values() for each in _judged(same))
    return tuple(sorted(of_all, key=lambda each: _place(each.attack)))


def _place(attack: Attack) -> tuple[bool, str, str, bool, str]:
    return attack.family != "linkage", attack.family, attack.id, not attack.judged, attack.subject


def _judged(same: Sequence[Audited]) -> Iterator[Audited]:
    """Mark on which of several subjects an attack is judged: in doubt the one that speaks against the release."""
    threats = [(found.attack.concerns, _threat(found.attack), i) for i, found in enumerate(same)]
    worst = same[max(threats)[2]].attack
    for found in same:
        attack = found.attack
        judged = (attack.subject, attack.concerns) == (worst.subject, worst.concerns) and attack.id not in GUESSES
        yield found if judged else found._replace(attack=replace(attack, judged=False))


def _threat(attack: Attack) -> float:
    found = compared(attack) if attack.concerns else None
    if found is None:
        return 0.0
    return found.over.high if found.over.high is not None else found.over.value or 0.0


def _attacks_of(audit: Mapping[str, Any], run: str, released: Sequence[RunEvidence]) -> Iterator[Attack]:
    kind = str(audit.get("kind", ""))
    for result in audit.get("results", [audit] if "attack" in audit else []):
        name = str(result["attack"])
        of: Family = next((of for text in (name, kind) for of in _BEGINNINGS if text.startswith(of)), "linkage")
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


_OF_FEW = ("tpr_at_", "few_")
"""Beginnings of figures that are shares of few people, however many were attacked."""


def shown_attack(attack: Attack, control: Control) -> Attack:
    """Hide in the external edition whom an attack found, and of how many: it says what the attack reached alone."""
    if not control.external:
        return attack
    place = f"attacks.{attack.id}"
    figures = {name: _shown_figure(name, amount, attack, control, place) for name, amount in attack.figures.items()}
    of_model = attack.family in OF_MODELS
    rates = [
        control.amount(rate, "rate", "") if of_model and rate.value is not None else rate.without_few()
        for rate in attack.rates
    ]
    return replace(attack, main=rates[0], baseline=rates[1], control=rates[2], figures=figures, run="")


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


_TOLD = (0.1, 0.01, 0.001)  # false positive rates that are told in numbers; a chart has ten for every power of ten
_MOST = 4  # curves of one chart; more are in further charts
_GRID = [float(f"{10 ** (power / 10):.3g}") for power in range(-40, 1)]
_EQUAL = 1e-12


class _Roc(NamedTuple):
    """The curve of one attack, exact, and what is claimed over `_GRID`."""

    attack: Attack
    fpr: Sequence[float]
    tpr: Sequence[float]
    bounds: tuple[tuple[str, tuple[float, ...]], ...]

    @property
    def least(self) -> float:
        """The smallest rate of false alarms that could be observed."""
        others = self.people("others")
        return 1 / others if others else next((rate for rate in self.fpr if rate > 0), 1.0)

    def people(self, name: str) -> int | None:
        """Return how many members or others there are."""
        found = self.attack.figure(name)
        return round(found) if found else None

    def at(self, rate: float) -> Amount:
        """Return how many members are found at a rate, with the interval where the attack has it."""
        name = f"tpr_at_{rate:g}".replace(".", "_")
        if name not in self.attack.figures:
            return Amount(value=float(roc_height(self.fpr, self.tpr, rate)))
        value, low, high = (self.attack.figure(f"{name}{end}") for end in ("", "_low", "_high"))
        return NOT_MEASURED if value is None else Amount(value=value, low=low, high=high)


def roc_curves(found: Sequence[Audited], control: Control) -> tuple[Distribution, ...]:
    """Return the curves of the attacks that are judged as ``roc``, ``roc-2``, …; those that share one claim the same.

    In the external edition no rate is told below which, or above which, there are 1 to 10 people, and what is told goes
    up in steps of 11 people: a finer curve would tell where single people stand. Without the number of people behind
    it there is no curve at all.
    """
    curves = sorted((roc for each in found if (roc := _roc(each)) is not None), key=lambda roc: not roc.bounds)
    alike = [list(group) for _, group in groupby(curves, key=lambda roc: roc.bounds)]
    charts = [same[i : i + _MOST] for same in alike for i in range(0, len(same), _MOST)]
    names = ["roc", *(f"roc-{i + 2}" for i in range(len(charts)))]
    drawn = (_distribution(name, chart, control) for name, chart in zip(names, charts, strict=False))
    return tuple(distribution for distribution in drawn if distribution is not None)


def _roc(found: Audited) -> _Roc | None:
    attack, curves = found.attack, found.audit.get("curves") or {}
    curve = curves.get(attack.id)
    if curve is None or not attack.judged or attack.id in GUESSES or not curve["fpr"]:
        return None
    known = [(name, curves[name]) for name in BOUNDS if name in curves]
    bounds = tuple((name, tuple(roc_height(of["fpr"], of["tpr"], _GRID).tolist())) for name, of in known)
    return _Roc(attack, curve["fpr"], curve["tpr"], bounds)


def _distribution(name: str, curves: Sequence[_Roc], control: Control) -> Distribution | None:
    least = min(curve.least for curve in curves)
    rates = {rate: [_shown(curve, rate, control) for curve in curves] for rate in _GRID if rate >= least - _EQUAL}
    hidden = {roc.attack.id for amounts in rates.values() for roc, a in zip(curves, amounts, strict=True) if a.band}
    control.hidden += [f"distributions.{name}.{attack}" for attack in sorted(hidden)]
    drawn = [rate for rate, amounts in rates.items() if rate < 1 and any(a.value is not None for a in amounts)]
    if not drawn:
        return None
    at = [(i, rate) for i, rate in enumerate(_GRID) if rate >= drawn[0] or rate in _TOLD]
    nothing = [NOT_MEASURED] * len(curves)
    series = {roc.attack.id: tuple(rates.get(rate, nothing)[j] for _, rate in at) for j, roc in enumerate(curves)}
    bounds = {of: tuple(Amount(value=values[i]) for i, _ in at) for of, values in curves[0].bounds}
    note = "Rates of few people are left out, and the others are rounded to steps of 11 people."
    return Distribution(
        id=name,
        section=9,
        labels=tuple(f"{rate:g}" for _, rate in at),
        series={**series, **bounds},
        note=note if control.external else "",
    )


def _shown(curve: _Roc, rate: float, control: Control) -> Amount:
    """Return how many members are found at a rate of false alarms, as far as the edition may tell."""
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
    # Without its interval, whose ends tell the count.
    steps = round(told.value * members / LEAST)
    return Amount(value=min(1.0, round(steps * LEAST / members, 3)) if rate < 1 else 1.0)
