"""What an attack returns: one form for all, with an interval and something to compare with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.display import card, facts, number, table
from cfk_plugin.data.policy import PrivacyPolicy, promised
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import (
    Estimate,
    Figures,
    auc_interval,
    balanced_interval,
    bootstrap,
    clopper_pearson,
)
from cfk_plugin.tracking.run import LoggedReport, ReportContents, Value

NO_BETTER = (
    "no better than the baseline: the attack did not work here, which is no evidence of protection"
)


BOUNDS: Mapping[str, str] = MappingProxyType(
    {"bound_tight": "most that epsilon admits", "bound_paper": "the same, as published"}
)
"""Curves that are not attacks: the bounds of differential privacy, where it is claimed."""

WITHOUT_EXPLANATIONS = frozenset({"membership_loss", "membership_loss_lrt"})
"""Attacks that use only the model. No protection of explanations stops them."""

GUESSES = frozenset({"membership_random"})
"""Guesses that are listed beside attacks."""

_SHORT = {"cfd": "CFD", "cfd_lrt": "CFD-LRT", "loss": "Loss", "loss_lrt": "Loss-LRT"}
_LONGEST = 16


def short(attack: str) -> str:
    rest = attack.removeprefix("membership_")
    return _SHORT.get(rest, rest.replace("_", " "))[:_LONGEST]


class Rate(Estimate):
    """A success rate with the ends of its 95 % interval, and the releases (or guesses) behind it.

    In [0, 1], lower is better for the people in the table; NaN in (0, 1) when nothing could be
    attacked.
    """

    __slots__ = ()

    def figures(self, name: str) -> dict[str, float]:
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def rate(successes: ArrayLike, seed: int = 0) -> Rate:
    """Return the mean of success probabilities, one per release, with a 95 % interval over
    releases.

    Parameters
    ----------
    successes : array of float in [0, 1]
        Probability of success at each release; 0 or 1 if a guess is certainly wrong or right.
    seed : int
        Of the bootstrap.

    Returns
    -------
    Rate

    Notes
    -----
    Probabilities that differ are bootstrapped. If all are 0 or 1, or all are equal, the interval is
    Clopper-Pearson's, with the sum rounded outwards: a value in [0, 1] varies at most as much as a
    coin of the same mean, so the interval is too wide rather than too narrow. A bootstrap would
    have width 0 there.

    Examples
    --------
    >>> rate([1, 0, 1, 1]).value
    0.75
    """
    values = np.asarray(successes, dtype=np.float64)
    if not len(values):
        return Rate(math.nan, 0.0, 1.0, 0)
    total, n = float(values.sum()), len(values)
    if np.isin(values, (0.0, 1.0)).all() or np.ptp(values) < 1e-12:
        low = clopper_pearson(math.floor(total + 1e-9), n).low
        high = clopper_pearson(min(math.ceil(total - 1e-9), n), n).high
    else:
        low, high = bootstrap(values, random_state=seed)
    return Rate(total / n, low, high, n)


@dataclass(frozen=True, slots=True)
class AuditResult(Figures):
    """What one attack reached, as counts and shares alone: it holds no value of a row."""

    attack: str  # its name
    scenario: str  # what the attacker knows and does, in one sentence
    main: Rate  # success of the attack
    baseline: Rate  # success of the same guess without the attack; each attack defines it
    # success on people who are not in the training data, whose hits are chance
    control: Rate | None
    # the attack's own numbers, defined in ``docs/reference/audits.md``
    figures: Mapping[str, float]
    seed: int  # for everything that was drawn
    n: int  # releases that were attacked

    def __post_init__(self) -> None:
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    @property
    def worked(self) -> bool:
        """Whether the whole interval of the attack lies above its baseline."""
        return self.main.low > self.baseline.value

    @property
    def warning(self) -> str | None:
        """A caveat for reading the numbers; None if the attack worked."""
        return None if self.worked else NO_BETTER

    def to_dict(self) -> dict[str, Any]:
        return Figures.to_dict(self) | {"worked": self.worked}


def to_frame(results: Iterable[AuditResult]) -> pd.DataFrame:
    """Return one row per result: the three rates with their ends, and every figure as
    ``figures.<name>``.
    """
    nothing = Rate(math.nan, math.nan, math.nan, 0)
    return pd.DataFrame(
        [
            {"attack": result.attack, "n": result.n, "worked": result.worked}
            | result.main.figures("main")
            | result.baseline.figures("baseline")
            | (result.control or nothing).figures("control")
            | {f"figures.{name}": value for name, value in result.figures.items()}
            for result in results
        ]
    )


def crowd_figures(counts: ArrayLike, k: int, name: str) -> dict[str, float]:
    """Summarise how many people are left, one count per release."""
    values = np.asarray(counts, dtype=np.float64)
    some = len(values) > 0
    return {
        f"{name}_min": float(values.min()) if some else math.nan,
        f"{name}_median": float(np.median(values)) if some else math.nan,
        f"{name}_p05": float(np.percentile(values, 5)) if some else math.nan,
        f"{name}_below_k": mean(values < k - 1e-9),
        f"{name}_one": mean(np.abs(values - 1) < 1e-9),
    }


def mean(values: ArrayLike) -> float:
    numbers = np.asarray(values, dtype=np.float64)
    return float(numbers.mean()) if len(numbers) else math.nan


_CLAIMED = ("epsilon/epsilon_low", "epsilon_one_run/epsilon_low")
"""Figures that a claim of differential privacy is about."""
_NOT_ALLOWED = re.compile(r"[^\w\-. :/]", re.ASCII)  # MLflow's rule for names of metrics


def metrics(results: Iterable[AuditResult]) -> Iterator[Value]:
    """Yield what people compare between audits: the success of every attack, its baseline and
    control, and the figure that a guarantee or a claim is about.

    The report has the intervals and all other figures. Columns are named as MLflow allows.
    """
    for result in results:
        found = {"main": result.main.value, "baseline": result.baseline.value}
        if result.control is not None:
            found["control"] = result.control.value
        found |= {
            name: value
            for name, value in result.figures.items()
            if f"{result.attack}/{name}" in (*_PROMISED, *_CLAIMED)
        }
        for name, value in found.items():
            if math.isfinite(value):
                allowed = _NOT_ALLOWED.sub("_", f"{result.attack}/{name}")
                yield Value(f"audit/{allowed}", float(value))


Verdict = Literal["pass", "fail", "review"]


@dataclass(frozen=True, slots=True)
class Check(Figures):
    """One number that a guarantee promises: the fewest people that an attack left, beside the
    policy's k.

    `name` is ``attack/figure``; `value` is None where the attack was not run or nothing was
    released.
    """

    name: str
    value: float | None
    needed: int

    @property
    def holds(self) -> bool | None:
        """Whether at least k people are left; None if unknown."""
        return None if self.value is None else self.value >= self.needed - 1e-9

    def to_dict(self) -> dict[str, Any]:
        return Figures.to_dict(self) | {"holds": self.holds}


_PROMISED = {
    "linkage/k_min": "k",
    "model_filter/k_consistent_min": "k_consistent",
}
"""Figure to the count of people, promised by some policies, that it measures."""


def checks(policy: PrivacyPolicy, results: Mapping[str, AuditResult]) -> tuple[Check, ...]:
    """Return every promised number with what was found."""
    found, counts = [], promised(policy.to_dict())
    for name in (name for name, count in _PROMISED.items() if count in counts):
        attack, figure = name.split("/", 1)
        value = results[attack].figures.get(figure) if attack in results else None
        found.append(Check(name, None if value is None or math.isnan(value) else value, policy.k))
    return tuple(found)


SCHEMA_VERSION = 1
"""Version of the layouts of `to_json`."""


_STAR = f"* {NO_BETTER}."


def _row(result: AuditResult) -> tuple[str, ...]:
    """Return a result as a row for notebooks; its attack has a star if it did not work."""
    star = "" if result.worked else " *"
    rate = result.main
    success = f"{rate.value:.3g} ({rate.low:.3g}–{rate.high:.3g})"
    if math.isnan(rate.value):
        success = "nothing to attack"
    control = "–" if result.control is None else number(result.control.value)
    baseline = number(result.baseline.value)
    return f"{result.attack}{star}", success, baseline, control, f"{result.n:,}"


class _Results(Figures, LoggedReport):
    __slots__ = ()
    results: tuple[AuditResult, ...]

    def __iter__(self) -> Iterator[AuditResult]:
        return iter(self.results)

    def __getitem__(self, attack: str) -> AuditResult:
        for result in self.results:
            if result.attack == attack:
                return result
        raise KeyError(attack)

    def to_frame(self) -> pd.DataFrame:
        """See `cfk_plugin.audit.to_frame`."""
        return to_frame(self.results)

    def _table(self) -> Markup:
        """Return the success of each attack beside its baseline and control, for notebooks."""
        head = ("attack", "success (95 %)", "baseline", "control", "cases")
        return table(head, [_row(result) for result in self.results])

    def _contents_as(
        self, artifact: str, params: Mapping[str, Any], tags: dict[str, str]
    ) -> ReportContents:
        """Return metrics ``audit/<attack>/<figure>``, the settings, and the report."""
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=f"cfk/audit-{artifact}.json",
            metrics=tuple(metrics(self.results)),
            params={f"audit.{name}": str(value) for name, value in params.items()},
            tags=tags,
        )


@dataclass(frozen=True, slots=True)
class AuditReport(_Results):
    """The results of several attacks on one anonymizer: counts, shares and settings alone, so it
    may leave the host.
    """

    results: tuple[AuditResult, ...]
    checks: tuple[Check, ...]  # what the policy's guarantee promises, and what was found
    policy: Mapping[str, Any]  # its settings
    method: str  # the protector's name
    population: str  # keyed fingerprint
    asked: int  # counterfactuals attacked
    released: int  # of those
    seed: int

    @property
    def verdict(self) -> Verdict:
        """Return "pass" if every promise holds, "fail" if one is broken, "review" if one was not
        checked.
        """
        holds = {check.holds for check in self.checks}
        return "fail" if False in holds else "review" if None in holds else "pass"

    def _repr_html_(self) -> str:
        """Return the verdict, what it is about, and all attacks, for notebooks."""
        people = {}
        for check in self.checks:
            left = "not tested" if check.value is None else f"{check.value:g} people"
            people[check.name] = f"{left}, promised at least {check.needed}"
        title = f"Audit: {self.verdict}, k = {self.policy['k']}, {self.policy['guarantee']}"
        released = f"{self.released} of {self.asked} released."
        return card(title, released, facts(people), self._table(), note=_STAR)

    def to_dict(self) -> dict[str, Any]:
        about = {"schema_version": SCHEMA_VERSION, "kind": "linkage", "verdict": self.verdict}
        return about | Figures.to_dict(self)

    def _contents(self) -> ReportContents:
        settings = {
            "n": self.asked,
            "seed": self.seed,
            "attacks": ",".join(result.attack for result in self),
            "k": self.policy["k"],
            "guarantee": self.policy["guarantee"],
            "method": self.method,
        }
        tags = {"cfk.audit": "linkage", "cfk.audit.verdict": self.verdict}
        return self._contents_as(
            "linkage", settings, tags | {"cfk.population_fingerprint": self.population}
        )


Kind = Literal["membership", "extraction", "attribute_inference"]


@dataclass(frozen=True, slots=True)
class Curve(Figures):
    """A receiver operating characteristic: true positive rate over false positive rate, from (0, 0)
    to (1, 1).
    """

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackReport(_Results):
    """Results of attacks on one service: counts, shares and settings alone, so it may leave the
    host.
    """

    kind: Kind
    subject: str  # what was attacked: the owner's name
    results: tuple[AuditResult, ...]  # names begin with the kind, by which reports find the family
    settings: Mapping[str, str | int | float | bool]  # sizes and choices, as they are logged
    curves: Mapping[str, Curve] = field(default_factory=dict)  # by attack, if it has one
    policy: Mapping[str, Any] | None = None  # settings of the policy that protected, if any
    population: str | None = None  # keyed fingerprint, if one was protected
    seconds: float = 0.0  # how long it took

    def _repr_html_(self) -> str:
        """Return all attacks, for notebooks."""
        return card(f"Audit of {self.subject}: {self.kind}", self._table(), note=_STAR)

    @property
    def worst(self) -> AuditResult | None:
        """The result with the largest success, of all attacks that use explanations.

        None if none of them was measured. Several attacks were tried, so the largest success is
        more likely above its true value than that of one attack.
        """
        judged = [
            result
            for result in self.results
            if result.attack not in WITHOUT_EXPLANATIONS | GUESSES
            and not math.isnan(result.main.value)
        ]
        return max(judged, key=lambda result: result.main.value, default=None)

    def to_frame(self) -> pd.DataFrame:
        """See `cfk_plugin.audit.to_frame`; with the subject."""
        frame = to_frame(self.results)
        frame.insert(0, "subject", self.subject)
        return frame

    def to_dict(self) -> dict[str, Any]:
        content = {"schema_version": SCHEMA_VERSION, **Figures.to_dict(self)}
        if self.kind == "membership":
            content["worst"] = None if self.worst is None else self.worst.attack
        return content

    def _contents(self) -> ReportContents:
        tags = {"cfk.audit": self.kind, "cfk.audit.subject": self.subject}
        if self.population is not None:
            tags["cfk.population_fingerprint"] = self.population
        # A run can hold one report of each kind.
        settings = {f"{self.kind}.{name}": value for name, value in self.settings.items()}
        return self._contents_as(self.kind, settings, tags)


SHOWN = ("balanced_accuracy", "tpr_at_0_1", "tpr_at_0_01", "tpr_at_0_001")
"""Figures in the table after the main one, if a report has them."""


def side_by_side(reports: Sequence[AttackReport], figures: Sequence[str] = SHOWN) -> pd.DataFrame:
    """Return one row per subject and attack: the success, and those `figures` that some report has.

    Each has its value and the ends of its interval, ``<figure>_low`` and ``<figure>_high``; NaN if
    missing.
    """
    known = [
        name
        for name in figures
        if any(name in result.figures for report in reports for result in report)
    ]
    names = [end for figure in known for end in (figure, f"{figure}_low", f"{figure}_high")]
    return pd.DataFrame(
        [
            {"subject": report.subject, "attack": result.attack, "n": result.n}
            | result.main.figures("main")
            | {"baseline": result.baseline.value}
            | {name: result.figures.get(name, math.nan) for name in names}
            for report in reports
            for result in report
        ]
    )


def readable(table: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """Return a table of `side_by_side` with each value and its interval in one cell: ``0.66 [0.59,
    0.72]``.
    """

    def cell(value: float, low: float, high: float) -> str:
        interval = "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
        return "–" if math.isnan(value) else f"{value:.{digits}f}{interval}"

    shown = table[["subject", "attack", "n"]].copy()
    for name in table.columns.drop(shown.columns):
        if not name.endswith(("_low", "_high")):
            low, high = (
                table.get(f"{name}{end}", pd.Series(math.nan, index=table.index))
                for end in ("_low", "_high")
            )
            shown[name] = list(map(cell, table[name], low, high))
    return shown


Codes = NDArray[np.int64]
ALARMS = (0.1, 0.01, 0.001)
"""False positive rates at which true positives are counted."""

_Z_ERROR, _Z_POWER = 1.959964, 0.841621  # 95 % two-sided; 80 %


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The most members found while at most a given share of others is taken for members."""

    allowed: float
    tpr: Rate
    fpr: Rate
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Roc:
    """What `measure_roc` measured, with 95 % intervals over people like these, for these models."""

    # area under the curve: the chance that a member scores higher than a non-member; ties count
    # half
    auc: Rate
    # (TPR + 1 - FPR) / 2 at thresholds chosen on other people than those judged
    balanced_accuracy: Rate
    balanced_accuracy_max: float  # the same at the best threshold for these very people: optimistic
    points: tuple[OperatingPoint, ...]  # one for each of `ALARMS`
    curve: Curve
    members: int
    others: int

    def figures(self) -> dict[str, float]:
        """Return everything but the area by the names of ``docs/reference/audits.md``."""
        found = {"balanced_accuracy_max": self.balanced_accuracy_max}
        found |= self.balanced_accuracy.figures("balanced_accuracy")
        for point in self.points:
            name = f"tpr_at_{point.allowed:g}".replace(".", "_")
            found |= point.tpr.figures(name) | {
                f"{name}_fpr": point.fpr.value,
                f"{name}_fpr_high": point.fpr.high,
            }
        sizes = {"members": float(self.members), "others": float(self.others)}
        return found | sizes | {"detectable_auc": detectable_auc(self.members, self.others)}


def measure_roc(members: ArrayLike, others: ArrayLike, seed: int = 0) -> Roc:
    """Measure how well scores tell members from others; a larger score means a member.

    Infinite scores are allowed, NaN is not; equal ones cannot be told apart. Balanced accuracy: the
    best threshold on one half of the people, drawn by the seed, is used on the other half, and vice
    versa. TPR at a false positive rate x: members above the (floor(x n) + 1)-th of n others; NaN
    below 1/x others. If one side is empty, everything is NaN with intervals of (0, 1).

    >>> measure_roc([3, 4, 5], [0, 1, 3]).auc.value
    0.9444444444444444
    """
    inside, outside = (
        np.asarray(scores, dtype=np.float64).reshape(-1) for scores in (members, others)
    )
    if np.isnan(inside).any() or np.isnan(outside).any():
        raise InputError("a score is NaN; give people about whom nothing is known a neutral one")
    m, n = len(inside), len(outside)
    codes = (
        np.unique(np.concatenate([inside, outside]), return_inverse=True)[1]
        .reshape(-1)
        .astype(np.int64)
    )
    inside_codes, outside_codes = codes[:m], codes[m:]
    fpr, tpr = _curve(inside_codes, outside_codes)
    area = float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2)) if m and n else math.nan
    return Roc(
        auc=Rate(area, *auc_interval(inside_codes, outside_codes), m + n),
        balanced_accuracy=_balanced(inside_codes, outside_codes, seed),
        balanced_accuracy_max=float((tpr + 1 - fpr).max() / 2) if m and n else math.nan,
        points=tuple(_point(inside_codes, outside_codes, allowed) for allowed in ALARMS),
        curve=Curve(tuple(fpr.tolist()), tuple(tpr.tolist())),
        members=m,
        others=n,
    )


def detectable_auc(members: int, others: int) -> float:
    """Return the least area whose interval is above 0.5 in 80 % of cases: 0.5 + 2.8 sqrt((m + n +
    1) / (12 m n)).
    """
    if not members or not others:
        return 1.0
    spread = math.sqrt((members + others + 1) / (12 * members * others))
    return min(0.5 + (_Z_ERROR + _Z_POWER) * spread, 1.0)


def _curve(inside: Codes, outside: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the curve from (0, 0) to (1, 1), without those on a line between their
    neighbors.
    """
    if not len(inside) or not len(outside):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    hits, alarms = _above(inside, outside)
    across, up = np.diff(alarms), np.diff(hits)
    corner = np.concatenate([[True], across[1:] * up[:-1] != across[:-1] * up[1:], [True]])
    return alarms[corner] / len(outside), hits[corner] / len(inside)


def _above(inside: Codes, outside: Codes) -> tuple[Codes, Codes]:
    """Count members and others at or above every code, from above all of them down to the
    lowest.
    """
    size = int(max(inside.max(), outside.max())) + 1
    counts = (np.bincount(codes, minlength=size)[::-1].cumsum() for codes in (inside, outside))
    hits, alarms = (np.concatenate([[0], count]).astype(np.int64) for count in counts)
    return hits, alarms


def _balanced(inside: Codes, outside: Codes, seed: int) -> Rate:
    m, n = len(inside), len(outside)
    if min(m, n) < 2:
        return Rate(math.nan, 0.0, 1.0, m + n)
    random = np.random.default_rng(seed)
    halves = [np.array_split(random.permutation(codes), 2) for codes in (inside, outside)]
    hits = rejects = 0
    for learnt, judged in ((0, 1), (1, 0)):
        threshold = _best_threshold(halves[0][learnt], halves[1][learnt])
        hits += int((halves[0][judged] >= threshold).sum())
        rejects += int((halves[1][judged] < threshold).sum())
    return Rate((hits / m + rejects / n) / 2, *balanced_interval(hits, m, rejects, n), m + n)


def _best_threshold(inside: Codes, outside: Codes) -> float:
    """Return the threshold of the largest TPR - FPR, halfway to the next score below; the highest
    of ties.
    """
    hits, alarms = _above(inside, outside)
    best = int(np.argmax(hits / len(inside) - alarms / len(outside)))
    present = np.unique(np.concatenate([inside, outside]))
    lowest = len(hits) - 1 - best  # hits[i] counts people with at least the code len(hits) - 1 - i
    below = present[present < lowest]
    return (lowest + float(below[-1])) / 2 if len(below) else -math.inf


def _point(inside: Codes, outside: Codes, allowed: float) -> OperatingPoint:
    m, n = len(inside), len(outside)
    if not m or n * allowed < 1 - 1e-9:
        reason = (
            "no members"
            if not m
            else f"{n} others cannot show a rate of {allowed:g}; it takes {round(1 / allowed)}"
        )
        return OperatingPoint(
            allowed, Rate(math.nan, 0.0, 1.0, m), Rate(math.nan, 0.0, 1.0, n), reason
        )
    threshold = np.sort(outside)[::-1][math.floor(allowed * n + 1e-9)]
    found, alarms = int((inside > threshold).sum()), int((outside > threshold).sum())
    tpr = Rate(found / m, *clopper_pearson(found, m), m)
    return OperatingPoint(allowed, tpr, Rate(alarms / n, *clopper_pearson(alarms, n), n))
