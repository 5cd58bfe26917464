"""Tables that set our figures beside the paper's and beside its method on the same models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cfk_plugin.reproduction.page.labels import in_order, label, methods_in_order
from cfk_plugin.reproduction.page.writing import (
    NONE,
    NOT_RUN,
    amount,
    interval,
    number,
    percent,
    points,
    seconds,
    table,
    times,
)
from cfk_plugin.reproduction.results import (
    OURS,
    THEIRS,
    Aggregate,
    Printed,
    PublishedResult,
    Results,
    Verdict,
    published,
)

CF_K = (THEIRS, "exact-pureness", "exact-ncp", "exact-weighted", "reciprocal")
MONDRIAN = ("mondrian-raw", "mondrian", "exact-pureness")

Cell = Callable[[Aggregate | PublishedResult], str]


def quality(found: Aggregate | PublishedResult) -> str:
    """Write mean NCP and pureness."""
    return f"{percent(found.ncp)} / {percent(found.pureness)}"


def sizes(found: Aggregate | PublishedResult) -> str:
    """Write C_DM, C_DM per explanation, and CM."""
    return f"{number(found.cdm, 0)} / {number(found.cdm_per_explanation)} / {number(found.cm)}"


def duration(found: Aggregate | PublishedResult) -> str:
    """Write the time per explanation."""
    return seconds(found.seconds)


def beside(results: Results, k: int, printed: Printed, methods: Sequence[str], cell: Cell) -> str:
    """Return one row per table: what the paper prints, then what each method gave here.

    Parameters
    ----------
    results : Results
    k : int
    printed : {"cf-k", "mondrian"}
        Whose numbers of the paper stand in the first column.
    methods : sequence of str
        Those that were run on no table are left out, except for the paper's own.
    cell : callable
        Writes the figures.
    """
    shown = [m for m in methods if m == THEIRS or any(a.method == m and a.k == k for a in results.aggregates)]
    rows = []
    for name in tables_of(results, k):
        paper = published().result(printed, k, name)
        ours = [results.find(name, method, k) for method in shown]
        cells = [NOT_RUN if found is None else cell(found) for found in ours]
        rows.append([name, NONE if paper is None else cell(paper), *cells])
    return table(["table", f"paper, {label(printed) if printed == 'cf-k' else 'Mondrian'}", *map(label, shown)], rows)


def tables_of(results: Results, k: int | None = None) -> list[str]:
    """Return the names of the tables that anything was run on, at a k or at all."""
    return in_order(a.table for a in results.aggregates if k is None or a.k == k)


def ks_of(results: Results) -> list[int]:
    """Return every k that anything was run with."""
    return sorted({a.k for a in results.aggregates})


def verdict_table(results: Results, against: str, method: str = OURS[0]) -> str:
    """Return our figures beside a yardstick's, and whether they are better; one row per table and k."""
    rows = [_judged(verdict) for verdict in verdicts_of(results, against, method)]
    theirs = "paper" if against == "paper" else "GRASP"
    head = ["table", "k", "n", f"NCP {theirs}", "ours", "difference"]
    head += [f"pureness {theirs}", "ours", "difference", "verdict"]
    return table(head, rows)


def verdicts_of(results: Results, against: str, method: str = OURS[0]) -> list[Verdict]:
    """Return the verdicts on one method against one yardstick, as the paper orders tables."""
    found = [v for v in results.verdicts if (v.against, v.method) == (against, method)]
    order = in_order(v.table for v in found)
    return sorted(found, key=lambda v: (order.index(v.table), v.k))


def _judged(verdict: Verdict) -> list[str]:
    return [
        verdict.table,
        str(verdict.k),
        str(verdict.n),
        percent(verdict.their_ncp),
        percent(verdict.ncp),
        points(_minus(verdict.ncp, verdict.their_ncp)) + interval(verdict.ncp_low, verdict.ncp_high),
        percent(verdict.their_pureness),
        percent(verdict.pureness),
        points(_minus(verdict.pureness, verdict.their_pureness))
        + interval(verdict.pureness_low, verdict.pureness_high),
        said(verdict),
    ]


def _minus(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def said(verdict: Verdict) -> str:
    """Return a verdict in words, with the amount where something is missed."""
    if not verdict.is_measured:
        return "not measured"
    parts = []
    for name, word, by in (
        ("NCP", verdict.ncp_word, verdict.ncp_missed_by),
        ("pureness", verdict.pureness_word, verdict.pureness_missed_by),
    ):
        if word == "missed":
            parts.append(f"**{name} missed by {amount(by)} points**")
        elif word in ("equal", "tied"):
            parts.append(f"{name} {word}")
    if verdict.is_reached:
        return f"reached ({parts[0]})" if len(parts) == 1 else "equal" if parts else "reached"
    return ", ".join(parts)


def tally(results: Results, against: str) -> Iterator[str]:
    """Return for each of our methods in how many of the combinations that were run both figures were reached."""
    for method in OURS:
        found = verdicts_of(results, against, method)
        if found:
            reached = sum(v.is_reached for v in found)
            ncp = sum(v.ncp_word in ("reached", "equal") for v in found)
            pureness = sum(v.pureness_word in ("reached", "equal") for v in found)
            yield (
                f"{label(method)}: both in {times(reached, len(found))}, NCP in {times(ncp, len(found))}, "
                f"pureness in {times(pureness, len(found))}"
            )


def people(results: Results) -> str:
    """Return what the paper does not report: people who are left against stronger adversaries, and what is proven."""
    rows = [
        [
            found.table,
            str(found.k),
            label(found.method),
            _mean_and_least(found.k_desired, found.k_desired_min),
            _mean_and_least(found.k_consistent, found.k_consistent_min),
            _mean_and_least(found.k_effective, found.k_effective_min) + _counted(found),
            percent(found.proven, 0),
            percent(found.pure, 0),
        ]
        for found in _every(results)
    ]
    head = ["table", "k", "method", "k desired", "k consistent", "k effective", "proven optimal %", "pure %"]
    return table(head, rows, left=3)


def _every(results: Results) -> Iterator[Aggregate]:
    for name in tables_of(results):
        for k in ks_of(results):
            for method in (THEIRS, "exact-pureness", "reciprocal"):
                found = results.find(name, method, k)
                if found is not None:
                    yield found


def _mean_and_least(mean: float | None, least: float | None) -> str:
    return NONE if mean is None else f"{number(mean, 1)} ({number(least, 0)})"


def _counted(found: Aggregate) -> str:
    return f", of {found.k_effective_n}" if 0 < found.k_effective_n < found.released else ""


def runs(results: Results) -> str:
    """Return every figure of the tables above with its interval and the run that it is from."""
    rows = [
        [
            a.table,
            str(a.k),
            label(a.method),
            times(a.released, a.n),
            percent(a.ncp) + _ends(a.ncp_low, a.ncp_high),
            percent(a.pureness) + _ends(a.pureness_low, a.pureness_high),
            f"{seconds(a.search_seconds)} + {seconds(a.model_seconds)}",
            NONE if a.run_id is None else f"`{a.run_id}`",
        ]
        for name in tables_of(results)
        for k in ks_of(results)
        for method in methods_in_order(a.method for a in results.aggregates)
        if (a := results.find(name, method, k)) is not None
    ]
    head = ["table", "k", "method", "released", "NCP %", "pureness %", "search + model", "run"]
    return table(head, rows, left=3)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"


def scenes(results: Results) -> str:
    """Return what was explained: the tables beside the paper's Table 5, and the forests that tuning chose."""
    rows = []
    for name in in_order(results.scenes):
        scene, paper = results.scenes[name], published().data.get(name)
        leaves = "unlimited" if scene.max_leaf_nodes is None else str(scene.max_leaf_nodes)
        own = (number(scene.rows_train + scene.rows_test, 0), percent(scene.unique), percent(scene.below_10))
        printed = (NONE,) * 3
        if paper is not None:
            printed = (number(paper.rows, 0), percent(paper.unique), percent(paper.below_10))
        pairs = [f"{theirs} / {ours}" for theirs, ours in zip(printed, own, strict=True)]
        answered = f"{scene.explained} ({scene.unanswered} unanswered)" if scene.unanswered else str(scene.explained)
        rows.append([name, *pairs, f"{scene.n_estimators} × {leaves}", percent(scene.accuracy, 1), answered])
    head = ["table", "rows", "unique %", "in classes below 10 %", "trees × most leaves", "accuracy %", "explained"]
    return table(head, rows)
