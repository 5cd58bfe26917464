"""Adapters between counterfactual explainers and `cfk_plugin`, one module for each explainer."""
