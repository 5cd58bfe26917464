"""Plots on axes of matplotlib. They read in grey, and show no value of a row."""

from cfk_plugin.plots.frontier import plot_frontier
from cfk_plugin.plots.groups import plot_groups
from cfk_plugin.plots.released import plot_ncp_by_attribute, plot_risk
from cfk_plugin.plots.roc import plot_roc

__all__ = ["plot_frontier", "plot_groups", "plot_ncp_by_attribute", "plot_risk", "plot_roc"]
