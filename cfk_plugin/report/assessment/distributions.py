"""What the charts show: amounts per category, already under disclosure control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.report.assessment.audits import audited
from cfk_plugin.report.assessment.control import ENOUGH_FOR_QUANTILES, LEAST, Control, Figure
from cfk_plugin.report.assessment.figures import latest_comparison, latest_population
from cfk_plugin.report.assessment.roc import roc_curves
from cfk_plugin.report.data import Amount, Distribution

if TYPE_CHECKING:
    from cfk_plugin.report.assessment.pooled import Pooled
    from cfk_plugin.report.data import Attack
    from cfk_plugin.report.evidence import Evidence

_RISKS = (0.2, 0.1, 0.09, 0.05, 0.02, 0.01, 0.005)
_TURNS = (1, 2, 5, 10, 20)
_PREFIX = "ncp."


def distributions(
    evidence: Evidence, pooled: Pooled, attacks: tuple[Attack, ...], control: Control, floor: float | None
) -> tuple[Distribution, ...]:
    """Return every distribution that there is evidence for.

    Parameters
    ----------
    evidence, pooled, attacks
    control : Control
        Hides what the edition may not show.
    floor : float, optional
        Of pureness.
    """
    found: list[Distribution | None] = []
    if len(pooled.regions):
        found += [_sizes(evidence, pooled, control), _risk(pooled, control), _ncp(pooled)]
        found += [_pureness(pooled, control, floor)]
    found += [_frontier(evidence), _comparison(evidence), _intersection(attacks, control)]
    curves = roc_curves(audited(evidence), control)
    return (*(distribution for distribution in found if distribution is not None), *curves)


def _sizes(evidence: Evidence, pooled: Pooled, control: Control) -> Distribution:
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
    after = control.counts(
        dict(zip(labels, counts.tolist(), strict=True)), "distributions.class_sizes.after", people=False
    )
    series = {"released explanations": tuple(_part(after[label], total, control) for label in labels)}
    before = _before(evidence, k, labels)
    note = ""
    if before is not None:
        series = {"people before protection": before, **series}
        hidden = [label for label, amount in zip(labels, before, strict=True) if amount.band]
        control.hidden += [f"distributions.class_sizes.before.{label}" for label in hidden]
    else:
        note = "The class sizes before protection are not on record for this k."
    return Distribution(id="class_sizes", section=5, labels=tuple(labels), series=series, note=note)


def _part(amount: Amount, total: int, control: Control) -> Amount:
    if amount.value is None:
        return amount
    share = amount.value / total
    return Amount(value=round(share, 2) if control.hides_released else share)


def _before(evidence: Evidence, k: int, labels: list[str]) -> tuple[Amount, ...] | None:
    """Return the share of people per bin, where the run says it for this k; its own bins are of 11 people and more."""
    facts = latest_population(evidence) or {}
    people = facts.get("people")
    if facts.get("k") != k or not isinstance(people, int) or people < LEAST:
        return None
    ends = [k, 2 * k, 5 * k, 10 * k, None]
    inside: dict[str, list[int | str]] = {label: [] for label in labels}
    for group in facts.get("classes", ()):
        spanned = [
            label for label, start, end in zip(labels, [1, *ends], ends, strict=False) if _meet(group, start, end)
        ]
        count = group["people"]
        for label in spanned:
            told = count == 0 or (isinstance(count, int) and len(spanned) == 1)
            inside[label].append(count if told else "not told apart")
    return tuple(_joint(counts, people) for counts in inside.values())


def _meet(group: Mapping[str, Any], start: int | None, end: int | None) -> bool:
    """Say whether two ranges of class sizes have one in common; their ends are not in them, None is no end."""
    return (end is None or group["from"] < end) and (group["to"] is None or (start or 0) < group["to"])


def _joint(counts: list[int | str], people: int) -> Amount:
    hidden = next((count for count in counts if isinstance(count, str)), None)
    if hidden is not None:
        return Amount(band=hidden)
    return Amount(value=round(sum(count for count in counts if isinstance(count, int)) / people, 3))


def _risk(pooled: Pooled, control: Control) -> Distribution:
    """Share of releases with a prosecutor risk above each of some thresholds."""
    risk, k = 1 / pooled.values("k"), pooled.k or 1
    at = sorted({*_RISKS, 1 / k}, reverse=True)
    series = tuple(
        control.amount(
            Figure(value=float((risk > x + 1e-12).mean()), n=len(risk), kind="share_of_requests"),
            f"distributions.risk.{x:.3g}",
        )
        for x in at
    )
    marks = {"EMA policy 0070": 0.09, "1 / k": 1 / k}
    return Distribution(
        id="risk", section=5, labels=tuple(f"{x:.3g}" for x in at), series={"share of releases": series}, marks=marks
    )


def _ncp(pooled: Pooled) -> Distribution | None:
    """Mean loss of each attribute, largest first."""
    columns = [name for name in pooled.regions if str(name).startswith(_PREFIX)]
    means = {str(name).removeprefix(_PREFIX): float(pooled.regions[name].mean()) for name in columns}
    means = {name: mean for name, mean in means.items() if not np.isnan(mean)}
    if not means:
        return None
    order = sorted(means, key=lambda name: (-means[name], name))
    amounts = tuple(Amount(value=means[name]) for name in order)
    return Distribution(id="ncp_by_attribute", section=8, labels=tuple(order), series={"mean NCP": amounts})


def _pureness(pooled: Pooled, control: Control, floor: float | None) -> Distribution | None:
    """Pureness of all releases, sorted, at percentiles; each with its interval."""
    rows = (
        pooled.regions[["pureness", "pureness_low", "pureness_high"]].dropna().sort_values(["pureness", "pureness_low"])
    )
    if len(rows) < ENOUGH_FOR_QUANTILES:
        control.hidden += ["distributions.pureness"] if len(rows) else []
        return None
    percent = list(range(0, 101, 5))
    at = np.round(np.array(percent) / 100 * (len(rows) - 1)).astype(int)
    values = rows.to_numpy(dtype=float)[at]
    amounts = tuple(Amount(value=float(v), low=float(low), high=float(high)) for v, low, high in values)
    marks = {} if floor is None else {"floor": floor}
    labels = tuple(f"{p} %" for p in percent)
    return Distribution(id="pureness", section=7, labels=labels, series={"pureness": amounts}, marks=marks)


def _frontier(evidence: Evidence) -> Distribution | None:
    """NCP and pureness of the counterfactuals that are released at every k, as it was logged last."""
    found = next((run.frontier for run in reversed(evidence.runs) if run.frontier is not None), None)
    points = [] if found is None else list(found.get("points", ()))
    if not points:
        return None
    names = {"NCP": "common_ncp_mean", "pureness": "common_pureness_mean"}
    series = {title: tuple(_logged(point.get(name)) for point in points) for title, name in names.items()}
    note = "Over the counterfactuals that are released at every k, so that the figures compare."
    labels = tuple(f"{point['k']}" for point in points)
    return Distribution(id="frontier", section=8, labels=labels, series=series, note=note)


_WAYS = {"policy": "this policy", "mondrian": "Mondrian over the whole table", "raw": "no protection"}
_COMPARED = {
    "NCP": "ncp_mean",
    "pureness": "pureness_mean",
    "distance to the nearest training row": "nearest",
    "to the 5 nearest": "nearest_5",
}


def _comparison(evidence: Evidence) -> Distribution | None:
    """Compare the policy with no protection and the published baseline, as it was logged last."""
    known = [way for way in latest_comparison(evidence) if way.get("name") in _WAYS]
    if not known:
        return None
    series = {title: tuple(_logged(way.get(name)) for way in known) for title, name in _COMPARED.items()}
    return Distribution(id="comparison", section=8, labels=tuple(_WAYS[way["name"]] for way in known), series=series)


def _logged(found: Mapping[str, Any] | None) -> Amount:
    known = found or {}
    return Amount(value=known.get("value"), low=known.get("low"), high=known.get("high"))


def _intersection(attacks: tuple[Attack, ...], control: Control) -> Distribution | None:
    """People who are left after several releases for one record."""
    found = next((attack for attack in attacks if attack.id == "intersection"), None)
    if found is None:
        return None
    left = list(_left(found))
    if not left:
        return None
    amounts = tuple(
        control.amount(Figure(value=value, kind="class_size"), f"distributions.intersection.{turn}")
        for turn, value in left
    )
    labels = tuple(f"{turn}" for turn, _ in left)
    return Distribution(id="intersection", section=6, labels=labels, series={"fewest people left": amounts})


def _left(attack: Attack) -> Iterator[tuple[int, float]]:
    for turn in _TURNS:
        amount = attack.figures.get(f"k_after_{turn}_min")
        if amount is not None and amount.value is not None:
            yield turn, amount.value
