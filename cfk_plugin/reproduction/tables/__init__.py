"""The tables of the experiments, from a folder or from OpenML."""
