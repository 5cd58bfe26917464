"""How the policy ranks regions for a counterfactual."""

from __future__ import annotations

from typing import NamedTuple

from cfk_plugin.data.policy import PrivacyPolicy


class Rank(NamedTuple):
    """A sort key for regions; the smallest is the best."""

    shortfall: float  # by how much the policy's bounds are missed, in total
    objective: float  # NCP, or minus pureness
    other: float  # what the objective leaves undecided: minus pureness, or NCP


def rank(policy: PrivacyPolicy, ncp: float, pureness: float) -> Rank:
    """Return the rank of a region with some NCP and pureness."""
    shortfall = max(0.0, (policy.min_pureness or 0.0) - pureness)
    if policy.max_ncp is not None:
        shortfall += max(0.0, ncp - policy.max_ncp)
    if policy.objective == "pureness":
        return Rank(shortfall, -pureness, ncp)
    return Rank(shortfall, ncp, -pureness)


def needs_model(policy: PrivacyPolicy) -> bool:
    """Return True if the choice of a region depends on pureness."""
    return policy.objective != "ncp" or bool(policy.min_pureness)
