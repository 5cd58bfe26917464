"""The stage that says what each raw counterfactual is, for the data holder: the host's detection and the plugins'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from cfk_plugin.counterfactual import Finding
from cfk_plugin.plugins import PluginManager, worst

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.detection import Detector
    from cfk_plugin.population import Population

_FINDINGS: dict[str | None, Finding | None] = {None: None, **{name: name for name in get_args(Finding)}}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FindingStage:
    """Detection, bound once. Host side only.

    Attributes
    ----------
    population : Population
    detector : Detector
    plugins : PluginManager
    """

    population: Population
    detector: Detector
    plugins: PluginManager

    def of(self, frame: pd.DataFrame, *, instance_based: bool) -> tuple[Finding | None, ...]:
        """Return a finding per counterfactual; plugins may find worse, never better, than the host.

        Where there are no rows to compare with, nothing is found and None says so.
        """
        if not self.population.has_rows:
            return (None,) * len(frame)
        own = self.detector.find(frame, instance_based=instance_based)
        others = self.plugins.detect(frame, self.population)
        return tuple(_FINDINGS[worst(a, b)] for a, b in zip(own, others, strict=True))
