"""The frontier: what every k costs, measured on the same counterfactuals."""

from cfk_plugin.frontier.measuring import KS, frontier
from cfk_plugin.frontier.result import ARTIFACT, Frontier, Point

__all__ = ["ARTIFACT", "KS", "Frontier", "Point", "frontier"]
