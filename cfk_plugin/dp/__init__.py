"""Differentially private counterfactuals, and the published method of that name, which guarantees nothing."""

from cfk_plugin.dp.encoding import PublicEncoder
from cfk_plugin.dp.prototypes import DPPrototypes
from cfk_plugin.dp.public import PublicColumn, PublicDomain, infer_domains
from cfk_plugin.dp.published.dpc import DPC

__all__ = ["DPC", "DPPrototypes", "PublicColumn", "PublicDomain", "PublicEncoder", "infer_domains"]
