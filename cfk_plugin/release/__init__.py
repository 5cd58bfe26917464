"""Whether something may leave: detect, protect, verify, put on record, and only then an explanation."""
