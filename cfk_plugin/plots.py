"""Plots on axes of matplotlib. They are legible in grey, and show no value of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd

from cfk_plugin.audit.result import BOUNDS, COIN, AttackReport, Curve, short
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import part_contains, part_of, part_to_text
from cfk_plugin.errors import InputError, load_extra
from cfk_plugin.frontier import Frontier
from cfk_plugin.metrics import POOLED, GroupGap
from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.release.explanations import Explanations, class_sizes_of, ncp_table
from cfk_plugin.release.results import GeneralizedCounterfactual

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population


BAR, MARK, INK, BAND = "0.72", "0.25", "0.1", "0.88"


def load_matplotlib() -> Any:
    """Return matplotlib; raise `MissingDependencyError` if it is not installed."""
    return load_extra("matplotlib", "plots", "plots need matplotlib")


def new_axes(height: float) -> Axes:
    """Return the axes of a new figure."""
    load_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, height), layout="constrained")[1]


def mark_k(ax: Axes, at: float, k: int) -> None:
    """Draw a line at the policy's k and say so."""
    ax.axvline(at, color=MARK, linestyle="--", linewidth=1.2)
    ax.text(
        at,
        0.97,
        f" policy: k = {k}",
        transform=ax.get_xaxis_transform(),
        va="top",
        color=MARK,
        fontsize=9,
    )


def clean(ax: Axes) -> None:
    """Hide the top and right lines of the frame."""
    ax.spines[["top", "right"]].set_visible(False)


def nothing(ax: Axes, why: str = "nothing was released") -> Axes:
    """Write on empty axes why they are empty."""
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax


class Display(ABC):
    """A picture that `plot` draws: on axes ``ax_``, of the figure ``figure_``."""

    height = 4.0
    ax_: Axes
    figure_: Any

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on axes, by default those of a new figure."""
        self.ax_ = ax or new_axes(self.height)
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> None: ...


_MOST_BARS = 24


def plot_risk(
    explanations: Explanations | Sequence[int], *, k: int | None = None, ax: Axes | None = None
) -> Axes:
    """Plot how many people fit the released regions, and the prosecutor risk that goes with it.

    Parameters
    ----------
    explanations : Explanations or sequence of int
        Explanations, or the number of people who fit each released region.
    k : int, optional
        The policy's k, drawn as a line. Default: that of the explanations' policy.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Raises
    ------
    InputError
        If the explanations are prototypes, which no people fit, or a size is below 1.
    """
    return RiskDisplay.from_explanations(explanations, k=k, ax=ax).ax_


class RiskDisplay(Display):
    """How many people fit the released regions, and the prosecutor risk that goes with it; see
    `plot_risk`.
    """

    def __init__(self, sizes: Sequence[int], *, k: int | None = None) -> None:
        self.sizes, self.k = np.asarray(class_sizes_of(sizes), dtype=np.int64), k

    @classmethod
    def from_explanations(
        cls,
        explanations: Explanations | Sequence[int],
        *,
        k: int | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw explanations, or numbers of people; parameters and errors are those of
        `plot_risk`.
        """
        if (
            k is None
            and isinstance(explanations, Explanations)
            and isinstance(explanations.policy, PrivacyPolicy)
        ):
            k = explanations.policy.k
        return cls(class_sizes_of(explanations), k=k).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        sizes, k = self.sizes, self.k
        if not len(sizes):
            nothing(ax)
            return
        edges = _edges(sizes, k)
        shares = np.histogram(sizes, edges)[0] / len(sizes)
        bars = ax.bar(
            edges[:-1], 100 * shares, np.diff(edges), align="edge", color=BAR, edgecolor="white"
        )
        labels = [f"{100 * share:.0f}" if share >= 0.005 else "" for share in shares]
        ax.bar_label(bars, labels, padding=2, fontsize=8, color=INK)
        if k is not None:
            mark_k(ax, k - 0.5, k)
        ax.set_ylim(0, 125 * shares.max())
        ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 100])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("people who fit the region (number)")
        ax.set_ylabel(f"released explanations (% of {len(sizes):,})")
        _risk_axis(ax)
        clean(ax)


class ExplanationDisplay(Display):
    """One released explanation: its ranges among those of all groups of people, and its other
    values as text.

    Bars count the groups that have such values, each group once over its whole range; dark bars are
    the explanation's. No row is counted, and axes have no end labels. Without known groups, as for
    a lookup guarantee, there are no bars.

    Parameters
    ----------
    entry : GeneralizedCounterfactual
    factual : mapping, optional
        The person's own values, drawn where they change; only where they may be shown.
    """

    def __init__(
        self, entry: GeneralizedCounterfactual, factual: Mapping[str, Any] | None = None
    ) -> None:
        self.entry, self.factual = entry, factual
        self.height = 0.7 + 0.25 * len(entry.cells()) + 0.2 * len(entry.region)

    @classmethod
    def from_explanations(
        cls,
        explanations: Explanations,
        entry: int | None = None,
        *,
        queries: pd.DataFrame | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw one entry, by default the first that is a released region.

        Parameters
        ----------
        explanations : Explanations
        entry : int, optional
            Its position.
        queries : DataFrame, optional
            Those that were explained, where they may be shown: what changes stands beside what was.
        ax : matplotlib Axes, optional
            Default: those of a new figure.

        Raises
        ------
        InputError
            If the entry is no released region, there is none, or `queries` do not fit.
        """
        found = next(iter(explanations.generalized), None) if entry is None else explanations[entry]
        if not isinstance(found, GeneralizedCounterfactual):
            raise InputError(
                "only a released region can be drawn; see `generalized` for those that there are"
            )
        own = None if queries is None else explanations.asked(queries)[found.query]
        return cls(found, own).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        cells, region, parts = self.entry.cells(), self.entry.region, self.entry.parts()
        among = self.entry.telling.bars(region)
        heights = [1.0 if among.get(name) else 0.55 for name in cells]
        rows = np.cumsum(heights)  # lower end of each
        for (name, said), height, low in zip(cells.items(), heights, rows, strict=True):
            bars = among.get(name, [])
            wide = min(1 / max(len(bars), 1), 1 / 12)
            for at, (tall, own) in enumerate(bars):
                ax.bar(
                    at * wide, -0.8 * tall, 0.9 * wide, low, align="edge", color=INK if own else BAR
                )
            factual = None if self.factual is None or name not in parts else self.factual[name]
            stays = factual is None or part_contains(parts[name], factual)
            text = said if stays else f"{part_to_text(part_of(factual))} → {said}"
            ax.text(
                1.04,
                low - height / 2,
                text,
                va="center",
                fontsize=9,
                color=INK,
                weight="normal" if stays else "bold",
            )
        ax.set_xlim(0, 1.6)
        ax.set_ylim(rows[-1] + 0.1, 0)
        ax.set_yticks(rows - np.array(heights) / 2, list(cells))
        ax.tick_params(length=0)
        ax.set_xticks([])
        if among:
            ax.set_xlabel(
                "bars: groups of people with such values; dark: this explanation",
                loc="left",
                fontsize=9,
            )
        ax.spines[["top", "right", "bottom", "left"]].set_visible(False)


def plot_ncp_by_attribute(
    explanations: Explanations, population: Population, *, ax: Axes | None = None
) -> Axes:
    """Plot what each quasi-identifier loses by being generalised: the mean, and the 95 % quantile
    as a mark.

    Parameters
    ----------
    explanations : Explanations
    population : Population
        The one that they were made with; sealed or not.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        If the explanations are prototypes, in which nothing is generalised.
    """
    table = ncp_table(explanations, population).iloc[::-1]
    ax = ax or new_axes(1.6 + 0.5 * len(table))
    released = len(explanations.generalized)
    if not released:
        return nothing(ax)
    at = np.arange(len(table))
    ax.barh(at, table["ncp_mean"], height=0.6, color=BAR, label="mean")
    ax.plot(
        table["ncp_p95"],
        at,
        "|",
        color=INK,
        markersize=14,
        markeredgewidth=2,
        label="95 of 100 are below",
    )
    for y, (mean, high) in enumerate(zip(table["ncp_mean"], table["ncp_p95"], strict=True)):
        ax.text(max(mean, high) + 0.02, y, f"mean {mean:.2f}", va="center", fontsize=9, color=INK)
    weights = [
        f"\nweight {w:.2f}" if table["weight"].nunique() > 1 else "" for w in table["weight"]
    ]
    ax.set_yticks(at, [f"{n}{w}" for n, w in zip(table["attribute"], weights, strict=True)])
    ax.set_xlim(0, 1)
    ax.set_xticks(np.linspace(0, 1, 6))
    ax.set_xlabel(
        f"information loss NCP, over {released:,} explanations (0: exact, 1: whole range)"
    )
    ax.set_ylabel("quasi-identifier")
    ax.legend(
        frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, reverse=True
    )
    clean(ax)
    return ax


def _edges(sizes: NDArray[np.int64], k: int | None) -> NDArray[np.float64]:
    """Return edges of bars halfway between whole numbers, so that no bar crosses the policy's k."""
    first = min(int(sizes.min()), k or int(sizes.min()))
    step = max(1, -(-(int(sizes.max()) + 1 - first) // _MOST_BARS))
    return np.asarray(np.arange(first, int(sizes.max()) + step + 1, step) - 0.5, dtype=np.float64)


def _risk_axis(ax: Axes) -> None:
    """Add the risk that belongs to each size on the opposite axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    ticks = [
        tick
        for tick in ax.get_xticks()
        if tick >= 1 and ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]
    ]
    top = ax.secondary_xaxis("top")
    top.xaxis.set_major_locator(FixedLocator(ticks))
    top.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{100 / size:.2g}"))
    top.set_xlabel("prosecutor risk, 1 / people (%)")


_SAID: Mapping[str, tuple[str, str]] = {
    "k": ("people who fit, k", "more is better"),
    "ncp": ("information loss, NCP", "less is better"),
    "pureness": ("pureness", "more is better"),
    "withheld": ("share withheld", "less is better"),
}
_COUNTS = {"k"}
_NEEDED = ("metric", "group", "n", "gap", "low", "high")


def plot_groups(
    gaps: Mapping[str, Sequence[GroupGap]] | pd.DataFrame,
    *,
    tolerance: float | Mapping[str, float] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
) -> NDArray[Any]:
    """Plot by how much each group differs from everybody else, one metric beside the other, with 95
    % intervals.

    For the data holder: it shows how many are in a group. Groups of fewer than 11 are pooled or
    left out by `group_gap`, before anything is plotted.

    Parameters
    ----------
    gaps : mapping of str to sequence of GroupGap, or DataFrame
        What `group_gap` found for each metric, as `cfk_plugin.release.explanations.group_gaps`
        returns it; or a table with the columns ``metric``, ``group``, ``n``, ``gap``, ``low`` and
        ``high``.
    tolerance : float or mapping of str to float, optional
        Largest difference that is accepted, drawn as a band around 0. A number is for shares (every
        metric but ``k``, which counts people); a mapping is by metric.
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
    An interval around 0 does not show that groups are equal, and intervals are not corrected for
    several groups.
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
        bound = (
            tolerance.get(metric)
            if isinstance(tolerance, Mapping)
            else None
            if metric in _COUNTS
            else tolerance
        )
        _draw(panel, rows, metric, bound)
        named = unnamed or ax is not None  # axes of somebody else may stand anywhere
        panel.set_yticks(
            range(len(groups)), [_label(name, table) if named else "" for name in groups]
        )
        unnamed = False
    return panels


def _table(gaps: Mapping[str, Sequence[GroupGap]] | pd.DataFrame) -> pd.DataFrame:
    if not isinstance(gaps, pd.DataFrame):
        rows = [
            {"metric": metric, **asdict(gap)} for metric, found in gaps.items() for gap in found
        ]
        return pd.DataFrame(rows, columns=list(_NEEDED))
    if lost := [name for name in _NEEDED if name not in gaps.columns]:
        raise InputError(f"no group differences: columns {', '.join(lost)} are missing")
    return gaps


def _panels(ax: Axes | Sequence[Axes] | None, metrics: int, groups: int) -> NDArray[Any]:
    if ax is None:
        load_matplotlib()
        import matplotlib.pyplot as plt

        size = (1.4 + 2.3 * metrics, 1.5 + 0.42 * max(groups, 2))
        return np.asarray(
            plt.subplots(1, metrics, figsize=size, layout="constrained", squeeze=False)[1][0]
        )
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
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda gap, _: f"{gap:+g}".replace("-", "−") if gap else "0")
    )
    name, better = _SAID.get(metric, (metric, ""))
    ax.set_title(name, fontsize=10, pad=16)
    ax.set_xlabel("group − everybody else" + (f"\n({better})" if better else ""), fontsize=9)
    clean(ax)


_SMALL: Mapping[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "color": MARK}


def _label(group: str, table: pd.DataFrame) -> str:
    """Return a group's name and size; sizes may differ by metric, as withheld explanations have no
    value for some.
    """
    sizes = table.loc[table["group"] == group, "n"]
    least, most = int(sizes.min()), int(sizes.max())
    return f"{group}\nn = {least:,}" if least == most else f"{group}\nn = {least:,} to {most:,}"


_ROOM = 0.42  # right of the last k, for the names of the lines, as a share of what is left of it
_APART = 0.06  # between two names
_MOST_TICKS = 10


def plot_frontier(
    frontier: Frontier | pd.DataFrame, *, k: int | None = None, ax: Axes | None = None
) -> Axes:
    """Plot pureness, information loss and what is withheld against k, with 95 % intervals as bands.

    Pureness and information loss are over the counterfactuals that are released at every k, so that
    points are comparable: what is withheld at a large k is often what would look worst there. Where
    no counterfactual is released at every k they are over what is released at each, and the label
    says so. What is withheld is drawn if anything is.

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
    Bands of two k may overlap although one costs clearly more: they are of the same
    counterfactuals, and each band says how far the figure would move with others.
    """
    return FrontierDisplay.from_frontier(frontier, k=k, ax=ax).ax_


class FrontierDisplay(Display):
    """Pureness, information loss and what is withheld against k; see `plot_frontier`."""

    def __init__(self, table: pd.DataFrame, *, k: int | None = None) -> None:
        self.table, self.k = table.sort_values("k"), k

    @classmethod
    def from_frontier(
        cls, frontier: Frontier | pd.DataFrame, *, k: int | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw a frontier, or its table; parameters and errors are those of `plot_frontier`."""
        if isinstance(frontier, Frontier):
            k, frontier = frontier.policy["k"] if k is None else k, frontier.to_frame()
        return cls(_frontier_table(frontier), k=k).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        table, k = self.table, self.k
        if not len(table) or ("released" in table and not table["released"].any()):
            nothing(ax)
            return
        last = int(table["k"].iloc[-1])
        asked, common = (
            int(table[name].iloc[-1]) if name in table else None for name in ("asked", "common")
        )
        of = "" if common == 0 else "common_"
        lines = {
            "pureness": (f"{of}pureness_mean", "-", "o", INK),
            "information loss, NCP": (f"{of}ncp_mean", "--", "s", INK),
            "withheld, of all asked": ("withheld_rate", ":", "^", MARK),
        }
        if not table.get("withheld_rate", pd.Series(dtype=float)).any():
            del lines["withheld, of all asked"]
        lines = {
            name: line
            for name, line in lines.items()
            if line[0] in table and table[line[0]].notna().any()
        }
        for column, style, marker, shade in lines.values():
            # What two bands share is darker.
            band = (table["k"], table[f"{column}_low"], table[f"{column}_high"])
            ax.fill_between(*band, color=MARK, alpha=0.16, linewidth=0, zorder=1)
            ax.plot(
                table["k"], table[column], style, marker=marker, markersize=4, color=shade, zorder=3
            )
        y = -np.inf
        for value, name in sorted(
            (float(table[line[0]].dropna().iloc[-1]), name) for name, line in lines.items()
        ):
            y = max(value, y + _APART)  # names stand at the ends of their lines, without overlap
            where: dict[str, Any] = {
                "textcoords": "offset points",
                "va": "center",
                "fontsize": 9,
                "color": INK,
            }
            ax.annotate(f"{name} {value:.2f}", (last, y), (7, 0), **where)
        if k is not None:
            mark_k(ax, k, k)
        _limit(ax, table["k"].to_numpy(), k)
        ax.set_xlabel("k, least number of people behind an explanation")
        ax.set_ylabel(f"mean with 95 % interval{_over(asked, common)}")
        clean(ax)


def _over(asked: int | None, common: int | None) -> str:
    """Say which counterfactuals the points cover, where that is known."""
    if asked is None or common is None:
        return ""
    if not common:
        return ",\nover what each k releases: not the same ones"
    which = (
        f"all {asked:,} counterfactuals"
        if common == asked
        else f"the {common:,} of {asked:,} released at every k"
    )
    return f",\nover {which}"


def _frontier_table(table: pd.DataFrame) -> pd.DataFrame:
    means = [
        f"{common}{name}" for common in ("", "common_") for name in ("ncp_mean", "pureness_mean")
    ]
    ends = [f"{name}{end}" for name in (*means, "withheld_rate") for end in ("", "_low", "_high")]
    if lost := [
        name for name in ("k", "asked", "released", "common", *ends) if name not in table.columns
    ]:
        raise InputError(
            f"no frontier: columns {', '.join(lost)} are missing; give a Frontier or its to_frame()"
        )
    return table


def _limit(ax: Axes, ks: np.ndarray, k: int | None) -> None:
    """Leave room for the names of lines, and end the axes where there are values."""
    from matplotlib.ticker import MaxNLocator

    low, high = min(ks[0], k or ks[0]), max(ks[-1], k or ks[-1])
    wide = max(high - low, 1)
    ticks = (
        ks
        if len(ks) <= _MOST_TICKS
        else MaxNLocator(_MOST_TICKS, integer=True).tick_values(ks[0], ks[-1])
    )
    ax.set_xlim(low - 0.03 * wide, high + _ROOM * wide)
    ax.set_xticks([tick for tick in ticks if low <= tick <= high])
    ax.spines["bottom"].set_bounds(low, high)
    ax.set_ylim(-0.02, 1.12)
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.spines["left"].set_bounds(0, 1)


_STYLES = ("-", "--", ":", "-.")
_SHADES = (INK, "0.45")
_GUIDES: Sequence[Any] = ((0, (6, 2)), (0, (1, 2)))
Attacked = AttackReport | Sequence[AttackReport] | Mapping[str, Curve]
_FEW = 1_000  # people; with fewer of them, rates of 0.1 % cannot be seen


class RocLine(NamedTuple):
    """A curve to draw: its name, and the number of non-members that its false positive rates are
    of.
    """

    name: str
    curve: Curve
    others: int | None = None

    @property
    def least(self) -> float:
        """Return the smallest rate of false alarms that could be observed."""
        return (
            1 / self.others
            if self.others
            else min((rate for rate in self.curve.fpr if rate > 0), default=0.1)
        )


def plot_roc(
    report: Attacked,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of members that attacks find over the share of non-members that they take for
    members.

    For the data holder: each step of a curve is one person, so few people show where single ones
    stand. A privacy report's external edition has the same curves in steps of 11 people.

    Parameters
    ----------
    report : AttackReport, sequence of AttackReport, or mapping of str to Curve
        Whose curves are drawn. Curves of several reports are named with what was attacked.
    epsilon, delta : float, optional
        A claim for neighboring tables in which one person is *replaced*, as membership attacks
        assume; the most that it admits is drawn as a line. Default: the lines of the claims that
        the reports hold.
    log : bool
        Logarithmic axes that start at 1 / n for n non-members. Only these show attacks that are
        right about a few people.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        If there are no curves, or epsilon or delta is out of range.

    Notes
    -----
    A bound on the balanced accuracy B is no curve. It is drawn as what it implies, TPR at most
    FPR + 2 B - 1, where a report holds it.
    """
    return RocDisplay.from_report(report, epsilon, delta, log=log, ax=ax).ax_


class RocDisplay(Display):
    """Members found over false alarms; see `plot_roc`.

    Parameters
    ----------
    lines : sequence of RocLine
    guides : mapping of str to Curve
        What is claimed, by its name.
    log : bool
    """

    height = 5.0

    def __init__(
        self, lines: Sequence[RocLine], guides: Mapping[str, Curve], *, log: bool = True
    ) -> None:
        self.lines, self.guides, self.log = lines, guides, log

    @classmethod
    def from_report(
        cls,
        report: Attacked,
        epsilon: float | None = None,
        delta: float = 0,
        *,
        log: bool = True,
        ax: Axes | None = None,
    ) -> Self:
        """Draw curves; parameters and errors are those of `plot_roc`."""
        lines, claims = _given(report)
        guides = {BOUNDS[name]: bound for name, bound in claims.items()}
        if epsilon is not None:
            at = np.unique([0.0, *np.geomspace(1e-6, 1, 200), *np.linspace(0, 1, 201)])
            claimed = f"ε = {epsilon:g}{f', δ = {delta:g}' if delta else ''}"
            guides = {
                f"most that {claimed} admits": Curve(
                    tuple(at), tuple(_admitted(at, epsilon, delta))
                )
            }
        return cls(lines, guides, log=log).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        if not self.lines:
            nothing(ax, "no attack with a curve")
            return
        # a power of ten at least
        least = min(0.1, *(line.least for line in self.lines)) if self.log else 0.0
        at = np.geomspace(least, 1.0, 200) if self.log else np.linspace(0.0, 1.0, 201)
        ax.plot(at, at, color=MARK, linewidth=0.8, label=COIN, zorder=1)
        for dashes, (name, bound) in zip(_GUIDES, self.guides.items(), strict=False):
            ax.plot(
                at,
                roc_height(bound.fpr, bound.tpr, at),
                linestyle=dashes,
                color=MARK,
                linewidth=1,
                label=name,
            )
        for place, line in enumerate(self.lines):
            _draw_curve(ax, line, place, least)
        _roc_axes(ax, self.lines, least)


def _given(report: Attacked) -> tuple[list[RocLine], dict[str, Curve]]:
    """Return the curves of attacks, and those of what is claimed."""
    if isinstance(report, Mapping):
        if not all(isinstance(curve, Curve) for curve in report.values()):
            raise InputError(
                "a mapping must be of names to Curve, such as an AttackReport's curves"
            )
        drawn = [
            RocLine(short(name), curve) for name, curve in report.items() if name not in BOUNDS
        ]
        return drawn, {name: report[name] for name in BOUNDS if name in report}
    reports = [report] if isinstance(report, AttackReport) else list(report)
    if not all(isinstance(each, AttackReport) for each in reports):
        raise InputError("plot_roc draws an AttackReport, several, or curves by name")
    claims = {name: each.curves[name] for each in reports for name in BOUNDS if name in each.curves}
    return [line for each in reports for line in _roc_lines(each, several=len(reports) > 1)], claims


def _roc_lines(report: AttackReport, *, several: bool) -> Iterator[RocLine]:
    for name, curve in report.curves.items():
        if name in BOUNDS:
            continue
        found = next((result for result in report.results if result.attack == name), None)
        others = None if found is None else found.figures.get("others")
        # whose success is not an area
        area = found is not None and not name.startswith("membership_surrogate")
        title = (
            f"{short(name)}, AUC {found.main.value:.2f}"
            if found is not None and area
            else short(name)
        )
        known = others is not None and np.isfinite(others) and others > 0
        yield RocLine(
            f"{report.subject}: {title}" if several else title,
            curve,
            int(others or 0) if known else None,
        )


def _draw_curve(ax: Axes, line: RocLine, place: int, least: float) -> None:
    start = max(least, line.least) if least else 0.0
    inside = [rate for rate in line.curve.fpr if rate >= start]
    at = np.unique([start, *inside, 1.0])
    heights = roc_height(line.curve.fpr, line.curve.tpr, at)
    shown = heights > 0 if least else np.ones(len(at), dtype=bool)
    ax.plot(
        at[shown],
        heights[shown],
        _STYLES[place % len(_STYLES)],
        color=_SHADES[place // len(_STYLES) % len(_SHADES)],
        linewidth=1.8,
        label=line.name,
        zorder=3,
    )


def _roc_axes(ax: Axes, lines: Sequence[RocLine], least: float) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    if least:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(least, 1.0)
        ax.set_ylim(least, 1.25)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
            axis.set_minor_formatter(NullFormatter())
    else:
        ax.set_xlim(0.0, 1.0)
        ax.set_ylim(0.0, 1.02)
    known = [line.others for line in lines if line.others]
    few = (
        f"\n{min(known):,} people who are no members: less cannot be seen"
        if known and min(known) < _FEW
        else ""
    )
    ax.set_xlabel(f"share of others taken for members (FPR){few}")
    ax.set_ylabel("share of members found (TPR)")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=9, frameon=False, handlelength=3)
    clean(ax)


def _admitted(at: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    from cfk_plugin.audit.epsilon_bounds import largest_tpr, replace_one

    return largest_tpr(at, *replace_one(epsilon, delta, "replace-one"))
