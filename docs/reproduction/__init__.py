"""The experiments of Goethals, Sörensen and Martens (2023), repeated with our solvers beside
theirs.
"""

from __future__ import annotations

from reproduction.results import Results
from reproduction.run import Experiment, Place, reproduce

__all__ = ["Experiment", "Place", "Results", "reproduce"]
