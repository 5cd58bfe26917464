"""Which of two regions is better, as the policy says."""

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.hookspecs import Progress, Proposal, Protector, Task

__all__ = ["Progress", "Proposal", "Protector", "Rank", "Task", "needs_model", "rank"]

Rank = tuple[float, float, float]


def rank(policy: PrivacyPolicy, ncp: float, pureness: float) -> Rank:
    """Return a sort key: smaller is better.

    First comes how far the policy's bounds (`min_pureness`, `max_ncp`) are missed, then the objective: pureness
    before NCP (the paper's order), NCP before pureness, or the weighted sum.
    """
    missed = max(0.0, (policy.min_pureness or 0.0) - pureness)
    if policy.max_ncp is not None:
        missed += max(0.0, ncp - policy.max_ncp)
    if policy.objective == "pureness":
        return (missed, -pureness, ncp)
    if policy.objective == "ncp":
        return (missed, ncp, -pureness)
    return (missed, ncp + policy.pureness_weight * (1.0 - pureness), -pureness)


def needs_model(policy: PrivacyPolicy) -> bool:
    """Say whether the choice of a region depends on pureness."""
    return policy.objective != "ncp" or bool(policy.min_pureness)
