"""Plots with matplotlib, which are legible in grey and show no value of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import load_extra
from cfk_plugin.release.explanations import Explanations, class_sizes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray


BAR, MARK, INK = "0.72", "0.25", "0.1"
_MOST_BARS = 24


class Display(ABC):
    """Base of the plots: `plot` draws on the axes ``ax_`` of the figure ``figure_``."""

    ax_: Axes
    figure_: Any

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on axes, by default those of a new figure."""
        self.ax_ = _new_axes() if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        self.ax_.spines[["top", "right"]].set_visible(False)
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> None: ...


def _new_axes() -> Axes:
    load_extra("matplotlib", "plots", "plots need matplotlib")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def _mark_k(ax: Axes, x: float, k: int) -> None:
    """Draw a line for the policy's k, with a label."""
    ax.axvline(x, color=MARK, linestyle="--", linewidth=1.2)
    place = ax.get_xaxis_transform()
    ax.text(x, 0.97, f" policy: k = {k}", transform=place, va="top", color=MARK, fontsize=9)


class RiskDisplay(Display):
    """A histogram of the number of people in each released region, with the prosecutor risk.

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
        """Draw the regions of explanations, with a line at their policy's k.

        Raises
        ------
        InputError
            If the explanations are prototypes, which have no regions.
        """
        sizes = class_sizes_of(explanations)
        policy = explanations.policy
        k = policy.k if isinstance(policy, PrivacyPolicy) else None
        return cls(sizes, k=k).plot(ax=ax)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        if not len(self.sizes):
            ax.text(0.5, 0.5, "nothing was released", ha="center", transform=ax.transAxes)
            ax.set_axis_off()
            return
        edges = _edges(self.sizes, self.k)
        shares = np.histogram(self.sizes, edges)[0] / len(self.sizes)
        bars = ax.bar(
            edges[:-1], 100 * shares, np.diff(edges), align="edge", color=BAR, edgecolor="white"
        )
        labels = [f"{100 * share:.0f}" if share >= 0.005 else "" for share in shares]
        ax.bar_label(bars, labels, padding=2, fontsize=8, color=INK)
        if self.k is not None:
            _mark_k(ax, self.k - 0.5, self.k)
        ax.set_ylim(0, 125 * shares.max())
        ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 100])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("people who fit the region (number)")
        ax.set_ylabel(f"released explanations (% of {len(self.sizes):,})")
        _add_risk_axis(ax)


def _edges(sizes: NDArray[np.int64], k: int | None) -> NDArray[np.float64]:
    """Return the edges of the bars, halfway between whole numbers.

    The first bar starts at the policy's k, or at the least size if that is smaller.
    """
    first = int(sizes.min())
    last = int(sizes.max())
    if k is not None:
        first = min(first, k)
    width = max(1, -(-(last + 1 - first) // _MOST_BARS))
    return np.asarray(np.arange(first, last + width + 1, width) - 0.5, dtype=np.float64)


def _add_risk_axis(ax: Axes) -> None:
    """Add an axis at the top with the prosecutor risk, 1 / size."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    low, high = ax.get_xlim()
    ticks = [tick for tick in ax.get_xticks() if tick >= 1 and low <= tick <= high]
    top = ax.secondary_xaxis("top")
    top.xaxis.set_major_locator(FixedLocator(ticks))
    top.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{100 / size:.2g}"))
    top.set_xlabel("prosecutor risk, 1 / people (%)")


class FrontierDisplay(Display):
    """Mean information loss, mean pureness and the withheld share as lines over k.

    Parameters
    ----------
    table : DataFrame
        The result of `frontier`: ``k``, ``ncp_mean``, ``pureness_mean`` and ``withheld_rate``.
    k : int, optional
        The policy's k, drawn as a line.
    """

    def __init__(self, table: pd.DataFrame, *, k: int | None = None) -> None:
        self.table = table
        self.k = k

    def _draw(self, ax: Axes) -> None:
        lines = {
            "pureness_mean": ("pureness", "o-"),
            "ncp_mean": ("information loss (NCP)", "s--"),
            "withheld_rate": ("withheld", "^:"),
        }
        for column, (name, style) in lines.items():
            ax.plot(self.table["k"], self.table[column], style, color=INK, label=name)
        if self.k is not None:
            _mark_k(ax, self.k, self.k)
        ax.set_ylim(-0.02, 1.12)
        ax.set_xlabel("k, least number of people behind an explanation")
        ax.set_ylabel("mean, or share")
        ax.legend(loc="center right", frameon=False, fontsize=9)
