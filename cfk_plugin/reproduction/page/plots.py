"""The figures of the experiments: one function and one SVG file each, the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cfk_plugin.plots import clean
from cfk_plugin.reproduction.page.labels import in_order, label, main_k, methods_in_order
from cfk_plugin.reproduction.page.panels import Rows, draw_bars, draw_lines, finish, grid
from cfk_plugin.reproduction.results import Results, published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PARAMETERS = {"k": "k (people)", "alpha": "α (neighbours to draw from)", "iterations": "iterations"}
_LABELS = {
    "ncp": "mean NCP (%)\nlower is better",
    "pureness": "mean pureness (%)\nhigher is better",
    "seconds": "time (s per explanation)",
    "distance": "distance (HEOM,\nmean over features)",
}
_SIDE_BY_SIDE = ("grasp", "exact-pureness", "exact-ncp", "reciprocal")
_FAR = 10.0  # times slower: beyond that, times are on a logarithmic axis
_BAND = "bands are 95 % intervals of the mean"


def plot_parameters(results: Results) -> Figure:
    """Plot NCP, pureness and time against k, α and iterations: the paper's Figure 4."""
    rows = results.rows("parameters")
    names = [name for name in _PARAMETERS if any(row["parameter"] == name for row in rows)]
    figure, panels = grid(3, len(names), wide=2.8)
    for column, name in enumerate(names):
        own = [row for row in rows if row["parameter"] == name]
        for line, metric in enumerate(("ncp", "pureness", "seconds")):
            draw_lines(panels[line, column], own, "value", metric, _methods(rows))
        _scale_times(panels[2, column], [row["seconds"] for row in own if row.get("seconds")])
        panels[2, column].set_xlabel(_PARAMETERS[name])
    _label(panels[:, 0], "ncp", "pureness", "seconds")
    tables = ", ".join(in_order(str(row["table"]) for row in rows))
    return finish(figure, panels, f"Parameters, {tables}; {_BAND}")


def plot_fairness(results: Results) -> Figure:
    """Plot the mean NCP of minority and majority group on every table: the paper's Figure 5."""
    rows = _ncp_by_group(results)
    k, methods = main_k(row["k"] for row in rows), methods_in_order(str(row["method"]) for row in rows)
    tables = in_order(str(row["table"]) for row in rows)
    figure, panels = grid(len(methods), 1, wide=6.4, high=2.4)
    for ax, method in zip(panels[:, 0], methods, strict=False):
        own = {(row["table"], row["group"]): row for row in rows if (row["k"], row["method"]) == (k, method)}
        for side, group in enumerate(("minority", "majority")):
            draw_bars(ax, [own.get((name, group)) for name in tables], side, group)
        ax.set_xticks(range(len(tables)), tables)
        ax.set_ylabel("mean NCP (%)\nlower is better")
        ax.set_title(f"{label(method)}, k = {k}", fontsize=10)
        clean(ax)
    return finish(figure, panels, "Information loss by group of the counterfactual instance, with 95 % intervals")


def plot_frontier(results: Results) -> Figure:
    """Plot what each k costs in NCP and pureness: a pair of panels per table, three tables beside each other."""
    rows = results.rows("frontier")
    tables = in_order(str(row["table"]) for row in rows)
    beside = min(len(tables), 3)
    figure, panels = grid(2 * -(-len(tables) // 3), beside, wide=2.8, high=1.7)
    for place, name in enumerate(tables):
        pair = panels[2 * (place // 3) : 2 * (place // 3) + 2, place % 3]
        _pair(pair, [row for row in rows if row["table"] == name], name, _methods(rows))
        if place % 3 == 0:
            _label(pair, "ncp", "pureness")
    return finish(figure, panels, f"What each k costs; {_BAND}")


def plot_methods(results: Results) -> Figure:
    """Plot mean NCP and pureness of the methods at each k, beside what the paper prints for CF-K."""
    chosen = [a for a in results.aggregates if a.method in _SIDE_BY_SIDE]
    tables = in_order(a.table for a in chosen)
    rows: list[Mapping[str, Any]] = [
        {"table": a.table, "method": a.method, "k": a.k, "ncp": a.ncp, "pureness": a.pureness} for a in chosen
    ]
    names = {"paper": "CF-K as printed", **_methods(rows)}
    for (method, k, table), printed in published().results.items():
        if method == "cf-k" and table in tables:
            rows.append({"table": table, "method": "paper", "k": k, "ncp": printed.ncp, "pureness": printed.pureness})
    figure, panels = grid(2 * -(-len(tables) // 3), min(len(tables), 3), wide=2.8, high=1.7)
    for place, name in enumerate(tables):
        pair = panels[2 * (place // 3) : 2 * (place // 3) + 2, place % 3]
        _pair(pair, [row for row in rows if row["table"] == name], name, names)
        if place % 3 == 0:
            _label(pair, "ncp", "pureness")
    return finish(figure, panels, "Methods on the same models, and CF-K as the paper prints it for its own models")


def plot_candidates(results: Results) -> Figure:
    """Plot distance, NCP and pureness against the number of candidates: a column of panels per table."""
    rows = results.rows("candidates")
    tables = in_order(str(row["table"]) for row in rows)
    names = {k: f"k = {k}" for k in sorted({row["k"] for row in rows}, key=lambda k: float(k or 0))}
    figure, panels = grid(3, len(tables), wide=1.9, high=1.6)
    for column, name in enumerate(tables):
        own = [row for row in rows if row["table"] == name]
        for line, metric in enumerate(("distance", "ncp", "pureness")):
            draw_lines(panels[line, column], own, "m", metric, names, by="k")
        panels[0, column].set_title(name, fontsize=10)
        panels[2, column].set_xlabel("candidates")
    _label(panels[:, 0], "distance", "ncp", "pureness")
    return finish(figure, panels, f"Choosing among several candidates; {_BAND}")


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of the page.

    Attributes
    ----------
    draw : callable
        From results to a figure of matplotlib.
    needs : callable
        Whether results hold what it shows.
    """

    draw: Callable[[Results], Figure]
    needs: Callable[[Results], bool]

    @staticmethod
    def of_study(name: str, draw: Callable[[Results], Figure]) -> Plot:
        """Return a figure that needs one study."""
        return Plot(draw, lambda results: bool(results.rows(name)))


PLOTS: Mapping[str, Plot] = MappingProxyType(
    {
        "methods": Plot(plot_methods, lambda results: any(a.method in _SIDE_BY_SIDE for a in results.aggregates)),
        "parameters": Plot.of_study("parameters", plot_parameters),
        "fairness": Plot(plot_fairness, lambda results: bool(_ncp_by_group(results))),
        "frontier": Plot.of_study("frontier", plot_frontier),
        "candidates": Plot.of_study("candidates", plot_candidates),
    }
)
"""By the name of their file, without its ending."""


def draw(results: Results, folder: Path) -> dict[str, Path]:
    """Draw every figure that results hold something for.

    Parameters
    ----------
    results : Results
    folder : Path
        Is made where it does not exist.

    Returns
    -------
    dict
        Name to SVG file; the same results give the same files.
    """
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, plot in PLOTS.items():
        if plot.needs(results):
            drawn[name] = folder / f"{name}.svg"
            with mpl.rc_context():
                mpl.rcdefaults()  # whatever the caller's style is
                mpl.rcParams["svg.hashsalt"] = "cfk_plugin"
                plot.draw(results).savefig(drawn[name], format="svg", metadata={"Date": None, "Creator": None})
    return drawn


def _ncp_by_group(results: Results) -> Rows:
    return [row for row in results.rows("fairness") if row["metric"] == "ncp" and row["by"] == "counterfactual"]


def _methods(rows: Rows) -> dict[Any, str]:
    return {method: label(method) for method in methods_in_order(str(row["method"]) for row in rows)}


def _label(panels: Any, *metrics: str) -> None:
    for ax, metric in zip(panels, metrics, strict=True):
        ax.set_ylabel(_LABELS[metric], fontsize=8)


def _scale_times(ax: Axes, seconds: list[Any]) -> None:
    """Start times at 0, unless that would hide the short ones."""
    if seconds and max(seconds) > _FAR * min(seconds):
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)


def _pair(pair: Any, rows: Rows, name: str, methods: Mapping[Any, str]) -> None:
    """Draw NCP and below it pureness against k, for one table."""
    for ax, metric in zip(pair, ("ncp", "pureness"), strict=True):
        draw_lines(ax, rows, "k", metric, methods)
    pair[0].set_title(name, fontsize=10)
    pair[1].set_xlabel("k (people)", fontsize=9)
