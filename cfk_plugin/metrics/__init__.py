"""Metrics of privacy, validity and information loss; each works alone.

Definitions: docs/reference/metrics.md.
"""

from cfk_plugin.metrics.combinations import (
    Plausibility,
    Pureness,
    plausibility,
    pureness,
    region_plausibility,
)
from cfk_plugin.metrics.information import (
    classification_metric,
    discernibility,
    ncp,
    ncp_by_attribute,
)
from cfk_plugin.metrics.intervals import (
    POOLED,
    Bounds,
    Estimate,
    GroupGap,
    auc_interval,
    balanced_interval,
    bootstrap,
    clopper_pearson,
    group_gap,
    wilson,
)
from cfk_plugin.metrics.risk import (
    LDiversity,
    Risk,
    attribute_disclosure,
    k_private,
    l_diversity,
    marketer_risk,
    prosecutor_risk,
    t_closeness,
)
from cfk_plugin.metrics.uniqueness import AttributeProfile, PrivateProfile, private_profile

__all__ = [
    "POOLED",
    "AttributeProfile",
    "Bounds",
    "Estimate",
    "GroupGap",
    "LDiversity",
    "Plausibility",
    "PrivateProfile",
    "Pureness",
    "Risk",
    "attribute_disclosure",
    "auc_interval",
    "balanced_interval",
    "bootstrap",
    "classification_metric",
    "clopper_pearson",
    "discernibility",
    "group_gap",
    "k_private",
    "l_diversity",
    "marketer_risk",
    "ncp",
    "ncp_by_attribute",
    "plausibility",
    "private_profile",
    "prosecutor_risk",
    "pureness",
    "region_plausibility",
    "t_closeness",
    "wilson",
]
