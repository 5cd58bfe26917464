"""Write the tables of differential-privacy.md, its plot and its file of results from frontier.json.

``tests/benchmarks/prototypes.py --json docs/explanation/frontier.json`` measures the figures. Run
``python docs/explanation/make_frontier.py`` from the repository's root afterwards. With ``--check``
it writes nothing; its exit code is 1 if the page, the plot or the file shows other figures.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
KEPT, PAGE, PLOT = (
    HERE / "frontier.json",
    HERE / "differential-privacy.md",
    HERE.parent / "assets" / "dp-frontier.svg",
)
RESULTS = HERE / "differential-privacy" / "answers.csv"
AUDITS = HERE / "differential-privacy" / "audits.csv"
COLUMNS = {
    "table": "table",
    "people": "people",
    "queries": "queries",
    "epsilon": "epsilon",
    "method": "method",
    "fits": "fits",
    "L1": "distance_to_query",
    "L1 error": "distance_to_query_error",
    "nn1": "distance_to_training_row",
    "nn1 error": "distance_to_training_row_error",
    "unseen": "share_with_unseen_pair",
    "unseen error": "share_with_unseen_pair_error",
    "density": "log_density",
    "density error": "log_density_error",
    "changed": "features_changed",
    "singled out": "share_singled_out",
    "outside": "share_singled_out_by_chance",
    "fit s": "fit_cpu_s",
    "ms/query": "cpu_ms_per_query",
}
"""Columns of the file of results, by the figure's name in frontier.json."""

FEATURES = {"adult": 12, "cmc": 9, "german": 20, "heart": 13, "hospital": 20, "informs": 13}
"""Number of features of each table."""

SHOWN = ("0.1", "0.3", "1", "3")
"""Epsilons on the page; the file of results has all."""

AUDITED = ("the library's", "a fiftieth of the noise", "several tables with the noise of one")
"""Mechanisms whose audits are on the page."""

METHODS = ("histograms", "plain tree", "MST", "DPPrototypes")
BETTER = {"L1": 1, "nn1": 1, "unseen": 1, "density": -1}  # -1: more is better
FRONTIER, OWN = "1", re.compile(r"DPPrototypes, plausibility (.*)")
# panels in a row; a panel; where the first one begins
ACROSS, WIDTH, HEIGHT, LEFT, TOP, ROW = 3, 250, 150, 46, 62, 226
STYLE = """
  svg { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; font-size: 12px }
  .card { fill: #ffffff; stroke: #d0d7de }
  .ink { fill: #1f2328 } .soft { fill: #59636e } .axis { stroke: #d0d7de; fill: none }
  .fresh { stroke: #59636e; stroke-dasharray: 4 3 } .title { font-weight: 600 }
  .raw { fill: #c93c37 } .histograms { fill: #9a6700 } .tree { fill: #1a7f37 } .mst { fill: #8250df }
  .own { fill: #0b6bcb } .way { stroke: #0b6bcb; fill: none; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .axis { stroke: #3d444d }
    .raw { fill: #ff7b72 } .histograms { fill: #d29922 } .tree { fill: #3fb950 } .mst { fill: #ab7df8 }
    .own { fill: #58a6ff } .way { stroke: #58a6ff }
  }
"""
Found = dict[str, dict[str, Any]]


def worse(cell: dict[str, dict[str, float]], errors: int = 2) -> list[str]:
    """Return the figures that are worse than another method's, by more than some standard errors.

    The error is that of the difference between both methods.
    """
    mine = cell["DPPrototypes"]
    lost = []
    for other in (name for name in METHODS[:-1] if name in cell):
        for figure, sign in BETTER.items():
            error = np.hypot(mine[f"{figure} error"], cell[other][f"{figure} error"])
            if sign * (mine[figure] - cell[other][figure]) > errors * error:
                lost.append(f"{figure} ({other})")
    return lost


def at_one(found: Found) -> list[str]:
    """Return a table of distances at epsilon 1, beside those of the nearest training rows."""
    head = ["table", "nearest row", "private model (default)", "other models"]
    shown = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for name, one in found.items():
        cell = one["epsilon"]["1"]
        figures = (one["raw"], cell["DPPrototypes, not moved"], cell["DPPrototypes"])
        cells = [name, *(f"{of['L1']:.2f}" for of in figures)]
        shown.append(f"| {' | '.join(cells)} |")
    return shown


def unseen(found: Found) -> list[str]:
    """Return a table of sizes, of pairs that can be counted, and of how many answers have a pair of
    values that no training row has.
    """
    head = ["table", "people", "features", "pairs at ε = 1"]
    head += [*(f"ε = {epsilon}" for epsilon in SHOWN), "new people"]
    shown = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for name, one in found.items():
        shares = [one["epsilon"][epsilon]["DPPrototypes"]["unseen"] for epsilon in SHOWN]
        shares.append(one["fresh"]["unseen"])
        most = FEATURES[name] - 1
        pairs = min(most, int(0.0015 * one["rows"]))  # 20 (m - 1) / epsilon <= 0.03 rows
        cells = [name, f"{one['rows']:,}", str(FEATURES[name]), f"{pairs} of {most}"]
        cells += [f"{100 * share:.0f} %" for share in shares]
        shown.append(f"| {' | '.join(cells)} |")
    return shown


def audits() -> list[str]:
    """Return a table of what audits of some mechanisms found; the file of results has all."""
    with AUDITS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mechanism"] in AUDITED]
    shown = [
        "| mechanism | claimed ε | ε at least | fits of each table | the claim is |",
        "|---|---:|---:|---:|---|",
    ]
    for row in rows:
        verdict = {"pass": "not refuted", "fail": "refuted"}[row["verdict"]]
        if row["verdict"] == "pass" and row["mechanism_is_sound"] == "no":
            verdict = "not refuted, although it is false"
        cells = [row["mechanism"], row["claimed_epsilon"], row["epsilon_at_least"]]
        cells += [row["runs_in_each_world"], verdict]
        shown.append(f"| {' | '.join(cells)} |")
    return shown


def counted(found: Found) -> dict[str, list[str]]:
    """Return in how many cells no other method is better, by the name of the figure."""
    judged = [
        cell
        for one in found.values()
        for epsilon, cell in one["epsilon"].items()
        if float(epsilon) >= 0.3
    ]
    of = {
        "held": [not worse(cell) for cell in judged],
        "bare": [not worse(cell, 0) for cell in judged],
    }
    return {name: [f"{sum(each)} of {len(each)}"] for name, each in of.items()}


def parts(found: Found) -> dict[str, list[str]]:
    """Return what stands between the page's comments, by name."""
    tables = {"at one": at_one(found), "unseen": unseen(found), "audits": audits()}
    return tables | counted(found)


def results(found: Found) -> str:
    """Return all figures as CSV: one line for each table, epsilon and method."""
    lines: list[dict[str, Any]] = []
    for name, one in found.items():
        about = {"table": name, "people": one["rows"], "queries": one["queries"]}
        lines.append(about | {"method": "nearest training row"} | one["raw"])
        lines.append(about | {"method": "new people"} | one["fresh"])
        for epsilon in sorted(one["epsilon"], key=float):
            for method, figures in one["epsilon"][epsilon].items():
                lines.append(about | {"epsilon": epsilon, "method": method} | figures)
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS.values())
    for line in lines:
        writer.writerow([line.get(name, "") for name in COLUMNS])
    return written.getvalue()


def panel(name: str, one: dict[str, Any], left: float, top: float) -> list[str]:
    """Draw one table at epsilon 1: the distance to the query from left to right, that to the table
    upwards.
    """
    cell = one["epsilon"][FRONTIER]
    points = {
        kind: cell[m]
        for kind, m in zip(("histograms", "tree", "mst"), METHODS, strict=False)
        if m in cell
    }
    way = sorted((float(m[1]), cell[m[0]]) for m in map(OWN.fullmatch, cell) if m)
    far = 1.08 * max(p["L1"] for p in [one["raw"], *points.values(), *(p for _, p in way)])
    off = 1.15 * max(p["nn1"] for p in [one["fresh"], *points.values(), *(p for _, p in way)])

    def at(figures: dict[str, float]) -> tuple[float, float]:
        return left + figures["L1"] / far * WIDTH, top + HEIGHT - figures["nn1"] / off * HEIGHT

    def dot(figures: dict[str, float], kind: str, radius: float) -> str:
        x, y = at(figures)
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'

    level = at({"L1": 0.0, "nn1": one["fresh"]["nn1"]})[1]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(p) for _, p in way))
    return [
        text(left, top - 8, f"{name}, {one['rows']:,} rows", "ink title"),
        f'<path class="axis" d="M{left} {top} V{top + HEIGHT} H{left + WIDTH}"/>',
        f'<path class="fresh" d="M{left} {level:.1f} H{left + WIDTH}"/>',
        f'<polyline class="way" points="{line}"/>',
        *(dot(p, "own", 2.2) for _, p in way),
        *(dot(p, kind, 5) for kind, p in points.items()),
        dot(one["raw"] | {"nn1": 0.0}, "raw", 5),
        dot(cell["DPPrototypes"], "own", 6),
        text(left - 5, top + HEIGHT + 4, "0", "soft", "end"),
        text(left - 5, top + 9, f"{off:.1f}", "soft", "end"),
        text(left + WIDTH, top + HEIGHT + 15, f"{far:.1f}", "soft", "end"),
    ]


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def draw(found: Found) -> str:
    """Return the plot."""
    wide, high = LEFT + ACROSS * (WIDTH + LEFT), TOP + ROW * -(-len(found) // ACROSS) + 4
    legend = [
        ("own", "DPPrototypes: the default (large) and other plausibilities"),
        ("histograms", "histograms"),
    ]
    legend += [("tree", "plain tree"), ("mst", "MST"), ("raw", "nearest training row")]
    lines, x = [], float(LEFT)
    for kind, words in legend:
        lines += [
            f'<circle class="{kind}" cx="{x:.1f}" cy="20" r="5"/>',
            text(x + 9, 24, words, "soft"),
        ]
        x += 30 + 6.1 * len(words)
    lines += [
        f'<path class="fresh" d="M{x - 4:.1f} 20 h18"/>',
        text(x + 18, 24, "new people", "soft"),
    ]
    for i, (name, one) in enumerate(found.items()):
        lines += panel(name, one, LEFT + i % ACROSS * (WIDTH + LEFT), TOP + i // ACROSS * ROW)
    lines.append(
        text(
            wide / 2,
            high - 10,
            "right: distance to the query; up: distance to the nearest training row",
            "soft",
            "middle",
        )
    )
    described = "For each of six tables, how far answers are from the query and from the nearest training row, at epsilon 1."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" aria-labelledby="t d">',
            '<title id="t">Distance against likeness of differentially private answers</title>',
            f'<desc id="d">{described}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="card" x=".5" y=".5" width="{wide - 1}" height="{high - 1}" rx="8"/>',
            *lines,
            "</svg>\n",
        ]
    )


def render(page: str, found: Found) -> str:
    """Return the page with its tables between ``<!-- name -->`` and ``<!-- end -->``."""
    for name, lines in parts(found).items():
        around = "\n\n" if len(lines) > 1 else ""
        content = "\n".join(lines)
        filled = f"<!-- {name} -->{around}{content}{around}<!-- end -->"
        pattern = rf"<!-- {name} -->.*?<!-- end -->"
        if not re.search(pattern, page, re.DOTALL):
            raise ValueError(f"the page has no place for {name!r}")
        page = re.sub(pattern, lambda _, filled=filled: filled, page, flags=re.DOTALL)
    return page


def main() -> int:
    """Write page, results and plot, or check them."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    made = {
        PAGE: render(PAGE.read_text(encoding="utf-8"), found),
        RESULTS: results(found),
        PLOT: draw(found),
    }
    if "--check" in sys.argv[1:]:
        stale = [path for path, text in made.items() if path.read_text(encoding="utf-8") != text]
        return int(bool(stale))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
