"""The entries that explanations are made of, fixed before the first query."""
