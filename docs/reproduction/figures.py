"""The four figures of the page, in gray, as SVG files: the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from reproduction import published
from reproduction.measure import LABELS
from reproduction.results import Results, StudyRow

DARK = "0.1"
MIDDLE = "0.25"
LIGHT = "0.55"


@dataclass(frozen=True, slots=True)
class Style:
    """How the line of a method is drawn. Any two differ in two of the three."""

    line: str
    marker: str
    gray: str


STYLES: Mapping[str, Style] = {
    "paper": Style("none", "D", DARK),
    "grasp": Style(":", "s", MIDDLE),
    "exact-ncp": Style("--", "^", DARK),
    "exact-pureness": Style("-", "o", DARK),
}

Y_LABELS = {
    "ncp": "mean NCP (%)\nlower is better",
    "pureness": "mean pureness (%)\nhigher is better",
    "seconds": "time (s per explanation)",
}

X_LABELS = {
    "k": "k (people)",
    "alpha": "α (neighbours to draw from)",
    "iterations": "iterations",
}

INTERVALS = "bands are 95 % intervals of the mean"


def draw_figures(results: Results, folder: Path) -> dict[str, Path]:
    """Draw the figures of results into a folder, and return their files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    with mpl.rc_context():
        mpl.rcdefaults()  # the style of the caller must not matter
        mpl.rcParams["svg.hashsalt"] = "cfk_plugin"  # ids would be random otherwise
        for name, figure in make_figures(results).items():
            files[name] = folder / f"{name}.svg"
            figure.savefig(files[name], format="svg", metadata={"Date": None, "Creator": None})
    return files


def make_figures(results: Results) -> dict[str, Figure]:
    """Return the figures of results by name; that of the parameters only if they were tried."""
    figures = {
        "methods": methods_figure(results),
        "fairness": fairness_figure(results),
        "frontier": against_k_figure(
            results.studies["frontier"],
            ("exact-ncp", "exact-pureness"),
            f"What each k costs; {INTERVALS}",
        ),
    }
    if results.studies["parameters"]:
        figures["parameters"] = parameters_figure(results.studies["parameters"])
    return figures


def methods_figure(results: Results) -> Figure:
    """Draw the methods at each k, with the figures that the paper prints for CF-K."""
    methods = ("grasp", "exact-ncp", "exact-pureness")
    rows: list[StudyRow] = []
    for aggregate in results.aggregates:
        if aggregate.method in methods:
            row = {name: getattr(aggregate, name) for name in ("table", "method", "k", *Y_LABELS)}
            rows.append(row)
    for (printed_method, k, table), printed in published.RESULTS.items():
        if printed_method == "cf-k" and table in results.tables:
            values = {"ncp": printed.ncp, "pureness": printed.pureness}
            rows.append({"table": table, "method": "paper", "k": k, **values})
    title = "Methods on the same models, and CF-K as the paper prints it for its own models"
    return against_k_figure(rows, ("paper", *methods), title)


def against_k_figure(rows: Sequence[StudyRow], methods: Sequence[str], title: str) -> Figure:
    """Draw NCP above pureness, against k, for each table; three tables stand side by side."""
    tables = sorted({row["table"] for row in rows})
    n_columns = min(len(tables), 3)
    n_bands = -(-len(tables) // 3)
    figure, panels = new_figure(2 * n_bands, n_columns, panel_width=2.8, panel_height=1.7)
    for i, table in enumerate(tables):
        band, column = divmod(i, 3)
        table_rows = [row for row in rows if row["table"] == table]
        for metric, panel in (
            ("ncp", panels[2 * band, column]),
            ("pureness", panels[2 * band + 1, column]),
        ):
            draw_lines(panel, table_rows, "k", metric, methods)
            if column == 0:
                panel.set_ylabel(Y_LABELS[metric], fontsize=8)
        panels[2 * band, column].set_title(table, fontsize=10)
        panels[2 * band + 1, column].set_xlabel(X_LABELS["k"], fontsize=9)
    return finish(figure, panels, title)


def parameters_figure(rows: Sequence[StudyRow]) -> Figure:
    """Draw Figure 4 of the paper: each metric against each parameter."""
    figure, panels = new_figure(len(Y_LABELS), len(X_LABELS), panel_width=2.8)
    for column, parameter in enumerate(X_LABELS):
        parameter_rows = [row for row in rows if row["parameter"] == parameter]
        for i, metric in enumerate(Y_LABELS):
            panel = panels[i, column]
            draw_lines(panel, parameter_rows, "value", metric, ("grasp", "exact-pureness"))
            if column == 0:
                panel.set_ylabel(Y_LABELS[metric], fontsize=8)
        times = [row["seconds"] for row in parameter_rows]
        time_panel = panels[-1, column]
        time_panel.set_xlabel(X_LABELS[parameter])
        if max(times) > 10 * min(times):
            time_panel.set_yscale("log")
        else:
            time_panel.set_ylim(bottom=0)
    return finish(figure, panels, f"Parameters, {rows[0]['table']}; {INTERVALS}")


def fairness_figure(results: Results) -> Figure:
    """Draw Figure 5 of the paper: the NCP of both groups on each table, at k = 10."""
    methods = ("grasp", "exact-pureness")
    figure, panels = new_figure(len(methods), 1, panel_width=6.4, panel_height=2.4)
    for method, panel in zip(methods, panels[:, 0], strict=True):
        for row in results.studies["fairness"]:
            if (row["method"], row["k"], row["metric"]) != (method, 10, "ncp"):
                continue
            if row["by"] == "counterfactual" and row["mean"] is not None:
                draw_bar(panel, list(results.tables).index(row["table"]), row)
        panel.set_xticks(range(len(results.tables)), list(results.tables))
        panel.set_ylabel(Y_LABELS["ncp"])
        panel.set_title(f"{LABELS[method]}, k = 10", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    title = "Information loss by group of the counterfactual instance, with 95 % intervals"
    return finish(figure, panels, title)


def draw_bar(panel: Axes, table_position: int, row: StudyRow) -> None:
    """Draw the mean of one group, with its interval."""
    x = table_position - 0.2
    gray = "0.92"
    hatch = "////"
    if row["group"] == "majority":
        x = table_position + 0.2
        gray = "0.6"
        hatch = ""
    height = 100 * row["mean"]
    bar = panel.bar(x, height, 0.38, color=gray, hatch=hatch, edgecolor=DARK, linewidth=0.8)
    bar.set_label(row["group"])
    if row["mean_low"] is not None:
        below = max(height - 100 * row["mean_low"], 0)
        above = max(100 * row["mean_high"] - height, 0)
        panel.errorbar(x, height, yerr=[[below], [above]], color=DARK, capsize=3, linewidth=1.1)


def new_figure(
    n_rows: int, n_columns: int, *, panel_width: float, panel_height: float = 1.9
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure and its panels, an array of shape (n_rows, n_columns)."""
    width = max(panel_width * n_columns + 0.8, 5.6)
    height = panel_height * n_rows + 0.9
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    return figure, np.asarray(panels, dtype=object)


def draw_lines(
    panel: Axes, rows: Sequence[StudyRow], x: str, y: str, methods: Sequence[str]
) -> None:
    """Draw a line for each method, with the band of its intervals where rows have them."""
    scale = 1 if y == "seconds" else 100  # shares are drawn in percent
    for method in methods:
        chosen = [row for row in rows if row["method"] == method and row.get(y) is not None]
        points = sorted(chosen, key=lambda row: row[x])
        if not points:
            continue
        style = STYLES[method]
        positions = [row[x] for row in points]
        if all(row.get(f"{y}_low") is not None for row in points):
            low = [scale * row[f"{y}_low"] for row in points]
            high = [scale * row[f"{y}_high"] for row in points]
            panel.fill_between(positions, low, high, color=style.gray, alpha=0.14, linewidth=0)
        # A hollow diamond stays visible under the lines that pass through it.
        face = "none" if method == "paper" else style.gray
        panel.plot(
            positions,
            [scale * row[y] for row in points],
            linestyle=style.line,
            marker=style.marker,
            color=style.gray,
            markerfacecolor=face,
            markersize=4.5,
            label=LABELS[method],
        )
    place_ticks(panel, sorted({row[x] for row in rows}))
    if y == "pureness":
        bottom = min(float(panel.get_ylim()[0]), 99.0)
        panel.set_ylim(bottom, 100 + (100 - bottom) / 20)  # nothing is above 100 %
    panel.spines[["top", "right"]].set_visible(False)


def place_ticks(panel: Axes, values: Sequence[float]) -> None:
    """Put a tick at every value, on a logarithmic axis if there are many."""
    if len(values) > 6:
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.tick_params(labelsize=8)


def finish(figure: Figure, panels: NDArray[Any], title: str) -> Figure:
    """Write the title and one legend for all panels, and hide panels without data."""
    handle_of_label: dict[str, Any] = {}
    for panel in panels.ravel():
        panel.set_visible(panel.has_data())
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handle_of_label.setdefault(label, handle)
    figure.suptitle(title, fontsize=10.5)
    figure.legend(
        list(handle_of_label.values()),
        list(handle_of_label),
        loc="outside lower center",
        ncols=min(len(handle_of_label), 5),
        frameon=False,
        fontsize=9,
    )
    return figure
