"""The exact figures of a report, recomputed from the explanations that were logged, and the charts
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.audit.result import GUESSES
from cfk_plugin.metrics.intervals import (
    POOLED,
    GroupGap,
    bootstrap,
    group_gap,
    roc_height,
    wilson,
)
from cfk_plugin.report.data import (
    LEAST,
    NOT_MEASURED,
    Amount,
    Attack,
    Distribution,
    Group,
    Metric,
)
from cfk_plugin.report.runs import needs_no_change

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.report.runs import Audited, Evidence, Pooled


POPULATION, RELEASES, RISK, VALIDITY, UTILITY, DP = 2, 4, 5, 7, 8, 11
"""Numbers of the sections that figures are in."""

_BOOTSTRAP = "mean; percentile bootstrap over explanations, 95 %"
_WILSON = "share; Wilson, 95 %"
_RECOUNT = "recounted at release"
_RISK_THRESHOLDS = {"at_risk_009": 0.09, "at_risk_020": 0.20}
LATENCIES = {"latency_p50": 50, "latency_p95": 95, "latency_p99": 99}
_MOST_RESAMPLED = 20_000
_ENOUGH_FOR_QUANTILES = 50


def figures(evidence: Evidence, pooled: Pooled) -> dict[str, Metric]:
    """Return every exact figure by id; one that cannot be computed has no value."""
    found = [*_of_population(evidence), *_of_releases(evidence, pooled)]
    if pooled.k is not None:
        found += [
            *_of_risk(pooled),
            *_of_disclosure(pooled),
            *_of_utility(evidence, pooled),
        ]
    if len(pooled.prototypes):
        found += _of_prototypes(evidence)
    return {metric.id: metric for metric in found}


def _figure(name: str, section: int, method: str = "", **amount: Any) -> Metric:
    return Metric(id=name, amount=Amount(**amount), section=section, method=method)


def _of_population(evidence: Evidence) -> Iterator[Metric]:
    facts = evidence.latest("population")
    people = facts.get("people")
    for name in ("unique", "below_k"):
        count = facts.get(name)  # text where the run hides it; stays hidden
        share: dict[str, Any] = {"band": f"{count} people"} if isinstance(count, str) else {}
        if isinstance(count, int) and isinstance(people, int) and people > 0:
            share = {"value": count / people, "n": people}
        yield _figure(name, POPULATION, "before protection", **share)
    yield _figure(
        "near_native_tolerance",
        RELEASES,
        "calibrated on the population",
        value=facts.get("tolerance"),
    )


def _of_releases(evidence: Evidence, pooled: Pooled) -> Iterator[Metric]:
    asked, released, withheld = len(pooled), len(pooled.released), len(pooled.withheld)
    exact = int((pooled.values("ncp") == 0).sum())
    untracked = _known(evidence, "untracked")
    counts: dict[str, float | None] = {
        "asked": asked,
        "released": released,
        "exact": exact if len(pooled.regions) else None,
        "generalised": len(pooled.regions) - exact if len(pooled.regions) else None,
        "prototypes": len(pooled.prototypes),
        "withheld": withheld,
        "untracked": int(sum(untracked)) if untracked else None,
    }
    yield from (_figure(name, RELEASES, value=count) for name, count in counts.items())
    already = len(pooled.already_desired)
    yield _share("withheld_rate", withheld - already, asked - already, RELEASES)
    known = pooled.of_all("finding")
    # Where no explainer was asked for answers, the rates are of the latest sample: samples of
    # several runs may be of the same people.
    samples = [run.figures for run in pooled.runs if run.figures.get("sampled")]
    for finding in ("native", "near-native", "native-qi"):
        name = f"{finding.replace('-', '_')}_rate"
        part, n = int((known == finding).sum()), len(known)
        if not n and samples:
            latest = samples[-1]
            n = int(latest["sampled"] or 0)
            part = round((latest.get(name) or 0) * n)
        yield _share(name, part, n, RELEASES)
    seconds = pooled.of_all("seconds").to_numpy(dtype=np.float64)
    for name, percent in LATENCIES.items():
        yield _quantile(name, seconds, percent, RELEASES, "wall time of a call / explanations")


def finite(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _of_risk(pooled: Pooled) -> Iterator[Metric]:
    k = pooled.values("k")
    for column in (
        "k",
        "k_worst",
        "k_desired",
        "k_consistent",
        "k_effective",
        "k_private",
        "private_matches",
    ):
        yield _least(f"{column}_min", pooled, column, RISK)
    yield _figure("k_mean", RISK, _RECOUNT, value=_over(k, np.mean), n=len(k))
    for name, column, percent in (
        ("k_p05", "k", 5),
        ("k_median", "k", 50),
        ("k_desired_median", "k_desired", 50),
    ):
        yield _quantile(
            name, pooled.values(column), percent, RISK, "quantile", known=pooled.complete(column)
        )
    risk = 1 / k
    yield _figure("prosecutor_risk_max", RISK, "1 / k", value=_over(risk, np.max), n=len(k))
    yield _figure("prosecutor_risk_mean", RISK, "1 / k", value=_over(risk, np.mean), n=len(k))
    yield _figure(
        "marketer_risk", RISK, "mean over releases", value=_over(risk, np.mean), n=len(risk)
    )
    for name, threshold in _RISK_THRESHOLDS.items():
        yield _share(name, int((risk > threshold).sum()), len(risk), RISK)


def _of_disclosure(pooled: Pooled) -> Iterator[Metric]:
    worst = {
        "l_min": ("l", np.min),
        "t_max": ("t", np.max),
        "attribute_disclosure_max": ("disclosure", np.max),
    }
    for name, (column, reduce) in worst.items():
        values = pooled.values(column)
        value = _over(values, reduce) if pooled.complete(column) else None
        yield _figure(name, RISK, _RECOUNT, value=value, n=len(values))
    refused = pooled.of_all("refused_k")
    yield _figure(
        "refused_k",
        RISK,
        _RECOUNT,
        value=int(refused.min()) if len(refused) else None,
        n=len(refused),
    )


def _of_utility(evidence: Evidence, pooled: Pooled) -> Iterator[Metric]:
    k, ncp, pureness, low = (
        pooled.values(name) for name in ("k", "ncp", "pureness", "pureness_low")
    )
    yield _mean("ncp_mean", ncp, UTILITY)
    yield _mean("pureness_mean", pureness, VALIDITY)
    yield _quantile("ncp_p95", ncp, 95, UTILITY, "quantile")
    worst = (
        pooled.regions.sort_values(["pureness", "pureness_low"]).head(1)
        if len(pureness)
        else pd.DataFrame()
    )
    ends = {"value": "pureness", "low": "pureness_low", "high": "pureness_high"}
    least = {end: finite(worst[name].iloc[0]) for end, name in ends.items() if len(worst)}
    yield _figure(
        "pureness_min", VALIDITY, "exact, or Clopper–Pearson, 95 %", **least, n=len(pureness)
    )
    yield _figure(
        "pureness_low", VALIDITY, "mean of lower ends", value=_over(low, np.mean), n=len(low)
    )
    yield _share("flips", int((pureness > 0.5).sum()), len(pureness), VALIDITY)
    if len(true := pooled.of_all("true")):
        yield _share("true_rate", int(true.sum()), len(true), VALIDITY)
    people = evidence.latest("population").get("people")
    n_refused = len(pooled.withheld) - len(pooled.already_desired)
    known = len(k) > 0 and (isinstance(people, int) or not n_refused)
    cost = (
        float(k.sum() + (people if isinstance(people, int) else 0) * n_refused) if known else None
    )
    yield _figure("cdm", UTILITY, "sum over releases", value=cost, n=len(pooled))
    yield _figure(
        "cdm_per_release",
        UTILITY,
        value=None if cost is None else cost / len(pooled),
        n=len(pooled),
    )
    majority = pooled.regions["majority"] if pooled.complete("majority") else np.empty(0)
    yield _share("cm", int((~np.asarray(majority, dtype=bool)).sum()), len(majority), UTILITY)
    optimal = pooled.values("optimal")
    yield _share("optimal_rate", int(optimal.sum()), len(optimal), UTILITY)


def _of_prototypes(evidence: Evidence) -> Iterator[Metric]:
    certificates = [run.prototype for run in evidence.runs if run.prototype is not None]
    for name in ("epsilon", "delta"):
        yield _figure(
            name, DP, "certificate", value=max((float(c[name]) for c in certificates), default=None)
        )
    spent = _known(evidence, "epsilon_spent")
    yield _figure("epsilon_spent", DP, "accountant", value=max(spent, default=None))


def _known(evidence: Evidence, name: str) -> list[float]:
    """Return what the summaries of runs say of a figure, as far as they know it."""
    said = [run.figures.get(name) for run in evidence.runs]
    return [value for value in said if value is not None]


def _least(name: str, pooled: Pooled, column: str, section: int, method: str = _RECOUNT) -> Metric:
    """Return the least value of a count; without a value unless every release has it."""
    values = pooled.values(column)
    value = int(values.min()) if pooled.complete(column) else None
    return _figure(name, section, method, value=value, n=len(values))


def _quantile(
    name: str,
    values: NDArray[np.float64],
    percent: int,
    section: int,
    method: str,
    *,
    known: bool = True,
) -> Metric:
    enough = known and len(values) >= _ENOUGH_FOR_QUANTILES
    value = float(np.percentile(values, percent)) if enough else None
    return _figure(name, section, method, value=value, n=len(values))


def _mean(name: str, values: NDArray[np.float64], section: int) -> Metric:
    n = len(values)
    if not n:
        return _figure(name, section)
    mean, method = float(values.mean()), _BOOTSTRAP
    if n <= _MOST_RESAMPLED:
        low, high = bootstrap(values, random_state=0)
    else:  # the bootstrap of a mean of so many equals the normal interval in all digits shown
        half, method = _NORMAL_95 * float(values.std()) / np.sqrt(n), "mean; normal, 95 %"
        low, high = mean - half, mean + half
    return _figure(name, section, method, value=mean, low=low, high=high, n=n)


def _share(name: str, part: int, n: int, section: int) -> Metric:
    if not n:
        return _figure(name, section)
    low, high = wilson(part, n)
    return _figure(name, section, _WILSON, value=part / n, low=low, high=high, n=n)


def _over(values: NDArray[np.float64], reduce: Callable[..., Any]) -> float | None:
    return float(reduce(values)) if len(values) else None


_METRICS = ("k", "ncp", "pureness", "withheld")
_MOST_RESAMPLED_TWICE = 2_000
_NORMAL_95 = 1.959964
_ROUNDING = 1e-12
_DIGITS = 9  # beyond is rounding error


def groups(pooled: Pooled) -> tuple[Group, ...]:
    """Compare every metric between each group and the rest; groups of fewer than 11 are pooled."""
    if "group" not in pooled.rows:
        return ()
    return tuple(
        found
        for attribute, rows in _by_attribute(pooled)
        for found in _of_attribute(attribute, rows)
    )


def _by_attribute(pooled: Pooled) -> Iterator[tuple[str, pd.DataFrame]]:
    names = pd.Series([run.params.get("cfk.groups", "") for run in pooled.runs])
    grouped = pooled.rows[pooled.rows["group"].notna().to_numpy()]
    of_row = names.reindex(grouped["run"].to_numpy()).to_numpy()
    for name in sorted(set(of_row)):
        yield str(name) or "group", grouped[of_row == name]


def _of_attribute(attribute: str, rows: pd.DataFrame) -> Iterator[Group]:
    labels = rows["group"].astype(str).to_numpy()
    for metric in _METRICS:
        if metric == "withheld":
            values = np.asarray(rows["status"] == "withheld", dtype=np.float64)
            values[needs_no_change(rows)] = np.nan
        elif metric in rows:
            values = rows[metric].to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            continue
        for gap in _gaps(values, labels):
            yield Group(
                attribute=attribute,
                group=gap.group,
                metric=metric,
                n=Amount(value=gap.n),
                mean=_amount(gap.mean),
                rest=_amount(gap.rest),
                gap=_amount(gap.gap, gap.low, gap.high),
            )


def _gaps(values: NDArray[np.float64], labels: NDArray[np.object_]) -> tuple[GroupGap, ...]:
    if len(values) <= _MOST_RESAMPLED_TWICE:
        return group_gap(values, labels, min_size=LEAST)
    known = ~np.isnan(values)
    values, labels = values[known], labels[known]
    names, counts = np.unique(labels, return_counts=True)
    large = names[counts >= LEAST]
    pooled = ~np.isin(labels, large)
    found = [(str(name), labels == name) for name in large]
    found += [(POOLED, pooled)] if pooled.sum() >= LEAST else []
    return tuple(_gap(name, values[inside], values[~inside]) for name, inside in found)


def _gap(name: str, here: NDArray[np.float64], rest: NDArray[np.float64]) -> GroupGap:
    """Compare two large samples."""
    nan = float("nan")
    if not len(rest):
        return GroupGap(name, len(here), float(here.mean()), nan, nan, nan, nan)
    gap = float(here.mean() - rest.mean())
    half = _NORMAL_95 * float(np.sqrt(here.var() / len(here) + rest.var() / len(rest)))
    return GroupGap(
        name, len(here), float(here.mean()), float(rest.mean()), gap, gap - half, gap + half
    )


def _amount(value: float, low: float | None = None, high: float | None = None) -> Amount:
    known = [
        None if end is None or np.isnan(end) else round(end, _DIGITS) for end in (value, low, high)
    ]
    return Amount(value=known[0], low=known[1], high=known[2])


_RISKS = (0.2, 0.1, 0.09, 0.05, 0.02, 0.01, 0.005)
NCP_OF = "ncp."
"""Prefix of the columns with the NCP of an attribute."""


def distributions(
    evidence: Evidence,
    pooled: Pooled,
    audited: tuple[Audited, ...],
    floor: float | None,
) -> tuple[Distribution, ...]:
    """Return the amounts that the report shows by category."""
    found: list[Distribution | None] = []
    if len(pooled.regions):
        found += [_sizes(evidence, pooled), _risk(pooled), _ncp(pooled)]
        found += [_pureness(pooled, floor)]
    found.append(_roc(audited))
    return tuple(distribution for distribution in found if distribution is not None)


def _sizes(evidence: Evidence, pooled: Pooled) -> Distribution:
    """Class sizes of people before protection, and of releases after it, in bins of k."""
    k = pooled.k or 1
    edges = [1, k, 2 * k, 5 * k, 10 * k]
    labels = [
        f"under {k:,}",
        *(f"{a:,}–{b - 1:,}" for a, b in pairwise(edges[1:])),
        f"{10 * k:,} or more",
    ]
    counts = np.histogram(pooled.values("k"), [*edges, np.inf])[0]
    total = int(counts.sum())
    released = tuple(Amount(value=int(count) / total) for count in counts)
    series = {"released explanations": released}
    before = _before(evidence, k, labels)
    note = ""
    if before is not None:
        series = {"people before protection": before, **series}
    else:
        note = "The class sizes before protection are not on record for this k."
    return Distribution(id="class_sizes", section=5, labels=tuple(labels), series=series, note=note)


def _before(evidence: Evidence, k: int, labels: list[str]) -> tuple[Amount, ...] | None:
    """Return the share of people per bin, if the run has it for this k; its own bins hold at least
    11 people.
    """
    facts = evidence.latest("population")
    people = facts.get("people")
    if (
        facts.get("k") != k
        or not isinstance(people, int)
        or people < LEAST
        or not facts.get("classes")
    ):
        return None
    ends = [k, 2 * k, 5 * k, 10 * k, None]
    inside: dict[str, list[int | str]] = {label: [] for label in labels}
    for group in facts.get("classes", ()):
        spanned = [
            label
            for label, start, end in zip(labels, [1, *ends], ends, strict=False)
            if _meet(group, start, end)
        ]
        count = group["people"]
        for label in spanned:
            told = count == 0 or (isinstance(count, int) and len(spanned) == 1)
            inside[label].append(count if told else "not told apart")
    return tuple(_joint(counts, people) for counts in inside.values())


def _meet(group: Mapping[str, Any], start: int | None, end: int | None) -> bool:
    """Say whether two ranges of class sizes overlap; ends are excluded, None means no end."""
    return (end is None or group["from"] < end) and (
        group["to"] is None or (start or 0) < group["to"]
    )


def _joint(counts: list[int | str], people: int) -> Amount:
    hidden = next((count for count in counts if isinstance(count, str)), None)
    if hidden is not None:
        return Amount(band=hidden)
    return Amount(value=round(sum(count for count in counts if isinstance(count, int)) / people, 3))


def _risk(pooled: Pooled) -> Distribution:
    """Share of releases with a prosecutor risk above each of several thresholds."""
    risk, k = 1 / pooled.values("k"), pooled.k or 1
    at = sorted({*_RISKS, 1 / k}, reverse=True)
    labels = tuple(f"{x:.3g}" for x in at)
    series = tuple(Amount(value=float((risk > x + _ROUNDING).mean())) for x in at)
    marks = {"EMA policy 0070": 0.09, "1 / k": 1 / k}
    return Distribution(
        id="risk", section=5, labels=labels, series={"share of releases": series}, marks=marks
    )


def _ncp(pooled: Pooled) -> Distribution | None:
    """Mean loss of each attribute, largest first."""
    columns = [str(name) for name in pooled.regions if str(name).startswith(NCP_OF)]
    amounts = {}
    for column in columns:
        losses = pooled.regions[column].dropna()
        if len(losses):
            amounts[column.removeprefix(NCP_OF)] = Amount(value=float(losses.mean()))
    if not amounts:
        return None
    order = sorted(amounts, key=lambda name: (-(amounts[name].value or 0), name))
    series = {"mean NCP": tuple(amounts[name] for name in order)}
    return Distribution(id="ncp_by_attribute", section=8, labels=tuple(order), series=series)


def _pureness(pooled: Pooled, floor: float | None) -> Distribution | None:
    """Pureness of all releases, sorted, at percentiles; each with its interval."""
    rows = (
        pooled.regions[["pureness", "pureness_low", "pureness_high"]]
        .dropna()
        .sort_values(["pureness", "pureness_low"])
    )
    if len(rows) < _ENOUGH_FOR_QUANTILES:
        return None
    percent = list(range(0, 101, 5))
    at = np.round(np.array(percent) / 100 * (len(rows) - 1)).astype(int)
    values = rows.to_numpy(dtype=float)[at]
    amounts = tuple(
        Amount(value=float(value), low=float(low), high=float(high)) for value, low, high in values
    )
    marks = {} if floor is None else {"floor": floor}
    labels = tuple(f"{p} %" for p in percent)
    return Distribution(
        id="pureness", section=7, labels=labels, series={"pureness": amounts}, marks=marks
    )


_FALSE_ALARMS = (0.1, 0.01, 0.001)
"""Rates of false alarms at which the report shows how many members an attack finds."""


def _roc(audited: tuple[Audited, ...]) -> Distribution | None:
    """Share of members that the judged attacks find, by the rate of false alarms."""
    series = {}
    for attack, audit in audited:
        curve = (audit.get("curves") or {}).get(attack.id)
        if curve is not None and attack.judged and attack.id not in GUESSES and curve["fpr"]:
            series[attack.id] = tuple(_members_found(attack, curve, rate) for rate in _FALSE_ALARMS)
    if not series:
        return None
    labels = tuple(f"{rate:g}" for rate in _FALSE_ALARMS)
    return Distribution(id="roc", section=9, labels=labels, series=series)


def _members_found(attack: Attack, curve: Mapping[str, Any], rate: float) -> Amount:
    """Return the share of members found, with its interval if the attack has one."""
    others = attack.figure("others")
    if others and rate < 1 / others:
        return NOT_MEASURED
    name = f"tpr_at_{rate:g}".replace(".", "_")
    if name not in attack.figures:
        return Amount(value=float(roc_height(curve["fpr"], curve["tpr"], rate)))
    value, low, high = (attack.figure(f"{name}{end}") for end in ("", "_low", "_high"))
    return NOT_MEASURED if value is None else Amount(value=value, low=low, high=high)
