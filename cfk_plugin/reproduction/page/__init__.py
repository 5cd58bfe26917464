"""The page on the experiments and its plots: pure functions of the results."""
