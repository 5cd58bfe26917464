"""The figures of the experiments: one function and one SVG file each, the same bytes for the same
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfk_plugin.plots import INK, MARK, clean, load_matplotlib
from reproduction.results import (
    PAPER,
    Results,
    Row,
    label,
    main_k,
    methods_in_order,
    published,
    tables_in_order,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Rows = Sequence[Row]

_PARAMETERS = {
    "k": "k (people)",
    "alpha": "α (neighbours to draw from)",
    "iterations": "iterations",
}
_LABELS = {
    "ncp": "mean NCP (%)\nlower is better",
    "pureness": "mean pureness (%)\nhigher is better",
    "seconds": "time (s per explanation)",
}
# Line, marker and gray level of each series; any two differ in at least two of these.
_STYLES: Mapping[Any, tuple[str, str, str]] = {
    PAPER: ("none", "D", INK),
    "grasp": (":", "s", MARK),
    "exact-pureness": ("-", "o", INK),
    "exact-ncp": ("--", "^", INK),
    "reciprocal": ("-", "x", "0.55"),
    "mondrian-raw": (":", "+", MARK),
    "mondrian": ("--", "*", MARK),
}
_NUMBERED = (("-", "o", INK), ("--", "s", MARK), (":", "^", INK), ("-.", "v", MARK))
_SIDE_BY_SIDE = ("grasp", "exact-pureness", "exact-ncp", "reciprocal")
_PERCENT = ("ncp", "pureness")
_CROWD = 6  # ticks that have room on a panel
_FAR = 10.0  # ratio of times from which the axis is logarithmic
_BAND = "bands are 95 % intervals of the mean"


def _draw_parameters(rows: Rows) -> Figure:
    """Draw the paper's Figure 4."""
    names = [name for name in _PARAMETERS if any(row["parameter"] == name for row in rows)]
    figure, panels = _grid(3, len(names), wide=2.8)
    for column, name in enumerate(names):
        own = [row for row in rows if row["parameter"] == name]
        for line, metric in enumerate(("ncp", "pureness", "seconds")):
            _draw_lines(panels[line, column], own, "value", metric, _series(rows))
        times = [row["seconds"] for row in own if row.get("seconds")]
        if times and max(times) > _FAR * min(times):
            panels[2, column].set_yscale("log")
        else:
            panels[2, column].set_ylim(bottom=0)
        panels[2, column].set_xlabel(_PARAMETERS[name])
    _label(panels[:, 0], "ncp", "pureness", "seconds")
    return _finish(figure, panels, f"Parameters, {', '.join(tables_in_order(rows))}; {_BAND}")


def _draw_fairness(rows: Rows) -> Figure:
    """Draw the paper's Figure 5."""
    k, methods, tables = main_k(rows), methods_in_order(rows), tables_in_order(rows)
    figure, panels = _grid(len(methods), 1, wide=6.4, high=2.4)
    for ax, method in zip(panels[:, 0], methods, strict=False):
        own = {
            (row["table"], row["group"]): row
            for row in rows
            if (row["k"], row["method"]) == (k, method)
        }
        for side, group in enumerate(("minority", "majority")):
            _draw_bars(ax, [own.get((name, group)) for name in tables], side, group)
        ax.set_xticks(range(len(tables)), tables)
        ax.set_ylabel(_LABELS["ncp"])
        ax.set_title(f"{label(method)}, k = {k}", fontsize=10)
        clean(ax)
    return _finish(
        figure,
        panels,
        "Information loss by group of the counterfactual instance, with 95 % intervals",
    )


def _draw_methods(rows: Rows) -> Figure:
    """Draw mean NCP and pureness of the methods at each k, beside what the paper prints for
    CF-K.
    """
    names = {PAPER: "CF-K as printed", **_series([row for row in rows if row["method"] != PAPER])}
    return _draw_pairs(
        rows,
        names,
        "Methods on the same models, and CF-K as the paper prints it for its own models",
    )


def _draw_pairs(rows: Rows, names: Mapping[str, str], title: str) -> Figure:
    """Draw two panels per table, NCP above pureness, against k; three tables in a row."""
    tables = tables_in_order(rows)
    figure, panels = _grid(2 * -(-len(tables) // 3), min(len(tables), 3), wide=2.8, high=1.7)
    for place, name in enumerate(tables):
        top = 2 * (place // 3)
        pair = panels[top : top + 2, place % 3]
        for ax, metric in zip(pair, _PERCENT, strict=True):
            _draw_lines(ax, [row for row in rows if row["table"] == name], "k", metric, names)
        pair[0].set_title(name, fontsize=10)
        pair[1].set_xlabel("k (people)", fontsize=9)
        if place % 3 == 0:
            _label(pair, *_PERCENT)
    return _finish(figure, panels, title)


def _rows_of_methods(results: Results) -> Rows:
    chosen = [a for a in results.aggregates if a.method in _SIDE_BY_SIDE]
    rows = [
        {"table": a.table, "method": a.method, "k": a.k, "ncp": a.ncp, "pureness": a.pureness}
        for a in chosen
    ]
    return rows + [
        {"table": table, "method": PAPER, "k": k, "ncp": printed.ncp, "pureness": printed.pureness}
        for (method, k, table), printed in published().results.items()
        if method == "cf-k" and table in {a.table for a in chosen}
    ]


class Plot(NamedTuple):
    """A figure of the page: the rows it shows (without rows it is left out), and how it is
    drawn.
    """

    rows: Callable[[Results], Rows]
    draw: Callable[[Rows], Figure]


PLOTS: Mapping[str, Plot] = MappingProxyType(
    {
        "methods": Plot(_rows_of_methods, _draw_methods),
        "parameters": Plot(lambda results: results.rows("parameters"), _draw_parameters),
        "fairness": Plot(
            lambda results: [
                row
                for row in results.rows("fairness")
                if (row["metric"], row["by"]) == ("ncp", "counterfactual")
            ],
            _draw_fairness,
        ),
        "frontier": Plot(
            lambda results: results.rows("frontier"),
            lambda rows: _draw_pairs(rows, _series(rows), f"What each k costs; {_BAND}"),
        ),
    }
)
"""Plots by file name, without the ending."""


def draw(results: Results, folder: Path) -> dict[str, Path]:
    """Draw every figure that has results, as SVG files in a folder; return them by name."""
    mpl = load_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, plot in PLOTS.items():
        if rows := plot.rows(results):
            drawn[name] = folder / f"{name}.svg"
            with mpl.rc_context():
                mpl.rcdefaults()  # whatever the caller's style is
                mpl.rcParams["svg.hashsalt"] = "cfk_plugin"
                plot.draw(rows).savefig(
                    drawn[name], format="svg", metadata={"Date": None, "Creator": None}
                )
    return drawn


def _series(rows: Rows) -> dict[Any, str]:
    return {method: label(method) for method in methods_in_order(rows)}


def _label(panels: Any, *metrics: str) -> None:
    for ax, metric in zip(panels, metrics, strict=True):
        ax.set_ylabel(_LABELS[metric], fontsize=8)


def _grid(
    rows: int, columns: int, *, wide: float = 2.4, high: float = 1.9
) -> tuple[Figure, NDArray[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(max(wide * columns + 0.8, 5.6), high * rows + 0.9), layout="constrained"
    )
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False), dtype=object)


def _draw_lines(ax: Axes, rows: Rows, x: str, y: str, names: Mapping[Any, str]) -> None:
    """Draw a line with its 95 % band for each method, named by `names`."""
    scale = 100.0 if y in _PERCENT else 1.0
    for place, (value, name) in enumerate(names.items()):
        own = sorted(
            (row for row in rows if row["method"] == value and row.get(y) is not None),
            key=lambda row: row[x],
        )
        if not own:
            continue
        line, marker, gray = _STYLES.get(value, _NUMBERED[place % len(_NUMBERED)])
        at = [row[x] for row in own]
        if all(row.get(f"{y}_low") is not None for row in own):
            low, high = ([scale * row[f"{y}{end}"] for row in own] for end in ("_low", "_high"))
            ax.fill_between(at, low, high, color=gray, alpha=0.14, linewidth=0)
        values = [scale * row[y] for row in own]
        # A hollow diamond stays visible under the lines that pass through it.
        inside = "none" if value == PAPER else gray
        ax.plot(
            at,
            values,
            linestyle=line,
            marker=marker,
            color=gray,
            markerfacecolor=inside,
            markersize=4.5,
            label=name,
        )
    _place_ticks(ax, sorted({row[x] for row in rows}))
    if y == "pureness":
        bottom = min(float(ax.get_ylim()[0]), 99.0)
        ax.set_ylim(bottom, 100.0 + (100.0 - bottom) / 20)  # nothing is above 100 %
    clean(ax)


def _place_ticks(ax: Axes, ticks: Sequence[float]) -> None:
    """Put a tick at every value; on a logarithmic axis if many small ones would overlap."""
    from matplotlib.ticker import NullLocator

    if len(ticks) > _CROWD and ticks[0] > 0:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.tick_params(labelsize=8)


def _draw_bars(ax: Axes, rows: Sequence[Row | None], side: int, name: str) -> None:
    """Draw one bar per row beside those of the other side, in percent with the interval; none for a
    row of None.
    """
    for place, row in enumerate(rows):
        if row is None or row["mean"] is None:
            continue
        at, mean = place + 0.4 * side - 0.2, 100 * row["mean"]
        gray, hatch = (("0.92", "////"), ("0.6", ""))[side]
        bar = ax.bar(at, mean, 0.38, color=gray, hatch=hatch, edgecolor=INK, linewidth=0.8)
        bar.set_label(name)
        if row.get("low") is not None:
            ends = [[mean - 100 * row["low"]], [100 * row["high"] - mean]]
            ax.errorbar(at, mean, yerr=np.maximum(ends, 0), color=INK, capsize=3, linewidth=1.1)


def _finish(figure: Figure, panels: NDArray[Any], title: str) -> Figure:
    """Write the title, and one legend for all panels below them; hide panels that hold nothing."""
    named: dict[str, Any] = {}
    for ax in panels.ravel():
        ax.set_visible(ax.has_data())
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    figure.suptitle(title, fontsize=10.5)
    if named:
        columns = min(len(named), 5)
        figure.legend(
            list(named.values()),
            list(named),
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=9,
        )
    return figure
