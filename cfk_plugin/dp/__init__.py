"""Differentially private counterfactuals, and the published method of that name, which guarantees
nothing.
"""

from cfk_plugin.dp.domain import PublicColumn, PublicDomain, PublicEncoder, infer_domains
from cfk_plugin.dp.dpc import DPC
from cfk_plugin.dp.prototypes import DPPrototypes

__all__ = ["DPC", "DPPrototypes", "PublicColumn", "PublicDomain", "PublicEncoder", "infer_domains"]
