"""Reports of attacks as they are logged, made by hand from scores; no attack is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.epsilon_bounds import bound_curves
from cfk_plugin.audit.result import AttackReport, AuditResult, Curve, Rate
from cfk_plugin.metrics.intervals import clopper_pearson

RATES = {"tpr_at_0_1": 0.1, "tpr_at_0_01": 0.01, "tpr_at_0_001": 0.001}


def membership(shifts: Mapping[str, float], n: int = 1_000, *, epsilon: float | None = None, **of: Any) -> AttackReport:
    """Return a report of attacks whose scores of n members lie so many deviations above those of n others."""
    random = np.random.default_rng(0)
    found = {name: _roc(random.normal(shift, 1, n), random.normal(0, 1, n)) for name, shift in shifts.items()}
    curves = {name: curve for name, (_, curve) in found.items()}
    if epsilon is not None:
        curves |= bound_curves(epsilon)
    results = tuple(_of(name, result) for name, (result, _) in found.items())
    return report("membership", results, curves=curves, **of)


def report(kind: Any, results: Sequence[AuditResult], **of: Any) -> AttackReport:
    """Return a report of an explainer without protection, unless its policy is given."""
    return AttackReport(**({"kind": kind, "subject": "nice", "results": tuple(results), "settings": {}} | of))


def result(name: str, main: float, against: float, n: int = 2_000, **figures: float) -> AuditResult:
    """Return what an attack reached, against its control, or the baseline where there can be none."""
    width = 0.98 / n**0.5
    reached = Rate(main, main - width, main + width, n)
    compared = Rate(against, against - width, against + width, n)
    control = None if name.startswith("extraction") else compared
    return AuditResult(name, "Knows everything.", reached, compared, control, figures, 0, n)


def _of(name: str, found: Mapping[str, Any]) -> AuditResult:
    area, n = found["auc"], int(found["members"])
    half = 1.96 * (1 / (6 * n)) ** 0.5
    coin = Rate(0.5, 0.5, 0.5, 2 * n)
    figures = {key: value for key, value in found.items() if key != "auc"}
    return AuditResult(
        name, "Knows everything.", Rate(area, area - half, area + half, 2 * n), coin, coin, figures, 0, n
    )


def _roc(members: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[dict[str, float], Curve]:
    is_member = np.repeat([True, False], [len(members), len(others)])[np.argsort(-np.concatenate([members, others]))]
    tpr = np.concatenate([[0.0], np.cumsum(is_member) / len(members)])
    fpr = np.concatenate([[0.0], np.cumsum(~is_member) / len(others)])
    figures = {"auc": float((members[:, None] > others).mean()), "members": len(members), "others": len(others)}
    for name, rate in RATES.items():
        if len(others) * rate < 1:
            continue
        alarms = round(len(others) * rate)
        hits = int((members > np.sort(others)[::-1][alarms]).sum())
        low, high = clopper_pearson(hits, len(members))
        figures |= {name: hits / len(members), f"{name}_low": low, f"{name}_high": high}
        figures[f"{name}_fpr_high"] = clopper_pearson(alarms, len(others)).high
    return figures, Curve(tuple(fpr.tolist()), tuple(tpr.tolist()))
