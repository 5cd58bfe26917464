"""Protectors that choose a region for each counterfactual."""
