"""From evidence to what may be said of it: exact figures, checks, and disclosure control."""
