"""The experiments of Goethals, Sörensen and Martens (2023), repeated with the solvers of
cfk_plugin next to theirs. ``run.py`` is where to begin.
"""
