"""The report's chapters: each takes the data and gives sections of the document."""
