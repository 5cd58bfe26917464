"""What the numbers say, in sentences: each is computed from results, so that it changes with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from cfk_plugin.reproduction.page.comparison import ks_of, said, tables_of, verdicts_of
from cfk_plugin.reproduction.page.labels import label, methods_in_order
from cfk_plugin.reproduction.page.study_tables import PARAMETERS, gap, group_k
from cfk_plugin.reproduction.page.writing import amount, listed, number, percent, points, seconds, times
from cfk_plugin.reproduction.results import OURS, PAPER, THEIRS, Aggregate, Results, Row, Verdict, published

_SAME = 0.0005  # half a digit of the paper's percentages, and rounding


def missed(results: Results, against: str) -> list[str]:
    """Return for every table and k that is missed by how much, and what the other runs say about it."""
    found = [v for v in verdicts_of(results, against) if v.is_measured and not v.is_reached]
    return [
        f"**{v.table}, k = {v.k}**: {said(v).replace('**', '')}. {' '.join(_why(results, v))}".strip() for v in found
    ]


def _why(results: Results, verdict: Verdict) -> Iterator[str]:
    better = [
        other
        for method in OURS[1:]
        for other in verdicts_of(results, verdict.against, method)
        if (other.table, other.k) == (verdict.table, verdict.k) and other.is_reached
    ]
    for other in better:
        yield f"With the objective of “{label(other.method)}” both are reached: {_quality(other)}."
    if verdict.ncp_word == "missed":
        yield from _why_ncp(results, verdict)
    if verdict.pureness_word == "missed":
        yield from _why_pureness(results, verdict)
    if verdict.against == "paper":
        yield from _method_here(results, verdict)


def _why_ncp(results: Results, verdict: Verdict) -> Iterator[str]:
    least = results.find(verdict.table, "exact-ncp", verdict.k)
    if verdict.against == "grasp":
        if verdict.pureness_word == "reached":
            yield f"GRASP's regions are smaller and less pure, by {_apart(verdict)} points."
    elif least is not None and least.ncp is not None and verdict.their_ncp is not None:
        if least.released != verdict.n:
            return
        what = "the least possible mean" if least.proven == 1 else "the least mean that was found, not all proven,"
        if least.ncp >= verdict.their_ncp:
            yield f"For these counterfactuals and any region of k people, {what} is {percent(least.ncp)} %."
        else:
            yield f"Of that NCP, {percent(least.ncp)} % is {what} at any pureness; the rest is the price of pureness."


def _why_pureness(results: Results, verdict: Verdict) -> Iterator[str]:
    ours = results.find(verdict.table, verdict.method, verdict.k)
    if ours is not None and ours.pure is not None:
        yield f"A pure region was found for {percent(ours.pure, 0)} % of the explanations."


def _method_here(results: Results, verdict: Verdict) -> Iterator[str]:
    grasp = results.find(verdict.table, THEIRS, verdict.k)
    if grasp is not None and grasp.ncp is not None:
        yield (
            f"The paper's own method gives {percent(grasp.ncp)} % / {percent(grasp.pureness)} % on this model "
            f"(first {grasp.n} explanations)."
        )


def data_differs(results: Results) -> list[str]:
    """Return for every table whose rows are not the paper's in what they differ from Table 5."""
    found = []
    for name, scene in results.scenes.items():
        paper, rows = published().data.get(name), scene.rows_train + scene.rows_test
        if paper is None:
            continue
        parts = []
        if rows != paper.rows:
            parts.append(f"{rows:,} rows instead of {paper.rows:,}")
        if abs(scene.unique - paper.unique) > _SAME:
            parts.append(f"{percent(scene.unique)} % of rows are unique instead of {percent(paper.unique)} %")
        if abs(scene.below_10 - paper.below_10) > _SAME:
            parts.append(f"{percent(scene.below_10)} % in classes below 10 instead of {percent(paper.below_10)} %")
        if parts:
            found.append(f"**{name}**: {listed(parts)}. {_COPIES.get(name, '')}".strip())
    return found


_COPIES: Mapping[str, str] = {
    "hospital": "The copy is another sample of the same kind of file; the paper's own was not to be had.",
    "informs": (
        "The copy is of the survey year 2005 alone, with the five quasi-identifiers that the paper prints; the "
        "authors' script uses a sixth, RACEX, and a file of several years."
    ),
}


def agreements(results: Results) -> list[str]:
    """Return the paper's findings with in how many cases they hold here."""
    return [
        *_over_mondrian(results),
        *_with_k(results),
        *_grasp_and_paper(results),
        *_mondrian_and_paper(results),
        *_parameters(results),
        *_groups(results),
        *_plausible(results),
    ]


def _over_mondrian(results: Results) -> Iterator[str]:
    for method, other in ((THEIRS, "mondrian-raw"), (OURS[0], "mondrian")):
        found = [v for v in verdicts_of(results, other, method) if v.is_measured]
        if found:
            less = sum(v.ncp_word == "reached" for v in found)
            pure = sum(v.pureness_word != "missed" for v in found)
            yield (
                f"The paper finds that generalising explanations costs less than the whole table. {label(method)} "
                f"has lower NCP than {label(other)} in {times(less, len(found))} combinations of table and k, and at "
                f"least its pureness in {times(pure, len(found))}."
            )


def _with_k(results: Results) -> Iterator[str]:
    ks = ks_of(results)
    for method in (THEIRS, "exact-pureness"):
        chains = [[_found(results, name, method, k) for k in ks] for name in tables_of(results)]
        whole = [[a for a in chain if a] for chain in chains if all(chain)]
        if whole and len(ks) > 1:
            ncp = sum(_is_sorted([_value(a.ncp) for a in chain]) for chain in whole)
            pureness = sum(_is_sorted([-_value(a.pureness) for a in chain]) for chain in whole)
            yield (
                f"The paper finds that a larger k costs NCP and pureness. From k = {ks[0]} to {ks[-1]}, mean NCP of "
                f"{label(method)} never falls on {times(ncp, len(whole))} tables, and mean pureness never rises on "
                f"{times(pureness, len(whole))}."
            )


def _grasp_and_paper(results: Results) -> Iterator[str]:
    found = [v for v in verdicts_of(results, PAPER, THEIRS) if v.is_measured]
    if found:
        ncp = max(found, key=lambda v: abs(_value(v.ncp) - _value(v.their_ncp)))
        pureness = max(found, key=lambda v: abs(_value(v.pureness) - _value(v.their_pureness)))
        yield (
            f"The paper's method, run here, is farthest from what the paper prints by "
            f"{points(_value(ncp.ncp) - _value(ncp.their_ncp))} points of NCP ({ncp.table}, k = {ncp.k}) and "
            f"{points(_value(pureness.pureness) - _value(pureness.their_pureness))} points of pureness "
            f"({pureness.table}, k = {pureness.k})."
        )


def _mondrian_and_paper(results: Results) -> Iterator[str]:
    ratios = {
        (name, k): _value(ours.ncp) / paper.ncp
        for name in tables_of(results)
        for k in ks_of(results)
        if (ours := _found(results, name, "mondrian-raw", k)) and (paper := published().result("mondrian", k, name))
    }
    if ratios:
        low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        yield (
            f"Mondrian with raw widths has {number(ratios[low])} ({low[0]}, k = {low[1]}) to {number(ratios[high])} "
            f"({high[0]}, k = {high[1]}) times the NCP that the paper prints for Mondrian."
        )


def _parameters(results: Results) -> Iterator[str]:
    rows = [row for row in results.rows("parameters") if row["method"] == THEIRS]
    for parameter, finding in _PAPER_PARAMETERS.items():
        own = sorted((row for row in rows if row["parameter"] == parameter), key=lambda row: float(row["value"] or 0))
        if len(own) > 1:
            a, b = own[0], own[-1]
            yield (
                f"The paper finds that {finding}. From {PARAMETERS[parameter]} = {a['value']:g} to {b['value']:g}, NCP "
                f"goes from {percent(_number(a['ncp']))} % to {percent(_number(b['ncp']))} %, pureness from "
                f"{percent(_number(a['pureness']))} % to {percent(_number(b['pureness']))} %, time from "
                f"{seconds(_number(a['seconds']))} to {seconds(_number(b['seconds']))} ({label(THEIRS)}, "
                f"{a['table']}, {b['n']} explanations, which leave room for chance)."
            )


_PAPER_PARAMETERS = {
    "k": "a larger k costs NCP, pureness and time",
    "alpha": "a larger α costs NCP and pureness, and saves time",
    "iterations": "more iterations better NCP and pureness, and cost time",
}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _groups(results: Results) -> Iterator[str]:
    rows = [row for row in results.rows("fairness") if (row["group"], row["by"]) == ("minority", "counterfactual")]
    for method in methods_in_order(str(row["method"]) for row in rows):
        own = [row for row in rows if row["method"] == method and row["difference"] is not None]
        for metric, name in (("ncp", "NCP"), ("pureness", "pureness")):
            shown = [row for row in own if (row["metric"], row["k"]) == (metric, group_k(results))]
            higher = [row for row in shown if float(row["difference"] or 0) > 0]
            clear = [r for r in shown if float(r["difference_low"] or 0) > 0 or float(r["difference_high"] or 0) < 0]
            if shown:
                where = listed(f"{row['table']} ({gap(row)})" for row in clear) or "none"
                yield (
                    f"The paper finds {_PAPER_GROUPS[metric]}. With {label(method)}, k = {shown[0]['k']}, mean {name} "
                    f"is higher for the minority on {times(len(higher), len(shown))} tables; the interval of the "
                    f"difference leaves out 0 on {where}."
                )
            if metric == "ncp":
                yield from _growth(method, [row for row in own if row["metric"] == metric])


_PAPER_GROUPS = {
    "ncp": "NCP higher for the minority on every table but hospital",
    "pureness": "no difference in pureness between the groups",
}


def _growth(method: str, rows: list[Row]) -> Iterator[str]:
    ks = sorted({row["k"] for row in rows if isinstance(row["k"], int)})
    by_table: dict[str, dict[Any, float]] = {}
    for row in rows:
        by_table.setdefault(str(row["table"]), {})[row["k"]] = float(row["difference"] or 0)
    whole = [found for found in by_table.values() if len(ks) > 1 and {ks[0], ks[-1]} <= set(found)]
    if whole:
        wider = sum(found[ks[-1]] > found[ks[0]] for found in whole)
        yield (
            f"The paper says that this difference grows with k. With {label(method)} that of NCP is larger at "
            f"k = {ks[-1]} than at k = {ks[0]} on {times(wider, len(whole))} tables."
        )


def _plausible(results: Results) -> Iterator[str]:
    rows = [row for row in results.rows("plausibility") if row["nearest"] is not None]
    perturbed = [row for row in rows if str(row["method"]).startswith("nice") and row["method"] != "nice-none"]
    for method in (THEIRS, "exact-pureness"):
        own = [row for row in rows if row["method"] == method]
        if own and perturbed:
            best = min(float(row["nearest"] or 0) for row in perturbed)
            nearer = sum(float(row["nearest"] or 0) < best for row in own)
            yield (
                f"Plausibility: at {times(nearer, len(own))} k, {label(method)} is nearer to the training rows than "
                f"every NICE that perturbs (nearest: {number(best)})."
            )


def _found(results: Results, name: str, method: str, k: int) -> Aggregate | None:
    found = results.find(name, method, k)
    return None if found is None or found.ncp is None or found.pureness is None else found


def _value(value: float | None) -> float:
    return 0.0 if value is None else value  # `_found` gives only aggregates that have both


def _is_sorted(values: list[float]) -> bool:
    return all(a <= b for a, b in pairwise(values))


def _quality(verdict: Verdict) -> str:
    return f"{percent(verdict.ncp)} % / {percent(verdict.pureness)} %"


def _apart(verdict: Verdict) -> str:
    return amount(_value(verdict.pureness) - _value(verdict.their_pureness))
