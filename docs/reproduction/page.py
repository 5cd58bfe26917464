"""The page on the experiments, in Markdown: a pure function of their results."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined

from reproduction.plots import PLOTS
from reproduction.results import (
    OURS,
    PAPER,
    THEIRS,
    Aggregate,
    Printed,
    PublishedResult,
    Results,
    Row,
    Verdict,
    label,
    main_k,
    methods_in_order,
    published,
    tables_in_order,
)

TEMPLATE = "page.md.j2"
NOT_RUN, NONE = "not run", "–"

_CF_K = (THEIRS, "exact-pureness", "exact-ncp", "reciprocal")
_MONDRIAN = ("mondrian-raw", "mondrian", "exact-pureness")
_PARAMETERS = {"k": "k", "alpha": "α", "iterations": "iterations"}

Cell = Callable[[Aggregate | PublishedResult], str]


def render(results: Results, figures: str = "figures/", template: str | None = None) -> str:
    """Return the page as Markdown; a `template` extends `TEMPLATE` with comments on these
    results.
    """
    sources = {TEMPLATE: (Path(__file__).parent / TEMPLATE).read_text("utf-8")}
    environment = Environment(
        loader=DictLoader(sources),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - the page is Markdown
    )
    asked = (
        environment.get_template(TEMPLATE)
        if template is None
        else environment.from_string(template)
    )
    versions = {
        f"{name} {version}"
        for s in results.settings.values()
        for name, version in s.versions.items()
    }
    text = asked.render(
        results=results,
        published=published(),
        main=label(OURS[0]),
        versions=", ".join(sorted(versions)),
        asked=_asked(results),
        scenes=_scenes(results),
        against_paper=_verdict_table(results, PAPER),
        against_grasp=_verdict_table(results, THEIRS),
        tally_paper=_tally(results, PAPER),
        tally_grasp=_tally(results, THEIRS),
        cf_k=list(_parts(results, "cf-k", _CF_K)),
        mondrian=list(_parts(results, "mondrian", _MONDRIAN)),
        others=list(_others(results)),
        people=_people(results),
        group_k=main_k(results.rows("fairness")),
        studies={name: write(results.rows(name)) for name, write in _STUDY_TABLES.items()},
        runs=_runs(results),
        runs_of_studies=_runs_of_studies(results),
        figure=lambda name, alt: (
            f"![{alt}]({figures}{name}.svg)" if PLOTS[name].rows(results) else ""
        ),
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


# How numbers and tables are written.


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table, or a note that it is empty; the first `left` columns hold text."""
    body = [list(row) for row in rows]
    if not body:
        return f"_{NOT_RUN.capitalize()}._"
    rule = ["---" if place < left else "---:" for place in range(len(head))]
    lines = ([cell.replace("|", "\\|") for cell in line] for line in (list(head), rule, *body))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share in percent without the sign; only exactly 0 and 100 are written as such."""
    if share is None:
        return NONE
    text, step = f"{100 * share:.{digits}f}", 10**-digits
    if share > 0 and float(text) == 0:
        return f"<{step:.{digits}f}"
    if share < 1 and float(text) == 100:
        return f">{100 - step:.{digits}f}"
    return text


def points(difference: float | None) -> str:
    """Return a difference of shares in percentage points: signed, two decimals, or the first digit
    that is not 0.
    """
    if difference is None:
        return NONE
    if difference == 0:
        return "0"
    text = f"{100 * difference:+.2f}" if abs(difference) >= 0.0001 else f"{100 * difference:+.1g}"
    return text.replace("-", "−")


def number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """Return a time in seconds, or in milliseconds if it is short."""
    if value is None:
        return NONE
    if value >= 1:
        return f"{value:.1f} s"
    milliseconds = 1000 * value
    if milliseconds == 0:
        return "0 ms"
    digits = max(0, 1 - math.floor(math.log10(milliseconds))) if milliseconds < 100 else 0
    return f"{milliseconds:.{min(digits, 3)}f} ms"


def _with_ends(
    value: float | None, low: float | None, high: float | None, write: Callable[[Any], str]
) -> str:
    return write(value) + (
        "" if low is None or high is None else f" ({write(low)} to {write(high)})"
    )


def _spread(row: Row, name: str, write: Callable[[Any], str] = percent) -> str:
    return _with_ends(row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high"), write)


# What was run, and the paper's Tables 5 to 7 and 9 to 12.


def _rows(results: Results) -> list[Row]:
    return [{"table": a.table, "k": a.k, "method": a.method} for a in results.aggregates]


def _ks(results: Results) -> list[int]:
    return sorted({a.k for a in results.aggregates})


def _every(results: Results, methods: Sequence[str]) -> Iterator[Aggregate]:
    """Return the aggregates of some methods in the order of tables, k and these methods."""
    for name in tables_in_order(_rows(results)):
        for k in _ks(results):
            yield from (
                found for method in methods if (found := results.find(name, method, k)) is not None
            )


def _asked(results: Results) -> str:
    asked = [
        results.settings[name]
        for name in tables_in_order([{"table": name} for name in results.settings])
    ]
    rows = [[s.table, s.explainer, s.grid, str(s.limit), str(s.seed), s.source] for s in asked]
    return table(["table", "counterfactuals", "grid", "at most", "seed", "rows"], rows, left=3)


def _scenes(results: Results) -> str:
    """Return what was explained: the tables beside the paper's Table 5, with the forests that
    tuning chose.
    """
    rows = []
    for name in tables_in_order([{"table": name} for name in results.scenes]):
        scene, paper = results.scenes[name], published().data[name]
        leaves = "unlimited" if scene.max_leaf_nodes is None else str(scene.max_leaf_nodes)
        answered = (
            f"{scene.explained} ({scene.unanswered} unanswered)"
            if scene.unanswered
            else str(scene.explained)
        )
        rows.append(
            [
                name,
                f"{number(paper.rows, 0)} / {number(scene.rows_train + scene.rows_test, 0)}",
                f"{percent(paper.unique)} / {percent(scene.unique)}",
                f"{percent(paper.below_10)} / {percent(scene.below_10)}",
                f"{scene.n_estimators} × {leaves}",
                percent(scene.accuracy, 1),
                answered,
            ]
        )
    head = [
        "table",
        "rows",
        "unique %",
        "in classes below 10 %",
        "trees × most leaves",
        "accuracy %",
        "explained",
    ]
    return table(head, rows)


def _parts(results: Results, printed: Printed, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    for k in _ks(results):
        sources = {
            f" ({p.source})"
            for (of, at, _), p in published().results.items()
            if (of, at) == (printed, k)
        }
        yield {
            "k": k,
            "source": "".join(sources),
            "table": _beside(results, k, printed, methods, _quality),
        }


def _others(results: Results) -> Iterator[dict[str, Any]]:
    for k in _ks(results):
        yield {
            "k": k,
            "cf_k_times": _beside(results, k, "cf-k", _CF_K, lambda found: seconds(found.seconds)),
            "cf_k_sizes": _beside(results, k, "cf-k", _CF_K, _sizes),
            "mondrian_sizes": _beside(results, k, "mondrian", _MONDRIAN[:2], _sizes),
        }


def _beside(results: Results, k: int, printed: Printed, methods: Sequence[str], cell: Cell) -> str:
    """Return one row per table: what the paper prints, then the results of each method here."""
    at_k = [row for row in _rows(results) if row["k"] == k]
    shown = [m for m in methods if m == THEIRS or any(row["method"] == m for row in at_k)]
    rows = []
    for name in tables_in_order(at_k):
        paper, ours = (
            published().result(printed, k, name),
            [results.find(name, method, k) for method in shown],
        )
        cells = [NOT_RUN if found is None else cell(found) for found in ours]
        rows.append([name, NONE if paper is None else cell(paper), *cells])
    theirs = label(printed) if printed == "cf-k" else "Mondrian"
    return table(["table", f"paper, {theirs}", *map(label, shown)], rows)


def _quality(found: Aggregate | PublishedResult) -> str:
    return f"{percent(found.ncp)} / {percent(found.pureness)}"


def _sizes(found: Aggregate | PublishedResult) -> str:
    """Write C_DM, C_DM per explanation, and CM."""
    return f"{number(found.cdm, 0)} / {number(found.cdm_per_explanation)} / {number(found.cm)}"


# Whether the paper's figures are reached.


def _verdicts(results: Results, against: str, method: str = OURS[0]) -> list[Verdict]:
    found = [v for v in results.verdicts if (v.against, v.method) == (against, method)]
    order = tables_in_order({"table": v.table} for v in found)
    return sorted(found, key=lambda v: (order.index(v.table), v.k))


def _verdict_table(results: Results, against: str) -> str:
    """Return our figures beside a yardstick's, and whether they are better; one row per table and
    k.
    """
    rows = [
        [
            v.table,
            str(v.k),
            str(v.n),
            percent(v.their_ncp),
            percent(v.ncp),
            _with_ends(v.ncp_by, v.ncp_low, v.ncp_high, points),
            percent(v.their_pureness),
            percent(v.pureness),
            _with_ends(v.pureness_by, v.pureness_low, v.pureness_high, points),
            _in_words(v),
        ]
        for v in _verdicts(results, against)
    ]
    theirs = "paper" if against == PAPER else "GRASP"
    head = ["table", "k", "n", f"NCP {theirs}", "ours", "difference"]
    head += [f"pureness {theirs}", "ours", "difference", "verdict"]
    return table(head, rows)


def _in_words(verdict: Verdict) -> str:
    """Return a verdict in words, with the amount by which a figure is missed."""
    if not verdict.is_measured:
        return "not measured"
    parts = []
    figures = (
        ("NCP", verdict.ncp_word, verdict.ncp_by),
        ("pureness", verdict.pureness_word, verdict.pureness_by),
    )
    for name, word, by in figures:
        if word == "missed":
            parts.append(f"**{name} missed by {points(abs(by or 0)).lstrip('+')} points**")
        elif word in ("equal", "tied"):
            parts.append(f"{name} {word}")
    if verdict.is_reached:
        return f"reached ({parts[0]})" if len(parts) == 1 else "equal" if parts else "reached"
    return ", ".join(parts)


def _tally(results: Results, against: str) -> str:
    """Return, for each of our methods, in how many of the combinations the figures were reached."""
    rows = []
    for method in OURS:
        if found := _verdicts(results, against, method):
            ncp = sum(v.ncp_word in ("reached", "equal") for v in found)
            pureness = sum(v.pureness_word in ("reached", "equal") for v in found)
            counts = (sum(v.is_reached for v in found), ncp, pureness)
            rows.append([label(method), *(f"{count} of {len(found)}" for count in counts)])
    return table(["objective", "both", "NCP", "pureness"], rows)


# What the paper does not report, and the source of every number.


def _people(results: Results) -> str:
    rows = []
    for a in _every(results, (THEIRS, "exact-pureness", "reciprocal")):
        of = f", of {a.k_effective_n}" if 0 < a.k_effective_n < a.released else ""
        pairs = (
            (a.k_desired, a.k_desired_min),
            (a.k_consistent, a.k_consistent_min),
            (a.k_effective, a.k_effective_min),
        )
        desired, consistent, effective = (
            NONE if m is None else f"{number(m, 1)} ({number(n, 0)})" for m, n in pairs
        )
        proven = (percent(a.proven, 0), percent(a.pure, 0))
        rows.append(
            [a.table, str(a.k), label(a.method), desired, consistent, effective + of, *proven]
        )
    head = [
        "table",
        "k",
        "method",
        "k desired",
        "k consistent",
        "k effective",
        "proven optimal %",
        "pure %",
    ]
    return table(head, rows, left=3)


def _runs(results: Results) -> str:
    """Return every figure of the tables with its interval and its run."""
    rows = [
        [
            a.table,
            str(a.k),
            label(a.method),
            f"{a.released} of {a.n}",
            _with_ends(a.ncp, a.ncp_low, a.ncp_high, percent),
            _with_ends(a.pureness, a.pureness_low, a.pureness_high, percent),
            f"{seconds(a.search_seconds)} + {seconds(a.model_seconds)}",
            NONE if a.run_id is None else f"`{a.run_id}`",
        ]
        for a in _every(results, methods_in_order(_rows(results)))
    ]
    head = ["table", "k", "method", "released", "NCP %", "pureness %", "search + model", "run"]
    return table(head, rows, left=3)


def _runs_of_studies(results: Results) -> str:
    """Return the runs of every study's rows; empty if none is known."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for name in results.studies:
        for row in results.rows(name):
            if row.get("run_id") is not None:
                found.setdefault((name, row["table"], row.get("method", NONE)), {})[
                    f"`{row['run_id']}`"
                ] = None
    body = [
        [study, name, label(method), ", ".join(ids)]
        for (study, name, method), ids in sorted(found.items())
    ]
    return table(["study", "table", "method", "runs"], body, left=4) if body else ""


# The studies: from their rows to a table.


def _parameters(rows: Sequence[Row]) -> str:
    order = sorted(
        rows,
        key=lambda row: (list(_PARAMETERS).index(row["parameter"]), row["value"], row["method"]),
    )
    return table(
        ["table", "parameter", "method", "NCP %", "pureness %", "time", "n"],
        [
            [
                row["table"],
                f"{_PARAMETERS[row['parameter']]} = {row['value']:g}",
                label(row["method"]),
                _spread(row, "ncp"),
                _spread(row, "pureness"),
                seconds(row["seconds"]),
                str(row["n"]),
            ]
            for row in order
        ],
        left=3,
    )


def _fairness(rows: Sequence[Row]) -> str:
    """Return both groups' mean NCP, and by how much they differ: one row per table and method."""
    names = ("table", "method", "k", "by", "metric", "group")
    at = {tuple(row[name] for name in names): row for row in rows}
    ks, main = _values(rows, "k"), main_k(rows)
    body = []
    for name in tables_in_order(rows):
        for method in methods_in_order(row for row in rows if row["table"] == name):
            groups = [
                at.get((name, method, main, "counterfactual", "ncp", group))
                for group in ("minority", "majority")
            ]
            cells = [
                NONE if row is None else f"{percent(row['mean'])} ({row['n']})" for row in groups
            ]
            asked = [(k, "counterfactual", "ncp") for k in ks]
            asked += [(main, "counterfactual", "pureness"), (main, "asking", "ncp")]
            gaps = [at.get((name, method, *which, "minority")) for which in asked]
            body.append([name, label(method), *cells, *map(_gap, gaps)])
    head = ["table", "method", "minority NCP %", "majority", *(f"difference, k = {k}" for k in ks)]
    return table([*head, "of pureness", "of NCP, by who asks"], body, left=2)


def _gap(row: Row | None) -> str:
    return NONE if row is None else _spread(row, "difference", points)


def _plausibility(rows: Sequence[Row]) -> str:
    """Return distances to the training rows beside the paper's Table 8."""
    printed = {(found.method, found.k): found for found in published().plausibility}
    body = []
    for method in methods_in_order(rows):
        for row in sorted(
            (row for row in rows if row["method"] == method), key=lambda row: row["k"] or 0
        ):
            paper = printed.get((method if method.startswith("nice") else "cf-k", row["k"]))
            theirs = (
                [NONE] * 2 if paper is None else [number(paper.nearest), number(paper.nearest_5)]
            )
            ours = [_spread(row, name, number) for name in ("nearest", "nearest_5")]
            called = label(method) + ("" if row["k"] is None else f", k = {row['k']}")
            body.append(
                [row["table"], called, theirs[0], ours[0], theirs[1], ours[1], str(row["n"])]
            )
    return table(
        ["table", "method", "nearest, paper", "here", "5 nearest, paper", "here", "n"], body, left=2
    )


def _frontier(rows: Sequence[Row]) -> str:
    body = [
        [name, label(method), *_across(rows, "k", _pair, table=name, method=method)]
        for name in tables_in_order(rows)
        for method in methods_in_order(row for row in rows if row["table"] == name)
    ]
    return table(["table", "method", *(f"k = {k}" for k in _values(rows, "k"))], body, left=2)


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return sorted({row[column] for row in rows})


def _across(
    rows: Sequence[Row], column: str, cell: Callable[[Row], str], **where: Any
) -> list[str]:
    """Return a cell for each value of a column, from the row that also has the values of
    `where`.
    """
    own = {
        row[column]: row for row in rows if all(row[name] == value for name, value in where.items())
    }
    return [cell(own[value]) if value in own else NONE for value in _values(rows, column)]


def _pair(row: Row) -> str:
    """Write NCP and pureness, and the share released unless that is all."""
    lost = (
        "" if row.get("released") in (None, 1) else f" ({percent(row['released'], 0)} % released)"
    )
    return f"{percent(row['ncp'])} / {percent(row['pureness'])}{lost}"


_STUDY_TABLES: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "parameters": _parameters,
    "fairness": _fairness,
    "plausibility": _plausibility,
    "frontier": _frontier,
}
