"""Audits, for the data holder: attacks on what is released, each with an interval, a baseline and a
control.
"""

from cfk_plugin.audit.epsilon import EpsilonAudit, canary_audit, one_run_audit
from cfk_plugin.audit.epsilon_bounds import canaries_needed, epsilon_from_scores, runs_needed
from cfk_plugin.audit.linkage import (
    ATTACKS,
    linkage,
    model_filter,
    run_linkage_audit,
    uniqueness,
)
from cfk_plugin.audit.result import AuditReport, AuditResult, Check, Rate, rate, to_frame
from cfk_plugin.audit.setting import Setting

__all__ = [
    "ATTACKS",
    "AuditReport",
    "AuditResult",
    "Check",
    "EpsilonAudit",
    "Rate",
    "Setting",
    "canaries_needed",
    "canary_audit",
    "epsilon_from_scores",
    "linkage",
    "model_filter",
    "one_run_audit",
    "rate",
    "run_linkage_audit",
    "runs_needed",
    "to_frame",
    "uniqueness",
]
