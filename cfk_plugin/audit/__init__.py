"""Audits: attacks on what is released, each with an interval, a baseline and a control.

They are for the data holder, who knows the training rows: a report says how far attackers with stated knowledge
get, and holds counts and shares alone.
"""

from cfk_plugin.audit.disclosure import homogeneity, uniqueness
from cfk_plugin.audit.downcoding import downcoding
from cfk_plugin.audit.epsilon import (
    EpsilonAudit,
    canaries_needed,
    canary_audit,
    epsilon_from_scores,
    one_run_audit,
    runs_needed,
)
from cfk_plugin.audit.intersection import intersection
from cfk_plugin.audit.inversion import inversion
from cfk_plugin.audit.linkage import linkage
from cfk_plugin.audit.model_filter import model_filter
from cfk_plugin.audit.promise import Check
from cfk_plugin.audit.report import ATTACKS, AuditReport, run_linkage_audit
from cfk_plugin.audit.result import AuditResult, Rate, rate, to_frame
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
