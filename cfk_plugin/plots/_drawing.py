"""What all plots share: shades of grey, new axes, the line at the policy's k, and how nothing is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, MARK, INK, BAND = "0.72", "0.25", "0.1", "0.88"


def new_axes(height: float) -> Axes:
    """Return the axes of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, height), layout="constrained")[1]


def mark_k(ax: Axes, at: float, k: int) -> None:
    """Draw a line at the policy's k and say so."""
    ax.axvline(at, color=MARK, linestyle="--", linewidth=1.2)
    ax.text(at, 0.97, f" policy: k = {k}", transform=ax.get_xaxis_transform(), va="top", color=MARK, fontsize=9)


def clean(ax: Axes) -> None:
    """Leave out the lines that say nothing."""
    ax.spines[["top", "right"]].set_visible(False)


def nothing(ax: Axes, why: str = "nothing was released") -> Axes:
    """Say on empty axes why they are empty."""
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax
