"""Attribute inference: what explanations tell of private attributes of people in the training table."""

from cfk_plugin.audit.attribute_inference.attack import attribute_inference, attribute_inference_work

__all__ = ["attribute_inference", "attribute_inference_work"]
