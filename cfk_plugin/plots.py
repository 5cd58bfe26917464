"""Plots on axes of matplotlib. They are legible in grey, and show no value of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd

from cfk_plugin.audit.result import BOUNDS, COIN, AttackReport, Curve, short
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import part_contains, part_of, part_to_text
from cfk_plugin.errors import InputError, load_extra
from cfk_plugin.frontier import Frontier
from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.release.explanations import Explanations, class_sizes_of
from cfk_plugin.release.results import GeneralizedCounterfactual

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray


BAR, MARK, INK = "0.72", "0.25", "0.1"


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


def write_reason(ax: Axes, reason: str = "nothing was released") -> None:
    """Write on empty axes why they are empty."""
    ax.text(0.5, 0.5, reason, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()


class Display(ABC):
    """A picture that `plot` draws: on axes ``ax_``, of the figure ``figure_``.

    The class methods ``from_...`` of a display compute what is drawn and draw it, on `ax` or on
    the axes of a new figure; `plot` draws it again.
    """

    height = 4.0
    ax_: Axes
    figure_: Any

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on axes, by default those of a new figure."""
        self.ax_ = new_axes(self.height) if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> None: ...


# --- how many people fit what was released ---

_MOST_BARS = 24


class RiskDisplay(Display):
    """How many people fit the released regions, and the prosecutor risk that goes with it.

    Parameters
    ----------
    sizes : sequence of int
        Number of people who fit each released region.
    k : int, optional
        The policy's k, drawn as a line.

    Raises
    ------
    InputError
        If a size is below 1.
    """

    def __init__(self, sizes: Sequence[int], *, k: int | None = None) -> None:
        self.sizes = np.asarray(class_sizes_of(sizes), dtype=np.int64)
        self.k = k

    @classmethod
    def from_explanations(cls, explanations: Explanations, *, ax: Axes | None = None) -> Self:
        """Draw explanations, with a line at their policy's k.

        Raises
        ------
        InputError
            If the explanations are prototypes, which no people fit.
        """
        sizes = class_sizes_of(explanations)
        policy = explanations.policy
        k = policy.k if isinstance(policy, PrivacyPolicy) else None
        return cls(sizes, k=k).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        if not len(self.sizes):
            write_reason(ax)
            return
        edges = _edges(self.sizes, self.k)
        shares = np.histogram(self.sizes, edges)[0] / len(self.sizes)
        bars = ax.bar(
            edges[:-1], 100 * shares, np.diff(edges), align="edge", color=BAR, edgecolor="white"
        )
        labels = [f"{100 * share:.0f}" if share >= 0.005 else "" for share in shares]
        ax.bar_label(bars, labels, padding=2, fontsize=8, color=INK)
        if self.k is not None:
            mark_k(ax, self.k - 0.5, self.k)
        ax.set_ylim(0, 125 * shares.max())
        ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 100])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("people who fit the region (number)")
        ax.set_ylabel(f"released explanations (% of {len(self.sizes):,})")
        _add_risk_axis(ax)
        clean(ax)


def _edges(sizes: NDArray[np.int64], k: int | None) -> NDArray[np.float64]:
    """Return edges of bars halfway between whole numbers, so that no bar crosses the policy's k."""
    first = int(sizes.min())
    last = int(sizes.max())
    if k is not None:
        first = min(first, k)
    width = max(1, -(-(last + 1 - first) // _MOST_BARS))
    return np.asarray(np.arange(first, last + width + 1, width) - 0.5, dtype=np.float64)


def _add_risk_axis(ax: Axes) -> None:
    """Add the risk that belongs to each size on the opposite axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    low, high = ax.get_xlim()
    ticks = [tick for tick in ax.get_xticks() if tick >= 1 and low <= tick <= high]
    top = ax.secondary_xaxis("top")
    top.xaxis.set_major_locator(FixedLocator(ticks))
    top.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{100 / size:.2g}"))
    top.set_xlabel("prosecutor risk, 1 / people (%)")


# --- one explanation ---

_TALL_ROW = 1.0  # of an attribute with bars
_LOW_ROW = 0.55  # of one that is text alone


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
        self.entry = entry
        self.factual = factual
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
        explanation: object = None
        if entry is not None:
            explanation = explanations[entry]
        elif explanations.generalized:
            explanation = explanations.generalized[0]
        if not isinstance(explanation, GeneralizedCounterfactual):
            raise InputError(
                "only a released region can be drawn; see `generalized` for those that there are"
            )
        factual = None
        if queries is not None:
            factual = explanations.asked(queries)[explanation.query]
        return cls(explanation, factual).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        cells = self.entry.cells()
        bars_of = self.entry.presentation.bars(self.entry.region)
        heights = np.array([_TALL_ROW if bars_of.get(name) else _LOW_ROW for name in cells])
        bottoms = np.cumsum(heights)
        for name, height, bottom in zip(cells, heights, bottoms, strict=True):
            _draw_bars(ax, bars_of.get(name, []), bottom)
            self._write_values(ax, name, bottom - height / 2)
        ax.set_xlim(0, 1.6)
        ax.set_ylim(bottoms[-1] + 0.1, 0)
        ax.set_yticks(bottoms - heights / 2, list(cells))
        ax.tick_params(length=0)
        ax.set_xticks([])
        if bars_of:
            ax.set_xlabel(
                "bars: groups of people with such values; dark: this explanation",
                loc="left",
                fontsize=9,
            )
        ax.spines[["top", "right", "bottom", "left"]].set_visible(False)

    def _write_values(self, ax: Axes, name: str, y: float) -> None:
        """Write the released values of an attribute; in bold, after the person's own, what
        changes.
        """
        text = self.entry.cells()[name]
        weight = "normal"
        parts = self.entry.parts()
        if self.factual is not None and name in parts:
            value = self.factual[name]
            if not part_contains(parts[name], value):
                text = f"{part_to_text(part_of(value))} → {text}"
                weight = "bold"
        ax.text(1.04, y, text, va="center", fontsize=9, color=INK, weight=weight)


def _draw_bars(ax: Axes, bars: Sequence[tuple[float, bool]], bottom: float) -> None:
    """Draw bars of an attribute upwards from `bottom`, as the y axis points down.

    `bars` has the height of each, from 0 to 1, and whether it belongs to the explanation.
    """
    width = min(1 / max(len(bars), 1), 1 / 12)
    for place, (height, is_of_explanation) in enumerate(bars):
        color = INK if is_of_explanation else BAR
        ax.bar(place * width, -0.8 * height, 0.9 * width, bottom, align="edge", color=color)


# --- what every k costs ---

_NAME_ROOM = 0.42  # right of the last k, for names of lines, as a share of the k that are drawn
_NAME_DISTANCE = 0.06  # between two names
_MOST_TICKS = 10


class _FrontierLine(NamedTuple):
    """How one figure of a frontier is drawn."""

    name: str
    column: str
    style: str
    marker: str
    color: str


class FrontierDisplay(Display):
    """Pureness, information loss and what is withheld against k, with 95 % intervals as bands.

    Pureness and information loss are over the counterfactuals that are released at every k, so that
    points are comparable: what is withheld at a large k is often what would look worst there. Where
    no counterfactual is released at every k they are over what is released at each, and the label
    says so. What is withheld is drawn if anything is.

    Parameters
    ----------
    table : DataFrame
        Columns as `Frontier.to_frame` has them. What it lacks is not drawn.
    k : int, optional
        The policy's k, drawn as a line.

    Notes
    -----
    Bands of two k may overlap although one costs clearly more: they are of the same
    counterfactuals, and each band says how far the figure would move with others.
    """

    def __init__(self, table: pd.DataFrame, *, k: int | None = None) -> None:
        self.table = table.sort_values("k")
        self.k = k

    @classmethod
    def from_frontier(cls, frontier: Frontier, *, ax: Axes | None = None) -> Self:
        """Draw what `cfk_plugin.frontier.frontier` measured, with a line at its policy's k."""
        return cls(frontier.to_frame(), k=frontier.policy["k"]).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        table = self.table
        if not len(table) or ("released" in table and not table["released"].any()):
            write_reason(ax)
            return
        lines = self._lines()
        for line in lines:
            # What two bands share is darker.
            ax.fill_between(
                table["k"],
                table[f"{line.column}_low"],
                table[f"{line.column}_high"],
                color=MARK,
                alpha=0.16,
                linewidth=0,
                zorder=1,
            )
            ax.plot(
                table["k"],
                table[line.column],
                line.style,
                marker=line.marker,
                markersize=4,
                color=line.color,
                zorder=3,
            )
        self._write_names(ax, lines)
        if self.k is not None:
            mark_k(ax, self.k, self.k)
        _limit(ax, table["k"].to_numpy(), self.k)
        ax.set_xlabel("k, least number of people behind an explanation")
        ax.set_ylabel(f"mean with 95 % interval{self._covered()}")
        clean(ax)

    def _last(self, column: str) -> int | None:
        """Return a count at the largest k, if the table has it."""
        return int(self.table[column].iloc[-1]) if column in self.table else None

    def _lines(self) -> list[_FrontierLine]:
        """Return the lines of which the table has numbers."""
        prefix = "" if self._last("common") == 0 else "common_"
        lines = [
            _FrontierLine("pureness", f"{prefix}pureness_mean", "-", "o", INK),
            _FrontierLine("information loss, NCP", f"{prefix}ncp_mean", "--", "s", INK),
        ]
        if "withheld_rate" in self.table and self.table["withheld_rate"].any():
            lines.append(
                _FrontierLine("withheld, of answers needed", "withheld_rate", ":", "^", MARK)
            )
        return [
            line
            for line in lines
            if line.column in self.table and self.table[line.column].notna().any()
        ]

    def _write_names(self, ax: Axes, lines: Sequence[_FrontierLine]) -> None:
        """Write the names of the lines at their ends, without overlap."""
        last_k = int(self.table["k"].iloc[-1])
        ends = [(float(self.table[line.column].dropna().iloc[-1]), line.name) for line in lines]
        y = -np.inf
        for value, name in sorted(ends):
            y = max(value, y + _NAME_DISTANCE)
            ax.annotate(
                f"{name} {value:.2f}",
                (last_k, y),
                (7, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=INK,
            )

    def _covered(self) -> str:
        """Say which counterfactuals the points cover, where that is known."""
        asked = self._last("asked")
        common = self._last("common")
        if asked is None or common is None:
            return ""
        if common == 0:
            return ",\nover what each k releases: not the same ones"
        if common == asked:
            return f",\nover all {asked:,} counterfactuals"
        return f",\nover the {common:,} of {asked:,} released at every k"


def _limit(ax: Axes, ks: NDArray[Any], k: int | None) -> None:
    """Leave room for the names of lines, and end the axes where there are values."""
    from matplotlib.ticker import MaxNLocator

    low = ks[0] if k is None else min(ks[0], k)
    high = ks[-1] if k is None else max(ks[-1], k)
    width = max(high - low, 1)
    ticks = ks
    if len(ks) > _MOST_TICKS:
        ticks = np.asarray(MaxNLocator(_MOST_TICKS, integer=True).tick_values(ks[0], ks[-1]))
    ax.set_xlim(low - 0.03 * width, high + _NAME_ROOM * width)
    ax.set_xticks([tick for tick in ticks if low <= tick <= high])
    ax.spines["bottom"].set_bounds(low, high)
    ax.set_ylim(-0.02, 1.12)
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.spines["left"].set_bounds(0, 1)


# --- attacks that tell members from others ---

_STYLES = ("-", "--", ":", "-.")
_SHADES = (INK, "0.45")
_GUIDE_DASHES: Sequence[Any] = ((0, (6, 2)), (0, (1, 2)))
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
        if self.others:
            return 1 / self.others
        return min((rate for rate in self.curve.fpr if rate > 0), default=0.1)


class RocDisplay(Display):
    """The share of members that attacks find over the share of non-members that they take for
    members.

    The axes are logarithmic and start at 1 / n for n non-members: only these show attacks that are
    right about a few people.

    For the data holder: each step of a curve is one person, so few people show where single ones
    stand.

    Parameters
    ----------
    lines : sequence of RocLine
    guides : mapping of str to Curve
        What is claimed, by its name.

    Notes
    -----
    A bound on the balanced accuracy B is no curve. It is drawn as what it implies, TPR at most
    FPR + 2 B - 1, where a report holds it.
    """

    height = 5.0

    def __init__(self, lines: Sequence[RocLine], guides: Mapping[str, Curve]) -> None:
        self.lines = lines
        self.guides = guides

    @classmethod
    def from_report(cls, report: AttackReport, *, ax: Axes | None = None) -> Self:
        """Draw the curves of attacks, and of what is claimed against them."""
        guides = {BOUNDS[name]: report.curves[name] for name in BOUNDS if name in report.curves}
        return cls(list(_roc_lines(report)), guides).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        if not self.lines:
            write_reason(ax, "no attack with a curve")
            return
        # a power of ten at least
        least = min(0.1, *(line.least for line in self.lines))
        rates = np.geomspace(least, 1.0, 200)
        ax.plot(rates, rates, color=MARK, linewidth=0.8, label=COIN, zorder=1)
        for dashes, (name, bound) in zip(_GUIDE_DASHES, self.guides.items(), strict=False):
            ax.plot(
                rates,
                roc_height(bound.fpr, bound.tpr, rates),
                linestyle=dashes,
                color=MARK,
                linewidth=1,
                label=name,
            )
        for place, line in enumerate(self.lines):
            _draw_curve(ax, line, place)
        _finish_roc_axes(ax, self.lines, least)


def _roc_lines(report: AttackReport) -> Iterator[RocLine]:
    """Yield the curves of attacks, named with the area under them."""
    results = {result.attack: result for result in report.results}
    for attack, curve in report.curves.items():
        if attack in BOUNDS:
            continue
        name = short(attack)
        if attack not in results:
            yield RocLine(name, curve)
            continue
        result = results[attack]
        name = f"{name}, AUC {result.main.value:.2f}"
        others = result.figures.get("others", np.nan)
        yield RocLine(name, curve, int(others) if np.isfinite(others) and others > 0 else None)


def _draw_curve(ax: Axes, line: RocLine, place: int) -> None:
    """Draw a curve from the smallest rate that could be observed, where it is above 0."""
    rates = [rate for rate in line.curve.fpr if rate >= line.least]
    x = np.unique([line.least, *rates, 1.0])
    y = roc_height(line.curve.fpr, line.curve.tpr, x)
    is_drawn = y > 0
    ax.plot(
        x[is_drawn],
        y[is_drawn],
        _STYLES[place % len(_STYLES)],
        color=_SHADES[place // len(_STYLES) % len(_SHADES)],
        linewidth=1.8,
        label=line.name,
        zorder=3,
    )


def _finish_roc_axes(ax: Axes, lines: Sequence[RocLine], least: float) -> None:
    """Make the axes logarithmic from the smallest rate to 1, and name them and the lines."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(least, 1.0)
    ax.set_ylim(least, 1.25)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
        axis.set_minor_formatter(NullFormatter())
    fewest = min((line.others for line in lines if line.others), default=_FEW)
    x_label = "share of others taken for members (FPR)"
    if fewest < _FEW:
        x_label += f"\n{fewest:,} people who are no members: less cannot be seen"
    ax.set_xlabel(x_label)
    ax.set_ylabel("share of members found (TPR)")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=9, frameon=False, handlelength=3)
    clean(ax)
