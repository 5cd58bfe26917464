"""The exact figures of a report, recomputed from the explanations that were logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.metrics.intervals import bootstrap, wilson
from cfk_plugin.report.assessment.control import ENOUGH_FOR_QUANTILES, Figure, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.report.assessment.pooled import Pooled
    from cfk_plugin.report.evidence import Evidence

POPULATION, RELEASES, RISK, COMPOSITION, VALIDITY, UTILITY, DP = 2, 4, 5, 6, 7, 8, 11
"""Numbers of the sections that figures stand in."""

_BOOTSTRAP = "mean; percentile bootstrap over explanations, 95 %"
_WILSON = "share; Wilson, 95 %"
_RECOUNT = "recounted at release"
_RISK_THRESHOLDS = {"at_risk_009": 0.09, "at_risk_020": 0.20}
_MOST_RESAMPLED = 20_000

Figures = dict[str, Figure]


def figures(evidence: Evidence, pooled: Pooled) -> Figures:
    """Return every figure that can be computed; what cannot is there, too, without a value.

    Parameters
    ----------
    evidence : Evidence
    pooled : Pooled
        Its explanations.

    Returns
    -------
    dict of str to Figure
        By the ids of the definitions.
    """
    found = _of_population(evidence) | _of_releases(evidence, pooled)
    if pooled.k is not None:
        found |= _of_risk(pooled) | _of_disclosure(pooled) | _of_composition(pooled) | _of_utility(evidence, pooled)
    if len(pooled.prototypes):
        found |= _of_prototypes(evidence)
    return found


def _of_population(evidence: Evidence) -> Figures:
    facts = latest_population(evidence) or {}
    people = facts.get("people")
    found = {name: _exposed(facts.get(name), people) for name in ("unique", "below_k")}
    tolerance = facts.get("tolerance")
    found["near_native_tolerance"] = Figure(value=tolerance, section=RELEASES, method="calibrated on the population")
    return found


def _exposed(count: int | str | None, people: int | str | None) -> Figure:
    """Return a share of the people; a number that the run hides stays hidden."""
    known = isinstance(count, int) and isinstance(people, int) and people > 0
    return Figure(
        value=count / people if known else None,  # type: ignore[operator]
        n=people if known else None,  # type: ignore[arg-type]
        kind="share_of_people",
        section=POPULATION,
        method="before protection",
        band=f"{count} people" if isinstance(count, str) else None,
    )


def latest_population(evidence: Evidence) -> Mapping[str, Any] | None:
    """Return what the latest run says of its population."""
    return next((run.population for run in reversed(evidence.runs) if run.population is not None), None)


def latest_comparison(evidence: Evidence) -> Sequence[Mapping[str, Any]]:
    """Return what the latest audit says of the policy beside other ways; empty where there is none."""
    logged = [run.frontier for run in reversed(evidence.runs) if run.frontier is not None]
    return next((found["baselines"] for found in logged if found.get("baselines")), ())


def _of_releases(evidence: Evidence, pooled: Pooled) -> Figures:
    asked, released, suppressed = len(pooled), len(pooled.released), len(pooled.suppressed)
    exact = int((pooled.values("ncp") == 0).sum())
    untracked = [run.metrics["cfk.untracked"] for run in evidence.runs if "cfk.untracked" in run.metrics]
    counts: dict[str, float | None] = {
        "asked": asked,
        "released": released,
        "exact": exact if len(pooled.regions) else None,
        "generalised": len(pooled.regions) - exact if len(pooled.regions) else None,
        "prototypes": len(pooled.prototypes),
        "suppressed": suppressed,
        "untracked": int(sum(untracked)) if untracked else None,
    }
    found = {name: Figure(value=count, kind="requests", section=RELEASES) for name, count in counts.items()}
    found["suppressed_rate"] = _share(suppressed, asked, RELEASES)
    found |= _rates_of_raw(pooled)
    seconds = pooled.of_all("seconds").to_numpy(dtype=np.float64)
    for name, q in (("latency_p50", 50), ("latency_p95", 95), ("latency_p99", 99)):
        value = float(np.percentile(seconds, q)) if len(seconds) >= ENOUGH_FOR_QUANTILES else None
        found[name] = Figure(value=value, n=len(seconds), section=RELEASES, method="wall time of a call / explanations")
    return found


def _rates_of_raw(pooled: Pooled) -> Figures:
    known = pooled.of_all("finding")
    names = {"native_rate": "native", "near_native_rate": "near-native", "native_qi_rate": "native-qi"}
    if not len(known):
        return {name: Figure(value=None, section=RELEASES) for name in names}
    return {name: _share(int((known == finding).sum()), len(known), RELEASES) for name, finding in names.items()}


def _of_risk(pooled: Pooled) -> Figures:
    k = pooled.values("k")
    found = {f"{name}_min": _least(pooled, name) for name in ("k", "k_desired", "k_consistent", "k_effective")}
    found |= {f"{name}_min": _least(pooled, name) for name in ("k_private", "private_matches")}
    found["k_mean"] = Figure(value=_over(k, np.mean), n=len(k), kind="class_size", section=RISK, method=_RECOUNT)
    for name, column, q in (("k_p05", "k", 5), ("k_median", "k", 50), ("k_desired_median", "k_desired", 50)):
        values = pooled.values(column)
        enough = len(values) >= ENOUGH_FOR_QUANTILES and pooled.complete(column)
        value = float(np.percentile(values, q)) if enough else None
        found[name] = Figure(value=value, n=len(values), kind="class_size", section=RISK, method="quantile")
    risk = 1 / k
    for name, reduce in (("prosecutor_risk_max", np.max), ("prosecutor_risk_mean", np.mean)):
        found[name] = Figure(value=_over(risk, reduce), n=len(k), kind="risk", section=RISK, method="1 / k")
    journalist = pooled.values("journalist_risk") if pooled.complete("journalist_risk") else np.empty(0)
    found["journalist_risk_max"] = Figure(
        value=_over(journalist, np.max),
        n=len(journalist),
        kind="risk",
        section=RISK,
        method="in the reference population",
    )
    over = journalist if len(journalist) else risk
    found["marketer_risk"] = Figure(
        value=_over(over, np.mean), n=len(over), kind="risk", section=RISK, method="mean over releases"
    )
    for name, threshold in _RISK_THRESHOLDS.items():
        found[name] = _share(int((risk > threshold).sum()), len(risk), RISK)
    return found


def _of_disclosure(pooled: Pooled) -> Figures:
    columns: Mapping[str, tuple[str, Callable[..., Any]]] = {
        "l_min": ("l", np.min),
        "t_max": ("t", np.max),
        "attribute_disclosure_max": ("disclosure", np.max),
    }
    found = {
        name: Figure(
            value=_over(pooled.values(column), reduce) if pooled.complete(column) else None,
            n=len(pooled.values(column)),
            section=RISK,
            method=_RECOUNT,
        )
        for name, (column, reduce) in columns.items()
    }
    refused = pooled.of_all("refused_k")
    value = int(refused.min()) if len(refused) else None
    return found | {"refused_k": Figure(value=value, n=len(refused), kind="class_size", section=RISK, method=_RECOUNT)}


def _of_composition(pooled: Pooled) -> Figures:
    outcomes = pooled.of_all("ledger")
    known = len(outcomes) > 0
    refused = int((pooled.suppressed["reason"] == "intersection").sum()) if len(pooled.suppressed) else 0
    again = int(outcomes.isin(["again", "earlier"]).sum())
    least = _least(pooled, "k_intersection")
    return {
        "k_intersection_min": Figure(
            value=least.value, n=least.n, kind="class_size", section=COMPOSITION, method="counted by the ledger"
        ),
        "ledger_again": Figure(value=again if known else None, kind="requests", section=COMPOSITION),
        "ledger_refused": Figure(value=refused if known else None, kind="requests", section=COMPOSITION),
    }


def _of_utility(evidence: Evidence, pooled: Pooled) -> Figures:
    k, ncp, pureness = (pooled.values(name) for name in ("k", "ncp", "pureness"))
    low = pooled.values("pureness_low")
    found = {"ncp_mean": _mean(ncp, UTILITY), "pureness_mean": _mean(pureness, VALIDITY)}
    value = float(np.percentile(ncp, 95)) if len(ncp) >= ENOUGH_FOR_QUANTILES else None
    found["ncp_p95"] = Figure(value=value, n=len(ncp), section=UTILITY, method="quantile")
    worst = pooled.regions.sort_values(["pureness", "pureness_low"]).head(1) if len(pureness) else None
    found["pureness_min"] = Figure(
        value=None if worst is None else float(worst["pureness"].iloc[0]),
        low=None if worst is None else float(worst["pureness_low"].iloc[0]),
        high=None if worst is None else float(worst["pureness_high"].iloc[0]),
        n=len(pureness),
        section=VALIDITY,
        method="exact, or Clopper–Pearson, 95 %",
    )
    found["pureness_low"] = Figure(value=_over(low, np.mean), n=len(low), section=VALIDITY, method="mean of lower ends")
    found["flips"] = _share(int((pureness > 0.5).sum()), len(pureness), VALIDITY)
    people = (latest_population(evidence) or {}).get("people")
    known = isinstance(people, int) or not len(pooled.suppressed)
    cost = k.sum() + (people if isinstance(people, int) else 0) * len(pooled.suppressed) if known else None
    cdm = None if cost is None or not len(k) else float(cost)
    found["cdm"] = Figure(value=cdm, n=len(pooled), kind="class_sum", section=UTILITY, method="sum over releases")
    each = None if cdm is None else cdm / len(pooled)
    found["cdm_per_release"] = Figure(value=each, n=len(pooled), kind="class_sum", section=UTILITY)
    majority = pooled.regions["majority"] if pooled.complete("majority") else np.empty(0)
    found["cm"] = _share(int((~np.asarray(majority, dtype=bool)).sum()), len(majority), UTILITY)
    optimal = pooled.values("optimal")
    found["optimal_rate"] = _share(int(optimal.sum()), len(optimal), UTILITY)
    return found | {"plausibility": _plausibility(evidence)}


def _plausibility(evidence: Evidence) -> Figure:
    """Return the distance to training rows, which an audit may have measured; it needs the rows."""
    near = next((way["nearest"] for way in latest_comparison(evidence) if way.get("name") == "policy"), None)
    if near is None:
        return Figure(value=None, section=UTILITY)
    ends = {end: near.get(end) for end in ("value", "low", "high", "n")}
    return Figure(**ends, section=UTILITY, method="mean over an audit's explanations; percentile bootstrap, 95 %")


def _of_prototypes(evidence: Evidence) -> Figures:
    certificates = [run.prototype for run in evidence.runs if run.prototype is not None]
    found = {
        name: Figure(value=max((float(c[name]) for c in certificates), default=None), section=DP, method="certificate")
        for name in ("epsilon", "delta")
    }
    spent = [run.metrics["cfk.epsilon_spent"] for run in evidence.runs if "cfk.epsilon_spent" in run.metrics]
    found["epsilon_spent"] = Figure(value=max(spent, default=None), section=DP, method="accountant")
    return found


def _least(pooled: Pooled, column: str) -> Figure:
    """Return the least value of a count; without a value unless every release has it."""
    values = pooled.values(column)
    value = int(values.min()) if pooled.complete(column) else None
    return Figure(value=value, n=len(values), kind="class_size", section=RISK, method=_RECOUNT)


def _mean(values: NDArray[np.float64], section: int) -> Figure:
    if not len(values):
        return Figure(value=None, section=section)
    if len(values) <= _MOST_RESAMPLED:
        low, high = bootstrap(values, random_state=0)
        return Figure(value=float(values.mean()), low=low, high=high, n=len(values), section=section, method=_BOOTSTRAP)
    # The bootstrap of a mean of so many is normal to all digits that are shown.
    half = 1.959964 * float(values.std()) / np.sqrt(len(values))
    mean = float(values.mean())
    return Figure(
        value=mean, low=mean - half, high=mean + half, n=len(values), section=section, method="mean; normal, 95 %"
    )


def _share(part: int, n: int, section: int, kind: Kind = "share_of_requests") -> Figure:
    if not n:
        return Figure(value=None, kind=kind, section=section)
    low, high = wilson(part, n)
    return Figure(value=part / n, low=low, high=high, n=n, kind=kind, section=section, method=_WILSON)


def _over(values: NDArray[np.float64], reduce: Callable[..., Any]) -> float | None:
    return float(reduce(values)) if len(values) else None
