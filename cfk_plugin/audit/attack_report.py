"""The results of attacks on one service: read them, log them. One shape for membership, extraction and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from cfk_plugin.audit.result import AuditResult, to_frame
from cfk_plugin.audit.tracking import metrics
from cfk_plugin.records.run import LoggedReport, ReportContents

SCHEMA_VERSION = 1
"""Version of the layout of `AttackReport.to_json`."""

Kind = Literal["membership", "extraction", "attribute_inference"]


@dataclass(frozen=True, slots=True)
class Curve:
    """A receiver operating characteristic: true positive rate over false positive rate, from (0, 0) to (1, 1).

    Attributes
    ----------
    fpr, tpr : tuple of float
        Both ascending, of the same length.
    """

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackReport(LoggedReport):
    """What attacks on one service found. Counts, shares and settings alone; it may leave the host.

    Attributes
    ----------
    kind : {"membership", "extraction", "attribute_inference"}
    subject : str
        What was attacked: the owner's name.
    results : tuple of AuditResult
        Names begin with the kind, so that reports find their family.
    settings : mapping
        Sizes and choices, as they are logged.
    curves : mapping
        Attack to its ROC curve, where it has one.
    policy : mapping, optional
        Settings of the policy that protected, where one did.
    population : str, optional
        Keyed fingerprint of the population, where one was protected.
    seconds : float
        How long it took.
    """

    kind: Kind
    subject: str
    results: tuple[AuditResult, ...]
    settings: Mapping[str, str | int | float | bool]
    curves: Mapping[str, Curve] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    population: str | None = None
    seconds: float = 0.0

    def __iter__(self) -> Iterator[AuditResult]:
        """Iterate over the results."""
        return iter(self.results)

    def __getitem__(self, attack: str) -> AuditResult:
        """Return the result of one attack."""
        for result in self.results:
            if result.attack == attack:
                return result
        raise KeyError(attack)

    @property
    def _place(self) -> str:
        """Where the report stands in a run: attacks through a copy of the model beside those of the same kind."""
        through_copy = f"{self.kind}_surrogate"
        names = [result.attack for result in self.results]
        return through_copy if names and all(name.startswith(through_copy) for name in names) else self.kind

    def to_frame(self) -> pd.DataFrame:
        """Return one row per attack, with the subject; see `cfk_plugin.audit.to_frame`."""
        frame = to_frame(self.results)
        frame.insert(0, "subject", self.subject)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "subject": self.subject,
            "settings": dict(self.settings),
            "policy": None if self.policy is None else dict(self.policy),
            "population": self.population,
            "seconds": self.seconds,
            "results": [result.to_dict() for result in self.results],
            "curves": {name: {"fpr": list(curve.fpr), "tpr": list(curve.tpr)} for name, curve in self.curves.items()},
        }

    def _contents(self) -> ReportContents:
        """Return metrics ``audit/<attack>/<figure>``, the settings, and the report.

        A run can hold one report of each kind, and beside it one of the same kind through a copy of the model.
        """
        marks = {"cfk.audit": self.kind, "cfk.audit.subject": self.subject}
        if self.population is not None:
            marks["cfk.population_fingerprint"] = self.population
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=f"cfk/audit-{self._place}.json",
            metrics=tuple(metrics(self.results)),
            params={f"audit.{self._place}.{name}": str(value) for name, value in self.settings.items()},
            tags=marks,
        )
