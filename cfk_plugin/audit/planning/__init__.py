"""All audits together: what each needs, sizes that fit a budget, and what they show at best."""

from cfk_plugin.audit.planning.audits import AUDITS, Audit, AuditTask, Report, Scope
from cfk_plugin.audit.planning.budget import said, seconds_of
from cfk_plugin.audit.planning.carrying_out import run_planned
from cfk_plugin.audit.planning.detectable import can_detect
from cfk_plugin.audit.planning.plan import Plan, plan
from cfk_plugin.audit.planning.sizes import STEPS, Sizes

__all__ = [
    "AUDITS",
    "STEPS",
    "Audit",
    "AuditTask",
    "Plan",
    "Report",
    "Scope",
    "Sizes",
    "can_detect",
    "plan",
    "run_planned",
    "said",
    "seconds_of",
]
