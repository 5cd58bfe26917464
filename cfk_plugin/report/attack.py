"""An attack of a report: what it reached, and whether that speaks of what was released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cfk_plugin.report.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What one attack reached; see `cfk_plugin.audit.AuditResult`.

    Attributes
    ----------
    id : str
        Name of the attack.
    family : str
        ``linkage``, ``membership``, ``extraction``, ``attribute_inference`` or ``epsilon``.
    scenario : str
        What the attacker knows and does, in one sentence.
    main, baseline, control : Amount
    figures : mapping of str to Amount
        The attack's own numbers.
    worked : bool
    covers : bool
        Whether it was run on the policy and population of all explanations of the report.
    run : str
        Id of the run that holds it; empty in the external edition.
    subject : str
        Who or what was attacked, where the audit says so: an explainer, with or without protection.
    concerns : bool
        Whether its policy is that of any explanation of the report. An explainer without protection has none.
    judged : bool
        Whether a check judges it. The same attack on something else is there for comparison.
    """

    id: str
    family: str
    scenario: str
    main: Amount
    baseline: Amount
    control: Amount
    figures: Mapping[str, Amount] = field(default_factory=dict)
    worked: bool = False
    covers: bool = True
    run: str = ""
    subject: str = ""
    concerns: bool = True
    judged: bool = True
