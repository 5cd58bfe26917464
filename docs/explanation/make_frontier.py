"""Write the tables of differential-privacy.md, and its plot, from frontier.json.

``tests/benchmarks/prototypes.py --json docs/explanation/frontier.json`` wrote that. Run it from the
repository's root: ``python docs/explanation/make_frontier.py``. With ``--check`` it writes nothing,
and fails when page or plot is not what it would write.
"""

from __future__ import annotations

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
METHODS = ("histograms", "plain tree", "MST", "DPPrototypes")
FIGURES = ("L1", "nn1", "unseen", "density")
BETTER = {"L1": 1, "nn1": 1, "unseen": 1, "density": -1}  # -1: more is better
USUAL = 5  # fits; others are named
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


def worse(
    cell: dict[str, dict[str, float]], errors: int = 2, fresh: dict[str, float] | None = None
) -> list[str]:
    """Name the figures that are worse than another method's, by more than so many standard errors
    of the difference.

    With those of fresh people, likeness that is at least theirs is enough.
    """
    mine = cell["DPPrototypes"]
    lost = []
    for other in (name for name in METHODS[:-1] if name in cell):
        for figure, sign in BETTER.items():
            error = np.hypot(mine[f"{figure} error"], cell[other][f"{figure} error"])
            best = max(sign * cell[other][figure], sign * (fresh or {}).get(figure, -sign * np.inf))
            if sign * mine[figure] - best > errors * error:
                lost.append(f"{figure} ({other})")
    return lost


def tables(found: Found) -> dict[str, list[str]]:
    """Return every table of the page, by its name there."""
    cells = [
        (name, e, one["epsilon"][e])
        for name, one in found.items()
        for e in sorted(one["epsilon"], key=float)
    ]
    shown = [
        "| table | ε | " + " | ".join(METHODS) + " | worse |",
        "|" + "---|" * (len(METHODS) + 3),
    ]
    for name, epsilon, cell in cells:
        said = [
            " / ".join(f"{cell[m][f]:.3g}" for f in FIGURES) if m in cell else "–" for m in METHODS
        ]
        said[-1] = f"**{said[-1]}**"
        fits = [cell[m]["fits"] if m in cell else USUAL for m in METHODS]
        said = [
            words if n == USUAL else f"{words} ({n})" for words, n in zip(said, fits, strict=True)
        ]
        shown.append(
            f"| {name} | {epsilon} | {' | '.join(said)} | {', '.join(worse(cell)) or '–'} |"
        )
    real = [
        "| table | rows | nearest training row | fresh people | ε = 1 | changed | distance to that of the row |"
    ]
    real.append("|" + "---|" * 7)
    for name, one in found.items():
        raw, fresh, own = one["raw"], one["fresh"], one["epsilon"]["1"]["DPPrototypes"]
        real.append(
            f"| {name} | {one['rows']:,} | {raw['L1']:.3g} / 0 / 0 / {raw['density']:.3g} | "
            f"– / {fresh['nn1']:.3g} / {fresh['unseen']:.3g} / {fresh['density']:.3g} | "
            f"{' / '.join(f'{own[f]:.3g}' for f in FIGURES)} | {own['changed']:.2f}, {raw['changed']:.2f} | "
            f"{own['L1'] / raw['L1']:.2f} |"
        )
    more = [
        "| table | ε = 1 | not moved | singled out / outside | fit s | ms a query |",
        "|" + "---|" * 6,
    ]
    for name, one in found.items():
        own, still = (one["epsilon"]["1"][m] for m in ("DPPrototypes", "DPPrototypes, not moved"))
        more.append(
            f"| {name} | {' / '.join(f'{own[f]:.3g}' for f in FIGURES)} | "
            f"{' / '.join(f'{still[f]:.3g}' for f in FIGURES)} | {own['singled out']:.2g} / {own['outside']:.2g} | "
            f"{own['fit s']:.2f} | {own['ms/query']:.2f} |"
        )
    judged = [
        (found[name]["fresh"], cell) for name, epsilon, cell in cells if float(epsilon) >= 0.3
    ]
    of = {
        "held": [not worse(cell) for _, cell in judged],
        "bare": [not worse(cell, 0) for _, cell in judged],
        "real enough": [not worse(cell, 0, fresh) for fresh, cell in judged],
    }
    counted = {name: [f"{sum(each)} of {len(each)}"] for name, each in of.items()}
    return {"real": real, "cells": shown, "more": more, **counted}


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
        text(x + 18, 24, "fresh people", "soft"),
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
    for name, lines in tables(found).items():
        middle = "" if name in ("held", "bare", "real enough") else "\n\n"
        content = f"<!-- {name} -->{middle}{chr(10).join(lines)}{middle}<!-- end -->"
        page = re.sub(
            rf"<!-- {name} -->.*?<!-- end -->", lambda _, content=content: content, page, flags=re.S
        )
    return page


def main() -> int:
    """Write page and plot, or check them."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    page, plot = render(PAGE.read_text(encoding="utf-8"), found), draw(found)
    if "--check" in sys.argv[1:]:
        return int(
            PAGE.read_text(encoding="utf-8") != page or PLOT.read_text(encoding="utf-8") != plot
        )
    PAGE.write_text(page, encoding="utf-8")
    PLOT.write_text(plot, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
