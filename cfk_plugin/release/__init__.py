"""What may leave: detect, protect, verify, put on record, and only then release an explanation."""
