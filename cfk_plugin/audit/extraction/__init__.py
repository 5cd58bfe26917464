"""Copying a model from what it answers, and attacks that ask the copy."""

from cfk_plugin.audit.extraction.architecture import Architecture, Network
from cfk_plugin.audit.extraction.attribute import attribute_inference_through_surrogate
from cfk_plugin.audit.extraction.cost import (
    Paces,
    attribute_inference_through_surrogate_work,
    extraction_work,
    membership_through_surrogate_work,
)
from cfk_plugin.audit.extraction.fidelity import QUERIES, extraction
from cfk_plugin.audit.extraction.membership import membership_through_surrogate
from cfk_plugin.audit.extraction.telling import LAYERS, PAPER_LAYERS

__all__ = [
    "LAYERS",
    "PAPER_LAYERS",
    "QUERIES",
    "Architecture",
    "Network",
    "Paces",
    "attribute_inference_through_surrogate",
    "attribute_inference_through_surrogate_work",
    "extraction",
    "extraction_work",
    "membership_through_surrogate",
    "membership_through_surrogate_work",
]
