"""Lower bounds on epsilon: how much a function really gives away about one person, at least.

An audit can refute a claim of differential privacy and never prove it.
"""

from cfk_plugin.audit.epsilon.bounds import EpsilonBound, ceiling, epsilon_bound, runs_needed
from cfk_plugin.audit.epsilon.canary import canary_audit
from cfk_plugin.audit.epsilon.one_run import one_run_audit
from cfk_plugin.audit.epsilon.one_run_bounds import canaries_needed, one_run_bound, one_run_ceiling, p_value
from cfk_plugin.audit.epsilon.result import EpsilonAudit
from cfk_plugin.audit.epsilon.rule import epsilon_from_scores
from cfk_plugin.audit.epsilon.running import Jobs, seconds_needed
from cfk_plugin.audit.epsilon.worlds import Worlds, neighbours

__all__ = [
    "EpsilonAudit",
    "EpsilonBound",
    "Jobs",
    "Worlds",
    "canaries_needed",
    "canary_audit",
    "ceiling",
    "epsilon_bound",
    "epsilon_from_scores",
    "neighbours",
    "one_run_audit",
    "one_run_bound",
    "one_run_ceiling",
    "p_value",
    "runs_needed",
    "seconds_needed",
]
