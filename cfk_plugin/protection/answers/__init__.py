"""Which entry of a catalogue answers a query, and how it moves towards the query."""
