"""Differentially private counterfactuals."""

from cfk_plugin.dp.domain import PublicColumn, PublicDomain, PublicEncoder, infer_domains
from cfk_plugin.dp.prototypes import DPPrototypes

__all__ = ["DPPrototypes", "PublicColumn", "PublicDomain", "PublicEncoder", "infer_domains"]
