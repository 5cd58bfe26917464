"""Audits, for the data holder: attacks on what is released, each with an interval, a baseline and a
control.
"""

from cfk_plugin.audit.epsilon import EpsilonAudit, canary_audit, one_run_audit
from cfk_plugin.audit.epsilon_bounds import canaries_needed, epsilon_from_scores, runs_needed
from cfk_plugin.audit.inversion import inversion
from cfk_plugin.audit.linkage import (
    ATTACKS,
    downcoding,
    homogeneity,
    intersection,
    linkage,
    model_filter,
    run_linkage_audit,
    uniqueness,
)
from cfk_plugin.audit.result import AuditReport, AuditResult, Check, Rate, rate, to_frame
from cfk_plugin.audit.setting import Setting
from cfk_plugin.audit.steering import nearest_row, steering

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
    "downcoding",
    "epsilon_from_scores",
    "homogeneity",
    "intersection",
    "inversion",
    "linkage",
    "model_filter",
    "nearest_row",
    "one_run_audit",
    "rate",
    "run_linkage_audit",
    "runs_needed",
    "steering",
    "to_frame",
    "uniqueness",
]
