"""Figures over the certificates of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfk_plugin.counterfactual import Certificate


def figures_of(certificates: Sequence[Certificate]) -> dict[str, float | None]:
    """Return each figure; None where a certificate does not have it, or there is none."""

    def over(name: str, reduce: Callable[[list[Any]], Any], kind: type = float) -> float | None:
        values = [getattr(c, name) for c in certificates]
        return kind(reduce(values)) if values and None not in values else None

    return {
        "k_min": over("k", min, int),
        "k_mean": over("k", np.mean),
        "k_p05": over("k", lambda v: np.percentile(v, 5)),
        "k_desired_min": over("k_desired", min, int),
        "k_consistent_min": over("k_consistent", min, int),
        "k_effective_min": over("k_effective", min, int),
        "k_private_min": over("k_private", min, int),
        "ncp_mean": over("ncp", np.mean),
        "ncp_p95": over("ncp", lambda v: np.percentile(v, 95)),
        "pureness_mean": over("pureness", np.mean),
        "pureness_min": over("pureness", min),
        "pureness_low": over("pureness_low", np.mean),
        "optimal_rate": over("optimal", np.mean),
        "prosecutor_risk_max": over("prosecutor_risk", max),
        "marketer_risk": over("prosecutor_risk", np.mean),
        "cm": over("majority", lambda v: 1 - np.mean(v)),
    }


def rate(flags: Sequence[bool]) -> float | None:
    """Return the share that is true; None of nothing."""
    return float(np.mean(flags)) if len(flags) else None
