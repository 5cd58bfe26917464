"""The plot of what every k costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.errors import InputError
from cfk_plugin.frontier import Frontier
from cfk_plugin.plots._drawing import INK, MARK, clean, mark_k, new_axes, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM = 0.42  # right of the last k, for the names of the lines, as a share of what is left of it
_APART = 0.06  # between two names
_MOST_TICKS = 10


class _Line(NamedTuple):
    name: str
    column: str
    style: str
    marker: str
    colour: str


def plot_frontier(frontier: Frontier | pd.DataFrame, *, k: int | None = None, ax: Axes | None = None) -> Axes:
    """Plot pureness, information loss and what is withheld against k, with 95 % intervals as bands.

    Pureness and information loss are over the counterfactuals that are released at every k, so that points compare:
    what is withheld at a large k is often what would look worst there. Where no counterfactual is released at every k
    they are over what is released at each, and the label says so. What is withheld is drawn where something is.

    Parameters
    ----------
    frontier : Frontier or DataFrame
        What `cfk_plugin.frontier.frontier` measured, or its `to_frame`.
    k : int, optional
        The policy's k, drawn as a line. Default: that of the frontier's policy.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        If the table lacks a column.

    Notes
    -----
    Bands of two k may overlap although one costs clearly more: they are of the same counterfactuals, and each band says
    how far the figure would move with others.
    """
    table = _table(frontier)
    ax = ax or new_axes(4.0)
    if k is None and isinstance(frontier, Frontier):
        k = frontier.policy["k"]
    if not table["released"].any():
        return nothing(ax)
    asked, common = int(table["asked"].iloc[0]), int(table["common"].iloc[0])
    lines = _lines(table, common)
    for line in lines:
        _draw(ax, table, line)
    _name(ax, table, lines)
    if k is not None:
        mark_k(ax, k, k)
    _axes(ax, table["k"].to_numpy(), k)
    ax.set_xlabel("k, least number of people behind an explanation")
    ax.set_ylabel(f"mean with 95 % interval,\nover {_over(asked, common)}")
    clean(ax)
    return ax


def _over(asked: int, common: int) -> str:
    if not common:
        return "what each k releases: not the same ones"
    return f"all {asked:,} counterfactuals" if common == asked else f"the {common:,} of {asked:,} released at every k"


def _table(frontier: Frontier | pd.DataFrame) -> pd.DataFrame:
    table = frontier.to_frame() if isinstance(frontier, Frontier) else frontier
    means = [f"{common}{name}" for common in ("", "common_") for name in ("ncp_mean", "pureness_mean")]
    ends = [f"{name}{end}" for name in (*means, "suppressed_rate") for end in ("", "_low", "_high")]
    if lost := [name for name in ("k", "asked", "released", "common", *ends) if name not in table.columns]:
        raise InputError(f"no frontier: columns {', '.join(lost)} are missing; give a Frontier or its to_frame()")
    return table.sort_values("k")


def _lines(table: pd.DataFrame, common: int) -> list[_Line]:
    of = "common_" if common else ""
    lines = [
        _Line("pureness", f"{of}pureness_mean", "-", "o", INK),
        _Line("information loss, NCP", f"{of}ncp_mean", "--", "s", INK),
    ]
    if table["suppressed_rate"].any():
        lines.append(_Line("withheld, of all asked", "suppressed_rate", ":", "^", MARK))
    return lines


def _draw(ax: Axes, table: pd.DataFrame, line: _Line) -> None:
    at = table["k"].to_numpy()
    low, high = table[f"{line.column}_low"], table[f"{line.column}_high"]
    ax.fill_between(at, low, high, color=MARK, alpha=0.16, linewidth=0, zorder=1)  # what two bands share is darker
    ax.plot(at, table[line.column], line.style, marker=line.marker, markersize=4, color=line.colour, zorder=3)


def _name(ax: Axes, table: pd.DataFrame, lines: list[_Line]) -> None:
    """Write the name of each line at its end, apart from each other."""
    last = {line.name: table[line.column].dropna() for line in lines}
    ends = sorted((float(values.iloc[-1]), name) for name, values in last.items())
    y = -np.inf
    for value, name in ends:
        y = max(value, y + _APART)
        ax.annotate(
            f"{name} {value:.2f}",
            (float(table["k"].iloc[-1]), y),
            (7, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
        )


def _axes(ax: Axes, ks: np.ndarray, k: int | None) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = min(ks[0], k or ks[0]), max(ks[-1], k or ks[-1])
    wide = max(high - low, 1)
    ticks = ks if len(ks) <= _MOST_TICKS else MaxNLocator(_MOST_TICKS, integer=True).tick_values(ks[0], ks[-1])
    ax.set_xlim(low - 0.03 * wide, high + _ROOM * wide)
    ax.set_xticks([tick for tick in ticks if low <= tick <= high])
    ax.spines["bottom"].set_bounds(low, high)
    ax.set_ylim(-0.02, 1.12)
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.spines["left"].set_bounds(0, 1)
