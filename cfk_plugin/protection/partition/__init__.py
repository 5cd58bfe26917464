"""Groups of at least k people, fixed before the first query."""
