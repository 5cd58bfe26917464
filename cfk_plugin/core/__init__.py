"""Groups of people, shared private values, and answers, in plain NumPy."""
