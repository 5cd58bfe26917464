"""The plot of group differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.errors import InputError
from cfk_plugin.metrics import POOLED, GroupGap
from cfk_plugin.plots._drawing import BAND, INK, MARK, clean, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_SAID: Mapping[str, tuple[str, str]] = {
    "k": ("people who fit, k", "more is better"),
    "ncp": ("information loss, NCP", "less is better"),
    "pureness": ("pureness", "more is better"),
    "suppressed": ("share withheld", "less is better"),
}
_COUNTS = {"k"}
_NEEDED = ("metric", "group", "n", "gap", "low", "high")


def plot_groups(
    gaps: Mapping[str, Sequence[GroupGap]] | pd.DataFrame,
    *,
    tolerance: float | Mapping[str, float] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
) -> NDArray[Any]:
    """Plot by how much each group differs from everybody else, one metric beside the other, with 95 % intervals.

    For the data holder: it shows how many are in a group. Groups of fewer than 11 are pooled or left out by
    `group_gap`, before anything is plotted.

    Parameters
    ----------
    gaps : mapping of str to sequence of GroupGap, or DataFrame
        What `group_gap` found for each metric, as `cfk_plugin.release.explanations.group_gaps` returns it; or a table
        with the columns ``metric``, ``group``, ``n``, ``gap``, ``low`` and ``high``.
    tolerance : float or mapping of str to float, optional
        Largest difference that is accepted, drawn as a band around 0. A number is for shares (every metric but ``k``,
        which counts people); a mapping is by metric.
    ax : matplotlib Axes or sequence of them, optional
        One for each metric. Default: those of a new figure, which share the groups.

    Returns
    -------
    array of matplotlib Axes
        One for each metric, in the order given.

    Raises
    ------
    InputError
        If there are not as many axes as metrics, or the table lacks a column.

    Notes
    -----
    An interval around 0 does not show that groups are equal, and intervals are not corrected for several groups.
    """
    table = _table(gaps)
    metrics = list(gaps) if isinstance(gaps, Mapping) else list(dict.fromkeys(table["metric"]))
    if not metrics:
        raise InputError("no metric to plot; give group_gap's result by metric")
    groups = sorted(dict.fromkeys(table["group"]), key=lambda name: (name == POOLED, name))
    panels = _panels(ax, len(metrics), len(groups))
    unnamed = True
    for panel, metric in zip(panels, metrics, strict=True):
        rows = table[table["metric"] == metric].set_index("group").reindex(groups)
        if not rows["gap"].notna().any():
            nothing(panel, "fewer than two groups\nof 11 or more")
            continue
        _draw(panel, rows, metric, _tolerance(tolerance, metric))
        named = unnamed or ax is not None  # axes of somebody else may stand anywhere
        panel.set_yticks(range(len(groups)), [_label(name, table) if named else "" for name in groups])
        unnamed = False
    return panels


def _table(gaps: Mapping[str, Sequence[GroupGap]] | pd.DataFrame) -> pd.DataFrame:
    if not isinstance(gaps, pd.DataFrame):
        rows = [{"metric": metric, **asdict(gap)} for metric, found in gaps.items() for gap in found]
        return pd.DataFrame(rows, columns=list(_NEEDED))
    if lost := [name for name in _NEEDED if name not in gaps.columns]:
        raise InputError(f"no group differences: columns {', '.join(lost)} are missing")
    return gaps


def _panels(ax: Axes | Sequence[Axes] | None, metrics: int, groups: int) -> NDArray[Any]:
    if ax is None:
        import matplotlib.pyplot as plt

        size = (1.4 + 2.3 * metrics, 1.5 + 0.42 * max(groups, 2))
        return np.asarray(plt.subplots(1, metrics, figsize=size, layout="constrained", squeeze=False)[1][0])
    panels = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(panels) != metrics:
        raise InputError(f"{metrics} metrics need as many axes, got {len(panels)}")
    return panels


def _draw(ax: Axes, rows: pd.DataFrame, metric: str, tolerance: float | None) -> None:
    """Draw dots and intervals, first group on top."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    at = np.arange(len(rows))
    if tolerance is not None:
        ax.axvspan(-tolerance, tolerance, color=BAND, linewidth=0)
        ax.text(0, 1.0, f"accepted: ±{tolerance:g}", transform=ax.get_xaxis_transform(), **_SMALL)
    ax.axvline(0, color=MARK, linewidth=1)
    ax.hlines(at, rows["low"], rows["high"], color=INK, linewidth=1.4)
    ax.plot(rows["gap"], at, "o", color=INK, markersize=5)
    farthest = np.nanmax(np.abs(rows[["gap", "low", "high"]].to_numpy(dtype=float)))
    wide = 1.15 * max(farthest, tolerance or 0, 1.0 if metric in _COUNTS else 0.01)
    ax.set_xlim(-wide, wide)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda gap, _: f"{gap:+g}".replace("-", "−") if gap else "0"))
    name, better = _SAID.get(metric, (metric, ""))
    ax.set_title(name, fontsize=10, pad=16)
    ax.set_xlabel("group − everybody else" + (f"\n({better})" if better else ""), fontsize=9)
    clean(ax)


_SMALL: Mapping[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "color": MARK}


def _tolerance(tolerance: float | Mapping[str, float] | None, metric: str) -> float | None:
    if isinstance(tolerance, Mapping):
        return tolerance.get(metric)
    return None if metric in _COUNTS else tolerance


def _label(group: str, table: pd.DataFrame) -> str:
    """Return a group's name and size; of a withheld explanation some metrics have no value, so sizes may differ."""
    sizes = table.loc[table["group"] == group, "n"]
    least, most = int(sizes.min()), int(sizes.max())
    return f"{group}\nn = {least:,}" if least == most else f"{group}\nn = {least:,} to {most:,}"
