"""How well scores tell members from others: the ROC curve, and figures that are read from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.audit.attack_report import Curve
from cfk_plugin.audit.result import Rate
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import auc_interval, balanced_interval, clopper_pearson

Codes = NDArray[np.int64]
ALARMS = (0.1, 0.01, 0.001)
"""False positive rates at which true positives are counted."""

_Z_ERROR, _Z_POWER = 1.959964, 0.841621  # 95 % two-sided; 80 %


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The most members that are found while at most a share of the others is.

    Attributes
    ----------
    allowed : float
        That share.
    tpr : Rate
        Share of members found; NaN where there is a `reason`. The threshold follows from the others alone, so its
        Clopper-Pearson interval is exact for the members.
    fpr : Rate
        Share of the others that was reached, at most `allowed`. Its interval says what the same threshold may reach
        among further people; with few others that is much more than `allowed`.
    reason : str or None
        Why nothing was measured.
    """

    allowed: float
    tpr: Rate
    fpr: Rate
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Roc:
    """What `measure_roc` measured; the intervals are of 95 %, over people like these, for these models.

    Attributes
    ----------
    auc : Rate
        Area under the curve: the chance that a member scores higher than somebody else, ties count half.
    balanced_accuracy : Rate
        (TPR + 1 - FPR) / 2 at thresholds chosen on other people than those that are judged.
    balanced_accuracy_max : float
        The same at the best threshold for these very people, as papers print it: too high, by luck alone.
    points : tuple of OperatingPoint
        One for each of `ALARMS`.
    curve : Curve
    members, others : int
    """

    auc: Rate
    balanced_accuracy: Rate
    balanced_accuracy_max: float
    points: tuple[OperatingPoint, ...]
    curve: Curve
    members: int
    others: int

    def figures(self) -> dict[str, float]:
        """Return everything but the area by the names of ``docs/reference/audits.md``."""
        found = {
            "balanced_accuracy_max": self.balanced_accuracy_max,
            **_ends("balanced_accuracy", self.balanced_accuracy),
        }
        for point in self.points:
            name = f"tpr_at_{point.allowed:g}".replace(".", "_")
            found |= _ends(name, point.tpr)
            found |= {f"{name}_fpr": point.fpr.value, f"{name}_fpr_high": point.fpr.high}
        sizes = {"members": float(self.members), "others": float(self.others)}
        return found | sizes | {"detectable_auc": detectable_auc(self.members, self.others)}


def measure_roc(members: ArrayLike, others: ArrayLike, seed: int = 0) -> Roc:
    """Measure how well scores tell members from others, where a larger score speaks for a member.

    Parameters
    ----------
    members, others : array of float
        One score per person. Infinite ones are scores; equal ones cannot be told apart.
    seed : int
        Of the halves on which thresholds are chosen and judged.

    Returns
    -------
    Roc
        Everything is NaN with intervals of (0, 1) where there is nobody on one side.

    Raises
    ------
    InputError
        If a score is NaN.

    Notes
    -----
    AUC: see `auc_interval` for its interval. Balanced accuracy: members and others are halved at random; the threshold
    that is best on one half (a score halfway between two of its people) judges the other half, and the other way round;
    see `balanced_interval`. TPR at a false positive rate x: members that score higher than the (floor(x n) + 1)-th of n
    others; NaN below 1/x others.

    Examples
    --------
    >>> measure_roc([3, 4, 5], [0, 1, 3]).auc.value
    0.9444444444444444
    """
    inside, outside = (np.asarray(scores, dtype=np.float64).reshape(-1) for scores in (members, others))
    if np.isnan(inside).any() or np.isnan(outside).any():
        raise InputError("a score is NaN; give people about whom nothing is known a neutral one")
    m, n = len(inside), len(outside)
    codes = np.unique(np.concatenate([inside, outside]), return_inverse=True)[1].reshape(-1).astype(np.int64)
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
    """Return the smallest area that so many people tell from chance, four times of five.

    Parameters
    ----------
    members, others : int

    Returns
    -------
    float
        0.5 + (1.96 + 0.84) sqrt((m + n + 1) / (12 m n)), at most 1: an attack of that true area has an interval above
        0.5 with a chance of about 80 %.
    """
    if not members or not others:
        return 1.0
    spread = math.sqrt((members + others + 1) / (12 * members * others))
    return min(0.5 + (_Z_ERROR + _Z_POWER) * spread, 1.0)


def _curve(inside: Codes, outside: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the curve from (0, 0) to (1, 1), without those on a line between their neighbours."""
    if not len(inside) or not len(outside):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    hits, alarms = _above(inside, outside)
    across, up = np.diff(alarms), np.diff(hits)
    corner = np.concatenate([[True], across[1:] * up[:-1] != across[:-1] * up[1:], [True]])
    return alarms[corner] / len(outside), hits[corner] / len(inside)


def _above(inside: Codes, outside: Codes) -> tuple[Codes, Codes]:
    """Count members and others at or above every code, from above all of them down to the lowest."""
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
    """Return where TPR - FPR is largest, halfway to the next score below it; the highest of equally good ones."""
    hits, alarms = _above(inside, outside)
    best = int(np.argmax(hits / len(inside) - alarms / len(outside)))
    present = np.unique(np.concatenate([inside, outside]))
    lowest = len(hits) - 1 - best  # hits[i] counts who has at least the code len(hits) - 1 - i
    below = present[present < lowest]
    return (lowest + float(below[-1])) / 2 if len(below) else -math.inf


def _point(inside: Codes, outside: Codes, allowed: float) -> OperatingPoint:
    m, n = len(inside), len(outside)
    if not m or n * allowed < 1 - 1e-9:
        reason = (
            "no members" if not m else f"{n} others cannot show a rate of {allowed:g}; it takes {round(1 / allowed)}"
        )
        return OperatingPoint(allowed, Rate(math.nan, 0.0, 1.0, m), Rate(math.nan, 0.0, 1.0, n), reason)
    threshold = np.sort(outside)[::-1][math.floor(allowed * n + 1e-9)]
    found, alarms = int((inside > threshold).sum()), int((outside > threshold).sum())
    tpr = Rate(found / m, *clopper_pearson(found, m), m)
    return OperatingPoint(allowed, tpr, Rate(alarms / n, *clopper_pearson(alarms, n), n))


def _ends(name: str, found: Rate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
