"""Explainers from the literature, to be protected, attacked and compared.

Nothing here protects anybody. Each explainer is made from training rows and a model, by name
(`generators`) or by its class, and is read by the same adapters as anybody's explainer.
"""
