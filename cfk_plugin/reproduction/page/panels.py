"""Panels of the experiments' figures: lines with bands, bars with intervals, one legend. They read in grey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.plots import INK, MARK, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Rows = Sequence[Mapping[str, Any]]

# Line, marker and grey of each series: two series differ in at least two of them.
_STYLES: Mapping[Any, tuple[str, str, str]] = {
    "paper": ("none", "D", INK),
    "grasp": (":", "s", MARK),
    "exact-pureness": ("-", "o", INK),
    "exact-ncp": ("--", "^", INK),
    "exact-weighted": ("-.", "v", MARK),
    "reciprocal": ("-", "x", "0.55"),
    "mondrian-raw": (":", "+", MARK),
    "mondrian": ("--", "*", MARK),
}
_NUMBERED = (("-", "o", INK), ("--", "s", MARK), (":", "^", INK), ("-.", "v", MARK))
_HATCHES = ("////", "")
_CROWD = 6  # ticks that have room on a panel
_PERCENT = frozenset({"ncp", "pureness", "mean"})


def grid(rows: int, columns: int, *, wide: float = 2.4, high: float = 1.9) -> tuple[Figure, NDArray[Any]]:
    """Return a figure and its panels, as an array of rows and columns; at least one panel."""
    from matplotlib.figure import Figure

    rows, columns = max(rows, 1), max(columns, 1)
    figure = Figure(figsize=(max(wide * columns + 0.8, 5.6), high * rows + 0.9), layout="constrained")
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False), dtype=object)


def draw_lines(ax: Axes, rows: Rows, x: str, y: str, names: Mapping[Any, str], by: str = "method") -> None:
    """Draw a line per series with its 95 % band, where the rows have one.

    Parameters
    ----------
    ax : Axes
    rows : sequence of mapping
    x, y : str
        Columns; NCP and pureness are drawn in percent.
    names : mapping
        Value of `by` to the name of the series, in the order of drawing.
    by : str
        The column that tells series apart.
    """
    scale = 100.0 if y in _PERCENT else 1.0
    for place, (value, name) in enumerate(names.items()):
        own = sorted((row for row in rows if row[by] == value and row.get(y) is not None), key=lambda row: row[x])
        if not own:
            continue
        line, marker, grey = _STYLES.get(value, _NUMBERED[place % len(_NUMBERED)])
        at = [row[x] for row in own]
        if all(row.get(f"{y}_low") is not None for row in own):
            low, high = ([scale * row[f"{y}{end}"] for row in own] for end in ("_low", "_high"))
            ax.fill_between(at, low, high, color=grey, alpha=0.14, linewidth=0)
        values = [scale * row[y] for row in own]
        # A hollow diamond stays visible under the lines that pass through it.
        inside = "none" if value == "paper" else grey
        ax.plot(
            at, values, linestyle=line, marker=marker, color=grey, markerfacecolor=inside, markersize=4.5, label=name
        )
    _place_ticks(ax, sorted({row[x] for row in rows}))
    if y == "pureness":
        bottom = min(float(ax.get_ylim()[0]), 99.0)
        ax.set_ylim(bottom, 100.0 + (100.0 - bottom) / 20)  # there is none above 100 %
    clean(ax)


def _place_ticks(ax: Axes, ticks: Sequence[float]) -> None:
    """Put a tick at every value; where many small ones would overlap, on a logarithmic axis."""
    from matplotlib.ticker import NullLocator

    if len(ticks) > _CROWD and ticks[0] > 0:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.tick_params(labelsize=8)


def draw_bars(ax: Axes, rows: Sequence[Mapping[str, Any] | None], side: int, name: str) -> None:
    """Draw one bar per row beside those of the other side, in percent, with the interval; none where a row is None."""
    for place, row in enumerate(rows):
        if row is None or row["mean"] is None:
            continue
        at, mean = place + 0.4 * side - 0.2, 100 * row["mean"]
        bar = ax.bar(at, mean, 0.38, color=("0.92", "0.6")[side], hatch=_HATCHES[side], edgecolor=INK, linewidth=0.8)
        bar.set_label(name)
        if row.get("low") is not None:
            ends = [[mean - 100 * row["low"]], [100 * row["high"] - mean]]
            ax.errorbar(at, mean, yerr=np.maximum(ends, 0), color=INK, capsize=3, linewidth=1.1)


def finish(figure: Figure, panels: NDArray[Any], title: str) -> Figure:
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
            list(named.values()), list(named), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
        )
    return figure
