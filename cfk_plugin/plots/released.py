"""Plots of what was released: how many people fit, and what each attribute loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.plots._drawing import BAR, INK, clean, mark_k, new_axes, nothing
from cfk_plugin.release.explanations import Explanations, class_sizes_of, ncp_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population

_MOST_BARS = 24


def plot_risk(explanations: Explanations | Sequence[int], *, k: int | None = None, ax: Axes | None = None) -> Axes:
    """Plot how many people fit the released regions, and the prosecutor risk that goes with it.

    Parameters
    ----------
    explanations : Explanations or sequence of int
        Explanations, or the number of people who fit each released region.
    k : int, optional
        The policy's k, drawn as a line. Default: that of the explanations' policy.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        If the explanations are prototypes, which no people fit, or a size is below 1.
    """
    from matplotlib.ticker import MaxNLocator

    sizes = np.asarray(class_sizes_of(explanations), dtype=np.int64)
    ax = ax or new_axes(4.0)
    if k is None and isinstance(explanations, Explanations) and isinstance(explanations.policy, PrivacyPolicy):
        k = explanations.policy.k
    if not len(sizes):
        return nothing(ax)
    edges = _edges(sizes, k)
    shares = np.histogram(sizes, edges)[0] / len(sizes)
    bars = ax.bar(edges[:-1], 100 * shares, np.diff(edges), align="edge", color=BAR, edgecolor="white")
    ax.bar_label(bars, [_percent(share) for share in shares], padding=2, fontsize=8, color=INK)
    if k is not None:
        mark_k(ax, k - 0.5, k)
    ax.set_ylim(0, 125 * shares.max())
    ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 100])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("people who fit the region (number)")
    ax.set_ylabel(f"released explanations (% of {len(sizes):,})")
    _risk_axis(ax)
    clean(ax)
    return ax


def plot_ncp_by_attribute(explanations: Explanations, population: Population, *, ax: Axes | None = None) -> Axes:
    """Plot what each quasi-identifier loses by being generalised: the mean, and the 95 % quantile as a mark.

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
    ax.plot(table["ncp_p95"], at, "|", color=INK, markersize=14, markeredgewidth=2, label="95 of 100 are below")
    for y, (mean, high) in enumerate(zip(table["ncp_mean"], table["ncp_p95"], strict=True)):
        ax.text(max(mean, high) + 0.02, y, f"mean {mean:.2f}", va="center", fontsize=9, color=INK)
    equal = table["weight"].nunique() == 1
    names = [
        f"{n}" if equal else f"{n}\nweight {w:.2f}" for n, w in zip(table["attribute"], table["weight"], strict=True)
    ]
    ax.set_yticks(at, names)
    ax.set_xlim(0, 1)
    ax.set_xticks(np.linspace(0, 1, 6))
    ax.set_xlabel(f"information loss NCP, over {released:,} explanations (0: exact, 1: whole range)")
    ax.set_ylabel("quasi-identifier")
    ax.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, reverse=True)
    clean(ax)
    return ax


def _edges(sizes: NDArray[np.int64], k: int | None) -> NDArray[np.float64]:
    """Return edges of bars half a person beside whole numbers; one of them is the policy's k."""
    first = min(int(sizes.min()), k or int(sizes.min()))
    step = max(1, -(-(int(sizes.max()) + 1 - first) // _MOST_BARS))
    return np.asarray(np.arange(first, int(sizes.max()) + step + 1, step) - 0.5, dtype=np.float64)


def _risk_axis(ax: Axes) -> None:
    """Write the risk that belongs to a size on the other side."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    ticks = [tick for tick in ax.get_xticks() if tick >= 1 and ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
    top = ax.secondary_xaxis("top")
    top.xaxis.set_major_locator(FixedLocator(ticks))
    top.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{100 / size:.2g}"))
    top.set_xlabel("prosecutor risk, 1 / people (%)")


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.005 else ""
