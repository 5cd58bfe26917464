"""What checks are judged by, and the form in which they judge: exact, before anything is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cfk_plugin.report.assessment.control import Figure
from cfk_plugin.report.data import Status

if TYPE_CHECKING:
    from cfk_plugin.report.assessment.pooled import Pooled
    from cfk_plugin.report.data import Attack, Group
    from cfk_plugin.report.evidence import Evidence
    from cfk_plugin.report.inputs import HumanInputs
    from cfk_plugin.report.statements.presets import Threshold

NOTHING = Figure(value=None)
OWN_POLICY = "the policy of the runs"
"""Source of what no preset and nobody asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One line of the verdict, with exact figures.

    Attributes
    ----------
    id : str
    status : Status
    measured, threshold : Figure
    source : str
    section : int
    text : str
        Names no figure that an edition may hide: those are in `measured` and `threshold`.
    evidence : tuple of str
    """

    id: str
    status: Status
    text: str
    section: int
    measured: Figure = NOTHING
    threshold: Figure = NOTHING
    source: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A judgement before it is spoken: which check it is, and what it compares with.

    Attributes
    ----------
    id : str
    section : int
    threshold : Figure
    source : str
    """

    id: str
    section: int
    threshold: Figure = NOTHING
    source: str = ""

    def says(self, status: Status, text: str, measured: Figure = NOTHING, evidence: tuple[str, ...] = ()) -> Judgement:
        """Return the judgement."""
        return Judgement(
            id=self.id,
            status=status,
            text=text,
            section=self.section,
            measured=measured,
            threshold=self.threshold,
            source=self.source,
            evidence=evidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Case:
    """Everything that a check may look at.

    Attributes
    ----------
    evidence : Evidence
    pooled : Pooled
    figures : mapping of str to Figure
    inputs : HumanInputs
    thresholds : mapping of str to Threshold
        Asked by a preset, by people, or by the house.
    groups : sequence of Group
        Exact.
    attacks : sequence of Attack
        Exact.
    placeholders : int
        Questions without an answer.
    """

    evidence: Evidence
    pooled: Pooled
    figures: Mapping[str, Figure]
    inputs: HumanInputs
    thresholds: Mapping[str, Threshold]
    groups: tuple[Group, ...]
    attacks: tuple[Attack, ...]
    placeholders: int

    @property
    def of_prototypes(self) -> bool:
        """Whether the report speaks of prototypes: a run has a policy without k."""
        return any(run.policy is not None and "k" not in run.policy for run in self.pooled.runs)

    @property
    def of_regions(self) -> bool:
        """Whether it speaks of regions; it does where nothing is known."""
        return self.pooled.k is not None or not self.of_prototypes

    @property
    def asked_k(self) -> Figure:
        """The largest k that is asked of any explanation; without a value where none is."""
        asked = self.pooled.rows["asked_k"].dropna()
        return Figure(value=int(asked.max())) if len(asked) else NOTHING

    def figure(self, name: str) -> Figure:
        """Return a figure; one without a value where there is none."""
        return self.figures.get(name, NOTHING)

    def settings(self, name: str) -> list[Any]:
        """Return the different values that a setting has in the policies of the runs, None left out."""
        found = [(run.policy or {}).get(name) for run in self.pooled.runs]
        return sorted({value for value in found if value is not None}, key=str)

    def threshold(self, name: str, setting: str | None = None, strictest: str = "max") -> tuple[Figure, str]:
        """Return what is asked, and by whom: a preset, people or the house, else the policies of the runs.

        Parameters
        ----------
        name : str
            Of the threshold.
        setting : str, optional
            Of the policy.
        strictest : {"max", "min"}
            Which of the policies' values counts.
        """
        chosen = self.thresholds.get(name)
        if chosen is not None and chosen.value is not None:
            return Figure(value=chosen.value), chosen.source
        values = self.settings(setting) if setting else []
        if not values:
            return NOTHING, ""
        return Figure(value=max(values) if strictest == "max" else min(values)), OWN_POLICY

    def accepted(self, check: str) -> bool:
        """Say whether people declared that a risk is accepted."""
        policies = [run.policy for run in self.pooled.runs if run.policy is not None]
        return self.inputs.accepted(check, policies) is not None
