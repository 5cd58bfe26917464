"""The experiments of Goethals, Sörensen and Martens (2023) again, with the solvers of this product beside theirs."""

from __future__ import annotations

from cfk_plugin.reproduction.experiment import Experiment
from cfk_plugin.reproduction.reproducing import Place, reproduce
from cfk_plugin.reproduction.results import Results

__all__ = ["Experiment", "Place", "Results", "reproduce"]
